from __future__ import annotations

import itertools
import time
from collections.abc import Sequence

import numpy as np
import pytest
from automata.fa.dfa import DFA
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import InvalidAutomaton, InvalidWord
from statetrack.theory.automata import Dfa, Output, from_table, minimise, reachable, to_networkx, transition_maps
from tests.strategies import dfas, fewer, permutation_dfas, words

LONGEST = 6


def all_words(symbols: int, longest: int = LONGEST) -> list[tuple[int, ...]]:
    return [w for n in range(longest + 1) for w in itertools.product(range(symbols), repeat=n)]


def said(dfa: Dfa, word: Sequence[int], state: int | None = None) -> Output:
    q = dfa.start if state is None else state
    for s in word:
        q = int(dfa.delta[q, s])
    return dfa.outputs[q]


def automata_with_words(max_symbols: int = 3) -> st.SearchStrategy[tuple[Dfa, tuple[str, ...]]]:
    return dfas(max_symbols=max_symbols).flatmap(lambda d: st.tuples(st.just(d), words(d.alphabet)))


@given(dfas(max_symbols=2, all_reachable=False))
@fewer(2)
def test_minimising_leaves_one_state_for_each_class_of_myhill_and_nerode(dfa: Dfa) -> None:
    tests = all_words(len(dfa.alphabet))
    # Words that no word tells apart, by the outputs after all their extensions.
    classes = {
        tuple(said(dfa, (*w, *t)) for t in all_words(len(dfa.alphabet), 4)) for w in all_words(len(dfa.alphabet), 5)
    }
    small = minimise(dfa)
    assert len(small.states) == len(classes)
    assert [said(small, w) for w in tests] == [said(dfa, w) for w in tests]


@given(dfas(max_states=8, max_symbols=3, outputs=st.booleans(), all_reachable=False))
def test_minimising_agrees_with_another_library(dfa: Dfa) -> None:
    if not dfa.alphabet:
        return
    theirs = DFA(
        states=set(dfa.states),
        input_symbols=set(dfa.alphabet),
        transitions={
            q: {a: dfa.states[int(dfa.delta[i, j])] for j, a in enumerate(dfa.alphabet)}
            for i, q in enumerate(dfa.states)
        },
        initial_state=dfa.states[dfa.start],
        final_states={dfa.states[q] for q in dfa.accepting},
    )
    small = minimise(dfa)
    assert len(small.states) == len(theirs.minify().states)
    for w in all_words(len(dfa.alphabet), 3):
        symbols = "".join(dfa.alphabet[s] for s in w)
        assert (said(small, w) is True) == theirs.accepts_input(symbols)


@given(dfas(all_reachable=False))
def test_minimising_keeps_names_and_order_and_does_nothing_twice(dfa: Dfa) -> None:
    small = minimise(dfa)
    assert minimise(small) == small
    assert hash(minimise(small)) == hash(small)
    assert small.alphabet == dfa.alphabet
    places = [dfa.states.index(name) for name in small.states]
    assert places == sorted(places)
    assert all(dfa.outputs[q] == output for q, output in zip(places, small.outputs, strict=True))


def moore(dfa: Dfa) -> Dfa:
    """Refine by whole rounds until nothing splits; the oracle for what `minimise` does in other ways."""
    dfa = reachable(dfa)
    rows: list[list[int]] = dfa.delta.tolist()
    classes = [dfa.outputs.index(output) for output in dfa.outputs]
    while True:
        numbers: dict[tuple[int, ...], int] = {}
        keys = [(classes[q], *(classes[to] for to in row)) for q, row in enumerate(rows)]
        refined = [numbers.setdefault(key, len(numbers)) for key in keys]
        if len(numbers) == len(set(classes)):
            break
        classes = refined
    firsts = [refined.index(c) for c in range(len(numbers))]
    table = np.array([[refined[to] for to in rows[q]] for q in firsts], dtype=np.int32)
    table = table.reshape(len(firsts), len(dfa.alphabet))
    names, said = tuple(dfa.states[q] for q in firsts), tuple(dfa.outputs[q] for q in firsts)
    return Dfa(dfa.alphabet, names, refined[dfa.start], table, said)


def numbered(table: np.ndarray[tuple[int, ...], np.dtype[np.int64]], outputs: Sequence[Output]) -> Dfa:
    names = tuple(str(q) for q in range(len(table)))
    return Dfa(tuple("abcdefgh"[: table.shape[1]]), names, 0, table.astype(np.int32), tuple(outputs))


