"""Holonomy cascades: exactness, sizes known from another tool, resets only for automata without groups; the choice."""

from __future__ import annotations

from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.cascade import Cascade, hole_cascade, only_resets, verify_cascade, walk
from statetrack.constructions.holonomy import holonomy_cascade, skeleton, strong_components
from statetrack.constructions.quotients import (
    Partition,
    congruences,
    joined,
    parallel_cascade,
    quotient,
    quotient_cascade,
)
from statetrack.constructions.reduction import best_cascade, reduce
from statetrack.errors import BudgetExceeded, NoConstruction
from statetrack.theory.automata import Dfa, minimise, transition_maps
from statetrack.theory.formats import read_automaton
from statetrack.theory.monoids import classify
from statetrack.theory.regex import parse_regex
from tests.strategies import dfas, permutation_dfas

AUTOMATA = Path(__file__).parents[1] / "data" / "automata"

# Made by SgpDec 1.2.0: levels, and the number of tile chains.
SGPDEC = {
    "parity": (1, 2),
    "mod6": (1, 6),
    "ab_star": (2, 4),
    "flipflop": (1, 2),
    "s3_points": (1, 3),
    "s4_points": (1, 4),
    "s5_points": (1, 5),
    "s5_cayley": (1, 120),
    "a5_points": (1, 5),
    "q8_cayley": (1, 8),
    "t3": (2, 6),
    "t4": (3, 24),
    "t5": (4, 120),
    "t6": (5, 720),
    "cerny8": (7, 40320),
    "dyck1_d3": (4, 16),
    "dyck2_d3": (4, 54),
    "dyck2_d4": (5, 162),
    "counter_sat8": (7, 128),
    "modarith5_addsub": (2, 19),
    "modarith5_ltr": (3, 41),
    "modarith5_prec": (3, 73),
    "rand8_k2_s1": (11, 280),
    "rand8_k2_s2": (9, 66),
    "rand10_k2_s1": (8, 2832),
    "rand10_k2_s2": (14, 528),
    "rand12_k2_s1": (12, 245),
    "rand12_k2_s2": (20, 512),
    "rand15_k2_s1": (21, 1802),
    "iso_date": (15, 50),
    "ipv4": (16, 55),
    "email_ish": (6, 21),
    "tcp_strict": (4, 26),
    "tcp_ignore": (56, 915600),
}


@st.composite
def variants(draw: st.DrawFn) -> dict[str, bool]:
    return {"shared": draw(st.booleans()), "keep": draw(st.booleans())}


@given(dfas(max_states=6, max_symbols=3), variants())
def test_holonomy_is_exact_and_takes_the_step_of_its_components(dfa: Dfa, kind: dict[str, bool]) -> None:
    cascade = holonomy_cascade(dfa, **kind)
    verify_cascade(cascade)
    assert cascade.whole is not None
    for x in cascade.reachable():
        for token in range(len(dfa.alphabet)):
            assert cascade.whole(x, token) == cascade.step(x, token)
    verify_cascade(reduce(cascade))


@given(dfas(max_states=4, max_symbols=2), st.booleans())
def test_holonomy_is_exact_on_all_component_states(dfa: Dfa, keep: bool) -> None:
    cascade = holonomy_cascade(dfa, keep=keep)
    for x in islice(product(*(range(c.size) for c in cascade.components)), 2_000):
        for token in range(len(dfa.alphabet)):
            assert cascade.state(cascade.step(x, token)) == dfa.delta[cascade.state(x), token]


@given(dfas(max_states=6, max_symbols=3), variants())
def test_without_groups_there_are_only_resets(dfa: Dfa, kind: dict[str, bool]) -> None:
    cascade = holonomy_cascade(dfa, **kind)
    if classify(dfa).is_aperiodic:
        assert only_resets(cascade)
        assert only_resets(reduce(cascade))
        assert only_resets(best_cascade(dfa, resets_only=True).cascade)
    else:
        assert not only_resets(cascade)


@given(permutation_dfas(max_states=5))
def test_a_permutation_automaton_is_one_component(dfa: Dfa) -> None:
    assert [c.size for c in holonomy_cascade(dfa).components] == [len(dfa.states)] * (len(dfa.states) > 1)


@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_all_maps_of_n_points_give_the_sizes_n_to_2(n: int) -> None:
    cascade = holonomy_cascade(read_automaton(AUTOMATA / f"t{n}.json"))
    assert [c.size for c in cascade.components] == list(range(n, 1, -1))
    assert len(verify_cascade(reduce(cascade)).states) == skeleton(cascade.dfa).chains


@pytest.mark.parametrize("name", SGPDEC)
def test_levels_and_chains_are_those_that_sgpdec_finds(name: str) -> None:
    made = skeleton(read_automaton(AUTOMATA / f"{name}.json"))
    assert (made.heights[0], made.chains) == SGPDEC[name]


@pytest.mark.parametrize("path", sorted(AUTOMATA.glob("*.json")), ids=lambda path: path.stem)
def test_every_automaton_at_hand_is_decomposed_or_stopped_early(path: Path) -> None:
    dfa = read_automaton(path)
    chains = skeleton(dfa).chains
    if chains > 12_000:
        with pytest.raises(BudgetExceeded, match="chains of tiles"):
            holonomy_cascade(dfa, shared=True, max_chains=12_000)
        return
    cascade = holonomy_cascade(dfa, shared=True)
    assert len(walk(cascade).states) <= chains
    verify_cascade(reduce(cascade))


@pytest.mark.parametrize("max_sets", [3, 8])
def test_image_sets_are_bounded(max_sets: int) -> None:
    with pytest.raises(BudgetExceeded, match="image sets"):
        holonomy_cascade(read_automaton(AUTOMATA / "t4.json"), max_sets=max_sets)


