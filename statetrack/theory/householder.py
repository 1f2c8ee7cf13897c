"""Generalised and signed Householder matrices, and how exact orthogonal matrices factor into them.

H(w, c) = I - c w wᵀ is a reflection for c = 2/(w·w); with a diagonal of gates in front it is a CKDA transition.
Keys are never normalised here: β = c (w·w) and the unit key w/|w| need a square root only when a float is emitted.

Main definitions: `householder`, `sign_diagonal`, `SignedHouseholder`, `signed_householders`, `rotation_by_reflections`,
`GatedHouseholder`, `reflections`, `gated_reflections`, `contraction_by_gated`, `contraction_by_householders`.

Main results: `signed_householders` returns *all* (w, c, signs) with A = H(w, c) Diag(signs) (CKDA Def. of SH_d);
A 2-dimensional orthogonal matrix always has one, and d > 2 needs a common frame (CKDA Prop. 13).
`reflections` uses rank(Q - I) factors, the fewest; a contraction takes 2n - 2 gated or 2n - 1 plain factors.

References: CKDA Sec. 5, App. A.5 and C; Grazzi et al. Prop. 1.
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


@dataclass(frozen=True)
class GatedHouseholder:
    """(I - c w wᵀ) Diag(gates): a CKDA transition with β = c (w·w), or the gates alone for c = 0."""

    w: Vector
    c: Element
    gates: Vector

    @property
    def beta(self) -> Element:
        """β = c (w·w)."""
        return self.c * dot(self.w, self.w)

    def matrix(self) -> Matrix:
        """The n × n matrix."""
        plain = householder(self.w, self.c)
        return tuple(tuple(x * g for x, g in zip(row, self.gates, strict=True)) for row in plain)


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


def signed_householder_of(d: Vector, u: Vector, v: Vector) -> SignedHouseholder:
    """The signed Householder that an orthogonal Diag(d) + u vᵀ is, by the formula of the proof of CKDA Thm. 1.

    Where u_i v_i ≠ 0: s_i = -sign(u_i v_i), w_i = u_i/(1 + d_i s_i); elsewhere s_i = d_i, w_i = 0. InvalidInput if the
    sum is not orthogonal.
    """
    field = d[0].field
    a = add(diagonal(field, d), outer(u, v))
    if not is_orthogonal(a):
        raise InvalidInput("Diag(d) + u vᵀ is not orthogonal, so it is no signed Householder")
    signs = [-(x * y).sign() for x, y in zip(u, v, strict=True)]
    if sum(s != 0 for s in signs) < 2:
        plain = [a[i][i].sign() for i in range(len(d))]
        return SignedHouseholder(vector(field, [1] + [0] * (len(d) - 1)), field(2), (-plain[0], *plain[1:]))
    w = tuple(x / (1 + e * s) if s else field.zero for x, e, s in zip(u, d, signs, strict=True))
    return SignedHouseholder(w, 2 / dot(w, w), tuple(s or e.sign() for s, e in zip(signs, d, strict=True)))


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


def reflections(q: Matrix) -> tuple[Vector, ...]:
    """Keys v_1, ..., v_r with Q = H(v_1) ... H(v_r), H(v) = I - 2 v vᵀ/(v·v), and r = rank(Q - I): no fewer will do.

    Column j is sent to e_j by the reflection in Q e_j - e_j; no square root. InvalidInput if Q is not orthogonal.
    Source: Grazzi et al. Prop. 1 (orthogonal case), with the exact count.
    """
    keys, _ = _to_signs(q, len(q))
    return tuple(v for v in keys if v is not None)


def gated_reflections(q: Matrix) -> tuple[GatedHouseholder, ...]:
    """Exactly max(1, n - 1) CKDA transitions, leftmost first, whose product is the orthogonal matrix Q.

    Each has β = 2, or β = 0 where a column is in place; only the last has gates other than 1. Source: CKDA Prop. 10.
    """
    n, field = len(q), q[0][0].field
    keys, signs = _to_signs(q, max(n - 1, 0))
    if n == 1:
        return (GatedHouseholder((field.one,), field.zero, signs),)
    ones = (field.one,) * n
    return tuple(_reflection(v, ones if j < n - 2 else signs, j) for j, v in enumerate(keys))


def fewest_gated(q: Matrix) -> int:
    """The least number of CKDA transitions with product Q, orthogonal: min of rank(Q - S) over sign diagonals S, 1 if
    Q is itself one, 0 if Q = I. Every factor of such a product is orthogonal. Cost 2^n n³."""
    field, n = q[0][0].field, len(q)
    if q == identity(field, n):
        return 0
    diagonals = (diagonal(field, signs) for signs in product((1, -1), repeat=n))
    return max(1, min(len(reflections(matmul(q, s))) for s in diagonals))


def contraction_by_gated(u: Matrix, sizes: Vector, v: Matrix) -> tuple[GatedHouseholder, ...]:
    """Exactly max(1, 2n - 2) CKDA transitions, leftmost first, with product U Diag(sizes) Vᵀ; U, V orthogonal.

    U = H_1 ... H_(n-1) S, V = K_1 ... K_(n-1) S'; S Diag(sizes) S' is the gate of H_(n-1). Source: CKDA Prop. 10.
    """
    n, field = len(u), u[0][0].field
    (left, s), (right, t) = _to_signs(u, max(n - 1, 0)), _to_signs(v, max(n - 1, 0))
    gates = tuple(a * b * c for a, b, c in zip(s, sizes, t, strict=True))
    if n == 1:
        return (GatedHouseholder((field.one,), field.zero, gates),)
    ones = (field.one,) * n
    head = [_reflection(w, ones if j < n - 2 else gates, j) for j, w in enumerate(left)]
    return (*head, *(_reflection(w, ones, j) for j, w in reversed(list(enumerate(right)))))


def contraction_by_householders(u: Matrix, sizes: Vector, v: Matrix) -> tuple[tuple[Vector, Element], ...]:
    """At most 2n - 1 factors (key, β), leftmost first, with product U Diag(sizes) Vᵀ; every β in [0, 2].

    Polar form: Q = U Vᵀ in reflections, then β = 1 - size along each column of V. If det Q = (-1)^n the first column's
    sign moves from one to the other, so that Q needs at most n - 1. Sharper than 3n in Grazzi et al. Prop. 1.
    """
    field, n = u[0][0].field, len(u)
    columns, turn = transpose(v), matmul(u, transpose(v))
    betas = [field.one - size for size in sizes]
    keys = reflections(turn)
    if (n - len(keys)) % 2 == 0:
        keys = reflections(matmul(turn, householder(columns[0], field(2))))
        betas[0] = field.one + sizes[0]
    return (*((key, field(2)) for key in keys), *zip(columns, betas, strict=True))


def _to_signs(q: Matrix, count: int) -> tuple[list[Vector | None], Vector]:
    """Reflections that send the first columns of Q to the axes (None: in place), and the diagonal that is left."""
    if not is_orthogonal(q):
        raise InvalidInput("only an orthogonal matrix is a product of reflections and signs")
    keys: list[Vector | None] = []
    for j in range(count):
        v = tuple(row[j] - int(i == j) for i, row in enumerate(q))
        if all(x.is_zero() for x in v):
            keys.append(None)
            continue
        keys.append(v)
        c = 2 / dot(v, v)
        moved = matvec(transpose(q), v)
        q = tuple(tuple(x - c * a * b for x, b in zip(row, moved, strict=True)) for row, a in zip(q, v, strict=True))
    return keys, tuple(q[i][i] for i in range(len(q)))


def _reflection(w: Vector | None, gates: Vector, place: int) -> GatedHouseholder:
    """H(w) Diag(gates), or the gates alone, with e_place for a key."""
    field = gates[0].field
    if w is None:
        return GatedHouseholder(tuple(field(int(i == place)) for i in range(len(gates))), field.zero, gates)
    return GatedHouseholder(w, 2 / dot(w, w), gates)


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
