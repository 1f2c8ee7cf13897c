"""A diagonal recurrence whose gates depend on the input: Mamba's, with α in [0, 1], or in [-1, 1].

Every channel d has N numbers. A token with input x_d, step Δ_d, writing vector B and reading vector C does

    h_dn <- α_dn h_dn + Δ_d B_n x_d,    a = exp(-Δ_d e^{A_dn}),    α = a or 2a - 1,    y_d = Σ_n C_n h_dn + D_d x_d

The recurrence h_t = α_t h_{t-1} + b_t is run in two levels, with products of gates only: about √T chunks of about √T
tokens, all chunks at once. A first pass finds what each chunk multiplies a state by and what it adds, then the states
go from chunk to chunk, then a second pass fills in every token. That is about 3√T steps over whole tensors and two
readings of α and b. There is no logarithm and no division, so signs need no care, a gate of 0 is an exact reset, and
the gradients, the same recurrence backwards, are the true ones.

Main definitions: `Diagonal`, `recur`.

References: Mamba, the selective state space model; Grazzi et al., "Unlocking state-tracking in linear RNNs through
negative eigenvalues" (2a - 1).
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUntypedFunctionDecorator=false, reportIncompatibleMethodOverride=false
# ruff: noqa: F722

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .layer_parts import (
    EPSILON,
    Cache,
    LayerConfig,
    ShortConvolution,
    check_cache,
    check_input,
    check_state,
    decays,
    sequence_starts,
)

if TYPE_CHECKING:
    from jaxtyping import Float, Int


class Diagonal(nn.Module):
    """Mamba's layer, its state [value_heads · value_dim channels, head_dim]; docs/layers.md has the parameters.

    Mamba itself is `conv=4, silu=True, output_norm=False, gate_init="standard"`, with `signed_gates` as wanted.
    """

    def __init__(self, width: int, **options: Any) -> None:
        super().__init__()
        self.config = c = LayerConfig("diagonal", width, **options)
        D, N, rank = c.groups * c.columns, c.keys, -(-width // 16)
        self.inputs = nn.Linear(width, D, bias=False)
        self.output_gate = nn.Linear(width, D, bias=False) if c.output_gate else None
        self.convolution = ShortConvolution(D, c.conv) if c.conv else None
        self.controls = nn.Linear(D, rank + 2 * N, bias=False)
        self.steps = nn.Linear(rank, D, bias=False)
        step, rates = _start(c, D, N)
        self.step_bias = nn.Parameter(step)
        self.a_log = nn.Parameter(rates)
        self.skip = nn.Parameter(torch.ones(D))
        self.norm = nn.Parameter(torch.ones(D)) if c.output_norm else None
        self.start = nn.Parameter(torch.zeros(D, N)) if c.learned_start else None
        self.output = nn.Linear(D, width, bias=False)

    def forward(
        self,
        x: Float[Tensor, "batch time width"],
        cache: Cache | None = None,
        cu_seqlens: Int[Tensor, " bound"] | None = None,
    ) -> tuple[Float[Tensor, "batch time width"], Cache]:
        """The outputs, and the cache that the next tokens of the same sequences go on from.

        Raises:
            InvalidInput: shapes of x, cache or cu_seqlens that do not fit.
        """
        u, gate, tail = self._inputs(x, cache, cu_seqlens)
        with torch.autocast(x.device.type, enabled=False):
            alpha, step, write, read = self._controls(u)
            state = self._first_state(x, cache, cu_seqlens, alpha.dtype)
            wide = u.to(alpha.dtype)
            added = (step * wide)[..., None] @ write[..., None, :]
            h, final = _sequences(alpha, added, state, cu_seqlens)
            y = (h @ read[..., None])[..., 0] + self.skip.to(wide.dtype) * wide
        y = y.to(u.dtype)
        if self.norm is not None:
            y = functional.rms_norm(y, (y.shape[-1],), self.norm.to(y.dtype), EPSILON)
        y = y if gate is None else y * functional.silu(gate)
        return self.output(y), {"state": final} if tail is None else {"state": final, "tail": tail}

    def transitions(
        self, x: Float[Tensor, "batch time width"], cu_seqlens: Int[Tensor, " bound"] | None = None
    ) -> tuple[
        Float[Tensor, "batch time channel factor dim"],
        Float[Tensor, "batch time channel factor"],
        Float[Tensor, "batch time channel factor dim"],
    ]:
        """Keys and β of zero, and α; every channel is a head with a state of `dim` numbers, with one factor."""
        with torch.autocast(x.device.type, enabled=False):
            alpha = self._controls(self._inputs(x, None, cu_seqlens)[0])[0][:, :, :, None]
        return torch.zeros_like(alpha), torch.zeros_like(alpha[..., 0]), alpha

    def _inputs(
        self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The channels' inputs and output gates [B, T, D], and the convolution's tail."""
        c = self.config
        check_input(x, c.kind, c.width, cu_seqlens)
        check_cache(cache, c)
        u, gate, tail = x, None, None
        if self.output_gate is None:
            u = self.inputs(x)
        else:
            u, gate = functional.linear(x, torch.cat([self.inputs.weight, self.output_gate.weight])).chunk(2, -1)
        if self.convolution is not None:
            u, tail = self.convolution(u, None if cache is None else cache["tail"], cu_seqlens)
        return functional.silu(u) if c.silu else u, gate, tail

    def _controls(self, u: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """α [B, T, D, N], Δ [B, T, D], B and C [B, T, N], in float32 or float64."""
        u = u if u.dtype == torch.float64 else u.float()
        N = self.config.keys
        low, write, read = functional.linear(u, self.controls.weight.to(u.dtype)).split(
            [self.steps.in_features, N, N], -1
        )
        step = functional.softplus(functional.linear(low, self.steps.weight.to(u.dtype), self.step_bias.to(u.dtype)))
        a = torch.exp(step[..., None] * -self.a_log.to(u.dtype).exp())
        return 2 * a - 1 if self.config.signed_gates else a, step, write, read

    def _first_state(self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None, dtype: torch.dtype) -> Tensor:
        """h before the first tokens [sequences, D, N]."""
        shape = (len(x) if cu_seqlens is None else len(cu_seqlens) - 1, *self.a_log.shape)
        if cache is not None:
            check_state(cache["state"], shape)
            return cache["state"].to(dtype)
        return x.new_zeros(shape, dtype=dtype) if self.start is None else self.start.to(dtype).expand(shape)


def recur(
    alpha: Float[Tensor, "batch time ..."],
    added: Float[Tensor, "batch time ..."],
    start: Float[Tensor, "batch ..."],
) -> Float[Tensor, "batch time ..."]:
    """h_t = alpha_t h_{t-1} + added_t for every number, h_{-1} = `start`; with gradients in all three.

    >>> recur(torch.tensor([[[-1.0], [0.5]]]), torch.ones(1, 2, 1), torch.ones(1, 1)).flatten().tolist()
    [0.0, 1.0]
    """
    return _Recurrence.apply(alpha, added, start)  # pyright: ignore[reportReturnType]


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, added: Tensor, start: Tensor) -> Tensor:
        h = torch.empty_like(added, memory_format=torch.contiguous_format)
        _fill(alpha, added, start, h, backwards=False)
        ctx.save_for_backward(alpha, start, h)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dh: Tensor) -> tuple[Tensor | None, ...]:
        alpha, start, h = ctx.saved_tensors
        if not alpha.shape[1]:
            return torch.zeros_like(alpha), torch.zeros_like(dh), torch.zeros_like(start)
        g = torch.empty_like(h)
        g[:, -1] = dh[:, -1]
        _fill(alpha[:, 1:], dh[:, :-1], dh[:, -1], g[:, :-1], backwards=True)
        dalpha = torch.empty_like(h)
        torch.mul(g[:, 0], start, out=dalpha[:, 0])
        torch.mul(g[:, 1:], h[:, :-1], out=dalpha[:, 1:])
        return dalpha, g, g[:, 0] * alpha[:, 0]


