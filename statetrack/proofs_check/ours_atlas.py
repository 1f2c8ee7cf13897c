"""Claims about groups that one layer of several heads tracks: the constructions of the atlas.

Main results: OURS-abelian-by-two-groups, OURS-swap-groups, OURS-quaternion-chain, OURS-one-layer-variety.

References: docs/atlas.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from statetrack.constructions.atlas import decide
from statetrack.constructions.multihead import Tracker, planar_tracker, realise, subdirect
from statetrack.constructions.planar_heads import planar_heads
from statetrack.constructions.quaternion_chain import binary_tracker
from statetrack.constructions.source import from_group as source_of
from statetrack.constructions.swap_heads import swap_tracker
from statetrack.constructions.targets import target
from statetrack.errors import CertificateFailed
from statetrack.theory.cayley_tables import Cayley, from_group
from statetrack.theory.finite_group import is_abelian, library, minimal_normals, quotient, regular, small_group, squares

from .claim import Trial, claim

_CKDA = target("ckda")


def _tracks(t: Trial, name: str, tracker: Tracker | None) -> None:
    """One layer, one factor a token, certified and accepted for all letters of the tracker's group."""
    t.holds(f"a tracker of {name}", tracker is not None)
    assert tracker is not None
    try:
        program, certificate = realise(tracker, source_of(regular(tracker.group), "all"), _CKDA)
    except CertificateFailed as error:
        t.holds(f"network of {name}", False, str(error))
        return
    t.equal(f"layers of {name}", (program.depth, program.factors_per_token <= 1), (1, True))
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
    "OURS-swap-groups",
    "V:Z4 with V of odd order and t^2 inverting V, a single orbit of Z[i], is tracked by one layer of heads of size "
    "four: F20 by four heads, F52 by five.",
    source="docs/atlas.md (swap groups)",
    kinds="C",
    control={"order": (21, 1)},
)
def swap_groups(t: Trial, order: tuple[int, int] = (20, 3)) -> None:
    """F20 (and Z3^2:Z4, F52 in larger budgets), certified; the control asks for the group of order 21."""
    for n, i in (order, (36, 9), (52, 3))[: t.amount(1, 2, 3)]:
        _tracks(t, f"[{n},{i}]", swap_tracker(from_group(small_group(n, i))))


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
