"""The networks that `run` executes, and how they are made from the tensors of a weights file.

A network is a row of layers joined by look-up tables. Between them stand *registers*, one integer a word and time, -1
for none. Register 0 is the token. Every layer adds, in order, its wires (a table of one or two earlier registers
each), its input id (the `route` table of the registers that it reads), and its outputs: its symbol, or the code of
each head if it has several heads and no emit table. The answer is the last layer's symbol or a table of registers;
a weighted network, whose last layer has no codebook, answers with the readout itself.

Main definitions: `Wire`, `LayerModel`, `Model`, `model_of`, `encode_words`, `random_tokens`.

References: `statetrack.constructions.weights` for names and shapes of the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from statetrack.constructions.weights import FORMATS, Array, Weights
from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa

from .reference import LayerTables

_NUMBERED = re.compile(r"layers\.(0|[1-9][0-9]{0,5})\..+")


@dataclass(frozen=True, eq=False)
class Wire:
    """A register made from earlier ones: `table` (int32) at the registers `reads`, one a dimension (at most two).

    -1 where nothing occurs and where an index is -1. A table without dimensions (shape [] or [1]) holds the value at
    every real token.
    """

    table: Tensor
    reads: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class LayerModel:
    """A layer: its tables, where its input ids come from, and how its readouts become codes and a symbol.

    `wires` come first. `route` holds input ids, a dimension for each register in `reads` (at most two; none: shape []
    or [1], one id at every real token), -1 for a combination that never occurs. Head h decodes the first V_h columns
    of its readout with `codebooks[h]` [C_h, V_h], V_h ≤ V; codeword c stands for the code `labels[h][c]`, -1 for
    none. `emit`, indexed by the codes of all heads, holds the symbol, -1 for none; without it every code is an
    output. No codebook at all (one head with V = 1): the readout is the answer. Integer tables are int32.

    Raises:
        InvalidInput: shapes, types or ranges that do not fit; all of them are listed.
    """

    tables: LayerTables
    route: Tensor
    codebooks: tuple[Tensor, ...] = ()
    labels: tuple[Tensor, ...] = ()
    emit: Tensor | None = None
    reads: tuple[int, ...] = (0,)
    wires: tuple[Wire, ...] = ()

    def __post_init__(self) -> None:
        ids, heads, _, _, columns = self.tables.shape
        faults = _look_up_faults("route", self.route, self.reads, ids)
        for i, wire in enumerate(self.wires):
            faults += _look_up_faults(f"wires.{i}", wire.table, wire.reads)
        if self.codebooks or self.labels or self.emit is not None:
            faults += self._code_faults()
        elif (heads, columns) != (1, 1):
            faults.append(f"no codebook, which needs one head and V = 1, got H={heads}, V={columns}")
        if faults:
            raise InvalidInput(f"layer model: {'; '.join(faults)}")

    @property
    def outputs(self) -> int:
        """How many registers its codes or its symbol fill."""
        return 1 if self.emit is not None else self.tables.shape[1]

    def _code_faults(self) -> list[str]:
        _, heads, _, _, columns = self.tables.shape
        faults: list[str] = []
        if not heads == len(self.codebooks) == len(self.labels):
            faults.append(f"{heads} heads, {len(self.codebooks)} codebooks and {len(self.labels)} label tables")
        for h, (codebook, labels) in enumerate(zip(self.codebooks, self.labels, strict=False)):
            if codebook.ndim != 2 or labels.shape != codebook.shape[:1] or codebook.shape[1] > columns:
                faults.append(
                    f"head {h}: codebook {tuple(codebook.shape)} and labels {tuple(labels.shape)}, expected "
                    f"[C, at most {columns}] and [C]"
                )
            if not codebook.is_floating_point():
                faults.append(f"head {h}: codebook has dtype {codebook.dtype}, expected a float")
            faults += _table_faults(f"head {h}: labels", labels, 1)
        if self.emit is not None:
            faults += _table_faults("emit", self.emit, heads)
            greatest = [_greatest(labels) for labels in self.labels]
            if any(g >= n for g, n in zip(greatest, self.emit.shape, strict=False)):
                faults.append(f"emit has shape {tuple(self.emit.shape)}, the heads' codes go up to {greatest}")
        return faults


@dataclass(frozen=True, eq=False)
class Model:
    """A network's layers, first to last, and the automaton it tracks: `delta` [Q, A] int32 and its start state.

    `answer` makes the answer from registers, after the `wires`, whose registers follow those of the last layer; without
    it the last layer's symbol is the answer. A weighted network has neither, no codebook in the last layer, and
    `delta` None.

    Raises:
        InvalidInput: a register that is read before it is made, a table that does not cover the values of what it
            reads, an automaton or an answer that does not fit; all of them are listed.
    """

    layers: tuple[LayerModel, ...]
    delta: Tensor | None
    start: int = 0
    answer: Wire | None = None
    wires: tuple[Wire, ...] = ()

    def __post_init__(self) -> None:
        if not self.layers:
            raise InvalidInput("model: no layer")
        faults = self._form_faults() + _register_faults(self)
        if faults:
            raise InvalidInput(f"model: {'; '.join(faults)}")

    @property
    def inputs(self) -> tuple[int, ...]:
        """The register of each layer's input id: its wires stand before it, its outputs behind."""
        found, count = list[int](), 1
        for layer in self.layers:
            found.append(count + len(layer.wires))
            count = found[-1] + 1 + layer.outputs
        return tuple(found)

    @property
    def answering(self) -> int:
        """The register of the answer; of a weighted network it holds the readout."""
        first = self.inputs[-1] + 1
        return first if self.answer is None else first + self.layers[-1].outputs + len(self.wires)

    @property
    def symbols(self) -> int | None:
        """The number A of tokens; of a weighted network the least that a table holds, None if none reads the token."""
        if self.delta is not None:
            return self.delta.shape[1] if self.delta.ndim == 2 else 0
        tables = [(table, reads) for _, _, table, reads in self.tables()]
        return min(
            (n for table, reads in tables for n, r in zip(table.shape, reads, strict=False) if r == 0), default=None
        )

    def tables(self) -> Iterator[tuple[str, int, Tensor, tuple[int, ...]]]:
        """Every table of registers, in order: its name, the register that it makes, the table, what it reads."""
        for number, (layer, own) in enumerate(zip(self.layers, self.inputs, strict=True)):
            for i, wire in enumerate(layer.wires):
                yield f"layers.{number}.wires.{i}", own - len(layer.wires) + i, wire.table, wire.reads
            yield f"layers.{number}.route", own, layer.route, layer.reads
        if self.answer is not None:
            for i, wire in enumerate(self.wires):
                yield f"answer.wires.{i}", self.answering - len(self.wires) + i, wire.table, wire.reads
            yield "answer", self.answering, self.answer.table, self.answer.reads

    def last_reads(self) -> dict[int, int]:
        """For each register that is needed, the last register that is made from it; for the answer its own."""
        found: dict[int, int] = {}
        for _, register, _, reads in self.tables():
            found |= dict.fromkeys(reads, register)
        found[self.answering] = self.answering
        for own, layer in zip(self.inputs, self.layers, strict=True):
            found[own] = max(found.get(own, 0), own + layer.outputs)
        return found

    def _form_faults(self) -> list[str]:
        faults = [
            f"layers.{number} has no codebook, which only the last layer may lack"
            for number, layer in enumerate(self.layers[:-1])
            if not layer.codebooks
        ]
        last = self.layers[-1]
        if self.delta is None and last.codebooks:
            faults.append("no automaton; the last layer must then have no codebook")
        if self.delta is not None and not last.codebooks:
            faults.append("the last layer has no codebook; there must then be no automaton")
        if self.delta is not None:
            states = self.delta.shape[0] if self.delta.ndim == 2 else 0
            faults += _table_faults("delta", self.delta, 2, states, least=0)
            if not 0 <= self.start < states:
                faults.append(f"start {self.start}, expected 0..{states - 1}")
        if self.answer is None and last.outputs != 1:
            faults.append(f"no answer table, and the last layer has {last.outputs} outputs and no emit table")
        if self.answer is None and self.wires:
            faults.append(f"{len(self.wires)} wires of the answer, and no answer table")
        if self.answer is not None and not last.codebooks:
            faults.append("an answer table, and a last layer whose readout is the answer")
        for i, wire in enumerate(self.wires):
            faults += _look_up_faults(f"answer.wires.{i}", wire.table, wire.reads)
        if self.answer is not None:
            faults += _look_up_faults("answer", self.answer.table, self.answer.reads)
        return faults


