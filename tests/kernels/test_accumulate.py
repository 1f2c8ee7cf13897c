"""A format of sums: every operation of a token is rounded to it, once and in the order that the definition says."""
# pyright: basic

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import statetrack as st
from statetrack.errors import InvalidInput
from statetrack.kernels.load import Model, model_of, random_tokens
from statetrack.kernels.orders import chunked, order_of, scanned
from statetrack.kernels.reference import LayerTables, arithmetic, nearest, recurrent, rounded_to, summed, walk
from statetrack.kernels.survival import survival, words_of

MakeTables = Callable[..., LayerTables]
BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64
NARROW = (BF16, FP16, torch.float8_e4m3fn, torch.float8_e5m2)


@cache
def z60(dtype: str = "bfloat16") -> Model:
    return model_of(st.build("Z60", "ckda", check=False).weights(dtype))


def one(k: list[float], beta: float, state: list[float], query: list[float], value: float | None = None) -> LayerTables:
    """A layer of one input id, head, factor and state column."""
    table = torch.tensor(k, dtype=FP64)[None, None, None]
    return LayerTables(
        table,
        torch.full((1, 1, 1), beta, dtype=FP64),
        torch.ones_like(table),
        torch.tensor(query, dtype=FP64)[None, None],
        torch.tensor(state, dtype=FP64)[None, :, None],
        None if value is None else torch.full((1, 1, 1, 1), value, dtype=FP64),
    )


def after(
    tables: LayerTables, accumulate: torch.dtype | None, storage: torch.dtype = FP32
) -> tuple[float, list[float]]:
    """Readout and state after one token."""
    readouts, state = recurrent(tables, torch.tensor([[0]]), storage=storage, accumulate=accumulate)
    return float(readouts), state.flatten().tolist()


@pytest.mark.parametrize("dtype", NARROW)
def test_a_double_is_rounded_once(dtype: torch.dtype) -> None:
    """Next to the middle of any two neighbours: rounding to float32 first would meet ties that are none."""
    bits = torch.arange(2 ** (8 * dtype.itemsize - 1)).to(torch.int16 if dtype.itemsize == 2 else torch.uint8)
    numbers = bits.view(dtype).double()
    numbers = numbers[numbers.isfinite()].numpy()
    low, high = numbers[:-1], numbers[1:]
    middle = (low + high) / 2
    for sign in (1, -1):
        for x, expected in ((np.nextafter(middle, 0), low), (np.nextafter(middle, np.inf), high), (numbers, numbers)):
            assert np.array_equal(rounded_to(torch.tensor(sign * x), dtype).numpy(), sign * expected)
    assert rounded_to(torch.tensor([torch.nan, torch.inf], dtype=FP64), BF16).isfinite().sum() == 0
    assert float(torch.tensor(1 + 2**-8 + 2**-30, dtype=FP64).to(BF16)) == 1.0, "torch rounds twice"


def test_a_sum_in_bfloat16_loses_what_float32_keeps() -> None:
    small = 2.0**-9
    read = one([0, 0], 0, [1, small], [1, 1])
    assert after(read, BF16)[0] == 1.0
    assert after(read, None)[0] == after(read, FP32)[0] == 1 + small
    # z = 1 + 2^-9 is lost in kᵀS, and then 2^-9 - 1 is half-way between two numbers.
    aim = one([1, 1], 1, [1, small], [1, 0])
    assert after(aim, BF16)[1] == [0, -1]
    assert after(aim, None)[1] == after(aim, FP32)[1] == [-small, -1]


def test_partial_sums_are_rounded_in_the_order_of_the_index() -> None:
    small = 2.0**-8
    ones = [1.0, 1.0, 1.0]
    assert after(one([0, 0, 0], 0, [1, small, small], ones), BF16)[0] == 1
    assert after(one([0, 0, 0], 0, [small, small, 1], ones), BF16)[0] == 1 + 2 * small
    assert after(one([0, 0, 0], 0, [1, small, small], ones), FP32)[0] == 1 + 2 * small
    assert summed(torch.zeros(2, 0, 3), BF16).shape == (2, 3)


def test_products_are_rounded_too() -> None:
    # 1.5 (1 + 2^-7) = 193.5/128 lies half-way between two numbers of bfloat16.
    tables = one([1 + 2.0**-7], 1.5, [0], [1], value=1)
    assert after(tables, None)[1] == [193.5 / 128]
    assert after(tables, BF16)[1] == [194 / 128]


