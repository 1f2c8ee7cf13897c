"""Proof that a weights file is right for ever in its number formats: closure of bit patterns, column by column.

Columns of a state do not mix. A *label* is the number of an exact column; a float column carries the label of the
exact column that it stands for. From the start's columns every (float column, label) is followed under every input
that the exact network meets with that label. If finitely many come out, and every choice of float columns with the
labels of one exact state is decoded to the right code, then every word of every length is answered right: by induction
each float column stays in the set of its label. Results that depend on the order of the sum over K are refused, so the
proof covers every kernel with these rounding points.

The four kinds of this proof, by what the set holds: "E" every operation was exact; "R" every float column is its exact
column in every label, so rounding leads back to it; "C" the set is another finite one that decodes. "H" is no proof.

Main definitions: `Ideal`, `ideal_of`, `close_floats`, `FloatClosure`, `Open`.

Main results: `FloatClosure.proof` is checked again by `statetrack.proofs_check.float_checker`, which shares no code.

References: docs/precision.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded
from statetrack.theory.automata import Dfa

from .float_columns import FloatColumns, IdealHead, Key, LabelMoves, Moved
from .float_network import FloatNetwork
from .float_steps import HeadTables, Order
from .program import Program, evaluate
from .weights import Weights, tensors_digest

Array = NDArray[Any]
FORMAT = "statetrack-float/1"


@dataclass(frozen=True)
class Ideal:
    """The exact run of a closed program on all words: one `IdealHead` a head, and the number of joint states."""

    heads: tuple[IdealHead, ...]
    joint: int


@dataclass(frozen=True)
class Open:
    """No proof: why, and the number of float columns that were met ("H")."""

    reason: str
    columns: int
    kind: str = "H"


@dataclass(frozen=True)
class FloatClosure:
    """A proof object, its kind, and its size; `error` bounds |float column - exact column| (a double, not proved)."""

    kind: str
    columns: int
    joint: int
    error: float
    order: Order
    proof: Mapping[str, Any]


def ideal_of(program: Program, dfa: Dfa, *, max_edges: int = 600_000) -> Ideal:
    """Follow all words through the exact network; BudgetExceeded past `max_edges` joint states times letters."""
    numbers = [{key: i for i, key in enumerate(sorted(la.heads[0].choose.seen))} for la in program.layers]
    moved = [[head.moved for head in layer.heads] for layer in program.layers]
    flat = [m for row in moved for m in row]
    heads = tuple(IdealHead() for _ in flat)
    seen = {tuple(0 for _ in flat)}
    queue = list(seen)
    for at, states in enumerate(queue):
        if (at + 1) * len(dfa.alphabet) > max_edges:
            raise BudgetExceeded("joint states times letters of a float proof", max_edges, "a smaller alphabet")
        for token in range(len(dfa.alphabet)):
            registers, after = [token], list[int]()
            for number, (layer, reads) in enumerate(zip(program.layers, program.reads, strict=True)):
                evaluate(layer.wires, registers)
                key = tuple([registers[i] for i in reads])
                codes = [
                    _follow(heads[len(after) + h], m, states[len(after) + h], key, numbers[number][key])
                    for h, m in enumerate(moved[number])
                ]
                after += [state for state, _ in codes]
                symbols = [code for _, code in codes]
                registers += symbols if layer.emit is None else [layer.emit(tuple(symbols))]
            if tuple(after) not in seen:
                seen.add(tuple(after))
                queue.append(tuple(after))
    for head, m in zip(heads, flat, strict=True):
        rows = m.orbit.rows(range(len(m.orbit)))
        head.labels = [tuple(row) for row in rows.tolist()]
        exact, sizes = m.orbit.columns.to_floats(), m.orbit.columns.sizes()
        head.exact = {label: exact[label] for row in head.labels for label in row}
        head.sizes = {label: sizes[label] for row in head.labels for label in row}
        _settle_labels(head)
    return Ideal(heads, len(queue))


def _follow(head: IdealHead, moved: Any, state: int, key: tuple[int, ...], number: int) -> tuple[int, int]:
    step, query = moved.head.choose(key)
    after = moved.move(step, state)
    code = moved.code(query, after)
    head.reads[after, number] = code
    # For now by states; `_settle_labels` turns this into moves of columns.
    head.moves[state, number] = after
    return after, code


def _settle_labels(head: IdealHead) -> None:
    """Moves of states as moves of labels. With additive terms a label belongs to its column number alone."""
    moves: dict[Key, int] = {}
    whole = True
    for (state, number), after in head.moves.items():
        for c, d in zip(head.labels[state], head.labels[after], strict=True):
            whole &= moves.setdefault((c, number), d) == d
    if not whole:
        # The columns move differently (additive terms): give each column number labels of its own.
        size = 1 + max(max(row) for row in head.labels)
        head.exact = {v * size + c: head.exact[c] for row in head.labels for v, c in enumerate(row)}
        head.labels = [tuple(v * size + c for v, c in enumerate(row)) for row in head.labels]
        moves = {}
        for (state, number), after in head.moves.items():
            for c, d in zip(head.labels[state], head.labels[after], strict=True):
                moves[c, number] = d
    head.moves = moves


def close_floats(
    weights: Weights, ideal: Ideal, *, order: Order = "recurrent", max_columns: int = 60_000, reach: float = 1.0
) -> FloatClosure | Open:
    """A proof that every word is answered right in the weights' formats, or why there is none.

    Args:
        weights: of the program that `ideal` was made of, in any format and with any start of the same labels.
        order: "recurrent": any order of the sum over K; "fused": products may be fused into sums as well.
        max_columns: budget of float columns a head.
        reach: a float column farther than this from its exact one, relative to the largest exact number, ends the
            search; so does one that reads as far from it as two codewords stand apart.
    """
    network = FloatNetwork(weights)
    sets: list[_Columns] = []
    for tables, head in zip(network.heads, ideal.heads, strict=True):
        if not tables.is_finite:
            return Open(f"a number of its tables is beyond the largest of {weights.dtype}", 0)
        found = _Columns(tables, head, order, reach)
        why = found.close(max_columns)
        if why is None:
            why = found.decode()
        sets.append(found)
        if why is not None:
            return Open(why, sum(len(s.columns) for s in sets))
    closure = [s.to_json() for s in sets]
    proof: dict[str, Any] = {
        "format": FORMAT,
        "dtype": weights.dtype,
        "storage": weights.storage,
        "order": order,
        "tensors_sha256": tensors_digest(weights.tensors),
        "certificate": weights.certificate.get("digest", ""),
        "joint": ideal.joint,
        "heads": closure,
    }
    kinds = [s.kind() for s in sets]
    kind = "C" if "C" in kinds else "R" if "R" in kinds else "E"
    error = max(s.error() for s in sets)
    return FloatClosure(kind, sum(len(s.columns) for s in sets), ideal.joint, error, order, proof | {"class": kind})


class _Columns:
    """The float columns of one head during the search for a closed set."""

    def __init__(self, tables: HeadTables, ideal: IdealHead, order: Order, reach: float) -> None:
        self.tables, self.ideal = tables, ideal
        self.order: Order = order
        self.columns = FloatColumns(tables, LabelMoves(ideal), order)
        scale = max((float(np.abs(x).max()) for x in ideal.exact.values()), default=1.0)
        self.reach = reach * scale
        self.asked = np.unique(tables.queries.astype(np.float64), axis=0).T
        self.gap = _least_gap(tables)
        self.exact = np.zeros((len(self.columns.moves.counts), tables.state.shape[0]))
        for label, exact in ideal.exact.items():
            self.exact[label, : len(exact)] = exact
        self.columns.add(np.ascontiguousarray(tables.state.T), np.array(ideal.labels[0]))

    def close(self, most: int) -> str | None:
        """Follow everything; a sentence if that does not end in a closed set."""
        done = 0
        while done < len(self.columns):
            # A few at first: what leaves its exact columns mostly does so soon.
            stop = min(len(self.columns), max(16, 2 * done))
            for moved in self.columns.follow(done, stop):
                why = self._astray(moved)
                if why is not None:
                    return why
                self.columns.add(moved.columns, moved.labels)
                if len(self.columns) > most:
                    return f"not closed at {most} float columns"
            done = stop
        return None

    def _astray(self, moved: Moved) -> str | None:
        """Why a step takes a column out of any set that could be closed; None if it does not."""
        if not moved.sure.all():
            finite = np.isfinite(moved.columns).all()
            return "a stored number depends on the order of a sum" if finite else "a float column overflows"
        away = moved.columns - self.exact[moved.labels]
        if (np.abs(away) > self.reach).any() or (np.abs(away @ self.asked) > self.gap).any():
            return "a float column is far from its exact column"
        return None

    def decode(self) -> str | None:
        """Whether every choice of float columns is decoded to the code of its state; a sentence if not."""
        tables, labels, rows = self.tables, self.columns.labels, self.columns.columns()
        size = 1 + int(labels.max())
        for number in sorted({n for _, n in self.ideal.reads}):
            ids = np.full(len(rows), number)
            _, low, high = tables.readout(ids, rows, self.order)
            lows, highs = np.full(size, np.inf), np.full(size, -np.inf)
            np.minimum.at(lows, labels, low.astype(np.float64))
            np.maximum.at(highs, labels, high.astype(np.float64))
            states = sorted({s for s, n in self.ideal.reads if n == number})
            width = tables.codebook.shape[1]
            where = np.array([self.ideal.labels[s][:width] for s in states]).reshape(len(states), width)
            codes = np.array([self.ideal.reads[s, number] for s in states])
            if not decodes(tables, lows[where], highs[where], codes).all():
                return "a choice of float columns is decoded to another code"
        return None

    def kind(self) -> str:
        """E, R or C (see the module)."""
        labels, rows = self.columns.labels, self.columns.columns().astype(np.float64)
        if len(labels) > len(np.unique(labels)) or not np.array_equal(rows, self.exact[labels]):
            return "C"
        return "E" if self._is_exact() else "R"

    def _is_exact(self) -> bool:
        """Whether no operation rounds: tables on a grid that doubles compute with exactly, and the same results."""
        t, grid = self.tables, 4096.0
        columns = self.columns.columns()
        tables = (t.keys, t.betas, t.gates, columns)
        if t.dense is not None or t.columns_differ or t.unit:
            return False
        if any((np.rint(x.astype(np.float64) * grid) != x.astype(np.float64) * grid).any() for x in tables):
            return False
        source, ids, _ = self.columns.moves.edges(self.columns.labels)
        rows = columns[source]
        for j in range(t.keys.shape[1]):
            moved, _ = t.factor(ids, rows, 0, j)
            gated = t.gates[ids, j].astype(np.float64) * rows
            key = t.keys[ids, j].astype(np.float64)
            along = t.betas[ids, j].astype(np.float64) * (key * gated).sum(axis=1)
            if not np.array_equal(moved.astype(np.float64), gated - key * along[:, None]):
                return False
            rows = moved
        return True

    def error(self) -> float:
        """The largest distance of a float column from its exact column."""
        away = self.columns.columns().astype(np.float64) - self.exact[self.columns.labels]
        return float(np.linalg.norm(away, axis=1).max(initial=0.0))

    def to_json(self) -> dict[str, Any]:
        """Start labels, the float columns of each label as exact hexadecimal numbers, and the moves of labels."""
        columns: dict[int, list[list[str]]] = {}
        for label, row in zip(self.columns.labels.tolist(), self.columns.columns().tolist(), strict=True):
            columns.setdefault(label, []).append([float(x).hex() for x in row])
        moves: dict[int, list[list[int]]] = {}
        for (label, number), after in self.ideal.moves.items():
            moves.setdefault(label, []).append([number, after])
        return {
            "start": list(self.ideal.labels[0]),
            "columns": [[label, rows] for label, rows in sorted(columns.items())],
            "moves": [[label, sorted(rows)] for label, rows in sorted(moves.items())],
        }


def _least_gap(tables: HeadTables) -> float:
    """The least distance of codewords with different labels; infinite where that is not worth finding."""
    words = tables.codebook.astype(np.float64)
    if len(words) > 1500:
        return float("inf")
    apart = ((words[:, None] - words[None]) ** 2).sum(axis=2)
    return float(np.sqrt(apart[tables.labels[:, None] != tables.labels[None]].min(initial=np.inf)))


class Codewords:
    """The codebook of a head in doubles: |r - c|² - |r - c'|² is linear in the readout r, coordinate by coordinate."""

    def __init__(self, tables: HeadTables) -> None:
        self.words, self.codes = tables.codebook.astype(np.float64), tables.labels
        self.squares = (self.words * self.words).sum(axis=1)
        self._largest = np.abs(self.words).max(initial=0.0)
        self._round_off = tables.round_off

    def slack(self, low: Array, high: Array) -> Array:
        """For boxes of readouts [N, V] more than computed differences of squares are off: a relative γ_(V+2) each."""
        reach, width = np.maximum(np.abs(low), np.abs(high)).max(axis=1, initial=0.0), self.words.shape[1]
        return 4 * (width + 6) * self._round_off * (2 * width * (reach + self._largest) ** 2) + 1e-30

    def rivals(self, low: Array, high: Array, code: int) -> tuple[Array, Array] | None:
        """For a box [V]: t [C', V] and s [C'] with |r - c|² - |r - c'|² = t·r + s for all c' of other codes.

        c is the codeword of this code nearest to the middle of the box; None if there is none.
        """
        own = np.flatnonzero(self.codes == code)
        if not own.size:
            return None
        middle = (low + high) / 2
        c = int(own[((self.words[own] - middle) ** 2).sum(axis=1).argmin()])
        others = self.codes != code
        return 2 * (self.words[others] - self.words[c]), self.squares[c] - self.squares[others]


def decodes(tables: HeadTables, low: Array, high: Array, codes: Array) -> NDArray[np.bool_]:
    """For boxes of readouts [N, V] whether each point's nearest codeword is one of its box's code, rounding included.

    The maximum over a box of a linear function is taken coordinate by coordinate.
    """
    book = Codewords(tables)
    finite = np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1)
    found = np.zeros(len(low), dtype=bool)
    for i in np.flatnonzero(finite).tolist():
        rivals = book.rivals(low[i], high[i], int(codes[i]))
        if rivals is None:
            continue
        towards, base = rivals
        ends: Array = np.maximum(towards * high[i], towards * low[i])
        slack = book.slack(low[i : i + 1], high[i : i + 1])
        found[i] = bool((ends.sum(axis=1) + base < -slack).all())
    return found


def closes_for_ever(tables: HeadTables, ideal: IdealHead, *, max_columns: int, order: Order = "recurrent") -> bool:
    """Whether one head, if its inputs are right, is decoded right for ever in floats."""
    if not ideal.labels or not ideal.reads or not tables.is_finite:
        return False
    found = _Columns(tables, ideal, order, 1.0)
    return found.close(max_columns) is None and found.decode() is None
