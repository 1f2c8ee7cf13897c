from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from automata.fa.dfa import DFA
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidAutomaton, InvalidFile
from statetrack.theory.att_format import from_att
from statetrack.theory.automata import Dfa, Output, from_table, minimise
from statetrack.theory.formats import (
    from_dict,
    from_dot,
    from_jff,
    read_automaton,
    to_automata_lib,
    to_dict,
    to_dot,
    to_jff,
    write_automaton,
)
from statetrack.theory.regex import parse_regex

DATA = Path(__file__).parents[1] / "data"
CASES = [json.loads(path.read_text()) for path in sorted((DATA / "cases").glob("*.json"))]
AWKWARD = st.one_of(
    st.sampled_from(
        ["0", "node", "10c", "a b", " a", "a ", ",", "/", "a,b", "a/b", "|", "{x|y}", '"', "\\", "\\\n", "<b>", "a:n"]
    ),
    st.text(
        st.characters(
            codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="\ufffe\uffff", include_characters="\n\t"
        ),
        min_size=1,
        max_size=3,
    ),
)


@st.composite
def dfas(draw: st.DrawFn, *, moore: bool | None = None) -> Dfa:
    states = draw(st.lists(AWKWARD, min_size=1, max_size=4, unique=True))
    alphabet = draw(st.lists(AWKWARD, max_size=3, unique=True))
    delta = {(q, a): draw(st.sampled_from(states)) for q in states for a in alphabet}
    values: st.SearchStrategy[Output] = AWKWARD if (draw(st.booleans()) if moore is None else moore) else st.booleans()
    return from_table(alphabet, states, states[0], delta, {q: draw(values) for q in states})


def after(dfa: Dfa, word: list[str] | str) -> Output:
    return dfa.outputs[(dfa.start, *dfa.trace(word))[-1]]


def isomorphic(left: Dfa, right: Dfa) -> bool:
    """Equal numbers of states, and a walk over both that meets equal outputs and no two partners."""
    if set(left.alphabet) != set(right.alphabet) or len(left.states) != len(right.states):
        return False
    columns = [(left.symbol_index()[a], right.symbol_index()[a]) for a in left.alphabet]
    partner, todo = {left.start: right.start}, [left.start]
    for q in todo:
        if left.outputs[q] != right.outputs[partner[q]]:
            return False
        for i, j in columns:
            to, other = int(left.delta[q, i]), int(right.delta[partner[q], j])
            if to not in partner:
                todo.append(to)
            if partner.setdefault(to, other) != other:
                return False
    return len(set(partner.values())) == len(partner)


@settings(max_examples=60, deadline=None)
@given(dfas())
def test_a_written_dictionary_is_read_back_equal(dfa: Dfa) -> None:
    assert from_dict(json.loads(json.dumps(to_dict(dfa)))) == dfa


@settings(max_examples=60, deadline=None)
@given(dfas())
@example(from_table([], ["0"], "0", {}, {"0": " "}))
@example(
    from_table(
        ["\\\n", "a\r\n", " "], ["", "x\\"], "", {(q, a): "x\\" for q in ("", "x\\") for a in ("\\\n", "a\r\n", " ")}
    )
)
def test_written_dot_is_read_back_equal(dfa: Dfa) -> None:
    assert from_dot(to_dot(dfa)) == dfa


@settings(max_examples=60, deadline=None)
@given(dfas())
def test_written_jflap_is_read_back_equal(dfa: Dfa) -> None:
    assert from_jff(to_jff(dfa), token=True) == dfa


@settings(max_examples=40, deadline=None)
@given(dfas(moore=False))
def test_automata_lib_reads_what_is_written_for_it_and_back(dfa: Dfa) -> None:
    written = to_automata_lib(dfa)
    theirs = DFA(**written).minify()
    back = {
        "states": theirs.states,
        "input_symbols": theirs.input_symbols,
        "transitions": theirs.transitions,
        "initial_state": theirs.initial_state,
        "final_states": theirs.final_states,
    }
    assert isomorphic(from_dict(back), minimise(dfa))
    again = from_dict(written)
    assert (again.alphabet, again.states, again.outputs) == (dfa.alphabet, dfa.states, dfa.outputs)


