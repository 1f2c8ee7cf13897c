from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidFile
from statetrack.theory.att_format import from_att, symbol_table, weighted_from_att
from statetrack.theory.formats import read_automaton, read_weighted
from statetrack.theory.weighted import equivalent, from_dfa, from_matrices

DATA = Path(__file__).parents[1] / "data/formats"
TABLE = {"<eps>": 0, "b": 1, "a": 2, "10c": 5}
# From, to, symbol ("<eps>" is silent), weight.
Arc = tuple[int, int, str, Fraction]


def written(arcs: Sequence[Arc], finals: dict[int, Fraction], *, weights: bool = True) -> str:
    """AT&T text; the first line makes 0 the start where an edge leaves it."""
    lines = [f"{p}\t{q}\t{a}" + (f"\t{w}" if weights else "") for p, q, a, w in arcs]
    lines += [f"{q}" + (f" {w}" if weights else "") for q, w in finals.items()]
    return "\n".join(lines)


def total(arcs: Sequence[Arc], finals: dict[int, Fraction], word: Sequence[str]) -> Fraction:
    """The sum over all paths from 0, edge by edge; for silent edges that lead to higher states only."""

    def below(state: int, rest: Sequence[str]) -> Fraction:
        value = Fraction(0) if rest else finals.get(state, Fraction(0))
        for source, to, symbol, weight in arcs:
            if source == state and symbol == "<eps>":
                value += weight * below(to, rest)
            elif source == state and rest and symbol == rest[0]:
                value += weight * below(to, rest[1:])
        return value

    return below(0, word)


@st.composite
def texts(draw: st.DrawFn, *, silent: bool) -> tuple[list[Arc], dict[int, Fraction]]:
    weight = st.sampled_from([Fraction(x) for x in ("1", "-1", "1/2", "2", "0", "3/7")])
    state = st.integers(0, 3)
    arc = st.tuples(state, state, st.sampled_from(["a", "b", "10c"]), weight)
    arcs = draw(st.lists(arc, min_size=1, max_size=7))
    if silent:
        jumps = draw(st.lists(st.tuples(state, state, weight), max_size=3))
        arcs += [(p, q, "<eps>", w) for p, q, w in jumps if p < q]
    arcs.insert(0, (0, draw(state), "a", draw(weight)))
    return arcs, draw(st.dictionaries(state, weight, max_size=3))


@given(texts(silent=True))
def test_a_weighted_text_has_the_sum_over_its_paths(text: tuple[list[Arc], dict[int, Fraction]]) -> None:
    wfa = weighted_from_att(written(*text), semiring="real", symbols=TABLE)
    assert wfa.alphabet == ("b", "a", "10c")
    for length in range(4):
        for word in itertools.product(wfa.alphabet, repeat=length):
            assert wfa.value(word) == total(*text, word)


@given(texts(silent=True))
def test_a_text_without_weights_accepts_the_words_that_have_a_path(
    text: tuple[list[Arc], dict[int, Fraction]],
) -> None:
    arcs, finals = [(p, q, a, Fraction(1)) for p, q, a, _ in text[0]], dict.fromkeys(text[1], Fraction(1))
    dfa = from_att(written(arcs, finals, weights=False), semiring="tropical", symbols=TABLE, missing="sink")
    assert dfa.alphabet == ("b", "a", "10c")
    assert from_att(written(arcs, finals), semiring="boolean", symbols=TABLE, missing="sink") == dfa
    for length in range(4):
        for word in itertools.product(dfa.alphabet, repeat=length):
            said = dfa.outputs[(dfa.start, *dfa.trace(word))[-1]]
            assert said == (total(arcs, finals, word) > 0), word


def test_the_sample_is_read_with_and_without_its_table() -> None:
    div3 = read_automaton(DATA / "div3.json")
    for symbols in (None, DATA / "bits.syms"):
        for semiring in ("boolean", "real", "tropical", "log"):
            dfa = read_automaton(DATA / "div3.att", semiring=semiring, symbols=symbols)
            assert (dfa.alphabet, dfa.delta.tolist(), dfa.outputs) == (("0", "1"), div3.delta.tolist(), div3.outputs)


