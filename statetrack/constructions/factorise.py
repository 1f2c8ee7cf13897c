"""Matrices as short products of Householder-like factors (I - c w wᵀ) Diag(α).

Main definitions: `swaps`, `factor_map` (in place), `factor_map_scaled`, `factor_partial`, `factor_to_bank`,
`factor_map_to_bank`, `halvings` of the scaled ones.

Main results: claims OURS-factor-permutation, OURS-factor-map, OURS-factor-bank. A map of n points is a product of at
most max(2, n - 1) factors in dimension n with gates in {-1, 0, 1}, β > 2 only to merge; any rational matrix M takes
rank(M) factors in dimension 2n, from one bank of n coordinates to the other, with gates in {0, 1}.

References: CKDA Thm. 5; Grazzi et al. Prop. 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from statetrack.theory.arrays import Matrix, Vector, dot, identity, transpose, vector
from statetrack.theory.fields import Element, Field
from statetrack.theory.groups import cycles

from .program import Dense, Factor

Map = tuple[int, ...]
# Searches factor very many maps, whose factors are few: the same objects are given again.
_KEPT = 10_000


def map_matrix(field: Field, f: Map) -> Matrix:
    """The 0/1 matrix with M e_j = e_f(j), and M e_j = 0 where f(j) = -1."""
    zero, one = field.zero, field.one
    return tuple(tuple([one if y == i else zero for y in f]) for i in range(len(f)))


def swaps(field: Field, permutation: Sequence[int]) -> list[Factor]:
    """The cycle x0 -> x1 -> ... as swaps (x_{k-2} x_{k-1}) first, ..., (x0 x1) last."""
    n = len(permutation)
    return [_swap(field, n, i, j) for cycle in cycles(permutation) for i, j in reversed(list(pairwise(cycle)))]


def swapped(factor: Factor | Dense) -> Map:
    """The bijection that a factor of `swaps` makes."""
    assert isinstance(factor, Factor)
    i, j = (k for k, x in enumerate(factor.w) if not x.is_zero())
    return tuple(j if k == i else i if k == j else k for k in range(len(factor.w)))


@lru_cache(maxsize=_KEPT)
def _swap(field: Field, n: int, i: int, j: int) -> Factor:
    return Factor(vector(field, (int(k == i) - int(k == j) for k in range(n))), field.one)


def factor_map(field: Field, f: Map) -> list[Factor]:
    """Factors, first applied first, whose product is the matrix of the total map f.

    Each set of points with one image is merged into a representative x: w = e_x - (1/2) 1_J, c = 2, gate -1 at x adds
    the others J to x and leaves garbage on J, which zero gates of the next factor erase. Then representatives are
    permuted to their images by swaps. β = 2 + |J|/2 for a merge, 2 for a swap. Source: CKDA Thm. 5 (β > 2).
    """
    return _merged(field, f, field.one)


def halvings(f: Map) -> int:
    """The least e with 2^e >= √s, s the largest number of points with one image; 0 for a partial injection."""
    most = max((f.count(y) for y in set(f) - {-1}), default=1)
    return next(e for e in range(most) if 4**e >= most)


def factor_map_scaled(field: Field, f: Map) -> tuple[list[Factor], int]:
    """Factors with β <= 2 whose product is 2^-h times the matrix of f, and h: `halvings(f)` for each merge.

    With a merge every other number shrinks. That is the price of β <= 2 in three layers; no finite set of states does
    it, since a merge of s points has norm √s, which a power of two takes back: β = 1 + λ + λ²|J|/(1 + λ) <= 2 for a
    share λ <= 1/√s.
    """
    once = halvings(f)
    merges = sum(f.count(y) > 1 for y in set(f))
    return _merged(field, f, field.one / 2**once), once * merges


def _merged(field: Field, f: Map, share: Element) -> list[Factor]:
    """Merges with c = 1 + share, which scale everything by `share`, then swaps."""
    n = len(f)
    cyclic = set(f)
    while (image := {f[i] for i in cyclic}) != cyclic:
        cyclic = image
    chosen = {f[i]: i for i in reversed(range(n))} | {f[i]: i for i in cyclic}
    merges = [(x, [i for i in range(n) if f[i] == y and i != x]) for y, x in sorted(chosen.items())]
    part, zero = share / (1 + share), field.zero
    factors: list[Factor] = []
    dirty: list[int] = []
    for x, others in merges:
        if others:
            w = tuple(field.one if i == x else -part if i in others else zero for i in range(n))
            kept = (zero if i in dirty else field.one if i in others else share for i in range(n))
            gates = tuple(field(-1) if i == x else gate for i, gate in enumerate(kept))
            factors.append(Factor(w, 1 + share, gates))
            dirty = others
    return factors + _gated(field, swaps(field, _closed({x: y for y, x in chosen.items()}, n)), dirty, n)


def factor_partial(field: Field, f: Map, *, gates: bool) -> list[Factor]:
    """Factors of a partial injection (-1: no image): zero the points without image, then swaps; β <= 2.

    With `gates` the zeros are gates of the first swap; without, each costs a projection (β = 1).
    """
    n = len(f)
    dead = [i for i in range(n) if f[i] < 0]
    moved = swaps(field, _closed({i: y for i, y in enumerate(f) if y >= 0}, n))
    if gates:
        return _gated(field, moved, dead, n)
    return [*(_projection(field, n, i) for i in dead), *moved]


@lru_cache(maxsize=_KEPT)
def _projection(field: Field, n: int, i: int) -> Factor:
    return Factor(identity(field, n)[i], field.one)


def _gated(field: Field, factors: list[Factor], dead: Sequence[int], n: int) -> list[Factor]:
    """The factors with zero gates on some points in the first one (a factor of its own if there is none)."""
    if not dead:
        return factors
    first = factors[0] if factors else Factor((field.zero,) * n, field.zero)
    return [_with_zero_gates(first, tuple(dead)), *factors[1:]]


@lru_cache(maxsize=_KEPT)
def _with_zero_gates(factor: Factor, dead: Map) -> Factor:
    field = factor.c.field
    return Factor(factor.w, factor.c, vector(field, (int(i not in dead) for i in range(len(factor.w)))))


def _closed(partial: dict[int, int], n: int) -> Map:
    """The permutation that extends a partial injection by closing each of its paths to a cycle."""
    complete, images = dict(partial), set(partial.values())
    for start in range(n):
        if start not in images:
            end = start
            while end in partial:
                end = partial[end]
            complete[end] = start
    return tuple(complete[i] for i in range(n))


def factor_to_bank(m: Matrix, bank: int, *, gates: bool) -> list[Factor]:
    """Factors on (bank 0, bank 1) that leave M·(the other bank) in `bank`, whatever `bank` held.

    M = Σ u_i v_iᵀ with orthogonal u_i (Gram-Schmidt without roots); factor i adds u_i (v_i·x) to the target and
    reflects the source, so β_i = 2 + |v_i|²|u_i|²/2. The target is cleared by zero gates of the first factor, or by n
    projections before it.
    """
    pairs = _orthogonal_terms(m)
    seen: list[Vector] = []
    factors: list[Factor] = []
    for u, v in pairs:
        along = v
        for k in seen:
            along = _minus(along, 2 * dot(k, along) / dot(k, k), k)
        seen.append(along)
        square = dot(along, along)
        w = (along, tuple(-x * square / 2 for x in u))
        factors.append(Factor(_banked(*w, bank), 2 / square))
    return _into_clean(factors, m[0][0].field, len(m), bank, gates=gates)


def factor_map_to_bank(field: Field, f: Map, bank: int, *, gates: bool, halved: int = 0) -> list[Factor]:
    """As `factor_to_bank` for a map of points, with one factor w = 1_(preimage) - e_image, c = 1 an image point.

    β = 1 + |preimage|. The source is left with garbage. Points with f = -1 are dropped. `halved` e: 2^-e times the map,
    by w = 1_(preimage) - 2^e e_image, c = 4^-e, β = 1 + |preimage|/4^e, which is at most 2 from `halvings(f)` on.
    """
    n = len(f)
    preimages = {p: tuple([i for i, y in enumerate(f) if y == p]) for p in sorted(set(f) - {-1})}
    factors = [_carry(field, n, preimage, p, bank, halved) for p, preimage in preimages.items()]
    return _into_clean(factors, field, n, bank, gates=gates)


@lru_cache(maxsize=_KEPT)
def _carry(field: Field, n: int, preimage: Map, p: int, bank: int, halved: int) -> Factor:
    """The factor that adds the points of a preimage, halved so often, to point p of a bank."""
    points = vector(field, (int(i in preimage) for i in range(n)))
    target = vector(field, (-int(i == p) * 2**halved for i in range(n)))
    return Factor(_banked(points, target, bank), field.one / 4**halved)


def _into_clean(factors: list[Factor], field: Field, n: int, bank: int, *, gates: bool) -> list[Factor]:
    target = range(n * bank, n * bank + n)
    if gates:
        return _gated(field, factors, target, 2 * n)
    return [*(_projection(field, 2 * n, i) for i in target), *factors]


def _banked(source: Vector, target: Vector, bank: int) -> Vector:
    return (*source, *target) if bank else (*target, *source)


def _orthogonal_terms(m: Matrix) -> list[tuple[Vector, Vector]]:
    """(u_i, v_i) with M = Σ u_i v_iᵀ, the u_i orthogonal and not zero, as many as the rank."""
    basis: list[Vector] = []
    coefficients: list[list[Element]] = []
    for column in transpose(m):
        rest, entries = column, list[Element]()
        for u in basis:
            entries.append(dot(u, rest) / dot(u, u))
            rest = _minus(rest, entries[-1], u)
        if any(not x.is_zero() for x in rest):
            basis.append(rest)
            entries.append(rest[0].field.one)
        coefficients.append(entries)
    zero = m[0][0].field.zero
    return [(u, tuple(c[i] if i < len(c) else zero for c in coefficients)) for i, u in enumerate(basis)]


def _minus(x: Vector, scale: Element, y: Vector) -> Vector:
    """x - scale·y."""
    return tuple(a - scale * b for a, b in zip(x, y, strict=True))
