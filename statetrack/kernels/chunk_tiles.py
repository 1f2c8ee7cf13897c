"""What the chunk kernels share: rows of a chunk, gates in the log domain with their signs, the triangular inverse.

A chunk holds C rows. A token of n factors has P rows, P the least power of two that is n or more; rows past n, and
rows past the end of a sequence, have key zero, beta zero and gate one, so that they change nothing.

Gates are multiplied along each half of a chunk (`anchored`): that gives both the decay and the chunk-local gauge. The
SAFE kernels keep a gate as one float instead: its magnitude is -log2|alpha| >= 0, its sign bit the sign of alpha, so
that magnitudes add and signs multiply (`join`). A gate below 2^-126 counts as 2^-RESET: exp2 of that is exactly 0,
which is a reset, and nothing is infinite.

References: CKDA, the signed gate; the gauge restarts in every chunk, so sequences need no scan of signs.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import os

import torch
import triton
import triton.language as tl

# Instructions of NVIDIA's processors for what would otherwise take several; interpreted kernels have none.
NATIVE = tl.constexpr(os.environ.get("TRITON_INTERPRET", "0") != "1" and torch.version.hip is None)
RESET = tl.constexpr(150.0)
LEAST = tl.constexpr(2.0**-120)  # of the product of the gates of half a chunk: an anchored factor does not overflow
LOG2E = tl.constexpr(1.4426950408889634)
TINY = tl.constexpr(1e-20)
SHALLOWEST = tl.constexpr(6.103515625e-05)  # 2^-14
SMALLEST = tl.constexpr(1.1754943508222875e-38)  # 2^-126


@triton.jit
def negate_where(x, sign):
    """x with its sign flipped where the sign bit of `sign` is set."""
    bits = x.to(tl.int32, bitcast=True) ^ (sign.to(tl.int32, bitcast=True) & -2147483648)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def join(a, b):
    """The gate of two steps: magnitudes add, sign bits multiply."""
    return negate_where(negate_where(tl.abs(a) + tl.abs(b), a), b)


@triton.jit
def reciprocal(x, QUICK: tl.constexpr):
    """1/x; QUICK: by one instruction, within a unit in the last place, for |x| from 2^-126 to 2^126."""
    if QUICK and NATIVE:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), x)


@triton.jit
def softplus(x):
    """log(1 + e^x), without overflow."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def packed_gate(x, rate, lower, KIND: tl.constexpr):
    """-log2|alpha| with the sign of alpha in its sign bit, from alpha itself or from a pre-activation x.

    KIND 1: x is alpha. 2: tanh(x/2), floored in magnitude at e^lower. 3: exp(-rate softplus(x)).
    4: exp(lower sigmoid(rate x)).
    """
    if KIND == 1:
        size = tl.abs(x)
        depth = tl.where(size < SMALLEST, RESET, tl.maximum(-tl.log2(tl.maximum(size, SMALLEST)), 0.0))
        packed = negate_where(depth, tl.where(x < 0, -1.0, 1.0))
    elif KIND == 2:
        e = tl.exp(-tl.abs(x))
        gap = 2.0 * e / (1.0 + e)  # 1 - |alpha|; its series keeps the last bits where alpha is near one
        series = gap * (1.0 + gap * (0.5 + gap * (1.0 / 3.0 + gap * 0.25)))
        depth = tl.where(gap < 0.015625, series * LOG2E, -tl.log2(tl.maximum(1.0 - gap, SMALLEST)))
        packed = negate_where(tl.minimum(depth, -lower * LOG2E), tl.where(x < 0, -1.0, 1.0))
    elif KIND == 3:
        packed = rate * softplus(x) * LOG2E
    else:
        packed = -lower * tl.sigmoid(rate * x) * LOG2E
    return packed


@triton.jit
def gate_value(x, rate, lower, KIND: tl.constexpr, QUICK: tl.constexpr = False):
    """alpha itself; KIND as in `packed_gate`, and 0: no gate."""
    if KIND == 0:
        alpha = x * 0.0 + 1.0
    elif KIND == 1:
        alpha = tl.minimum(tl.maximum(x, -1.0), 1.0)
    elif KIND == 2:
        e = tl.exp(-tl.abs(x))
        alpha = negate_where(tl.maximum((1.0 - e) * reciprocal(1.0 + e, QUICK), tl.exp(lower)), tl.where(x < 0, x, 1.0))
    elif KIND == 3:
        alpha = tl.exp(-rate * softplus(x))
    else:
        alpha = tl.exp(lower * tl.sigmoid(rate * x))
    return alpha


