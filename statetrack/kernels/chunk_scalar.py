"""The stages of the chunk kernels that differ where a row has one gate for all channels, or none.

The product of gates D_i is a number then: M_ij = <k_i, k_j> D_i/D_j is the plain product of keys times a ratio, and
D k, D_C/D k and D q are rows of numbers times raw keys and queries, applied in float32 after the products. No tile of
scaled keys is written, no exponential is taken for a channel, and no chunk needs a second pass: every exponent is that
of D_i/D_j with i >= j, so it is at most 0, and exact resets are gates like others.

-log2|D| of a row is kept as two float32 numbers, a multiple `far` of 2^-10 and a rest `near` in units of 2^-28 with
the sign of D in its sign bit (both units for chunks of 64 rows). Sums and differences of either are exact, so D_i/D_j
is right to float32's last bits however much has decayed before.

Gradients. With E the gradient of <k_i, k_j> for i > j, what goes through D_i/D_j is X = E * <k_i, k_j>, and
d log|alpha| of row t takes the pairs i >= t > j of X, all of which have the factor alpha: with a triangle of ones, a
product sums over i, and a masked sum over j. The other parts are sums of rows' products before t and from t on. No term
that lacks the factor is added and taken away again, so the gradient at a reset is 0 and at small gates has its digits.

Main definitions: `prepare`, `gradients`.

References: gated DeltaNet and DeltaProduct, chunkwise form.
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
    factor_rows,
    gate_slope,
    inverse_norms,
    load_raw,
    load_tile,
    negate_where,
    packed_gate,
    place,
    raw_gates,
    store_columns,
    store_tile,
)


@triton.jit
def cumulate_rows(packed, C: tl.constexpr):
    """Packed gates [C] from the first row up to each row, as (far, near)."""
    whole: tl.constexpr = 65536 // C
    parts: tl.constexpr = 16777216 // C
    units = tl.abs(packed) * whole
    far = tl.floor(units)
    near = ((units - far) * parts + 0.5).to(tl.int32) | (packed.to(tl.int32, bitcast=True) & -2147483648)
    far = tl.cumsum(far.to(tl.int32), 0).to(tl.float32) * (1.0 / whole)
    near = tl.cumsum(near, 0)
    return far, negate_where((near & 2147483647).to(tl.float32) * (1.0 / whole / parts), near)


@triton.jit
def ratio(far, near, far_before, near_before):
    """D_i/D_j of row i over an earlier row j; where j is later the result has no meaning but is finite."""
    depth = (far_before - far) + (tl.abs(near_before) - tl.abs(near))
    return negate_where(negate_where(tl.exp2(tl.minimum(depth, 0.0)), near), near_before)


@triton.jit
def pick(x, rows, r):
    """The number of row r, minus zero with its sign."""
    return tl.sum(tl.where(rows == r, x.to(tl.int32, bitcast=True), 0), 0).to(tl.float32, bitcast=True)


@triton.jit
def last_numbers(x, C: tl.constexpr, P: tl.constexpr):
    """The numbers of every token's last row, [C/P], minus zero with its sign."""
    if P == 1:
        return x
    bits = tl.reshape(x.to(tl.int32, bitcast=True), (C // P, P))
    return tl.sum(tl.where(tl.arange(0, P)[None, :] == P - 1, bits, 0), 1).to(tl.float32, bitcast=True)


@triton.jit
def to_last(x, C: tl.constexpr, P: tl.constexpr):
    """The numbers [C/P] in every token's last row, 0 in its other rows."""
    if P == 1:
        return x
    return tl.reshape(tl.where(tl.arange(0, P)[None, :] == P - 1, x[:, None], 0.0), (C,))


@triton.jit
def row_prepare_kernel(
    q, k, gate, a_log, dt_bias, aqk, pairs, depths, falls, rises, norms, q_scales, table, ends, scale, lower, T,
    CHUNKS, H, HV, K: tl.constexpr, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BK: tl.constexpr,
    KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr, NORM_K: tl.constexpr, NORM_Q: tl.constexpr,
    VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Q of raw keys and queries, M of unit keys, the rows' (far, near), D, D_C/D, 1/|k| and scale/|q|."""
    head = tl.program_id(0)
    chunk = tl.program_id(1)
    tile = chunk.to(tl.int64) * HV + head
    CQ: tl.constexpr = C // P
    DT: tl.constexpr = aqk.dtype.element_ty
    first, start, length = place(table, ends, chunk, T, CHUNKS, CQ, VARLEN)
    at, tokens, real, factor = factor_rows(start, length, N, C, P)
    seen = first + start
    key_head = head // (HV // H)
    rows = tl.arange(0, C)
    q_at = tl.arange(0, CQ)
    q_real = start + q_at < length
    q_rows = q_at * P + P - 1
    SUM: tl.constexpr = tl.float64 if pairs.dtype.element_ty == tl.float64 else tl.float32
    FACTOR: tl.constexpr = tl.float64 if pairs.dtype.element_ty == tl.float64 else DT
    M = tl.zeros((C, C), SUM)
    Q = tl.zeros((C, CQ), tl.float32)  # transposed: the row of a key, the column of a query
    k_square = tl.zeros((C,), SUM)
    q_square = tl.zeros((CQ,), tl.float32)
    for n in tl.static_range((K + BK - 1) // BK):
        keys = load_raw(k + seen * N * H * K, at, real, key_head, H, K, BK, n * BK).to(DT)
        asked = load_raw(q + seen * H * K, q_at, q_real, key_head, H, K, BK, n * BK).to(DT)
        factors = keys.to(FACTOR)
        M = tl.dot(factors, tl.trans(factors), M, input_precision=PRECISION, out_dtype=SUM)
        Q = tl.dot(keys, tl.trans(asked), Q, input_precision=PRECISION)
        wide = keys.to(SUM)
        k_square += tl.sum(wide * wide, 1)
        wide = asked.to(tl.float32)
        q_square += tl.sum(wide * wide, 1)
    norm = inverse_norms(k_square, NORM_K)
    M *= norm[:, None] * norm[None, :]
    if KIND > 0:
        gate += seen * (N if EACH else 1) * HV
        x, gated, rate = raw_gates(
            gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, rows, False, KIND, EACH, BIAS
        )
        far, near = cumulate_rows(tl.where(gated, packed_gate(x, rate, lower, KIND), 0.0), C)
        far_end, near_end = pick(far, rows, C - 1), pick(near, rows, C - 1)
        M *= ratio(far[:, None], near[:, None], far[None, :], near[None, :])
        far_q, near_q = last_numbers(far, C, P), last_numbers(near, C, P)
        Q *= ratio(far_q[None, :], near_q[None, :], far[:, None], near[:, None])
        tl.store(depths + tile * 2 * C + rows, far)
        tl.store(depths + tile * 2 * C + C + rows, near)
        tl.store(falls + tile * C + rows, negate_where(tl.exp2(-far - tl.abs(near)), near))
        tl.store(rises + tile * C + rows, ratio(far_end, near_end, far, near))
    tl.store(norms + tile * C + rows, norm)
    tl.store(q_scales + tile * CQ + q_at, inverse_norms(q_square, NORM_Q) * scale)
    store_tile(aqk, tl.where(q_rows[None, :] >= rows[:, None], Q, 0.0), tile, C, CQ, CQ)
    store_tile(pairs, tl.where(rows[:, None] > rows[None, :], M, 0.0), tile, C, C, C)


@triton.jit
def row_matrix_kernel(
    q, k, depths, norms, betas, q_scales, r, do, dy, dM, dQ, dbeta, slopes, table, ends, T, CHUNKS, H, HV,
    K: tl.constexpr, V: tl.constexpr, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, KIND: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradients of <k_i, k_j> and <q_i, k_j> times -1, that of beta, and the part of X in that of log|alpha|."""
    head = tl.program_id(0)
    chunk = tl.program_id(1)
    tile = chunk.to(tl.int64) * HV + head
    CQ: tl.constexpr = C // P
    DT: tl.constexpr = r.dtype.element_ty
    first, start, length = place(table, ends, chunk, T, CHUNKS, CQ, VARLEN)
    at, _, real, _ = factor_rows(start, length, N, C, P)
    q_at = tl.arange(0, CQ)
    q_rows = q_at * P + P - 1
    q_real = start + q_at < length
    seen = first + start
    rows = tl.arange(0, C)
    pairs = tl.zeros((C, C), tl.float32)
    asked = tl.zeros((C, CQ), tl.float32)  # transposed, as Q is
    for n in tl.static_range((V + BV - 1) // BV):
        left = load_tile(r, tile, C, V, BV, n * BV)
        y = load_raw(dy + seen * N * HV * V, at, real, head, HV, V, BV, n * BV).to(DT)
        pairs = tl.dot(y, tl.trans(left), pairs, input_precision=PRECISION)
        out = load_raw(do + seen * HV * V, q_at, q_real, head, HV, V, BV, n * BV).to(DT)
        asked = tl.dot(left, tl.trans(out), asked, input_precision=PRECISION)
    norm = tl.load(norms + tile * C + rows)
    b = tl.load(betas + tile * C + rows)
    q_scale = tl.load(q_scales + tile * CQ + q_at)
    over_r = tl.sum(tl.where(rows[:, None] == rows[None, :], pairs, 0.0), 1)
    tl.store(dbeta + seen * N * HV + at * HV + head, (over_r / b).to(dbeta.dtype.element_ty), mask=real)
    pairs = tl.where(rows[:, None] > rows[None, :], pairs * norm[:, None] * (b * norm)[None, :], 0.0)
    asked = tl.where(q_rows[None, :] >= rows[:, None], asked * -q_scale[None, :] * (b * norm)[:, None], 0.0)
    if KIND > 0:
        near_at = depths + tile * 2 * C + C
        far, near = tl.load(near_at - C + rows), tl.load(near_at + rows)
        far_q, near_q = tl.load(near_at - C + q_rows), tl.load(near_at + q_rows)
        pairs *= ratio(far[:, None], near[:, None], far[None, :], near[None, :])
        asked *= ratio(far_q[None, :], near_q[None, :], far[:, None], near[:, None])
    store_tile(dM, pairs, tile, C, C, C)
    store_tile(dQ, asked, tile, C, CQ, CQ)
    if KIND > 0:
        over_k = tl.zeros((C, C), tl.float32)
        over_q = tl.zeros((C, CQ), tl.float32)
        key_head = head // (HV // H)
        for n in tl.static_range((K + BK - 1) // BK):
            keys = load_raw(k + seen * N * H * K, at, real, key_head, H, K, BK, n * BK).to(DT)
            queries = load_raw(q + seen * H * K, q_at, q_real, key_head, H, K, BK, n * BK).to(DT)
            over_k = tl.dot(keys, tl.trans(keys), over_k, input_precision=PRECISION)
            over_q = tl.dot(keys, tl.trans(queries), over_q, input_precision=PRECISION)
        over_k = (over_k * pairs).to(DT)
        over_q = (over_q * asked).to(DT)
        sooner = rows[:, None] > rows[None, :]
        later = tl.where(sooner, 0.0, 1.0).to(DT)
        over_k = tl.where(sooner, tl.dot(later, over_k, input_precision=PRECISION), 0.0)
        over_q = tl.dot(tl.where(sooner, 1.0, 0.0).to(DT), over_q, input_precision=PRECISION)
        over_q = tl.where(q_rows[None, :] >= rows[:, None], over_q, 0.0)
        tl.store(slopes + tile * C + rows, -tl.sum(over_k, 1) - tl.sum(over_q, 1))


@triton.jit
def load_block(x, at, real, stride, cols, WIDTH: tl.constexpr):
    """Columns of the rows `at` of x, whose rows are `stride` apart."""
    return tl.load(x + at[:, None] * stride + cols[None, :], mask=real[:, None] & (cols < WIDTH)[None, :], other=0.0)


@triton.jit
def row_gradient_kernel(
    q, k, gate, a_log, dt_bias, norms, betas, q_scales, falls, rises, slopes, h, r, do, dh, dy, dM, dQ, dq, dk, dgate,
    table, ends, lower, T, CHUNKS, H, HV, K: tl.constexpr, V: tl.constexpr, N: tl.constexpr, P: tl.constexpr,
    C: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr,
    NORM_K: tl.constexpr, NORM_Q: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """dq, dk and dgate of a chunk, all channels at once."""
    head = tl.program_id(0)
    chunk = tl.program_id(1)
    tile = chunk.to(tl.int64) * HV + head
    CQ: tl.constexpr = C // P
    DT: tl.constexpr = h.dtype.element_ty
    first, start, length = place(table, ends, chunk, T, CHUNKS, CQ, VARLEN)
    at, tokens, real, factor = factor_rows(start, length, N, C, P)
    q_at = tl.arange(0, CQ)
    q_real = start + q_at < length
    seen = first + start
    rows = tl.arange(0, C)
    cols = tl.arange(0, BK)
    key_head = head // (HV // H)
    keys = load_raw(k + seen * N * H * K, at, real, key_head, H, K, BK).to(DT)
    queries = load_raw(q + seen * H * K, q_at, q_real, key_head, H, K, BK).to(DT)
    over_q = tl.zeros((BK, CQ), tl.float32)  # transposed
    over_k = tl.zeros((C, BK), tl.float32)
    for n in tl.range(0, (V + BV - 1) // BV, num_stages=STAGES):
        vs = n * BV + tl.arange(0, BV)
        S = load_block(h + tile * K * V, cols, cols < K, V, vs, V)
        out = load_block(do + (seen * HV + head) * V, q_at, q_real, HV * V, vs, V).to(DT)
        y = load_block(dy + (seen * N * HV + head) * V, at, real, HV * V, vs, V).to(DT)
        over_q = tl.dot(S, tl.trans(out), over_q, input_precision=PRECISION)
        over_k = tl.dot(y, tl.trans(S), over_k, input_precision=PRECISION)
    norm = tl.load(norms + tile * C + rows)
    q_scale = tl.load(q_scales + tile * CQ + q_at)
    back = norm
    if KIND > 0:
        q_scale *= tl.load(falls + tile * C + q_at * P + P - 1)
        back *= tl.load(falls + tile * C + rows)
    over_q *= q_scale[None, :]
    over_k *= back[:, None]
    if KIND > 0:
        later = to_last(tl.sum(over_q * tl.trans(queries).to(tl.float32), 0), C, P)
        later -= tl.sum(over_k * keys.to(tl.float32), 1)
    matrix = load_tile(dQ, tile, C, CQ, CQ)
    over_q -= tl.dot(tl.trans(keys), matrix, input_precision=PRECISION)
    if NORM_Q:
        wide = tl.trans(queries).to(tl.float32)
        square = tl.sum(wide * wide, 0)
        over_q -= wide * (tl.sum(wide * over_q, 0) / tl.where(square > 0, square, 1.0))[None, :]
    spot = dq + (seen * HV + head) * K + cols[:, None] + (q_at * HV * K)[None, :]
    tl.store(spot, over_q.to(dq.dtype.element_ty), mask=(cols < K)[:, None] & q_real[None, :])
    over_r = tl.zeros((C, BK), tl.float32)
    over_end = tl.zeros((BK,), tl.float32)
    for n in tl.range(0, (V + BV - 1) // BV, num_stages=STAGES):
        vs = n * BV + tl.arange(0, BV)
        dS = load_block(dh + tile * K * V, cols, cols < K, V, vs, V)
        left = load_block(r + tile * C * V, rows, rows < C, V, vs, V)
        over_r = tl.dot(left, tl.trans(dS), over_r, input_precision=PRECISION)
        if KIND > 0:
            S = load_block(h + tile * K * V, cols, cols < K, V, vs, V)
            over_end += tl.sum(S.to(tl.float32) * dS.to(tl.float32), 1)
    bn = tl.load(betas + tile * C + rows) * norm
    if KIND > 0:
        bn *= tl.load(rises + tile * C + rows)
    over_r *= bn[:, None]
    if KIND > 0:
        sooner = tl.sum(over_r * keys.to(tl.float32), 1)
        dx = tl.load(slopes + tile * C + rows) + tl.cumsum(later, 0, reverse=True) + (tl.cumsum(sooner, 0) - sooner)
        dx += tl.sum(over_end, 0) * tl.load(falls + tile * C + C - 1)
        gate += seen * (N if EACH else 1) * HV
        x, gated, rate = raw_gates(
            gate, a_log, dt_bias, at, tokens, real, factor, head, HV, K, rows, False, KIND, EACH, BIAS
        )
        seat = dgate + seen * (N if EACH else 1) * HV + (at if EACH else tokens) * HV + head
        tl.store(
            seat, (dx * gate_slope(x, rate, lower, KIND, PRECISION == "tf32")).to(dgate.dtype.element_ty), mask=gated
        )
    over_r -= over_k
    over_r -= tl.dot(matrix, queries, input_precision=PRECISION)
    matrix = load_tile(dM, tile, C, C, C)
    over_r -= tl.dot(matrix, keys, input_precision=PRECISION)
    over_r -= tl.dot(tl.trans(matrix), keys, input_precision=PRECISION)
    if NORM_K:
        wide = keys.to(tl.float32)
        along = tl.sum(wide * over_r, 1) * norm * norm
        over_r -= wide * along[:, None]
    store_columns(dk + seen * N * HV * K, over_r, at, real, head, HV, K, cols)


def prepare(
    q: Tensor, k: Tensor, values: Tensor | None, a_log: Tensor | None, dt_bias: Tensor | None, call: Any,
    held: torch.dtype,
) -> tuple[dict[str, Tensor], Tensor]:  # fmt: skip
    """What the later stages of a call (`chunk_triton`) read, and M of unit keys."""
    C, rows = call.launch.chunk, call.rows

    def new(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.empty(call.chunks, call.value_heads, *shape, dtype=dtype, device=q.device)

    kept = {"q": q, "k": k, "aqk": new(C, C // rows, dtype=held), "norms": new(C), "q_scales": new(C // rows)}
    if call.kind:
        kept |= {"depths": new(2, C), "falls": new(C), "rises": new(C)}
    pairs = new(C, C, dtype=call.pairs_type(held))
    row_prepare_kernel[(call.value_heads, call.chunks)](
        q, k, values, a_log, dt_bias, kept["aqk"], pairs, *(kept.get(n) for n in ("depths", "falls", "rises")),
        kept["norms"], kept["q_scales"], call.table, call.ends, call.scale, call.lower, call.time, call.chunks_each,
        call.heads, call.value_heads, **call.common(exclude="V"), **call.switches(exclude="WIDTH"),
        BK=call.launch.prepare_channels, BIAS=dt_bias is not None, num_warps=call.launch.prepare_warps,
    )  # fmt: skip
    return kept, pairs


def gradients(
    values: Tensor | None, a_log: Tensor | None, dt_bias: Tensor | None, kept: dict[str, Tensor], h: Tensor, r: Tensor,
    do: Tensor, dh: Tensor, dy: Tensor, dq: Tensor, dk: Tensor, dbeta: Tensor, call: Any, block: int,
) -> Tensor | None:  # fmt: skip
    """Fills dq, dk and dbeta; the gradient of the gates. `block` is the number of channels or the next power of two."""
    tile, C, launch = (call.chunks, call.value_heads), call.launch.chunk, call.launch
    q, k = kept["q"], kept["k"]
    dM, dQ = h.new_empty(*tile, C, C), h.new_empty(*tile, C, C // call.rows)
    slopes = torch.empty_like(kept["norms"]) if call.kind else None
    rows = tuple(kept[n] for n in ("norms", "betas", "q_scales"))
    sizes = {"BK": block, "BV": launch.gradient_columns}
    row_matrix_kernel[(call.value_heads, call.chunks)](
        q, k, kept.get("depths"), *rows, r, do, dy, dM, dQ, dbeta, slopes, call.table, call.ends, call.time,
        call.chunks_each, call.heads, call.value_heads, **call.common(), KIND=call.kind,
        BK=launch.prepare_channels, BV=launch.gradient_columns, num_warps=launch.matrix_warps,
    )  # fmt: skip
    dvalues = None if values is None else torch.empty_like(values)
    row_gradient_kernel[(call.value_heads, call.chunks)](
        q, k, values, a_log, dt_bias, *rows, kept.get("falls"), kept.get("rises"), slopes, h, r, do, dh, dy, dM, dQ,
        dq, dk, dvalues, call.table, call.ends, call.lower, call.time, call.chunks_each, call.heads, call.value_heads,
        **call.common(), **call.switches(exclude="WIDTH"), **sizes, BIAS=dt_bias is not None,
        STAGES=launch.gradient_stages, num_warps=launch.gradient_warps, maxnreg=launch.gradient_registers,
    )  # fmt: skip
    return dvalues
