"""Reduced cascades, and the smallest of several: by holes, by holonomy, by congruences.

Main definitions: `reduce`, `Attempt`, `Choice`, `best_cascade`.

Main results: a reduced cascade does the same from the start. For the components given, each one's layer is the least
that keeps every action in reach a bijection or a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded, NoConstruction
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import permutation_group

from .cascade import (
    MAX_STATES,
    Cascade,
    Component,
    Map,
    Numbers,
    States,
    Walk,
    completed,
    hole_cascade,
    only_resets,
    verify_cascade,
    walk,
)
from .holonomy import MAX_SETS, holonomy_cascade, skeleton
from .quotients import Partition, congruences, joined, parallel_cascade, quotient_cascade
from .splitting import MAX_GROUP

# Enough rows to see most failures of a dependence, few enough to look at them first.
_FEW = 2_048
# Past these, trying more congruences or pairs of them costs more time than the layers they save.
_MOST_JOINED, _MOST_CONGRUENCES, _MOST_PAIRS = 32, 8, 6
# Reduction takes time in proportion to states in reach times pairs of components: with more than this, fewer states.
_WIDTH = 30


def reduce(cascade: Cascade, most: int = MAX_STATES) -> Cascade:
    """A cascade with the same behaviour from the start and as few layers as these components allow.

    Only components that W or another kept component needs stay. An action reads components of the uppermost layers
    that leave it a bijection or a constant in every context, and of these as few as can be. Values that do not occur
    are dropped, and partial injections are completed: to the identity if that fits, else to a constant, else to the
    bijection with most cycles.
    """
    rows = _Rows(walk(cascade, most))
    layer: list[int] = []
    near: list[list[int]] = []

    def layered(items: Sequence[int]) -> list[int]:
        return sorted(items, key=lambda i: (layer[i], i))

    for j, component in enumerate(cascade.components):
        items = layered(component.reads)
        near.append(items[: _fewest(items, (), lambda keep, j=j: rows.table(j, keep) is not None)])
        layer.append(1 + max((layer[i] for i in near[j]), default=0))
    needed = _least(layered(range(len(layer))), rows.decides)
    kept: dict[int, tuple[int, ...]] = {}
    for j in range(len(layer) - 1, -1, -1):
        if j in needed or any(j in reads for reads in kept.values()):
            kept[j] = _least(near[j], lambda keep, j=j: rows.table(j, keep) is not None)
    order = sorted(kept)
    components = tuple(rows.component(j, kept[j], tuple(order.index(i) for i in kept[j])) for j in order)
    places = tuple(order.index(j) for j in needed)
    answers = rows.answers(needed)
    return Cascade(
        cascade.dfa,
        components,
        tuple(int(rows.states[0, j]) for j in order),
        lambda states: answers.get(tuple([states[i] for i in places]), 0),
    )


@dataclass(frozen=True)
class Attempt:
    """One cascade that was tried: its levels and sizes after reduction, or why there is none."""

    name: str
    levels: int = 0
    sizes: tuple[int, ...] = ()
    left_out: str | None = None


@dataclass(frozen=True)
class Choice:
    """The chosen cascade, reduced and verified, its kind, everything that was tried, and the others that fit."""

    cascade: Cascade
    name: str
    tried: tuple[Attempt, ...]
    others: tuple[Cascade, ...] = ()


def best_cascade(
    dfa: Dfa,
    *,
    resets_only: bool = False,
    two_groups: bool = False,
    max_states: int = MAX_STATES,
    max_sets: int = MAX_SETS,
    max_chains: int = MAX_STATES,
) -> Choice:
    """The reduced cascade with fewest levels, of those with the smallest total size, of these the first tried.

    Args:
        dfa: any automaton.
        resets_only: leave out cascades with a bijection other than the identity.
        two_groups: leave out cascades with a component whose bijections generate no 2-group.
        max_states: bound on component states in reach; a tenth of it where idle components keep their states, and
            less with more than 30 components.
        max_sets: bound on image sets of holonomy.
        max_chains: bound on chains of tiles of holonomy.

    Raises:
        BudgetExceeded: every kind of cascade met a bound.
        NoConstruction: under `resets_only` or `two_groups`, if each cascade tried has a bijection or another group.
    """
    tried: list[Attempt] = []
    fitting: list[tuple[int, int, str, Cascade]] = []
    met: BudgetExceeded | None = None
    for name, make, most in _kinds(dfa, max_states, max_sets, max_chains):
        try:
            whole = make()
            width = max(_WIDTH, len(whole.components))
            limit = min(most, max_states * _WIDTH**2 // width**2)
            made = reduce(whole, limit)
            verify_cascade(made, limit)
        except BudgetExceeded as error:
            error = BudgetExceeded(error.what, error.limit, "--max-cascade")
            met = met or error
            tried.append(Attempt(name, left_out=str(error)))
            continue
        why = "it has bijections" if resets_only and not only_resets(made) else None
        if why is None and two_groups and not only_two_groups(made, limit):
            why = "it has groups that are no 2-groups"
        sizes = tuple(c.size for c in made.components)
        tried.append(Attempt(name, made.levels, sizes, why))
        if why is None:
            fitting.append((made.levels, made.total_size, name, made))
    if fitting:
        (_, _, name, first), *others = sorted(fitting, key=itemgetter(0, 1))
        return Choice(first, name, tuple(tried), tuple(made for *_, made in others))
    if met and not any((attempt.left_out or "").startswith("it has") for attempt in tried):
        raise met
    raise NoConstruction(
        f"an automaton of {len(dfa.states)} states",
        "a cascade of resets" if resets_only else "a cascade of 2-groups",
        "; ".join(f"{attempt.name}: {attempt.left_out}" for attempt in tried),
        "allow bijections, or raise the bounds if one was met",
    )


def only_two_groups(cascade: Cascade, most: int = MAX_STATES) -> bool:
    """True if the bijections of each component generate a group of a power of two, of at most 5,040 elements."""
    for table in cascade.actions(most):
        bijections = tuple(f for f in dict.fromkeys(table.values()) if len(set(f)) == len(f))
        try:
            order = permutation_group("component", bijections, max_order=MAX_GROUP).order if bijections else 1
        except BudgetExceeded:
            return False
        if order & (order - 1):
            return False
    return True


def _kinds(
    dfa: Dfa, max_states: int, max_sets: int, max_chains: int
) -> Sequence[tuple[str, Callable[[], Cascade], int]]:
    """Name, construction and bound on states in reach of each cascade worth trying."""

    def holonomy(shared: bool, keep: bool) -> Callable[[], Cascade]:
        return lambda: holonomy_cascade(dfa, shared=shared, keep=keep, max_sets=max_sets, max_chains=max_chains)

    kinds: list[tuple[str, Callable[[], Cascade], int]] = [
        ("holonomy", holonomy(True, False), max_states),
        ("holonomy, idle components keep their states", holonomy(True, True), max_states // 10),
    ]
    if _has_parallel_classes(dfa, max_sets):
        kinds.append(("holonomy, a component for each class", holonomy(False, False), max_states))
        kinds.append(("holonomy, a component for each class, kept", holonomy(False, True), max_states // 10))
    if math.factorial(min(len(dfa.states), 20)) <= max_states:
        kinds.insert(0, ("holes", lambda: hole_cascade(dfa), max_states))
    found = _worthwhile(congruences(dfa))
    for p in found:
        kinds.append((f"quotient of {max(p) + 1} classes", lambda p=p: quotient_cascade(dfa, p), max_states))
    pairs = [(p, q) for p, q in combinations(found, 2) if len(set(zip(p, q, strict=True))) == len(p)]
    for p, q in sorted(pairs, key=lambda pair: max(pair[0]) + max(pair[1]))[:_MOST_PAIRS]:
        name = f"quotients of {max(p) + 1} and {max(q) + 1} classes side by side"
        kinds.append((name, lambda p=p, q=q: parallel_cascade(dfa, p, q), max_states))
    return kinds


def _has_parallel_classes(dfa: Dfa, max_sets: int) -> bool:
    try:
        made = skeleton(dfa, max_sets=max_sets)
    except BudgetExceeded:
        return False
    return len({made.heights[r] for r in made.representatives}) < len(made.representatives)


def _worthwhile(finest: Sequence[Partition]) -> list[Partition]:
    """Minimal congruences and joins of them that are as coarse as can be, those that split most evenly first."""
    finest = finest[:_MOST_JOINED]
    found = dict.fromkeys(finest)
    for p in finest:
        for q in finest:
            wider = joined(p, q)
            p = wider if max(wider) else p
        found[p] = None
    return sorted(found, key=lambda p: max(max(p) + 1, max(map(p.count, p))))[:_MOST_CONGRUENCES]


def _least(items: Sequence[int], works: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Drop items one by one, the last first, while `works` stays true; it must be monotone, and true of all items."""
    kept: list[int] = []
    while items:
        items = items[: _fewest(items, kept, works)]
        if items:
            kept.append(items[-1])
            items = items[:-1]
    return tuple(sorted(kept))


