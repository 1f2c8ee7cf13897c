"""From a certificate's JSON object back to an open program, its automaton and its target.

Main definitions: `program_of`, `automaton_of`, `target_of`.

The object is trusted for nothing: the program it describes is closed and certified again by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from statetrack.errors import CertificateFailed
from statetrack.theory.arrays import Vector
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Field, element_from_json
from statetrack.theory.number_fields import field_from_json

from .program import Dense, Factor, Head, Layer, Lookup, Program, Readout
from .targets import Target


def automaton_of(data: Mapping[str, Any]) -> Dfa:
    """The automaton of a certificate."""
    a = data["automaton"]
    states, symbols = len(a["states"]), len(a["alphabet"])
    delta = np.array(a["delta"], dtype=np.int32).reshape(states, symbols)
    return Dfa(tuple(a["alphabet"]), tuple(a["states"]), a["start"], delta, tuple(a["outputs"]))


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
        steps = tuple(tuple(_factor(field, f) for f in step) for step in head["steps"])
        queries = tuple(_vector(field, q) for q in head["queries"])
        h0 = tuple(_vector(field, c) for c in head["h0"])
        codebook = None if last else _Codebook(head["labels"])
        heads.append(Head(h0, steps, queries, Lookup(table), codebook))
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


def _factor(field: Field, data: Mapping[str, Any]) -> Factor | Dense:
    b = None if "b" not in data else tuple(_vector(field, column) for column in data["b"])
    if "dense" in data:
        return Dense(tuple(_vector(field, row) for row in data["dense"]), b)
    alpha = None if "alpha" not in data else _vector(field, data["alpha"])
    return Factor(_vector(field, data["w"]), element_from_json(field, data["c"]), alpha, b)


def _vector(field: Field, data: Any) -> Vector:
    return tuple(element_from_json(field, x) for x in data)
