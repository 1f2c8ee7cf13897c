"""Whole programs: a two-layer one by hand, in chunks, broken on purpose, and on every executor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch

from statetrack.errors import InvalidInput, KernelUnavailable
from statetrack.kernels.load import LayerModel, Model
from statetrack.kernels.reference import LayerTables
from statetrack.kernels.run import Executor, Trace, execute
from statetrack.kernels.tracker import is_available, is_interpreted

MakeTables = Callable[..., LayerTables]
STORAGES = [torch.float64, torch.float32, torch.bfloat16]
DEVICE = "cuda" if torch.cuda.is_available() and not is_interpreted() else "cpu"
needs_kernels = pytest.mark.skipif(not is_available()[0], reason=f"the kernels cannot run here: {is_available()[1]}")
needs_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="real sizes need a CUDA device")


def integers(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def signs(heads: int, gates: list[list[float]], bias: list[list[float]] | None = None) -> LayerTables:
    """Heads with one number each, +1 at first: id i multiplies it by its gate and adds its bias."""
    gate = torch.tensor(gates, dtype=torch.float64)[..., None, None]  # [I, H, 1, 1]
    return LayerTables(
        keys=torch.ones_like(gate),
        betas=torch.zeros_like(gate[..., 0]),
        gates=gate,
        queries=torch.ones_like(gate[..., 0]),
        state=torch.ones(heads, 1, 1, dtype=torch.float64),
        bias=None if bias is None else torch.tensor(bias, dtype=torch.float64)[..., None, None, None],
    )


def two_parities() -> Model:
    """Tokens a, b, c; states 2p + r: 'a' flips p, 'b' flips r if p is 1, 'c' does nothing.

    Layer 1 tracks p by a gate of -1. Layer 2 reads (token, p): head 0 flips r, head 1 stores p by a reset.
    """
    plus_minus, labels = torch.tensor([[1.0], [-1.0]]), integers(0, 1)
    # The ids of layer 1 are the tokens themselves, so that layer 2 can tell them apart.
    first = LayerModel(signs(1, [[-1.0], [1.0], [1.0]]), integers(0, 1, 2), (plus_minus,), (labels,))
    tables = signs(2, [[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [0.0, -1.0], [0.0, -1.0]])
    route = torch.stack([integers(0, 1), integers(0, 2), integers(0, 1)])
    emit = torch.stack([integers(0, 2), integers(1, 3)])  # [r, p] -> 2p + r
    second = LayerModel(tables, route, (plus_minus, plus_minus), (labels, labels), emit, reads=(1, 2))
    delta = torch.stack([integers(2, 0, 0), integers(3, 1, 1), integers(0, 3, 2), integers(1, 2, 3)])
    return Model((first, second), delta, start=0)


def some_tokens(batch: int, time: int, least: int = 0) -> torch.Tensor:
    return torch.randint(least, 3, (batch, time), generator=torch.Generator().manual_seed(time))


def by_hand(tokens: torch.Tensor) -> torch.Tensor:
    answers = torch.full(tokens.shape, -1, dtype=torch.int32)
    for b in range(tokens.shape[0]):
        p = r = 0
        for t in range(tokens.shape[1]):
            token = int(tokens[b, t])
            if token == 0:
                p = 1 - p
            if token == 1 and p == 1:
                r = 1 - r
            if token >= 0:
                answers[b, t] = 2 * p + r
    return answers


def answers(trace: Trace) -> torch.Tensor:
    assert trace.answers is not None
    return trace.answers.cpu()


def same(one: Trace, other: Trace) -> bool:
    counts = [(t.wrong, t.first_wrong, t.wrong_words, t.tokens) for t in (one, other)]
    return counts[0] == counts[1] and torch.equal(answers(one), answers(other))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("executor", ["reference", pytest.param("triton", marks=needs_kernels)])
def test_a_two_layer_program_tracks_its_automaton(executor: Executor, storage: torch.dtype) -> None:
    tokens = some_tokens(2, 7, least=-1)
    trace = execute(two_parities(), tokens, storage=storage, device=DEVICE, executor=executor)
    assert torch.equal(answers(trace), by_hand(tokens))
    assert (trace.wrong, trace.first_wrong, trace.wrong_words) == (0, None, 0)
    assert trace.tokens == int((tokens >= 0).sum())
    assert answers(trace).dtype == torch.int32


def test_a_mutated_gate_is_counted() -> None:
    model, tokens = two_parities(), some_tokens(9, 30)
    broken = replace(model.layers[0], tables=signs(1, [[-1.0], [-1.0], [-1.0]]))
    trace = execute(replace(model, layers=(broken, model.layers[1])), tokens, executor="reference")
    wrong = answers(trace) != by_hand(tokens)
    assert trace.wrong == int(wrong.sum()) > 0
    assert trace.first_wrong == int(wrong.any(0).int().argmax())
    assert trace.wrong_words == int(wrong.any(1).sum())


@pytest.mark.parametrize("executor", ["reference", pytest.param("triton", marks=needs_kernels)])
def test_an_impossible_route_makes_the_rest_of_the_word_wrong(executor: Executor) -> None:
    model = two_parities()
    route = model.layers[1].route.clone()
    route[2, 1] = -1
    model = replace(model, layers=(model.layers[0], replace(model.layers[1], route=route)))
    tokens = torch.tensor([[0, 1, 2, 0, -1], [2, 1, 0, 1, 1]])
    whole = execute(model, tokens, device=DEVICE, executor=executor)
    assert answers(whole)[0].equal(integers(2, 3, -1, -1, -1))
    assert answers(whole)[1].equal(by_hand(tokens)[1])
    assert (whole.wrong, whole.first_wrong, whole.wrong_words, whole.tokens) == (2, 2, 1, 9)
    assert same(whole, execute(model, tokens, device=DEVICE, executor=executor, chunk=1))


def test_a_codeword_without_a_label_is_wrong() -> None:
    model = two_parities()
    unlabelled = replace(model.layers[0], labels=(integers(0, -1),))
    trace = execute(
        replace(model, layers=(unlabelled, model.layers[1])), torch.tensor([[2, 0, 0]]), executor="reference"
    )
    assert answers(trace)[0].equal(integers(0, -1, -1))
    assert (trace.wrong, trace.first_wrong) == (2, 1)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_a_readout_that_is_not_finite_is_wrong_and_does_not_crash(number: float) -> None:
    model = two_parities()
    broken = replace(model.layers[0], tables=signs(1, [[number], [1.0], [1.0]]))
    trace = execute(replace(model, layers=(broken, model.layers[1])), torch.tensor([[1, 0, 1]]), executor="reference")
    assert answers(trace)[0].equal(integers(0, -1, -1))
    assert (trace.wrong, trace.first_wrong) == (2, 1)


@pytest.mark.parametrize("chunk", [1, 3, 100, None])
def test_chunks_change_nothing(chunk: int | None) -> None:
    tokens, done = some_tokens(5, 40, least=-1), list[int]()
    whole = execute(two_parities(), tokens, executor="reference", chunk=40)
    parts = execute(two_parities(), tokens, executor="reference", chunk=chunk, progress=done.append)
    assert same(whole, parts)
    step = min(chunk or 40, 40)
    assert done == [5 * min(stop, 40) for stop in range(step, 40 + step, step)]


def test_tokens_may_come_from_a_function() -> None:
    tokens, asked = some_tokens(3, 10), list[tuple[int, int]]()

    def source(start: int, stop: int) -> torch.Tensor:
        asked.append((start, stop))
        return tokens[:, start:stop]

    trace = execute(two_parities(), source, length=10, executor="reference", chunk=4)
    assert same(trace, execute(two_parities(), tokens, executor="reference"))
    assert asked == [(0, 0), (0, 4), (4, 8), (8, 10)]
    bare = execute(two_parities(), source, length=10, executor="reference", keep_answers=False)
    assert (bare.answers, bare.wrong, bare.tokens) == (None, 0, 30)


@pytest.mark.parametrize(("batch", "time"), [(1, 0), (0, 3), (1, 1)])
def test_empty_and_short_inputs_work(batch: int, time: int) -> None:
    trace = execute(two_parities(), some_tokens(batch, time), executor="reference")
    assert (trace.wrong, trace.first_wrong, trace.wrong_words, trace.tokens) == (0, None, 0, batch * time)
    assert answers(trace).shape == (batch, time)


def test_the_result_names_what_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = some_tokens(1, 2)
    named = execute(two_parities(), tokens, executor="reference", storage=torch.bfloat16).executor
    assert named == "reference on cpu, bfloat16 storage, float32 arithmetic, recurrent order"
    if is_available()[0]:
        asked = execute(two_parities(), tokens, device=DEVICE, executor="triton").executor
        assert asked.startswith("triton tracker on ")
        taken = execute(two_parities(), tokens, device=DEVICE).executor
        assert taken.startswith("reference on cpu" if is_interpreted() else "triton tracker on ")
    monkeypatch.setattr("statetrack.kernels.run.is_available", lambda: (False, "no kernels here"))
    assert execute(two_parities(), tokens).executor.startswith("reference on cpu, float32 storage")
    with pytest.raises(KernelUnavailable, match=r"no kernels here; use executor='reference'"):
        execute(two_parities(), tokens, executor="triton")


@needs_kernels
def test_a_wide_layer_runs_on_the_reference_unless_triton_is_asked_for(make_tables: MakeTables) -> None:
    tables = make_tables(1, 65, 1, ids=1, heads=1)
    layer = LayerModel(tables, integers(0), (torch.zeros(1, 1),), (integers(0),))
    model, tokens = Model((layer,), torch.zeros(1, 1, dtype=torch.int32), 0), torch.zeros(1, 3, dtype=torch.int64)
    trace = execute(model, tokens, device=DEVICE)
    assert trace.executor.startswith("reference on ")
    assert trace.wrong == 0
    with pytest.raises(KernelUnavailable, match=r"K or V is 65, at most 64"):
        execute(model, tokens, device=DEVICE, executor="triton")


def test_arguments_out_of_range_are_refused() -> None:
    model, tokens = two_parities(), some_tokens(2, 3)
    with pytest.raises(InvalidInput, match=r"executor 'fast'"):
        execute(model, tokens, executor=cast(Executor, "fast"))
    with pytest.raises(InvalidInput, match=r"walk: tokens: got values from"):
        execute(model, tokens + 3, executor="reference")
    with pytest.raises(InvalidInput, match=r"chunk: got 0"):
        execute(model, tokens, executor="reference", chunk=0)
    with pytest.raises(InvalidInput, match=r"needs its length"):
        execute(model, lambda start, stop: tokens[:, start:stop], executor="reference")
    with pytest.raises(InvalidInput, match=r"tokens\(0, 9\)"):
        execute(model, lambda start, stop: tokens[:, start:stop], length=9, executor="reference")
    with pytest.raises(InvalidInput, match=r"int16"):
        execute(model, tokens, storage=torch.int16)


def test_a_model_that_does_not_fit_together_is_refused() -> None:
    model = two_parities()
    first, second = model.layers
    with pytest.raises(InvalidInput, match=r"layers.0.route has shape \(2,\), and register 0 holds values up to 2"):
        replace(model, layers=(replace(first, route=integers(0, 1)), second))
    with pytest.raises(InvalidInput, match=r"layers.1.route has shape \(3, 2\), and register 2 holds values up to 2"):
        replace(model, layers=(replace(first, labels=(integers(0, 2),)), second))
    with pytest.raises(InvalidInput, match=r"start 4"):
        replace(model, start=4)
    with pytest.raises(InvalidInput, match=r"route holds values from 0 to 7, expected -1..2; .*2 label tables"):
        replace(first, route=integers(0, 7, 0), labels=first.labels * 2)
    with pytest.raises(InvalidInput, match=r"no answer table, and the last layer has 2 outputs"):
        replace(model, layers=(first, replace(second, emit=None)))
    with pytest.raises(InvalidInput, match=r"emit has shape \(2, 2\), the heads' codes go up to \[1, 2\]"):
        replace(second, labels=(integers(0, 1), integers(0, 2)))
    with pytest.raises(InvalidInput, match=r"head 1: codebook \(2, 3\)"):
        replace(second, codebooks=(second.codebooks[0], torch.zeros(2, 3)))


@needs_cuda
@pytest.mark.parametrize("storage", STORAGES)
def test_a_long_batch_on_the_device_has_no_wrong_token(storage: torch.dtype) -> None:
    def source(start: int, stop: int) -> torch.Tensor:
        return torch.randint(-1, 3, (64, stop - start), device=DEVICE)

    trace = execute(two_parities(), source, length=100_000, storage=storage, device=DEVICE, chunk=30_000)
    assert (trace.wrong, trace.first_wrong) == (0, None)
    assert trace.executor.startswith(f"triton tracker on {torch.cuda.get_device_name()}")


@needs_cuda
def test_both_executors_give_the_same_trace_on_the_device() -> None:
    model, tokens = two_parities(), some_tokens(64, 4096, least=-1)
    broken = replace(model.layers[0], tables=signs(1, [[-1.0], [-0.999], [-0.999]]))
    model = replace(model, layers=(broken, model.layers[1]))
    fast = execute(model, tokens, device=DEVICE)
    slow = execute(model, tokens, device=DEVICE, executor="reference")
    assert same(fast, slow)
    assert fast.wrong > 0
