"""Closing, certifying and refusing: what `certify` proves, and that broken programs are not certified."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statetrack.constructions import trackers
from statetrack.constructions.certificate import certify, digest_of
from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.margins import margin
from statetrack.constructions.program import Factor, Head, Layer, Lookup, Program, rank_one
from statetrack.constructions.reading import automaton_of, program_of, target_of
from statetrack.constructions.source import resolve
from statetrack.constructions.targets import TARGETS, target, validate
from statetrack.errors import BudgetExceeded, CertificateFailed, InvalidInput, OutOfRange
from statetrack.proofs_check import checker
from statetrack.theory.arrays import identity, vector
from statetrack.theory.automata import Dfa, from_table
from statetrack.theory.number_fields import quadratic, rationals
from tests.strategies import dfas, permutation_dfas

BUILT = [
    ("Z5", "ckda"),
    ("D4", "ckda"),
    ("A4", "ckda"),
    ("S4", "deltaproduct"),
    ("Z6", "deltanet"),
    ("Z2xZ2", "diag[-1,1]"),
    ("(ab)*", "unconstrained"),
    ("A4xZ2", "ckda"),
]


@pytest.mark.parametrize(("source", "goal"), BUILT)
def test_the_independent_checker_accepts_and_counts_the_same(source: str, goal: str) -> None:
    made = compile_source(source, goal)
    facts = checker.verify(made.certificate.text(), made.certificate.digest)
    assert (facts["joint"], facts["target"]) == (made.certificate.joint, goal)
    assert [m and m.bound for row in made.certificate.margins for m in row] == facts["margins"]


@pytest.mark.parametrize(("source", "goal"), BUILT)
def test_a_program_read_back_from_its_certificate_gets_the_same_certificate(source: str, goal: str) -> None:
    made = compile_source(source, goal)
    data = json.loads(made.certificate.text())
    again, certificate = certify(program_of(data), automaton_of(data), target_of(data))
    assert certificate.digest == made.certificate.digest == digest_of(data)
    assert again.dims == made.dims


def flip_flop(letters: tuple[tuple[str, int | None], ...]) -> tuple[Program, Dfa]:
    """Set and reset by one affine factor a letter: w = e_i, c = 1 twice, so any reset needs two factors."""
    field = rationals()
    one = identity(field, 2)
    states = ["0", "1"]
    edges = {(q, name): q if to is None else str(to) for q in states for name, to in letters}
    dfa = from_table([name for name, _ in letters], states, "0", edges, {"1": True})
    steps = [
        () if to is None else tuple(Factor(one[i], field.one, None, rank_one(one[i], [int(i == to)])) for i in range(2))
        for _, to in letters
    ]
    head = Head((one[0],), tuple(steps), (vector(field, (0, 1)),), Lookup(lambda key: (key[0], 0)))
    return Program(field, dfa.alphabet, (Layer((head,)),), dfa.outputs, False), dfa


def test_additive_terms_are_certified_and_checked() -> None:
    program, dfa = flip_flop((("hold", None), ("set", 1), ("reset", 0)))
    closed, certificate = certify(program, dfa, target("deltaproduct"))
    assert checker.verify(certificate.text())["joint"] == 2
    assert closed.run(["set", "hold", "reset", "hold", "set"]) == (True, True, False, False, True)
    with pytest.raises(OutOfRange, match="2 factors"):
        certify(program, dfa, target("deltanet"))


def test_a_layer_above_reads_the_layer_below() -> None:
    made = compile_source("Z9", "deltanet")
    assert len(made.program.layers[1].heads[0].choose.seen) == 18
    assert made.certificate.data["layers"][1]["inputs"][0][0] == [0, 0]


def test_two_words_that_the_network_confuses_are_named() -> None:
    source = resolve("Z3")
    program = trackers.planar(source, gates=True)
    assert program is not None
    wrong = replace(source.dfa, delta=source.dfa.delta[:, [0, 1, 1]])
    with pytest.raises(CertificateFailed, match="decoder after the word"):
        certify(program, wrong, target("ckda"))


def test_a_query_on_a_mirror_is_refused() -> None:
    source = resolve("D3")
    program = trackers.planar(source, gates=True)
    assert program is not None
    head = program.layers[0].heads[0]
    blind = Head(head.h0, head.steps, (vector(program.field, (1, 0)),), head.choose)
    with pytest.raises(CertificateFailed):
        certify(replace(program, layers=(Layer((blind,)),)), source.dfa, target("ckda"))


def test_an_infinite_orbit_ends_at_the_budget() -> None:
    field = rationals()
    grow = Factor(vector(field, (1,)), field.zero, None, (vector(field, (1,)),))
    dfa = from_table(["a"], ["x", "y"], "x", {("x", "a"): "y", ("y", "a"): "x"}, {"x": True})
    head = Head((vector(field, (0,)),), ((grow,),), (vector(field, (1,)),), Lookup(lambda key: (0, 0)))
    program = Program(field, dfa.alphabet, (Layer((head,)),), dfa.outputs, True)
    with pytest.raises(BudgetExceeded, match="--max-states"):
        certify(program, dfa, target("diag[0,1]"), max_joint=1000)


def test_the_span_proof_needs_no_finite_orbit() -> None:
    # A second coordinate doubles at every step and is never read.
    field = rationals()
    from statetrack.constructions.program import Dense

    one = (Dense(tuple(vector(field, row) for row in ((0, 1, 0), (1, 0, 0), (0, 0, 2)))),)
    dfa = from_table(["a"], ["x", "y"], "x", {("x", "a"): "y", ("y", "a"): "x"}, {"x": True})
    head = Head((vector(field, (1, 0, 1)),), (one,), (vector(field, (1, 2, 0)),), Lookup(lambda key: (0, 0)))
    program = Program(field, dfa.alphabet, (Layer((head,)),), dfa.outputs, True)
    closed, certificate = certify(program, dfa, target("unconstrained"), proof="span")
    assert certificate.kind == checker.verify(certificate.text())["kind"] == "span"
    assert closed.run("aaa") == (False, True, False)
    with pytest.raises(BudgetExceeded):
        certify(program, dfa, target("unconstrained"), max_joint=100)


@settings(max_examples=60)
@given(dfas(max_states=5, max_symbols=3), st.data())
def test_the_span_proof_holds_for_any_automaton_and_refuses_a_swapped_edge(dfa: Dfa, data: st.DataObject) -> None:
    made = compile_source(dfa, "unconstrained", proof="span" if dfa.alphabet else "closure")
    if made.certificate.kind != "span" or len(made.source.dfa.states) < 2:
        return
    assert checker.verify(made.certificate.text())["kind"] == "span"
    delta = made.source.dfa.delta.copy()
    q = data.draw(st.integers(0, delta.shape[0] - 1))
    a = data.draw(st.integers(0, delta.shape[1] - 1))
    delta[q, a] = (delta[q, a] + 1) % delta.shape[0]
    with pytest.raises(CertificateFailed):
        certify(made.program, replace(made.source.dfa, delta=delta), target("unconstrained"), proof="span")


@settings(max_examples=60)
@given(permutation_dfas(max_states=5, max_symbols=3), st.data())
def test_a_changed_edge_is_refused_or_makes_another_true_claim(dfa: Dfa, data: st.DataObject) -> None:
    made = compile_source(dfa, "deltaproduct")
    minimal = made.source.dfa
    if len(minimal.states) < 2:
        return
    delta = minimal.delta.copy()
    q = data.draw(st.integers(0, delta.shape[0] - 1))
    a = data.draw(st.integers(0, delta.shape[1] - 1))
    delta[q, a] = (delta[q, a] + data.draw(st.integers(1, len(minimal.states) - 1))) % len(minimal.states)
    changed = replace(minimal, delta=delta)
    try:
        closed, _ = certify(made.program, changed, target("deltaproduct"))
    except CertificateFailed:
        return
    # The start is not read before the first letter, so some changed automata are tracked too.
    for word in product(changed.alphabet, repeat=6):
        assert closed.runner.symbols(word) == changed.trace(word)


def test_margins_are_exact_and_the_claimed_bound_is_below() -> None:
    made = compile_source("Z3", "ckda")
    (found,) = made.certificate.margins[0]
    assert found is not None
    assert found.squared == 3
    step = Fraction(1, 10**15)
    assert found.bound**2 <= 3 < (found.bound + step) ** 2
    assert (found.bound / step).denominator == 1
    assert found.unit == pytest.approx(3**0.5)


@pytest.mark.parametrize("exponent", [0, 14, 15, 16, 29, 40])
def test_a_margin_of_any_size_has_a_bound_that_is_at_least_half_of_it(exponent: int) -> None:
    field, distance = rationals(), Fraction(7, 3 * 10**exponent)
    readouts = [(field(0),), (field(distance),)]
    found = margin(readouts, np.array([[0.0], [float(distance)]]), np.array([0, 1], dtype=np.int32), 1.0)
    assert found is not None
    assert found.squared == field(distance**2)
    assert distance / 2 < found.bound <= distance


@pytest.mark.parametrize(
    ("name", "least"),
    [("Z60", 0.1046), ("D7", 0.4450), ("A4", 1.0510), ("S4", 0.7430), ("A5", 0.1260), ("S5", 0.4472)],
)
def test_queries_reach_the_margins_of_the_table(name: str, least: float) -> None:
    made = compile_source(name, "deltaproduct" if name == "S5" else "ckda")
    assert made.margin is not None
    assert made.margin.unit >= least


def test_ranges_are_checked_exactly() -> None:
    made = compile_source("Z5", "ckda")
    for goal in ("kda", "gdn", "deltanet", "deltaproduct", "diag[-1,1]"):
        with pytest.raises(OutOfRange, match="layer 1 head 0"):
            validate(made.program, TARGETS[goal])
    field = rationals()
    just_over = Factor(vector(field, (1, 1)), field("1000001/1000000"))
    head = Head(identity(field, 2), ((just_over,),), (vector(field, (1, 0)),), Lookup(lambda key: (0, 0)))
    program = Program(field, ("a",), (Layer((head,)),), (True,), True)
    with pytest.raises(OutOfRange, match="β"):
        validate(program, TARGETS["deltanet"])


def test_a_compiled_object_needs_the_certificate_of_its_digest() -> None:
    made = compile_source("Z3", "ckda")
    with pytest.raises(CertificateFailed, match="digest"):
        Compiled(made.source, made.target, made.plan, made.program, replace(made.certificate, digest="0" * 64))


def test_a_field_outside_the_cyclotomic_family_is_refused() -> None:
    field = quadratic(7)
    head = Head((vector(field, (1,)),), ((),), (vector(field, (1,)),), Lookup(lambda key: (0, 0)))
    dfa = from_table(["a"], ["x"], "x", {("x", "a"): "x"}, {})
    program = Program(field, ("a",), (Layer((head,)),), (False,), False)
    with pytest.raises(InvalidInput, match="cyclotomic"):
        certify(program, dfa, target("ckda"))