@settings(max_examples=20, deadline=None)
@given(dfa=dfas(), suffix=st.sampled_from([".json", ".dot", ".gv", ".jff"]))
def test_a_written_file_is_read_back_equal(dfa: Dfa, suffix: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.getbasetemp() / f"round{suffix}"
    write_automaton(dfa, path)
    assert read_automaton(path, token=True) == dfa


@pytest.mark.parametrize("suffix", ["json", "automata_lib.json", "list.json", "dot", "jff", "att", "regex"])
def test_every_form_of_the_divisibility_automaton_gives_the_listed_verdicts(suffix: str) -> None:
    path = DATA / f"formats/div3.{suffix}"
    if suffix == "regex":
        dfa = parse_regex(path.read_text().strip())
    else:
        dfa = read_automaton(path, semiring="boolean", symbols=DATA / "formats/bits.syms")
        assert dfa.states == (("0", "1", "2") if suffix == "att" else ("r0", "r1", "r2"))
    assert dfa.alphabet == ("0", "1")
    lines = [line for line in (DATA / "formats/words.txt").read_text().splitlines() if not line.startswith("#")]
    for word, verdict in (line.split("\t") for line in lines):
        assert after(dfa, word.replace("~", "")) == (verdict == "accept"), word


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["kind"] in ("dfa", "partial_dfa", "moore")], ids=lambda c: c["id"]
)
def test_every_listed_case_gives_the_listed_verdicts(case: dict[str, Any]) -> None:
    partial = case["kind"] == "partial_dfa"
    dfa = read_automaton(DATA / f"cases/{case['id']}.json", missing="sink" if partial else "error")
    for entry in case["words"]:
        expected = entry["accept"] if "accept" in entry else str(entry["output"])
        assert after(dfa, entry["w"]) == expected, entry
    assert from_dot(to_dot(dfa)) == dfa
    assert from_jff(to_jff(dfa), token=True) == dfa


@pytest.mark.parametrize("path", sorted((DATA / "automata").glob("*.json")), ids=lambda path: path.stem)
def test_every_stored_automaton_is_read_and_keeps_its_size(path: Path) -> None:
    meta = json.loads(path.read_text())["meta"]
    dfa = read_automaton(path, missing="stay" if meta.get("missing") == "stay" else "error")
    assert len(dfa.states) == meta["reachable"]
    assert len(minimise(dfa).states) == meta["minimal_states"]


def test_a_partial_case_is_refused_without_a_policy() -> None:
    with pytest.raises(InvalidAutomaton, match=r"one_path\.json: no transition from state '0' on symbol 'D'"):
        read_automaton(DATA / "cases/one_path.json")


def test_integers_become_strings_and_absent_lists_are_derived() -> None:
    dfa = from_dict({"start": 0, "accepting": [2], "delta": {0: {"a": 1}, 1: {"a": 2}, 2: {"a": 0}}})
    assert (dfa.states, dfa.alphabet, dfa.outputs) == (("0", "1", "2"), ("a",), (False, False, True))
    triples = from_dict({"start": "p", "accepting": [], "transitions": [["p", "b", "q"], ["q", "b", "p"]]})
    assert triples.states == ("p", "q")


def test_output_values_stay_booleans_or_become_strings() -> None:
    edges = {"a": {"t": "b"}, "b": {"t": "a"}}
    assert from_dict({"start": "a", "output": {"a": 1, "b": 2.5}, "delta": edges}).outputs == ("1", "2.5")
    assert from_dict({"start": "a", "output": {"a": True, "b": False}, "delta": edges}).outputs == (True, False)


