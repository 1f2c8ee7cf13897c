"""Finite groups as multiplication tables: binary polyhedral groups, and laws that one-layer trackers force on a group.

A head whose transitions do not expand and have at most one non-real pair of eigenvalues of size one moves, after
reduction (docs in `signed_householder_groups`), by orthogonal matrices whose squares are blockwise planar rotations. So
for all x, y of a tracked group, <x^2, y^2> is a quotient of a subgroup of a product of finite groups of unit
quaternions. `obstruction` looks for pairs of elements that this forbids.

Main definitions: `Cayley`, `from_group`, `semidirect`, `special_linear`, `projective`, `binary_polyhedral`,
`obstruction`.

Main results: the laws U1 to U7, tested on whole tables; claim OURS-one-layer-obstructions.

References: CKDA Thm. 4 and Lemma 23; Coxeter, *Regular Complex Polytopes*, ch. 7 (finite groups of quaternions).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidInput

from .groups import Group
from .number_fields import prime_factors

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cayley:
    """A group by its table: table[x, y] is the number of x y; element 0 is the identity."""

    name: str
    table: Numbers

    @property
    def order(self) -> int:
        """Number of elements."""
        return len(self.table)

    @cached_property
    def inverses(self) -> Numbers:
        """The number of x^-1 for each x."""
        return np.argmax(self.table == 0, axis=1)

    @cached_property
    def orders(self) -> Numbers:
        """The order of each element."""
        found, power = np.zeros(self.order, dtype=np.int64), np.arange(self.order)
        for n in range(1, self.order + 1):
            found[(power == 0) & (found == 0)] = n
            if found.all():
                break
            power = self.table[power, np.arange(self.order)]
        return found

    @cached_property
    def commutators(self) -> Numbers:
        """The number of x y x^-1 y^-1, [order, order]."""
        return self.table[self.table, self.table[np.ix_(self.inverses, self.inverses)]]

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """One element of each class of conjugates."""
        everything = np.arange(self.order)
        least = [int(self.table[self.table[everything, x], self.inverses].min()) for x in range(self.order)]
        return tuple(sorted(set(least)))

    def power(self, k: int) -> Numbers:
        """The number of x^k for each x, k >= 0."""
        result, base = np.zeros(self.order, dtype=np.int64), np.arange(self.order)
        while k:
            result = self.table[result, base] if k & 1 else result
            base, k = self.table[base, base], k >> 1
        return result

    def generated(self, generators: Iterable[int]) -> Numbers:
        """The elements of the subgroup that some elements generate, in increasing order."""
        letters = np.array(sorted(set(generators)), dtype=np.int64)
        met = np.zeros(self.order, dtype=bool)
        met[0] = True
        frontier = np.zeros(1, dtype=np.int64)
        while len(frontier):
            images = np.unique(self.table[np.ix_(letters, frontier)])
            frontier = images[~met[images]]
            met[frontier] = True
        return np.flatnonzero(met)

    def derived(self, members: Numbers) -> Numbers:
        """The commutator subgroup of a subgroup."""
        return self.generated(np.unique(self.commutators[np.ix_(members, members)]).tolist())

    def is_solvable(self, members: Numbers) -> bool:
        """Whether a subgroup's derived series ends in the identity."""
        while len(members) > 1:
            below = self.derived(members)
            if len(below) == len(members):
                return False
            members = below
        return True


def from_group(group: Group) -> Cayley:
    """The table of a permutation group, with its numbering."""
    return Cayley(group.name, np.array([group.left(g) for g in range(group.order)], dtype=np.int64))


def semidirect(n: Sequence[int], image: Callable[[tuple[int, ...]], tuple[int, ...]], m: int, name: str) -> Cayley:
    """(Z_n1 x Z_n2 x ...) : Z_m, t v t^-1 = image(v); elements v t^k. `image` must have an order that divides m."""
    vectors = list(product(*(range(k) for k in n)))
    number = {v: i for i, v in enumerate(vectors)}
    shift = np.array([[number[tuple((a + b) % k for a, b, k in zip(u, v, n, strict=True))] for v in vectors]
                      for u in vectors])  # fmt: skip
    moved = [list(range(len(vectors)))]
    step = [number[tuple(x % k for x, k in zip(image(v), n, strict=True))] for v in vectors]
    for _ in range(m):
        moved.append([step[i] for i in moved[-1]])
    if moved[m] != moved[0]:
        raise InvalidInput(f"{name}: the automorphism's order does not divide {m}")
    size = len(vectors)
    v, k = np.divmod(np.arange(size * m), m)
    turned = np.array(moved)[k[:, None], v[None, :]]
    return Cayley(name, shift[v[:, None], turned] * m + (k[:, None] + k[None, :]) % m)


