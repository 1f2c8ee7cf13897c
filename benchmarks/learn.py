"""Are the constructions learned? Training runs by task, ranges and seed, many at once on one device.

    python benchmarks/learn.py --preset s3 s4 --device h200 --jobs 12        # presets: parity s3 s4 s5-swaps a5
    python benchmarks/learn.py --preset all --seconds 150 --jobs 14 --device h200
    python benchmarks/learn.py --preset s4 --ranges both --seeds 1 --set heads=16 lr=5e-3 --no-save --output runs/a

Every run is a process of its own (small models share a GPU) with a time budget of `--seconds`; the first step, which
compiles kernels, does not count. A run writes to a folder of its own under --output, and `--resume` goes on with those
that were stopped. All seeds are written to results/learn-DEVICE.json, a row a run and length (docs/lab.md); rows of
tasks that are not run this time are kept. The last table is the best seed of each setting.
"""
# pyright: basic

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from typing import Any

import report
from rich.console import Console
from rich.table import Table
from together import arguments, device_name, fields_of, trained

from statetrack.lab.runs import RANGES, Run

# One layer, no convolution, no SiLU, readouts without norm and gate (docs/lab.md says what these and the start change).
PLAIN: dict[str, Any] = {"output_gate": False, "output_norm": False, "steps": 100_000, "evaluate_every": 500}
WORD_PROBLEM: dict[str, Any] = PLAIN | {
    "init": "mixed",
    "learned_start": True,
    "heads": 4,
    "head_dim": 32,
    "batch": 256,
    "lr": 1e-2,
    "train_lengths": (2, 32),
    "curriculum": "paced",
}
# What S3 and swaps need is less: the first state is 0, gates have the signs of their biases.
EASIER: dict[str, Any] = WORD_PROBLEM | {"init": "spread", "learned_start": False, "lr": 3e-3}
# S4 takes many small heads that learn alone at the full rate, then all heads at a falling one, of which few are left
# by their cost, lengths that grow as they are solved, and smoothed labels against drift.
GROWING: dict[str, Any] = WORD_PROBLEM | {
    "init": "undecided",
    "width": 64,
    "heads": 32,
    "head_dim": 8,
    "heads_kept": 1,
    "batch": 512,
    "steps": 2600,
    "train_lengths": (6, 32),
    "curriculum": "grow",
    "warmup": 0.01,
    "hold": 0.7,
    "head_cost": 0.01,
    "weight_decay": 0.1,
    "late_decay": 0.0,
    "square_decay": 0.95,
    "smoothing": 0.1,
}
FAR: dict[str, Any] = {"lengths": (32, 64, 128, 256)}
HALF: dict[str, Any] = {"lengths": (32, 64, 128)}


def parity() -> list[Run]:
    how: dict[str, Any] = PLAIN | {
        "train_lengths": (3, 40),
        "lengths": (40, 64, 96, 128, 192, 256),
        "lr": 3e-3,
        "batch": 256,
    }
    # The diagonal recurrence runs in plain torch: a narrower one keeps its steps short.
    narrow: dict[str, Any] = how | {"width": 64, "head_dim": 16}
    return [
        *(Run("parity", "deltanet", ranges, **how) for ranges in ("none", "beta")),
        *(Run("parity", "diagonal", ranges, **narrow) for ranges in ("none", "alpha")),
    ]


def s3() -> list[Run]:
    fixed: dict[str, Any] = EASIER | FAR | {"train_lengths": (32, 32), "curriculum": "none"}
    return [Run("s3", "ckda", ranges, **fixed) for ranges in RANGES]


def s4() -> list[Run]:
    return [Run("s4", "ckda", ranges, **GROWING | FAR) for ranges in RANGES]


def s5_swaps() -> list[Run]:
    return [Run("s5-swaps", "deltanet", ranges, **EASIER | HALF) for ranges in ("none", "beta")]


def a5() -> list[Run]:
    near: dict[str, Any] = (
        WORD_PROBLEM | HALF | {"init": "near", "lr": 1e-3, "curriculum": "none", "train_lengths": (32, 32)}
    )
    return [
        Run("a5", "ckda", noise=0.2, saturation=8.0, **near),
        Run("a5", "ckda", **WORD_PROBLEM | HALF),
    ]


PRESETS = {"parity": parity, "s3": s3, "s4": s4, "s5-swaps": s5_swaps, "a5": a5}


KEYS = ("task", "model", "alpha_range", "beta_range", "init", "heads", "seed")


def best(rows: list[dict[str, Any]]) -> None:
    """Print the best seed of each setting, by the mean of its lengths."""
    settings: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for row in rows:
        setting = json.dumps([row[name] for name in KEYS[:-1]])
        settings.setdefault(setting, {}).setdefault(row["seed"], []).append(row)
    table = Table(*KEYS, "scaled accuracy by length", box=None)
    for setting, seeds in settings.items():
        seed, found = max(seeds.items(), key=lambda item: sum(row["scaled_accuracy"] for row in item[1]))
        said = "  ".join(f"{row['length']}: {row['scaled_accuracy']:.3f}" for row in found)
        table.add_row(*(str(x) for x in json.loads(setting)), str(seed), said)
    Console(width=160).print(table)


def kept(name: str, device: str, fresh: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of earlier runs of other settings, and the new ones."""
    path = report.RESULTS / f"{name}-{device}.json"
    old = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.is_file() else []
    new = {json.dumps([row.get(name) for name in KEYS]) for row in fresh}
    return [row for row in old if json.dumps([row.get(name) for name in KEYS]) not in new] + fresh


def main() -> None:
    parser = arguments((__doc__ or "").split("\n")[0], 150.0)
    parser.add_argument("--preset", nargs="+", choices=[*PRESETS, "all"], default=["all"])
    parser.add_argument("--ranges", nargs="+", choices=RANGES, default=RANGES, help="only settings with these ranges")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds of each setting")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--no-save", action="store_true", help="do not write results/")
    options = parser.parse_args()
    options.jobs = options.jobs or max(1, (os.cpu_count() or 2) - 2)
    names = list(PRESETS) if "all" in options.preset else options.preset
    settings = [Run.from_json(run.to_json() | fields_of(options)) for name in names for run in PRESETS[name]()]
    settings = [run for run in settings if run.ranges in options.ranges]
    # Seed after seed, so that a sweep that is cut short has all settings.
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    runs = [replace(run, seed=seed) for seed in seeds for run in settings]
    rows = [row | {"heads": run.heads} for run, _, result in trained(runs, options) for row in result.rows]
    if not rows:
        sys.exit("no run ended")
    rows.sort(key=lambda row: (tuple(json.dumps(row[name]) for name in KEYS), row["length"]))
    best(rows)
    if not options.no_save:
        report.save("learn", options.device, kept("learn", options.device, rows), device_name(options.place))


if __name__ == "__main__":
    main()
