"""A-priori horizons against what runs do: random words, adversarial words, shortest failing words."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from statetrack import api
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_network import Fails, failing_word, shortest_failing_word
from statetrack.constructions.horizons import head_horizons, horizon_of

CASES = [
    ("Z2", "ckda"),
    ("Z60", "ckda"),
    ("S4", "ckda"),
    ("D5", "ckda"),
    ("S4", "deltaproduct"),
    ("Z7", "deltanet"),
    ("Z2xZ2", "diag[-1,1]"),
    ("(ab)*", "kda"),
    ("(ab)*", "unconstrained"),
    ("(a|b)*a(a|b)", "diag[0,1]"),
    ("(a|b)*abb", "kda"),
]
FORMATS = ["float64", "float32", "bfloat16", "float16", "float8_e4m3fn"]


@cache
def built(source: str, target: str) -> api.Compiled:
    return api.build(source, target, check=False)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(("source", "target"), CASES, ids=["-".join(c) for c in CASES])
def test_no_word_within_the_horizon_fails(source: str, target: str, dtype: str) -> None:
    c = built(source, target)
    weights = lowered(c.program, c.certificate, c.automaton, dtype, dtype)
    horizon = horizon_of(weights)
    found = failing_word(weights, width=60, max_depth=60)
    if isinstance(found, Fails):
        assert horizon < len(found.word)
    found = shortest_failing_word(weights, max_states=3000)
    if isinstance(found, Fails):
        assert horizon < len(found.word)


@pytest.mark.parametrize(("source", "target"), [c for c in CASES if c[0] != "(a|b)*a(a|b)"], ids=lambda x: x)
def test_wider_formats_have_longer_horizons(source: str, target: str) -> None:
    c = built(source, target)
    e4m3, bf16, fp32, fp64 = (
        horizon_of(lowered(c.program, c.certificate, c.automaton, d, d))
        for d in ("float8_e4m3fn", "bfloat16", "float32", "float64")
    )
    assert 0 <= e4m3 <= bf16 <= fp32 <= fp64
    # Exact steps, and steps that forget, are right for ever.
    assert math.isinf(bf16) or bf16 < fp32 < fp64 < math.inf


def test_composed_networks_have_the_least_horizon_of_their_heads() -> None:
    stack = api.build("S4", "ckda", construction="two-steps", check=False)
    for c in (stack, built("(a|b)*abb(a|b)*", "kda")):
        weights = c.weights("float32")
        heads = [h.tokens for row in head_horizons(weights) for h in row]
        assert weights.horizon() == min(heads)
        assert len(c.program.layers) == len(head_horizons(weights))
    assert stack.certificate.kind == "stack"
    assert stack.weights("float32").horizon() > 1000


def test_keys_that_are_farther_off_have_a_shorter_horizon() -> None:
    c = built("S4", "ckda")
    weights = c.weights("float32")
    tensors = dict(weights.tensors)
    tensors["layers.0.keys"] = tensors["layers.0.keys"] * (1 + 2.0**-12)
    assert horizon_of(replace(weights, tensors=tensors)) < horizon_of(weights) / 100


def test_a_state_in_a_coarser_format_than_the_tables_has_a_shorter_horizon() -> None:
    c = built("Z60", "ckda")
    mixed = lowered(c.program, c.certificate, c.automaton, "float32", "bfloat16")
    assert horizon_of(lowered(c.program, c.certificate, c.automaton, "bfloat16", "bfloat16")) <= horizon_of(mixed) < 35
    assert horizon_of(mixed) < horizon_of(c.weights("float32"))


def test_a_weighted_automaton_has_no_horizon_and_one_state_an_endless_one() -> None:
    from statetrack.theory.weighted import Wfa

    half = Fraction(1, 2)
    wfa = Wfa(("a",), (Fraction(1),), (((half,),),), (Fraction(1),))
    assert api.build(wfa, "unconstrained", check=False).weights("float32").horizon() == 0
    assert api.build("Z1").weights("bfloat16").horizon() == math.inf


@pytest.mark.parametrize(("source", "target"), [("(ab)*", "unconstrained"), ("(ab)*", "kda")])
def test_stored_terms_that_the_exact_step_has_not_are_counted(source: str, target: str) -> None:
    """A bias, or one that a value cancels, is added and rounded whatever the certificate says."""
    c = built(source, target)
    weights = c.weights("bfloat16")
    name, keys = "layers.0.bias", weights.tensors["layers.0.dense" if target == "unconstrained" else "layers.0.keys"]
    ids, heads, factors = (*keys.shape[:2], 1 if target == "unconstrained" else keys.shape[2])
    rows, columns = weights.tensors["layers.0.state"].shape[1:]
    tensors = dict(weights.tensors) | {name: np.ones((ids, heads, factors, rows, columns), keys.dtype)}
    changed = replace(weights, tensors=tensors)
    assert horizon_of(weights) > 20
    assert horizon_of(changed) == 0
