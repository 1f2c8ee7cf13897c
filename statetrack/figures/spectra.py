"""Pictures of spectra: what each family attains, the window of non-real eigenvalues, a signed Householder in the plane.

Curves are the exact boundaries from `statetrack.theory.transition_spectra`; points are random transitions.

Main definitions: `draw_spectra`, `draw_regions`, `draw_window`, `draw_beta`, `draw_signed_householder`, `FIGURES`.

References: CKDA Sec. 3 and 4, App. A; Grazzi et al. Prop. 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from statetrack.theory.transition_spectra import (
    FAMILIES,
    Floats,
    determinant_range,
    real_bands,
    sample,
    trace_range,
    window,
)

from .style import COLOURS, DASHES, GREY, LEGEND, LIGHT, panels, save

COUNT = 2500
POINTS: dict[str, Any] = {"linestyle": "", "marker": ".", "markersize": 2.2, "markeredgewidth": 0, "color": COLOURS[0]}
TICKS: dict[str, Any] = {"linestyle": "", "marker": "|", "markersize": 5, "markeredgewidth": 0.5, "color": COLOURS[0]}
TITLE: dict[str, Any] = {"fontsize": 9}
EDGE: dict[str, Any] = {"color": "black", "linewidth": 1.1, "zorder": 3}
RATES = (1.25, 1.5, 1.75, 2.0)
RANGES = {
    "KDA": "α ∈ [0, 1], β ∈ [0, 1]",
    "gate-only": "α ∈ [-1, 1], β ∈ [0, 1]",
    "β-only": "α ∈ [0, 1], β ∈ [0, 2]",
    "CKDA": "α ∈ [-1, 1], β ∈ [0, 2]",
    "DeltaProduct₂": "two factors, β ∈ [0, 2]",
}


def draw_spectra(path: Path) -> None:
    """Eigenvalues of random transitions of five families in dimensions 2 and 3, and the set of all of them."""
    figure, plots = panels(2, 5, 11.0, 4.9, sharex=True, sharey=True)
    data: dict[str, Any] = {}
    x, y = _circle()
    for row, n in zip(plots, (2, 3), strict=True):
        for plot, (name, family) in zip(row, FAMILIES.items(), strict=True):
            values = sample(family, n, COUNT, seed=n).spectra.ravel()
            low = min(family.low_gate, 1 - family.beta_max)
            plot.plot(x, y, color=GREY, linewidth=0.7, linestyle=":")
            if family.turns:
                plot.fill(x, y, color=LIGHT, zorder=0)
                plot.plot(x, y, **EDGE)
            else:
                plot.plot([low, 1], [0, 0], color=LIGHT, linewidth=7, solid_capstyle="butt", zorder=0)
                for end in (low, 1):
                    plot.plot([end, end], [-0.09, 0.09], **EDGE)
            # Real eigenvalues of 150 transitions only: more would hide each other.
            real = values.real[: 150 * n][values.imag[: 150 * n] == 0]
            plot.plot(real, np.zeros_like(real), **TICKS)
            pairs = values[values.imag != 0]
            plot.plot(pairs.real, pairs.imag, **POINTS)
            if family.factors > 1 and n == 3:
                plot.annotate("always 1", (1, 0), xytext=(0.45, 0.28), fontsize=8, bbox=_PAPER, arrowprops=_ARROW)
            if n == 2:
                plot.set_title(f"{name}\n{RANGES[name]}", fontsize=9)
            _plane(plot)
            data[f"{name}, n = {n}"] = {"reals": real.tolist(), "pairs": [[z.real, z.imag] for z in pairs.tolist()]}
        row[0].set_ylabel(f"n = {n}\nimaginary part")
    for plot in plots[1]:
        plot.set_xlabel("real part")
    save(figure, path, data)


def draw_regions(path: Path) -> None:
    """Trace and determinant of five families in dimensions 2 and 3: the exact regions and random transitions."""
    figure, plots = panels(2, 5, 11.0, 5.2, sharex="row", sharey=True)
    data: dict[str, Any] = {}
    for row, n in zip(plots, (2, 3), strict=True):
        for plot, (name, family) in zip(row, FAMILIES.items(), strict=True):
            drawn = sample(family, n, COUNT, seed=n)
            matrices = drawn.matrices()
            trace, det = np.trace(matrices, axis1=1, axis2=2), np.linalg.det(matrices)
            grid = np.linspace(*trace_range(family, n), 241)
            low, high = determinant_range(family, n, grid)
            plot.fill_between(grid, low, high, color=LIGHT, linewidth=0, zorder=0)
            plot.plot(np.concatenate([grid, grid[::-1]]), np.concatenate([low, high[::-1]]), **EDGE)
            plot.plot([grid[0], grid[0]], [low[0], high[0]], **EDGE)
            if n == 2 and family.turns:
                plot.plot(grid, grid**2 / 4, color="black", linewidth=0.8, linestyle="--")
                plot.text(0, 0.5, "non-real", ha="center", va="center", fontsize=8, bbox=_PAPER)
            plot.plot(trace, det, **POINTS)
            if n == 2:
                plot.set_title(f"{name}\n{RANGES[name]}", fontsize=9)
            plot.set_xlim(-n - 0.2, n + 0.2)
            plot.set_ylim(-1.12, 1.12)
            plot.set_xticks(range(-n, n + 1))
            plot.set_yticks([-1, -0.5, 0, 0.5, 1])
            data[f"{name}, n = {n}"] = {
                "trace": trace.tolist(),
                "determinant": det.tolist(),
                "boundary": {"trace": grid.tolist(), "low": low.tolist(), "high": high.tolist()},
            }
        row[0].set_ylabel(f"n = {n}\ndeterminant")
    for plot in plots[1]:
        plot.set_xlabel("trace")
    save(figure, path, data)


def draw_window(path: Path) -> None:
    """Where a transition with gates of both signs turns: the window in β and θ, with the angle it turns by."""
    figure, plots = panels(1, 2, 8.6, 3.9)
    data = {"angles": _angles(plots[0][0]), "gates": _gates(plots[0][1])}
    for plot in plots[0]:
        plot.set_xlabel("θ, angle of the key from the negative axis (degrees)")
        plot.set_ylabel("β")
        plot.set_xlim(0, 90)
        plot.set_ylim(0.95, 2.0)
        plot.set_xticks([0, 15, 30, 45, 60, 75, 90])
    save(figure, path, data)


def _angles(plot: Any) -> dict[str, Any]:
    """Gates ∓1: lines of equal angle, cos(arg) = β cos 2θ/(2√(β - 1)); the modulus √(β - 1) on the right."""
    beta = np.linspace(1.0, 2.0, 401)
    low, high = window(beta)
    ends = [np.degrees(np.arccos(np.sqrt(square))) for square in (high, low)]
    plot.fill_betweenx(beta, *ends, color=LIGHT, linewidth=0)
    lines: dict[str, Any] = {}
    for i, degrees in enumerate((30, 60, 90, 120, 150)):
        cosine = np.cos(np.radians(degrees))
        theta = np.degrees(np.arccos(np.clip(2 * np.sqrt(beta - 1) * cosine / beta, -1, 1))) / 2
        plot.plot(theta, beta, color=COLOURS[0], linewidth=1.0, linestyle=DASHES[abs(i - 2)])
        plot.text(theta[300], beta[300], f"±{degrees}°", fontsize=8, ha="center", va="center", bbox=_PAPER)
        lines[str(degrees)] = theta.tolist()
    for end in ends:
        plot.plot(end, beta, **EDGE)
    plot.text(4, 1.06, "real", fontsize=9)
    plot.text(86, 1.06, "real", fontsize=9, ha="right")
    plot.set_title("gates −1 and 1: angle of the pair, and its modulus", **TITLE)
    right = plot.twinx()
    right.tick_params(labelsize=8, width=0.7)
    for spine in right.spines.values():
        spine.set_linewidth(0.7)
    right.set_ylim(0.95, 2.0)
    sizes = (0, 0.25, 0.5, 0.75, 1)
    right.set_yticks([1 + size * size for size in sizes], [f"{size:g}" for size in sizes])
    right.set_ylabel("modulus √(β − 1)", fontsize=9)
    return {"beta": beta.tolist(), "from": ends[0].tolist(), "to": ends[1].tolist(), "theta by angle": lines}


def _gates(plot: Any) -> dict[str, Any]:
    """The windows of gates -a and 1: each opens at β = 1, at an angle of its own."""
    beta, found = np.linspace(1.0, 2.0, 401), dict[str, Any]()
    for i, low_gate in enumerate((1.0, 0.5, 0.2, 0.05)):
        low, high = window(beta, low_gate, 1.0)
        ends = [np.degrees(np.arccos(np.sqrt(square))) for square in (high, low)]
        style = {"color": COLOURS[(6, 0, 4, 2)[i]], "linestyle": DASHES[i]}
        plot.fill_betweenx(beta, *ends, color=style["color"], alpha=0.07, linewidth=0)
        for end, label in zip(ends, (f"gates −{low_gate:g}, 1", None), strict=True):
            plot.plot(end, beta, **style, label=label)
        found[str(low_gate)] = {"from": ends[0].tolist(), "to": ends[1].tolist()}
    plot.set_title("other gates: the window moves (non-real inside)", **TITLE)
    plot.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, **LEGEND)
    return {"beta": beta.tolist(), "windows": found}


def draw_beta(path: Path) -> None:
    """What β alone decides for gates -1 and 1 in the plane: circles of pairs, and bands of real eigenvalues."""
    figure, plots = panels(1, 2, 8.6, 4.0)
    circles, bands = plots[0]
    data: dict[str, Any] = {"circles": {}}
    for i, beta in enumerate(RATES):
        radius = float(np.sqrt(beta - 1))
        circles.plot(*_circle(radius), color=COLOURS[i], linestyle=DASHES[3 - i])
        circles.text(0, radius, f"β = {beta:g}", fontsize=8, ha="center", va="center", bbox=_PAPER)
        values = _plane_pairs(beta)
        kept = values[values.imag != 0]
        circles.plot(kept.real, kept.imag, **POINTS | {"color": COLOURS[i], "markersize": 5})
        data["circles"][str(beta)] = {"radius": radius, "real": kept.real.tolist(), "imaginary": kept.imag.tolist()}
    _plane(circles)
    circles.set_xlabel("real part")
    circles.set_ylabel("imaginary part")
    circles.set_title("gates 1 and −1: pairs lie on the circle of radius √(β − 1)", **TITLE)
    beta = np.linspace(0, 2, 201)
    for low, high in real_bands(beta):
        bands.fill_between(beta, low, high, color=LIGHT, linewidth=0)
        bands.plot(beta, low, **EDGE)
        bands.plot(beta, high, **EDGE)
    rates = np.random.default_rng(0).uniform(0, 2, 700)
    real = [(b, v.real) for b in rates for v in _plane_pairs(b, 1, int(b * 1e6)) if v.imag == 0]
    bands.plot(*np.array(real).T, **POINTS | {"markersize": 3})
    bands.set_xlabel("β")
    bands.set_ylabel("real eigenvalues")
    bands.set_title("real eigenvalues: one in each band, or for β > 1 both in one", **TITLE)
    bands.set_xticks([0, 0.5, 1, 1.5, 2])
    bands.set_yticks([-1, -0.5, 0, 0.5, 1])
    data["bands"] = {"beta": [b for b, _ in real], "eigenvalue": [v for _, v in real]}
    save(figure, path, data)


def _plane_pairs(beta: float, count: int = 60, seed: int = 0) -> Any:
    """Eigenvalues for gates (1, -1), this β and random keys, by the quadratic formula."""
    squares = np.random.default_rng(seed).beta(0.5, 0.5, count)
    half = beta * (1 - 2 * squares) / 2
    root = np.sqrt((half * half - (beta - 1)).astype(np.complex128))
    return np.concatenate([half + root, half - root])


def draw_signed_householder(path: Path) -> None:
    """The sign flips the plane in the first axis, the reflection in the line across the key: together they turn it."""
    figure, plots = panels(1, 4, 11.0, 2.8)
    angle = np.radians(35)
    key = np.array([-np.sin(angle), np.cos(angle)])
    flip, mirror = np.diag([1.0, -1.0]), np.eye(2) - 2 * np.outer(key, key)
    less = np.eye(2) - 1.5 * np.outer(key, key)
    shape = np.array([[0.25, 0.2], [0.95, 0.2], [0.95, 0.36], [0.41, 0.36], [0.41, 0.62], [0.25, 0.62]]).T
    stages = [
        ("S = Diag(1, −1): mirror in the axis", shape, flip @ shape, 0.0),
        ("H = I − 2kkᵀ: mirror across k", flip @ shape, mirror @ flip @ shape, angle),
        ("H S: rotation by 2·35° = 70°", shape, mirror @ flip @ shape, None),
        ("β = 1.5: the same, then halved along k", shape, less @ flip @ shape, angle),
    ]
    for i, (plot, (title, before, after, line)) in enumerate(zip(plots[0], stages, strict=True)):
        plot.plot(*_circle(), color=GREY, linewidth=0.7, linestyle=":")
        if line is not None:
            ends = np.outer([-1.15, 1.15], [np.cos(line), np.sin(line)])
            plot.plot(*ends.T, color="black", linewidth=1.0, linestyle="--")
            plot.text(*(1.22 * np.array([np.cos(line), np.sin(line)])), "mirror", fontsize=8, ha="center", va="bottom")
        if i in (1, 3):
            plot.annotate("", xy=key, xytext=(0, 0), arrowprops={"arrowstyle": "->", "lw": 1.3})
            plot.text(*(1.12 * key), "k", fontsize=10, ha="center", va="center")
        if i == 3:
            plot.plot(*(less @ flip @ np.array(_circle())), color=GREY, linewidth=1.0)
        plot.fill(*before, facecolor="white", edgecolor="black", linewidth=1.0, linestyle=":")
        plot.fill(*after, facecolor=COLOURS[3], edgecolor="black", linewidth=1.0)
        if i == 2:
            _arc(plot, before[:, 1], 2 * angle)
        plot.set_title(title, fontsize=9)
        plot.set_aspect("equal")
        plot.set_axis_off()
        plot.set_xlim(-1.25, 1.4)
        plot.set_ylim(-1.1, 1.15)
    data = {"angle": float(np.degrees(angle)), "key": key.tolist(), "shape": shape.tolist()}
    save(figure, path, data | {"images": {title: after.tolist() for title, _, after, _ in stages}})


def _arc(plot: Any, start: Floats, by: float) -> None:
    """An arrow along the circle through `start`."""
    first, radius = float(np.arctan2(start[1], start[0])), float(np.linalg.norm(start))
    along: Floats = np.linspace(first + 0.06, first + by - 0.06, 40)
    points = radius * np.array([np.cos(along), np.sin(along)])
    plot.plot(*points[:, :-1], color=COLOURS[4], linewidth=1.2)
    plot.annotate("", xy=points[:, -1], xytext=points[:, -3], arrowprops={"arrowstyle": "->", "color": COLOURS[4]})


def _circle(radius: float = 1.0) -> tuple[Floats, Floats]:
    turn: Floats = np.linspace(0, 2 * np.pi, 361)
    return radius * np.cos(turn), radius * np.sin(turn)


_ARROW = {"arrowstyle": "-", "lw": 0.7}
_PAPER: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85}


def _plane(plot: Any) -> None:
    plot.axhline(0, color=GREY, linewidth=0.5, zorder=0)
    plot.axvline(0, color=GREY, linewidth=0.5, zorder=0)
    plot.set_aspect("equal")
    plot.set_xlim(-1.12, 1.12)
    plot.set_ylim(-1.12, 1.12)
    plot.set_xticks([-1, 0, 1])
    plot.set_yticks([-1, 0, 1])


FIGURES: dict[str, Callable[[Path], None]] = {
    "spectra": draw_spectra,
    "regions": draw_regions,
    "window": draw_window,
    "beta": draw_beta,
    "signed-householder": draw_signed_householder,
}
