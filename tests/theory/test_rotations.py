from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Matrix, Vector, dot, identity, matmul, matrix, matvec, scale, trace, transpose
from statetrack.theory.fields import Field
from statetrack.theory.householder import cross, householder, is_orthogonal, signed_householders
from statetrack.theory.number_fields import RealCyclotomic, rationals
from statetrack.theory.orbits import Orbit, StepMap
from statetrack.theory.rotations import (
    angle_field,
    cube_frame,
    generated,
    has_axis_zero,
    icosahedral_planes,
    into_field,
    order,
    planar_key,
    planar_reflection,
    planar_rotation,
    polyhedral_generators,
    quaternion_outer,
    quaternion_transition,
    signed_permutations,
)
from tests.strategies import fewer

Q = rationals()
SQRT2 = RealCyclotomic(8)
Quaternion = tuple[int, int, int, int]

quaternions: st.SearchStrategy[Quaternion] = st.tuples(*[st.integers(-4, 4)] * 4).filter(any)


def times(p: Sequence[int], q: Sequence[int]) -> Quaternion:
    a, b, c, d = p
    e, f, g, h = q
    return (
        a * e - b * f - c * g - d * h,
        a * f + b * e + c * h - d * g,
        a * g - b * h + c * e + d * f,
        a * h + b * g - c * f + d * e,
    )


def norm(p: Sequence[int]) -> int:
    return sum(x * x for x in p)


UNITS: list[Quaternion] = [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)]


def two_sided(p: Sequence[int], q: Sequence[int], den: int) -> Matrix:
    """x -> p x q / den as a 4 x 4 matrix: L_p R_q / den."""
    columns = [times(times(p, e), q) for e in UNITS]
    return matrix(Q, [[Q(Fraction(columns[j][i], den)) for j in range(4)] for i in range(4)])


def rotation(p: Quaternion) -> Matrix:
    """v -> p v p^-1 on the imaginary quaternions."""
    conjugate = (p[0], -p[1], -p[2], -p[3])
    full = two_sided(p, conjugate, norm(p))
    return tuple(row[1:] for row in full[1:])


def decoded(x: Matrix) -> Matrix:
    """f(X)_jl = tr(L_j^T X L_l X^T)/4."""
    field = x[0][0].field
    left = [into_field(two_sided(e, UNITS[0], 1), field) for e in UNITS[1:]]
    pieces = [matmul(x, matmul(m, transpose(x))) for m in left]
    return tuple(tuple(trace(matmul(transpose(m), piece)) / 4 for piece in pieces) for m in left)


def is_signed(a: Matrix) -> bool:
    return next(signed_householders(a), None) is not None


def determinant(a: Matrix) -> object:
    return dot(cross(a[0], a[1]), a[2])


@pytest.mark.parametrize(("k", "size"), [(3, 12), (4, 24), (5, 60)])
def test_polyhedral_generators_satisfy_their_presentation_and_generate(k: int, size: int) -> None:
    pair = polyhedral_generators(k)
    one = identity(pair.x[0][0].field, 3)
    assert (order(pair.x), order(pair.y), order(matmul(pair.x, pair.y))) == (2, 3, k)
    assert len(pair.elements) == len(set(pair.elements)) == size
    assert set(generated((pair.x, pair.y))) == set(pair.elements)
    assert pair.elements[0] == one
    for m in pair.elements:
        assert is_orthogonal(m)
        assert determinant(m) == 1


@pytest.mark.parametrize(
    ("k", "counts"), [(3, {1: 1, 2: 3, 3: 8}), (4, {1: 1, 2: 9, 3: 8, 4: 6}), (5, {1: 1, 2: 15, 3: 20, 5: 24})]
)
def test_the_rotations_of_a_solid_have_the_known_orders(k: int, counts: dict[int, int]) -> None:
    found = [order(m) for m in polyhedral_generators(k).elements]
    assert {n: found.count(n) for n in sorted(set(found))} == counts


def test_the_standard_cube_has_16_signed_householders_and_the_turned_cube_24() -> None:
    frame = cube_frame()
    assert matmul(frame, frame) == identity(SQRT2, 3)
    assert transpose(frame) == frame
    standard = signed_permutations(Q)
    assert len(set(standard)) == 24
    assert sum(map(is_signed, standard)) == 16
    assert [order(m) for m in standard if not is_signed(m)] == [3] * 8
    turned = [matmul(frame, matmul(into_field(m, SQRT2), frame)) for m in standard]
    assert all(map(is_signed, turned))


def test_the_icosahedron_has_52_signed_householders_in_the_standard_frame() -> None:
    elements = polyhedral_generators(5).elements
    assert sum(map(is_signed, elements)) == 52
    assert {order(m) for m in elements if not is_signed(m)} == {3}


