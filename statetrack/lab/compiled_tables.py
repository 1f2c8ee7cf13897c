"""The layers of a compiled program as tables of their input ids, as a language model's projections have to give them.

A language model starts from the state 0 and knows nothing of an initial state, so *start tokens* write it: read one
after the other, by factors with β = 1 and orthogonal keys. Its output norm divides every head's readout by its length;
where that would make two readouts equal or divide by 0, a constant channel is added to the keys and a column to the
values, so that a readout's length becomes part of its direction.

Main definitions: `LayerTables`, `layer_tables`.

References: docs/weights.md for the tensors that are read, docs/export.md for what is made of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.constructions.dyadic_keys import with_unit_keys
from statetrack.constructions.weights import Array, Weights
from statetrack.errors import InvalidInput

from .register_plan import layers_of

Floats = NDArray[np.float64]
_CLOSE = 1e-6
# Closer directions are not told apart by float32 products.
_LEAST_MARGIN = 1e-5


@dataclass(frozen=True, eq=False)
class LayerTables:
    """Tables of N input ids in float64.

    For every id and head, J times S <- diag(gate) S, S <- S - β k (kᵀS - vᵀ); then the readout Sᵀq. Keys have
    length 1 or are 0 (with β 0); lengths of queries do not matter.

    keys, gates: [N, H, J, K]; betas: [N, H, J]; values: [N, H, J, V]; queries: [N, H, K].
    state: [H, K, V], the state before the first symbol.
    points: for every head the directions [C, V] of its codebook's readouts, of length 1.
    constant: whether the last key channel and the last value column hold a constant.
    """

    keys: Floats
    betas: Floats
    gates: Floats
    values: Floats
    queries: Floats
    state: Floats
    points: tuple[Floats, ...]
    constant: bool

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """(N, H, J, K, V)."""
        ids, heads, factors, rows = self.keys.shape
        return ids, heads, factors, rows, self.values.shape[3]

    @property
    def own(self) -> int:
        """Key channels but for the constant one."""
        return self.shape[3] - int(self.constant)

    @cached_property
    def margins(self) -> tuple[float, ...]:
        """For each head 1 - the largest cosine of two of its readouts; 2 without two of them."""
        made: list[float] = []
        for points in self.points:
            cosines = points @ points.T
            np.fill_diagonal(cosines, -1.0)
            made.append(float(1.0 - cosines.max(initial=-1.0)))
        return tuple(made)

    def copied(self, copies: int, rows: int) -> LayerTables:
        """The same in `rows` key channels: every channel but the constant one `copies` times, zeros behind.

        Reflections of a state that is the same in all copies keep it so; all numbers of a key get smaller by
        sqrt(copies).
        """
        if self.own * copies + int(self.constant) > rows:
            raise InvalidInput(f"{copies} copies of {self.own} channels do not fit into {rows}")
        order = np.concatenate([np.tile(np.arange(self.own), copies), np.arange(self.own, self.shape[3])])
        shrink = np.where(order < self.own, 1 / np.sqrt(copies), 1.0)
        state = np.zeros((len(self.state), rows, self.state.shape[2]))
        state[:, : len(order)] = self.state[:, order] * shrink[:, None]
        gates = _padded(self.gates[..., order], (*self.gates.shape[:3], rows), 1.0)
        keys, queries = (_padded(x[..., order] * shrink, (*x.shape[:-1], rows), 0.0) for x in (self.keys, self.queries))
        return replace(self, keys=keys, gates=gates, queries=queries, state=state)

    def widened(self, heads: int, factors: int) -> LayerTables:
        """The same with idle heads and factors that do nothing behind its own."""
        ids, _, _, rows, columns = self.shape
        shape = (ids, heads, factors)
        return replace(
            self,
            keys=_padded(self.keys, (*shape, rows), 0.0),
            betas=_padded(self.betas, shape, 0.0),
            gates=_padded(self.gates, (*shape, rows), 1.0),
            values=_padded(self.values, (*shape, columns), 0.0),
            queries=_padded(self.queries, (ids, heads, rows), 0.0),
            state=_padded(self.state, (heads, rows, columns), 0.0),
        )

    def starts(self, factors: int) -> int:
        """How many start tokens of so many factors write the state."""
        return -(-max((len(_writes(state)) for state in self.state), default=0) // factors)

    def with_starts(self, starts: int) -> LayerTables:
        """The rows of `starts` start tokens before those of the ids; they read what the first of them wrote."""
        _, heads, factors, channels, columns = self.shape
        keys, values = np.zeros((starts, heads, factors, channels)), np.zeros((starts, heads, factors, columns))
        betas, queries = np.zeros((starts, heads, factors)), np.zeros((starts, heads, channels))
        for h, state in enumerate(self.state):
            for i, (key, value) in enumerate(_writes(state)):
                place = i // factors, h, i % factors
                keys[place], values[place], betas[place] = key, value, 1.0
                if i == 0:
                    queries[:, h] = key
        return replace(
            self,
            keys=np.concatenate([keys, self.keys]),
            betas=np.concatenate([betas, self.betas]),
            gates=np.concatenate([np.ones_like(keys), self.gates]),
            values=np.concatenate([values, self.values]),
            queries=np.concatenate([queries, self.queries]),
        )


def layer_tables(weights: Weights, *, refreshed: bool = False) -> tuple[LayerTables, ...]:
    """The tables of every layer of a file of weights, float64 for accuracy (`Weights.in_format("float64")`).

    Args:
        weights: of a program that tracks an automaton's states.
        refreshed: write the constant channel of layers with gates other than 1 anew at every token by one more factor;
            needed where a gate is one number for all channels.

    Raises:
        InvalidInput: what such tables cannot say, by name: a weighted automaton, dense steps, additive terms that are
            not β k vᵀ, heads that round down, readouts whose directions differ too little for float32.
    """
    _check(weights)
    made = tuple(_layer(weights.tensors, f"layers.{i}.", refreshed) for i in range(layers_of(weights.tensors)))
    least = min((margin for tables in made for margin in tables.margins), default=2.0)
    if least < _LEAST_MARGIN:
        raise InvalidInput(
            f"directions of readouts differ by a cosine of {least:.2g} only, a head's output norm needs {_LEAST_MARGIN}"
        )
    return made


def _check(weights: Weights) -> None:
    if weights.is_weighted:
        raise InvalidInput("a weighted automaton's values are no states: only automata are exported")
    reasons = {
        "dense": "steps that are full matrices",
        "bias": "additive terms that are not multiples of the key",
        "unit": "heads that round down after every token",
    }
    names = {name.split(".")[2] for name in weights.tensors if name.startswith("layers.")}
    faults = [reason for name, reason in reasons.items() if name in names]
    if faults:
        raise InvalidInput(f"no recurrent layer of a library has {' and '.join(faults)}")


def _layer(tensors: Mapping[str, Array], at: str, refreshed: bool) -> LayerTables:
    read: dict[str, Floats] = {
        name: tensors[at + name].astype(np.float64) for name in ("keys", "betas", "gates", "queries", "state")
    }
    keys, betas, sizes = with_unit_keys(read["keys"], read["betas"])
    columns = read["state"].shape[2]
    values = tensors.get(f"{at}values")
    given = np.zeros((*keys.shape[:3], columns)) if values is None else values.astype(np.float64) / sizes[..., None]
    books: list[Floats] = []
    while f"{at}codebook.{len(books)}" in tensors:
        book: Floats = tensors[f"{at}codebook.{len(books)}"].astype(np.float64)
        books.append(_padded(book, (len(book), columns), 0.0))
    tables = LayerTables(keys, betas, read["gates"], given, read["queries"], read["state"], tuple(books), False)
    if not given.any():
        tables = _orthogonal_columns(tables)
    tables = tables.widened(tables.shape[1], max(tables.shape[2], 1))
    lengths = [np.linalg.norm(book, axis=1) for book in tables.points]
    uneven = any(bool(np.ptp(x) > _CLOSE * x.max(initial=0.0) or x.min(initial=1.0) == 0) for x in lengths)
    if uneven or not tables.state.any((1, 2)).all():
        again = refreshed and bool((tables.gates != 1).any())
        tables = _with_constant(tables, max(float(x.max(initial=0.0)) for x in lengths) or 1.0, again)
    points = tuple(book / np.linalg.norm(book, axis=1)[:, None] for book in tables.points)
    return replace(tables, points=points)


def _orthogonal_columns(tables: LayerTables) -> LayerTables:
    """Without additive terms columns mix freely: take orthogonal ones, so that one factor writes each of them."""
    gram = np.einsum("hkv,hkw->hvw", tables.state, tables.state)
    if np.abs(gram - gram * np.eye(gram.shape[1])).max(initial=0.0) < _CLOSE:
        return tables
    left, sizes, right = np.linalg.svd(tables.state, full_matrices=False)
    kept = sizes > _CLOSE * sizes.max()
    # A readout of S = L Σ R is a row of R times Σ; in the new columns it is divided by both.
    mixes = right.swapaxes(1, 2) * np.where(kept, 1 / np.where(kept, sizes, 1.0), 0.0)[:, None, :]
    points = tuple(book @ mix for book, mix in zip(tables.points, mixes, strict=True))
    values = np.zeros((*tables.keys.shape[:3], left.shape[2]))
    return replace(tables, state=left * kept[:, None, :], values=values, points=points)


def _with_constant(tables: LayerTables, size: float, refreshed: bool) -> LayerTables:
    """One more key channel and value column that hold a constant, as long in the readout as the longest readout."""
    ids, heads, factors, channels, columns = tables.shape
    wide = tables.widened(heads, factors + int(refreshed))
    keys = _padded(wide.keys, (*wide.keys.shape[:3], channels + 1), 0.0)
    gates = _padded(wide.gates, keys.shape, 1.0)
    values = _padded(wide.values, (*keys.shape[:3], columns + 1), 0.0)
    betas = wide.betas.copy()
    state = _padded(wide.state, (heads, channels + 1, columns + 1), 0.0)
    state[:, channels, columns] = 1.0
    if refreshed:
        # A gate that is one number for all channels reaches the constant one too.
        gates[:, :, :factors, channels] = wide.gates[:, :, :factors, 0]
        keys[:, :, factors, channels] = betas[:, :, factors] = values[:, :, factors, columns] = 1.0
    points = tuple(_padded(book, (len(book), columns + 1), size) for book in tables.points)
    queries = _padded(wide.queries, (ids, heads, channels + 1), size)
    return LayerTables(keys, betas, gates, values, queries, state, points, True)


def _writes(state: Floats) -> list[tuple[Floats, Floats]]:
    """Orthogonal unit keys k_i and values v_i with state = sum of k_i v_iᵀ."""
    gram = state.T @ state
    if np.abs(gram - np.diag(np.diag(gram))).max(initial=0.0) < _CLOSE:
        lengths = np.sqrt(np.diag(gram))
        return [(state[:, i] / n, n * np.eye(len(lengths))[i]) for i, n in enumerate(lengths) if n > _CLOSE]
    left, sizes, right = np.linalg.svd(state, full_matrices=False)
    return [(left[:, i], n * right[i]) for i, n in enumerate(sizes) if n > _CLOSE * sizes[0]]


def _padded(rows: Floats, shape: tuple[int, ...], fill: Any) -> Floats:
    """The rows at the beginning of an array of this shape, `fill` behind them."""
    made = np.full(shape, fill, dtype=np.float64)
    made[tuple(slice(n) for n in rows.shape)] = rows
    return made
