"""Runs a whole network, layer by layer, and counts the tokens where it and its automaton differ.

The registers of `statetrack.kernels.load` are made one after another for a chunk of columns and dropped after their
last use; the readout of each head is decoded to its nearest codeword and that to a code. The answer is compared with
the automaton's state; a weighted network's answer is the readout. Everything stays on the device; time is cut into
chunks with carried states, which changes no number.

Main definitions: `execute`, `values`, `Trace`, `Executor`.

References: `statetrack.kernels.reference` for the recurrence, the decoding and the walk.
"""
# ruff: noqa: F722

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable

from .load import LayerModel, Model, Wire
from .reference import arithmetic, check_ids, nearest, recurrent, walk
from .restarts import Restarts
from .tracker import WIDEST, is_available, is_interpreted, nearest_triton, tracker, walk_triton

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Executor = Literal["auto", "triton", "reference"]
TokenSource = Callable[[int, int], Tensor]
Progress = Callable[[int], None]

_BUFFER_BYTES = 512 * 2**20


@dataclass(frozen=True, eq=False)
class Trace:
    """What an execution found; positions and counts are of real tokens (not -1).

    `answers` [B, T] int32 (None unless kept) holds the network's answers, and -1 at padding and from the first token of
    a word on where a layer had an impossible route, or no answer came up: the rest of that word is wrong.
    `wrong` counts answers that are not the automaton's state, `wrong_words` the words with one, `first_wrong` is the
    smallest token position (from 0) over all words or None. `executor` names kernel, device, formats and order.
    """

    answers: Tensor | None
    wrong: int
    first_wrong: int | None
    wrong_words: int
    tokens: int
    executor: str


def execute(
    model: Model,
    tokens: Int[Tensor, "batch time"] | TokenSource,
    *,
    length: int | None = None,
    storage: torch.dtype = torch.float32,
    tables_as: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    executor: Executor = "auto",
    chunk: int | None = None,
    keep_answers: bool = True,
    progress: Progress | None = None,
    observe: Callable[[Sequence[Tensor]], None] | None = None,
    renormalise: int | None = None,
) -> Trace:
    """Run `model` on a batch of words and compare it with its automaton after every token.

    Args:
        tokens: symbols in 0..A-1, -1 where there is none; or a function of (start, stop) that returns the columns
            start..stop-1, called in order and first with (0, 0); then `length` is the number of columns.
        storage, tables_as: number formats of the state and of the tables (None: as the state), see
            `reference.recurrent`.
        executor: "auto" is Triton where it is compiled and K, V ≤ 64, else the reference on the same device; "triton"
            takes its interpreter too (TRITON_INTERPRET=1).
        chunk: columns at a time; None keeps the registers and the largest buffer near 512 MiB together.
        keep_answers: whether the answers (4 bytes a token, on the device) are kept.
        progress: called after each chunk with the tokens done, padding included.
        observe: called after each chunk with the state [B, H, K, V] of every layer, on the device.
        renormalise: after every so many columns replace the state by a fresh one (`restarts`); a chunk is at most that.

    Raises:
        KernelUnavailable: Triton was asked for and cannot run this model here.
        InvalidInput: a token out of range, a missing or superfluous `length`, an unknown executor or storage type,
            a weighted model.
    """
    if model.delta is None:
        raise InvalidInput("execute: a weighted model has no automaton to be compared with; use values")
    if renormalise is not None:
        if renormalise < 1 or chunk is not None or not model.delta.shape[1]:
            raise InvalidInput(f"renormalise: got {renormalise}, expected at least 1, no chunk, and an alphabet")
        chunk = renormalise
    job = _job(model, tokens, length, storage, torch.device(device), executor, chunk, progress, tables_as)
    network = _Network(model, job.kernels, job.device)
    restarts = None if renormalise is None else _restarts(model, job)
    score = _Score(job, model.delta.to(device).contiguous(), model.start, keep_answers)
    for start, columns in job.columns():
        # The walk comes first, for it refuses tokens out of range.
        truth = score.walk(columns)
        answers, lost = network.advance(columns)
        score.compare(start, columns, truth, answers, lost)
        if observe is not None:
            observe(network.states())
        if restarts is not None:
            network.replace(restarts(network.states(), answers[:, -1]))
    return score.trace()