def test_tropical_weights_are_refused_in_one_line_that_says_what_to_do() -> None:
    for read in (read_automaton, read_weighted):
        with pytest.raises(InvalidFile) as caught:
            read(DATA / "minblock.att", semiring="tropical", symbols=DATA / "ab.syms")
        message = str(caught.value)
        assert "tropical weights are minima of sums, which no linear network over the rationals computes" in message
        assert message.endswith("its language: no weights and --semiring boolean")
        assert "\n" not in message


def test_the_same_text_over_the_reals_multiplies_its_decimals_exactly() -> None:
    wfa = read_weighted(DATA / "minblock.att", semiring="real", symbols=DATA / "ab.syms")
    assert wfa.run("abba") == (0, Fraction(1, 16), Fraction(1, 64), 0)
    expected = from_matrices("ab", [1, 0], {"a": [["1/2", 2], [0, 0]], "b": [[0, 0], [1, "1/4"]]}, [0, "1/8"])
    assert wfa == expected


def test_the_language_of_a_text_without_its_weights_is_read() -> None:
    text = "\n".join(line.rpartition("\t")[0] or line for line in (DATA / "minblock.att").read_text().splitlines())
    dfa = from_att(text.replace("1\t0.125", "1"), semiring="boolean")
    assert dfa.run("abba") == (True, True, True, True)


def test_the_start_is_the_first_line_and_may_be_final_only() -> None:
    dfa = from_att("7\n7 3 a\n3 7 a", semiring="boolean")
    assert (dfa.states, dfa.states[dfa.start]) == (("7", "3"), "7")
    assert dfa.run("aa") == (False, True)
    lone = from_att("0", semiring="boolean", symbols={"a": 1}, missing="sink")
    assert (lone.alphabet, lone.run("a"), lone.outputs[lone.start]) == (("a",), (False,), True)
    assert from_att("00 01 a\r\n01\r\n", semiring="boolean", missing="stay").run("a") == (True,)


def test_blanks_and_tabs_separate_and_other_white_space_does_not() -> None:
    dfa = from_att("0  \t 0 \u00a0 \n0\n\n", semiring="boolean")
    assert dfa.alphabet == ("\u00a0",)


def test_weights_of_all_semirings_may_be_their_one() -> None:
    for semiring, one in (("boolean", "1"), ("real", "1.0"), ("tropical", "0"), ("log", "0e0")):
        assert from_att(f"0 0 a {one}\n0 {one}", semiring=semiring).run("a") == (True,)


def test_paths_over_the_reals_add_up_and_over_the_booleans_do_not() -> None:
    text = "0 0 a\n0 0 a\n0"
    assert weighted_from_att(text, semiring="real").run("aa") == (2, 4)
    assert from_att(text.replace("0", "5"), semiring="boolean").states == ("5",)
    for semiring in ("real", "log"):
        with pytest.raises(InvalidFile, match=f"over the {semiring} semiring paths add up"):
            from_att(text, semiring=semiring)


def test_a_boolean_text_is_read_as_the_indicator_of_its_language(tmp_path: Path) -> None:
    (tmp_path / "a.att").write_text("0 0 a\n0 0 b\n0 1 a\n1\n")
    wfa = read_weighted(tmp_path / "a.att", semiring="boolean")
    assert wfa.run("abaa") == (1, 0, 1, 1)
    dfa = read_automaton(tmp_path / "a.att", semiring="tropical")
    assert equivalent(wfa, from_dfa(dfa)) is None


def test_states_and_subsets_are_bounded() -> None:
    ends = "0 0 a\n0 0 b\n0 1 a\n" + "".join(f"{i} {i + 1} a\n{i} {i + 1} b\n" for i in range(1, 8)) + "8"
    with pytest.raises(BudgetExceeded, match="more than 8 states in <AT&T text>: stopped; raise the bound with"):
        from_att(ends, semiring="boolean", max_states=8)
    with pytest.raises(BudgetExceeded, match="more than 100 subset states"):
        from_att(ends, semiring="boolean", max_states=100)
    assert len(from_att(ends, semiring="boolean", max_states=256).states) == 256
    with pytest.raises(BudgetExceeded, match="more than 8 states"):
        weighted_from_att(ends, semiring="real", max_states=8)


