"""Clock, buffer, accumulator: three layers that track any automaton a block of tokens at a time.

Time is cut into blocks of P tokens. A clock counts time modulo 2P: one layer of rotations, or two layers of reflections
where a factor has no negative gates. The next layer keeps the last 2P tokens in 2P slots. The last layer applies,
during a block, the P steps of the *previous* block's map, one a token, and its query completes what the block so far
still lacks: the steps to come, then the letters of the current block.

Main definitions: `clocked_blocks`, `merges`, `weighted_blocks`.

Main results: claim OURS-clock-buffer-accumulator (the block lemma, docs/certificate.md). Look-ups are folds of products
and never tables over all words of a block: S5 with its 120 letters takes about 31,000 entries.

References: CKDA Thm. 5 (the period is twice the block length, as one block is written while the other is read).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Generic, TypeVar, cast

from statetrack.errors import CertificateFailed
from statetrack.theory.arrays import Matrix, Vector, identity, matmul, matrix, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Element
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa

from .assembly import KEPT, Accumulator, Blocks, Map, Part
from .clocks import Style, clock
from .factorise import (
    factor_map,
    factor_map_scaled,
    factor_map_to_bank,
    factor_partial,
    factor_to_bank,
    halvings,
    map_matrix,
    swapped,
    swaps,
)
from .margins import centred_ramp, odd_ramp
from .program import Dense, Factor, Head, Layer, Lookup, Program, Step
from .rational_matrices import Scaled, scaled, scaled_factor, scaled_rows
from .source import Source
from .trackers import base_points, point_maps

Letter = TypeVar("Letter", Map, Matrix)
_LONGEST_BLOCK = 24
_MOST_PRODUCTS, _MOST_TURNED = 20_000, 150_000
_MOST_ROWS, _MOST_WEIGHTED_ROWS = 150_000, 60_000
_MOST_POINTS = 64


@dataclass(frozen=True, eq=False)
class _Way(Generic[Letter]):
    """One way to do the blocks: the letter of each token, how letters multiply, as matrices, and as factors.

    `factors(product, half)` leads into bank 1 - half if there are two `banks`, and makes 2^-halved(product) times the
    product. `points`, `row`, `start` as in `Accumulator`. `swap`, where letters are bijections in place: the
    letter that a factor is.
    """

    tokens: tuple[Letter, ...]
    one: Letter
    after: Callable[[Letter, Letter], Letter]
    matrix: Callable[[Letter], Matrix]
    factors: Callable[[Letter, int], list[Factor]]
    banks: int
    points: tuple[Map, ...] | None
    row: Vector
    start: Matrix
    halved: Callable[[Letter], int] = lambda _: 0
    swap: Callable[[Factor | Dense], Letter] | None = None


Prove = Callable[[Program, Dfa], Part]


def clocked_blocks(
    source: Source, style: Style, prove: Prove, *, per_token: int = 1, scaled: int | None = None
) -> Blocks | None:
    """The layers for an automaton; None if its letters merge states and the style cannot, or past the budgets.

    `prove` certifies the clock; `per_token` factors are made a token. Of the ways that work the one with the least
    block length is taken, in place if they are equal. `scaled` T, for an automaton that `merges`: β at most 2 and words
    of up to T tokens, by the way that halves the state least often a token.
    """
    if not source.dfa.alphabet or not 1 < len(point_maps(source)[0]) <= _MOST_POINTS:
        return None
    maps, points, kept = tuple(point_maps(source)), _points(source), style
    if source.dfa.is_permutation():
        # Swaps are the same for all targets.
        style = replace(style, gates=False, wide=False, banks=False)
    style = replace(style, clock="", scaled=scaled is not None)
    found = _accumulator(maps, points, points[source.dfa.start], style, per_token)
    if found is None:
        return None
    made, halved = found
    if scaled is not None:
        # No block comes before the first one.
        made = replace(made, scaled=(scaled, halved * ((scaled - 1) // made.length)))
    return Blocks(prove(*clock(kept, made.length)), made)


def merges(source: Source) -> bool:
    """Whether some letter merges states, into others than one absorbing state at any rate."""
    return not source.dfa.is_permutation() and _sink(point_maps(source)) is None


@lru_cache(maxsize=KEPT)
def _accumulator(
    maps: tuple[Map, ...], points: tuple[Map, ...], start: Map, style: Style, per_token: int
) -> tuple[Accumulator, int] | None:
    """The best one that is within the budgets, and how often one of its blocks halves the state at most."""
    ways = (_scaled_ways if style.scaled else _ways)(maps, points, start, style)
    builders = [_Builder(way, per_token) for way in ways]
    for builder in sorted(builders, key=lambda one: (one.halved / max(len(one.levels) - 1, 1), len(one.levels))):
        made = builder.build()
        if made is not None:
            return made, builder.halved
    return None


def partial_layer(source: Source, style: Style) -> Program | None:
    """One layer for letters that are injective off one absorbing state: that state is the zero vector.

    Zeros are gates of the first swap, or projections; how many factors that takes is for the limits to judge.
    """
    sink = _sink(point_maps(source)) if source.dfa.alphabet and not source.dfa.is_permutation() else None
    if sink is None or not 1 < len(source.dfa.states) <= _MOST_POINTS + 1:
        return None
    way = _without_sink(tuple(point_maps(source)), source.dfa.start, style.gates, sink)
    steps = tuple(tuple(way.factors(f, 0)) for f in way.tokens)
    choose = Lookup({(token,): (token, 0) for token in range(len(steps))})
    dfa = source.dfa
    layer = Layer((Head(way.start, steps, (way.row,), choose),))
    return Program(rationals(), dfa.alphabet, (layer,), dfa.outputs, dfa.outputs[dfa.start])


def weighted_blocks(wfa: Wfa, style: Style, prove: Prove, *, per_token: int = 1) -> Blocks | None:
    """The layers for a weighted automaton, from bank to bank with exact ranks; None past the budgets. Needs β > 2."""
    field, n = rationals(), wfa.size
    if not (style.wide and wfa.alphabet and 0 < n <= _MOST_POINTS):
        return None
    way = _Way[Matrix](
        tuple(matrix(field, (map(field, row) for row in m)) for m in wfa.matrices),
        identity(field, n),
        matmul,
        lambda m: m,
        lambda m, half: factor_to_bank(m, 1 - half, gates=style.gates),
        2,
        None,
        vector(field, map(field, wfa.final)),
        (vector(field, map(field, wfa.initial)),),
    )
    made = _Builder(way, per_token).build()
    return None if made is None else Blocks(prove(*clock(style, made.length)), made)


def _ways(maps: tuple[Map, ...], points: tuple[Map, ...], start: Map, style: Style) -> list[_Way[Map]]:
    """In place for bijections; without the sink for partial injections; in place or from bank to bank for the rest."""
    field, ramp = rationals(), centred_ramp(rationals(), len(maps[0]))
    if all(len(set(f)) == len(f) for f in maps):
        way = _way_on_points(maps, lambda f, half: swaps(field, f), 1, points, ramp, start)
        return [replace(way, swap=swapped)]
    sink = _sink(maps)
    found = [] if sink is None else [_without_sink(maps, start[0], style.gates, sink)]
    if style.wide and not style.banks:
        found.append(_way_on_points(maps, lambda f, half: factor_map(field, f), 1, points, ramp, start))
    if style.wide:

        def banked(f: Map, half: int) -> list[Factor]:
            return factor_map_to_bank(field, f, 1 - half, gates=style.gates)

        found.append(_way_on_points(maps, banked, 2, points, ramp, start))
    return found


def _scaled_ways(maps: tuple[Map, ...], points: tuple[Map, ...], start: Map, style: Style) -> list[_Way[Map]]:
    """In place (gates -1) and from bank to bank, with β at most 2, up to powers of 1/2."""
    field = rationals()
    ramp = odd_ramp(field, len(maps[0]))

    def banked(f: Map, half: int) -> list[Factor]:
        return factor_map_to_bank(field, f, 1 - half, gates=style.gates, halved=halvings(f))

    found = [replace(_way_on_points(maps, banked, 2, points, ramp, start), halved=halvings)]
    if not style.banks:
        here = _way_on_points(maps, lambda f, half: factor_map_scaled(field, f)[0], 1, points, ramp, start)

        def halved(f: Map) -> int:
            return factor_map_scaled(field, f)[1]

        found.insert(0, replace(here, halved=halved))
    return found


def _without_sink(maps: tuple[Map, ...], start: int, gates: bool, sink: int) -> _Way[Map]:
    """Partial injections of the states other than the sink, which is the zero vector."""
    field = rationals()
    kept = [q for q in range(len(maps[0])) if q != sink]
    number = {q: i for i, q in enumerate(kept)} | {sink: -1}
    partial = tuple(tuple(number[f[q]] for q in kept) for f in maps)
    signs = vector(field, ((i // 2 + 1) * (-1) ** i for i in range(len(kept))))
    points = tuple((number[q],) for q in range(len(kept) + 1))
    return _way_on_points(
        partial, lambda f, half: factor_partial(field, f, gates=gates), 1, points, signs, points[start]
    )


def _way_on_points(
    maps: tuple[Map, ...],
    factors: Callable[[Map, int], list[Factor]],
    banks: int,
    points: tuple[Map, ...],
    row: Vector,
    start: Map,
) -> _Way[Map]:
    """The way whose letters are maps of points (-1: dropped)."""
    n, field = len(row), rationals()
    one = identity(field, n)
    return _Way(
        maps,
        tuple(range(n)),
        lambda g, f: tuple([-1 if i < 0 else g[i] for i in f]),
        lambda f: map_matrix(field, f),
        factors,
        banks,
        points,
        row,
        tuple(vector(field, [0] * n) if p < 0 else one[p] for p in start),
    )


def _points(source: Source) -> tuple[Map, ...]:
    """The points each automaton state stands for: itself, or the images of a group's base points."""
    if source.on_states or source.group is None:
        return tuple((q,) for q in range(len(source.dfa.states)))
    number = {label: g for g, label in enumerate(source.group.labels)}
    base = base_points(source.group)
    permutations = (source.group.permutation(number[name]) for name in source.dfa.states)
    return tuple(tuple(f[b] for b in base) for f in permutations)


