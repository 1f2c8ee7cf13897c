from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread  # pyright: ignore[reportUnknownVariableType]

from statetrack.errors import InvalidFile, InvalidInput
from statetrack.figures.spectra import FIGURES
from statetrack.figures.style import COLOURS, DASHES, MARKERS, canvas, panels, save
from statetrack.theory.transition_spectra import FAMILIES, determinant_range, window


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for name, draw in FIGURES.items():
        draw(folder / f"{name}.png")
    return folder


def data_of(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FIGURES)
def test_a_picture_is_not_blank_and_has_its_data_beside_it(drawn: Path, name: str) -> None:
    picture: Any = imread(str(drawn / f"{name}.png"))
    grey = picture[..., :3].mean(axis=-1)
    assert (grey < 0.4).mean() > 0.002
    assert (grey > 0.94).mean() > 0.2
    assert data_of(drawn, name)
    assert FIGURES[name].__doc__


@pytest.mark.parametrize(("kind", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_vector_pictures_are_written_and_come_out_the_same_twice(tmp_path: Path, kind: str, start: bytes) -> None:
    made: list[bytes] = []
    for _ in range(2):
        FIGURES["window"](tmp_path / f"window.{kind}")
        made.append((tmp_path / f"window.{kind}").read_bytes())
    assert made[0].startswith(start)
    assert made[0] == made[1]


def test_drawn_spectra_are_in_their_sets(drawn: Path) -> None:
    data = data_of(drawn, "spectra")
    assert len(data) == 10
    for key, values in data.items():
        family = FAMILIES[key.split(",")[0]]
        reals, pairs = np.array(values["reals"]), np.array(values["pairs"]).reshape(-1, 2)
        assert reals.max() <= 1 + 1e-9
        assert reals.min() >= min(family.low_gate, 1 - family.beta_max) - 1e-9
        assert (len(pairs) > 100) == family.turns
        assert np.all(np.hypot(*pairs.T) <= 1 + 1e-9)


def test_drawn_regions_hold_their_points_and_are_the_exact_ones(drawn: Path) -> None:
    for key, values in data_of(drawn, "regions").items():
        name, n = key.split(", n = ")
        trace, det = np.array(values["trace"]), np.array(values["determinant"])
        low, high = determinant_range(FAMILIES[name], int(n), trace)
        assert np.all((low - 1e-9 <= det) & (det <= high + 1e-9))
        edge = {part: np.array(x) for part, x in values["boundary"].items()}
        assert np.allclose(determinant_range(FAMILIES[name], int(n), edge["trace"]), (edge["low"], edge["high"]))


def test_the_drawn_window_is_the_exact_one_and_its_lines_lie_in_it(drawn: Path) -> None:
    data = data_of(drawn, "window")["angles"]
    beta = np.array(data["beta"])
    squares = [np.cos(np.radians(data[end])) ** 2 for end in ("to", "from")]
    assert np.allclose(squares, window(beta), atol=1e-9)
    assert (data["from"][0], data["to"][0]) == pytest.approx((45, 45))
    assert (data["from"][-1], data["to"][-1]) == pytest.approx((0, 90), abs=1e-6)
    for degrees, theta in data["theta by angle"].items():
        inside = (np.array(data["from"]) - 1e-9 <= theta) & (np.array(theta) <= np.array(data["to"]) + 1e-9)
        assert inside.all(), degrees
        # At β = 2 the block turns by 2θ.
        assert theta[-1] == pytest.approx(float(degrees) / 2)


def test_drawn_pairs_lie_on_their_circles(drawn: Path) -> None:
    for beta, circle in data_of(drawn, "beta")["circles"].items():
        sizes = np.hypot(circle["real"], circle["imaginary"])
        assert np.allclose(sizes, np.sqrt(float(beta) - 1))
        assert circle["radius"] == pytest.approx(np.sqrt(float(beta) - 1))


def test_the_drawn_signed_householder_turns_by_twice_the_angle(drawn: Path) -> None:
    data = data_of(drawn, "signed-householder")
    turn = np.radians(2 * data["angle"])
    rotation = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    image = next(points for title, points in data["images"].items() if "rotation" in title)
    assert np.allclose(rotation @ np.array(data["shape"]), image)


def test_neighbouring_colours_differ_in_lightness_and_series_in_marks() -> None:
    def lightness(colour: str) -> float:
        r, g, b = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
        return 0.299 * r + 0.587 * g + 0.114 * b

    values = [lightness(colour) for colour in COLOURS]
    assert all(abs(a - b) > 0.07 for a, b in itertools.pairwise(values))
    assert len(set(COLOURS)) == len(COLOURS)
    assert len(set(MARKERS)) == len(MARKERS)
    assert len(set(DASHES)) == len(DASHES)


def test_a_canvas_is_one_plot_and_a_wrong_name_is_refused(tmp_path: Path) -> None:
    figure, plot = canvas(3, 2)
    plot.plot([0, 1], [1, 0])
    save(figure, tmp_path / "a.svg", {"x": [0, 1]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [0, 1]}
    assert "<text" in (tmp_path / "a.svg").read_text(encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"\.svg"):
        save(figure, tmp_path / "a.gif", {})
    with pytest.raises(InvalidFile, match="cannot be written"):
        save(figure, tmp_path / "missing" / "a.svg", {})
    assert [len(row) for row in panels(2, 3, 4, 3)[1]] == [3, 3]
