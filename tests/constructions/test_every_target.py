"""Automata of the test data, random ones and odd ones on the targets: built and checked, or refused with a witness.

`benchmarks/every_target.py` and `benchmarks/random_dfas.py` do the same for all automata on all targets.
"""

from __future__ import annotations

import random
from functools import cache
from itertools import count, islice, product
from pathlib import Path

import numpy as np
import pytest

from benchmarks.every_target import APERIODIC, TWO_PERIODIC, Case, cases, judge, random_dfa, some_words, walk
from statetrack import BudgetExceeded, InvalidAutomaton, NoConstruction, NotExpressible, Options, build
from statetrack.api import build_with
from statetrack.constructions.targets import TARGETS
from statetrack.theory.automata import Dfa, from_table, minimise
from statetrack.theory.regex import parse_regex

AUTOMATA = 500
# Larger groups than S6 make certificates of millions of numbers: automata of more states are the benchmark's.
MOST_STATES = 6
CASES = {case.name: case for case in cases()}
SOME = ("ab_star", "flipflop", "last_is_a", "mod6", "s3_points", "tomita1")
# One target of each kind: diagonal, signed diagonal, narrow, one factor with and without gates, products, wide, dense.
KINDS = ("diag[0,1]", "diag[-1,1]", "gdn[0,1]", "deltanet", "kda", "ckda", "deltaproduct", "ckda-wide", "unconstrained")


def periods(dfa: Dfa) -> set[int]:
    """The lengths of all cycles of all words, from all maps of a minimal automaton."""
    letters = [tuple(map(int, dfa.delta[:, s])) for s in range(len(dfa.alphabet))]
    one = tuple(range(len(dfa.states)))
    seen, queue = {one}, [one]
    for f in queue:
        fresh = {tuple(g[q] for q in f) for g in letters} - seen
        seen |= fresh
        queue += fresh
    found: set[int] = set()
    for f in seen:
        for q in one:
            at, steps = f[q], 1
            while at != q and steps < len(one):
                at, steps = f[at], steps + 1
            found |= {steps} if at == q else set()
    return found


def expected(dfa: Dfa, goal: str) -> str:
    lengths = periods(minimise(dfa))
    if goal in APERIODIC:
        return "built" if lengths == {1} else "refused"
    return "built" if goal not in TWO_PERIODIC or not any(n & (n - 1) for n in lengths) else "refused"


@pytest.mark.parametrize("goal", TARGETS)
@pytest.mark.parametrize("name", SOME)
def test_stored_automata_are_built_or_refused_as_their_periods_say(name: str, goal: str) -> None:
    case = CASES[name]
    verdict = judge(case, goal, seconds=None, words=some_words(name, case.automaton.alphabet, (1, 20, 40)))
    if isinstance(case.automaton, Dfa):
        assert (verdict.result, verdict.why[:6]) == (expected(case.automaton, goal), verdict.why and "period")
    else:
        wide = goal.endswith("-wide") or goal == "unconstrained"
        assert verdict.result == ("built" if wide else "none"), verdict.why


