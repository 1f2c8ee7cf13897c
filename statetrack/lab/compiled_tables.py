"""A compiled program of one layer as tables of the token, as a language model's projections have to give them.

A language model starts from the state 0 and knows nothing of an initial state, so the tables have P *start tokens*
before the A symbols: read one after the other they write it, by factors with β = 1 and orthogonal keys. Its output
norm divides every head's readout by its length; where that would make two readouts equal, a constant channel is added
to the keys and a column to the values, so that a readout's length becomes part of its direction.

Main definitions: `TokenTables`, `token_tables`.

References: docs/weights.md for the tensors that are read, docs/export.md for what is made of the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from statetrack.constructions.dyadic_keys import with_unit_keys
from statetrack.constructions.weights import Array, Weights
from statetrack.errors import BudgetExceeded, InvalidInput

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
_CLOSE = 1e-6
# Rounded numbers are compared; the shift keeps those that programs are full of (halves, tenths) off the boundaries.
_SHIFT = 0.2718281828
_MOST_STATES = 200_000


@dataclass(frozen=True, eq=False)
class TokenTables:
    """Tables of N = P + A tokens (P start tokens, then the symbols), in float64; the state before them is 0.

    For every token and head, J times S <- diag(gate) S, S <- S - β k (kᵀS - vᵀ); then the readout Sᵀq. Keys have
    length 1 or are 0 (with β 0), queries have length 1.

    keys, gates: [N, H, J, K]; betas: [N, H, J]; values: [N, H, J, V]; queries: [N, H, K].
    state: [H, K, V], the state that the start tokens write.
    points: [C, H, V], every readout that occurs, divided by its length; answers: [C], the automaton's state there.
    constant: whether the last key channel and the last value column hold a constant.
    """

    alphabet: tuple[str, ...]
    starts: int
    keys: Floats
    betas: Floats
    gates: Floats
    values: Floats
    queries: Floats
    state: Floats
    points: Floats
    answers: Integers
    constant: bool

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """(N, H, J, K, V)."""
        tokens, heads, factors, rows = self.keys.shape
        return tokens, heads, factors, rows, self.values.shape[3]

    @property
    def states(self) -> int:
        """How many states of the automaton occur."""
        return len(set(self.answers.tolist()))

    @property
    def margin(self) -> float:
        """1 - the largest cosine of two readouts (all heads together) with different answers; 2 without two answers."""
        flat = self.points.reshape(len(self.points), -1)
        cosines = flat @ flat.T / self.shape[1]
        cosines[self.answers[:, None] == self.answers[None, :]] = -1.0
        return float(1.0 - cosines.max(initial=-1.0))

    def copied(self, copies: int, rows: int) -> TokenTables:
        """The same in `rows` key channels: every channel but the constant one `copies` times, zeros behind.

        Reflections of a state that is the same in all copies keep it so; all numbers of a key get smaller by
        sqrt(copies).
        """
        own = self.shape[3] - int(self.constant)
        if own * copies + int(self.constant) > rows:
            raise InvalidInput(f"{copies} copies of {own} channels do not fit into {rows}")
        order = np.concatenate([np.tile(np.arange(own), copies), np.arange(own, self.shape[3])])
        shrink = np.where(order < own, 1 / np.sqrt(copies), 1.0)
        gates = np.ones((*self.gates.shape[:3], rows))
        gates[..., : len(order)] = self.gates[..., order]
        state = np.zeros((len(self.state), rows, self.state.shape[2]))
        state[:, : len(order)] = self.state[:, order] * shrink[:, None]
        keys, queries = (_padded(x[..., order] * shrink, rows) for x in (self.keys, self.queries))
        return replace(self, keys=keys, gates=gates, queries=queries, state=state)


def token_tables(weights: Weights, *, refreshed: bool = False) -> TokenTables:
    """The tables of a file of weights with one layer, float64 for accuracy (`Weights.in_format("float64")`).

    Args:
        weights: of a program of one layer that tracks an automaton's states.
        refreshed: write the constant channel anew at every token by one more factor; needed where a gate is one number
            for all channels and not 1.

    Raises:
        InvalidInput: what tables of the token cannot say, by name: several layers, a weighted automaton, dense steps,
            additive terms that are not β k vᵀ, heads that round down, an answer that needs the token besides readouts.
        BudgetExceeded: more than 200,000 states of the layer.
    """
    _check(weights.tensors, weights)
    symbols = _symbol_tables(weights.tensors, len(weights.dfa.alphabet))
    readouts, answers = _readouts(symbols, weights)
    tables = symbols | {"readouts": readouts}
    _, lengths = _directions(readouts)
    spread = lengths.max(0) - lengths.min(0)
    uneven = bool((spread > _CLOSE * lengths.max(0)).any() or lengths.min(initial=1.0) == 0)
    if uneven:
        tables = _with_constant(tables, float(lengths.max(initial=1.0)), refreshed)
    tables["queries"] = _directions(tables["queries"])[0]
    points, answers = _distinct(_directions(tables["readouts"])[0], answers)
    starts, written = _with_starts(tables)
    return TokenTables(
        tuple(weights.dfa.alphabet),
        starts,
        written["keys"],
        written["betas"],
        written["gates"],
        written["values"],
        written["queries"],
        tables["state"],
        points,
        answers,
        uneven,
    )


def _check(tensors: Mapping[str, Array], weights: Weights) -> None:
    if weights.is_weighted:
        raise InvalidInput("a weighted automaton's values are no states: only automata are exported")
    layers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    if len(layers) != 1:
        raise InvalidInput(
            f"a program of {len(layers)} layers: only one layer is a table of the token; build it for a target where "
            "it has one layer ('statetrack build SOURCE --target deltaproduct' or ckda)"
        )
    reasons = {
        "dense": "steps that are full matrices",
        "bias": "additive terms that are not multiples of the key",
        "unit": "heads that round down after every token",
    }
    faults = [reason for name, reason in reasons.items() if f"layers.0.{name}" in tensors]
    if faults:
        raise InvalidInput(f"no recurrent layer of a library has {' and '.join(faults)}")


def _symbol_tables(tensors: Mapping[str, Array], symbols: int) -> dict[str, Floats]:
    """Rows of the layer's tables for each symbol, and its state."""
    registers: list[Integers] = [np.arange(symbols)]
    for i in range(len([n for n in tensors if n.startswith("layers.0.wires.") and not n.endswith("reads")])):
        registers.append(_looked_up(tensors, f"layers.0.wires.{i}", f"layers.0.wires.{i}.reads", registers))
    ids = _looked_up(tensors, "layers.0.route", "layers.0.reads", registers)
    if (ids < 0).any():
        raise InvalidInput("a symbol without a row in the layer's tables: build the file again")
    rows: dict[str, Floats] = {
        name: tensors[f"layers.0.{name}"].astype(np.float64)[ids] for name in ("keys", "betas", "gates", "queries")
    }
    rows["queries"] = _directions(rows["queries"])[0]
    rows["state"] = tensors["layers.0.state"].astype(np.float64)
    shape = (*rows["keys"].shape[:3], rows["state"].shape[2])
    values = tensors.get("layers.0.values")
    rows["keys"], rows["betas"], sizes = with_unit_keys(rows["keys"], rows["betas"])
    rows["values"] = np.zeros(shape) if values is None else values.astype(np.float64)[ids] / sizes[..., None]
    return rows if rows["values"].any() else _orthogonal_columns(rows)


