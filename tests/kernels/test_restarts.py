"""Renormalising runs: fresh states in place of drifted ones, and what is proved of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from statetrack import api
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_network import Fails, shortest_failing_word
from statetrack.errors import InvalidInput
from statetrack.kernels.load import model_of
from statetrack.kernels.restarts import Restarts
from statetrack.kernels.run import execute
from statetrack.theory.automata import shortest_words

HOW: Any = {"device": "cpu", "executor": "reference"}


def test_a_tracker_that_drifts_is_right_if_its_state_is_replaced_soon_enough() -> None:
    weights = api.build("Z60", "ckda", check=False).weights("bfloat16")
    drifting = weights.run(random=16, length=2000, seed=1, **HOW)
    assert drifting.wrong_words == 16
    assert weights.run(random=16, length=2000, seed=1, renormalise=2, **HOW).wrong == 0
    assert weights.horizon(renormalise=2) == math.inf
    assert weights.horizon(renormalise=3) == weights.horizon() == 3
    with pytest.raises(InvalidInput, match="renormalise 0"):
        weights.horizon(renormalise=0)
    # Too late: the state that is decoded wrong is replaced by a wrong one.
    assert weights.run(random=16, length=2000, seed=1, renormalise=400, **HOW).wrong_words == 16


def test_a_word_that_fails_alone_is_right_with_replacements() -> None:
    c = api.build("Z60", "ckda", check=False)
    weights = lowered(c.program, c.certificate, c.automaton, "bfloat16", "bfloat16")
    found = shortest_failing_word(weights, max_depth=4)
    assert not isinstance(found, Fails)
    run = api.Weights("bfloat16", weights.tensors, weights.certificate, weights.automaton)
    assert run.run([["7"] * 500], renormalise=2, **HOW).wrong == 0
    assert run.run([["7"] * 500], **HOW).wrong > 0


@pytest.mark.parametrize(("source", "target"), [("(a|b)*abb(a|b)*", "kda"), ("A4", "ckda"), ("S3", "deltaproduct")])
def test_networks_of_several_layers_and_words_of_different_lengths_go_on_as_before(source: str, target: str) -> None:
    weights = api.build(source, target, check=False).weights("float64")
    alphabet = weights.dfa.alphabet
    words = [[alphabet[(i * i + n) % len(alphabet)] for i in range(n)] for n in (0, 1, 7, 40, 41)]
    plain, replaced = weights.run(words, **HOW), weights.run(words, renormalise=3, **HOW)
    assert plain.answers is not None
    assert replaced.answers is not None
    assert torch.equal(plain.answers, replaced.answers)
    assert replaced.wrong == 0


def test_an_unknown_answer_keeps_the_state() -> None:
    model = model_of(api.build("Z3", "ckda", check=False).weights("float32"))
    assert model.delta is not None
    restarts = Restarts(
        model.delta, 0, lambda words: [torch.arange(len(words))[:, None, None, None]], torch.device("cpu")
    )
    old = [torch.full((2, 1, 1, 1), 9)]
    (after,) = restarts(old, torch.tensor([-1, 2]))
    assert after[0].item() == 9
    assert 0 <= after[1].item() < 3


def test_shortest_words_reach_their_states_and_states_out_of_reach_have_none() -> None:
    delta = [[1, 0], [2, 0], [2, 2], [0, 0]]
    assert shortest_words(delta, 0) == {0: (), 1: (0,), 2: (0, 0)}


def test_a_renormalising_run_refuses_no_tokens_at_a_time_and_chunks() -> None:
    model = model_of(api.build("Z3", "ckda", check=False).weights("float32"))
    tokens = torch.zeros(1, 4, dtype=torch.int32)
    with pytest.raises(InvalidInput, match="renormalise"):
        execute(model, tokens, renormalise=0)
    with pytest.raises(InvalidInput, match="renormalise"):
        execute(model, tokens, renormalise=2, chunk=2)
