"""Claims about weights in number formats: right for ever, how far off they may be, proved lengths, renormalising.

What was measured on a device (`benchmarks/results/for-ever-h200.json`) is read as a measurement: it can refute, and is
noted as "measured" beside the proof, which never rests on it.

Main results: OURS-for-ever-offset, OURS-for-ever-plane, OURS-dyadic-keys, OURS-offset-basin, OURS-horizon-holds,
OURS-no-self-correction, OURS-renormalised.

References: docs/precision.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.dyadic_keys import KeyRule
from statetrack.constructions.encodings import lowered, offset, recertified, restarted
from statetrack.constructions.float_closure import FloatClosure, Open, close_floats, ideal_of
from statetrack.constructions.float_network import Fails, FloatNetwork, failing_word, shortest_failing_word
from statetrack.constructions.float_steps import HeadTables
from statetrack.constructions.horizons import horizon_of, renormalised_horizon
from statetrack.constructions.source import Options
from statetrack.constructions.weights import FORMATS, Weights
from statetrack.theory.automata import shortest_words
from statetrack.theory.number_formats import number_format

from . import float_checker
from .claim import Trial, claim

_MEASURED = Path(__file__).parents[2] / "benchmarks" / "results" / "for-ever-h200.json"
SHORT = ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
ROOT = 0.5**0.5
GROUPS = (("S4", "ckda"), ("D5", "ckda"), ("A4", "ckda"))
# Start vectors in the plane, found by `encodings.plane_starts`: the tables' format and rule for keys, and H_0.
STARTS: dict[int, tuple[str, KeyRule, tuple[tuple[str, str], tuple[str, str]]]] = {
    5: ("bfloat16", "dyadic", (("5/8", "-19/16"), ("-15/16", "-123/128"))),
    7: ("bfloat16", "dyadic", (("81/64", "37/256"), ("-217/512", "77/64"))),
    10: ("bfloat16", "dyadic", (("65/64", "-65/64"), ("41/32", "167/256"))),
    16: ("bfloat16", "dyadic", (("187/256", "65/64"), ("-65/64", "187/256"))),
    20: ("bfloat16", "dyadic", (("65/64", "-65/64"), ("65/64", "65/64"))),
    24: ("float32", "unit", (("205/128", "-91/512"), ("-93/512", "-205/128"))),
}


def closed(
    t: Trial, made: Compiled, tables: str, storage: str, keys: KeyRule = "unit", again: bool = True
) -> FloatClosure | Open:
    """The float closure of a program; a proof that is found is checked `again` by the independent checker."""
    weights = lowered(made.program, made.certificate, made.automaton, tables, storage, keys)
    found = close_floats(weights, ideal_of(made.program, weights.dfa), max_columns=5_000)
    if isinstance(found, FloatClosure) and again:
        try:
            facts = float_checker.verify_bytes(replace(weights, float_proof=found.proof).to_bytes())
        except float_checker.Refused as error:
            t.holds(f"proof of {made.source.name} in {storage} accepted", False, error)
            raise
        t.equal(f"class of {made.source.name} in {storage}", facts["class"], found.kind)
    t.count("float columns", found.columns)
    return found


def is_for_ever(t: Trial, what: str, found: FloatClosure | Open, kinds: str) -> None:
    """Refute unless there is a proof of one of these classes."""
    t.holds(f"{what} is right for ever", isinstance(found, FloatClosure), getattr(found, "reason", ""))
    t.holds(f"{what} is of class {' or '.join(kinds)}", found.kind in kinds, found.kind)


def measured(t: Trial, sources: Sequence[str], tables: str | None = None) -> None:
    """What a device said of runs (with these tables), if its file is at hand.

    A wrong state refutes; that there was none is noted, and proves nothing.
    """
    if not _MEASURED.is_file():
        return
    data: dict[str, Any] = json.loads(_MEASURED.read_text(encoding="utf-8"))
    rows = [row for row in data["rows"] if row["source"] in sources and "tokens" in row]
    rows = [row for row in rows if tables in (None, row["table_format"])]
    wrong = [row["source"] for row in rows if row["wrong"] or row["outside"]]
    t.equal("measured: wrong states or columns outside the proved set", wrong, [])
    total = sum(row["tokens"] for row in rows)
    if total:
        t.notes.append(f"measured: {total:,} tokens in {len(rows)} runs on {data['device']}, no wrong state")


def swap(tables: str, storage: str, key: tuple[float, float], beta: float) -> HeadTables:
    """The tables of a head with one step, a swap of two rows, for a state in `storage`."""
    kind = FORMATS[tables]
    own = {
        "keys": np.array([[key]]),
        "betas": np.array([[beta]]),
        "gates": np.ones((1, 1, 2)),
        "queries": np.array([[1.0, 0.0]]),
    }
    rounded: dict[str, Any] = {name: table.astype(kind).astype(np.float32) for name, table in own.items()}
    return HeadTables(
        **rounded,
        state=np.zeros((2, 1), dtype=np.float32),
        codebook=np.zeros((1, 1), dtype=np.float32),
        labels=np.zeros(1, dtype=np.int32),
        storage=number_format(storage),
    )


def swaps(tables: HeadTables, low: int = 1) -> bool:
    """Whether the step swaps every pair of low and low + 1, bit for bit; the sum of two products has one order."""
    rows = np.array(list(product((low, low + 1), repeat=2)), dtype=np.float32)
    moved, sure = tables.step(np.zeros(len(rows), dtype=np.int64), rows, 0)
    return bool(sure.all()) and np.array_equal(moved, rows[:, ::-1])


def most_points(form: str) -> int:
    """Points up to which the format holds every ramp, and float32 every sum of one times a state: 17 in e4m3."""
    return min(int(1 / number_format(form).unit) + 1, 2049)


def holds_ramps(t: Trial, form: str) -> None:
    """The read-out's numbers are whole and exact for these numbers of points, and not for the next."""
    most, kind = most_points(form), FORMATS[form]
    worst = [max(n - 1 if n % 2 == 0 else n // 2 for n in range(1, m + 1)) for m in (most, most + 1)]
    exact = [float(np.array(x).astype(kind)) == x for x in (*range(worst[0] + 1), worst[1])]
    t.holds(f"ramps of up to {most} points in {form}", all(exact[:-1]))
    t.holds(f"none of {most + 1} in {form}", most == 2049 or not exact[-1])


@claim(
    "OURS-for-ever-offset",
    "With H_0 = I + J and steps that are products of swaps every permutation group of up to 17 points in e4m3, 257 in "
    "bf16, 2,049 in fp16 and fp32 is tracked for ever: each step rounds back to the exact state.",
    source="docs/precision.md (offset)",
    kinds="X CL",
    control={"low": 0},
    hypotheses=("recurrent order, rounding to nearest",),
    proves=True,
)
def for_ever_offset(t: Trial, low: int = 1) -> None:
    """A swap touches two rows, with entries low and low + 1; the others have key 0, add zeros to z and lose zeros.

    So for every number of points four pairs are all that can happen: checked on bit patterns. Readouts are whole
    numbers with sums below 2^24, exact while the format holds the ramp that reads them. Groups as examples, by search
    and independent checker. The control starts at I.
    """
    for form in ("float32", *SHORT[:3]):
        holds_ramps(t, form)
        t.holds(f"pairs swapped in {form}", swaps(swap(form, form, (ROOT, -ROOT), 2.0), low))
    for name in ("S4", "A5", "S5")[: t.amount(1, 3)]:
        made = compile_source(name, "deltaproduct", construction="permutation")
        moved = offset(made.program)
        again = None if moved is None else recertified(made, moved)
        assert again is not None
        for form in ("float32", *SHORT[:3]):
            is_for_ever(t, f"{name} in {form}", closed(t, again, form, form), "R")
    measured(t, ["S5", "S4", "A5"])


@claim(
    "OURS-offset-basin",
    "With H_0 = I + J a state in bf16, fp16, e4m3 or e5m2 corrects every relative error of keys and β up to u/20, u "
    "the state's unit roundoff: permutation groups of up to 2,049 points stay right for ever.",
    source="docs/precision.md (basin)",
    kinds="E X",
    control={"share": 6},
    hypotheses=("tables and arithmetic in float32", "swaps; recurrent order, rounding to nearest"),
    proves=True,
)
def offset_basin(t: Trial, share: int = 20) -> None:
    """A swap gives s_i - β k_i (k_i s_i + k_j s_j), s_j without errors.

    Errors ε of β and both keys, six roundings v = 2^-24 in each product and one in the difference move it by at most
    ((1 + ε)³(1 + v)⁶ - 1)(s_i + s_j) + 2v (s_i + s_j), which must be below half the gap under s_j: u/2 under 1, u under
    2. ε has v added for the tables. All corners of the box of errors on bit patterns too.
    """
    v = Fraction(1, 1 << 24)
    for form in SHORT:
        u = number_format(form).unit
        error = u / share
        for a, b, c in product((-1, 1), repeat=3):
            one, two, beta = (1 + float(x * error) for x in (a, b, c))
            t.holds(f"corner {a, b, c} in {form}", swaps(swap("float32", form, (ROOT * one, -ROOT * two), 2 * beta)))
        for x, y in product((1, 2), repeat=2):
            off = ((1 + error + v) ** 3 * (1 + v) ** 6 - 1 + 2 * v) * (x + y)
            t.holds(f"{x} becomes {y} in {form}", off < y * u / 2, float(off))


@claim(
    "OURS-for-ever-plane",
    "From start vectors that were found, one head in the plane tracks Z_5, Z_7, Z_10, Z_16 and Z_20 for ever in bf16, "
    "tables too, and Z_24 with tables in fp32.",
    source="docs/precision.md (start vectors, dyadic keys)",
    kinds="CL",
    control={"rule": "unit"},
    hypotheses=("recurrent order, rounding to nearest",),
    proves=True,
)
def for_ever_plane(t: Trial, rule: KeyRule = "dyadic") -> None:
    """The float closures, each checked again in integers; the control has unit keys in bf16."""
    for m, (tables, keys, h0) in STARTS.items():
        made = compile_source(f"Z{m}", "ckda", construction="planar")
        field = made.program.field
        start = tuple(tuple(field(Fraction(x)) for x in column) for column in h0)
        again = recertified(made, restarted(made.program, start))
        assert again is not None
        found = closed(t, again, tables, "bfloat16", rule if keys == "dyadic" else keys)
        is_for_ever(t, f"Z{m} with {tables} tables", found, "C")
        measured(t, [f"Z{m}"], tables)


@claim(
    "OURS-dyadic-keys",
    "With keys of any length no operation rounds where β k kᵀ is dyadic: permutations from H_0 = I are tracked for "
    "ever (up to 9 points in e5m2, else as in OURS-for-ever-offset), S4 by quaternions with one factor a token in "
    "fp32, bf16 and fp16.",
    source="docs/precision.md (class E)",
    kinds="CL",
    control={"rule": "unit"},
    hypotheses=("recurrent order, rounding to nearest",),
    proves=True,
)
def dyadic(t: Trial, rule: KeyRule = "dyadic") -> None:
    """Swaps of pairs of 0 and 1 in every format, and the ramps that read them, as in OURS-for-ever-offset; closures."""
    for form in ("float32", *SHORT):
        holds_ramps(t, form)
        key, beta = ((1.0, -1.0), 1.0) if rule == "dyadic" else ((ROOT, -ROOT), 2.0)
        t.holds(f"pairs swapped in {form}", swaps(swap(form, form, key, beta), 0))
    made = compile_source("S4", "deltaproduct", construction="permutation")
    for form in ("float64", "float32", *SHORT):
        is_for_ever(t, f"permutations in {form}", closed(t, made, form, form, rule), "E")
    made = compile_source("S4", "ckda", construction="quaternion")
    for form in ("bfloat16", "float16", "float32")[: t.amount(1, 3)]:
        found = closed(t, made, form, form, rule, again=t.budget != "fast")
        is_for_ever(t, f"quaternions in {form}", found, "E")


@claim(
    "OURS-horizon-holds",
    "No word within the proved horizon fails: neither the shortest failing word of all, nor one found by a search for "
    "narrow decodings.",
    source="docs/precision.md (the bound)",
    kinds="P",
    control={"stretch": 100},
)
def horizon_holds(t: Trial, stretch: int = 1) -> None:
    """Trackers and formats in which some word fails soon; the control claims a horizon a hundred times as long."""
    cases = [("Z7", "float8_e4m3fn", "float8_e4m3fn"), ("Z12", "float8_e4m3fn", "float8_e4m3fn")]
    cases += [("Z60", "bfloat16", "bfloat16"), ("D5", "bfloat16", "bfloat16"), ("Z60", "float32", "bfloat16")]
    for name, tables, storage in cases[: t.amount(4, 5)]:
        made = compile_source(name, "ckda", construction="planar")
        weights = lowered(made.program, made.certificate, made.automaton, tables, storage)
        found = shortest_failing_word(weights, max_states=t.amount(1_000, 20_000))
        if not isinstance(found, Fails):
            found = failing_word(weights, width=t.amount(40, 300), max_depth=300)
        if isinstance(found, Fails):
            horizon = horizon_of(weights) * stretch
            t.holds(f"{name} in {storage}: horizon {horizon:.0f}", horizon < len(found.word), len(found.word))
            t.count("failing words")


@claim(
    "OURS-no-self-correction",
    "No step of a group's tracker reduces errors in the span of its exact states: it permutes the exact columns, so a "
    "power of it is the identity there.",
    source="docs/precision.md (renormalising)",
    kinds="E CL",
    control={"sources": (("(a|b)*abb", "kda"),)},
    hypotheses=("exact arithmetic", "each letter acts on the exact columns one to one"),
    proves=True,
)
def no_correction(t: Trial, sources: tuple[tuple[str, str], ...] = GROUPS) -> None:
    """An injective map of a finite set is a permutation; a linear map that permutes vectors has finite order on their
    span. Checked for all columns and letters; the control is an automaton with resets, which forget errors.
    """
    for source, goal in sources:
        made = compile_source(source, goal)
        weights = lowered(made.program, made.certificate, made.automaton, "float64", "float64")
        for head in ideal_of(made.program, weights.dfa).heads:
            inputs = {n for _, n in head.moves}
            images = {n: [d for (_, m), d in head.moves.items() if m == n] for n in inputs}
            t.holds(f"letters of {source} are one to one", all(len(set(x)) == len(x) for x in images.values()))


@claim(
    "OURS-renormalised",
    "A run whose state is replaced every n tokens by that after a shortest word to the decoded state is right for ever "
    "if n and the longest such word are within the proved horizon.",
    source="docs/precision.md (renormalising)",
    kinds="P",
    control={"late": 200},
    hypotheses=("recurrent order, rounding to nearest",),
    proves=True,
)
def renormalised(t: Trial, late: int = 0) -> None:
    """Between replacements it is the run of a word of n letters after a shortest one. Z_60 and D_5 in bf16, random
    words; shortest words have one letter, and three. One token more is not proved.
    """
    for name, letters in (("Z60", "all"), ("D5", "generators")):
        made = compile_source(name, "ckda", construction="planar", options=Options(letters=letters))
        weights = lowered(made.program, made.certificate, made.automaton, "bfloat16", "bfloat16")
        words = shortest_words(weights.dfa.delta.tolist(), weights.dfa.start).values()
        most = int(horizon_of(weights)) - max(map(len, words))
        t.equal(f"{name}: horizon with replacements", renormalised_horizon(weights, most + late), float("inf"))
        t.holds(f"{name}: not with one token more", renormalised_horizon(weights, most + 1) < float("inf"))
        t.equal(f"{name}: wrong answers", wrong_answers(t, weights, most + late, t.amount(250, 2500)), 0)


def wrong_answers(t: Trial, weights: Weights, every: int, length: int) -> int:
    """Answers of 8 random words that are not the automaton's, with replacements."""
    network, dfa, words = FloatNetwork(weights), weights.dfa, 8
    reached = shortest_words(dfa.delta.tolist(), dfa.start)
    fresh = np.repeat(network.start, len(dfa.states), axis=0)
    for state, word in reached.items():
        for token in word:
            fresh[state] = network.advance(fresh[state : state + 1], np.array([token], dtype=np.int32))[0][0]
    rows, truth, wrong = np.repeat(network.start, words, axis=0), np.full(words, dfa.start), 0
    for time in range(1, length + 1):
        tokens = np.array(t.random.choices(range(len(dfa.alphabet)), k=words), dtype=np.int32)
        rows, answers = network.advance(rows, tokens)
        truth = dfa.delta[truth, tokens]
        wrong += int((answers != truth).sum())
        rows = fresh[np.maximum(answers, 0)] if time % every == 0 else rows
    return wrong
