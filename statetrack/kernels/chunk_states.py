"""Second stage of the chunk kernels: the state goes from chunk to chunk, forwards, and its gradient backwards.

A program holds BV columns of one head's state of one sequence in registers, in float32. With SCALAR (one gate a row,
or none) there are no tiles of scaled keys and queries: raw ones are read, and the products' rows take the scales.

Main definitions: `forward_kernel`, `backward_kernel`.

References: CKDA, chunkwise form.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import triton
import triton.language as tl

from .chunk_tiles import factor_rows, load_raw, load_tile


@triton.jit
def span_of(bounds, ends, sequence, T, CHUNKS, VARLEN: tl.constexpr):
    """A sequence's first chunk, number of chunks, first token (int64) and length."""
    if VARLEN:
        chunk = tl.load(bounds + sequence)
        count = tl.load(bounds + sequence + 1) - chunk
        first = tl.load(ends + sequence).to(tl.int64)
        length = (tl.load(ends + sequence + 1) - first).to(tl.int32)
    else:
        chunk = sequence * CHUNKS
        count = CHUNKS
        first = sequence.to(tl.int64) * T
        length = T
    return chunk, count, first, length


# A number of chunks that is 1 would be a constant, and the loop would go: from what is left, ptxas 12.8 makes code that
# reads a register which nothing writes (benchmarks/undefined_registers.py).
@triton.jit(do_not_specialize=["CHUNKS"])
def forward_kernel(
    kd, kt, qt, aqk, tinv, norms, betas, q_scales, decay, q, k, falls, rises, v, h, r, o, s0, s1, bounds, ends, T,
    CHUNKS, H, HV, K: tl.constexpr, V: tl.constexpr, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, SCALAR: tl.constexpr, GATED: tl.constexpr, START: tl.constexpr,
    FINAL: tl.constexpr, VARLEN: tl.constexpr, TRAIN: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """o and the last state; with TRAIN also the state before each chunk (h) and the residuals r."""
    column = tl.program_id(0) * BV
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    chunk, count, first, length = span_of(bounds, ends, sequence, T, CHUNKS, VARLEN)
    CQ: tl.constexpr = C // P
    ks = tl.arange(0, BK)
    vs = column + tl.arange(0, BV)
    inside = (ks < K)[:, None] & (vs < V)[None, :]
    rows = tl.arange(0, C)
    DT: tl.constexpr = aqk.dtype.element_ty
    TT: tl.constexpr = tinv.dtype.element_ty
    key_head = head // (HV // H)
    held = (sequence * HV + head).to(tl.int64) * K * V + ks[:, None] * V + vs[None, :]
    if START:
        S = tl.load(s0 + held, mask=inside, other=0.0).to(tl.float32)
    else:
        S = tl.zeros((BK, BV), tl.float32)
    for i in tl.range(0, count, num_stages=STAGES):
        tile = (chunk + i).to(tl.int64) * HV + head
        at, _, real, _ = factor_rows(i * CQ, length, N, C, P)
        seen = first + i * CQ
        norm = tl.load(norms + tile * C + rows)
        b = tl.load(betas + tile * C + rows)
        Sd = S.to(DT)
        if TRAIN:
            tl.store(h + tile * K * V + ks[:, None] * V + vs[None, :], Sd, mask=inside)
        if SCALAR:
            keys = load_raw(k + seen * N * H * K, at, real, key_head, H, K, BK).to(DT)
            known = tl.dot(keys, Sd, input_precision=PRECISION)
            if GATED:
                known *= tl.load(falls + tile * C + rows)[:, None]
        else:
            known = tl.dot(load_tile(kd, tile, C, K, BK), Sd, input_precision=PRECISION)
        spot = v + seen * N * HV * V + (at * HV + head)[:, None] * V + vs[None, :]
        value = tl.load(spot, mask=real[:, None] & (vs < V)[None, :], other=0.0).to(tl.float32)
        left = value - known * norm[:, None]
        earlier = tl.dot(load_tile(tinv, tile, C, C, C), left.to(TT), input_precision=PRECISION)
        left = (left.to(earlier.dtype) + earlier).to(tl.float32)
        if TRAIN:
            seat = r + tile * C * V + rows[:, None] * V + vs[None, :]
            tl.store(seat, left.to(DT), mask=(vs < V)[None, :])
        write = left * (b * norm)[:, None]
        wd = write.to(DT)
        token = tl.arange(0, CQ)
        if SCALAR:
            queries = load_raw(q + seen * H * K, token, i * CQ + token < length, key_head, H, K, BK).to(DT)
            out = tl.dot(queries, Sd, input_precision=PRECISION)
            if GATED:
                out *= tl.load(falls + tile * C + token * P + P - 1)[:, None]
            out += tl.dot(tl.trans(load_tile(aqk, tile, C, CQ, CQ)), wd, input_precision=PRECISION)
        else:
            out = tl.dot(load_tile(qt, tile, CQ, K, BK), Sd, input_precision=PRECISION)
            out += tl.dot(load_tile(aqk, tile, CQ, C, C), wd, input_precision=PRECISION)
        out *= tl.load(q_scales + tile * CQ + token)[:, None]
        seat = o + seen * HV * V + (token * HV + head)[:, None] * V + vs[None, :]
        tl.store(seat, out.to(o.dtype.element_ty), mask=(i * CQ + token < length)[:, None] & (vs < V)[None, :])
        if SCALAR:
            if GATED:
                S *= tl.load(falls + tile * C + C - 1)
                wd = (write * tl.load(rises + tile * C + rows)[:, None]).to(DT)
            S += tl.dot(tl.trans(keys), wd, input_precision=PRECISION)
        else:
            fall = tl.load(decay + tile * K + ks, mask=ks < K, other=0.0)
            S = S * fall[:, None] + tl.dot(tl.trans(load_tile(kt, tile, C, K, BK)), wd, input_precision=PRECISION)
    if FINAL:
        tl.store(s1 + held, S, mask=inside)


@triton.jit(do_not_specialize=["CHUNKS"])
def backward_kernel(
    kd, kt, qt, aqk, tinv, norms, betas, q_scales, decay, q, k, falls, rises, do, dh, dv, ds1, ds0, bounds, ends, T,
    CHUNKS, H, HV, K: tl.constexpr, V: tl.constexpr, N: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, SCALAR: tl.constexpr, GATED: tl.constexpr, START: tl.constexpr,
    FINAL: tl.constexpr, VARLEN: tl.constexpr, PRECISION: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """The gradients of the state after each chunk (dh), of v (which is that of the residuals' right side), of s0."""
    column = tl.program_id(0) * BV
    head = tl.program_id(1)
    sequence = tl.program_id(2)
    chunk, count, first, length = span_of(bounds, ends, sequence, T, CHUNKS, VARLEN)
    CQ: tl.constexpr = C // P
    ks = tl.arange(0, BK)
    vs = column + tl.arange(0, BV)
    inside = (ks < K)[:, None] & (vs < V)[None, :]
    rows = tl.arange(0, C)
    DT: tl.constexpr = aqk.dtype.element_ty
    key_head = head // (HV // H)
    held = (sequence * HV + head).to(tl.int64) * K * V + ks[:, None] * V + vs[None, :]
    if FINAL:
        dS = tl.load(ds1 + held, mask=inside, other=0.0).to(tl.float32)
    else:
        dS = tl.zeros((BK, BV), tl.float32)
    for back in tl.range(0, count, num_stages=STAGES):
        i = count - 1 - back
        tile = (chunk + i).to(tl.int64) * HV + head
        at, _, real, _ = factor_rows(i * CQ, length, N, C, P)
        seen = first + i * CQ
        norm = tl.load(norms + tile * C + rows)
        b = tl.load(betas + tile * C + rows)
        dSd = dS.to(DT)
        tl.store(dh + tile * K * V + ks[:, None] * V + vs[None, :], dSd, mask=inside)
        token = tl.arange(0, CQ)
        seat = do + seen * HV * V + (token * HV + head)[:, None] * V + vs[None, :]
        out = tl.load(seat, mask=(i * CQ + token < length)[:, None] & (vs < V)[None, :], other=0.0).to(tl.float32)
        scaled = out * tl.load(q_scales + tile * CQ + token)[:, None]
        out = scaled.to(DT)
        if SCALAR:
            keys = load_raw(k + seen * N * H * K, at, real, key_head, H, K, BK).to(DT)
            dw = tl.dot(keys, dSd, input_precision=PRECISION)
            if GATED:
                dw *= tl.load(rises + tile * C + rows)[:, None]
            dw += tl.dot(load_tile(aqk, tile, C, CQ, CQ), out, input_precision=PRECISION)
        else:
            dw = tl.dot(load_tile(kt, tile, C, K, BK), dSd, input_precision=PRECISION)
            dw += tl.dot(tl.trans(load_tile(aqk, tile, CQ, C, C)), out, input_precision=PRECISION)
        dr = dw * (b * norm)[:, None]
        dy = dr + tl.dot(tl.trans(load_tile(tinv, tile, C, C, C).to(DT)), dr.to(DT), input_precision=PRECISION)
        spot = dv + seen * N * HV * V + (at * HV + head)[:, None] * V + vs[None, :]
        tl.store(spot, dy.to(dv.dtype.element_ty), mask=real[:, None] & (vs < V)[None, :])
        if SCALAR:
            queries = load_raw(q + seen * H * K, token, i * CQ + token < length, key_head, H, K, BK).to(DT)
            if GATED:
                dS *= tl.load(falls + tile * C + C - 1)
                out = (scaled * tl.load(falls + tile * C + token * P + P - 1)[:, None]).to(DT)
                norm *= tl.load(falls + tile * C + rows)
            dS += tl.dot(tl.trans(queries), out, input_precision=PRECISION)
            dS -= tl.dot(tl.trans(keys), (dy * norm[:, None]).to(DT), input_precision=PRECISION)
        else:
            fall = tl.load(decay + tile * K + ks, mask=ks < K, other=0.0)
            dS = dS * fall[:, None]
            dS += tl.dot(tl.trans(load_tile(qt, tile, CQ, K, BK)), out, input_precision=PRECISION)
            minus = (dy * norm[:, None]).to(DT)
            dS -= tl.dot(tl.trans(load_tile(kd, tile, C, K, BK)), minus, input_precision=PRECISION)
    if START:
        tl.store(ds0 + held, dS, mask=inside)
