"""What trained layers do with their state: gates, β and spectra, over training and at its end.

Main definitions: `layers_of`, `glance`, `describe`.

References: CKDA Sec. 3 (spectra); `statetrack.kernels.audit` for the facts of a head; docs/lab.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from statetrack.kernels.audit import spectrum, statistics
from statetrack.kernels.baselines import BaselineConfig
from statetrack.kernels.checkpoints import Transitions
from statetrack.kernels.language_model import LanguageModel

from .tasks import Learnable

BINS = 40
# Eigenvalues are taken of so many tokens: at a glance, and at the end.
_FEW, _MANY = 8, 128
_WORDS = 4
_LENGTH = 64


def layers_of(model: LanguageModel, task: Learnable, *, seed: int = 0) -> tuple[Transitions, ...]:
    """The transitions of every layer, first layer first; none for a baseline, or where some number is none (NaN).

    Row i of the first layer is what symbol i does (of a groove: what silence does), unless it has a convolution. The
    rows of later layers, and all of text, are the tokens of random words of the task. A diagonal layer is one head with
    a state of all its numbers.
    """
    config = model.config.layer
    if isinstance(config, BaselineConfig):
        return ()
    device = next(model.parameters()).device
    alone = task.probes(device) if config.conv == 0 else None
    words, _, _ = task.batch(torch.Generator(device).manual_seed(seed), _WORDS, max(_LENGTH, task.shortest))
    found: list[Transitions] = []
    with torch.no_grad():
        of_symbols = () if alone is None else model.transitions(alone)
        of_words = of_symbols if alone is not None and model.config.layers == 1 else model.transitions(words)
    for i in range(model.config.layers):
        symbols = i == 0 and alone is not None
        parts = (x.flatten(0, 1).detach().cpu().double() for x in (of_symbols if symbols else of_words)[i])
        keys, beta, alpha = (_one_head(x) for x in parts) if config.kind == "diagonal" else parts
        inputs = "symbols" if symbols else "tokens of random words"
        if not all(bool(x.isfinite().all()) for x in (keys, beta, alpha)):
            return ()
        found.append(Transitions(f"layers.{i}", config.kind, keys, beta, alpha, symbols, inputs))
    return tuple(found)


def glance(model: LanguageModel, task: Learnable) -> dict[str, Any]:
    """Facts of every head and histograms of gates and β, for a history over training."""
    layers = layers_of(model, task)
    return {"heads": [_facts(layer, _FEW) for layer in layers], "layers": [_histograms(layer) for layer in layers]}


def describe(model: LanguageModel, task: Learnable) -> dict[str, Any]:
    """Facts of every head, histograms, and the eigenvalues of the transitions of up to 128 tokens of every head.

    `spectra` has, for each layer, a list of heads; each is a list of [real, imaginary]. Diagonal layers have their
    gates as eigenvalues.
    """
    layers = layers_of(model, task)
    spectra: list[list[Any]] = []
    for layer in layers:
        if layer.kind == "diagonal":
            values = [layer.alpha[:_MANY].flatten()]
        else:
            values = [spectrum(layer, head, _MANY).flatten() for head in range(layer.k.shape[1])]
        spectra.append([torch.view_as_real(z.to(torch.complex128)).float().tolist() for z in values])
    found = {"heads": [_facts(layer, _MANY) for layer in layers], "layers": [_histograms(layer) for layer in layers]}
    return found | {"inputs": [layer.inputs for layer in layers], "spectra": spectra}


def _one_head(x: Tensor) -> Tensor:
    """[row, channel, 1, N] as [row, 1, 1, channel · N], [row, channel, 1] as [row, 1, 1]."""
    return x.flatten(1)[:, None, None] if x.ndim == 4 else x[:, :1]


def _facts(layer: Transitions, samples: int) -> list[dict[str, Any]]:
    """`HeadFacts` of every head as plain values; of a diagonal layer without its pairs, as it has none."""
    if layer.kind != "diagonal":
        return [vars(facts) for facts in statistics(layer, samples)]
    negative, size = float((layer.alpha < 0).double().mean()), float(layer.alpha.abs().mean())
    facts = {"layer": layer.name, "head": 0, "tokens": len(layer.alpha), "negative_gates": negative, "gate_mean": size}
    none = {"beta_above_1": 0.0, "beta_mean": 0.0, "complex_tokens": 0.0, "complex_pairs": 0.0}
    return [facts | none | {"circle": None, "nearest": None}]


def _histograms(layer: Transitions) -> dict[str, Any]:
    """Counts of α in 40 equal parts of [-1, 1] and of β in 40 of [0, 2]; None for numbers that the layer lacks."""
    alpha = None if layer.kind in ("deltanet", "deltaproduct") else layer.alpha
    beta = None if layer.kind == "diagonal" else layer.beta
    return {
        "alpha": None if alpha is None else torch.histc(alpha, BINS, -1, 1).long().tolist(),
        "beta": None if beta is None else torch.histc(beta, BINS, 0, 2).long().tolist(),
    }
