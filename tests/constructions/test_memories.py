"""Networks that remember the last value or two, on every target that has one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.api import Weights
from statetrack.constructions.certificate import certify
from statetrack.constructions.memories import memory_program
from statetrack.constructions.program import Head, Layer, Lookup, Program, Step
from statetrack.constructions.targets import TARGETS, target, validate
from statetrack.constructions.weights import lower
from statetrack.errors import BudgetExceeded, CertificateFailed, InvalidInput, OutOfRange
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa
from tests.strategies import fewer

NAMES = tuple(name for name in TARGETS if name != "unconstrained")
DIGITS = ("diag[0,1]", "diag[-1,1]", "deltanet[0,1]", "gdn[0,1]", "kda[0,1]")
GATED = ("kda", "kda-wide", "ckda", "ckda-wide")
LATCHED = ("deltanet", "deltanet-wide", "gdn", "gdn-wide")


def told(past: tuple[int, ...], order: int) -> tuple[int, ...]:
    """What is remembered after an order: 0 to hold, 1 + x to take the value x."""
    return (*past[1:], order - 1) if order else past


def memory(orders: Sequence[int], start: int, *, values: int) -> Dfa:
    """The automaton of the last `values` values, named by them, the last one last."""
    found = {(start,) * values: 0}
    table: list[list[int]] = []
    for past in (listed := [*found]):
        for image in (told(past, o) for o in orders):
            if image not in found:
                found[image] = len(found)
                listed.append(image)
        table.append([found[told(past, o)] for o in orders])
    names = tuple(",".join(map(str, past)) for past in found)
    delta = np.array(table, dtype=np.int32).reshape(len(found), len(orders))
    return Dfa(tuple(f"{o}" for o in orders), names, 0, delta, names)


ORDERS = st.sets(st.integers(0, 7), min_size=1, max_size=5).map(lambda orders: tuple(sorted(orders)))


@given(st.sampled_from(NAMES), st.sampled_from([1, 2, 2]), ORDERS, st.integers(0, 6), st.integers(0, 2**32))
@fewer(2)
def test_a_memory_names_the_values_it_was_told_and_takes_finitely_many_states(
    name: str, values: int, orders: tuple[int, ...], start: int, seed: int
) -> None:
    dfa, goal = memory(orders, start, values=values), target(name)
    program = memory_program(name, dfa, orders)
    validate(program, goal)
    closed, certificate = certify(program, dfa, goal, max_joint=4 * len(dfa.states))
    # A sign that flips stands beside the two numbers of a latched memory; the others hold nothing else.
    assert certificate.joint <= len(dfa.states) * (2 if name in LATCHED and values == 2 else 1)
    facts = networks.verify(certificate.text())
    assert (facts["target"], facts["joint"]) == (name, certificate.joint)
    word = random.Random(seed).choices(dfa.alphabet, k=60)
    past, expected = (start,) * values, list[str]()
    for letter in word:
        past = told(past, int(letter))
        expected.append(",".join(map(str, past)))
    assert closed.run(word) == tuple(expected)


@pytest.mark.parametrize("name", ["diag[0,1]", "deltanet[0,1]", "deltanet", "kda", "deltaproduct"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_kernels_remember_small_values_in_every_format(name: str, dtype: str) -> None:
    orders = (0, 1, 2, 3, 4)
    for values in (1, 2):
        dfa = memory(orders, 1, values=values)
        closed, certificate = certify(memory_program(name, dfa, orders), dfa, target(name))
        made = lower(closed, certificate, dfa, dtype)
        weights = Weights(made.dtype, made.tensors, made.certificate, made.automaton)
        word = random.Random(values).choices(dfa.alphabet, k=2000)
        trace = weights.run([word], device="cpu", executor="reference")
        past, expected = (1,) * values, list[str]()
        for letter in word:
            past = told(past, int(letter))
            expected.append(",".join(map(str, past)))
        assert trace.answers is not None
        assert [dfa.states[int(q)] for q in trace.answers[0]] == expected
        assert trace.wrong == 0


def with_heads(layer: Layer, change: Callable[[Head], Head]) -> Layer:
    return replace(layer, heads=tuple(change(head) for head in layer.heads))


def with_unit(program: Program, unit: Fraction | None) -> Program:
    return replace(program, layers=(with_heads(program.layers[0], lambda head: replace(head, unit=unit)),))


@pytest.mark.parametrize("name", DIGITS)
def test_digits_need_the_floor(name: str) -> None:
    orders = (0, 1, 2)
    dfa = memory(orders, 0, values=2)
    program = memory_program(name, dfa, orders)
    assert program.layers[0].heads[0].unit == 1
    with pytest.raises((BudgetExceeded, CertificateFailed)):
        certify(with_unit(program, None), dfa, target(name), max_joint=500)
    # A finer floor keeps more digits than the two; a coarser one loses the value before.
    fine, coarse = with_unit(program, Fraction(1, 4)), with_unit(program, Fraction(2))
    assert certify(fine, dfa, target(name), max_joint=500)[1].joint > len(dfa.states)
    with pytest.raises(CertificateFailed):
        certify(coarse, dfa, target(name), max_joint=500)


def changed(program: Program, **fields: object) -> Program:
    """The program with these fields of every factor that writes changed."""

    def step(old: Step) -> Step:
        return tuple(replace(f, **fields) if f.b is not None else f for f in old)  # pyright: ignore[reportArgumentType]

    def head(old: Head) -> Head:
        return replace(old, steps=tuple(step(s) for s in old.steps))

    return replace(program, layers=(with_heads(program.layers[0], head),))


@pytest.mark.parametrize("name", [*GATED, "deltaproduct"])
def test_a_window_with_another_gate_or_beta_keeps_something_older(name: str) -> None:
    orders = (0, 1, 2, 3)
    dfa = memory(orders, 0, values=2)
    program = memory_program(name, dfa, orders)
    certify(program, dfa, target(name))
    field = program.field
    wrong = [changed(program, c=field.one / 2)]
    if name in GATED:
        wrong.append(changed(program, alpha=None))
        wrong.append(changed(program, alpha=(field.one, field.one / 2)))
    for broken in wrong:
        with pytest.raises((BudgetExceeded, CertificateFailed)):
            certify(broken, dfa, target(name), max_joint=500)


@pytest.mark.parametrize("name", LATCHED)
def test_a_sign_that_does_not_flip_at_a_reset_or_flips_at_a_hold_is_refused(name: str) -> None:
    orders = (0, 1, 2)
    dfa = memory(orders, 0, values=2)
    program = memory_program(name, dfa, orders)
    toggle, latches = program.layers
    for step in ((0, 0, 0), (1, 1, 1), (0, 1, 0), (0, 0, 1)):
        choose = Lookup({(a,): (step[a], 0) for a in range(3)})
        broken = replace(toggle, heads=(replace(toggle.heads[0], choose=choose),))
        with pytest.raises(CertificateFailed):
            certify(replace(program, layers=(broken, latches)), dfa, target(name))


def test_a_memory_of_one_target_is_outside_of_another() -> None:
    orders = (0, 1, 2)
    for values, name, other in ((1, "diag[0,1]", "deltanet"), (2, "kda", "deltanet"), (2, "deltaproduct", "ckda")):
        dfa = memory(orders, 0, values=values)
        with pytest.raises(OutOfRange):
            certify(memory_program(name, dfa, orders), dfa, target(other))


def test_a_target_of_any_matrices_has_no_memory_of_two_values() -> None:
    with pytest.raises(InvalidInput, match="unconstrained"):
        memory_program("unconstrained", memory((0, 1), 0, values=2), (0, 1))
