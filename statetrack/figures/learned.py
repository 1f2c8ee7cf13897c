"""Pictures of what was learned: accuracy beyond the trained length, spectra of trained layers, gates and β on the way.

The data are results of runs: one results.json, a folder with runs anywhere in it, or (for the curves) a file of a
benchmark with their rows.

Main definitions: `OF_ANSWERS`, `Learned`, `read_runs`, `draw_curves`, `draw_learned_spectra`, `draw_gates`.

References: docs/lab.md for results.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from statetrack.errors import InvalidFile

from .style import COLOURS, DASHES, GREY, LEGEND, LIGHT, MARKERS, panels, save

_ADVICE = "give a results.json of 'statetrack learn', a folder of runs, or learn-DEVICE.json of the benchmark"
_MOST = 12
_MOST_GATES = 4


@dataclass(frozen=True)
class Learned:
    """Rows of accuracies of all runs (one a length), and for each run its name, history and what its layers do.

    `folders` and `judged` are a run's folder and its own rows, whatever they measure.
    """

    rows: tuple[dict[str, Any], ...]
    names: tuple[str, ...] = ()
    histories: tuple[Sequence[Mapping[str, Any]], ...] = ()
    mechanisms: tuple[Mapping[str, Any], ...] = ()
    folders: tuple[Path, ...] = ()
    judged: tuple[Sequence[Mapping[str, Any]], ...] = ()


def read_runs(path: Path) -> Learned:
    """The results at a path.

    Raises:
        InvalidFile: no file, no run in the folder, or a file without rows.
    """
    files = sorted(path.rglob("results.json")) if path.is_dir() else [path]
    if not files:
        raise InvalidFile(str(path), "holds no results.json", _ADVICE)
    rows: list[dict[str, Any]] = []
    parts: list[tuple[str, Sequence[Mapping[str, Any]], Mapping[str, Any], Path, Sequence[Mapping[str, Any]]]] = []
    for file in files:
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            rows += [row for row in data["rows"] if "scaled_accuracy" in row]
            if "history" in data:
                parts.append((_name(data["run"]), data["history"], data["mechanism"], file.parent, data["rows"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidFile(str(file), f"cannot be read ({type(error).__name__}: {error})", _ADVICE) from error
    names, histories, mechanisms, folders, judged = zip(*parts, strict=True) if parts else ((), (), (), (), ())
    return Learned(tuple(rows), names, histories, mechanisms, folders, judged)


def draw_curves(path: Path, learned: Learned) -> None:
    """Scaled accuracy by length, a panel a task, a line a model, ranges and start; best seed in full, others thin."""
    if not learned.rows:
        raise InvalidFile(str(path), "no row with scaled_accuracy", _ADVICE)
    tasks = list(dict.fromkeys(str(row["task"]) for row in learned.rows))
    settings = list(dict.fromkeys(_setting(row) for row in learned.rows))
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    figure, plots = panels(lines, columns, 3.1 * columns + 2.2, 2.5 * lines + 0.3, sharey=True)
    flat = [plot for row in plots for plot in row]
    for plot in flat[len(tasks) :]:
        plot.set_axis_off()
    handles: dict[str, Any] = {}
    for plot, task in zip(flat, tasks, strict=False):
        own = [row for row in learned.rows if row["task"] == task]
        for i, setting in enumerate(settings):
            style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
            seeds = _by_seed([row for row in own if _setting(row) == setting])
            for number, (lengths, values) in enumerate(seeds):
                width, marker = (1.5, MARKERS[i % len(MARKERS)]) if number == 0 else (0.5, "")
                (handle,) = plot.plot(lengths, values, linewidth=width, marker=marker, markersize=4, **style)
                if number == 0:
                    handles.setdefault(setting, handle)
        for length in {row["train_length"] for row in own}:
            plot.axvline(length, color=GREY, linewidth=0.8, linestyle=":")
        lengths = sorted({row["length"] for row in own})
        plot.set_xscale("log", base=2)
        plot.set_xticks(lengths, [str(n) for n in lengths])
        plot.minorticks_off()
        plot.set_ylim(-0.06, 1.06)
        plot.set_title(task)
        plot.set_xlabel("tokens (dotted: longest in training)")
    for row in plots:
        row[0].set_ylabel("scaled accuracy of the last answer")
    shown: Any = figure
    shown.legend(list(handles.values()), list(handles), loc="outside right upper", **LEGEND)
    save(figure, path, {"rows": list(learned.rows)})


def draw_learned_spectra(path: Path, learned: Learned) -> None:
    """Eigenvalues of the first layer's transitions in the unit circle, a panel a run (twelve are drawn, all saved)."""
    spectra = {
        name: np.concatenate([np.array(head, dtype=float).reshape(-1, 2) for head in found["spectra"][0]])
        for name, found in zip(learned.names, learned.mechanisms, strict=True)
        if found.get("spectra")
    }
    if not spectra:
        raise InvalidFile(str(path), "no run with spectra", _ADVICE)
    shown = dict(list(spectra.items())[:_MOST])
    columns = min(4, len(shown))
    lines = -(-len(shown) // columns)
    figure, plots = panels(lines, columns, 2.7 * columns, 2.9 * lines, sharex=True, sharey=True)
    flat = [plot for row in plots for plot in row]
    angle = np.linspace(0, 2 * np.pi, 361)
    for plot in flat[len(shown) :]:
        plot.set_axis_off()
    for plot, (name, z) in zip(flat, shown.items(), strict=False):
        turning = np.abs(z[:, 1]) > 1e-6
        plot.plot(np.cos(angle), np.sin(angle), color=GREY, linewidth=0.7, linestyle=":")
        plot.plot(z[~turning, 0], z[~turning, 1], "|", color=COLOURS[1], markersize=5, markeredgewidth=0.4)
        plot.plot(z[turning, 0], z[turning, 1], ".", color=COLOURS[0], markersize=3, markeredgewidth=0)
        plot.set_title(f"{name}\n{100 * turning.mean():.0f}% non-real", fontsize=8)
        plot.set_aspect("equal")
        plot.set_xlim(-1.15, 1.15)
        plot.set_ylim(-1.15, 1.15)
        plot.set_xticks([-1, 0, 1])
        plot.set_yticks([-1, 0, 1])
    save(figure, path, {name: z.tolist() for name, z in spectra.items()})


def draw_gates(path: Path, learned: Learned) -> None:
    """Histograms of the first layer's gates and β over training: a column a run (four are drawn, all saved)."""
    found = {
        name: history
        for name, history in zip(learned.names, learned.histories, strict=True)
        if history and history[0].get("layers")
    }
    if not found:
        raise InvalidFile(str(path), "no run with gates or β over training", _ADVICE)
    shown = dict(list(found.items())[:_MOST_GATES])
    figure, plots = panels(2, len(shown), 2.6 * len(shown) + 0.7, 4.6, sharex="col", sharey="row")
    for column, (name, history) in enumerate(shown.items()):
        steps = [int(note["step"]) for note in history]
        for row, (what, low, high) in enumerate((("alpha", -1, 1), ("beta", 0, 2))):
            plot = plots[row][column]
            counts = [note["layers"][0][what] for note in history]
            if counts[0] is None:
                plot.text(0.5, 0.5, "none", ha="center", va="center", transform=plot.transAxes, color=GREY)
            else:
                shares = np.array(counts, dtype=float).T
                shares /= np.maximum(shares.sum(0), 1)
                # The root of a share, so that a few gates at the ends are seen beside the many.
                extent = (0, steps[-1], low, high)
                plot.imshow(np.sqrt(shares), origin="lower", aspect="auto", cmap="Blues", extent=extent, vmin=0, vmax=1)
            plot.axhline((low + high) / 2, color=LIGHT, linewidth=0.7)
            plot.set_ylim(low, high)
        plots[0][column].set_title(name, fontsize=8)
        plots[1][column].set_xlabel("step")
    plots[0][0].set_ylabel("gates α")
    plots[1][0].set_ylabel("β")
    data = {name: [{"step": note["step"], **note["layers"][0]} for note in history] for name, history in found.items()}
    save(figure, path, data)


OF_ANSWERS: dict[str, tuple[str, Callable[[Path, Learned], None]]] = {
    "learn-curves": ("accuracy of trained models beyond the trained length", draw_curves),
    "learn-spectra": ("eigenvalues of the transitions of trained layers", draw_learned_spectra),
    "learn-gates": ("gates and β of trained layers over training", draw_gates),
}


def _setting(row: Mapping[str, Any]) -> str:
    """Model, ranges and start in words."""
    ranges = [f"{letter} {row[name]}" for letter, name in (("α", "alpha_range"), ("β", "beta_range")) if row[name]]
    return f"{row['model']}, {', '.join(ranges) or 'no ranges'}, {row['init']}".replace("α [1, 1], ", "")


def _by_seed(rows: Sequence[Mapping[str, Any]]) -> list[tuple[list[int], list[float]]]:
    """Lengths and accuracies of each seed, best first."""
    seeds: dict[Any, list[tuple[int, float]]] = {}
    for row in rows:
        seeds.setdefault(row["seed"], []).append((int(row["length"]), float(row["scaled_accuracy"])))
    found = [sorted(points) for points in seeds.values()]
    found.sort(key=lambda points: -sum(value for _, value in points))
    return [([n for n, _ in points], [value for _, value in points]) for points in found]


def _name(run: Mapping[str, Any]) -> str:
    return f"{run['task']}, {run['model']}, {run['ranges']}, seed {run['seed']}"
