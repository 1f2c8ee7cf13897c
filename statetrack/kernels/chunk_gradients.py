"""Third stage of the backward pass: from the gradients of the states and of v to those of the other inputs.

With r = T y, T = (I + M Diag(beta))^-1 and w = Diag(beta) r: the gradient of M is -dy wᵀ below the diagonal, so the
inverse needs no gradient of its own, and dy is the gradient of v. The row products that the norms' and betas' gradients
need are products of rows over V: <k, dk> = 2 <dy, r> - <dy, v>, <q, dq> = <do, o>, beta dbeta = <dy, r>.

Keys and queries appear as D_i k_i on the left of a product and as k_j/D_j on its right. The gradient of log|D| is
x dx of the left appearances minus x dx of the right ones; the gradient of a gate is its sum over the later rows of the
chunk, in which every pair of two later rows must cancel. It does so to the last bit of float32, because the same
rounded operands stand in both products.

Main definitions: `gradients`, `matrix_kernel`, `gradient_kernel`.

References: CKDA, chunkwise form.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .chunk_tiles import (
    anchored_at,
    chunk_alphas,
    chunk_gates,
    factor_rows,
    gate_slope,
    last_in_tile,
    last_of,
    load_columns,
    load_raw,
    load_tile,
    negate_where,
    pick_packed,
    pick_row,
    place,
    raw_gates,
    reciprocal,
    store_columns,
    store_tile,
)


@triton.jit
def pair_gradients(dM, dQ, tile, k, g, q, gq, rows, C: tl.constexpr, CQ: tl.constexpr):
    """What goes through M and Q: the gradients of queries and keys, and those of log|D| at queries and at keys."""
    left = k * 0.0
    dq = q * 0.0
    right = k * 0.0
    for j in range(C):
        depth = pick_packed(g, rows, j)
        kj = negate_where(pick_row(k, rows, j), depth)[None, :]
        over = negate_where(tl.exp2(tl.minimum(tl.abs(depth)[None, :] - tl.abs(g), 0.0)), g)
        over_q = negate_where(tl.exp2(tl.minimum(tl.abs(depth)[None, :] - tl.abs(gq), 0.0)), gq)
        a = tl.load(dM + tile * C * C + rows * C + j).to(tl.float32)[:, None]
        c = tl.load(dQ + tile * CQ * C + tl.arange(0, CQ) * C + j).to(tl.float32)[:, None]
        left += a * over * kj
        dq += c * over_q * kj
        column = tl.sum(a * over * k, 0) + tl.sum(c * over_q * q, 0)
        right = tl.where(rows[:, None] == j, negate_where(column, depth)[None, :], right)
    return dq, left + right, q * dq, k * (left - right)


@triton.jit
def paired_parts(
    gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, dM, dQ, tile, kr, qr,
    C: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """`pair_gradients` of some channels, then D_r at keys and at queries, D_C/D_r and D_C, from packed gates."""
    rows = tl.arange(0, C)
    g = chunk_gates(gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, WIDTH, KIND, EACH, BIAS)
    gq = last_of(g, C, P)
    last = pick_packed(g, rows, C - 1)
    dqr, dkr, dGq, dG = pair_gradients(dM, dQ, tile, kr, g, qr, gq, rows, C, C // P)
    since = negate_where(tl.exp2(-tl.abs(g)), g)
    since_q = negate_where(tl.exp2(-tl.abs(gq)), gq)
    until = negate_where(negate_where(tl.exp2(tl.abs(g) - tl.abs(last)[None, :]), g), last[None, :])
    return dqr, dkr, dGq, dG, since, since_q, until, negate_where(tl.exp2(-tl.abs(last)), last)


@triton.jit
def anchored_gradients(
    dM, dQ, tile, k, fall, rise, q, fall_q, C: tl.constexpr, CQ: tl.constexpr, DT: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The same as `pair_gradients`, from D_r/D_m, its inverse, and D_r/D_m at queries."""
    up = (k * rise).to(DT)
    down = (k * fall).to(DT)
    asked = (q * fall_q).to(DT)
    matrix_q = load_tile(dQ, tile, CQ, C, C)
    matrix_k = load_tile(dM, tile, C, C, C)
    dq = tl.dot(matrix_q, up, input_precision=PRECISION)
    right = tl.dot(tl.trans(matrix_q), asked, input_precision=PRECISION)
    right = tl.dot(tl.trans(matrix_k), down, right, input_precision=PRECISION)
    left = tl.dot(matrix_k, up, input_precision=PRECISION)
    dG = left * down.to(tl.float32) - right * up.to(tl.float32)
    return dq * fall_q, left * fall + right * rise, dq * asked.to(tl.float32), dG


