"""Swap groups V:Z_4, t^2 inverting V, by heads of size four that share the turn t.

U_n = (Z/n)[i]:Z_4 acts on R^4 = P + P': (a, b) turns P by 2πa/n and P' by 2πb/n, and t sends f1 -> f3 -> f1 and
f2 -> f4 -> -f2. No frame makes all of U_n signed Householders, but a few heads share the work: each takes an element of
U_n with the letter's power of t, and the sum of what they take in V is the letter's.

Main definitions: `swap_tracker`.

Main results: claim OURS-swap-groups (F20 by four heads, F52 by five, Z3^2:Z4 by six).

References: docs/atlas.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from statetrack.theory.arrays import Matrix, matmul, matrix, transpose
from statetrack.theory.cayley_tables import Cayley
from statetrack.theory.finite_group import is_abelian
from statetrack.theory.number_fields import RealCyclotomic

from .multihead import Tracker
from .program import Step
from .shared_heads import SharedHead, shared_tracker, signed_step

# (a, b, j): the element a + b i of (Z/n)[i], then t^j.
Element = tuple[int, int, int]
_MOST_MODULUS = 25


@dataclass(frozen=True)
class _Frame:
    """A frame of R^4 for U_n: `shift` 0 is {f2, (f1 ± f3)/√2, f4}; else the one that holds T and shift·T, or, if it is
    `turned` by t, T and shift·i·T."""

    n: int
    shift: int
    turned: bool = False

    @cached_property
    def field(self) -> RealCyclotomic:
        """Holds √2 and the turns by π/n."""
        return RealCyclotomic(math.lcm(8, 2 * self.n))

    @cached_property
    def rows(self) -> Matrix:
        """The unit vectors."""
        field = self.field
        h = field.cos(1, 8)
        if not self.shift:
            return matrix(field, ((0, 1, 0, 0), (h, 0, h, 0), (h, 0, -h, 0), (0, 0, 0, 1)))
        c, s = h * field.cos(self.shift, 2 * self.n), h * field.sin(self.shift, 2 * self.n)
        rows = matrix(field, ((c, s, c, s), (c, s, -c, -s), (-s, c, -s, c), (-s, c, s, -c)))
        return transpose(matmul(self.power(1), transpose(rows))) if self.turned else rows

    def power(self, j: int) -> Matrix:
        """t^j on R^4."""
        made = matrix(self.field, ((int(i == k) for i in range(4)) for k in range(4)))
        once = matrix(self.field, ((0, 0, 1, 0), (0, 0, 0, -1), (1, 0, 0, 0), (0, 1, 0, 0)))
        for _ in range(j % 4):
            made = matmul(once, made)
        return made

    def step(self, x: Element) -> Step | None:
        """The element as one factor in this frame, if it is a signed Householder there."""
        if x == (0, 0, 0):
            return ()
        field, (a, b, j) = self.field, x
        (c, s), (d, e) = ((field.cos(k, self.n), field.sin(k, self.n)) for k in (a, b))
        turn = matrix(field, ((c, -s, 0, 0), (s, c, 0, 0), (0, 0, d, -e), (0, 0, e, d)))
        return signed_step(field, self.rows, matmul(turn, self.power(j)))

    @cached_property
    def allowed(self) -> dict[Element, Step]:
        """What the frame holds of the elements that are looked for."""
        made = {x: self.step(x) for x in self._candidates()}
        return {x: step for x, step in made.items() if step is not None}

    def _candidates(self) -> Iterator[Element]:
        n, k = self.n, self.shift
        if not k:
            yield from ((0, 0, 1), (0, 0, 3))
            yield from ((a, 0, j) for a in range(n) for j in (0, 2))
            yield from ((0, b, j) for b in range(n) for j in (0, 2))
            return
        x, y = (0, k) if self.turned else (k, 0)
        # (shift t)^-1 = t^-1 (-shift) = (i·shift) t^-1.
        yield from ((0, 0, 0), (0, 0, 1), (x, y, 1), (0, 0, 3), (-y % n, x, 3))
        yield from ((a, b, 2) for a in range(n) for b in {a, -a % n})


@dataclass(frozen=True)
class _Split:
    """G = V:<t> and a generator of V over Z[i]: `power[a][b]` is the element of a + b i."""

    t: int
    n: int
    power: tuple[tuple[int, ...], ...]


def swap_tracker(group: Cayley) -> Tracker | None:
    """Heads for V:Z_4 with V abelian of odd order, one orbit of Z[i], and t^2 inverting V; None for other groups."""
    split = _split(group)
    if split is None or split.n > _MOST_MODULUS:
        return None
    frames = _enough(split)
    turns = _powers(group, split.t, 4)
    members = np.flatnonzero(group.orders % 2)
    made = {frame: _head(group, split, turns, frame) for frame in frames}
    return shared_tracker(group, members, turns, [made[frame] for frame in frames], f"{len(frames)} swap heads")


def _split(group: Cayley) -> _Split | None:
    odd = np.flatnonzero(group.orders % 2)
    if 4 * len(odd) != group.order or len(odd) == 1 or not is_abelian(group, odd):
        return None
    t = int(np.flatnonzero(group.orders == 4)[0]) if (group.orders == 4).any() else 0
    square = int(group.table[t, t])
    inverted = group.table[group.table[square, odd], square] == group.inverses[odd]
    if not t or not inverted.all():
        return None
    for v in odd[np.argsort(-group.orders[odd], kind="stable")].tolist():
        n = int(group.orders[v])
        turned = int(group.table[group.table[t, v], group.inverses[t]])
        powers = _powers(group, v, n), _powers(group, turned, n)
        power = tuple(tuple(int(group.table[a, b]) for b in powers[1]) for a in powers[0])
        if len({g for row in power for g in row}) == len(odd):
            return _Split(t, n, power)
    return None


def _powers(group: Cayley, g: int, count: int) -> list[int]:
    found = [0]
    for _ in range(count - 1):
        found.append(int(group.table[found[-1], g]))
    return found


def _enough(split: _Split) -> list[_Frame]:
    """Frames that share out every letter."""
    n = split.n
    shifts: list[tuple[int, bool]] = [(0, False)]
    cyclic = len({g for row in split.power for g in row}) == n
    if not cyclic:
        shifts.append((0, False))
    left = n
    while left > 1:
        # Sums of some of the shifts run through 0..n-1: each is half of what is left, as in binary.
        shift = left // 2
        left -= shift
        shifts += [(shift, False)] if cyclic else [(shift, False), (shift, True)]
    return [_Frame(n, shift, turned) for shift, turned in shifts]


def _head(group: Cayley, split: _Split, turns: Sequence[int], frame: _Frame) -> SharedHead:
    """What a frame holds, by element of the group; fewest turns in V first, as several elements of U_n may be one."""
    steps: dict[int, Step] = {}
    for a, b, j in sorted(frame.allowed, key=lambda x: x[:2] != (0, 0)):
        steps.setdefault(int(group.table[split.power[a][b], turns[j]]), frame.allowed[a, b, j])
    return SharedHead(frame.field, steps)
