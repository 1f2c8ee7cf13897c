"""One head for a group that several planar heads track: planes and signs side by side in one state.

H(w, 2) Diag(s) with w in one coordinate plane acts there as any orthogonal matrix and on the other coordinates as
signs that can be chosen. So one head takes a letter if at most one of its blocks is neither ±1 nor a reflection in an
axis.

An abelian group G, Ω its elements with 2t = 0: let cyclic subgroups of G/Ω hold the letters, let c_1, ..., c_m be
elements of orders n_i over their generators, and let the half turns (n_i/2) c_i (n_i even) and r involutions span Ω. A
letter is k c_i + t: plane i turns by 2πk/n_i, and t is half turns and r signs. The size is 2m + r, and the state
(k_1, ..., k_m, signs) means Σ k_i c_i and the involutions whose sign is -1. With all elements as letters m is the
number of maximal cyclic subgroups of G/Ω ≅ 2G. No head turns fewer planes: A_g² turns one plane if 2g ≠ 0, and turns of
one plane generate a cyclic group, so that letters over generators of different maximal cyclic subgroups turn different
planes. If 2G is cyclic, states and elements correspond one to one.

The best query has the margin 2/√(Σ 1/sin²(π/n_i)), n = 2 for a sign: one step of one block alone changes the element
and moves q by 2 |q_i| sin(π/n_i), and whatever else moves q moves some block at least so far.

Main definitions: `one_head`, `abelian_blocks`, `joined`.

Main results: claim OURS-one-abelian-head.

References: docs/atlas.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from statetrack.errors import NoConstruction
from statetrack.theory.arrays import identity, vector
from statetrack.theory.cayley_tables import Cayley, from_group
from statetrack.theory.fields import Element
from statetrack.theory.finite_group import quotient
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.rotations import angle_field, planar_key

from .margins import dihedral_query
from .planar_heads import PlanarHead, planar_heads
from .program import Factor, Head, Layer, Program, Step
from .source import Source
from .trackers import open_program, token_head

# Whoever checks the margin compares every two readouts, of which each state has its own.
_MOST_STATES = 4_096
_MOST_ORDER = 400


def one_head(source: Source) -> Program | None:
    """One head for an abelian group, or for one whose planar heads can be joined; None for others.

    Raises NoConstruction if it reaches too many states to be searched.
    """
    if source.group is None or not 1 < source.group.order <= _MOST_ORDER or not source.letters:
        return None
    group = from_group(source.group)
    if group.commutators.any():
        found = planar_heads(group)
        blocks, states = (found.heads, found.states) if found is not None else ((), 0)
    else:
        blocks = abelian_blocks(group, source.letters)
        states = math.prod(block.modulus for block in blocks)
    head = joined(blocks, source.letters) if blocks else None
    if head is not None and states > _MOST_STATES:
        reason = f"one head would reach {states:,} states, more than the {_MOST_STATES:,} that are searched"
        raise NoConstruction(source.name, "ckda", reason, "take several heads: --construction multihead")
    return None if head is None else open_program(source.dfa, (Layer((head,)),))


def abelian_blocks(group: Cayley, letters: Sequence[int]) -> tuple[PlanarHead, ...]:
    """Planes, then signs, for an abelian group: a letter turns one of them. Elements that are no letters stay."""
    omega = np.flatnonzero(group.power(2) == 0)
    below, place = quotient(group, omega)
    planes: list[list[int]] = []
    for x in _covering(below, set(place[list(letters)].tolist()) - {0}):
        m, lift = int(below.orders[x]), int(np.flatnonzero(place == x)[0])
        # The double of an element over x has order m, as G/Ω ≅ 2G; for odd m there is one of order m itself.
        c = int(group.power(m + 1)[lift]) if m % 2 else lift
        planes.append([int(group.power(k)[c]) for k in range(m + 1)])
    parts = {g: _part(group, place, planes, g) for g in letters}
    span, halves = {0: 0}, list[bool]()
    for plane in planes:
        halves.append(plane[-1] != 0)
        if plane[-1] not in span:
            span |= {int(group.table[s, plane[-1]]): bits | 1 << len(halves) - 1 for s, bits in span.items()}
    for _, _, t in parts.values():
        if t not in span:
            free = halves.index(False) if False in halves else len(halves)
            halves[free : free + 1] = [True]
            span |= {int(group.table[s, t]): bits | 1 << free for s, bits in span.items()}
    blocks: list[PlanarHead] = []
    for j, half in enumerate(halves):
        m = len(planes[j]) - 1 if j < len(planes) else 1
        n = 2 * m if half else m
        # Where a half turn is no multiple of the plane's element, that one turns by two steps of n.
        step = 2 if half and m % 2 else 1
        turns = [0] * group.order
        for g, (i, k, t) in parts.items():
            turns[g] = (step * k * (i == j) + m * (span[t] >> j & 1)) % n
        blocks.append(PlanarHead(n, tuple(turns), (1,) * group.order))
    return tuple(blocks)


def _covering(group: Cayley, left: set[int]) -> Iterator[int]:
    """Generators of few cyclic subgroups that hold these elements, each with as many more of them as can be."""
    cyclic = {x: set(group.generated((x,)).tolist()) for x in range(1, group.order)}
    while left:
        x = max(cyclic, key=lambda x: (len(cyclic[x] & left), -len(cyclic[x])))
        left = left - cyclic[x]
        yield x


def _part(group: Cayley, place: np.ndarray, planes: Sequence[Sequence[int]], g: int) -> tuple[int, int, int]:
    """The letter as k c_i + t: (i, k, t), i = -1 if k = 0."""
    if not place[g]:
        return -1, 0, g
    i, k = next((i, k) for i, plane in enumerate(planes) for k, c in enumerate(plane) if place[c] == place[g])
    return i, k, int(group.table[g, group.inverses[planes[i][k]]])


def joined(blocks: Sequence[PlanarHead], letters: Sequence[int]) -> Head | None:
    """Planar heads as blocks of one; None if a letter moves two of them by more than signs."""
    field = angle_field(*(block.modulus for block in blocks if block.size == 2))
    steps: list[Step] = []
    for g in letters:
        keys, signs, c = list[Element](), list[int](), 0
        for block in blocks:
            turn, sign = block.image(g)
            n, flat = block.modulus, 2 * turn % block.modulus == 0
            side = -1 if turn else 1
            if block.size == 1:
                signs.append(side * sign)
            else:
                signs += [side, side * sign] if flat else [1, -sign]
            c += not flat
            keys += [field.zero] * block.size if flat else planar_key(field, turn, n)
        if c > 1:
            return None
        moved = c or -1 in signs
        steps.append((Factor(tuple(keys), field(2 * c), vector(field, signs)),) if moved else ())
    return token_head(identity(field, sum(block.size for block in blocks)), steps, vector(field, _query(field, blocks)))


def _query(field: RealCyclotomic, blocks: Sequence[PlanarHead]) -> list[int]:
    """The blocks' queries, longer where a step moves them less."""
    entries: list[float] = []
    for block in blocks:
        signed, n = -1 in block.signs, block.modulus
        own = [1.0] if block.size == 1 else [float(x) for x in dihedral_query(field, n)] if signed else [1.0, 0.0]
        scale = math.hypot(*own) * (1 if block.size == 1 else math.sin(math.pi / (2 * n if signed else n)))
        entries += [x / scale for x in own]
    whole = [round(1000 * x) for x in entries]
    return [x // math.gcd(*whole) for x in whole]
