from __future__ import annotations

import itertools
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from statetrack.theory.automata import Dfa, minimise, transition_maps
from statetrack.theory.formats import read_automaton
from statetrack.theory.monoids import Classification, classify, transition_monoid
from statetrack.theory.regex import parse_regex
from tests.strategies import dfas, permutation_dfas

DATA = Path(__file__).parents[1] / "data" / "automata"
Map = tuple[int, ...]


def automaton(name: str) -> Dfa:
    return read_automaton(DATA / f"{name}.json")


def unary(n: int) -> Dfa:
    return table([[(q + 1) % n] for q in range(n)])


def table(rows: list[list[int]]) -> Dfa:
    names = tuple(str(q) for q in range(len(rows)))
    outputs = tuple(str(q) for q in range(len(rows)))
    return Dfa(tuple("abcdefgh"[: len(rows[0])]), names, 0, np.array(rows, dtype=np.int32), outputs)


def acts(dfa: Dfa, word: tuple[int, ...]) -> Map:
    image = tuple(range(len(dfa.states)))
    for s in word:
        image = tuple(int(dfa.delta[q, s]) for q in image)
    return image


def brute_monoid(dfa: Dfa) -> dict[Map, tuple[int, ...]]:
    """The maps of words with their shortlex-least words, by trying words in this order."""
    found: dict[Map, tuple[int, ...]] = {acts(dfa, ()): ()}
    newest: list[tuple[int, ...]] = [()]
    while newest:
        longer = [(*w, s) for w in newest for s in range(len(dfa.alphabet))]
        newest = []
        for w in longer:
            if acts(dfa, w) not in found:
                found[acts(dfa, w)] = w
                newest.append(w)
    return found


def brute_period(image: Map) -> int:
    """The least p with m^(N + p) = m^N for an N past all tails."""

    def after(m: Map) -> Map:
        return tuple(image[q] for q in m)

    power = tuple(range(len(image)))
    for _ in image:
        power = after(power)
    first, p = power, 1
    while (power := after(power)) != first:
        p += 1
    return p


def brute_definite(dfa: Dfa) -> int | None:
    """The vertices of the longest path of the pair graph, found pair by pair."""
    n = len(dfa.states)
    pairs = [frozenset(pair) for pair in itertools.combinations(range(n), 2)]
    height: dict[frozenset[int], int] = {}
    for _ in pairs:
        for pair in pairs:
            after = [frozenset(int(dfa.delta[q, s]) for q in pair) for s in range(len(dfa.alphabet))]
            after = [other for other in after if len(other) == 2]
            if all(other in height for other in after):
                height[pair] = 1 + max((height[other] for other in after), default=0)
    return max(height.values(), default=0) if len(height) == len(pairs) else None


def brute_r_trivial(dfa: Dfa) -> bool:
    n = len(dfa.states)
    reach = np.eye(n, dtype=bool)
    for _ in range(n):
        for p, s in itertools.product(range(n), range(len(dfa.alphabet))):
            reach[p] |= reach[int(dfa.delta[p, s])]
    return not (reach & reach.T & ~np.eye(n, dtype=bool)).any()


def check_witnesses(dfa: Dfa, found: Classification) -> None:
    """Every negative answer has a witness, no other has, and simulation confirms it."""
    answers = ("is_aperiodic", "is_two_periodic", "is_r_trivial", "definite", "is_group", "is_permutation_reset")
    no = [name for name in answers if getattr(found, name) is (None if name == "definite" else False)]
    assert sorted(w.answer for w in found.witnesses) == sorted(no)
    for name in answers:
        witness = found.witness(name)
        if witness is None:
            assert name not in no
            continue
        image, states = acts(dfa, witness.word), witness.states
        assert len(set(states)) == len(states)
        moved = tuple(image[q] for q in states)
        if name in ("is_aperiodic", "is_two_periodic"):
            assert moved == (*states[1:], states[0])
            assert len(states) > 1
            assert name == "is_aperiodic" or len(states).bit_count() > 1
        elif name == "is_r_trivial":
            assert len(states) == len(witness.word) > 1
            steps = [int(dfa.delta[q, s]) for q, s in zip(states, witness.word, strict=True)]
            assert steps == [*states[1:], states[0]]
        elif name == "definite":
            assert len(states) == 2
            assert witness.word
            assert set(moved) == set(states)
        else:
            assert len(witness.word) == 1
            assert moved[0] == moved[1]
            assert len(states) == (2 if name == "is_group" else 3)
            assert name == "is_group" or moved[2] != moved[0]


