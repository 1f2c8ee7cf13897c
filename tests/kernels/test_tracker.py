"""The Triton kernels agree with the reference: interpreted on a CPU at small sizes, compiled at real ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from statetrack.errors import InvalidInput, KernelUnavailable
from statetrack.kernels.reference import LayerTables, nearest, recurrent, walk
from statetrack.kernels.tracker import is_available, is_interpreted, nearest_triton, tracker, walk_triton

MakeTables = Callable[..., LayerTables]
STORAGES = [torch.float64, torch.float32, torch.bfloat16]
DEVICE = "cuda" if torch.cuda.is_available() and not is_interpreted() else "cpu"

pytestmark = pytest.mark.skipif(not is_available()[0], reason=f"the kernels cannot run here: {is_available()[1]}")
needs_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="real sizes need a CUDA device")


def placed(tables: LayerTables) -> LayerTables:
    return tables.to(DEVICE, torch.float64)


def some_ids(batch: int, time: int, count: int = 5, seed: int = 1) -> torch.Tensor:
    return torch.randint(-1, count, (batch, time), generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def poison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill what the kernels' wrappers allocate, so that a cell that no kernel writes is seen."""

    def poisoned(shape: tuple[int, ...], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.full(shape, torch.nan if dtype.is_floating_point else -7, dtype=dtype, device=device)

    monkeypatch.setattr(torch, "empty", poisoned)


def check(tables: LayerTables, ids: torch.Tensor, storage: torch.dtype, words: int | None = None) -> None:
    """Kernel and reference agree to a few units in the last place (bfloat16: one)."""
    readouts, state = tracker(tables, ids, storage=storage, words_per_program=words)
    expected, last = recurrent(tables, ids, storage=storage)
    assert (readouts.dtype, state.dtype) == (expected.dtype, last.dtype)
    relative = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 2.0**-7}[storage]
    for got, wanted in ((readouts, expected), (state, last)):
        floor = max(1.0, float(wanted.abs().max()) if wanted.numel() else 0.0)
        torch.testing.assert_close(got, wanted, rtol=relative, atol=relative * floor)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("factors", [1, 2, 3])
