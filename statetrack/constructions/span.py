"""Proofs for linear readouts by an invariant linear span, whatever the number of reachable hidden states.

Main definitions: `prove_span`, `SpanProof`.

Main results: for one layer with one query, qᵀH = readouts[state] after every word iff all rows in the backward span of
(q | -readouts) vanish at the start (docs/certificate.md). The span has dimension at most K + states.

References: Schützenberger (1961); Karr, *Affine relationships among variables of a program* (1976).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from statetrack.errors import CertificateFailed, InvalidInput
from statetrack.theory.arrays import Vector, dot, transpose
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Element

from .program import Head, Layer, Lookup, Program, Readout, head_orbit


@dataclass(frozen=True)
class SpanProof:
    """A program whose readout is a linear function of the automaton's state, with that function's values."""

    program: Program
    readouts: tuple[Readout, ...]
    dimension: int


def prove_span(program: Program, dfa: Dfa) -> SpanProof:
    """Prove a one-layer, one-head, one-query program by its backward span.

    Raises:
        InvalidInput: the program has several layers, heads or queries.
        CertificateFailed: the readout is not a function of the state, or gives one value to two states.
    """
    if len(program.layers) != 1 or len(program.layers[0].heads) != 1 or len(program.layers[0].heads[0].queries) != 1:
        raise InvalidInput("the span proof is for one layer with one head and one query; use the closure proof")
    head = program.layers[0].heads[0]
    step_of = [head.choose((token,))[0] for token in range(len(dfa.alphabet))]
    used = sorted(set(step_of))
    rename = {s: i for i, s in enumerate(used)}
    choose = Lookup({(token,): (rename[s], 0) for token, s in enumerate(step_of)})
    head = Head(head.h0, tuple(head.steps[s] for s in used), head.queries, choose)
    readouts = _readouts(program, head, dfa)
    dimension = max(_column_span(program, head, dfa, readouts, j) for j in range(head.width))
    codebook = {row: state for state, row in enumerate(readouts)}
    if len(codebook) < len(readouts):
        raise CertificateFailed("readouts of different states", "two equal ones", "distinct readouts")
    closed = Head(head.h0, head.steps, head.queries, choose, codebook)
    layers = (Layer((closed,)),)
    return SpanProof(
        Program(program.field, program.alphabet, layers, program.outputs, program.empty_word_output),
        readouts,
        dimension,
    )


def _readouts(program: Program, head: Head, dfa: Dfa) -> tuple[Readout, ...]:
    """The readout at each automaton state, from one word that leads there."""
    orbit = head_orbit(head, max_states=5_000_000)
    hidden = {dfa.start: 0}
    queue = [dfa.start]
    for state in queue:
        for token in range(len(dfa.alphabet)):
            after = int(dfa.delta[state, token])
            if after not in hidden:
                moved = orbit.move(head.choose((token,))[0], np.array([hidden[state]], dtype=np.int32))
                hidden[after] = int(moved[0])
                queue.append(after)
    if len(hidden) < len(dfa.states):
        raise CertificateFailed("automaton states in reach", str(len(hidden)), str(len(dfa.states)))
    rows = orbit.readouts(head.queries[0], np.array([hidden[q] for q in range(len(dfa.states))], dtype=np.int32))
    return tuple(tuple(orbit.scalars.vector(int(i))[0] for i in row) for row in rows)


def _column_span(program: Program, head: Head, dfa: Dfa, readouts: tuple[Readout, ...], j: int) -> int:
    """Close (q | -readouts[.][j]) under all tokens; every member must vanish at the start. Returns the dimension."""
    maps = head.maps
    columns = [transpose(m.matrix) for m in maps]
    basis: dict[int, Vector] = {}
    pending: list[Vector] = [(*head.queries[0], *(-row[j] for row in readouts))]
    size = head.size
    while pending:
        row = _reduced(pending.pop(), basis)
        pivot = next((i for i, x in enumerate(row) if not x.is_zero()), None)
        if pivot is None:
            continue
        basis[pivot] = tuple(x * row[pivot].inverse() if not x.is_zero() else x for x in row)
        if not (dot(row[:size], head.h0[j]) + row[size + dfa.start]).is_zero():
            raise CertificateFailed(
                "readout = function of the state, backward span at the start", "a row that does not vanish", "0"
            )
        for token in range(len(dfa.alphabet)):
            step = head.choose((token,))[0]
            r = tuple(dot(row[:size], column) for column in columns[step])
            offset = maps[step].offset
            shift = dot(row[:size], offset[j]) if offset is not None else program.field.zero
            g = tuple(row[size + int(q)] + shift for q in dfa.delta[:, token])
            pending.append((*r, *g))
    return len(basis)


def _reduced(row: Vector, basis: dict[int, Vector]) -> Vector:
    """The row minus multiples of basis rows, so that it is 0 at every pivot."""
    for pivot in sorted(basis):
        lead: Element = row[pivot]
        if not lead.is_zero():
            row = tuple(x if y.is_zero() else x - lead * y for x, y in zip(row, basis[pivot], strict=True))
    return row
