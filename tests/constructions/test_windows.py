"""One layer that keeps the last tokens, for automata whose state those decide."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statetrack.api import Weights
from statetrack.constructions.certificate import certify
from statetrack.constructions.program import Factor, Program
from statetrack.constructions.source import Source, from_automaton, resolve
from statetrack.constructions.targets import TARGETS, target
from statetrack.constructions.weights import lower
from statetrack.constructions.windows import window_layer
from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.proofs_check import networks
from statetrack.theory.automata import Dfa
from tests.strategies import dfas, fewer

NAMES = tuple(name for name in TARGETS if name != "unconstrained")
DIGITS = ("diag[0,1]", "diag[-1,1]", "deltanet[0,1]", "gdn[0,1]", "kda[0,1]")
LONGEST = {name: 9 if name in DIGITS else 1 for name in NAMES} | {
    "ckda": 3,
    "ckda-wide": 3,
    "kda": 2,
    "kda-wide": 2,
    "deltaproduct": 2,
}


@st.composite
def last_letters(draw: st.DrawFn, max_length: int = 3, max_symbols: int = 3) -> Source:
    """A minimal automaton whose output is a table of the last k letters (fewer at the start)."""
    k, symbols = draw(st.integers(1, max_length)), draw(st.integers(1, max_symbols))
    pasts = [past for n in range(k + 1) for past in product(range(symbols), repeat=n)]
    number = {past: i for i, past in enumerate(pasts)}
    rows = [[number[(*past, a)[-k:]] for a in range(symbols)] for past in pasts]
    said = draw(st.lists(st.sampled_from("xyz"), min_size=len(pasts), max_size=len(pasts)))
    delta = np.array(rows, dtype=np.int32).reshape(len(pasts), symbols)
    names = tuple(str(i) for i in range(len(pasts)))
    return from_automaton("table", Dfa(tuple("abc"[:symbols]), names, 0, delta, tuple(said)))


def length_of(dfa: Dfa) -> int | None:
    """The least k such that words of k letters lead from all states to one; None if there is none."""
    apart = {(p, q) for p in range(len(dfa.states)) for q in range(p)}
    for k in range(len(apart) + 1):
        if not apart:
            return k
        moved = {(int(x), int(y)) for p, q in apart for x, y in zip(dfa.delta[p], dfa.delta[q], strict=True)}
        apart = {(max(pair), min(pair)) for pair in moved if pair[0] != pair[1]}
    return None


@given(st.sampled_from(NAMES), last_letters(), st.integers(0, 2**32))
@fewer(2)
def test_a_window_tracks_every_automaton_that_it_is_long_enough_for(name: str, source: Source, seed: int) -> None:
    dfa = source.dfa
    k = length_of(dfa)
    assert k is not None
    program = window_layer(source, name)
    if k == 0 or dfa.is_permutation() or k > LONGEST[name]:
        assert program is None
        return
    assert program is not None
    closed, certificate = certify(program, dfa, target(name), max_joint=5_000)
    assert networks.verify(certificate.text())["kind"] == "closure"
    assert (closed.depth, closed.factors_per_token <= 2) == (1, True)
    word = random.Random(seed).choices(dfa.alphabet, k=60)
    assert closed.run(word) == dfa.run(word)


@given(dfas(max_states=5), st.sampled_from(NAMES))
def test_a_window_is_not_used_where_the_last_letters_do_not_decide(dfa: Dfa, name: str) -> None:
    source = from_automaton("some", dfa)
    k = length_of(source.dfa)
    assume(k is None or k > LONGEST[name])
    assert window_layer(source, name) is None


@pytest.mark.parametrize("name", DIGITS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("length", [2, 3])
def test_digits_are_right_in_small_formats(name: str, dtype: str, length: int) -> None:
    source = resolve(f"[ab]*a[ab]{{{length - 1}}}")
    assert isinstance(source, Source)
    program = window_layer(source, name)
    assert program is not None
    assert program.layers[0].heads[0].unit == 1
    closed, certificate = certify(program, source.dfa, target(name))
    made = lower(closed, certificate, source.dfa, dtype)
    weights = Weights(made.dtype, made.tensors, made.certificate, made.automaton)
    trace = weights.run(random=4, length=400, device="cpu", executor="reference")
    assert (trace.tokens, trace.wrong) == (1600, 0)


@pytest.mark.parametrize(("name", "length"), [("ckda", 2), ("ckda", 3), ("kda", 2), ("deltaproduct", 2)])
def test_another_beta_or_gate_keeps_older_tokens_or_loses_one(name: str, length: int) -> None:
    source = resolve(f"[abc]*a[abc]{{{length - 1}}}")
    assert isinstance(source, Source)
    program = window_layer(source, name)
    assert program is not None
    certify(program, source.dfa, target(name))

    def changed(**fields: object) -> Program:
        layer = program.layers[0]
        heads = [replace(h, steps=tuple((*s[:-1], replace(s[-1], **fields)) for s in h.steps)) for h in layer.heads]
        return replace(program, layers=(replace(layer, heads=tuple(heads)),))

    factor = program.layers[0].heads[0].steps[0][-1]
    assert isinstance(factor, Factor)
    wrong = [changed(c=factor.c * Fraction(3, 4)), changed(b=None)]
    if factor.alpha is not None:
        wrong.append(changed(alpha=None))
    for broken in wrong:
        with pytest.raises((CertificateFailed, BudgetExceeded)):
            certify(broken, source.dfa, target(name), max_joint=300)


def test_digits_without_a_floor_do_not_end() -> None:
    source = resolve("[ab]*a[ab]")
    assert isinstance(source, Source)
    program = window_layer(source, "diag[0,1]")
    assert program is not None
    layer = program.layers[0]
    bare = replace(program, layers=(replace(layer, heads=tuple(replace(h, unit=None) for h in layer.heads)),))
    with pytest.raises((CertificateFailed, BudgetExceeded)):
        certify(bare, source.dfa, target("diag[0,1]"), max_joint=500)


def test_a_window_of_too_many_contents_is_left_to_others() -> None:
    source = resolve("[ab]*a[ab]{10}")
    assert isinstance(source, Source)
    assert window_layer(source, "diag[0,1]") is None