def values(
    model: Model,
    tokens: Int[Tensor, "batch time"] | TokenSource,
    *,
    length: int | None = None,
    storage: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    executor: Executor = "auto",
    chunk: int | None = None,
    progress: Progress | None = None,
) -> Float[Tensor, "batch time"]:
    """The readouts of a weighted `model` after every token, in `arithmetic(storage)`, on the device.

    NaN at padding, and from the first token of a word on where a layer had an impossible route. Arguments: see
    `execute`; tokens count up to the least table that they select from.

    Raises:
        KernelUnavailable: Triton was asked for and cannot run this model here.
        InvalidInput: as `execute`; a model that answers with symbols.
    """
    if model.delta is not None:
        raise InvalidInput("values: this model answers with states of an automaton; use execute")
    job = _job(model, tokens, length, storage, torch.device(device), executor, chunk, progress)
    network = _Network(model, job.kernels, job.device)
    found = torch.full((job.batch, job.time), torch.nan, dtype=arithmetic(storage), device=device)
    dead = torch.zeros(job.batch, dtype=torch.bool, device=device)
    for start, columns in job.columns():
        check_ids(columns, 2**31 if model.symbols is None else model.symbols, "values: tokens")
        readouts, lost = network.advance(columns)
        assert lost is not None
        real = columns >= 0
        gone = _ever_since(dead, lost & real)
        found[:, start : start + columns.shape[1]] = torch.where(gone | ~real, torch.nan, readouts)
        dead = gone[:, -1].contiguous()
    return found


@dataclass(frozen=True)
class _Kernels:
    """One of the two implementations of the room's three functions, and its name for the result."""

    recurrent: Callable[..., tuple[Tensor, Tensor]]
    nearest: Callable[[Tensor, Tensor], Tensor]
    walk: Callable[[Tensor, Tensor, Tensor], Tensor]
    storage: torch.dtype
    tables_as: torch.dtype
    name: str
    accumulate: torch.dtype | None = None


@dataclass(frozen=True)
class _Job:
    """What runs where: the kernels, the source of the tokens [B, T], and how many columns at a time."""

    kernels: _Kernels
    device: torch.device
    source: TokenSource
    batch: int
    time: int
    step: int
    progress: Progress | None

    def columns(self) -> Iterator[tuple[int, Tensor]]:
        """The chunks of columns with the position of the first; tells the progress when the next one is asked for."""
        for start in range(0, self.time, self.step):
            stop = min(start + self.step, self.time)
            columns = self.source(start, stop)
            expected = (self.batch, stop - start)
            if tuple(columns.shape) != expected:
                raise InvalidInput(f"tokens({start}, {stop}): shape {tuple(columns.shape)}, expected {expected}")
            yield start, columns.to(self.device).contiguous()
            if self.progress is not None:
                self.progress(self.batch * stop)


def _job(
    model: Model,
    tokens: Tensor | TokenSource,
    length: int | None,
    storage: torch.dtype,
    device: torch.device,
    executor: str,
    chunk: int | None,
    progress: Progress | None,
    tables_as: torch.dtype | None = None,
) -> _Job:
    kernels = _choose(model, device, executor, storage, tables_as or storage)
    source, batch, time = _source(tokens, length)
    step = chunk if chunk is not None else _columns(model, batch, storage)
    if step < 1:
        raise InvalidInput(f"chunk: got {step}, expected at least 1")
    return _Job(kernels, device, source, batch, time, step, progress)


class _Table:
    """A look-up table on the device: the entry at some registers, -1 where one of them is -1."""

    def __init__(self, wire: Wire, device: torch.device) -> None:
        self._reads = wire.reads or (0,)
        self._constant = not wire.reads
        self._sizes = (1,) if self._constant else tuple(wire.table.shape)
        # A -1 behind the table is what index -1 finds.
        self._entries = torch.nn.functional.pad(wire.table.reshape(-1).to(device), (0, 1), value=-1)

    def __call__(self, registers: Mapping[int, Tensor]) -> Tensor:
        flat: Tensor | None = None
        known: Tensor | None = None
        for register, size in zip(self._reads, self._sizes, strict=True):
            index = registers[register].clamp(max=0) if self._constant else registers[register]
            if flat is None:
                flat = index
            else:
                known = (flat >= 0) if known is None else known
                known = known & (index >= 0)
                flat = flat * size + index
        assert flat is not None
        return self._entries[flat if known is None else torch.where(known, flat, -1)]


