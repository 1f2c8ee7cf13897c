"""Cascades as stacks of small certified networks: splitting of components, the search, and what it refuses."""

from __future__ import annotations

import json
import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.assembly import Module, Part, Stack
from statetrack.constructions.cascade import Cascade, Component, hole_cascade
from statetrack.constructions.certificate import certify, digest_of
from statetrack.constructions.composed import stack_certificate
from statetrack.constructions.memories import memory_program
from statetrack.constructions.program import Lookup
from statetrack.constructions.reduction import reduce
from statetrack.constructions.registers import registers_program
from statetrack.constructions.source import Source, from_automaton
from statetrack.constructions.stack import Builders, cascade_stack, component_part, settle
from statetrack.constructions.targets import Target, target
from statetrack.constructions.trackers import permutation, trivial
from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.groups import Group
from statetrack.theory.regex import parse_regex
from tests.strategies import dfas, fewer

Map = tuple[int, ...]
SECOND_TO_LAST = "[ab]*a[ab]"
# Any number of reflections a token, any gate: every part can be made in one layer.
FREE = Target("free", "channel", -1, 1, 2, None, "key", False, "")


def builders(*, registers: bool, goal: Target = FREE, memory: str = "kda") -> Builders:
    """Parts of one layer: permutation matrices, windows, and registers if asked for."""

    def track(dfa: Dfa, group: Group | None, letters: tuple[int, ...]) -> Part:
        source = from_automaton("part", dfa) if group is None else Source("part", dfa, group, letters, False)
        program = trivial(source) or permutation(source)
        assert program is not None
        closed, certificate = certify(program, source.dfa, goal)
        return Part(closed, certificate.data, source.dfa)

    def remember(dfa: Dfa, orders: tuple[int, ...]) -> Part:
        closed, certificate = certify(memory_program(memory, dfa, orders), dfa, goal)
        return Part(closed, certificate.data, dfa)

    def both(dfa: Dfa, actions: tuple[Map, ...], start: int) -> Part:
        closed, certificate = certify(registers_program(dfa, actions, start), dfa, goal)
        return Part(closed, certificate.data, dfa)

    def stacked(stack: Stack, dfa: Dfa, joint: int) -> Part:
        return Part(stack.program(dfa), stack_certificate(stack, dfa, goal, joint).data, dfa)

    return Builders(track, both if registers else None, remember, stacked)


def copier() -> Part:
    """A memory of the last two of 0 and 1, named "p,x", both 1 at first."""
    found = [(1, 1), (1, 0), (0, 0), (0, 1)]
    table = [[found.index((now, order)) for order in (0, 1)] for _, now in found]
    names = tuple(f"{before},{now}" for before, now in found)
    dfa = Dfa(("1", "2"), names, 0, np.array(table, dtype=np.int32), names)
    closed, certificate = certify(memory_program("kda", dfa, (1, 2)), dfa, target("kda"))
    return Part(closed, certificate.data, dfa)


def now(part: Part) -> Map:
    return tuple(int(name.split(",")[-1]) for name in part.dfa.states)


def last_two(*, late: bool) -> tuple[Module, Module]:
    """Modules for the last letter and the one before it; `late`: the second reads the first after the token."""
    part = copier()
    upper = Module(part, (), Lookup({(t,): t for t in (0, 1)}), now(part))
    # After the token the first module's value is the token itself.
    told = {(t, v): t if late else v for t in (0, 1) for v in (0, 1)}
    return upper, Module(part, (0,), Lookup(told), now(part))


def word_of(error: CertificateFailed) -> list[str]:
    return error.equation.split("'")[1].split()


def test_a_search_finds_the_table_of_answers() -> None:
    dfa = parse_regex(SECOND_TO_LAST)
    stack, joint = settle(dfa, last_two(late=False), (0, 1), 100)
    # The automaton starts as after two letters b, which are the value 1.
    for before, last in product((0, 1), repeat=2):
        assert stack.answer((last, before)) == dfa.trace("ab"[before] + "ab"[last])[-1]
    assert (joint, stack.answer.size) == (4, 4)
    program, word = stack.program(dfa), random.Random(1).choices("ab", k=200)
    assert program.run(word) == dfa.run(word)
    certificate = stack_certificate(stack, dfa, target("kda"), joint)
    assert networks.verify(certificate.text())["joint"] == joint


def test_a_stack_that_reads_values_after_the_token_is_refused_with_a_word() -> None:
    """The literal stack of the paper's proof, fed states after the update, cannot tell the second to last letter."""
    dfa = parse_regex(SECOND_TO_LAST)
    with pytest.raises(CertificateFailed) as caught:
        settle(dfa, last_two(late=True), (0, 1), 100)
    word = word_of(caught.value)
    assert repr(dfa.states[dfa.trace(word)[-1]]) == caught.value.expected != caught.value.got


@fewer(2)
@given(dfas(max_states=4, max_symbols=2))
def test_an_answer_that_looks_at_too_few_modules_is_refused(dfa: Dfa) -> None:
    dfa = minimise(dfa)
    cascade = reduce(hole_cascade(dfa))
    if len(dfa.states) < 2 or not dfa.alphabet:
        return
    stack, joint = cascade_stack(cascade, builders(registers=True), 1000)
    for left in range(len(stack.modules)):
        reads = tuple(j for j in stack.reads if j != left)
        states: dict[Map, set[int]] = {}
        for key, q in stack.answer.seen.items():
            states.setdefault(tuple(key[j] for j in reads), set()).add(q)
        if all(len(found) == 1 for found in states.values()):
            settle(dfa, stack.modules, reads, 1000)
        else:
            with pytest.raises(CertificateFailed):
                settle(dfa, stack.modules, reads, 1000)
    with pytest.raises(BudgetExceeded, match="--max-states"):
        settle(dfa, stack.modules, stack.reads, joint - 1)
    assert settle(dfa, stack.modules, stack.reads, joint)[1] == joint