@pytest.mark.parametrize(
    ("text", "semiring", "reason"),
    [
        ("0 0 a\n0", None, "its semiring is not named; name it: --semiring boolean | real | tropical | log"),
        ("0 0 a\n0", "fuzzy", "semiring 'fuzzy' is not known; name one of boolean, real"),
        ("0 0 a a 0.5\n0", "boolean", "<AT&T text>:1: 5 columns; an edge is"),
        ("\n0 0 a a\n0", "boolean", "<AT&T text>:2: weight 'a' is no rational number; a transducer's output?"),
        ("0 a 0\n0", "boolean", ":1: state 'a' is no integer"),
        ("q0 q1 a", "boolean", ":1: state 'q0' is no integer"),
        ("0 -1 a", "boolean", ":1: state '-1' is no integer"),
        ("0 ١ a", "boolean", "state '١' is no integer"),
        ("0 " + "9" * 5000 + " a", "boolean", "is no integer"),
        ("0 0 a\n# note\n0 0 c d e f", "boolean", ":2: state '#' is no integer; line 3: 6 columns"),
        ("x\ny\nz\nu\nv\nw", "boolean", "line 4: state 'u' is no integer; 2 more"),
        ("0 0 a\n0\n0", "boolean", ":3: state 0 is final twice, first at line 2"),
        ("0 0 a 1/0\n0", "real", ":1: weight '1/0' divides by zero"),
        ("0 0 a 1e-999999999\n0", "real", "is no rational number"),
        ("0 0 a Infinity\n0", "tropical", "weight 'Infinity' is no rational number"),
        ("0 0 a 0.5\n0", "real", "weight 1/2 is not 1, so the text is no plain real acceptor; read it as a weighted"),
        ("0 0 a\n0 0", "boolean", ":2: weight 0 is not 1, .*if it is a tropical text: --semiring tropical"),
        ("0 0 a\n0 1", "tropical", ":2: tropical weights are minima of sums"),
        ("0 0 a\n0 1", "log", ":2: log weights are logarithms of sums"),
        ("0 0 <eps>\n0", "boolean", "symbol '<eps>' looks like epsilon; name the symbol table with --symbols"),
        (" \n", "boolean", ":1: no edge and no final state"),
    ],
)
def test_a_faulty_text_is_refused_in_one_line(text: str, semiring: str | None, reason: str) -> None:
    with pytest.raises(InvalidFile, match=reason.replace("?", r"\?").replace(" | ", r" \| ")) as caught:
        from_att(text, semiring=semiring)
    assert "\n" not in str(caught.value)


def test_weights_of_another_semiring_and_cycles_of_epsilons_are_refused() -> None:
    with pytest.raises(InvalidFile, match="weights over the boolean semiring"):
        weighted_from_att("0 0 a\n0", semiring="boolean")
    with pytest.raises(InvalidFile, match=r"a cycle of epsilons leads to state 0: .*; remove the epsilons"):
        weighted_from_att("0 1 <eps> 0.5\n1 0 <eps>\n0", semiring="real", symbols=TABLE)
    with pytest.raises(InvalidFile, match=r"<AT&T text>:1: symbol 'z' is not in the symbol table"):
        from_att("0 0 z", semiring="boolean", symbols=TABLE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<eps> 0\na one", ":2: 'a one' is no symbol and number; write lines"),
        ("a b 1", ":1: 'a b 1' is no symbol and number"),
        ("a 1\na 2\nb 1\nc -1", ":2: symbol 'a' or number 2 stands twice; line 3: symbol 'b' .*; line 4: 'c -1'"),
        ("\n", ":1: no symbol"),
    ],
)
def test_a_faulty_symbol_table_is_refused_in_one_line(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="<symbol table>" + reason) as caught:
        symbol_table(text)
    assert "\n" not in str(caught.value)
    (tmp_path / "a.syms").write_text(text)
    with pytest.raises(InvalidFile, match=r"a\.syms"):
        read_automaton(DATA / "div3.att", semiring="boolean", symbols=tmp_path / "a.syms")
    with pytest.raises(InvalidFile, match="cannot be read"):
        read_weighted(DATA / "div3.att", semiring="real", symbols=tmp_path / "none")
