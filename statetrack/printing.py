"""What the command line prints: tables for people, JSON for programs, one line for a mistake, a line of progress.

Main definitions: `weight_facts`, `network_facts`, `build_facts`, `run_facts`, `say`, `say_rows`, `fail`,
`progress_line`, `forgive_encoding`.
"""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from statetrack.api import Compiled, Weights
    from statetrack.constructions.explain import Explanation
    from statetrack.kernels.run import Trace


def weight_facts(weights: Weights) -> dict[str, Any]:
    """What a weights file says of itself."""
    from statetrack.precise import for_ever_facts

    facts = network_facts(weights.certificate) | {"dtype": weights.dtype} | for_ever_facts(weights)
    return facts | {"proved_length": _number(weights.horizon())}


def network_facts(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a certificate of any kind says of its network; networks that do not read each other stand side by side."""
    rows, automaton = _rows(data), data["automaton"]
    return {
        "target": data["range"]["target"],
        "symbols": len(automaton["alphabet"]),
        "states": len(automaton["states"] if "states" in automaton else automaton["initial"]),
        "layers": len(rows),
        "dims": [[len(head["h0"][0]) for head in row] for row in rows],
        "columns": [[len(head["h0"]) for head in row] for row in rows],
        "factors_per_token": max((len(step) for row in rows for head in row for step in head["steps"]), default=0),
        "field": ", ".join(dict.fromkeys(_fields(data))),
        "margins": _margins(data),
        "proof": _proof(data),
        "digest": data["digest"],
    }


def build_facts(made: Compiled, weights: Weights, checked: bool) -> dict[str, Any]:
    """What was built, and how."""
    margin = made.margin
    return weight_facts(weights) | {
        "source": made.source.name,
        "construction": made.plan.construction,
        "theorem": made.plan.theorem,
        "beta_max": float(made.program.beta_max),
        "unit_margin": None if margin is None else margin.unit,
        "margin_squared": None if margin is None else str(margin.squared),
        "unit_margins": [[None if m is None else m.unit for m in row] for row in made.margins],
        "checked": "search and independent checker" if checked else "search only",
    }


def run_facts(trace: Trace, weights: Weights, word: tuple[str, ...] | None, horizon: float) -> dict[str, Any]:
    """What a run found, beside the length that is proved; with the answers if it was one word."""
    from statetrack.precise import claim_facts

    facts: dict[str, Any] = {}
    if word is not None and trace.answers is not None:
        states = [int(q) for q in trace.answers[0]] if word else []
        facts["outputs"] = [weights.dfa.outputs[q] if q >= 0 else None for q in states]
        facts["states"] = [weights.dfa.states[q] if q >= 0 else None for q in states]
    return (
        facts
        | {
            "tokens": trace.tokens,
            "wrong": trace.wrong,
            "first_wrong": trace.first_wrong,
            "wrong_words": trace.wrong_words,
            "executor": trace.executor,
            "proved_length": _number(horizon),
        }
        | claim_facts(weights, trace.first_wrong, horizon)
    )


def value_facts(
    weights: Weights, word: tuple[str, ...] | None, random: int, length: int, seed: int, how: dict[str, Any]
) -> dict[str, Any]:
    """What a run of a weighted automaton found: exact values beside the kernel's, and the bound on their difference."""
    import random as generator

    from statetrack.constructions.composed import closed_program
    from statetrack.constructions.value_bounds import value_bounds
    from statetrack.theory.automata import Dfa
    from statetrack.theory.number_formats import number_format

    chosen, automaton = generator.Random(seed), weights.automaton
    assert not isinstance(automaton, Dfa)
    alphabet = automaton.alphabet
    words = [word] if word is not None else [tuple(chosen.choices(alphabet, k=length)) for _ in range(random)]
    found = weights.values(words, **how)
    exact = [automaton.run(w) for w in words]
    errors = [
        abs(float(Fraction(x) - y)) if math.isfinite(x) else math.inf
        for row, ys in zip(found, exact, strict=True)
        for x, y in zip(row, ys, strict=True)
    ]
    facts: dict[str, Any] = {}
    if word is not None:
        bound = value_bounds(
            closed_program(weights.certificate), word, round_off=float(number_format(weights.dtype).unit)
        )
        facts = {"values": [str(y) for y in exact[0]], "kernel": list(found[0]), "error_bound": max(bound, default=0.0)}
    return facts | {"tokens": sum(map(len, words)), "largest_error": max(errors, default=0.0), "dtype": weights.dtype}


def say_explanation(facts: dict[str, Any], rows: Sequence[Explanation], as_json: bool) -> None:
    """Print what is known of a source and the table of targets; the reasons of those that cannot below it."""
    if as_json:
        listed = [{"target": row.target, "verdict": row.verdict} | vars(row) for row in rows]
        _print_json(facts | {"targets": listed})
        return
    say(facts, False)
    table = Table(box=None, pad_edge=False)
    for name in ("target", "verdict", "layers", "sizes K", "β up to", "factors", "construction", "proof", "about"):
        table.add_column(name)
    for row in rows:
        sizes = "-" if row.dims is None else "; ".join(_layer_sizes(dims) for dims in row.dims[:6])
        sizes += "; ..." if row.dims is not None and len(row.dims) > 6 else ""
        cells = (row.layers, sizes, row.beta_max, row.factors, row.construction, row.proof, row.semantics)
        shown = ("-" if x is None else f"{x:.6g}" if isinstance(x, float) else str(x) for x in cells)
        table.add_row(row.target, row.verdict, *shown)
    console = _console()
    console.print(table)
    for row in rows:
        if row.expressible is not True:
            theorem = f" [{row.theorem}]" if row.theorem else ""
            witness = f"; witness: {row.witness}" if row.witness else ""
            console.print(f"{row.target}: {row.reason}{theorem}{witness}", markup=False, soft_wrap=True)


def _layer_sizes(dims: Sequence[int]) -> str:
    """2, 1 × 8 for equal ones."""
    counts = {size: dims.count(size) for size in dict.fromkeys(dims)}
    return ", ".join(str(size) if n == 1 else f"{size} × {n}" for size, n in counts.items())


def say(facts: dict[str, Any], as_json: bool) -> None:
    """Print facts as a table of two columns or as one JSON object."""
    if as_json:
        _print_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        table.add_row(_NAMES.get(key, key.replace("_", " ")), Text(_shown(key, value)))
    _console().print(table)


def say_rows(rows: list[dict[str, Any]], as_json: bool) -> None:
    """Print rows with the same keys as a table or as a JSON list."""
    if as_json:
        _print_json(rows)
        return
    table = Table(box=None, pad_edge=False)
    for name in rows[0]:
        table.add_column(name)
    for row in rows:
        table.add_row(*(Text(str(x)) for x in row.values()))
    _console().print(table)


def fail(line: str) -> int:
    """One line on standard error; returns the exit code of a mistake."""
    print("statetrack:", *line.split(), file=sys.stderr)
    return 2


def forgive_encoding() -> None:
    """Print what a terminal cannot show (β on one that is not UTF-8) as an escape instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def progress_line(what: str, total: int | None) -> Generator[Callable[[int], None] | None, None, None]:
    """A progress line on standard error if it is a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done)