def _looked_up(tensors: Mapping[str, Array], table: str, reads: str, registers: list[Integers]) -> Integers:
    place = tuple(registers[int(i)] for i in tensors[reads])
    return tensors[table].astype(np.int64)[place]


def _orthogonal_columns(rows: dict[str, Floats]) -> dict[str, Floats]:
    """Without additive terms columns mix freely: take orthogonal ones, so that one factor writes each of them."""
    state = rows["state"]
    gram = np.einsum("hkv,hkw->hvw", state, state)
    if np.abs(gram - gram * np.eye(gram.shape[1])).max(initial=0.0) < _CLOSE:
        return rows
    left, sizes, _ = np.linalg.svd(state, full_matrices=False)
    rows["state"] = left * (sizes > _CLOSE * sizes.max())[:, None, :]
    rows["values"] = np.zeros((*rows["keys"].shape[:3], left.shape[2]))
    return rows


def _readouts(rows: dict[str, Floats], weights: Weights) -> tuple[Floats, Integers]:
    """Readouts [C, H, V] that occur after a token or before the first, and the automaton's state there."""
    dfa = weights.dfa
    delta: Integers = np.asarray(dfa.delta, dtype=np.int64)
    moves, offsets = _moves(rows)
    hidden, states = rows["state"][None], np.array([dfa.start])
    queries: Floats = rows["queries"]
    found, answers = [np.einsum("hk,nhkv->nhv", queries[0], hidden)], [states]
    seen, count = _Seen(), 1
    while len(hidden):
        after = np.einsum("ahij,nhjv->nahiv", moves, hidden) + offsets[None]
        reached = delta[states]
        found.append(np.einsum("ahk,nahkv->nahv", queries, after).reshape(-1, *found[0].shape[1:]))
        answers.append(reached.reshape(-1))
        flat = after.reshape(-1, *hidden.shape[1:])
        new = seen.new(flat.reshape(len(flat), -1), answers[-1])
        hidden, states = flat[new], answers[-1][new]
        points, kept = _distinct(np.concatenate(found), np.concatenate(answers), checked=False)
        found, answers = [points], [kept]
        count += len(hidden)
        if count > _MOST_STATES:
            raise BudgetExceeded("states of the layer to export", _MOST_STATES, "a smaller automaton")
    return found[0], answers[0]


