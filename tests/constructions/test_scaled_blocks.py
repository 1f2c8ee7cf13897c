"""Blocks with β at most 2 whose state shrinks: what is right, for how long, in which format, and what is refused."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import statetrack as st
from statetrack.cli import main
from statetrack.constructions.certificate import digest_of
from statetrack.constructions.factorise import factor_map_to_bank, halvings, map_matrix
from statetrack.constructions.program import step_map
from statetrack.errors import InvalidInput, NoConstruction
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa, minimise, reachable
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa

Q = rationals()
LAST_BUT_ONE = "(a|b)*a(a|b)"


def merging(seed: int) -> Dfa:
    """A random minimal automaton of 3 to 5 states whose letters merge states, with no sink."""
    draw = random.Random(seed)
    while True:
        n = draw.randint(3, 5)
        rows = [[draw.randrange(n) for _ in range(2)] for _ in range(n)]
        outputs = tuple(draw.random() < 0.5 for _ in range(n))
        table = np.array(rows, dtype=np.int32)
        dfa = minimise(reachable(Dfa(("a", "b"), tuple(map(str, range(n))), 0, table, outputs)))
        sinks = any(set(row) == {q} for q, row in enumerate(dfa.delta.tolist()))
        if len(dfa.states) > 2 and not dfa.is_permutation() and not sinks:
            return dfa


@pytest.mark.parametrize("goal", ["ckda", "kda", "gdn", "deltanet"])
@pytest.mark.parametrize("seed", range(4))
def test_random_automata_are_tracked_with_beta_at_most_two_for_the_tokens_asked_for(goal: str, seed: int) -> None:
    dfa, tokens = merging(seed), 60
    made = st.build(dfa, goal, scaled=tokens)
    assert made.plan.construction == "scaled"
    assert float(made.program.beta_max) <= 2
    for word in product("ab", repeat=7):
        assert made.run(word) == dfa.run(word)
    draw = random.Random(seed)
    for _ in range(10):
        word = draw.choices("ab", k=tokens)
        assert made.run(word) == dfa.run(word)


def test_the_checker_says_for_how_many_tokens() -> None:
    made = st.build(LAST_BUT_ONE, "ckda", scaled=40)
    facts = networks.verify(made.certificate.text(), made.certificate.digest)
    assert facts["proved"].startswith("after every non-empty word of up to 40 tokens")
    assert (made.tokens, made.weights("float64").horizon()) == (40, 40.0)
    with pytest.raises(InvalidInput, match="is for 40 at most"):
        made.run("a" * 41)


def test_the_state_is_halved_at_most_as_often_as_the_certificate_says_and_as_little_as_a_power_of_two_can() -> None:
    made = st.build(LAST_BUT_ONE, "ckda", scaled=41)
    data = made.certificate.data
    assert data["scaled"] == {"tokens": 41, "halvings": (41 - 1) // data["length"]}
    assert [halvings(f) for f in ((0, 1), (0, 0), (0,) * 4, (0,) * 5, (0,) * 16, (0,) * 17)] == [0, 1, 1, 2, 2, 3]


@pytest.mark.parametrize("gates", [True, False])
def test_a_map_goes_from_bank_to_bank_with_beta_at_most_two_exactly_from_its_halvings_on(gates: bool) -> None:
    for f in product(range(4), repeat=4):
        for halved in range(3):
            factors = factor_map_to_bank(Q, f, 1, gates=gates, halved=halved)
            got = step_map(Q, tuple(factors), 8, 1).matrix[4:]
            assert got == tuple((*(x / 2**halved for x in row), *[Q.zero] * 4) for row in map_matrix(Q, f))
            assert all(factor.beta <= 2 for factor in factors) == (halved >= halvings(f))  # pyright: ignore


def test_what_a_format_holds_is_said_and_right_to_its_last_token() -> None:
    made = st.build(LAST_BUT_ONE, "ckda", scaled=200)
    with pytest.raises(InvalidInput, match="it holds 55; give --scaled 112 at most"):
        made.weights("float32")
    assert made.weights("float64").run(random=20, length=200, device="cpu", executor="reference").wrong == 0
    longest = st.build(LAST_BUT_ONE, "ckda", scaled=112)
    trace = longest.weights("float32").run(random=200, length=112, device="cpu", executor="reference")
    assert (trace.wrong, trace.tokens) == (0, 200 * 112)
    with pytest.raises(InvalidInput, match="it holds 6"):
        longest.weights("float16")


def test_words_past_the_horizon_are_answered_wrong() -> None:
    weights = st.build(LAST_BUT_ONE, "ckda", scaled=30).weights("float64")
    trace = weights.run(random=50, length=90, device="cpu", executor="reference")
    assert trace.first_wrong is not None
    assert trace.first_wrong >= 30


def test_weights_files_keep_their_horizon(tmp_path: Path) -> None:
    path = tmp_path / "scaled.safetensors"
    st.build(LAST_BUT_ONE, "kda", scaled=50).weights().save(path)
    assert st.load(path).run(random=20, length=50, device="cpu", executor="reference").wrong == 0
    from statetrack.api import check

    assert "of up to 50 tokens" in check(path)["proved"]


def _more_tokens(data: dict[str, Any]) -> None:
    data["scaled"]["tokens"] += data["length"]


def _fewer_halvings(data: dict[str, Any]) -> None:
    data["scaled"]["halvings"] -= 1


def _not_scaled(data: dict[str, Any]) -> None:
    del data["scaled"]


def _another_row(data: dict[str, Any]) -> None:
    data["row"] = [2 * x for x in range(1, 1 + len(data["row"]))]


def _another_factor(data: dict[str, Any]) -> None:
    factor = next(f for step in data["accumulator"]["steps"] for f in step if f["c"] != 0)
    factor["c"] = "1/3"


def _no_tokens(data: dict[str, Any]) -> None:
    data["scaled"]["tokens"] = 0


def _another_key(data: dict[str, Any]) -> None:
    data["scaled"]["for_ever"] = True


@pytest.mark.parametrize(
    "change",
    [_more_tokens, _fewer_halvings, _not_scaled, _another_row, _another_factor, _no_tokens, _another_key],
)
def test_a_changed_certificate_is_refused(change: Callable[[dict[str, Any]], None]) -> None:
    data = copy.deepcopy(dict(st.build(LAST_BUT_ONE, "ckda", scaled=20).certificate.data))
    change(data)
    data["digest"] = digest_of(data)
    with pytest.raises(networks.Refused):
        networks.verify(json.dumps(data))


def test_readouts_that_are_a_power_of_two_apart_are_refused() -> None:
    """With γ = (1, 2, ...) one state's halved readout is another's."""
    data = copy.deepcopy(dict(st.build(LAST_BUT_ONE, "ckda", scaled=20).certificate.data))
    _another_row(data)
    data["digest"] = digest_of(data)
    with pytest.raises(networks.Refused, match=r"distance of readouts|γ M_v R"):
        networks.verify(json.dumps(data))


def test_no_stack_takes_a_scaled_part() -> None:
    stack = copy.deepcopy(dict(st.build("(a|b)*abb(a|b)*", "ckda", construction="cascade").certificate.data))
    part = st.build(LAST_BUT_ONE, "ckda", scaled=20).certificate.data
    assert stack["kind"] == "stack"
    stack["parts"][0] = part
    stack["digest"] = digest_of(stack)
    with pytest.raises(networks.Refused, match="part"):
        networks.verify(json.dumps(stack))


@pytest.mark.parametrize(
    ("source", "goal", "how", "why"),
    [
        ("S3", "ckda", {}, "none of its letters merges states"),
        ("(ab)*", "ckda", {}, "none of its letters merges states"),
        (LAST_BUT_ONE, "ckda-wide", {}, "one factor a token with β at most 2"),
        (LAST_BUT_ONE, "deltaproduct", {}, "one factor a token with β at most 2"),
        (LAST_BUT_ONE, "unconstrained", {}, "one factor a token with β at most 2"),
    ],
)
def test_what_is_right_for_every_length_otherwise_is_not_scaled(
    source: str, goal: str, how: dict[str, Any], why: str
) -> None:
    with pytest.raises(NoConstruction, match=why):
        st.build(source, goal, scaled=10, **how)


def test_senseless_uses_are_refused_by_name() -> None:
    with pytest.raises(InvalidInput, match="tokens from 1 on"):
        st.build(LAST_BUT_ONE, "ckda", scaled=0)
    with pytest.raises(InvalidInput, match="no construction"):
        st.build(LAST_BUT_ONE, "ckda", scaled=5, construction="cascade")
    half = Wfa(("a",), (Fraction(1),), (((Fraction(1, 2),),),), (Fraction(1),))
    with pytest.raises(InvalidInput, match="weighted automaton"):
        st.build(half, "ckda-wide", scaled=5)
    with pytest.raises(InvalidInput, match="in no precision for ever"):
        st.build(LAST_BUT_ONE, "ckda", scaled=5).for_ever("fp32")


def test_the_command_line_says_what_it_costs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scaled.safetensors"
    assert main(["build", LAST_BUT_ONE, "--scaled", "40", "-o", str(path)]) == 0
    assert "40 tokens, in which the state is halved 19 times" in " ".join(capsys.readouterr().out.split())
    assert main(["run", str(path), "--random", "9", "--length", "40", "--executor", "reference"]) == 0
    assert main(["build", str(tmp_path), "--scaled", "40"]) == 2
    assert main(["build", LAST_BUT_ONE, "--scaled", "40", "--precision", "bf16"]) == 2
    assert "its state shrinks" in capsys.readouterr().err
