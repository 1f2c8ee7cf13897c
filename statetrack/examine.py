"""The commands that examine what others made: layer kernels (`conform`) and checkpoints (`audit`).

Main definitions: `conform`, `audit`.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from statetrack.errors import InvalidInput
from statetrack.guards import check_format
from statetrack.printing import progress_line, say, say_rows

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def conform(
    kernel: Annotated[str, typer.Argument(help="MODULE:FUNCTION or FILE.py:FUNCTION; the module is imported.")],
    layout: Annotated[str, typer.Option(help="Its arguments: fla (flash-linear-attention) or ours (ckda).")] = "ours",
    dtype: Annotated[str, typer.Option(help="Of q, k, v, β: float64, float32, bfloat16, float16.")] = "float32",
    case: Annotated[list[str] | None, typer.Option(help="Only this tracker (several times for several).")] = None,
    check: Annotated[
        list[str] | None, typer.Option(help="Only decode, split, varlen, gradient or drift (several times).")
    ] = None,
    length: Annotated[
        list[int] | None, typer.Option(help="Tokens a word (several times: drift takes each, decode the longest).")
    ] = None,
    words: Annotated[int, typer.Option(min=1, help="Size of the batch.")] = 4,
    heads: Annotated[int, typer.Option(min=1, help="Heads; each has words of its own.")] = 2,
    key_size: Annotated[int, typer.Option(min=5, help="K, channels of a head.")] = 64,
    value_size: Annotated[int, typer.Option(min=5, help="V, columns of a head.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the words.")] = 0,
    gate: Annotated[str, typer.Option(help="What g holds in fla's layout: auto, channel or scalar.")] = "auto",
    option: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=VALUE, a further keyword of every call (several times).")
    ] = None,
    device: Annotated[str, typer.Option(help="auto (cuda if there is one, else cpu), cpu, cuda or cuda:N.")] = "auto",
    save: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the shortest failing input of each failure; FILE.jsonl: lines that make it again."
        ),
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="Run saved failing inputs again, nothing else.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit code 1 also if a check is refused.")] = False,
    as_json: Json = False,
) -> None:
    """Run compiled trackers through any layer KERNEL; exit code 1 if it loses a state or breaks, 2 if nothing ran."""
    from statetrack.api import device_of
    from statetrack.kernels.conform import replay as rows_again
    from statetrack.kernels.conform import require_one
    from statetrack.kernels.layouts import load_kernel

    place = device_of(device)
    loaded = load_kernel(kernel, layout, _keywords(option or []), gate)  # pyright: ignore[reportArgumentType]
    sizes = {"words": words, "heads": heads, "key_size": key_size, "value_size": value_size, "seed": seed}
    what = {"dtype": dtype, "device": place, "cases": case, "lengths": length or (1024,), "save": save}
    for name in loaded.unnamed:
        print(f"note: {loaded.name} has no argument {name} by name; its **keywords may ignore it", file=sys.stderr)
    rows = _rows(loaded, check, what | sizes) if replay is None else rows_again(loaded, replay, device=place)
    require_one(loaded, rows)
    say_rows([vars(row) if as_json else _short(row) for row in rows], as_json)
    counts = Counter(row.status for row in rows)
    if not as_json:
        print(", ".join(f"{counts[status]} {status}" for status in counts))
    if any(row.failed for row in rows) or (strict and counts["refused"]):
        raise typer.Exit(1)


def _rows(kernel: Any, checks: list[str] | None, how: dict[str, Any]) -> list[Any]:
    """All rows of a kernel, with a line of progress."""
    from statetrack.kernels.conform import CHECKS
    from statetrack.kernels.conform import conform as rows_of

    with progress_line("checks", None) as update:
        return list(rows_of(kernel, checks=checks or CHECKS, progress=update, **how))


def _short(row: Any) -> dict[str, Any]:
    """A row of the table for people: lengths reached, of how many."""

    def reached(n: int | None) -> str:
        return "" if n is None else f"≥ {n}" if n == row.length else str(n)

    return {
        "case": row.case,
        "check": row.check,
        "T": row.length,
        "status": row.status.upper() if row.failed else row.status,
        "horizon": reached(row.horizon),
        "float64": reached(row.reference),
        "required": reached(row.required),
        "proved": "" if row.bound is None else f"{row.bound:.0f}",
        "norm": "" if row.norm is None else f"{row.norm:.4g}",
        "error": "" if row.error is None else f"{row.error:.2g}",
        "shortest": "" if row.minimal is None else str(row.minimal),
        "detail": row.detail + ("" if row.saved is None else f"; {row.saved}"),
    }


def _keywords(pairs: list[str]) -> dict[str, Any]:
    """NAME=VALUE, the value true, false, a number, or text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name.isidentifier():
            raise InvalidInput(f"--set {pair!r}: expected NAME=VALUE")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def audit(
    checkpoint: Annotated[
        Path, typer.Argument(help="Layer of ours or of flash-linear-attention, arrays k, beta, alpha, weights.")
    ],
    automaton: Annotated[
        str | None, typer.Option(help="SOURCE as for build: does a head track it? Row i is letter i of its alphabet.")
    ] = None,
    letters: Annotated[str, typer.Option(help="A group's alphabet: all elements or generators.")] = "all",
    tolerance: Annotated[float, typer.Option(help="Relative distance within which two states are one.")] = 0.1,
    length: Annotated[int, typer.Option(min=1, help="Length of the words that tracking is tried on.")] = 256,
    dtype: Annotated[
        str | None, typer.Option(help="Round to this format, as run does (default: a weights file's, else float64).")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Tokens whose eigenvalues are taken.")] = 256,
    beta_max: Annotated[
        float | None,
        typer.Option(help="β is this times a sigmoid (default: the configuration; else 2 in our layers, 1 in others)."),
    ] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, help="Key heads (default: config.json, or the number of β).")
    ] = None,
    tokens: Annotated[str | None, typer.Option(help="Ids to embed, apart by commas (default: all).")] = None,
    inputs: Annotated[Path | None, typer.Option(help=".safetensors with one tensor [tokens, hidden] to read.")] = None,
    draw: Annotated[Path | None, typer.Option(help="Write the spectra: .svg, .pdf or .png, data beside it.")] = None,
    as_json: Json = False,
) -> None:
    """Say what the transitions in CHECKPOINT are like, and whether a head tracks an automaton."""
    from statetrack.constructions.source import Options, resolve
    from statetrack.kernels.audit import spectrum, statistics, tracking
    from statetrack.kernels.checkpoints import Reading, read_checkpoint

    chosen = None if tokens is None else _numbers(tokens)
    if dtype is not None:
        check_format(dtype)
    layers = read_checkpoint(checkpoint, Reading(beta_max, heads, chosen, inputs))
    rows = [vars(facts) for layer in layers for facts in statistics(layer, samples)]
    tracked: list[dict[str, Any]] = []
    if automaton is not None:
        dfa = resolve(automaton, Options(letters)).dfa
        known = [layer for layer in layers if layer.symbols] or list(layers)
        with progress_line("clusters of states", None) as update:
            how: dict[str, Any] = {"tolerance": tolerance, "length": length, "dtype": dtype, "progress": update}
            tracked = [vars(t) for layer in known for t in tracking(layer, dfa, **how)]
    if draw is not None:
        from statetrack.figures.measured import draw_audit

        heads_of = [(x, h) for x in layers for h in range(x.k.shape[1])]
        draw_audit(draw, {f"{x.name}, head {h}": spectrum(x, h, samples).numpy() for x, h in heads_of})
    if as_json:
        facts: dict[str, Any] = {"layers": [{"layer": x.name, "kind": x.kind, "inputs": x.inputs} for x in layers]}
        say(facts | {"heads": rows, "tracking": tracked}, True)
        return
    for layer in layers:
        print(f"{layer.name}: {layer.kind}, inputs: {layer.inputs}")
    say_rows([_rounded(row) for row in rows], False)
    if tracked:
        for said in dict.fromkeys(str(row["evaluated"]) for row in tracked):
            print(f"tracking evaluated in {said}")
        say_rows([_rounded({n: x for n, x in row.items() if n != "evaluated"}) for row in tracked], False)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--tokens {text!r}: expected numbers apart by commas") from None


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    shown = {name: "" if x is None else f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()}
    return {name.replace("_", " "): x for name, x in shown.items()}
