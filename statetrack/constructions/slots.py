"""The float columns that words reach in each column of a head's state, and which choices of them are decoded wrong.

A slot is one column of the state of one head. A choice of float columns, one of each slot and all with the labels of
one exact state, *fails* if its readout may be nearest to a codeword of another code. How far a column is from one that
takes part in a failing choice bounds what a word still needs to fail.

Main definitions: `HeadSlots`, `Slot`.

References: docs/precision.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .float_closure import Codewords, decodes
from .float_columns import FloatColumns, IdealHead, LabelMoves
from .float_steps import HeadTables, Order
from .row_store import Numbers

Array = NDArray[Any]
_MOST_MOVES = 1 << 25
_FAR = 1 << 30


class Slot:
    """One column of a head's state: the float columns that words reach, level by level, and their moves.

    `begun` is the first column not yet followed, `start` that of the empty word. `distance` (after
    `HeadSlots.measure`) is how many symbols a column needs to one that takes part in a failing choice, at least; its
    last entry is for what is no column.
    """

    def __init__(
        self, tables: HeadTables, ideal: IdealHead, moves: LabelMoves, v: int, order: Order, keep: int = _MOST_MOVES
    ) -> None:
        self.columns, self.start, self.begun, self.is_sure = FloatColumns(tables, moves, order), 0, 0, True
        self.columns.add(np.ascontiguousarray(tables.state.T[v : v + 1]), np.array([ideal.labels[0][v]]))
        self.distance = np.full(2, _FAR, dtype=np.int32)
        self._after: list[Array] = []
        self._sources: list[Array] = []
        self._count, self._most = 0, keep
        self._parents, self._inputs = [np.zeros(1, dtype=np.int32)], [np.zeros(1, dtype=np.int32)]

    @property
    def has_moves(self) -> bool:
        """Whether all moves were kept; past a budget they are not."""
        return self._count <= self._most

    def grow(self, most: int) -> bool:
        """Follow the columns of the last level; False if there come out more than `most`."""
        first, self.begun = self.begun, len(self.columns)
        for moved in self.columns.follow(first, self.begun):
            numbers, fresh = self.columns.add(moved.columns, moved.labels)
            self._parents.append(moved.source[fresh].astype(np.int32))
            self._inputs.append(moved.ids[fresh].astype(np.int32))
            self.is_sure &= bool(moved.sure.all())
            self._count += len(numbers)
            if self.has_moves:
                self._after.append(numbers.astype(np.int32))
                self._sources.append(moved.source.astype(np.int32))
            else:
                self._after, self._sources = [], []
            if len(self.columns) > most:
                return False
        return True

    def path(self, number: int) -> tuple[int, ...]:
        """The input ids of a shortest way from the start to a column."""
        parents, inputs = np.concatenate(self._parents), np.concatenate(self._inputs)
        found: list[int] = []
        while number != self.start:
            found.append(int(inputs[number]))
            number = int(parents[number])
        return tuple(reversed(found))

    def moved(self, numbers: Numbers, input_id: int) -> Numbers:
        """The columns after an input; -1 where there is none, as after an overflow."""
        place = self.columns.moves.offsets[self.columns.labels[numbers], input_id]
        first = self._first[numbers]
        known = (place >= 0) & (first >= 0)
        return np.where(known, self._targets[np.where(known, first + place, 0)], -1).astype(np.int64)

    def measure(self, failing: NDArray[np.bool_], most: int) -> None:
        """Distances up to `most` to the columns that are marked."""
        self._targets = np.concatenate(self._after)
        sources = np.concatenate(self._sources)
        starts = np.flatnonzero(np.diff(sources, prepend=-1))
        self._first = np.full(len(self.columns), -1, dtype=np.int64)
        self._first[sources[starts]] = starts
        distance = np.full(len(self.columns) + 1, _FAR, dtype=np.int32)
        distance[:-1][failing] = 0
        for n in range(1, most + 1):
            nearest = np.minimum.reduceat(distance[self._targets], starts)
            better = sources[starts[(nearest == n - 1)]]
            better = better[distance[better] > n]
            if not better.size:
                break
            distance[better] = n
        self.distance = distance


@dataclass(frozen=True, eq=False)
class _Reading:
    """A query with the states after which it is asked, their codes, and for each slot the bounds by label so far."""

    input_id: int
    states: Array
    codes: Array
    lows: list[Array]
    highs: list[Array]


def _readings(tables: HeadTables, ideal: IdealHead, labels: int) -> list[_Reading]:
    """What is read, each query once; a query's codes depend on the state alone."""
    _, first, group = np.unique(tables.queries, axis=0, return_index=True, return_inverse=True)
    reads = np.array([(state, number, code) for (state, number), code in ideal.reads.items()])
    asked = group.reshape(-1)[reads[:, 1]]
    width, found = tables.codebook.shape[1], list[_Reading]()
    for query in np.unique(asked).tolist():
        states, codes = np.unique(reads[asked == query][:, [0, 2]], axis=0).T
        lows = [np.full(labels, np.inf) for _ in range(width)]
        found.append(_Reading(int(first[query]), states, codes, lows, [-low for low in lows]))
    return found


