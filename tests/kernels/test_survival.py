"""Other orders give what the recurrence gives, and survival counts the tokens before the first wrong answer."""
# pyright: basic

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch

import statetrack as st
from statetrack.errors import InvalidInput
from statetrack.kernels.load import Model, model_of, random_tokens
from statetrack.kernels.orders import ORDERS, chunked, order_of, scanned
from statetrack.kernels.reference import LayerTables, recurrent
from statetrack.kernels.run import execute
from statetrack.kernels.survival import FAMILIES, survival, words_of

MakeTables = Callable[..., LayerTables]
HERE = ("recurrent", "chunk16", "chunk32", "chunk64", "scan")


@cache
def model(source: str, target: str, dtype: str = "float64") -> Model:
    return model_of(st.build(source, target, check=False).weights(dtype))


@pytest.mark.parametrize("order", HERE[1:])
@pytest.mark.parametrize("factors", [1, 2, 3])
@pytest.mark.parametrize("values", [False, True])
def test_every_order_gives_the_states_of_the_recurrence(
    make_tables: MakeTables, order: str, factors: int, values: bool
) -> None:
    tables = make_tables(factors, 3, 2, values=values, seed=factors)
    keys = torch.nn.functional.normalize(tables.keys, dim=-1)
    tables = LayerTables(keys, tables.betas, tables.gates, tables.queries, tables.state, tables.values)
    ids = torch.randint(0, tables.shape[0], (3, 150), generator=torch.Generator().manual_seed(1))
    expected, last = recurrent(tables, ids, storage=torch.float64)
    run = order_of(order, "cpu")
    got, state = run(tables, ids, storage=torch.float64)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-9)
    first, carried = run(tables, ids[:, :67], storage=torch.float64)
    second, _ = run(tables, ids[:, 67:], carried, storage=torch.float64)
    torch.testing.assert_close(torch.cat([first, second], 1), expected, rtol=1e-9, atol=1e-9)


def test_the_scan_takes_dense_layers_and_biases(make_tables: MakeTables) -> None:
    for tables in (make_tables(0, 4, 3, dense=True, bias=True), make_tables(2, 3, 2, bias=True)):
        ids = torch.randint(0, tables.shape[0], (2, 9), generator=torch.Generator().manual_seed(2))
        for got, expected in zip(
            scanned(tables, ids, storage=torch.float64, block=4),
            recurrent(tables, ids, storage=torch.float64),
            strict=True,
        ):
            torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


def test_the_scan_rounds_every_product_to_storage() -> None:
    """Two rotations' product, by hand in bfloat16."""
    tables = model("Z60", "ckda").layers[0].tables
    ids = torch.tensor([[7, 11]])
    _, state = scanned(tables, ids, storage=torch.bfloat16)
    rounded = tables.to("cpu", torch.bfloat16).to("cpu", torch.float32)

    def one(i: int) -> torch.Tensor:
        k, gate = rounded.keys[i, 0, 0], rounded.gates[i, 0, 0]
        return ((torch.eye(2) - rounded.betas[i, 0, 0] * torch.outer(k, k)) * gate).bfloat16().float()

    product = (one(11) @ one(7)).bfloat16().float()
    assert torch.equal(state[0, 0], (product @ rounded.state[0]).bfloat16())


def test_orders_refuse_what_they_cannot_run(make_tables: MakeTables) -> None:
    tables, ids = make_tables(1, 2, 2), torch.tensor([[0, -1]])
    for run in (scanned, chunked):
        with pytest.raises(InvalidInput, match="input ids"):
            run(tables, ids, storage=torch.float64)
    with pytest.raises(InvalidInput, match="chunkwise"):
        chunked(make_tables(0, 2, 2, dense=True), torch.tensor([[0]]), storage=torch.float64)
    with pytest.raises(InvalidInput, match="order"):
        order_of("backwards", "cpu")
    assert set(HERE) < set(ORDERS)


@pytest.mark.parametrize("order", HERE)
@pytest.mark.parametrize(("source", "target"), [("S3", "ckda"), ("S5", "deltaproduct"), ("(ab)*", "deltaproduct")])
def test_short_words_survive_in_float64_in_every_order(source: str, target: str, order: str) -> None:
    made = model(source, target)
    for family in FAMILIES:
        how = {"words": 4, "length": 120, "storage": torch.float64}
        words = words_of(family, made, seed=1, **how)
        assert survival(made, words, order=order, **how).tolist() == [120] * 4


