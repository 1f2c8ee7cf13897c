"""The kernel's step on bit patterns: one column of a head's state at a time, for many columns at once.

The rounding points are those of kernels/README.md: tables in their own format, arithmetic in float64 or float32, the
state rounded to its storage format after every factor. What a kernel leaves open is the order of the sum over K; a
result is *sure* if no order can change it: at most two terms are not zero, or all partial sums are exact, or both ends
of an interval that holds every order's sum round to the same stored number. With `fused` products may also be fused
into the sums that they go into.

Main definitions: `HeadTables`, `head_tables`, `Order`.

References: kernels/README.md; Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from statetrack.theory.number_formats import NumberFormat

from .weights import FORMATS

Array = NDArray[Any]
Flags = NDArray[np.bool_]
Order = Literal["recurrent", "fused"]


@dataclass(frozen=True, eq=False)
class HeadTables:
    """The stored tables of one head in its arithmetic type, and the format of its state.

    Shapes: keys, gates [I, J, K]; betas [I, J]; queries [I, K]; state [K, V]; values [I, J, V], bias [I, J, K, V],
    dense [I, K, K] or None; unit 0 or a power of two; codebook [C, V] and labels [C].
    """

    keys: Array
    betas: Array
    gates: Array
    queries: Array
    state: Array
    codebook: Array
    labels: Array
    storage: NumberFormat
    values: Array | None = None
    bias: Array | None = None
    dense: Array | None = None
    unit: float = 0.0

    @property
    def columns_differ(self) -> bool:
        """Whether a step treats the columns of the state differently."""
        return self.values is not None or self.bias is not None

    @cached_property
    def is_finite(self) -> bool:
        """Whether every number of the tables and of the start is one: larger ones than the format has become none."""
        tables = (self.keys, self.betas, self.gates, self.queries, self.state, self.codebook)
        return all(bool(np.isfinite(x).all()) for x in (*tables, self.values, self.bias, self.dense) if x is not None)

    @cached_property
    def push(self) -> Array:
        """β k, rounded to the arithmetic type."""
        return self.betas[..., None] * self.keys

    @property
    def round_off(self) -> float:
        """The unit roundoff of the arithmetic."""
        return 2.0**-53 if self.state.dtype == np.float64 else 2.0**-24

    def stored(self, x: Array) -> Array:
        """Numbers of the arithmetic type rounded to storage, zeros without sign."""
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(FORMATS[self.storage.name]).astype(x.dtype) + x.dtype.type(0)

    def step(self, ids: Array, columns: Array, v: int, order: Order = "recurrent") -> tuple[Array, Flags]:
        """The columns [N, K], as column number v of the state, after a token with these input ids [N].

        The sum over K is taken from left to right. The flags say which results are the same in every order (with
        order "fused": and with products fused into sums or not).
        """
        sure = np.ones(len(ids), dtype=bool)
        # What overflows is not finite at the end: the flags say so.
        with np.errstate(over="ignore", invalid="ignore"):
            if self.dense is not None:
                columns, sure = self._multiplied(ids, columns, v, order)
            else:
                for j in range(self.keys.shape[1]):
                    columns, certain = self.factor(ids, columns, v, j, order)
                    sure &= certain
            if self.unit:
                floored = self.unit * np.floor(columns * columns.dtype.type(1 / self.unit))
                columns = self.stored(floored.astype(columns.dtype))
        return columns, sure & np.isfinite(columns).all(axis=1)

    def readout(self, ids: Array, columns: Array, order: Order = "recurrent") -> tuple[Array, Array, Array]:
        """qᵀs of each column from left to right, and bounds below and above on its value in every order.

        Of a column that overflowed they are no numbers.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            products = self.queries[ids] * columns
            total, low, high = spread(products, self.round_off)
        if order == "fused":
            extra = (len(products[0]) + 2) * self.round_off * np.abs(products.astype(np.float64)).sum(axis=1) + 1e-300
            low, high = _outward(low, high, extra)
        return total, low, high

    def nearest(self, readouts: Array) -> tuple[NDArray[np.int32], Array]:
        """The label of the nearest codeword of each readout [N, V], the first of equals; -1 if no distance is finite.

        Also how much farther (in squared distance) the nearest codeword with another label is; infinite if none is.
        The arithmetic and its order are the kernel's.
        """
        distance = np.zeros((len(readouts), len(self.codebook)), dtype=readouts.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            for v in range(self.codebook.shape[1]):
                difference = readouts[:, v, None] - self.codebook[None, :, v]
                distance = distance + difference * difference
        distance = np.where(np.isnan(distance), np.inf, distance)
        index = distance.argmin(axis=1)
        least = distance[np.arange(len(index)), index]
        finite = least < np.inf
        others = np.where(self.labels[None, :] == self.labels[index][:, None], np.inf, distance).min(axis=1)
        lead = np.where(finite, others, 0) - np.where(finite, least, 0)
        return np.where(finite, self.labels[index], -1).astype(np.int32), lead

    def _multiplied(self, ids: Array, columns: Array, v: int, order: Order) -> tuple[Array, Flags]:
        assert self.dense is not None
        n, size = columns.shape
        products = (self.dense[ids] * columns[:, None, :]).reshape(n * size, size)
        sums = [x.reshape(n, size) for x in spread(products, self.round_off)]
        if self.bias is not None:
            sums = [x + self.bias[ids, 0, :, v] for x in sums]
        stored, sure = self._agreed(*sums)
        # A product with 0, 1 or -1 is exact, so that fusing it changes nothing.
        return stored, sure & (order == "recurrent" or bool(np.isin(self.dense, (-1, 0, 1)).all()))

    def factor(self, ids: Array, columns: Array, v: int, j: int, order: Order = "recurrent") -> tuple[Array, Flags]:
        """The columns after factor j alone, and which of them are sure."""
        gated = self.gates[ids, j] * columns
        push = self.push[ids, j]
        sums = spread(self.keys[ids, j] * gated, self.round_off)
        ends = [gated - push * z[:, None] for z in sums]
        if self.values is not None:
            ends = [y + push * self.values[ids, j, v][:, None] for y in ends]
        if self.bias is not None:
            ends = [y + self.bias[ids, j, :, v] for y in ends]
        if order == "fused":
            ends[1:] = self._fused(ids, columns, v, j, ends)
        if self.unit:
            return ends[0], ((ends[0] == ends[1]) & (ends[0] == ends[2])).all(axis=1)
        return self._agreed(*ends)

    def _agreed(self, middle: Array, low: Array, high: Array) -> tuple[Array, Flags]:
        stored = self.stored(middle)
        same = (self.stored(low) == stored) & (self.stored(high) == stored)
        return stored, same.all(axis=1)

    def _fused(self, ids: Array, columns: Array, v: int, j: int, ends: list[Array]) -> tuple[Array, Array]:
        """Bounds on the sum before storage, fused or not: K + 6 roundings of what meets in it, all exact or none."""
        gate, key = self.gates[ids, j].astype(np.float64), self.keys[ids, j].astype(np.float64)
        s, push = columns.astype(np.float64), self.push[ids, j].astype(np.float64)
        size = np.abs(gate * s) + np.abs(push) * (np.abs(key) * np.abs(gate * s)).sum(axis=1)[:, None]
        if self.values is not None:
            size = size + np.abs(push * self.values[ids, j, v].astype(np.float64)[:, None])
        if self.bias is not None:
            size = size + np.abs(self.bias[ids, j, :, v].astype(np.float64))
        extra = 2 * (self.keys.shape[2] + 8) * self.round_off * size + 2.0**-140
        low, high = np.minimum(ends[1], ends[2]), np.maximum(ends[1], ends[2])
        # Whole numbers below 2^24 (times one power of two) make every operation exact, fused or not.
        whole = self._whole(gate, key, s, push, size) & (self.values is None) & (self.bias is None)
        return _outward(low, high, np.where(whole[:, None], 0.0, extra))

    def _whole(self, gate: Array, key: Array, s: Array, push: Array, size: Array) -> Flags:
        digits = 24 if self.round_off > 2.0**-30 else 53
        quantum = _quantum(gate * s) * _quantum(key) * np.minimum(1.0, _quantum(push))
        plain = np.isin(gate, (-1.0, 0.0, 1.0)).all(axis=1)
        # No product is subnormal.
        fits = (size.max(axis=1, initial=0.0) < 0.99 * 2.0**digits * quantum) & (quantum > 2.0**-120)
        return plain & fits


def head_tables(tensors: Mapping[str, Array], layer: int, head: int, storage: NumberFormat) -> HeadTables:
    """The tables of one head of a weights file (docs/weights.md), for a state kept in this format."""
    kind = np.float64 if storage.arithmetic.name == "float64" else np.float32
    prefix = f"layers.{layer}."

    def of(name: str, *, first: bool = False) -> Array | None:
        if prefix + name not in tensors:
            return None
        table = tensors[prefix + name]
        return np.asarray(table[head] if first else table[:, head], dtype=kind)

    names = ("keys", "betas", "gates", "queries")
    state = tensors[f"{prefix}state"][head].astype(np.float64)
    unit = of("unit", first=True)
    tables = {name: table for name in names if (table := of(name)) is not None}
    return HeadTables(
        **tables,
        state=storage.rounded(state).astype(kind) + kind(0),
        codebook=tensors[f"{prefix}codebook.{head}"].astype(kind),
        labels=tensors[f"{prefix}labels.{head}"],
        storage=storage,
        values=of("values"),
        bias=of("bias"),
        dense=of("dense"),
        unit=0.0 if unit is None else float(unit),
    )


def spread(products: Array, u: float) -> tuple[Array, Array, Array]:
    """Sums of the rows of products [N, K] from left to right, and bounds on the sum in every order."""
    total = products[:, 0]
    for i in range(1, products.shape[1]):
        total = total + products[:, i]
    open_ = np.flatnonzero((products != 0).sum(axis=1) > 2)
    low, high = total.copy(), total.copy()
    if open_.size:
        rows = products[open_].astype(np.float64)
        size = np.abs(rows).sum(axis=1)
        digits = 53 if u < 2.0**-30 else 24
        exact = size < 0.99 * 2.0**digits * _quantum(rows)
        extra = np.where(exact, 0.0, 2.01 * products.shape[1] * u * size)
        low[open_], high[open_] = _outward(total[open_], total[open_], extra)
    return total, low, high


def _quantum(rows: Array) -> Array:
    """For each row the largest power of two that divides all its numbers; 1 for zeros, at most 1."""
    # Rows that overflowed are exact in no order, whatever comes out here.
    mantissa, exponent = np.frexp(np.where(np.isfinite(rows), rows, 0.0))
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    lowest = np.ldexp((whole & -whole).astype(np.float64), exponent - 53)
    return np.where(rows != 0, lowest, 1.0).min(axis=1, initial=1.0)


def _outward(low: Array, high: Array, extra: Array) -> tuple[Array, Array]:
    """The interval widened by `extra` and by a last place; unchanged where `extra` is 0."""
    kind = low.dtype.type
    with np.errstate(over="ignore", invalid="ignore"):
        lower = np.nextafter((low.astype(np.float64) - extra).astype(low.dtype), kind(-np.inf))
        upper = np.nextafter((high.astype(np.float64) + extra).astype(low.dtype), kind(np.inf))
    return np.where(extra == 0, low, lower), np.where(extra == 0, high, upper)
