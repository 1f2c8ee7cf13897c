"""A program of any number of layers as blocks of a language model: what each mixer and each MLP has to look up.

A block is a mixer, then a gated MLP. Values stand in the residual stream as *signals*: the token, the readouts of a
layer's heads, and registers that an MLP wrote as one channel a value. A register of the program is a *view*: a table of
some signals. A table of one token or register is linear in their channels, so it needs no MLP; others are written by
the MLP of the first block that has all their signals, and tables of few cells are put together before they are
written. So look-ups that follow each other take a block each, with an idle mixer where no layer stands.

Main definitions: `Plan`, `plan_of`, `Signal`, `View`, `Lookup`, `entries`.

References: docs/weights.md for registers and tables, docs/export.md for the stream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from statetrack.constructions.weights import Array, Weights
from statetrack.errors import InvalidInput

Integers = NDArray[np.int64]
# The values of some signals, each of which is a condition; a value is met if all its conditions are.
Conditions = tuple[tuple[int, tuple[int, ...]], ...]
# Tables up to so many cells are put together with those that read them; none may have more than the second number.
_SMALL, _MOST_CELLS = 1024, 1 << 20


@dataclass(frozen=True)
class Signal:
    """Something in the stream with one of `size` values at every token.

    `ready`: the first block whose MLP can read it. `head`: (layer, head) of readouts, whose values are points of the
    head's codebook; None for the token and for registers, which have one channel a value.
    """

    size: int
    ready: int
    head: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class View:
    """A table of signals (in rising order, an axis each), -1 where nothing occurs; no signals: a constant."""

    signals: tuple[int, ...]
    table: Integers


@dataclass(frozen=True, eq=False)
class Lookup:
    """The MLP of a block writes the view as a signal."""

    block: int
    view: View
    signal: int


@dataclass(frozen=True, eq=False)
class Plan:
    """`layers`: block of each layer, and its input id as a view of the token or of one register.

    `answer`: the automaton's state, which the last block's MLP writes.
    """

    signals: tuple[Signal, ...]
    lookups: tuple[Lookup, ...]
    layers: tuple[tuple[int, View], ...]
    answer: View
    blocks: int


def plan_of(weights: Weights) -> Plan:
    """The plan of a weights file of an automaton; InvalidInput for tables of more than 2^20 cells."""
    planner = _Planner(weights.tensors, len(weights.dfa.alphabet))
    for number in range(layers_of(weights.tensors)):
        planner.layer(number)
    answer = planner.answer()
    ready = [planner.signals[s].ready for s in answer.signals]
    blocks = 1 + max([block for block, _ in planner.placed] + ready, default=0)
    return Plan(tuple(planner.signals), tuple(planner.lookups), tuple(planner.placed), answer, blocks)


def layers_of(tensors: Mapping[str, Array]) -> int:
    """How many layers a weights file has."""
    return len({name.split(".")[1] for name in tensors if name.startswith("layers.")})


def entries(view: View, signals: tuple[Signal, ...]) -> list[tuple[Conditions, int]]:
    """Conditions that exclude each other, and the table's value under each of them."""
    return _entries(view.table, view.signals, (), signals)


def _entries(
    table: Integers, left: tuple[int, ...], met: Conditions, signals: tuple[Signal, ...]
) -> list[tuple[Conditions, int]]:
    values = np.unique(table[table >= 0])
    if len(values) < 2:
        return [(met, int(value)) for value in values]
    # The signal with the fewest different slices first; values of readouts cannot be joined.
    groups: list[dict[object, list[int]]] = []
    for axis, signal in enumerate(left):
        found: dict[object, list[int]] = {}
        for value, part in enumerate(np.moveaxis(table, axis, 0)):
            key: object = value if signals[signal].head is not None else part.tobytes()
            found.setdefault(key, []).append(value)
        groups.append(found)
    axis = min((n for n in range(len(left)) if len(groups[n]) > 1), key=lambda n: len(groups[n]))
    rest = left[:axis] + left[axis + 1 :]
    made: list[tuple[Conditions, int]] = []
    for group in groups[axis].values():
        part = np.take(table, group[0], axis)
        made += _entries(part, rest, (*met, (left[axis], tuple(group))), signals)
    return made


