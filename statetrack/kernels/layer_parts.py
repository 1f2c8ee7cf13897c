"""What the layers share: their configuration, the short causal convolution and where gates and β start.

Main definitions: `LayerConfig`, `ShortConvolution`, `sequence_starts`, `gate_start`, `decays`, `beta_start`.

References: CKDA, appendix (signed gates, spread initialisation); Mamba and KDA (rates between 1e-3 and 1e-1 a token).
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# ruff: noqa: F722

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from statetrack.errors import InvalidInput

if TYPE_CHECKING:
    from jaxtyping import Float, Int

KINDS = ("ckda", "kda", "gated_deltanet", "deltanet", "deltaproduct", "gated_deltaproduct", "diagonal")
_PRODUCTS = ("ckda", "deltaproduct", "gated_deltaproduct")
_CHOICES = {
    "kind": KINDS,
    "gate_init": ("spread", "standard"),
    "beta_init": ("spread", "standard"),
    "gate_rule": ("softplus", "bounded"),
    "precision": ("fast", "tracking", "exact"),
}
# 1 - |α| of the channels of a head at the start, evenly spaced in the logarithm.
_LEAST, _MOST = 1e-3, 1e-1

EPSILON = 1e-6

# The state and the tail of the convolution, by name.
Cache = dict[str, Tensor]


@dataclass(frozen=True)
class LayerConfig:
    """One layer, in plain JSON values (`dataclasses.asdict` round-trips).

    Attributes:
        kind: "ckda", "kda", "gated_deltanet", "deltanet", "deltaproduct", "gated_deltaproduct" or "diagonal".
        width: model width. `heads` key heads of `head_dim` (width // heads), `value_heads` (heads; a multiple of them)
            of `value_dim` (head_dim). diagonal: value_heads · value_dim channels (2 · width in all) of head_dim (16)
            numbers each.
        factors: of a token, for ckda, deltaproduct and gated_deltaproduct.
        signed_gates: α in [-1, 1], else [0, 1]; of ckda and diagonal. gate_rule: the rule of α in [0, 1].
        gate_floor: log of the least |α| of a signed gate, and the bound of "bounded"; negative.
        beta_max: β in [0, beta_max], 1 or 2. gate_init, beta_init: docs/layers.md.
        silu: after the projections of q, k, v (and the convolution). conv: its width, 0 for none.
        learned_start: the state before the first token is a parameter, else 0.
        precision: of the kernels on CUDA (docs/kernels.md).

    Raises:
        InvalidInput: whatever does not fit, all of it.
    """

    kind: str
    width: int
    heads: int = 4
    head_dim: int | None = None
    value_heads: int | None = None
    value_dim: int | None = None
    factors: int = 1
    signed_gates: bool = True
    beta_max: float = 2.0
    gate_init: str = "spread"
    beta_init: str = "standard"
    silu: bool = False
    conv: int = 0
    output_gate: bool = True
    output_norm: bool = True
    precision: str = "fast"
    gate_rule: str = "softplus"
    gate_floor: float = -5.0
    learned_start: bool = False

    def __post_init__(self) -> None:
        faults = [
            f"{name} {getattr(self, name)!r}, expected {' or '.join(map(repr, allowed))}"
            for name, allowed in _CHOICES.items()
            if getattr(self, name) not in allowed
        ]
        wholes = {"width": 1, "heads": 1, "factors": 1, "conv": 0}
        wholes |= {name: 1 for name in ("head_dim", "value_heads", "value_dim") if getattr(self, name) is not None}
        wrong = {name for name, least in wholes.items() if not is_whole(getattr(self, name), least)}
        faults += [f"{n} {getattr(self, n)!r}, expected an integer from {wholes[n]} on" for n in sorted(wrong)]
        faults += [
            f"{name} {getattr(self, name)!r}, expected true or false"
            for name in ("signed_gates", "silu", "output_gate", "output_norm", "learned_start")
            if not isinstance(getattr(self, name), bool)
        ]
        if self.beta_max not in (1, 2):
            faults.append(f"beta_max {self.beta_max!r}, expected 1 or 2")
        if not is_number(self.gate_floor) or not -100 <= self.gate_floor < 0:
            faults.append(f"gate_floor {self.gate_floor!r}, expected a number from -100 to below 0")
        if not wrong:
            faults += self._size_faults()
        if faults:
            raise InvalidInput(f"layer: {'; '.join(faults)}")

    @property
    def keys(self) -> int:
        """K, the rows of a head's state."""
        default = 16 if self.kind == "diagonal" else self.width // self.heads
        return default if self.head_dim is None else self.head_dim

    @property
    def groups(self) -> int:
        """HV, the value heads."""
        return self.heads if self.value_heads is None else self.value_heads

    @property
    def columns(self) -> int:
        """V, the columns of a head's state."""
        default = 2 * self.width // self.groups if self.kind == "diagonal" else self.keys
        return default if self.value_dim is None else self.value_dim

    @property
    def rule(self) -> str:
        """The rule of `ckda`'s gate_logit, or "none"."""
        if self.kind in ("deltanet", "deltaproduct"):
            return "none"
        return "signed" if self.kind == "ckda" and self.signed_gates else self.gate_rule

    def _size_faults(self) -> list[str]:
        faults: list[str] = []
        if self.factors > 1 and self.kind not in _PRODUCTS:
            faults.append(f"{self.factors} factors in {self.kind}, expected 1 (several: {', '.join(_PRODUCTS)})")
        if self.kind != "diagonal" and self.head_dim is None and self.width % self.heads:
            faults.append(f"width {self.width} is not a multiple of heads {self.heads}; give head_dim")
        if self.groups % self.heads:
            faults.append(f"value_heads {self.groups}, expected a multiple of heads {self.heads}")
        if self.kind == "diagonal" and self.value_dim is None and 2 * self.width % self.groups:
            faults.append(
                f"2 · width = {2 * self.width} is not a multiple of value_heads {self.groups}; give value_dim"
            )
        if self.kind == "diagonal" and self.gate_rule != "softplus":
            faults.append(f"gate_rule {self.gate_rule!r} in diagonal, expected 'softplus'")
        return faults


class ShortConvolution(nn.Module):
    """y_t = Σ_j w_j x_{t - width + 1 + j} in every channel, over the tokens of a sequence and what its tail keeps."""

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width, channels).uniform_(-(width**-0.5), width**-0.5))

    def forward(
        self,
        x: Float[Tensor, "batch time channel"],
        tail: Float[Tensor, "sequence kept channel"] | None,
        cu_seqlens: Int[Tensor, " bound"] | None,
    ) -> tuple[Tensor, Tensor]:
        """The outputs, and the last width - 1 inputs of every sequence (zeros before its first)."""
        kept, time = len(self.weight) - 1, x.shape[1]
        sequences = len(x) if cu_seqlens is None else len(cu_seqlens) - 1
        if tail is None:
            tail = x.new_zeros(sequences, kept, x.shape[2])
        elif tail.shape != (sequences, kept, x.shape[2]):
            got, expected = tuple(tail.shape), (sequences, kept, x.shape[2])
            raise InvalidInput(f"cache: tail has shape {got}, expected {expected}")
        tail = tail.to(x.dtype)
        if cu_seqlens is None:
            rows = torch.cat([tail, x], 1)
            taps = [rows[:, j : j + time] for j in range(kept + 1)]
            ended = rows[:, time:]
        else:
            rows = torch.cat([tail.flatten(0, 1), x[0]])
            starts, ends, mine = sequence_starts(cu_seqlens, time, x.device)
            at = torch.arange(time, device=x.device)
            taps = [rows[_rows(at - kept + j, starts[mine], mine, kept, sequences)][None] for j in range(kept + 1)]
            last = ends[:, None] - kept + torch.arange(kept, device=x.device)
            ended = rows[
                _rows(last, starts[:, None], torch.arange(sequences, device=x.device)[:, None], kept, sequences)
            ]
        weight = self.weight.to(x.dtype)
        y = taps[0] * weight[0]
        for tap, w in zip(taps[1:], weight[1:], strict=True):
            y = torch.addcmul(y, tap, w)
        return y, ended


