from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidAutomaton
from statetrack.theory.automata import Output, minimise
from statetrack.theory.formats import from_dict, from_dot, from_jff, read_automaton, to_dict, to_dot, to_jff
from statetrack.theory.mealy import from_mealy

DATA = Path(__file__).parents[1] / "data"
Edge = tuple[str, str]


@st.composite
def mealy_machines(draw: st.DrawFn) -> tuple[str, list[str], dict[Edge, str], dict[Edge, Output]]:
    """Alphabet, states (the first is the start), edges (some absent) and what they say."""
    alphabet = "abc"[: draw(st.integers(0, 3))]
    states = draw(st.lists(st.sampled_from(["p", "q", "p/", "/p", "p/x", "p/x_", ""]), min_size=1, unique=True))
    edges = {(q, a): draw(st.sampled_from([*states, None])) for q in states for a in alphabet}
    values: st.SearchStrategy[Output] = st.one_of(st.sampled_from(["", "x", "/x", "x_", "True"]), st.booleans())
    there = {edge: to for edge, to in edges.items() if to is not None}
    return alphabet, states, there, {edge: draw(values) for edge in there}


@given(machine=mealy_machines(), missing=st.sampled_from(["sink", "stay"]), data=st.data())
def test_the_moore_machine_says_what_the_mealy_machine_says(
    machine: tuple[str, list[str], dict[Edge, str], dict[Edge, Output]], missing: str, data: st.DataObject
) -> None:
    alphabet, states, edges, said = machine
    dfa = from_mealy(alphabet, states, states[0], edges, said, missing=missing)
    word = data.draw(st.lists(st.sampled_from(alphabet), max_size=12)) if alphabet else []
    state: str | None = states[0]
    last: Output = ""
    expected: list[Output] = []
    for symbol in word:
        if state is not None and (state, symbol) in edges:
            state, last = edges[state, symbol], said[state, symbol]
        elif missing == "sink":
            state, last = None, False
        expected.append(last)
    assert dfa.run(word) == minimise(dfa).run(word) == tuple(expected)
    assert dfa.outputs[dfa.start] == ""
    assert len(dfa.states) <= len(edges) + 2


def test_a_mealy_machine_keeps_its_places_in_messages() -> None:
    said: dict[Edge, Output] = {("p", "a"): "x"}
    with pytest.raises(InvalidAutomaton, match="no transition from state 'q' on symbol 'a'; add it, or choose"):
        from_mealy("a", ["p", "q"], "p", {("p", "a"): "q"}, said)
    with pytest.raises(InvalidAutomaton, match="state 'r' is not among the states"):
        from_mealy("a", ["p", "q"], "p", {("p", "a"): "r"}, said)


def test_the_last_output_is_part_of_the_minimal_state() -> None:
    echo = {("p", "a"): "p", ("p", "b"): "p"}
    dfa = minimise(from_mealy("ab", ["p"], "p", echo, {("p", "a"): "A", ("p", "b"): "B"}))
    assert dfa.outputs == ("", "A", "B")


def test_a_mealy_file_says_the_output_of_the_last_symbol() -> None:
    dfa = read_automaton(DATA / "formats/gate_mealy.dot")
    assert dfa.run(["push", "coin", "coin", "push", "push"]) == ("locked", "thanks", "refund", "open", "locked")
    assert dfa.outputs[dfa.start] == ""
    assert dfa.states[:3] == ("s0", "s1/thanks", "s0/locked")


def test_the_three_forms_of_a_mealy_machine_are_one_automaton() -> None:
    delta = {"p": {"a": ["q", "x"], "b,c": ["p", "y/z"]}, "q": {"a": ["p", ""], "b,c": ["q", "x, y"]}}
    triples = [[source, a, to] for source, row in delta.items() for a, to in row.items()]
    dot = 'digraph { i [shape=none]; i -> p; p -> q [label="a / x"]; p -> p [label="b,c/y/z"]; '
    dot += 'q -> p [label="a/"]; q -> q [label="b,c/x, y"] }'
    edges = "".join(
        f"<transition><from>{source}</from><to>{to}</to><read>{a}</read><transout>{said}</transout></transition>"
        for source, row in delta.items()
        for a, (to, said) in row.items()
    )
    jff = f'<structure><type>mealy</type><state id="p"><initial/></state><state id="q"/>{edges}</structure>'
    dfa = from_dict({"start": "p", "delta": delta})
    assert from_dict({"start": "p", "transitions": triples, "accepting": []}) == dfa
    assert from_dot(dot) == from_jff(jff, token=True) == dfa
    assert dfa.run(["b,c", "a", "b,c", "a"]) == ("y/z", "x", "x, y", "")


def test_booleans_on_edges_stay_booleans() -> None:
    dfa = from_dict({"start": 0, "delta": {0: {"a": (0, True), "b": (0, 3)}}})
    assert dfa.run("ab") == (True, "3")


def test_a_moore_machine_is_read_from_dot() -> None:
    dfa = read_automaton(DATA / "formats/traffic_moore.dot")
    assert dfa.run(["tick", "hold", "tick", "tick"]) == ("go", "go", "slow", "stop")
    braced = 'digraph { a [label="{ A | x y }"]; b [label="{B|\\|}"]; i [shape=point]; i->a; a->b->a [label=t] }'
    assert from_dot(braced).outputs == ("x y", "|")


def test_the_moore_machine_in_all_forms_is_one_automaton() -> None:
    dfa = read_automaton(DATA / "formats/traffic_moore.dot")
    assert from_dict(to_dict(dfa)) == from_jff(to_jff(dfa), token=True) == from_dot(to_dot(dfa)) == dfa


@pytest.mark.parametrize("suffix", ["json", "dot", "jff", "att"])
def test_a_file_with_more_states_than_the_bound_is_refused(suffix: str) -> None:
    with pytest.raises(BudgetExceeded, match=r"more than 2 states in .*div3.*; raise the bound with --max-states"):
        read_automaton(DATA / f"formats/div3.{suffix}", semiring="boolean", max_states=2)
    with pytest.raises(BudgetExceeded, match=r"more than 3 states in .*gate_mealy"):
        read_automaton(DATA / "formats/gate_mealy.dot", max_states=3)
