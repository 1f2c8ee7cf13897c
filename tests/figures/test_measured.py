"""Pictures of measurements: read from JSON lines, with the drawn data beside them."""
# pyright: basic

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statetrack.cli import main
from statetrack.errors import InvalidFile
from statetrack.figures import measured
from statetrack.figures.measured import OF_MEASUREMENTS, Runs, draw_audit, read_measurements


def lines(folder: Path) -> Path:
    rows = [
        {"case": c, "format": f, "order": o, "family": w, "length": 100, "survived": [n, 60, 100], "proved": p}
        for c, f, n, p in (("Z60", "bfloat16", 7, 3.0), ("S5", "float32", 100, 1e300))
        for o, w in (("recurrent", "random"), ("recurrent", "adversarial"), ("scan", "random"))
    ]
    rows += [dict(rows[0], survived=[20], length=50), dict(rows[0], survived=[90])]
    rows.append({"case": "S5", "format": "float32", "order": "scan", "family": "periodic", "error": "none"})
    path = folder / "survival.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_words_of_the_longest_jobs_are_put_together(tmp_path: Path) -> None:
    runs = read_measurements(lines(tmp_path))
    found = runs["Z60", "bfloat16", "recurrent", "random"]
    assert (found.survived, found.length, found.proved, found.least) == ((7, 60, 90, 100), 100, 3.0, 7)
    assert len(runs) == 6


@pytest.mark.parametrize("name", list(OF_MEASUREMENTS))
def test_the_command_draws_measurements(name: str, tmp_path: Path) -> None:
    path = lines(tmp_path)
    assert main(["figure", name, "--from", str(path), "-o", str(tmp_path / "out"), "--format", "svg,png"]) == 0
    assert (tmp_path / "out" / f"{name}.svg").read_text().count("<path") > 10
    data = json.loads((tmp_path / "out" / f"{name}.json").read_text())
    assert data["Z60 | bfloat16 | recurrent | random"]["survived"] == [7, 60, 90, 100]
    assert main(["figure", name, "-o", str(tmp_path)]) == 2
    assert main(["figure", "window", "--from", str(path), "-o", str(tmp_path)]) == 2


MANY = {
    ("A5", "float32", "recurrent", "random"): Runs((1000, 1000), 1000, 50.0),
    ("A5", "bfloat16", "recurrent", "random"): Runs((30, 70), 1000, 4.0),
    ("A5", "float32", "scan", "random"): Runs((500, 500), 500, None),
    ("A5", "bfloat16", "scan", "random"): Runs((20, 60), 1000, None),
    ("A5", "bfloat16", "tree", "random"): Runs((400, 400), 400, None),
    ("Z60", "float32", "recurrent", "adversarial"): Runs((40, 40), 40, 60.0),
    ("Z60", "bfloat16", "recurrent", "adversarial"): Runs((9, 9, 40), 40, 3.0),
}


def drawn(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plots of a picture that have an axis."""
    kept: list[Any] = []
    monkeypatch.setattr(measured, "save", lambda figure, path, data: kept.append(figure))
    OF_MEASUREMENTS[name][1](Path("x.svg"), MANY)
    return [plot for plot in kept[0].axes if plot.axison]


def points(plot: Any) -> list[tuple[float, float, bool]]:
    """Marks as (x, y, whether it is filled)."""
    marks = [line for line in plot.lines if line.get_linestyle() == "None"]
    return [(*line.get_xydata()[0], line.get_markerfacecolor() != "none") for line in marks]


def test_no_panel_of_survival_is_empty_and_curves_end_where_their_runs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    plots = drawn("survival", monkeypatch)
    assert [plot.get_title().split("\n")[0] for plot in plots] == ["A5, random", "Z60, adversarial"]
    curves = [[line.get_xydata() for line in plot.lines if len(line.get_xydata()) > 1] for plot in plots]
    assert [[tuple(curve[-1]) for curve in panel] for panel in curves] == [
        [(1000, 1), (71, 0)],
        [(40, 1), (40, pytest.approx(1 / 3))],
    ]
    heads = [[tuple(line.get_xydata()[0]) for line in plot.lines if line.get_marker() == ">"] for plot in plots]
    assert heads == [[(1000, 1)], [(40, 1), (40, pytest.approx(1 / 3))]]
    assert "2 words of 1,000 tokens" in plots[0].get_title()
    assert "words" not in plots[1].get_title().split("\n")[-1]


def test_only_faults_are_filled_and_a_run_that_ended_says_nothing_against_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (plot,) = drawn("bounds", monkeypatch)
    assert sorted(points(plot)) == [(3, 9, True), (4, 30, True), (50, 1000, False), (60, 40, False)]
    arrows = [text.xy for text in plot.texts if text.arrow_patch is not None]
    assert sorted(arrows) == [(50, 1000), (60, 40)]
    words = [text.get_text() for text in plot.figure.legends[0].get_texts()]
    assert any("hollow, arrow: none failed" in text for text in words)
    assert any("would refute" in text for text in words)


def test_orders_join_faults_only(monkeypatch: pytest.MonkeyPatch) -> None:
    (plot,) = drawn("orders", monkeypatch)
    assert sorted((y, filled) for _, y, filled in points(plot)) == [
        (20, True), (30, True), (400, False), (500, False), (1000, False)
    ]  # fmt: skip
    joined = [[y for _, y in line.get_xydata()] for line in plot.lines if line.get_linestyle() != "None"]
    assert joined == [[30, 20]]


def test_files_without_jobs_are_refused(tmp_path: Path) -> None:
    for text in ("no", "", '{"survived": [1]}', '{"error": "none"}'):
        (tmp_path / "x").write_text(text)
        with pytest.raises(InvalidFile):
            read_measurements(tmp_path / "x")
    with pytest.raises(InvalidFile):
        read_measurements(tmp_path / "none")


def test_spectra_of_many_heads_are_saved_all(tmp_path: Path) -> None:
    draw_audit(tmp_path / "heads.svg", {f"head {i}": np.exp(1j * np.arange(6)).reshape(2, 3) for i in range(14)})
    data = json.loads((tmp_path / "heads.json").read_text())
    assert len(data) == 14
    assert data["head 3"][1][0] == pytest.approx([np.cos(3), np.sin(3)])
