"""Chains of sets: what is listed level by level holds all that can be, and the networks are the automata."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.every_target import cases
from statetrack import Options, build
from statetrack.api import build_with
from statetrack.constructions import blocks
from statetrack.constructions.cascade import hole_cascade
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.composed import closed_program
from statetrack.constructions.descents import Descent, Listing, hole_descent, holonomy_descent, listing, listings
from statetrack.constructions.holonomy import holonomy_cascade
from statetrack.errors import BudgetExceeded, CertificateFailed, NoConstruction
from statetrack.printing import network_facts
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa, from_table, minimise
from statetrack.theory.regex import parse_regex
from tests.strategies import dfas, fewer

KINDS = (hole_descent, holonomy_descent)
CONTAINS_ABA = "[ab]*aba[ab]*"


def stored(name: str) -> Dfa:
    automaton = next(case.automaton for case in cases() if case.name == name)
    assert isinstance(automaton, Dfa)
    return automaton


def followed(found: Listing, word: list[int]) -> list[int]:
    """The automaton's states that the levels tell along a word, by the listed tables alone."""
    values, told = list(found.starts), list[int]()
    for token in word:
        p, q = 0, 0
        for i, (actions, narrow) in enumerate(zip(found.actions, found.narrow, strict=True)):
            moved = actions[p, q, token][values[i]]
            p, q, values[i] = narrow[p, values[i]], narrow[q, moved], moved
        told.append(q)
    return told


@fewer(1)
@given(dfas(max_states=6, max_symbols=3), st.sampled_from(KINDS), st.integers(0, 9))
def test_the_listed_tables_follow_every_word(dfa: Dfa, kind: Callable[[Dfa], Descent], seed: int) -> None:
    dfa = minimise(dfa)
    found = listing(kind(dfa))
    for table in found.actions:
        for f in table.values():
            assert len(set(f)) in (1, len(f))
    if dfa.alphabet and len(dfa.states) > 1:
        word = random.Random(seed).choices(range(len(dfa.alphabet)), k=40)
        assert followed(found, word) == [*dfa.trace(dfa.alphabet[t] for t in word)]


def test_fewer_rows_than_chains() -> None:
    dfa = minimise(stored("tcp_ignore"))
    with pytest.raises(BudgetExceeded, match="915,600"):
        holonomy_cascade(dfa)
    assert [(len(one.starts), one.triples) for one in listings(dfa, 1_000_000, 20_000)] == [(10, 14_663), (56, 131_370)]
    # Holes that have more triples than tiles come last.
    found = list(listings(parse_regex("[ab]*a[ab]{3}"), 1_000_000, 20_000))
    assert [len(one.starts) for one in found] == [4, 15]
    assert found[0].triples < found[1].triples
    with pytest.raises(BudgetExceeded, match="--max-states"):
        next(listings(dfa, 1_000, 20_000))


def test_where_tiles_are_too_many_holes_may_do() -> None:
    """S4 moves six pairs of four points but four holes: with 24 x 4 x 4 states to list, tiles pass the bound."""
    images = {"a": "1230", "b": "1023", "c": "0011"}
    edges = {(str(q), letter): image[q] for letter, image in images.items() for q in range(4)}
    dfa = from_table([*images], [*"0123"], "0", edges, {"0": True})
    tiles, holes = listings(dfa, 1_000_000, 20_000)
    assert [max(max(f) for f in one.actions[0].values()) + 1 for one in (tiles, holes)] == [6, 4]
    with pytest.raises(NoConstruction, match="383 states of the cascade: stopped; raise the bound with --max-states"):
        build(dfa, "ckda", construction="chain", max_states=383)
    depths = [len(build(dfa, "ckda", construction="chain", max_states=most).dims) for most in (384, 863, 864)]
    assert depths == [6, 6, 4]


