"""Exact orbits of matrix states under affine maps, closed column by column.

A state H of shape [K, V] moves as H -> A H + B, so its columns move independently. An `Orbit` therefore keeps
the distinct exact *columns* (algebra is done once for each) and represents a state as a tuple of column numbers,
which further maps move by table look-up.

Main definitions: `Step`, `Orbit`.

Main results: the state set is finite iff each column orbit is, and is never larger than their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded

from .arrays import AffineMap, Integers, Matrix, Vector, VectorSet, canonical
from .fields import Field

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class StepMap:
    """H -> A H + B, B given by its columns (None: zero). `product` (b, c) records A = A_b A_c, known to hold, B = 0."""

    matrix: Matrix
    offset: tuple[Vector, ...] | None = None
    product: tuple[int, int] | None = None


class Orbit:
    """The states reached from `start` by `steps`, discovered on demand.

    Args:
        field: the number field.
        start: the columns of H_0.
        steps: the maps; a step with `product` (b, c) is computed as b after c, without algebra of its own.
        max_columns, max_states: budgets; BudgetExceeded past them.
        unit: u > 0 floors every entry of an image to a multiple of u; only over the rationals.
    """

    def __init__(
        self,
        field: Field,
        start: Sequence[Vector],
        steps: Sequence[StepMap],
        *,
        max_columns: int = 1 << 20,
        max_states: int = 5_000_000,
        unit: Fraction | None = None,
    ) -> None:
        self.field, self.steps, self.width = field, steps, len(start)
        self.max_states, self.unit = max_states, unit
        assert unit is None or (unit > 0 and field.degree == 1)
        self.columns = VectorSet(field, len(start[0]), max_columns)
        self._affine: dict[tuple[int, int], AffineMap] = {}
        self._column_table: dict[tuple[int, int], Ids] = {}
        self.scalars = VectorSet(field, 1, 1 << 24)
        self._queries: dict[Vector, tuple[AffineMap, Ids]] = {}
        self._state_ids: dict[bytes, int] = {}
        self._state_keys: list[bytes] = []
        self._moves: list[Ids] = [np.empty(0, dtype=np.int32) for _ in self.steps]
        self._intern(self.columns.add_vectors(list(start)).reshape(1, -1))

    def __len__(self) -> int:
        return len(self._state_keys)

    def rows(self, states: Ids | range) -> Ids:
        """The column numbers of the states, [count, V]."""
        numbers: list[int] = list(states) if isinstance(states, range) else states.tolist()
        keys = [self._state_keys[i] for i in numbers]
        return np.frombuffer(b"".join(keys), dtype=np.int32).reshape(len(keys), self.width)

    def move(self, step: int, states: Ids) -> Ids:
        """The numbers of the images of the states under the step."""
        table = self._moves[step]
        if len(table) < len(self):
            table = self._moves[step] = _grown(table, len(self))
        images = table[states]
        missing = images < 0
        if missing.any():
            wanted = np.unique(states[missing])
            moved = self._intern(self._move_rows(step, self.rows(wanted)))
            table[wanted] = moved
            images = table[states]
        return images

    def readouts(self, query: Vector, states: Ids) -> Ids:
        """For each state the numbers in `scalars` (one set for all queries) of query·column, [count, V]."""
        if query not in self._queries:
            self._queries[query] = AffineMap(self.field, (query,)), np.empty(0, dtype=np.int32)
        linear, table = self._queries[query]
        table = _grown(table, len(self.columns))
        rows = self.rows(states)
        wanted = np.unique(rows[table[rows] < 0])
        if wanted.size:
            table[wanted] = self.scalars.add(*linear.apply(*self.columns.batch(wanted)))
        self._queries[query] = linear, table
        return table[rows]

    def close(self, max_states: int | None = None) -> int:
        """Reach every state under all steps; returns the number of edges computed.

        With `max_states` stop once that many states are known; without it the orbit's own budget raises BudgetExceeded.
        """
        done, edges = 0, 0
        while done < len(self) and (max_states is None or len(self) < max_states):
            frontier = range(done, min(len(self), done + 65536))
            done = frontier.stop
            rows = self.rows(frontier)
            for step in range(len(self.steps)):
                self._intern(self._move_rows(step, rows))
                edges += len(rows)
        return edges

    def _move_rows(self, step: int, rows: Ids) -> Ids:
        if self.steps[step].offset is None:
            return self._images(step, 0, rows)
        return np.column_stack([self._images(step, j, rows[:, j]) for j in range(self.width)]).astype(np.int32)

    def _images(self, step: int, column: int, ids: Ids) -> Ids:
        """Images of column numbers under the step, as column number `column` of a state (matters for offsets only)."""
        chosen = self.steps[step]
        if chosen.product is not None:
            b, c = chosen.product
            return self._images(b, 0, self._images(c, 0, ids))
        key = (step, column)
        table = self._column_table.get(key, np.empty(0, dtype=np.int32))
        if len(table) < len(self.columns):
            table = _grown(table, len(self.columns))
        images = table[ids]
        if (images < 0).any():
            wanted = np.unique(ids[images < 0])
            if key not in self._affine:
                offset = chosen.offset[column] if chosen.offset is not None else None
                self._affine[key] = AffineMap(self.field, chosen.matrix, offset)
            moved = self._affine[key].apply(*self.columns.batch(wanted))
            table[wanted] = self.columns.add(*(moved if self.unit is None else _floored(*moved, self.unit)))
            images = table[ids]
        self._column_table[key] = table
        return images

    def _intern(self, rows: Ids) -> Ids:
        """State numbers of rows of column numbers, new ones at the end."""
        buffer, size = np.ascontiguousarray(rows, dtype=np.int32).tobytes(), 4 * self.width
        ids, keys = self._state_ids, self._state_keys
        numbers: list[int] = []
        for position in range(0, len(buffer), size):
            key = buffer[position : position + size]
            number = ids.get(key)
            if number is None:
                number = len(keys)
                if number >= self.max_states:
                    raise BudgetExceeded("hidden states", self.max_states, "--max-states")
                ids[key] = number
                keys.append(key)
            numbers.append(number)
        return np.array(numbers, dtype=np.int32)


def _floored(dens: Integers, ints: Integers, unit: Fraction) -> tuple[Integers, Integers]:
    """u·floor(x/u) of rational vectors given by denominators and numerators."""
    steps = ints * unit.denominator // (dens * unit.numerator)[:, None]
    return canonical(np.full_like(dens, unit.denominator), steps * unit.numerator)


def _grown(table: Ids, size: int) -> Ids:
    if len(table) >= size:
        return table
    wider = np.full(max(size, 2 * len(table)), -1, dtype=np.int32)
    wider[: len(table)] = table
    return wider
