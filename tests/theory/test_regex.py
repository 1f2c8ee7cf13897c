from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidInput, RegexSyntaxError
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.nfa import determinise
from statetrack.theory.regex import parse_regex

DATA = Path(__file__).parents[1] / "data"
LETTERS = "ab."
WORDS = [w for n in range(5) for w in itertools.product(LETTERS, repeat=n)]


def accepts(dfa: Dfa, word: str | tuple[str, ...]) -> bool:
    return dfa.outputs[(dfa.start, *dfa.trace(word))[-1]] is True


def cases(kind: str) -> list[Any]:
    found = [json.loads(path.read_text()) for path in sorted((DATA / "cases").glob("*.json"))]
    return [pytest.param(case, id=case["id"]) for case in found if case["kind"] == kind]


atoms = st.sampled_from(
    ["a", "b", r"\.", ".", "[ab]", "[^a]", "[.-b]", r"\w", r"[^\w]", r"\x61", r"[\u0061-b]", "()", "[.a]"]
)


def _repeated(body: str, group: str, mark: str, least: int, more: int) -> str:
    return group.replace("_", body) + (mark or f"{{{least},{least + more}}}")


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["(_)", "(?:_)"])
    marks = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,}", "{0}", "", ""])
    repeated = st.builds(_repeated, inner, groups, marks, st.integers(0, 2), st.integers(0, 2))
    joined = st.lists(st.one_of(repeated, inner.map("({})".format)), max_size=3).map("".join)
    return st.one_of(st.lists(inner, max_size=3).map("|".join), joined, repeated)


patterns = st.recursive(atoms, _larger, max_leaves=8)


@settings(max_examples=60, deadline=None)
@given(patterns)
def test_a_pattern_matches_the_words_that_pythons_re_matches(pattern: str) -> None:
    dfa = parse_regex(pattern, LETTERS)
    assert dfa.alphabet == tuple(LETTERS)
    assert minimise(dfa) == dfa
    for word in WORDS:
        assert accepts(dfa, word) == bool(re.fullmatch(pattern, "".join(word))), word


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="ab*?+{1,2}()|[]^$\\-d.x=:!<", max_size=8))
def test_any_text_is_read_as_pythons_re_reads_it_or_is_refused_with_a_position(text: str) -> None:
    try:
        dfa, position = parse_regex(text, sorted(set("ab*?+{1,2}()|[]^$\\-d.x=:!<"))), 0
    except RegexSyntaxError as error:
        position = error.position
        dfa = None
    if dfa is None:
        assert 0 <= position < len(text)
        return
    for word in itertools.chain.from_iterable(itertools.product("ab1", repeat=n) for n in range(3)):
        assert accepts(dfa, word) == bool(re.fullmatch(text, "".join(word)))


@pytest.mark.parametrize("case", cases("regex"))
def test_a_listed_case_gives_the_listed_verdicts(case: dict[str, Any]) -> None:
    # The listed words also use letters outside the listed alphabet, and some of them are to be accepted.
    letters = {symbol for entry in case["words"] for symbol in entry["w"]}.union(case["input"]["alphabet"])
    dfa = parse_regex(case["input"]["regex"], sorted(letters))
    for entry in case["words"]:
        assert accepts(dfa, tuple(entry["w"])) == entry["accept"], entry


def test_the_divisibility_pattern_gives_the_listed_verdicts() -> None:
    dfa = parse_regex((DATA / "formats/div3.regex").read_text().strip())
    lines = [line for line in (DATA / "formats/words.txt").read_text().splitlines() if not line.startswith("#")]
    assert len(dfa.states) == 3
    for word, verdict in (line.split("\t") for line in lines):
        assert accepts(dfa, word.replace("~", "")) == (verdict == "accept"), word


def test_the_alphabet_is_the_sorted_letters_used_or_the_one_given() -> None:
    assert parse_regex("c[a-b]|a").alphabet == ("a", "b", "c")
    assert parse_regex("b", ["b", "a"]).alphabet == ("b", "a")
    assert parse_regex("a b").alphabet == (" ", "a", "b")


def test_the_empty_pattern_and_an_empty_alternative_match_the_empty_word() -> None:
    assert parse_regex("").outputs == (True,)
    assert accepts(parse_regex("", "a"), "")
    assert not accepts(parse_regex("", "a"), "a")
    assert accepts(parse_regex("(a|)"), "")
    assert accepts(parse_regex("^$"), "")


def test_anchors_at_the_ends_change_nothing() -> None:
    assert parse_regex("^a|b$") == parse_regex("a|b")


