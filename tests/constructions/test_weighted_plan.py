"""Weighted automata as networks: exact values, certificates, the growth of the exact state, and float64 bounds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest

from benchmarks.weighted import exact_values
from statetrack import NoConstruction, build
from statetrack.api import Compiled
from statetrack.constructions.value_bounds import value_bounds
from statetrack.constructions.weighted_plan import bits_per_token
from statetrack.proofs_check import networks
from statetrack.theory.weighted import Wfa, from_matrices

GOALS = ("ckda-wide", "kda-wide", "unconstrained")
Rows = list[list[Fraction]]


def random_wfa(number: int) -> Wfa:
    """Two letters: any matrix, one of rank 1, or zero."""
    draw = random.Random(number)
    n = draw.randint(2, 4)

    def numbers() -> list[Fraction]:
        return [Fraction(draw.randint(-3, 3), draw.choice((1, 1, 1, 2, 3))) for _ in range(n)]

    def letter() -> Rows:
        kind = draw.choice(("any", "any", "rank 1", "zero"))
        if kind == "rank 1":
            u, v = numbers(), numbers()
            return [[x * y for y in v] for x in u]
        return [numbers() if kind == "any" else [Fraction(0)] * n for _ in range(n)]

    return from_matrices("ab", numbers(), {"a": letter(), "b": letter()}, numbers())


def shares(made: Compiled, wfa: Wfa, words: Sequence[tuple[str, ...]]) -> list[float]:
    """Errors of the kernels in float64 as shares of their bounds."""
    found = [0.0]
    for word, values in zip(words, made.weights("float64").values(words, device="cpu"), strict=True):
        for got, exact, bound in zip(values, exact_values(wfa, word), value_bounds(made.program, word), strict=True):
            error = abs(Fraction(got) - exact)
            if error:
                found.append(float(error / Fraction(bound)) if bound else float("inf"))
    return found


@pytest.mark.parametrize("number", range(16))
def test_random_automata_are_exact_and_float64_keeps_its_bound(number: int) -> None:
    wfa, draw = random_wfa(number), random.Random(number)
    made = build(wfa, GOALS[0] if number % 4 else GOALS[number // 4 % 3])
    assert networks.verify(made.certificate.text())["proved"].endswith("the weighted automaton's value")
    for word in product("ab", repeat=5):
        assert made.run(word) == exact_values(wfa, word)
    assert max(shares(made, wfa, [tuple(draw.choices("ab", k=k)) for k in (1, 8, 50)])) <= 1


def test_bounds_a_million_times_smaller_do_not_hold() -> None:
    found: list[float] = []
    for number in range(8):
        wfa, draw = random_wfa(number), random.Random(number)
        found += shares(build(wfa, "ckda-wide"), wfa, [tuple(draw.choices("ab", k=50))])
    assert 1e-6 < max(found) <= 1


def longest(made: Compiled, word: Sequence[str]) -> list[int]:
    """Bits of the longest number of the exact state after each symbol."""
    found: list[int] = []
    for _, _, state in made.program.runner.last_head(word):
        numbers = [x.as_fraction() or Fraction(0) for x in state]
        found.append(max(x.numerator.bit_length() + x.denominator.bit_length() for x in numbers))
    return found


@pytest.mark.parametrize("goal", GOALS)
def test_the_exact_state_grows_by_no_more_bits_a_token_than_the_bound(goal: str) -> None:
    thirds = {"a": [["1/3", 1], [0, "2/3"]], "b": [[2, 0], [1, "1/2"]]}
    wfa = from_matrices("ab", [1, 1], thirds, [1, -1])
    made = build(wfa, goal)
    assert isinstance(made.automaton, Wfa)
    bits = longest(made, random.Random(0).choices("ab", k=400))
    slopes = [(bits[2 * n - 1] - bits[n - 1]) / n for n in (50, 100, 200)]
    assert all(0.5 < slope <= bits_per_token(made.automaton) for slope in slopes)
    assert max(slopes) < 1.3 * min(slopes)


@pytest.mark.parametrize("goal", [*GOALS, "gdn-wide", "deltanet-wide"])
def test_zero_matrices_and_the_zero_function_are_networks(goal: str) -> None:
    nothing = [[0, 0], [0, 0]]
    wfa = from_matrices("ab", [1, 2], {"a": nothing, "b": [[1, 1], [0, 1]]}, [1, 1])
    for automaton in (wfa, from_matrices("ab", [1, 2], {"a": nothing, "b": nothing}, [0, 0])):
        made = build(automaton, goal)
        for word in product("ab", repeat=6):
            assert made.run(word) == exact_values(automaton, word)
        assert max(shares(made, automaton, [tuple("bbabbbbb"), tuple("bbbbbbbbb")])) <= 1


@pytest.mark.parametrize("goal", ["ckda", "kda", "deltaproduct", "diag[-1,1]"])
def test_narrow_targets_have_no_construction_for_weights(goal: str) -> None:
    with pytest.raises(NoConstruction, match="built with β above 2"):
        build(random_wfa(1), goal)
