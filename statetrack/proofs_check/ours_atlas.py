"""Claims about groups that one layer tracks: the constructions of the atlas.

Main results: OURS-abelian-by-two-groups, OURS-one-abelian-head, OURS-swap-groups, OURS-common-frames,
OURS-quaternion-chain, OURS-one-layer-variety.

References: docs/atlas.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from statetrack.constructions.atlas import decide
from statetrack.constructions.certificate import certify
from statetrack.constructions.frame_search import Floats, least_defect
from statetrack.constructions.multihead import Letters, Modules, Tracker, planar_tracker, realise, subdirect
from statetrack.constructions.one_head import abelian_blocks, joined, one_head
from statetrack.constructions.planar_heads import planar_heads
from statetrack.constructions.program import Layer
from statetrack.constructions.quaternion_chain import binary_tracker
from statetrack.constructions.shared_heads import shared_tracker
from statetrack.constructions.source import from_group as source_of
from statetrack.constructions.targets import Target, target
from statetrack.constructions.trackers import open_program
from statetrack.errors import CertificateFailed
from statetrack.theory.cayley_tables import Cayley, from_group
from statetrack.theory.finite_group import is_abelian, library, minimal_normals, quotient, regular, small_group, squares
from statetrack.theory.rotations import polyhedral_generators

from .claim import Trial, claim

_CKDA = target("ckda")


def _tracks(t: Trial, name: str, tracker: Tracker | None, sizes: tuple[int, ...] | None = None) -> None:
    """One layer, one factor a token, certified and accepted for all letters of the tracker's group."""
    t.holds(f"a tracker of {name}", tracker is not None)
    assert tracker is not None
    try:
        program, certificate = realise(tracker, source_of(regular(tracker.group), "all"), _CKDA)
    except CertificateFailed as error:
        t.holds(f"network of {name}", False, str(error))
        return
    t.equal(f"layers of {name}", (program.depth, program.factors_per_token <= 1), (1, True))
    t.equal(f"heads of {name}", program.dims[0], program.dims[0] if sizes is None else sizes)
    t.certificate(certificate.data)
    t.count("hidden states", certificate.joint)


@claim(
    "OURS-abelian-by-two-groups",
    "Every group whose squares generate an abelian subgroup is tracked by one layer of heads of size two.",
    source="docs/atlas.md (Magnus and Fox)",
    kinds="C X",
    control={"missing": True},
    hypotheses=("finite group", "one signed factor a token", "all elements are letters"),
    figure="atlas",
)
def abelian_by_two(t: Trial, missing: bool = False) -> None:
    """Groups of order up to 32 (thorough: 60): heads found by the lattice test, closed exactly; the control drops one.

    The relation module is a pure sublattice of Z[E]^m, and Z[E] contains |E| times the sum of its images under
    characters; so numbers modulo |E| exp(N) determine the element (Magnus), whichever heads are pruned by the test.
    """
    most = t.amount(16, 32, 60)
    for n, i, name in library():
        group = from_group(small_group(n, i))
        if n > most or n == 1 or not is_abelian(group, squares(group)):
            continue
        heads = planar_heads(group)
        tracker = planar_tracker(group)
        assert heads is not None
        assert tracker is not None
        if missing and len(heads.heads) > 1:
            tracker = replace(tracker, planar=replace(heads, heads=heads.heads[1:]))
        _tracks(t, f"{name} [{n},{i}]", tracker)
        t.count("groups")


@claim(
    "OURS-one-abelian-head",
    "One head tracks an abelian group by a plane for each maximal cyclic subgroup of 2G and a few signs, one to one if "
    "2G is cyclic; its best query has margin 2/√(Σ 1/sin²(π/n)) over planes of n steps and signs (n = 2).",
    source="docs/atlas.md (one head)",
    kinds="C X",
    control={"left_out": 1},
    hypotheses=("finite abelian group", "one signed factor a token", "all elements are letters"),
)
def one_abelian_head(t: Trial, left_out: int = 0) -> None:
    """Sizes, states and margins of abelian groups of order up to 16 (60), certified; the control leaves out a plane or
    a sign where there are several, and the head that is left does not track the group."""
    for n, i, name in library():
        group = from_group(small_group(n, i))
        if not 1 < n <= t.amount(16, 32, 60) or group.commutators.any():
            continue
        blocks = abelian_blocks(group, range(n))
        states = math.prod(block.modulus for block in blocks)
        cyclic = n // int((group.power(2) == 0).sum()) == int(group.orders[squares(group)].max())
        t.equal(f"one state for one element of {name}", states == n, cyclic)
        if (n, i) == (9, 2):
            t.equal("planes for Z3 x Z3", len(blocks), 4)
        if states > 1024:
            continue
        source = source_of(small_group(n, i), "all")
        program = one_head(source)
        if left_out and len(blocks) > left_out:
            head = joined(blocks[left_out:], range(n))
            program = None if head is None else open_program(source.dfa, (Layer((head,)),))
        assert program is not None
        try:
            _, certificate = certify(program, source.dfa, _CKDA)
        except CertificateFailed as error:
            t.holds(f"network of {name}", False, str(error))
            continue
        t.equal(f"states for {name}", certificate.joint, states)
        t.certificate(certificate.data)
        best = 2 / math.sqrt(sum(math.sin(math.pi / block.modulus) ** -2 for block in blocks))
        margin = certificate.margins[0][0]
        t.holds(f"margin for {name}", margin is not None and 0 <= best + 1e-12 - margin.unit <= best / 500, margin)
        t.count("groups")