class _Decoder:
    """The codebooks of a layer on the device; readouts to codes, and the emit table."""

    def __init__(self, layer: LayerModel, kernels: _Kernels, device: torch.device) -> None:
        exact = arithmetic(kernels.storage, kernels.accumulate)
        self._nearest = kernels.nearest
        self._codebooks = [codebook.to(device, exact).contiguous() for codebook in layer.codebooks]
        self._labels = [self._label(labels, device) for labels in layer.labels]
        heads = tuple(range(len(layer.labels)))
        self.emit = None if layer.emit is None else _Table(Wire(layer.emit, heads), device)

    def code(self, readouts: Tensor, ids: Tensor, head: int) -> Tensor:
        """The codes [B, t] of one head's readouts, -1 where there is no token."""
        batch, time, heads, columns = readouts.shape
        codebook, labels = self._codebooks[head], self._labels[head]
        rows = readouts.view(batch * time, heads, columns)[:, head, : codebook.shape[1]]
        found = self._nearest(rows, codebook).view(batch, time)
        return torch.where(ids >= 0, found if labels is None else labels({0: found}), -1)

    @staticmethod
    def _label(labels: Tensor, device: torch.device) -> _Table | None:
        """The table of codes; None if every codeword's number is its code."""
        if torch.equal(labels.cpu(), torch.arange(labels.shape[0], dtype=labels.dtype)):
            return None
        return _Table(Wire(labels, (0,)), device)


