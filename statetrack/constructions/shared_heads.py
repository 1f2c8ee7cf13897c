"""Heads that share a letter of V:C between them: each takes the letter's part in C, and their parts in V add up to its.

Main definitions: `SharedHead`, `shared_tracker`, `wreath_tracker`.

Main results: claim OURS-swap-groups, and S3 wr Z2 = Z3^2:D4 by four heads of size four.

References: docs/atlas.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from statetrack.theory.arrays import Matrix, matmul, matrix, transpose, vector
from statetrack.theory.cayley_tables import Cayley, Numbers
from statetrack.theory.finite_group import is_abelian
from statetrack.theory.householder import signed_householders
from statetrack.theory.number_fields import RealCyclotomic

from .multihead import Letters, Modules, Tracker, matrix_part, module_of, settled
from .program import Factor, Step
from .targets import Target

_MOST_MODULUS = 9
# A signed permutation of two coordinates: whether they are exchanged, then the signs of both.
Signed = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class SharedHead:
    """A head of size four over a field: the elements of V:C that it can take, each with its step."""

    field: RealCyclotomic
    steps: Mapping[int, Step]


def signed_step(field: RealCyclotomic, frame: Matrix, moved: Matrix) -> Step | None:
    """An orthogonal matrix as one factor in the frame (rows), if it is a signed Householder there."""
    found = next(signed_householders(matmul(matmul(frame, moved), transpose(frame))), None)
    return None if found is None else (Factor(found.w, found.c, vector(field, found.signs)),)


def shared_tracker(
    group: Cayley, members: Numbers, complement: Sequence[int], heads: Sequence[SharedHead], how: str
) -> Tracker | None:
    """A tracker of V:C, V the members (abelian), C the complement, if the heads' shares reach every letter."""
    shares = _shares(group, members, complement, heads)
    if len(shares) < group.order:
        return None

    coset = {int(group.table[v, c]): c for v in members for c in complement}

    def modules(letters: Letters, goal: Target) -> Modules:
        return _tower(group, heads, [shares[g] for g in letters], coset, goal)

    return Tracker(group, how, modules)


def _shares(
    group: Cayley, members: Numbers, complement: Sequence[int], heads: Sequence[SharedHead]
) -> dict[int, tuple[int, ...]]:
    """For each letter that the heads reach together: the element that each head takes."""
    found: dict[int, tuple[int, ...]] = {}
    inside = set(members.tolist())
    for c in complement:
        sums: dict[int, tuple[int, ...]] = {0: ()}
        for head in heads:
            parts = [(int(group.table[x, group.inverses[c]]), x) for x in head.steps]
            wider: dict[int, tuple[int, ...]] = {}
            for g, taken in sums.items():
                for v, x in sorted(p for p in parts if p[0] in inside):
                    wider.setdefault(int(group.table[g, v]), (*taken, x))
            sums = wider
        found |= {int(group.table[g, c]): taken for g, taken in sums.items()}
    return found


def _tower(
    group: Cayley,
    heads: Sequence[SharedHead],
    shares: Sequence[tuple[int, ...]],
    coset: Mapping[int, int],
    goal: Target,
) -> Modules:
    """What the first heads have together, then one head more, and so on; the last two are left side by side."""

    def add(g: int, x: int) -> int:
        """v w c for g = v c and x = w c."""
        c = coset[x]
        return int(group.table[group.table[g, group.inverses[c]], x])

    numbers = tuple(range(len(shares)))
    tower: Modules = ()
    so_far = [row[0] for row in shares]
    for i, head in enumerate(heads):
        taken = [row[i] for row in shares]
        distinct = list(dict.fromkeys(taken))
        part = matrix_part(group, head.field, 4, [head.steps[x] for x in distinct], distinct, goal)
        if len(tower) == 2:
            tower = (module_of(settled(group, so_far, tower, goal), numbers, numbers),)
        tower = (*tower, module_of(part, range(len(distinct)), [distinct.index(x) for x in taken]))
        if i:
            so_far = [add(g, x) for g, x in zip(so_far, taken, strict=True)]
    return tower


@dataclass(frozen=True)
class _Wreath:
    """G = V:C with V = Z_n^2 in coordinates and C by signed permutations: `vectors[a, b]` and `complement[M]` number
    their elements."""

    n: int
    members: Numbers
    complement: dict[Signed, int]
    vectors: dict[tuple[int, int], int]


def wreath_tracker(group: Cayley) -> Tracker | None:
    """Z_n^2:C for odd n, C acting by exchanges and sign changes of coordinates; None for other groups."""
    found = _wreath(group)
    if found is None:
        return None
    plain, sums = _heads(group, found, False), _heads(group, found, True)
    return shared_tracker(
        group, found.members, tuple(found.complement.values()), (plain, plain, sums, sums), "4 wreath heads"
    )