def check_all(dfa: Dfa) -> None:
    monoid, found = brute_monoid(dfa), classify(dfa)
    periods = {brute_period(m) for m in monoid}
    assert found.letters == tuple(dict.fromkeys(transition_maps(dfa)))
    assert found.monoid_size == len(monoid)
    assert found.periods == tuple(sorted(periods))
    assert found.is_aperiodic is (periods == {1})
    assert found.is_two_periodic is all(p.bit_count() == 1 for p in periods)
    assert found.is_group is dfa.is_permutation()
    assert found.is_permutation_reset is all(len(set(m)) in (1, len(m)) for m in transition_maps(dfa))
    assert found.is_r_trivial is brute_r_trivial(dfa)
    assert found.definite == brute_definite(dfa)
    assert found.unknown is None
    check_witnesses(dfa, found)
    for name, good in (("is_aperiodic", {1}), ("is_two_periodic", {1, 2, 4, 8, 16})):
        witness = found.witness(name)
        assert (witness and witness.word) == next((w for m, w in monoid.items() if brute_period(m) not in good), None)


@given(dfas(max_states=5))
def test_the_classes_are_those_found_by_brute_force(dfa: Dfa) -> None:
    check_all(dfa)
    check_all(minimise(dfa))


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_are_classified_as_by_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 8))
    # Odd seeds lead upwards only, and every third has a letter that counts; so all classes are met.
    floor = [min(q + 1, n - 1) if seed % 2 else 0 for q in range(n)]
    rows = [[int(rng.integers(low, n)) for low in (lows, lows)] for lows in floor]
    if seed % 3 == 0:
        rows = [[min(q + 1, n - 1), row[1]] for q, row in enumerate(rows)]
    check_all(table(rows))


@given(permutation_dfas(max_states=5, max_symbols=2))
def test_the_classes_of_groups_are_those_found_by_brute_force(dfa: Dfa) -> None:
    check_all(minimise(dfa))


@given(dfas(max_states=5, max_symbols=2, all_reachable=False))
def test_the_monoid_lists_the_maps_of_shortest_words_in_their_order(dfa: Dfa) -> None:
    brute, monoid = brute_monoid(dfa), transition_monoid(dfa)
    assert monoid.size == len(brute)
    assert monoid.maps.shape == (monoid.size, len(dfa.states))
    assert [tuple(row) for row in monoid.maps.tolist()] == list(brute)
    assert [monoid.word(i) for i in range(monoid.size)] == list(brute.values())


@given(dfas(max_states=5, max_symbols=2))
def test_past_a_bound_answers_are_right_or_unknown(dfa: Dfa) -> None:
    known = classify(dfa)
    for bounds in ({"max_monoid": 1}, {"max_monoid": 4}, {"max_seconds": 0.0}):
        found = classify(dfa, **bounds)  # pyright: ignore[reportArgumentType]
        for name in ("monoid_size", "is_aperiodic", "is_two_periodic", "periods"):
            assert getattr(found, name) in (None, getattr(known, name))
        for name in ("letters", "is_group", "is_r_trivial", "definite", "is_permutation_reset"):
            assert getattr(found, name) == getattr(known, name)
        assert (found.unknown is None) is (found.monoid_size is not None)
        if known.is_r_trivial or known.definite is not None:
            assert found.is_aperiodic is found.is_two_periodic is True
        for letter in known.letters:
            assert brute_period(letter) == 1 or found.is_aperiodic is False
            assert brute_period(letter).bit_count() == 1 or found.is_two_periodic is False
        check_witnesses(dfa, found)


