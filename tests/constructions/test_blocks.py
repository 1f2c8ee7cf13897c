"""Clock, buffer and accumulator, and the factorisation of maps."""

from __future__ import annotations

import random
from collections.abc import Iterable
from fractions import Fraction
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statetrack.constructions.assembly import Blocks, Part
from statetrack.constructions.blocks import clocked_blocks
from statetrack.constructions.certificate import certify
from statetrack.constructions.clocks import STYLES, clock
from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.composed import part_of
from statetrack.constructions.factorise import (
    factor_map,
    factor_map_scaled,
    factor_map_to_bank,
    factor_partial,
    factor_to_bank,
    map_matrix,
)
from statetrack.constructions.program import Dense, Factor, Program, step_map
from statetrack.constructions.source import Options, Source, resolve
from statetrack.constructions.targets import target
from statetrack.proofs_check import networks
from statetrack.theory.arrays import Matrix, identity, matmul, matrix
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import reflections_needed
from statetrack.theory.number_fields import rationals

Q = rationals()


def maps(n: int, *, partial: bool = False) -> Iterable[tuple[int, ...]]:
    return product(range(-partial, n), repeat=n)


@pytest.mark.parametrize("n", range(1, 5))
def test_every_map_is_a_product_of_at_most_n_minus_1_factors(n: int) -> None:
    for f in maps(n):
        factors = factor_map(Q, f)
        assert step_map(Q, tuple(factors), n, 1).matrix == map_matrix(Q, f)
        assert len(factors) <= (max(2, n - 1) if n > 1 else 0)


@given(st.integers(5, 12).flatmap(lambda n: st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
def test_larger_maps_too_with_gates_and_beta_in_range(images: list[int]) -> None:
    f, n = tuple(images), len(images)
    factors = factor_map(Q, f)
    assert step_map(Q, tuple(factors), n, 1).matrix == map_matrix(Q, f)
    assert len(factors) <= n - 1
    largest = max(images.count(y) for y in images)
    for factor in factors:
        assert factor.beta <= 2 + Q(largest - 1) / 2
        assert all(g in (-1, 0, 1) for g in factor.alpha or ())


def test_permutations_take_points_minus_cycles_reflections() -> None:
    for p in permutations(range(5)):
        factors = factor_map(Q, p)
        assert len(factors) == reflections_needed(p)
        assert all(f.beta == 2 and f.alpha is None for f in factors)


@pytest.mark.parametrize("n", range(1, 5))
def test_with_beta_at_most_two_a_map_is_reached_up_to_a_factor_that_shrinks_with_each_merge(n: int) -> None:
    for f in maps(n):
        factors, halved = factor_map_scaled(Q, f)
        expected = tuple(tuple(x / 2**halved for x in row) for row in map_matrix(Q, f))
        assert step_map(Q, tuple(factors), n, 1).matrix == expected
        assert all(factor.beta <= 2 for factor in factors)
        assert (halved == 0) == (len(set(f)) == n)


@pytest.mark.parametrize("gates", [True, False])
def test_partial_injections_take_beta_two_and_one_factor_more_only_if_no_swap_carries_the_zeros(gates: bool) -> None:
    for f in maps(4, partial=True):
        kept = [y for y in f if y >= 0]
        if len(set(kept)) == len(kept):
            factors = factor_partial(Q, f, gates=gates)
            assert step_map(Q, tuple(factors), 4, 1).matrix == map_matrix(Q, f)
            assert all(factor.beta <= 2 for factor in factors)
            assert len(factors) <= (3 if gates else 4 + 3)


def banks(m: Matrix, bank: int) -> Matrix:
    """Source rows of the identity on (bank 0, bank 1), and the selection of the target."""
    n = len(m)
    one = identity(Q, 2 * n)
    return one[n:] if bank else one[:n]


@pytest.mark.parametrize("gates", [True, False])
@pytest.mark.parametrize("bank", [0, 1])
def test_every_map_goes_from_bank_to_bank_whatever_the_target_held(gates: bool, bank: int) -> None:
    for f in maps(3, partial=True):
        factors = factor_map_to_bank(Q, f, bank, gates=gates)
        moved = matmul(banks(map_matrix(Q, f), bank), step_map(Q, tuple(factors), 6, 1).matrix)
        assert moved == matmul(map_matrix(Q, f), banks(map_matrix(Q, f), 1 - bank))
        assert len(factors) == max(len(set(f) - {-1}), 1) if gates else len(set(f) - {-1}) + 3
        assert all(g in (0, 1) for factor in factors for g in factor.alpha or ())


fractions = st.fractions(-3, 3, max_denominator=4)


@settings(max_examples=60)
@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(fractions, min_size=n, max_size=n), min_size=n, max_size=n)),
    st.integers(0, 1),
    st.booleans(),
)
def test_every_rational_matrix_goes_from_bank_to_bank_in_as_many_factors_as_its_rank(
    rows: list[list[Fraction]], bank: int, gates: bool
) -> None:
    n = len(rows)
    m = matrix(Q, (map(Q, row) for row in rows))
    factors = factor_to_bank(m, bank, gates=gates)
    moved = matmul(banks(m, bank), step_map(Q, tuple(factors), 2 * n, 1).matrix)
    assert moved == matmul(m, banks(m, 1 - bank))
    assert len(factors) <= (max(n, 1) if gates else 2 * n)


