"""Numbered rows of whole numbers, found again by what is in them: a hash table in numpy for millions of rows.

Rows are compared entry by entry, so equal hashes of different rows cost time and no correctness.

Main definitions: `RowStore`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Numbers = NDArray[np.int64]
_ODD = np.uint64(0x9E3779B97F4A7C15)


class RowStore:
    """Rows [N, K] of unsigned numbers with a label each; (row, label) has one number, in order of arrival."""

    def __init__(self, width: int, kind: Any) -> None:
        self._rows = np.zeros((64, width), dtype=kind)
        self._labels = np.zeros(64, dtype=np.int32)
        self._table = np.full(256, -1, dtype=np.int64)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Array:
        """All rows, [N, K]."""
        return self._rows[: self._count]

    @property
    def labels(self) -> NDArray[np.int32]:
        """Their labels, [N]."""
        return self._labels[: self._count]

    def find(self, rows: Array, labels: Array) -> Numbers:
        """The number of each (row, label); -1 where it is not there."""
        mask = np.uint64(len(self._table) - 1)
        slots = _hashes(rows, labels) & mask
        found = np.full(len(rows), -1, dtype=np.int64)
        open_ = np.arange(len(rows))
        while open_.size:
            number = self._table[slots[open_]]
            open_, number = open_[number >= 0], number[number >= 0]
            same = (self._labels[number] == labels[open_]) & (self._rows[number] == rows[open_]).all(axis=1)
            found[open_[same]] = number[same]
            open_ = open_[~same]
            slots[open_] = (slots[open_] + np.uint64(1)) & mask
        return found

    def add(self, rows: Array, labels: Array) -> tuple[Numbers, Numbers]:
        """The number of each (row, label), new ones included; and for each new one the place of its first arrival."""
        numbers = self.find(rows, labels)
        missing = np.flatnonzero(numbers < 0)
        if not missing.size:
            return numbers, missing
        first, group = _distinct(rows[missing], labels[missing])
        # In order of arrival, so that numbers do not depend on hashes.
        turn = np.argsort(first)
        rank = np.empty_like(turn)
        rank[turn] = np.arange(len(turn))
        numbers[missing] = self._count + rank[group]
        fresh = missing[first[turn]]
        self._put(rows[fresh], labels[fresh])
        return numbers, fresh

    def _put(self, rows: Array, labels: Array) -> None:
        count = self._count + len(rows)
        if count > len(self._rows):
            room = 2 * count
            self._rows = np.concatenate([self.rows, np.zeros((room - self._count, rows.shape[1]), rows.dtype)])
            self._labels = np.concatenate([self.labels, np.zeros(room - self._count, dtype=np.int32)])
        self._rows[self._count : count], self._labels[self._count : count] = rows, labels
        numbers = np.arange(self._count, count)
        self._count = count
        if 2 * count > len(self._table):
            self._table = np.full(1 << (4 * count - 1).bit_length(), -1, dtype=np.int64)
            numbers = np.arange(count)
        self._enter(numbers)

    def _enter(self, numbers: Numbers) -> None:
        mask = np.uint64(len(self._table) - 1)
        slots = _hashes(self._rows[numbers], self._labels[numbers]) & mask
        while numbers.size:
            free = self._table[slots] < 0
            self._table[slots[free]] = numbers[free]
            # Of several that want one place the last has it.
            left = self._table[slots] != numbers
            numbers, slots = numbers[left], (slots[left] + np.uint64(1)) & mask


def _hashes(rows: Array, labels: Array) -> NDArray[np.uint64]:
    mixed = labels.astype(np.uint64)
    for column in rows.T:
        mixed = (mixed ^ column.astype(np.uint64)) * _ODD
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _distinct(rows: Array, labels: Array) -> tuple[Numbers, Numbers]:
    """The first place of each distinct (row, label), and for each place which of these it equals."""
    order = np.lexsort((*rows.T, labels))
    r, c = rows[order], labels[order]
    starts = np.concatenate([[True], (c[1:] != c[:-1]) | (r[1:] != r[:-1]).any(axis=1)])
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(starts) - 1
    # The sort is stable, so the first of each run arrived first.
    return order[starts], group
