"""Finite precision against brute force: the cast, powers, periodic inputs, refuters, and their edge cases."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from random import Random
from typing import Any

import pytest
from flint import fmpq, fmpq_mat, fmpq_poly
from hypothesis import example, given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidInput
from statetrack.theory.eventual import (
    Agrees,
    NotApplicable,
    Periodic,
    Unknown,
    Witness,
    eventual,
    fail_mod,
    fail_parity,
    least,
    limit_place,
    step_period,
)
from statetrack.theory.precision import (
    Datatype,
    Layer,
    NotReal,
    State,
    Token,
    diagonal,
    evcast,
    eventual_place,
    exact,
    eye,
    householder,
    is_real_rooted,
    matrix,
    minimal_polynomial,
    rational,
    roots,
    run,
    spectral_class,
    step,
    unrolled,
    without_one,
)
from tests.strategies import fewer

sympy: Any = import_module("sympy")

F = Fraction
NONNEG = [F(0), F(1), F(1, 2), F(1, 3), F(9, 10), F(3, 2)]
REAL = [*NONNEG, F(-1), F(-1, 2), F(-9, 10), F(-2)]
SIGNS = Datatype.of(-1, 0, 1)
# Two exponent bits, one bit of mantissa, subnormal numbers.
TINY_FLOATS = Datatype.of(
    *(s * x for s in (1, -1) for x in (F(0), F(1, 4), F(1, 2), F(3, 4), F(1), F(3, 2), F(2), F(3)))
)

small = st.fractions(min_value=-4, max_value=4, max_denominator=4)
datatypes = st.one_of(
    st.sampled_from(
        [
            SIGNS,
            Datatype.of(-1, 1),
            Datatype.of(0, 1),
            Datatype.of(-2, 0),
            Datatype.of(3),
            Datatype.of(*range(-8, 9)),
            Datatype.of(*(F(i, 4) for i in range(-8, 9))),
            TINY_FLOATS,
        ]
    ),
    st.lists(small, min_size=1, max_size=6, unique=True).map(lambda xs: Datatype.of(*xs)),
)


@st.composite
def matrices(draw: st.DrawFn, pool: list[Fraction], *, basis: bool = True, n: int | None = None) -> fmpq_mat:
    n = n or draw(st.integers(1, 3))
    couplings = st.sampled_from([0, 0, 1, -1])
    rows = [
        [draw(st.sampled_from(pool)) if i == j else draw(couplings) if j > i else 0 for j in range(n)] for i in range(n)
    ]
    jordan = matrix(rows)
    if not basis:
        return jordan
    lower = matrix([[1 if i == j else draw(couplings) if j < i else 0 for j in range(n)] for i in range(n)])
    p = lower * lower.transpose()
    return p * jordan * p.inv()


@st.composite
def table_layers(draw: st.DrawFn, pool: list[Fraction], tokens: range, *, columns: int = 1) -> Layer:
    n = draw(st.integers(1, 2))
    a: dict[Token, fmpq_mat] = {x: draw(matrices(pool, basis=False, n=n)) for x in tokens}
    b: dict[Token, fmpq_mat] = {x: draw(blocks(n, columns)) for x in tokens}
    return Layer(a.__getitem__, b.__getitem__, draw(blocks(n, columns)), hashed(draw(st.integers(0, 9)), 3))


def blocks(n: int, d: int) -> st.SearchStrategy[fmpq_mat]:
    row = st.lists(st.sampled_from([F(0), F(0), F(1), F(-1), F(1, 2), F(2)]), min_size=d, max_size=d)
    return st.lists(row, min_size=n, max_size=n).map(matrix)


class hashed:  # noqa: N801
    """An arbitrary decoder: the same answer for the same question, whatever the order of questions."""

    def __init__(self, seed: int, answers: int) -> None:
        self.seed, self.answers = seed, answers

    def __call__(self, h: State, x: Token) -> Token:
        return Random(f"{self.seed} {h} {x}").randrange(self.answers)


def yes(h: State, _: Token) -> Token:
    return h[0] > 0


def first(h: State, _: Token) -> Token:
    return h[0]


# The cast.


@given(datatypes, small)
@example(SIGNS, F(1, 2))
@example(SIGNS, F(-1, 2))
def test_the_cast_is_the_nearest_number_and_ties_go_down(datatype: Datatype, x: Fraction) -> None:
    distance = min(abs(z - x) for z in datatype.values)
    assert datatype.cast(x) == min(z for z in datatype.values if abs(z - x) == distance)


@given(datatypes, small)
def test_the_cast_is_continuous_from_the_left(datatype: Datatype, x: Fraction) -> None:
    near = F(1, 10**9)
    assert datatype.cast(x - near) == datatype.cast(x)
    above = datatype.cast(x + near)
    assert (above != datatype.cast(x)) == (rational(x) in datatype.breakpoints)


def test_a_datatype_is_ascending_and_not_empty() -> None:
    for values in ((), (F(1), F(0)), (F(1), F(1))):
        with pytest.raises(InvalidInput):
            Datatype(values)


# Spectra.


@given(matrices(REAL))
def test_the_class_of_a_matrix_with_known_eigenvalues(a: fmpq_mat) -> None:
    nonneg = all(root >= 0 for root, _ in a.charpoly().roots())
    assert spectral_class(a) == ("nonneg" if nonneg else "real")


@given(st.lists(st.integers(-6, 6), min_size=2, max_size=6).filter(lambda c: c[-1] != 0))
def test_real_roots_are_counted_as_sympy_does(coefficients: list[int]) -> None:
    x = sympy.Symbol("x")
    poly = sympy.Poly(coefficients[::-1], x)
    counted = len(sympy.real_roots(poly))
    assert is_real_rooted(fmpq_poly(coefficients)) == (counted == poly.degree())


def test_roots_and_classes_of_the_named_matrices() -> None:
    assert spectral_class(matrix([[0, -1], [1, 0]])) == "nonreal"
    assert spectral_class(matrix([[0, 1], [1, 0]])) == "real"
    assert spectral_class(matrix([[2, 1], [1, 1]])) == "nonneg"
    assert spectral_class(matrix([[0, 1], [0, 0]])) == "nonneg"
    assert without_one(fmpq_poly([1, -2, 1]) * fmpq_poly([2, 1])) == fmpq_poly([2, 1])
    assert [times for _, times in roots(fmpq_poly([1, -2, 1]))] == [2]
    assert householder(F(9, 10), [0, 0]) == eye(2)


@given(st.lists(small, min_size=1, max_size=4), st.lists(small, min_size=4, max_size=4))
def test_the_minimal_polynomial_annihilates_and_is_least(tail: list[Fraction], start: list[Fraction]) -> None:
    order = len(tail)
    terms = [rational(x) for x in start[:order]]
    while len(terms) < 4 * order + 4:
        terms.append(sum((rational(c) * terms[j - order] for j, c in enumerate(tail)), fmpq(0)))
    p = minimal_polynomial(terms)
    assert p.leading_coefficient() == 1
    assert p.degree() <= order
    rows = [[terms[i + j] for j in range(order + 1)] for i in range(order + 1)]
    assert p.degree() == fmpq_mat(order + 1, order + 1, [x for row in rows for x in row]).rank()
    for i in range(len(terms) - p.degree()):
        assert sum((c * terms[i + j] for j, c in enumerate(p.coeffs())), fmpq(0)) == 0


# Lemma 1.


@given(matrices(REAL), st.data(), datatypes)
def test_eventual_casts_agree_with_powers(m: fmpq_mat, data: st.DataObject, datatype: Datatype) -> None:
    w = data.draw(blocks(m.nrows(), data.draw(st.integers(1, 2))))
    tail = evcast(m, w, datatype, limit=20000)
    power, changes = w, [0] * (2 * m.nrows() * w.ncols())
    for q in range(tail.threshold + 12):
        places = datatype.places(power)
        assert tail.at(q) == places
        for i, (old, new) in enumerate(zip(tail.at(q - 2) if q > 1 else places, places, strict=True)):
            changes[2 * i + q % 2] += old != new
        power = m * power
    # Rolle: an exponential polynomial of order N meets each midpoint at most N - 1 times, after the nilpotent part.
    assert max(changes) <= m.nrows() * (len(datatype.values) - 1) + m.nrows()
    if tail.threshold:
        assert tail.at(tail.threshold - 1) != tail.values[(tail.threshold - 1) % 2]


@given(matrices(NONNEG), st.data(), datatypes)
def test_without_negative_eigenvalues_there_is_one_value(m: fmpq_mat, data: st.DataObject, datatype: Datatype) -> None:
    tail = evcast(m, data.draw(blocks(m.nrows(), 1)), datatype, limit=20000)
    assert tail.values[0] == tail.values[1]


@pytest.mark.parametrize(
    ("m", "w", "datatype", "threshold"),
    [
        ([[F(9, 10)]], [[1]], Datatype.of(0, F(1, 2), 1), 14),
        ([[F(1, 2), 1], [0, F(1, 2)]], [[0], [1]], Datatype.of(0, F(1, 4), F(1, 2), 1), 7),
        ([[1, 1], [0, 1]], [[0], [1]], Datatype.of(*range(11)), 10),
        ([[1, 1], [1, 0]], [[0], [1]], Datatype.of(*range(-8, 9)), 7),
        ([[1, 1], [1, 0]], [[1, 0], [0, 1]], Datatype.of(*range(-8, 9)), 7),
        ([[-2]], [[1]], Datatype.of(*range(-4, 5)), 2),
        ([[F(-1, 8)]], [[1]], Datatype.of(-1, 1), 0),
    ],
)
def test_thresholds_of_the_known_examples(
    m: list[list[Fraction]], w: list[list[Fraction]], datatype: Datatype, threshold: int
) -> None:
    assert evcast(matrix(m), matrix(w), datatype).threshold == threshold


def test_the_certificate_does_not_start_before_the_multiplicity() -> None:
    # (1/2)^t - 10^6 C(t, 3) (1/3)^(t - 3) looks settled at t = 0, but is about -10^6 at t = 3.
    terms = [fmpq(1, 2**t) - 10**6 * fmpq(t * (t - 1) * (t - 2) // 6, 3**t) * 27 for t in range(12)]
    datatype = Datatype.of(-20, 0, 20)
    place, t0 = eventual_place(terms, datatype)
    assert datatype.values[place] == 0
    assert t0 > 3


@given(st.sampled_from([1, -1]))
def test_a_limit_on_a_midpoint_is_told_apart_by_the_side(sign: int) -> None:
    m, w = matrix([[1, F(-3 * sign, 4)], [0, F(1, 4)]]), matrix([[F(1, 2) + sign], [1]])
    assert evcast(m, w, Datatype.of(0, 1)).values[0][0] == (sign > 0)


def test_an_eigenvalue_that_is_not_real_is_named_only_if_it_is_seen() -> None:
    rotation = matrix([[F(1, 2), 0, 0], [0, 0, -1], [0, 1, 1]])
    with pytest.raises(NotReal) as caught:
        evcast(rotation, matrix([[1], [1], [0]]), SIGNS)
    assert caught.value.polynomial == fmpq_poly([1, 1, 1])
    assert evcast(rotation, matrix([[1], [0], [0]]), SIGNS).values[0] == (1, 1, 1)
    assert evcast(rotation, matrix([[1], [1], [0]]), Datatype.of(3)).threshold == 0


def test_a_slow_power_meets_the_bound() -> None:
    with pytest.raises(BudgetExceeded):
        evcast(matrix([[F(9999, 10000)]]), matrix([[1]]), SIGNS, limit=100)


@given(
    st.lists(st.tuples(st.integers(1, 4), st.lists(st.integers(-2, 2), min_size=3, max_size=3)), max_size=4), datatypes
)
def test_powers_with_complex_eigenvalues_settle_at_their_limit(
    factors: list[tuple[int, list[int]]], datatype: Datatype
) -> None:
    m, w = eye(3), matrix([[1], [F(-1, 2)], [2]])
    for beta, key in factors:
        m = m * householder(F(beta, 4), key)
    found = limit_place(m, w, datatype)
    if found is not None:
        for q in range(found[1], found[1] + 10):
            assert datatype.places(m**q * w) == found[0]


def test_there_is_no_limit_for_a_sign_a_jordan_block_or_a_midpoint() -> None:
    one = matrix([[1], [1]])
    assert limit_place(diagonal([1, -1]), one, SIGNS) is None
    assert limit_place(matrix([[1, 1], [0, 1]]), one, SIGNS) is None
    assert limit_place(eye(2), matrix([[F(1, 2)], [1]]), SIGNS) is None


# Layers.


@given(table_layers(REAL, range(2)), st.lists(st.integers(0, 1), max_size=6), datatypes)
def test_the_three_semantics_agree_where_nothing_is_rounded(layer: Layer, word: list[int], datatype: Datatype) -> None:
    true = exact(layer, word)
    wide = Datatype.of(0, *(x for h in true for x in h))
    assert step(layer, word, wide) == true
    assert len(unrolled(layer, word, datatype)) == len(word)


def test_unrolled_rounds_summands_and_not_steps() -> None:
    layer = Layer.constant([[1]], [[F(2, 5)]], [[0]], first)
    integers = Datatype.of(*range(5))
    assert run([layer], [1] * 5, integers) == (0, 0, 0, 0, 0)
    assert run([layer], [1] * 5, Datatype.of(*(F(i, 5) for i in range(11)))) == (F(2, 5), F(4, 5), F(6, 5), F(8, 5), 2)
    half = Layer.constant([[1]], [[F(3, 5)]], [[0]], first)
    assert run([half], [1] * 3, integers, "unrolled") == (1, 2, 3)
    assert run([half], [1] * 3, integers, "step") == (1, 2, 3)
    assert run([half], [1] * 3, integers, "exact") == (F(3, 5), F(6, 5), F(9, 5))


@fewer(2)
@given(st.integers(0, 3), st.integers(1, 4), st.data(), datatypes)
def test_eventual_outputs_agree_with_the_definition(
    prefix: int, cycle: int, data: st.DataObject, datatype: Datatype
) -> None:
    layer = data.draw(table_layers(REAL, range(prefix + cycle), columns=data.draw(st.integers(1, 2))))
    word = Periodic(tuple(range(prefix)), tuple(range(prefix, prefix + cycle)))
    found = eventual(layer, word, datatype, limit=20000)
    length = found.kbar_out + 4 * cycle + 3
    assert run([layer], word.take(length), datatype) == found.outputs.take(length)
    assert (2 * cycle) % len(found.outputs.cycle) == 0
    # Outputs see the input too, which changes until the prefix is over.
    assert found.kbar_out <= max(found.kbar_state, prefix + 1)
    assert found.kbar_out == len(found.outputs.prefix) + 1


@given(st.lists(st.integers(0, 1), max_size=5), st.lists(st.integers(0, 1), min_size=1, max_size=6))
def test_the_least_form_of_a_periodic_word_is_the_same_word(prefix: list[int], cycle: list[int]) -> None:
    word = least(prefix + cycle, len(cycle))
    assert word.take(20) == Periodic(tuple(prefix), tuple(cycle)).take(20)
    assert len(word.prefix) <= len(prefix)
    assert len(cycle) % len(word.cycle) == 0


def test_periodic_words_refuse_what_is_none() -> None:
    with pytest.raises(InvalidInput):
        Periodic((1,), ())
    with pytest.raises(InvalidInput):
        Periodic((), (1, 2)).padded(3)
    assert Periodic((0,), (1, 2)).padded(4).cycle == (1, 2, 1, 2)


def test_saturation_and_its_positions() -> None:
    counter = Layer.constant([[1]], [[1]], [[0]], lambda h, _: h[0] % 2 == 0)
    found = eventual(counter, Periodic((), (1,)), Datatype.of(*range(16)))
    assert (found.kbar_state, found.kbar_out, found.outputs.cycle) == (15, 15, (False,))
    delta = Layer.constant([[F(3, 4), F(-1, 4)], [F(-1, 4), F(3, 4)]], [[1], [0]], [[0], [0]], lambda h, _: h)
    made = eventual(delta, Periodic((), (1,)), Datatype.of(*(F(i, 4) for i in range(-16, 17))))
    assert (made.kbar_state, made.outputs.cycle) == (10, ((4, -4),))


# Refuters.


@fewer(2)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.data(), datatypes)
def test_every_stack_without_negative_eigenvalues_fails_parity(
    seeds: list[int], data: st.DataObject, datatype: Datatype
) -> None:
    layers = [data.draw(table_layers(NONNEG, range(3))) for _ in seeds]
    layers[-1] = Layer(layers[-1].transition, layers[-1].addition, layers[-1].start, hashed(seeds[0], 2))
    start = data.draw(st.sampled_from([(), (0,), (2, 0)]))
    found = fail_parity(layers, datatype, start=start, limit=20000)
    assert isinstance(found, Witness)
    k = len(found.word) - len(start)
    assert found.word == start + (1,) * k
    assert found.expected == (k % 2 == 1)
    assert run(layers, found.word, datatype)[-1] == found.got != found.expected


@fewer(2)
@given(st.integers(1, 3), st.sampled_from([3, 5, 6, 7, 16]), st.data(), datatypes)
def test_every_real_triangular_stack_fails_to_count(
    depth: int, modulus: int, data: st.DataObject, datatype: Datatype
) -> None:
    layers = [data.draw(table_layers(REAL, range(3))) for _ in range(depth)]
    layers[-1] = Layer(layers[-1].transition, layers[-1].addition, layers[-1].start, hashed(modulus, 2))
    found = fail_mod(layers, datatype, modulus, limit=20000)
    assert isinstance(found, Witness)
    assert found.expected == (len(found.word) % modulus == 0)
    assert run(layers, found.word, datatype)[-1] == found.got != found.expected


def test_the_known_witnesses() -> None:
    odd = Layer.constant([[1]], [[1]], [[0]], lambda h, _: h[0] % 2 == 1)
    found = fail_parity([odd], Datatype.of(*range(16)))
    assert isinstance(found, Witness)
    assert len(found.word) == 16
    alternating = Layer.constant([[-1]], [[1]], [[0]], lambda h, _: h[0] == 0)
    third = fail_mod([alternating], Datatype.of(-1, 0, 1, 2), 3)
    assert isinstance(third, Witness)
    assert third.word == (1, 1)


def test_what_solves_parity_is_not_refuted() -> None:
    sign = Layer.constant([[-1]], [[0]], [[1]], lambda h, _: h[0] < 0)
    assert fail_parity([sign], SIGNS) == NotApplicable(1, fmpq_poly([1, 1]), "real")
    even = fail_mod([Layer.constant([[-1]], [[0]], [[1]], yes)], SIGNS, 2)
    assert isinstance(even, Agrees)
    assert even.period == 2
    assert isinstance(fail_mod([sign], SIGNS, 2), Witness)
    assert isinstance(fail_mod([sign], SIGNS, 4), Witness)


def test_a_bad_eigenvalue_that_nothing_sees_does_not_help() -> None:
    hidden = Layer.constant([[F(1, 2), 0], [0, -1]], [[1], [0]], [[0], [0]], yes)
    assert isinstance(fail_parity([hidden], SIGNS), Witness)
    elsewhere = Layer.table({0: [[-1]], 1: [[1]]}, {0: [[0]], 1: [[0]]}, [[1]], yes)
    assert isinstance(fail_parity([elsewhere], SIGNS), Witness)
    assert isinstance(fail_parity([Layer.constant([[-1]], [[1]], [[2]], lambda _, __: True)], SIGNS), Witness)


def test_counting_modulo_one_is_no_feat_and_modulo_zero_none() -> None:
    always = Layer.constant([[1]], [[0]], [[1]], lambda _, __: True)
    assert isinstance(fail_mod([always], SIGNS, 1), Agrees)
    with pytest.raises(InvalidInput):
        fail_mod([always], SIGNS, 0)


def test_padding_makes_a_quarter_turn_real_in_the_second_layer() -> None:
    below = Layer.constant([[1]], [[0]], [[1]], first)
    quarter = Layer.constant([[0, -1], [1, 0]], [[0], [0]], [[1], [0]], lambda h, _: h[0] == 1)
    assert isinstance(fail_mod([quarter], SIGNS, 4), NotApplicable)
    found = fail_mod([below, quarter], SIGNS, 4)
    assert isinstance(found, Agrees)
    assert found.period == 4


def test_a_spent_budget_is_unknown() -> None:
    slow = Layer.constant([[F(9999, 10000)]], [[0]], [[1]], yes)
    assert isinstance(fail_parity([slow], SIGNS, limit=10), Unknown)
    assert isinstance(fail_mod([slow], SIGNS, 3, limit=10), Unknown)


def test_periods_with_a_cast_after_every_step() -> None:
    a, b = householder(F(1), (1, 4)) * householder(F(9, 10), (1, -1)), matrix([[F(3, 4)], [F(-3, 2)]])
    layer = Layer(lambda _: a, lambda _: b, b, first)
    datatype = Datatype.of(*range(-2, 3))
    assert a == matrix([[F(7, 17), F(5, 17)], [F(-7, 68), F(-5, 68)]])
    assert step_period([layer], [1], datatype, [(F(1), F(-1))]) == 2
    assert step_period([layer], [1, 1], datatype, [(F(1), F(-1))]) == 1
    assert len(eventual(layer, Periodic((), (1,)), datatype).outputs.cycle) == 1
