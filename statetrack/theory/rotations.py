"""The finite rotation groups of the plane and of space, exactly, and why A5 does not fit CKDA heads of size 3.

The groups come by von Dyck generators: x, y with x^2 = y^3 = (xy)^k = 1 present A4, S4, A5 for k = 3, 4, 5, so any
x', y' of these orders in a group of the same order that generate it give an isomorphism.

Main definitions: `planar_rotation`, `planar_reflection`, `polyhedral_generators`, `cube_frame`, `icosahedral_planes`,
`quaternion_transition`.

Main results: `cube_frame` turns the cube by 45 degrees about a face axis, which makes all 24 rotations signed
Householders (CKDA Thm. 3); `icosahedral_planes` proves that three planes hold at most 12 of the 16 axes of order 3
and 5, so no frame makes all 60 rotations signed Householders (CKDA Lemma 16, Prop. 13); `quaternion_transition` is
x -> a x a, a signed Householder in d = 4 that determines the rotation (CKDA Thm. 3, A5).

References: CKDA Sec. 5, App. C.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from itertools import combinations, permutations, product

from .arrays import Matrix, Vector, dot, identity, matmul, matrix, scale, trace
from .fields import Field
from .householder import SignedHouseholder, cross
from .number_fields import RealCyclotomic, field_for_angles, rationals


def planar_rotation(field: RealCyclotomic, p: int, q: int) -> Matrix:
    """Rotation of the plane by 2πp/q."""
    c, s = field.cos(p, q), field.sin(p, q)
    return ((c, -s), (s, c))


def planar_reflection(field: RealCyclotomic, p: int, q: int) -> Matrix:
    """[[cos t, sin t], [sin t, -cos t]], t = 2πp/q: the reflection in the line at angle t/2."""
    c, s = field.cos(p, q), field.sin(p, q)
    return ((c, s), (s, -c))


def planar_key(field: RealCyclotomic, p: int, q: int) -> Vector:
    """The unit vector (-sin, cos) of πp/q, across the mirror of `planar_reflection(field, p, q)`."""
    return (-field.sin(p, 2 * q), field.cos(p, 2 * q))


@dataclass(frozen=True)
class RotationPair:
    """Generators x (order 2), y (order 3) with xy of order k, and all the matrices they generate."""

    x: Matrix
    y: Matrix
    elements: tuple[Matrix, ...]


@cache
def polyhedral_generators(k: int) -> RotationPair:
    """Exact von Dyck generators for k = 3 (A4), 4 (S4), both rational, and 5 (A5, over Q(√5))."""
    if k == 5:
        field: Field = RealCyclotomic(5)
        golden = (field.one + RealCyclotomic(5).sqrt(5)) / 2
        half, a, b = field.one / 2, golden / 2, (golden - 1) / 2
        seeds = (matrix(field, ((half, -a, b), (a, b, -half), (b, half, a))),)
    else:
        field = rationals()
        seeds = () if k == 3 else (matrix(field, ((0, -1, 0), (1, 0, 0), (0, 0, 1))),)
    y = matrix(field, ((0, 0, 1), (1, 0, 0), (0, 1, 0)))
    flip = matrix(field, ((-1, 0, 0), (0, -1, 0), (0, 0, 1)))
    elements = generated((y, flip, *seeds))
    one = identity(field, 3)
    x = next(
        m
        for m in elements
        if m != one and matmul(m, m) == one and order(matmul(m, y)) == k and len(generated((m, y))) == len(elements)
    )
    return RotationPair(x, y, elements)


def generated(generators: tuple[Matrix, ...]) -> tuple[Matrix, ...]:
    """All products of the generators (a finite group), the identity first."""
    one = identity(generators[0][0][0].field, len(generators[0]))
    found, seen = [one], {one}
    for m in found:
        for g in generators:
            image = matmul(g, m)
            if image not in seen:
                seen.add(image)
                found.append(image)
    return tuple(found)


def order(a: Matrix) -> int:
    """The order of a matrix of finite order."""
    one, power, n = identity(a[0][0].field, len(a)), a, 1
    while power != one:
        power, n = matmul(power, a), n + 1
    return n


def cube_frame() -> Matrix:
    """E = Eᵀ = E⁻¹ over Q(√2): the cube turned by 45 degrees about a face axis. For each of the 24 rotations M of the
    standard cube E M E is a signed Householder; in the standard position only 16 are."""
    field = RealCyclotomic(8)
    r = field.sqrt(2) / 2
    return matrix(field, ((r, r, 0), (r, -r, 0), (0, 0, 1)))


def into_field(a: Matrix, field: Field) -> Matrix:
    """A matrix over a field that contains its own; InvalidInput if an entry does not lie there."""
    return tuple(tuple(field.embed(x) for x in row) for row in a)


def quaternion_outer(r: Matrix) -> Matrix:
    """a aᵀ for the unit quaternion a = ±(cos t/2, sin t/2 u) of the rotation by t about u: affine in R, no root."""
    field = r[0][0].field
    w = (r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1])
    t = trace(r)
    rows = [[field.one + t, *w]]
    for i in range(3):
        rows.append([w[i], *(r[i][j] + r[j][i] + (field.one - t if i == j else field.zero) for j in range(3))])
    return scale(field.one / 4, matrix(field, rows))


def quaternion_transition(r: Matrix) -> SignedHouseholder:
    """g(R) = (I - 2 a aᵀ) Diag(-1, 1, 1, 1), the map x -> a x a of quaternions; f(g(R) X) = R f(X) decodes it.

    Source: CKDA Thm. 3 (A5), App. C. The sign of a does not matter.
    """
    outer_product = quaternion_outer(r)
    j = next(i for i in range(4) if not outer_product[i][i].is_zero())
    key = tuple(row[j] for row in outer_product)
    return SignedHouseholder(key, r[0][0].field(2) / outer_product[j][j], (-1, 1, 1, 1))


def has_axis_zero(r: Matrix) -> bool:
    """The axis criterion: R in SO(3) is a signed Householder iff it is the identity, a half turn, or its axis has a
    zero coordinate (CKDA Prop. 13)."""
    if matmul(r, r) == identity(r[0][0].field, 3):
        return True
    axis = (r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1])
    return any(x.is_zero() for x in axis)


@dataclass(frozen=True)
class PlaneCount:
    """How the axes of order 3 and 5 of the icosahedron lie in planes: `planes[size]` planes hold `size` of the axes."""

    axes: int
    planes: tuple[tuple[int, int], ...]
    most: int


@cache
def icosahedral_planes() -> PlaneCount:
    """Count, exactly over Q(√5), the planes spanned by two of the 16 axes of order 3 and 5 and the axes in each.

    A frame makes a rotation of order 3 or 5 a signed Householder iff the axis lies in a coordinate plane; three planes
    hold at most 3 · `most` = 12 < 16 axes (CKDA Lemma 16).
    """
    axes = _axes(3) + _axes(5)
    counts: Counter[frozenset[int]] = Counter()
    for i, j in combinations(range(len(axes)), 2):
        normal = cross(axes[i], axes[j])
        counts[frozenset(k for k, axis in enumerate(axes) if dot(axis, normal).is_zero())] += 1
    sizes = Counter(len(plane) for plane in counts)
    return PlaneCount(len(axes), tuple(sorted(sizes.items())), max(sizes))


def _axes(n: int) -> list[Vector]:
    """One vector on each axis of the rotations of order n in the icosahedral group."""
    axes: list[Vector] = []
    for r in polyhedral_generators(5).elements:
        if order(r) == n:
            axis = (r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1])
            if not any(all(x.is_zero() for x in cross(axis, known)) for known in axes):
                axes.append(axis)
    return axes


def signed_permutations(field: Field) -> tuple[Matrix, ...]:
    """The 24 rotations of the standard cube: signed 3 × 3 permutation matrices of determinant 1."""
    found: list[Matrix] = []
    for p in permutations(range(3)):
        for signs in product((1, -1), repeat=3):
            m = matrix(field, ((signs[i] if j == p[i] else 0 for j in range(3)) for i in range(3)))
            if dot(cross(m[0], m[1]), m[2]) == 1:
                found.append(m)
    return tuple(found)


def angle_field(*orders: int) -> RealCyclotomic:
    """The field of cos and sin of half the angles 2π/n: holds rotations by 2π/n and their unit keys."""
    return field_for_angles(*(2 * n for n in orders))
