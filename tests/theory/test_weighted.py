from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from flint import fmpq, fmpq_mat
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidAutomaton, InvalidFile, InvalidInput, InvalidWord
from statetrack.theory.automata import Dfa, Output, from_table
from statetrack.theory.automata import minimise as minimise_dfa
from statetrack.theory.formats import read_automaton, read_weighted
from statetrack.theory.weighted import (
    Wfa,
    add,
    equivalent,
    exact,
    from_dfa,
    from_matrices,
    from_matrices_dict,
    hankel_rank,
    minimise,
    scale,
    to_matrices_dict,
    zero,
)
from tests.strategies import dfas, words

DATA = Path(__file__).parents[1] / "data"
ENTRIES = [Fraction(x) for x in ("0", "0", "0", "1", "1", "-1", "2", "1/2", "-3/4")]


def some_wfa(draw: random.Random) -> Wfa:
    """2 to 4 states, 1 to 3 letters; some letters are zero, of rank one, have a zero row or equal another."""
    n, k = draw.randint(2, 4), draw.randint(1, 3)

    def row() -> tuple[Fraction, ...]:
        return tuple(draw.choice(ENTRIES) for _ in range(n))

    letters: list[tuple[tuple[Fraction, ...], ...]] = []
    for _ in range(k):
        kind = draw.choice(["any", "any", "any", "zero", "rank one", "zero row", "again"])
        matrix = [row() for _ in range(n)]
        if kind == "zero":
            matrix = [(Fraction(0),) * n] * n
        elif kind == "rank one":
            matrix = [tuple(c * x for x in matrix[0]) for c in matrix[1]]
        elif kind == "zero row":
            matrix[0] = (Fraction(0),) * n
        letters.append(letters[-1] if kind == "again" and letters else tuple(matrix))
    return Wfa(tuple("abc"[:k]), row(), tuple(letters), row())


wfas = st.integers(0, 10**9).map(lambda seed: some_wfa(random.Random(seed)))


def all_words(alphabet: Sequence[str], longest: int) -> list[tuple[str, ...]]:
    """All words up to a length, by length and then by letters."""
    return [word for length in range(longest + 1) for word in itertools.product(alphabet, repeat=length)]


def rank_of_hankel_block(wfa: Wfa) -> int:
    """The rank of the block of words shorter than n; it is that of the whole Hankel matrix."""
    words = all_words(wfa.alphabet, wfa.size - 1)
    values = {w: wfa.value(w) for w in {u + v for u in words for v in words}}
    entries = [fmpq(values[u + v].numerator, values[u + v].denominator) for u in words for v in words]
    return fmpq_mat(len(words), len(words), entries).rank()


@given(wfas)
def test_minimising_keeps_every_value_has_the_hankel_rank_and_changes_a_minimal_one_not_at_all(wfa: Wfa) -> None:
    least = minimise(wfa)
    # Two automata that agree on all words shorter than the sum of their sizes are equal.
    assert all(least.value(w) == wfa.value(w) for w in all_words(wfa.alphabet, wfa.size))
    assert equivalent(wfa, least) is None
    assert least.size == hankel_rank(wfa) <= wfa.size
    assert minimise(least) == least


def test_the_least_size_is_the_rank_of_the_hankel_matrix_on_a_thousand_automata() -> None:
    draw, sizes = random.Random(7), set[int]()
    for _ in range(1000):
        wfa = some_wfa(draw)
        rank = hankel_rank(wfa)
        sizes.add(rank)
        if len(wfa.alphabet) ** wfa.size < 20:
            assert rank == rank_of_hankel_block(wfa)
    assert sizes == {0, 1, 2, 3, 4}


@given(wfas, wfas)
def test_a_distinguishing_word_is_the_first_one(a: Wfa, b: Wfa) -> None:
    if a.alphabet != b.alphabet:
        return
    found = equivalent(a, b)
    longest = 3 if found is None else len(found)
    differing = [w for w in all_words(a.alphabet, longest) if a.value(w) != b.value(w)]
    assert found == (differing[0] if differing else None)
    assert found is None or len(found) < a.size + b.size


@given(wfas, st.sampled_from(ENTRIES), st.data())
def test_one_changed_number_is_found_or_changes_nothing(wfa: Wfa, by: Fraction, data: st.DataObject) -> None:
    n = wfa.size
    letter, i, j = (data.draw(st.integers(0, top - 1)) for top in (len(wfa.alphabet), n, n))
    rows = [[list(row) for row in matrix] for matrix in wfa.matrices]
    rows[letter][i][j] += by
    changed = Wfa(wfa.alphabet, wfa.initial, tuple(tuple(map(tuple, matrix)) for matrix in rows), wfa.final)
    word = equivalent(wfa, changed)
    if word is None:
        assert all(wfa.value(w) == changed.value(w) for w in all_words(wfa.alphabet, 4))
    else:
        assert wfa.value(word) != changed.value(word)


