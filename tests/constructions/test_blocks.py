"""Clock, buffer and accumulator, and the factorisation of maps."""

from __future__ import annotations

import random
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statetrack.constructions.blocks import block_maps, clocked_blocks, factor_map, map_matrix
from statetrack.constructions.certificate import certify
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.program import Factor, step_map
from statetrack.constructions.source import Options, resolve
from statetrack.constructions.targets import target
from statetrack.errors import NoConstruction
from statetrack.proofs_check import checker
from statetrack.theory.groups import cycles, reflections_needed
from statetrack.theory.number_fields import rationals

Q = rationals()


@pytest.mark.parametrize("n", range(1, 5))
def test_every_map_is_a_product_of_at_most_n_minus_1_factors(n: int) -> None:
    for f in product(range(n), repeat=n):
        factors = factor_map(Q, f)
        assert step_map(Q, factors, n, 1).matrix == map_matrix(Q, f)
        assert len(factors) <= (max(2, n - 1) if n > 1 else 0)


@given(st.integers(5, 12).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
def test_larger_maps_too_with_gates_and_beta_in_range(images: list[int]) -> None:
    f, n = tuple(images), len(images)
    factors = factor_map(Q, f)
    assert step_map(Q, factors, n, 1).matrix == map_matrix(Q, f)
    assert len(factors) <= n - 1
    largest = max(images.count(y) for y in images)
    for factor in factors:
        assert isinstance(factor, Factor)
        assert factor.beta <= 2 + Q(largest - 1) / 2
        assert all(g in (-1, 0, 1) for g in factor.alpha or ())


def test_permutations_take_points_minus_cycles_reflections() -> None:
    for p in permutations(range(5)):
        factors = factor_map(Q, p)
        assert len(factors) == reflections_needed(p)
        assert all(isinstance(f, Factor) and f.beta == 2 and f.alpha is None for f in factors)


@pytest.mark.parametrize(
    ("source", "dims", "joint", "beta"),
    [("(ab)*", ((2,), (4,), (3,)), 103, 3), ("[ab]*aba[ab]*", ((2,), (6,), (4,)), 823, "7/2")],
)
def test_the_sizes_of_known_languages(
    source: str, dims: tuple[tuple[int, ...], ...], joint: int, beta: int | str
) -> None:
    made = compile_source(source, "ckda-wide")
    assert (made.dims, made.certificate.joint) == (dims, joint)
    assert made.program.beta_max == made.program.field(beta)
    assert checker.verify(made.certificate.text())["joint"] == joint


@pytest.mark.parametrize(("goal", "layers"), [("ckda", 3), ("deltanet", 4), ("gdn", 4), ("kda", 4)])
def test_a_permutation_group_by_generators_is_tracked_with_beta_two(goal: str, layers: int) -> None:
    options = Options(letters="generators")
    name = "blocks" if goal == "ckda" else "reflection-blocks"
    made = compile_source("(1 2 3 4);(1 3)", goal, options=options, construction=name)
    assert made.layers == layers
    assert made.program.beta_max == 2
    word = random.Random(0).choices(made.source.dfa.alphabet, k=300)
    assert made.run(word) == made.source.dfa.run(word)


def test_s5_by_two_generators_takes_the_dimensions_of_the_theorem() -> None:
    made = compile_source("S5", "ckda", options=Options(letters="generators"))
    assert (made.plan.construction, made.dims, made.certificate.joint) == ("blocks", ((2,), (8,), (5,)), 246_015)


def test_too_many_letters_for_a_closure_are_told() -> None:
    with pytest.raises(NoConstruction, match="too many states"):
        compile_source("S5", "ckda")
    assert clocked_blocks(resolve("S5")) is None


def test_one_layers_worth_of_work_is_left_to_one_layer() -> None:
    assert clocked_blocks(resolve("Z2")) is None
    assert block_maps([(1, 0, 2)], Q) == [[(1, 0, 2)]]
    assert clocked_blocks(resolve("(ab)*")) is None


@settings(max_examples=20)
@given(st.lists(st.permutations(range(4)), min_size=1, max_size=2))
def test_clocked_groups_are_certified(generators: list[list[int]]) -> None:
    text = ";".join(_cycles(g) for g in generators)
    source = resolve(f"perm:{text}", Options(letters="generators"))
    program = clocked_blocks(source)
    if program is not None:
        closed, _ = certify(program, source.dfa, target("ckda"))
        word = random.Random(2).choices(source.dfa.alphabet, k=60)
        assert closed.run(word) == source.dfa.run(word)


def _cycles(images: list[int]) -> str:
    return "".join("(" + " ".join(str(i + 1) for i in c) + ")" for c in cycles(images)) or "(1)(2)(3)(4)"