def line(n: int) -> Dfa:
    """A chain into a last state that stays; the one before it is the only one to accept."""
    return numbered(np.minimum(np.arange(1, n + 1), n - 1)[:, None], [q == n - 2 for q in range(n)])


def scattered(n: int, k: int, accepting: int, seed: int) -> Dfa:
    """A random table; `accepting` states drawn with repetition accept."""
    rng = np.random.default_rng(seed)
    chosen: list[bool] = np.isin(np.arange(n), rng.integers(0, n, accepting)).tolist()
    return numbered(rng.integers(0, n, (n, k)), chosen)


def glued(dfa: Dfa, copies: int, seed: int) -> Dfa:
    """Copies of an automaton with each edge led into a random copy, and the states shuffled."""
    rng, n = np.random.default_rng(seed), len(dfa.states)
    table = np.tile(dfa.delta, (copies, 1)) + n * rng.integers(0, copies, (n * copies, len(dfa.alphabet)))
    order = rng.permutation(n * copies)
    return numbered(np.argsort(order)[table[order]], [dfa.outputs[int(q) % n] for q in order])


@given(dfas(all_reachable=False))
def test_minimising_gives_what_whole_rounds_give(dfa: Dfa) -> None:
    assert minimise(dfa) == moore(dfa)


@given(st.integers(1, 1500), st.integers(1, 3), st.integers(0, 40), st.booleans(), st.integers(0, 2**32 - 1))
@fewer(4)
def test_large_automata_are_minimised_as_by_whole_rounds(n: int, k: int, few: int, many: bool, seed: int) -> None:
    dfa = scattered(n, k, n if many else few, seed)
    assert minimise(dfa) == moore(dfa)
    copies = glued(scattered(max(1, n // 5), k, n if many else few, seed), 5, seed)
    assert minimise(copies) == moore(copies)


@given(st.integers(2, 60), st.integers(2, 400), st.integers(0, 2**32 - 1))
@fewer(4)
def test_chains_with_bundles_of_states_are_minimised_as_by_whole_rounds(length: int, width: int, seed: int) -> None:
    # Classes split a bundle at a time, from either end.
    rng = np.random.default_rng(seed)
    stage = np.sort(rng.integers(0, length, width))
    ahead = np.searchsorted(stage, stage, side="right") % width
    table = np.stack([ahead, rng.integers(0, width, width)], axis=1)
    dfa = numbered(table, [bool(s == stage[-1]) for s in stage.tolist()])
    assert minimise(dfa) == moore(dfa)


def test_a_chain_of_three_thousand_states_is_minimal_and_quick() -> None:
    dfa, begin = line(3000), time.process_time()
    assert minimise(dfa) == dfa
    assert time.process_time() - begin < 1


def test_glued_copies_shrink_to_one() -> None:
    one = minimise(scattered(2000, 2, 2000, 7))
    copies = glued(one, 5, 8)
    small = minimise(copies)
    assert small == moore(copies)
    assert len(small.states) <= len(one.states)


@pytest.mark.parametrize(
    ("dfa", "seconds"),
    [(line(100_000), 3), (scattered(100_000, 2, 100_000, 1), 1.5), (scattered(100_000, 2, 1, 2), 3)],
    ids=["line", "random", "one accepting"],
)
def test_a_hundred_thousand_states_are_minimised_in_seconds(dfa: Dfa, seconds: float) -> None:
    begin = time.process_time()
    small = minimise(dfa)
    assert time.process_time() - begin < seconds
    assert minimise(small) == small


@given(permutation_dfas())
def test_a_permutation_automaton_stays_one_when_minimised(dfa: Dfa) -> None:
    assert dfa.is_permutation()
    assert reachable(dfa) == dfa
    assert minimise(dfa).is_permutation()
    assert all(sorted(images) == list(range(len(dfa.states))) for images in transition_maps(dfa))


@given(automata_with_words())
def test_minimising_keeps_every_output_along_a_word(case: tuple[Dfa, tuple[str, ...]]) -> None:
    dfa, word = case
    small = minimise(dfa)
    assert small.run(word) == dfa.run(word)
    assert small.outputs[small.start] == dfa.outputs[dfa.start]


def test_outputs_that_read_alike_are_not_one() -> None:
    dfa = Dfa(("a",), ("x", "y"), 0, np.array([[1], [0]], dtype=np.int32), (True, "True"))
    assert minimise(dfa) == dfa
    assert dfa.accepting == {0}


def test_a_changed_output_is_seen_by_equality() -> None:
    def build(output: Output) -> Dfa:
        return Dfa(("a",), ("x", "y"), 0, np.array([[1], [0]], dtype=np.int32), (True, output))

    assert build(False) == build(False)
    assert hash(build(False)) == hash(build(False))
    assert build(False) != build(True)
    assert build(False) != "x"
    assert len({build(False), build(False), build(True)}) == 2


@given(automata_with_words())
def test_a_run_says_the_outputs_of_the_states_it_traces(case: tuple[Dfa, tuple[str, ...]]) -> None:
    dfa, word = case
    codes = dfa.encode(word)
    assert tuple(dfa.alphabet[c] for c in codes) == word
    trace = dfa.trace(word)
    assert len(trace) == len(word)
    assert dfa.run(word) == tuple(said(dfa, codes[: i + 1]) for i in range(len(codes)))
    before = (dfa.start, *trace)
    maps = transition_maps(dfa)
    assert all(maps[c][before[i]] == trace[i] for i, c in enumerate(codes))


@given(dfas(all_reachable=False))
def test_reachable_drops_exactly_the_states_no_word_reaches(dfa: Dfa) -> None:
    reached = {dfa.start}
    for _ in dfa.states:
        reached |= {int(dfa.delta[q, s]) for q in reached for s in range(len(dfa.alphabet))}
    small = reachable(dfa)
    assert small.states == tuple(dfa.states[q] for q in sorted(reached))
    assert small.states[small.start] == dfa.states[dfa.start]
    for w in all_words(len(dfa.alphabet), 3):
        assert said(small, w) == said(dfa, w)


@given(dfas(all_reachable=False))
def test_a_table_of_named_edges_rebuilds_the_automaton(dfa: Dfa) -> None:
    assert from_table(dfa.alphabet, dfa.states, dfa.states[dfa.start], edges(dfa), outputs(dfa)) == reachable(dfa)


def edges(dfa: Dfa) -> dict[tuple[str, str], str]:
    return {
        (q, a): dfa.states[int(dfa.delta[i, j])] for i, q in enumerate(dfa.states) for j, a in enumerate(dfa.alphabet)
    }


def outputs(dfa: Dfa) -> dict[str, Output]:
    return dict(zip(dfa.states, dfa.outputs, strict=True))


@given(dfas(outputs=st.booleans()), st.data())
def test_missing_edges_mean_what_the_policy_says(dfa: Dfa, data: st.DataObject) -> None:
    full = edges(dfa)
    kept = {edge: to for edge, to in full.items() if data.draw(st.booleans())}
    start = dfa.states[dfa.start]
    build = (dfa.alphabet, dfa.states, start)
    if len(kept) < len(full):
        with pytest.raises(InvalidAutomaton, match="no transition from state") as caught:
            from_table(*build, kept, outputs(dfa))
        # The first absent edge is named, by attributes too.
        state, symbol = next(edge for edge in full if edge not in kept)
        assert (caught.value.state, caught.value.symbol) == (state, symbol)
        assert repr(state) in str(caught.value)
        assert repr(symbol) in str(caught.value)
    sink, stay = (from_table(*build, kept, outputs(dfa), missing=policy) for policy in ("sink", "stay"))
    for w in all_words(len(dfa.alphabet), 3):
        in_sink, staying, lost = start, start, False
        for s in w:
            symbol = dfa.alphabet[s]
            lost = lost or (in_sink, symbol) not in kept
            in_sink = kept.get((in_sink, symbol), in_sink)
            staying = kept.get((staying, symbol), staying)
        assert said(sink, w) == (outputs(dfa)[in_sink] and not lost)
        assert said(stay, w) == outputs(dfa)[staying]


def test_a_sink_gets_a_name_that_is_free_and_leads_to_itself() -> None:
    dfa = from_table(["a"], ["sink", "sink_"], "sink", {("sink", "a"): "sink_"}, {"sink_": True}, missing="sink")
    assert dfa.states == ("sink", "sink_", "sink__")
    assert dfa.run("aaa") == (True, False, False)


FAULTS: list[tuple[dict[str, object], str, str | None, str | None]] = [
    ({"start": "z"}, "start state 'z'", "z", None),
    ({"delta": {("x", "a"): "z"}}, "state 'z' is not among", "z", "a"),
    ({"delta": {("z", "a"): "x"}}, "state 'z' is not among", "z", "a"),
    ({"delta": {("x", "b"): "x"}}, "symbol 'b' is not in the alphabet", "x", "b"),
    ({"delta": {}}, "no transition from state 'x' on symbol 'a' and 1 more", "x", "a"),
    ({"outputs": {"z": True}}, "state 'z' is not among", "z", None),
    ({"states": []}, "at least one state", None, None),
    ({"states": ["x", "y", "x"]}, "state 'x' stands twice", None, None),
    ({"alphabet": ["a", "a"]}, "symbol 'a' stands twice", None, None),
    ({"missing": "guess"}, "policy 'guess' is not one of error, sink, stay", None, None),
]


@pytest.mark.parametrize(("change", "message", "state", "symbol"), FAULTS, ids=[fault[1] for fault in FAULTS])
def test_a_fault_is_refused_in_one_line_that_names_its_place(
    change: dict[str, object], message: str, state: str | None, symbol: str | None
) -> None:
    good: dict[str, object] = {
        "alphabet": ["a"],
        "states": ["x", "y"],
        "start": "x",
        "delta": {("x", "a"): "y", ("y", "a"): "x"},
        "outputs": {"y": True},
    }
    from_table(**good)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidAutomaton) as caught:
        from_table(**(good | change))  # pyright: ignore[reportArgumentType]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (caught.value.state, caught.value.symbol) == (state, symbol)


@pytest.mark.parametrize(
    ("table", "start", "said_by", "message"),
    [
        ([[2], [0]], 0, (True, False), "does not exist"),
        ([[-1], [0]], 0, (True, False), "does not exist"),
        ([[1], [0]], 2, (True, False), "does not exist"),
        ([[1], [0]], -1, (True, False), "does not exist"),
        ([[1, 0]], 0, (True, False), "do not fit"),
        ([[1], [0]], 0, (True,), "do not fit"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    table: list[list[int]], start: int, said_by: tuple[Output, ...], message: str
) -> None:
    with pytest.raises(InvalidAutomaton, match=message):
        Dfa(("a",), ("x", "y"), start, np.array(table, dtype=np.int32), said_by)


@pytest.mark.parametrize("wrong", [np.array([[1 << 32], [0]]), np.array([[0.9], [0.0]])], ids=["2^32", "0.9"])
def test_a_table_of_numbers_that_are_no_states_is_refused(
    wrong: np.ndarray[tuple[int, int], np.dtype[np.int32]],
) -> None:
    # Types are checked while tests run; what is meant here is the automaton's own check, which users have.
    init = getattr(Dfa.__init__, "__wrapped__", Dfa.__init__)
    with pytest.raises(InvalidAutomaton):
        init(object.__new__(Dfa), ("a",), ("x", "y"), 0, wrong, (True, False))


def test_the_table_of_an_automaton_is_read_only() -> None:
    dfa = from_table(["a"], ["x"], "x", {("x", "a"): "x"})
    with pytest.raises(ValueError, match="read-only"):
        dfa.delta[0, 0] = 0


def test_an_automaton_does_not_change_with_the_array_it_was_built_from() -> None:
    table = np.zeros((3, 1), dtype=np.int32)
    dfa = Dfa(("a",), ("x", "y"), 0, table[:2], (True, False))
    table[0, 0] = 1
    assert dfa.delta.tolist() == [[0], [0]]


@given(automata_with_words(2), st.integers(0, 12))
def test_a_word_with_an_unknown_symbol_is_refused_with_its_position(
    case: tuple[Dfa, tuple[str, ...]], place: int
) -> None:
    dfa, word = case
    place = min(place, len(word))
    with pytest.raises(InvalidWord, match=f"symbol '!' at position {place} is not") as caught:
        dfa.run((*word[:place], "!", *word[place:]))
    assert (caught.value.symbol, caught.value.position) == ("!", place)


@given(dfas())
def test_the_networkx_graph_has_every_state_and_edge(dfa: Dfa) -> None:
    graph = to_networkx(dfa)
    nodes = {name: node for name, node in graph.nodes(data=True)}  # noqa: C416 (the stubs know no other way)
    assert list(nodes) == list(dfa.states)
    assert {name: node["output"] for name, node in nodes.items()} == outputs(dfa)
    assert [name for name, node in nodes.items() if node["start"]] == [dfa.states[dfa.start]]
    found = sorted((a, data["symbol"], b) for a, b, data in graph.edges(data=True))
    assert found == sorted((a, symbol, b) for (a, symbol), b in edges(dfa).items())
