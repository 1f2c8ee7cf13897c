"""State diagrams: states on a circle, so that no edge runs behind a state, and the letters on the edges.

Main definitions: `state_diagram`, `edges_of`, `is_drawable`.
"""

# matplotlib is only partly typed.
# pyright: basic

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

from statetrack.theory.automata import Dfa

from .style import COLOURS, canvas

_NODE = 0.22
_BEND = 0.18
# More states, or more letters on edges between different states, than can be told apart.
_MOST_STATES, _MOST_EDGES, _MOST_WRITTEN = 10, 18, 48


def edges_of(dfa: Dfa) -> dict[tuple[int, int], tuple[str, ...]]:
    """The letters that lead from one state to another, for each pair of states with any."""
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    for q, row in enumerate(dfa.delta.tolist()):
        for symbol, to in zip(dfa.alphabet, row, strict=True):
            found[q, to] = (*found.get((q, to), ()), symbol)
    return found


def is_drawable(dfa: Dfa) -> bool:
    """True if the diagram has few enough states and letters to be read."""
    if len(dfa.states) > _MOST_STATES:
        return False
    written = [len(_letters(symbols)) for (a, b), symbols in edges_of(dfa).items() if a != b]
    return len(written) <= _MOST_EDGES and sum(written) <= _MOST_WRITTEN


def state_diagram(dfa: Dfa) -> Figure:
    """The automaton's states and edges; an arrow from nowhere is at the start, accepting states have two rings."""
    count = len(dfa.states)
    # The start is at the left; the others follow clockwise.
    radius = 0.0 if count == 1 else max(0.8, 0.5 / np.sin(np.pi / count))
    angles = np.pi - 2 * np.pi * (np.arange(count) - dfa.start) / count
    places = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    outwards = np.column_stack([np.cos(angles), np.sin(angles)])
    if count == 1:
        outwards = np.array([[0.0, 1.0]])
    low, high = places.min(axis=0) - (0.7, 0.62), places.max(axis=0) + (0.62, 0.62)
    figure, plot = canvas(*(0.85 * (high - low)))
    plot.set_xlim(low[0], high[0])
    plot.set_ylim(low[1], high[1])
    plot.set_aspect("equal")
    plot.set_axis_off()
    for (a, b), symbols in edges_of(dfa).items():
        if a == b:
            _loop(plot, places[a], outwards[a] if a != dfa.start else _beside(outwards[a]), _letters(symbols))
        else:
            _edge(plot, places[a], places[b], _letters(symbols))
    start = places[dfa.start]
    _arrow(plot, start - (0.62, 0.0), start, 0.0)
    for q, place in enumerate(places):
        _state(plot, place, dfa.states[q], accepting=dfa.outputs[q] is True)
    return figure


def _state(plot: Any, place: Any, name: str, *, accepting: bool) -> None:
    fill = COLOURS[3] if accepting else "white"
    plot.add_patch(Circle(place, _NODE, facecolor=fill, edgecolor="black", linewidth=1.0, zorder=4))
    if accepting:
        plot.add_patch(Circle(place, 0.8 * _NODE, facecolor="none", edgecolor="black", linewidth=0.8, zorder=5))
    short = name if len(name) <= 6 else name[:5] + "…"
    _write(plot, place, short, fontsize=8 if len(short) <= 4 else 6.5, zorder=6)


def _edge(plot: Any, start: Any, end: Any, letters: str) -> None:
    """A bent arrow: the edge back is bent the other way, so both can be seen."""
    _arrow(plot, start, end, _BEND)
    along = end - start
    across = np.array([along[1], -along[0]])
    # A quadratic curve, on which the letters stand nearer to its start: there fewer edges cross.
    control = (start + end) / 2 + _BEND * across
    t = 0.34
    point = (1 - t) ** 2 * start + 2 * t * (1 - t) * control + t * t * end
    _write(plot, point, letters, fontsize=9, zorder=3, bbox=_PAPER)


def _loop(plot: Any, place: Any, way: Any, letters: str) -> None:
    side = np.array([-way[1], way[0]])
    first, last = place + 0.18 * way + 0.12 * side, place + 0.18 * way - 0.12 * side
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 0.9, "color": "black", "zorder": 2}
    plot.add_patch(FancyArrowPatch(first, last, connectionstyle="arc3,rad=-1.6", shrinkA=0, shrinkB=1, **style))
    _write(plot, place + 0.48 * way, letters, fontsize=9, zorder=3, bbox=_PAPER)


def _beside(way: Any) -> Any:
    """The start's loop stands above it: the arrow from nowhere comes from outside."""
    return np.array([0.0, 1.0]) if abs(way[0]) > 0.5 else way


def _arrow(plot: Any, start: Any, end: Any, bend: float) -> None:
    whole = np.linalg.norm(np.subtract(end, start))
    unit = np.subtract(end, start) / whole
    # Shortened to the rim of the states, on the chord; the bend is small enough for this.
    turn = np.arctan(2 * bend)
    leave = _NODE * np.array(_turned(unit, -turn)) if bend else np.zeros(2)
    arrive = _NODE * 1.05 * np.array(_turned(unit, turn))
    style = {"arrowstyle": "-|>", "mutation_scale": 9, "linewidth": 0.9, "color": "black", "zorder": 2}
    ends = {"connectionstyle": f"arc3,rad={bend}", "shrinkA": 0, "shrinkB": 0}
    plot.add_patch(FancyArrowPatch(start + leave, end - arrive, **ends, **style))


def _turned(v: Any, angle: float) -> tuple[float, float]:
    c, s = np.cos(angle), np.sin(angle)
    return c * v[0] - s * v[1], s * v[0] + c * v[1]


def _letters(symbols: tuple[str, ...]) -> str:
    text = ", ".join(symbols[:4]) + (", …" if len(symbols) > 4 else "")
    return text if len(text) <= 24 else text[:23] + "…"


_PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}


def _write(plot: Any, place: Any, text: str, **options: Any) -> None:
    """Text as it stands: a dollar sign in a letter is no formula."""
    plot.text(*place, text, ha="center", va="center", parse_math=False, **options)