def _moves(rows: dict[str, Floats]) -> tuple[Floats, Floats]:
    """Matrix [A, H, K, K] and additive term [A, H, K, V] of each symbol's step."""
    keys, betas, gates, values = (rows[name] for name in ("keys", "betas", "gates", "values"))
    symbols, heads, factors, size = keys.shape
    matrix = np.broadcast_to(np.eye(size), (symbols, heads, size, size)).copy()
    offset = np.zeros((symbols, heads, size, values.shape[3]))
    for j in range(factors):
        key, beta = keys[:, :, j], betas[:, :, j, None, None]
        matrix, offset = gates[:, :, j, :, None] * matrix, gates[:, :, j, :, None] * offset
        matrix = matrix - beta * np.einsum("ahi,ahk,ahkj->ahij", key, key, matrix)
        along = np.einsum("ahk,ahkv->ahv", key, offset) - values[:, :, j]
        offset = offset - beta * np.einsum("ahi,ahv->ahiv", key, along)
    return matrix, offset


class _Seen:
    """Rows of numbers, with a state each, that were met: two count as one if they differ by about 1e-6."""

    def __init__(self) -> None:
        self._met: set[bytes] = set()

    def new(self, rows: Floats, states: Integers) -> Integers:
        """The numbers of the rows that were not met before, each once."""
        keys = np.column_stack([_rounded(rows), states])
        fresh: list[int] = []
        for i in np.unique(keys, axis=0, return_index=True)[1].tolist():
            key = keys[i].tobytes()
            if key not in self._met:
                self._met.add(key)
                fresh.append(i)
        return np.array(fresh, dtype=np.int64)


def _rounded(rows: Floats) -> Integers:
    """Rows in units of about 1e-6 of a row's largest number if that is above 1, and the exponent of the unit."""
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1.0)
    exponents = np.ceil(np.log2(largest) - 1e-6)
    units = np.floor(rows / (_CLOSE * 2.0**exponents)[:, None] + _SHIFT)
    return np.column_stack([units, exponents]).astype(np.int64)


def _distinct(points: Floats, answers: Integers, *, checked: bool = True) -> tuple[Floats, Integers]:
    """Each pair of point and answer once; if checked, InvalidInput where one point has two answers."""
    flat = points.reshape(len(points), -1)
    kept = np.unique(np.column_stack([_rounded(flat), answers]), axis=0, return_index=True)[1]
    kept.sort()
    if checked:
        _, groups = np.unique(_rounded(flat[kept]), axis=0, return_inverse=True)
        if len(np.unique(groups)) < len(kept):
            raise InvalidInput("the answer needs the token besides the readouts, which a language model's head lacks")
    return points[kept], answers[kept]


