"""The decision table of single sources: what is built, what is refused, what stays open."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.compiler import compile_source
from statetrack.constructions.explain import Explanation, describe, explain
from statetrack.constructions.source import Options
from statetrack.constructions.targets import TARGETS, target
from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import named_group
from statetrack.theory.regex import parse_regex
from statetrack.theory.weighted import Wfa, from_matrices_dict
from tests.strategies import dfas, fewer

DIAGONAL = ("diag[0,1]", "diag[-1,1]")
NARROW = ("deltanet[0,1]", "gdn[0,1]", "kda[0,1]")
REFLECTIONS = ("deltanet", "gdn", "kda")
GENERATORS = Options("generators")
COUNTS = from_matrices_dict(
    {
        "semiring": "real",
        "alphabet": ["a"],
        "initial": [1, 0],
        "matrices": {"a": [[1, 1], [0, 1]]},
        "final": [0, 1],
    }
)


def rows(source: str | Dfa | Wfa, *targets: str, options: Options | None = None) -> dict[str, Explanation]:
    found = explain(source, targets or None, options=options)
    assert [row.target for row in found] == list(targets or TARGETS)
    return {row.target: row for row in found}


@pytest.mark.parametrize(
    ("source", "options", "layers"),
    [
        ("(b*ab*a)*b*", None, {"diag[-1,1]": 1, "deltanet": 1, "ckda": 1, "deltaproduct": 1, "unconstrained": 1}),
        ("(b*ab*ab*a)*b*", None, {"ckda": 1, "deltanet": 2, "gdn": 2, "kda": 2, "deltaproduct": 1, "unconstrained": 1}),
        ("(ab)*", None, dict.fromkeys((*DIAGONAL, *NARROW, "kda", "ckda", "deltaproduct"), 2) | {"unconstrained": 1}),
        ("perm:(1 2);(2 3);(3 4);(4 5)", GENERATORS, {"deltanet": 1, "gdn": 1, "kda": 1, "ckda": 1, "deltaproduct": 1}),
        ("S5", GENERATORS, {"deltanet": 4, "deltaproduct": 1}),
        ("D4", GENERATORS, {"diag[-1,1]": 3, "ckda": 1, "deltaproduct": 1, "unconstrained": 1}),
    ],
    ids=["parity", "mod 3", "(ab)*", "S5 transpositions", "S5", "D4"],
)
def test_no_more_layers_than_the_table_of_the_design(
    source: str, options: Options | None, layers: dict[str, int]
) -> None:
    found = rows(source, *layers, options=options)
    for name, most in layers.items():
        row = found[name]
        assert row.expressible is True, row.reason
        assert row.layers is not None
        assert row.layers <= most, name
        assert row.dims is not None
        assert len(row.dims) == row.layers
        assert row.beta_max is not None
        beta_max, factors = target(name).beta_max, target(name).factors
        assert beta_max is None or row.beta_max <= beta_max
        assert factors is None or (row.factors or 0) <= factors


def test_more_layers_than_the_table_are_known() -> None:
    """Where a table's digit needs floors, these are exact: a value before a reset takes two layers without gates."""
    assert {name: row.layers for name, row in rows("(ab)*", "deltanet", "gdn").items()} == {"deltanet": 3, "gdn": 3}


@pytest.mark.parametrize(
    ("source", "options", "refused"),
    [
        ("(b*ab*a)*b*", None, {"diag[0,1]", *NARROW}),
        ("(b*ab*ab*a)*b*", None, {*DIAGONAL, *NARROW}),
        ("(ab)*", None, set[str]()),
        ("perm:(1 2);(2 3)", GENERATORS, {*DIAGONAL, *NARROW}),
        ("D4", GENERATORS, {"diag[0,1]", *NARROW}),
    ],
    ids=["parity", "mod 3", "(ab)*", "S3", "D4"],
)
def test_what_cannot_be_done_is_refused_and_everything_else_is_built(
    source: str, options: Options | None, refused: set[str]
) -> None:
    found = rows(source, options=options)
    assert {name for name, row in found.items() if row.verdict == "NO"} == refused
    assert {name for name, row in found.items() if row.verdict == "YES"} == {*TARGETS} - refused
    for row in found.values():
        if row.expressible:
            assert (row.reason, row.witness) == (None, None)
            assert row.construction
            assert row.theorem
            assert row.proof in ("closure", "blocks", "stack")
            floors = row.target in (*DIAGONAL, *NARROW) and source == "(ab)*"
            assert str(row.semantics).startswith("states rounded down" if floors else "exact real arithmetic")
        else:
            assert row.theorem
            assert row.reason
            assert str(row.witness).startswith("repeating the word")
            assert (row.layers, row.dims, row.construction, row.proof) == (None,) * 4