@pytest.mark.parametrize("order", ["chunk16", "chunk32", "chunk64"])
@pytest.mark.parametrize(("source", "target"), [("S3", "ckda"), ("S4", "deltaproduct"), ("Z60", "deltaproduct")])
def test_keys_with_lengths_keep_them_in_chunks(source: str, target: str, order: str) -> None:
    """Dyadic keys come with the β for their length: the steps are those of the recurrence, to the last digits."""
    made = model_of(st.build(source, target, check=False).weights("bfloat16", keys="dyadic"))
    tables = made.layers[0].tables
    assert bool(((tables.keys.norm(dim=-1) - 1).abs() > 0.1).any())
    ids = torch.randint(0, tables.shape[0], (3, 200), generator=torch.Generator().manual_seed(1))
    expected, last = recurrent(tables, ids, storage=torch.float64, tables_as=torch.bfloat16)
    got, state = order_of(order, "cpu")(tables, ids, storage=torch.float64, tables_as=torch.bfloat16)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-9)
    words = {"words": 4, "length": 150, "storage": torch.bfloat16}
    random = words_of("random", made, seed=1, **words)
    if source != "Z60":
        assert survival(made, random, order=order, **words).tolist() == [150] * 4


def test_survival_is_the_first_wrong_token_of_each_word_whatever_the_chunks() -> None:
    made = model("Z60", "ckda", "bfloat16")
    how = {"words": 6, "length": 900, "storage": torch.bfloat16}
    words = words_of("random", made, seed=3, **how)
    tokens = random_tokens(60, 6, 0, 900, seed=3, device="cpu")
    assert torch.equal(words(0, 900), tokens)
    found = survival(made, words, **how)
    alone = [
        execute(made, tokens[i : i + 1], storage=torch.bfloat16, executor="reference").first_wrong for i in range(6)
    ]
    assert found.tolist() == [900 if n is None else n for n in alone]
    assert 0 < int(found.min()) < 900
    for chunk in (1, 37, 900):
        assert torch.equal(survival(made, words, chunk=chunk, **how), found)


def test_periodic_words_repeat() -> None:
    made = model("S3", "ckda")
    words = words_of("periodic", made, words=8, length=100, seed=0, storage=torch.float32)
    tokens = torch.cat([words(0, 33), words(33, 100)], 1)
    for i in range(8):
        assert torch.equal(tokens[i, i + 1 :], tokens[i, : -(i + 1)])


def test_adversarial_words_fail_far_earlier_than_random_ones() -> None:
    """Z60 with keys in float32 and states in bfloat16: random words last thousands of tokens."""
    made = model("Z60", "ckda", "float32")
    how = {"words": 4, "length": 300, "storage": torch.bfloat16, "tables_as": torch.float32}
    random = survival(made, words_of("random", made, seed=0, **how), **how)
    found = survival(made, words_of("adversarial", made, seed=0, **how), **how)
    assert int(found.min()) < 100
    assert random.tolist() == [300] * 4


def test_families_that_are_not_known_and_networks_that_are_not_searched_are_refused() -> None:
    how = {"words": 1, "length": 2, "seed": 0, "storage": torch.float32}
    with pytest.raises(InvalidInput, match="words"):
        words_of("slow", model("S3", "ckda"), **how)
    with pytest.raises(InvalidInput, match="adversarial"):
        words_of("adversarial", model("S3", "deltanet"), **how)


def test_a_sweep_that_was_stopped_goes_on_and_gives_the_same_lines(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "horizons_measured.py"
    sizes = ["--place", "cpu", "--cases", "S3", "--formats", "bfloat16", "--orders", "recurrent", "scan", "triton-fast"]
    sizes += ["--families", "random", "adversarial", "--words", "3", "--groups", "1", "--length", "40"]

    def sweep() -> list[dict[str, object]]:
        command = [sys.executable, str(script), "--output", str(tmp_path), *sizes]
        subprocess.run(command, check=True, capture_output=True, cwd=script.parents[1])
        return [json.loads(line) for line in (tmp_path / "survival.jsonl").read_text().splitlines()]

    whole = sweep()
    assert len(whole) == 4
    assert all(row["violates"] is False for row in whole)
    part = tmp_path / "part-0.jsonl"
    kept = part.read_text().splitlines()
    part.write_text("\n".join(kept[:2]) + "\n" + kept[2][:30])
    again = sweep()
    assert [row["survived"] for row in again] == [row["survived"] for row in whole]
    # What was whole was not run again: its seconds are those of the first time.
    assert part.read_text().splitlines()[:2] == kept[:2]
    assert len(part.read_text().splitlines()) == 4