def test_what_storage_rounds_is_all_that_is_left_in_float64() -> None:
    # 2^-30 more than half-way: float32 arithmetic drops it before the state is rounded to even.
    tables = one([1], 1, [1], [1], value=1 + 2.0**-8 + 2.0**-30)
    ids = torch.tensor([[0]])
    how: dict[str, Any] = {"storage": BF16, "tables_as": FP64}
    assert float(recurrent(tables, ids, **how)[1]) == 1
    readout, state = recurrent(tables, ids, **how, accumulate=FP64)
    assert (float(readout), float(state)) == (1 + 2**-7, 1 + 2**-7)
    assert readout.dtype == FP64 == arithmetic(BF16, FP64)


def bf16(x: Any) -> Any:
    """To nearest, ties to even, by the bits."""
    bits = np.float32(x).view(np.uint32).astype(np.uint64)
    return np.uint32(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).view(np.float32)


@pytest.mark.parametrize(("values", "bias"), [(False, False), (True, True)])
def test_a_token_is_the_loop_over_numbers_to_the_last_bit(make_tables: MakeTables, values: bool, bias: bool) -> None:
    tables = make_tables(2, 3, 2, heads=1, values=values, bias=bias)
    generator = torch.Generator().manual_seed(5)
    # A gate or a β of few digits leaves nothing to be rounded, and storage in bfloat16 would round once more.
    gates, betas = (torch.rand(x.shape, generator=generator).double() for x in (tables.gates, tables.betas))
    tables = replace(tables, gates=gates, betas=2 * betas)
    ids = torch.tensor([[0, 3, 1, 4, 2, 2]])
    readouts, state = recurrent(tables, ids, storage=FP32, tables_as=BF16, accumulate=BF16)
    at = {name: table.bfloat16().float().numpy() for name, table in tables.named().items()}
    S, found = tables.state.float().numpy()[0].copy(), []

    def total(k: np.ndarray, column: np.ndarray) -> np.float32:
        partial = bf16(k[0] * column[0])
        for i in (1, 2):
            partial = bf16(partial + bf16(k[i] * column[i]))
        return partial

    for i in ids[0].tolist():
        for j, v in np.ndindex(2, 2):
            k = at["keys"][i, 0, j]
            column = [bf16(g * s) for g, s in zip(at["gates"][i, 0, j], S[:, v], strict=True)]
            z = total(k, np.array(column))
            for r in range(3):
                push = bf16(at["betas"][i, 0, j] * k[r])
                S[r, v] = bf16(column[r] - bf16(push * z))
                S[r, v] = bf16(S[r, v] + bf16(push * at["values"][i, 0, j, v])) if values else S[r, v]
                S[r, v] = bf16(S[r, v] + at["bias"][i, 0, j, r, v]) if bias else S[r, v]
        found.append([total(at["queries"][i, 0], S[:, v]) for v in range(2)])
    assert np.array_equal(state[0, 0].numpy(), S)
    assert np.array_equal(readouts[0, :, 0].numpy(), np.array(found))
    assert not torch.equal(recurrent(tables, ids, storage=FP32, tables_as=BF16)[1], state)


def test_two_terms_in_the_arithmetic_type_are_what_they_are_without(make_tables: MakeTables) -> None:
    tables = make_tables(2, 2, 3)
    ids = torch.randint(-1, 5, (3, 20), generator=torch.Generator().manual_seed(1))
    for storage, usual in ((BF16, FP32), (FP32, FP32), (FP64, FP64)):
        plain = recurrent(tables, ids, storage=storage)
        assert all(map(torch.equal, recurrent(tables, ids, storage=storage, accumulate=usual), plain))
    with pytest.raises(InvalidInput, match=r"accumulate torch.int32: expected one of"):
        recurrent(tables, ids, storage=FP32, accumulate=torch.int32)


def test_the_scan_rounds_every_operation(make_tables: MakeTables) -> None:
    """Two rotations by hand; dense layers and biases go the same way."""
    tables = z60().layers[0].tables
    pairs = torch.tensor([[7, 11], [3, 17], [5, 23], [1, 59], [19, 29]])
    tables = replace(tables, state=torch.tensor([[[0.6, -0.3], [0.7, 0.9]]], dtype=FP64))
    _, state = scanned(tables, pairs, storage=FP32, tables_as=BF16, accumulate=BF16)
    rounded = tables.to("cpu", BF16).to("cpu", FP32)

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        first, second = ((a[:, i, None] * b[i]).bfloat16().float() for i in (0, 1))
        return (first + second).bfloat16().float()

    def step(i: int) -> torch.Tensor:
        k, gate = rounded.keys[i, 0, 0], rounded.gates[i, 0, 0]
        push = (rounded.betas[i, 0, 0] * k).bfloat16().float()
        away = (push[:, None] * k).bfloat16().float()
        return ((torch.eye(2) - away).bfloat16().float() * gate).bfloat16().float()

    for got, (a, b) in zip(state[:, 0], pairs.tolist(), strict=True):
        assert torch.equal(got, product(product(step(b), step(a)), tables.state[0].float()))
    assert not torch.equal(scanned(tables, pairs, storage=FP32, tables_as=BF16)[1], state)
    for made in (make_tables(0, 4, 3, dense=True, bias=True), make_tables(2, 3, 2, bias=True)):
        ids = torch.tensor([[0, 1, 2, 3, 4, 1]])
        exact = recurrent(made, ids, storage=FP64)[0]
        for sums, error in ((FP64, 1e-9), (FP32, 1e-4), (BF16, 0.3)):
            got = scanned(made, ids, storage=FP64, accumulate=sums, block=4)[0]
            assert 0 < float((got - exact).norm() / exact.norm()) < error
        assert float((got - exact).norm() / exact.norm()) > 1e-4


