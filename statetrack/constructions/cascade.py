"""Permutation-reset cascades of an automaton, by holes.

A cascade is a list of components; component i has states 0..m_i - 1, and at each token makes a map of them that is a
bijection or a constant and depends on the token and on the *earlier* states of components above it. A map W gives the
automaton's state from the components' states.

Main definitions: `Component`, `Cascade`, `Walk`, `hole_cascade`, `walk`, `verify_cascade`, `only_resets`, `completed`.

Main results: claim OURS-hole-cascade. Component 1 remembers a state that the automaton is certainly not in (a hole):
a bijective letter moves the hole, any other letter resets it to a point outside its image; the next component does the
same among the remaining states. So n states take at most n - 1 components of sizes n, n - 1, ..., 2, without listing
the monoid, and W(step(x, a)) = δ_a(W(x)) for all component states x.

References: Grazzi et al. Thm. 4 and Krohn-Rhodes (with pre-update states, as the theorem needs); Maler and Pnueli's
covering construction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from statetrack.display import Drawn
from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.theory.automata import Dfa, transition_maps

Map = tuple[int, ...]
States = tuple[int, ...]
Numbers = NDArray[np.intp]

# Cerny's automaton of 8 states has 8! = 40,320 component states in reach; this many take about 100 MB.
MAX_STATES = 100_000


@dataclass(frozen=True)
class Component:
    """One component: its size, the components above that its action reads, and the action of (token, their states)."""

    size: int
    reads: tuple[int, ...]
    action: Callable[[int, States], Map]


@dataclass(frozen=True)
class Cascade(Drawn):
    """Components, their start states, and the automaton's state as a function of theirs (`None`: not reachable).

    `whole`, if given, makes the step of all components at once, faster; it must agree with them on reachable states.
    """

    dfa: Dfa
    components: tuple[Component, ...]
    start: States
    state: Callable[[States], int]
    whole: Callable[[States, int], States] | None = None

    def step(self, x: States, token: int) -> States:
        """All components' states after a token; actions are read off the states before it."""
        return tuple(c.action(token, tuple(x[i] for i in c.reads))[x[j]] for j, c in enumerate(self.components))

    def reachable(self, most: int = MAX_STATES) -> list[States]:
        """All component states that words lead to; BudgetExceeded past `most`."""
        rows: list[list[int]] = walk(self, most).states.tolist()
        return [tuple(row) for row in rows]

    def actions(self, most: int = MAX_STATES) -> tuple[dict[tuple[int, ...], Map], ...]:
        """For each component its action at (token, states read), in every context that words lead to."""
        return _actions(self, most)

    @property
    def layers(self) -> tuple[int, ...]:
        """Each component's layer, from 1: one below the lowest layer that it reads."""
        found: list[int] = []
        for component in self.components:
            found.append(1 + max((found[i] for i in component.reads), default=0))
        return tuple(found)

    @property
    def levels(self) -> int:
        """How many layers there are."""
        return max(self.layers, default=0)

    @property
    def total_size(self) -> int:
        """The sum of the components' sizes."""
        return sum(component.size for component in self.components)


# Targets of one automaton ask for the same one after the other.
@lru_cache(maxsize=8)
def _actions(cascade: Cascade, most: int) -> tuple[dict[tuple[int, ...], Map], ...]:
    states, tokens = cascade.reachable(most), range(len(cascade.dfa.alphabet))
    found: list[dict[tuple[int, ...], Map]] = []
    for component in cascade.components:
        reads = _reader(component.reads)
        contexts = dict.fromkeys([(t, *read) for read in map(reads, states) for t in tokens])
        found.append({key: component.action(key[0], key[1:]) for key in contexts})
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Walk:
    """What a cascade does from its start: the states in reach (row 0: the start), their successors, W of each.

    `states` has shape [count, components], `after` [count, tokens] holds rows of `states`, `answers` has shape [count].
    """

    states: Numbers
    after: Numbers
    answers: Numbers


def hole_cascade(dfa: Dfa) -> Cascade:
    """The cascade of holes of an automaton with n states: n - 1 components of sizes n, ..., 2.

    It is lazy: maps are made when a step needs them, so hundreds of states are no obstacle.

    >>> from statetrack.theory.regex import parse_regex
    >>> [c.size for c in hole_cascade(parse_regex("(ab)*")).components]
    [3, 2]
    """
    n, maps = len(dfa.states), transition_maps(dfa)

    def component(level: int) -> Component:
        return Component(n - level, tuple(range(level)), lambda token, holes: hole_action(maps[token], holes))

    def whole(holes: States, token: int) -> States:
        return moved_holes(maps[token], holes)

    components = tuple(component(level) for level in range(n - 1))
    return Cascade(dfa, components, holes_beside(dfa.start, n), point_beside, whole)


@lru_cache(maxsize=1 << 16)
def _below(g: Map, p: int) -> tuple[int, Map]:
    """Where a map moves the hole p, and the map of the other points, renumbered without the hole."""
    image = set(g)
    after = g[p] if len(image) == len(g) else next(i for i in range(len(g)) if i not in image)
    # If p and another point go to `after`, p does not; so what is left is in range.
    return after, tuple([q - (q > after) for i, q in enumerate(g) if i != p])


def hole_action(g: Map, holes: States) -> Map:
    """What a map of the points does to the next hole, below the given ones."""
    for p in holes:
        g = _below(g, p)[1]
    return g if len(set(g)) == len(g) else (_below(g, 0)[0],) * len(g)


def moved_holes(g: Map, holes: States) -> States:
    """All holes after a map of the points."""
    moved: list[int] = []
    for p in holes:
        after, g = _below(g, p)
        moved.append(after)
    return tuple(moved)


