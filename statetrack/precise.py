"""`build --precision`: the encoding that is right for ever in a number format, and what is printed of it; `--scaled`.

Main definitions: `Precision`, `Scaled`, `one_source`, `in_precision`, `for_ever_facts`, `claim_facts`,
`past_horizon`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from statetrack.errors import InvalidInput
from statetrack.guards import is_folder

if TYPE_CHECKING:
    from statetrack.api import Compiled, Weights

Precision = Annotated[
    str | None,
    typer.Option(
        help="Choose an encoding that is right for ever with a state in this format, if there is one: fp32, bf16, "
        "fp16, e4m3, e5m2, fp64."
    ),
]


Scaled = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Blocks with β at most 2 although letters merge states: right up to so many tokens, as the state shrinks.",
    ),
]


def in_precision(
    made: Compiled, dtype: str, precision: str | None, **limits: Any
) -> tuple[Compiled, Weights, dict[str, Any]]:
    """What is built with --precision or --dtype, its weights, and facts about the search."""
    if precision is None:
        return made, made.weights(dtype), {}
    from statetrack.constructions.planner import Limits
    from statetrack.constructions.source import Source
    from statetrack.theory.number_formats import number_format

    form = number_format(precision)
    if dtype not in ("float32", form.name):
        raise InvalidInput(f"--precision {precision} and --dtype {dtype}: give one of them")
    if not isinstance(made.source, Source):
        raise InvalidInput("--precision is for automata with states; a weighted automaton has none to be right about")
    allowed = Limits(limits.get("max_dim"), limits.get("max_factors"))
    better, weights, found = made.for_ever(form.name, construction=limits.get("construction"), limits=allowed)
    facts: dict[str, Any] = {"precision": form.name, "encoding": found.encoding, "table_format": weights.dtype}
    facts |= {} if weights.keys == "unit" else {"keys": weights.keys}
    if weights.float_proof is None:
        facts["for_ever"] = f"not proved: {getattr(found.outcome, 'reason', '')}"
    else:
        facts |= for_ever_facts(weights)
    return better, weights, facts


def one_source(scaled: int | None, source: str, precision: str | None) -> dict[str, int]:
    """The option --scaled, refused where it has no meaning; nothing without it."""
    if scaled is None:
        return {}
    if is_folder(source) or precision is not None:
        raise InvalidInput("--scaled is for one source and not with --precision: its state shrinks, token by token")
    return {"scaled": scaled}


def for_ever_facts(weights: Weights) -> dict[str, Any]:
    """What a float proof says, for people; nothing without one."""
    proof = weights.float_proof
    if proof is None:
        return {}
    columns = sum(len(rows) for head in proof["heads"] for _, rows in head["columns"])
    how = {"E": "no operation rounds", "R": "rounding leads back to the exact state", "C": "another finite set"}
    order = "any order of sums" + (", products fused or not" if proof["order"] == "fused" else "")
    said = f"class {proof['class']} ({how[proof['class']]}), {columns:,} float columns, {order}"
    return {"state_format": weights.storage, "for_ever": said}


def claim_facts(weights: Weights, first_wrong: int | None, horizon: float) -> dict[str, str]:
    """That a run does not check what it relies on; if a token within the horizon is wrong, that this is refuted."""
    what = "certificate" if weights.float_proof is None else "proof of being right for ever"
    facts = {"checked": f"{what} in the file, not checked here; 'statetrack check' does"}
    if first_wrong is None or first_wrong >= horizon:
        return facts
    length = "every length" if horizon == float("inf") else f"up to {int(horizon):,} tokens"
    why = "a false claim, changed tensors, or a device that rounds otherwise than docs/precision.md says"
    said = f"a wrong state after {first_wrong + 1:,} tokens, and the file claims to be right for {length}"
    return facts | {"refuted": f"{said}: {why}; run 'statetrack check'"}


def past_horizon(horizon: float, longest: int) -> dict[str, Any]:
    """A warning where words were longer than what is proved of the format; nothing else."""
    if longest <= horizon:
        return {}
    known = (
        f"only words of at most {int(horizon):,} symbols are proved right" if horizon else "no length is proved right"
    )
    return {"warning": f"words of {longest:,} symbols: in this format {known}"}
