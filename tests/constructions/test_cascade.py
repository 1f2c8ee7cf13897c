"""Cascades of holes, their reduction, and their realisation as Householder products."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statetrack.constructions.cascade import (
    Cascade,
    Component,
    completed,
    hole_cascade,
    only_resets,
    verify_cascade,
    walk,
)
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.reduction import reduce
from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.proofs_check import networks
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
        assert networks.verify(made.certificate.text())["target"] == goal
        for word in product(dfa.alphabet, repeat=4):
            assert made.run(word) == dfa.run(word)
        if dfa.alphabet:
            word = random.Random(1).choices(dfa.alphabet, k=100)
            assert made.run(word) == dfa.run(word)


@pytest.mark.parametrize(
    ("pattern", "sizes"), [("(ab)*", [2, 2]), ("[ab]*aba[ab]*", [2, 2, 2]), (SECOND_TO_LAST, [2, 2]), ("a*b*", [2, 2])]
)
def test_sizes_of_known_languages(pattern: str, sizes: list[int]) -> None:
    small = reduce(hole_cascade(parse_regex(pattern)))
    assert [c.size for c in small.components] == sizes
    assert small.levels == len(sizes)


def test_a_stack_that_reads_states_after_the_token_fails() -> None:
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
        verify_cascade(broken)


def test_the_budget_stops_a_cascade_with_too_many_states() -> None:
    with pytest.raises(BudgetExceeded):
        hole_cascade(parse_regex("[ab]*a[ab]{5}")).reachable(50)


@given(dfas(max_states=6, max_symbols=3))
def test_the_step_of_all_holes_at_once_is_that_of_the_components(dfa: Dfa) -> None:
    cascade = hole_cascade(dfa)
    assert cascade.whole is not None
    for x in cascade.reachable():
        for token in range(len(dfa.alphabet)):
            assert cascade.whole(x, token) == cascade.step(x, token)


@given(dfas(max_states=6, max_symbols=3))
def test_reduction_keeps_no_component_and_no_reading_that_it_could_drop_alone(dfa: Dfa) -> None:
    small = reduce(hole_cascade(dfa))
    verify_cascade(small)
    again = reduce(small)
    assert (again.levels, again.total_size) <= (small.levels, small.total_size)
    assert small.layers == tuple(1 + max((small.layers[i] for i in c.reads), default=0) for c in small.components)


@pytest.mark.parametrize(
    ("letters", "components"),
    [([[0]], 0), ([], 0), ([[0, 1]], 1), ([[1, 1]], 1), ([[1, 0]], 1), ([[0, 0, 0], [2, 2, 2]], 2), ([[0, 1, 2]], 2)],
)
def test_one_state_no_letter_one_letter_and_constant_letters(letters: list[list[int]], components: int) -> None:
    n = len(letters[0]) if letters else 1
    table = np.array(letters, dtype=np.int32).reshape(len(letters), n).T
    dfa = Dfa(tuple("ab"[: len(letters)]), tuple("qrs"[:n]), 0, table, (False,) * n)
    cascade = hole_cascade(dfa)
    assert len(cascade.components) == components
    verify_cascade(cascade)
    verify_cascade(reduce(cascade))


def test_holes_of_two_hundred_states_are_stepped_without_a_table() -> None:
    rng = random.Random(3)
    columns = [[rng.randrange(200) for _ in range(200)] for _ in range(2)]
    dfa = Dfa(("a", "b"), tuple(map(str, range(200))), 0, np.array(columns, dtype=np.int32).T, (False,) * 200)
    cascade = hole_cascade(dfa)
    assert [c.size for c in cascade.components] == list(range(200, 1, -1))
    assert cascade.whole is not None
    x, q = cascade.start, 0
    for token in rng.choices((0, 1), k=5):
        after = cascade.step(x, token)
        assert after == cascade.whole(x, token)
        x, q = after, int(dfa.delta[q, token])
        assert cascade.state(x) == q


def test_a_mutated_action_start_or_answer_is_refused() -> None:
    small = reduce(hole_cascade(parse_regex("[ab]*aba[ab]*")))
    verify_cascade(small)
    first, rest = small.components[0], small.components[1:]

    def swapped(token: int, read: tuple[int, ...]) -> tuple[int, ...]:
        return first.action(1 - token, read)

    def outside(token: int, read: tuple[int, ...]) -> tuple[int, ...]:
        return (0,) * (first.size - 1) + (first.size,)

    def shifted(x: tuple[int, ...]) -> int:
        return (small.state(x) + 1) % 4

    def merged(x: tuple[int, ...]) -> int:
        return min(small.state(x), 2)

    wrong = (
        (replace(small, components=(replace(first, action=swapped), *rest)), "W(step"),
        (replace(small, components=(replace(first, action=outside), *rest)), "action of component 0"),
        (replace(small, state=shifted), "W(start)"),
        (replace(small, state=merged), "W(step"),
    )
    for cascade, equation in wrong:
        with pytest.raises(CertificateFailed) as caught:
            verify_cascade(cascade)
        assert caught.value.equation.startswith(equation)


@given(st.permutations(range(6)), st.sets(st.integers(0, 5)), st.integers(0, 5))
def test_partial_maps_are_completed_to_bijections_or_constants(p: list[int], absent: set[int], c: int) -> None:
    partial = tuple(-1 if a in absent else b for a, b in enumerate(p))
    total = completed(partial)
    assert permutation_or_reset(total)
    assert all(b in (-1, total[a]) for a, b in enumerate(partial))
    assert completed(tuple(-1 if a in absent else c for a in range(6))) in ((c,) * 6, (0, 1, 2, 3, 4, 5))
    assert all(b in (-1, a) for a, b in enumerate(partial)) == (total == (0, 1, 2, 3, 4, 5))


def test_a_walk_numbers_states_and_successors() -> None:
    found = walk(hole_cascade(parse_regex("(ab)*")))
    assert found.states[0].tolist() == list(hole_cascade(parse_regex("(ab)*")).start)
    assert found.after.shape == (len(found.states), 2)
    assert found.answers.shape == (len(found.states),)


def test_bijections_of_holes_are_told_from_resets() -> None:
    assert only_resets(reduce(hole_cascade(parse_regex(SECOND_TO_LAST))))
    assert not only_resets(hole_cascade(parse_regex("(aaa)*")))
