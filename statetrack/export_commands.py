"""The command that writes a built program as a checkpoint that other libraries load; `cli.py` puts it with the others.

Main definitions: `export`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from statetrack.errors import InvalidInput
from statetrack.guards import readable
from statetrack.printing import say


def export(
    file: Annotated[Path, typer.Argument(help="Weights file written by build.")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write the checkpoint to.")],
    to: Annotated[str, typer.Option(help="fla (flash-linear-attention 0.6) or hf (our own model type ckda).")] = "fla",
    model: Annotated[str, typer.Option(help="For fla: auto, delta_net, gated_deltaproduct or kda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16 (hf: float64 too).")] = "float32",
    mode: Annotated[
        str, typer.Option(help="For fla, the kernel: fused_recurrent, or chunk (faster; loses states of long words).")
    ] = "fused_recurrent",
    conv: Annotated[int, typer.Option(min=0, help="For fla: size of short convolutions that pass the token.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """Write a built program as a Hugging Face folder: AutoModelForCausalLM loads it, its logits name the states."""
    from statetrack.api import load

    if to not in ("fla", "hf"):
        raise InvalidInput(f"--to {to!r}: know fla, hf")
    if to == "hf" and (model, mode, conv) != ("auto", "fused_recurrent", 0):
        raise InvalidInput("--model, --mode and --conv are for --to fla; leave them out")
    found = load(file)
    with readable(file):
        exact = found.in_format("float64")
    if to == "hf":
        from statetrack.lab.ckda_checkpoint import ckda_checkpoint

        made = ckda_checkpoint(exact, dtype=dtype)
    else:
        from statetrack.lab.fla_checkpoint import fla_checkpoint

        made = fla_checkpoint(exact, model, dtype=dtype, conv=conv, mode=mode)
    made.save(folder)
    facts: dict[str, Any] = {
        "folder": str(folder),
        "model_type": made.config["model_type"],
        "parameters": sum(t.size for t in made.tensors.values()),
        "start_ids": made.facts["start_ids"],
        "symbols": _range(made.facts["first_symbol_id"], len(made.facts["alphabet"])),
        "states": _range(made.facts["first_state_id"], made.facts["states"]),
        "dtype": dtype,
    }
    say(facts, as_json)


def _range(first: int, count: int) -> str:
    """Ids as "first to last"."""
    return f"ids {first} to {first + count - 1}" if count > 1 else f"id {first}"
