"""The definition itself, against a loop over numbers written here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from statetrack.errors import InvalidInput
from statetrack.kernels.reference import LayerTables, arithmetic, nearest, recurrent, walk

Numbers = NDArray[np.float64]
MakeTables = Callable[..., LayerTables]
STORAGES = [torch.float64, torch.float32, torch.bfloat16]
TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-6, torch.bfloat16: 2.0**-6}


def to_storage(x: Numbers, storage: torch.dtype) -> Numbers:
    """Round to nearest, ties to even, by the bits of a float32."""
    if storage == torch.float64:
        return x
    short = x.astype(np.float32)
    if storage == torch.bfloat16:
        bits = short.view(np.uint32)
        short = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
    return short.astype(np.float64)


def loop(tables: LayerTables, ids: torch.Tensor, storage: torch.dtype) -> tuple[Numbers, Numbers]:
    """The recurrence in float64, one number after another, with the state rounded to `storage`, or floored first."""
    named = {name: to_storage(table.numpy().copy(), storage) for name, table in tables.named().items()}
    _, heads, factors, rows, columns = tables.shape
    batch, time = ids.shape
    readouts = np.zeros((batch, time, heads, columns))
    states = np.repeat(named["state"][None], batch, axis=0)
    units = named.get("unit", np.zeros(heads))
    for b, t, h in np.ndindex(batch, time, heads):
        i, S = int(ids[b, t]), states[b, h]
        if i < 0:
            continue
        if "dense" in named:
            moved = named["dense"][i, h] @ S + (named["bias"][i, h, 0] if "bias" in named else 0.0)
            S[:] = moved if units[h] else to_storage(moved, storage)
        for j in range(0 if "dense" in named else factors):
            k, beta = named["keys"][i, h, j], named["betas"][i, h, j]
            moved = np.zeros((rows, columns))
            for c in range(columns):
                gated = named["gates"][i, h, j] * S[:, c]
                aim = named["values"][i, h, j, c] if "values" in named else 0.0
                moved[:, c] = gated + beta * (aim - float(k @ gated)) * k
                if "bias" in named:
                    moved[:, c] += named["bias"][i, h, j, :, c]
            S[:] = moved if units[h] else to_storage(moved, storage)
        if units[h]:
            S[:] = to_storage(units[h] * np.floor(S / units[h]), storage)
        readouts[b, t, h] = S.T @ named["queries"][i, h]
    return readouts, states


def some_ids(batch: int, time: int, count: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(-1, count, (batch, time), generator=torch.Generator().manual_seed(seed))


def listed(numbers: torch.Tensor) -> list[int]:
    return [int(number) for number in numbers]


def agree(got: torch.Tensor, expected: Numbers, storage: torch.dtype) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(got.double().numpy(), expected, rtol=0, atol=TOLERANCE[storage] * scale)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("factors", [1, 2, 3])
@pytest.mark.parametrize(("values", "bias"), [(False, False), (True, False), (False, True), (True, True)])
def test_readouts_and_state_follow_the_recurrence(
    make_tables: MakeTables, factors: int, values: bool, bias: bool, storage: torch.dtype
) -> None:
    tables = make_tables(factors, 3, 2, values=values, bias=bias, seed=factors)
    ids = some_ids(4, 5, 5)
    readouts, state = recurrent(tables, ids, storage=storage)
    expected, last = loop(tables, ids, storage)
    assert readouts.dtype == arithmetic(storage)
    assert state.dtype == storage
    agree(readouts, expected, storage)
    agree(state, last, storage)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("bias", [False, True])
def test_a_dense_layer_multiplies_by_its_matrix(make_tables: MakeTables, bias: bool, storage: torch.dtype) -> None:
    tables = make_tables(0, 4, 3, dense=True, bias=bias)
    ids = some_ids(3, 5, 5)
    readouts, state = recurrent(tables, ids, storage=storage)
    expected, last = loop(tables, ids, storage)
    agree(readouts, expected, storage)
    agree(state, last, storage)


@pytest.mark.parametrize("storage", STORAGES)
def test_small_integers_are_exact_in_every_format(make_tables: MakeTables, storage: torch.dtype) -> None:
    tables = make_tables(2, 3, 2, exact=True)
    ids = some_ids(4, 30, 5)
    readouts, state = recurrent(tables, ids, storage=storage)
    expected, last = loop(tables, ids, torch.float64)
    assert np.array_equal(readouts.double().numpy(), expected)
    assert np.array_equal(state.double().numpy(), last)


@pytest.mark.parametrize("time", [0, 1, 2, 5])
@pytest.mark.parametrize("batch", [1, 3])
def test_every_length_works(make_tables: MakeTables, batch: int, time: int) -> None:
    tables = make_tables(2, 2, 2)
    ids = some_ids(batch, time, 5)
    readouts, state = recurrent(tables, ids, storage=torch.float64)
    expected, last = loop(tables, ids, torch.float64)
    assert readouts.shape == (batch, time, 2, 2)
    agree(readouts, expected, torch.float64)
    agree(state, last, torch.float64)


def test_no_token_keeps_the_state_and_reads_zero(make_tables: MakeTables) -> None:
    tables = make_tables(1, 3, 2, bias=True)
    readouts, state = recurrent(tables, torch.full((2, 4), -1), storage=torch.float64)
    assert torch.equal(readouts, torch.zeros_like(readouts))
    assert torch.equal(state, tables.state.expand(2, -1, -1, -1))


@pytest.mark.parametrize("storage", STORAGES)
def test_going_on_from_a_state_equals_one_pass(make_tables: MakeTables, storage: torch.dtype) -> None:
    tables = make_tables(2, 3, 2)
    ids = some_ids(3, 7, 5)
    whole, last = recurrent(tables, ids, storage=storage)
    first, middle = recurrent(tables, ids[:, :3], storage=storage)
    second, end = recurrent(tables, ids[:, 3:], middle, storage=storage)
    assert torch.equal(torch.cat([first, second], 1), whole)
    assert torch.equal(end, last)


def test_the_state_is_rounded_after_every_factor(make_tables: MakeTables) -> None:
    tables = make_tables(1, 1, 1, ids=1, heads=1, values=False)
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    step = torch.full((1, 1, 1, 1, 1), 2.0**-9, dtype=torch.float64)
    tables = replace(tables, betas=0 * one, gates=one[..., None], queries=one, state=one, bias=step)
    ids = torch.zeros(1, 64, dtype=torch.int64)
    assert float(recurrent(tables, ids, storage=torch.bfloat16)[1]) == 1.0
    assert float(recurrent(tables, ids, storage=torch.float32)[1]) == 1.125


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("factors", [0, 1, 3])
def test_a_head_with_a_unit_floors_its_state(
    make_tables: MakeTables, factors: int, dense: bool, storage: torch.dtype
) -> None:
    tables = make_tables(factors, 2, 2, bias=True, dense=dense, exact=True, seed=4, unit=(0.0, 0.5))
    ids = some_ids(4, 40, 5)
    readouts, state = recurrent(tables, ids, storage=storage)
    expected, last = loop(tables, ids, torch.float64)
    assert np.array_equal(readouts.double().numpy(), expected)
    assert np.array_equal(state.double().numpy(), last)
    plain, _ = recurrent(replace(tables, unit=None), ids, storage=storage)
    assert torch.equal(plain[:, :, 0], readouts[:, :, 0])
    assert factors == 0 or not torch.equal(plain[:, :, 1], readouts[:, :, 1])
    halves = recurrent(tables, ids[:, :9], storage=storage)
    assert torch.equal(recurrent(tables, ids[:, 9:], halves[1], storage=storage)[0], readouts[:, 9:])


@pytest.mark.parametrize("factors", [1, 3])
def test_the_floor_comes_before_the_rounding_to_storage(make_tables: MakeTables, factors: int) -> None:
    # bfloat16 rounds 257.5 to 258, and its floor is 256; factors that only pad must not round in between.
    tables = make_tables(factors, 1, 1, ids=1, heads=1, values=False, bias=True, exact=True)
    added = torch.zeros_like(tables.keys[..., None])
    added[0, 0, 0] = 1.5
    state = torch.full((1, 1, 1), 256.0, dtype=torch.float64)
    tables = replace(
        tables, betas=0 * tables.betas, gates=0 * tables.gates + 1, bias=added, state=state, unit=torch.tensor([2.0])
    )
    ids = torch.zeros(1, 1, dtype=torch.int64)
    assert float(recurrent(tables, ids, storage=torch.bfloat16)[1]) == 256
    assert float(recurrent(replace(tables, unit=None), ids, storage=torch.bfloat16)[1]) == 258


@pytest.mark.parametrize("unit", [-1.0, 0.75, 2.0**-127, 2.0**127, torch.nan, torch.inf])
def test_a_unit_that_is_no_power_of_two_is_refused(make_tables: MakeTables, unit: float) -> None:
    with pytest.raises(InvalidInput, match=r"unit holds 0, .*, expected 0 or powers of two"):
        make_tables(1, 1, 1, unit=(0.0, unit))
    with pytest.raises(InvalidInput, match=r"unit has shape \(1,\), expected \(2,\); keys has dtype torch.int64"):
        replace(make_tables(1, 1, 1), unit=torch.ones(1), keys=torch.zeros(5, 2, 1, 1, dtype=torch.int64))


def test_units_at_the_ends_of_the_range_are_exact(make_tables: MakeTables) -> None:
    for unit in (2.0**-126, 2.0**126):
        tables = make_tables(0, 1, 1, heads=1, exact=True, unit=(unit,))
        tables = replace(tables, state=torch.full((1, 1, 1), 1.5 * unit, dtype=torch.float64))
        for storage in STORAGES:
            _, last = recurrent(tables, torch.zeros(1, 1, dtype=torch.int64), storage=storage)
            assert float(last) == unit


def test_a_mutated_table_changes_the_readouts(make_tables: MakeTables) -> None:
    tables = make_tables(1, 3, 2)
    ids = torch.tensor([[0, 1, 2, 3, 4]])
    expected, _ = loop(tables, ids, torch.float64)
    broken = replace(tables, betas=tables.betas + 0.5)
    assert np.abs(recurrent(broken, ids, storage=torch.float64)[0].numpy() - expected).max() > 1e-3


def test_shapes_that_do_not_fit_are_all_named(make_tables: MakeTables) -> None:
    tables = make_tables(2, 3, 2)
    with pytest.raises(
        InvalidInput, match=r"keys has shape .*; values has shape|values has shape .*; keys has shape"
    ) as told:
        replace(tables, keys=tables.keys[..., :2], values=tables.betas)
    assert "gates" not in str(told.value)
    with pytest.raises(InvalidInput, match=r"state: shape"):
        recurrent(tables, some_ids(2, 2, 5), torch.zeros(1), storage=torch.float64)


def test_an_id_out_of_range_and_an_unknown_format_are_refused(make_tables: MakeTables) -> None:
    tables = make_tables(1, 2, 2)
    for wrong in (5, -2):
        with pytest.raises(InvalidInput, match=r"input ids: got values from"):
            recurrent(tables, torch.tensor([[0, wrong]]), storage=torch.float64)
    with pytest.raises(InvalidInput, match=r"int16"):
        recurrent(tables, torch.tensor([[0]]), storage=torch.int16)


@pytest.mark.parametrize("at_once", [1, 7, 1 << 23])
def test_the_nearest_codeword_is_the_nearest(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr("statetrack.kernels.reference._DISTANCES_AT_ONCE", at_once)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(40, 3, dtype=torch.float64, generator=generator)
    codebook = torch.randn(9, 3, dtype=torch.float64, generator=generator)
    expected = ((rows.numpy()[:, None] - codebook.numpy()[None]) ** 2).sum(-1).argmin(1)
    assert listed(nearest(rows, codebook)) == expected.tolist()


def test_the_first_codeword_wins_a_tie() -> None:
    codebook = torch.tensor([[5.0], [1.0], [-1.0], [1.0]])
    assert listed(nearest(torch.tensor([[0.0], [1.0], [3.0]]), codebook)) == [1, 1, 0]


def test_close_codewords_far_from_zero_are_told_apart() -> None:
    codebook = torch.tensor([[4096.0, 0.0], [4096.0, 2.0**-9]])
    assert listed(nearest(codebook, codebook)) == [0, 1]


def test_a_readout_that_is_not_finite_has_no_codeword() -> None:
    rows = torch.tensor([[torch.nan, 0.0], [0.0, torch.inf], [-torch.inf, torch.nan], [3e38, 0.0], [1.0, 1.0]])
    assert listed(nearest(rows, torch.zeros(3, 2))) == [-1, -1, -1, -1, 0]
    assert listed(nearest(rows, torch.zeros(0, 2))) == [-1] * 5


def test_a_walk_visits_the_states_of_the_automaton() -> None:
    generator = torch.Generator().manual_seed(5)
    delta = torch.randint(0, 6, (6, 3), dtype=torch.int32, generator=generator)
    tokens = some_ids(7, 9, 3)
    start = torch.arange(7) % 6
    states = walk(delta, tokens, start)
    for b in range(7):
        current = int(start[b])
        for t in range(9):
            current = int(delta[current, int(tokens[b, t])]) if int(tokens[b, t]) >= 0 else current
            assert int(states[b, t]) == current


def test_a_walk_out_of_range_is_refused() -> None:
    delta, start = torch.zeros(2, 2, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    with pytest.raises(InvalidInput, match=r"walk: tokens: got values from 2 to 2"):
        walk(delta, torch.tensor([[2]]), start)
    with pytest.raises(InvalidInput, match=r"walk: transitions"):
        walk(delta + 2, torch.tensor([[0]]), start)
    with pytest.raises(InvalidInput, match=r"walk: states before"):
        walk(delta, torch.tensor([[0]]), start - 1)
