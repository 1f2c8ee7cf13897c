"""Pictures of what was measured: spectra of a checkpoint, and how long constructions stay right in floating point.

The files of the latter are JSON lines, one a job: `case`, `format`, `order`, `family`, `length`, `proved` and
`survived`, the tokens that each word was answered right, `length` if to its end.

Main definitions: `draw_audit`, `draw_survival`, `draw_bounds`, `draw_orders`, `OF_MEASUREMENTS`, `read_measurements`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidFile

from .style import COLOURS, DASHES, GREY, LEGEND, MARKERS, panels, save

Complex = NDArray[np.complex128]
Key = tuple[str, str, str, str]
_MOST = 12
_ADVICE = "give a file of JSON lines that a sweep of survival wrote"


@dataclass(frozen=True)
class Runs:
    """The words of the longest jobs of a case, format, order and family: tokens survived, length, what is proved."""

    survived: tuple[int, ...]
    length: int
    proved: float | None

    @property
    def least(self) -> int:
        """Tokens after which the first word was wrong; `length` if none was."""
        return min(self.survived)


def read_measurements(path: Path) -> dict[Key, Runs]:
    """Runs by (case, format, order, family); jobs that could not run are left out.

    Raises:
        InvalidFile: no such file, or a line that is no job.
    """
    words: dict[Key, list[int]] = defaultdict(list)
    facts: dict[Key, tuple[int, float | None]] = {}
    try:
        rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        for row in rows:
            if "survived" in row:
                key = (str(row["case"]), str(row["format"]), str(row["order"]), str(row["family"]))
                proved = None if row["proved"] is None else float(row["proved"])
                length, known = int(row["length"]), facts.get(key, (0, None))[0]
                if length > known:
                    words[key], facts[key] = [], (length, proved)
                words[key] += [int(n) for n in row["survived"]] if length >= known else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(str(path), f"cannot be read ({type(error).__name__}: {error})", _ADVICE) from error
    if not facts:
        raise InvalidFile(str(path), "holds no job that ran", _ADVICE)
    return {key: Runs(tuple(sorted(words[key])), *facts[key]) for key in facts}


def draw_survival(path: Path, runs: Mapping[Key, Runs]) -> None:
    """The fraction of words still right after so many tokens, in recurrent order: a panel a construction and family."""
    shown = {key: r for key, r in runs.items() if key[2] == "recurrent"} or dict(runs)
    cases = list(dict.fromkeys(key[0] for key in shown))
    families = list(dict.fromkeys(key[3] for key in shown))
    formats = list(dict.fromkeys(key[1] for key in shown))
    figure, plots = panels(len(families), len(cases), 2.7 * len(cases) + 1, 2.3 * len(families) + 0.7, sharey=True)
    for (case, kind, _, family), r in shown.items():
        plot, i = plots[families.index(family)][cases.index(case)], formats.index(kind)
        ends = np.array([n for n in r.survived if n < r.length])
        x = np.concatenate([[1], np.repeat(ends + 1, 2), [r.length]])
        left = 1 - np.arange(len(ends) + 1) / len(r.survived)
        y = np.repeat(left, 2)
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
        plot.plot(x, y, **style, label=kind)
        if r.proved is not None and 1 <= r.proved <= r.length:
            plot.plot([r.proved], [1.0], "|", color=style["color"], markersize=9, markeredgewidth=1.6, clip_on=False)
    for row, family in zip(plots, families, strict=True):
        row[0].set_ylabel(f"{family} words\nstill right")
        for plot, case in zip(row, cases, strict=True):
            plot.set_xscale("log")
            plot.set_ylim(-0.03, 1.05)
            plot.set_title(case if row is plots[0] else "", fontsize=9)
            plot.set_xlabel("tokens" if row is plots[-1] else "")
    _legend(figure, plots)
    save(figure, path, _data(shown))


def draw_bounds(path: Path, runs: Mapping[Key, Runs]) -> None:
    """The proved length against the first fault of any word, in recurrent order; arrows: no fault to the end.

    A run can speak for words of its own length at most, so longer proved lengths are drawn as that.
    """
    shown = {key: r for key, r in runs.items() if r.proved is not None and key[2] == "recurrent"}
    if not shown:
        raise InvalidFile(str(path), "no job in recurrent order with a proved length", _ADVICE)
    figure, plots = panels(1, 1, 5.4, 4.2)
    plot = plots[0][0]
    formats = list(dict.fromkeys(key[1] for key in shown))
    most = max(r.length for r in shown.values())
    for (_, kind, _, family), r in shown.items():
        i = formats.index(kind)
        alive = r.least == r.length
        x = min(max(r.proved or 0, 0.5), r.length)
        y = max(r.least, 0.5)
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        filled = style["color"] if family == "adversarial" else "none"
        plot.plot([x], [y], linestyle="", markersize=5, markerfacecolor=filled, label=kind, **style)
        if alive:
            plot.annotate("", (x, 1.8 * y), (x, y), arrowprops={"arrowstyle": "->", "color": style["color"]})
    ends = [0.5, 3.0 * most]
    plot.plot(ends, ends, color=GREY, linewidth=0.8, linestyle=":")
    plot.text(1, 0.55, "a point below the line would refute the bound", fontsize=7, color=GREY)
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_xlabel(
        "proved: every word this long is answered right\n(at most the length of the run; 0 is drawn at 0.5)"
    )
    plot.set_ylabel("measured: tokens before the first fault\n(filled: adversarial words)")
    _legend(figure, plots)
    save(figure, path, _data(shown))


def draw_orders(path: Path, runs: Mapping[Key, Runs]) -> None:
    """Tokens before the first fault by order of evaluation, a panel a construction, a line a format (random words)."""
    shown = {key: r for key, r in runs.items() if key[3] == "random"} or dict(runs)
    cases = list(dict.fromkeys(key[0] for key in shown))
    orders = sorted({key[2] for key in shown}, key=lambda order: (order != "recurrent", order))
    formats = list(dict.fromkeys(key[1] for key in shown))
    figure, plots = panels(1, len(cases), 2.6 * len(cases) + 1, 3.4, sharey=True)
    for i, kind in enumerate(formats):
        for plot, case in zip(plots[0], cases, strict=True):
            found = {key[2]: r for key, r in shown.items() if key[:2] == (case, kind)}
            at = [n for n, order in enumerate(orders) if order in found]
            values = [max(found[orders[n]].least, 0.5) for n in at]
            style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
            plot.plot(at, values, linewidth=0.8, markersize=4.5, linestyle=DASHES[i % len(DASHES)], label=kind, **style)
            for n, value in zip(at, values, strict=True):
                if found[orders[n]].least == found[orders[n]].length:
                    plot.annotate("", (n, 1.7 * value), (n, value), arrowprops={"arrowstyle": "->", "color": GREY})
    for plot, case in zip(plots[0], cases, strict=True):
        plot.set_yscale("log")
        plot.set_ylim(0.3, 4 * max(r.length for r in shown.values()))
        plot.set_title(case, fontsize=9)
        plot.set_xticks(range(len(orders)), orders, rotation=45, ha="right")
    plots[0][0].set_ylabel("tokens before the first fault\n(arrow: none to the end; 0 is drawn at 0.5)")
    _legend(figure, plots)
    save(figure, path, _data(shown))


def draw_audit(path: Path, spectra: Mapping[str, Complex]) -> None:
    """Eigenvalues of the transitions of each head in the unit circle; twelve heads are drawn, all are saved."""
    shown = dict(list(spectra.items())[:_MOST])
    columns = min(4, len(shown))
    rows = -(-len(shown) // columns)
    figure, plots = panels(rows, columns, 2.6 * columns, 2.7 * rows, sharex=True, sharey=True)
    angle = np.linspace(0, 2 * np.pi, 361)
    flat = [plot for row in plots for plot in row]
    for plot in flat[len(shown) :]:
        plot.set_axis_off()
    for plot, (name, values) in zip(flat, shown.items(), strict=False):
        z = values.ravel()
        turning = np.abs(z.imag) > 1e-6
        plot.plot(np.cos(angle), np.sin(angle), color=GREY, linewidth=0.7, linestyle=":")
        plot.plot(z[~turning].real, z[~turning].imag, "|", color=COLOURS[1], markersize=5, markeredgewidth=0.5)
        plot.plot(z[turning].real, z[turning].imag, ".", color=COLOURS[0], markersize=3, markeredgewidth=0)
        plot.set_title(f"{name}\n{100 * turning.mean():.0f}% non-real", fontsize=8)
        plot.set_aspect("equal")
        plot.set_xticks([-1, 0, 1])
        plot.set_yticks([-1, 0, 1])
    save(figure, path, {name: np.stack([z.real, z.imag], -1).tolist() for name, z in spectra.items()})


OF_MEASUREMENTS: dict[str, tuple[str, Callable[[Path, Mapping[Key, Runs]], None]]] = {
    "survival": ("words still right after so many tokens, by construction and format", draw_survival),
    "bounds": ("proved lengths against measured ones", draw_bounds),
    "orders": ("tokens before the first fault, by order of evaluation", draw_orders),
}


def _legend(figure: Any, plots: Sequence[Sequence[Any]]) -> None:
    """One legend beside all panels, each label once."""
    found: dict[str, Any] = {}
    for row in plots:
        for plot in row:
            handles, labels = plot.get_legend_handles_labels()
            found |= dict(zip(labels, handles, strict=True))
    figure.legend(list(found.values()), list(found), loc="outside right upper", **LEGEND)


def _data(runs: Mapping[Key, Runs]) -> dict[str, Any]:
    return {" | ".join(key): vars(r) for key, r in runs.items()}