def test_a_missing_edge_follows_the_policy_in_every_form() -> None:
    partial = {
        "alphabet": ["a", "b"],
        "states": ["x", "y"],
        "start": "x",
        "accepting": ["y"],
        "delta": {"x": {"a": "y"}, "y": {"b": "y"}},
    }
    graph = "digraph { i [shape=none]; i -> x; x -> y [label=a]; y -> y [label=b]; y [peripheries=2] }"
    dfa = from_table("ab", ["x", "y"], "x", {("x", "a"): "y", ("y", "b"): "y"}, {"y": True}, missing="sink")
    lib = {**partial, "allow_partial": True}
    for missing, states in (("sink", ("x", "y", "sink")), ("stay", ("x", "y"))):
        for got in (from_dict(lib, missing=missing), from_dot(graph, missing=missing)):
            assert got.states == states
    assert from_dict(lib, missing="sink") == from_dot(graph, missing="sink") == dfa
    text = with_edges((0, 1, "a"), (1, 1, "b"))
    for refused in (lambda: from_dict(lib), lambda: from_dot(graph), lambda: from_jff(text)):
        with pytest.raises(InvalidAutomaton, match="no transition from state"):
            refused()
    assert from_jff(text, missing="stay").run("baa") == (False, True, True)
    att = "0 1 a\n1 1 b\n1\n"
    assert from_att(att, semiring="boolean", missing="stay").run("baa") == (False, True, True)
    assert from_att(att, semiring="boolean", missing="sink").run("aba") == (True, True, False)
    with pytest.raises(InvalidAutomaton, match="no transition from state '0' on symbol 'b'"):
        from_att(att, semiring="boolean")


JFF = """<structure><type>fa</type><automaton>
<state id="0" name="p"><initial/></state><state id="1" name="q"><final/></state>
<transition><from>0</from><to>1</to><read>a</read></transition>
<transition><from>1</from><to>0</to><read>a</read></transition>
<transition><from>0</from><to>0</to><read>b</read></transition>
<transition><from>1</from><to>1</to><read>b</read></transition>
</automaton></structure>"""


def with_edges(*edges: tuple[int, int, str]) -> str:
    inner = "".join(f"<transition><from>{p}</from><to>{q}</to><read>{a}</read></transition>" for p, q, a in edges)
    return JFF[: JFF.index("<transition>")] + inner + "</automaton></structure>"


def test_jflap_epsilon_and_several_edges_become_subsets() -> None:
    dfa = from_jff(with_edges((0, 0, "a"), (0, 0, "b"), (0, 1, "a"), (1, 0, "")))
    assert dfa.run("abaa") == (True, False, True, True)
    assert dfa.alphabet == ("a", "b")


def test_a_jflap_read_of_several_letters_is_a_word_or_with_token_one_symbol() -> None:
    text = with_edges((0, 1, "ab"), (1, 1, "b"))
    word = from_jff(text)
    assert word.alphabet == ("a", "b")
    assert [after(word, w) for w in ("", "a", "ab", "abb", "aba", "b")] == [False, False, True, True, False, False]
    whole = from_jff(text, token=True, missing="sink")
    assert whole.alphabet == ("ab", "b")
    assert whole.run(["ab", "b"]) == (True, True)


def test_jflap_subsets_are_bounded() -> None:
    edges = [(0, 0, "a"), (0, 0, "b"), (0, 1, "a" + "c" * 30), (0, 1, "a")]
    with pytest.raises(BudgetExceeded):
        from_jff(with_edges(*edges), max_states=5)


def test_older_jflap_files_have_states_under_structure_and_no_names() -> None:
    text = JFF.replace("<automaton>", "").replace("</automaton>", "").replace(' name="p"', "")
    assert from_jff(text).states == ("0", "q")


def test_a_jflap_moore_machine_is_read() -> None:
    text = JFF.replace("<type>fa", "<type>moore").replace("<initial/>", "<initial/><output>x</output>")
    with pytest.raises(InvalidFile, match="state 'q' has no output"):
        from_jff(text)
    assert from_jff(text.replace("<final/>", "<output/>")).outputs == ("x", "")


