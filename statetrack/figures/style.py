"""One style for all pictures: colours told apart in grey and by the colour-blind, and data saved beside the picture.

Okabe and Ito's colours are ordered so that neighbours differ in lightness; every series has a marker or a dash of its
own as well, so that no picture needs colour. Figures are made without pyplot: no global state, no window.

Main definitions: `COLOURS`, `MARKERS`, `DASHES`, `canvas`, `panels`, `save`, `svg_text`, `LEGEND`.

References: Okabe and Ito, *Color Universal Design*, 2008.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from statetrack.errors import InvalidFile, InvalidInput

FORMATS = ("svg", "pdf", "png")
# Blue, orange, green, sky, vermilion, purple, black, yellow.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#56B4E9", "#D55E00", "#CC79A7", "#000000", "#F0E442")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))
GREY = "#999999"
LIGHT = "#E6E6E6"
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": 8}
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    # Text as text and fixed ids, so that an SVG can be searched and two runs give the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "statetrack",
    "pdf.fonttype": 42,
}


def canvas(width: float, height: float) -> tuple[Figure, Any]:
    """A figure of this size in inches, and its one plot."""
    figure, plots = panels(1, 1, width, height)
    return figure, plots[0][0]


def panels(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, list[list[Any]]]:
    """A figure of this size in inches, and its plots by rows; options as for `Figure.subplots`."""
    with _styled():
        figure = Figure(figsize=(width, height), layout="constrained")
        plots: Any = figure.subplots(rows, columns, squeeze=False, **options)
    return figure, [list(row) for row in plots]


def save(figure: Figure, path: Path, data: Mapping[str, Any]) -> None:
    """Write the picture (.svg, .pdf, .png) and, beside it, the drawn data as JSON under the same name.

    Raises InvalidInput for another suffix, InvalidFile if the folder cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidInput(f"picture {path}: know {', '.join('.' + f for f in FORMATS)}")
    try:
        _write(figure, str(path), kind)
        path.with_suffix(".json").write_text(json.dumps(dict(data)) + "\n", encoding="utf-8")
    except OSError as error:
        raise InvalidFile(str(path), f"cannot be written ({error.strerror})", "give a path in a folder") from None


def svg_text(figure: Figure) -> str:
    """The picture as an SVG element, without what stands before it in a file."""
    text = StringIO()
    _write(figure, text, "svg")
    return text.getvalue()[text.getvalue().index("<svg") :]


def _write(figure: Figure, place: Any, kind: str) -> None:
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    # Cut to what is drawn: titles and legends beside a plot without axes would be clipped otherwise.
    size: dict[str, Any] = {"dpi": 200, "bbox_inches": "tight", "pad_inches": 0.06}
    with _styled():
        figure.savefig(place, format=kind, metadata=dates[kind], **size)  # pyright: ignore[reportUnknownMemberType]


def _styled() -> Any:
    settings: Any = _SETTINGS
    return matplotlib.rc_context(settings)  # pyright: ignore[reportUnknownMemberType]
