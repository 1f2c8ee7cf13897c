"""What a typed source, word or alphabet is taken for."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as hs

from statetrack.constructions.source import Options, parse_alphabet, parse_word, resolve
from statetrack.errors import BudgetExceeded, InvalidInput, RegexSyntaxError, UnknownGroup
from statetrack.theory.groups import named_group
from statetrack.theory.regex import parse_regex

BRACKETS = ("[", "]", "a")


@pytest.mark.parametrize("word", ["[]", "[", "[a]", '["a"]', "[[]]", "[a;a]"])
def test_a_word_over_brackets_is_its_characters_and_no_json(word: str) -> None:
    alphabet = (*BRACKETS, '"', ";")
    assert parse_word(word, alphabet) == tuple(word)


def test_a_json_word_is_read_where_no_symbol_is_a_bracket() -> None:
    assert parse_word("[]", ("a",)) == ()
    assert parse_word('["a", "b"]', ("a", "b")) == ("a", "b")
    # Symbols that only start with a bracket are apart by blanks, if the text is no JSON.
    assert parse_word("[1] [2]", ("[1]", "[2]")) == ("[1]", "[2]")
    assert parse_word('["[1]"]', ("[1]", "[2]")) == ("[1]",)
    with pytest.raises(InvalidInput, match="no JSON list of strings"):
        parse_word("[1, 2]", ("a",))


@given(hs.lists(hs.sampled_from(BRACKETS)))
def test_every_word_over_single_characters_can_be_typed(word: list[str]) -> None:
    assert parse_word("".join(word), BRACKETS) == tuple(word)
    assert parse_word(json.dumps(word), ("a", "b", "]")) == tuple(word)


@pytest.mark.parametrize("text", [" S5", "S5 ", "\tS5\n"])
def test_blanks_around_a_source_are_dropped(text: str) -> None:
    found = resolve(text, Options(letters="generators"))
    assert (found.name, len(found.dfa.states)) == ("S5", 120)


@pytest.mark.parametrize("text", ["Z2 x S3", "Z2xS3", " Z2 × S3 ", "Z2x S3"])
def test_blanks_around_the_cross_of_a_product_are_dropped(text: str) -> None:
    found = resolve(text)
    assert (found.name, len(found.dfa.states)) == ("Z2xS3", 12)


@pytest.mark.parametrize(
    ("text", "name"), [("s5", "S5"), ("z2xs3", "Z2xS3"), ("Z2XS3", "Z2xS3"), (" z2 x S3", "Z2xS3"), ("q8", "Q8")]
)
def test_a_group_name_in_another_case_is_refused_with_both_ways_out(text: str, name: str) -> None:
    with pytest.raises(UnknownGroup) as caught:
        resolve(text)
    assert f"group {name} " in str(caught.value)
    assert f"regex:{text.strip()} " in str(caught.value)
    with pytest.raises(UnknownGroup, match=f"write {name} for the group"):
        resolve(f"group:{text}")
    assert len(resolve(f"group: {name}").dfa.states) == named_group(name).order
    assert resolve("regex:s5").dfa.run("s5") == (False, True)


def test_what_is_a_group_name_in_no_case_stays_a_regular_expression() -> None:
    for text in ("q9", "ab12", "s", "5", "a1b2"):
        assert resolve(text).name == f"regex {text!r}"


def test_a_faulty_regular_expression_says_what_else_the_source_could_have_been() -> None:
    with pytest.raises(RegexSyntaxError) as caught:
        resolve("S5)")
    said = str(caught.value)
    assert caught.value.position == 2
    assert all(word in said for word in ("read as a regular expression", "file:", "group:", "perm:", "A5", "(1 2 3)"))
    for text, options in (("regex:S5)", Options()), ("S5)", Options(alphabet=("S", "5")))):
        with pytest.raises(RegexSyntaxError) as plain:
            resolve(text, options)
        assert "read as" not in str(plain.value)


def test_permutations_may_hold_the_identity() -> None:
    found = resolve("();(1 2)", Options(letters="generators"))
    assert found.group is not None
    assert (found.group.order, found.dfa.alphabet) == (2, ("()", "(12)"))
    assert len(resolve("(1 2);()").dfa.states) == 2
    assert resolve("()").name == "regex '()'"
    assert len(resolve("perm:()").dfa.states) == 1


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("01", ("0", "1")),
        ("a b", ("a", "b")),
        (' ["a", " "] ', ("a", " ")),
        ("[]", ("[", "]")),
        ("", ()),
        ("[", ("[",)),
    ],
)
def test_an_alphabet_is_letters_as_they_stand_apart_by_blanks_or_json(text: str, letters: tuple[str, ...]) -> None:
    assert parse_alphabet(text) == letters


def test_a_letter_stands_once_in_an_alphabet() -> None:
    with pytest.raises(InvalidInput, match="'a' stands twice"):
        parse_alphabet("aba")


def test_an_alphabet_is_for_regular_expressions_only() -> None:
    assert resolve(".b", Options(alphabet=("a", "b", "c"))).dfa.alphabet == ("a", "b", "c")
    with pytest.raises(RegexSyntaxError, match="--alphabet"):
        resolve(".b")
    for source in ("S3", "(1 2);(1 2 3)", named_group("S3"), parse_regex("ab")):
        with pytest.raises(InvalidInput, match="only a regular expression"):
            resolve(source, Options(alphabet=("a",)))


def test_missing_edges_have_three_policies() -> None:
    with pytest.raises(InvalidInput, match="zz"):
        resolve("S3", Options(missing="zz"))


def test_a_budget_of_elements_is_met_before_they_are_listed() -> None:
    with pytest.raises(BudgetExceeded) as caught:
        resolve("Z99999", Options(letters="generators"))
    assert "99,999 elements on 99,999 points" in str(caught.value)
    assert "--max-order" in str(caught.value)
