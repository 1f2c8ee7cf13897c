"""The layers of the papers as torch modules: projections around the layer operation, or around a diagonal recurrence.

    y, cache = module(x)              x [B, T, width]
    y, cache = module(more, cache)    goes on from there

On CUDA the Triton kernels run, elsewhere (and in float64) the chunked torch path (docs/kernels.md); with a cache and
without gradients the recurrence itself, token by token, whatever the length.

Main definitions: `LayerConfig`, `mixer`, `CKDA`, `KDA`, `GatedDeltaNet`, `DeltaNet`, `DeltaProduct`, `Diagonal`.

References: CKDA; Kimi delta attention; gated DeltaNet; DeltaProduct; Mamba and its range [-1, 1] (Grazzi et al.).
docs/layers.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from .api import Rule, ckda, ckda_decode
from .diagonal import Diagonal
from .gates import Gate, Kind, Precision
from .layer_parts import EPSILON, Cache, LayerConfig, ShortConvolution, beta_start, check_cache, check_input, gate_start

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def mixer(config: LayerConfig) -> DeltaLayer | Diagonal:
    """The module of a configuration."""
    options = asdict(config)
    kind = options.pop("kind")
    if kind.endswith("deltaproduct"):
        return DeltaProduct(gated=kind.startswith("gated"), **options)
    return _KINDS[kind](**options)


class DeltaLayer(nn.Module):
    """y = W_o (gate ⊙ norm(o)), o = `ckda` of the projections of x; the kinds differ in their gates.

    Parameters beside the projections: `beta_bias` [n, HV], `gate_bias` [HV, K or 1], `a_log` [HV] (rules of α in
    [0, 1]), `start` [HV, K, V]. Projections write heads in the order (factor, head, channel).
    """

    def __init__(self, config: LayerConfig) -> None:
        super().__init__()
        self.config = c = config
        n, HV, V = c.factors, c.groups, c.columns
        self.queries = _linear(c.width, c.heads * c.keys)
        self.keys = _linear(c.width, n * c.heads * c.keys)
        self.values = _linear(c.width, n * HV * V)
        self.betas = _linear(c.width, n * HV)
        self.beta_bias = nn.Parameter(beta_start(c))
        self.gates = self.gate_bias = self.a_log = None
        if c.rule != "none":
            self.gates = _linear(c.width, self._gate_rows * HV * self._gate_channels)
            self.gate_bias = nn.Parameter(gate_start(c, self._gate_channels))
            self.a_log = None if c.rule == "signed" else nn.Parameter(torch.zeros(HV))
        wide = c.heads * c.keys * (1 + n) + n * HV * V
        self.convolution = ShortConvolution(wide, c.conv) if c.conv else None
        self.norm = nn.Parameter(torch.ones(V)) if c.output_norm else None
        self.output_gate = _linear(c.width, HV * V) if c.output_gate else None
        self.start = nn.Parameter(torch.zeros(HV, c.keys, V)) if c.learned_start else None
        self.output = _linear(HV * V, c.width)

    @property
    def _gate_channels(self) -> int:
        return self.config.keys if self.config.kind in ("ckda", "kda") else 1

    @property
    def _gate_rows(self) -> int:
        """Gates of a token: before each factor in ckda, else before the first."""
        return self.config.factors if self.config.kind == "ckda" else 1

    def forward(
        self,
        x: Float[Tensor, "batch time width"],
        cache: Cache | None = None,
        cu_seqlens: Int[Tensor, " bound"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], Cache]:
        """The outputs, and the cache that the next tokens of the same sequences go on from.

        `cu_seqlens` [N + 1] cuts a batch of one into N sequences; a cache is then one of N sequences.

        Raises:
            InvalidInput: shapes of x, cache or cu_seqlens that do not fit.
        """
        c = self.config
        q, k, v, beta, logit, gate, tail = self._projected(x, cache, cu_seqlens)
        sequences = len(x) if cu_seqlens is None else len(cu_seqlens) - 1
        state = self._first_state(sequences, q.dtype) if cache is None else cache["state"]
        options: dict[str, Any] = {"factors": c.factors, "cu_seqlens": cu_seqlens}
        if logit is not None:
            options |= {"gate_logit": logit, "gate": cast(Rule, c.rule), "lower_bound": float(c.gate_floor)}
            options |= {"a_log": self.a_log, "dt_bias": self.gate_bias}
        o, final = self._run((q, k, v, beta), state, options, decode=cache is not None and not torch.is_grad_enabled())
        if self.norm is not None:
            o = functional.rms_norm(o, (c.columns,), self.norm.to(o.dtype), EPSILON)
        o = o.flatten(2)
        o = o if gate is None else o * torch.sigmoid(gate)
        return self.output(o), {"state": final} if tail is None else {"state": final, "tail": tail}

    def _run(
        self,
        rows: tuple[Tensor, Tensor, Tensor, Tensor],
        state: Tensor | None,
        options: dict[str, Any],
        *,
        decode: bool,
    ) -> tuple[Tensor, Tensor]:
        """o and the last states."""
        q, k, v, beta = rows
        if decode and state is not None:
            return ckda_decode(q, k, v, None, beta, state, **options)
        precision = cast(Precision, self.config.precision)
        options |= {"beta": beta, "initial_state": state, "output_final_state": True, "precision": precision}
        o, final = ckda(q, k, v, **options)
        assert final is not None
        return o, final

    def transitions(
        self, x: Float[Tensor, "batch time width"], cu_seqlens: Int[Tensor, " bound"] | None = None
    ) -> tuple[
        Float[Tensor, "batch time head factor dim"],
        Float[Tensor, "batch time head factor"],
        Float[Tensor, "batch time head factor dim"],
    ]:
        """Keys of length 1, β and α of every factor in every value head: S <- (I - β k kᵀ) Diag(α) S + β k vᵀ.

        α is 1 where there is no gate. float32, or float64 in a module of float64.
        """
        c = self.config
        n, HV, K = c.factors, c.groups, c.keys
        _, k, _, beta, logit, _, _ = self._projected(x, None, cu_seqlens)
        wide = torch.float64 if k.dtype == torch.float64 else torch.float32
        k = k.to(wide).unflatten(1, (-1, n)).repeat_interleave(HV // c.heads, 3).transpose(2, 3)
        length = k.norm(dim=-1, keepdim=True)
        k = torch.where(length > 0, k / length, 0.0)
        beta = beta.to(wide).unflatten(1, (-1, n)).transpose(2, 3)
        alpha = torch.ones_like(k)
        if logit is not None:
            found = Gate(cast(Kind, c.rule), logit, self.a_log, self.gate_bias, float(c.gate_floor)).alpha()
            found = found.unflatten(1, (-1, self._gate_rows)).transpose(2, 3).to(wide)
            alpha = torch.cat([found.expand(*found.shape[:4], K), alpha[:, :, :, self._gate_rows :]], 3)
        return k, beta, alpha

    def _projected(
        self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """q, k, v, β, pre-activations of the gates and of the output gate, and the tail; one product for all."""
        c = self.config
        check_input(x, c.kind, c.width, cu_seqlens)
        check_cache(cache, c)
        mixed = (self.queries, self.keys, self.values)
        rest = tuple(m for m in (self.output_gate, self.betas, self.gates) if m is not None)
        sizes = [m.out_features for m in mixed]
        y = functional.linear(x, torch.cat([m.weight for m in mixed + rest]))
        qkv, *others = y.split([sum(sizes), *(m.out_features for m in rest)], -1)
        gate = others.pop(0) if self.output_gate is not None else None
        tail = None
        if self.convolution is not None:
            qkv, tail = self.convolution(qkv, None if cache is None else cache["tail"], cu_seqlens)
        q, k, v = (functional.silu(qkv) if c.silu else qkv).split(sizes, -1)
        rows = x.shape[1] * c.factors
        q = q.unflatten(-1, (c.heads, c.keys))
        k, v = k.reshape(len(x), rows, c.heads, c.keys), v.reshape(len(x), rows, c.groups, c.columns)
        beta = others[0] if others[0].dtype == torch.float64 else others[0].float()
        beta = c.beta_max * torch.sigmoid(beta + self.beta_bias.flatten())
        logit = None
        if self.gates is not None:
            logit = others[1].reshape(len(x), x.shape[1] * self._gate_rows, c.groups, self._gate_channels)
        return q, k, v, beta.reshape(len(x), rows, c.groups), logit, gate, tail

    def _first_state(self, sequences: int, dtype: torch.dtype) -> Tensor | None:
        if self.start is None:
            return None
        start = self.start if dtype == torch.float64 else self.start.float()
        return start.expand(sequences, -1, -1, -1)


class CKDA(DeltaLayer):
    """KDA with gates in [-1, 1] and β in [0, 2] (`signed_gates`, `beta_max`); with n factors, a gate before each."""

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(LayerConfig("ckda", width, **options))


class KDA(DeltaLayer):
    """Kimi delta attention: a gate in [0, 1] for every channel."""

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(LayerConfig("kda", width, **options))


class GatedDeltaNet(DeltaLayer):
    """Gated DeltaNet: a gate in [0, 1] for every head."""

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(LayerConfig("gated_deltanet", width, **options))


class DeltaNet(DeltaLayer):
    """DeltaNet: no gate."""

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__(LayerConfig("deltanet", width, **options))


class DeltaProduct(DeltaLayer):
    """DeltaProduct: `factors` Householder factors a token; `gated`: behind a gate in [0, 1] for every head."""

    def __init__(self, width: int, *, gated: bool = False, **options: Any) -> None:
        super().__init__(LayerConfig("gated_deltaproduct" if gated else "deltaproduct", width, **options))


_KINDS: dict[str, type[CKDA | KDA | GatedDeltaNet | DeltaNet | Diagonal]] = {
    "ckda": CKDA,
    "kda": KDA,
    "gated_deltanet": GatedDeltaNet,
    "deltanet": DeltaNet,
    "diagonal": Diagonal,
}


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)
