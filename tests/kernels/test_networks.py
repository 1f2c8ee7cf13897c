"""Networks with wires, many heads, floors, answer tables and readouts as answers, against a walk in plain Python."""

# S is the papers' letter for the state.
# pyright: reportConstantRedefinition=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from statetrack.errors import InvalidInput, KernelUnavailable
from statetrack.kernels import run
from statetrack.kernels.load import LayerModel, Model, Wire
from statetrack.kernels.reference import LayerTables
from statetrack.kernels.run import Executor, execute, values
from statetrack.kernels.tracker import is_available, is_interpreted

Numbers = NDArray[np.float64]
STORAGES = [torch.float64, torch.float32, torch.bfloat16]
DEVICE = "cuda" if torch.cuda.is_available() and not is_interpreted() else "cpu"
needs_kernels = pytest.mark.skipif(not is_available()[0], reason=f"the kernels cannot run here: {is_available()[1]}")
needs_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="real sizes need a CUDA device")
EXECUTORS = ["reference", pytest.param("triton", marks=needs_kernels)]
EXECUTORS_ALL: tuple[Executor, ...] = ("triton", "reference")
SYMBOLS = 3


def integers(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def random_tables(rng: np.random.Generator, ids: int, heads: int, columns: int) -> LayerTables:
    """Heads on which all formats are exact: writes of small integers, or halves and quarters under a floor."""
    rows, factors = int(rng.integers(1, 3)), int(rng.choice([0, 1, 1, 2]))
    unit = rng.choice([0.0, 0.0, 0.25, 1.0], heads)
    keys = np.eye(rows)[rng.integers(0, rows, (ids, heads, factors))]
    gates = rng.choice([-1.0, 0.0, 1.0], (ids, heads, factors, rows)) * np.where(unit > 0, 0.5, 1.0)[:, None, None]
    bias = (
        rng.integers(-2, 3, (ids, heads, factors, rows, columns)) * np.where(unit > 0, 0.25, 0.0)[:, None, None, None]
    )
    arrays: dict[str, NDArray[Any]] = {
        "keys": keys,
        "betas": rng.choice([0.0, 1.0], (ids, heads, factors)),
        "gates": gates,
        "queries": rng.choice([-1, 0, 1, 1], (ids, heads, rows)),
        "state": rng.integers(-2, 3, (heads, rows, columns)),
        "values": rng.integers(-2, 3, (ids, heads, factors, columns)),
        "bias": bias,
    }
    if unit.any():
        arrays["unit"] = unit
    return LayerTables(**{name: torch.as_tensor(array.astype(np.float64)) for name, array in arrays.items()})


class Builder:
    """Random networks; `sizes` holds a bound on the values of each register so far."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sizes = [SYMBOLS]

    def table(self, reads: tuple[int, ...], count: int) -> torch.Tensor:
        shape = [self.sizes[r] for r in reads]
        entries = self.rng.integers(0, count, shape)
        entries[self.rng.random(shape) < 0.03] = -1
        return torch.as_tensor(np.array(entries, dtype=np.int32))

    def reads(self, least: int = 1) -> tuple[int, ...]:
        count = int(self.rng.integers(least, 3))
        return tuple(int(r) for r in self.rng.integers(0, len(self.sizes), count))

    def wire(self) -> Wire:
        reads, count = self.reads(), int(self.rng.integers(1, 5))
        made = Wire(self.table(reads, count), reads)
        self.sizes.append(count)
        return made

    def layer(self, *, weighted: bool = False) -> LayerModel:
        wires = tuple(self.wire() for _ in range(int(self.rng.integers(0, 4))))
        reads, ids = (0, *self.reads()[:1]) if weighted else self.reads(0), int(self.rng.integers(2, 6))
        route = self.table(reads, ids)
        heads, columns = (1, 1) if weighted else (int(self.rng.integers(1, 4)), int(self.rng.integers(1, 3)))
        tables = random_tables(self.rng, ids, heads, columns)
        self.sizes.append(ids)
        if weighted:
            return LayerModel(tables, route, reads=reads, wires=wires)
        widths = [int(n) for n in self.rng.integers(1, columns + 1, heads)]
        codebooks = tuple(torch.as_tensor(self.rng.integers(-3, 4, (4, width)) / 2) for width in widths)
        labels = tuple(integers(*self.rng.choice(4, 4)) for _ in range(heads))
        if self.rng.random() < 0.3:
            labels = (*labels[:-1], integers(0, 1, 2, 3))
        codes, emit = [4] * heads, None
        if self.rng.random() < 0.5:
            codes, emit = [3], torch.as_tensor(self.rng.integers(0, 3, [4] * heads).astype(np.int32))
        self.sizes += codes
        return LayerModel(tables, route, codebooks, labels, emit, reads, wires)

    def model(self, *, weighted: bool = False) -> Model:
        layers = [self.layer() for _ in range(int(self.rng.integers(weighted, 4 - (not weighted))))]
        layers.append(self.layer(weighted=weighted))
        if weighted:
            return Model(tuple(layers), None)
        delta = torch.as_tensor(self.rng.integers(0, 3, (3, SYMBOLS)).astype(np.int32))
        if layers[-1].outputs == 1 and self.rng.random() < 0.5:
            return Model(tuple(layers), delta, 1)
        wires = tuple(self.wire() for _ in range(int(self.rng.integers(0, 3))))
        reads = self.reads()
        return Model(tuple(layers), delta, 1, Wire(self.table(reads, 3), reads), wires)


def look(table: torch.Tensor, reads: tuple[int, ...], registers: list[int]) -> int:
    index = tuple(registers[r] for r in reads)
    if not reads:
        return int(table.reshape(()))
    return int(table[index]) if min(index) >= 0 else -1


def move(named: Mapping[str, Numbers], i: int, h: int, S: Numbers) -> Numbers:
    """One head's state after a token, and its readout."""
    for j in range(named["betas"].shape[2]):
        k, beta = named["keys"][i, h, j], named["betas"][i, h, j]
        S = named["gates"][i, h, j][:, None] * S
        S = S + beta * np.outer(k, named["values"][i, h, j] - k @ S) + named["bias"][i, h, j]
    unit = named["unit"][h] if "unit" in named else 0
    return unit * np.floor(S / unit) if unit else S


def decode(readout: Numbers, layer: LayerModel, h: int) -> int:
    codebook = layer.codebooks[h].double().numpy()
    best = int(((readout[: codebook.shape[1]] - codebook) ** 2).sum(1).argmin())
    return int(layer.labels[h][best])


def slow_walk(model: Model, word: list[int]) -> list[float]:
    """The answers after each token, NaN where there is none and from the first impossible route on."""
    named = [{name: t.double().numpy() for name, t in layer.tables.named().items()} for layer in model.layers]
    states = [[t["state"][h] for h in range(t["state"].shape[0])] for t in named]
    found, dead = list[float](), False
    for token in word:
        registers, answer = [token], np.nan
        for layer, tables, state in zip(model.layers, named, states, strict=True):
            if token < 0:
                break
            for wire in layer.wires:
                registers.append(look(wire.table, wire.reads, registers))
            registers.append(i := look(layer.route, layer.reads, registers))
            codes, dead = [-1] * len(state), dead or i < 0
            for h in range(len(state) if i >= 0 else 0):
                state[h] = move(tables, i, h, state[h])
                readout = tables["queries"][i, h] @ state[h]
                codes[h] = decode(readout, layer, h) if layer.codebooks else 0
                answer = float(readout[0])
            registers += codes if layer.emit is None else [look(layer.emit, tuple(range(len(codes))), codes)]
        if token >= 0 and model.delta is not None:
            for wire in model.wires:
                registers.append(look(wire.table, wire.reads, registers))
            last = registers[-1] if model.answer is None else look(model.answer.table, model.answer.reads, registers)
            answer, dead = float(last), dead or last < 0
        found.append(np.nan if dead or token < 0 else answer)
    return found


def some_tokens(batch: int, time: int, seed: int = 0, symbols: int = SYMBOLS) -> torch.Tensor:
    tokens = torch.randint(0, symbols, (batch, time), generator=torch.Generator().manual_seed(seed))
    return torch.where(torch.rand(batch, time, generator=torch.Generator().manual_seed(seed)) < 0.1, -1, tokens)


def slowly(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    rows = [slow_walk(model, [int(token) for token in word]) for word in tokens]
    return torch.tensor(rows, dtype=torch.float64).reshape(tokens.shape)


def answers(model: Model, tokens: torch.Tensor, **options: object) -> torch.Tensor:
    found = execute(model, tokens, device=DEVICE, **options).answers  # pyright: ignore[reportArgumentType]
    assert found is not None
    return found.cpu()


def equal(got: torch.Tensor, expected: torch.Tensor) -> bool:
    return torch.equal(got.cpu().double().nan_to_num(99.0), expected.cpu().double().nan_to_num(99.0))


@pytest.mark.parametrize("seed", range(60))
def test_random_networks_follow_the_slow_walk(seed: int) -> None:
    model, tokens = Builder(seed).model(), some_tokens(4, 12, seed)
    expected = slowly(model, tokens).nan_to_num(-1.0)
    for storage in STORAGES:
        for chunk in (None, 5, 1):
            assert equal(answers(model, tokens, storage=storage, executor="reference", chunk=chunk), expected)
    trace = execute(model, tokens, device=DEVICE, executor="reference", keep_answers=False)
    truth, wrong = torch.full((4,), 1), torch.zeros(4, 12, dtype=torch.bool)
    assert model.delta is not None
    for t in range(12):
        real = tokens[:, t] >= 0
        truth = torch.where(real, model.delta[truth, tokens[:, t]].long(), truth)
        wrong[:, t] = real & (expected[:, t] != truth)
    assert (trace.wrong, trace.wrong_words) == (int(wrong.sum()), int(wrong.any(1).sum()))


@needs_kernels
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("seed", range(60, 66))
def test_random_networks_on_the_kernels_follow_the_slow_walk(seed: int, storage: torch.dtype) -> None:
    model, tokens = Builder(seed).model(), some_tokens(2, 5, seed)
    expected = slowly(model, tokens).nan_to_num(-1.0)
    assert equal(answers(model, tokens, storage=storage, executor="triton", chunk=3), expected)


@pytest.mark.parametrize("seed", range(100, 140))
def test_readouts_of_random_weighted_networks_follow_the_slow_walk(seed: int) -> None:
    model, tokens = Builder(seed).model(weighted=True), some_tokens(4, 12, seed)
    tokens = tokens.clamp(max=(model.symbols or SYMBOLS) - 1)
    expected, done = slowly(model, tokens), list[int]()
    for storage in STORAGES:
        whole = values(model, tokens, storage=storage, device=DEVICE, executor="reference")
        assert whole.dtype == (torch.float64 if storage == torch.float64 else torch.float32)
        assert equal(whole, expected)
        done.clear()
        parts = values(
            model,
            lambda start, stop: tokens[:, start:stop],
            length=12,
            storage=storage,
            device=DEVICE,
            executor="reference",
            chunk=5,
            progress=done.append,
        )
        assert equal(parts, expected)
        assert done == [20, 40, 48]


def counter(letters: Numbers, initial: Numbers, final: Numbers) -> Model:
    """A dense head: h <- M_token h, and the readout final·h."""
    symbols, size, _ = letters.shape
    tables = LayerTables(
        keys=torch.zeros(symbols, 1, 0, size),
        betas=torch.zeros(symbols, 1, 0),
        gates=torch.zeros(symbols, 1, 0, size),
        queries=torch.as_tensor(final).expand(symbols, 1, size),
        state=torch.as_tensor(initial).reshape(1, size, 1),
        dense=torch.as_tensor(letters)[:, None],
    )
    return Model((LayerModel(tables, torch.arange(symbols, dtype=torch.int32)),), None)


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("storage", STORAGES)
def test_values_are_those_of_numpy(executor: Executor, storage: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    letters, initial, final = rng.normal(size=(3, 4, 4)) / 2, rng.normal(size=4), rng.normal(size=4)
    tokens = some_tokens(2, 8)
    expected = np.full(tokens.shape, np.nan)
    for b in range(tokens.shape[0]):
        h = initial
        for t, token in enumerate(int(x) for x in tokens[b]):
            if token >= 0:
                h = letters[token] @ h
                expected[b, t] = final @ h
    got = values(counter(letters, initial, final), tokens, storage=storage, device=DEVICE, executor=executor)
    relative = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 0.1}[storage]
    scale = float(np.nanmax(np.abs(expected)))
    np.testing.assert_allclose(got.cpu().double().numpy(), expected, rtol=0, atol=relative * max(1.0, scale))


def test_values_refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    weighted = counter(np.ones((2, 1, 1)), np.ones(1), np.ones(1))
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    with pytest.raises(InvalidInput, match=r"use values"):
        execute(weighted, tokens)
    with pytest.raises(InvalidInput, match=r"use execute"):
        values(ring(2), tokens)
    with pytest.raises(InvalidInput, match=r"values: tokens: got values from 2 to 2, expected -1..1"):
        values(weighted, tokens + 2)
    with pytest.raises(InvalidInput, match=r"chunk: got 0"):
        values(weighted, tokens, chunk=0)
    assert values(weighted, tokens[:, :0]).shape == (1, 0)
    assert values(weighted, tokens[:0]).shape == (0, 3)
    monkeypatch.setattr("statetrack.kernels.run.is_available", lambda: (False, "no kernels here"))
    with pytest.raises(KernelUnavailable, match=r"no kernels here"):
        values(weighted, tokens, executor="triton")


def test_an_impossible_route_is_nan_for_the_rest_of_the_word() -> None:
    model = counter(np.array([[[1.0]], [[2.0]], [[1.0]]]), np.ones(1), np.ones(1))
    model = replace(model, layers=(replace(model.layers[0], route=integers(0, 1, -1)),))
    tokens = torch.tensor([[1, -1, 1, 2, 1, 0], [1, 1, 1, 1, -1, 1]])
    nan = torch.nan
    expected = torch.tensor([[2, nan, 4, nan, nan, nan], [2, 4, 8, 16, nan, 32]])
    for chunk in (None, 1, 4):
        assert equal(values(model, tokens, chunk=chunk), expected)


def write(ids: int, heads: int, entries: dict[tuple[int, int], float]) -> LayerTables:
    """Heads of one number, 0 at first; id i writes `entries[i, h]` into head h."""
    betas, written = torch.zeros(ids, heads, 1), torch.zeros(ids, heads, 1, 1)
    for (i, h), value in entries.items():
        betas[i, h, 0], written[i, h, 0, 0] = 1.0, value
    ones = torch.ones(ids, heads, 1, 1)
    return LayerTables(ones, betas, ones, ones[:, :, 0], torch.zeros(heads, 1, 1), values=written)


def ring(slots: int, letters: int = 2) -> Model:
    """A clock that reads nothing, a ring of the last `slots` letters, and their sum modulo 3 by a chain of wires."""
    shift = torch.roll(torch.eye(slots), 1, 0).expand(1, 1, slots, slots)
    none = torch.zeros(1, 1, 0, slots)
    phase = torch.arange(slots, dtype=torch.int32)
    clock = LayerModel(
        LayerTables(
            none, none[..., 0], none, phase.float().expand(1, 1, slots), torch.eye(slots)[:1, :, None], dense=shift
        ),
        torch.tensor(0, dtype=torch.int32),
        (phase.float()[:, None],),
        (phase,),
        reads=(),
    )
    route = torch.arange(letters * slots, dtype=torch.int32).reshape(letters, slots)
    codes = torch.arange(letters + 1, dtype=torch.int32)
    entries = {(letter * slots + i, i): 1.0 + letter for letter in range(letters) for i in range(slots)}
    buffer = LayerModel(
        write(letters * slots, slots, entries),
        route,
        (codes.float()[:, None],) * slots,
        (codes,) * slots,
        reads=(0, 2),
    )
    add = (torch.arange(3)[:, None] + torch.arange(letters + 1)).remainder(3).int()
    first = 4 + slots
    wires = [Wire(codes.remainder(3).int(), (4,))]
    wires += [Wire(add, (first + i - 1, 4 + i)) for i in range(1, slots)]
    delta = torch.zeros(1, letters, dtype=torch.int32)
    return Model((clock, buffer), delta, 0, Wire(integers(0, 1, 2), (first + slots - 1,)), tuple(wires))


def ring_by_hand(slots: int, tokens: torch.Tensor) -> torch.Tensor:
    found = torch.full(tokens.shape, -1.0)
    for b in range(tokens.shape[0]):
        held = list[int]()
        for t in range(tokens.shape[1]):
            token = int(tokens[b, t])
            if token >= 0:
                held.append(1 + token)
                found[b, t] = sum(held[-slots:]) % 3
    return found


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("slots", [1, 2, 22])
def test_a_clock_and_a_ring_of_slots_hold_the_last_letters(slots: int, storage: torch.dtype) -> None:
    tokens = some_tokens(5, 70, symbols=2)
    for chunk in (None, 9):
        got = answers(ring(slots), tokens, storage=storage, executor="reference", chunk=chunk)
        assert equal(got, ring_by_hand(slots, tokens))


@needs_kernels
def test_a_clock_and_a_ring_run_on_the_kernels() -> None:
    tokens = some_tokens(2, 7, symbols=2)
    assert equal(answers(ring(3), tokens, executor="triton", storage=torch.bfloat16), ring_by_hand(3, tokens))


def test_registers_are_dropped_after_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    held, call = list[int](), run._Table.__call__  # pyright: ignore[reportPrivateUsage]

    def counted(table: run._Table, registers: Mapping[int, torch.Tensor]) -> torch.Tensor:  # pyright: ignore[reportPrivateUsage]
        held.append(len(registers))
        return call(table, registers)

    monkeypatch.setattr(run._Table, "__call__", counted)  # pyright: ignore[reportPrivateUsage]
    tokens = some_tokens(2, 3, symbols=2)
    assert equal(answers(ring(9), tokens, executor="reference"), ring_by_hand(9, tokens))
    # The token; with the phase; with nine slots; the slots that are left and one sum; the last sum.
    assert held == [1, 2, 10, *range(10, 2, -1), 2]


def test_chunks_count_the_live_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statetrack.kernels.run._BUFFER_BYTES", 4000)
    steps = dict[int, int]()
    for slots in (1, 22):
        done = list[int]()
        execute(ring(slots), some_tokens(1, 300, symbols=2), executor="reference", progress=done.append)
        steps[slots] = done[0]
    # 22 slots: their codes (4 bytes each), phase and id, and the readouts (4 bytes each).
    assert steps[22] == 4000 // (4 * 25 + 4 * 22)
    assert steps[1] > 5 * steps[22]


def test_what_is_not_read_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    model, decoded = ring(4), list[int]()
    model = replace(model, wires=(), answer=Wire(integers(0, 1, 2), (6,)))
    nearest = run.nearest

    def counted(readouts: torch.Tensor, codebook: torch.Tensor) -> torch.Tensor:
        decoded.append(1)
        return nearest(readouts, codebook)

    monkeypatch.setattr(run, "nearest", counted)
    execute(model, torch.zeros(1, 5, dtype=torch.int64), executor="reference")
    assert len(decoded) == 2


def test_an_impossible_route_of_a_layer_that_the_answer_does_not_need_is_wrong() -> None:
    model = ring(2)
    route = model.layers[1].route.clone()
    route[1, 0] = -1
    model = replace(model, layers=(model.layers[0], replace(model.layers[1], route=route)))
    model = replace(model, wires=(), answer=Wire(integers(0, 1), (2,)))
    tokens = torch.tensor([[1, 0, 1, 1, 0]])
    for chunk in (None, 1):
        assert torch.equal(answers(model, tokens, chunk=chunk), integers(1, 0, 1, -1, -1)[None])


def test_networks_that_do_not_fit_together_are_refused() -> None:
    model = ring(2)
    clock, buffer = model.layers
    assert model.answer is not None
    wires = (replace(model.wires[0], reads=(6,)), model.wires[1])
    early = r"layers.1.route reads registers \[3\], expected 0..2; answer.wires.0 reads registers \[6\]"
    with pytest.raises(InvalidInput, match=early):
        replace(model, layers=(clock, replace(buffer, reads=(0, 3))), wires=wires)
    with pytest.raises(InvalidInput, match=r"answer reads registers \[-1\], expected 0..7"):
        replace(model, answer=replace(model.answer, reads=(-1,)))
    with pytest.raises(InvalidInput, match=r"layers.1.route has shape \(1, 2\), and register 0 holds values up to 1"):
        replace(model, layers=(clock, replace(buffer, route=buffer.route[:1])))
    with pytest.raises(InvalidInput, match=r"answer.wires.1 has shape \(3, 2\), and register 5 holds values up to 2"):
        replace(model, wires=(model.wires[0], Wire(model.wires[1].table[:, :2], (6, 5))))
    with pytest.raises(InvalidInput, match=r"answer has shape \(1,\), and register 0 holds values up to 1"):
        replace(model, answer=Wire(integers(0), (0,)))
    with pytest.raises(InvalidInput, match=r"route has shape \(2, 2\), expected 1 dim.*; wires.0 has dtype int64"):
        replace(buffer, reads=(0,), wires=(Wire(torch.zeros(2, dtype=torch.int64), (0,)),))
    with pytest.raises(
        InvalidInput, match=r"wires.0 holds values from -2 to 0, expected -1..; wires.1 reads 3 registers"
    ):
        replace(buffer, wires=(Wire(integers(0, -2), (0,)), Wire(integers(0).reshape(1, 1, 1), (0, 0, 0))))
    with pytest.raises(InvalidInput, match=r"no codebook, which needs one head and V = 1, got H=2, V=1"):
        replace(buffer, codebooks=(), labels=())
    codebooks = (buffer.codebooks[0].long(), buffer.codebooks[1])
    with pytest.raises(InvalidInput, match=r"head 0: codebook has dtype torch.int64.*head 1: labels has dtype int64"):
        replace(buffer, codebooks=codebooks, labels=(buffer.labels[0], buffer.labels[1].long()))
    with pytest.raises(InvalidInput, match=r"no answer table, and the last layer has 2 outputs.*2 wires of the answer"):
        replace(model, answer=None)
    with pytest.raises(InvalidInput, match=r"no automaton; the last layer"):
        replace(model, delta=None)
    with pytest.raises(InvalidInput, match=r"delta holds values from 0 to 3, expected 0..0"):
        replace(model, delta=torch.tensor([[0, 3]], dtype=torch.int32))
    weighted = counter(np.ones((2, 1, 1)), np.ones(1), np.ones(1))
    with pytest.raises(InvalidInput, match=r"the last layer has no codebook; there must then be no automaton"):
        replace(weighted, delta=model.delta)
    with pytest.raises(InvalidInput, match=r"layers.0 has no codebook, which only the last layer may lack"):
        replace(model, layers=(weighted.layers[0], *model.layers))
    with pytest.raises(InvalidInput, match=r"an answer table, and a last layer whose readout is the answer"):
        replace(weighted, answer=Wire(integers(0, 1), (0,)))
    with pytest.raises(InvalidInput, match=r"model: no layer"):
        replace(model, layers=())


@needs_cuda
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("seed", range(200, 212))
def test_random_networks_agree_on_the_device(seed: int, storage: torch.dtype) -> None:
    model, tokens = Builder(seed).model(), some_tokens(64, 500, seed)
    fast, slow = (answers(model, tokens, storage=storage, executor=executor, chunk=170) for executor in EXECUTORS_ALL)
    assert torch.equal(fast, slow)
    weighted = Builder(seed).model(weighted=True)
    tokens = tokens.clamp(max=(weighted.symbols or SYMBOLS) - 1)
    fast, slow = (
        values(weighted, tokens, storage=storage, device=DEVICE, executor=executor) for executor in EXECUTORS_ALL
    )
    assert equal(fast, slow)


@needs_cuda
@pytest.mark.parametrize("storage", STORAGES)
def test_a_long_ring_is_right_on_the_device(storage: torch.dtype) -> None:
    tokens = some_tokens(64, 3000, symbols=2)
    got = answers(ring(22), tokens, storage=storage, executor="triton", chunk=700)
    assert equal(got, ring_by_hand(22, tokens))
