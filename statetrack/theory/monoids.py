"""Classes of automata: groups, aperiodic and 2-periodic, R-trivial, definite, permutation-reset.

A word moves the states; the maps of all words are the *transition monoid*. The *period* of a map is the least
common multiple of its cycle lengths. What needs the monoid is decided under a budget, and `None` means unknown.

Main definitions: `Classification`, `Witness`, `classify`, `TransitionMonoid`, `transition_monoid`.

Main results: an automaton is aperiodic iff every period is 1; its monoid has only 2-groups as subgroups iff every
period is a power of 2 (Cauchy). R-trivial and definite automata are aperiodic, however large the monoid. Every
negative answer carries a word that shows it.

References: Schützenberger, *On finite monoids having only trivial subgroups* (1965); Perles, Rabin and Shamir,
*The theory of definite automata* (1963).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from .automata import Dfa, Numbers, transition_maps

Maps = NDArray[Any]  # [count, states], state numbers in the smallest unsigned type that holds them
Word = tuple[int, ...]
Shown = tuple[Word, tuple[int, ...]]

# No more memory than this, roughly, for the elements: for each a row, its copy, a key and the overhead of objects.
_MAX_BYTES = 1 << 30
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Witness:
    """A word (symbol numbers) and states that refute `answer`, a field of `Classification`.

    - is_aperiodic, is_two_periodic: the word sends each state to the next, the last to the first; no good length.
    - is_r_trivial: the letters of the word lead along the states and from the last back to the first.
    - definite: the word maps the two states onto themselves, each to itself or to the other.
    - is_group: the word, a letter, sends both states to one; is_permutation_reset: and a third state elsewhere.
    """

    answer: str
    word: Word
    states: tuple[int, ...]


@dataclass(frozen=True)
class Classification:
    """What is known of an automaton; of its language, if the automaton is minimal.

    `letters` are the distinct maps of symbols, `periods` the sorted set of periods, `definite` the least k such that
    the last k letters decide the state (0 for one state; None: not definite). `unknown` names the bound that was met
    before the monoid was complete; answers that need the rest of it are then None.
    """

    letters: tuple[tuple[int, ...], ...]
    monoid_size: int | None
    is_group: bool
    is_aperiodic: bool | None
    is_two_periodic: bool | None
    periods: tuple[int, ...] | None
    is_r_trivial: bool
    definite: int | None
    is_permutation_reset: bool
    witnesses: tuple[Witness, ...]
    unknown: str | None

    def witness(self, answer: str) -> Witness | None:
        """The witness against `answer`, the name of a field; None if the answer is not negative."""
        return next((w for w in self.witnesses if w.answer == answer), None)


@dataclass(frozen=True, eq=False)
class TransitionMonoid:
    """The maps of all words, the identity first, then in the order of their shortlex-least words.

    `maps` has shape [size, states]; `unknown` names the bound met, and then there are more elements.
    """

    maps: Maps
    parents: tuple[int, ...]
    symbols: Word
    unknown: str | None

    @property
    def size(self) -> int:
        """The number of elements found, the identity included."""
        return len(self.parents)

    def word(self, i: int) -> Word:
        """The shortlex-least word that acts as element i."""
        letters: list[int] = []
        while i:
            letters.append(self.symbols[i])
            i = self.parents[i]
        return tuple(reversed(letters))


def classify(dfa: Dfa, *, max_monoid: int = 100_000, max_seconds: float | None = None) -> Classification:
    """The classes of a minimal automaton; words are read left to right, every state counts as reachable.

    `max_monoid` and `max_seconds` (None: no bound) limit the enumeration of the transition monoid. Of an automaton
    that is not minimal, the answers hold for the automaton, not for its language.

    >>> parity = Dfa(("a",), ("even", "odd"), 0, np.array([[1], [0]], dtype=np.int32), (True, False))
    >>> found = classify(parity)
    >>> found.is_two_periodic, found.is_aperiodic, found.witness("is_aperiodic")
    (True, False, Witness(answer='is_aperiodic', word=(0,), states=(0, 1)))
    """
    rows: list[list[int]] = dfa.delta.tolist()
    maps = transition_maps(dfa)
    loop, (definite, pair) = _loop(rows), _definite(rows)
    merged, mixed = _bad_letter(maps, constants=False), _bad_letter(maps, constants=True)
    monoid = transition_monoid(dfa, max_monoid, max_seconds=max_seconds)
    complete = monoid.unknown is None
    aperiodic = loop is None or pair is None
    periods = {1: 0} if aperiodic else _first_with_period(monoid.maps)
    circle = _circle(monoid, periods, lambda period: period == 1)
    odd = _circle(monoid, periods, lambda period: period & (period - 1) == 0)
    shown = {"is_aperiodic": circle, "is_two_periodic": odd, "is_r_trivial": loop, "definite": pair}
    shown |= {"is_group": merged, "is_permutation_reset": mixed}
    yes = True if complete or aperiodic else None
    return Classification(
        letters=tuple(dict.fromkeys(maps)),
        monoid_size=monoid.size if complete else None,
        is_group=merged is None,
        is_aperiodic=False if circle else yes,
        is_two_periodic=False if odd else yes,
        periods=tuple(sorted(periods)) if yes else None,
        is_r_trivial=loop is None,
        definite=definite,
        is_permutation_reset=mixed is None,
        witnesses=tuple(Witness(answer, *found) for answer, found in shown.items() if found),
        unknown=monoid.unknown,
    )


def transition_monoid(dfa: Dfa, max_monoid: int = 100_000, *, max_seconds: float | None = None) -> TransitionMonoid:
    """The transition monoid, breadth first: the identity, the distinct letters whatever the bounds, then longer words.

    Past a bound (on elements, seconds, or 1 GiB of memory) what was found is returned, with `unknown` set.
    """
    n = len(dfa.states)
    firsts, letters = _letters(dfa)
    levels = [np.arange(n, dtype=letters.dtype)[None]]
    seen, parents, symbols = {levels[0].tobytes()}, [0], [0]
    room = _MAX_BYTES // (3 * levels[0].nbytes + 160)
    limit, bound = (max_monoid, f"max_monoid = {max_monoid}") if max_monoid <= room else (room, "1 GiB of memory")
    end = math.inf if max_seconds is None else time.monotonic() + max_seconds
    step, unknown = max(1, _CHUNK // (n * max(1, len(firsts)))), None
    while len(level := levels[-1]) and unknown is None:
        free, fresh, offset = len(levels) == 1, [level[:0]], len(parents) - len(level)
        for at in range(0, len(level), step):
            if not free and time.monotonic() > end:
                unknown = f"max_seconds = {max_seconds}"
                break
            # The letter acts after the element: state -> letter[element[state]].
            products = letters[:, level[at : at + step]].swapaxes(0, 1).reshape(-1, n)
            first = {key: i for i, key in reversed([*enumerate(_keys(products))])}
            new = sorted(i for key, i in first.items() if key not in seen)
            if not free and len(parents) + len(new) > limit:
                new, unknown = new[: max(0, limit - len(parents))], bound
            seen.update(first)
            fresh.append(products[new])
            parents += [offset + at + i // len(firsts) for i in new]
            symbols += [firsts[i % len(firsts)] for i in new]
            if unknown:
                break
        levels.append(np.concatenate(fresh))
    return TransitionMonoid(np.concatenate(levels), tuple(parents), tuple(symbols), unknown)


def _letters(dfa: Dfa) -> tuple[list[int], Maps]:
    """The first symbol of each distinct map, and these maps [letters, states]."""
    number = {image: s for s, image in reversed([*enumerate(transition_maps(dfa))])}
    firsts = sorted(number.values())
    return firsts, np.ascontiguousarray(dfa.delta.T[firsts].astype(np.min_scalar_type(len(dfa.states) - 1)))


def _keys(rows: Maps) -> list[bytes]:
    """The rows as bytes; the view costs nothing and keeps trailing zeros."""
    whole = np.ascontiguousarray(rows)
    return whole.view(np.dtype((np.void, whole.shape[1] * whole.itemsize))).reshape(-1).tolist()


def _first_with_period(maps: Maps) -> dict[int, int]:
    """For each period, the first element that has it."""
    types, periods = dict[bytes, int](), dict[int, int]()
    step = max(1, _CHUNK // maps.shape[1])
    for at in range(0, len(maps), step):
        for i, key in enumerate(_keys(_cycle_types(maps[at : at + step]))):
            types.setdefault(key, at + i)
    for key, i in types.items():
        periods.setdefault(math.lcm(*filter(None, np.frombuffer(key, dtype=np.uint32).tolist())), i)
    return periods


def _cycle_types(maps: Maps) -> NDArray[np.uint32]:
    """The sorted lengths of cycles of each element, after zeros; by doubling, so in log n passes."""
    count, n = maps.shape
    jump: Numbers = (maps + np.arange(count, dtype=np.intp)[:, None] * n).reshape(-1)
    least: Numbers = np.arange(count * n, dtype=np.intp)
    for _ in range((n - 1).bit_length()):
        least = np.minimum(least, least[jump])
        jump = jump[jump]
    # After n steps every state is on a cycle, and the least state of a cycle stands for it.
    recurrent = np.zeros(count * n, dtype=bool)
    recurrent[jump] = True
    return np.sort(np.bincount(least[recurrent], minlength=count * n).astype(np.uint32).reshape(count, n), axis=1)


def _circle(monoid: TransitionMonoid, periods: dict[int, int], fits: Callable[[int], bool]) -> Shown | None:
    """The first word with a period that does not fit, and a cycle that does not; the identity's cycles always fit."""
    element = min((i for period, i in periods.items() if not fits(period)), default=0)
    image, seen = monoid.maps[element].tolist(), set[int]()
    for q in range(len(image)):
        path: dict[int, int] = {}
        while q not in seen:
            seen.add(q)
            path[q] = len(path)
            q = image[q]
        if q in path and not fits(len(path) - path[q]):
            return monoid.word(element), tuple(path)[path[q] :]
    return None


