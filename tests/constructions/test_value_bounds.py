"""How far a kernel's readout may be from the exact value of a weighted automaton."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from functools import cache, reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.api import Weights
from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.value_bounds import value_bounds
from statetrack.constructions.weights import lower
from statetrack.theory.weighted import Wfa, from_matrices_dict
from tests.strategies import fewer

ROUND_OFF = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}


def automaton(initial: Sequence[object], a: object, b: object, final: Sequence[object]) -> Wfa:
    return from_matrices_dict(
        {
            "semiring": "real",
            "alphabet": ["a", "b"],
            "initial": list(initial),
            "matrices": {"a": a, "b": b},
            "final": list(final),
        }
    )


AUTOMATA = {
    "binary value": automaton([1, 0], [[1, 0], [0, 2]], [[1, 1], [0, 2]], [0, 1]),
    "thirds": automaton(["1/3", 1], [["2/3", "1/7"], [0, "1/3"]], [["1/5", "-1/3"], ["1/3", "2/3"]], [1, "-1/3"]),
    "cancels": automaton([1, "1/3"], [[3, "-1/3"], ["1/3", 1]], [["-1/7", 2], [1, "1/9"]], ["1/3", -1]),
    "projects": automaton([1, 1], [["1/3", "1/3"], ["1/3", "1/3"]], [[0, 0], ["1/7", 1]], [1, 2]),
}


@cache
def made(name: str, goal: str) -> Compiled:
    return compile_source(AUTOMATA[name], goal)


@cache
def weights(name: str, goal: str, dtype: str) -> Weights:
    one = made(name, goal)
    found = lower(one.program, one.certificate, one.automaton, dtype)
    return Weights(found.dtype, found.tensors, found.certificate, found.automaton)


def errors(name: str, goal: str, word: Sequence[str], dtype: str) -> list[Fraction]:
    """What a run of the reference in this format is off by, after each token."""
    (got,) = weights(name, goal, dtype).values([word], device="cpu", executor="reference")
    return [abs(Fraction(x) - Fraction(y)) for x, y in zip(got, made(name, goal).automaton.run(word), strict=True)]


@fewer(8)
@given(
    st.sampled_from(sorted(AUTOMATA)),
    st.sampled_from(["unconstrained", "ckda-wide", "deltanet-wide"]),
    st.lists(st.sampled_from("ab"), max_size=12),
)
def test_a_run_in_doubles_is_inside_the_bound(name: str, goal: str, word: list[str]) -> None:
    one = made(name, goal)
    bounds = value_bounds(one.program, word)
    assert len(bounds) == len(word)
    assert all(error <= bound for error, bound in zip(errors(name, goal, word, "float64"), bounds, strict=True))


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("goal", ["unconstrained", "ckda-wide", "deltanet-wide"])
def test_the_bound_holds_in_every_format_and_a_millionth_of_it_does_not(dtype: str, goal: str) -> None:
    missed = 0
    for name in ("thirds", "cancels"):
        one = made(name, goal)
        word = random.Random(1).choices("ab", k=24)
        bounds = value_bounds(one.program, word, round_off=ROUND_OFF[dtype])
        off = errors(name, goal, word, dtype)
        assert all(error <= bound for error, bound in zip(off, bounds, strict=True))
        missed += sum(error > bound / 1e6 for error, bound in zip(off, bounds, strict=True))
    assert missed


def test_doubles_do_not_keep_the_bound_of_a_finer_format() -> None:
    one = made("cancels", "ckda-wide")
    word = random.Random(2).choices("ab", k=24)
    finer = value_bounds(one.program, word, round_off=2.0**-75)
    assert any(
        error > bound for error, bound in zip(errors("cancels", "ckda-wide", word, "float64"), finer, strict=True)
    )


def rounded_up(wfa: Wfa, word: Sequence[str], u: Fraction) -> list[Fraction]:
    """Readouts of numbers that are not negative, if each number stored, product, sum and state grows by the part u."""
    up = 1 + u

    def product(row: Sequence[Fraction], state: Sequence[Fraction]) -> Fraction:
        return reduce(lambda total, x: (total + x) * up, [x * up * y * up for x, y in zip(row, state, strict=True)])

    state, found = [x * up for x in wfa.initial], list[Fraction]()
    for symbol in word:
        state = [product(row, state) * up for row in wfa.matrices[wfa.alphabet.index(symbol)]]
        found.append(product(wfa.final, state))
    return found


@pytest.mark.parametrize(("bits", "length"), [(53, 1), (53, 24), (24, 24), (8, 24), (8, 200)])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_any_matrix_is_bounded_if_all_roundings_go_the_same_way(size: int, bits: int, length: int) -> None:
    draw = random.Random(size)
    a, b = ([[Fraction(draw.randint(1, 9), 8**i) for _ in range(size)] for i in range(size)] for _ in "ab")
    wfa = automaton([1] * size, a, b, [1] * size)
    word = draw.choices("ab", k=length)
    bounds = value_bounds(compile_source(wfa, "unconstrained").program, word, round_off=2.0**-bits)
    off = [x - y for x, y in zip(rounded_up(wfa, word, Fraction(1, 2**bits)), wfa.run(word), strict=True)]
    assert all(0 < x <= bound for x, bound in zip(off, bounds, strict=True))
    if bits > 8:
        assert all(bound < 2 * x for x, bound in zip(off, bounds, strict=True))


def test_a_bound_is_proportional_to_the_unit_of_the_format() -> None:
    one = made("thirds", "unconstrained")
    word = random.Random(3).choices("ab", k=16)
    fine, coarse = (value_bounds(one.program, word, round_off=u) for u in (2.0**-53, 2.0**-43))
    assert all(y == pytest.approx(1024 * x, rel=1e-6) for x, y in zip(fine, coarse, strict=True))
    assert value_bounds(one.program, []) == ()
    longer = value_bounds(one.program, [*word, "a"])
    assert longer[:-1] == fine


def test_integers_small_enough_are_computed_without_error() -> None:
    one = made("binary value", "unconstrained")
    word = random.Random(4).choices("ab", k=40)
    assert errors("binary value", "unconstrained", word, "float64") == [0] * 40
    assert one.automaton.run(word)[-1] == int("".join(str(int(x == "b")) for x in word), 2)