def test_modules_in_the_wrong_order_are_refused() -> None:
    dfa = parse_regex(SECOND_TO_LAST)
    first, second = last_two(late=False)
    stack, joint = settle(dfa, (first, second), (0, 1), 100)
    data = json.loads(stack_certificate(stack, dfa, target("kda"), joint).text())
    modules = data["modules"]
    for order in ([modules[1], modules[0]], [modules[1] | {"reads": [1]}, modules[0]]):
        wrong = data | {"modules": order}
        with pytest.raises(networks.Refused):
            networks.verify(json.dumps(wrong | {"digest": digest_of(wrong)}))


@st.composite
def components(draw: st.DrawFn, max_size: int = 4) -> tuple[tuple[Map, ...], int]:
    """Distinct bijections and constants of some points, and a start."""
    m = draw(st.integers(2, max_size))
    bijections = st.permutations(range(m)).map(tuple)
    constants = st.integers(0, m - 1).map(lambda c: (c,) * m)
    kind = draw(
        st.sampled_from([bijections, constants, st.one_of(bijections, constants), st.one_of(bijections, constants)])
    )
    actions = draw(st.lists(kind, min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        actions = [*dict.fromkeys((*actions, tuple(range(m))))]
    return tuple(actions), draw(st.integers(0, m - 1))


@fewer(1)
@given(
    components(), st.booleans(), st.booleans(), st.sampled_from(["kda", "deltanet", "deltaproduct"]), st.integers(0, 9)
)
def test_a_component_is_shown_and_its_value_before_is_told_if_others_read_it(
    component: tuple[tuple[Map, ...], int], read: bool, registers: bool, memory: str, seed: int
) -> None:
    actions, start = component
    made = component_part(actions, start, builders(registers=registers, memory=memory), 10_000, read=read)
    dfa = made.part.dfa
    assert networks.verify(json.dumps(made.part.data))["states"] == len(dfa.states)
    module = Module(made.part, (), Lookup({}), made.values)
    program, value = made.part.program, start
    assert made.values[dfa.start] == start
    chosen = random.Random(seed).choices(range(len(actions)), k=40)
    shown = program.run(dfa.alphabet[made.letters[a]] for a in chosen)
    for a, name in zip(chosen, shown, strict=True):
        state = dfa.outputs.index(name)
        if read:
            assert module.before[made.letters[a], state] == value
        assert module.moves[value, made.letters[a]] == actions[a][value]
        value = actions[a][value]
        assert made.values[state] == value
    for b, a in product(range(len(dfa.states)), range(len(dfa.alphabet))):
        assert module.moves[made.values[b], a] == made.values[int(dfa.delta[b, a])]


def test_a_component_that_is_both_is_split_into_a_group_and_a_memory() -> None:
    actions = ((1, 2, 0), (1, 0, 2), (0, 0, 0), (2, 2, 2))
    for read in (False, True):
        split = component_part(actions, 1, builders(registers=False), 1000, read=read).part
        assert [m["reads"] for m in split.data["modules"]] == [[], [0]]
        assert len(split.data["parts"][0]["automaton"]["states"]) == 6
        names = set(split.data["parts"][1]["automaton"]["states"])
        assert names == ({f"{p},{x}" for p in range(3) for x in range(3)} if read else {"0", "1", "2"})
        whole = component_part(actions, 1, builders(registers=True), 1000, read=read).part
        assert whole.data["kind"] == "closure"
        assert whole.program.factors_per_token <= 2 * 3 + 1


def test_a_group_of_too_many_elements_is_not_split() -> None:
    n = 8
    actions = (tuple((i + 1) % n for i in range(n)), (1, 0, *range(2, n)), (0,) * n)
    with pytest.raises(BudgetExceeded):
        component_part(actions, 0, builders(registers=False), 1000, read=True)


@fewer(2)
@given(dfas(max_states=4, max_symbols=3), st.booleans(), st.integers(0, 9))
def test_the_stack_of_a_cascade_is_the_automaton(dfa: Dfa, registers: bool, seed: int) -> None:
    dfa = minimise(dfa)
    if len(dfa.states) < 2:
        return
    cascade = reduce(hole_cascade(dfa))
    stack, joint = cascade_stack(cascade, builders(registers=registers), 10_000)
    assert len(stack.modules) == len(cascade.components)
    assert joint == len(cascade.reachable())
    program = stack.program(dfa)
    word = random.Random(seed).choices(dfa.alphabet, k=60)
    assert program.run(word) == dfa.run(word)
    facts = networks.verify(stack_certificate(stack, dfa, FREE, joint).text())
    assert (facts["kind"], facts["joint"]) == ("stack", joint)


def test_a_cascade_whose_action_is_wrong_makes_no_stack() -> None:
    small = reduce(hole_cascade(parse_regex("[ab]*aba[ab]*")))
    first, *rest = small.components

    def swapped(token: int, read: Map) -> Map:
        return first.action(1 - token, read)

    wrong = Cascade(small.dfa, (Component(first.size, first.reads, swapped), *rest), small.start, small.state)
    with pytest.raises(CertificateFailed, match="answer of the stack after"):
        cascade_stack(wrong, builders(registers=True), 1000)
    with pytest.raises(BudgetExceeded):
        cascade_stack(small, builders(registers=True), 2)
