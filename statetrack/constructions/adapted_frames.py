"""One head of size four for S5 over letters that an adapted frame holds: 40 of the 120, none of them a five-cycle.

Main definitions: `adapted_head`.

Main results: claim OURS-forty-letters, as a network; CKDA Thm. 4 forbids a five-cycle among the letters.

References: docs/atlas.md.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np

from statetrack.theory.arrays import matrix
from statetrack.theory.groups import Permutation
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.signed_householder_groups import adapted_letters

from .program import Program, Step
from .source import Source
from .trackers import open_head, point_maps, signed_step

_FRAME = ((1, -1, 0, 0, 0), (0, 0, 1, -1, 0), (1, 1, -1, -1, 0), (1, 1, 1, 1, -4))


@cache
def _letters() -> frozenset[Permutation]:
    return frozenset(adapted_letters(5, _FRAME))


def adapted_head(source: Source) -> Program | None:
    """S5 by one head over letters that lie, after renaming the points, in the adapted frame; None for other sources."""
    if source.group is None or source.group.order != 120 or source.dfa.start != 0:
        return None
    maps = [tuple(p) for p in point_maps(source)]
    if not maps or len(maps[0]) != 5:
        return None
    for names in permutations(range(5)):
        renamed = [_renamed(p, names) for p in maps]
        if _letters().issuperset(renamed):
            field = RealCyclotomic(40)
            steps = [_step(field, p) for p in renamed]
            # The query must tell elements apart, whatever the automaton's states merge.
            return open_head(source.dfa, field, 4, steps, [source.group.left(g) for g in source.letters])
    return None


def _renamed(p: Permutation, names: tuple[int, ...]) -> Permutation:
    images = [0] * len(p)
    for i, image in enumerate(p):
        images[names[i]] = names[image]
    return tuple(images)


def _step(field: RealCyclotomic, p: Permutation) -> Step:
    """The permutation of points on the sum-zero space, in the unit vectors of the frame."""
    lengths = (field.sqrt(2), field.sqrt(2), field(2), field.sqrt(5) * 2)
    frame = np.array(_FRAME)
    moved = frame[:, list(p)] @ frame.T
    rows = [[field(int(moved[i, j])) / (lengths[i] * lengths[j]) for j in range(4)] for i in range(4)]
    step = signed_step(matrix(field, rows))
    assert step is not None, "the frame holds this letter"
    return step