@claim(
    "OURS-common-frames",
    "A search in doubles finds frames that make all rotations of A4 and of S4 in space signed Householders, none for "
    "A5, and none of R^4 for F20 on two planes, whichever elements of Z5^2:Z4 stand for its letters.",
    source="CKDA Prop. 13, Lemma 16; docs/atlas.md",
    kinds="N",
    control={"fits": False},
)
def common_frames(t: Trial, fits: bool = True) -> None:
    """The least defect from random frames: under 1e-9 with a frame, over 1 without; the control expects the reverse."""
    for k, name in ((3, "A4"), (4, "S4"), (5, "A5")):
        rows = [[[float(x) for x in row] for row in m] for m in polyhedral_generators(k).elements]
        defect, _ = least_defect(np.array(rows)[:, None], restarts=6)
        t.holds(f"frame for {name}", defect < 1e-9 if (k < 5) == fits else defect > 1, defect)
    defect, _ = least_defect(_two_planes(5, 2), restarts=t.amount(1, 4, 20))
    t.holds("frame for F20", defect > 1, defect)


def _two_planes(n: int, i: int) -> Floats:
    """Letters v t^j of Z_n:Z_4, t v t^-1 = i v, each with all (x, y) t^j that stand for it, as 4 x 4 matrices."""
    turn = np.array([[np.cos(2 * np.pi / n), -np.sin(2 * np.pi / n)], [np.sin(2 * np.pi / n), np.cos(2 * np.pi / n)]])
    zero, one, mirror = np.zeros((2, 2)), np.eye(2), np.diag([1, -1])
    t = np.block([[zero, mirror], [one, zero]])
    first, second = np.block([[turn, zero], [zero, one]]), np.block([[one, zero], [zero, turn]])
    power = np.linalg.matrix_power
    return np.array(
        [
            [power(first, (v - i * y) % n) @ power(second, y) @ power(t, j) for y in range(n)]
            for v in range(n)
            for j in range(4)
        ]
    )


@claim(
    "OURS-swap-groups",
    "V:C with V of odd order and C a 2-group of signed permutations of two generators is tracked by one layer of heads "
    "of size four that share the letter's part in V: F20 and F52 by two heads, Z3^2:Z4 by four.",
    source="docs/atlas.md (shared letters)",
    kinds="C",
    control={"left_out": 1},
)
def swap_groups(t: Trial, left_out: int = 0) -> None:
    """F20 (and Z3^2:Z4, F52 in larger budgets), certified; the control leaves out the last head, so that its share of
    the letter's part in V is lost."""
    for (n, i), heads in (((20, 3), 2), ((36, 9), 4), ((52, 3), 2))[: t.amount(1, 2, 3)]:
        tracker = shared_tracker(from_group(small_group(n, i)))
        if tracker is not None and left_out:
            tracker = _without_last(tracker, left_out)
        _tracks(t, f"[{n},{i}]", tracker, (4,) * heads)


def _without_last(tracker: Tracker, count: int) -> Tracker:
    def modules(letters: Letters, goal: Target) -> Modules:
        return tracker.modules(letters, goal)[:-count]

    return replace(tracker, modules=modules)


@claim(
    "OURS-quaternion-chain",
    "2T and 2O are tracked by one layer of three heads of size four and two of size two, 2I by four and two.",
    source="docs/atlas.md (quaternion chains)",
    kinds="C",
    control={"swapped": True},
)
def quaternion_chain(t: Trial, swapped: bool = False) -> None:
    """2T (2O and 2I in larger budgets), certified over K_24 and one square root; the control exchanges two letters."""
    for k in (3, 4, 5)[: t.amount(1, 2, 3)]:
        tracker = binary_tracker(k)
        if swapped:
            place = np.arange(tracker.group.order)
            place[[1, 2]] = 2, 1
            tracker = subdirect(tracker.group, [(tracker, place)], "exchanged")
        _tracks(t, f"binary polyhedral group {k}", tracker)


@claim(
    "OURS-one-layer-variety",
    "Groups that one layer tracks are closed under subgroups, products and quotients; of the 312 groups of order up to "
    "60, 297 are tracked and 15 are not.",
    source="docs/atlas.md",
    kinds="C X",
    control={"same": True},
    cited="finite groups of unit quaternions are cyclic, dicyclic or binary polyhedral (for the 15)",
    figure="atlas",
)
def one_layer_variety(t: Trial, same: bool = False) -> None:
    """Subdirect products, certified; every group of order up to 60 that needs more than planar heads, decided.

    Letters are restricted, heads put side by side, or representatives taken; the control uses one quotient twice.
    """
    counts = {True: 0, False: 0, None: 0}
    for n, i, name in library():
        group = from_group(small_group(n, i))
        if is_abelian(group, squares(group)):
            counts[True] += 1
            continue
        verdict = decide(group).verdict
        counts[verdict] += 1
        normals = minimal_normals(group)
        if verdict and len(normals) > 1 and n <= t.amount(36, 48, 60):
            _tracks(t, f"{name} [{n},{i}]", _by_quotients(group, (0, 0) if same else (0, len(normals) - 1)))
    t.equal("tracked, not tracked, open", (counts[True], counts[False], counts[None]), (297, 15, 0))


def _by_quotients(group: Cayley, pair: tuple[int, int]) -> Tracker:
    normals = minimal_normals(group)
    parts = [quotient(group, normals[i]) for i in pair]
    made = [(decide(below).tracker, place) for below, place in parts]
    return subdirect(group, [(tracker, place) for tracker, place in made if tracker is not None], "two quotients")
