"""How models of text learn: held-out bits per byte, and what their layers do, over training.

The data are folders of runs of `statetrack learn text:SOURCE`.

Main definitions: `OF_TEXTS`, `draw_text`, `draw_text_layers`.

References: CKDA, language models (negative gates, β above 1 and complex pairs come early, in the first layers);
docs/language.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from statetrack.errors import InvalidFile

from .learned import Learned
from .style import COLOURS, DASHES, LEGEND, MARKERS, canvas, panels, save

_ADVICE = "give a folder with runs of 'statetrack learn text'"
_FRACTIONS = {
    "negative_gates": "gates below 0",
    "beta_above_1": "β above 1",
    "complex_tokens": "tokens with complex pairs",
}
_MOST = 5

History = Sequence[Mapping[str, Any]]


def draw_text(path: Path, learned: Learned) -> None:
    """Held-out bits per byte over the steps of training, a line a run."""
    found = {
        name: [(int(note["step"]), float(note["bits_per_byte"])) for note in history]
        for name, history in _of_text(path, learned).items()
    }
    figure, plot = canvas(5.6, 3.2)
    for i, (name, points) in enumerate(found.items()):
        style: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "linestyle": DASHES[i % len(DASHES)]}
        steps, values = zip(*points, strict=True)
        plot.plot(steps, values, marker=MARKERS[i % len(MARKERS)], markersize=3, label=name, **style)
    late = [value for points in found.values() for _, value in points[len(points) // 8 :]]
    plot.set_ylim(min(late) - 0.05, max(late) + 0.05)
    plot.set_xlabel("step")
    plot.set_ylabel("held-out bits per byte")
    plot.legend(**LEGEND)
    save(figure, path, found)


def draw_text_layers(path: Path, learned: Learned) -> None:
    """Fractions of gates below 0, of β above 1 and of tokens that turn, a line a layer and a column a run."""
    found = {
        name: {what: [[_mean(layer, what) for layer in note["heads"]] for note in history] for what in _FRACTIONS}
        | {"step": [int(note["step"]) for note in history]}
        for name, history in _of_text(path, learned).items()
        if history[0].get("heads")
    }
    if not found:
        raise InvalidFile(str(path), "no run whose layers have gates or β", _ADVICE)
    shown = dict(list(found.items())[:_MOST])
    figure, plots = panels(len(_FRACTIONS), len(shown), 1.9 * len(shown) + 0.8, 5.2, sharex=True, sharey=True)
    for column, (name, facts) in enumerate(shown.items()):
        for row, (what, words) in enumerate(_FRACTIONS.items()):
            plot = plots[row][column]
            for layer, values in enumerate(zip(*facts[what], strict=True)):
                style: dict[str, Any] = {
                    "color": COLOURS[layer % len(COLOURS)],
                    "linestyle": DASHES[layer % len(DASHES)],
                }
                plot.plot(facts["step"], values, label=f"layer {layer}", **style)
            plot.set_ylim(-0.04, 1.04)
            if column == 0:
                plot.set_ylabel(words)
        plots[0][column].set_title(name, fontsize=8)
        plots[-1][column].set_xlabel("step")
    plots[0][0].legend(**LEGEND)
    save(figure, path, found)


def _of_text(path: Path, learned: Learned) -> dict[str, History]:
    found: dict[str, History] = {}
    for rows, history in zip(learned.judged, learned.histories, strict=True):
        if history and "bits_per_byte" in history[0]:
            beta = f", β in {rows[0]['beta_range']}" if rows[0]["beta_range"] else ""
            found[f"{rows[0]['model']}{beta}"] = history
    if not found:
        raise InvalidFile(str(path), "no run on text", _ADVICE)
    return found


def _mean(heads: Sequence[Mapping[str, Any]], what: str) -> float:
    """The mean over the heads of a layer."""
    return sum(float(head.get(what, 0.0)) for head in heads) / len(heads)


OF_TEXTS: dict[str, tuple[str, Callable[[Path, Learned], None]]] = {
    "learn-text": ("held-out bits per byte over training", draw_text),
    "learn-text-layers": (
        "gates below 0, β above 1 and complex pairs by layer over training on text",
        draw_text_layers,
    ),
}
