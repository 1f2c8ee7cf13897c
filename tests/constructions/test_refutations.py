"""Proofs that a target cannot: their witnesses, checked by running the automaton."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statetrack.constructions.refutations import period_witness, refute
from statetrack.constructions.source import Options, Source, from_automaton, resolve
from statetrack.constructions.targets import TARGETS, target
from statetrack.errors import NotExpressible
from statetrack.theory.automata import Dfa
from tests.strategies import dfas, permutation_dfas

WITHOUT = ("diag[0,1]", "diag[-1,1]", "deltanet[0,1]", "gdn[0,1]", "kda[0,1]")


def source_of(text: str, **options: str) -> Source:
    found = resolve(text, Options(**options))  # pyright: ignore[reportArgumentType]
    assert isinstance(found, Source)
    return found


def forbidden(period: int, *, allow_two: bool) -> bool:
    while allow_two and period % 2 == 0:
        period //= 2
    return period > 1


def periods(dfa: Dfa, most: int = 2_000) -> set[int] | None:
    """The lengths of cycles of all words' maps; None past a bound."""
    letters = [tuple(dfa.delta[:, a].tolist()) for a in range(len(dfa.alphabet))]
    found = dict.fromkeys(letters)
    listed = [*found]
    for f in listed:
        for letter in letters:
            image = tuple(letter[q] for q in f)
            if image not in found:
                if len(found) >= most:
                    return None
                found[image] = None
                listed.append(image)
    lengths: set[int] = set()
    for f in found:
        for q in range(len(f)):
            seen: list[int] = []
            while q not in seen:
                seen.append(q)
                q = f[q]
            lengths.add(len(seen) - seen.index(q))
    return lengths


def moves_in_a_cycle(dfa: Dfa, word: tuple[int, ...], states: tuple[int, ...]) -> bool:
    """Whether the word moves each of the states to the next one, and the last to the first."""
    for q, wanted in zip(states, (*states[1:], states[0]), strict=True):
        for token in word:
            q = int(dfa.delta[q, token])
        if q != wanted:
            return False
    return len(set(states)) == len(states)


@given(st.one_of(dfas(max_states=5), permutation_dfas(max_states=5)), st.booleans())
def test_a_witness_is_a_word_that_moves_states_in_a_forbidden_cycle(dfa: Dfa, allow_two: bool) -> None:
    source = from_automaton("some", dfa)
    found = period_witness(source, allow_two=allow_two)
    if found is not None:
        assert found.word
        assert moves_in_a_cycle(source.dfa, found.word, found.states)
        assert forbidden(len(found.states), allow_two=allow_two)
    lengths = periods(source.dfa)
    assume(lengths is not None)
    assert lengths is not None
    assert (found is not None) == any(forbidden(n, allow_two=allow_two) for n in lengths)


@given(dfas(max_states=5), st.sampled_from(sorted(TARGETS)))
def test_only_targets_without_periods_are_refused_and_only_for_periods(dfa: Dfa, name: str) -> None:
    source = from_automaton("some", dfa)
    lengths = periods(source.dfa)
    assert lengths is not None
    refused = name in WITHOUT and any(forbidden(n, allow_two=name == "diag[-1,1]") for n in lengths)
    if not refused:
        refute(source, target(name))
        return
    with pytest.raises(NotExpressible) as caught:
        refute(source, target(name))
    error = caught.value
    assert error.target == name
    assert error.theorem == {"diag[0,1]": "Grazzi Thm. 1", "diag[-1,1]": "Grazzi Thm. 2"}.get(name, "OURS-O3")
    assert error.semantics
    shown = re.fullmatch(r"repeating the word '(.*)' moves the states (.*) with period (\d+)", str(error.witness))
    assert shown is not None
    word = source.dfa.encode(shown[1].split())
    states = tuple(source.dfa.states.index(q) for q in shown[2].split(", "))
    assert len(states) == int(shown[3])
    assert moves_in_a_cycle(source.dfa, word, states)


@pytest.mark.parametrize("name", ["Z2", "Z4", "D4", "Q8", "Z2xZ2"])
def test_two_groups_have_only_periods_that_are_powers_of_two(name: str) -> None:
    source = source_of(name)
    assert period_witness(source, allow_two=True) is None
    found = period_witness(source, allow_two=False)
    assert found is not None
    assert moves_in_a_cycle(source.dfa, found.word, found.states)


@pytest.mark.parametrize(("name", "length"), [("S3", 2), ("A4", 2), ("S5", 2), ("Z6", 1), ("A5", 1)])
def test_the_word_over_generators_is_as_short_as_can_be(name: str, length: int) -> None:
    """No generator of S3, A4 (by involutions) or S5 alone need have a forbidden period; a product of two has."""
    source = source_of(name, letters="generators")
    found = period_witness(source, allow_two=True)
    assert found is not None
    assert moves_in_a_cycle(source.dfa, found.word, found.states)
    assert forbidden(len(found.states), allow_two=True)
    assert len(found.word) <= length
    for token in range(len(source.dfa.alphabet)):
        order = 1
        f = first = source.dfa.delta[:, token]
        while not np.array_equal(f, np.arange(len(f))):
            f, order = first[f], order + 1
        assert len(found.word) == 1 or not forbidden(order, allow_two=True)


def test_transpositions_alone_have_period_two_and_their_product_has_three() -> None:
    source = source_of("perm:(1 2);(2 3)", letters="generators")
    found = period_witness(source, allow_two=True)
    assert found is not None
    assert len(found.word) == 2
    assert len(found.states) == 3
    assert moves_in_a_cycle(source.dfa, found.word, found.states)


def test_two_letters_of_which_neither_has_a_period() -> None:
    """a sends 0 to 1 and 2 to 3, b sends 1 to 2 and 3 to 0; a b moves 0 and 2 in a cycle of two."""
    table = np.array([[1, 4], [4, 2], [3, 4], [4, 0], [4, 4]], dtype=np.int32)
    source = from_automaton("four", Dfa(("a", "b"), tuple("0123z"), 0, table, (True, *(False,) * 4)))
    found = period_witness(source, allow_two=False)
    assert found is not None
    assert (len(found.word), len(found.states)) == (2, 2)
    assert moves_in_a_cycle(source.dfa, found.word, found.states)
    assert period_witness(source, allow_two=True) is None
    assert period_witness(source, allow_two=False, max_monoid=2) is None
    refute(source, target("diag[0,1]"), max_monoid=2)


def test_a5_and_heads_of_size_three() -> None:
    a5 = source_of("A5")
    for most in (1, 2, 3):
        with pytest.raises(NotExpressible, match="CKDA Lemma 16") as caught:
            refute(a5, target("ckda"), max_dim=most)
        assert "--max-dim 4" in str(caught.value.witness)
    refute(a5, target("ckda"), max_dim=4)
    refute(a5, target("ckda"))
    refute(a5, target("deltaproduct"), max_dim=3)
    # The theorem needs all 60 letters, and the icosahedron's group.
    refute(source_of("A5", letters="generators"), target("ckda"), max_dim=3)
    refute(source_of("S4"), target("ckda"), max_dim=3)


def test_long_words_and_cycles_are_shortened_in_the_message() -> None:
    source = source_of("Z30")
    with pytest.raises(NotExpressible) as caught:
        refute(source, target("diag[0,1]"))
    assert str(caught.value.witness).endswith(", ... with period 30")
    assert "\n" not in str(caught.value)