@pytest.mark.parametrize(("values", "bias"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_tracker_follows_the_reference(
    make_tables: MakeTables,
    monkeypatch: pytest.MonkeyPatch,
    factors: int,
    values: bool,
    bias: bool,
    storage: torch.dtype,
) -> None:
    tables = placed(make_tables(factors, 3, 2, values=values, bias=bias, seed=factors))
    poison(monkeypatch)
    check(tables, some_ids(2, 3), storage)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize(("rows", "columns", "bias"), [(1, 1, False), (5, 1, True), (4, 3, True)])
def test_a_dense_layer_follows_the_reference(
    make_tables: MakeTables,
    monkeypatch: pytest.MonkeyPatch,
    rows: int,
    columns: int,
    bias: bool,
    exact: bool,
    storage: torch.dtype,
) -> None:
    tables = placed(make_tables(0, rows, columns, dense=True, bias=bias, exact=exact))
    poison(monkeypatch)
    check(tables, some_ids(2, 3), storage)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("words", [None, 1, 2, 4])
def test_small_integers_are_bit_for_bit_equal(make_tables: MakeTables, words: int | None, storage: torch.dtype) -> None:
    tables = placed(make_tables(2, 3, 2, bias=True, exact=True))
    ids = some_ids(5, 4)
    got, expected = (
        tracker(tables, ids, storage=storage, words_per_program=words),
        recurrent(tables, ids, storage=storage),
    )
    assert torch.equal(got[0], expected[0])
    assert torch.equal(got[1], expected[1])


def agrees_with_doubles(tables: LayerTables, ids: torch.Tensor, storage: torch.dtype, words: int | None = None) -> bool:
    got = tracker(tables, ids, storage=storage, words_per_program=words)
    expected = recurrent(tables, ids, storage=torch.float64)
    return torch.equal(got[0].double(), expected[0]) and torch.equal(got[1].double(), expected[1])


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("words", [1, 4])
@pytest.mark.parametrize(("factors", "dense"), [(0, True), (0, False), (1, False), (3, False)])
def test_floored_heads_are_bit_for_bit_those_of_the_doubles(
    make_tables: MakeTables,
    monkeypatch: pytest.MonkeyPatch,
    factors: int,
    dense: bool,
    words: int,
    storage: torch.dtype,
) -> None:
    columns = 1 if dense else 2
    tables = make_tables(factors, 2, columns, bias=True, dense=dense, exact=True, seed=4, unit=(0.0, 0.5))
    poison(monkeypatch)
    assert agrees_with_doubles(placed(tables), some_ids(3, 6), storage, words)


@pytest.mark.parametrize("storage", STORAGES)
def test_the_kernel_floors_before_it_rounds_to_storage(make_tables: MakeTables, storage: torch.dtype) -> None:
    tables = make_tables(3, 1, 1, ids=1, heads=2, values=False, bias=True, exact=True)
    added = torch.zeros_like(tables.keys[..., None])
    added[:, :, 0] = 1.5
    tables = replace(tables, betas=0 * tables.betas, gates=0 * tables.gates + 1, bias=added)
    tables = placed(replace(tables, state=0 * tables.state + 256, unit=torch.tensor([2.0, 0.0])))
    ids = torch.zeros(1, 1, dtype=torch.int64, device=DEVICE)
    expected = recurrent(tables, ids, storage=storage)[1]
    assert torch.equal(tracker(tables, ids, storage=storage)[1], expected)
    assert float(expected[0, 0]) == 256


def slots(count: int, codes: list[int]) -> LayerTables:
    """Heads of one number, and one of K = 2 that pads them; id i writes code i into slot i mod count."""
    ids, heads = len(codes), count + 1
    keys = torch.zeros(ids, heads, 1, 2, dtype=torch.float64)
    betas = torch.zeros(ids, heads, 1, dtype=torch.float64)
    values = torch.zeros(ids, heads, 1, 1, dtype=torch.float64)
    for i, code in enumerate(codes):
        keys[i, i % count, 0, 0] = betas[i, i % count, 0] = 1.0
        values[i, i % count, 0, 0] = code
    queries = torch.zeros(ids, heads, 2, dtype=torch.float64)
    queries[:, :, 0] = 1.0
    state = torch.zeros(heads, 2, 1, dtype=torch.float64)
    return LayerTables(keys, betas, torch.ones_like(keys), queries, state, values=values)


@pytest.mark.parametrize("storage", STORAGES)
def test_slots_hold_their_codes_exactly(storage: torch.dtype) -> None:
    greatest = {torch.bfloat16: 256, torch.float32: 2**24, torch.float64: 2**53}[storage]
    codes = [0, 1, 3, greatest, 7, greatest - 1, 200, 5]
    ids = some_ids(2, 20, len(codes))
    held, expected = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 20, 4, 1, dtype=torch.float64)
    for b in range(2):
        for t in range(20):
            i = int(ids[b, t])
            if i >= 0:
                held[b, i % 3] = codes[i]
                expected[b, t, :3, 0] = held[b]
    readouts, _ = tracker(placed(slots(3, codes)), ids, storage=storage)
    assert torch.equal(readouts.double().cpu(), expected)
    assert torch.equal(recurrent(placed(slots(3, codes)), ids, storage=storage)[0], readouts)


@pytest.mark.parametrize("time", [0, 1, 2, 5])
@pytest.mark.parametrize("batch", [1, 3])
def test_every_length_works(make_tables: MakeTables, monkeypatch: pytest.MonkeyPatch, batch: int, time: int) -> None:
    tables = placed(make_tables(1, 2, 2, heads=1))
    poison(monkeypatch)
    check(tables, some_ids(batch, time), torch.float64, words=2)
    check(tables, some_ids(batch, time).int(), torch.float32)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 5), (17, 1), (64, 9)])
def test_widths_that_are_no_power_of_two_are_masked(
    make_tables: MakeTables, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int
) -> None:
    tables = placed(make_tables(1, rows, columns, heads=1, bias=True))
    poison(monkeypatch)
    check(tables, some_ids(2, 2), torch.float64)


