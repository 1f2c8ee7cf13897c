"""A square root over a real cyclotomic field: arithmetic, signs, and what the checker makes of it."""

from __future__ import annotations

import json
import math
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from statetrack.errors import InvalidInput
from statetrack.proofs_check import checker, networks
from statetrack.theory.fields import Element
from statetrack.theory.number_fields import RealCyclotomic, field_from_json
from statetrack.theory.quadratic_fields import RootField, root_field

BASE = RealCyclotomic(24)
# The square of twice the cosine of half the angle between an axis of order three and one of order four.
FIELD, LENGTH = root_field(BASE.sqrt(3) * 2 / 3 + 2)
NUMBERS = some.lists(some.integers(-9, 9), min_size=8, max_size=8)


def number(coordinates: list[int], den: int = 1) -> Element:
    return FIELD.element(coordinates, den)


@given(NUMBERS, NUMBERS, NUMBERS, some.integers(1, 7))
def test_it_is_a_field_that_agrees_with_floats(a: list[int], b: list[int], c: list[int], den: int) -> None:
    x, y, z = number(a, den), number(b), number(c)
    assert x * (y + z) == x * y + x * z
    assert math.isclose(float(x * y), float(x) * float(y), rel_tol=1e-9, abs_tol=1e-6)
    if not x.is_zero():
        assert x * x.inverse() == 1
        assert x.sign() == (1 if float(x) > 0 else -1)


def test_the_root_is_the_length_it_was_made_for() -> None:
    assert math.isclose(float(LENGTH), 2 * math.cos(math.acos(1 / math.sqrt(3)) / 2))
    assert FIELD.embed(BASE.sqrt(3) * 2 / 3 + 2) == LENGTH * LENGTH
    assert FIELD.embed(RealCyclotomic(8).sqrt(2)) * FIELD.embed(BASE.sqrt(2)) == 2
    assert field_from_json(FIELD.to_json()) == FIELD
    for wrong in (BASE(-2), BASE.sqrt(2) / 3, BASE.zero):
        with pytest.raises(InvalidInput, match="positive integer"):
            RootField(BASE, wrong)


@given(NUMBERS, NUMBERS)
def test_the_checker_multiplies_and_encloses_alike(a: list[int], b: list[int]) -> None:
    field = networks.Rooted(FIELD.to_json())
    x, y = (field.number(number(row).to_json()) for row in (a, b))
    assert field.dot((x,), (y,)) == field.number((number(a) * number(b)).to_json())
    assert field.dot((x, y), (checker.ONE, checker.ONE)) == field.number((number(a) + number(b)).to_json())
    low, high = field.enclose(x, 80)
    assert low <= float(number(a)) * 2**80 + 2**40
    assert high >= float(number(a)) * 2**80 - 2**40
    assert high - low < 2**20
    assert field.at_least(x, y) == (number(a) >= number(b))


def test_the_checker_refuses_roots_of_negative_and_fractional_numbers() -> None:
    for square in (-2, 0, "1/2"):
        with pytest.raises(checker.Refused, match="root"):
            networks.Rooted({"cos": 24, "root": square})
    text = json.dumps({"cos": 24, "root": 2, "more": 1})
    with pytest.raises(checker.Refused, match="keys"):
        networks.Rooted(json.loads(text))


@pytest.mark.parametrize(("order", "square"), [(1, 4), (24, 2), (5, 5), (840, 7), (8, [1, 0, 3, 1, 2])])
def test_the_checker_refuses_the_root_of_a_square(order: int, square: Any) -> None:
    """The last is (1 + √2)²: with such a root zero would have coordinates that are not zero."""
    with pytest.raises(checker.Refused, match="root"):
        networks.Rooted({"cos": order, "root": square})


@pytest.mark.parametrize(("order", "square"), [(1, 2), (5, 2), (8, 3), (24, [1, 0, 2, 1, 1]), (840, 11)])
def test_the_checker_takes_the_root_of_what_is_no_square(order: int, square: Any) -> None:
    assert networks.Rooted({"cos": order, "root": square}).m == 2 * checker.Field(order).m


def test_a_factor_along_a_key_that_is_zero_is_refused() -> None:
    """Over Q(√4) the key √4 - 2 is zero, and h -> h + 1 would pass for a factor that adds along its key."""
    step = {"w": [[1, 0, -2, 1, 1]], "c": 1, "b": [[1]]}
    reset: dict[str, Any] = {"w": [1], "c": 1}
    rule = {"target": "key", "gates": "one", "low": 1, "high": 1, "beta_max": 1, "factors": 2}
    head = {"h0": [[0]], "steps": [[reset], [reset, step]], "derived": [], "queries": [[1]], "labels": None}
    top: dict[str, Any] = {
        "format": "statetrack-certificate/1",
        "kind": "closure",
        "field": {"cos": 1, "root": 4},
        "range": rule | {"additive": "key", "dense": False},
        "layers": [{"heads": [head], "inputs": [[[0], [0, 0]], [[1], [1, 0]]], "emit": None}],
        "automaton": {
            "alphabet": ["reset", "set"],
            "states": ["0", "1"],
            "outputs": [False, True],
            "start": 0,
            "delta": [[0, 1], [0, 1]],
        },
        "claims": {"joint": 2, "states": [[2]], "codes": [[2]], "margin": [[1]]},
    }
    top["digest"] = sha256(json.dumps(top, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    with pytest.raises(checker.Refused, match="root"):
        networks.verify(json.dumps(top))