def test_dot_chains_subgraphs_defaults_comments_and_quotes_are_read() -> None:
    text = r"""/* c */ strict digraph "the graph" { rankdir=LR; // c
    node [shape=none, label=""]; start;
    # c
    node [shape=circle]; edge [color=red]
    "a:[1], x" -> 0 -> "say \"hi\"" [label="go, stop"] start -> "a:[1], x"
    subgraph cluster_0 { node [shape=doubleoctagon]; "say \"hi\"" -> "a:[1], x":n [label="go"] }
    {"say \"hi\""} -> 0 [label=st + "op"]
    }""".replace("st + ", '"st" + ')
    dfa = from_dot(text)
    assert dfa.states == ("a:[1], x", "0", 'say "hi"')
    assert dfa.alphabet == ("go", "stop")
    assert dfa.run(["go", "stop", "go", "go", "go", "stop"]) == (False, False, False, False, False, False)


def test_a_default_shape_makes_the_later_states_accepting() -> None:
    text = "digraph { i [shape=point]; p; node [shape=doublecircle]; q; i -> p; p -> q -> p [label=a];"
    text += "subgraph { node [shape=box] r; r -> r [label=a] } p -> r -> q [label=b] q -> q [label=b] }"
    assert from_dot(text).run("aabab") == (True, False, False, False, True)


def test_a_label_with_a_slash_or_comma_alone_is_a_symbol() -> None:
    dfa = from_dot(
        r'digraph { i [shape=none]; i -> p; p -> p [label="+, /"]; p -> p [label=","]; p -> p [label="a\,b"] }'
    )
    assert dfa.alphabet == ("+", "/", ",", "a,b")


BASE: dict[str, Any] = {
    "alphabet": ["a"],
    "states": ["x", "y"],
    "start": "x",
    "accepting": ["y"],
    "delta": {"x": {"a": "y"}, "y": {"a": "x"}},
}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"start": None}, "start is null"),
        ({"accepting": None}, "accepting is null; give it a value, or leave the key out"),
        ({"output": None}, "output is null"),
        ({"start": True}, "start: True is no name"),
        ({"states": "xy"}, "states: 'xy' is not a list"),
        ({"alphabet": "a"}, "alphabet: 'a' is not a list"),
        ({"states": ["x", ["y"]]}, "is no name"),
        ({"input_symbols": ["a"]}, "both 'alphabet' and 'input_symbols' are given"),
        ({"delta": {"x": {"a": ["y", "out"]}}}, "a Mealy machine .* state 'y' is accepting or has an output"),
        ({"delta": {"x": {"a": ["y", "out"]}, "y": {"a": "x"}}}, "from state 'y' on symbol 'a' has no output"),
        ({"delta": {"x": {"a": ["y", "out", 1]}}}, "leads to .*; write a state, or"),
        ({"delta": {"x": {"a": ["y", None]}}}, "output is None; write a string"),
        ({"delta": {"x": {"a": {"y"}}}}, "leads to a set"),
        ({"delta": {"x": ["a", "y"]}}, "transitions of state 'x' are"),
        ({"delta": [["x", "a", "y"], ["x", "a", "x"]]}, "two edges from state 'x' on symbol 'a'"),
        ({"delta": {"x": {"a": "y"}, 1: {1: "x", "1": "y"}}}, "two edges from state '1' on symbol '1'"),
        ({"delta": [["x", "a"]]}, "is no triple"),
        ({"delta": [{"trigger": "a", "source": "x", "dest": "y"}]}, "is no triple"),
        ({"delta": 3}, "transitions are 3"),
        ({"output": {"x": "1", "y": "2"}}, "both 'output' and accepting"),
        ({"accepting": [], "output": {"x": "1"}}, "state 'y' has no output"),
        ({"accepting": [], "output": {"x": "1", "y": []}}, "output of state 'y' is"),
        ({"accepting": [], "output": ["1"]}, "is not a dictionary"),
    ],
)
def test_a_dictionary_of_the_wrong_form_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidFile, match="file <dictionary>: .*" + reason):
        from_dict({**BASE, **change})


