"""Closure of bit patterns, the shortest failing word, and the encodings that are right for ever."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
import torch

from statetrack import api
from statetrack.constructions.compiler import Compiled
from statetrack.constructions.encodings import encode_for_ever, lowered, offset
from statetrack.constructions.float_closure import FloatClosure, Open, close_floats, ideal_of
from statetrack.constructions.float_network import (
    Fails,
    FloatNetwork,
    RightForEver,
    RightUpTo,
    failing_word,
    shortest_failing_word,
)
from statetrack.constructions.float_steps import HeadTables, head_tables, spread
from statetrack.constructions.weights import Weights, lower
from statetrack.kernels.load import model_of
from statetrack.kernels.reference import recurrent
from statetrack.theory.automata import Dfa
from statetrack.theory.number_formats import FORMATS_BY_NAME, number_format


def dfa_of(c: Compiled) -> Dfa:
    assert isinstance(c.automaton, Dfa)
    return c.automaton


@cache
def built(source: str, target: str) -> api.Compiled:
    return api.build(source, target, check=False)


def weights_of(source: str, target: str, dtype: str, storage: str | None = None) -> Weights:
    c = built(source, target)
    return lowered(c.program, c.certificate, c.automaton, dtype, storage or dtype)


@pytest.mark.parametrize("storage", ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize(("source", "target"), [("Z7", "ckda"), ("S3", "deltaproduct"), ("(ab)*", "unconstrained")])
def test_a_step_is_the_reference_kernels_bit_for_bit(source: str, target: str, storage: str) -> None:
    w = weights_of(source, target, storage)
    tables, model = head_tables(w.tensors, 0, 0, number_format(storage)), model_of(w).layers[0].tables
    rng = np.random.default_rng(1)
    column = tables.state[:, 0][None]
    state = None
    for _ in range(60):
        i = int(rng.integers(len(tables.queries)))
        column, sure = tables.step(np.array([i]), column, 0)
        _, state = recurrent(model, torch.tensor([[i]]), state, storage=getattr(torch, storage))
        if sure.all():
            assert np.array_equal(state[0, 0, :, 0].double().numpy(), column[0].astype(np.float64))
        column = (state[0, 0, :, 0].double().numpy()[None] + 0.0).astype(column.dtype)


def test_the_bounds_of_a_sum_hold_for_every_order() -> None:
    rng = np.random.default_rng(2)
    rows = (rng.normal(size=(200, 6)) * 2.0 ** rng.integers(-12, 12, (200, 6))).astype(np.float32)
    _, low, high = spread(rows, 2.0**-24)
    for _ in range(50):
        order = rng.permutation(6)
        total = rows[:, order[0]]
        for i in order[1:]:
            total = total + rows[:, i]
        assert ((low <= total) & (total <= high)).all()
    assert (low < high).any()


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "e4m3"])
@pytest.mark.parametrize("source", ["S5", "S4"])
def test_symmetric_groups_are_right_for_ever_with_an_offset(source: str, precision: str) -> None:
    made, weights, found = built(source, "deltaproduct").for_ever(precision)
    assert isinstance(found.outcome, FloatClosure)
    assert found.outcome.kind in ("E", "R")
    assert weights.horizon() == float("inf")
    assert weights.storage == weights.dtype == number_format(precision).name
    assert made.certificate.data["automaton"] == built(source, "deltaproduct").certificate.data["automaton"]
    trace = weights.run(random=4, length=500, executor="reference", device="cpu")
    assert trace.wrong == 0


@pytest.mark.parametrize("m", [5, 7, 10, 16, 20, 24])
def test_cyclic_groups_have_starts_that_close_in_bfloat16(m: int) -> None:
    _, weights, found = built(f"Z{m}", "ckda").for_ever("bf16")
    assert isinstance(found.outcome, FloatClosure)
    assert weights.storage == "bfloat16"
    assert weights.run(random=4, length=2000, executor="reference", device="cpu").wrong == 0


def test_a5_is_right_for_ever_on_five_points() -> None:
    _, weights, found = built("A5", "deltaproduct").for_ever("bf16")
    assert (found.compiled.plan.construction, found.encoding) == ("permutation", "offset")
    assert weights.run(random=4, length=1000, executor="reference", device="cpu").wrong == 0


def test_the_known_counts_of_float_columns() -> None:
    for source, target, dtype, storage, columns in (
        ("S4", "deltaproduct", "float32", "bfloat16", 4350),
        ("Z8", "ckda", "float32", "bfloat16", 24),
        ("Z16", "ckda", "float32", "bfloat16", 904),
    ):
        c = built(source, target)
        found = close_floats(weights_of(source, target, dtype, storage), ideal_of(c.program, dfa_of(c)))
        assert isinstance(found, FloatClosure)
        assert (found.kind, found.columns) == ("C", columns)


def test_a_tracker_in_a_format_that_is_too_coarse_is_open_and_fails() -> None:
    c = built("Z60", "ckda")
    weights = weights_of("Z60", "ckda", "float8_e4m3fn")
    assert isinstance(close_floats(weights, ideal_of(c.program, dfa_of(c))), Open)
    found = shortest_failing_word(weights)
    assert isinstance(found, Fails)
    assert len(found.word) == 1


def test_a_shortest_failing_word_fails_in_the_kernel_and_its_prefixes_do_not() -> None:
    for source, dtype in (("Z7", "float8_e4m3fn"), ("Z12", "float8_e4m3fn"), ("Z60", "bfloat16")):
        weights = weights_of(source, "ckda", dtype)
        found = failing_word(weights, width=300, max_depth=120)
        assert isinstance(found, Fails)
        run = api.Weights(dtype, weights.tensors, weights.certificate, weights.automaton)
        trace = run.run([found.word], executor="reference", device="cpu")
        assert trace.first_wrong == len(found.word) - 1
        assert run.horizon() < len(found.word)


def test_a_beam_finds_a_word_on_which_sixty_steps_of_a_circle_fail_in_bfloat16() -> None:
    weights = weights_of("Z60", "ckda", "float32", "bfloat16")
    found = failing_word(weights, width=300, max_depth=200)
    assert isinstance(found, Fails)
    assert len(found.word) == 35
    run = api.Weights("float32", weights.tensors, weights.certificate, weights.automaton, "bfloat16")
    assert run.run([found.word], executor="reference", device="cpu").first_wrong == len(found.word) - 1
    assert run.horizon() < len(found.word)
    # Random words alone mislead: they are right far beyond that word's length.
    assert run.run(random=8, length=1500, executor="reference", device="cpu").wrong == 0


def test_the_search_of_joint_states_ends_for_finite_sets_and_stops_at_its_budget() -> None:
    assert isinstance(shortest_failing_word(weights_of("Z2", "ckda", "bfloat16")), RightForEver)
    capped = shortest_failing_word(weights_of("Z7", "ckda", "float32"), max_states=500)
    assert isinstance(capped, RightUpTo)
    again = shortest_failing_word(weights_of("Z7", "ckda", "float32"), max_depth=capped.depth)
    assert isinstance(again, RightUpTo)
    assert again.states <= capped.states
    assert shortest_failing_word(weights_of("Z7", "ckda", "float32"), max_depth=1) == RightUpTo(1, 7)


@pytest.mark.parametrize(("source", "target"), [("Z7", "deltanet"), ("S5", "ckda"), ("(a|b)*a(a|b)", "kda")])
def test_the_literal_network_answers_as_the_automaton(source: str, target: str) -> None:
    weights = weights_of(source, target, "float32")
    rng = np.random.default_rng(3)
    word = [weights.dfa.alphabet[int(rng.integers(len(weights.dfa.alphabet)))] for _ in range(40)]
    state, truth = weights.dfa.start, list[int]()
    for token in weights.dfa.encode(word):
        state = int(weights.dfa.delta[state, token])
        truth.append(state)
    assert list(FloatNetwork(weights).run(word)) == truth


def test_an_offset_is_refused_where_a_step_moves_it() -> None:
    assert offset(built("Z5", "ckda").program) is None
    assert offset(built("Z7", "deltanet").program) is None


def test_a_coarse_state_corrects_errors_of_keys_and_the_basin_is_wider_in_coarser_formats() -> None:
    from statetrack.constructions.encodings import basin, perturbed

    sizes: dict[str, Fraction] = {}
    for precision in ("fp32", "bf16"):
        found = encode_for_ever(built("S4", "deltaproduct"), precision)
        compiled = found.compiled
        wide = lowered(compiled.program, compiled.certificate, compiled.automaton, "float32", found.weights.storage)
        sizes[precision] = basin(replace(found, weights=wide), seeds=3)
    assert Fraction(1, 2**14) <= sizes["bf16"] <= Fraction(1, 2**8)
    assert sizes["fp32"] < sizes["bf16"]
    far = perturbed(weights_of("S4", "deltaproduct", "bfloat16"), 0.1, 0)
    compiled = built("S4", "deltaproduct")
    assert isinstance(close_floats(far, ideal_of(compiled.program, dfa_of(compiled))), Open)


def test_fused_products_are_covered_by_the_offset_in_bfloat16_and_not_by_one_hot_states() -> None:
    c = built("S4", "deltaproduct")
    found = encode_for_ever(c, "bf16", order="fused")
    assert isinstance(found.outcome, FloatClosure)
    assert found.outcome.order == "fused"
    assert found.encoding == "offset"
    one_hot = weights_of("S4", "deltaproduct", "float32", "bfloat16")
    assert isinstance(close_floats(one_hot, ideal_of(c.program, dfa_of(c)), order="fused"), Open)


def test_every_format_has_a_type_that_weights_can_be_lowered_to() -> None:
    c = built("S3", "ckda")
    for name in FORMATS_BY_NAME:
        made = lower(c.program, c.certificate, c.automaton, name)
        tables = head_tables(made.tensors, 0, 0, number_format(name))
        assert isinstance(tables, HeadTables)
        assert np.array_equal(tables.stored(tables.keys), tables.keys)