@pytest.mark.parametrize(
    "letters", [[[0]], [], [[0, 0, 0], [2, 2, 2]], [[0, 1, 2]], [[1, 2, 0]], [[1, 1, 1]], [[0, 0]]]
)
def test_one_state_no_letter_one_letter_and_constant_letters(letters: list[list[int]]) -> None:
    n = len(letters[0]) if letters else 1
    table = np.array(letters, dtype=np.int32).reshape(len(letters), n).T
    dfa = Dfa(tuple("ab"[: len(letters)]), tuple("qrs"[:n]), 0, table, (False,) * n)
    cascade = holonomy_cascade(dfa)
    assert [c.size for c in cascade.components] == ([n] if n > 1 else [])
    verify_cascade(cascade)
    verify_cascade(best_cascade(dfa).cascade)


@given(st.lists(st.lists(st.integers(0, 7), max_size=3), min_size=8, max_size=8))
def test_strong_components_are_classes_of_mutual_reach_in_order(after: list[list[int]]) -> None:
    reach = np.eye(8, dtype=bool)
    for v, row in enumerate(after):
        reach[v, row] = True
    for _ in range(3):
        reach = reach @ reach
    found = strong_components(after)
    assert sorted(v for c in found for v in c) == list(range(8))
    for i, c in enumerate(found):
        assert all(set(np.flatnonzero(reach[v] & reach[:, v]).tolist()) == set(c) for v in c)
        assert not any(reach[c[0], d[0]] for d in found[i + 1 :])


def is_congruence(dfa: Dfa, p: Partition) -> bool:
    return all(len({(p[a], p[f[a]]) for a in range(len(p))}) == max(p) + 1 for f in transition_maps(dfa))


@given(dfas(max_states=6, max_symbols=2))
def test_congruences_are_the_minimal_ones(dfa: Dfa) -> None:
    n = len(dfa.states)
    found = congruences(dfa)
    assert all(is_congruence(dfa, p) and 0 < max(p) < n - 1 for p in found)

    def within(p: Partition, q: Partition) -> bool:
        return len(set(zip(p, q, strict=True))) == max(p) + 1

    for p, q in product(found, repeat=2):
        both = joined(p, q)
        assert is_congruence(dfa, both)
        assert within(p, both)
        assert within(q, both)
    for p in product(range(n), repeat=n) if n <= 5 else ():
        numbered = tuple(list(dict.fromkeys(p)).index(c) for c in p)
        if p == numbered and 0 < max(p) < n - 1 and is_congruence(dfa, p):
            assert any(within(q, p) for q in found)
            assert all(p == q or not within(p, q) for q in found)


@given(dfas(max_states=6, max_symbols=2))
def test_quotients_and_places_in_classes_make_a_cascade(dfa: Dfa) -> None:
    found = congruences(dfa)
    for p in found:
        top = quotient(dfa, p)
        assert len(top.states) == max(p) + 1
        for cascade in (quotient_cascade(dfa, p), quotient_cascade(dfa, p, hole_cascade(top))):
            verify_cascade(cascade)
            verify_cascade(reduce(cascade))
        for q in found:
            if len(set(zip(p, q, strict=True))) == len(p):
                verify_cascade(parallel_cascade(dfa, p, q))


def sizes(cascade: Cascade) -> list[int]:
    return [c.size for c in cascade.components]


@pytest.mark.parametrize(
    ("name", "kind", "levels", "found"),
    [
        ("mod6", "quotients of 2 and 3 classes side by side", 1, [2, 3]),
        ("s5_points", "holonomy", 1, [5]),
        ("rand8_k2_s1", "quotient of 4 classes", 6, [2, 2, 2, 3, 3, 2]),
        ("shift3", "holonomy", 3, [2, 2, 2]),
        ("ipv4", "holonomy, idle components keep their states", 10, [5, 3, 3, 2, 2, 2, 2, 2, 2, 2]),
        ("t4", "holes", 3, [4, 3, 2]),
    ],
)
def test_the_choice_has_fewest_levels_and_tells_what_was_tried(
    name: str, kind: str, levels: int, found: list[int]
) -> None:
    choice = best_cascade(read_automaton(AUTOMATA / f"{name}.json"))
    verify_cascade(choice.cascade)
    assert (choice.name, choice.cascade.levels, sizes(choice.cascade)) == (kind, levels, found)
    good = [a for a in choice.tried if a.left_out is None]
    assert min((a.levels, sum(a.sizes)) for a in good) == (levels, sum(found))
    assert choice.name in [a.name for a in good]


@given(dfas(max_states=5, max_symbols=3))
def test_the_choice_is_exact(dfa: Dfa) -> None:
    dfa = minimise(dfa)
    verify_cascade(best_cascade(dfa).cascade)


def test_a_bound_that_every_kind_meets_is_an_error_and_one_that_some_meet_is_told() -> None:
    with pytest.raises(BudgetExceeded):
        best_cascade(read_automaton(AUTOMATA / "tcp_ignore.json"))
    told = [a.left_out for a in best_cascade(read_automaton(AUTOMATA / "rand8_k2_s1.json")).tried if a.left_out]
    assert told
    assert all("cascade states" in text for text in told)


def test_resets_only_is_refused_where_letters_count() -> None:
    with pytest.raises(NoConstruction, match="a cascade of resets here: holes: it has bijections"):
        best_cascade(parse_regex("(aa)*"), resets_only=True)
    assert only_resets(best_cascade(read_automaton(AUTOMATA / "ipv4.json"), resets_only=True).cascade)
