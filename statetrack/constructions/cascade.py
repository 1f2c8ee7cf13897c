"""Permutation-reset cascades of an automaton, by holes.

A cascade is a list of components; component i has states 0..m_i - 1, and at each token makes a map of them that is a
bijection or a constant and depends on the token and on the *earlier* states of components above it. A map W gives the
automaton's state from the components' states.

Main definitions: `Component`, `Cascade`, `hole_cascade`, `reduce`.

Main results: claim OURS-hole-cascade. Component 1 remembers a state that the automaton is certainly not in (a hole):
a bijective letter moves the hole, any other letter resets it to a point outside its image; the next component does the
same among the remaining states. So n states take at most n - 1 components of sizes n, n - 1, ..., 2, without listing
the monoid, and W(step(x, a)) = δ_a(W(x)) for all component states x.

References: Grazzi et al. Thm. 4 and Krohn-Rhodes (with pre-update states, as the theorem needs); Maler and Pnueli's
covering construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from statetrack.errors import BudgetExceeded
from statetrack.theory.automata import Dfa

Map = tuple[int, ...]
States = tuple[int, ...]


@dataclass(frozen=True)
class Component:
    """One component: its size, the components above that its action reads, and the action of (token, their states)."""

    size: int
    reads: tuple[int, ...]
    action: Callable[[int, States], Map]


@dataclass(frozen=True)
class Cascade:
    """Components, their start states, and the automaton's state as a function of theirs (`None`: not reachable)."""

    dfa: Dfa
    components: tuple[Component, ...]
    start: States
    state: Callable[[States], int]

    def step(self, x: States, token: int) -> States:
        """All components' states after a token; actions are read off the states before it."""
        return tuple(c.action(token, tuple(x[i] for i in c.reads))[x[j]] for j, c in enumerate(self.components))

    def reachable(self, most: int = 10_000) -> list[States]:
        """All component states that words lead to; BudgetExceeded past `most`."""
        found, seen = [self.start], {self.start}
        for x in found:
            for token in range(len(self.dfa.alphabet)):
                after = self.step(x, token)
                if after not in seen:
                    if len(found) >= most:
                        raise BudgetExceeded("cascade states", most, "--max-states")
                    seen.add(after)
                    found.append(after)
        return found


def hole_cascade(dfa: Dfa) -> Cascade:
    """The cascade of holes of an automaton with n states: n - 1 components of sizes n, ..., 2.

    >>> from statetrack.theory.regex import parse_regex
    >>> [c.size for c in hole_cascade(parse_regex("(ab)*")).components]
    [3, 2]
    """
    n = len(dfa.states)
    maps = [tuple(int(q) for q in dfa.delta[:, token]) for token in range(len(dfa.alphabet))]

    @cache
    def remaining(token: int, holes: States) -> Map:
        """The letter's map of the points that are left when the holes above are taken out and renumbered."""
        if not holes:
            return maps[token]
        g, p = remaining(token, holes[:-1]), holes[-1]
        after = _moved_hole(g, p)
        return tuple(_without(after, g[_with(p, i)]) for i in range(len(g) - 1))

    def component(level: int) -> Component:
        def action(token: int, holes: States) -> Map:
            g = remaining(token, holes)
            return g if len(set(g)) == len(g) else (_moved_hole(g, 0),) * len(g)

        return Component(n - level, tuple(range(level)), action)

    def state(holes: States) -> int:
        q = 0
        for p in reversed(holes):
            q = _with(p, q)
        return q

    start: list[int] = []
    q = dfa.start
    for _ in range(n - 1):
        hole = 0 if q != 0 else 1
        start.append(hole)
        q = _without(hole, q)
    return Cascade(dfa, tuple(component(level) for level in range(n - 1)), tuple(start), state)


def _moved_hole(g: Map, p: int) -> int:
    """Where the hole goes: with a bijection, else to the least point outside the image."""
    image = set(g)
    return g[p] if len(image) == len(g) else next(i for i in range(len(g)) if i not in image)


def _with(p: int, i: int) -> int:
    """The i-th point of those other than p."""
    return i + (i >= p)