@fewer(20)
@given(dfas(max_states=4, max_symbols=2), st.sampled_from(["diag[0,1]", "ckda", "deltanet", "unconstrained"]))
def test_a_row_says_what_a_build_gives(dfa: Dfa, name: str) -> None:
    (row,) = explain(dfa, [name])
    if row.expressible is not True:
        assert name == "diag[0,1]"
        return
    made = compile_source(dfa, name)
    said = (row.layers, row.dims, row.factors, row.construction, row.proof)
    assert said == (made.layers, made.dims, made.factors_per_token, made.plan.construction, made.certificate.kind)
    word = random.Random(0).choices(dfa.alphabet, k=30) if dfa.alphabet else []
    assert made.run(word) == dfa.run(word)


def test_too_small_a_bound_leaves_a_row_open() -> None:
    """a and b have no period alone, a b has period two; nothing shows that if one element is looked at."""
    table = np.array([[1, 4], [4, 2], [3, 4], [4, 0], [4, 4]], dtype=np.int32)
    four = Dfa(("a", "b"), tuple("0123z"), 0, table, (True, *(False,) * 4))
    assert rows(four, "diag[0,1]")["diag[0,1]"].verdict == "NO"
    few = Options(max_monoid=2)
    (row,) = explain(four, ["diag[0,1]"], options=few)
    assert (row.verdict, row.expressible, row.layers, row.witness) == ("UNKNOWN", None, None, None)
    assert row.reason
    facts = describe(four, few)
    assert "--max-monoid" in facts["unknown"]
    assert facts["monoid"] is None
    assert facts["periods"] is None
    assert "aperiodic: unknown" in facts["classes"]
    assert "unknown" not in describe(four)


def test_a_bound_on_states_leaves_rows_open_with_the_flag() -> None:
    (row,) = explain(parse_regex("[ab]*aba[ab]*"), ["diag[0,1]"], options=Options(max_states=3))
    assert row.verdict == "UNKNOWN"
    assert "--max-states" in str(row.reason)
    # One layer, whose certificate has six states: the bound is met after the plan.
    (row,) = explain(parse_regex("(aaaaaa)*"), ["ckda"], options=Options(max_states=3))
    assert row.verdict == "UNKNOWN"
    assert "--max-states" in str(row.reason)


def test_targets_are_named_and_counted() -> None:
    with pytest.raises(InvalidInput, match="no target"):
        explain("Z2", [])
    with pytest.raises(InvalidInput, match="know diag"):
        explain("Z2", ["ckda", "nowhere"])
    counted: list[int] = []
    explain("Z2", ["ckda", "kda", "ckda"], progress=counted.append)
    assert counted == [1, 2, 3]


@pytest.mark.parametrize(
    ("source", "facts"),
    [
        ("(ab)*", {"states": 3, "symbols": 2, "monoid": 6, "classes": ["aperiodic", "2-periodic"], "periods": [1]}),
        ("Z6", {"states": 6, "group_order": 6, "group_shape": "cyclic 6", "periods": [1, 2, 3, 6]}),
        ("[ab]*a[ab]", {"states": 4, "periods": [1]}),
        ("a*b*", {"classes": ["aperiodic", "2-periodic", "R-trivial"]}),
    ],
)
def test_an_automaton_is_described(source: str, facts: dict[str, object]) -> None:
    found = describe(source)
    assert {key: found[key] for key in facts} == facts
    assert ("2-definite" in found["classes"]) == (source == "[ab]*a[ab]")


def test_groups_automata_and_weighted_automata_are_sources() -> None:
    assert describe(named_group("S3"))["group_shape"] == "dihedral 3"
    assert explain(named_group("S3"), ["ckda"])[0].layers == 1
    assert describe(COUNTS) == {"source": "weighted automaton", "symbols": 1, "hankel_rank": 2}
    found = rows(COUNTS)
    assert {name for name, row in found.items() if row.expressible} == {
        name for name, goal in TARGETS.items() if goal.beta_max is None
    }
    for row in found.values():
        assert row.verdict in ("YES", "UNKNOWN")
        assert row.expressible is None or str(row.semantics).startswith("exact rational")
        assert (row.proof == "linear") == (row.target == "unconstrained")


def test_a_source_of_one_state_is_done_by_every_target() -> None:
    for row in explain("a*"):
        assert (row.verdict, row.layers, row.construction) == ("YES", 1, "trivial")
