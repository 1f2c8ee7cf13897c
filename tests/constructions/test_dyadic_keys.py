"""Lengths of keys that make a step most exact: exact where it can be, never worse than unit keys, and kept in files."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack import api
from statetrack.constructions.dyadic_keys import dyadic_key
from statetrack.constructions.weights import FORMATS
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.theory.arrays import vector
from statetrack.theory.number_fields import rationals
from statetrack.theory.number_formats import FORMATS_BY_NAME, number_format

Q = rationals()
entries = st.lists(st.integers(-7, 7), min_size=1, max_size=5).filter(any)


def error(key: list[float], beta: float, w: list[int], c: Fraction) -> Fraction:
    """The squared Frobenius distance of β k kᵀ and c w wᵀ, exactly."""
    k, b = [Fraction(x) for x in key], Fraction(beta)
    pairs = [(i, j) for i in range(len(w)) for j in range(len(w))]
    return sum(((b * k[i] * k[j] - c * w[i] * w[j]) ** 2 for i, j in pairs), Fraction(0))


@pytest.mark.parametrize("form", list(FORMATS_BY_NAME))
@pytest.mark.parametrize("w", [(1, -1), (1, 1, 1, 1), (0, 2, 2), (-1,), (2, 3, 3, 3, 1)])
def test_a_dyadic_reflection_is_exact_in_every_format(w: tuple[int, ...], form: str) -> None:
    c = Fraction(2, sum(x * x for x in w))
    key, beta = dyadic_key(vector(Q, w), Q(c), FORMATS[form], number_format(form).precision)
    assert error(key.tolist(), beta, list(w), c) == 0


@given(entries, st.sampled_from([Fraction(2), Fraction(1), Fraction(3, 2)]), st.sampled_from(list(FORMATS_BY_NAME)))
def test_a_dyadic_key_is_of_its_format_and_no_worse_than_a_unit_key(w: list[int], beta: Fraction, form: str) -> None:
    number, kind = number_format(form), FORMATS[form]
    square = Fraction(sum(x * x for x in w))
    c = beta / square
    key, scaled = dyadic_key(vector(Q, w), Q(c), kind, number.precision)
    assert all(number.holds(Fraction(x)) for x in [*key.tolist(), scaled])
    unit = (np.array(w) / float(square) ** 0.5).astype(kind).astype(np.float64)
    assert error(key.tolist(), scaled, w, c) <= error(unit.tolist(), float(beta), w, c) + Fraction(1, 10**25)


def test_keys_of_additive_terms_keep_their_length() -> None:
    made = api.build("(a|b)*abb", "kda", check=False)
    unit, other = made.weights("bfloat16"), made.weights("bfloat16", "dyadic")
    valued = [name for name in unit.tensors if name.endswith(".values")]
    assert valued
    for name in valued:
        has = unit.tensors[name].astype(np.float64).any(axis=-1)
        keys = name.replace("values", "keys")
        assert np.array_equal(unit.tensors[keys][has], other.tensors[keys][has])
    assert other.run(random=8, length=100, seed=1, device="cpu", executor="reference").wrong == 0


@pytest.mark.parametrize("rule", ["unit", "dyadic"])
def test_a_file_says_its_rule_and_is_lowered_again_by_it(rule: str, tmp_path: Path) -> None:
    weights = api.build("D5", "ckda", check=False).weights("bfloat16", rule)
    path = tmp_path / "d5.safetensors"
    weights.save(path)
    assert api.load(path).keys == rule
    assert api.check(path)["states"] == 10
    other = "unit" if rule == "dyadic" else "dyadic"
    replace(weights, keys=other).save(path)
    with pytest.raises(InvalidFile, match="not the certified program"):
        api.check(path)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InvalidInput, match="know unit, dyadic"):
        api.build("Z2", check=False).weights("float32", "short")


def test_dyadic_keys_lengthen_what_is_proved_in_a_short_format() -> None:
    for source, least in (("Z7", 2), ("D5", 2), ("A5", 1.4)):
        made = api.build(source, "ckda", check=False)
        assert made.weights("bfloat16", "dyadic").horizon() >= least * made.weights("bfloat16").horizon()
