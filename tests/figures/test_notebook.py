"""What notebooks show: well-formed HTML and SVG with states and letters, and no text that is taken as markup."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from base64 import b64decode
from dataclasses import replace
from typing import Any

import html5lib
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.lib.pretty import pretty  # pyright: ignore[reportUnknownVariableType]

import statetrack as st
from statetrack.constructions.cascade import Cascade, hole_cascade
from statetrack.constructions.reduction import best_cascade
from statetrack.display import Drawn, Shown
from statetrack.errors import InvalidInput
from statetrack.figures.notebook import html, line, svg
from statetrack.proofs_check.runner import Verdicts
from statetrack.theory.automata import Dfa, from_table
from statetrack.theory.regex import parse_regex

ODD = "<script>alert('&')</script>"
IDS = ("CKDA-lemma-16", "CKDA-scalar-gates-commute")


@pytest.fixture(scope="module")
def odd() -> Dfa:
    """Names of states, letters and outputs that are markup."""
    edges = {("<b>", ODD): "q&r", ("q&r", ODD): "<b>"}
    return from_table([ODD], ["<b>", "q&r"], "<b>", edges, {"<b>": "<i>", "q&r": '"'})


@pytest.fixture(scope="module")
def verdicts() -> Verdicts:
    return st.verify(IDS)


def check_html(text: str) -> None:
    """Raises for the first thing that HTML 5 does not allow; scripts and handlers of events are nowhere."""
    html5lib.HTMLParser(strict=True).parseFragment(text)  # pyright: ignore[reportUnknownMemberType]
    assert not re.search(r"<script|<b>q|<i>|\son\w+=", text)


def texts(picture: str) -> set[str]:
    """The texts of an SVG; raises if it is not well-formed."""
    root = ET.fromstring(picture)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    return {"".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")}


def pictures(text: str) -> list[str]:
    return [b64decode(data).decode() for data in re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', text)]


def shown(value: object) -> dict[str, str]:
    """What a notebook keeps of a value, by type of content."""
    formatter: Any = DisplayFormatter()
    return formatter.format(value)[0]


def test_an_automaton_shows_its_states_letters_and_diagram() -> None:
    dfa = parse_regex("[ab]*aba[ab]*")
    data = shown(dfa)
    check_html(data["text/html"])
    for row in dfa.delta.tolist():
        assert "".join(f"<td>{q}</td>" for q in row) in data["text/html"]
    assert {"a", "b", "a, b", "0", "1", "2", "3"} <= texts(data["image/svg+xml"])
    assert [texts(one) for one in pictures(data["text/html"])] == [texts(data["image/svg+xml"])]
    assert data["text/plain"] == "<Dfa: 4 states, 2 symbols>"


def test_a_large_automaton_is_cut_and_says_so() -> None:
    data = shown(st.build("S4").automaton)
    assert "image/svg+xml" not in data
    assert not pictures(data["text/html"])
    assert "12 more" in data["text/html"]
    assert "and 4 more states" in data["text/html"]
    check_html(data["text/html"])


def test_a_cascade_shows_what_its_components_read_and_do() -> None:
    cascade = best_cascade(parse_regex("(a(b(ab)*b)*a)*")).cascade
    data = shown(cascade)
    check_html(data["text/html"])
    assert {"layer 1", "layer 2", "layer 3", "resets", "both"} <= texts(data["image/svg+xml"])
    assert "5 components in 3 layers for an automaton with 5 states over a, b" in data["text/html"]
    assert data["text/html"].count("the token only") == 2
    assert data["text/plain"] == "<Cascade: 5 components in 3 layers>"


def test_a_cascade_with_too_many_states_is_shown_without_a_picture() -> None:
    turn, swap = [*range(1, 9), 0], [1, 0, *range(2, 9)]
    dfa = Dfa(("t", "s"), tuple("abcdefghi"), 0, np.array([turn, swap], dtype=np.int32).T, (False,) * 9)
    cascade = hole_cascade(dfa)
    assert svg(cascade) is None
    assert "not looked at: too many states" in html(cascade)
    check_html(html(cascade))
    assert svg(Cascade(dfa, (), (), lambda _: 0)) is None


def test_a_program_shows_its_heads_and_the_factors_of_each_letter() -> None:
    text = html(st.build("S3", "deltaproduct").program)
    check_html(text)
    assert "2 × 2" in text
    assert re.search(r'\(123\)</th><td style="text-align: left">β = 2, k = \([^)]*\); then β = 2, k = \(', text)
    assert '()</th><td style="text-align: left">h stays' in text
    deep = html(st.build("[ab]*aba[ab]*", "kda").program)
    assert "3 layers, at most 1 factor a token, over a, b" in deep
    assert "α = (1, 0), b = (1, 1)" in deep
    assert "any matrix" in html(st.build("a*b", "unconstrained", construction="dense").program)
    check_html(deep)


def test_what_was_built_shows_its_proof_and_its_program() -> None:
    made = st.build("Z5")
    data = shown(made)
    check_html(data["text/html"])
    for wanted in (made.certificate.digest, "closure, 5 joint states", "Z5: 5 states, 5 symbols", "K × V"):
        assert wanted in data["text/html"]
    assert data["text/plain"] == line(made) == f"<Compiled: Z5 on ckda, digest {made.certificate.digest[:12]}>"


def test_verdicts_show_a_table_and_one_shows_its_evidence(verdicts: Verdicts) -> None:
    table, one = shown(verdicts), shown(verdicts[0])
    for data in (table, one):
        check_html(data["text/html"])
    assert all(verdict.id in table["text/html"] for verdict in verdicts)
    assert "2 claims: 2 proved" in table["text/html"]
    assert "No plane through the centre holds more than four" in html(verdicts[[v.id for v in verdicts].index(IDS[0])])
    assert table["text/plain"] == "<Verdicts: " + ", ".join(f"{v.id} {v.verdict}" for v in verdicts) + ">"
    assert pretty(verdicts[0]) == f"<Verdict: {verdicts[0].id} proved>"
    assert html(Verdicts()).count("<tr>") == 1


def test_names_that_are_markup_stay_text(odd: Dfa, verdicts: Verdicts) -> None:
    made = st.build(odd)
    wrong = replace(verdicts[0], id="<i>", verdict="refuted", detail=ODD, notes=(ODD,))
    for value in (odd, made, made.program, hole_cascade(odd), wrong, Verdicts((wrong, wrong))):
        text = html(value)
        check_html(text)
        assert "&lt;script&gt;" in text
    assert "&lt;b&gt;" in html(odd)
    assert "<b>" in texts(svg(odd) or "")
    assert any(text.startswith("<script>") for text in texts(svg(odd) or ""))


def test_a_letter_with_dollars_is_no_formula() -> None:
    dfa = from_table(["$x^$"], ["p"], "p", {("p", "$x^$"): "p"})
    assert "$x^$" in texts(svg(dfa) or "")


def test_only_known_values_can_be_shown() -> None:
    class Other(Shown):
        pass

    with pytest.raises(InvalidInput, match="nothing is known of how to show a Other"):
        html(Other())
    assert pretty(Other()).startswith("<")
    assert issubclass(Dfa, Drawn)