@given(wfas, wfas, st.sampled_from(ENTRIES), st.data())
def test_sums_and_multiples_are_those_of_the_values(a: Wfa, b: Wfa, c: Fraction, data: st.DataObject) -> None:
    word = data.draw(words(a.alphabet, 6))
    assert scale(c, a).value(word) == c * a.value(word)
    assert equivalent(add(a, scale(-1, a)), zero(a.alphabet)) is None
    if a.alphabet == b.alphabet:
        assert add(a, b).value(word) == a.value(word) + b.value(word)
        assert hankel_rank(add(a, b)) <= hankel_rank(a) + hankel_rank(b)


@given(wfas, st.data())
def test_a_run_gives_the_values_of_the_prefixes(wfa: Wfa, data: st.DataObject) -> None:
    word = data.draw(words(wfa.alphabet, 6))
    assert wfa.run(word) == tuple(wfa.value(word[: t + 1]) for t in range(len(word)))


@given(dfas(outputs=st.booleans()), st.data())
def test_a_dfa_becomes_its_indicator(dfa: Dfa, data: st.DataObject) -> None:
    wfa = from_dfa(dfa)
    word = data.draw(words(dfa.alphabet))
    assert wfa.run(word) == tuple(Fraction(int(said is True)) for said in dfa.run(word))
    assert wfa.value("") == int(dfa.outputs[dfa.start] is True)
    assert hankel_rank(wfa) <= len(minimise_dfa(dfa).states)


def test_a_moore_machine_becomes_the_indicator_of_an_output() -> None:
    outputs: dict[str, Output] = {"p": "x", "q": "True"}
    dfa = from_table("a", ["p", "q"], "p", {("p", "a"): "q", ("q", "a"): "p"}, outputs)
    assert from_dfa(dfa, output="x").run("aaa") == (0, 1, 0)
    with pytest.raises(InvalidAutomaton, match="no state of this Moore machine has the output True"):
        from_dfa(dfa)


def test_the_zero_function_has_no_states() -> None:
    nothing = zero("ab")
    assert (nothing.size, nothing.value("abba"), nothing.run("ab")) == (0, 0, (0, 0))
    for wfa in (nothing, zero("ab", 3), scale(0, from_dfa(read_automaton(DATA / "formats/div3.json")))):
        assert minimise(wfa) == zero(wfa.alphabet)
        assert hankel_rank(wfa) == 0
    assert equivalent(nothing, zero("ab", 2)) is None
    assert minimise(zero([])) == zero([], 0)
    assert from_matrices_dict(to_matrices_dict(nothing)) == nothing


def test_alphabets_may_be_ordered_differently_but_not_differ() -> None:
    one = from_matrices("ab", [1], {"a": [[2]], "b": [[3]]}, [1])
    other = from_matrices("ba", [1], {"a": [[2]], "b": [[3]]}, [1])
    assert equivalent(one, other) is None
    assert equivalent(one, from_matrices("ba", [1], {"a": [[2]], "b": [["9/2"]]}, [1])) == ("b",)
    with pytest.raises(InvalidInput, match="only one of the automata has 'b'"):
        equivalent(one, zero("a"))


@given(wfas)
def test_a_written_dictionary_is_read_back_equal(wfa: Wfa) -> None:
    written = to_matrices_dict(wfa)
    assert from_matrices_dict(written) == wfa
    columns = from_matrices_dict({**written, "convention": "column"})
    for word in all_words(wfa.alphabet, 3):
        # Matrices that are not transposed back give the value of the mirror image, with the ends swapped.
        mirrored = Wfa(columns.alphabet, columns.final, columns.matrices, columns.initial)
        assert mirrored.value(word[::-1]) == wfa.value(word)


def test_a_word_with_an_unknown_symbol_is_refused() -> None:
    with pytest.raises(InvalidWord, match="symbol 'z' at position 1"):
        from_matrices("a", [1], {"a": [[2]]}, [1]).run("az")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2/6", Fraction(-1, 3)),
        ("0.1", Fraction(1, 10)),
        (".5e1", 5),
        (" 7 ", 7),
        ("+1e-3", Fraction("0.001")),
    ],
)
def test_numbers_are_read_exactly(text: str, value: Fraction | int) -> None:
    assert exact(text) == value


@pytest.mark.parametrize(
    "value",
    [0.5, float("inf"), True, None, "", "x", "1/0", "1e9999", "1_0", "0x1", "٣", "inf", "1/2/3", "9" * 1001, 1j],
)
def test_what_is_no_exact_number_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match=r"is no rational number|is a float, which is not exact|divides by zero"):
        exact(value)


