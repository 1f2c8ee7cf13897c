"""Programs made of programs: registers, wires, depths, and what stands side by side."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.assembly import Assembly, Module, Part, Stack
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.composed import part_of
from statetrack.constructions.program import Lookup, Program
from statetrack.constructions.stack import settle
from statetrack.errors import InvalidInput, InvalidWord
from statetrack.theory.automata import Dfa
from tests.strategies import fewer

# A closure of one layer, of two layers, blocks, and a stack whose parts read each other.
SOURCES = (
    ("Z3", "ckda"),
    ("Z3", "deltanet"),
    ("(ab)*", "ckda"),
    ("[ab]*a[ab]b", "ckda-wide"),
    ("[ab]*aba[ab]*", "ckda"),
)


@cache
def made(source: str, goal: str) -> Part:
    return part_of(compile_source(source, goal).certificate.data)


def product(one: Dfa, other: Dfa) -> Dfa:
    """Both automata on the same token numbers; the answer is a pair of states."""
    import numpy as np

    m = len(other.states)
    rows = [
        [int(one.delta[q // m, t]) * m + int(other.delta[q % m, t]) for t in range(len(one.alphabet))]
        for q in range(len(one.states) * m)
    ]
    names = tuple(f"{p},{q}" for p in one.states for q in other.states)
    return Dfa(one.alphabet, names, one.start * m + other.start, np.array(rows, dtype=np.int32), names)


def twice(one: Part, other: Part) -> Program:
    """Both networks on the same token, and a wire for the pair of their answers."""
    net = Assembly()
    first, second = net.embed(one.program, 0), net.embed(other.program, 0)
    m = len(other.dfa.states)
    pairs = {(p, q): p * m + q for p in range(len(one.dfa.states)) for q in range(m)}
    net.wire((first, second), pairs)
    whole = product(one.dfa, other.dfa)
    return net.program(whole.alphabet, whole.outputs, whole.outputs[whole.start])


@fewer(4)
@given(st.sampled_from(SOURCES), st.sampled_from(SOURCES), st.integers(0, 2**32))
def test_programs_embedded_on_one_token_answer_as_on_their_own(
    one: tuple[str, str], other: tuple[str, str], seed: int
) -> None:
    first, second = made(*one), made(*other)
    if len(first.dfa.alphabet) != len(second.dfa.alphabet):
        first = second
    program = twice(first, second)
    whole = product(first.dfa, second.dfa)
    word = random.Random(seed).choices(whole.alphabet, k=60)
    assert program.run(word) == whole.run(word)
    # They do not read each other, so they stand side by side.
    assert program.depth == max(first.program.depth, second.program.depth)
    assert len(program.layers) == len(first.program.layers) + len(second.program.layers)
    heads = [*map(len, program.dims)]
    for part in (first, second):
        for depth, row in enumerate(part.program.dims):
            heads[depth] -= len(row)
    assert heads == [0] * program.depth


@pytest.mark.parametrize("source", SOURCES)
def test_every_register_is_made_before_it_is_read(source: tuple[str, str]) -> None:
    part = made(*source)
    for program in (part.program, twice(part, part)):
        count = 1
        for layer, reads in zip(program.layers, program.reads, strict=True):
            for wire in layer.wires:
                assert all(0 <= i < count for i in wire.reads)
                count += 1
            assert all(0 <= i < count for i in reads)
            count += layer.outputs
        for wire in program.answer:
            assert all(0 <= i < count for i in wire.reads)
            count += 1


def test_an_embedded_program_takes_new_registers_each_time() -> None:
    part = made("(ab)*", "ckda")
    net = Assembly()
    count = 0
    for layer in part.program.layers:
        count += len(layer.wires) + layer.outputs
    count += len(part.program.answer)
    assert net.embed(part.program, 0) == count
    assert net.embed(part.program, 0) == 2 * count


def test_a_program_that_reads_the_answer_of_another_stands_below_it() -> None:
    parity, letters = made("Z2", "ckda"), made("Z3", "ckda")
    net = Assembly()
    shown = net.embed(letters.program, 0)
    told = net.wire((shown,), {(q,): int(q == 1) for q in range(3)})
    net.embed(parity.program, told)
    program = net.program(letters.dfa.alphabet, parity.dfa.outputs, parity.dfa.outputs[0])
    assert program.depths == (1, 2)
    assert program.dims == ((2,), (1,))
    word = random.Random(0).choices(letters.dfa.alphabet, k=60)
    names = letters.dfa.trace(word)
    assert program.run(word) == parity.dfa.run(parity.dfa.alphabet[int(q == 1)] for q in names)


def test_wires_after_the_last_layer_are_the_answer_and_a_wire_of_nothing_is_a_constant() -> None:
    part = made("Z3", "ckda")
    net = Assembly()
    seven = net.wire((), {(): 2})
    answer = net.embed(part.program, seven)
    assert (seven, answer) == (1, 2)
    assert net.wire((answer,), Lookup({(q,): 2 - q for q in range(3)})) == 3
    program = net.program(("t",), part.dfa.outputs, part.dfa.outputs[2])
    assert len(program.answer) == 1
    expected = part.dfa.trace([part.dfa.alphabet[2]] * 12)
    assert program.run("t" * 12) == tuple(part.dfa.outputs[2 - q] for q in expected)
    with pytest.raises(InvalidWord, match="position 1"):
        program.run("tx")


def module(part: Part, reads: tuple[int, ...], letters: dict[tuple[int, ...], int]) -> Module:
    return Module(part, reads, Lookup(letters), tuple(range(len(part.dfa.states))))


def test_depths_and_sizes_of_a_stack() -> None:
    """Modules 0 and 1 read the token, module 2 reads 0, module 3 reads 1 and 2: layers 1, 1, 2, 3."""
    two, three = made("Z2", "ckda"), made("Z3", "ckda")
    modules = (
        module(two, (), {(t,): t for t in (0, 1)}),
        module(three, (), {(t,): t for t in (0, 1)}),
        module(three, (0,), {(t, v): (t + v) % 3 for t in (0, 1) for v in (0, 1)}),
        module(two, (1, 2), {(t, u, v): (t + u + v) % 2 for t in (0, 1) for u in range(3) for v in range(3)}),
    )
    stack = Stack(modules, (3,), Lookup({(0,): 0, (1,): 1}))
    program = stack.program(two.dfa)
    assert program.depths == (1, 1, 2, 3)
    assert program.dims == ((1, 2), (2,), (1,))
    assert (program.depth, program.factors_per_token, program.beta_max) == (3, 1, 2)
    # By hand: everything reads the values before the token.
    u, v, w, x = 0, 0, 0, 0
    word = random.Random(2).choices((0, 1), k=80)
    expected: list[int] = []
    for t in word:
        u, v, w, x = (
            int(two.dfa.delta[u, t]),
            int(three.dfa.delta[v, t]),
            int(three.dfa.delta[w, (t + u) % 3]),
            int(two.dfa.delta[x, (t + v + w) % 2]),
        )
        expected.append(x)
    assert program.run(two.dfa.alphabet[t] for t in word) == tuple(two.dfa.outputs[x] for x in expected)


def test_a_module_without_a_value_before_a_letter_is_no_function() -> None:
    """A reset forgets the state before it: what `before` then says is one of several values."""
    part = made("[ab]*a", "kda")
    only = module(part, (), {(t,): t for t in (0, 1)})
    clashes = [
        (b, a) for b in range(2) for a in range(2) if only.before[a, int(part.dfa.delta[b, a])] != only.values[b]
    ]
    assert clashes
    stack, _ = settle(part.dfa, (only,), (0,), 10)
    assert stack.program(part.dfa).run("abba") == part.dfa.run("abba")


def test_a_program_that_is_not_closed_does_not_run() -> None:
    from dataclasses import replace

    program = made("Z3", "ckda").program
    (layer,) = program.layers
    bare = replace(program, layers=(replace(layer, heads=tuple(replace(h, codebook=None) for h in layer.heads)),))
    with pytest.raises(InvalidInput, match="certify it first"):
        bare.run(bare.alphabet)