def _sink(maps: Sequence[Map]) -> int | None:
    """A point that all letters keep and off which all are injective."""
    for z in range(len(maps[0])):
        kept = [[y for x, y in enumerate(f) if x != z and y != z] for f in maps]
        if all(f[z] == z for f in maps) and all(len(set(images)) == len(images) for images in kept):
            return z
    return None


class _Builder(Generic[Letter]):
    """Products by number (0 is the empty one), steps and queries by number, for one way.

    `levels`: products of 0, 1, ..., P letters for the least P such that those of P letters take at most P steps; empty
    past the budgets. Bijections in place multiply to bijections, also with what remains of a block: so where pairs of
    both are too many, the letters of a block can be folded onto what remains (`Accumulator.turned`).
    """

    def __init__(self, way: _Way[Letter], per_token: int) -> None:
        self.way, self.per_token = way, per_token
        self.codes: dict[Letter, int] = {way.one: 0} if way.banks == 1 else {}
        self.tokens = tuple(self.codes.setdefault(f, len(self.codes) + way.banks - 1) for f in way.tokens)
        self.letters = [f for f in self.codes if way.banks == 2 or f != way.one]
        # From bank to bank the identity is work, and so is not the product of no letter.
        self.numbers: dict[Letter, int] = {way.one: 0} if way.banks == 1 else {}
        self.products: list[Letter] = [way.one]
        self.fold: dict[tuple[int, ...], int] = {}
        self.steps: dict[Step, int] = {}
        self.maps: dict[Factor, Scaled] = {}
        self.rests: dict[tuple[int, ...], int] = {}
        self.listed: list[Scaled] = []
        self.levels = self._levels()
        self.halved = max((way.halved(self.products[x]) for x in self.levels[-1]), default=0) if self.levels else 0

    def build(self) -> Accumulator | None:
        """Everything, or None past the budgets."""
        banks, field = self.way.banks, self.way.row[0].field
        if not self.levels or (banks == 1 and len(self.levels) == 2):
            return None
        length, n = len(self.levels) - 1, len(self.way.row)
        one = identity(field, n * banks)
        select = (one[n * (banks - 1) :], one[:n])
        found, turned = self._blocks((scaled(select[0]), scaled(select[1]))), False
        if found is not None:
            blocks, pairs = found
            queries, rows = self._rows(pairs)
        elif self.way.swap is not None and (made := self._turned()) is not None:
            (blocks, queries, rows), turned = made, True
        else:
            return None
        idle = (field.zero,) * n
        h0 = tuple((*idle, *column) if banks == 2 else column for column in self.way.start)
        return Accumulator(
            length,
            tuple(self.way.matrix(f) for f in self.letters),
            self.tokens,
            self.fold,
            h0,
            tuple(self.steps),
            queries,
            select,
            blocks,
            rows,
            self.way.row,
            self.way.points,
            turned=turned,
        )

    def _levels(self) -> list[list[int]]:
        levels = [[0]]
        used = sorted(set(self.tokens))
        while True:
            if len(levels) > 1 and self._short(levels[-1], len(levels) - 1):
                return levels
            most = _MOST_TURNED if self.way.swap is not None else _MOST_PRODUCTS
            if len(levels) > _LONGEST_BLOCK or len(levels[-1]) * len(used) > most:
                return []
            self._fold_on(levels[-1])
            levels.append(list(dict.fromkeys(self.fold[x, c] if c else x for x in levels[-1] for c in used)))

    def _fold_on(self, products: Iterable[int]) -> None:
        letters = {c: f for f, c in self.codes.items()}
        for x in products:
            for c, f in letters.items():
                if c and (x, c) not in self.fold:
                    self.fold[x, c] = self._number(self.way.after(f, self.products[x]))

    def _number(self, product: Letter) -> int:
        if product not in self.numbers:
            self.numbers[product] = len(self.products)
            self.products.append(product)
        return self.numbers[product]

    def _short(self, level: Sequence[int], length: int) -> bool:
        return all(len(self.way.factors(self.products[x], 0)) <= length * self.per_token for x in level)

    def _blocks(
        self, select: tuple[Scaled, Scaled]
    ) -> tuple[dict[tuple[int, int], tuple[Map, Map]], set[tuple[int, int]]] | None:
        """Steps and rests by half and product, and the pairs of product and rest; None once these pass the budget."""
        length, last = len(self.levels) - 1, set(self.levels[-1])
        most = _MOST_ROWS if self.way.points is not None else _MOST_WEIGHTED_ROWS
        blocks: dict[tuple[int, int], tuple[Map, Map]] = {}
        pairs, met = set[tuple[int, int]](), set[tuple[int, int]]()
        for half, x in self._halves():
            if x in last:
                made = self._block(x, half, select)
            else:
                made = self._numbered([()] * length), (self._rest(select[0]),) * length
            blocks[half, x] = made
            for r, rest in enumerate(made[1], 1):
                if (r, rest) not in met:
                    met.add((r, rest))
                    pairs.update((v, rest) for v in self.levels[r])
            if len(pairs) > most:
                return None
        return blocks, pairs

    def _block(self, x: int, half: int, select: tuple[Scaled, Scaled]) -> tuple[Map, Map]:
        """Step numbers of a block's map and the numbers of what remains after each of them."""
        steps = self._steps(x, half)
        rest, rests = select[half], list[int]()
        for step in reversed(steps):
            rests.append(self._rest(rest))
            for factor in reversed(step):
                assert isinstance(factor, Factor)
                if factor not in self.maps:
                    self.maps[factor] = scaled_factor(factor)
                rest = rest.times(self.maps[factor])
        whole = scaled(self.way.matrix(self.products[x])).times(select[1 - half])
        wanted = Scaled(whole.nums, whole.den * 2 ** self.way.halved(self.products[x]))
        if rest.key != wanted.key:
            raise CertificateFailed("product of the factors of a block", str(rest)[:60], str(wanted)[:60])
        return self._numbered(steps), tuple(reversed(rests))

    def _halves(self) -> list[tuple[int, int]]:
        """Half and product of each block; the first one follows no letters."""
        return [*dict.fromkeys([*((half, x) for half in (0, 1) for x in self.levels[-1]), (0, 0)])]

    def _steps(self, x: int, half: int) -> list[Step]:
        factors, k = self.way.factors(self.products[x], half), self.per_token
        return [tuple(factors[i * k : (i + 1) * k]) for i in range(len(self.levels) - 1)]

    def _turned(
        self,
    ) -> tuple[dict[tuple[int, int], tuple[Map, Map]], tuple[Vector, ...], dict[tuple[int], int]] | None:
        """Blocks in which what remains has a product's number, and queries by product; None past the budget."""
        blocks: dict[tuple[int, int], tuple[Map, Map]] = {}
        last, swap = set(self.levels[-1]), self.way.swap
        assert swap is not None
        for half, x in self._halves():
            steps: list[Step] = self._steps(x, half) if x in last else [()] * (len(self.levels) - 1)
            rest, rests = self.way.one, list[int]()
            for step in reversed(steps):
                rests.append(self._number(rest))
                for factor in reversed(step):
                    rest = self.way.after(rest, swap(factor))
            if rest != self.products[x]:
                raise CertificateFailed("product of the factors of a block", str(rest)[:60], str(self.products[x])[:60])
            blocks[half, x] = self._numbered(steps), tuple(reversed(rests))
        queries: list[Vector] = []
        for x, product in enumerate(self.products):
            self._fold_on([x])
            if len(self.fold) > _MOST_TURNED:
                return None
            queries.append(tuple([self.way.row[i] for i in cast("Map", product)]))
        return blocks, tuple(queries), {(x,): x for x in range(len(queries))}

    def _numbered(self, steps: Sequence[Step]) -> Map:
        return tuple(self.steps.setdefault(step, len(self.steps)) for step in steps)

    def _rest(self, rest: Scaled) -> int:
        number = self.rests.setdefault(rest.key, len(self.listed))
        if number == len(self.listed):
            self.listed.append(rest)
        return number

    def _rows(self, pairs: set[tuple[int, int]]) -> tuple[tuple[Vector, ...], dict[tuple[int, int], int]]:
        """The queries, numbered as sorted pairs of product and rest come to them, and the number for each pair."""
        row = scaled((self.way.row,))
        met = sorted({v for v, _ in pairs})
        firsts = scaled_rows([row.times(scaled(self.way.matrix(self.products[v]))) for v in met])
        place, wanted = {v: i for i, v in enumerate(met)}, dict[int, list[int]]()
        for v, rest in pairs:
            wanted.setdefault(rest, []).append(v)
        found: dict[tuple[int, ...], int] = {}
        at: dict[tuple[int, int], int] = {}
        for rest, products in wanted.items():
            keys = firsts.rows([place[v] for v in products]).times(self.listed[rest]).row_keys()
            at |= {(v, rest): found.setdefault(key, len(found)) for v, key in zip(products, keys, strict=True)}
        order: dict[int, int] = {}
        rows = {pair: order.setdefault(at[pair], len(order)) for pair in sorted(pairs)}
        listed = [*found]
        queries = [listed[number] for number in order]
        field = self.way.row[0].field
        # Few different numbers stand in very many rows.
        known: dict[tuple[int, int], Element] = {}

        def element(x: int, den: int) -> Element:
            if (x, den) not in known:
                known[x, den] = field.element((x,), den)
            return known[x, den]

        return tuple(tuple([element(x, den) for x in nums]) for den, *nums in queries), rows
