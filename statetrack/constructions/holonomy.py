"""Holonomy cascades: Krohn-Rhodes by the sets that words map all states onto.

Image sets are bit masks. Two sets are of one class if letters lead from each to the other; then a bijection that a
word makes leads from one to the other. The *tiles* of a set are the maximal image sets inside it. One component for
each class of sets with two or more points holds a tile of the class's representative; the states of components from
the top down thus tell a chain of sets, each a tile of the one before, down to one point, the automaton's state.

Ties are broken in this order. Sets are numbered as they are found, from all states on, letters in order, then single
states. A class's representative is its first set. Tiles stand by size, larger first, then by mask (state q is bit q).
Other sets of the class take the representative's tiles over, along the letters as they are found. Components stand by
height, higher first, then by representative. A reset goes to the first tile that fits.

Main definitions: `Skeleton`, `skeleton`, `holonomy_cascade`, `Moves`.

Main results: claim OURS-holonomy. W(step(x, a)) = δ_a(W(x)) for all component states, and the bijections of each
component are made by words on its tiles; so an automaton without groups gets resets only.

References: Zeiger, *Cascade synthesis of finite-state machines* (1967); Eilenberg, *Automata, Languages, and Machines*
B, ch. II; Egri-Nagy and Nehaniv, *Computational holonomy decompositions of transformation semigroups* (2015).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from statetrack.errors import BudgetExceeded
from statetrack.theory.automata import Dfa, transition_maps

from .cascade import MAX_STATES, Cascade, Component, Map, States

MAX_SETS = 20_000


@dataclass(frozen=True)
class Skeleton:
    """Image sets as masks, set 0 all states, with their successors `after[set][letter]`, heights and tiles.

    `tiles[set]` are the tiles (set numbers) in the order of the class's representative, `class_of[set]` numbers the
    class among those that chains meet (-1: none), `representatives` lists these classes' first sets, higher ones
    first. `chains` counts the chains of tiles from all states down to one state.
    """

    sets: tuple[int, ...]
    after: tuple[tuple[int, ...], ...]
    heights: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]
    class_of: tuple[int, ...]
    representatives: tuple[int, ...]
    chains: int


def skeleton(dfa: Dfa, *, max_sets: int = MAX_SETS) -> Skeleton:
    """The image sets of an automaton, their classes, heights and tiles.

    Raises:
        BudgetExceeded: more than `max_sets` image sets.
    """
    sets, after = _image_sets(dfa, max_sets)
    classes = _classes(sets, after)
    ranked = sorted(range(len(sets)), key=lambda i: (-sets[i].bit_count(), sets[i]))
    heights, tiles, chains = [0] * len(sets), [()] * len(sets), [1] * len(sets)
    # A class comes after all that are below it: of fewer points, or reached from it by letters.
    for members in classes:
        if sets[members[0]].bit_count() > 1:
            _decode(members, _tiles(sets, ranked, members[0]), after, tiles)
            below = {*tiles[members[0]], *(t for s in members for t in after[s])}.difference(members)
            height = 1 + max(heights[t] for t in below)
            count = sum(chains[t] for t in tiles[members[0]])
            for s in members:
                heights[s], chains[s] = height, count
    first = {s: members[0] for members in classes for s in members}
    met, queue = {0}, [0]
    for r in queue:
        news = {first[t] for t in tiles[r]} - met
        met |= news
        queue.extend(news)
    representatives = sorted((r for r in met if heights[r]), key=lambda r: (-heights[r], r))
    number = {r: i for i, r in enumerate(representatives)}
    class_of = tuple(number.get(first[s], -1) for s in range(len(sets)))
    return Skeleton(sets, after, tuple(heights), tuple(tiles), class_of, tuple(representatives), chains[0])


def holonomy_cascade(
    dfa: Dfa, *, shared: bool = False, keep: bool = False, max_sets: int = MAX_SETS, max_chains: int = MAX_STATES
) -> Cascade:
    """The holonomy cascade; components of classes of equal height stand in one level and do not read each other.

    Args:
        dfa: any automaton.
        shared: one component for all classes of a height, as large as the largest needs; a chain meets only one.
        keep: a component that the chain does not meet after a token keeps its state, for fewer layers after reduction,
            but then far more component states may be in reach. Else it goes to tile 0, and at most as many states
            are in reach as there are chains.
        max_sets: bound on image sets.
        max_chains: bound on chains of tiles, which are counted before any is made.

    >>> from statetrack.theory.regex import parse_regex
    >>> [c.size for c in holonomy_cascade(parse_regex("(ab)*")).components]
    [2, 2]

    Raises:
        BudgetExceeded: more image sets or more chains of tiles.
    """
    made = skeleton(dfa, max_sets=max_sets)
    if made.chains > max_chains:
        raise BudgetExceeded(f"chains of tiles ({made.chains:,})", max_chains, "--max-cascade")
    moves = Moves(made, shared, keep)
    components = tuple(
        Component(size, tuple(range(moves.heights.index(height))), moves.action(i))
        for i, (size, height) in enumerate(zip(moves.sizes, moves.heights, strict=True))
    )
    return Cascade(dfa, components, moves.start(dfa.start), moves.state, moves.whole)


def holonomy_moves(dfa: Dfa, *, max_sets: int = MAX_SETS) -> Moves:
    """How letters move chains of tiles, with one component for each height; BudgetExceeded past the image sets."""
    return Moves(skeleton(dfa, max_sets=max_sets), True, False)


class Moves:
    """How a letter moves a chain of tiles.

    P and P' are the sets of the chain before and after the letter, from the top down; always P·letter lies in P'. Where
    P·letter = P' the letter permutes the class's tiles; where it is smaller, the chain after it goes to a tile of P'
    that holds it. `place[set]` is the component of its class.
    """

    def __init__(self, made: Skeleton, shared: bool, keep: bool) -> None:
        self.made, self.keep = made, keep
        heights = [made.heights[r] for r in made.representatives]
        self.heights = sorted(set(heights), reverse=True) if shared else heights
        places = [self.heights.index(h) if shared else i for i, h in enumerate(heights)]
        self.place = [places[i] if i >= 0 else -1 for i in made.class_of]
        self.sizes = [0] * len(self.heights)
        for place, r in zip(places, made.representatives, strict=True):
            self.sizes[place] = max(self.sizes[place], len(made.tiles[r]))
        self.rule = cache(self._rule)

    def _rule(self, p: int, q: int, letter: int) -> tuple[tuple[int, States] | None, tuple[int, States, Map] | None]:
        """At the higher of two sets: P's component and tiles, if P is that high; those of P' and the action on them."""
        made = self.made
        height = max(made.heights[p], made.heights[q])
        old = (self.place[p], made.tiles[p]) if made.heights[p] == height else None
        if made.heights[q] < height:
            return old, None
        image, tiles, size = made.after[p][letter], made.tiles[q], self.sizes[self.place[q]]
        if image == q:
            f = (*(tiles.index(made.after[t][letter]) for t in made.tiles[p]), *range(len(tiles), size))
        else:
            f = (next(i for i, t in enumerate(tiles) if not made.sets[image] & ~made.sets[t]),) * size
        return old, (self.place[q], tiles, f)

    def whole(self, x: States, letter: int) -> States:
        """The step of all components."""
        y, p, q = list(x) if self.keep else [0] * len(x), 0, 0
        heights, rule = self.made.heights, self.rule
        while heights[p] or heights[q]:
            old, new = rule(p, q, letter)
            if old:
                p = old[1][x[old[0]]]
            if new:
                j, tiles, f = new
                y[j] = f[x[j]]
                q = tiles[y[j]]
        return tuple(y)

    def action(self, j: int) -> Callable[[int, States], Map]:
        """The action of one component, which reads all of higher levels."""
        heights, height, size = self.made.heights, self.heights[j], self.sizes[j]
        idle = tuple(range(size)) if self.keep else (0,) * size

        def act(letter: int, read: States) -> Map:
            p, q = 0, 0
            while max(heights[p], heights[q]) > height:
                old, new = self.rule(p, q, letter)
                if old:
                    p = old[1][read[old[0]]]
                if new:
                    q = new[1][new[2][read[new[0]]]]
            new = self.rule(p, q, letter)[1] if heights[q] == height and self.place[q] == j else None
            return new[2] if new else idle

        return act

    def below(self, j: int, p: int) -> States:
        """What the states of component j make of a set P above it: tiles of P, or P itself if that is not its class."""
        return self.made.tiles[p] if self.place[p] == j else (p,)

    def moved(self, j: int, p: int, q: int, letter: int) -> Map:
        """The action of component j under the sets P and P' above it."""
        new = self.rule(p, q, letter)[1] if self.place[q] == j else None
        return new[2] if new else (0,) * self.sizes[j]

    def point(self, p: int) -> int:
        """The state of a set of one."""
        return self.made.sets[p].bit_length() - 1

    def state(self, x: States) -> int:
        """The state that a chain of tiles leads down to."""
        made, p = self.made, 0
        while made.heights[p]:
            p = made.tiles[p][x[self.place[p]]]
        return self.point(p)

    def start(self, state: int) -> States:
        """The chain of first tiles that hold a state."""
        made, p, x = self.made, 0, [0] * len(self.sizes)
        while made.heights[p]:
            i = next(i for i, t in enumerate(made.tiles[p]) if made.sets[t] >> state & 1)
            x[self.place[p]], p = i, made.tiles[p][i]
        return tuple(x)


