"""Cascades of holes, their reduction, and their realisation as Householder products."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings

from statetrack.constructions.cascade import Cascade, Component, hole_cascade, reduce
from statetrack.constructions.certificate import certify
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.realise import cascade_layers
from statetrack.constructions.targets import target
from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.proofs_check import checker
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.regex import parse_regex
from tests.strategies import dfas

SECOND_TO_LAST = "[ab]*a[ab]"


def permutation_or_reset(f: tuple[int, ...]) -> bool:
    return len(set(f)) in (1, len(f))


@settings(max_examples=100)
@given(dfas(max_states=5, max_symbols=3))
def test_holes_emulate_on_all_component_states_not_only_reachable_ones(dfa: Dfa) -> None:
    cascade = hole_cascade(dfa)
    n = len(dfa.states)
    assert [c.size for c in cascade.components] == list(range(n, 1, -1))
    assert cascade.state(cascade.start) == dfa.start
    for x in product(*(range(c.size) for c in cascade.components)):
        for token in range(len(dfa.alphabet)):
            assert cascade.state(cascade.step(x, token)) == dfa.delta[cascade.state(x), token]
            for j, c in enumerate(cascade.components):
                assert permutation_or_reset(c.action(token, tuple(x[i] for i in c.reads))), j


@settings(max_examples=100)
@given(dfas(max_states=6, max_symbols=3))
def test_a_reduced_cascade_does_the_same_with_no_more(dfa: Dfa) -> None:
    dfa = minimise(dfa)
    whole = hole_cascade(dfa)
    small = reduce(whole)
    assert len(small.components) <= len(whole.components)
    assert small.state(small.start) == dfa.start
    for x in small.reachable():
        for token in range(len(dfa.alphabet)):
            assert small.state(small.step(x, token)) == dfa.delta[small.state(x), token]
            for j, c in enumerate(small.components):
                assert all(i < j for i in c.reads)
                assert permutation_or_reset(c.action(token, tuple(x[i] for i in c.reads)))


@settings(max_examples=60)
@given(dfas(max_states=5, max_symbols=2))
def test_every_automaton_is_built_on_deltaproduct_and_on_wide_ckda(dfa: Dfa) -> None:
    for goal in ("deltaproduct", "ckda-wide"):
        made = compile_source(dfa, goal)
        assert checker.verify(made.certificate.text())["target"] == goal
        for word in product(dfa.alphabet, repeat=4):
            assert made.run(word) == dfa.run(word)
        if dfa.alphabet:
            word = random.Random(1).choices(dfa.alphabet, k=100)
            assert made.run(word) == dfa.run(word)


@pytest.mark.parametrize(
    ("pattern", "layers", "factors"), [("(ab)*", 2, 5), ("[ab]*aba[ab]*", 3, 5), (SECOND_TO_LAST, 2, 5), ("a*b*", 2, 5)]
)
def test_sizes_of_known_languages(pattern: str, layers: int, factors: int) -> None:
    made = compile_source(pattern, "deltaproduct")
    assert (made.plan.construction, made.layers, made.factors_per_token) == ("cascade", layers, factors)


def test_without_the_register_for_the_state_before_a_reset_the_stack_fails() -> None:
    """The literal stack of the paper's proof, fed states after the update, cannot tell the second to last letter."""
    small = reduce(hole_cascade(parse_regex(SECOND_TO_LAST)))

    def misread(component: Component, j: int) -> Component:
        def action(token: int, read: tuple[int, ...]) -> tuple[int, ...]:
            after = tuple(small.components[i].action(token, ())[p] for i, p in zip(component.reads, read, strict=True))
            return component.action(token, after)

        return Component(component.size, component.reads, action) if j else component

    assert [c.reads for c in small.components] == [(), (0,)]
    broken = Cascade(small.dfa, tuple(misread(c, j) for j, c in enumerate(small.components)), small.start, small.state)
    with pytest.raises(CertificateFailed):
        certify(cascade_layers(broken), small.dfa, target("deltaproduct"))


def test_the_budget_stops_a_cascade_with_too_many_states() -> None:
    with pytest.raises(BudgetExceeded):
        hole_cascade(parse_regex("[ab]*a[ab]{5}")).reachable(50)
