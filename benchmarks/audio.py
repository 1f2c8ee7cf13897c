"""Going on with a groove: the four ranges of CKDA, a Transformer and a GRU, in dB beyond the trained length.

    python benchmarks/audio.py --seconds 150 --device h200

All models train side by side. Rows in results/audio-DEVICE.json; the sounds and their spectrograms in the folder
results/audio-DEVICE. Three rows are no models: the mean groove, the best that eigenvalue 1 holds, and 1 with -1.
"""
# pyright: basic

from __future__ import annotations

import json
import shutil
from typing import Any

import report
import torch
from together import arguments, device_name, fields_of, trained

from statetrack.figures.gallery import draw
from statetrack.lab.audio import Groove, snr
from statetrack.lab.runs import RANGES, Run

MODELS = (*(("ckda", ranges, 128) for ranges in reversed(RANGES)), ("transformer", "none", 128), ("gru", "none", 144))


def runs(fields: dict[str, Any], only: list[str] | None) -> list[Run]:
    found: list[Run] = []
    for model, ranges, width in MODELS:
        own = {"width": width, "steps": 100_000, "evaluate_every": 500, "checkpoint_every": 100_000}
        if only is None or model in only or f"{model}-{ranges}" in only:
            found.append(
                Run.from_json({"task": "groove", "model": model, "ranges": ranges} | recipe(model) | own | fields)
            )
    return found


def recipe(model: str) -> dict[str, Any]:
    return {"init": "standard"} | Groove().recipe(model)


def limits(count: int = 2048) -> list[dict[str, Any]]:
    """SNR of answers that need no training: the mean groove; of each groove what stays; what stays or alternates."""
    groove = Groove()
    half = groove.grooves(torch.Generator().manual_seed(1), count)
    signs = (-1.0) ** torch.arange(groove.period)[:, None]
    still = half.mean(1, keepdim=True).expand_as(half)
    held = still + (half * signs).mean(1, keepdim=True) * signs
    whole = torch.ones(groove.period, dtype=torch.bool)
    answers = {"mean groove": half.mean(0).expand_as(half), "best of eigenvalue 1": still}
    answers["best of eigenvalues 1 and -1"] = held
    return [{"task": "groove", "model": name, "snr_db": snr(answer, half, whole)} for name, answer in answers.items()]


def main() -> None:
    parser = arguments((__doc__ or "").split("\n")[0], 150.0)
    parser.add_argument("--only", nargs="+", help="names of the models")
    options = parser.parse_args()
    found = trained(runs(fields_of(options), options.only), options)
    rows: list[dict[str, Any]] = []
    folder = report.RESULTS / f"audio-{options.device}"
    folder.mkdir(parents=True, exist_ok=True)
    for run, place, result in found:
        size = json.loads((place / "results.json").read_text(encoding="utf-8"))["parameters"]
        rows += [row | {"parameters": size, "status": result.status} for row in result.rows]
        shutil.copy(place / "target.wav", folder / "target.wav")
        shutil.copy(place / "continuation.wav", folder / f"{run.model}-{run.ranges}.wav")
    report.save("audio", options.device, rows + limits(), device_name(options.place))
    if found:
        draw("learn-sounds", folder, ["png"], measured=options.output)


if __name__ == "__main__":
    main()