def two_targets(number: int) -> tuple[str, str]:
    """Two targets for a random automaton: of any fifteen automata from a multiple of 15 on, each target gets two."""
    deck = random.Random(number // len(TARGETS)).sample([*TARGETS], len(TARGETS))
    return deck[number % len(TARGETS)], deck[(number + 1) % len(TARGETS)]


def test_targets_are_dealt_evenly_to_random_automata() -> None:
    dealt = [goal for number in range(AUTOMATA) for goal in two_targets(number)]
    assert all(abs(dealt.count(goal) * len(TARGETS) - len(dealt)) <= 2 * len(TARGETS) for goal in TARGETS)


@cache
def sample() -> list[Dfa]:
    small = (dfa for number in count() if len((dfa := random_dfa(2, number)).states) <= MOST_STATES)
    return [*islice(small, AUTOMATA)]


@pytest.mark.parametrize("first", range(0, AUTOMATA, 20))
def test_random_automata_are_built_or_refused_as_their_periods_say(first: int) -> None:
    # The first automata of seed 2 with up to MOST_STATES states, 1 to 3 letters, each on two of the fifteen targets.
    # All words of up to five letters are prefixes of those of five.
    for number, dfa in enumerate(sample()[first : first + 20], first):
        words = [*product(dfa.alphabet, repeat=5), *some_words(str(number), dfa.alphabet, (200,))]
        for goal in two_targets(number):
            verdict = judge(Case(str(number), dfa), goal, seconds=None, words=words, kernels=False)
            assert verdict.result == expected(dfa, goal), verdict


def test_no_component_of_a_construction_refuses_for_the_automaton() -> None:
    # All periods are 1 or 2, but the cascade of fewest levels has a component with the group S3.
    verdict = judge(Case("32", random_dfa(0, 32)), "diag[-1,1]", seconds=None, words=[])
    assert (verdict.result, expected(random_dfa(0, 32), "diag[-1,1]")) == ("built", "built"), verdict


def dfa_of(alphabet: str, rows: list[list[int]], outputs: list[bool], start: int = 0) -> Dfa:
    names = tuple(f"q{i}" for i in range(len(rows)))
    delta = np.array(rows, dtype=np.int32).reshape(len(rows), len(alphabet))
    return Dfa(tuple(alphabet), names, start, delta, tuple(outputs))


ODD = {
    "empty alphabet": dfa_of("", [[]], [True]),
    "one state": dfa_of("ab", [[0, 0]], [True]),
    "epsilon only": dfa_of("ab", [[1, 1], [1, 1]], [True, False]),
    "equal states": dfa_of("a", [[1], [0]], [False, False]),
    "equal letters": dfa_of("abc", [[1, 1, 0], [0, 0, 1]], [True, False]),
    "equal resets": dfa_of("abc", [[1, 1, 0], [1, 1, 0]], [True, False]),
    "identity": dfa_of("ab", [[0, 0], [0, 1], [2, 1]], [True, False, True], 2),
    "identity only": dfa_of("a", [[0]], [False]),
    "constant": dfa_of("ab", [[1, 1], [2, 1], [0, 1]], [True, False, False]),
}


@pytest.mark.parametrize("goal", KINDS)
@pytest.mark.parametrize("name", ODD)
def test_odd_automata_are_answered_on_all_words(name: str, goal: str) -> None:
    dfa = ODD[name]
    verdict = judge(Case(name, dfa), goal, seconds=None, words=[*product(dfa.alphabet, repeat=4)])
    assert verdict.result == expected(dfa, goal), verdict


@pytest.mark.parametrize("goal", KINDS)
def test_the_empty_word_has_its_stored_answer(goal: str) -> None:
    for dfa in (ODD["epsilon only"], ODD["empty alphabet"], minimise(dfa_of("ab", [[1, 0], [1, 0]], [False, True]))):
        made = build(dfa, goal)
        assert made.program.empty_word_output == dfa.outputs[dfa.start]
        assert made.run(()) == ()


@pytest.mark.parametrize("goal", KINDS)
def test_unreachable_states_change_nothing(goal: str) -> None:
    edges = {("x", "a"): "y", ("x", "b"): "x", ("y", "a"): "y", ("y", "b"): "x"}
    lost = {("u", "a"): "v", ("u", "b"): "x", ("v", "a"): "u", ("v", "b"): "v"}
    small = from_table("ab", ["x", "y"], "x", edges, {"y": True})
    large = from_table("ab", ["u", "x", "v", "y"], "x", edges | lost, {"y": True, "u": True})
    assert build(small, goal).certificate.digest == build(large, goal).certificate.digest


@pytest.mark.parametrize("goal", KINDS)
def test_partial_files_are_refused_or_filled_as_the_policy_says(goal: str, tmp_path: Path) -> None:
    path = tmp_path / "partial.json"
    path.write_text('{"start": "x", "accepting": ["y"], "delta": {"x": {"a": "y"}, "y": {"b": "x"}}}', encoding="utf-8")
    with pytest.raises(InvalidAutomaton, match="no transition"):
        build(str(path), goal)
    edges = {("x", "a"): "y", ("y", "b"): "x"}
    for missing in ("sink", "stay"):
        filled = from_table("ab", ["x", "y"], "x", edges, {"y": True}, missing=missing)
        made = build(str(path), goal, missing=missing)
        for word in product("ab", repeat=5):
            assert [*made.run(word)] == walk(filled, word)


@pytest.mark.parametrize("goal", ["diag[0,1]", "diag[-1,1]", "kda[0,1]", "deltanet", "ckda", "ckda-wide"])
def test_past_the_monoid_budget_answers_are_still_proofs(goal: str) -> None:
    # No letter has a cycle but 1; a period of two or three needs a word of letters, past the first two elements.
    for pattern in ("(ab)*", "(a|b)*aa(a|b)*", "(ab(ab)*ab)*", "(abababab|ababab)*c"):
        dfa = parse_regex(pattern)
        words = some_words(pattern, dfa.alphabet, (30, 30))
        verdict = judge(Case(pattern, dfa), goal, seconds=None, words=words, max_monoid=1)
        assert verdict.result in ("built", "none", expected(dfa, goal)), verdict
        assert verdict.result == "built" or goal in APERIODIC | TWO_PERIODIC, verdict


def test_an_unknown_period_is_told_as_a_missing_construction_and_no_refusal() -> None:
    edges = {"x": {"a": "0", "b": "x"}, "0": {"a": "0", "b": "1"}, "1": {"a": "0", "b": "2"}, "2": {"a": "0", "b": "0"}}
    table = {(q, s): to for q, row in edges.items() for s, to in row.items()}
    late = from_table(["a", "b"], [*edges], "x", table, {"0": True, "1": True})
    with pytest.raises(NotExpressible, match="period 3"):
        build(late, "diag[-1,1]")
    # The monoid of this one has no cycle in its letters.
    dfa = parse_regex("((ab)(ab)(ab))*")
    assert periods(dfa) >= {3}
    with pytest.raises(NoConstruction, match="cascade"):
        build_with(dfa, "diag[-1,1]", Options(max_monoid=1))
    with pytest.raises(NotExpressible):
        build_with(dfa, "diag[-1,1]", Options(max_monoid=1_000))


@pytest.mark.parametrize("goal", ["ckda", "deltanet", "deltaproduct", "unconstrained"])
def test_a_budget_of_joint_states_is_told_with_its_flag(goal: str) -> None:
    dfa = random_dfa(0, 32)
    with pytest.raises((BudgetExceeded, NoConstruction), match="--max-states"):
        build(dfa, goal, max_states=3)
