"""How much an error made in one token can grow in the tokens after it: norms of products of exact steps.

The steps of a head may come in any order, or, where `Head.runs` says so, only in runs. `largest_gain` is M, the largest
norm of a product, where there is a bound; `growths` are bounds M c^n on products of n steps. `settled` is a bound for
every length: with w_i the error that step i makes, a word makes at most the sum over its steps of w times the norm of
the product of the steps after it; a product that is zero ends the sum, so this is the heaviest path among the products.

Main definitions: `largest_gain`, `growths`, `settled`, `largest_state`, `forgetting`.

Main results: bounds over all words, from finite sets that are closed by exact arithmetic.

References: docs/precision.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from flint import arb
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded
from statetrack.theory.arrays import Matrix, Vector, identity, matmul
from statetrack.theory.fields import Field
from statetrack.theory.orbits import Orbit, StepMap

from .program import Dense, Factor, Head
from .step_errors import ball, contracts, exact_norm, frobenius, largest

Floats = NDArray[np.float64]
Ids = NDArray[np.int32]
# Doubles of exact numbers, with room for their rounding.
ROOM = 1 + 2.0**-30
_MOST_PRODUCTS, _MOST_COLUMNS, _MOST_RUNS, _MOST_PLACED = 2_000, 4_000, 20_000, 60_000
_POWERS = (1, 2, 4, 8)
# Bits of the denominators and coordinates of exact products.
_LONGEST_NUMBER = 256
# Which kind of run comes after each of the three kinds of `Head.runs`.
_AFTER = (1, 2, 1)


def steps_of(head: Head) -> list[int]:
    """The steps that some input of the head takes."""
    return sorted({step for step, _ in head.choose.seen.values()})


def shrinks(head: Head) -> bool:
    """Whether all steps are contractions."""
    return all(contracts(f) for step in steps_of(head) for f in head.steps[step])


def matrices(head: Head) -> list[Matrix]:
    """The exact linear parts of `steps_of`."""
    return [head.maps[step].matrix for step in steps_of(head)]


def largest_gain(head: Head) -> arb | None:
    """M: a bound on the norm of every product of steps that a word can take; None if none is found."""
    if shrinks(head):
        return arb(1)
    found = _in_runs(head)
    return _free(head.field, head.size, matrices(head)) if found is None else found


def growths(head: Head) -> list[tuple[arb, arb]]:
    """Pairs (M, c), c >= 1, so that a product of n steps has norm at most M c^n; from products of up to 8 steps."""
    if shrinks(head):
        return [(arb(1), arb(1))]
    steps = matrices(head)
    orbit = _products(head.field, head.size, steps)
    level, most, found = np.zeros(1, dtype=np.int32), arb(1), list[tuple[arb, arb]]()
    for length in range(1, max(_POWERS) + 1):
        try:
            level = np.unique(np.concatenate([orbit.move(s, level) for s in range(len(steps))]))
        except BudgetExceeded:
            break
        norm = arb(float(_norms(orbit, level).max()))
        # Products of qm + r steps: q of m steps each and one of r < m.
        if length in _POWERS:
            found.append((most, (norm.log() / length).exp().max(arb(1)) if norm > 1 else arb(1)))
        most = most.max(norm)
        if len(level) * len(steps) > _MOST_PRODUCTS:
            break
    return found


def settled(head: Head, made: Mapping[int, float], start: float, limit: float) -> float | None:
    """A bound on the error after any word; None if it may pass `limit`, or has no such bound.

    `made[step]` bounds the error that a token with this step makes, `start` the error of the initial state.
    """
    steps = steps_of(head)
    weights = [made[step] for step in steps]
    if max(weights) == 0 and shrinks(head):
        return start if start <= limit else None
    if max(weights) > 0 and not any(_kernel(f, head.size) for s in steps for f in head.steps[s]):
        return None
    flipped = [tuple(zip(*m, strict=True)) for m in matrices(head)]
    orbit = _products(head.field, head.size, flipped)
    if not _closes(orbit):
        return None
    everything = np.arange(len(orbit), dtype=np.int32)
    norms, moves = _norms(orbit, everything), [orbit.move(s, everything) for s in range(len(steps))]
    if shrinks(head):
        norms = np.minimum(norms, 1.0)
    pairs = [*zip(weights, moves, strict=True)]
    # From the last token back: value[P] is what the tokens before those of the product P can still add.
    first = value = norms * start
    for _ in range(len(orbit) + 1):
        # Rounded up where something is added, so that a product that comes back and adds ever so little never settles.
        options = [np.where((norms > 0) & (w > 0), _up(norms * w + value[move]), value[move]) for w, move in pairs]
        better = np.maximum(first, np.max(options, axis=0))
        if better[0] > limit:
            return None
        if np.array_equal(better, value):
            return float(value[0]) * ROOM
        value = better
    return None


def largest_state(head: Head, gain: arb | None) -> arb | None:
    """A bound on the norm of every exact state: from the orbit of H_0, in runs or in any order, its columns, or M."""
    start = frobenius([ball(x) for column in head.h0 for x in column])
    if shrinks(head) and not any(f.b is not None for step in steps_of(head) for f in head.steps[step]):
        return start
    maps = list(head.maps)
    orbit = Orbit(head.field, head.h0, maps, max_columns=1 << 16)
    met = _along(orbit, [(0, s, 0) for s in steps_of(head)] if head.runs is None else _places(head.runs), {0})
    if met is not None:
        rows = orbit.columns.sizes()[orbit.rows(met)]
        return arb(float(np.sqrt((rows**2).sum(axis=(1, 2))).max()) * ROOM)
    used = [maps[step] for step in steps_of(head)]
    parts = [[StepMap(m.matrix, None if m.offset is None else (m.offset[v],)) for m in used] for v in range(head.width)]
    found = _columns(head.field, head.h0, parts)
    if found is None and gain is not None and all(m.offset is None for m in used):
        return gain * start
    return _kept(head, start) if found is None else found


def _kept(head: Head, start: arb) -> arb | None:
    """A norm that no step takes a state beyond: the start's, or that of what a step that forgets sets; None if none."""
    forget = forgetting(head)
    added = {s: frobenius([ball(x) for column in head.maps[s].offset or () for x in column]) for s in steps_of(head)}
    size = largest([start, *(added[s] for s in forget)])
    linear = {s: arb(0) if s in forget else _step_norm(head, s) for s in added}
    stays = (s in forget or (linear[s] <= 1 and added[s] == 0) or linear[s] * size + added[s] < size for s in added)
    return size if all(stays) else None


