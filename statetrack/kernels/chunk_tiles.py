"""What the chunk kernels share: rows of a chunk, gates in the log domain with their signs, the triangular inverse.

A chunk holds C rows. A token of n factors has P rows, P the least power of two that is n or more; rows past n, and
rows past the end of a sequence, have key zero, beta zero and gate one, so that they change nothing.

Gates are kept as one float: its magnitude is -log2|alpha| >= 0, its sign bit the sign of alpha. Magnitudes add and
signs multiply along the chunk (`cumulate`), so one scan gives both the decay and the chunk-local gauge. A gate below
2^-126 counts as 2^-RESET: exp2 of that is exactly 0, which is a reset, and nothing is infinite.

References: CKDA, the signed gate; the gauge restarts in every chunk, so sequences need no scan of signs.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

import triton
import triton.language as tl

RESET = tl.constexpr(150.0)
SPAN = tl.constexpr(120.0)  # the largest binary exponent of an anchored factor: a product of two may overflow, one not
LOG2E = tl.constexpr(1.4426950408889634)
DEEPEST = tl.constexpr(15.9)  # a gate below 2^-15.9 needs the SAFE kernels
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
def gate_value(x, rate, lower, KIND: tl.constexpr):
    """alpha itself, for one step at a time; KIND as in `packed_gate`, and 0: no gate."""
    if KIND == 0:
        alpha = x * 0.0 + 1.0
    elif KIND == 1:
        alpha = tl.minimum(tl.maximum(x, -1.0), 1.0)
    elif KIND == 2:
        e = tl.exp(-tl.abs(x))
        alpha = tl.where(x < 0, -1.0, 1.0) * tl.maximum((1.0 - e) / (1.0 + e), tl.exp(lower))
    elif KIND == 3:
        alpha = tl.exp(-rate * softplus(x))
    else:
        alpha = tl.exp(lower * tl.sigmoid(rate * x))
    return alpha


@triton.jit
def gate_slope(x, rate, lower, KIND: tl.constexpr):
    """d log|alpha| / dx of `packed_gate`; |alpha| counts as SHALLOWEST at least, for rounding is all there is below."""
    if KIND == 1:
        slope = tl.where(x < 0, -1.0, 1.0) / tl.maximum(tl.abs(x), SHALLOWEST)
    elif KIND == 2:
        e = tl.exp(-tl.abs(x))
        size = tl.maximum((1.0 - e) / (1.0 + e), tl.exp(lower))
        slope = tl.where(x < 0, -1.0, 1.0) * 2.0 * e / ((1.0 + e) * (1.0 + e) * size)
    elif KIND == 3:
        slope = -rate * tl.sigmoid(x)
    else:
        s = tl.sigmoid(rate * x)
        slope = lower * rate * s * (1.0 - s)
    return slope


@triton.jit
def cumulate(packed, SAFE: tl.constexpr):
    """Packed gates from the first row up to each row.

    Unless SAFE, magnitudes are added as integers in units of 2^-21 and sign bits wrap around above them: one native
    scan, exact and independent of its order. Magnitudes count as less than 2^31 units in all, so none may pass DEEPEST.
    """
    if SAFE:
        return tl.associative_scan(packed, 0, join)
    units = (tl.minimum(tl.abs(packed), DEEPEST) * 2097152.0 + 0.5).to(tl.int32)
    total = tl.cumsum(units | (packed.to(tl.int32, bitcast=True) & -2147483648), 0)
    depth = (total & 2147483647).to(tl.float32) * (1.0 / 2097152.0)
    return (depth.to(tl.int32, bitcast=True) | (total & -2147483648)).to(tl.float32, bitcast=True)


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
        return tile
    K: tl.constexpr = tile.shape[1]
    bits = tl.reshape(tile.to(tl.int32, bitcast=True), (C // P, P, K))
    last = tl.arange(0, P)[None, :, None] == P - 1
    return tl.sum(tl.where(last, bits, 0), 1).to(tl.float32, bitcast=True)


@triton.jit
def double(X, below, r, c, level: tl.constexpr, PRECISION: tl.constexpr):
    """X - X B X: the inverses of blocks of 2 << level rows from those of their halves; B is between the halves."""
    inside = ((r >> (level + 1)) == (c >> (level + 1))) & ((r >> level) > (c >> level))
    B = tl.where(inside, below, 0.0)
    return X - tl.dot(tl.dot(X, B, input_precision=PRECISION), X, input_precision=PRECISION)


@triton.jit
def inverse(A, blocks, C: tl.constexpr, PRECISION: tl.constexpr):
    """(I + A)^-1 of a strictly lower triangular A [C, C]; `blocks` [C/16, 16, 16] are its diagonal blocks.

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
    for level in tl.static_range(4, 8):
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
def factor_rows(start, length, N: tl.constexpr, C: tl.constexpr, P: tl.constexpr):
    """For the C rows of a chunk, from its first token on: factor, token, whether it is real, number in the token."""
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
def store_tile(x, tile, at, ROWS: tl.constexpr, WIDTH, BLOCK: tl.constexpr, START: tl.constexpr = 0):
    """Tile number `at` (int64) of contiguous tiles [ROWS, WIDTH], rounded to the format of x."""
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
    WIDTH: tl.constexpr, KIND: tl.constexpr, EACH: tl.constexpr, BIAS: tl.constexpr, SAFE: tl.constexpr,
):  # fmt: skip
    """The cumulated gates of a chunk, and the deepest gate over the deepest that may be added up as integers."""
    x, gated, rate = raw_gates(
        gate, a_log, dt_bias, rows, tokens, real, factor, head, HEADS, K, cols, WIDTH, KIND, EACH, BIAS
    )
    packed = packed_gate(x, rate, lower, KIND)
    if WIDTH:
        packed = tl.where(gated[:, None] & (cols < K)[None, :], packed, 0.0)
        g = cumulate(packed, SAFE)
        deepest = tl.max(tl.max(tl.abs(packed), 1), 0)
    else:
        packed = tl.where(gated, packed, 0.0)
        g = tl.broadcast_to(cumulate(packed, SAFE)[:, None], (rows.shape[0], cols.shape[0]))
        deepest = tl.max(tl.abs(packed), 0)
    return g, deepest / DEEPEST


@triton.jit
def inverse_norms(square, NORMALIZE: tl.constexpr):
    """1/|x| in float32 from |x|^2, 0 for a zero row; 1 where nothing is normalised."""
    if NORMALIZE:
        safe = tl.where(square > 0, square, 1.0)
        return tl.where(square > 0, 1.0 / tl.sqrt_rn(safe), 0.0)
    return square * 0.0 + 1.0
