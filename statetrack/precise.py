"""`build --precision`: the encoding that is right for ever in a number format, and what is printed of it; `--scaled`.

Main definitions: `Dtype`, `Precision`, `Fused`, `Columns`, `Scaled`, `one_source`, `in_precision`, `for_ever_facts`,
`searched_facts`, `claim_facts`, `past_horizon`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from statetrack.errors import InvalidInput
from statetrack.guards import is_folder

if TYPE_CHECKING:
    from statetrack.api import Compiled, Weights

Dtype = Annotated[str, typer.Option(help="Number format: float64, float32, bfloat16, float16, float8_e4m3fn.")]
Precision = Annotated[
    str | None,
    typer.Option(
        help="Choose an encoding that is right for ever with a state in this format, if there is one: fp32, bf16, "
        "fp16, e4m3, e5m2, fp64."
    ),
]

Fused = Annotated[
    bool,
    typer.Option("--fused", help="With --precision: right as well in kernels that fuse products into sums."),
]
Columns = Annotated[
    int,
    typer.Option(min=1, help="With --precision: most float columns of a head in one set; 100000 is a long search."),
]

Scaled = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Blocks with β at most 2 although letters merge states: right up to so many tokens, as the state shrinks.",
    ),
]


def in_precision(
    made: Compiled, dtype: str, precision: str | None, fused: bool, max_columns: int, **limits: Any
) -> tuple[Compiled, Weights, dict[str, Any]]:
    """What is built with --precision or --dtype, its weights, and facts about the search."""
    if precision is None:
        return made, made.weights(dtype), {}
    from statetrack.constructions.planner import Limits
    from statetrack.constructions.source import Source
    from statetrack.printing import progress_line
    from statetrack.theory.number_formats import number_format

    form = number_format(precision)
    if dtype not in ("float32", form.name):
        raise InvalidInput(f"--precision {precision} and --dtype {dtype}: give one of them")
    if not isinstance(made.source, Source):
        raise InvalidInput("--precision is for automata with states; a weighted automaton has none to be right about")
    allowed = Limits(limits.get("max_dim"), limits.get("max_factors"))
    how: dict[str, Any] = {"construction": limits.get("construction"), "limits": allowed, "max_columns": max_columns}
    with progress_line("float columns", None) as update:
        better, weights, found = made.for_ever(form.name, fused=fused, progress=update, **how)
    facts: dict[str, Any] = {"precision": form.name, "encoding": found.encoding, "table_format": weights.dtype}
    facts |= {} if weights.keys == "unit" else {"keys": weights.keys}
    if weights.float_proof is not None:
        return better, weights, facts | for_ever_facts(weights)
    reason = f"not proved: {getattr(found.outcome, 'reason', '')}"
    with progress_line("float columns of words", None) as update:
        searched = searched_facts(better, weights, fused=fused, progress=update)
    return better, weights, facts | {"for_ever": reason} | searched


def searched_facts(made: Compiled, weights: Weights, *, fused: bool = False, progress: Any = None) -> dict[str, Any]:
    """What the search of all words proves of weights that are not right for ever; nothing where it does not apply."""
    from statetrack.constructions.column_search import search_words
    from statetrack.constructions.float_closure import ideal_of
    from statetrack.errors import BudgetExceeded

    bound = weights.horizon()
    if made.certificate.kind not in ("closure", "stack") or bound == float("inf"):
        return {}
    try:
        ideal = ideal_of(made.program, weights.dfa)
    except BudgetExceeded:
        return {}
    found = search_words(weights, ideal, order="fused" if fused else "recurrent", progress=progress)
    orders = "sums from left to right" if found.any_order < found.depth else "any order of sums"
    if found.any_order == found.depth and fused:
        orders += ", products fused or not"
    # The bound on rounding may reach farther than a search that was ended by its budget.
    depth = int(max(found.depth, bound))
    how = f"searched; {orders}" if depth == found.depth else f"the bound above; searched up to {found.depth:,}"
    known = "every length" if found.closed else f"words of up to {depth:,} symbols"
    facts: dict[str, Any] = {"proved_right": f"{known} ({how})"}
    if found.any_order < found.depth:
        facts["proved_right_in_any_order"] = f"words of up to {found.any_order:,} symbols"
    if found.fails is None:
        return facts | {"failing_word": "none found"}
    size, word = len(found.fails.word), " ".join(found.fails.word)
    how = "a shortest one" if found.is_shortest else f"the shortest has {depth + 1:,} to {size:,}"
    return facts | {"failing_word": word, "failing_word_length": f"{size:,} symbols; {how}"}


def one_source(scaled: int | None, source: str, precision: str | None, proof: str) -> dict[str, int]:
    """The option --scaled, refused where it has no meaning; nothing without it. So is --precision for a span."""
    if precision is not None and proof == "span":
        raise InvalidInput("--precision follows finite sets of states, which --proof span does without: leave one out")
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
