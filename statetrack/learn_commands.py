"""The command that trains: which tasks there are, and how far a model's answers stay right after training.

Main definitions: `learn`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import fields
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from statetrack.errors import InvalidInput
from statetrack.printing import say_rows

if TYPE_CHECKING:
    from statetrack.lab.runs import Run

Json = Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")]
Model = Annotated[
    str, typer.Option("--model", "-m", help="ckda, kda, deltanet, deltaproduct, diagonal, gru, transformer, ...")
]
Ranges = Annotated[
    str | None,
    typer.Option(
        help="Which ranges are extended, apart by commas: none, alpha (to [-1, 1]), beta (to [0, 2]), both; "
        "all is the four (default: what the model has)."
    ),
]
Start = Annotated[
    str | None, typer.Option("--init", help="standard, spread (default), near (a compiled program, with --noise), ...")
]
Seeds = Annotated[str, typer.Option(help="Seeds, apart by commas.")]
Trained = Annotated[str | None, typer.Option("--lengths", help="Lengths of training words: 32, or 3-40 (default).")]
Judged = Annotated[
    str | None, typer.Option("--evaluate", help="Lengths to judge at, apart by commas (default 40,64,128,256).")
]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of the optimiser (default 5000).")]
Batch = Annotated[int | None, typer.Option(min=1, help="Words a step, over all processes (default 512).")]
Rate = Annotated[float | None, typer.Option("--lr", help="Largest learning rate (default 1e-3).")]
Seconds = Annotated[float | None, typer.Option(min=0.001, help="Train for so long at most; the schedule follows.")]
Noise = Annotated[float, typer.Option(min=0.0, help="Noise of --init near.")]
More = Annotated[list[str] | None, typer.Option("--set", help="NAME=VALUE of any other field of a run (docs/lab.md).")]
Folder = Annotated[Path, typer.Option("--output", "-o", help="Folder of the runs; each has one in it.")]
Device = Annotated[str, typer.Option(help="auto (cuda if there is one, else cpu), cpu, cuda or cuda:N.")]


def learn(
    task: Annotated[str | None, typer.Argument(help="Task; --list names them.")] = None,
    model: Model = "ckda",
    ranges: Ranges = None,
    init: Start = None,
    seeds: Seeds = "0",
    lengths: Trained = None,
    evaluate: Judged = None,
    steps: Steps = None,
    batch: Batch = None,
    lr: Rate = None,
    seconds: Seconds = None,
    noise: Noise = 0.0,
    more: More = None,
    output: Folder = Path("runs"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with runs that were killed.")] = False,
    device: Device = "auto",
    listed: Annotated[bool, typer.Option("--list", help="Only list the tasks.")] = False,
    as_json: Json = False,
) -> None:
    """Train MODEL on TASK and say at which lengths its answers are right; several ranges and seeds one by one.

    A groove and text have defaults of their own (docs/audio.md, docs/language.md).
    """
    from statetrack import api
    from statetrack.lab.tasks import TASKS, task_named
    from statetrack.lab.training import train

    if listed or task is None:
        known = [{"task": x.name, "tokens": x.vocab, "answers": x.outputs, "what": x.what} for x in TASKS.values()]
        say_rows(known + _others(), as_json)
        return
    asked: dict[str, Any] = {"init": init, "steps": steps, "batch": batch, "lr": lr, "seconds": seconds}
    asked |= {"train_lengths": None if lengths is None else _span(lengths)}
    asked |= {"lengths": None if evaluate is None else _wholes(evaluate, "--evaluate")}
    given: dict[str, Any] = {"task": task, "model": model, "noise": noise} | task_named(task).recipe(model)
    given |= {name: value for name, value in asked.items() if value is not None}
    runs = _runs(given | _fields(more or ()), ranges, _wholes(seeds, "--seeds"))
    place, rows = api.device_of(device), list[dict[str, Any]]()
    first = os.environ.get("RANK", "0") == "0"
    for run in runs:
        with _line(run, first) as report:
            rows += train(run, output / run.name, device=place, resume=resume, report=report).rows
    if first:
        say_rows(rows if as_json else [_shown(row) for row in rows], as_json)


def _others() -> list[dict[str, Any]]:
    """The tasks that are not about right answers."""
    from statetrack.lab.audio import Groove
    from statetrack.lab.corpus import CORPORA

    groove = Groove()
    rows: list[dict[str, Any]] = [{"task": groove.name, "answers": f"{groove.outputs} samples", "what": groove.what}]
    rows += [
        {"task": f"text:{name}", "tokens": 256, "answers": 256, "what": what} for name, (what, _) in CORPORA.items()
    ]
    return [*rows, {"task": "text:FOLDER", "tokens": 256, "answers": 256, "what": "the text files below a folder"}]


def _runs(given: dict[str, Any], ranges: str | None, seeds: tuple[int, ...]) -> list[Run]:
    """A run for each of the ranges and seeds; all are checked before the first starts."""
    from statetrack.lab.runs import RANGES, Run, widest

    chosen = [widest(str(given["model"]))] if ranges is None else RANGES if ranges == "all" else ranges.split(",")
    pairs = product((x.strip() for x in chosen), seeds)
    return [Run.from_json({"ranges": own, "seed": seed} | given) for own, seed in pairs]


def _fields(pairs: list[str] | tuple[()]) -> dict[str, Any]:
    """NAME=VALUE with the value as JSON, or text."""
    from statetrack.lab.runs import Run

    known, found = {field.name for field in fields(Run)}, dict[str, Any]()
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or name not in known:
            raise InvalidInput(f"--set {pair!r}: expected NAME=VALUE with a name of {', '.join(sorted(known))}")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


def _span(text: str) -> tuple[int, ...]:
    parts = text.split("-")
    if len(parts) > 2:
        raise InvalidInput(f"--lengths {text!r}: expected a length, or shortest-longest")
    ends = _wholes(",".join(parts), "--lengths")
    return (ends[0], ends[-1])


def _wholes(text: str, flag: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"{flag} {text!r}: expected whole numbers") from None


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", " "): f"{x:.4g}" if isinstance(x, float) else x for name, x in row.items()}


@contextmanager
def _line(run: Run, shown: bool) -> Generator[Callable[[int, dict[str, Any]], None] | None, None, None]:
    """A line of progress with loss and accuracy on standard error, if it is a terminal."""
    console = Console(stderr=True)
    if not shown or not console.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(run.name, total=run.steps)

        def report(step: int, facts: dict[str, Any]) -> None:
            names = ("scaled_accuracy", "snr_db", "bits_per_byte")
            known = {name: facts[name] for name in names if facts.get(name) is not None}
            said = "".join(f", {name.replace('_', ' ')} {value:.3f}" for name, value in known.items())
            bar.update(task, completed=step, description=f"{run.name}: loss {facts['loss']:.4f}{said}")

        yield report
