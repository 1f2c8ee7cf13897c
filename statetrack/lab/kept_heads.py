"""Training with few heads: each sequence of a batch is answered from some heads, drawn anew in every step.

A head that follows most letters of a group lowers the loss, and what other heads could learn is then hardly asked for;
with most heads away in every sequence each of them has to learn the task, and they do so from different first weights.

When all heads answer, those that have the task wrong are noise beside those that have it right, and a vote of them
holds no longer than the trained length. `cost` in the loss leaves few of them.

Main definitions: `KeptHeads`.

References: docs/lab.md for what was measured.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from statetrack.kernels.layers import DeltaLayer


class KeptHeads:
    """Sets the outputs of all but `count` heads of every layer to 0, sequence by sequence, between `draw` and `end`."""

    def __init__(self, model: nn.Module, count: int) -> None:
        self.count = count
        self.layers = [layer for layer in model.modules() if isinstance(layer, DeltaLayer)]
        self.kept: list[Tensor] | None = None
        for number, layer in enumerate(self.layers):
            layer.output.register_forward_pre_hook(partial(self._masked, number))

    def draw(self, generator: torch.Generator, batch: int, mine: slice) -> None:
        """Choose heads for the sequences of a batch, of which this process has the rows `mine`."""
        self.kept = []
        for layer in self.layers:
            chances = torch.rand(batch, layer.config.groups, generator=generator, device=generator.device)
            self.kept.append((chances.argsort(1) < self.count)[mine])

    def end(self) -> None:
        """All heads count again."""
        self.kept = None

    def cost(self) -> Tensor:
        """The sum over heads of the norms of their output weights, which is least where few heads have any."""
        weights = [layer.output.weight.unflatten(1, (layer.config.groups, -1)) for layer in self.layers]
        return torch.stack([each.norm(dim=(0, 2)).sum() for each in weights]).sum()

    def _masked(self, number: int, _: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
        """What the output projection reads [B, T, heads · V]."""
        if self.kept is None:
            return None
        (o,) = inputs
        kept = self.kept[number].to(o.dtype)
        return ((o.unflatten(-1, (kept.shape[1], -1)) * kept[:, None, :, None]).flatten(-2),)