def special_linear(p: int) -> Cayley:
    """SL(2, p), the 2 x 2 matrices of determinant 1 modulo a prime."""
    rows = [m for m in product(range(p), repeat=4) if (m[0] * m[3] - m[1] * m[2]) % p == 1]
    rows.sort(key=lambda m: m != (1, 0, 0, 1))
    e = np.array(rows, dtype=np.int64).reshape(-1, 2, 2)
    products = np.einsum("xij,yjk->xyik", e, e) % p
    return Cayley(f"SL(2,{p})", _numbers(e, products))


def projective(p: int) -> Cayley:
    """PSL(2, p) for an odd prime: SL(2, p) without its sign."""
    whole = special_linear(p)
    minus = next(x for x in range(whole.order) if whole.orders[x] == 2)
    first = np.minimum(np.arange(whole.order), whole.table[minus])
    kept = np.unique(first)
    place = np.searchsorted(kept, first)
    return Cayley(f"PSL(2,{p})", place[whole.table[np.ix_(kept, kept)]])


@dataclass(frozen=True, eq=False)
class QuaternionGroup(Cayley):
    """A finite group of unit quaternions; elements[x] holds twice its coordinates as a + b ω, ω^2 = root·(ω, 1)."""

    elements: Numbers
    root: tuple[int, int]

    def real(self, x: int) -> tuple[int, int]:
        """Twice the real part of an element, as (a, b) for a + b ω."""
        a, b = self.elements[x, 0].tolist()
        return a, b


# i j = k and so on: signs of e_a e_b = sign e_c.
_UNITS = np.zeros((4, 4, 4), dtype=np.int64)
for _a, _b, _c, _s in (
    *((0, i, i, 1) for i in range(4)), *((i, 0, i, 1) for i in range(1, 4)), *((i, i, 0, -1) for i in range(1, 4)),
    (1, 2, 3, 1), (2, 3, 1, 1), (3, 1, 2, 1), (2, 1, 3, -1), (3, 2, 1, -1), (1, 3, 2, -1),
):  # fmt: skip
    _UNITS[_a, _b, _c] = _s


def quaternion_product(p: Numbers, q: Numbers) -> Numbers:
    """Integer quaternions p q, entry by entry of equal leading shapes [..., 4]."""
    return np.einsum("...a,...b,abc->...c", p, q, _UNITS)


def binary_polyhedral(k: int) -> QuaternionGroup:
    """2T (k = 3, order 24), 2O (k = 4, order 48) or 2I (k = 5, order 120), exact.

    >>> [binary_polyhedral(k).order for k in (3, 4, 5)]
    [24, 48, 120]
    """
    if k not in (3, 4, 5):
        raise InvalidInput(f"binary polyhedral group {k}: know 3 (2T), 4 (2O), 5 (2I)")
    root = {3: (0, 1), 4: (0, 2), 5: (1, 1)}[k]
    seeds = [[(1, 0)] * 4, [(0, 0), (2, 0), (0, 0), (0, 0)]]
    if k == 4:
        seeds.append([(0, 1), (0, 1), (0, 0), (0, 0)])
    if k == 5:
        seeds.append([(0, 1), (1, 0), (-1, 1), (0, 0)])
    one = np.array([[(2, 0), (0, 0), (0, 0), (0, 0)]], dtype=np.int64)
    found, seen = [one[0]], {one[0].tobytes()}
    generators = np.array(seeds, dtype=np.int64)
    for x in found:
        for y in _scaled_products(generators, x[None], root)[:, 0]:
            if y.tobytes() not in seen:
                seen.add(y.tobytes())
                found.append(y)
    e = np.array(found)
    name = {3: "2T", 4: "2O", 5: "2I"}[k]
    return QuaternionGroup(name, _numbers(e, _scaled_products(e, e, root)), e, root)


def _scaled_products(x: Numbers, y: Numbers, root: tuple[int, int]) -> Numbers:
    """Twice the products of quaternions given by twice their coordinates: [X, 4, 2], [Y, 4, 2] -> [X, Y, 4, 2]."""
    ring = np.array([[[1, 0], [0, 1]], [[0, 1], [root[1], root[0]]]])
    made = np.einsum("xau,ybv,abc,uvw->xycw", x, y, _UNITS, ring, optimize=True)
    assert not (made % 2).any(), "coordinates leave the half-integers of the ring"
    return made // 2


def _numbers(elements: Numbers, products: Numbers) -> Numbers:
    """The table: where each product stands among the elements."""
    flat = elements.reshape(len(elements), -1)
    number = {row.tobytes(): i for i, row in enumerate(flat)}
    rows = np.ascontiguousarray(products.reshape(len(elements) ** 2, -1))
    return np.array([number[row.tobytes()] for row in rows]).reshape(len(elements), len(elements))


@dataclass(frozen=True)
class Obstruction:
    """A law that fails in a group, the two elements that show it, and what they give instead of the identity."""

    law: str
    x: int
    y: int