def point_beside(holes: States) -> int:
    """The one point that no hole takes."""
    q = 0
    for p in reversed(holes):
        q += q >= p
    return q


def holes_beside(q: int, n: int) -> States:
    """The first n - 1 holes that leave the point q of n points."""
    holes: list[int] = []
    for _ in range(n - 1):
        holes.append(0 if q != 0 else 1)
        q -= q > holes[-1]
    return tuple(holes)


def walk(cascade: Cascade, most: int = MAX_STATES) -> Walk:
    """Everything in reach of the start.

    Raises:
        BudgetExceeded: more than `most` states in reach.
        CertificateFailed: an action that is neither a bijection nor a constant (looked for if there is no `whole`).
    """
    step, tokens = cascade.whole or _checked_step(cascade), range(len(cascade.dfa.alphabet))
    found, number = [cascade.start], {cascade.start: 0}
    after: list[int] = []
    for x in found:
        for token in tokens:
            y = step(x, token)
            row = number.setdefault(y, len(found))
            if row == len(found):
                if row >= most:
                    raise BudgetExceeded("cascade states", most, "--max-states")
                found.append(y)
            after.append(row)
    states = np.array(found, dtype=np.intp).reshape(len(found), len(cascade.components))
    answers = np.array([cascade.state(x) for x in found], dtype=np.intp)
    return Walk(states, np.array(after, dtype=np.intp).reshape(len(found), len(tokens)), answers)


def verify_cascade(cascade: Cascade, most: int = MAX_STATES) -> Walk:
    """Check W(start) = q0 and W(step(x, a)) = δ_a(W(x)) for all x in reach, by the components' own actions.

    With finitely many states in reach this is a proof for words of every length. Returns what was walked through.

    Raises:
        CertificateFailed: an equation that does not hold, or an action that is no bijection and no constant.
        BudgetExceeded: more than `most` states in reach.
    """
    found, dfa = walk(replace(cascade, whole=None), most), cascade.dfa
    if found.answers[0] != dfa.start:
        raise CertificateFailed("W(start) = q0", str(found.answers[0]), str(dfa.start))
    got, expected = found.answers[found.after], dfa.delta[found.answers]
    wrong = np.argwhere(got != expected)
    if len(wrong):
        row, token = (int(i) for i in wrong[0])
        where = f"W(step(x, {dfa.alphabet[token]!r})) = δ(W(x)) at x = {tuple(found.states[row].tolist())}"
        raise CertificateFailed(where, str(got[row, token]), str(expected[row, token]))
    return found


def only_resets(cascade: Cascade, most: int = MAX_STATES) -> bool:
    """True if in every context in reach each component stays or is reset to a constant.

    >>> from statetrack.theory.regex import parse_regex
    >>> only_resets(hole_cascade(parse_regex("(aa)*"))), only_resets(hole_cascade(parse_regex("a*")))
    (False, True)
    """
    moves: list[Map] = []
    walk(replace(cascade, whole=None, components=_watched(cascade.components, moves)), most)
    return all(len(set(f)) == 1 or f == tuple(range(len(f))) for f in moves)


def completed(partial: Map) -> Map:
    """A partial map (-1: not given) that is injective or constant, made total.

    To the identity if that fits, else to a constant, else to the bijection with most cycles, so that it takes fewest
    swaps: each path is closed.

    >>> completed((1, 2, -1, -1)), completed((-1, 1)), completed((-1, 0))
    ((1, 2, 0, 3), (0, 1), (0, 0))
    """
    if all(b in (a, -1) for a, b in enumerate(partial)):
        return tuple(range(len(partial)))
    images = {b for b in partial if b >= 0}
    if len(images) == 1:
        return (images.pop(),) * len(partial)
    total = list(partial)
    for begin in range(len(partial)):
        if begin not in images:
            end = begin
            while partial[end] >= 0:
                end = partial[end]
            total[end] = begin
    return tuple(total)


def _watched(components: tuple[Component, ...], moves: list[Map]) -> tuple[Component, ...]:
    def watched(component: Component) -> Component:
        def action(token: int, read: States) -> Map:
            moves.append(component.action(token, read))
            return moves[-1]

        return replace(component, action=action)

    return tuple(watched(component) for component in components)


def _checked_step(cascade: Cascade) -> Callable[[States, int], States]:
    """The components' step; each action is asked for once, and checked to be a bijection or a constant."""
    parts = [(j, _reader(c.reads), c) for j, c in enumerate(cascade.components)]
    known = [[(*part, dict[States, Map]()) for part in parts] for _ in cascade.dfa.alphabet]

    def step(x: States, token: int) -> States:
        y: list[int] = []
        for j, reader, component, table in known[token]:
            read = reader(x)
            try:
                f = table[read]
            except KeyError:
                f = table[read] = component.action(token, read)
                _check_action(f, component.size, f"action of component {j} at token {token}, reading {read}")
            y.append(f[x[j]])
        return tuple(y)

    return step


def _check_action(f: Map, size: int, where: str) -> None:
    values = set(f)
    if len(f) != size or len(values) not in (1, size) or not values <= set(range(size)):
        raise CertificateFailed(where, str(f), f"a bijection or a constant of {size} points")


def _reader(reads: tuple[int, ...]) -> Callable[[States], States]:
    if len(reads) == 1:
        i = reads[0]
        return lambda x: (x[i],)
    if reads == tuple(range(len(reads))):
        end = len(reads)
        return lambda x: x[:end]
    return cast("Callable[[States], States]", itemgetter(*reads))