def _directions(readouts: Floats) -> tuple[Floats, Floats]:
    """Rows divided by their lengths (zero rows stay), and the lengths."""
    lengths = np.linalg.norm(readouts, axis=-1)
    return readouts / np.where(lengths > 0, lengths, 1.0)[..., None], lengths


def _with_constant(rows: dict[str, Floats], size: float, refreshed: bool) -> dict[str, Floats]:
    """One more key channel and value column that hold a constant, as long in the readout as the longest readout."""
    symbols, heads, factors, channels = rows["keys"].shape
    columns, more = rows["values"].shape[3], int(refreshed)
    made: dict[str, Floats] = {
        "keys": np.zeros((symbols, heads, factors + more, channels + 1)),
        "betas": np.zeros((symbols, heads, factors + more)),
        "gates": np.ones((symbols, heads, factors + more, channels + 1)),
        "values": np.zeros((symbols, heads, factors + more, columns + 1)),
        "queries": np.full((symbols, heads, channels + 1), size),
        "state": np.zeros((heads, channels + 1, columns + 1)),
        "readouts": np.full((len(rows["readouts"]), heads, columns + 1), size),
    }
    for name in ("keys", "betas", "gates", "values", "queries", "state", "readouts"):
        made[name][tuple(slice(n) for n in rows[name].shape)] = rows[name]
    made["state"][:, channels, columns] = 1.0
    if refreshed:
        # A gate that is one number for all channels reaches the constant one too.
        made["gates"][:, :, :factors, channels] = rows["gates"][..., 0]
        made["keys"][:, :, factors, channels] = made["betas"][:, :, factors] = 1.0
        made["values"][:, :, factors, columns] = 1.0
    return made


def _with_starts(rows: dict[str, Floats]) -> tuple[int, dict[str, Floats]]:
    """Start tokens that write the state before the symbols' rows: one factor a column (or singular value)."""
    heads, channels, columns = rows["state"].shape
    factors = max(rows["keys"].shape[2], 1)
    writes = [_writes(state) for state in rows["state"]]
    starts = -(-max(len(w) for w in writes) // factors)
    first: dict[str, Floats] = {
        "keys": np.zeros((starts, heads, factors, channels)),
        "betas": np.zeros((starts, heads, factors)),
        "gates": np.ones((starts, heads, factors, channels)),
        "values": np.zeros((starts, heads, factors, columns)),
        "queries": np.repeat(rows["queries"][:1], starts, axis=0),
    }
    for h, write in enumerate(writes):
        for i, (key, value) in enumerate(write):
            place = i // factors, h, i % factors
            first["keys"][place], first["values"][place], first["betas"][place] = key, value, 1.0
    symbols = {name: rows[name] for name in first}
    if not rows["keys"].shape[2]:
        symbols |= {name: np.zeros((len(rows["queries"]), *first[name].shape[1:])) for name in ("keys", "betas")}
        symbols |= {name: np.ones_like(symbols["keys"]) for name in ("gates",)}
        symbols["values"] = np.zeros((len(rows["queries"]), *first["values"].shape[1:]))
    return starts, {name: np.concatenate([first[name], symbols[name]]) for name in first}


def _writes(state: Floats) -> list[tuple[Floats, Floats]]:
    """Orthogonal unit keys k_i and values v_i with state = sum of k_i v_iᵀ."""
    gram = state.T @ state
    if np.abs(gram - np.diag(np.diag(gram))).max(initial=0.0) < _CLOSE:
        lengths = np.sqrt(np.diag(gram))
        return [(state[:, i] / n, n * np.eye(len(lengths))[i]) for i, n in enumerate(lengths) if n > _CLOSE]
    left, sizes, right = np.linalg.svd(state, full_matrices=False)
    return [(left[:, i], n * right[i]) for i, n in enumerate(sizes) if n > _CLOSE * sizes[0]]


def _padded(rows: Floats, size: int) -> Floats:
    return np.concatenate([rows, np.zeros((*rows.shape[:-1], size - rows.shape[-1]))], axis=-1)
