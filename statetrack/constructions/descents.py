"""Cascades told by sets: what a level needs to know of the levels above is one set, and not their states.

In a cascade of holes or of tiles the states of the levels from the top down tell a chain of sets, each inside the one
before, down to one point, the automaton's state. A level's action depends on the token and on the set above it before
and after the token only; so do the sets below it, on its own state besides. Sets are few where chains are many.

Main definitions: `Descent`, `Level`, `hole_descent`, `holonomy_descent`, `Listing`, `listing`, `chain_of`.

Main results: claim OURS-chain-of-sets (docs/certificate.md). Level by level a list of the triples (set before, set
after, token) that can be holds all that are; if all of the last level lead from a state to its successor, the chain
tells the automaton's state after every word. A random automaton of 20 states has 21,900,152 chains of tiles and 48,358
triples.

References: Zeiger, *Cascade synthesis of finite-state machines* (1967), whose cascades keep such sets; Eilenberg,
*Automata, Languages, and Machines* B, ch. II.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.theory.automata import Dfa, transition_maps

from .assembly import Chain, Module
from .cascade import Map, States, completed, holes_beside
from .holonomy import MAX_SETS, holonomy_moves
from .program import Lookup
from .stack import Builders, component_part

# Triples of sets and a token over all levels: about 100 MB.
MAX_TRIPLES = 1_000_000
Triple = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Level:
    """One level: its number of states, where it starts, and what it does.

    `below(set)` gives the set that each of the states 0, 1, ... leads to, as many as occur under this set;
    `action(set before, set after, token)` moves the states: a bijection or a constant.
    """

    size: int
    start: int
    below: Callable[[int], tuple[int, ...]]
    action: Callable[[int, int, int], Map]


@dataclass(frozen=True, eq=False)
class Descent:
    """Levels from the set `top` of all states down; `state` tells the state of a set below the last level.

    How sets are numbered is the descent's own affair.
    """

    dfa: Dfa
    top: int
    levels: tuple[Level, ...]
    state: Callable[[int], int]


@dataclass(frozen=True, eq=False)
class Listing:
    """What can be, level by level, sets being numbered from 0 in each (below the last level by the state).

    `actions[i]` maps (set before, set after, token) to the level's action, `narrow[i]` (set, state of the level) to the
    set below; `starts` are the levels' first states.
    """

    dfa: Dfa
    starts: States
    actions: tuple[dict[Triple, Map], ...]
    narrow: tuple[dict[tuple[int, int], int], ...]

    @property
    def triples(self) -> int:
        """How many triples, over all levels."""
        return sum(map(len, self.actions))


def hole_descent(dfa: Dfa) -> Descent:
    """The sets of the hole cascade (`cascade.hole_cascade`) as bit masks: all states, less one point a level."""
    n, maps = len(dfa.states), transition_maps(dfa)

    @lru_cache(maxsize=1 << 16)
    def points(mask: int) -> tuple[int, ...]:
        return tuple([q for q in range(n) if mask >> q & 1])

    def action(before: int, after: int, token: int) -> Map:
        images, free = [maps[token][q] for q in points(before)], points(after)
        met = set(images)
        if len(met) == len(images):
            return tuple([free.index(q) for q in images])
        return (next(i for i, q in enumerate(free) if q not in met),) * len(images)

    def below(mask: int) -> tuple[int, ...]:
        return tuple([mask ^ 1 << q for q in points(mask)])

    levels = tuple(Level(n - i, p, below, action) for i, p in enumerate(holes_beside(dfa.start, n)))
    return Descent(dfa, (1 << n) - 1, levels, lambda mask: mask.bit_length() - 1)


def holonomy_descent(dfa: Dfa, *, max_sets: int = MAX_SETS) -> Descent:
    """The sets of the holonomy cascade with a level for each height; BudgetExceeded past `max_sets` image sets."""
    moves = holonomy_moves(dfa, max_sets=max_sets)

    def level(j: int, start: int) -> Level:
        return Level(
            moves.sizes[j],
            start,
            lambda s: moves.below(j, s),
            lambda p, q, letter: moves.moved(j, p, q, letter),
        )

    levels = tuple(level(j, start) for j, start in enumerate(moves.start(dfa.start)))
    return Descent(dfa, 0, levels, moves.point)


def listing(descent: Descent, most: int = MAX_TRIPLES) -> Listing:
    """All that can be: from (top, top, token) down, with the states of a level that can occur under the set before.

    States of a level that never occur are dropped, and actions completed as by `cascade.completed`.

    Raises:
        BudgetExceeded: more than `most` triples in all.
        CertificateFailed: the start or a triple below the last level is not the automaton's.
    """
    dfa, at = descent.dfa, descent.top
    met = dict.fromkeys((at, at, token) for token in range(len(dfa.alphabet)))
    number, total = {at: 0}, 0
    actions: list[dict[Triple, Map]] = []
    narrow: list[dict[tuple[int, int], int]] = []
    starts: list[int] = []
    for i, level in enumerate(descent.levels):
        total += len(met)
        if total > most:
            raise BudgetExceeded("pairs of sets and tokens in a chain", most, "--max-states")
        made = {key: level.action(*key) for key in met}
        states = _occurring(made, at, level.start)
        place = {v: k for k, v in enumerate(sorted({v for found in states.values() for v in found}))}
        table: dict[Triple, Map] = {}
        below: dict[Triple, None] = {}
        for (p, q, token), f in made.items():
            partial, over, under = [-1] * len(place), level.below(p), level.below(q)
            for v in states[p]:
                partial[place[v]] = place[f[v]]
                below[over[v], under[f[v]], token] = None
            table[number[p], number[q], token] = completed(tuple(partial))
        pairs = {(number[p], place[v]): level.below(p)[v] for p, found in states.items() for v in sorted(found)}
        lower = {s: k for k, s in enumerate(dict.fromkeys(pairs.values()))}
        if i == len(descent.levels) - 1:
            lower = {s: descent.state(s) for s in lower}
        narrow.append({pair: lower[s] for pair, s in pairs.items()})
        actions.append(table)
        starts.append(place[level.start])
        at, met, number = level.below(at)[level.start], below, lower
    _check(dfa, number[at], [(number[p], number[q], token) for p, q, token in met])
    return Listing(dfa, tuple(starts), tuple(actions), tuple(narrow))


def _occurring(made: Mapping[Triple, Map], at: int, start: int) -> dict[int, set[int]]:
    """The states of a level that can occur under each set, from one that does."""
    moves: dict[int, list[tuple[int, Map]]] = {}
    for (p, q, _), f in made.items():
        moves.setdefault(p, []).append((q, f))
    states: dict[int, set[int]] = {at: {start}}
    queue = [(at, start)]
    for p, v in queue:
        for q, f in moves[p]:
            known = states.setdefault(q, set())
            if f[v] not in known:
                known.add(f[v])
                queue.append((q, f[v]))
    return states


def _check(dfa: Dfa, start: int, last: list[Triple]) -> None:
    if start != dfa.start:
        raise CertificateFailed("state that the chain starts in", str(start), str(dfa.start))
    for p, q, token in last:
        if dfa.delta[p, token] != q:
            where = f"state below the chain after {dfa.states[p]!r} and {dfa.alphabet[token]!r}"
            raise CertificateFailed(where, repr(dfa.states[q]), repr(dfa.states[int(dfa.delta[p, token])]))


def listings(dfa: Dfa, most: int, max_sets: int) -> Iterator[Listing]:
    """By holonomy and by holes, fewer triples first.

    Each is made when it is asked for: holes that have more triples than tiles only if tiles do not do. (Their levels
    can be the smaller: S8 moves 28 pairs of points, but 8 holes.) BudgetExceeded if neither is within the bounds.
    """
    tiles = _listed(dfa, False, most, max_sets)
    fewer = most if isinstance(tiles, BudgetExceeded) else min(most, tiles.triples)
    holes = _listed(dfa, True, fewer, max_sets)
    if isinstance(tiles, BudgetExceeded) and isinstance(holes, BudgetExceeded):
        raise tiles.with_traceback(None)
    yield from (one for one in (holes, tiles) if isinstance(one, Listing))
    if isinstance(holes, BudgetExceeded) and fewer < most:
        holes = _listed(dfa, True, most, max_sets)
        yield from (holes,) if isinstance(holes, Listing) else ()


# Targets of one automaton ask for the same ones one after the other.
@lru_cache(maxsize=8)
def _listed(dfa: Dfa, holes: bool, most: int, max_sets: int) -> Listing | BudgetExceeded:
    try:
        return listing(hole_descent(dfa) if holes else holonomy_descent(dfa, max_sets=max_sets), most)
    except BudgetExceeded as error:
        # What is kept must not hold the tables of the search that was stopped.
        return error.with_traceback(None)


def chain_of(found: Listing, make: Builders, max_joint: int) -> Chain:
    """The network of a listing: a module for each level, which keeps what it needs to tell its state before a token."""
    modules: list[Module] = []
    for i, (table, start) in enumerate(zip(found.actions, found.starts, strict=True), 1):
        actions = tuple(dict.fromkeys(table.values()))
        made = component_part(actions, start, make, max_joint, read=i < len(found.actions))
        letter = dict(zip(actions, made.letters, strict=True))
        modules.append(Module(made.part, (), Lookup({key: letter[f] for key, f in table.items()}), made.values))
    return Chain(tuple(modules), found.narrow)
