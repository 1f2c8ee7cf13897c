"""First stage of the chunk kernels: all that a chunk needs and that does not depend on the state before it.

With D_r = Diag(signed product of the gates up to row r), M_ij = <k_i, D_i/D_j k_j> over unit keys for i > j and
T = (I + M Diag(beta))^-1, the residuals of a chunk are r = T (v - Diag(1/|k|) (D k) S), with w = Diag(beta/|k|) r its
outputs are (scale/|q|) ((D q) S + Q w) with Q_ij = <q_i, D_i/D_j k_j>, and S <- D_C S + (D_C/D k)ᵀ w. Keys and queries
stay raw in every product: no normalised key is ever rounded. M and T are float64 where their tensors are; what is kept
is T - I, so that no rounded factor stands on the diagonal.

D_i/D_j is a product of two factors anchored at the middle of the chunk, D_i/D_m and D_m/D_j, so that M is one matrix
product, and both are products of gates: no logarithm is taken. A chunk whose first or second half falls too far for
that (a reset, very strong decay: below `LEAST`) is flagged, and done again by the same kernel with SAFE, which takes
the exponents of every pair of rows, all of them at most 0.

Main definitions: `prepare`, `prepare_kernel`, `solve_kernel`, `pair_products`.

References: CKDA, chunkwise form; DeltaProduct for several factors a token.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false, reportAssignmentType=false

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .chunk_tiles import (
    LEAST,
    TINY,
    anchored,
    chunk_alphas,
    chunk_gates,
    factor_rows,
    in_order,
    interleaved,
    inverse,
    inverse_norms,
    last_in_tile,
    last_of,
    load_columns,
    load_tile,
    negate_where,
    pick_packed,
    pick_row,
    place,
    reciprocal,
    store_tile,
)


@triton.jit
def pair_products(left, left_gates, left_rows, right, right_gates, rows, C: tl.constexpr, SUM: tl.constexpr):
    """sum_k left_ik right_jk D_i/D_j over the rows j that are not after i, with every exponent at most 0."""
    found = tl.zeros((left.shape[0], C), SUM)
    for j in range(C):
        depth = pick_packed(right_gates, rows, j)
        fall = tl.exp2(tl.minimum(tl.abs(depth)[None, :] - tl.abs(left_gates), 0.0))
        fallen = negate_where(negate_where(left * fall, left_gates), depth[None, :])
        column = tl.sum(fallen.to(SUM) * pick_row(right, rows, j).to(SUM), 1)
        found = tl.where((rows[None, :] == j) & (left_rows[:, None] >= j), column[:, None], found)
    return found


@triton.jit
def paired(
    gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, kr, qr, C: tl.constexpr,
    P: tl.constexpr, SUM: tl.constexpr, WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr,
    BIAS: tl.constexpr,
):  # fmt: skip
    """D k, D_C/D k, D q, D_C, M and Q of some channels, from packed gates: with every exponent at most 0."""
    rows = tl.arange(0, C)
    g = chunk_gates(gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, WIDTH, KIND, EACH, BIAS)
    gq = last_of(g, C, P)
    packed = pick_packed(g, rows, C - 1)
    M = pair_products(kr, g, rows, kr, g, rows, C, SUM)
    Q = pair_products(qr, gq, tl.arange(0, C // P) * P + P - 1, kr, g, rows, C, tl.float32)
    ks = negate_where(kr, g)
    behind = negate_where(ks * tl.exp2(tl.abs(g) - tl.abs(packed)[None, :]), packed[None, :])
    asked = negate_where(qr, gq) * tl.exp2(-tl.abs(gq))
    return ks * tl.exp2(-tl.abs(g)), behind, asked, negate_where(tl.exp2(-tl.abs(packed)), packed), M, Q


@triton.jit
def prepare_kernel(
    q, k, gate, a_log, dt_bias, kd, kt, qt, aqk, pairs, decay, halves, norms, q_scales, flags, table, ends,
    scale, lower, T, CHUNKS, H, HV, K: tl.constexpr,
    N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BK: tl.constexpr,
    WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr, NORM_K: tl.constexpr,
    NORM_Q: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr, SAFE: tl.constexpr, RUN: tl.constexpr,
):  # fmt: skip
    """D k, D_C/D k, D q and Q, all of raw keys and queries, M of unit keys, D_C, and the rows' 1/|k| and scale/|q|."""
    head = tl.program_id(0)
    chunk = tl.program_id(1)
    tile = chunk.to(tl.int64) * HV + head
    if SAFE:
        if tl.load(flags + tile) == 0:
            return
    CQ: tl.constexpr = C // P
    first, start, length = place(table, ends, chunk, T, CHUNKS, CQ, VARLEN)
    R: tl.constexpr = 1 if SAFE else RUN
    rows = interleaved(C, R)
    q_tokens = interleaved(CQ, R // P if R > P else 1)
    at, tokens, real, factor = factor_rows(start, length, N, C, P, rows)
    q_real = start + q_tokens < length
    q_rows = q_tokens * P + P - 1
    QUICK: tl.constexpr = PRECISION == "tf32"
    seen = first + start
    k += seen * N * H * K
    q += seen * H * K
    if KIND > 0:
        gate += seen * (N if EACH else 1) * HV * (K if WIDTH else 1)
    key_head = head // (HV // H)
    DT: tl.constexpr = kd.dtype.element_ty
    WIDE: tl.constexpr = pairs.dtype.element_ty == tl.float64
    FACTOR: tl.constexpr = tl.float64 if WIDE else DT
    SUM: tl.constexpr = tl.float64 if WIDE else tl.float32
    M = tl.zeros((C, C), SUM)
    Q = tl.zeros((CQ, C), tl.float32)
    k_square = tl.zeros((C,), SUM)
    q_square = tl.zeros((CQ,), tl.float32)
    least = 1.0
    for n in tl.static_range((K + BK - 1) // BK):
        cols = n * BK + tl.arange(0, BK)
        kr = load_columns(k, at, real, key_head, H, K, cols)
        qr = load_columns(q, q_tokens, q_real, key_head, H, K, cols)
        k_square += tl.sum(kr.to(SUM) * kr.to(SUM), 1)
        q_square += tl.sum(qr * qr, 1)
        if SAFE:
            ahead, behind, asked, end, pairs_here, asked_here = paired(
                gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, kr, qr, C, P, SUM,
                WIDTH, KIND, EACH, BIAS,
            )  # fmt: skip
            M += pairs_here
            Q += asked_here
        else:
            alpha = chunk_alphas(
                gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, lower, cols, C,
                WIDTH, KIND, EACH, BIAS, QUICK,
            )  # fmt: skip
            fall, start_to_middle, middle_to_end = anchored(alpha, C, R, QUICK)
            seat = halves + tile * 2 * K + cols
            tl.store(seat, start_to_middle, mask=cols < K)
            tl.store(seat + K, middle_to_end, mask=cols < K)
            depths = tl.minimum(tl.abs(start_to_middle), tl.abs(middle_to_end))
            least = tl.minimum(least, tl.min(depths, 0))
            end = start_to_middle * middle_to_end
            ahead = kr * fall
            asked = qr * last_in_tile(fall, C, P, R)
            behind = kr * reciprocal(fall, QUICK)
            left = ahead.to(FACTOR)
            right = behind.to(FACTOR)
            below = behind.to(DT)
            above = asked.to(DT)
            ahead *= start_to_middle[None, :]
            behind *= middle_to_end[None, :]
            asked *= start_to_middle[None, :]
        tl.store(decay + tile * K + cols, end, mask=cols < K)
        store_tile(kd, ahead, tile, C, K, BK, n * BK, rows)
        store_tile(kt, behind, tile, C, K, BK, n * BK, rows)
        store_tile(qt, asked, tile, CQ, K, BK, n * BK, q_tokens)
        if not SAFE:
            M = tl.dot(left, tl.trans(right), M, input_precision=PRECISION, out_dtype=SUM)
            Q = tl.dot(above, tl.trans(below), Q, input_precision=PRECISION)
    if not SAFE:
        tl.store(flags + tile, 1 - (least >= LEAST).to(tl.int32))
    norm = inverse_norms(k_square, NORM_K)
    tl.store(norms + tile * C + rows, norm)
    tl.store(q_scales + tile * CQ + q_tokens, inverse_norms(q_square, NORM_Q) * scale)
    Q = tl.where(q_rows[:, None] >= rows[None, :], Q, 0.0)
    store_tile(aqk, in_order(Q, C, R), tile, CQ, C, C, 0, q_tokens)
    M = tl.where(rows[:, None] > rows[None, :], M * norm[:, None] * norm[None, :], 0.0)
    store_tile(pairs, in_order(M, C, R), tile, C, C, C, 0, rows)


@triton.jit
def block(x, tile, i, j, B: tl.constexpr, C: tl.constexpr):
    """Block (i, j) of B rows and columns of a matrix [C, C]."""
    return load_tile(x, tile, C, C, B, j * B, i * B + tl.arange(0, B))


@triton.jit
def inverse_block(pairs, betas, tile, i, B: tl.constexpr, C: tl.constexpr, SUM: tl.constexpr, PRECISION: tl.constexpr):
    """The inverse of the diagonal block i of I + M Diag(beta), B rows and columns of it."""
    A = block(pairs, tile, i, i, B, C).to(SUM) * tl.load(betas + tile * C + i * B + tl.arange(0, B))[None, :]
    blocks = i * B + tl.arange(0, B // 16)[:, None, None] * 16
    across = blocks + tl.arange(0, 16)[None, None, :]
    near = tl.load(pairs + tile * C * C + (blocks + tl.arange(0, 16)[None, :, None]) * C + across).to(SUM)
    near *= tl.load(betas + tile * C + across)
    return inverse(A, near, B, PRECISION)


@triton.jit
def solve_kernel(
    pairs, beta, tinv, betas, table, ends, T, CHUNKS, HV, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """(I + M Diag(beta))^-1 - I of every chunk, and beta as it is used: TINY at least, so that it has a gradient."""
    head = tl.program_id(0)
    chunk = tl.program_id(1)
    tile = chunk.to(tl.int64) * HV + head
    first, start, length = place(table, ends, chunk, T, CHUNKS, C // P, VARLEN)
    at, _, real, _ = factor_rows(start, length, N, C, P)
    rows = tl.arange(0, C)
    b = tl.load(beta + (first + start) * N * HV + at * HV + head, mask=real, other=0.0).to(tl.float32)
    b = tl.where(tl.abs(b) < TINY, TINY, b)
    tl.store(betas + tile * C + rows, b)
    tl.debug_barrier()
    SUM: tl.constexpr = tl.float64 if pairs.dtype.element_ty == tl.float64 else tl.float32
    B: tl.constexpr = C if C < 64 else 64
    for i in tl.static_range(C // B):
        own = inverse_block(pairs, betas, tile, i, B, C, SUM, PRECISION)
        for j in tl.static_range(C // B):
            if i > j:
                # Chunks have 128 rows at most, so nothing stands between the two blocks.
                b = tl.load(betas + tile * C + j * B + tl.arange(0, B))
                A = block(pairs, tile, i, j, B, C).to(SUM) * b[None, :]
                above = inverse_block(pairs, betas, tile, j, B, C, SUM, PRECISION)
                below = tl.dot(A, above, input_precision=PRECISION, out_dtype=SUM)
                X = -tl.dot(own, below, input_precision=PRECISION, out_dtype=SUM)
            elif i == j:
                diagonal = tl.arange(0, B)[:, None] == tl.arange(0, B)[None, :]
                X = own - tl.where(diagonal, 1.0, 0.0).to(SUM)
            else:
                X = tl.zeros((B, B), SUM)
            store_tile(tinv, X, tile, C, C, B, j * B, i * B + tl.arange(0, B))


def prepare(
    q: Tensor, k: Tensor, values: Tensor | None, a_log: Tensor | None, dt_bias: Tensor | None, call: Any,
    held: torch.dtype,
) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
    """What the later stages read, and M of unit keys."""
    C, rows = call.launch.chunk, call.rows

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(call.chunks, call.value_heads, *shape, dtype=dtype, device=q.device)

    kept = {
        "kd": new(C, call.K, dtype=held),
        "kt": new(C, call.K, dtype=held),
        "qt": new(C // rows, call.K, dtype=held),
        "aqk": new(C // rows, C, dtype=held),
        "norms": new(C),
        "q_scales": new(C // rows),
        "decay": new(call.K),
        "halves": new(2, call.K),
        "flags": new(dtype=torch.int32),
    }
    pairs = new(C, C, dtype=call.pairs_type(held))
    # Rows of a tile that one thread holds, 16 bytes of a row at a time; a token's rows are in one thread.
    run = C * call.launch.prepare_channels * q.element_size() // (16 * 32 * call.launch.prepare_warps)
    run = min(max(run, rows, 2), C // 2)
    for safe in (False, True) if call.kind else (False,):
        prepare_kernel[(call.value_heads, call.chunks)](
            q, k, values, a_log, dt_bias, *(kept[n] for n in ("kd", "kt", "qt", "aqk")), pairs,
            *(kept[n] for n in ("decay", "halves", "norms", "q_scales", "flags")), call.table, call.ends, call.scale,
            call.lower, call.time, call.chunks_each, call.heads, call.value_heads, **call.common(exclude="V"),
            **call.switches(), BK=call.launch.prepare_channels, BIAS=dt_bias is not None, SAFE=safe, RUN=run,
            num_warps=call.launch.prepare_warps, maxnreg=None if safe else call.launch.prepare_registers,
        )  # fmt: skip
    return kept, pairs