def test_chunks_sum_in_float64_or_as_they_do(make_tables: MakeTables) -> None:
    tables = make_tables(2, 3, 2)
    tables = replace(tables, keys=torch.nn.functional.normalize(tables.keys, dim=-1))
    ids = torch.randint(0, 5, (2, 70), generator=torch.Generator().manual_seed(1))
    exact = recurrent(tables, ids, storage=FP64, tables_as=FP32)[0]
    error = [
        float((order_of("chunk16", "cpu", sums)(tables, ids, storage=FP32)[0] - exact).norm() / exact.norm())
        for sums in (FP64, FP32, None)
    ]
    assert error[0] < 1e-6
    assert error[1] == error[2] > 1e-8
    cases: list[dict[str, Any]] = [{"accumulate": BF16}, {"accumulate": FP32, "precision": "exact"}]
    for refused in cases:
        with pytest.raises(InvalidInput, match="chunkwise order, accumulate"):
            chunked(tables, ids, storage=FP32, **refused)


@pytest.mark.parametrize("order", ["recurrent", "scan"])
def test_survival_is_that_of_the_recurrence_with_these_sums(order: str) -> None:
    made, words, length = z60(), 6, 300
    tokens = random_tokens(60, words, 0, length, seed=3, device="cpu")
    how: dict[str, Any] = {"storage": BF16, "tables_as": BF16, "accumulate": BF16}
    found = survival(made, lambda a, b: tokens[:, a:b], words=words, length=length, order=order, **how)
    layer = made.layers[0]
    readouts, _ = order_of(order, "cpu", BF16)(layer.tables, layer.route[tokens.long()], storage=BF16)
    answers = layer.labels[0][nearest(readouts[:, :, 0].flatten(0, 1), layer.codebooks[0]).long()].view(words, length)
    assert made.delta is not None
    wrong = answers != walk(made.delta, tokens, torch.full((words,), made.start))
    assert found.tolist() == [int(w.int().argmax()) if w.any() else length for w in wrong]
    plain = survival(made, lambda a, b: tokens[:, a:b], words=words, length=length, order=order, storage=BF16)
    assert int(found.min()) < int(plain.min())


def test_adversarial_words_are_searched_with_these_sums() -> None:
    how: dict[str, Any] = {"words": 4, "length": 100, "storage": BF16, "accumulate": BF16}
    words = words_of("adversarial", z60(), seed=0, **how)
    assert int(survival(z60(), words, **how).min()) < 15
    other = words_of("adversarial", z60(), seed=0, words=4, length=100, storage=BF16)
    assert not torch.equal(words(0, 100), other(0, 100))


def test_a_sweep_claims_a_proved_length_only_for_arithmetic_that_the_bound_is_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "horizons_measured.py"
    spec = importlib.util.spec_from_file_location("horizons_measured", path)
    assert spec is not None
    assert spec.loader is not None
    sweep = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "horizons_measured", sweep)
    spec.loader.exec_module(sweep)
    proved = sweep.proved_length("S3", "bfloat16", "bfloat16", "")
    assert 0 < proved < 100
    assert proved == sweep.proved_length("S3", "bfloat16", "bfloat16", "float64")
    assert sweep.proved_length("S3", "bfloat16", "bfloat16", "bfloat16") is None
    assert sweep.proved_length("S3", "float64", "float64", "float32") is None
    assert sweep.proved_length("S3", "float32", "bfloat16", "float64") is None
    row = sweep.measure(sweep.Job("S3", "float16/float16/float16", "recurrent", "random", 0, 2, 20), "cpu")
    assert (row["accumulate"], row["least"], row["proved"]) == ("float16", 20, None)
    assert sweep.measure(sweep.Job("S3", "float16", "scan", "random", 0, 2, 20), "cpu")["accumulate"] == "float32"
