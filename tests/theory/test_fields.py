from __future__ import annotations

import importlib
import itertools
import json
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statetrack.errors import InvalidInput
from statetrack.theory.fields import Element, Field, element_from_json
from statetrack.theory.number_fields import (
    RealCyclotomic,
    SimpleField,
    field_for_angles,
    field_from_json,
    quadratic,
    rationals,
)
from tests.strategies import CONDUCTORS, SIMPLE_FIELDS, elements, fewer, fields, gates, keys
from tests.strategies import rationals as fractions

# Neither package has types; both are oracles here, nothing of them enters the library.
mp: Any = importlib.import_module("mpmath").mp
sympy: Any = importlib.import_module("sympy")

BITS = 400
EPS = Fraction(1, 1 << 200)
ALL_FIELDS = st.sampled_from([*(RealCyclotomic(n) for n in CONDUCTORS), *SIMPLE_FIELDS])


def fraction(number: Any) -> Fraction:
    return Fraction(int(mp.floor(mp.ldexp(number, BITS))), 1 << BITS)


@cache
def basis_values(field: Field) -> tuple[Fraction, ...]:
    with mp.workprec(BITS + 64):
        if isinstance(field, RealCyclotomic):
            cosines = [2 * mp.cos(2 * mp.pi * k / field.N) for k in range(1, field.degree)]
            return (Fraction(1), *map(fraction, cosines))
        assert isinstance(field, SimpleField)
        roots = mp.polyroots(list(reversed(field.minpoly)), maxsteps=500, extraprec=2000)
        real = [fraction(mp.re(r)) for r in roots if abs(mp.im(r)) < mp.mpf(2) ** -300]
        (theta,) = [r for r in real if field.low <= r <= field.high]
        return tuple(theta**k for k in range(field.degree))


def value(x: Element) -> Fraction:
    """The number to 200 bits after the point and more, from another package's cosines and roots."""
    return sum((c * basis_values(x.field)[k] for k, c in x.terms()), Fraction(0)) / x.den


def near(x: Element, number: Fraction) -> bool:
    return abs(value(x) - number) <= EPS * (1 + sum(abs(c) for c in x.nums))


def triples(field: Field) -> st.SearchStrategy[tuple[Element, Element, Element]]:
    one = elements(field)
    return st.tuples(one, one, one)


def pairs(field: Field) -> st.SearchStrategy[tuple[Element, Element]]:
    return st.tuples(elements(field), elements(field))


def convergents(x: Element) -> list[Fraction]:
    """Continued fraction convergents with denominators up to 10^22."""
    rest, found = value(x), list[Fraction]()
    p, q, p0, q0 = 1, 0, 0, 1
    while q < 10**22:
        a = math.floor(rest)
        p, q, p0, q0 = a * p + p0, a * q + q0, p, q
        found.append(Fraction(p, q))
        rest = 1 / (rest - a)
    return found


@given(fields(45).flatmap(triples))
def test_a_field_satisfies_the_axioms(numbers: tuple[Element, Element, Element]) -> None:
    x, y, z = numbers
    field = x.field
    assert x + y == y + x
    assert x * y == y * x
    assert (x + y) + z == x + (y + z)
    assert (x * y) * z == x * (y * z)
    assert x * (y + z) == x * y + x * z
    assert x + field.zero == x == x * field.one
    assert (x - x).is_zero()
    assert x - y == -(y - x)
    assert x + -x == 0 == x * 0


@given(ALL_FIELDS.flatmap(pairs))
def test_sums_and_products_have_the_values_of_another_package(numbers: tuple[Element, Element]) -> None:
    x, y = numbers
    size = 1 + sum(abs(c) for z in numbers for c in z.nums)
    assert abs(value(x + y) - value(x) - value(y)) <= EPS * size
    assert abs(value(x * y) - value(x) * value(y)) <= EPS * size**2
    assert near(-x, -value(x))


