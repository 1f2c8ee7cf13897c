"""Runs a whole program, layer by layer, and counts the tokens where it and its automaton differ.

Layer l reads the token and the symbols of the layers below, which select an input id (`route`); the readout of each
head is decoded to its nearest codeword and that to a code (`labels`), and the codes of the heads to the layer's
symbol (`emit`). The last layer's symbol is the answer, to be compared with the automaton's state. Everything stays
on the device; time is cut into chunks with carried states, which changes no number.

Main definitions: `LayerModel`, `Model`, `execute`, `Trace`, `Executor`.

References: `statetrack.kernels.reference` for the recurrence, the decoding and the walk.
"""
# ruff: noqa: F722

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable

from .reference import LayerTables, arithmetic, nearest, recurrent, walk
from .tracker import WIDEST, is_available, is_interpreted, nearest_triton, tracker, walk_triton

if TYPE_CHECKING:
    from jaxtyping import Int

Executor = Literal["auto", "triton", "reference"]
TokenSource = Callable[[int, int], Tensor]

_BUFFER_BYTES = 512 * 2**20


@dataclass(frozen=True, eq=False)
class LayerModel:
    """A layer: its tables, where its input ids come from, and how its readouts become a symbol.

    `route` holds input ids: [token] in the first layer, [input id of the layer below, its symbol] above, so that an
    input id stands for the token with the symbols of all layers below; -1 for a combination that never occurs.
    Head h decodes the first V_h columns of its readout with `codebooks[h]` [C_h, V_h], V_h ≤ V; codeword c stands
    for the code `labels[h][c]`, -1 for none. `emit`, indexed by the codes of all heads, holds the symbol, -1 for
    none; None means one head, whose code is the symbol. Integer tables are int32.

    Raises:
        InvalidInput: shapes or ranges that do not fit; all of them are listed.
    """

    tables: LayerTables
    route: Tensor
    codebooks: tuple[Tensor, ...]
    labels: tuple[Tensor, ...]
    emit: Tensor | None = None

    def __post_init__(self) -> None:
        ids, heads, _, _, columns = self.tables.shape
        faults: list[str] = []
        if self.route.ndim == 0 or _greatest(self.route) >= ids:
            faults.append(f"route holds input ids up to {_greatest(self.route)}, the tables have {ids}")
        if not heads == len(self.codebooks) == len(self.labels):
            faults.append(f"{heads} heads, {len(self.codebooks)} codebooks and {len(self.labels)} label tables")
        for h, (codebook, labels) in enumerate(zip(self.codebooks, self.labels, strict=False)):
            if codebook.ndim != 2 or labels.shape != codebook.shape[:1] or codebook.shape[1] > columns:
                faults.append(
                    f"head {h}: codebook {tuple(codebook.shape)} and labels {tuple(labels.shape)}, expected "
                    f"[C, at most {columns}] and [C]"
                )
        if self.emit is None and heads != 1:
            faults.append(f"no emit table, which needs one head, not {heads}")
        if self.emit is not None:
            greatest = [_greatest(labels) for labels in self.labels]
            if self.emit.ndim != heads or any(g >= n for g, n in zip(greatest, self.emit.shape, strict=False)):
                faults.append(f"emit has shape {tuple(self.emit.shape)}, the heads' codes go up to {greatest}")
        if faults:
            raise InvalidInput(f"layer model: {'; '.join(faults)}")

    @property
    def greatest_symbol(self) -> int:
        """The greatest symbol that the layer can emit; -1 if none."""
        return _greatest(self.labels[0] if self.emit is None else self.emit)

    def to(self, device: torch.device | str, storage: torch.dtype) -> LayerModel:
        """The same layer on `device`: tables rounded to `storage`, codebooks to `arithmetic(storage)`."""
        return LayerModel(
            tables=self.tables.to(device, storage),
            route=self.route.to(device).contiguous(),
            codebooks=tuple(codebook.to(device, arithmetic(storage)).contiguous() for codebook in self.codebooks),
            labels=tuple(labels.to(device).contiguous() for labels in self.labels),
            emit=None if self.emit is None else self.emit.to(device).contiguous(),
        )


