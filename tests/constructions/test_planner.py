"""Refusals: with a theorem and a witness where there is one, with what would help where there is not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from statetrack import build
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.planner import refute
from statetrack.constructions.source import Options, Source, from_automaton, parse_word, resolve
from statetrack.constructions.targets import TARGETS
from statetrack.errors import InvalidFile, InvalidInput, NoConstruction, NotExpressible, UnknownGroup
from statetrack.theory.automata import from_table
from statetrack.theory.formats import read_automaton
from statetrack.theory.regex import parse_regex

AUTOMATA = Path(__file__).parents[1] / "data" / "automata"


def test_a5_in_three_dimensions_is_refused_by_the_count_of_planes() -> None:
    with pytest.raises(NotExpressible, match="12 of the icosahedron's 16") as caught:
        compile_source("A5", "ckda", max_dim=3)
    assert caught.value.theorem == "CKDA Lemma 16 and Prop. 13"
    compile_source("A5", "ckda", max_dim=4)


@pytest.mark.parametrize("name", ["Z3", "S3", "Z12", "A5"])
def test_a_group_that_is_no_2_group_is_refused_on_signed_diagonals(name: str) -> None:
    with pytest.raises(NotExpressible, match="powers of two") as caught:
        compile_source(name, "diag[-1,1]")
    assert caught.value.theorem == "Grazzi Thm. 2"
    assert "period" in caught.value.witness


def witness_period(source: Source, word: tuple[str, ...]) -> int:
    """The least number of repetitions of the word that brings every state back to itself after some start-up."""
    power = {q: q for q in range(len(source.dfa.states))}
    seen: dict[tuple[int, ...], int] = {}
    for t in range(1000):
        key = tuple(power.values())
        if key in seen:
            return t - seen[key]
        seen[key] = t
        for symbol in source.dfa.encode(word):
            power = {q: int(source.dfa.delta[p, symbol]) for q, p in power.items()}
    raise AssertionError


def test_the_witness_word_has_the_period_that_is_stated() -> None:
    source = resolve("Z6")
    with pytest.raises(NotExpressible) as caught:
        refute(source, TARGETS["diag[-1,1]"])
    word = caught.value.witness.split("'")[1]
    assert witness_period(source, (word,)) % 3 == 0


def test_a_period_that_only_a_product_of_letters_has_is_found() -> None:
    # S3 by two swaps: each letter has period two, their product three.
    source = resolve("(1 2);(2 3)", Options(letters="generators"))
    with pytest.raises(NotExpressible) as caught:
        refute(source, TARGETS["diag[-1,1]"])
    word = tuple(caught.value.witness.split("'")[1].split(" "))
    assert len(word) == 2
    assert witness_period(source, word) == 3


@pytest.mark.parametrize(("name", "bits"), [("Z4", 2), ("D4", 3), ("Q8", 3), ("Z8", 3), ("Z2xZ4", 3)])
def test_a_2_group_that_is_not_elementary_is_a_tower_of_signs(name: str, bits: int) -> None:
    made = compile_source(name, "diag[-1,1]")
    assert (made.plan.construction, sum(map(sum, made.dims))) == ("tower", bits)
    word = random.Random(0).choices(made.source.dfa.alphabet, k=200)
    assert made.run(word) == made.source.dfa.run(word)


def test_a_cycling_letter_of_a_merging_automaton_is_enough_for_a_refusal() -> None:
    source = from_automaton("r", parse_regex("(aaa)*b?"))
    with pytest.raises(NotExpressible, match="period 3"):
        refute(source, TARGETS["diag[-1,1]"])
    with pytest.raises(NotExpressible, match="aperiodic"):
        refute(from_automaton("r", parse_regex("(aa)*")), TARGETS["diag[0,1]"])


def test_a_period_hidden_in_the_monoid_of_a_merging_automaton_is_found() -> None:
    # b counts modulo 3 only after a; every single letter's cycles from the start are fixed points.
    edges = {"x": {"a": "0", "b": "x"}, "0": {"a": "0", "b": "1"}, "1": {"a": "0", "b": "2"}, "2": {"a": "0", "b": "0"}}
    table = {(q, s): to for q, row in edges.items() for s, to in row.items()}
    source = from_automaton("late", from_table(["a", "b"], [*edges], "x", table, {"0": True, "1": True}))
    with pytest.raises(NotExpressible, match="period 3") as caught:
        refute(source, TARGETS["diag[-1,1]"])
    word = tuple(caught.value.witness.split("'")[1].split(" "))
    assert witness_period(source, word) % 3 == 0


def test_limits_are_told_with_what_the_best_construction_needs() -> None:
    with pytest.raises(NoConstruction, match="dimension 5 and 4 factors"):
        compile_source("S5", "deltaproduct", max_factors=3, construction="permutation")
    with pytest.raises(NoConstruction, match="dimension 4 and 1 factors"):
        compile_source("S4", "ckda", max_dim=2, construction="quaternion")


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match="know diag"):
        compile_source("Z3", "ckda2")
    with pytest.raises(InvalidInput, match="quaternion"):
        compile_source("Z3", "ckda", construction="octonion")
    with pytest.raises(UnknownGroup, match="X5"):
        resolve("X5")
    with pytest.raises(InvalidFile, match="no such file"):
        resolve("nowhere.dot")
    with pytest.raises(InvalidInput, match="letters"):
        resolve("Z3", Options(letters="some"))


def test_a_string_is_read_as_what_it_looks_like() -> None:
    assert resolve("Z6").group is not None
    assert resolve("regex:Z6").name == "regex 'Z6'"
    assert resolve("(1 2 3);(1 2)").name == "<(1 2 3);(1 2)>"
    assert len(resolve("perm:(1,2,3)").dfa.states) == 3
    assert resolve("(12)").name == "regex '(12)'"
    assert len(resolve("(1 2);()", Options(letters="generators")).letters) == 2


@pytest.mark.parametrize(
    ("text", "alphabet", "word"),
    [
        ("0110", ("0", "1"), ("0", "1", "1", "0")),
        ("", ("0", "1"), ()),
        ("(12);(123)", ("(12)", "(123)"), ("(12)", "(123)")),
        ("10c rcv", ("10c", "rcv"), ("10c", "rcv")),
        ('["a b", "c"]', ("a b", "c"), ("a b", "c")),
        ("(1 2);(1 2 3)", ("(1 2)", "(1 2 3)"), ("(1 2)", "(1 2 3)")),
    ],
)
def test_words_are_read_in_the_form_that_fits_the_alphabet(
    text: str, alphabet: tuple[str, ...], word: tuple[str, ...]
) -> None:
    assert parse_word(text, alphabet) == word


@pytest.mark.parametrize("text", ['["a"', "[1]", '{"a"}['])
def test_a_json_word_that_is_none_is_refused(text: str) -> None:
    if text.startswith("["):
        with pytest.raises(InvalidInput, match="word"):
            parse_word(text, ("a",))


def test_the_budget_of_cascades_is_told_with_its_flag_and_can_be_raised() -> None:
    dfa = parse_regex("[ab]*aba[ab]*")
    with pytest.raises(NoConstruction, match="--max-cascade"):
        build(dfa, "deltaproduct", construction="cascade", max_cascade=3)
    assert build(dfa, "deltaproduct", construction="cascade", max_cascade=30).plan.construction == "cascade"


def test_the_bound_of_a_components_group_is_told_with_its_flag_and_can_be_raised() -> None:
    images = {"a": "12340", "b": "10234", "r": "22222"}
    edges = {(str(q), letter): image[q] for letter, image in images.items() for q in range(5)}
    s5_and_a_reset = from_table([*images], [*"01234"], "0", edges, {"0": True})
    with pytest.raises(NoConstruction, match="100 group elements: stopped; raise the bound with --max-order"):
        build(s5_and_a_reset, "ckda", max_order=100)
    assert build(s5_and_a_reset, "ckda", max_order=120).plan.construction == "cascade"


@pytest.mark.parametrize("goal", ["kda", "gdn", "deltanet", "deltanet-wide"])
def test_a_group_that_moves_its_own_elements_is_tracked_by_cosets_along_a_chain(goal: str) -> None:
    made = build(read_automaton(AUTOMATA / "s5_cayley.json"), goal)
    assert (made.plan.construction, made.layers, made.factors_per_token) == ("coset-tower", 8, 1)
    dfa, draw = made.automaton, random.Random(goal)
    for _ in range(20):
        word = draw.choices(dfa.alphabet, k=30)
        assert made.run(word) == dfa.run(word)