@given(fields(45).flatmap(elements))
def test_every_non_zero_element_has_an_inverse(x: Element) -> None:
    if x.is_zero():
        with pytest.raises(ZeroDivisionError, match="inverse of 0"):
            x.inverse()
        return
    assert x * x.inverse() == 1
    assert x.inverse().inverse() == x
    assert x / x == 1 == 1 / x * x
    assert (x.inverse()).sign() == x.sign()


@pytest.mark.parametrize("n", [*range(1, 41), 45, 60, 83, 84, 105])
def test_the_chebyshev_basis_multiplies_by_the_sparse_rule(n: int) -> None:
    field = RealCyclotomic(n)
    assert field.degree == max(1, int(sympy.totient(n)) // 2)
    basis = [2 * math.cos(2 * math.pi * k / n) if k else 1.0 for k in range(field.degree)]
    for i, j in itertools.product(range(field.degree), repeat=2):
        total = math.fsum(c * basis[k] for k, c in field.product(i, j))
        assert abs(total - basis[i] * basis[j]) < 1e-9
    for j in range(-n, 2 * n):
        total = math.fsum(c * basis[k] for k, c in field.basis(j))
        assert abs(total - 2 * math.cos(2 * math.pi * j / n)) < 1e-9


def test_a_field_of_degree_498_computes() -> None:
    field = RealCyclotomic(1996)
    x, y = field.cos(3, 1996), field.sin(5, 499)
    assert field.degree == 498
    assert x * x * 2 - 1 == field.cos(6, 1996)
    assert near(x * y, value(x) * value(y))
    assert field.sin(5, 499) * field.sin(5, 499) + field.cos(5, 499) * field.cos(5, 499) == 1


@pytest.mark.parametrize("n", [5, 7, 8, 9, 11, 12, 15, 16, 20, 24])
def test_the_generator_is_a_root_of_the_minimal_polynomial_of_sympy(n: int) -> None:
    t = sympy.Symbol("t")
    field = RealCyclotomic(n)
    minimal = sympy.Poly(sympy.minimal_polynomial(2 * sympy.cos(2 * sympy.pi / n), t), t)
    assert minimal.degree() == field.degree
    assert horner(minimal, field.cos(1, n) * 2).is_zero()


def horner(polynomial: Any, x: Element) -> Element:
    total = x.field.zero
    for c in polynomial.all_coeffs():
        total = total * x + Fraction(int(c.p), int(c.q))
    return total


@pytest.mark.parametrize(
    ("field", "theta"),
    [
        (SIMPLE_FIELDS[0], "sqrt(7)"),
        (SIMPLE_FIELDS[1], "-sqrt(7)"),
        (SIMPLE_FIELDS[2], "2**Rational(1,3)"),
        (SIMPLE_FIELDS[3], "CRootOf(x**3-x-1, 0)"),
        (SIMPLE_FIELDS[6], "sqrt(2)+sqrt(3)"),
        (RealCyclotomic(5), "2*cos(2*pi/5)"),
        (RealCyclotomic(8), "sqrt(2)"),
        (RealCyclotomic(12), "sqrt(3)"),
    ],
)
def test_expressions_are_roots_of_the_minimal_polynomials_of_sympy(field: Field, theta: str) -> None:
    t = sympy.Symbol("t")
    generator = field.element([0, 1] + [0] * (field.degree - 2))
    known = sympy.sympify(theta)
    for a, b, c in [(0, 1, 0), (1, 2, 0), (3, -1, 1), (Fraction(1, 2), Fraction(2, 3), -1)]:
        x = generator * generator * c + generator * b + a
        expression: Any = sum(sympy.Rational(str(q)) * known**k for k, q in enumerate((a, b, c)))
        minimal = sympy.Poly(sympy.minimal_polynomial(expression, t), t)
        assert horner(minimal, x).is_zero(), (expression, minimal)
        assert abs(float(x) - float(expression.evalf(30))) < 1e-12


@given(st.integers(1, 120))
def test_a_square_root_squares_to_its_number_and_is_positive(d: int) -> None:
    squarefree = math.prod(int(p) for p, e in sympy.factorint(d).items() if e % 2)
    root = RealCyclotomic(4 * squarefree).sqrt(d)
    assert root * root == d
    assert root.sign() == 1


@pytest.mark.parametrize(("n", "d"), [(5, 2), (8, 3), (4, 5), (1, 2), (12, 6), (24, 5)])
def test_a_square_root_outside_the_field_is_refused(n: int, d: int) -> None:
    with pytest.raises(InvalidInput):
        RealCyclotomic(n).sqrt(d)


@pytest.mark.parametrize("d", [21, 33, 57, 77])
def test_the_square_root_of_d_lies_in_the_field_of_conductor_d_for_d_1_mod_4(d: int) -> None:
    root = RealCyclotomic(d).sqrt(d)
    assert root * root == d


@pytest.mark.parametrize("d", [0, -1, -4])
def test_the_square_root_of_a_number_that_is_not_positive_is_refused(d: int) -> None:
    with pytest.raises(InvalidInput, match="positive"):
        RealCyclotomic(8).sqrt(d)


@given(st.integers(1, 24), st.integers(-50, 50), st.integers(-50, 50))
def test_cosines_and_sines_satisfy_their_identities(q: int, a: int, b: int) -> None:
    field = field_for_angles(q)
    cos_a, sin_a, cos_b, sin_b = field.cos(a, q), field.sin(a, q), field.cos(b, q), field.sin(b, q)
    assert cos_a * cos_a + sin_a * sin_a == 1
    assert field.cos(a + b, q) == cos_a * cos_b - sin_a * sin_b
    assert field.sin(a + b, q) == sin_a * cos_b + cos_a * sin_b
    assert field.cos(-a, q) == cos_a == field.cos(a + q, q)
    assert field.sin(-a, q) == -sin_a
    with mp.workprec(BITS + 64):
        angle = 2 * mp.pi * a / q
        assert near(cos_a, fraction(mp.cos(angle)))
        assert near(sin_a, fraction(mp.sin(angle)))


def test_an_angle_outside_the_field_is_refused() -> None:
    with pytest.raises(InvalidInput, match="conductor divisible by 7"):
        RealCyclotomic(8).cos(1, 7)
    with pytest.raises(InvalidInput, match="conductor"):
        RealCyclotomic(5).sin(1, 5)


def test_an_angle_over_zero_is_refused() -> None:
    with pytest.raises(InvalidInput):
        RealCyclotomic(8).cos(1, 0)


@given(fields().flatmap(triples))
def test_the_order_is_total_and_goes_with_the_operations(numbers: tuple[Element, Element, Element]) -> None:
    x, y, z = numbers
    assert [x < y, x == y, x > y].count(True) == 1
    assert (x <= y) == (x < y or x == y) == (y >= x)
    assert (x < y) == (x + z < y + z)
    assert (x - y).sign() * (z - x).sign() == ((x - y) * (z - x)).sign()
    assert sorted(numbers) == sorted(numbers, key=value)


@pytest.mark.parametrize(
    "x",
    [
        RealCyclotomic(8).sqrt(2),
        RealCyclotomic(5).sqrt(5),
        RealCyclotomic(60).cos(7, 60),
        *(f.element([0, 1] + [0] * (f.degree - 2)) for f in SIMPLE_FIELDS if f.degree > 1),
    ],
    ids=str,
)
def test_the_order_tells_numbers_apart_that_differ_by_1e_40(x: Element) -> None:
    exact, differences = value(x), list[Fraction]()
    for close in convergents(x):
        difference = x - close
        with mp.workdps(50):
            fifty_digits = mp.mpf(exact.numerator) / exact.denominator - mp.mpf(close.numerator) / close.denominator
        assert difference.sign() == int(mp.sign(fifty_digits)) != 0
        assert (x < close) == (fifty_digits < 0) != (x > close)
        assert x != close
        # Multiplied out, the coordinates are near 10^20 and their sum is small.
        assert (x * close.denominator - close.numerator).sign() == difference.sign()
        differences.append(abs(exact - close))
    assert min(differences) < Fraction(1, 10**40)


@given(ALL_FIELDS.flatmap(elements), st.sampled_from([8, 53, 64, 128, 256]))
def test_an_enclosure_contains_the_number_and_shrinks(x: Element, bits: int) -> None:
    low, high = x.enclose(bits)
    # The oracle itself is known up to `slack` only.
    slack = EPS * (1 + sum(abs(c) for c in x.nums))
    assert low - slack <= value(x) <= high + slack
    q = x.as_fraction()
    if q is not None:
        assert low == high == q
        return
    size = sum((abs(c * basis_values(x.field)[k]) for k, c in x.terms()), Fraction(0)) / x.den
    assert 0 < high - low <= 8 * x.field.degree * (1 + size) / (1 << bits)
    finer_low, finer_high = x.enclose(2 * bits)
    assert finer_high - finer_low < high - low
    assert finer_low <= high
    assert low <= finer_high


def nearest_double(x: Element) -> float:
    return float(value(x))


@given(ALL_FIELDS.flatmap(elements))
def test_float_is_the_nearest_double(x: Element) -> None:
    assert float(x) == nearest_double(x)


@given(st.floats(min_value=1e-300, max_value=1e300), st.sampled_from([1, -1]), st.sampled_from([50, 60]))
@example(1.0, 1, 60)
@example(5e-324, -1, 60)
@example(2.2250738585072014e-308, -1, 60)
def test_float_rounds_correctly_beside_the_midpoint_of_two_doubles(x: float, side: int, index: int) -> None:
    field = RealCyclotomic(8)
    above = math.nextafter(x, math.inf)
    middle = (Fraction(x) + Fraction(above)) / 2
    p, q = 1, 1
    for _ in range(index):
        p, q = p + 2 * q, p + q
    # |√2 - p/q| is about 1/q², far below the spacing of doubles.
    small = abs_element(field.sqrt(2) - Fraction(p, q)) * Fraction(x) * side
    number = small + middle
    assert float(number) == (above if side > 0 else x)


def abs_element(x: Element) -> Element:
    return x if x.sign() > 0 else -x


@given(fields().flatmap(lambda f: st.tuples(elements(f), st.integers(1, 50), elements(f))))
def test_one_value_built_two_ways_is_equal_and_hashes_alike(numbers: tuple[Element, int, Element]) -> None:
    x, k, y = numbers
    scaled = x.field.element([-k * c for c in x.nums], -k * x.den)
    assert scaled == x
    assert hash(scaled) == hash(x)
    moved = (x + y) - y
    assert moved == x
    assert hash(moved) == hash(x)
    assert x.den > 0
    assert math.gcd(x.den, *x.nums) == 1
    assert (x == y) == (value(x) == value(y))


@pytest.mark.parametrize("q", [0, 2, Fraction(1, 2)])
def test_an_element_equal_to_a_rational_hashes_like_it(q: Fraction) -> None:
    x = RealCyclotomic(5)(q)
    assert x == q
    assert hash(x) == hash(q)


@given(ALL_FIELDS.flatmap(elements))
def test_json_holds_the_whole_element_and_field(x: Element) -> None:
    field = field_from_json(json.loads(json.dumps(x.field.to_json())))
    assert field == x.field
    assert element_from_json(field, json.loads(json.dumps(x.to_json()))) == x


BAD_ELEMENTS: list[object] = [[], [0, 0, 1], [-1, 0, 1], [1, 2, 1], [1, -1, 1], [1, 0], None, 1.5, True, {}]


@pytest.mark.parametrize("data", BAD_ELEMENTS, ids=repr)
def test_json_that_is_no_element_is_refused_in_one_line(data: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        element_from_json(RealCyclotomic(5), data)
    assert "\n" not in str(caught.value)


WORSE_ELEMENTS: list[object] = ["abc", "", "1/0", [1, "x", 2], [None], [1, 0, 1.5], [1.5, 0, 2], [1, 0, 1, 0, 5]]


@pytest.mark.parametrize("data", WORSE_ELEMENTS, ids=repr)
def test_json_with_a_fault_inside_is_refused_too(data: object) -> None:
    with pytest.raises(InvalidInput):
        element_from_json(RealCyclotomic(5), data)


BAD_FIELDS: list[dict[str, object]] = [
    {},
    {"cos": 0},
    {"cos": 5, "minpoly": [1]},
    {"minpoly": [-2, 0, 1]},
    {"minpoly": [], "interval": ["1", "2"]},
    {"minpoly": [-2, 0, 2], "interval": ["1", "2"]},
    {"minpoly": [-4, 0, 1], "interval": ["1", "3"]},
]


@pytest.mark.parametrize("data", BAD_FIELDS, ids=str)
def test_json_that_is_no_field_is_refused_in_one_line(data: dict[str, object]) -> None:
    with pytest.raises(InvalidInput) as caught:
        field_from_json(data)
    assert "\n" not in str(caught.value)


WORSE_FIELDS: list[dict[str, object]] = [
    {"cos": "abc"},
    {"cos": None},
    {"cos": 2.7},
    {"minpoly": [-2, 0, 1], "interval": ["1"]},
    {"minpoly": [-2, 0, 1], "interval": ["a", "b"]},
    {"minpoly": [-2, 0.5, 1], "interval": ["1", "2"]},
]


@pytest.mark.parametrize("data", WORSE_FIELDS, ids=str)
def test_json_with_a_fault_inside_a_field_is_refused_too(data: dict[str, object]) -> None:
    with pytest.raises(InvalidInput):
        field_from_json(data)


@pytest.mark.parametrize(
    ("minpoly", "low", "high", "why"),
    [
        ((-2, 0, 2), 1, 2, "monic"),
        ((1,), 0, 1, "monic"),
        ((), 0, 1, "monic"),
        ((-4, 0, 1), 1, 3, "irreducible"),
        ((1, -2, 1), 0, 2, "irreducible"),
        ((-1, 0, 0, 1), 0, 2, "irreducible"),
        ((1, 0, 1), -1, 1, "holds 0 roots"),
        ((-2, 0, 1), 2, 3, "holds 0 roots"),
        ((-2, 0, 1), 2, 1, "holds 0 roots"),
        ((-2, 0, 1), -2, 2, "holds 2 roots"),
        ((1, -3, 0, 1), -2, 2, "holds 3 roots"),
    ],
)
def test_a_polynomial_or_interval_that_names_no_number_is_refused(
    minpoly: tuple[int, ...], low: int, high: int, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        SimpleField(minpoly, Fraction(low), Fraction(high))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("n", [0, -1, -8])
def test_a_conductor_that_is_not_positive_is_refused(n: int) -> None:
    with pytest.raises(InvalidInput, match="conductor"):
        RealCyclotomic(n)


def test_coordinates_that_do_not_fit_are_refused() -> None:
    for coordinates, den in [((1,), 1), ((1, 2, 3), 1), ((1, 2), 0)]:
        with pytest.raises(InvalidInput, match="do not make an element"):
            RealCyclotomic(5).element(coordinates, den)


def test_text_that_is_no_number_is_refused() -> None:
    with pytest.raises(InvalidInput):
        RealCyclotomic(5)("abc")


MIXTURES: list[Callable[[Element, Element], object]] = [
    lambda x, y: x + y,
    lambda x, y: x - y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    lambda x, y: x < y,
    lambda x, y: x >= y,
]


@pytest.mark.parametrize("mixture", MIXTURES)
def test_elements_of_different_fields_do_not_mix(mixture: Callable[[Element, Element], object]) -> None:
    chosen = [RealCyclotomic(5).sqrt(5), RealCyclotomic(8).sqrt(2), SIMPLE_FIELDS[0].one, SIMPLE_FIELDS[1].one]
    for x, y in itertools.permutations(chosen, 2):
        with pytest.raises(InvalidInput, match="build both in one field"):
            mixture(x, y)
        assert x != y


@given(fields().flatmap(lambda f: st.tuples(elements(f), fractions())))
def test_rationals_and_elements_mix(numbers: tuple[Element, Fraction]) -> None:
    x, q = numbers
    y = x.field(q)
    assert x + q == q + x == x + y
    assert x - q == x - y == -(q - x)
    assert x * q == q * x == x * y
    assert (x < q) == (x < y) == (q > x)
    assert y.as_fraction() == q == y
    if q:
        assert x / q == x / y
    if not x.is_zero():
        assert q / x == y / x


SUBFIELDS = [(m, n) for n in (8, 12, 15, 20, 24, 60) for m in range(1, n + 1) if n % m == 0]


@given(
    st.sampled_from(SUBFIELDS).flatmap(
        lambda mn: st.tuples(pairs(RealCyclotomic(mn[0])), st.just(RealCyclotomic(mn[1])))
    )
)
def test_embed_is_a_homomorphism_that_keeps_the_number(case: tuple[tuple[Element, Element], RealCyclotomic]) -> None:
    (x, y), larger = case
    assert larger.embed(x + y) == larger.embed(x) + larger.embed(y)
    assert larger.embed(x * y) == larger.embed(x) * larger.embed(y)
    assert larger.embed(x.field.one) == 1
    assert (larger.embed(x) == larger.embed(y)) == (x == y)
    assert near(larger.embed(x), value(x))


def test_embed_refuses_a_field_that_is_not_inside() -> None:
    with pytest.raises(InvalidInput, match="does not lie in"):
        RealCyclotomic(12).embed(RealCyclotomic(8).sqrt(2))
    with pytest.raises(InvalidInput, match="does not lie in"):
        RealCyclotomic(8).embed(SIMPLE_FIELDS[0].element((0, 1)))


@given(st.integers(-5, 400))
def test_quadratic_holds_the_root_or_refuses(d: int) -> None:
    if d <= 1 or math.isqrt(d) ** 2 == d:
        with pytest.raises(InvalidInput, match="not a square"):
            quadratic(d)
        return
    field = quadratic(d)
    assert field.degree == 2
    square = next(s for s in range(math.isqrt(d), 0, -1) if d % s**2 == 0)
    root = field.sqrt(d) if isinstance(field, RealCyclotomic) else field.element((0, square))
    assert root * root == d
    assert root > 0


def test_the_rationals_have_degree_one_under_five_conductors() -> None:
    assert rationals() == RealCyclotomic(1)
    assert [n for n in range(1, 100) if RealCyclotomic(n).degree == 1] == [1, 2, 3, 4, 6]
    assert field_for_angles() == rationals()
    assert field_for_angles(5, 6).N == 60


@given(fields(), st.data())
def test_keys_are_not_zero_and_gates_lie_between_their_endpoints(field: Field, data: st.DataObject) -> None:
    key = data.draw(keys(field, 3))
    assert len(key) == 3
    assert any(not x.is_zero() for x in key)
    assert -1 <= data.draw(gates(field)) <= 1


@given(fields().flatmap(elements))
@fewer(4)
def test_text_shows_rationals_as_such(x: Element) -> None:
    q = x.as_fraction()
    assert (str(x) == str(q)) if q is not None else ("b" in str(x) or "√" in str(x))