@dataclass(frozen=True, eq=False)
class Model:
    """A program's layers, bottom first, and the automaton they track: `delta` [Q, A] int32 and its start state.

    Raises:
        InvalidInput: a route whose axes do not fit the tokens, or the ids and symbols of the layer below, a start
            outside 0..Q-1, or no layer.
    """

    layers: tuple[LayerModel, ...]
    delta: Tensor
    start: int

    def __post_init__(self) -> None:
        if not self.layers or self.delta.ndim != 2 or not 0 <= self.start < self.delta.shape[0]:
            raise InvalidInput(
                f"model: {len(self.layers)} layers, delta of shape {tuple(self.delta.shape)}, start {self.start}; "
                "expected a layer, [Q, A] and a start in 0..Q-1"
            )
        least = [self.delta.shape[1]]
        for number, layer in enumerate(self.layers, start=1):
            sizes = tuple(layer.route.shape)
            if len(sizes) != len(least) or any(size < need for size, need in zip(sizes, least, strict=True)):
                raise InvalidInput(
                    f"model: route of layer {number} has shape {sizes}, expected at least {tuple(least)}"
                )
            least = [layer.tables.shape[0], layer.greatest_symbol + 1]


@dataclass(frozen=True, eq=False)
class Trace:
    """What an execution found; positions and counts are of real tokens (not -1).

    `answers` [B, T] int32 (None unless kept) holds the last layer's symbols, and -1 at padding and from the first
    token of a word on where no codeword, no symbol or an impossible route came up: the rest of that word is wrong.
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
    device: torch.device | str = "cpu",
    executor: Executor = "auto",
    chunk: int | None = None,
    keep_answers: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """Run `model` on a batch of words and compare it with its automaton after every token.

    Args:
        tokens: symbols in 0..A-1, -1 where there is none; or a function of (start, stop) that returns the columns
            start..stop-1, called in order and first with (0, 0); then `length` is the number of columns.
        storage: float64, float32 or bfloat16, see `reference.recurrent`.
        executor: "auto" is Triton where it runs and K, V ≤ 64, else the reference on the same device.
        chunk: columns at a time; None keeps the largest buffer near 512 MiB.
        keep_answers: whether the answers (4 bytes a token, on the device) are kept.
        progress: called after each chunk with the tokens done, padding included.

    Raises:
        KernelUnavailable: Triton was asked for and cannot run this model here.
        InvalidInput: a token out of range, a missing or superfluous `length`, an unknown executor or storage type.
    """
    kernels = _choose(model, torch.device(device), executor, storage)
    source, batch, time = _source(tokens, length)
    layers = tuple(layer.to(device, storage) for layer in model.layers)
    step = chunk if chunk is not None else _columns(layers, batch, storage)
    if step < 1:
        raise InvalidInput(f"chunk: got {step}, expected at least 1")
    run = _Run(kernels, layers, model.delta.to(device).contiguous(), model.start, batch, time, keep_answers)
    for start in range(0, time, step):
        stop = min(start + step, time)
        columns = source(start, stop)
        if tuple(columns.shape) != (batch, stop - start):
            raise InvalidInput(
                f"tokens({start}, {stop}): shape {tuple(columns.shape)}, expected {(batch, stop - start)}"
            )
        run.advance(columns.to(device).contiguous(), start)
        if progress is not None:
            progress(batch * stop)
    return run.trace()


@dataclass(frozen=True)
class _Kernels:
    """One of the two implementations of the room's three functions, and its name for the result."""

    recurrent: Callable[..., tuple[Tensor, Tensor]]
    nearest: Callable[[Tensor, Tensor], Tensor]
    walk: Callable[[Tensor, Tensor, Tensor], Tensor]
    storage: torch.dtype
    name: str