def _rows(data: Mapping[str, Any]) -> list[list[Any]]:
    """The heads of each network layer, by the kind of the certificate (docs/certificate.md)."""
    if data["kind"] == "linear":
        return [[data["head"]]]
    if data["kind"] == "blocks":
        return [*_rows(data["clock"]), [data["buffer"]] * (2 * data["length"]), [data["accumulator"]]]
    if data["kind"] in ("stack", "chain"):
        return _by_depth(data, _rows)
    return [list(layer["heads"]) for layer in data["layers"]]


def _by_depth(data: Mapping[str, Any], rows_of: Callable[[Mapping[str, Any]], list[list[Any]]]) -> list[list[Any]]:
    """What there is for each head of a stack or chain, by network layer, from the rows of its parts."""
    rows: list[list[Any]] = []
    ends: list[int] = []
    for i, module in enumerate(data["modules"]):
        reads: Sequence[int] = module["reads"] if data["kind"] == "stack" else range(i)
        first = max((ends[i] for i in reads), default=0)
        part = rows_of(data["parts"][module["part"]])
        ends.append(first + len(part))
        rows += [[] for _ in range(ends[-1] - len(rows))]
        for row, heads in zip(rows[first:], part, strict=False):
            row.extend(heads)
    return rows


def _fields(data: Mapping[str, Any]) -> Iterator[str]:
    """The names of the fields that the numbers of a certificate lie in."""
    from statetrack.theory.number_fields import field_from_json, rationals

    parts = [data["clock"]] if data["kind"] == "blocks" else data.get("parts", ())
    for part in parts:
        yield from _fields(part)
    if data["kind"] not in ("stack", "chain"):
        yield str(field_from_json(data["field"]) if "field" in data else rationals())