def _step_norm(head: Head, step: int) -> arb:
    return arb(1) if all(map(contracts, head.steps[step])) else exact_norm(head.maps[step].matrix)


def forgetting(head: Head) -> list[int]:
    """The steps after which the state does not depend on the one before: their exact linear part is 0."""
    found: list[int] = []
    for step in steps_of(head):
        zeros = sum(_kernel(f, head.size) for f in head.steps[step])
        if zeros >= head.size and all(x.is_zero() for row in head.maps[step].matrix for x in row):
            found.append(step)
    return found


def _free(field: Field, size: int, steps: Sequence[Matrix]) -> arb | None:
    """A bound on the norm of all products in any order; None if there are too many, and too many columns of them."""
    if all(exact_norm(m) <= 1 for m in steps):
        return arb(1)
    orbit = _products(field, size, steps)
    if _closes(orbit):
        return arb(float(_norms(orbit, np.arange(len(orbit), dtype=np.int32)).max()))
    # Columns of products are images of the unit vectors.
    return _columns(field, identity(field, size), [[StepMap(m) for m in steps]] * size)


def _in_runs(head: Head) -> arb | None:
    """The same for words made of runs. A product is within one run, or ends one and goes on where runs begin."""
    runs = head.runs
    if runs is None or sum(len(run) ** 2 for some in runs for run in some) > _MOST_RUNS:
        return None
    orbit, links = _products(head.field, head.size, [m.matrix for m in head.maps]), _places(runs)
    found = _along(orbit, links, {place for place, _, _ in links})
    if found is not None:
        return arb(float(_norms(orbit, found).max()))
    found, inside, ended = _along(orbit, links, {0, 1, 2}), arb(1), arb(1)
    if found is None:
        return None
    for run in dict.fromkeys(run for some in runs for run in some):
        for i in range(len(run)):
            product = identity(head.field, head.size)
            for step in run[i:]:
                product = matmul(head.maps[step].matrix, product)
                inside = inside.max(exact_norm(product))
            ended = ended.max(exact_norm(product))
    return inside.max(ended * arb(float(_norms(orbit, found).max())))