def _fill(alpha: Tensor, added: Tensor, start: Tensor, h: Tensor, *, backwards: bool) -> None:
    """Writes h_t = alpha_t h_{t∓1} + added_t into `h` for t forwards from 0, or `backwards` from the end."""
    time = alpha.shape[1]
    if not time:
        return
    tokens = 1 << round(math.log2(time) / 2)
    chunks = time // tokens
    whole = chunks * tokens
    at = slice(time - whole, time) if backwards else slice(0, whole)
    a, b, o = (x[:, at].unflatten(1, (chunks, tokens)) for x in (alpha, added, h))
    inner = range(tokens)[::-1] if backwards else range(tokens)
    outer = range(chunks)[::-1] if backwards else range(chunks)
    state = start
    if chunks > 1:
        product, total = a[:, :, inner[0]].clone(), b[:, :, inner[0]]
        for c in inner[1:]:
            total = torch.addcmul(b[:, :, c], a[:, :, c], total)
            product *= a[:, :, c]
        states = torch.empty_like(product)
        for m in outer:
            states[:, m] = state
            state = torch.addcmul(total[:, m], product[:, m], state)
        state = states
    else:
        state = state[:, None]
    for c in inner:
        state = torch.addcmul(b[:, :, c], a[:, :, c], state, out=o[:, :, c])
    state = state[:, outer[-1]]
    for t in range(time - whole)[::-1] if backwards else range(whole, time):
        state = torch.addcmul(added[:, t], alpha[:, t], state, out=h[:, t])


def _sequences(alpha: Tensor, added: Tensor, state: Tensor, cu_seqlens: Tensor | None) -> tuple[Tensor, Tensor]:
    """h of every token and the last one of every sequence; sequences of a batch of one are cut by gates of 0."""
    if cu_seqlens is None:
        h = recur(alpha, added, state)
        return h, h[:, -1] if h.shape[1] else state
    starts, ends, _ = sequence_starts(cu_seqlens, alpha.shape[1], alpha.device)
    some = starts < ends
    first = starts[some]
    added = added.index_add(1, first, alpha[:, first] * state[some])
    alpha = alpha.index_fill(1, first, 0.0)
    h = recur(alpha, added, state.new_zeros(1, *state.shape[1:]))
    final = state.clone()
    final[some] = h[0, ends[some] - 1]
    return h, final


def _start(config: LayerConfig, channels: int, numbers: int) -> tuple[Tensor, Tensor]:
    """The biases of Δ and the logarithms of the rates A [channels, numbers].

    As in Mamba: Δ from 1e-3 to 1e-1, A = 1..N. With signed gates and "spread", every second channel starts with
    α = -(1 - 1e-3) to -(1 - 1e-1) instead.
    """
    step = decays(channels)[torch.randperm(channels)]
    rates = torch.arange(1, numbers + 1, dtype=torch.float64).expand(channels, -1).clone()
    if config.signed_gates and config.gate_init == "spread":
        rates[1::2] = -torch.log(decays(numbers) / 2) / step[1::2, None]
    return torch.log(torch.expm1(step)).float(), rates.log().float()