def test_no_token_keeps_the_state_and_reads_zero(make_tables: MakeTables, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = placed(make_tables(1, 2, 2, bias=True))
    poison(monkeypatch)
    readouts, state = tracker(tables, torch.full((2, 3), -1, device=DEVICE), storage=torch.float64)
    assert torch.equal(readouts, torch.zeros_like(readouts))
    assert torch.equal(state, tables.state.expand(2, -1, -1, -1))


@pytest.mark.parametrize("storage", STORAGES)
def test_going_on_from_a_state_equals_one_pass(make_tables: MakeTables, storage: torch.dtype) -> None:
    tables = placed(make_tables(1, 3, 2))
    ids = some_ids(2, 5)
    whole, last = tracker(tables, ids, storage=storage)
    first, middle = tracker(tables, ids[:, :2].contiguous(), storage=storage)
    second, end = tracker(tables, ids[:, 2:].contiguous(), middle, storage=storage)
    assert torch.equal(torch.cat([first, second], 1), whole)
    assert torch.equal(end, last)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("codes", "width"), [(1, 1), (3, 2), (150, 3)])
def test_the_nearest_codewords_are_the_same(
    monkeypatch: pytest.MonkeyPatch, codes: int, width: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(codes)
    rows = torch.randn(70, width + 1, dtype=dtype, generator=generator).to(DEVICE)[:, :width]
    codebook = torch.randn(codes, width, dtype=dtype, generator=generator).to(DEVICE)
    expected = nearest(rows, codebook)
    poison(monkeypatch)
    assert torch.equal(nearest_triton(rows, codebook), expected)


def test_the_first_codeword_wins_a_tie_across_tiles() -> None:
    codebook = torch.full((200, 2), 9.0, device=DEVICE)
    codebook[[7, 50, 130, 199]] = 1.0
    rows = torch.tensor([[1.0, 1.0], [-3.0, 0.0], [30.0, 30.0]], device=DEVICE)
    assert torch.equal(nearest_triton(rows, codebook).cpu(), torch.tensor([7, 7, 0], dtype=torch.int32))


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_a_readout_that_is_not_finite_has_no_codeword() -> None:
    inf, nan = torch.inf, torch.nan
    rows = torch.tensor([[nan, 0.0], [0.0, inf], [-inf, nan], [3e38, 0.0], [1.0, 1.0]], device=DEVICE)
    expected = torch.tensor([-1, -1, -1, -1, 0], dtype=torch.int32)
    assert torch.equal(nearest_triton(rows, torch.zeros(3, 2, device=DEVICE)).cpu(), expected)
    assert torch.equal(nearest_triton(rows, torch.zeros(0, 2, device=DEVICE)).cpu(), expected * 0 - 1)
    assert nearest_triton(rows[:0], torch.zeros(3, 2, device=DEVICE)).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("time", [0, 1, 6])
def test_the_walks_are_the_same(monkeypatch: pytest.MonkeyPatch, time: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(time)
    delta = torch.randint(0, 5, (5, 3), dtype=torch.int32, generator=generator).to(DEVICE)
    tokens, start = some_ids(35, time, 3).to(dtype), (torch.arange(35) % 5).to(DEVICE, torch.int32)
    expected = walk(delta, tokens, start)
    poison(monkeypatch)
    assert torch.equal(walk_triton(delta, tokens, start), expected)


def test_what_the_kernels_cannot_do_is_refused_with_a_reason(make_tables: MakeTables) -> None:
    tables, ids = placed(make_tables(1, 2, 2)), some_ids(2, 4)
    with pytest.raises(KernelUnavailable, match=r"K=65, V=2, at most 64; use reference.recurrent"):
        tracker(placed(make_tables(1, 65, 2)), ids, storage=torch.float32)
    with pytest.raises(KernelUnavailable, match=r"V=65, at most 64"):
        nearest_triton(torch.zeros(1, 65, device=DEVICE), torch.zeros(1, 65, device=DEVICE))
    with pytest.raises(InvalidInput, match=r"ids is not contiguous"):
        tracker(tables, ids[:, ::2], storage=torch.float32)
    with pytest.raises(InvalidInput, match=r"expected -1..4"):
        tracker(tables, ids + 3, storage=torch.float32)
    with pytest.raises(InvalidInput, match=r"words_per_program: got 3"):
        tracker(tables, ids, storage=torch.float32, words_per_program=3)
    with pytest.raises(InvalidInput, match=r"int16"):
        tracker(tables, ids, storage=torch.int16)
    with pytest.raises(InvalidInput, match=r"state: shape"):
        tracker(tables, ids, torch.zeros(1, device=DEVICE), storage=torch.float32)
    with pytest.raises(InvalidInput, match=r"readouts of shape"):
        nearest_triton(torch.zeros(1, 2, device=DEVICE), torch.zeros(1, 3, device=DEVICE))


def test_without_triton_the_kernels_say_so(make_tables: MakeTables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statetrack.kernels.tracker.triton", None)
    assert is_available() == (False, "triton is not installed")
    assert not is_interpreted()
    with pytest.raises(KernelUnavailable, match=r"kernel tracker: triton is not installed; use reference.recurrent"):
        tracker(placed(make_tables(1, 2, 2)), some_ids(1, 1), storage=torch.float32)


@needs_cuda
def test_a_tensor_on_another_device_is_refused(make_tables: MakeTables) -> None:
    with pytest.raises(InvalidInput, match=r"keys is on cpu, ids on cuda"):
        tracker(make_tables(1, 2, 2), some_ids(1, 1), storage=torch.float32)
    with pytest.raises(KernelUnavailable, match=r"ids is on cpu"):
        tracker(make_tables(1, 2, 2), some_ids(1, 1).cpu(), storage=torch.float32)


@needs_cuda
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("columns", [1, 4, 64])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17, 64])
def test_long_integer_words_are_bit_for_bit_equal(
    make_tables: MakeTables, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, storage: torch.dtype
) -> None:
    tables = placed(make_tables(2, rows, columns, exact=True, bias=columns == 4))
    ids = some_ids(64, 4096)
    expected = recurrent(tables, ids, storage=storage)
    poison(monkeypatch)
    readouts, state = tracker(tables, ids, storage=storage)
    assert torch.equal(readouts, expected[0])
    assert torch.equal(state, expected[1])


@needs_cuda
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("columns", [1, 64])
@pytest.mark.parametrize("rows", [2, 5, 17, 64])
@pytest.mark.parametrize("dense", [False, True])
def test_long_real_words_agree(
    make_tables: MakeTables, monkeypatch: pytest.MonkeyPatch, dense: bool, rows: int, columns: int, storage: torch.dtype
) -> None:
    tables = placed(make_tables(0 if dense else 2, rows, columns, dense=dense, bias=dense))
    ids = some_ids(64, 1000)
    expected = recurrent(tables, ids, storage=storage)
    poison(monkeypatch)
    # The gates forget, so that an error is damped; a flipped bfloat16 rounding still lives for some tokens.
    relative = {torch.float64: 1e-12, torch.float32: 1e-4, torch.bfloat16: 2.0**-4}[storage]
    for got, wanted in zip(tracker(tables, ids, storage=storage), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=relative * max(1.0, float(wanted.abs().max())))


@needs_cuda
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize(("factors", "dense"), [(0, True), (1, False), (3, False)])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 2), (64, 4)])
def test_long_floored_words_are_bit_for_bit_those_of_the_doubles(
    make_tables: MakeTables, rows: int, columns: int, factors: int, dense: bool, storage: torch.dtype
) -> None:
    tables = make_tables(factors, rows, columns, bias=True, dense=dense, exact=True, seed=4, unit=(0.0, 0.5))
    assert agrees_with_doubles(placed(tables), some_ids(64, 2000), storage)