def _image_sets(dfa: Dfa, most: int) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
    """All sets that words map all states onto, and the single states; the successors of each by each letter."""
    n = len(dfa.states)
    movers = [_nibbles(column) for column in transition_maps(dfa)]
    found = [(1 << n) - 1]
    number = {found[0]: 0}
    after: list[tuple[int, ...]] = []
    singles, waiting = [1 << q for q in range(n)], True
    while len(after) < len(found) or waiting:
        if len(after) == len(found):
            waiting = False
            news = [s for s in singles if s not in number]
            number |= {s: len(found) + i for i, s in enumerate(news)}
            found += news
            continue
        row: list[int] = []
        for mover in movers:
            rest, image = found[len(after)], 0
            for table in mover:
                image |= table[rest & 15]
                rest >>= 4
            row.append(number.setdefault(image, len(found)))
            if row[-1] == len(found):
                found.append(image)
        if len(found) > most:
            raise BudgetExceeded("image sets", most, "--max-cascade")
        after.append(tuple(row))
    return tuple(found), tuple(after)


def _nibbles(column: Map) -> list[list[int]]:
    """For each four states the images of their 16 subsets, as masks."""
    tables: list[list[int]] = []
    for low in range(0, len(column), 4):
        images = [0]
        for q in column[low : low + 4]:
            images += [image | 1 << q for image in images]
        tables.append(images)
    return tables


