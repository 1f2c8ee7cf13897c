from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Matrix, Vector, diagonal, dot, identity, matmul, matrix, matvec, scale, transpose
from statetrack.theory.fields import Element, Field
from statetrack.theory.householder import (
    SignedHouseholder,
    cross,
    householder,
    is_orthogonal,
    rotation_by_reflections,
    sign_diagonal,
    signed_householders,
)
from statetrack.theory.number_fields import RealCyclotomic, field_for_angles, rationals
from statetrack.theory.rotations import cube_frame, into_field, planar_reflection, planar_rotation, signed_permutations
from tests.strategies import elements, fewer, fields, keys

Q = rationals()


@st.composite
def signed(draw: st.DrawFn, length: int, field: Field | None = None) -> SignedHouseholder:
    chosen = draw(fields(4)) if field is None else field
    w = draw(keys(chosen, length))
    signs = draw(st.lists(st.sampled_from([1, -1]), min_size=length, max_size=length))
    return SignedHouseholder(w, chosen(2) / dot(w, w), tuple(signs))


def any_signed(longest: int = 3) -> st.SearchStrategy[SignedHouseholder]:
    return st.integers(1, longest).flatmap(signed)


def ints(rows: Sequence[Sequence[int]]) -> Matrix:
    return matrix(Q, rows)


def parallel(u: Vector, v: Vector) -> bool:
    return all(u[i] * v[j] == u[j] * v[i] for i, j in itertools.combinations(range(len(u)), 2))


def signed_permutation_matrices(d: int) -> Iterator[Matrix]:
    for p in itertools.permutations(range(d)):
        for signs in product((1, -1), repeat=d):
            yield ints([[signs[i] if j == p[i] else 0 for j in range(d)] for i in range(d)])


def is_signed(a: Matrix) -> bool:
    return next(signed_householders(a), None) is not None


@given(st.integers(1, 4).flatmap(signed))
@fewer(2)
def test_a_reflection_negates_its_key_and_fixes_what_is_orthogonal(factor: SignedHouseholder) -> None:
    w, field = factor.w, factor.c.field
    h = householder(w, factor.c)
    assert matvec(h, w) == tuple(-x for x in w)
    assert matmul(h, h) == identity(field, len(w))
    assert transpose(h) == h
    assert is_orthogonal(h)
    if len(w) > 1:
        across = (w[1], -w[0], *[field.zero] * (len(w) - 2))
        assert matvec(h, across) == across
    assert householder(tuple(3 * x for x in w), factor.c / 9) == h


@given(fields(4).flatmap(lambda f: st.tuples(keys(f, 3), elements(f, size=3))))
@fewer(2)
def test_a_generalised_householder_scales_its_key_by_one_minus_beta(case: tuple[Vector, Element]) -> None:
    w, c = case
    beta = c * dot(w, w)
    assert matvec(householder(w, c), w) == tuple((1 - beta) * x for x in w)
    assert is_orthogonal(householder(w, c)) == (beta in (0, 2))


@given(any_signed())
def test_the_factors_of_a_signed_householder_are_found_and_every_factor_gives_it_back(
    factor: SignedHouseholder,
) -> None:
    a = factor.matrix()
    assert a == matmul(householder(factor.w, factor.c), sign_diagonal(factor.w, factor.signs))
    found = list(signed_householders(a))
    assert any(f.signs == factor.signs and parallel(f.w, factor.w) for f in found)
    for f in found:
        assert f.matrix() == a
        assert f.c * dot(f.w, f.w) == 2
        assert set(f.signs) <= {1, -1}
    # For given signs the reflection, and so the line of the key, is determined.
    assert len({f.signs for f in found}) == len(found)


LINES = {
    d: [
        k
        for k in product(range(-2, 3), repeat=d)
        if any(k) and next(x for x in k if x) > 0 and not all(x % 2 == 0 for x in k)
    ]
    for d in (1, 2, 3)
}


