"""One layer of Householder products that shows a component's state and keeps the state before a reset."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.certificate import certify
from statetrack.constructions.program import Factor, Program, Step
from statetrack.constructions.registers import registers_move, registers_program
from statetrack.constructions.targets import target
from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa
from tests.strategies import fewer

Map = tuple[int, ...]
GOAL = target("deltaproduct")


@st.composite
def components(draw: st.DrawFn, max_size: int = 4) -> tuple[tuple[Map, ...], int]:
    """Bijections and constants of some points, the identity and repeats among them, and a start."""
    m = draw(st.integers(2, max_size))
    bijections = st.permutations(range(m)).map(tuple)
    constants = st.integers(0, m - 1).map(lambda c: (c,) * m)
    actions = draw(st.lists(st.one_of(bijections, constants), min_size=1, max_size=4))
    return tuple(actions), draw(st.integers(0, m - 1))


def after(f: Map, past: tuple[int, int]) -> tuple[int, int]:
    """(state before this token if it was a reset, else -1; state)."""
    return (past[1], f[past[1]]) if len(set(f)) == 1 else (-1, f[past[1]])


def automaton(actions: tuple[Map, ...], start: int, *, double: bool) -> Dfa:
    """What the layer tracks: the pair of `after`, or its second number alone."""

    def move(f: Map, x: Map) -> Map:
        return after(f, (x[0], x[1])) if double else (f[x[0]],)

    begin: Map = (-1, start) if double else (start,)
    found: dict[Map, int] = {begin: 0}
    table: list[list[int]] = []
    listed: list[Map] = [begin]
    for x in listed:
        for image in (move(f, x) for f in actions):
            if image not in found:
                found[image] = len(found)
                listed.append(image)
        table.append([found[move(f, x)] for f in actions])
    names = tuple(",".join(map(str, x)) for x in found)
    delta = np.array(table, dtype=np.int32).reshape(len(found), len(actions))
    return Dfa(tuple(str(a) for a in range(len(actions))), names, 0, delta, names)


@fewer(2)
@given(components(), st.booleans(), st.integers(0, 2**32))
def test_registers_show_the_state_and_the_one_before_a_reset(
    component: tuple[tuple[Map, ...], int], double: bool, seed: int
) -> None:
    actions, start = component
    m, dfa = len(actions[0]), automaton(actions, start, double=double)
    program = registers_program(dfa, actions, start)
    closed, certificate = certify(program, dfa, GOAL, max_joint=len(dfa.states))
    assert certificate.joint == len(dfa.states)
    assert networks.verify(certificate.text())["states"] == len(dfa.states)
    assert closed.dims == (((1 + double) * m,),)
    assert closed.factors_per_token <= (2 * m + 1 if double else m)
    word = random.Random(seed).choices(dfa.alphabet, k=60)
    past, expected = (-1, start), list[str]()
    for letter in word:
        past = after(actions[int(letter)], past)
        expected.append(f"{past[0]},{past[1]}" if double else str(past[1]))
    assert closed.run(word) == tuple(expected)


@fewer(4)
@given(components(5), st.booleans())
def test_no_factor_and_no_step_makes_a_state_longer(component: tuple[tuple[Map, ...], int], double: bool) -> None:
    actions, start = component
    program = registers_program(automaton(actions, start, double=double), actions, start)
    head = program.layers[0].heads[0]
    for step, move in zip(head.steps, head.maps, strict=True):
        for factor in step:
            assert isinstance(factor, Factor)
            assert factor.alpha is None
            assert 0 <= factor.beta <= 2
        rows = np.array([[float(x) for x in row] for row in move.matrix])
        assert np.linalg.norm(rows, 2) <= 1 + 1e-12


@given(components(6))
def test_the_move_of_a_pair_is_the_definition(component: tuple[tuple[Map, ...], int]) -> None:
    actions, start = component
    for f in actions:
        assert registers_move(f, (start,)) == (f[start],)
        for before in range(-1, len(f)):
            assert registers_move(f, (before, start)) == after(f, (before, start))


def without(program: Program, drop: int) -> Program:
    """The program without factor `drop` (from the end if negative) of each step."""

    def step(old: Step) -> Step:
        return tuple(f for i, f in enumerate(old) if i != drop % len(old))

    layer = program.layers[0]
    (head,) = layer.heads
    return replace(program, layers=(replace(layer, heads=(replace(head, steps=tuple(map(step, head.steps))),)),))


@pytest.mark.parametrize("double", [False, True])
def test_without_one_of_its_factors_a_layer_is_refused(double: bool) -> None:
    actions = ((1, 2, 0), (0, 0, 0), (2, 2, 2))
    dfa = automaton(actions, 0, double=double)
    program = registers_program(dfa, actions, 0)
    certify(program, dfa, GOAL)
    for drop in range(3 if double else 2):
        with pytest.raises((CertificateFailed, BudgetExceeded)):
            certify(without(program, drop), dfa, GOAL, max_joint=200)
    with pytest.raises((CertificateFailed, BudgetExceeded)):
        certify(without(program, -1), dfa, GOAL, max_joint=200)


def test_resets_of_five_points_take_eleven_factors() -> None:
    actions = ((1, 2, 3, 4, 0), (3,) * 5)
    dfa = automaton(actions, 0, double=True)
    closed, certificate = certify(registers_program(dfa, actions, 0), dfa, GOAL)
    assert sorted(map(len, closed.layers[0].heads[0].steps)) == [9, 11]
    assert (closed.dims, certificate.joint) == (((10,),), 10)