def _margins(data: Mapping[str, Any]) -> list[list[Any]]:
    """The margin claimed for each head of each network layer."""
    claimed = data["claims"].get("margin")
    if data["kind"] in ("stack", "chain"):
        return _by_depth(data, _margins)
    if data["kind"] == "blocks":
        # Slots of the buffer hold numbers of letters.
        slots = [[1 if any(data["tokens"]) else None] * (2 * data["length"])]
        return [*_margins(data["clock"]), *slots, [claimed]]
    return claimed if data["kind"] == "closure" else [[claimed]]


def _proof(data: Mapping[str, Any]) -> str:
    """What is proved, and by which search."""
    claims, right = data["claims"], "right after every non-empty word"
    if "scaled" in data:
        tokens, halvings = data["scaled"]["tokens"], data["scaled"]["halvings"]
        right += f" of up to {tokens:,} tokens, in which the state is halved {halvings:,} times at most"
    if data["kind"] == "closure":
        return f"closure of {claims['joint']:,} joint states: {right}"
    if data["kind"] == "blocks":
        return f"blocks: {claims['products']:,} products of letters, {claims['entries']:,} table entries: {right}"
    if data["kind"] == "stack":
        return f"stack of {len(data['modules'])} networks with certificates, {claims['joint']:,} joint states: {right}"
    if data["kind"] == "chain":
        count = f"{len(data['modules'])} networks with certificates, {claims['triples']:,} pairs of sets and tokens"
        return f"chain of sets through {count}, each level checked by itself: {right}"
    if data["kind"] == "linear":
        return f"linear map onto the weighted automaton: {right}"
    return "linear span: the readout is a function of the automaton's state after every word"


def _number(horizon: float) -> int | str:
    return "every length" if horizon == float("inf") else int(horizon)


_NAMES = {
    "factors_per_token": "factors a token",
    "beta_max": "largest β",
    "unit_margin": "margin (unit query)",
    "margin_squared": "margin², exact",
    "margins": "margin at least",
    "unit_margins": "margins (unit query)",
    "proved_length": "right in this format up to",
    "joint_states": "joint states",
    "first_wrong": "first wrong at token (from 0)",
    "wrong_words": "words with a wrong state",
    "wrong": "wrong states",
    "dims": "state sizes K",
    "columns": "state columns V",
    "dtype": "number format",
    "refuted": "REFUTED",
}


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "-"
    if key == "proved_length":
        return value if isinstance(value, str) else f"{value:,} tokens" if value else "no bound of this kind"
    if key in ("dims", "columns", "margins", "unit_margins"):
        rows: list[list[Any]] = value
        return "; ".join(", ".join(map(_decimal, row)) for row in rows)
    if isinstance(value, list):
        return " ".join(str(x) for x in cast("list[Any]", value))
    return (
        f"{value:,}"
        if isinstance(value, int) and not isinstance(value, bool)
        else f"{value:.6g}"
        if isinstance(value, float)
        else str(value)
    )


def _decimal(x: Any) -> str:
    return "-" if x is None else f"{float(Fraction(x)):.6g}"


def _print_json(data: Any) -> None:
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        # The escapes of the stream are not those of JSON.
        text = json.dumps(data)
    print(text)


def _console() -> Console:
    """A terminal's own width; wide enough for a digest in a pipe."""
    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=140)
