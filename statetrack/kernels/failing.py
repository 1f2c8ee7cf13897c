"""Failing inputs as lines of JSON: how to make each again, what it fails, and a digest that says if it is the same.

A line is some hundred bytes where the tensors are a megabyte: `recipe` (the arguments of `trials.Recipe`), `letters` of
the word (the first 64 tokens; numbers of letters, or of keys in a drift test), `sha256` of the tensors, and what
`conform` knows: kernel, layout, options, check, tolerances, what was found.

Main definitions: `append_recipe`, `read_recipes`, `digest`.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from statetrack.errors import InvalidFile, InvalidInput

from .trials import Recipe, Trial

VERSION = "statetrack-recipe/1"
_SHOWN = 64


def append_recipe(trial: Trial, path: Path, facts: Mapping[str, Any]) -> None:
    """Add a line for a trial that `tracker_trial` or `drift_trial` made, or for words or beginnings of it.

    Raises:
        InvalidInput: a trial that was made otherwise.
    """
    if trial.recipe is None or trial.letters is None:
        raise InvalidInput(f"trial {trial.name!r}: nothing says how it was made; save its tensors")
    letters = trial.letters[0, :_SHOWN, 0].tolist()
    line = {"format": VERSION, **facts, "recipe": vars(trial.recipe), "letters": letters, "sha256": digest(trial)}
    path.parent.mkdir(parents=True, exist_ok=True)
    # One write, for several processes may add lines to one file.
    with path.open("ab", buffering=0) as file:
        file.write((json.dumps(line) + "\n").encode())
        os.fsync(file.fileno())


def read_recipes(path: Path) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """The trials of a file, made again, and the rest of each line.

    Raises:
        InvalidFile: no such file, a line that `append_recipe` did not write, or a trial that comes out otherwise.
    """
    advice = "give a file .jsonl written by statetrack conform --save"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        for number, text in enumerate(lines, 1):
            line: dict[str, Any] = json.loads(text)
            if line["format"] != VERSION:
                raise ValueError(f"line {number} is no recipe ({VERSION})")
            asked = line["recipe"]
            trial = Recipe(**asked | {"word": asked["word"] and tuple(asked["word"])}).trial()
            if digest(trial) != line["sha256"]:
                advice = "replay it with the version that wrote it, or run conform --save again"
                raise ValueError(f"line {number}, {trial.name}, is made otherwise today")
            yield trial, line
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidFile(str(path), f"cannot be read ({type(error).__name__}: {error})", advice) from error


def digest(trial: Trial) -> str:
    """SHA-256 of what a kernel is given and of the true states: names, types, shapes and bytes of the tensors.

    The codebook is left out: its last bit in float64 may be a matter of the machine.
    """
    found = hashlib.sha256()
    given = ("q", "k", "v", "beta", "alpha", "state", "active", "columns", "truth", "letters")
    for name, x in sorted(trial.tensors().items()):
        if name not in given:
            continue
        x = x.detach().cpu().contiguous()
        found.update(f"{name} {x.dtype} {tuple(x.shape)}\n".encode())
        found.update(x.flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
