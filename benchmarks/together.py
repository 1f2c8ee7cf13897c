"""Training runs side by side, each in a process of its own: small models share a device.

Main definitions: `trained`, `arguments`, `fields_of`, `device_name`.
"""
# pyright: basic

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from statetrack.errors import StatetrackError
from statetrack.lab.runs import Result, Run
from statetrack.lab.training import train


def trained(runs: list[Run], options: argparse.Namespace) -> list[tuple[Run, Path, Result]]:
    """Train all runs at once, or `--jobs` of them; one line a run as it ends. Those that fail are left out."""
    found: dict[Run, tuple[Run, Path, Result]] = {}
    started = time.perf_counter()
    with ProcessPoolExecutor(options.jobs or len(runs), multiprocessing.get_context("spawn")) as pool:
        cards = torch.cuda.device_count() if options.place == "cuda" else 0
        places = [f"cuda:{i % cards}" if cards else "cpu" for i in range(len(runs))]
        jobs = {
            pool.submit(_one, run, options.output / run.name, place, options.resume): run
            for run, place in zip(runs, places, strict=True)
        }
        for job in as_completed(jobs):
            run = jobs[job]
            said, result = job.result()
            print(f"{time.perf_counter() - started:6.0f} s  {run.name}: {said}", flush=True)
            if result is not None:
                found[run] = run, options.output / run.name, result
    return [found[run] for run in runs if run in found]


def arguments(about: str, seconds: float) -> argparse.ArgumentParser:
    """The options of a benchmark that trains."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--seconds", type=float, default=seconds, help="training time of a run, without its first step")
    parser.add_argument("--device", default="cpu-2core", help="name of the device in the results")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument("--jobs", type=int, help="runs at once (all)")
    parser.add_argument("--output", type=Path, default=Path("runs"), help="folder of the runs")
    parser.add_argument(
        "--resume", action="store_true", help="go on with runs that were stopped; without it theirs are new"
    )
    parser.add_argument("--set", nargs="*", default=[], help="NAME=JSON of any field, in every run", dest="fields")
    return parser


def fields_of(options: argparse.Namespace) -> dict[str, Any]:
    """What --set and --seconds say, for `Run.from_json`."""
    pairs = (pair.partition("=") for pair in options.fields)
    return {"seconds": options.seconds} | {name: json.loads(text) for name, _, text in pairs}


def device_name(place: str) -> str:
    return torch.cuda.get_device_name(0) if place == "cuda" else f"CPU, {os.cpu_count()} cores"


def _one(run: Run, folder: Path, place: str, resume: bool) -> tuple[str, Result | None]:
    torch.set_num_threads(1)
    try:
        result = train(run, folder, device=place, resume=resume)
    except StatetrackError as error:
        return str(error), None
    numbers = ("scaled_accuracy", "snr_db", "bits_per_byte")
    said = [f"{row['length']}: {row[name]:.3f}" for row in result.rows for name in numbers if name in row]
    return f"{result.status}, {result.steps} steps; {', '.join(said)}", result
