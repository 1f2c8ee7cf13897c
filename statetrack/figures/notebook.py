"""What notebooks show of automata, cascades, programs, built programs and verdicts.

Every text is escaped by the templates; pictures are images with their SVG inside, so that their styles and ids stay
apart from the page's. Large values are cut, and the number of what is left out is said.

Main definitions: `html`, `svg`, `line`.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from statetrack.constructions.cascade import Cascade
from statetrack.constructions.compiler import Compiled
from statetrack.constructions.program import Dense, Factor, Head, Layer, Program, Step, evaluate
from statetrack.errors import BudgetExceeded, InvalidInput
from statetrack.proofs_check.report import cell
from statetrack.proofs_check.runner import Verdict, Verdicts
from statetrack.theory.automata import Dfa, Output

from .cascades import cascade_graph, picture
from .diagrams import is_drawable, state_diagram
from .style import svg_text

# Rows and columns of tables, components of a picture, and component states that are walked through for it.
_ROWS, _COLUMNS, _COMPONENTS, _REACHED = 20, 12, 24, 2_000


def html(value: object) -> str:
    """The value as an HTML fragment. Raises InvalidInput for a value of another kind."""
    match value:
        case Dfa():
            return _filled("automaton", _automaton(value))
        case Cascade():
            return _filled("cascade", _cascade(value))
        case Program():
            return _filled("program", _program(value))
        case Compiled():
            return _filled("compiled", _compiled(value))
        case Verdict():
            return cell([value])
        case Verdicts():
            return cell(value)
        case _:
            raise InvalidInput(f"notebook: nothing is known of how to show a {type(value).__name__}")


def svg(value: Dfa | Cascade | Any) -> str | None:
    """The value's picture; None if it has none, or is too large for one."""
    if isinstance(value, Dfa):
        return svg_text(state_diagram(value)) if is_drawable(value) else None
    if not isinstance(value, Cascade) or not 0 < len(value.components) <= _COMPONENTS:
        return None
    try:
        return svg_text(picture(cascade_graph(value, _REACHED), ""))
    except BudgetExceeded:
        return None


def line(value: object) -> str:
    """The value in a few words, for consoles."""
    match value:
        case Dfa():
            return f"<Dfa: {len(value.states)} states, {len(value.alphabet)} symbols>"
        case Cascade():
            return f"<Cascade: {len(value.components)} components in {value.levels} layers>"
        case Program():
            return f"<Program: {value.depth} layers, sizes {value.dims}>"
        case Compiled():
            return f"<Compiled: {value.source.name} on {value.target.name}, digest {value.certificate.digest[:12]}>"
        case Verdict():
            return f"<Verdict: {value.id} {value.verdict}>"
        case Verdicts():
            return "<Verdicts: " + ", ".join(f"{one.id} {one.verdict}" for one in value) + ">"
        case _:
            return object.__repr__(value)