@pytest.mark.parametrize("key", ["start", "accepting", "delta"])
def test_a_needed_key_is_missed_by_name(key: str) -> None:
    with pytest.raises(InvalidFile, match=f"key '{key}' is missing"):
        from_dict({name: value for name, value in BASE.items() if name != key})


@pytest.mark.parametrize(
    ("change", "state", "symbol"),
    [
        ({"start": "z"}, "z", None),
        ({"accepting": ["z"]}, "z", None),
        ({"delta": {"x": {"a": "z"}}}, "z", "a"),
        ({"delta": {"x": {"b": "y"}}}, "x", "b"),
        ({"delta": {**BASE["delta"], "z": {}}}, "z", None),
        ({"delta": {"x": {"a": "y"}}}, "y", "a"),
    ],
)
def test_an_unknown_name_or_a_missing_edge_keeps_its_place(
    change: dict[str, Any], state: str, symbol: str | None
) -> None:
    with pytest.raises(InvalidAutomaton, match=r"^here: ") as caught:
        from_dict({**BASE, **change}, where="here")
    assert (caught.value.state, caught.value.symbol) == (state, symbol)


MEALY = JFF.replace("fa<", "mealy<").replace("</read>", "</read><transout>o</transout>")
DOT = 'digraph { i [shape=none]; i -> p; p -> p [label="a"] }'


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", '{"start": 1,\n "states": [', "not valid JSON at line 2, column 13"),
        ("a.json", "[" * 100000, "nested too deep"),
        ("a.json", "[1]", "not an object"),
        ("a.json", '{"delta": {"x": {"a": "x", "a": "y"}}}', "key 'a' stands twice"),
        ("a.json", '{"start": "x", "start": "y"}', "key 'start' stands twice"),
        ("a.jff", "<structure>\n<type>fa</type", "not valid XML at line 2, column"),
        ("a.jff", JFF.replace("fa<", "pda<"), "type 'pda' is not read"),
        ("a.jff", JFF.replace("fa<", "mealy<"), "transition 1 lacks transout"),
        ("a.jff", MEALY, "a Mealy machine .* state 'q' is accepting"),
        ("a.jff", MEALY.replace("<read>b", "<read>a"), "a Mealy machine with an empty read, a word or two edges"),
        ("a.jff", JFF.replace('id="1"', 'id="0"'), "state id '0' stands twice; give each state its own id"),
        ("a.json", " ", "it is empty"),
        ("a.dot", "", "it is empty"),
        ("a.jff", "\n", "it is empty"),
        ("a.att", "", "it is empty"),
        ("a.txt", "", "it is empty"),
        ("a.dot", "digraph {}", "no start state"),
        ("a.dot", "// nothing\n", "0 graphs"),
        ("a.jff", "<html/>", "<html> of type '' is not read"),
        ("a.jff", JFF.replace("<initial/>", ""), "no start state"),
        ("a.jff", JFF.replace("<final/>", "<initial/>"), r"2 start states \(0, 1\)"),
        ("a.jff", JFF.replace("<read>a</read>", ""), "transition 1 lacks read"),
        ("a.jff", with_edges((0, 0, "a"), (0, 1, "a")).replace("fa<", "moore<"), "a Moore machine with"),
        ("a.dot", 'digraph { a -> b [label="x"];\n a -> ', "not valid DOT at line"),
        ("a.dot", DOT + " }", "text after the graph's closing brace"),
        ("a.gv", DOT + DOT, "2 graphs"),
        ("a.dot", DOT.replace("digraph", "graph").replace("->", "--"), "without direction"),
        ("a.dot", DOT.replace("i -> p;", ""), "no start state"),
        ("a.dot", DOT.replace("i -> p;", "i -> p; i -> q; q -> q [label=a];"), "2 start states"),
        ("a.dot", DOT.replace('"a"', '""'), "edge 'p' -> 'p' has no symbol"),
        ("a.dot", DOT.replace('"a"', '"a,"'), "no symbol in its label 'a,'"),
        ("a.dot", DOT.replace('"a"', "<b>"), "HTML label"),
        ("a.dot", DOT.replace("} ", "").replace('"a"]', '"a/b"]; p -> p [label="c"]'), "on symbol 'c' has no output"),
        ("a.dot", DOT.replace("p -> p", 'p [label="p|1"]; p -> p').replace('"a"', '"a/b"'), "state 'p' is accepting"),
        ("a.dot", DOT.replace('"a"', '"/, a/b"'), "no symbol in its label '/, a/b'"),
        ("a.dot", DOT.replace('"a"', '"a, a"'), "two edges from state 'p' on symbol 'a'"),
        ("a.dot", DOT.replace("p -> p", 'q [label="q|1"]; p -> p'), "state 'p' has no output"),
        ("a.dot", DOT.replace("p -> p", 'p [label="q|1|2"]; p -> p'), "3 fields"),
        ("a.dot", DOT.replace("p -> p", "p [name=x]; p -> p"), "not valid DOT"),
        ("a.txt", "q0 a q1", "neither JSON nor DOT nor JFLAP nor AT&T text"),
    ],
)
def test_a_faulty_file_is_refused_in_one_line_that_names_it(
    name: str, text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidFile, match=reason) as caught:
        read_automaton(path)
    assert caught.value.path == str(path)
    assert "\n" not in str(caught.value)
    assert capsys.readouterr().out == ""


