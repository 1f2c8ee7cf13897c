"""Small language models at equal parameters: CKDA beside KDA, gated DeltaNet, gated DeltaProduct2 and attention.

    python benchmarks/language.py --seconds 180 --device h200                    # the King James Version
    python benchmarks/language.py --text FOLDER --seconds 3600 --device h200     # the text files below a folder

All models train side by side. Rows in results/language-DEVICE.json (bits per byte; fractions of negative gates, β above
1 and tokens with complex pairs by layer); curves over training in the folder results/language-DEVICE.
"""
# pyright: basic

from __future__ import annotations

from dataclasses import replace
from typing import Any

import report
import torch
from together import arguments, device_name, fields_of, trained

from statetrack.figures.gallery import draw
from statetrack.kernels.language_model import LanguageModel
from statetrack.lab.runs import Result, Run, model_config
from statetrack.lab.tasks import task_named

# Model, ranges, factors.
MODELS = (
    ("ckda", "both", 1),
    ("kda", "none", 1),
    ("gated_deltanet", "none", 1),
    ("gated_deltaproduct", "beta", 2),
    ("transformer", "none", 1),
)
FRACTIONS = ("negative_gates", "beta_above_1", "complex_tokens")


def runs(text: str, fields: dict[str, Any], only: list[str] | None) -> list[Run]:
    """The models, all with as many parameters as the first: the widths of their MLPs differ."""
    task = f"text:{text}"
    found: list[Run] = []
    for model, ranges, factors in MODELS:
        own = {"factors": factors, "steps": 100_000, "checkpoint_every": 100_000, "evaluate_every": 250}
        about = {"task": task, "model": model, "ranges": ranges} | task_named(task).recipe(model) | own
        found.append(Run.from_json(about | fields))
    size = parameters(found[0])
    found = [found[0], *(sized(run, size) for run in found[1:])]
    return [run for run in found if only is None or run.model in only]


def sized(run: Run, size: int) -> Run:
    """The run with the MLP whose model has nearest to `size` parameters."""

    def with_inner(inner: int) -> Run:
        return replace(run, mlp_ratio=(inner + 0.5) / run.width)

    least, more = parameters(with_inner(1)), parameters(with_inner(2))
    return with_inner(max(1, 1 + round((size - least) / (more - least))))


def parameters(run: Run) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in LanguageModel(model_config(run, task_named(run.task))).parameters())


def row(run: Run, result: Result) -> dict[str, Any]:
    """One row a model: bits per byte by length, and what the layers do at the end."""
    first = result.rows[0]
    found = {
        name: first[name] for name in ("task", "model", "alpha_range", "beta_range", "init", "seed", "train_length")
    }
    found |= {"factors": run.factors, "parameters": parameters(run), "steps": result.steps, "seconds": result.seconds}
    found["bytes"] = result.steps * run.batch * run.train_lengths[1]
    found |= {f"bits_per_byte at {judged['length']}": judged["bits_per_byte"] for judged in result.rows}
    for name in FRACTIONS:
        layers = [[head[name] for head in layer] for layer in result.mechanism["heads"]]
        found[name] = [round(sum(heads) / len(heads), 3) for heads in layers] or None
    return found | {"status": result.status}


def main() -> None:
    parser = arguments((__doc__ or "").split("\n")[0], 180.0)
    parser.add_argument("--only", nargs="+", help="names of the models")
    parser.add_argument("--text", default="kjv", help="kjv, python or a folder")
    options = parser.parse_args()
    found = trained(runs(options.text, fields_of(options), options.only), options)
    rows = [row(run, result) for run, _, result in found]
    report.save("language", options.device, rows, device_name(options.place))
    if not all(result.history for _, _, result in found):
        print("no curves: a run ended before its first evaluation")
        return
    folder = report.RESULTS / f"language-{options.device}"
    for name in ("learn-text", "learn-text-layers"):
        draw(name, folder, ["svg"], measured=options.output)


if __name__ == "__main__":
    main()