def _fewest(items: Sequence[int], beside: Sequence[int], works: Callable[[tuple[int, ...]], bool]) -> int:
    """The least number of first items that work beside others, by bisection."""
    low, high = 0, len(items)
    while low < high:
        middle = (low + high) // 2
        if works((*items[:middle], *beside)):
            high = middle
        else:
            low = middle + 1
    return low


class _Rows:
    """The walk of a cascade, with occurring values numbered from 0, and questions about what depends on what."""

    def __init__(self, found: Walk) -> None:
        self.found = found
        self.states = np.zeros_like(found.states)
        self.sizes: list[int] = []
        self.firsts: list[Numbers] = []
        count, width = found.states.shape
        self.codes = np.zeros((width, count), dtype=np.uint64)
        self.view = -1, self.codes, self.states, self.states
        draw = np.random.default_rng(1)
        prefix = np.zeros(count, dtype=np.intp)
        for j in range(width):
            values, column = np.unique(found.states[:, j], return_inverse=True)
            self.states[:, j] = column.reshape(-1)
            self.sizes.append(len(values))
            self.codes[j] = draw.integers(0, 1 << 64, size=len(values), dtype=np.uint64)[self.states[:, j]]
            # Component j sees only the components before it, so one row for each of their joint states will do.
            _, first, prefix = np.unique(
                prefix * len(values) + self.states[:, j], return_index=True, return_inverse=True
            )
            prefix = prefix.reshape(-1)
            self.firsts.append(first)

    def decides(self, keep: tuple[int, ...]) -> bool:
        """True if W is a function of these components."""
        first, number = _contexts(self.codes, keep)
        return bool((self.found.answers[first][number] == self.found.answers).all())

    def answers(self, keep: tuple[int, ...]) -> dict[States, int]:
        """W as a table on the states of components that decide it."""
        keys: list[list[int]] = self.states[:, list(keep)].tolist()
        answers: list[int] = self.found.answers.tolist()
        return {tuple(key): answer for key, answer in zip(keys, answers, strict=True)}

    def table(self, j: int, keep: tuple[int, ...]) -> tuple[Numbers, Numbers] | None:
        """Component j's partial maps, if it reads only `keep`: a row of each context, and [contexts, tokens, size].

        -1 stands for a state that does not occur in the context. None if some map is no bijection and no constant.
        """
        rows = self.firsts[j]
        if self.view[0] != j:
            self.view = j, self.codes[:j, rows], self.states[rows, j], self.states[self.found.after[rows], j]
        _, codes, before, after = self.view
        # What fails mostly fails on few rows already.
        part = slice(None, None, len(rows) // _FEW + 1)
        if (
            len(rows) > 2 * _FEW
            and _maps(*_contexts(codes[:, part], keep), before[part], after[part], self.sizes[j]) is None
        ):
            return None
        first, number = _contexts(codes, keep)
        maps = _maps(first, number, before, after, self.sizes[j])
        return None if maps is None else (rows[first], maps)

    def component(self, j: int, keep: tuple[int, ...], reads: tuple[int, ...]) -> Component:
        """Component j by tables; it reads `keep`, which the reduced cascade numbers `reads`."""
        found = self.table(j, keep)
        assert found is not None
        contexts, maps = found
        size, tokens = self.sizes[j], maps.shape[1]
        known: dict[Map, Map] = {}
        tables = [dict[States, Map]() for _ in range(tokens)]
        read: list[list[int]] = self.states[contexts][:, list(keep)].tolist()
        partial: list[list[list[int]]] = maps.tolist()
        for key, row in zip(read, partial, strict=True):
            states = tuple(key)
            for table, part in zip(tables, row, strict=True):
                f = tuple(part)
                if f not in known:
                    known[f] = completed(f)
                table[states] = known[f]
        still = tuple(range(size))
        return Component(size, reads, lambda token, states: tables[token].get(states, still))


def _contexts(codes: NDArray[np.uint64], keep: tuple[int, ...]) -> tuple[Numbers, Numbers]:
    """For the joint states of some components: a row of each, and which one each row has.

    States are compared by sums of random codes; if two had one sum, they would count as one, so that a dependence
    might be missed but never be invented.
    """
    sums = codes[list(keep)].sum(axis=0)
    # Several times faster than np.unique, which sorts stably to return first rows.
    order = np.argsort(sums)
    ranked = sums[order]
    new = np.append(True, ranked[1:] != ranked[:-1])
    number = np.empty_like(order)
    number[order] = np.cumsum(new) - 1
    return order[new], number


def _maps(first: Numbers, number: Numbers, before: Numbers, after: Numbers, size: int) -> Numbers | None:
    """The partial maps [contexts, tokens, size] of a component; None unless all are injective or constant."""
    tokens = after.shape[1]
    key = number * size + before
    maps: Numbers = np.full((len(first) * size, tokens), -1, dtype=np.intp)
    maps[key] = after
    if not (maps[key] == after).all():
        return None
    maps = maps.reshape(len(first), size, tokens)
    context: Numbers = np.arange(len(first) * tokens, dtype=np.intp).reshape(len(first), 1, tokens)
    place: Numbers = context * size + maps
    hits = np.bincount(place[maps >= 0], minlength=len(first) * tokens * size).reshape(-1, size)
    if not ((hits.max(axis=1, initial=0) <= 1) | ((hits > 0).sum(axis=1) <= 1)).all():
        return None
    return maps.transpose(0, 2, 1)
