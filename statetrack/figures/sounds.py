"""Spectrograms of a groove and of what trained models made of it.

The data are folders of runs of `statetrack learn groove`: results.json beside target.wav and continuation.wav.

Main definitions: `OF_SOUNDS`, `draw_sounds`, `read_samples`.

References: docs/audio.md.
"""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidFile

from .learned import Learned
from .style import panels, save

Floats = NDArray[np.float64]
_ADVICE = "give a folder with runs of 'statetrack learn groove'"
# Seconds that are drawn of the beginning and of the end.
_SHOWN = 2.5
_WINDOW, _HOP = 256, 64
# Decibels under a full-scale tone, from black to white.
_QUIET, _LOUD = -100.0, -35.0


def draw_sounds(path: Path, learned: Learned) -> None:
    """Spectrograms of the target and of every run's continuation: their first seconds, with the cue, and their last."""
    sounds = {_name(rows): (folder, rows) for folder, rows in zip(learned.folders, learned.judged, strict=True)}
    sounds = {name: found for name, found in sounds.items() if (found[0] / "continuation.wav").is_file()}
    if not sounds:
        raise InvalidFile(str(path), "no run with a continuation.wav", _ADVICE)
    first = next(iter(sounds.values()))[0]
    lines = {"target": read_samples(first / "target.wav")[0]}
    rate = read_samples(first / "target.wav")[1]
    lines |= {name: read_samples(folder / "continuation.wav")[0] for name, (folder, _) in sounds.items()}
    figure, plots = panels(len(lines), 2, 7.4, 0.95 * len(lines) + 0.5, sharey=True, sharex="col")
    for (name, samples), (left, right) in zip(lines.items(), plots, strict=True):
        for plot, start in ((left, 0.0), (right, max(0.0, len(samples) / rate - _SHOWN))):
            _spectrogram(plot, samples, rate, start)
        rows = sounds[name][1] if name in sounds else ()
        said = ", ".join(f"{row['snr_db']:.1f} dB at {row['length']}" for row in rows)
        left.set_title(f"{name}{': ' if said else ''}{said}", loc="left", fontsize=8)
        left.set_ylabel("kHz")
    plots[-1][0].set_xlabel("s (the first, with the cue of half a bar)")
    plots[-1][1].set_xlabel("s (the last)")
    save(figure, path, {"rate": rate, "rows": {name: rows for name, (_, rows) in sounds.items()}})


def read_samples(path: Path) -> tuple[Floats, int]:
    """Samples in [-1, 1] of a 16-bit mono file, and its samples a second; InvalidFile for others."""
    try:
        with path.open("rb") as file, wave.open(file, "rb") as sound:
            if (sound.getnchannels(), sound.getsampwidth()) != (1, 2):
                raise InvalidFile(str(path), "is not 16-bit mono", _ADVICE)
            samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
            return samples / 32767, sound.getframerate()
    except (OSError, EOFError, wave.Error) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", _ADVICE) from None


def _spectrogram(plot: Any, samples: Floats, rate: int, start: float) -> None:
    at = int(start * rate)
    shown = samples[at : at + int(_SHOWN * rate)]
    style: dict[str, Any] = {"NFFT": _WINDOW, "noverlap": _WINDOW - _HOP, "cmap": "magma"}
    # A spectrum of a silent window has no logarithm.
    noise = np.random.default_rng(0).normal(scale=1e-6, size=len(shown))
    plot.specgram(shown + noise, Fs=rate, vmin=_QUIET, vmax=_LOUD, xextent=(start, start + len(shown) / rate), **style)
    plot.set_yticks([0, rate // 4, rate // 2], ["0", f"{rate / 4000:g}", f"{rate / 2000:g}"])


def _name(rows: Any) -> str:
    """Model and ranges of a run in words."""
    row = rows[0]
    ranges = [f"{letter} in {row[name]}" for letter, name in (("α", "alpha_range"), ("β", "beta_range")) if row[name]]
    return ", ".join([str(row["model"]), *ranges])


OF_SOUNDS: dict[str, tuple[str, Callable[[Path, Learned], None]]] = {
    "learn-sounds": ("spectrograms of a groove and of trained models' continuations", draw_sounds)
}
