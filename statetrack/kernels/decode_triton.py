"""The recurrence itself as a Triton kernel, token by token with a carried state: for generation, and without gradients.

A program holds BV columns of one head's state of one sequence in registers, in float32, and computes in float32 in the
order of the definition: gate, residual, update, read. Norms are folded, so a key is never rounded.

Main definitions: `ckda_decode`.

References: CKDA; DeltaProduct for several factors a token.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .chunk_tiles import gate_value, inverse_norms
from .gates import KINDS, Gate, Precision


@triton.jit
def _row_norm(x, NORMALIZE: tl.constexpr):
    return inverse_norms(tl.sum(x * x, 0), NORMALIZE)


@triton.jit
def decode_kernel(
    q, k, v, beta, gate, a_log, dt_bias, o, s0, s1, ends, scale, lower, T, H, HV,
    K: tl.constexpr, V: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, WIDTH: tl.constexpr,
    KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr, NORM_K: tl.constexpr, NORM_Q: tl.constexpr,
    VARLEN: tl.constexpr, START: tl.constexpr, FINAL: tl.constexpr,
):  # fmt: skip
    """o of every token, and the state after the last."""
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    if VARLEN:
        first = tl.load(ends + sequence).to(tl.int64)
        length = (tl.load(ends + sequence + 1) - first).to(tl.int32)
    else:
        first = sequence.to(tl.int64) * T
        length = T
    ks = tl.arange(0, BK)
    vs = tl.program_id(0) * BV + tl.arange(0, BV)
    inside = (ks < K)[:, None] & (vs < V)[None, :]
    held = (sequence * HV + head).to(tl.int64) * K * V + ks[:, None] * V + vs[None, :]
    S = tl.zeros((BK, BV), tl.float32)
    if START:
        S += tl.load(s0 + held, mask=inside, other=0.0)
    rate = tl.exp(tl.load(a_log + head).to(tl.float32)) if KIND >= 3 else 1.0
    bias = tl.zeros((BK,), tl.float32)
    if BIAS:
        bias += tl.load(dt_bias + (head * K + ks if WIDTH else head + ks * 0), mask=ks < K, other=0.0)
    key_head = head // (HV // H)
    for t in range(length):
        token = first + t
        for j in range(N):
            row = token * N + j
            if KIND > 0 and (EACH or j == 0):
                at = ((row if EACH else token) * HV + head) * (K if WIDTH else 1)
                x = tl.load(gate + at + ks * (1 if WIDTH else 0), mask=ks < K, other=0.0).to(tl.float32) + bias
                S *= gate_value(x, rate, lower, KIND)[:, None]
            key = tl.load(k + (row * H + key_head) * K + ks, mask=ks < K, other=0.0).to(tl.float32)
            norm = _row_norm(key, NORM_K)
            value = tl.load(v + (row * HV + head) * V + vs, mask=vs < V, other=0.0).to(tl.float32)
            left = value - tl.sum(key[:, None] * S, 0) * norm
            b = tl.load(beta + row * HV + head).to(tl.float32)
            S += key[:, None] * (left * (b * norm))[None, :]
        query = tl.load(q + (token * H + key_head) * K + ks, mask=ks < K, other=0.0).to(tl.float32)
        out = tl.sum(query[:, None] * S, 0) * (scale * _row_norm(query, NORM_Q))
        tl.store(o + (token * HV + head) * V + vs, out.to(o.dtype.element_ty), mask=vs < V)
    if FINAL:
        tl.store(s1 + held, S, mask=inside)


def ckda_decode(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Gate,
    *,
    scale: float,
    factors: int = 1,
    normalize_keys: bool = True,
    normalize_queries: bool = True,
    initial_state: Tensor | None = None,
    output_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
    precision: Precision = "exact",
) -> tuple[Tensor, Tensor | None]:
    """What `chunk_triton.ckda_chunk` computes, one token after the other in float32, whatever `precision` says.

    No gradients. Shapes as there.
    """
    (batch, time, heads, K), (value_heads, V) = q.shape, v.shape[2:]
    q, k, v, beta = (x.contiguous() for x in (q, k, v, beta))
    values, a_log, dt_bias = (None if x is None else x.contiguous() for x in (gate.values, gate.rates, gate.dt_bias))
    sequences = batch if cu_seqlens is None else cu_seqlens.numel() - 1
    o = torch.empty(batch, time, value_heads, V, dtype=v.dtype, device=v.device)
    last = None
    if output_final_state:
        last = torch.empty(sequences, value_heads, K, V, dtype=torch.float32, device=q.device)
    start = None if initial_state is None else initial_state.float().contiguous()
    BK = max(16, triton.next_power_of_2(K))
    BV = min(max(16, triton.next_power_of_2(V)), max(16, 4096 // BK))
    decode_kernel[(triton.cdiv(V, BV), value_heads, sequences)](
        q, k, v, beta, values, a_log, dt_bias, o, start, last, None if cu_seqlens is None else cu_seqlens.to(q.device),
        scale, gate.lower_bound, time, heads, value_heads, K=K, V=V, N=factors, BK=BK, BV=BV,
        WIDTH=values is None or values.shape[-1] == K, KIND=KINDS.index(gate.kind),
        EACH=values is not None and factors > 1 and values.shape[1] == time * factors, BIAS=dt_bias is not None,
        NORM_K=normalize_keys, NORM_Q=normalize_queries, VARLEN=cu_seqlens is not None,
        START=start is not None, FINAL=last is not None, num_warps=4,
    )  # fmt: skip
    return o, last