@triton.jit
def anchored_parts(
    alpha, halves, inside, dM, dQ, tile, kr, qr, K: tl.constexpr, C: tl.constexpr, P: tl.constexpr, DT: tl.constexpr,
    QUICK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The same as `paired_parts`, from gates [C, BK] and where their D_m and D_C/D_m are kept."""
    start_to_middle = tl.load(halves, mask=inside, other=1.0)
    middle_to_end = tl.load(halves + K, mask=inside, other=1.0)
    since = anchored_at(alpha, start_to_middle, C, QUICK)
    since_q = last_in_tile(since, C, P, 1)
    until = reciprocal(since, QUICK)
    dqr, dkr, dGq, dG = anchored_gradients(dM, dQ, tile, kr, since, until, qr, since_q, C, C // P, DT, PRECISION)
    since *= start_to_middle[None, :]
    since_q *= start_to_middle[None, :]
    until *= middle_to_end[None, :]
    return dqr, dkr, dGq, dG, since, since_q, until, start_to_middle * middle_to_end


@triton.jit
def row_products(x, y, rows, PRECISION: tl.constexpr):
    """<x_i, y_i> of every row, by a matrix product, so that the operands stay in their format."""
    return tl.sum(tl.where(rows[:, None] == rows[None, :], tl.dot(x, tl.trans(y), input_precision=PRECISION), 0.0), 1)


@triton.jit
def matrix_kernel(
    v, do, o, r, dy, norms, betas, q_scales, dM, dQ, dbeta, along_k, along_q, table, ends, scale, T, CHUNKS, HV,
    V: tl.constexpr, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, VARLEN: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of M, Q and beta, and how far those of keys and queries go along the keys and queries.

    They are written out and not kept in the next kernel's registers: Triton 3.7.1 gives wrong results for the transpose
    of an accumulator as an operand in some configurations, and never for that of a tile it has loaded.
    """
    head = tl.program_id(0)
    chunk = tl.program_id(1)
    tile = chunk.to(tl.int64) * HV + head
    CQ: tl.constexpr = C // P
    DT: tl.constexpr = r.dtype.element_ty
    first, start, length = place(table, ends, chunk, T, CHUNKS, CQ, VARLEN)
    at, _, real, _ = factor_rows(start, length, N, C, P)
    q_at = tl.arange(0, CQ)
    q_real = start + q_at < length
    seen = first + start
    pairs = tl.zeros((C, C), tl.float32)
    asked = tl.zeros((CQ, C), tl.float32)
    over_v = tl.zeros((C,), tl.float32)
    over_o = tl.zeros((CQ,), tl.float32)
    for n in tl.static_range((V + BV - 1) // BV):
        y = load_raw(dy + seen * N * HV * V, at, real, head, HV, V, BV, n * BV).to(DT)
        value = load_raw(v + seen * N * HV * V, at, real, head, HV, V, BV, n * BV).to(DT)
        out = load_raw(do + seen * HV * V, q_at, q_real, head, HV, V, BV, n * BV).to(DT)
        read = load_raw(o + seen * HV * V, q_at, q_real, head, HV, V, BV, n * BV).to(DT)
        right = tl.trans(load_tile(r, tile, C, V, BV, n * BV))
        pairs = tl.dot(y, right, pairs, input_precision=PRECISION)
        asked = tl.dot(out, right, asked, input_precision=PRECISION)
        over_v += row_products(y, value, tl.arange(0, C), PRECISION)
        over_o += row_products(out, read, q_at, PRECISION)
    rows = tl.arange(0, C)
    norm = tl.load(norms + tile * C + rows)
    b = tl.load(betas + tile * C + rows)
    q_scale = tl.load(q_scales + tile * CQ + q_at)
    over_r = tl.sum(tl.where(rows[:, None] == rows[None, :], pairs, 0.0), 1)
    tl.store(dbeta + seen * N * HV + at * HV + head, (over_r / b).to(dbeta.dtype.element_ty), mask=real)
    tl.store(along_k + tile * C + rows, (2.0 * over_r - over_v) * norm * norm)
    tl.store(along_q + tile * CQ + q_at, over_o * q_scale * q_scale / (scale * scale))
    pairs = tl.where(rows[:, None] > rows[None, :], pairs * -norm[:, None] * (b * norm)[None, :], 0.0)
    store_tile(dM, pairs, tile, C, C, C)
    q_rows = q_at * P + P - 1
    asked = tl.where(q_rows[:, None] >= rows[None, :], asked * q_scale[:, None] * (b * norm)[None, :], 0.0)
    store_tile(dQ, asked, tile, CQ, C, C)


@triton.jit
def state_products(
    TILED: tl.constexpr, x, state, tile, at, real, head, HV, cols, K: tl.constexpr, V: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, DT: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """x Sᵀ over V, [C, BK], for rows x of a tensor, or of a tile where TILED."""
    found = tl.zeros((C, BK), tl.float32)
    for n in tl.static_range((V + BV - 1) // BV):
        if TILED:
            rows = load_tile(x, tile, C, V, BV, n * BV)
        else:
            rows = load_raw(x, at, real, head, HV, V, BV, n * BV).to(DT)
        S = load_tile(state, tile, K, V, BV, n * BV, cols)
        found = tl.dot(rows, tl.trans(S), found, input_precision=PRECISION)
    return found


@triton.jit
def end_gradient(
    h, dh, tile, cols, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, PRECISION: tl.constexpr
):
    """sum_v S dS over the columns of the states before and after the chunk, [BK]."""
    found = tl.zeros((BK,), tl.float32)
    for n in tl.static_range((V + BV - 1) // BV):
        before = load_tile(h, tile, K, V, BV, n * BV, cols)
        found += row_products(before, load_tile(dh, tile, K, V, BV, n * BV, cols), tl.arange(0, BK), PRECISION)
    return found


@triton.jit
def gradient_kernel(
    q, k, gate, a_log, dt_bias, norms, betas, q_scales, halves, flags, h, r, do, dh, dy, dM, dQ, along_k, along_q,
    dq, dk, dgate, table, ends, lower, T, CHUNKS, H, HV, K: tl.constexpr, V: tl.constexpr,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr, NORM_K: tl.constexpr,
    NORM_Q: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """dq, dk and dgate of BK channels of a chunk."""
    part = tl.program_id(0)
    head = tl.program_id(1)
    chunk = tl.program_id(2)
    tile = chunk.to(tl.int64) * HV + head
    if (tl.load(flags + tile) == 0) == SAFE:
        return
    CQ: tl.constexpr = C // P
    DT: tl.constexpr = h.dtype.element_ty
    QUICK: tl.constexpr = PRECISION == "tf32"
    first, start, length = place(table, ends, chunk, T, CHUNKS, CQ, VARLEN)
    at, tokens, real, factor = factor_rows(start, length, N, C, P)
    q_at = tl.arange(0, CQ)
    q_real = start + q_at < length
    seen = first + start
    q += seen * H * K
    k += seen * N * H * K
    dq += seen * HV * K
    dk += seen * N * HV * K
    dy += seen * N * HV * V
    do += seen * HV * V
    if KIND > 0:
        gate += seen * (N if EACH else 1) * HV * (K if WIDTH else 1)
        dgate += seen * (N if EACH else 1) * HV * (K if WIDTH else (K + BK - 1) // BK)
    key_head = head // (HV // H)
    rows = tl.arange(0, C)
    cols = part * BK + tl.arange(0, BK)
    norm = tl.load(norms + tile * C + rows)
    bn = tl.load(betas + tile * C + rows) * norm
    q_scale = tl.load(q_scales + tile * CQ + q_at)
    kr = load_columns(k, at, real, key_head, H, K, cols)
    qr = load_columns(q, q_at, q_real, key_head, H, K, cols)
    # D_r at keys, at queries, D_C/D_r and D_C
    if SAFE:
        dqr, dkr, dGq, dG, since, since_q, until, end = paired_parts(
            gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, dM, dQ, tile, kr, qr, C, P,
            WIDTH, KIND, EACH, BIAS,
        )  # fmt: skip
    else:
        alpha = chunk_alphas(
            gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, C,
            WIDTH, KIND, EACH, BIAS, QUICK,
        )  # fmt: skip
        dqr, dkr, dGq, dG, since, since_q, until, end = anchored_parts(
            alpha, halves + tile * 2 * K + cols, cols < K, dM, dQ, tile, kr, qr, K, C, P, DT, QUICK, PRECISION
        )
    found = state_products(0, do, h, tile, q_at, q_real, head, HV, cols, K, V, CQ, BK, BV, DT, PRECISION)
    found *= since_q * q_scale[:, None]
    dGq += qr * found
    dqr += found
    if NORM_Q:
        dqr -= qr * tl.load(along_q + tile * CQ + q_at)[:, None]
    store_columns(dq, dqr, q_at, q_real, head, HV, K, cols)
    if P > 1:
        dGq = tl.reshape(tl.where(tl.arange(0, P)[None, :, None] == P - 1, dGq[:, None, :], 0.0), (C, BK))
    dG += dGq
    found = state_products(0, dy, h, tile, at, real, head, HV, cols, K, V, C, BK, BV, DT, PRECISION)
    found *= since * norm[:, None]
    dG -= kr * found
    dkr -= found
    found = state_products(1, r, dh, tile, at, real, head, HV, cols, K, V, C, BK, BV, DT, PRECISION)
    found *= until * bn[:, None]
    dkr += found
    found *= kr
    if NORM_K:
        dkr -= kr * tl.load(along_k + tile * C + rows)[:, None]
    store_columns(dk, dkr, at, real, head, HV, K, cols)
    if KIND > 0:
        dend = end_gradient(h, dh, tile, cols, K, V, BK, BV, PRECISION) * end
        dG += tl.where(rows[:, None] == C - 1, (tl.sum(found, 0) + dend)[None, :], 0.0) - found
        x, gated, rate = raw_gates(
            gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, cols, WIDTH, KIND, EACH, BIAS
        )
        if WIDTH:
            dx = tl.cumsum(dG, 0, reverse=True) * gate_slope(x, rate, lower, KIND, QUICK)
            store_columns(dgate, dx, at if EACH else tokens, gated, head, HV, K, cols)
        else:
            dx = tl.sum(tl.where((cols < K)[None, :], dG, 0.0), 1)
            dx = tl.cumsum(dx, 0, reverse=True) * gate_slope(x, rate, lower, KIND, QUICK)
            seat = dgate + ((at if EACH else tokens) * HV + head) * ((K + BK - 1) // BK) + part
            tl.store(seat, dx, mask=gated)


def gradients(
    q: Tensor, k: Tensor, v: Tensor, o: Tensor, values: Tensor | None, a_log: Tensor | None, dt_bias: Tensor | None,
    kept: dict[str, Tensor], h: Tensor, r: Tensor, do: Tensor, dh: Tensor, dy: Tensor, dq: Tensor, dk: Tensor,
    dbeta: Tensor, call: Any,
) -> Tensor | None:  # fmt: skip
    """Fills dq, dk and dbeta; the gradient of the gates."""
    tile, C, BK = (call.chunks, call.value_heads), call.launch.chunk, call.launch.gradient_channels
    parts, BV = -(-call.K // BK), call.launch.gradient_columns
    dM, dQ = h.new_empty(*tile, C, C), h.new_empty(*tile, C // call.rows, C)
    along = torch.empty_like(kept["norms"]), torch.empty_like(kept["q_scales"])
    rows = tuple(kept[n] for n in ("norms", "betas", "q_scales"))
    matrix_kernel[(call.value_heads, call.chunks)](
        v, do, o, r, dy, *rows, dM, dQ, dbeta, *along, call.table, call.ends, call.scale, call.time, call.chunks_each,
        call.value_heads, **call.common(exclude="K"), BV=BV, num_warps=call.launch.matrix_warps,
    )  # fmt: skip
    dvalues = None
    if values is not None:
        sums = (*values.shape[:3], parts)  # the gradient of a scalar gate, in parts
        dvalues = torch.empty_like(values) if call.wide else values.new_empty(sums, dtype=torch.float32)
    for safe in (False, True) if call.kind else (False,):
        gradient_kernel[(parts, call.value_heads, call.chunks)](
            q, k, values, a_log, dt_bias, *rows, kept["halves"], kept["flags"], h, r, do, dh, dy, dM, dQ, *along,
            dq, dk, dvalues, call.table, call.ends, call.lower, call.time, call.chunks_each, call.heads,
            call.value_heads, **call.common(), **call.switches(), BK=BK, BV=BV, BIAS=dt_bias is not None, SAFE=safe,
            num_warps=call.launch.gradient_warps, maxnreg=None if safe else call.launch.gradient_registers,
        )  # fmt: skip
    if values is not None and dvalues is not None and not call.wide:
        dvalues = dvalues.sum(3, keepdim=True).to(values.dtype)
    return dvalues
