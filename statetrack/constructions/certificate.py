"""What is proved about a program, as a JSON object that an independent checker re-derives.

Main definitions: `Certificate`, `certify`.

Main results: `certify` returns only after the exact search of `closure.close` succeeded (kind "closure") or the exact
linear span of `span.prove_span` contains no counter-example (kind "span"). The theorem, its proof and the format are
in docs/certificate.md; `statetrack.proofs_check.checker` verifies the file without this package.

References: docs/certificate.md; Schützenberger (1961) and Karr (1976) for the span argument.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.quadratic_fields import RootField

from .closure import Closure, HeadSearch, close, closed_program
from .margins import Margin, head_margin
from .program import Dense, Factor, Layer, Program
from .span import prove_span
from .targets import Target, validate

FORMAT = "statetrack-certificate/1"
# Searches for automata of so many states at most are kept.
_SMALL = 1_000


@dataclass(frozen=True)
class Certificate:
    """A proved claim. `data` is the JSON object, `digest` pins the claim, `kind` is "closure" or "span".

    `joint` is the number of joint states (0 for a span). `states` and the exact `margins` of codebooks are by layer and
    head, empty for composed networks: `margins.margins_of` their program has them.
    """

    kind: str
    data: Mapping[str, Any]
    digest: str
    joint: int
    states: tuple[tuple[int, ...], ...]
    margins: tuple[tuple[Margin | None, ...], ...]

    @property
    def tokens(self) -> int | None:
        """The longest words that it is about; None for words of every length."""
        return tokens_of(self.data)

    def text(self) -> str:
        """The certificate as JSON text."""
        return json.dumps(self.data, separators=(",", ":"))

    def save(self, path: str | Path) -> None:
        """Write the JSON file that the checker reads; it appears whole or not at all."""
        from .weights import write_whole

        write_whole(Path(path), (self.text() + "\n").encode())


def tokens_of(data: Mapping[str, Any]) -> int | None:
    """The longest words that a certificate is about; None for words of every length."""
    return data["scaled"]["tokens"] if "scaled" in data else None


def digest_of(data: Mapping[str, Any]) -> str:
    """SHA-256 of the object without its digest, keys sorted."""
    body = {key: value for key, value in data.items() if key != "digest"}
    return hashlib.sha256(
        json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    ).hexdigest()


def certify(
    program: Program,
    dfa: Dfa,
    goal: Target,
    *,
    proof: str = "closure",
    max_joint: int = 5_000_000,
    progress: Callable[[int], None] | None = None,
) -> tuple[Program, Certificate]:
    """Prove the program right for all words, and return it closed (with codebooks) together with its certificate.

    Raises:
        OutOfRange: a factor outside the target.
        CertificateFailed: two words that the network cannot tell apart but the automaton can.
        BudgetExceeded: the search passed `max_joint`.
    """
    if proof == "span":
        return _certify_span(program, dfa, goal)
    searched = _searched_once if progress is None and len(dfa.states) <= _SMALL else _searched
    result, closed, margins = searched(program, dfa, max_joint, progress)
    validate(closed, goal)
    states = tuple(tuple(len(search.reached) for search in searches) for searches in result.heads)
    claims: dict[str, Any] = {
        "joint": result.joint,
        "states": [list(row) for row in states],
        "codes": [[len(search.readouts) for search in searches] for searches in result.heads],
        "margin": [[None if m is None else _rational(m) for m in row] for row in margins],
    }
    data = _object("closure", closed, dfa, goal, result, claims)
    return closed, Certificate("closure", data, data["digest"], result.joint, states, margins)


def _searched(
    program: Program, dfa: Dfa, max_joint: int, progress: Callable[[int], None] | None
) -> tuple[Closure, Program, tuple[tuple[Margin | None, ...], ...]]:
    """The search, the closed program and its margins, whatever the target."""
    result = close(program, dfa, max_joint=max_joint, progress=progress)
    closed = closed_program(program, result)
    margins = tuple(tuple(map(head_margin, layer.heads)) for layer in closed.layers)
    return result, closed, margins


# Targets of one automaton have the same program objects in them.
_searched_once = lru_cache(maxsize=64)(_searched)


def _certify_span(program: Program, dfa: Dfa, goal: Target) -> tuple[Program, Certificate]:
    proved = prove_span(program, dfa)
    closed = proved.program
    validate(closed, goal)
    value = head_margin(closed.layers[0].heads[0])
    data = _object("span", closed, dfa, goal, None, {"margin": None if value is None else _rational(value)})
    data["readouts"] = [[x.to_json() for x in row] for row in proved.readouts]
    data["digest"] = digest_of(data)
    return closed, Certificate("span", data, data["digest"], 0, ((len(proved.readouts),),), ((value,),))


def _rational(m: Margin) -> str | int:
    return str(m.bound) if m.bound.denominator > 1 else m.bound.numerator


def _object(
    kind: str, program: Program, dfa: Dfa, goal: Target, result: Closure | None, claims: dict[str, Any]
) -> dict[str, Any]:
    """The certificate's JSON object, digest included."""
    if not isinstance(program.field, RealCyclotomic | RootField):
        raise InvalidInput(
            f"certificates are over real cyclotomic fields, not {program.field}; embed the program in one"
        )
    data: dict[str, Any] = {
        "format": FORMAT,
        "kind": kind,
        "field": program.field.to_json(),
        "range": goal.to_json(),
        "layers": [_layer(layer, result.heads[i] if result else None) for i, layer in enumerate(program.layers)],
        "automaton": automaton_json(dfa),
        "claims": claims,
    }
    data["digest"] = digest_of(data)
    return data