def obstruction(group: Cayley) -> Obstruction | None:
    """The first of the laws U6, U2, U1, U3, U4, U5, U7 that fails, with elements x, y that show it; None if all hold.

    For groups tracked by one layer with finitely many states all of them hold. None says nothing.

    - U6: [x, t x t^-1]^10 = 1 for x of 5-power order (y is the conjugate).
    - U2: x of p-power order, p >= 7, commutes with all elements of odd order and all fourth powers.
    - U1: Sylow subgroups of odd order are abelian. U3: 5-elements that generate a solvable group commute.
    - U4: 3-elements that generate a solvable H: H is a normal 2-group by an abelian group, and the squares and
      commutators of the 2-group are central in H.
    - U5: [u^30, v^30]^2 = 1, U7: [u^2, v^2] = 1 for u, v in a Sylow 2-subgroup; both inside <x^2, y^2>.
    """
    for law, pairs in (("U6", _u6), ("U2", _u2), ("U1", _u1), ("U3", _u3), ("U4", _u4), ("U5", _u5), ("U7", _u7)):
        for x, y in pairs(group):
            return Obstruction(law, x, y)
    return None


def _primary(group: Cayley, p: int) -> list[int]:
    """The elements of p-power order, without the identity."""
    return [x for x in range(1, group.order) if p ** round(math.log(int(group.orders[x]), p)) == group.orders[x]]


def _pairs(group: Cayley, p: int) -> Iterator[tuple[int, int, Numbers]]:
    """Pairs of p-elements that do not commute, the first up to conjugacy, and what they generate."""
    primary = _primary(group, p)
    for x in set(primary).intersection(group.representatives):
        for y in primary:
            if group.commutators[x, y]:
                yield x, y, group.generated((x, y))


def _u6(group: Cayley) -> Iterator[tuple[int, int]]:
    tenth = group.power(10)
    for x in _primary(group, 5):
        conjugates = group.table[group.table[:, x], group.inverses]
        for y in conjugates[tenth[group.commutators[x, conjugates]] != 0].tolist():
            yield x, y


def _u2(group: Cayley) -> Iterator[tuple[int, int]]:
    others = np.union1d(np.flatnonzero(group.orders % 2), group.power(4))
    for p in (p for p in prime_factors(group.order) if p >= 7):
        for x in _primary(group, p):
            for y in others[group.commutators[x, others] != 0].tolist():
                yield x, y


def _u1(group: Cayley) -> Iterator[tuple[int, int]]:
    for p in (p for p in prime_factors(group.order) if p > 2):
        for x, y, members in _pairs(group, p):
            if prime_factors(len(members)) == (p,):
                yield x, y


def _u3(group: Cayley) -> Iterator[tuple[int, int]]:
    for x, y, members in _pairs(group, 5):
        if group.is_solvable(members):
            yield x, y


def _u4(group: Cayley) -> Iterator[tuple[int, int]]:
    for x, y, members in _pairs(group, 3):
        if not group.is_solvable(members):
            continue
        orders = group.orders[members]
        two = members[(orders & (orders - 1)) == 0]
        central = members[(group.commutators[np.ix_(members, members)] == 0).all(axis=1)]
        inside = np.union1d(group.table[two, two], group.commutators[np.ix_(two, two)])
        whole = len(group.generated(two.tolist())) == len(two)
        if not (whole and np.isin(group.derived(members), two).all() and np.isin(inside, central).all()):
            yield x, y


def _square_pairs(group: Cayley) -> Iterator[tuple[int, int, Numbers]]:
    """Pairs (x, y) and <x^2, y^2>, each subgroup once for an x up to conjugacy."""
    square = group.power(2)
    met: set[tuple[int, int]] = set()
    for x in group.representatives:
        for y in range(group.order):
            key = int(square[x]), int(square[y])
            if key not in met and group.commutators[key]:
                met.add(key)
                yield x, y, group.generated(key)


def _u5(group: Cayley) -> Iterator[tuple[int, int]]:
    thirtieth, square = group.power(30), group.power(2)
    for x, y, members in _square_pairs(group):
        u = np.unique(thirtieth[members])
        if square[group.commutators[np.ix_(u, u)]].any():
            yield x, y


def _u7(group: Cayley) -> Iterator[tuple[int, int]]:
    for x, y, members in _square_pairs(group):
        sylow = _sylow(group, members)
        u = np.unique(group.table[sylow, sylow])
        if group.commutators[np.ix_(u, u)].any():
            yield x, y


def _sylow(group: Cayley, members: Numbers) -> Numbers:
    """A Sylow 2-subgroup of a subgroup: enlarged by 2-elements that normalise it while there are any."""
    orders = group.orders[members]
    candidates: list[int] = members[(orders & (orders - 1)) == 0].tolist()
    found = np.zeros(1, dtype=np.int64)
    grown = True
    while grown:
        grown = False
        for w in candidates:
            moved = group.table[group.table[w, found], group.inverses[w]]
            if w not in found and np.isin(moved, found).all():
                found, grown = group.generated((*found.tolist(), w)), True
    return found