def is_whole(x: object, least: int) -> bool:
    """Whether x is an integer from `least` on."""
    return isinstance(x, int) and not isinstance(x, bool) and x >= least


def is_number(x: object) -> bool:
    """Whether x is an integer or a float."""
    return isinstance(x, int | float) and not isinstance(x, bool)


def check_input(x: Tensor, kind: str, width: int, cu_seqlens: Tensor | None) -> None:
    """Refuse an input that a layer cannot read.

    Raises:
        InvalidInput: what does not fit.
    """
    if x.ndim != 3 or x.shape[2] != width:
        raise InvalidInput(f"{kind}: x has shape {tuple(x.shape)}, expected [B, T, {width}]")
    if cu_seqlens is not None and len(x) != 1:
        raise InvalidInput(f"{kind}: cu_seqlens with a batch of {len(x)}, expected sequences in a batch of 1")


def check_cache(cache: Cache | None, config: LayerConfig) -> None:
    """Refuse a cache of another kind of layer.

    Raises:
        InvalidInput: other names.
    """
    wanted = {"state", "tail"} if config.conv else {"state"}
    if cache is not None and set(cache) != wanted:
        raise InvalidInput(f"{config.kind}: cache has {sorted(cache)}, expected {sorted(wanted)}")


def check_state(state: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse a cached state of another shape.

    Raises:
        InvalidInput: it has one.
    """
    if tuple(state.shape) != shape:
        raise InvalidInput(f"cache: state has shape {tuple(state.shape)}, expected {shape}")


def sequence_starts(
    cu_seqlens: Int[Tensor, " bound"], time: int, device: torch.device
) -> tuple[Int[Tensor, " sequence"], Int[Tensor, " sequence"], Int[Tensor, " time"]]:
    """First token and end of every sequence, and the sequence of every token.

    Raises:
        InvalidInput: bounds that do not rise from 0 to `time`.
    """
    bounds = cu_seqlens.cpu().long()
    ends: list[int] = bounds.tolist()
    if bounds.ndim != 1 or len(ends) < 2 or ends[0] != 0 or ends[-1] != time or ends != sorted(ends):
        raise InvalidInput(f"cu_seqlens {ends[:8]}, expected integers that rise from 0 to T = {time}")
    mine = torch.repeat_interleave(torch.arange(len(ends) - 1), bounds.diff())
    return bounds[:-1].to(device), bounds[1:].to(device), mine.to(device)


def _rows(at: Tensor, starts: Tensor, mine: Tensor, kept: int, sequences: int) -> Tensor:
    """Rows of [tails, x] of the token `at` of a sequence, which may lie before its first one."""
    return torch.where(at >= starts, sequences * kept + at, mine * kept + kept + at - starts)


def gate_start(config: LayerConfig, channels: int) -> Float[Tensor, "value_head channel"]:
    """The biases of the gates' pre-activations: 1 - |α| from 1e-3 to 1e-1, the same for every rule.

    With signed gates and "spread", every second channel is negative.
    """
    size = 1 - decays(channels)
    if config.rule == "signed":
        y = torch.log((1 + size) / (1 - size))
        signs = torch.ones(channels)
        if config.gate_init == "spread":
            signs[1::2] = -1
        y = y * signs
    elif config.rule == "softplus":
        y = torch.log(torch.expm1(-size.log()))
    else:
        y = torch.logit(size.log() / config.gate_floor)
    return y.float().expand(config.groups, -1).clone()


def decays(count: int) -> Float[Tensor, " channel"]:
    """`count` numbers 1 - |α| from 1e-3 to 1e-1, evenly spaced in the logarithm; float64."""
    return torch.exp(math.log(_LEAST) + _middles(count) * math.log(_MOST / _LEAST))


def beta_start(config: LayerConfig) -> Float[Tensor, "factor value_head"]:
    """The biases of β's pre-activations: 0, or spread over -2..2 (β from 0.12 to 0.88 of beta_max)."""
    count = config.groups * config.factors
    flat = 4 * _middles(count) - 2 if config.beta_init == "spread" else torch.zeros(count)
    return flat.float().view(config.factors, config.groups)


def _middles(count: int) -> Tensor:
    """The middles of `count` equal parts of [0, 1]."""
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count