def test_escapes_read_what_they_say() -> None:
    dfa = parse_regex(r"\n\t\x41\u00e9\*\ \_[\]\\\-]")
    for last in "]\\-":
        assert accepts(dfa, f"\n\tA\u00e9* _{last}")
    assert accepts(parse_regex(r"\d+\s\w"), "12 _")
    assert accepts(parse_regex("[]-]".replace("[]", "[\\]")), "-")


def test_ranges_and_short_classes_are_cut_to_the_alphabet_but_letters_alone_are_not() -> None:
    assert accepts(parse_regex(r"[a-z]\d", "b7"), "b7")
    with pytest.raises(RegexSyntaxError, match="'x' is not in the alphabet at position 2"):
        parse_regex("[bx]", "b")


def test_a_large_repeat_costs_copies_and_not_recursion() -> None:
    assert len(parse_regex("(ab){300}").states) == 602
    assert accepts(parse_regex("a{0,500}"), "a" * 500)
    assert parse_regex("(a*){100000}").outputs == (True,)


def test_deep_nesting_is_no_matter_of_recursion() -> None:
    assert parse_regex("(" * 3000 + "a" + ")" * 3000) == parse_regex("a")


def test_budgets_are_kept() -> None:
    for pattern in ("(a|b)*a(a|b){20}", "a{99999999999999999999}", "(a{1000}){1000}", "a{0,10000000}", "a{300}"):
        with pytest.raises(BudgetExceeded, match="--max-states"):
            parse_regex(pattern, max_states=200)


def test_a_symbol_of_several_letters_is_refused_in_the_alphabet() -> None:
    with pytest.raises(InvalidInput, match="'10c'"):
        parse_regex("a", ["a", "10c"])


@pytest.mark.parametrize(
    ("pattern", "alphabet", "position", "reason"),
    [
        ("a*?", None, 2, "lazy"),
        ("a{2}+b", None, 4, "lazy or possessive"),
        ("a??", None, 2, "lazy"),
        (r"(a)\1", None, 3, "back-reference"),
        ("a(?=b)", None, 1, "look-around"),
        ("(?!b)", None, 0, "look-around"),
        ("x(?<!a)", None, 1, "look-around"),
        ("(?P<x>a)", None, 0, "group extension"),
        ("a(?i)", None, 1, "group extension"),
        (r"a\b", None, 1, r"escape \\b"),
        (r"\D", None, 0, r"escape \\D"),
        ("a^b", None, 1, "anchor"),
        ("a$b", None, 1, "anchor"),
        ("(a$)", None, 2, "anchor"),
        ("(^a)", None, 1, "anchor"),
        ("a|^b", None, 2, "anchor"),
        ("aa{3,2}", None, 2, "at most"),
        ("a.", None, 1, "stated alphabet"),
        ("b[^a]", None, 1, "stated alphabet"),
        ("ab", "a", 1, "not in the alphabet"),
        ("a(b", None, 1, "never closed"),
        ("((a)", None, 0, "never closed"),
        ("((a", None, 1, "never closed"),
        ("a)", None, 1, "never opened"),
        ("(a))b", None, 3, "never opened"),
        ("a[bc", None, 1, "never closed"),
        ("[]", None, 1, "without a letter"),
        ("*a", None, 0, "nothing to repeat"),
        ("a**", None, 2, "nothing to repeat"),
        ("(|+)", None, 2, "nothing to repeat"),
        ("a{2}{3}", None, 4, "nothing to repeat"),
        ("{2}", None, 0, "nothing to repeat"),
        ("a{,3}", None, 1, "starts no repeat"),
        ("a}", None, 1, "starts no repeat"),
        ("ab]", None, 2, "starts no repeat"),
        ("a\\", None, 1, "backslash"),
        (r"a\x1", None, 1, "hexadecimal"),
        (r"[b-\u12]", None, 3, "hexadecimal"),
        ("a[z-b]", None, 2, "backwards"),
        (r"[a-\d]", None, 3, "class in a range"),
    ],
)
def test_a_fault_is_reported_at_its_position(pattern: str, alphabet: str | None, position: int, reason: str) -> None:
    with pytest.raises(RegexSyntaxError, match=reason) as caught:
        parse_regex(pattern, alphabet)
    assert caught.value.position == position
    assert "\n" not in str(caught.value)


def test_determinise_follows_silent_edges() -> None:
    dfa = determinise("ab", [[(frozenset("a"), 1)], [(frozenset("b"), 2)], []], [[1], [], [0]], 0, {2}, max_states=9)
    assert dfa.run("bab") == (True, False, True)
    assert dfa.run("aa") == (False, False)