def model_of(weights: Weights) -> Model:
    """The executable network on the CPU; `run` moves and rounds it.

    Raises:
        InvalidInput: a tensor that is missing, of another type or shape than the layout says, or not in the layout; a
            number out of range. All faults that can be seen at once are listed, each with the tensor's name.
    """
    file, dfa = _File(weights.tensors), weights.automaton if isinstance(weights.automaton, Dfa) else None
    numbers = sorted({int(match[1]) for name in weights.tensors if (match := _NUMBERED.fullmatch(name))})
    if not numbers or numbers != list(range(len(numbers))):
        file.faults.append(f"tensors of layers {numbers}, expected 0, 1, ...")
    layers = [file.layer(f"layers.{n}.", weighted=dfa is None and n == numbers[-1]) for n in numbers]
    wires = file.wires("answer.")
    answer = Wire(file.table("answer"), file.reads("answer.")) if wires or file.has("answer") else None
    file.finish()
    found = tuple(layer for layer in layers if layer is not None)
    if dfa is None:
        return Model(found, None, 0, answer, wires)
    return Model(found, _tensor(dfa.delta), dfa.start, answer, wires)


def encode_words(words: Sequence[Sequence[str]], weights: Weights) -> Tensor:
    """Words as token numbers [words, longest], -1 after the end of a word; InvalidWord for a foreign symbol."""
    codes = [weights.automaton.encode(word) for word in words]
    table = np.full((len(codes), max((len(c) for c in codes), default=0)), -1, dtype=np.int32)
    for row, code in zip(table, codes, strict=True):
        row[: len(code)] = code
    return _tensor(table)


