"""The layer operation one factor after another: the definition that the chunkwise paths agree with.

For every value head, with keys k̂ and queries q̂ of length 1 (a zero key stays zero), each factor of a token does

    S <- Diag(α) S;   S <- S - β k̂ (k̂ᵀ S - vᵀ)

and after the token's last factor o = scale · Sᵀ q̂. A normalised key that is rounded no longer has length 1, so keys
stay as they came and their lengths are folded into numbers: β k̂ k̂ᵀ = (β/|k|²) k kᵀ and β k̂ vᵀ = (β/|k|²) k (|k| v)ᵀ.

Main definitions: `ckda_naive`, `folded_keys`, `folded_queries`, `row_gates`, `working_type`.

References: CKDA, the layer's recurrence; DeltaProduct (several factors a token).
"""
# S is the papers' letter for the state.
# pyright: reportConstantRedefinition=false
# ruff: noqa: F722

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .gates import Gate, Precision

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def ckda_naive(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch rows head dim"],
    v: Float[Tensor, "batch rows value_head width"],
    beta: Float[Tensor, "batch rows value_head"],
    gate: Gate,
    *,
    scale: float,
    factors: int,
    normalize_keys: bool,
    normalize_queries: bool,
    initial_state: Float[Tensor, "sequence value_head dim width"] | None,
    output_final_state: bool,
    cu_seqlens: Int[Tensor, " bound"] | None,
    precision: Precision,
) -> tuple[Float[Tensor, "batch time value_head width"], Float[Tensor, "sequence value_head dim width"] | None]:
    """The operation as a loop over tokens, with autograd, in float64 if an input is float64, else in float32.

    `rows` is T·n, token-major; `precision` changes nothing here. `statetrack.kernels.api.ckda` gives the ranges of the
    arguments and checks them. Returns o in the type of v, and the state after each sequence's last token or None.
    """
    batch, time, heads, _ = q.shape
    group = v.shape[2] // heads
    dtype = working_type(q, k, v)
    keys, betas, values = folded_keys(k.to(dtype), beta.to(dtype), v.to(dtype), normalize_keys, head=2)
    queries, factor = folded_queries(q.to(dtype), scale, normalize_queries)
    keys, queries = keys.repeat_interleave(group, 2), (queries * factor).repeat_interleave(group, 2)
    alphas = row_gates(gate, factors, time * factors, q.device).to(dtype)
    spans = [(b, 0, time) for b in range(batch)]
    if cu_seqlens is not None:
        bounds = [int(end) for end in cu_seqlens.cpu()]
        spans = [(0, first, last) for first, last in pairwise(bounds)]
    shape = (v.shape[2], q.shape[3], v.shape[3])
    read = [[v.new_zeros(v.shape[2:], dtype=dtype)] * time for _ in range(batch)]
    states: list[Tensor] = []
    for i, (b, first, last) in enumerate(spans):
        S = torch.zeros(shape, dtype=dtype, device=q.device) if initial_state is None else initial_state[i].to(dtype)
        for t in range(first, last):
            for row in range(t * factors, (t + 1) * factors):
                a = alphas[min(b, alphas.shape[0] - 1), row]
                S = _step(S, keys[b, row], betas[b, row], a, values[b, row])
            read[b][t] = torch.einsum("hkv,hk->hv", S, queries[b, t])
        states.append(S)
    if time == 0:
        o = v.new_zeros(batch, 0, *v.shape[2:])
    else:
        o = torch.stack([torch.stack(rows) for rows in read]).to(v.dtype)
    return o, (torch.stack(states) if output_final_state else None)


def _step(S: Tensor, k: Tensor, beta: Tensor, alpha: Tensor, v: Tensor) -> Tensor:
    """One factor: S [HV, K, V], k [HV, K], beta [HV], alpha [HV, K or 1], v [HV, V]."""
    S = alpha[..., None] * S
    miss = torch.einsum("hkv,hk->hv", S, k) - v
    return S - (beta[:, None] * k)[..., None] * miss[:, None]


def working_type(*inputs: Tensor) -> torch.dtype:
    """The type a layer computes in: float64 if an input is float64, else float32."""
    return torch.float64 if any(x.dtype == torch.float64 for x in inputs) else torch.float32


def folded_keys(k: Tensor, beta: Tensor, v: Tensor, normalize: bool, *, head: int) -> tuple[Tensor, Tensor, Tensor]:
    """Keys k', β' and v' that as they are do what β, v and the normalised keys do.

    Shapes: k [..., K], beta [...], v [..., V]; dimension `head` is H in k and HV in β and v. k' = k/u with u the power
    of two next below the largest |k_i|, so that no digit is lost and no square overflows; β' = β/|k'|², v' = |k'| v,
    and β' = 0 for a zero key.
    """
    if not normalize:
        return k, beta, v
    k, square, present = _scaled(k)
    group = v.shape[head] // k.shape[head]
    if group > 1:
        square, present = square.repeat_interleave(group, head), present.repeat_interleave(group, head)
    return k, torch.where(present, beta / square, 0.0), v * square.sqrt()[..., None]


def folded_queries(q: Tensor, scale: float, normalize: bool) -> tuple[Tensor, Tensor]:
    """Queries q' and factors [..., 1] whose product is scale·q/|q|, or scale·q; zero for a zero query."""
    if not normalize:
        return q, torch.full_like(q[..., :1], scale)
    q, square, present = _scaled(q)
    return q, torch.where(present, scale * square.rsqrt(), 0.0)[..., None]


def row_gates(gate: Gate, factors: int, rows: int, device: torch.device) -> Tensor:
    """α of every row: gates of tokens stand before their first factor, all other rows have α = 1.

    Shape [B, T·n, HV, K or 1]; [1, T·n, 1, 1] without a gate. A gate without values has no device of its own.
    """
    alpha = gate.alpha().to(device)
    if gate.values is None:
        return alpha.expand(1, rows, 1, 1)
    if alpha.shape[1] == rows:
        return alpha
    still = torch.ones_like(alpha)[:, :, None].expand(-1, -1, factors - 1, -1, -1)
    return torch.cat([alpha[:, :, None], still], 2).flatten(1, 2)


def _scaled(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x over a power of two, the square of that vector's length (1 for a zero vector), and whether it is not zero.

    What is made of them does not depend on the power of two, so no gradient passes through it.
    """
    largest = x.detach().abs().amax(-1, keepdim=True)
    # Dividing by twice the mantissa is exact and leaves a power of two that cannot overflow.
    power = torch.where(largest > 0, largest / (2 * torch.frexp(largest).mantissa), 1.0)
    x = x / power
    square = x.square().sum(-1)
    present = largest[..., 0] > 0
    return x, torch.where(present, square, 1.0), present