def test_all_faults_of_an_automaton_are_named_in_one_line() -> None:
    with pytest.raises(InvalidAutomaton) as caught:
        from_matrices("ab", [1, "x"], {"a": [[1, 2], [3]], "c": []}, [1])
    for part in ("initial, entry 1: 'x'", "final has 1", "'b' has no matrix", "matrix of 'c'", "'a' is not 2 × 2"):
        assert part in str(caught.value)
    with pytest.raises(InvalidAutomaton, match=r"1 matrices for 2 symbols; final has 2 entries, initial 1"):
        Wfa(("a", "b"), (Fraction(1),), (((Fraction(1),),),), (Fraction(1), Fraction(2)))


def test_the_values_of_binary_numbers_are_read_exactly() -> None:
    wfa = read_weighted(DATA / "formats/binvalue.wfa.json")
    assert [wfa.value(f"{n:b}") for n in range(200)] == list(range(200))
    assert wfa.value("") == 0
    assert read_weighted(DATA / "formats/binvalue.wfa.json", semiring="real") == wfa


def test_weights_in_json_are_exact_decimals(tmp_path: Path) -> None:
    text = '{"semiring": "real", "alphabet": [1], "initial": [0.1], "matrices": {"1": [["-2/6"]]}, "final": [1e-30]}'
    (tmp_path / "a.json").write_text(text)
    wfa = read_weighted(tmp_path / "a.json")
    assert wfa.value(["1"]) == Fraction(1, 10) * Fraction(-1, 3) * Fraction(1, 10**30)


@pytest.mark.parametrize("semiring", ["real", "boolean"])
def test_an_att_file_is_read_as_weighted(semiring: str) -> None:
    wfa = read_weighted(DATA / "formats/div3.att", semiring=semiring, symbols=DATA / "formats/bits.syms")
    assert equivalent(wfa, from_dfa(read_automaton(DATA / "formats/div3.json"))) is None


WFA = '{"semiring": "real", "alphabet": ["a"], "initial": [1], "matrices": {"a": [[2]]}, "final": [3]}'


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("a.json", WFA.replace('"semiring": "real", ', ""), "its semiring is not named; name it: --semiring"),
        ("a.json", WFA.replace("real", "tropical"), "no linear network over the rationals computes; give"),
        ("a.json", WFA.replace("real", "log"), "log weights are"),
        ("a.json", WFA.replace("real", "boolean"), "over the boolean semiring"),
        ("a.json", WFA.replace("real", "fuzzy"), "semiring 'fuzzy' is not known"),
        ("a.json", WFA.replace('"final"', '"end"'), "no 'final'"),
        ("a.json", WFA.replace('"final"', '"convention": "mixed", "final"'), "convention 'mixed'"),
        ("a.json", WFA.replace("[2]", "[NaN]"), "nan is a float"),
        ("a.json", WFA.replace("[2]", '["2/0"]'), "row 0, entry 0: '2/0' divides by zero"),
        ("a.json", WFA.replace("[2]", "[1e99999]"), "'1e99999' is no rational number"),
        ("a.json", WFA.replace("[2]", "[true, []]"), "True is no rational number.*entry 1: .*is not 1 × 1"),
        ("a.json", WFA.replace("[[2]]", "3").replace("[3]", "4"), "final is no list.*not 1 × 1"),
        ("a.json", WFA.replace('{"a": [[2]]}', "[[2]]"), "matrices are no dictionary"),
        ("a.json", WFA.replace('["a"]', '"a"'), "alphabet 'a' is no list"),
        ("a.json", WFA.replace('["a"]', '["a", "a", []]'), r"symbol \[\] is no string; symbol 'a' stands twice"),
        ("a.json", WFA.replace('["a"]', '["b"]'), "symbol 'b' has no matrix; matrix of 'a', which is not"),
        ("a.json", WFA + "}", "not valid JSON"),
        ("a.dot", "digraph {}", "no weighted automaton is read from '.dot'"),
        ("a.att", "0", "its semiring is not named"),
    ],
)
def test_a_faulty_weighted_file_is_refused_in_one_line(name: str, text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises((InvalidFile, InvalidAutomaton), match=reason) as caught:
        read_weighted(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_weighted_file_is_bounded_and_its_semiring_named_once(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(WFA)
    with pytest.raises(BudgetExceeded, match="more than 0 states"):
        read_weighted(tmp_path / "a.json", max_states=0)
    with pytest.raises(InvalidFile, match="names the semiring 'real', the option 'log'"):
        read_weighted(tmp_path / "a.json", semiring="log")
    with pytest.raises(InvalidFile, match=r"a weighted automaton .* use read_weighted"):
        read_automaton(tmp_path / "a.json")