class _Network:
    """A model on the device with the states that it carries from chunk to chunk."""

    def __init__(self, model: Model, kernels: _Kernels, device: torch.device) -> None:
        self._model, self._kernels, self._last = model, kernels, model.last_reads()
        self._layers = [layer.tables.to(device, kernels.tables_as) for layer in model.layers]
        self._decoders = [_Decoder(layer, kernels, device) for layer in model.layers]
        self._states: list[Tensor | None] = [None] * len(model.layers)
        self._numbers = {own: number for number, own in enumerate(model.inputs)}
        self._tables = [
            (register, _Table(Wire(table, reads), device))
            for _, register, table, reads in model.tables()
            if register in self._last
        ]

    def advance(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """The answers (symbols or readouts) of the columns `tokens` [B, t], and where a layer had no route."""
        registers = {0: tokens}
        lost: Tensor | None = None
        for register, table in self._tables:
            registers[register] = made = table(registers)
            done = register
            if register in self._numbers:
                done += self._run(self._numbers[register], registers)
                # Where the layer's own symbol is the answer, the answer says it.
                if self._model.delta is None or self._model.answering != register + 1:
                    lost = made < 0 if lost is None else lost | (made < 0)
            for old in [r for r in registers if r and self._last[r] <= done and r != self._model.answering]:
                del registers[old]
        return registers[self._model.answering], lost

    def states(self) -> list[Tensor]:
        """The layers' states after the columns that were run."""
        return [state for state in self._states if state is not None]

    def replace(self, states: Sequence[Tensor]) -> None:
        """Go on from other states."""
        self._states = list(states)

    def _run(self, number: int, registers: dict[int, Tensor]) -> int:
        """Run a layer on its input ids, put the outputs that are needed into their registers; how many it has."""
        own, decoder = self._model.inputs[number], self._decoders[number]
        ids = registers[own]
        readouts, self._states[number] = self._kernels.recurrent(
            self._layers[number],
            ids,
            self._states[number],
            storage=self._kernels.storage,
            tables_as=self._kernels.tables_as,
        )
        if not self._model.layers[number].codebooks:
            registers[own + 1] = readouts[:, :, 0, 0]
        elif decoder.emit is None:
            for head in range(readouts.shape[2]):
                if own + 1 + head in self._last:
                    registers[own + 1 + head] = decoder.code(readouts, ids, head)
        elif own + 1 in self._last:
            registers[own + 1] = decoder.emit({h: decoder.code(readouts, ids, h) for h in range(readouts.shape[2])})
        return self._model.layers[number].outputs


def _restarts(model: Model, job: _Job) -> Restarts:
    """The states for a renormalising run, from the network itself."""
    network = _Network(model, job.kernels, job.device)

    def states_after(words: Tensor) -> list[Tensor]:
        network.advance(words)
        return network.states()

    assert model.delta is not None
    return Restarts(model.delta, model.start, states_after, job.device)


class _Score:
    """The automaton's states, and the counts of one execution, all on the device."""

    def __init__(self, job: _Job, delta: Tensor, start: int, keep_answers: bool) -> None:
        batch, time, device = job.batch, job.time, job.device
        self._kernels, self._delta, self._time = job.kernels, delta, time
        self._truth = torch.full((batch,), start, dtype=torch.int32, device=device)
        self._dead, self._spoiled = (torch.zeros(batch, dtype=torch.bool, device=device) for _ in range(2))
        self._wrong, self._tokens = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        self._first = torch.full((), time, dtype=torch.int64, device=device)
        self._answers = torch.full((batch, time), -1, dtype=torch.int32, device=device) if keep_answers else None

    def walk(self, tokens: Tensor) -> Tensor:
        """The automaton's states after the columns `tokens`."""
        truth = self._kernels.walk(self._delta, tokens, self._truth)
        self._truth = truth[:, -1].contiguous()
        return truth

    def compare(self, start: int, tokens: Tensor, truth: Tensor, symbols: Tensor, lost: Tensor | None) -> None:
        """Count the columns `tokens` [B, t], of which the first stands at position `start`."""
        real = tokens >= 0
        broken = symbols < 0 if lost is None else (symbols < 0) | lost
        dead = _ever_since(self._dead, broken & real)
        answers = torch.where(dead | ~real, -1, symbols)
        wrong = real & (answers != truth)
        position = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        self._dead = dead[:, -1].contiguous()
        self._spoiled = self._spoiled | wrong.any(1)
        self._wrong = self._wrong + wrong.sum()
        self._tokens = self._tokens + real.sum()
        first = torch.where(wrong.any(0), position, self._time).min()
        self._first = torch.minimum(self._first, first)
        if self._answers is not None:
            self._answers[:, start : start + tokens.shape[1]] = answers

    def trace(self) -> Trace:
        """The result so far; the only transfer from the device."""
        first = int(self._first)
        return Trace(
            answers=self._answers,
            wrong=int(self._wrong),
            first_wrong=first if first < self._time else None,
            wrong_words=int(self._spoiled.sum()),
            tokens=int(self._tokens),
            executor=self._kernels.name,
        )


def _ever_since(before: Tensor, event: Tensor) -> Tensor:
    """Where `event` [B, t] holds or held, or `before` [B] did."""
    return (event.cumsum(1, dtype=torch.int32) > 0) | before[:, None]


def _choose(
    model: Model, device: torch.device, executor: str, storage: torch.dtype, tables_as: torch.dtype
) -> _Kernels:
    """The implementation that `executor` asks for on `device`."""
    if executor not in ("auto", "triton", "reference"):
        raise InvalidInput(f"executor {executor!r}: expected 'auto', 'triton' or 'reference'")
    kept = "" if tables_as is storage else f"{_bare(tables_as)} tables, "
    formats = f"{kept}{_bare(storage)} storage, {_bare(arithmetic(storage))} arithmetic, recurrent order"
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    available, why = is_available()
    if available and not is_interpreted() and device.type != "cuda":
        available, why = False, f"the device is {device}, and the kernels are {why}"
    widest = max(max(layer.tables.shape[3:]) for layer in model.layers)
    if available and is_interpreted() and storage.itemsize < 2:
        available, why = False, f"the interpreter has no {_bare(storage)}"
    if available and widest > WIDEST:
        available, why = False, f"K or V is {widest}, at most {WIDEST}"
    if executor == "triton" and not available:
        raise KernelUnavailable("tracker", why, "use executor='reference' or 'auto'")
    # Triton's interpreter is many times slower than the reference: it runs where it is asked for by name.
    if executor == "reference" or not available or (executor == "auto" and is_interpreted()):
        return _Kernels(recurrent, nearest, walk, storage, tables_as, f"reference on {place}, {formats}")
    place += " (interpreted)" if is_interpreted() else ""
    return _Kernels(tracker, nearest_triton, walk_triton, storage, tables_as, f"triton tracker on {place}, {formats}")


def _source(tokens: Tensor | TokenSource, length: int | None) -> tuple[TokenSource, int, int]:
    """The tokens as a function of (start, stop), with their shape [B, T]."""
    if isinstance(tokens, Tensor):
        if tokens.ndim != 2 or length not in (None, tokens.shape[1]):
            raise InvalidInput(f"tokens: shape {tuple(tokens.shape)} with length {length}; expected [B, T]")
        return lambda start, stop: tokens[:, start:stop], tokens.shape[0], tokens.shape[1]
    if length is None or length < 0:
        raise InvalidInput(f"tokens: a function needs its length, got {length}")
    return tokens, tokens(0, 0).shape[0], length


def _columns(model: Model, batch: int, storage: torch.dtype) -> int:
    """How many columns keep the live registers with a layer's readouts or an int64 index near 512 MiB."""
    number, last = torch.finfo(arithmetic(storage)).bits // 8, model.last_reads()
    made = [register for _, register, _, _ in model.tables() if register in last]
    layers = dict(zip(model.inputs, model.layers, strict=True))
    most = 8
    for register in made:
        layer = layers.get(register)
        outputs = 0 if layer is None else layer.outputs
        live = sum(r <= register + outputs and until >= register for r, until in last.items())
        buffer = 8
        if layer is not None:
            _, heads, _, _, columns = layer.tables.shape
            live += heads if layer.emit is not None else 0
            buffer = max(8, heads * columns * number)
        most = max(most, 4 * live + buffer)
    return max(1, _BUFFER_BYTES // max(1, batch * most))


def _bare(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
