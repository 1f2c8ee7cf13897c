"""Heads that share a letter of V:C between them: each takes the letter's part in C, and their parts in V add up to its.

V is abelian of odd order, and C a 2-group that permutes ±v, ±w for two elements v, w of order n that generate V. So
(Z/n)²:C maps onto V:C and acts on R⁴ = P + P': (x, y) turns P by 2πx/n and P' by 2πy/n, and c exchanges the planes,
reflects them, or does both; in heads of a second kind (x, y) stands for (x + y)/2 v + (x - y)/2 w. No frame makes all
elements signed Householders, but two frames hold enough of them, f1, f2 and f3, f4 being axes of P and P':

- F = {f2, (f1 ± f3)/√2, f4} holds (x, 0)c and (0, y)c for a c that keeps the planes, and all c;
- W = {(f1 ± f3)/√2, (f2 ± f4)/√2} holds (x, 0)t and (0, y)t for t(p, q) = (σq, p), σ a reflection. For (x, y)t fixes
  (u, R_y u) and negates (u, -R_y u), u at angle (x - y)π/n. If y = 0 they lie in the planes {(p, p)} and {(p, -p)}, if
  x = 0 in {(p, σp)} and {(p, -σp)}; two vectors of W span each, and so much is enough (docs/atlas.md).

The fewest heads of these four kinds are searched whose parts add up to every letter.

Main definitions: `shared_tracker`.

Main results: claim OURS-swap-groups: F20 and F52 by two heads of size four, Z3^2:Z4 and S3 wr Z2 = Z3^2:D4 by four.

References: docs/atlas.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np

from statetrack.theory.arrays import Matrix, matmul, matrix, transpose
from statetrack.theory.cayley_tables import Cayley, Numbers
from statetrack.theory.finite_group import is_abelian
from statetrack.theory.number_fields import RealCyclotomic

from .multihead import Letters, Modules, Tracker, matrix_part, module_of, settled
from .program import Step
from .targets import Target
from .trackers import signed_step

_MOST_MODULUS = 50
_MOST_HEADS = 4
# (exchanged, s, t): the signed permutation (a, b) -> (s a, t b) or, if they are exchanged, (s b, t a).
Signed = tuple[int, int, int]


@dataclass(frozen=True)
class _Split:
    """G = V:C; `vectors[a, b]` numbers a v + b w, n is the order of v and w, and C is given by what it does to them."""

    n: int
    members: Numbers
    complement: Mapping[Signed, int]
    vectors: Mapping[tuple[int, int], int]


@dataclass(frozen=True)
class _Kind:
    """A kind of heads: whether (x, y) stands for (x + y)/2 v + (x - y)/2 w, and whether the frame is W."""

    halves: bool
    w: bool

    def steps(self, group: Cayley, split: _Split) -> dict[int, Step]:
        """The elements of the group that such a head can take."""
        n, half, found = split.n, (split.n + 1) // 2, dict[int, Step]()
        for signed, c in split.complement.items():
            own = _on_halves(*signed) if self.halves else signed
            for x, y in ((0, 0), *((x, 0) for x in range(1, n)), *((0, y) for y in range(1, n))):
                a, b = ((x + y) * half % n, (x - y) * half % n) if self.halves else (x, y)
                g = int(group.table[split.vectors[a, b], c])
                step = None if g in found else _step(n, self.w, own, x, y)
                if step is not None:
                    found[g] = step
        return found


def shared_tracker(group: Cayley) -> Tracker | None:
    """The fewest heads for V:C, at most four; None for other groups."""
    split = _split(group)
    if split is None:
        return None
    kinds = {kind: kind.steps(group, split) for kind in (_Kind(h, w) for h, w in product((False, True), repeat=2))}
    for count in range(1, _MOST_HEADS + 1):
        for chosen in combinations_with_replacement(kinds, count):
            heads = [kinds[kind] for kind in chosen]
            shares = _shares(group, split, heads)
            if len(shares) == group.order:
                return _tracker(group, split, heads, shares)
    return None


def _tracker(
    group: Cayley, split: _Split, heads: Sequence[Mapping[int, Step]], shares: Mapping[int, tuple[int, ...]]
) -> Tracker:
    coset = {int(group.table[v, c]): c for v in split.members for c in split.complement.values()}
    field = _field(split.n)

    def modules(letters: Letters, goal: Target) -> Modules:
        return _tower(group, field, heads, [shares[g] for g in letters], coset, goal)

    return Tracker(group, f"{len(heads)} heads that share letters", modules)


def _shares(group: Cayley, split: _Split, heads: Sequence[Collection[int]]) -> dict[int, tuple[int, ...]]:
    """For each letter that the heads reach together: the element that each head takes."""
    found: dict[int, tuple[int, ...]] = {}
    inside = set(split.members.tolist())
    for c in split.complement.values():
        sums: dict[int, tuple[int, ...]] = {0: ()}
        for head in heads:
            parts = [(int(group.table[x, group.inverses[c]]), x) for x in head]
            wider: dict[int, tuple[int, ...]] = {}
            for g, taken in sums.items():
                for v, x in sorted(p for p in parts if p[0] in inside):
                    wider.setdefault(int(group.table[g, v]), (*taken, x))
            sums = wider
        found |= {int(group.table[g, c]): taken for g, taken in sums.items()}
    return found


def _tower(
    group: Cayley,
    field: RealCyclotomic,
    heads: Sequence[Mapping[int, Step]],
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
        part = matrix_part(group, field, 4, [head[x] for x in distinct], distinct, goal)
        if len(tower) == 2:
            tower = (module_of(settled(group, so_far, tower, goal), numbers, numbers),)
        tower = (*tower, module_of(part, range(len(distinct)), [distinct.index(x) for x in taken]))
        if i:
            so_far = [add(g, x) for g, x in zip(so_far, taken, strict=True)]
    return tower


def _field(n: int) -> RealCyclotomic:
    return RealCyclotomic(math.lcm(8, n))


@cache
def _step(n: int, w: bool, signed: Signed, x: int, y: int) -> Step | None:
    """Turns by 2πx/n and 2πy/n after a signed permutation of the planes, in the frame W or F, if it is one factor."""
    field = _field(n)
    h, (c, s), (d, e) = field.cos(1, 8), *((field.cos(k, n), field.sin(k, n)) for k in (x, y))
    rows = ((h, 0, h, 0), (h, 0, -h, 0), (0, h, 0, h), (0, h, 0, -h)) if w else (
        (0, 1, 0, 0), (h, 0, h, 0), (h, 0, -h, 0), (0, 0, 0, 1)
    )  # fmt: skip
    frame, turn = matrix(field, rows), matrix(field, ((c, -s, 0, 0), (s, c, 0, 0), (0, 0, d, -e), (0, 0, e, d)))
    return signed_step(matmul(matmul(frame, matmul(turn, _planes(field, *signed))), transpose(frame)))


def _planes(field: RealCyclotomic, exchanged: int, s: int, t: int) -> Matrix:
    """A sign change of a coordinate reflects its plane, an exchange exchanges the planes."""
    rows = ((0, 0, 1, 0), (0, 0, 0, s), (1, 0, 0, 0), (0, t, 0, 0)) if exchanged else (
        (1, 0, 0, 0), (0, s, 0, 0), (0, 0, 1, 0), (0, 0, 0, t)
    )  # fmt: skip
    return matrix(field, rows)


def _on_halves(exchanged: int, s: int, t: int) -> Signed:
    """How a signed permutation of (a, b) moves (a + b, a - b)."""
    if exchanged:
        return (0, s, -s) if s == t else (1, -s, s)
    return (0, s, s) if s == t else (1, s, s)


def _split(group: Cayley) -> _Split | None:
    """V of odd order and a complement of order 4 or 8 that permutes ±v, ±w; for most groups there is none."""
    odd = np.flatnonzero(group.orders % 2)
    if len(odd) == 1 or group.order not in (4 * len(odd), 8 * len(odd)) or not is_abelian(group, odd):
        return None
    two = _complement(group, group.order // len(odd))
    for v in odd[np.argsort(-group.orders[odd], kind="stable")].tolist():
        n = int(group.orders[v])
        for w in sorted({_moved(group, c, v) for c in two}) if n <= _MOST_MODULUS else ():
            vectors = {(a, b): g for a, left in enumerate(_powers(group, v, n)) for b, g in _along(group, left, w, n)}
            if len(set(vectors.values())) < len(odd):
                continue
            signed = {_signed(group, c, v, w): c for c in two}
            if None not in signed and len(signed) == len(two):
                return _Split(n, odd, {key: c for key, c in signed.items() if key is not None}, vectors)
    return None


def _moved(group: Cayley, c: int, v: int) -> int:
    """c v c⁻¹."""
    return int(group.table[group.table[c, v], group.inverses[c]])


def _powers(group: Cayley, g: int, count: int) -> list[int]:
    found = [0]
    for _ in range(count - 1):
        found.append(int(group.table[found[-1], g]))
    return found


def _along(group: Cayley, first: int, w: int, n: int) -> Iterator[tuple[int, int]]:
    """b and first·w^b."""
    return ((b, int(group.table[first, g])) for b, g in enumerate(_powers(group, w, n)))


def _complement(group: Cayley, order: int) -> list[int]:
    """A Sylow 2-subgroup, grown one 2-element after the other."""
    members = [0]
    candidates = [g for g in range(group.order) if int(group.orders[g]).bit_count() == 1]
    for g in candidates:
        larger = group.generated((*members, g))
        if g not in members and len(larger) <= order and order % len(larger) == 0:
            members = larger.tolist()
    return members


def _signed(group: Cayley, c: int, v: int, w: int) -> Signed | None:
    """The signed permutation of v and w that c is; None if it is none."""
    signs = {v: (0, 1), w: (1, 1), int(group.inverses[v]): (0, -1), int(group.inverses[w]): (1, -1)}
    first, second = (signs.get(_moved(group, c, g)) for g in (v, w))
    if first is None or second is None or first[0] == second[0]:
        return None
    return (0, first[1], second[1]) if first[0] == 0 else (1, second[1], first[1])