def _loop(rows: list[list[int]]) -> Shown | None:
    """A closed walk through two states or more, without a step that stays; None if there is none."""
    graph = cast("nx.DiGraph[int]", nx.DiGraph())
    graph.add_edges_from((p, q) for p, row in enumerate(rows) for q in row if q != p)
    part = next((part for part in nx.strongly_connected_components(graph) if len(part) > 1), None)
    if part is None:
        return None
    edges = cast("list[tuple[int, int]]", nx.find_cycle(graph.subgraph(part)))  # pyright: ignore[reportUnknownMemberType]
    return tuple(rows[p].index(q) for p, q in edges), tuple(p for p, _ in edges)


def _definite(rows: list[list[int]]) -> tuple[int | None, Shown | None]:
    """The least k such that words of length k send all states to one, or two states that a word keeps apart.

    Round j merges states that all words of length j send alike: `named` holds each successor by the name of its
    class, and equal rows merge. The class with fewer edges into it is renamed, so an entry changes log n times.
    """
    named, alive, pending, rounds = [[*row] for row in rows], set(range(len(rows))), set(range(len(rows))), 0
    sources, holders = [list[tuple[int, int]]() for _ in rows], dict[Word, int]()
    for p, s, q in ((p, s, q) for p, row in enumerate(rows) for s, q in enumerate(row)):
        sources[q].append((p, s))
    weights = [len(edges) for edges in sources]
    while len(alive) > 1:
        merged: list[tuple[int, int]] = []
        for p in pending:
            key = tuple(named[p])
            q = holders.setdefault(key, p)
            if q != p:
                q, p = (p, q) if weights[p] > weights[q] else (q, p)
                holders[key] = q
                weights[q] += weights[p]
                merged.append((p, q))
        if not merged:
            return None, _kept_apart(rows, named, min(alive), max(alive))
        rounds, pending = rounds + 1, set[int]()
        for p, q in merged:
            for r, s in sources[p]:
                named[r][s] = q
                pending.add(r)
            sources[q] += sources[p]
            alive.remove(p)
        pending &= alive
    return rounds, None


def _kept_apart(rows: list[list[int]], named: list[list[int]], x: int, y: int) -> Shown:
    """A word that maps two states onto themselves; x and y have other classes, so a letter keeps them apart."""
    word, place = list[int](), dict[tuple[int, int], int]()
    while (pair := (min(x, y), max(x, y))) not in place:
        place[pair] = len(word)
        s = next(s for s, (a, b) in enumerate(zip(named[x], named[y], strict=True)) if a != b)
        word.append(s)
        x, y = rows[x][s], rows[y][s]
    return tuple(word[place[pair] :]), pair


def _bad_letter(maps: tuple[tuple[int, ...], ...], *, constants: bool) -> Shown | None:
    """A letter that sends two states to one; with `constants` allowed, and a third state elsewhere."""
    for s, image in enumerate(maps):
        first: dict[int, int] = {}
        pair = next(((p, q) for q, to in enumerate(image) if (p := first.setdefault(to, q)) != q), None)
        other = next((q for q, to in enumerate(image) if pair and to != image[pair[0]]), None)
        if pair and not constants:
            return (s,), pair
        if pair and other is not None:
            return (s,), (*pair, other)
    return None
