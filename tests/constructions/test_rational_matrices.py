"""Integers over one denominator give the products that elements of the rationals give."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.program import Factor, step_map
from statetrack.constructions.rational_matrices import scaled, scaled_factor, scaled_rows
from statetrack.theory.arrays import vector
from statetrack.theory.number_fields import rationals

Q = rationals()
SMALL = st.fractions(-3, 3, max_denominator=7)
# Squares and products of these leave 64 bits.
LARGE = st.fractions(-(10**12), 10**12, max_denominator=10**9)


@st.composite
def factors(draw: st.DrawFn) -> Factor:
    n, numbers = draw(st.integers(1, 4)), draw(st.sampled_from([SMALL, LARGE]))

    def entries() -> list[Fraction]:
        return draw(st.lists(numbers, min_size=n, max_size=n))

    gates = vector(Q, map(Q, entries())) if draw(st.booleans()) else None
    return Factor(vector(Q, map(Q, entries())), Q(draw(numbers)), gates)


@given(factors())
def test_a_factor_has_the_matrix_that_its_step_has(factor: Factor) -> None:
    assert scaled_factor(factor).key == scaled(step_map(Q, (factor,), len(factor.w), 1).matrix).key


@given(factors(), factors())
def test_products_and_rows_are_those_of_the_exact_matrices(first: Factor, second: Factor) -> None:
    n = len(first.w)
    if n == len(second.w):
        whole = step_map(Q, (first, second), n, 1).matrix
        product = scaled_factor(second).times(scaled_factor(first))
        assert product.key == scaled(whole).key
        assert scaled_rows([scaled((row,)) for row in whole]).key == product.key
