"""Pictures of what was measured: spectra of a checkpoint, and how long constructions stay right in floating point.

The files of the latter are JSON lines, one a job: `case`, `format`, `order`, `family`, `length`, `proved` and
`survived`, the tokens that each word was answered right, `length` if to its end.

Main definitions: `draw_audit`, `draw_survival`, `draw_bounds`, `draw_orders`, `OF_MEASUREMENTS`, `read_measurements`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from statetrack.errors import InvalidFile

from .style import COLOURS, DASHES, GREY, LEGEND, LIGHT, MARKERS, panels, save

Complex = NDArray[np.complex128]
Key = tuple[str, str, str, str]
_MOST = 12
_CENSORED = "hollow, arrow: none failed,\nthe run ended here"
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

    @property
    def censored(self) -> bool:
        """Whether no word was wrong to the end, so that the first fault comes later, if ever."""
        return self.least == self.length


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
    """The fraction of words still right after so many tokens, in recurrent order: a panel a construction and family.

    A curve that ends above 0 ends in a hollow arrow head: the run ended, the words did not.
    """
    shown = {key: r for key, r in runs.items() if key[2] == "recurrent"} or dict(runs)
    formats = _formats(shown)
    order = list(dict.fromkeys(key[3] for key in shown))
    wanted = sorted({(key[0], key[3]) for key in shown}, key=lambda pair: (order.index(pair[1]), pair[0]))
    columns = min(3, len(wanted))
    rows = -(-len(wanted) // columns)
    figure, plots = panels(rows, columns, 2.9 * columns + 1, 2.3 * rows + 0.7, sharex=True, sharey=True)
    flat = [plot for row in plots for plot in row]
    for plot in flat[len(wanted) :]:
        plot.set_axis_off()
    longest = max(r.length for r in shown.values())
    for plot, (case, family) in zip(flat, wanted, strict=False):
        here = {key: r for key, r in shown.items() if (key[0], key[3]) == (case, family)}
        # Solid lines first: dashes over them show where two formats are equally right.
        for (_, kind, order_of, _), r in sorted(here.items(), key=lambda item: formats.index(item[0][1])):
            _curve(plot, r, formats.index(kind), kind if order_of == "recurrent" else f"{kind}, {order_of}")
        plot.set_xscale("log")
        plot.set_xlim(1, 2.2 * longest)
        plot.set_ylim(-0.04, 1.08)
        plot.set_title(f"{case}, {family}{_size(here.values())}", fontsize=8.5)
    for row in plots:
        row[0].set_ylabel("words still right")
    for plot in flat[max(0, len(wanted) - columns) : len(wanted)]:
        plot.set_xlabel("tokens")
        plot.tick_params(labelbottom=True)
    legend = {"the run ended, these words are right": _mark(">"), "proved for every word": _mark("|")}
    _legend(figure, plots, legend)
    save(figure, path, _data(shown))


def _curve(plot: Any, r: Runs, i: int, label: str) -> None:
    """One survival curve, from 1 down to what is left at the end, and a tick at the proved length."""
    ends = np.array([n for n in r.survived if n < r.length])
    left = 1 - np.arange(len(ends) + 1) / len(r.survived)
    x, y = np.concatenate([[1], np.repeat(ends + 1, 2)]), np.repeat(left, 2)[:-1]
    color = COLOURS[i % len(COLOURS)]
    alive = len(ends) < len(r.survived)
    if alive:
        x, y = np.append(x, r.length), np.append(y, y[-1])
    plot.plot(x, y, color=color, linestyle=DASHES[i % len(DASHES)], label=label)
    if alive:
        plot.plot(
            [r.length], [y[-1]], ">", color=color, markerfacecolor="none", markersize=8 - 2 * min(i, 2), clip_on=False
        )
    if r.proved is not None and r.proved >= 1:
        plot.plot([r.proved], [1.0], "|", color=color, markersize=10, markeredgewidth=1.8, clip_on=False, zorder=4)


def draw_bounds(path: Path, runs: Mapping[Key, Runs]) -> None:
    """The proved length against the first fault of any word, in recurrent order; hollow with an arrow: no fault.

    A run without a fault says that the first one comes after its end, wherever that lies beside the proved length.
    """
    shown = {key: r for key, r in runs.items() if r.proved is not None and key[2] == "recurrent"}
    if not shown:
        raise InvalidFile(str(path), "no job in recurrent order with a proved length", _ADVICE)
    figure, plots = panels(1, 1, 6.6, 4.4)
    plot = plots[0][0]
    formats, families = _formats(shown), list(dict.fromkeys(key[3] for key in shown))
    # Far beyond every run, for some proved lengths have hundreds of digits.
    most = 1e3 * max(r.length for r in shown.values())
    longest = max(*(r.proved or 0 for r in shown.values()), *(r.length for r in shown.values()))
    ends = [0.4, 20 * min(most, longest)]
    plot.fill_between(ends, [ends[0]] * 2, ends, color=LIGHT, alpha=0.6, linewidth=0)
    plot.plot(ends, ends, color=GREY, linewidth=0.8, linestyle=":")
    named: dict[tuple[float, float], str] = {}
    for (case, kind, _, family), r in shown.items():
        x, i, n = min(max(r.proved or 0, 0.5), most), formats.index(kind), families.index(family)
        # Runs of one length that end without a fault stand on one spot, one mark around the other.
        size = 5 + 2.5 * n if r.censored else 5
        _point(plot, x, r, COLOURS[i % len(COLOURS)], MARKERS[n % len(MARKERS)], size)
        named[x, max(r.least, 0.5)] = case
    for (x, y), case in named.items():
        crowded = any(y == other_y and x < other_x < 4 * x for other_x, other_y in named)
        place: dict[str, Any] = {"xytext": (-8, 2), "ha": "right"} if crowded else {"xytext": (8, 2)}
        plot.annotate(case, (x, y), textcoords="offset points", fontsize=7, **place)
    plot.set_xscale("log")
    plot.set_yscale("log")
    plot.set_xlim(*ends)
    plot.set_ylim(*ends)
    plot.set_xlabel(
        "proved: every word of this many tokens is answered right" + _zero(r.proved for r in shown.values())
    )
    plot.set_ylabel("measured: tokens before the first fault of any word" + _zero(r.least for r in shown.values()))
    legend: dict[str, Any] = {}
    legend |= {kind: _mark("o", COLOURS[i % len(COLOURS)], filled=True) for i, kind in enumerate(formats)}
    legend |= {f"{name} words": _mark(MARKERS[i % len(MARKERS)]) for i, name in enumerate(families)}
    legend |= {"filled: the first fault": _mark("o", GREY, filled=True), _CENSORED: _mark("o")}
    legend["grey: a fault (filled) here\nwould refute the bound"] = Patch(color=LIGHT)
    _legend(figure, plots, legend)
    save(figure, path, _data(shown))


def draw_orders(path: Path, runs: Mapping[Key, Runs]) -> None:
    """Tokens before the first fault by order of evaluation, a panel a construction (random words).

    Faults of one format are joined; a run without a fault stands alone, hollow and with an arrow, at its own length.
    """
    shown = {key: r for key, r in runs.items() if key[3] == "random"} or dict(runs)
    cases = list(dict.fromkeys(key[0] for key in shown))
    orders = sorted({key[2] for key in shown}, key=lambda order: (order != "recurrent", order))
    formats = _formats(shown)
    figure, plots = panels(1, len(cases), 2.4 * len(cases) + 1.6, 3.4, sharey=True)
    for plot, case in zip(plots[0], cases, strict=True):
        here = {key: r for key, r in shown.items() if key[0] == case}
        for i, kind in enumerate(formats):
            beside = 0.18 * (i - (len(formats) - 1) / 2)
            found = [(n + beside, r) for n, o in enumerate(orders) for key, r in here.items() if key[1:3] == (kind, o)]
            color, marker = COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]
            for (x, r), (x_next, after) in pairwise(found):
                if not (r.censored or after.censored):
                    values = [max(r.least, 0.5), max(after.least, 0.5)]
                    plot.plot([x, x_next], values, color=color, linewidth=0.8, linestyle=DASHES[i % len(DASHES)])
            for x, r in found:
                _point(plot, x, r, color, marker)
        plot.set_yscale("log")
        plot.set_ylim(0.4, 60 * max(r.length for r in shown.values()))
        plot.set_title(case + _size(here.values()), fontsize=8.5)
        plot.set_xticks(range(len(orders)), orders, rotation=35, ha="right")
        plot.set_xlim(-0.5, len(orders) - 0.5)
    plots[0][0].set_ylabel("tokens before the first fault of any word" + _zero(r.least for r in shown.values()))
    looks = [(COLOURS[i % len(COLOURS)], MARKERS[i % len(MARKERS)]) for i in range(len(formats))]
    legend = {kind: _mark(marker, color, filled=True) for kind, (color, marker) in zip(formats, looks, strict=True)}
    legend |= {"filled: the first fault": _mark("o", GREY, filled=True), _CENSORED: _mark("o")}
    _legend(figure, plots, legend)
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


def _point(plot: Any, x: float, r: Runs, color: str, marker: str, size: float = 5.5) -> None:
    """The first fault, filled; or the end of a run without one, hollow, with an arrow to where the fault must be."""
    y = max(r.least, 0.5)
    filled = "none" if r.censored else color
    if r.censored:
        arrow = {"arrowstyle": "<-", "color": color, "shrinkA": 0, "shrinkB": 3.5}
        plot.annotate("", (x, y), (0, 24), textcoords="offset points", arrowprops=arrow)
    plot.plot([x], [y], color=color, marker=marker, markersize=size, markerfacecolor=filled, linestyle="", zorder=3)


def _mark(marker: str, color: str = "#000000", *, filled: bool = False) -> Line2D:
    """A marker for the legend."""
    return Line2D([], [], color=color, marker=marker, linestyle="", markerfacecolor=color if filled else "white")


def _formats(runs: Mapping[Key, Runs]) -> list[str]:
    """The formats, widest first: names end in their number of bits."""
    found = dict.fromkeys(key[1] for key in runs)
    return sorted(found, key=lambda name: -int("".join(re.findall(r"\d+$", name)) or 0))


def _size(runs: Iterable[Runs]) -> str:
    """How many words of how many tokens, if all runs have the same."""
    sizes = {(len(r.survived), r.length) for r in runs}
    return "".join(f"\n{words:,} words of {length:,} tokens" for words, length in sizes) if len(sizes) == 1 else ""


def _zero(values: Iterable[float | None]) -> str:
    return "\n(0 is drawn at 0.5)" if any(x is not None and x < 0.5 for x in values) else ""


def _legend(figure: Any, plots: Sequence[Sequence[Any]], more: Mapping[str, Any]) -> None:
    """One legend beside all panels, each label once, then `more`."""
    found: dict[str, Any] = {}
    for row in plots:
        for plot in row:
            handles, labels = plot.get_legend_handles_labels()
            found |= dict(zip(labels, handles, strict=True))
    found |= more
    figure.legend(list(found.values()), list(found), loc="outside right upper", **LEGEND)


def _data(runs: Mapping[Key, Runs]) -> dict[str, Any]:
    return {" | ".join(key): vars(r) for key, r in runs.items()}
