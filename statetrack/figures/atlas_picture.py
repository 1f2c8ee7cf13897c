"""The picture of the atlas: a square for each group of order up to 60.

Main definitions: `draw_atlas`.

References: docs/atlas.md.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from statetrack.proofs_check.atlas_table import AtlasRow, atlas_rows, counts

from .style import COLOURS, LEGEND, canvas, save

# Lightness falls from planar heads over larger ones to no; a cross and a ring say the same without colour.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "planar": ("YES, heads of size 2", {"marker": "s", "color": "#BFE3F5"}),
    "larger heads": ("YES, larger heads too", {"marker": "D", "color": COLOURS[0]}),
    "no": ("NO, a law fails", {"marker": "X", "color": "#000000"}),
    "unknown": ("UNKNOWN", {"marker": "P", "color": COLOURS[4]}),
}


def draw_atlas(path: Path) -> None:
    """Which groups of order up to 60 one layer tracks; ringed: the decoder must map many hidden states to one."""
    rows = atlas_rows()
    figure, plot = canvas(10.5, 6.0)
    for kind, (label, how) in _KINDS.items():
        chosen = [row for row in rows if row.kind == kind]
        if chosen:
            x, y = _places(chosen)
            plot.plot(x, y, linestyle="", markersize=5.5, markeredgewidth=0, label=f"{label}: {len(chosen)}", **how)
    many = [row for row in rows if row.verdict == "YES" and row.bijective is False]
    x, y = _places(many)
    ring: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": "#D55E00", "markersize": 8.5}
    plot.plot(x, y, linestyle="", markeredgewidth=0.9, label=f"YES, no decoder one to one: {len(many)}", **ring)
    plot.set_xlabel("order of the group")
    plot.set_ylabel("number among the groups of this order")
    plot.set_xlim(0, 61)
    plot.set_ylim(0, 54)
    plot.legend(loc="upper left", **LEGEND)
    data: dict[str, Any] = {"counts": counts(), "groups": [asdict(row) for row in rows]}
    save(figure, path, data)


def _places(rows: list[AtlasRow]) -> tuple[list[int], list[int]]:
    return [row.order for row in rows], [row.number for row in rows]