def test_a_descent_that_is_wrong_is_refused() -> None:
    made = hole_descent(parse_regex(CONTAINS_ABA))
    last = made.levels[-1]

    def turned(before: int, after: int, token: int) -> tuple[int, ...]:
        return tuple(1 - x for x in last.action(before, after, token))

    with pytest.raises(CertificateFailed, match="state below the chain after"):
        listing(replace(made, levels=(*made.levels[:-1], replace(last, action=turned))))
    with pytest.raises(CertificateFailed, match="state that the chain starts in"):
        listing(replace(made, dfa=replace(made.dfa, start=1)))


@pytest.mark.parametrize("goal", ["ckda", "kda", "deltanet", "gdn-wide", "deltaproduct", "diag[0,1]", "kda[0,1]"])
def test_a_chain_and_a_listed_cascade_agree(goal: str) -> None:
    sources = [CONTAINS_ABA, "[ab]*a[ab]{2}", "(ab)*"]
    if "[" not in goal:
        sources += ["(b*ab*ab*)*a[ab]", "(a|bb)*c[abc]*"]
    for source in sources:
        chain, stack = (compile_source(source, goal, construction=name) for name in ("chain", "cascade"))
        facts = networks.verify(chain.certificate.text(), chain.certificate.digest)
        assert (facts["kind"], networks.verify(stack.certificate.text())["kind"]) == ("chain", "stack")
        assert facts["proved"] == networks.verify(stack.certificate.text())["proved"].replace("stack", "chain")
        word = random.Random(1).choices(chain.automaton.alphabet, k=200)
        for w in (word, *product(chain.automaton.alphabet, repeat=4)):
            assert chain.run(w) == stack.run(w) == chain.automaton.run(w)


def test_past_the_budget_of_a_cascade_a_chain_is_taken() -> None:
    dfa = stored("cerny5")
    made = build_with(dfa, "deltaproduct", Options(max_cascade=60))
    listed = build(dfa, "deltaproduct", construction="cascade")
    assert (made.plan.construction, listed.plan.construction) == ("chain", "cascade")
    proof = network_facts(made.certificate.data)["proof"]
    assert proof.startswith("chain of sets through")
    assert "each level checked by itself" in proof
    word = random.Random(1).choices(dfa.alphabet, k=300)
    assert made.run(word) == listed.run(word) == dfa.run(word)


def test_what_was_too_many_chains_is_built() -> None:
    made = build(stored("tcp_ignore"), "deltaproduct", check=False)
    facts = networks.verify(made.certificate.text())
    assert (made.plan.construction, made.layers, facts["triples"]) == ("chain", 10, 14_663)
    word = random.Random(1).choices(made.automaton.alphabet, k=200)
    assert made.run(word) == stored("tcp_ignore").run(word)


@pytest.mark.parametrize("goal", ["ckda", "deltanet"])
def test_letters_folded_onto_what_remains_answer_alike(goal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = compile_source("S4", goal, construction="blocks")
    monkeypatch.setattr(blocks, "_MOST_ROWS", 50)
    blocks._accumulator.cache_clear()  # pyright: ignore[reportPrivateUsage]
    turned = compile_source("S4", goal, construction="blocks")
    blocks._accumulator.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert ("turned" in plain.certificate.data, "turned" in turned.certificate.data) == (False, True)
    first, second = (networks.verify(one.certificate.text()) for one in (plain, turned))
    assert (first["proved"], first["margins"]) == (second["proved"], second["margins"])
    assert second["products"] == 24 > 0 < second["entries"] < first["entries"]
    word = random.Random(1).choices(plain.automaton.alphabet, k=200)
    again = closed_program(json.loads(turned.certificate.text()))
    assert plain.run(word) == turned.run(word) == again.run(word) == plain.automaton.run(word)


def test_holes_tell_the_same_sets_as_their_cascade() -> None:
    dfa = parse_regex("[ab]*a[ab]{2}")
    made, cascade = hole_descent(dfa), hole_cascade(dfa)
    for x in cascade.reachable():
        at = made.top
        for level, hole in zip(made.levels, x, strict=True):
            at = level.below(at)[hole]
        assert made.state(at) == cascade.state(x)
