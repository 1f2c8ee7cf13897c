"""Spectrograms of runs on a groove, and curves of runs on text, from folders that hold such runs."""
# pyright: basic

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statetrack.cli import main
from statetrack.errors import InvalidFile
from statetrack.figures.learned import read_runs
from statetrack.figures.sounds import draw_sounds, read_samples
from statetrack.figures.texts import draw_text, draw_text_layers

HEADS = [[{"negative_gates": 0.25, "beta_above_1": 0.5, "complex_tokens": 0.0}] * 2, [{"negative_gates": 1.0}] * 2]


def written(folder: Path, model: str, rows: list[dict[str, Any]], history: list[dict[str, Any]]) -> Path:
    folder.mkdir(parents=True)
    about = {"model": model, "alpha_range": [-1, 1], "beta_range": None if model == "gru" else [0, 2]}
    run = {"task": "any", "model": model, "ranges": "both", "seed": 0}
    data = {"run": run, "rows": [about | row for row in rows], "history": history, "mechanism": {}}
    (folder / "results.json").write_text(json.dumps(data))
    return folder


def tone(path: Path, pitch: float, channels: int = 1) -> None:
    samples = (16000 * np.sin(2 * np.pi * pitch * np.arange(32000) / 8000)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(samples.tobytes())


def test_spectrograms_of_target_and_runs_are_drawn(tmp_path: Path) -> None:
    for model in ("ckda", "gru"):
        folder = written(tmp_path / "runs" / model, model, [{"length": 64, "snr_db": 12.0}], [])
        tone(folder / "target.wav", 440)
        tone(folder / "continuation.wav", 880)
    command = ["figure", "learn-sounds", "--from", str(tmp_path / "runs"), "-o", str(tmp_path), "--format", "png,svg"]
    assert main(command) == 0
    data = json.loads((tmp_path / "learn-sounds.json").read_text())
    assert data["rate"] == 8000
    assert list(data["rows"]) == ["ckda, α in [-1, 1], β in [0, 2]", "gru, α in [-1, 1]"]
    assert "12.0 dB at 64" in (tmp_path / "learn-sounds.svg").read_text()


def test_runs_without_sound_and_files_of_another_kind_are_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", "ckda", [{"length": 64, "snr_db": 12.0}], [])
    with pytest.raises(InvalidFile, match=r"continuation\.wav"):
        draw_sounds(tmp_path / "a.png", read_runs(folder))
    tone(tmp_path / "stereo.wav", 440, channels=2)
    for path in (tmp_path / "stereo.wav", tmp_path / "none.wav", folder / "results.json"):
        with pytest.raises(InvalidFile):
            read_samples(path)


def test_curves_and_fractions_of_text_are_drawn_with_their_data(tmp_path: Path) -> None:
    history = [{"step": step, "bits_per_byte": 4 - step / 10, "heads": HEADS} for step in (1, 2, 3)]
    folder = written(tmp_path / "runs" / "a", "ckda", [{"length": 64, "bits_per_byte": 3.7}], history)
    learned = read_runs(folder.parent)
    draw_text(tmp_path / "text.svg", learned)
    assert json.loads((tmp_path / "text.json").read_text()) == {"ckda, β in [0, 2]": [[1, 3.9], [2, 3.8], [3, 3.7]]}
    draw_text_layers(tmp_path / "layers.png", learned)
    (facts,) = json.loads((tmp_path / "layers.json").read_text()).values()
    assert facts["negative_gates"] == [[0.25, 1.0]] * 3
    assert facts["complex_tokens"] == [[0.0, 0.0]] * 3


def test_runs_on_other_tasks_are_no_text(tmp_path: Path) -> None:
    folder = written(tmp_path / "run", "ckda", [{"length": 64, "snr_db": 12.0}], [{"step": 1, "snr_db": 1.0}])
    for draw in (draw_text, draw_text_layers):
        with pytest.raises(InvalidFile, match="no run on text"):
            draw(tmp_path / "a.svg", read_runs(folder))
