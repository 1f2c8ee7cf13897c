"""Other starts and other constructions of the same tracker, searched for one that is right for ever in a format.

An encoding changes where the state starts, in which formats tables and state are kept, and how long keys are, never
what is computed in exact arithmetic: each candidate is certified like any other program, and then closed in floats.

*plain*: the program as it is. *offset*: H_0 + J with all-ones columns J that every step fixes (permutations do): where
one-hot states keep rounding residues near 0, the residues next to 1 and 2 are rounded away. *vectors*: in the plane,
other start vectors; some have an orbit that rounding leads back into itself. Each of them with unit keys or *dyadic*
ones (`dyadic_keys`).

Main definitions: `Encoded`, `encode_for_ever`, `offset`, `restarted`, `recertified`, `plane_starts`, `basin`.

References: docs/precision.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np

from statetrack.errors import BudgetExceeded, CertificateFailed, NoConstruction, NotExpressible
from statetrack.theory.arrays import Vector, matvec, vector
from statetrack.theory.number_formats import number_format

from .certificate import Certificate, certify
from .compiler import Compiled
from .dyadic_keys import KeyRule
from .float_closure import FloatClosure, Ideal, Open, close_floats, ideal_of
from .float_steps import Order, head_tables
from .planner import CONSTRUCTIONS, Limits, plan
from .program import Head, Layer, Lookup, Program
from .row_store import RowStore
from .source import Source
from .weights import Weights, lower

Progress = Callable[[int], None]
Candidate = tuple[Compiled, str, Ideal]
# The format of the tables and the rule for the lengths of keys.
Tables = tuple[str, KeyRule]
_QUICK, LONG = 5_000, 20_000
_STARTS: dict[KeyRule, int] = {"unit": 3_000, "dyadic": 500}
_SEED = 7


@dataclass(frozen=True)
class Encoded:
    """What the search settled on: a program with its certificate, its weights, and the outcome of the float closure.

    `encoding` is "plain", "offset" or "vectors"; `weights.keys` the rule for keys. Without a closure (`outcome` is
    `Open`) it is the program as it was planned.
    """

    compiled: Compiled
    weights: Weights
    encoding: str
    outcome: FloatClosure | Open

    @property
    def is_for_ever(self) -> bool:
        """Whether the weights are proved right for words of every length in their number formats."""
        return isinstance(self.outcome, FloatClosure)


def encode_for_ever(
    made: Compiled,
    precision: str,
    *,
    limits: Limits | None = None,
    order: Order = "recurrent",
    construction: str | None = None,
    max_columns: int = LONG,
    progress: Progress | None = None,
) -> Encoded:
    """The first encoding that is right for ever with a state in this precision; else the planned program and why not.

    Encodings whose float columns are the exact ones (classes E and R) come first, then those that close on another
    finite set (C). Tables are kept in the precision too, with unit keys or, where only those close, dyadic ones; else
    in float32. Other constructions within the limits are tried unless `construction` insists. A set of more than
    `max_columns` float columns a head is not looked for; `progress` is called with the number of columns met so far.
    """
    count = _Count(progress)
    form = number_format(precision)
    wide: list[Tables] = [] if form.precision >= 24 else [("float32", "unit")]
    tables: list[Tables] = [(form.name, "unit"), (form.name, "dyadic"), *wide]
    # Unit keys of a short format leave errors that no start absorbs.
    started = tables[1:] if wide else tables[:1]
    rest = _programs(made, limits or Limits(), construction)
    programs: list[Candidate] = []
    for table in tables:
        for candidate in _kept(programs, rest):
            # On its exact columns, or not at all: the first step that leaves them ends it.
            found = count(_try(candidate, table, form.name, order, min(_QUICK, max_columns), 0.0))
            if found.is_for_ever:
                return found
    first: Encoded | None = None
    for most in (_QUICK, max_columns) if max_columns > _QUICK else (max_columns,):
        for table in tables:
            for candidate in programs:
                found = count(_try(candidate, table, form.name, order, most))
                if first is None or (candidate is programs[0] and table == tables[0]):
                    first = found
                if found.is_for_ever:
                    return found
            again = most <= _QUICK and table in started
            found = _plane(made, table, form.name, order, count) if again else None
            if found is not None:
                return found
    if first is not None:
        return first
    weights = lowered(made.program, made.certificate, made.automaton, form.name, form.name)
    return Encoded(made, weights, "plain", Open("no program whose exact states are few enough to follow", 0))


class _Count:
    """The number of float columns met so far, told to who wants to know."""

    def __init__(self, progress: Progress | None) -> None:
        self.columns, self._progress = 0, progress

    def __call__(self, found: Encoded) -> Encoded:
        """What was found, counted."""
        self.add(found.outcome.columns)
        return found

    def add(self, columns: int) -> None:
        """More columns."""
        self.columns += columns
        if self._progress is not None:
            self._progress(self.columns)


def _kept(seen: list[Candidate], rest: Iterator[Candidate]) -> Iterator[Candidate]:
    """What was seen, then the rest, which is put with it: a list made as far as it is read."""
    yield from tuple(seen)
    for item in rest:
        seen.append(item)
        yield item


def offset(program: Program) -> Program | None:
    """The program with an all-ones column added to every column of H_0, if every step fixes that column; else None."""
    if len(program.layers) != 1 or len(program.layers[0].heads) != 1 or program.layers[0].heads[0].unit is not None:
        return None
    head = program.layers[0].heads[0]
    ones = vector(head.field, (1,) * head.size)
    for move in head.maps:
        if move.offset is not None or matvec(move.matrix, ones) != ones:
            return None
    return restarted(program, tuple(tuple(x + 1 for x in column) for column in head.h0))


def plane_starts(
    made: Compiled, table: Tables, storage: str, *, order: Order = "recurrent", progress: Progress | None = None
) -> Iterator[tuple[Vector, ...]]:
    """Starts H_0 of a planar head whose two columns close on finite sets in floats: found by trying dyadic vectors.

    One vector is tried at a time, on the exact orbit in doubles; the second column is one of its float orbit, so that
    it closes on the same set.
    """
    head = made.program.layers[0].heads[0]
    form, rng = number_format(storage), Random(_SEED)
    single = restarted(made.program, head.h0[:1])
    weights = lower_open(made, single, table, storage)
    for _ in range(_STARTS[table[1]]):
        size, angle = 2.0 ** rng.random(), 2 * math.pi * rng.random()
        start = form.rounded(np.array([size * math.cos(angle), size * math.sin(angle)]))
        orbit = weights.orbit(start, order)
        if progress is not None:
            progress(1 if orbit is None else len(orbit))
        if orbit is None:
            continue
        crossed = np.abs(orbit[:, 0] * start[1] - orbit[:, 1] * start[0])
        second = orbit[int(crossed.argmax())]
        yield tuple(tuple(head.field(Fraction(float(x))) for x in column) for column in (start, second))


def basin(encoded: Encoded, *, seeds: int = 5, order: Order = "recurrent", kinds: str = "ER") -> Fraction:
    """The largest 2^-e (1 at most) such that relative errors up to it in keys and β are still right for ever.

    For each size `seeds` random errors of all keys and β (uniform, rounded to the tables' format) must all close, on
    the exact columns ("ER") or on any set ("ERC"). A measurement on samples, each of them a proof. 0 if none is found
    down to 2^-60.
    """
    compiled, weights = encoded.compiled, encoded.weights
    assert isinstance(compiled.source, Source)
    ideal = ideal_of(compiled.program, compiled.source.dfa)
    for exponent in range(61):
        size = 2.0**-exponent
        if all(_survives(weights, ideal, size, seed, order, kinds) for seed in range(seeds)):
            return Fraction(1, 1 << exponent)
    return Fraction(0)


def perturbed(weights: Weights, size: float, seed: int) -> Weights:
    """The weights with relative errors, uniform in [-size, size], on all keys and β."""
    rng, tensors = np.random.default_rng(seed), dict(weights.tensors)
    for name in tensors:
        if name.endswith((".keys", ".betas")):
            table = tensors[name].astype(np.float64)
            tensors[name] = (table * (1 + rng.uniform(-size, size, table.shape))).astype(tensors[name].dtype)
    return replace(weights, tensors=tensors, float_proof=None)


def _survives(weights: Weights, ideal: Ideal, size: float, seed: int, order: Order, kinds: str) -> bool:
    found = close_floats(perturbed(weights, size, seed), ideal, order=order, max_columns=_QUICK)
    return isinstance(found, FloatClosure) and found.kind in kinds


def _programs(made: Compiled, limits: Limits, construction: str | None) -> Iterator[Candidate]:
    """Candidates with their exact runs: the planned program and its offset, then other constructions and theirs."""
    names = () if construction is not None else CONSTRUCTIONS
    others = (other for name in names if (other := _planned(made, limits, name)) is not None)
    for compiled in (made, *others):
        ideal = _ideal(compiled)
        if ideal is None:
            continue
        yield compiled, "plain", ideal
        moved = offset(compiled.program)
        again = None if moved is None else recertified(compiled, moved)
        ideal = None if again is None else _ideal(again)
        if again is not None and ideal is not None:
            yield again, "offset", ideal


def _planned(made: Compiled, limits: Limits, name: str) -> Compiled | None:
    """The same source by another construction; None if it does not apply or is composed."""
    if name == made.plan.construction or not isinstance(made.source, Source) or name in ("blocks", "cascade", "tower"):
        return None
    try:
        chosen = plan(made.source, made.target, limits=limits, construction=name)
    except (NoConstruction, NotExpressible, BudgetExceeded):
        return None
    if chosen.certificate is not None:
        return None
    program, certificate = certify(chosen.program, made.source.dfa, made.target)
    return Compiled(made.source, made.target, chosen, program, certificate)


def recertified(compiled: Compiled, program: Program) -> Compiled | None:
    """The compiled source with another program, certified anew; None if its readouts no longer tell states apart."""
    assert isinstance(compiled.source, Source)
    try:
        closed, certificate = certify(program, compiled.source.dfa, compiled.target)
    except CertificateFailed:
        return None
    return replace(compiled, program=closed, certificate=certificate)


def _ideal(compiled: Compiled) -> Ideal | None:
    if not isinstance(compiled.source, Source) or compiled.certificate.kind not in ("closure", "stack"):
        return None
    try:
        return ideal_of(compiled.program, compiled.source.dfa)
    except BudgetExceeded:
        return None


def _try(candidate: Candidate, table: Tables, storage: str, order: Order, most: int, reach: float = 1.0) -> Encoded:
    compiled, encoding, ideal = candidate
    weights = lowered(compiled.program, compiled.certificate, compiled.automaton, table[0], storage, table[1])
    outcome = close_floats(weights, ideal, order=order, max_columns=most, reach=reach)
    if isinstance(outcome, FloatClosure):
        weights = replace(weights, float_proof=outcome.proof)
    return Encoded(compiled, weights, encoding, outcome)


def lowered(
    program: Program, certificate: Certificate, automaton: Any, table: str, storage: str, keys: KeyRule = "unit"
) -> Weights:
    """Weights with tables in one format and the state in another."""
    weights = lower(program, certificate, automaton, table, keys)
    return weights if table == storage else replace(weights, state_dtype=storage)


def _plane(made: Compiled, table: Tables, storage: str, order: Order, count: _Count) -> Encoded | None:
    """The first start vectors of a planar head that close, certified."""
    layers = made.program.layers
    if len(layers) != 1 or len(layers[0].heads) != 1 or layers[0].heads[0].size != 2 or layers[0].heads[0].width != 2:
        return None
    for start in plane_starts(made, table, storage, order=order, progress=count.add):
        again = recertified(made, restarted(made.program, start))
        ideal = None if again is None else _ideal(again)
        if again is None or ideal is None:
            continue
        found = count(_try((again, "vectors", ideal), table, storage, order, _QUICK))
        if found.is_for_ever:
            return found
    return None


def restarted(program: Program, h0: tuple[Vector, ...]) -> Program:
    """The one-head program, open again, with another H_0."""
    layer = program.layers[0]
    head = layer.heads[0]
    fresh = Head(h0, head.steps, head.queries, Lookup(dict(head.choose.seen)))
    return Program(program.field, program.alphabet, (Layer((fresh,)),), program.outputs, program.empty_word_output)


@dataclass(frozen=True, eq=False)
class PlaneOrbit:
    """The steps of a planar head in floats and in doubles, to try start vectors quickly."""

    tables: Any
    exact: Any

    def orbit(self, start: Any, order: Order, most: int = 400) -> Any | None:
        """All float columns reached from a start (as doubles), None if they leave it, or do not close."""
        tables, ids = self.tables, np.arange(len(self.exact))
        kind = tables.state.dtype
        level = start.astype(kind)[None]
        bits = np.dtype(f"u{kind.itemsize}")
        columns = RowStore(2, bits)
        columns.add(level.view(bits), np.zeros(1, dtype=np.int32))
        allowed = 0.5 * np.hypot(*start) * math.sin(math.pi / max(2, len(self.exact)))
        goals = start[None]
        found = [level]
        while len(level):
            n = len(level)
            moved, sure = tables.step(np.tile(ids, n), np.repeat(level, len(ids), axis=0), 0, order)
            goal = np.einsum("aij,nj->nai", self.exact, goals).reshape(-1, 2)
            if not sure.all() or np.abs(moved - goal).max() > allowed:
                return None
            _, fresh = columns.add(np.ascontiguousarray(moved).view(bits), np.zeros(len(moved), dtype=np.int32))
            if len(columns) > most:
                return None
            level, goals = moved[fresh], goal[fresh]
            found.append(level)
        return np.concatenate(found).astype(np.float64)


def lower_open(made: Compiled, program: Program, table: Tables, storage: str) -> PlaneOrbit:
    """The float steps and the exact ones (in doubles) of a one-head program, a row each for every input."""
    weights = lower(replace_codebook(program), made.certificate, made.automaton, *table)
    head = program.layers[0].heads[0]
    steps = [head.choose.seen[key][0] for key in sorted(head.choose.seen)]
    exact = np.array([[[float(x) for x in row] for row in head.maps[step].matrix] for step in steps])
    return PlaneOrbit(head_tables(weights.tensors, 0, 0, number_format(storage)), exact)


def replace_codebook(program: Program) -> Program:
    """The program with an empty codebook, so that it can be lowered before it is certified."""
    layer = program.layers[0]
    head = replace(layer.heads[0], codebook={})
    return Program(program.field, program.alphabet, (Layer((head,)),), program.outputs, program.empty_word_output)