@needs_cuda
@pytest.mark.parametrize("words", [1, 4, 16])
def test_a_large_batch_agrees_for_every_block_of_words(make_tables: MakeTables, words: int) -> None:
    tables, ids = placed(make_tables(2, 3, 2, exact=True)), some_ids(5000, 63)
    expected = recurrent(tables, ids, storage=torch.float32)
    for count in (words, None):
        got = tracker(tables, ids, storage=torch.float32, words_per_program=count)
        assert torch.equal(got[0], expected[0])
        assert torch.equal(got[1], expected[1])


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("codes", "width"), [(2, 1), (65, 4), (100_000, 3), (1000, 64)])
def test_large_codebooks_give_the_same_codewords(codes: int, width: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(codes)
    codebook = torch.randint(-9, 9, (codes, width), generator=generator).to(DEVICE, dtype)
    rows = torch.randn(5000, width, dtype=dtype, generator=generator).to(DEVICE) * 4
    rows[::2] = rows[::2].round()
    rows[17] = torch.nan
    assert torch.equal(nearest_triton(rows, codebook), nearest(rows, codebook))


@needs_cuda
def test_long_walks_are_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    delta = torch.randint(0, 1000, (1000, 7), dtype=torch.int32, generator=generator).to(DEVICE)
    tokens, start = some_ids(65, 4096, 7), torch.zeros(65, dtype=torch.int32, device=DEVICE)
    assert torch.equal(walk_triton(delta, tokens, start), walk(delta, tokens, start))
