"""Pictures of measurements: read from JSON lines, with the drawn data beside them."""
# pyright: basic

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from statetrack.cli import main
from statetrack.errors import InvalidFile
from statetrack.figures.measured import OF_MEASUREMENTS, draw_audit, read_measurements


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
