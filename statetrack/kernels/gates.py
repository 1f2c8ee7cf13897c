"""Gates of the layer recurrence: the numbers α in [-1, 1] that multiply the state's rows before a delta step.

A gate is given as α itself or as a pre-activation x with a rule. A layer computes in float32, or in float64 where the
gate's own numbers are float64; α is never rounded to a shorter format (0.998 is 1.0 in bfloat16).

Main definitions: `Gate`.

References: CKDA, the signed gate α = 2σ(x) - 1; Kimi delta attention for the rules `softplus` and `bounded`.
"""
# ruff: noqa: F722

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from jaxtyping import Float

Kind = Literal["none", "alpha", "signed", "softplus", "bounded"]
Precision = Literal["fast", "tracking", "exact"]
# The number of a rule in the Triton kernels.
KINDS: tuple[Kind, ...] = get_args(Kind)
_LOG2E = math.log2(math.e)


@dataclass(frozen=True, eq=False)
class Gate:
    """A gate and its rule. With y = values + dt_bias (no bias: y = values):

    - `none`: α = 1, no values.
    - `alpha`: α = values, in [-1, 1]; 0 is an exact reset.
    - `signed`: r = 2σ(y) - 1, α = sign(r) max(|r|, e^lower_bound), sign(0) = +1; the gradient is that of r.
    - `softplus`: α = exp(-e^a_log softplus(y)); no `a_log` is a_log = 0.
    - `bounded`: α = exp(lower_bound σ(e^a_log y)); no `a_log` is a_log = 0.

    Shapes: `values` [B, T, HV, K] (before a token's first factor) or [B, T·n, HV, K] (before every factor), where a
    last dimension of 1 is one gate for all K rows; `a_log` [HV]; `dt_bias` [HV, K], or [HV, 1] for one gate.
    `lower_bound` is negative. `statetrack.kernels.api` checks all of this.
    """

    kind: Kind
    values: Tensor | None = None
    a_log: Tensor | None = None
    dt_bias: Tensor | None = None
    lower_bound: float = -5.0

    @property
    def rates(self) -> Tensor | None:
        """The logarithms of the rates [HV], zero if they were left out; None for a rule that has none."""
        if self.a_log is not None or self.values is None or self.kind not in ("softplus", "bounded"):
            return self.a_log
        return torch.zeros(self.values.shape[2], device=self.values.device)

    def alpha(self) -> Float[Tensor, "batch time value_head dim"]:
        """α in the shape of `values`, float64 where these are, else float32; [1, 1, 1, 1] of ones for `none`."""
        x = self._shifted()
        if self.kind in ("none", "alpha"):
            return x
        if self.kind == "signed":
            r = torch.tanh(x / 2)
            size = r.abs().clamp(min=math.exp(self.lower_bound))
            floored = torch.where(x < 0, -size, size)
            return r + (floored - r).detach()
        return self._log(x).exp()

    def log2_and_sign(
        self,
    ) -> tuple[Float[Tensor, "batch time value_head dim"], Float[Tensor, "batch time value_head dim"]]:
        """log2|α| (at most 0; -inf where α is exactly 0) and the sign of α (+1 at 0), in the shape of `alpha()`.

        log2|α| is right to a few units in its last place wherever α lies, also near ±1, where |α| itself has lost
        them. Its gradient is dα/α, and 0 where α = 0.
        """
        x = self._shifted()
        if self.kind in ("softplus", "bounded"):
            log2 = self._log(x) * _LOG2E
            return log2, torch.ones_like(log2)
        alpha = self.alpha()
        still = alpha.detach()
        sign = torch.where(still < 0, -torch.ones_like(still), torch.ones_like(still))
        if self.kind == "signed":
            size = x.detach().abs()
            # 1 - |r| keeps its digits near |r| = 1, |r| itself near 0.
            near = torch.log1p(-2 / (size.exp() + 1))
            value = torch.where(size > 1, near, torch.tanh(size / 2).log()).clamp(min=self.lower_bound) * _LOG2E
        else:
            value = still.abs().log2()
        slope = torch.where(still == 0, torch.inf, still * math.log(2))
        return value + (alpha - still) / slope, sign

    def _shifted(self) -> Tensor:
        """The pre-activation in the type of computation, with its bias."""
        if self.values is None:
            return torch.ones(1, 1, 1, 1)
        x = self.values if self.values.dtype == torch.float64 else self.values.float()
        return x if self.dt_bias is None else x + self.dt_bias.to(x.dtype)

    def _log(self, x: Tensor) -> Tensor:
        """log α of the positive rules."""
        rate = None if self.a_log is None else self.a_log.to(x.dtype).exp()[:, None]  # [HV, 1]
        if self.kind == "softplus":
            depth = functional.softplus(x)
            return -depth if rate is None else -rate * depth
        return self.lower_bound * torch.sigmoid(x if rate is None else rate * x)