def random_tokens(symbols: int, batch: int, start: int, stop: int, *, seed: int, device: torch.device | str) -> Tensor:
    """Uniform tokens [batch, stop - start] int32 that depend on (seed, word, position) only.

    They are the same on every device and for every chunking: a 64-bit mixing hash (splitmix64) of word and position.
    The bias of the remainder is below symbols/2^31.
    """
    position = torch.arange(start, stop, dtype=torch.int64, device=device)
    word = torch.arange(batch, dtype=torch.int64, device=device)
    x = _mixed(_mixed(word + seed * 0x632BE5AB)[:, None] + position[None, :])
    return ((x & 0x7FFFFFFF) % symbols).to(torch.int32)


class _File:
    """The tensors of a file: takes out what the layout names and collects all faults."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self._tensors = tensors
        self._asked: set[str] = set()
        self.faults: list[str] = []

    def has(self, name: str) -> bool:
        """Whether there is a tensor of this name."""
        return name in self._tensors

    def floats(self, name: str) -> Tensor:
        """A tensor of floats; an empty one and a fault if there is none."""
        return self._take(name, tuple(FORMATS))

    def table(self, name: str) -> Tensor:
        """A tensor of integers; an empty one and a fault if there is none."""
        return self._take(name, ("int32",))

    def reads(self, prefix: str) -> tuple[int, ...]:
        """The registers that a table reads."""
        name = prefix + "reads"
        numbers = self.table(name)
        if numbers.ndim != 1 or numbers.numel() > 2:
            self.faults.append(f"{name} has shape {tuple(numbers.shape)}, expected [at most 2]")
            return ()
        return tuple(int(number) for number in numbers)

    def wires(self, prefix: str) -> tuple[Wire, ...]:
        """The wires "wires.0", "wires.1", ... behind `prefix`, with what they read."""
        pattern = re.compile(re.escape(prefix) + r"wires\.(0|[1-9][0-9]{0,5})(\.reads)?")
        numbers = sorted({int(match[1]) for name in self._tensors if (match := pattern.fullmatch(name))})
        if numbers != list(range(len(numbers))):
            self.faults.append(f"{prefix}wires are numbered {numbers}, expected 0, 1, ...")
        names = [f"{prefix}wires.{number}" for number in numbers]
        return tuple(Wire(self.table(name), self.reads(name + ".")) for name in names)

    def layer(self, prefix: str, *, weighted: bool) -> LayerModel | None:
        """One layer, or None and its faults."""
        before = len(self.faults)
        floats = {name: self.floats(prefix + name) for name in ("keys", "betas", "gates", "queries", "state")}
        optional = [name for name in ("values", "bias", "dense", "unit") if self.has(prefix + name)]
        floats |= {name: self.floats(prefix + name) for name in optional}
        queries = floats["queries"]
        heads = 0 if weighted or queries.ndim != 3 else queries.shape[1]
        codebooks = tuple(self.floats(f"{prefix}codebook.{h}") for h in range(heads))
        labels = tuple(self.table(f"{prefix}labels.{h}") for h in range(heads))
        emit = self.table(prefix + "emit") if self.has(prefix + "emit") else None
        route, reads, wires = self.table(prefix + "route"), self.reads(prefix), self.wires(prefix)
        if len(self.faults) > before:
            return None
        try:
            return LayerModel(LayerTables(**floats), route, codebooks, labels, emit, reads, wires)
        except InvalidInput as error:
            self.faults.append(f"{prefix.rstrip('.')}: {error}")
            return None

    def finish(self) -> None:
        """Refuse the file if it has faults, tensors that the layout does not know among them."""
        foreign = sorted(set(self._tensors) - self._asked)
        if foreign:
            self.faults.append(f"not in the layout: {', '.join(foreign)}")
        if self.faults:
            raise InvalidInput(f"weights: {'; '.join(self.faults)}")

    def _take(self, name: str, kinds: tuple[str, ...]) -> Tensor:
        self._asked.add(name)
        array = self._tensors.get(name)
        if array is None:
            self.faults.append(f"no tensor {name}")
        elif array.dtype.name not in kinds:
            self.faults.append(f"{name} has dtype {array.dtype.name}, expected {' or '.join(kinds)}")
        else:
            return _tensor(array)
        return torch.zeros(0)


def _register_faults(model: Model) -> list[str]:
    """Registers that are read before they are made, and tables that do not cover the values of what they read."""
    faults: list[str] = []
    greatest = [(model.symbols or 0) - 1]
    layers = dict(zip(model.inputs, model.layers, strict=True))
    for name, register, table, reads in model.tables():
        early = [r for r in reads if not 0 <= r < register]
        if early:
            faults.append(f"{name} reads registers {early}, expected 0..{register - 1}")
        for size, r in zip(table.shape, reads, strict=False):
            if r not in early and greatest[r] >= size:
                shape = tuple(table.shape)
                faults.append(f"{name} has shape {shape}, and register {r} holds values up to {greatest[r]}")
        greatest.append(_greatest(table))
        if (layer := layers.get(register)) is not None:
            tables = layer.labels if layer.emit is None else (layer.emit,)
            greatest += [_greatest(codes) for codes in tables] or [-1]
    return faults


def _look_up_faults(name: str, table: Tensor, reads: tuple[int, ...], count: int | None = None) -> list[str]:
    """What is wrong with a table that makes a register from others."""
    faults = _table_faults(name, table, len(reads), count)
    return faults if len(reads) <= 2 else [*faults, f"{name} reads {len(reads)} registers, expected at most 2"]


def _table_faults(name: str, table: Tensor, dimensions: int, count: int | None = None, least: int = -1) -> list[str]:
    """What is wrong with a table of integers: its type, its dimensions, numbers outside least..count-1."""
    faults: list[str] = []
    if table.dtype != torch.int32:
        faults.append(f"{name} has dtype {str(table.dtype).removeprefix('torch.')}, expected int32")
    shape = tuple(table.shape)
    if len(shape) != dimensions and not (dimensions == 0 and shape == (1,)):
        faults.append(f"{name} has shape {shape}, expected {dimensions} dimensions")
    if table.numel():
        low, high = (int(end) for end in torch.aminmax(table))
        if low < least or (count is not None and high >= count):
            above = "" if count is None else f"{count - 1}"
            faults.append(f"{name} holds values from {low} to {high}, expected {least}..{above}")
    return faults


def _greatest(table: Tensor) -> int:
    return int(table.max()) if table.numel() else -1


def _mixed(x: Tensor) -> Tensor:
    x = x * -7046029254386353131
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right of a signed 64-bit integer."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _tensor(array: Array) -> Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.as_tensor(array.view(np.int16).copy()).view(torch.bfloat16)
    if array.dtype.itemsize == 1:
        return torch.as_tensor(array.view(np.uint8).copy()).view(getattr(torch, array.dtype.name))
    return torch.as_tensor(array.copy())