def test_the_axis_criterion_is_the_recogniser() -> None:
    frame = cube_frame()
    cube = signed_permutations(Q)
    turned = [matmul(frame, matmul(into_field(m, SQRT2), frame)) for m in cube]
    for m in (*cube, *turned, *polyhedral_generators(5).elements):
        assert has_axis_zero(m) == is_signed(m)


@given(quaternions)
@example((1, 1, 1, 0))
@example((0, 1, 1, 1))
@example((2, 0, 0, 0))
def test_the_axis_criterion_holds_for_any_rational_rotation(p: Quaternion) -> None:
    r = rotation(p)
    assert has_axis_zero(r) == is_signed(r) == (p[0] == 0 or 0 in p[1:])


def test_the_icosahedron_has_45_planes_with_at_most_four_axes() -> None:
    count = icosahedral_planes()
    assert count.axes == 16
    assert count.planes == ((2, 30), (4, 15))
    assert count.most == 4
    assert sum(planes * size * (size - 1) // 2 for size, planes in count.planes) == 16 * 15 // 2
    assert 3 * count.most < count.axes


S4_TABLE = """
e         1 0 0/0 1 0/0 0 1     -++  1 0 0
(12)(34)  -1 0 0/0 -1 0/0 0 1   -++  0 1 0
(23)      -1 0 0/0 0 -1/0 -1 0  ---  1/2 -1/2 -1/2r2
(14)      -1 0 0/0 0 1/0 1 0    ---  1/2 -1/2 1/2r2
(13)(24)  -1 0 0/0 1 0/0 0 -1   ++-  1/2r2 1/2r2 0
(12)      0 -1 0/-1 0 0/0 0 -1  -++  0 0 1
(13)      0 0 -1/0 -1 0/-1 0 0  ---  1/2 1/2 -1/2r2
(24)      0 0 1/0 -1 0/1 0 0    ---  1/2 1/2 1/2r2
(34)      0 1 0/1 0 0/0 0 -1    +-+  0 0 1
(14)(23)  1 0 0/0 -1 0/0 0 -1   ++-  1/2r2 -1/2r2 0
(143)     0 -1 0/0 0 -1/1 0 0   -++  1/2 -1/2 1/2r2
(234)     0 -1 0/0 0 1/-1 0 0   -++  1/2 -1/2 -1/2r2
(243)     0 0 -1/-1 0 0/0 1 0   -++  1/2 1/2 1/2r2
(142)     0 0 -1/1 0 0/0 -1 0   +-+  1/2 1/2 1/2r2
(134)     0 0 1/-1 0 0/0 -1 0   -++  1/2 1/2 -1/2r2
(123)     0 0 1/1 0 0/0 1 0     +-+  1/2 1/2 -1/2r2
(124)     0 1 0/0 0 -1/-1 0 0   +-+  1/2 -1/2 1/2r2
(132)     0 1 0/0 0 1/1 0 0     +-+  1/2 -1/2 -1/2r2
(1324)    0 -1 0/1 0 0/0 0 1    -++  1/2r2 -1/2r2 0
(1234)    0 0 -1/0 1 0/1 0 0    ++-  1/2 1/2 -1/2r2
(1432)    0 0 1/0 1 0/-1 0 0    ++-  1/2 1/2 1/2r2
(1423)    0 1 0/-1 0 0/0 0 1    -++  1/2r2 1/2r2 0
(1342)    1 0 0/0 0 -1/0 1 0    ++-  1/2 -1/2 -1/2r2
(1243)    1 0 0/0 0 1/0 -1 0    ++-  1/2 -1/2 1/2r2
"""
DIAGONALS: list[tuple[int, ...]] = [(1, -1, -1), (1, -1, 1), (1, 1, -1), (1, 1, 1)]


def test_the_table_of_the_head_for_s4_is_reproduced() -> None:
    frame, seen = cube_frame(), set[Matrix]()
    for line in S4_TABLE.strip().splitlines():
        name, *numbers = line.split()
        rows = [[int(x) for x in row.split()] for row in " ".join(numbers[:7]).split("/")]
        signs = tuple(1 if sign == "+" else -1 for sign in numbers[7])
        key = tuple(
            SQRT2(Fraction(x.removesuffix("r2"))) * (SQRT2.sqrt(2) if x.endswith("r2") else 1) for x in numbers[8:]
        )
        m = matrix(Q, rows)
        a = matmul(frame, matmul(into_field(m, SQRT2), frame))
        assert m in signed_permutations(Q), name
        assert dot(key, key) == 1
        assert (
            matmul(householder(key, SQRT2(2)), matrix(SQRT2, [[signs[0], 0, 0], [0, signs[1], 0], [0, 0, signs[2]]]))
            == a
        )
        assert any(f.signs == signs and all(x.is_zero() for x in cross(f.w, key)) for f in signed_householders(a)), name
        assert cycle_name(rows) == name
        seen.add(m)
    assert seen == set(signed_permutations(Q))


def cycle_name(rows: list[list[int]]) -> str:
    """How the rotation permutes the four diagonals of the cube."""
    images: list[int] = []
    for v in DIAGONALS:
        w = tuple(sum(a * x for a, x in zip(row, v, strict=True)) for row in rows)
        images.append(DIAGONALS.index(w if w[0] > 0 else tuple(-x for x in w)))
    text, seen = "", set[int]()
    for i in range(4):
        cycle: list[int] = []
        while i not in seen:
            seen.add(i)
            cycle.append(i)
            i = images[i]
        if len(cycle) > 1:
            text += "(" + "".join(str(j + 1) for j in cycle) + ")"
    return text or "e"


@given(quaternions)
@example((1, 0, 0, 0))
@example((0, 0, 1, 0))
@example((-1, 1, 1, 1))
def test_the_quaternion_transition_is_multiplication_from_both_sides(a: Quaternion) -> None:
    r, n = rotation(a), norm(a)
    assert quaternion_outer(r) == matrix(Q, [[Q(Fraction(x * y, n)) for y in a] for x in a])
    g = quaternion_transition(r)
    assert g.signs == (-1, 1, 1, 1)
    assert g.matrix() == two_sided(a, a, n)
    assert any(f.signs == g.signs for f in signed_householders(g.matrix()))
    assert decoded(g.matrix()) == r


@given(quaternions, quaternions, quaternions)
@fewer(2)
def test_decoding_turns_a_transition_into_its_rotation(a: Quaternion, p: Quaternion, q: Quaternion) -> None:
    r, g = rotation(a), quaternion_transition(rotation(a)).matrix()
    # Any X = L_p R_q, of any positive determinant.
    x = two_sided(p, q, 1)
    assert decoded(matmul(g, x)) == matmul(r, decoded(x))
    assert decoded(x) == scale(Q(norm(p) * norm(q)), rotation(p))
    mirror = matmul(x, matrix(Q, [[-1 if i == j == 0 else int(i == j) for j in range(4)] for i in range(4)]))
    assert decoded(mirror) == matrix(Q, [[0] * 3] * 3)


@given(st.lists(st.integers(0, 59), max_size=6))
@fewer(8)
def test_words_of_icosahedral_rotations_are_decoded_exactly(word: list[int]) -> None:
    pair = polyhedral_generators(5)
    field = pair.x[0][0].field
    hidden, rotated = identity(field, 4), identity(field, 3)
    for i in word:
        hidden = matmul(quaternion_transition(pair.elements[i]).matrix(), hidden)
        rotated = matmul(pair.elements[i], rotated)
    assert decoded(hidden) == rotated


@pytest.mark.parametrize(("k", "states"), [(3, 96), (4, 576), (5, 7200)])
def test_quaternion_transitions_reach_the_known_number_of_states(k: int, states: int) -> None:
    pair = polyhedral_generators(k)
    field = pair.x[0][0].field
    steps = [StepMap(quaternion_transition(m).matrix()) for m in pair.elements]
    orbit = Orbit(field, identity(field, 4), steps)
    orbit.close()
    assert len(orbit) == states


def test_a_third_of_a_turn_about_the_diagonal_has_the_known_transition() -> None:
    r = matrix(Q, [[0, 0, 1], [1, 0, 0], [0, 1, 0]])
    half = Q(Fraction(1, 2))
    expected = [[-1, -1, -1, -1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]]
    assert quaternion_transition(r).matrix() == scale(half, matrix(Q, expected))


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 8, 12])
def test_planar_rotations_and_reflections_multiply_as_the_dihedral_group(n: int) -> None:
    field = angle_field(n)
    turns = [planar_rotation(field, k, n) for k in range(n)]
    mirrors = [planar_reflection(field, k, n) for k in range(n)]
    assert len(generated((turns[1 % n], mirrors[0]))) == 2 * n
    for i, j in itertools.product(range(n), repeat=2):
        assert matmul(turns[i], turns[j]) == turns[(i + j) % n]
        assert matmul(turns[i], mirrors[j]) == mirrors[(i + j) % n]
        assert matmul(mirrors[i], turns[j]) == mirrors[(i - j) % n]
        assert matmul(mirrors[i], mirrors[j]) == turns[(i - j) % n]
    for k in range(n):
        key: Vector = planar_key(field, k, n)
        assert dot(key, key) == 1
        assert householder(key, field(2)) == mirrors[k]
        assert matvec(mirrors[k], key) == tuple(-x for x in key)


def test_rotations_and_generated_groups_start_with_the_identity() -> None:
    fields: list[Field] = [Q, SQRT2]
    for field in fields:
        assert generated((identity(field, 2),)) == (identity(field, 2),)
        assert order(identity(field, 2)) == 1


def test_an_irrational_matrix_is_not_moved_into_another_field() -> None:
    with pytest.raises(InvalidInput):
        into_field(cube_frame(), Q)
