"""Groups over resets, and groups along chains of subgroups: exact on every element, letter and coset."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.cascade import verify_cascade
from statetrack.constructions.reduction import reduce
from statetrack.constructions.splitting import (
    Chain,
    split_group,
    split_permutations,
    split_resets,
    subgroup_chain,
)
from statetrack.errors import BudgetExceeded, InvalidInput
from statetrack.theory.automata import Dfa, reachable
from statetrack.theory.groups import Group, Permutation, named_group
from tests.strategies import permutation_dfas

INDICES = {
    "Z1": [],
    "D4": [2, 2, 2],
    "Q8": [2, 2, 2],
    "S3": [2, 3],
    "S4": [2, 3, 2, 2],
    "A4": [3, 2, 2],
    "Z6": [2, 3],
    "Z8": [2, 2, 2],
    "S5": [2, 5, 3, 2, 2],
    "A5": [5, 3, 2, 2],
    "Z2xQ8": [2, 2, 2, 2],
}


def elements(group: Group) -> list[Permutation]:
    return [group.permutation(g) for g in range(group.order)]


def indices(chain: Chain) -> list[int]:
    return [len(a) // len(b) for a, b in pairwise(chain)]


@given(st.integers(1, 4), st.data())
def test_a_component_is_its_group_over_resets(m: int, data: st.DataObject) -> None:
    bijections = st.permutations(range(m)).map(tuple)
    constants = st.integers(0, m - 1).map(lambda c: (c,) * m)
    actions = data.draw(st.lists(st.one_of(bijections, constants), min_size=1, max_size=4))
    split = split_resets(actions)
    for g in range(split.group.order):
        for y in range(m):
            for f in actions:
                after = split.step(f, g, y)
                assert split.state(*after) == f[split.state(g, y)]
                assert after[0] == g or after[1] == y
    for table in split.moves.values():
        assert sorted(table) == list(range(split.group.order))


def test_what_is_no_component_is_refused() -> None:
    for actions in ([], [(0, 0, 1)], [(0, 1), (0, 1, 2)], [(0, 2)]):
        with pytest.raises(InvalidInput):
            split_resets(actions)
    with pytest.raises(BudgetExceeded):
        split_resets([(1, 2, 3, 4, 0), (1, 0, 2, 3, 4)], max_order=100)


@pytest.mark.parametrize("name", INDICES)
def test_chains_of_groups_split_their_word_problems(name: str) -> None:
    group = named_group(name)
    chain = subgroup_chain(elements(group))
    assert indices(chain) == INDICES[name]
    for letters in (group.generators, range(group.order)):
        cascade = split_group(group, letters, chain)
        assert [c.size for c in cascade.components] == INDICES[name]
        assert len(verify_cascade(cascade).states) == group.order
        verify_cascade(reduce(cascade))


def test_a_composition_series_has_normal_steps_and_simple_factors() -> None:
    chain = subgroup_chain(elements(named_group("S5")), stabilisers=False)
    assert indices(chain) == [2, 60]
    for group, subgroup in pairwise(subgroup_chain(elements(named_group("S4")), stabilisers=False)):
        for g in group:
            inverse = tuple(g.index(i) for i in range(len(g)))
            assert {tuple(g[h[i]] for i in inverse) for h in subgroup} == subgroup
    verify_cascade(split_group(named_group("S5"), named_group("S5").generators, chain))


def test_any_chain_of_subgroups_will_do() -> None:
    """S4 along point stabilisers: 4, 3, 2 cosets."""
    group = named_group("S4")
    steps = [frozenset(g for g in elements(group) if all(g[i] == i for i in range(k))) for k in range(4)]
    cascade = split_group(group, group.generators, tuple(steps))
    assert [c.size for c in cascade.components] == [4, 3, 2]
    verify_cascade(cascade)


def test_what_is_no_chain_or_no_group_is_refused() -> None:
    group = named_group("S3")
    whole, one = frozenset(elements(group)), frozenset({(0, 1, 2)})
    crooked = frozenset({(0, 1, 2), (1, 0, 2), (0, 2, 1)})
    for chain in ((whole,), (one,), (whole, whole, one), (whole, crooked, one), (whole, frozenset[Permutation]())):
        with pytest.raises(InvalidInput, match="chain of subgroups"):
            split_group(group, group.generators, chain)
    with pytest.raises(InvalidInput, match="not closed"):
        subgroup_chain(crooked)
    with pytest.raises(BudgetExceeded):
        split_group(named_group("Z71xZ72"), [])


@given(permutation_dfas(max_states=5))
def test_permutation_automata_split_along_their_groups(dfa: Dfa) -> None:
    cascade = split_permutations(dfa)
    verify_cascade(cascade)
    verify_cascade(reduce(cascade))


def test_automata_of_two_groups_are_sign_flips() -> None:
    """Letters from the Sylow 2-subgroup of the permutations of 8 points (order 128)."""
    rng = random.Random(5)
    sylow = [(1, 0, 2, 3, 4, 5, 6, 7), (2, 3, 0, 1, 4, 5, 6, 7), (4, 5, 6, 7, 0, 1, 2, 3)]
    for _ in range(60):
        letters: list[list[int]] = []
        for _ in range(rng.randint(1, 3)):
            g = list(range(8))
            for _ in range(12):
                factor = rng.choice(sylow)
                g = [factor[i] for i in g]
            letters.append(g)
        table = np.array(letters, dtype=np.int32).T
        dfa = reachable(Dfa(tuple("abc"[: len(letters)]), tuple("stuvwxyz"), 0, table, (False,) * 8))
        cascade = split_permutations(dfa)
        assert all(c.size == 2 for c in cascade.components)
        verify_cascade(cascade)


def test_a_letter_that_merges_states_is_refused() -> None:
    dfa = Dfa(("a",), ("p", "q"), 0, np.array([[1], [1]], dtype=np.int32), (False, True))
    with pytest.raises(InvalidInput, match="not a bijection"):
        split_permutations(dfa)


@pytest.mark.parametrize(("name", "sizes"), [("A5", [60, 12, 4, 2, 1]), ("S5", [120, 60, 12, 4, 2, 1])])
def test_a_group_on_its_own_elements_has_the_chain_of_its_small_action(name: str, sizes: list[int]) -> None:
    group = named_group(name)
    regular = [tuple(int(group.multiply(g, h)) for h in range(group.order)) for g in range(group.order)]
    chain = subgroup_chain(regular)
    assert [len(h) for h in chain] == sizes