class HeadSlots:
    """All slots of a head. `fails` lists the choices that fail as (reading, place of the state in it)."""

    def __init__(self, tables: HeadTables, ideal: IdealHead, order: Order) -> None:
        self.tables, self.ideal = tables, ideal
        self.order: Order = order
        moves = LabelMoves(ideal)
        self.slots = [Slot(tables, ideal, moves, v, order) for v in range(len(ideal.labels[0]))]
        self.fails: list[tuple[int, int]] = []
        self._labels, self._book = np.array(ideal.labels), Codewords(tables)
        self._reads_sure = True
        self._looked = [0] * len(self.slots)
        self._readings = _readings(tables, ideal, len(moves.counts))

    @property
    def is_sure(self) -> bool:
        """Whether everything so far is the same in every order of sums, or holds in all of them."""
        return all(slot.is_sure for slot in self.slots) and (self._reads_sure or not self.fails)

    def look(self) -> None:
        """Take in the columns of the last level, and decode every choice of columns so far."""
        for v, slot in enumerate(self.slots[: self.tables.codebook.shape[1]]):
            rows, labels = slot.columns.columns(self._looked[v]), slot.columns.labels[self._looked[v] :]
            self._looked[v] = len(slot.columns)
            for reading in self._readings:
                low, high = self._bounds(reading, rows)
                self._reads_sure &= bool((low == high).all())
                np.minimum.at(reading.lows[v], labels, low)
                np.maximum.at(reading.highs[v], labels, high)
        self.fails = []
        for number, reading in enumerate(self._readings):
            lows, highs = self._boxes(reading)
            met = np.flatnonzero((lows < np.inf).all(axis=1))
            right = decodes(self.tables, lows[met], highs[met], reading.codes[met])
            self.fails += [(number, place) for place in met[~right].tolist()]

    def measure(self, most: int) -> None:
        """Distances of all columns to those that take part in a choice that fails."""
        width = self.tables.codebook.shape[1]
        marks = [np.full(len(slot.columns), v >= width and bool(self.fails)) for v, slot in enumerate(self.slots)]
        for number, place in self.fails:
            self._mark(self._readings[number], place, marks)
        for slot, marked in zip(self.slots, marks, strict=True):
            slot.measure(marked, most)

    def _boxes(self, reading: _Reading) -> tuple[Array, Array]:
        """Bounds [states, V] of the readouts of all choices."""
        labels = self._labels[reading.states]
        lows = np.column_stack([low[labels[:, v]] for v, low in enumerate(reading.lows)])
        return lows, np.column_stack([high[labels[:, v]] for v, high in enumerate(reading.highs)])

    def _bounds(self, reading: _Reading, rows: Array) -> tuple[Array, Array]:
        """Bounds on the readouts of columns in doubles, infinite for those that overflowed."""
        _, low, high = self.tables.readout(np.full(len(rows), reading.input_id), rows, self.order)
        finite = np.isfinite(low) & np.isfinite(high)
        lower: Array = np.where(finite, low, -np.inf)
        upper: Array = np.where(finite, high, np.inf)
        return lower.astype(np.float64), upper.astype(np.float64)

    def _mark(self, reading: _Reading, place: int, marks: list[NDArray[np.bool_]]) -> None:
        """Mark the columns that take part in a failing choice for one state."""
        lows, highs = self._boxes(reading)
        low, high = lows[place], highs[place]
        finite = bool(np.isfinite(low).all() and np.isfinite(high).all())
        rivals = self._book.rivals(low, high, int(reading.codes[place])) if finite else None
        labels = self._labels[reading.states[place]]
        for v, slot in enumerate(self.slots[: len(low)]):
            chosen = np.flatnonzero(slot.columns.labels == labels[v])
            if rivals is None:
                marks[v][chosen] = True
                continue
            towards, base = rivals
            ends: Array = np.maximum(towards * high, towards * low)
            rest = ends.sum(axis=1) - ends[:, v] + base + self._book.slack(low[None], high[None])
            below, above = self._bounds(reading, slot.columns.at(chosen))
            worst = np.maximum(towards[:, v] * below[:, None], towards[:, v] * above[:, None]) + rest
            marks[v][chosen[(worst >= 0).any(axis=1)]] = True