def test_a_transition_to_no_state_is_refused_with_its_id() -> None:
    with pytest.raises(InvalidAutomaton, match="transition 1: no state has the id '7'"):
        from_jff(with_edges((0, 7, "a")))


def test_the_content_decides_for_an_unknown_suffix(tmp_path: Path) -> None:
    dfa = from_dot(DOT)
    for text in (json.dumps(to_dict(dfa)), to_dot(dfa), "// c\n" + to_dot(dfa), to_jff(dfa), "\ufeff" + to_jff(dfa)):
        (tmp_path / "automaton.txt").write_text(text, encoding="utf-8")
        assert read_automaton(tmp_path / "automaton.txt") == dfa


def test_a_file_that_is_absent_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match=r"cannot be read \(No such file"):
        read_automaton(tmp_path / "none.json")
    (tmp_path / "a.dot").write_bytes(b"digraph \xff")
    with pytest.raises(InvalidFile, match=r"not UTF-8 text \(byte 8\)"):
        read_automaton(tmp_path / "a.dot")


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    dfa = from_dot(DOT)
    with pytest.raises(InvalidFile, match=r"no writer for the suffix '\.txt'"):
        write_automaton(dfa, tmp_path / "a.txt")
    with pytest.raises(InvalidFile, match="cannot be written"):
        write_automaton(dfa, tmp_path / "none" / "a.json")


def test_what_a_format_cannot_say_is_refused() -> None:
    mixed = from_table(["a"], ["x", "y"], "x", {("x", "a"): "y", ("y", "a"): "x"}, {"x": "1"})
    assert from_dict(to_dict(mixed)) == mixed
    empty = from_table([""], ["x"], "x", {("x", ""): "x"})
    for write in (to_dot, to_jff):
        with pytest.raises(InvalidAutomaton, match="some outputs are strings"):
            write(mixed)
        with pytest.raises(InvalidAutomaton, match="symbol '' is empty"):
            write(empty)
    with pytest.raises(InvalidAutomaton, match="automata-lib's DFA has no outputs"):
        to_automata_lib(mixed)
    with pytest.raises(InvalidAutomaton, match="XML cannot hold"):
        to_jff(from_table(["\x00"], ["x"], "x", {("x", "\x00"): "x"}))
