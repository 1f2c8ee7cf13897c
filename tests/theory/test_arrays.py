from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded
from statetrack.theory import arrays
from statetrack.theory.arrays import (
    AffineMap,
    Matrix,
    Vector,
    VectorSet,
    add,
    canonical,
    diagonal,
    dot,
    identity,
    matmul,
    matrix,
    matvec,
    outer,
    scale,
    trace,
    transpose,
    vector,
)
from statetrack.theory.fields import Element, Field
from statetrack.theory.number_fields import RealCyclotomic, rationals
from tests.strategies import elements, fewer, fields

Case = tuple[Matrix, Vector | None, list[Vector]]
Batch = tuple[NDArray[Any], NDArray[Any]]


def vectors(entry: st.SearchStrategy[Element], length: int) -> st.SearchStrategy[Vector]:
    return st.lists(entry, min_size=length, max_size=length).map(tuple)


def matrices(entry: st.SearchStrategy[Element], rows: int, columns: int) -> st.SearchStrategy[Matrix]:
    return st.lists(vectors(entry, columns), min_size=rows, max_size=rows).map(tuple)


@st.composite
def affine_cases(draw: st.DrawFn, field: Field, entry: st.SearchStrategy[Element] | None = None) -> Case:
    """A matrix of any shape, an offset or none, and vectors with repeats and the zero vector among them."""
    entry = elements(field) if entry is None else entry
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    offset = draw(st.one_of(st.none(), vectors(entry, rows)))
    batch = draw(st.lists(vectors(entry, columns), min_size=1, max_size=4))
    return draw(matrices(entry, rows, columns)), offset, [*batch, batch[0], vector(field, [0] * columns)]


def directly(a: Matrix, offset: Vector | None, v: Vector) -> Vector:
    image = matvec(a, v)
    return image if offset is None else tuple(x + y for x, y in zip(image, offset, strict=True))


def images(case: Case, *, python_integers: bool = False) -> tuple[Batch, list[Vector]]:
    """The images of the batch by the integer map: raw, and read back through a `VectorSet` that knows them already."""
    a, offset, batch = case
    field = a[0][0].field
    sources, targets = VectorSet(field, len(a[0]), 100), VectorSet(field, len(a), 100)
    ids = sources.add_vectors(batch)
    with pytest.MonkeyPatch.context() as patch:
        if python_integers:
            patch.setattr(arrays, "_SAFE", 0)
        raw = AffineMap(field, a, offset).apply(*sources.batch(ids))
    known = targets.add_vectors([directly(a, offset, v) for v in batch])
    assert targets.add(*raw).tolist() == known.tolist()
    return raw, [targets.vector(i) for i in known.tolist()]


def check(case: Case) -> None:
    a, offset, batch = case
    raw, found = images(case)
    slow, found_slowly = images(case, python_integers=True)
    assert slow[0].dtype == slow[1].dtype == object
    assert [x.tolist() for x in raw] == [x.tolist() for x in slow]
    assert found == found_slowly == [directly(a, offset, v) for v in batch]


@given(fields().flatmap(affine_cases))
@fewer(2)
def test_the_integer_map_is_the_algebra_of_elements_on_both_paths(case: Case) -> None:
    check(case)


NEAR_THE_GUARD = [
    sign * (1 << bits) + shift for bits in (20, 30, 31, 32, 61, 62, 63, 64) for shift in (-1, 0, 1) for sign in (1, -1)
]
Q = rationals()
# -2^63 is the one integer whose absolute value int64 does not hold; it has a test of its own.
GUARDED = [c for c in NEAR_THE_GUARD if c != -(1 << 63)]


def huge(field: Field) -> st.SearchStrategy[Element]:
    """Elements whose coordinates or denominators stand at the guard of the int64 path, and small ones beside them."""
    whole = st.one_of(st.sampled_from(GUARDED), st.integers(-3, 3))
    den = st.one_of(st.just(1), st.just(1), st.sampled_from([3, 1 << 31, (1 << 61) - 1, (1 << 62) + 1]))
    return st.builds(field.element, st.lists(whole, min_size=field.degree, max_size=field.degree), den)


def without_the_least_int64(case: Case) -> bool:
    """False if a batch holds -2^63 after the denominators are joined."""
    sources = VectorSet(case[0][0][0].field, len(case[0][0]), 100)
    dens, ints = sources.batch(sources.add_vectors(case[2]))
    return -(1 << 63) not in ints.ravel().tolist() + dens.tolist()


@given(
    st.sampled_from([Q, RealCyclotomic(8), RealCyclotomic(7)])
    .flatmap(lambda f: affine_cases(f, huge(f)))
    .filter(without_the_least_int64)
)
def test_nothing_overflows_at_the_guard_of_the_fast_path(case: Case) -> None:
    check(case)


@given(
    st.integers(1, 62).flatmap(lambda k: st.tuples(st.just(k), st.sampled_from([-1, 0, 1]), st.sampled_from([-1, 0]))),
    st.booleans(),
)
def test_a_product_of_two_entries_just_below_or_above_the_guard_is_exact(
    shape: tuple[int, int, int], offset: bool
) -> None:
    k, left, right = shape
    a, x = (1 << k) + left, (1 << (62 - k)) + right
    b = vector(Q, [a]) if offset else None
    check((matrix(Q, [[a]]), b, [vector(Q, [x]), vector(Q, [-x])]))
    check((matrix(Q, [[a, a]]), b, [vector(Q, [x, x]), vector(Q, [x, -x])]))


