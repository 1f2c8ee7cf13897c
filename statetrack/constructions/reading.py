"""From a certificate's JSON object back to an open program, its automaton and its target.

Main definitions: `program_of`, `automaton_of`, `any_automaton`, `target_of`.

The object is trusted for nothing: the program it describes is closed and certified again by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from statetrack.errors import CertificateFailed
from statetrack.theory.arrays import Vector
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Field, element_from_json
from statetrack.theory.number_fields import field_from_json
from statetrack.theory.weighted import Wfa

from .program import Dense, Factor, Head, Layer, Lookup, Program, Readout
from .targets import Target


def automaton_of(data: Mapping[str, Any]) -> Dfa:
    """The automaton of a certificate."""
    a = data["automaton"]
    states, symbols = len(a["states"]), len(a["alphabet"])
    delta = np.array(a["delta"], dtype=np.int32).reshape(states, symbols)
    return Dfa(tuple(a["alphabet"]), tuple(a["states"]), a["start"], delta, tuple(a["outputs"]))


def any_automaton(data: Mapping[str, Any]) -> Dfa | Wfa:
    """The automaton of a certificate, weighted or not."""
    a = data["automaton"]
    return weighted_of(a) if "final" in a else automaton_of(data)


def weighted_of(data: Mapping[str, Any]) -> Wfa:
    """A weighted automaton from its JSON object."""
    initial, final = (tuple(Fraction(x) for x in data[name]) for name in ("initial", "final"))
    letters = tuple(tuple(tuple(Fraction(x) for x in row) for row in m) for m in data["letters"])
    return Wfa(tuple(data["alphabet"]), initial, letters, final)


def target_of(data: Mapping[str, Any]) -> Target:
    """The ranges of a certificate as a target."""
    r = data["range"]
    return Target(
        r["target"], r["gates"], r["low"], r["high"], r["beta_max"], r["factors"], r["additive"], r["dense"], ""
    )


def program_of(data: Mapping[str, Any]) -> Program:
    """The program of a certificate, open (the last layer's codebook is found again when it is certified)."""
    try:
        field, dfa = field_from_json(data["field"]), automaton_of(data)
        layers = tuple(
            _layer(field, layer, last=i == len(data["layers"]) - 1) for i, layer in enumerate(data["layers"])
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise CertificateFailed(
            "reading the program", f"{type(error).__name__}: {error}", "the format of docs/certificate.md"
        ) from error
    return Program(field, dfa.alphabet, layers, dfa.outputs, dfa.outputs[dfa.start])


def _layer(field: Field, layer: Mapping[str, Any], *, last: bool) -> Layer:
    heads: list[Head] = []
    for i, head in enumerate(layer["heads"]):
        table = {tuple(key): (row[2 * i], row[2 * i + 1]) for key, row in layer["inputs"]}
        steps = tuple(tuple(factor_of(field, f) for f in step) for step in head["steps"])
        queries = tuple(vector_of(field, q) for q in head["queries"])
        h0 = tuple(vector_of(field, c) for c in head["h0"])
        codebook = None if last else _Codebook(head["labels"])
        unit = None if "unit" not in head else Fraction(head["unit"])
        heads.append(Head(h0, steps, queries, Lookup(table), codebook, unit))
    emit = (
        None
        if last or layer["emit"] is None
        else Lookup({tuple(codes): int(symbol) for codes, symbol in layer["emit"]})
    )
    return Layer(tuple(heads), emit)


class _Codebook(dict[Readout, int]):
    """Labels in the order in which the search meets the readouts."""

    def __init__(self, labels: list[int] | None) -> None:
        super().__init__()
        self._labels = labels

    def __contains__(self, key: object) -> bool:
        return self._labels is None or super().__contains__(key) or len(self) < len(self._labels)

    def __missing__(self, key: Readout) -> int:
        self[key] = len(self) if self._labels is None else int(self._labels[len(self)])
        return self[key]


def factor_of(field: Field, data: Mapping[str, Any]) -> Factor | Dense:
    """A factor from its JSON object."""
    b = None if "b" not in data else tuple(vector_of(field, column) for column in data["b"])
    if "dense" in data:
        return Dense(tuple(vector_of(field, row) for row in data["dense"]), b)
    alpha = None if "alpha" not in data else vector_of(field, data["alpha"])
    return Factor(vector_of(field, data["w"]), element_from_json(field, data["c"]), alpha, b)


def vector_of(field: Field, data: Any) -> Vector:
    """A vector from a list of numbers."""
    return tuple(element_from_json(field, x) for x in data)
