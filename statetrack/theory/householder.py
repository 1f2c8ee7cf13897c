"""Generalised and signed Householder matrices, and how exact orthogonal matrices factor into them.

H(w, c) = I - c w wᵀ is a reflection for c = 2/(w·w); with a diagonal of gates in front it is a CKDA transition.
Keys are never normalised here: β = c (w·w) and the unit key w/|w| need a square root only when a float is emitted.

Main definitions: `householder`, `sign_diagonal`, `SignedHouseholder`, `signed_householders`, `rotation_by_reflections`.

Main results: `signed_householders` returns *all* (w, c, signs) with A = H(w, c) Diag(signs) (CKDA Def. of SH_d);
A 2-dimensional orthogonal matrix always has one, and d > 2 needs a common frame (CKDA Prop. 13).

References: CKDA Sec. 5 and App. C; Grazzi et al. Prop. 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from statetrack.errors import InvalidInput

from .arrays import Matrix, Vector, add, diagonal, dot, identity, matmul, matvec, outer, scale, trace, transpose, vector
from .fields import Element


@dataclass(frozen=True)
class SignedHouseholder:
    """(I - c w wᵀ) Diag(signs), with c (w·w) = 2 and signs ±1."""

    w: Vector
    c: Element
    signs: tuple[int, ...]

    def matrix(self) -> Matrix:
        """The d × d matrix."""
        return matmul(householder(self.w, self.c), sign_diagonal(self.w, self.signs))


def householder(w: Vector, c: Element) -> Matrix:
    """I - c w wᵀ; β = c (w·w), a reflection if that is 2."""
    n, scaled = len(w), tuple(-c * x for x in w)
    upper = {(i, j): scaled[i] * w[j] + int(i == j) for i in range(n) for j in range(i, n)}
    return tuple(tuple(upper[min(i, j), max(i, j)] for j in range(n)) for i in range(n))


def sign_diagonal(like: Vector, signs: tuple[int, ...]) -> Matrix:
    """Diag(signs) over the field of `like`."""
    return diagonal(like[0].field, signs)


def is_orthogonal(a: Matrix) -> bool:
    """A Aᵀ = I, exactly."""
    return matmul(a, transpose(a)) == identity(a[0][0].field, len(a))


def signed_householders(a: Matrix) -> Iterator[SignedHouseholder]:
    """All factorisations of an orthogonal matrix as a signed Householder; none if it is not one.

    For each sign vector W = I - A Diag(signs) must have rank one and trace 2: then every column k of W gives
    W = k kᵀ/W_kk. Cost 2^d d². Source: CKDA Sec. 5 (recogniser). Raises InvalidInput if A is not orthogonal.
    """
    if not is_orthogonal(a):
        raise InvalidInput("signed Householder factors exist for orthogonal matrices only")
    field, d = a[0][0].field, len(a)
    one = identity(field, d)
    for signs in product((1, -1), repeat=d):
        w = add(one, scale(field(-1), matmul(a, diagonal(field, signs))))
        if trace(w) != 2:
            continue
        j = next(i for i in range(d) if not w[i][i].is_zero())
        key = tuple(row[j] for row in w)
        c = w[j][j].inverse()
        if scale(c, outer(key, key)) == w:
            yield SignedHouseholder(key, c, signs)


def rotation_by_reflections(r: Matrix) -> tuple[tuple[Vector, Element], ...]:
    """Reflections (w, c), first applied first, whose product is the rotation or reflection r of size 2 or 3.

    A rotation is two reflections, in x and in x + R x, for any x off the axis and across it; a reflection is one; the
    identity is none. Raises InvalidInput for any other matrix. Source: Grazzi et al. Prop. 1 (orthogonal case).
    """
    field, d = r[0][0].field, len(r)
    if d not in (2, 3) or not is_orthogonal(r):
        raise InvalidInput(
            "reflections make up orthogonal matrices of size 2 or 3 here; use signed_householders for more"
        )
    one = identity(field, d)
    if r == one:
        return ()
    single = add(one, scale(field(-1), r))
    if trace(single) == 2 and matmul(r, r) == one:
        j = next(i for i in range(d) if not single[i][i].is_zero())
        return ((tuple(row[j] for row in single), single[j][j].inverse()),)
    if (dot(cross(r[0], r[1]), r[2]) if d == 3 else r[0][0] * r[1][1] - r[0][1] * r[1][0]) != 1:
        raise InvalidInput("a matrix of determinant -1 that is no reflection takes three reflections, not two")
    x = _moved_vector(r)
    y = tuple(a + b for a, b in zip(x, matvec(r, x), strict=True))
    if all(e.is_zero() for e in y):
        y = _across(r, x)
    return tuple((w, field(2) / dot(w, w)) for w in (x, y))


def _moved_vector(r: Matrix) -> Vector:
    """A vector orthogonal to the axis of the rotation: any non-zero column of I - R."""
    single = add(identity(r[0][0].field, len(r)), scale(r[0][0].field(-1), r))
    return next(column for column in transpose(single) if any(not e.is_zero() for e in column))


def _across(r: Matrix, x: Vector) -> Vector:
    """For a half turn: the vector orthogonal to x in the plane that is turned."""
    field = x[0].field
    if len(r) == 2:
        return vector(field, (-x[1], x[0]))
    total = add(identity(field, 3), r)
    axis = next(column for column in transpose(total) if any(not e.is_zero() for e in column))
    return cross(axis, x)


def cross(u: Vector, v: Vector) -> Vector:
    """u × v in three dimensions."""
    return (u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0])
