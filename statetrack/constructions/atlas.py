"""Which finite groups one layer tracks: a tracker, a witness that there is none, or what was tried.

Main definitions: `Decision`, `decide`, `built`, `one_layer`, `is_realisable`.

Main results: claims OURS-one-layer-variety and OURS-one-layer-obstructions; all 312 groups of order up to 60 are
decided (docs/atlas.md).

References: docs/atlas.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

import numpy as np

from statetrack.theory.cayley_tables import Cayley, Numbers, binary_polyhedral, from_group
from statetrack.theory.finite_group import (
    fits,
    minimal_normals,
    normal_closure,
    quotient,
    regular,
    words_of,
)
from statetrack.theory.groups import GroupShape, recognise, word_problem
from statetrack.theory.obstructions import Witness, find_witness

from . import trackers
from .certificate import Certificate
from .multihead import Tracker, cover, planar_tracker, realise, source_tracker, subdirect
from .program import Program
from .quaternion_chain import binary_tracker
from .shared_heads import shared_tracker
from .source import Source
from .targets import Target

_CYCLIC_PARTNERS = (1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 24)
_MOST_MAPS = 4_000
# Larger groups are not decided on the way to a build: tables and searches grow with the square of the order.
MOST_DECIDED = 400


@dataclass(frozen=True)
class Decision:
    """`verdict` True (then there is a tracker), False (then a witness) or None (then `tried` says what was tried)."""

    group: Cayley
    verdict: bool | None
    tracker: Tracker | None = None
    witness: Witness | None = None
    tried: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """YES, NO or UNKNOWN."""
        return {True: "YES", False: "NO", None: "UNKNOWN"}[self.verdict]

    def sentence(self, labels: Sequence[str]) -> str:
        """The verdict for one layer with all elements as letters, with its construction, witness or attempts."""
        if self.tracker is not None:
            return f"YES: {self.tracker.how}"
        if self.witness is not None:
            return f"NO: law {self.witness.law} fails, {self.witness.describe(labels)}"
        return f"UNKNOWN: {'; '.join(self.tried)}"


def decide(group: Cayley) -> Decision:
    """Whether one layer of heads with one signed factor a token tracks the group with finitely many states.

    NO holds for all heads with at most one non-real pair of eigenvalues of size one; a YES is proved once `built`.
    """
    tracker = planar_tracker(group)
    if tracker is not None:
        return Decision(group, True, tracker)
    witness = find_witness(group)
    if witness is not None:
        return Decision(group, False, witness=witness)
    tried: list[str] = ["squares do not generate an abelian group", "laws U1 to U7 all hold"]
    tracker = _tracker(group, tried)
    return Decision(group, None if tracker is None else True, tracker, tried=tuple(tried))


def built(decision: Decision, source: Source, goal: Target) -> tuple[Program, Certificate]:
    """The tracker's network for a source with this group, numbered alike, and its certificate."""
    assert decision.tracker is not None
    return realise(decision.tracker, source, goal)


def _tracker(group: Cayley, tried: list[str]) -> Tracker | None:
    """Constructions in order; a group with two minimal normal subgroups is taken apart."""

    def taken_apart(group: Cayley) -> Tracker | None:
        return _taken_apart(group, tried)

    for make in (planar_tracker, _rotations, taken_apart, shared_tracker, _binary):
        tracker = make(group)
        if tracker is not None:
            return tracker
    names = (
        "rotation group",
        "V:C with C by signed permutations of two planes",
        "binary polyhedral group with a cyclic one",
    )
    tried.append(f"a quotient of order {group.order} with one minimal normal subgroup: no " + ", no ".join(names))
    return None


def _rotations(group: Cayley) -> Tracker | None:
    if group.order not in (12, 24, 60):
        return None
    shape = recognise(regular(group))
    if shape is None or shape.kind != "polyhedral":
        return None
    if shape.n == 5:
        return source_tracker(group, "one quaternion head", trackers.quaternion)
    return source_tracker(group, "cube head", lambda source: trackers.polyhedral(source, gates=True))


def _taken_apart(group: Cayley, tried: list[str]) -> Tracker | None:
    """By the quotients by two minimal normal subgroups, the largest pair that works."""
    normals = minimal_normals(group)
    pairs = sorted(combinations(range(len(normals)), 2), key=lambda p: -sum(len(normals[i]) for i in p))
    for pair in pairs[:3]:
        parts: list[tuple[Tracker, Numbers]] = []
        for i in pair:
            below, place = quotient(group, normals[i])
            made = _tracker(below, tried)
            if made is None:
                break
            parts.append((made, place))
        if len(parts) == 2:
            return subdirect(group, parts, "two quotients")
    return None


