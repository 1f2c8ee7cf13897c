"""Pictures of programs: a clock's states and readouts, the eigenvalues and the states of any weights file.

Main definitions: `draw_clock`, `draw_spectrum`, `draw_states`.
"""

# numpy.linalg and matplotlib are only partly typed.
# pyright: basic

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from statetrack.constructions.clocks import STYLES, clock
from statetrack.constructions.composed import closed_program
from statetrack.constructions.program import head_orbit
from statetrack.constructions.weights import Weights

from .style import COLOURS, MARKERS, canvas, save

Floats = NDArray[np.float64]
_MOST_STATES = 20_000


def draw_clock(path: Path) -> None:
    """The states of a clock of period 8, and the readouts that tell them apart."""
    program, _ = clock(STYLES["ckda"], 4)
    head = program.layers[0].heads[0]
    orbit = head_orbit(head, max_states=100)
    orbit.close()
    columns = orbit.columns.to_floats()
    query = np.array([float(x) for x in head.queries[0]])
    rows = columns[orbit.rows(range(len(orbit)))]
    readouts = rows @ query
    figure, plot = canvas(4.6, 4.6)
    angles = np.linspace(0, 2 * np.pi, 181)
    plot.plot(np.cos(angles), np.sin(angles), color="#BBBBBB", linewidth=0.8)
    for t, (x, y) in enumerate(rows[:, 0]):
        plot.plot(x, y, "o", color=COLOURS[0], markeredgecolor="black")
        plot.annotate(f"t = {t}", (x, y), xytext=(1.13 * x, 1.13 * y), ha="center", va="center", fontsize=8)
    plot.set_aspect("equal")
    plot.set_axis_off()
    plot.set_title("a clock of period 8: first columns; both columns' first entries are read", fontsize=9, pad=22)
    save(figure, path, {"states": rows.tolist(), "readouts": readouts.tolist()})


def draw_spectrum(path: Path, weights: Weights) -> None:
    """The eigenvalues of every transition in a weights file, as its tensors have them, and the unit circle."""
    found: dict[str, list[complex]] = {}
    for number in range(sum(name.endswith(".queries") for name in weights.tensors)):
        found[f"layer {number + 1}"] = _eigenvalues(weights, f"layers.{number}.")
    figure, plot = canvas(5.0, 4.8)
    angles = np.linspace(0, 2 * np.pi, 361)
    plot.plot(np.cos(angles), np.sin(angles), color="#999999", linewidth=0.8)
    for i, (name, values) in enumerate(found.items()):
        points = np.unique(np.round(np.array(values), 6))
        # Later layers have smaller marks, so that an eigenvalue of several layers shows all of them.
        size = 5 + 3.5 * min(len(found) - 1 - i, 4)
        style = {"color": COLOURS[i % len(COLOURS)], "markersize": size, "linestyle": "", "markeredgecolor": "black"}
        plot.plot(points.real, points.imag, MARKERS[i % len(MARKERS)], markeredgewidth=0.4, label=name, **style)
    plot.set_aspect("equal")
    plot.locator_params(nbins=5)
    plot.set_xlabel("real part")
    plot.set_ylabel("imaginary part")
    if len(found) <= 8:
        plot.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, fontsize=8)
    plot.set_title(f"eigenvalues of the transitions, {weights.certificate['range']['target']}", fontsize=9)
    save(figure, path, {name: [[z.real, z.imag] for z in values] for name, values in found.items()})


def _eigenvalues(weights: Weights, prefix: str) -> list[complex]:
    """Eigenvalues of each head at each input; padding of smaller heads is left out where its gate and key show it."""
    t = {name.removeprefix(prefix): np.asarray(a) for name, a in weights.tensors.items() if name.startswith(prefix)}
    found: list[complex] = []
    if "dense" in t:
        for m in t["dense"].astype(np.float64).reshape(-1, *t["dense"].shape[-2:]):
            found += np.linalg.eigvals(m).tolist()
        return found
    keys, betas, gates = (t[name].astype(np.float64) for name in ("keys", "betas", "gates"))
    inputs, heads, depth, size = keys.shape
    for i in range(inputs):
        for h in range(heads):
            m = np.eye(size)
            for j in range(depth):
                k = keys[i, h, j]
                m = (np.eye(size) - betas[i, h, j] * np.outer(k, k)) @ (gates[i, h, j, :, None] * m)
            found += np.linalg.eigvals(m).tolist()
    return found


def draw_states(path: Path, weights: Weights) -> None:
    """The exact states that the last head of a program reaches, on their two main axes."""
    program = closed_program(weights.certificate)
    head = program.layers[-1].heads[0]
    orbit = head_orbit(head, max_states=10 * _MOST_STATES)
    orbit.close(_MOST_STATES)
    count = min(len(orbit), _MOST_STATES)
    columns = orbit.columns.to_floats()
    states = columns[orbit.rows(range(count))].reshape(count, -1)
    centred = states - states.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    shown = centred @ axes[:2].T if len(axes) > 1 else np.column_stack([centred[:, 0], np.zeros(count)])
    figure, plot = canvas(4.8, 4.6)
    plot.plot(*shown.T, "o", color=COLOURS[0], markersize=max(1.5, 6 - np.log10(count)), alpha=0.6, linestyle="")
    plot.set_aspect("equal", adjustable="datalim")
    plot.set_xlabel("first main axis")
    plot.set_ylabel("second main axis")
    more = " (the first found)" if len(orbit) >= _MOST_STATES else ""
    plot.set_title(f"{count:,} states of the last head{more}, K = {head.size}, V = {head.width}", fontsize=9)
    save(figure, path, {"states": states[:2000].tolist(), "projected": shown.tolist()})