@cache
def _cells() -> Any:
    folder = Path(__file__).parent / "templates"
    pages = Environment(
        loader=FileSystemLoader(folder, encoding="utf-8"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return pages.get_template("cells.html").module


def _filled(name: str, facts: dict[str, Any]) -> str:
    return str(getattr(_cells(), name)(facts)).strip()


def _image(value: Dfa | Cascade) -> str | None:
    """The picture as the address of an image."""
    text = svg(value)
    return None if text is None else "data:image/svg+xml;base64," + b64encode(text.encode()).decode()


def _automaton(dfa: Dfa) -> dict[str, Any]:
    shown = range(min(len(dfa.states), _ROWS))
    table = dfa.delta[: len(shown), :_COLUMNS].tolist()
    names: dict[Output, str] = {True: "accepts", False: "rejects"}
    return {
        "states": len(dfa.states),
        "symbols": len(dfa.alphabet),
        "alphabet": dfa.alphabet[:_COLUMNS],
        "more_symbols": max(0, len(dfa.alphabet) - _COLUMNS),
        "more_states": len(dfa.states) - len(shown),
        "picture": _image(dfa),
        "rows": [
            {
                "start": q == dfa.start,
                "name": dfa.states[q],
                "to": [dfa.states[r] for r in table[q]],
                "output": names.get(dfa.outputs[q], dfa.outputs[q]),
            }
            for q in shown
        ],
    }


def _cascade(cascade: Cascade) -> dict[str, Any]:
    count = len(cascade.components)
    try:
        graph = cascade_graph(cascade, _REACHED)
        kinds = [str(graph.nodes[i]["kind"]) for i in graph]
    except BudgetExceeded:
        kinds = ["not looked at: too many states"] * count
    rows = zip(range(min(count, _ROWS)), cascade.components, cascade.layers, cascade.start, strict=False)
    return {
        "components": count,
        "levels": cascade.levels,
        "states": len(cascade.dfa.states),
        "letters": _letters(cascade.dfa.alphabet),
        "picture": _image(cascade),
        "more": max(0, count - _ROWS),
        "rows": [
            {
                "number": i,
                "layer": layer,
                "size": component.size,
                "start": start,
                "reads": _listed(component.reads, "the token only"),
                "kind": kinds[i],
            }
            for i, component, layer, start in rows
        ],
    }


def _program(program: Program) -> dict[str, Any]:
    heads = [
        _head(depth, number, head)
        for depth, layer in sorted(zip(program.depths, program.layers, strict=True), key=lambda pair: pair[0])
        for number, head in enumerate(layer.heads)
    ]
    steps = list(_steps(program))
    return {
        "layers": program.depth,
        "factors": program.factors_per_token,
        "letters": _letters(program.alphabet),
        "field": str(program.field),
        "heads": heads[:_ROWS],
        "more_heads": max(0, len(heads) - _ROWS),
        "steps": steps,
        "more_steps": max(0, len(program.alphabet) - len(steps)),
    }


def _head(depth: int, number: int, head: Head) -> dict[str, Any]:
    factors = [f for step in head.steps for f in step]
    plain = [f for f in factors if isinstance(f, Factor)]
    gates = {round(float(a), 4) for f in plain for a in f.alpha or (head.field.one,)}
    return {
        "layer": depth,
        "head": number,
        "size": f"{head.size} × {head.width}",
        "steps": len(head.steps),
        "factors": max(map(len, head.steps), default=0),
        "betas": "any matrix" if len(plain) < len(factors) else _span({round(float(f.beta), 4) for f in plain}),
        "gates": "-" if len(plain) < len(factors) else _span(gates),
        "queries": len(head.queries),
        "codes": "-" if head.codebook is None else len(set(head.codebook.values())),
    }


def _steps(program: Program) -> Iterator[tuple[str, str]]:
    """Each letter with what it does in the first head of the first layer, for the first letters."""
    if not program.layers or not program.layers[0].heads:
        return
    layer = program.layers[0]
    head = layer.heads[0]
    for token, symbol in enumerate(program.alphabet[:_COLUMNS]):
        found = head.choose.seen.get(_first_input(layer, program.reads[0], token))
        if found is not None:
            yield symbol, _spelled(head.steps[found[0]])


def _first_input(layer: Layer, reads: tuple[int, ...], token: int) -> tuple[int, ...]:
    """What the first layer's heads look a letter up by: its registers hold the token, then the results of its wires."""
    registers = [token]
    evaluate(layer.wires, registers)
    return tuple(registers[i] for i in reads)


def _spelled(step: Step) -> str:
    if not step:
        return "h stays"
    return "; then ".join(_factor(f) for f in step)


def _factor(factor: Factor | Dense) -> str:
    if isinstance(factor, Dense):
        return f"a matrix of {len(factor.rows)} rows" + ("" if factor.b is None else ", and b")
    length = math.sqrt(sum(float(x) ** 2 for x in factor.w))
    parts: list[str] = []
    if length and not factor.c.is_zero():
        parts.append(f"β = {factor.beta}, k = ({_row(float(x) / length for x in factor.w)})")
    if factor.alpha is not None:
        parts.append(f"α = ({_row(map(float, factor.alpha))})")
    if factor.b is not None:
        parts.append("b = " + ", ".join(f"({_row(map(float, column))})" for column in factor.b))
    return ", ".join(parts) or "h stays"


def _compiled(made: Compiled) -> dict[str, Any]:
    proof, margin = made.certificate, made.margin
    automaton = made.automaton
    size = f"{len(automaton.states)} states" if isinstance(automaton, Dfa) else "a weighted automaton"
    rows = [
        ("source", f"{made.source.name}: {size}, {len(automaton.alphabet)} symbols"),
        ("target", made.target.name),
        ("construction", f"{made.plan.construction} ({made.plan.theorem})"),
        ("proof", proof.kind + (f", {proof.joint:,} joint states" if proof.joint else "")),
        ("margin (unit query)", "-" if margin is None else f"{margin.unit:.6g}"),
        ("digest", proof.digest),
    ]
    return {"rows": rows, "program": _program(made.program)}


def _letters(alphabet: tuple[str, ...]) -> str:
    return _listed(alphabet, "no symbols")


def _listed(values: Iterable[object], nothing: str) -> str:
    found = [str(x) for x in values]
    more = len(found) - _COLUMNS
    return (", ".join(found[:_COLUMNS]) or nothing) + (f" and {more} more" if more > 0 else "")


def _span(values: set[float]) -> str:
    """The numbers, or the ends of where they lie."""
    if len(values) <= 4:
        return _row(sorted(values)) or "-"
    return f"{min(values):g} to {max(values):g}"


def _row(values: Iterable[float]) -> str:
    return ", ".join(f"{round(x, 4) + 0.0:g}" for x in values)