def _binary(group: Cayley) -> Tracker | None:
    """A quotient of a subgroup of 2T, 2O or 2I times a cyclic group: G modulo its centre is a rotation group."""
    everything = np.arange(group.order)
    centre = everything[(group.commutators == 0).all(axis=1)]
    below, place = quotient(group, centre)
    if below.order not in (12, 24, 60):
        return None
    shape = recognise(regular(below))
    if shape is None or shape.kind != "polyhedral":
        return None
    top = binary_tracker(shape.n)
    lifts = [int(np.flatnonzero(place == g)[0]) for g in (shape.x, shape.y)]
    central = [int(z) for z in _generators_inside(group, centre)]
    images = _von_dyck(shape.n)
    letters = (*lifts, *central)
    for m in _CYCLIC_PARTNERS:
        if (2 * m) ** len(letters) > _MOST_MAPS:
            continue
        found = _joint_map(group, top.group, letters, images, m)
        if found is not None:
            cyclic = Cayley(f"Z{m}", (np.arange(m)[:, None] + np.arange(m)) % m)
            partner = planar_tracker(cyclic)
            assert partner is not None
            parts = [(top, found[0])] + ([(partner, found[1])] if m > 1 else [])
            return cover(group, parts, "quotient of a subgroup of a product")
    return None


def _joint_map(
    group: Cayley, top: Cayley, letters: tuple[int, ...], images: tuple[int, int], m: int
) -> tuple[Numbers, Numbers] | None:
    """Elements of top x Z_m for all letters of G that generate a group which maps onto G, letter by letter."""

    def after(g: tuple[int, int], h: tuple[int, int]) -> tuple[int, int]:
        return int(top.table[g[0], h[0]]), (g[1] + h[1]) % m

    minus = int(np.flatnonzero(top.orders == 2)[0])
    lifts = [(image, int(top.table[minus, image])) for image in images] + [(0, minus)] * (len(letters) - 2)
    for choice in product(product(*lifts), product(range(m), repeat=len(letters))):
        pairs = list(zip(*choice, strict=True))
        if fits(group, letters, pairs, after, (0, 0), top.order * m) is None:
            continue
        values: list[tuple[int, int]] = []
        for word in words_of(group, letters):
            total = (0, 0)
            for i in word:
                total = after(total, pairs[i])
            values.append(total)
        made = np.array(values, dtype=np.int64)
        return made[:, 0], made[:, 1]
    return None


def _generators_inside(group: Cayley, members: Numbers) -> list[int]:
    """A few of the members that generate them."""
    chosen: list[int] = []
    inside: set[int] = {0}
    for g in sorted(members.tolist(), key=lambda g: -int(group.orders[g])):
        if g not in inside:
            chosen.append(g)
            inside = set(group.generated(chosen).tolist())
    return chosen


@lru_cache
def _von_dyck(k: int) -> tuple[int, int]:
    """Elements of the binary polyhedral group over generators x^2 = y^3 = (xy)^k = 1 of the rotation group."""
    group = binary_polyhedral(k)
    minus = int(np.flatnonzero(group.orders == 2)[0])
    below, place = quotient(group, np.array([0, minus]))
    shape = recognise(regular(below))
    assert shape is not None
    return int(np.flatnonzero(place == shape.x)[0]), int(np.flatnonzero(place == shape.y)[0])


def is_realisable(group: Cayley) -> bool | None:
    """Whether hidden states and elements can correspond one to one, as far as heads of sizes 1, 2 and 3 go.

    True if quotients that are cyclic, dihedral, A4 or S4 together tell the elements apart. Up to order 60 no real
    irreducible representation of degree 4 or more has at most one non-real pair everywhere, and A5 in degree 3 fits no
    frame (CKDA Lemma 16), so there the answer is never None.
    """
    kernel = set(range(group.order))
    for members in _normals(group):
        if kernel.issubset(members):
            continue
        shape = _shape(quotient(group, members)[0])
        if shape is not None and (shape.kind != "polyhedral" or shape.n < 5):
            kernel &= set(members.tolist())
    return len(kernel) == 1 or (False if group.order <= 60 else None)


def _shape(group: Cayley) -> GroupShape | None:
    return recognise(regular(group))


def _normals(group: Cayley) -> Iterator[Numbers]:
    """All normal subgroups, as joins of those that one element generates."""
    single = {tuple(normal_closure(group, x).tolist()) for x in group.representatives}
    found, queue = set(single), list(single)
    for one in queue:
        for other in single:
            join = tuple(group.generated((*one, *other)).tolist())
            if join not in found:
                found.add(join)
                queue.append(join)
    yield from map(np.array, sorted(found, key=lambda n: (-len(n), n)))


def source_of(group: Cayley, labels: Sequence[str], letters: Sequence[int]) -> Source:
    """The word problem of a table's group over some of its elements."""
    points = regular(group, labels)
    return Source(group.name, word_problem(points, letters), points, tuple(letters), False)


@lru_cache(maxsize=64)
def _decided(name: str, size: int, numbers: bytes) -> Decision:
    return decide(Cayley(name, np.frombuffer(numbers, dtype=np.int64).reshape(size, size)))


def decided(group: Cayley) -> Decision:
    """As `decide`; the last tables asked for are remembered."""
    return _decided(group.name, group.order, np.ascontiguousarray(group.table).tobytes())


def one_layer(source: Source, goal: Target) -> tuple[Program, Certificate] | None:
    """A permutation automaton by several heads of one layer, if its group is decided so; None else."""
    group = source.group
    if group is None or not 1 < group.order <= MOST_DECIDED or not source.letters:
        return None
    decision = decided(from_group(group))
    return built(decision, source, goal) if decision.tracker is not None else None