@pytest.mark.parametrize("entries", [(-(1 << 63), 0), (-(1 << 63), 1)])
def test_the_least_int64_does_not_slip_under_the_guard(entries: tuple[int, int]) -> None:
    check((matrix(Q, [[2, 0], [0, 1]]), None, [vector(Q, entries)]))


@given(fields().flatmap(lambda f: st.lists(vectors(elements(f), 2), min_size=1, max_size=8)))
def test_a_vector_set_gives_two_vectors_one_number_iff_they_are_equal(batch: list[Vector]) -> None:
    found = VectorSet(batch[0][0].field, 2, 100)
    ids = found.add_vectors(batch).tolist()
    for i, u in zip(ids, batch, strict=True):
        assert found.vector(i) == u
        for j, v in zip(ids, batch, strict=True):
            assert (i == j) == (u == v)
    assert list(dict.fromkeys(ids)) == list(range(len(found)))
    assert found.add_vectors(batch).tolist() == ids
    back = found.add(*found.batch(np.array(ids, dtype=np.int32))).tolist()
    assert back == ids


@given(fields().flatmap(lambda f: st.lists(vectors(elements(f), 3), min_size=1, max_size=4)))
def test_doubles_of_a_vector_set_are_close_relative_to_the_sums(batch: list[Vector]) -> None:
    found = VectorSet(batch[0][0].field, 3, 100)
    ids = found.add_vectors(batch).tolist()
    table = found.to_floats()
    assert table.shape == (len(found), 3)
    for i, v in zip(ids, batch, strict=True):
        for got, x in zip(table[i].tolist(), v, strict=True):
            size = 2 * sum(abs(c) for c in x.nums) / x.den
            assert abs(got - float(x)) <= 2**-48 * size


def test_a_vector_set_past_its_limit_says_so() -> None:
    found = VectorSet(Q, 1, 2)
    found.add_vectors([vector(Q, [i]) for i in (1, 2, 1, 2)])
    with pytest.raises(BudgetExceeded) as caught:
        found.add_vectors([vector(Q, [3])])
    assert (caught.value.limit, caught.value.flag) == (2, "--max-states")


@given(st.lists(st.tuples(st.integers(1, 50), st.lists(st.integers(-50, 50), min_size=2, max_size=2)), max_size=5))
@example([(6, [0, 0]), (4, [2, 6])])
def test_canonical_rows_are_in_lowest_terms(rows: list[tuple[int, list[int]]]) -> None:
    dens = np.array([den for den, _ in rows], dtype=np.int64)
    ints = np.array([row for _, row in rows], dtype=np.int64).reshape(len(rows), 2)
    for kind in (np.int64, object):
        new_dens, new_ints = canonical(dens.astype(kind), ints.astype(kind))
        for (den, row), d, r in zip(rows, new_dens.tolist(), new_ints.tolist(), strict=True):
            assert [Fraction(c, den) for c in row] == [Fraction(c, d) for c in r]
            assert d > 0
            assert np.gcd.reduce([d, *r]) == 1


@given(fields().flatmap(lambda f: st.tuples(*[matrices(elements(f, size=9), 3, 3)] * 3, vectors(elements(f), 3))))
@fewer(8)
def test_matrices_form_a_ring_that_acts_on_vectors(case: tuple[Matrix, Matrix, Matrix, Vector]) -> None:
    a, b, c, v = case
    field = v[0].field
    one, zero = identity(field, 3), diagonal(field, [0, 0, 0])
    assert matmul(matmul(a, b), c) == matmul(a, matmul(b, c))
    assert matmul(a, add(b, c)) == add(matmul(a, b), matmul(a, c))
    assert matmul(a, one) == a == matmul(one, a)
    assert add(a, zero) == a
    assert add(a, scale(field(-1), a)) == zero
    assert matvec(matmul(a, b), v) == matvec(a, matvec(b, v))
    assert transpose(matmul(a, b)) == matmul(transpose(b), transpose(a))
    assert trace(matmul(a, b)) == trace(matmul(b, a))
    assert trace(outer(v, a[0])) == dot(v, a[0]) == dot(a[0], v)
    assert matvec(outer(v, a[0]), a[1]) == tuple(x * dot(a[0], a[1]) for x in v)


def test_the_longest_number_of_a_set_is_counted_in_bits() -> None:
    field = rationals()
    found = VectorSet(field, 2, 100)
    assert found.bits() == 0
    found.add_vectors([(field.element([3], 8), field.element([-(2**40)], 1))])
    # Over the common denominator 8.
    assert found.bits() == 44


def test_sizes_bound_entries_whose_terms_cancel() -> None:
    field = RealCyclotomic(8)
    small = power = field.element((0, 1), 1) - field.one  # sqrt(2) - 1
    for _ in range(29):
        power = power * small
    found = VectorSet(field, 1, 100)
    found.add_vectors([(power,), (field.zero,)])
    exact = (math.sqrt(2) - 1) ** 30
    # Doubles of the two terms leave nothing right of it.
    assert abs(found.to_floats()[0, 0] - exact) > exact / 2
    assert found.sizes()[0, 0] >= exact
    assert found.sizes()[1, 0] == 0