def _without(p: int, i: int) -> int:
    """The number of the point i among those other than p."""
    return i - (i > p)


def reduce(cascade: Cascade, most: int = 10_000) -> Cascade:
    """A smaller cascade with the same behaviour from the start.

    Only components that W or another kept component needs stay; an action reads as few components as leave it a
    bijection or a constant in every context; values that do not occur are dropped, and partial injections are completed
    (to the identity if that fits, else to a constant, else to a bijection).
    """
    x = cascade.reachable(most)
    steps = [[cascade.step(s, token) for token in range(len(cascade.dfa.alphabet))] for s in x]
    answers = [cascade.state(s) for s in x]
    needed = _functional_subset(range(len(cascade.components)), lambda keep: _is_function(x, keep, answers))
    kept: dict[int, tuple[int, ...]] = {}
    queue = sorted(needed, reverse=True)
    while queue:
        j = queue.pop(0)
        if j not in kept:
            kept[j] = _functional_subset(
                cascade.components[j].reads, lambda keep, j=j: _contexts(x, steps, j, keep) is not None
            )
            queue = sorted({*queue, *kept[j]}, reverse=True)
    order = sorted(kept)
    values = {j: sorted({s[j] for s in x}) for j in order}
    number = {j: {v: i for i, v in enumerate(values[j])} for j in order}
    components = tuple(_tabulated(x, steps, j, kept[j], order, values, number) for j in order)
    table = {tuple(number[j][s[j]] for j in order): answer for s, answer in zip(x, answers, strict=True)}
    start = tuple(number[j][cascade.start[j]] for j in order)
    return Cascade(cascade.dfa, components, start, lambda states: table.get(states, 0))


def _functional_subset(items: Sequence[int], works: Callable[[tuple[int, ...]], bool]) -> tuple[int, ...]:
    """Drop items one by one, the last first, while `works` stays true."""
    keep = tuple(items)
    for item in reversed(tuple(items)):
        smaller = tuple(i for i in keep if i != item)
        if works(smaller):
            keep = smaller
    return keep


def _is_function(x: Sequence[States], keep: tuple[int, ...], answers: Sequence[int]) -> bool:
    table: dict[States, int] = {}
    return all(table.setdefault(tuple(s[i] for i in keep), a) == a for s, a in zip(x, answers, strict=True))


def _contexts(
    x: Sequence[States], steps: Sequence[Sequence[States]], j: int, keep: tuple[int, ...]
) -> dict[tuple[int, States], dict[int, int]] | None:
    """The partial map of component j in each context (token, states read); None if some is no bijection or constant."""
    table: dict[tuple[int, States], dict[int, int]] = {}
    for s, images in zip(x, steps, strict=True):
        read = tuple(s[i] for i in keep)
        for token, after in enumerate(images):
            if table.setdefault((token, read), {}).setdefault(s[j], after[j]) != after[j]:
                return None
    for partial in table.values():
        if 1 < len(set(partial.values())) < len(partial):
            return None
    return table


def _tabulated(
    x: Sequence[States],
    steps: Sequence[Sequence[States]],
    j: int,
    keep: tuple[int, ...],
    order: Sequence[int],
    values: dict[int, list[int]],
    number: dict[int, dict[int, int]],
) -> Component:
    """Component j over its occurring values, reading the kept components by their new numbers."""
    contexts = _contexts(x, steps, j, keep)
    assert contexts is not None
    size = len(values[j])
    table: dict[tuple[int, States], Map] = {}
    for (token, read), partial in contexts.items():
        renamed = {number[j][a]: number[j][b] for a, b in partial.items()}
        table[token, tuple(number[i][v] for i, v in zip(keep, read, strict=True))] = _completed(renamed, size)
    still = tuple(range(size))
    return Component(size, tuple(order.index(i) for i in keep), lambda token, read: table.get((token, read), still))


def _completed(partial: dict[int, int], size: int) -> Map:
    if all(a == b for a, b in partial.items()):
        return tuple(range(size))
    images = set(partial.values())
    if len(images) == 1:
        return (images.pop(),) * size
    free = iter([v for v in range(size) if v not in images])
    return tuple(partial[a] if a in partial else next(free) for a in range(size))
