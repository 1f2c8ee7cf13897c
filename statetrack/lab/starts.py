"""Starts for word problems: gates whose sign depends on the token, and a first state that is not zero.

With gates near ±1 by bias alone a channel has one sign for all tokens, and to change it for some of them its gates
must pass through 0. And from the state 0 a layer has little room. The states of a group are then c - A_w c, where c is
their mean, and letter x adds (1 - A_x) c, which is a multiple of its key k_x. With A_x = (1 - β k kᵀ) D that says that
c - D c is a multiple of k_x: a letter whose gates move c has no choice of its key.

A gate that is near ±1 from the start keeps its sign even where it is the wrong one, and one such letter is enough to
lose every longer word. `undecided` gates are near 0: the first short words decide their signs.

Main definitions: `mixed`, `undecided`.

References: docs/lab.md for what was measured.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import torch
from torch import nn

from statetrack.kernels.language_model import LanguageModel
from statetrack.kernels.layers import DeltaLayer

# Pre-activations of signed gates then have a standard deviation of 1.7 over tokens, about biases of 1 to 2.3.
_WEIGHTS, _BIASES, _STATE = 3.0, 0.3, 0.5


def mixed(model: LanguageModel) -> None:
    """Let signs of gates differ from token to token, and draw the first states (where they are parameters)."""
    _drawn(model, _WEIGHTS, _BIASES)


def undecided(model: LanguageModel) -> None:
    """Signed gates with a standard deviation of 0.28 about 0, and drawn first states (where they are parameters)."""
    _drawn(model, 1.0, 0.0)


def _drawn(model: LanguageModel, weights: float, biases: float) -> None:
    with torch.no_grad():
        for layer in model.modules():
            if isinstance(layer, DeltaLayer):
                if layer.gates is not None and layer.gate_bias is not None and layer.config.rule == "signed":
                    layer.gates.weight.mul_(weights)
                    layer.gate_bias.mul_(biases)
                if layer.start is not None:
                    nn.init.normal_(layer.start, std=_STATE)
