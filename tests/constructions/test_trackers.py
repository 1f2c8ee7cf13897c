"""Every construction against the automaton or the group it tracks, in exact arithmetic."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import statetrack
from statetrack.constructions import trackers
from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.program import Factor
from statetrack.constructions.source import from_automaton, resolve
from statetrack.errors import NoConstruction, NotExpressible
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import named_group
from tests.strategies import permutation_dfas

SIZES = {
    "Z2": (1, 2),
    "Z3": (2, 3),
    "Z60": (2, 60),
    "D7": (2, 14),
    "S3": (2, 6),
    "A4": (3, 12),
    "S4": (3, 24),
    "A5": (4, 7200),
}


def agrees(made: Compiled, dfa: Dfa, word: tuple[str, ...]) -> None:
    states = made.program.runner.symbols(word)
    assert tuple(made.source.dfa.outputs[q] for q in states) == dfa.run(word)


@settings(max_examples=1000)
@given(permutation_dfas(max_states=6, max_symbols=3), st.integers(0, 2**32))
def test_a_built_permutation_automaton_is_right_on_all_short_words_and_a_long_one(dfa: Dfa, seed: int) -> None:
    made = compile_source(dfa, "deltaproduct")
    for word in product(dfa.alphabet, repeat=min(4, 6 - len(dfa.alphabet))):
        agrees(made, dfa, word)
    agrees(made, dfa, tuple(random.Random(seed).choices(dfa.alphabet, k=300)))


@settings(max_examples=100)
@given(permutation_dfas(max_states=5, max_symbols=2), st.sampled_from(["ckda", "kda", "gdn", "deltanet", "diag[-1,1]"]))
def test_every_target_is_right_or_refuses(dfa: Dfa, target: str) -> None:
    try:
        made = compile_source(dfa, target)
    except (NoConstruction, NotExpressible):
        return
    agrees(made, dfa, tuple(random.Random(0).choices(dfa.alphabet, k=60)))


@pytest.mark.parametrize("name", SIZES)
def test_a_rotation_group_takes_one_ckda_factor_and_the_stated_dimension_and_states(name: str) -> None:
    made = compile_source(name, "ckda")
    dimension, states = SIZES[name]
    assert made.dims == ((dimension,),)
    assert made.factors_per_token == 1
    assert made.certificate.states == ((states,),)
    assert len(made.source.dfa.alphabet) == len(made.source.dfa.states) == named_group(name).order


def test_z499_is_built_over_its_field_of_degree_498() -> None:
    made = compile_source("Z499", "ckda")
    assert made.program.field.degree == 498
    assert (made.dims, made.factors_per_token, made.certificate.joint) == (((2,),), 1, 499)


@pytest.mark.parametrize("name", ["Z2", "Z3", "Z5", "D3", "D4", "A4", "S4"])
def test_the_quaternion_tracker_tracks_every_rotation_group_with_the_stated_states(name: str) -> None:
    states = {"Z2": 2, "Z3": 3, "Z5": 5, "D3": 18, "D4": 32, "A4": 96, "S4": 576}
    made = compile_source(name, "ckda", construction="quaternion")
    assert made.dims == ((4,),)
    assert made.certificate.states == ((states[name],),)


@pytest.mark.parametrize(
    ("source", "target", "construction", "dims", "factors"),
    [
        ("S5", "deltaproduct", "permutation", ((5,),), 4),
        ("(1 2);(2 3);(3 4);(4 5)", "deltanet", "permutation", ((5,),), 1),
        ("A5", "deltaproduct", "spatial-reflections", ((3,),), 2),
        ("Z12", "deltaproduct", "planar-reflections", ((2,),), 2),
        ("D9", "deltaproduct", "planar-reflections", ((2,),), 2),
        ("Z7", "deltanet", "modular", ((1,), (2,)), 1),
        ("Z8", "kda", "modular", ((1,), (2,)), 1),
        ("Z2xZ2xZ2", "diag[-1,1]", "sign-gates", ((1, 1, 1),), 1),
        ("Z2", "gdn", "sign-reflections", ((1,),), 1),
        ("A4xZ3", "ckda", "product", ((3, 2),), 1),
        ("Q8", "deltaproduct", "permutation", ((8,),), 6),
        ("S4", "unconstrained", "dense", ((4,),), 1),
    ],
)
def test_the_planner_takes_the_construction_of_the_theorem(
    source: str, target: str, construction: str, dims: tuple[tuple[int, ...], ...], factors: int
) -> None:
    letters = "generators" if ";" in source else "all"
    made = compile_source(source, target, options=statetrack.Options(letters=letters))
    assert (made.plan.construction, made.dims, made.factors_per_token) == (construction, dims, factors)
    agrees(made, made.source.dfa, tuple(random.Random(1).choices(made.source.dfa.alphabet, k=200)))


@pytest.mark.parametrize("m", range(1, 13))
def test_addition_modulo_m_takes_two_layers_of_reflections(m: int) -> None:
    made = compile_source(f"Z{m}", "deltanet")
    word = tuple(random.Random(m).choices(made.source.dfa.alphabet, k=100))
    total, sums = 0, list[str]()
    for symbol in word:
        total = (total + int(symbol)) % m
        sums.append(str(total))
    assert made.run(word) == tuple(sums)
    if m >= 3:
        assert made.certificate.states == ((2,), (2 * m,))


def test_the_word_problem_puts_the_newest_letter_leftmost() -> None:
    made = compile_source("S3", "ckda")
    assert made.run(["(12)", "(123)"])[-1] == "(13)"
    assert made.run(["(123)", "(12)"])[-1] == "(23)"


def test_swaps_are_as_many_as_points_minus_cycles_and_in_the_right_order() -> None:
    source = resolve("S5")
    program = trackers.permutation(source)
    assert program is not None
    head = program.layers[0].heads[0]
    for token, g in enumerate(source.letters):
        assert source.group is not None
        permutation = source.group.permutation(g)
        step, _ = head.choose((token,))
        moved = head.maps[step].matrix
        assert all(moved[permutation[j]][j] == 1 for j in range(5))
        assert all(isinstance(f, Factor) and f.beta == 2 for f in head.steps[step])


@pytest.mark.parametrize(
    ("target", "construction", "dims"),
    [
        ("unconstrained", "dense", ((3,),)),
        ("ckda", "partial", ((2,),)),
        ("kda", "partial", ((2,),)),
        ("deltaproduct", "partial", ((2,),)),
        ("deltanet", "cascade", ((1,), (2, 2), (1,))),
        ("gdn", "cascade", ((1,), (2, 2), (1,))),
        ("diag[0,1]", "cascade", ((1,), (1,))),
        ("deltanet[0,1]", "cascade", ((1,), (1,))),
    ],
)
def test_an_automaton_with_merging_letters_is_built_the_cheapest_way(
    target: str, construction: str, dims: tuple[tuple[int, ...], ...]
) -> None:
    made = compile_source("(ab)*", target)
    assert (made.plan.construction, made.dims) == (construction, dims)
    assert [made.run(w)[-1] for w in ("ab", "abab", "aba", "ba", "abb")] == [True, True, False, False, False]


def test_a_permutation_automaton_uses_its_group_where_that_is_smaller() -> None:
    # Numbers divisible by 7 in base two: letters are affine maps of Z_7; the group has order 21.
    made = compile_source("(a{7})*", "ckda")
    assert (made.plan.construction, made.dims) == ("planar", ((2,),))
    assert made.run("a" * 14)[6::7] == (True, True)


def test_a_source_with_a_group_too_large_to_list_still_takes_reflections() -> None:
    cycle, swap = {}, {}
    from statetrack.theory.automata import from_table

    names = [str(i) for i in range(12)]
    cycle = {(names[i], "c"): names[(i + 1) % 12] for i in range(12)}
    swap = {(names[i], "t"): names[{0: 1, 1: 0}.get(i, i)] for i in range(12)}
    dfa = from_table(["c", "t"], names, "0", cycle | swap, {"0": True})
    assert from_automaton("S12", dfa).group is None
    made = compile_source(dfa, "deltaproduct")
    assert made.factors_per_token == 11
    agrees(made, dfa, tuple("ctcctctccc" * 20))
