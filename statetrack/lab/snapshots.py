"""A training run on disk: weights, the optimiser's moments, random states and counters in one safetensors file.

A snapshot appears whole or not at all, and loading one runs no code from it.

Main definitions: `Snapshot`, `write_snapshot`, `read_snapshot`, `write_json`.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from statetrack.errors import InvalidFile

FORMAT = "statetrack-run/1"
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What `read_snapshot` found: tensors by name and the counters that were saved with them."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def restore(self, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
        """Put weights, moments and the random state back."""
        model.load_state_dict({name.removeprefix("model."): x for name, x in self._of("model.").items()})
        names = {id(p): name for name, p in model.named_parameters()}
        state: dict[int, dict[str, Tensor]] = {}
        for number, parameter in enumerate(p for group in optimiser.param_groups for p in group["params"]):
            kept = {
                m: self.tensors[f"{m}.{names[id(parameter)]}"] for m in _MOMENTS if self._has(m, names[id(parameter)])
            }
            if kept:
                state[number] = kept
        optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
        torch.set_rng_state(self.tensors["random"])

    def _of(self, prefix: str) -> dict[str, Tensor]:
        return {name: x for name, x in self.tensors.items() if name.startswith(prefix)}

    def _has(self, moment: str, name: str) -> bool:
        return f"{moment}.{name}" in self.tensors


def write_snapshot(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer, facts: dict[str, Any]) -> None:
    """Write a snapshot; `facts` are plain JSON values."""
    names = {id(p): name for name, p in model.named_parameters()}
    tensors = {f"model.{name}": x for name, x in model.state_dict().items()}
    for parameter, kept in optimiser.state.items():
        tensors |= {f"{m}.{names[id(parameter)]}": kept[m] for m in _MOMENTS if m in kept}
    tensors["random"] = torch.get_rng_state()
    own = {name: x.detach().cpu().contiguous().clone() for name, x in tensors.items()}
    _whole(path, save(own, {"format": FORMAT, "facts": json.dumps(facts)}))


def read_snapshot(path: Path) -> Snapshot:
    """The snapshot in a file; InvalidFile if there is none."""
    advice = "start the run anew, in another folder"
    try:
        with safe_open(str(path), "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InvalidFile(str(path), "is no snapshot of a run", advice)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return Snapshot(tensors, json.loads(metadata["facts"]))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", advice) from error


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    _whole(path, (json.dumps(data, indent=1) + "\n").encode())


def _whole(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        raise InvalidFile(str(path), f"cannot be written ({error.strerror})", "give a folder to write to") from None