class _Planner:
    """Registers as views, in the order of a weights file; `placed` are the layers so far."""

    def __init__(self, tensors: Mapping[str, Array], symbols: int) -> None:
        self._tensors = tensors
        self.signals = [Signal(symbols, 0)]
        self.lookups: list[Lookup] = []
        self.placed: list[tuple[int, View]] = []
        self._registers = [View((0,), np.arange(symbols))]
        self._written: dict[tuple[tuple[int, ...], bytes], View] = {}

    def layer(self, number: int) -> None:
        """Add the registers of a layer: its wires, its input id and its outputs."""
        at = f"layers.{number}."
        self._wires(at)
        source = self._one_signal(self._read(f"{at}route", f"{at}reads"))
        ready = max((self.signals[s].ready for s in source.signals), default=0)
        block = max([ready, *(before + 1 for before, _ in self.placed[-1:])])
        self.placed.append((block, source))
        self._registers.append(source)
        codes: list[View] = []
        while f"{at}labels.{len(codes)}" in self._tensors:
            labels = self._tensors[f"{at}labels.{len(codes)}"].astype(np.int64)
            self.signals.append(Signal(len(labels), block, (number, len(codes))))
            codes.append(_simple((len(self.signals) - 1,), labels))
        emit = self._tensors.get(f"{at}emit")
        self._registers += codes if emit is None else [self._composed(emit.astype(np.int64), codes)]

    def answer(self) -> View:
        """The view of the program's answer."""
        if "answer" not in self._tensors:
            return self._registers[-1]
        self._wires("answer.")
        return self._read("answer", "answer.reads")

    def _wires(self, at: str) -> None:
        count = 0
        while f"{at}wires.{count}" in self._tensors:
            self._registers.append(self._read(f"{at}wires.{count}", f"{at}wires.{count}.reads"))
            count += 1

    def _read(self, name: str, reads: str) -> View:
        registers = [self._registers[int(i)] for i in self._tensors[reads]]
        return self._composed(self._tensors[name].astype(np.int64), registers)

    def _composed(self, table: Integers, views: list[View]) -> View:
        """The table's value as a view of the signals of these views; large ones among them are written first."""
        while True:
            signals = tuple(sorted({s for view in views for s in view.signals}))
            shape = [self.signals[s].size for s in signals]
            wide = [i for i, view in enumerate(views) if self._shrinks(view)]
            if math.prod(shape) <= _SMALL:
                break
            if not wide:
                if math.prod(shape) > _MOST_CELLS:
                    raise InvalidInput(
                        f"a look-up between layers has {math.prod(shape):,} cells, exported are at most "
                        f"{_MOST_CELLS:,}; take a target where the program has fewer layers"
                    )
                break
            largest = max(wide, key=lambda i: views[i].table.size)
            views = [self._one_signal(view) if i == largest else view for i, view in enumerate(views)]
        places: list[Integers] = []
        for view in views:
            axes = [self.signals[s].size if s in view.signals else 1 for s in signals]
            places.append(np.broadcast_to(view.table.reshape(axes), shape))
        made = table[tuple(np.maximum(place, 0) for place in places)]
        for place in places:
            made = np.where(place < 0, -1, made)
        return _simple(signals, made)

    def _shrinks(self, view: View) -> bool:
        """Whether it has fewer values than cells once it is written."""
        if len(view.signals) == 1:
            return self.signals[view.signals[0]].head is not None and len(np.unique(view.table)) < view.table.size
        return len(view.signals) > 1

    def _one_signal(self, view: View) -> View:
        """The same as a view of the token or of one register, or a constant; written by an MLP if need be."""
        if not view.signals or (len(view.signals) == 1 and self.signals[view.signals[0]].head is None):
            return view
        key = view.signals, view.table.tobytes()
        if key not in self._written:
            values = np.unique(view.table[view.table >= 0])
            block = max(self.signals[s].ready for s in view.signals)
            table = np.where(view.table < 0, -1, np.searchsorted(values, view.table))
            self.signals.append(Signal(len(values), block + 1))
            number = len(self.signals) - 1
            self.lookups.append(Lookup(block, View(view.signals, table), number))
            self._written[key] = View((number,), values)
        return self._written[key]


def _simple(signals: tuple[int, ...], table: Integers) -> View:
    """The view without the signals on which the value does not depend."""
    kept = list(signals)
    for axis in reversed(range(len(signals))):
        high = table.max(axis)
        low = np.where(table < 0, np.iinfo(np.int64).max, table).min(axis)
        if ((low == high) | (high < 0)).all():
            table = high
            del kept[axis]
    return View(tuple(kept), np.asarray(table, dtype=np.int64))
