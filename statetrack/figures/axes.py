"""Where the axes of the cube and of the icosahedron lie, and what the quaternion tracker reaches.

An axis is drawn by stereographic projection of the half sphere: (x, y, z) with z >= 0 goes to (x, y)/(1 + z). Planes
through the centre become arcs; the plane z = 0 is the rim, where both ends of an axis are drawn.

Main definitions: `draw_cube`, `draw_icosahedron`, `draw_quaternions`.

References: CKDA Prop. 13 and Lemma 16; App. C.
"""

# numpy.linalg and matplotlib are only partly typed.
# pyright: basic

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.constructions.source import resolve
from statetrack.constructions.trackers import quaternion
from statetrack.theory.arrays import Matrix, matmul
from statetrack.theory.orbits import Orbit
from statetrack.theory.rotations import (
    cube_frame,
    icosahedral_planes,
    into_field,
    order,
    polyhedral_generators,
    signed_permutations,
)

from .style import COLOURS, MARKERS, canvas, save

Floats = NDArray[np.float64]


def draw_cube(path: Path) -> None:
    """The 13 axes of the cube turned by 45 degrees: all those of order 3 and 4 lie in coordinate planes."""
    frame = cube_frame()
    field = frame[0][0].field
    turned = [matmul(frame, matmul(into_field(r, field), frame)) for r in signed_permutations(field)]
    axes = {n: _axes(turned, n) for n in (2, 3, 4)}
    figure, plot = canvas(4.6, 4.9)
    _sphere(plot)
    for line in (((0, 0), (-1, 1)), ((-1, 1), (0, 0))):
        plot.plot(*line, color="black", linewidth=1.2)
    _points(plot, axes)
    title = "the cube, turned by 45°: rotations of order 3 and 4\nhave an axis in a coordinate plane"
    plot.set_title(title, fontsize=9)
    save(figure, path, {"axes": {str(n): points.tolist() for n, points in axes.items()}})


def draw_icosahedron(path: Path) -> None:
    """The 16 axes of order 3 and 5, and the planes that hold four of them: three planes hold at most twelve."""
    elements = polyhedral_generators(5).elements
    axes = {n: _axes(elements, n) for n in (3, 5)}
    count = icosahedral_planes()
    every = np.concatenate([axes[3], axes[5]])
    normals: list[Floats] = []
    for i, j in combinations(range(len(every)), 2):
        normal = np.cross(every[i], every[j])
        normal /= np.linalg.norm(normal)
        held = int((np.abs(every @ normal) < 1e-9).sum())
        if held == count.most and not any(abs(abs(normal @ known) - 1) < 1e-9 for known in normals):
            normals.append(normal)
    figure, plot = canvas(4.6, 4.9)
    _sphere(plot)
    for normal in normals:
        plot.plot(*_great_circle(normal).T, color="#999999", linewidth=0.8, zorder=1)
    _points(plot, axes)
    held = f"{len(normals)} planes hold {count.most} of its {count.axes} axes"
    title = f"the icosahedron: {held} of order 3 and 5,\nnone holds more"
    plot.set_title(title, fontsize=9)
    data = {"axes": {str(n): p.tolist() for n, p in axes.items()}, "normals": [n.tolist() for n in normals]}
    save(figure, path, data)


def draw_quaternions(path: Path) -> None:
    """The columns that the quaternion tracker of A5 reaches: the 120 unit quaternions of the binary group."""
    program = quaternion(resolve("A5"))
    assert program is not None
    head = program.layers[0].heads[0]
    orbit = Orbit(program.field, head.h0, head.maps)
    states = orbit.close() and len(orbit)
    columns = orbit.columns.to_floats()
    # A plane in which the 120 points have 30-fold symmetry: an eigenplane of x -> a x b with a, b of order 10 and 6.
    shown = columns @ _coxeter_plane(columns)
    figure, plot = canvas(4.6, 4.9)
    radius = np.round(np.linalg.norm(shown, axis=1), 6)
    for i, r in enumerate(sorted(set(radius.tolist()))):
        ring = shown[radius == r]
        plot.plot(*ring.T, MARKERS[i % len(MARKERS)], color=COLOURS[i % len(COLOURS)], markersize=4, linestyle="")
    plot.set_aspect("equal")
    plot.set_axis_off()
    plot.set_title(f"{len(columns)} columns, {states:,} states of the A5 tracker in dimension 4", fontsize=9)
    save(figure, path, {"columns": columns.tolist(), "projected": shown.tolist(), "states": states})