def _heads(group: Cayley, found: _Wreath, sums: bool) -> SharedHead:
    """(a, b) turns two planes by 2πa/n and 2πb/n (`sums`: by a + b and a - b), in the frame that suits."""
    field = RealCyclotomic(math.lcm(8, found.n))
    h = field.cos(1, 8)
    rows = ((0, 1, 0, 0), (h, 0, h, 0), (h, 0, -h, 0), (0, 0, 0, 1)) if sums else (
        (h, 0, h, 0), (h, 0, -h, 0), (0, h, 0, h), (0, h, 0, -h)
    )  # fmt: skip
    frame = matrix(field, rows)
    steps: dict[int, Step] = {}
    for (a, b), v in found.vectors.items():
        for (swap, s, t), c in found.complement.items():
            x, y = ((a + b) % found.n, (a - b) % found.n) if sums else (a, b)
            signed = _on_sums(swap, s, t) if sums else (swap, s, t)
            step = signed_step(field, frame, matmul(_turn(field, found.n, x, y), _signed_matrix(field, signed)))
            if step is not None:
                steps[int(group.table[v, c])] = step
    steps[0] = ()
    return SharedHead(field, steps)


def _on_sums(swap: int, s: int, t: int) -> Signed:
    """How (a, b) -> (sa, tb), or (sb, ta) with `swap`, moves (a + b, a - b)."""
    if swap:
        return (0, s, -s) if s == t else (1, -s, s)
    return (0, s, s) if s == t else (1, s, s)


def _turn(field: RealCyclotomic, n: int, x: int, y: int) -> Matrix:
    (c, s), (d, e) = ((field.cos(k, n), field.sin(k, n)) for k in (x, y))
    return matrix(field, ((c, -s, 0, 0), (s, c, 0, 0), (0, 0, d, -e), (0, 0, e, d)))


def _signed_matrix(field: RealCyclotomic, signed: Signed) -> Matrix:
    """A sign change of a coordinate reflects its plane, an exchange exchanges the planes."""
    swap, s, t = signed
    columns = ((0, 0, 1, 0), (0, 0, 0, s), (1, 0, 0, 0), (0, t, 0, 0)) if swap else (
        (1, 0, 0, 0), (0, s, 0, 0), (0, 0, 1, 0), (0, 0, 0, t)
    )  # fmt: skip
    return matrix(field, columns)


def _wreath(group: Cayley) -> _Wreath | None:
    odd = np.flatnonzero(group.orders % 2)
    n = math.isqrt(len(odd))
    good = 1 < n <= _MOST_MODULUS and n * n == len(odd) and group.order <= 8 * len(odd)
    if not good or not is_abelian(group, odd) or int(group.orders[odd].max()) != n:
        return None
    two = _complement(group, group.order // len(odd))
    for v, w in product(odd.tolist(), repeat=2):
        vectors = _coordinates(group, v, w, n)
        if vectors is None:
            continue
        number = {g: ab for ab, g in vectors.items()}
        moves = {c: tuple(number[int(group.table[group.table[c, g], group.inverses[c]])] for g in (v, w)) for c in two}
        signed = {_signed(images, n): c for c, images in moves.items()}
        if None not in signed and len(signed) == len(two):
            return _Wreath(n, odd, {key: c for key, c in signed.items() if key is not None}, vectors)
    return None


def _complement(group: Cayley, order: int) -> list[int]:
    """A Sylow 2-subgroup, grown one 2-element after the other."""
    members = [0]
    candidates = [g for g in range(group.order) if int(group.orders[g]).bit_count() == 1]
    for g in candidates:
        larger = group.generated((*members, g))
        if g not in members and len(larger) <= order and order % len(larger) == 0:
            members = larger.tolist()
    return members


def _coordinates(group: Cayley, v: int, w: int, n: int) -> dict[tuple[int, int], int] | None:
    vectors: dict[tuple[int, int], int] = {}
    left = 0
    for a in range(n):
        at = left
        for b in range(n):
            vectors[a, b] = at
            at = int(group.table[at, w])
        left = int(group.table[left, v])
    return vectors if len(set(vectors.values())) == n * n else None


def _signed(images: tuple[tuple[int, int], ...], n: int) -> Signed | None:
    """Which signed permutation sends (1, 0) and (0, 1) to these; None if none does."""
    (a, b), (c, d) = images
    one = {1: 1, n - 1: -1}
    if not b and not c and a in one and d in one:
        return (0, one[a], one[d])
    # (a, b) -> (s b, t a): (1, 0) goes to (0, t) and (0, 1) to (s, 0).
    if not a and not d and b in one and c in one:
        return (1, one[c], one[b])
    return None