def brute_force(a: list[list[Fraction]]) -> set[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All (key, signs), key among `LINES`, with A = H Diag(signs), in plain rationals."""
    d, found = len(a), set[tuple[tuple[int, ...], tuple[int, ...]]]()
    for k in LINES[d]:
        square = sum(x * x for x in k)
        for signs in product((1, -1), repeat=d):
            if all(
                a[i][j] == (int(i == j) - Fraction(2 * k[i] * k[j], square)) * signs[j]
                for i, j in product(range(d), repeat=2)
            ):
                found.add((k, signs))
    return found


def primitive(w: Vector) -> tuple[int, ...]:
    """The integer vector on the line of a rational one, as in `LINES`."""
    first = next(x for x in w if not x.is_zero())
    for scaling in range(1, 60):
        scaled = [(x / first * Fraction(scaling, 2)).as_fraction() for x in w]
        if all(x is not None and x.denominator == 1 for x in scaled):
            return tuple(int(x) for x in scaled if x is not None)
    raise AssertionError(w)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_exactly_the_factorisations_of_brute_force_are_found(d: int) -> None:
    chosen = LINES[d] if d < 3 else LINES[3][::7]
    seen: set[Matrix] = set()
    for k, signs in product(chosen, product((1, -1), repeat=d)):
        a = SignedHouseholder(matrix(Q, [k])[0], Q(Fraction(2, sum(x * x for x in k))), signs).matrix()
        if a in seen:
            continue
        seen.add(a)
        found = {(primitive(f.w), f.signs) for f in signed_householders(a)}
        small = {(key, s) for key, s in found if key in LINES[d]}
        rational = [[x.as_fraction() or Fraction(0) for x in row] for row in a]
        assert small == brute_force(rational)
        assert (k, signs) in small


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_diagonal_of_signs_has_one_factorisation_for_each_axis(d: int) -> None:
    for signs in product((1, -1), repeat=d):
        found = list(signed_householders(diagonal(Q, signs)))
        assert len(found) == d
        assert {primitive(f.w) for f in found} == {tuple(int(i == j) for j in range(d)) for i in range(d)}


@pytest.mark.parametrize(("d", "count"), [(1, 2), (2, 8), (3, 32), (4, 112)])
def test_the_signed_permutation_matrices_that_are_signed_householders_are_counted(d: int, count: int) -> None:
    assert count == 2**d * (1 + d * (d - 1) // 2)
    assert sum(is_signed(a) for a in signed_permutation_matrices(d)) == count


@pytest.mark.parametrize("d", [2, 3, 4])
def test_an_unsigned_permutation_matrix_is_signed_householder_iff_it_moves_at_most_two_points(d: int) -> None:
    for p in itertools.permutations(range(d)):
        a = ints([[int(p[j] == i) for j in range(d)] for i in range(d)])
        assert is_signed(a) == (sum(p[i] != i for i in range(d)) <= 2)


@given(any_signed(), st.data())
@fewer(2)
def test_the_set_is_closed_under_inverse_negation_and_signed_permutations(
    factor: SignedHouseholder, data: st.DataObject
) -> None:
    a, field, d = factor.matrix(), factor.c.field, len(factor.w)
    assert is_signed(transpose(a))
    assert is_signed(scale(field(-1), a))
    frame = into_field(data.draw(st.sampled_from([*signed_permutation_matrices(d)])), field)
    assert is_signed(matmul(frame, matmul(a, transpose(frame))))


def test_the_set_is_not_closed_under_products_in_three_dimensions() -> None:
    first = SignedHouseholder(ints([[0, 1, 1]])[0], Q(1), (-1, 1, 1)).matrix()
    second = SignedHouseholder(ints([[1, 1, 0]])[0], Q(1), (1, 1, -1)).matrix()
    assert is_signed(first)
    assert is_signed(second)
    assert not is_signed(matmul(second, first))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 12])
def test_every_orthogonal_matrix_of_the_plane_is_a_signed_householder(n: int) -> None:
    field = field_for_angles(n)
    for k in range(n):
        assert is_signed(planar_rotation(field, k, n))
        assert is_signed(planar_reflection(field, k, n))


@given(st.sampled_from([(3, 4, 5), (5, 12, 13), (8, 15, 17)]), st.permutations(range(3)))
def test_a_change_of_one_entry_is_refused(triple: tuple[int, int, int], place: list[int]) -> None:
    c, s = Fraction(triple[0], triple[2]), Fraction(triple[1], triple[2])
    rows = [[Q(c), Q(-s), Q(0)], [Q(s), Q(c), Q(0)], [Q(0), Q(0), Q(1)]]
    assert is_signed(matrix(Q, rows))
    rows[place[0]][place[1]] += Fraction(1, 10**30)
    with pytest.raises(InvalidInput, match="orthogonal"):
        is_signed(matrix(Q, rows))


def test_a_turn_about_the_diagonal_of_the_cube_is_no_signed_householder() -> None:
    assert not is_signed(ints([[0, 0, 1], [1, 0, 0], [0, 1, 0]]))


def multiplied(factors: tuple[tuple[Vector, Element], ...], like: Matrix) -> Matrix:
    total = identity(like[0][0].field, len(like))
    for w, c in factors:
        assert c * dot(w, w) == 2
        total = matmul(householder(w, c), total)
    return total


@given(
    st.tuples(fields(4), st.integers(2, 3)).flatmap(
        lambda case: st.tuples(keys(case[0], case[1]), keys(case[0], case[1]))
    )
)
def test_a_rotation_of_any_axis_and_angle_is_at_most_two_reflections(case: tuple[Vector, Vector]) -> None:
    u, v = case
    two = matmul(householder(v, 2 / dot(v, v)), householder(u, 2 / dot(u, u)))
    found = rotation_by_reflections(two)
    assert multiplied(found, two) == two
    assert len(found) == (0 if parallel(u, v) else 2)
    one = householder(u, 2 / dot(u, u))
    assert multiplied(rotation_by_reflections(one), one) == one
    assert len(rotation_by_reflections(one)) == 1


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
def test_plane_rotations_and_reflections_are_rebuilt(n: int) -> None:
    field = field_for_angles(n)
    for k in range(n):
        turn, mirror = planar_rotation(field, k, n), planar_reflection(field, k, n)
        assert multiplied(rotation_by_reflections(turn), turn) == turn
        assert len(rotation_by_reflections(turn)) == (2 if k else 0)
        assert multiplied(rotation_by_reflections(mirror), mirror) == mirror
        assert len(rotation_by_reflections(mirror)) == 1


def test_all_rotations_of_the_cube_are_rebuilt_in_two_frames() -> None:
    frame = cube_frame()
    for r in signed_permutations(Q):
        turned = matmul(frame, matmul(into_field(r, RealCyclotomic(8)), frame))
        for m in (r, turned):
            found = rotation_by_reflections(m)
            assert multiplied(found, m) == m
            assert len(found) == (0 if r == identity(Q, 3) else 2)


@pytest.mark.parametrize(
    "rows",
    [
        [[-1, 0, 0], [0, -1, 0], [0, 0, -1]],
        [[0, -1, 0], [1, 0, 0], [0, 0, -1]],
        [[1, 1], [0, 1]],
        [[0, 0], [0, 0]],
    ],
    ids=["point reflection", "turn and reflection", "shear", "zero"],
)
def test_a_matrix_that_is_no_rotation_and_no_reflection_is_refused_or_rebuilt(rows: list[list[int]]) -> None:
    m = ints(rows)
    try:
        found = rotation_by_reflections(m)
    except InvalidInput:
        return
    assert multiplied(found, m) == m


@given(fields(4).flatmap(lambda f: st.tuples(keys(f, 3), keys(f, 3))))
@fewer(2)
def test_the_cross_product_is_orthogonal_to_its_factors_and_zero_iff_they_are_parallel(
    case: tuple[Vector, Vector],
) -> None:
    u, v = case
    w = cross(u, v)
    assert dot(w, u) == 0 == dot(w, v)
    assert dot(w, w) == dot(u, u) * dot(v, v) - dot(u, v) * dot(u, v)
    assert all(x.is_zero() for x in w) == parallel(u, v)