def _axes(rotations: tuple[Matrix, ...] | list[Matrix], n: int) -> Floats:
    """Unit vectors of the axes of the rotations of order n, each once, in the upper half space."""
    found: list[Floats] = []
    for r in rotations:
        if order(r) != n:
            continue
        m = np.array([[float(x) for x in row] for row in r])
        values, vectors = np.linalg.eig(m)
        axis = np.real(vectors[:, np.argmin(np.abs(values - 1))])
        axis = axis / np.linalg.norm(axis)
        axis = -axis if (axis[2], axis[1], axis[0]) < (-1e-12, 0, 0) else axis
        if not any(abs(abs(axis @ known) - 1) < 1e-9 for known in found):
            found.append(axis)
    return np.array(found)


def _project(points: Floats) -> Floats:
    up = np.where(points[:, 2:] < 0, -points, points)
    return up[:, :2] / (1 + up[:, 2:])


def _great_circle(normal: Floats) -> Floats:
    first = np.cross(normal, [1.0, 0.0, 0.0] if abs(normal[0]) < 0.9 else [0.0, 1.0, 0.0])
    first /= np.linalg.norm(first)
    second = np.cross(normal, first)
    angles = np.linspace(0, 2 * np.pi, 721)
    circle = np.cos(angles)[:, None] * first + np.sin(angles)[:, None] * second
    above = circle[:, 2:] >= -1e-9
    return np.where(above, circle[:, :2] / (1 + np.where(above, circle[:, 2:], 0.0)), np.nan)


def _sphere(plot: Any) -> None:
    angles = np.linspace(0, 2 * np.pi, 361)
    plot.plot(np.cos(angles), np.sin(angles), color="black", linewidth=1.2)
    plot.set_aspect("equal")
    plot.set_axis_off()


def _points(plot: Any, axes: dict[int, Floats]) -> None:
    """Axes by order. One in the rim is drawn at both ends; one of two orders is a mark on a larger, white one."""
    for i, (n, points) in enumerate(axes.items()):
        place = _project(points)
        rim = place[np.abs(points[:, 2]) < 1e-9]
        below = n == 2 and 4 in axes
        style = {"markersize": 11 if below else 7, "linestyle": "", "zorder": 3 + i, "markeredgecolor": "black"}
        style["color"] = "white" if below else COLOURS[i]
        plot.plot(*np.concatenate([place, -rim]).T, MARKERS[i], label=f"order {n}: {len(points)} axes", **style)
    plot.legend(loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=3, frameon=False, fontsize=8)


def _coxeter_plane(columns: Floats) -> Floats:
    """Two orthonormal columns that span an eigenplane of x -> a x b, a and b among the points."""
    a = columns[np.argmin(np.abs(columns[:, 0] - np.cos(np.pi / 5)))]
    b = columns[np.argmin(np.abs(columns[:, 0] - np.cos(np.pi / 3)))]
    _, vectors = np.linalg.eig(_left(a) @ _right(b))
    plane, _ = np.linalg.qr(np.column_stack([np.real(vectors[:, 0]), np.imag(vectors[:, 0])]))
    return plane


def _left(a: Floats) -> Floats:
    w, x, y, z = a
    return np.array([[w, -x, -y, -z], [x, w, -z, y], [y, z, w, -x], [z, -y, x, w]])


def _right(b: Floats) -> Floats:
    w, x, y, z = b
    return np.array([[w, -x, -y, -z], [x, w, z, -y], [y, -z, w, x], [z, y, -x, w]])