# Sizes of the transition semigroup counted by another program; the monoid may have one element more.
SEMIGROUPS = {
    "parity": 2,
    "mod6": 6,
    "ab_star": 5,
    "flipflop": 3,
    "s3_points": 6,
    "s4_points": 24,
    "s5_points": 120,
    "s5_cayley": 120,
    "a5_points": 60,
    "q8_cayley": 8,
    "t3": 27,
    "t4": 256,
    "t5": 3125,
    "t6": 46656,
    "cerny8": 51424,
    "dyck1_d3": 30,
    "dyck2_d3": 284,
    "dyck2_d4": 1245,
    "counter_sat8": 147,
    "modarith5_addsub": 91,
    "modarith5_ltr": 521,
    "modarith5_prec": 617,
    "rand10_k2_s1": 277331,
    "rand10_k2_s2": 24374,
    "rand12_k2_s1": 88,
    "rand12_k2_s2": 36454,
    "rand15_k2_s1": 64393,
    "iso_date": 83,
    "ipv4": 139,
    "email_ish": 25,
    "tcp_strict": 149,
}


@pytest.mark.parametrize(("name", "size"), SEMIGROUPS.items(), ids=list(SEMIGROUPS))
def test_monoids_have_the_sizes_another_program_counts(name: str, size: int) -> None:
    dfa = automaton(name)
    monoid = transition_monoid(dfa, 300_000)
    # A word acts as the identity iff a letter is a bijection.
    acted = any(len(set(m)) == len(m) for m in transition_maps(dfa))
    assert (monoid.size, monoid.unknown) == (size + (not acted), None)
    for i in range(0, monoid.size, max(1, monoid.size // 50)):
        assert acts(dfa, monoid.word(i)) == tuple(monoid.maps[i].tolist())


@pytest.mark.parametrize("name", ["t6", "cerny8"])
def test_a_monoid_of_fifty_thousand_takes_less_than_two_seconds(name: str) -> None:
    dfa, begin = automaton(name), time.process_time()
    classify(dfa)
    assert time.process_time() - begin < 2


APERIODIC = ["ab_star", "counter_sat8", "dyck1_d3", "dyck2_d2", "dyck2_d3", "dyck2_d4", "flipflop", "shift3"]


@pytest.mark.parametrize("name", APERIODIC)
def test_automata_known_to_be_aperiodic_are_found_so(name: str) -> None:
    found = classify(minimise(automaton(name)))
    assert (found.is_aperiodic, found.is_two_periodic, found.periods) == (True, True, (1,))


@pytest.mark.parametrize(
    ("dfa", "periods", "group"),
    [
        (automaton("parity"), (1, 2), True),
        (unary(3), (1, 3), True),
        (automaton("mod6"), (1, 2, 3, 6), True),
        (automaton("q8_cayley"), (1, 2, 4), True),
        (automaton("s5_points"), (1, 2, 3, 4, 5, 6), True),
        (automaton("a5_points"), (1, 2, 3, 5), True),
        (automaton("t4"), (1, 2, 3, 4), False),
        (automaton("cerny8"), tuple(range(1, 9)), False),
        (automaton("even_a_no_bb"), (1, 2), False),
    ],
)
def test_the_periods_of_known_automata(dfa: Dfa, periods: tuple[int, ...], group: bool) -> None:
    found = classify(minimise(dfa))
    assert (found.periods, found.is_group) == (periods, group)
    assert found.is_aperiodic is (periods == (1,))
    assert found.is_two_periodic is all(p.bit_count() == 1 for p in periods)
    check_witnesses(minimise(dfa), found)


@pytest.mark.parametrize(
    ("pattern", "definite", "r_trivial", "resets"),
    [
        ("(a|b)*", 0, True, True),
        ("(a|b)*a", 1, False, True),
        ("(a|b)*a(a|b)", 2, False, False),
        ("(a|b)*a(a|b)(a|b)", 3, False, False),
        ("a(a|b)*", None, True, False),
        ("a|ab", 3, True, False),
        ("(a|b)*aba(a|b)*", None, False, False),
        ("(ab)*", None, False, False),
    ],
)
def test_languages_known_to_be_definite_or_r_trivial(
    pattern: str, definite: int | None, r_trivial: bool, resets: bool
) -> None:
    dfa = parse_regex(pattern, ["a", "b"])
    found = classify(dfa)
    assert (found.definite, found.is_r_trivial, found.is_permutation_reset) == (definite, r_trivial, resets)
    assert found.is_aperiodic
    check_all(dfa)


def test_a_letter_decides_what_the_monoid_is_too_large_for() -> None:
    # A cycle of three states and another of two beside a shuffled rest that makes the monoid large.
    shift = [(q + 1) % 13 for q in range(13)]
    dfa = table([[shift[q], [1, 2, 0, 4, 3][q] if q < 5 else q, 0 if q == 12 else q] for q in range(13)])
    found = classify(dfa, max_monoid=10)
    assert (found.monoid_size, found.periods, found.unknown) == (None, None, "max_monoid = 10")
    assert (found.is_aperiodic, found.is_two_periodic, found.is_group) == (False, False, False)
    check_witnesses(dfa, found)
    hurried = classify(dfa, max_monoid=10**9, max_seconds=0.0)
    assert hurried.unknown == "max_seconds = 0.0"
    assert hurried.witnesses == found.witnesses


def test_what_no_bound_leaves_open_is_said_to_be_unknown() -> None:
    # The letters have periods 1 and 2, but their products make all permutations of five points.
    dfa = table([[[1, 0, 2, 3, 4][q], [0, 2, 1, 4, 3][q], [0, 1, 3, 2, 4][q]] for q in range(5)])
    found = classify(dfa, max_monoid=4)
    assert (found.is_group, found.is_aperiodic, found.is_two_periodic, found.periods) == (True, False, None, None)
    assert classify(dfa).is_two_periodic is False


@pytest.mark.parametrize("size", [1, 4, 119, 120, 121])
def test_the_cap_counts_the_elements_returned(size: int) -> None:
    monoid = transition_monoid(automaton("s5_points"), size)
    assert monoid.size == len(monoid.maps) == (3 if size == 1 else min(size, 120))
    assert (monoid.unknown is None) is (size >= 120)


def test_memory_is_a_bound_whatever_the_cap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statetrack.theory.monoids._MAX_BYTES", 10_000)
    monoid = transition_monoid(automaton("s5_points"), 10**9)
    assert monoid.unknown == "1 GiB of memory"
    assert monoid.size == 10_000 // (3 * 5 + 160)
    assert classify(automaton("parity")).unknown is None


def test_long_chains_are_classified_in_time_that_does_not_square() -> None:
    n = 20_000
    dfa, begin = table([[min(q + 1, n - 1), n - 1] for q in range(n)]), time.process_time()
    found = classify(dfa, max_monoid=10)
    assert (found.definite, found.is_r_trivial, found.is_aperiodic) == (n - 1, True, True)
    assert found.unknown == "max_monoid = 10"
    assert time.process_time() - begin < 10


def test_states_past_a_byte_are_counted() -> None:
    found = classify(unary(300))
    assert found.monoid_size == 300
    assert found.periods == tuple(d for d in range(1, 301) if 300 % d == 0)


def test_an_automaton_without_symbols_or_with_one_state_is_everything() -> None:
    for symbols in (0, 2):
        dfa = Dfa(tuple("ab"[:symbols]), ("x",), 0, np.zeros((1, symbols), dtype=np.int32), (True,))
        check_all(dfa)
        found = classify(dfa)
        assert (found.monoid_size, found.definite, found.witnesses) == (1, 0, ())