def automaton_json(dfa: Dfa) -> dict[str, Any]:
    """An automaton as the certificate writes it."""
    return {
        "alphabet": list(dfa.alphabet),
        "states": list(dfa.states),
        "outputs": list(dfa.outputs),
        "start": dfa.start,
        "delta": dfa.delta.tolist(),
    }


def _layer(layer: Layer, searches: tuple[HeadSearch, ...] | None) -> dict[str, Any]:
    rows: dict[tuple[int, ...], list[int]] = {}
    for head in layer.heads:
        for key, (step, query) in head.choose.seen.items():
            rows.setdefault(key, []).extend((step, query))
    heads: list[dict[str, Any]] = []
    for i, head in enumerate(layer.heads):
        labels = list(head.codebook.values()) if head.codebook is not None else []
        plain = searches is None or labels == list(range(len(labels)))
        products = searches[i].products if searches is not None else {}
        heads.append(
            {
                "h0": [[x.to_json() for x in column] for column in head.h0],
                "steps": [[factor_json(factor) for factor in step] for step in head.steps],
                "derived": [[a, b, c] for a, (b, c) in products.items()],
                "queries": [[x.to_json() for x in query] for query in head.queries],
                "labels": None if plain else labels,
            }
            | ({} if head.unit is None else {"unit": str(head.unit)})
        )
    emit = None if layer.emit is None else [[list(codes), symbol] for codes, symbol in sorted(layer.emit.seen.items())]
    return {"heads": heads, "inputs": [[list(key), rows[key]] for key in sorted(rows)], "emit": emit}


def factor_json(factor: Factor | Dense) -> dict[str, Any]:
    """A factor as the certificate writes it."""
    data: dict[str, Any] = {}
    if isinstance(factor, Dense):
        data["dense"] = [[x.to_json() for x in row] for row in factor.rows]
    else:
        data |= {"w": [x.to_json() for x in factor.w], "c": factor.c.to_json()}
        if factor.alpha is not None:
            data["alpha"] = [x.to_json() for x in factor.alpha]
    if factor.b is not None:
        data["b"] = [[x.to_json() for x in column] for column in factor.b]
    return data