class _Run:
    """The carried states and the counts of one execution, all on the device."""

    def __init__(
        self,
        kernels: _Kernels,
        layers: tuple[LayerModel, ...],
        delta: Tensor,
        start: int,
        batch: int,
        time: int,
        keep_answers: bool,
    ) -> None:
        device = delta.device
        self._kernels, self._layers, self._delta, self._time = kernels, layers, delta, time
        self._states: list[Tensor | None] = [None] * len(layers)
        self._truth = torch.full((batch,), start, dtype=torch.int32, device=device)
        self._dead, self._spoiled = (torch.zeros(batch, dtype=torch.bool, device=device) for _ in range(2))
        self._wrong, self._tokens = (torch.zeros((), dtype=torch.int64, device=device) for _ in range(2))
        self._first = torch.full((), time, dtype=torch.int64, device=device)
        self._answers = torch.full((batch, time), -1, dtype=torch.int32, device=device) if keep_answers else None

    def advance(self, tokens: Tensor, start: int) -> None:
        """Run the columns `tokens` [B, t], of which the first stands at position `start`."""
        truth = self._kernels.walk(self._delta, tokens, self._truth)
        if tokens.shape[1]:
            self._truth = truth[:, -1].contiguous()
        real = tokens >= 0
        symbols = self._symbols(tokens)
        dead = ((real & (symbols < 0)).cumsum(1, dtype=torch.int32) > 0) | self._dead[:, None]
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

    def _symbols(self, tokens: Tensor) -> Tensor:
        """The last layer's symbols [B, t] int32; -1 where there is none."""
        keys = [tokens]
        for number, layer in enumerate(self._layers):
            ids = _look_up(layer.route, keys)
            readouts, self._states[number] = self._kernels.recurrent(
                layer.tables, ids, self._states[number], storage=self._kernels.storage
            )
            keys = [ids, torch.where(ids >= 0, self._decode(layer, readouts), -1)]
        return keys[-1]

    def _decode(self, layer: LayerModel, readouts: Tensor) -> Tensor:
        """The symbols [B, t] that readouts [B, t, H, V] stand for."""
        batch, time, heads, columns = readouts.shape
        rows = readouts.view(batch * time, heads, columns)
        codes = [
            _look_up(labels, [self._kernels.nearest(rows[:, h, : codebook.shape[1]], codebook).view(batch, time)])
            for h, (codebook, labels) in enumerate(zip(layer.codebooks, layer.labels, strict=True))
        ]
        return codes[0] if layer.emit is None else _look_up(layer.emit, codes)


def _look_up(table: Tensor, indices: list[Tensor]) -> Tensor:
    """The entries (int32) of an n-dimensional table at n index tensors of one shape; -1 where an index is -1."""
    flat = torch.zeros_like(indices[0], dtype=torch.int64)
    known = torch.ones_like(indices[0], dtype=torch.bool)
    for size, index in zip(table.shape, indices, strict=True):
        known &= index >= 0
        flat = flat * size + index.clamp(min=0)
    if table.numel() == 0:
        return torch.full_like(indices[0], -1, dtype=torch.int32)
    return torch.where(known, table.view(-1)[flat], -1).int()


def _choose(model: Model, device: torch.device, executor: str, storage: torch.dtype) -> _Kernels:
    """The implementation that `executor` asks for on `device`."""
    if executor not in ("auto", "triton", "reference"):
        raise InvalidInput(f"executor {executor!r}: expected 'auto', 'triton' or 'reference'")
    formats = f"{_bare(storage)} storage, {_bare(arithmetic(storage))} arithmetic, recurrent order"
    place = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    available, why = is_available()
    if available and not is_interpreted() and device.type != "cuda":
        available, why = False, f"the device is {device}, and the kernels are {why}"
    widest = max(max(layer.tables.shape[3:]) for layer in model.layers)
    if available and widest > WIDEST:
        available, why = False, f"K or V is {widest}, at most {WIDEST}"
    if executor == "triton" and not available:
        raise KernelUnavailable("tracker", why, "use executor='reference' or 'auto'")
    if executor == "reference" or not available:
        return _Kernels(recurrent, nearest, walk, storage, f"reference on {place}, {formats}")
    place += " (interpreted)" if is_interpreted() else ""
    return _Kernels(tracker, nearest_triton, walk_triton, storage, f"triton tracker on {place}, {formats}")


def _source(tokens: Tensor | TokenSource, length: int | None) -> tuple[TokenSource, int, int]:
    """The tokens as a function of (start, stop), with their shape [B, T]."""
    if isinstance(tokens, Tensor):
        if tokens.ndim != 2 or length not in (None, tokens.shape[1]):
            raise InvalidInput(f"tokens: shape {tuple(tokens.shape)} with length {length}; expected [B, T]")
        return lambda start, stop: tokens[:, start:stop], tokens.shape[0], tokens.shape[1]
    if length is None or length < 0:
        raise InvalidInput(f"tokens: a function needs its length, got {length}")
    return tokens, tokens(0, 0).shape[0], length


def _columns(layers: tuple[LayerModel, ...], batch: int, storage: torch.dtype) -> int:
    """How many columns keep the largest buffer (the readouts, or int64 indices) near 512 MiB."""
    number = torch.finfo(arithmetic(storage)).bits // 8
    widest = max(layer.tables.shape[1] * layer.tables.shape[4] * number for layer in layers)
    return max(1, _BUFFER_BYTES // max(1, batch * max(8, widest)))


def _greatest(table: Tensor) -> int:
    return int(table.max()) if table.numel() else -1


def _bare(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
