"""The search of words column by column against the search of joint states, and the known numbers of Z_60."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from statetrack import api
from statetrack.constructions.column_search import search_column, search_words
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_closure import Ideal, ideal_of
from statetrack.constructions.float_network import (
    Fails,
    FloatNetwork,
    RightForEver,
    RightUpTo,
    shortest_failing_word,
)
from statetrack.constructions.row_store import RowStore
from statetrack.constructions.weights import Weights
from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa

CASES = [
    ("Z7", "ckda", "float8_e4m3fn"),
    ("Z12", "ckda", "float8_e4m3fn"),
    ("Z5", "ckda", "float8_e5m2"),
    ("S3", "deltaproduct", "float8_e5m2"),
    ("Z5", "deltanet", "float8_e5m2"),
    ("(ab)*", "unconstrained", "float8_e4m3fn"),
]


@cache
def built(source: str, target: str) -> tuple[api.Compiled, Ideal]:
    c = api.build(source, target, check=False)
    assert isinstance(c.automaton, Dfa)
    return c, ideal_of(c.program, c.automaton)


def case(source: str, target: str, dtype: str, storage: str | None = None) -> tuple[Weights, Ideal]:
    c, ideal = built(source, target)
    return lowered(c.program, c.certificate, c.automaton, dtype, storage or dtype), ideal


def first_wrong(weights: Weights, word: tuple[str, ...]) -> int | None:
    answers, state = FloatNetwork(weights).run(word), weights.dfa.start
    for at, token in enumerate(weights.dfa.encode(word)):
        state = int(weights.dfa.delta[state, token])
        if answers[at] != state:
            return at
    return None


@pytest.mark.parametrize(("source", "target", "dtype"), CASES)
def test_columns_and_joint_states_agree_on_the_shortest_failing_word(source: str, target: str, dtype: str) -> None:
    weights, ideal = case(source, target, dtype)
    found = search_words(weights, ideal, max_columns=50_000, max_joint=200_000)
    whole = shortest_failing_word(weights, max_states=30_000)
    if isinstance(whole, Fails):
        assert found.depth <= len(whole.word) - 1
        assert found.fails is not None
        assert len(found.fails.word) >= len(whole.word)
        assert first_wrong(weights, found.fails.word) == len(found.fails.word) - 1
        if found.is_shortest:
            assert len(found.fails.word) == len(whole.word)
    elif isinstance(whole, RightForEver):
        assert found.fails is None
    else:
        assert isinstance(whole, RightUpTo)
        assert found.fails is None or len(found.fails.word) > whole.depth
    assert found.any_order <= found.depth


def test_some_of_these_words_are_proved_to_be_shortest_and_some_sets_are_closed() -> None:
    found = [search_words(*case(*names), max_columns=50_000, max_joint=200_000) for names in CASES]
    assert sum(f.is_shortest for f in found) >= 2
    assert any(f.closed for f in found)


@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize(("tables", "length"), [("bfloat16", 10), ("float32", 35)])
def test_a_vector_of_sixty_steps_is_lost_after_10_and_35_letters_in_bfloat16(
    tables: str, length: int, column: int
) -> None:
    weights, ideal = case("Z60", "ckda", tables, "bfloat16")
    found = search_column(weights, ideal, column=column)
    assert found.fails is not None
    assert found.is_shortest
    assert (found.depth, found.any_order, len(found.fails.word)) == (length - 1, length - 1, length)
    # Literally, with the exact rotation beside it: more than half a step off, and after no prefix.
    tables_of, state = FloatNetwork(weights).heads[0], weights.dfa.start
    row = np.ascontiguousarray(tables_of.state.T[column : column + 1])
    for at, token in enumerate(weights.dfa.encode(found.fails.word)):
        row, _ = tables_of.step(np.array([token]), row, column)
        state = int(weights.dfa.delta[state, token])
        exact = np.arctan2(row[0, 1], row[0, 0]) - np.pi / 2 * column
        steps = (exact / (2 * np.pi / 60)) % 60
        places = {(state - steps) % 60, (-state - steps) % 60}
        off = min(min(x, 60 - x) for x in places)
        assert (off >= 0.5) == (at == length - 1)


def test_a_vector_of_sixty_steps_is_followed_far_in_float16() -> None:
    weights, ideal = case("Z60", "ckda", "float32", "float16")
    found = search_column(weights, ideal, max_columns=200_000)
    assert found.fails is None
    assert not found.closed
    assert found.depth >= 30


def test_choices_of_columns_prove_more_than_joint_states_for_sixty_steps_in_bfloat16() -> None:
    weights, ideal = case("Z60", "ckda", "bfloat16", "bfloat16")
    found = search_words(weights, ideal, max_joint=100_000)
    assert found.depth >= 7
    assert found.fails is not None
    assert 7 < len(found.fails.word) <= 12
    assert first_wrong(weights, found.fails.word) == len(found.fails.word) - 1
    joint = shortest_failing_word(weights, max_states=20_000)
    assert isinstance(joint, RightUpTo)
    assert joint.depth < found.depth


def test_a_budget_of_columns_or_of_length_ends_the_search() -> None:
    weights, ideal = case("Z60", "ckda", "float32", "float16")
    assert search_words(weights, ideal, max_depth=3).depth == 3
    met: list[int] = []
    found = search_words(weights, ideal, max_columns=5_000, max_depth=9, progress=met.append)
    assert found.depth < search_words(weights, ideal, max_columns=40_000, max_depth=9).depth
    assert met
    assert met == sorted(met)


def test_tables_that_overflow_prove_nothing() -> None:
    weights, ideal = case("Z7", "ckda", "float8_e4m3fn")
    tensors = dict(weights.tensors)
    tensors["layers.0.queries"] = np.full_like(tensors["layers.0.queries"], np.nan)
    broken = replace(weights, tensors=tensors)
    assert search_words(broken, ideal).depth == 0
    assert search_column(broken, ideal).depth == 0


def test_one_column_is_searched_in_one_layer_only() -> None:
    weights, ideal = case("Z7", "deltanet", "bfloat16")
    with pytest.raises(InvalidInput, match="one layer"):
        search_column(weights, ideal)


def test_rows_have_one_number_each_and_are_found_again() -> None:
    rng, store, known = np.random.default_rng(4), RowStore(3, np.uint16), dict[tuple[int, ...], int]()
    for _ in range(40):
        rows = rng.integers(0, 12, (300, 3)).astype(np.uint16)
        labels = rng.integers(0, 3, 300).astype(np.int32)
        numbers, fresh = store.add(rows, labels)
        keys = [(*row, label) for row, label in zip(rows.tolist(), labels.tolist(), strict=True)]
        expected = [known.setdefault(key, len(known)) for key in keys]
        assert numbers.tolist() == expected
        assert len(store) == len(known)
        assert np.array_equal(store.rows[numbers[fresh]], rows[fresh])
    unknown = store.find(np.full((2, 3), 99, dtype=np.uint16), np.zeros(2, dtype=np.int32))
    assert unknown.tolist() == [-1, -1]