@triton.jit
def gate_slope(x, rate, lower, KIND: tl.constexpr, QUICK: tl.constexpr):
    """d log|alpha| / dx of `packed_gate`; |alpha| counts as SHALLOWEST at least, for rounding is all there is below."""
    if KIND == 1:
        slope = negate_where(reciprocal(tl.maximum(tl.abs(x), SHALLOWEST), QUICK), tl.where(x < 0, -1.0, 1.0))
    elif KIND == 2:
        e = tl.exp(-tl.abs(x))
        share = reciprocal(1.0 + e, QUICK)
        size = tl.maximum((1.0 - e) * share, tl.exp(lower))
        slope = negate_where(2.0 * e * share * share * reciprocal(size, QUICK), tl.where(x < 0, -1.0, 1.0))
    elif KIND == 3:
        slope = -rate * tl.sigmoid(x)
    else:
        s = tl.sigmoid(rate * x)
        slope = lower * rate * s * (1.0 - s)
    return slope


@triton.jit
def times(a, b):
    """a b, for scans."""
    return a * b


@triton.jit
def interleaved(C: tl.constexpr, R: tl.constexpr):
    """The row that stands at each place of a tile: C / R runs of R rows, their first rows first, then their second."""
    places = tl.arange(0, C)
    return (places % (C // R)) * R + places // (C // R)


@triton.jit
def anchored(alpha, C: tl.constexpr, R: tl.constexpr, QUICK: tl.constexpr):
    """D_r / D_m for the rows of a tile of gates [C, K] in the order `interleaved`, D_m [K] and D_C / D_m [K].

    D_r is the product of the gates up to row r, m the last row of the first half, C the last one. Halves start anew,
    and runs of R rows lie in one thread where R is the number of rows it holds: what is left to scan is 1/R of it.
    A product of half a chunk below LEAST makes the result worthless, and shows in D_m or D_C / D_m.
    """
    G: tl.constexpr = C // R
    K: tl.constexpr = alpha.shape[1]
    runs = tl.associative_scan(tl.reshape(alpha, (R, G, K)), 0, times)
    run = tl.sum(tl.where(tl.arange(0, R)[:, None, None] == R - 1, runs, 0.0), 0)
    run = tl.reshape(run, (2, G // 2, K))
    upto = tl.associative_scan(run, 1, times)
    ends = tl.sum(tl.where(tl.arange(0, G // 2)[None, :, None] == G // 2 - 1, upto, 0.0), 1)
    half = tl.arange(0, 2)[:, None]
    head = tl.sum(tl.where(half == 0, ends, 0.0), 0)
    tail = tl.sum(tl.where(half == 1, ends, 0.0), 0)
    before = upto * reciprocal(run, QUICK) * tl.where(half == 0, reciprocal(head, QUICK)[None, :], 1.0)[:, None, :]
    return tl.reshape(runs * tl.reshape(before, (1, G, K)), (C, K)), head, tail


@triton.jit
def anchored_at(alpha, head, C: tl.constexpr, QUICK: tl.constexpr):
    """D_r / D_m for the rows of a tile of gates [C, K] in their order, where D_m [K] is known."""
    K: tl.constexpr = alpha.shape[1]
    fall = tl.reshape(tl.associative_scan(tl.reshape(alpha, (2, C // 2, K)), 1, times), (C, K))
    return fall * tl.where(tl.arange(0, C)[:, None] < C // 2, reciprocal(head, QUICK)[None, :], 1.0)


@triton.jit
def pick_row(tile, rows, r):
    """Row r of a tile."""
    return tl.sum(tl.where(rows[:, None] == r, tile, 0.0), 0)


@triton.jit
def pick_packed(tile, rows, r):
    """Row r of a tile of packed gates: minus zero keeps its sign."""
    bits = tl.where(rows[:, None] == r, tile.to(tl.int32, bitcast=True), 0)
    return tl.sum(bits, 0).to(tl.float32, bitcast=True)


@triton.jit
def last_of(tile, C: tl.constexpr, P: tl.constexpr):
    """The last row of every token, [C/P, K], of a tile of packed gates [C, K]."""
    if P == 1:
        kept = tile
    else:
        bits = tl.reshape(tile.to(tl.int32, bitcast=True), (C // P, P, tile.shape[1]))
        last = tl.arange(0, P)[None, :, None] == P - 1
        kept = tl.sum(tl.where(last, bits, 0), 1).to(tl.float32, bitcast=True)
    return kept


@triton.jit
def double(X, below, r, c, level: tl.constexpr, PRECISION: tl.constexpr):
    """X - X B X: the inverses of blocks of 2 << level rows from those of their halves; B is between the halves."""
    inside = ((r >> (level + 1)) == (c >> (level + 1))) & ((r >> level) > (c >> level))
    B = tl.where(inside, below, 0.0)
    return X - tl.dot(tl.dot(X, B, input_precision=PRECISION), X, input_precision=PRECISION)


@triton.jit
def inverse(A, blocks, C: tl.constexpr, PRECISION: tl.constexpr):
    """(I + A)^-1 of a strictly lower triangular A [C, C], C up to 64; `blocks` [C/16, 16, 16] are its diagonal blocks.

    With |k| = 1 and beta <= 2 every entry on the way is at most 2, since each X is a product of reflections.
    """
    i = tl.arange(0, 16)[None, :, None]
    j = tl.arange(0, 16)[None, None, :]
    X = tl.where(i == j, 1.0, tl.where((i // 2 == j // 2) & (i > j), -blocks, 0.0))
    for level in tl.static_range(1, 4):
        X = double(X, blocks, i, j, level, PRECISION)
    b = tl.arange(0, C // 16)
    X = tl.where(b[:, None, None, None] == b[None, None, :, None], X[:, :, None, :], 0.0)
    X = tl.reshape(X, (C, C))
    r = tl.arange(0, C)[:, None]
    c = tl.arange(0, C)[None, :]
    for level in tl.static_range(4, 6):
        if (2 << level) <= C:
            X = double(X, A, r, c, level, PRECISION)
    return X


@triton.jit
def place(table, ends, chunk, T, CHUNKS, TOKENS: tl.constexpr, VARLEN: tl.constexpr):
    """The first token of the chunk's sequence (int64), the chunk's first token in it, and the sequence's length."""
    if VARLEN:
        sequence = tl.load(table + 2 * chunk)
        first = tl.load(ends + sequence).to(tl.int64)
        length = (tl.load(ends + sequence + 1) - first).to(tl.int32)
        start = tl.load(table + 2 * chunk + 1) * TOKENS
    else:
        first = (chunk // CHUNKS).to(tl.int64) * T
        length = T
        start = (chunk % CHUNKS) * TOKENS
    return first, start, length


@triton.jit
def factor_rows(start, length, N: tl.constexpr, C: tl.constexpr, P: tl.constexpr, rows=None):
    """For the rows of a chunk, from its first token on: factor, token, whether it is real, number in the token.

    All C rows, or those given.
    """
    if rows is None:
        rows = tl.arange(0, C)
    token = rows // P
    number = rows % P
    return token * N + number, token, (number < N) & (start + token < length), number


@triton.jit
def load_raw(x, at, real, head, HEADS, WIDTH, BLOCK: tl.constexpr, START: tl.constexpr = 0):
    """Rows `at` of one head of x [rows, HEADS, WIDTH], in the format of x."""
    cols = START + tl.arange(0, BLOCK)
    spot = x + (at * HEADS + head)[:, None] * WIDTH + cols[None, :]
    return tl.load(spot, mask=real[:, None] & (cols < WIDTH)[None, :], other=0.0)


@triton.jit
def load_columns(x, at, real, head, HEADS, WIDTH, cols):
    """Columns `cols` of the rows `at` of one head of x [rows, HEADS, WIDTH], as float32."""
    spot = x + (at * HEADS + head)[:, None] * WIDTH + cols[None, :]
    return tl.load(spot, mask=real[:, None] & (cols < WIDTH)[None, :], other=0.0).to(tl.float32)


@triton.jit
def store_columns(x, tile, at, real, head, HEADS, WIDTH, cols):
    """The tile into columns `cols` of the rows `at`, rounded to the format of x."""
    spot = x + (at * HEADS + head)[:, None] * WIDTH + cols[None, :]
    tl.store(spot, tile.to(x.dtype.element_ty), mask=real[:, None] & (cols < WIDTH)[None, :])


@triton.jit
def load_tile(x, at, ROWS: tl.constexpr, WIDTH, BLOCK: tl.constexpr, START: tl.constexpr = 0, rows=None):
    """Tile number `at` (int64) of contiguous tiles [ROWS, WIDTH], or some rows of it."""
    if rows is None:
        rows = tl.arange(0, ROWS)
    cols = START + tl.arange(0, BLOCK)
    spot = x + at * ROWS * WIDTH + rows[:, None] * WIDTH + cols[None, :]
    return tl.load(spot, mask=(rows < ROWS)[:, None] & (cols < WIDTH)[None, :], other=0.0)


@triton.jit
def store_tile(x, tile, at, ROWS: tl.constexpr, WIDTH, BLOCK: tl.constexpr, START: tl.constexpr = 0, rows=None):
    """Tile number `at` (int64) of contiguous tiles [ROWS, WIDTH], rounded to the format of x; its rows' numbers."""
    if rows is None:
        rows = tl.arange(0, ROWS)
    cols = START + tl.arange(0, BLOCK)
    spot = x + at * ROWS * WIDTH + rows[:, None] * WIDTH + cols[None, :]
    tl.store(spot, tile.to(x.dtype.element_ty), mask=(cols < WIDTH)[None, :])


@triton.jit
def raw_gates(
    gate, a_log, dt_bias, rows, tokens, real, factor, head, HEADS, K, cols,
    WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """The pre-activations (or alphas) of the rows that have a gate, which rows those are, and the rate exp(a_log).

    [C, BK] where WIDTH, else [C]: one gate for all channels.
    """
    gated = real if EACH else real & (factor == 0)
    at = rows if EACH else tokens
    if WIDTH:
        x = load_columns(gate, at, gated, head, HEADS, K, cols)
        if BIAS:
            x += tl.load(dt_bias + head * K + cols, mask=cols < K, other=0.0).to(tl.float32)[None, :]
    else:
        x = tl.load(gate + at * HEADS + head, mask=gated, other=0.0).to(tl.float32)
        if BIAS:
            x += tl.load(dt_bias + head).to(tl.float32)
    rate = tl.exp(tl.load(a_log + head).to(tl.float32)) if KIND >= 3 else 1.0
    return x, gated, rate


@triton.jit
def chunk_gates(
    gate, a_log, dt_bias, rows, tokens, real, factor, head, HEADS, K, lower, cols,
    WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """The packed gates of a chunk from the first row up to each row [C, BK]."""
    x, gated, rate = raw_gates(
        gate, a_log, dt_bias, rows, tokens, real, factor, head, HEADS, K, cols, WIDTH, KIND, EACH, BIAS
    )
    packed = packed_gate(x, rate, lower, KIND)
    if WIDTH:
        g = tl.associative_scan(tl.where(gated[:, None] & (cols < K)[None, :], packed, 0.0), 0, join)
    else:
        g = tl.associative_scan(tl.where(gated, packed, 0.0), 0, join)
        g = tl.broadcast_to(g[:, None], (rows.shape[0], cols.shape[0]))
    return g


@triton.jit
def chunk_alphas(
    gate, a_log, dt_bias, rows, tokens, real, factor, head, HEADS, K, lower, cols, C: tl.constexpr,
    WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr, QUICK: tl.constexpr,
):  # fmt: skip
    """The gates of a chunk's rows [C, BK], one where there is none."""
    if KIND == 0:
        alpha = tl.full((C, cols.shape[0]), 1.0, tl.float32)
    else:
        x, gated, rate = raw_gates(
            gate, a_log, dt_bias, rows, tokens, real, factor, head, HEADS, K, cols, WIDTH, KIND, EACH, BIAS
        )
        alpha = gate_value(x, rate, lower, KIND, QUICK)
        if WIDTH:
            alpha = tl.where(gated[:, None] & (cols < K)[None, :], alpha, 1.0)
        else:
            alpha = tl.broadcast_to(tl.where(gated, alpha, 1.0)[:, None], (C, cols.shape[0]))
    return alpha


@triton.jit
def last_in_tile(tile, C: tl.constexpr, P: tl.constexpr, R: tl.constexpr):
    """The last row of every token, of a tile [C, K] in the order `interleaved(C, R)`: `interleaved(C/P, R/P)`.

    R is 1, which leaves rows in their order, or a multiple of P.
    """
    K: tl.constexpr = tile.shape[1]
    last = tl.arange(0, P) == P - 1
    if P == 1:
        kept = tile
    elif R == 1:
        kept = tl.sum(tl.where(last[None, :, None], tl.reshape(tile, (C // P, P, K)), 0.0), 1)
    else:
        split = tl.reshape(tile, (R // P, P, C // R, K))
        kept = tl.reshape(tl.sum(tl.where(last[None, :, None, None], split, 0.0), 1), (C // P, K))
    return kept


@triton.jit
def in_order(tile, C: tl.constexpr, R: tl.constexpr):
    """The columns of a tile [rows, C] from the order `interleaved` back to their own."""
    rows: tl.constexpr = tile.shape[0]
    return tl.reshape(tl.permute(tl.reshape(tile, (rows, R, C // R)), (0, 2, 1)), (rows, C))


@triton.jit
def inverse_norms(square, NORMALIZE: tl.constexpr):
    """1/|x| from |x|^2 in its format, 0 for a zero row; 1 where nothing is normalised."""
    if NORMALIZE:
        safe = tl.where(square > 0, square, 1.0)
        root = tl.sqrt(safe) if square.dtype == tl.float64 else tl.sqrt_rn(safe)
        return tl.where(square > 0, 1.0 / root, 0.0)
    return square * 0.0 + 1.0
