"""Queries and exact margins: the first query of a group, the best one, and each head of networks of any kind."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.margins import first_query, margin, margins_of
from statetrack.constructions.program import Head, head_orbit
from statetrack.printing import network_facts
from statetrack.proofs_check import networks
from statetrack.theory.arrays import Matrix, transpose, vector
from statetrack.theory.number_fields import rationals
from statetrack.theory.signed_householder_groups import squared_margin


def only_head(name: str, construction: str) -> Head:
    made = compile_source(name, "ckda", construction=construction)
    return made.program.layers[0].heads[0]


def states_of(head: Head) -> list[Matrix]:
    """All states, the identity first."""
    orbit = head_orbit(head, max_states=10_000)
    orbit.close()
    rows: list[list[int]] = orbit.rows(range(len(orbit))).tolist()
    columns = [orbit.columns.vector(i) for i in range(len(orbit.columns))]
    return [transpose(tuple(columns[i] for i in row)) for row in rows]


@pytest.mark.parametrize(
    ("name", "construction", "count", "query"),
    [
        ("A4", "cube", 12, (0, 1, -1)),
        ("S4", "cube", 24, (0, 1, -1)),
        ("D3", "quaternion", 18, (0, 1, -1, -1)),
        ("D4", "quaternion", 32, (0, 1, -2, -2)),
        ("D5", "quaternion", 50, (0, 1, -1, -1)),
        ("A4", "quaternion", 96, (0, 1, -1, -1)),
        ("S4", "quaternion", 576, (1, -3, -3, -2)),
    ],
)
def test_the_first_query_is_that_of_the_table(name: str, construction: str, count: int, query: tuple[int, ...]) -> None:
    states = states_of(only_head(name, construction))
    assert len(states) == count
    assert first_query(states) == query


@pytest.mark.parametrize(
    ("name", "construction", "best"),
    [
        ("A4", "cube", 4 / math.sqrt(10 + 2 * math.sqrt(5))),
        ("S4", "cube", 0.744206),
        ("D3", "quaternion", 2 * math.sin(math.pi / 6)),
        ("A4", "quaternion", (math.sqrt(5) - 1) / 2),
        ("S4", "quaternion", 0.302722),
        ("Z4xZ4", "one-head", 2 / math.sqrt(6)),
        ("Z6xZ3", "one-head", 2 / math.sqrt(3 / math.sin(math.pi / 3) ** 2 + 1 / math.sin(math.pi / 6) ** 2)),
    ],
)
def test_the_query_comes_close_to_the_best_margin(name: str, construction: str, best: float) -> None:
    made = compile_source(name, "ckda", construction=construction)
    assert made.margin is not None
    assert 0.985 * best <= made.margin.unit <= best + 1e-6
    if construction != "quaternion":
        return
    # All states of an orthogonal group, and not only those of different elements: at most the codebook's margin.
    head = made.program.layers[0].heads[0]
    query = vector(head.field, head.queries[0])
    assert float(squared_margin(states_of(head), query)) <= made.margin.unit**2 + 1e-9


@pytest.mark.parametrize("name", ["Q8", "SmallGroup(20,3)", "SmallGroup(24,3)", "SmallGroup(36,9)", "A4xZ2", "Z5"])
def test_each_head_of_several_has_an_exact_margin_that_the_checker_confirms(name: str) -> None:
    made = compile_source(name, "ckda")
    facts = networks.verify(made.certificate.text())
    flat = [m for row in made.margins for m in row]
    assert [len(row) for row in made.margins] == [len(row) for row in made.dims]
    assert [m and m.bound for m in flat] == facts["margins"]
    assert made.margin == min((m for m in flat if m is not None), key=lambda m: m.unit)
    for m in flat:
        if m is not None:
            low, high = m.squared.enclose(128)
            assert m.bound**2 <= low
            assert high < (m.bound + Fraction(1, 10**14)) ** 2


@pytest.mark.parametrize(("source", "goal"), [("S5", "ckda"), ("(a|b)*abb", "ckda"), ("Z7", "deltanet")])
def test_margins_have_the_shape_of_the_network(source: str, goal: str) -> None:
    made: Compiled = compile_source(source, goal)
    shown = network_facts(made.certificate.data)
    shape = [len(row) for row in made.dims]
    assert [len(row) for row in margins_of(made.program)] == shape == [len(row) for row in shown["margins"]]
    assert [[None if m is None else m.bound for m in row] for row in made.margins] == [
        [None if m is None else Fraction(m) for m in row] for row in shown["margins"]
    ]


@pytest.mark.parametrize("bits", [0, 28, 44])
def test_the_closest_pair_is_found_however_small_the_codewords_are(bits: int) -> None:
    field, draw = rationals(), random.Random(1)
    numbers = sorted({(draw.randrange(-1000, 1000), draw.randrange(-1000, 1000)) for _ in range(120)})
    rows = [tuple(field(Fraction(x, 2**bits)) for x in row) for row in numbers]
    points = np.array([[float(x) for x in row] for row in rows])
    found = margin(rows, points, np.arange(len(rows), dtype=np.int32), 1.0)
    least = min((a - c) ** 2 + (b - d) ** 2 for (a, b), (c, d) in combinations(numbers, 2))
    assert found is not None
    assert found.squared == field(Fraction(least, 4**bits))