def _places(runs: Sequence[Sequence[Sequence[int]]]) -> list[tuple[int, int, int]]:
    """(place, step, next place) of words made of runs; places 0, 1 and 2 are where runs of each kind begin."""
    numbers: dict[tuple[int, ...], int] = {(0,): 0, (1,): 1, (2,): 2}
    found: list[tuple[int, int, int]] = []
    for side, some in enumerate(runs):
        for run in some:
            at = side
            for i, step in enumerate(run, 1):
                # What is left to do says where in its run a word is.
                to = _AFTER[side] if i == len(run) else numbers.setdefault((side, *run[i:]), len(numbers))
                found.append((at, step, to))
                at = to
    return list(dict.fromkeys(found))


def _along(orbit: Orbit, links: Sequence[tuple[int, int, int]], starts: Iterable[int]) -> Ids | None:
    """All that the orbit reaches along paths of links (from, step, to) from some places; None if that is too much."""
    known: dict[int, Ids] = {}
    fresh = {place: np.zeros(1, dtype=np.int32) for place in starts}
    while fresh:
        for place, some in fresh.items():
            known[place] = np.union1d(known[place], some) if place in known else some
        if sum(map(len, known.values())) > (_MOST_PLACED if len(known) > 1 else _MOST_PRODUCTS):
            return None
        reached: dict[int, list[Ids]] = {}
        try:
            for start, step, to in links:
                if start in fresh:
                    reached.setdefault(to, []).append(orbit.move(step, fresh[start]))
        except BudgetExceeded:
            return None
        fresh = dict[int, Ids]()
        for place, some in reached.items():
            news = np.unique(np.concatenate(some))
            news = news[~np.isin(news, known[place])] if place in known else news
            if len(news):
                fresh[place] = news
    return np.unique(np.concatenate(list(known.values())))


def _products(field: Field, size: int, steps: Sequence[Matrix]) -> Orbit:
    return Orbit(field, identity(field, size), [StepMap(m) for m in steps], max_columns=1 << 16)


def _up(x: Floats) -> Floats:
    """The next numbers above."""
    return np.nextafter(x, np.inf)


def _closes(orbit: Orbit) -> bool:
    """Whether all products are known; not if they are many, or numbers so long that they seem to grow for ever."""
    for most in (_MOST_PRODUCTS // 16, _MOST_PRODUCTS // 4, _MOST_PRODUCTS):
        try:
            orbit.close(most)
        except BudgetExceeded:
            return False
        if len(orbit) < most or orbit.columns.bits() > _LONGEST_NUMBER:
            return len(orbit) < most
    return False


def _columns(field: Field, starts: Sequence[Vector], maps: Sequence[Sequence[StepMap]]) -> arb | None:
    """√ of the sum over columns of the largest squared norm that each reaches under its maps; None if too many."""
    total = 0.0
    for start, some in zip(starts, maps, strict=True):
        orbit = Orbit(field, (start,), some, max_columns=_MOST_COLUMNS)
        try:
            orbit.close(_MOST_COLUMNS)
        except BudgetExceeded:
            return None
        if len(orbit) >= _MOST_COLUMNS:
            return None
        total += float((orbit.columns.sizes() ** 2).sum(axis=1).max())
    return arb(math.sqrt(total) * ROOM)


def _norms(orbit: Orbit, numbers: NDArray[np.int32]) -> Floats:
    """Bounds on the largest singular values of products."""
    products: Floats = orbit.columns.sizes()[orbit.rows(numbers)]
    frobenius_ = np.sqrt((products**2).sum(axis=(1, 2)))
    sums = np.sqrt(products.sum(axis=1).max(axis=1) * products.sum(axis=2).max(axis=1))
    return np.minimum(frobenius_, sums) * ROOM


def _kernel(factor: Factor | Dense, size: int) -> int:
    """A bound on the dimension of a factor's kernel."""
    if isinstance(factor, Dense):
        return size
    return int(factor.beta == 1) + sum(a.is_zero() for a in factor.alpha or ())