def built(source: str, goal: str, **options: str) -> Compiled:
    return compile_source(source, goal, options=Options(**options), construction="blocks")  # pyright: ignore


def entries(made: Compiled) -> int:
    return int(made.certificate.data["claims"]["entries"])


def test_s5_with_all_its_letters_takes_the_dimensions_of_the_theorem() -> None:
    made = built("S5", "ckda")
    assert [sum(row) for row in made.dims] == [2, 8, 5]
    assert made.certificate.data["length"] == 4
    assert entries(made) <= 72_480
    facts = networks.verify(made.certificate.text())
    assert (facts["kind"], facts["symbols"]) == ("blocks", 120)
    word = random.Random(0).choices(made.automaton.alphabet, k=300)
    assert made.run(word) == made.source.dfa.run(word)  # pyright: ignore


@pytest.mark.parametrize(
    ("source", "goal", "length", "dims"),
    [
        ("[ab]*aba[ab]*", "ckda-wide", 2, [2, 4, 8]),
        ("(a(ab)*b)*", "ckda-wide", 2, [2, 4, 3]),
        ("(a(ab)*b)*", "ckda", 2, [2, 4, 3]),
    ],
)
def test_the_sizes_of_known_languages(source: str, goal: str, length: int, dims: list[int]) -> None:
    made = built(source, goal)
    assert made.certificate.data["length"] == length
    assert [sum(row) for row in made.dims] == dims
    networks.verify(made.certificate.text())


@pytest.mark.parametrize(
    ("goal", "layers"),
    [("ckda", 3), ("deltanet", 4), ("gdn", 4), ("kda", 4), ("kda-wide", 4), ("deltanet-wide", 4), ("gdn-wide", 4)],
)
def test_a_permutation_group_is_tracked_with_beta_two(goal: str, layers: int) -> None:
    made = built("S4", goal)
    assert (made.layers, made.program.beta_max) == (layers, 2)
    word = random.Random(0).choices(made.automaton.alphabet, k=300)
    assert made.run(word) == made.source.dfa.run(word)  # pyright: ignore


@pytest.mark.parametrize("goal", ["ckda-wide", "kda-wide", "deltanet-wide", "gdn-wide"])
def test_letters_that_merge_states_are_tracked_with_larger_beta(goal: str) -> None:
    made = built("[ab]*a[ab]b", goal)
    assert made.program.beta_max > 2
    networks.verify(made.certificate.text())
    for word in product("ab", repeat=8):
        assert made.run(word) == made.source.dfa.run(word)  # pyright: ignore


def test_products_of_k_factors_make_blocks_k_times_shorter() -> None:
    made = compile_source("S5", "deltaproduct", max_factors=2)
    assert (made.plan.construction, made.factors_per_token) == ("blocks", 2)
    assert made.certificate.data["length"] == 2
    networks.verify(made.certificate.text())


def test_one_layers_worth_of_work_is_left_to_one_layer() -> None:
    assert blocks_of(resolve("Z2"), "ckda") is None  # pyright: ignore
    assert blocks_of(resolve("(ab)*"), "ckda") is None  # pyright: ignore


def blocks_of(source: Source, goal: str) -> Blocks | None:
    def prove(program: Program, dfa: Dfa) -> Part:
        _, certificate = certify(program, dfa, target(goal))
        return part_of(certificate.data)

    return clocked_blocks(source, STYLES[goal], prove)  # pyright: ignore


@pytest.mark.parametrize("goal", ["ckda", "deltanet", "deltaproduct"])
def test_clocks_count_modulo_twice_the_length(goal: str) -> None:
    for length in range(1, 9):
        program, dfa = clock(STYLES[goal], length)
        closed, certificate = certify(program, dfa, target(goal))
        assert closed.run("t" * 40) == tuple(str((t + 1) % (2 * length)) for t in range(40))
        assert certificate.joint <= 4 * length


def test_a_wrong_factor_is_refused_by_the_producers_own_check() -> None:
    step = factor_map(Q, (1, 0, 2))[0]
    assert not isinstance(step, Dense)
    broken = Factor(step.w, step.c + 1)
    assert step_map(Q, (broken,), 3, 1).matrix != map_matrix(Q, (1, 0, 2))