def _classes(sets: Sequence[int], after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Classes of sets that lead to each other, those below first; the first set of each class stands first in it."""
    sizes = [s.bit_count() for s in sets]
    same = [[t for t in row if sizes[t] == sizes[s]] for s, row in enumerate(after)]
    return sorted((sorted(c) for c in strong_components(same)), key=lambda members: sizes[members[0]])


def strong_components(after: Sequence[Sequence[int]]) -> list[list[int]]:
    """Strongly connected components of a directed graph, those that others lead to first (Tarjan).

    >>> strong_components([[1], [2], [1], [0]])
    [[2, 1], [0], [3]]
    """
    order, low = [0] * len(after), [0] * len(after)
    stack: list[int] = []
    found: list[list[int]] = []
    done, count = len(after) + 1, 0
    for root in range(len(after)):
        work = [] if order[root] else [(root, iter(after[root]))]
        if work:
            count += 1
            order[root] = low[root] = count
            stack.append(root)
        while work:
            v, edges = work[-1]
            w = next((w for w in edges if not order[w] or order[w] < done), None)
            if w is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[v])
                if low[v] == order[v]:
                    found.append([])
                    while not found[-1] or found[-1][-1] != v:
                        found[-1].append(stack.pop())
                        order[found[-1][-1]] = low[found[-1][-1]] = done
            elif order[w]:
                low[v] = min(low[v], order[w])
            else:
                count += 1
                order[w] = low[w] = count
                stack.append(w)
                work.append((w, iter(after[w])))
    return found


def _tiles(sets: Sequence[int], ranked: Sequence[int], whole: int) -> States:
    """The maximal sets inside a set; `ranked` lists all sets, larger ones first."""
    outside, tiles = ~sets[whole], list[int]()
    for s in [s for s in ranked if not sets[s] & outside]:
        if s != whole and all(sets[s] & ~sets[t] for t in tiles):
            tiles.append(s)
    return tuple(tiles)


def _decode(members: list[int], tiles: States, after: Sequence[Sequence[int]], found: list[tuple[int, ...]]) -> None:
    """Carry the representative's tiles along letters to the other sets of its class."""
    inside = set(members)
    found[members[0]] = tiles
    queue = [members[0]]
    for s in queue:
        for letter, t in enumerate(after[s]):
            if t in inside and not found[t]:
                found[t] = tuple([after[tile][letter] for tile in found[s]])
                queue.append(t)
