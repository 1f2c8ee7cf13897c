"""Sets of float columns with labels, and one step of all of them: what closures and searches of words are made of.

A label is the number of an exact column (`float_closure.ideal_of`); columns are kept as the bits of the state's format.

Main definitions: `IdealHead`, `LabelMoves`, `FloatColumns`.

References: docs/precision.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .float_steps import Flags, HeadTables, Order
from .row_store import Numbers, RowStore
from .weights import FORMATS

Array = NDArray[Any]
Key = tuple[int, int]
_ROWS_AT_ONCE = 1 << 16


@dataclass
class IdealHead:
    """What the exact network does with one head: `labels[state]` are the labels of its columns.

    `moves` maps (label, input id) to the next label, for inputs that occur; `reads` maps (state after the token, input
    id) to the code. `exact` has a label's column as doubles, `sizes` bounds on its entries.
    """

    labels: list[tuple[int, ...]] = field(default_factory=list[tuple[int, ...]])
    moves: dict[Key, int] = field(default_factory=dict[Key, int])
    reads: dict[Key, int] = field(default_factory=dict[Key, int])
    exact: dict[int, Array] = field(default_factory=dict[int, Array])
    sizes: dict[int, Array] = field(default_factory=dict[int, Array])


class LabelMoves:
    """The moves of labels as arrays: those of a label stand together, in order of their input ids."""

    def __init__(self, head: IdealHead) -> None:
        size = 1 + max(max(row) for row in head.labels)
        moves = np.array([(c, n, d) for (c, n), d in sorted(head.moves.items())], dtype=np.int64).reshape(-1, 3)
        self.ids, self.nexts = moves[:, 1], moves[:, 2]
        self.counts = np.bincount(moves[:, 0], minlength=size)
        self.first = np.cumsum(self.counts) - self.counts
        self.most = int(self.counts.max(initial=1))
        place = {label: v for row in head.labels for v, label in enumerate(row)}
        self.place = np.array([place.get(label, 0) for label in range(size)])

    @cached_property
    def offsets(self) -> Array:
        """[label, input id]: the place of a move among those of its label; -1 if it does not occur."""
        table = np.full((len(self.counts), 1 + int(self.ids.max(initial=0))), -1, dtype=np.int32)
        labels = np.repeat(np.arange(len(self.counts)), self.counts)
        table[labels, self.ids] = np.arange(len(self.ids)) - self.first[labels]
        return table

    def edges(self, labels: Array) -> tuple[Numbers, Numbers, Numbers]:
        """For columns with these labels [N] all moves: the place in `labels`, the input id and the next label."""
        counts = self.counts[labels]
        source = np.repeat(np.arange(len(labels)), counts)
        begun = np.cumsum(counts) - counts
        at = np.arange(len(source)) - begun[source] + self.first[labels][source]
        return source, self.ids[at], self.nexts[at]


@dataclass(frozen=True, eq=False)
class Moved:
    """Columns after one token: each edge's source (a column's number), input id, next label, new column, sureness."""

    source: Numbers
    ids: Numbers
    labels: Numbers
    columns: Array
    sure: Flags


class FloatColumns:
    """Float columns of one head with labels, numbered in order of arrival."""

    def __init__(self, tables: HeadTables, moves: LabelMoves, order: Order) -> None:
        self.tables, self.moves = tables, moves
        self.order: Order = order
        self._kind = FORMATS[tables.storage.name]
        self._store = RowStore(tables.state.shape[0], np.dtype(f"u{np.dtype(self._kind).itemsize}"))

    def __len__(self) -> int:
        return len(self._store)

    @property
    def labels(self) -> NDArray[np.int32]:
        """The label of each column."""
        return self._store.labels

    def columns(self, first: int = 0, last: int | None = None) -> Array:
        """Columns [N, K] in the arithmetic type, by default all."""
        return self._store.rows[first:last].view(self._kind).astype(self.tables.state.dtype)

    def at(self, numbers: Numbers) -> Array:
        """The columns with these numbers."""
        return self._store.rows[numbers].view(self._kind).astype(self.tables.state.dtype)

    def add(self, columns: Array, labels: Array) -> tuple[Numbers, Numbers]:
        """Numbers of columns whose entries are numbers of the state's format, and where the new ones are."""
        with np.errstate(over="ignore", invalid="ignore"):
            bits = np.ascontiguousarray(columns.astype(self._kind)).view(self._store.rows.dtype)
        return self._store.add(bits, labels)

    def follow(self, first: int, last: int) -> Iterator[Moved]:
        """All moves of the columns with these numbers, some at a time; those that overflowed have none."""
        size = max(1, _ROWS_AT_ONCE // self.moves.most)
        for at in range(first, last, size):
            columns = self.columns(at, min(at + size, last))
            alive = np.flatnonzero(np.isfinite(columns).all(axis=1))
            labels = self.labels[at:last][alive]
            source, ids, nexts = self.moves.edges(labels)
            rows = columns[alive[source]]
            moved, sure = np.empty_like(rows), np.ones(len(rows), dtype=bool)
            places = self.moves.place[labels[source]] if self.tables.columns_differ else source * 0
            for v in np.unique(places).tolist():
                chosen = np.flatnonzero(places == v)
                moved[chosen], sure[chosen] = self.tables.step(ids[chosen], rows[chosen], v, self.order)
            yield Moved(at + alive[source], ids, nexts, moved, sure)
