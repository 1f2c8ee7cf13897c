"""The chunk kernels as one differentiable function: three launches forward, three more backward.

Gates of channels go through `chunk_prepare` and `chunk_gradients`, one gate a row or none through `chunk_scalar`.

A precision mode fixes the rounding points. `fast` with 16-bit inputs keeps intermediates in bfloat16 (float16 has not
the range of anchored factors) and the state in float32; with float32 inputs it keeps float32 and multiplies in tf32.
`tracking` keeps float32 and multiplies as three tf32 products; `exact` multiplies in float32. Both make M and T
(`chunk_prepare`) in float64, and keep T so where a chunk has at most 64 rows.

Main definitions: `ckda_chunk`, `Launch`, `launches`.

References: CKDA, chunkwise form; the rounding points are measured in docs/kernels-log.md.
"""
# Triton is untyped.
# pyright: basic, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportGeneralTypeIssues=false, reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from . import chunk_gradients, chunk_prepare, chunk_scalar, chunk_torch
from .chunk_prepare import solve_kernel
from .chunk_states import backward_kernel, forward_kernel
from .gates import KINDS, Gate, Precision

# The pass over a sequence's chunks, forwards and backwards; `tilelang_states` has another.
States = tuple[Callable[..., None], Callable[..., None]]
_DOTS = {"fast": "tf32", "tracking": "tf32x3", "exact": "ieee"}
# Rows of a chunk whose T fits into shared memory as float64.
_WIDEST = 64
MOST_FACTORS = 8  # a token, of the Triton kernels: 128 rows a chunk


@dataclass(frozen=True)
class Launch:
    """Block sizes, warps and pipeline depths of the kernels; `chunk` is the number of factors in a chunk.

    `..._registers` is the most that a thread may hold: with 128, two blocks of 8 warps live at once. `gradient_stages`
    is for scalar gates: the depth of the loop over columns.
    """

    chunk: int
    prepare_channels: int
    prepare_warps: int
    prepare_registers: int | None
    solve_warps: int
    state_columns: int
    state_warps: int
    state_stages: int
    matrix_warps: int
    gradient_channels: int
    gradient_columns: int
    gradient_warps: int
    gradient_registers: int | None = None
    gradient_stages: int = 1


@dataclass(frozen=True)
class _Call:
    """The sizes and switches of one call, and where its chunks lie."""

    batch: int
    time: int
    heads: int
    value_heads: int
    K: int
    V: int
    factors: int
    kind: int
    each: bool
    wide: bool
    scalar: bool
    normalize_keys: bool
    normalize_queries: bool
    scale: float
    lower: float
    precision: Precision
    launch: Launch
    sequences: int
    chunks: int
    table: Tensor | None
    bounds: Tensor | None
    ends: Tensor | None
    states: States
    train: bool

    @property
    def rows(self) -> int:
        """Rows a token: the least power of two that is `factors` or more."""
        return 1 << (self.factors - 1).bit_length()

    def pairs_type(self, held: torch.dtype) -> torch.dtype:
        """That of M: a chunk of reflections of one plane magnifies its rounding, and T's, by the square of the rows.

        A word that repeats itself rounds them the same way every time.
        """
        if self.precision != "fast":
            return torch.float64
        return torch.float16 if held == torch.bfloat16 else torch.float32

    @property
    def chunks_each(self) -> int:
        return -(-self.time * self.rows // self.launch.chunk)

    def common(self, exclude: str = "") -> dict[str, Any]:
        sizes = {
            "K": self.K, "V": self.V, "N": self.factors, "P": self.rows, "C": self.launch.chunk,
            "VARLEN": self.table is not None, "PRECISION": _DOTS[self.precision],
        }  # fmt: skip
        return {name: size for name, size in sizes.items() if name != exclude}

    def switches(self, exclude: str = "") -> dict[str, Any]:
        found = {
            "WIDTH": self.wide, "KIND": self.kind, "EACH": self.each,
            "NORM_K": self.normalize_keys, "NORM_Q": self.normalize_queries,
        }  # fmt: skip
        return {name: switch for name, switch in found.items() if name != exclude}


def _block(size: int) -> int:
    return max(16, 1 << (size - 1).bit_length())


def launches(
    K: int, V: int, factors: int, precision: Precision, half: bool, programs: int = 128, scalar: bool = False
) -> list[Launch]:
    """The settings a call may run with, the preferred one first.

    Args:
        half: whether the inputs have 16 bits.
        programs: sequences times value heads; few of them leave processors idle unless the state's columns are split.
        scalar: whether there is one gate a row, or none.
    """
    rows = 1 << (factors - 1).bit_length()
    light = precision == "fast" and half
    wide = max(_block(K), _block(V)) > 128
    chunk = max(64 if light else 32, 16 * rows)
    columns, stages = (64, 2) if programs >= 128 else (32, 3) if programs > 16 else (16, 3)
    if not light or wide or chunk > 64:
        columns, stages = min(columns, 32), 1
    first = Launch(
        chunk=chunk,
        prepare_channels=min(_block(K), 128 if light else 64),
        prepare_warps=8 if _block(K) >= 64 else 4,
        prepare_registers=128 if light and _block(K) >= 64 and chunk == 64 else None,
        solve_warps=2 if precision == "fast" else chunk // 16,
        state_columns=min(_block(V), columns),
        state_warps=4,
        state_stages=stages,
        matrix_warps=4,
        gradient_channels=min(_block(K), 32),
        gradient_columns=min(_block(V), 128 if light else 32),
        gradient_warps=4,
    )
    if scalar:
        return list(dict.fromkeys(_scalar_launches(first, K, V, rows, light and not wide)))
    others = [
        replace(first, prepare_warps=2 * first.prepare_warps, prepare_registers=None),
        replace(first, prepare_warps=12 - first.prepare_warps, prepare_registers=None),
        replace(first, prepare_registers=None),
        replace(first, prepare_channels=min(_block(K), 64)),
        replace(first, solve_warps=2 * first.solve_warps),
        replace(first, state_columns=min(_block(V), 16), state_stages=1),
        replace(first, state_warps=8, state_stages=1),
        replace(first, gradient_channels=min(_block(K), 64), gradient_warps=8),
        replace(first, gradient_columns=min(_block(V), 64), matrix_warps=8),
    ]
    return list(dict.fromkeys([first, *others]))


def fits_rows(K: int, factors: int, light: bool) -> bool:
    """Whether `chunk_scalar` takes gates of rows or none; `light`: 16 bits in `fast`.

    Its pass over the chunks must load ahead where a chunk has 64 rows (docs/kernels-log.md), for which there is room in
    16 bits, with heads to 128.
    """
    return K <= 128 and factors <= (4 if light else 2)


def _scalar_launches(first: Launch, K: int, V: int, rows: int, light: bool) -> list[Launch]:
    """The same for `chunk_scalar`, where one program takes all channels of a chunk.

    With a query for two factors 8 warps of 128 registers nearly hold the gradients, so that two blocks live on a
    processor; with one for each factor it takes 16 warps. 64 channels of two factors and more are not left to
    4 warps: ptxas 12.8 leaves registers unset there.
    """
    channels = _block(K)
    first = replace(
        first, prepare_channels=min(channels, 64), prepare_warps=4, prepare_registers=None, gradient_channels=channels,
        gradient_columns=min(_block(V), 64 if light else 16),
        gradient_warps=(8 if rows > 1 else 16) if channels > 64 else 8 if channels == 64 else 4,
    )  # fmt: skip
    if not light:
        return [first, replace(first, prepare_warps=8, matrix_warps=8, gradient_warps=8)]
    limited = 64 <= channels <= 128 and first.chunk == 64
    first = replace(first, gradient_stages=2, gradient_registers=128 if limited else None)
    others = [
        replace(first, prepare_channels=channels, prepare_warps=8, matrix_warps=8),
        replace(first, gradient_warps=24 - first.gradient_warps if channels > 64 else 4 if rows == 1 else 8),
        replace(first, gradient_warps=8, gradient_registers=None),
        replace(first, gradient_warps=16 if channels > 64 else 8, gradient_columns=min(_block(V), 32)),
        replace(first, state_columns=min(_block(V), 32), state_stages=3, solve_warps=4),
        replace(first, state_columns=min(_block(V), 64), state_stages=3),
    ]
    return [first, *others]


def ckda_chunk(
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
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    precision: Precision = "fast",
    launch: Launch | None = None,
    states: States | None = None,
) -> tuple[Tensor, Tensor | None]:
    """o [B, T, HV, V] in the type of v and the last state [N, HV, K, V] in float32 (None unless asked for).

    Shapes: q [B, T, H, K]; k [B, T n, H, K], v [B, T n, HV, V], beta [B, T n, HV] with the n `factors` of a token in
    a row; gate values [B, T, HV, K], or [B, T n, HV, K] for a gate before each factor, or with a last dimension of 1.

    Differentiable in q, k, v, beta, the gate's tensors and the initial state; the gradient of alpha is
    that of log|alpha| over alpha, so at an exact reset it is 0.
    """
    batch, time, heads, K = q.shape
    value_heads, V = v.shape[2:]
    values = gate.values
    sequences = batch if cu_seqlens is None else cu_seqlens.numel() - 1
    if factors > MOST_FACTORS:
        # A chunk of 256 rows does not fit a processor's shared memory.
        return chunk_torch.ckda_chunk(
            q, k, v, beta, gate, scale=scale, factors=factors, normalize_keys=normalize_keys,
            normalize_queries=normalize_queries, initial_state=initial_state, output_final_state=output_final_state,
            cu_seqlens=cu_seqlens, precision=precision,
        )  # fmt: skip
    half = q.dtype in (torch.bfloat16, torch.float16)
    # Only our own pass over the chunks takes raw keys.
    rows_only = states is None and (values is None or values.shape[-1] == 1)
    scalar = rows_only and fits_rows(K, factors, half and precision == "fast")
    if launch is None:
        launch = launches(K, V, factors, precision, half, sequences * value_heads, scalar)[0]
    rows = 1 << (factors - 1).bit_length()
    table, bounds, ends, chunks = _chunks(cu_seqlens, batch, time, launch.chunk // rows, q.device)
    inputs = (q, k, v, beta, values, gate.rates, gate.dt_bias, initial_state)
    call = _Call(
        batch, time, heads, value_heads, K, V, factors, KINDS.index(gate.kind),
        values is not None and factors > 1 and values.shape[1] == time * factors,
        values is None or values.shape[-1] == K,
        scalar, normalize_keys, normalize_queries, scale, gate.lower_bound, precision, launch, sequences, chunks,
        table, bounds, ends,
        states or (_forward_states, _backward_states),
        torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs),
    )  # fmt: skip
    o, last = _Chunked.apply(*inputs, call, output_final_state)
    return o, last if output_final_state else None


def _chunks(
    cu_seqlens: Tensor | None, batch: int, time: int, tokens: int, device: torch.device
) -> tuple[Tensor | None, Tensor | None, Tensor | None, int]:
    """(sequence, chunk in it) of every chunk, every sequence's first chunk and first token, the number of chunks."""
    if cu_seqlens is None:
        return None, None, None, batch * -(-time // tokens)
    lengths = cu_seqlens.cpu().diff()
    counts = (lengths + tokens - 1) // tokens
    bounds = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    sequence = torch.repeat_interleave(torch.arange(len(counts)), counts)
    table = torch.stack([sequence, torch.arange(len(sequence)) - bounds[sequence]], 1)
    return (
        table.int().to(device),
        bounds.int().to(device),
        cu_seqlens.to(device, torch.int64).contiguous(),
        int(bounds[-1]),
    )


class _Chunked(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, values: Tensor | None, a_log: Tensor | None,
        dt_bias: Tensor | None, start: Tensor | None, call: _Call, final: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        train = call.train
        tensors = [None if x is None else x.contiguous() for x in (q, k, v, beta, values, a_log, dt_bias, start)]
        q, k, v, beta, values, a_log, dt_bias, start = tensors  # pyright: ignore[reportAssignmentType]
        tile = (call.chunks, call.value_heads)
        kept = _prepare(q, k, beta, values, a_log, dt_bias, call)
        o = torch.empty(call.batch, call.time, call.value_heads, call.V, dtype=v.dtype, device=v.device)
        h = kept["aqk"].new_empty(*tile, call.K, call.V) if train else None
        r = kept["aqk"].new_empty(*tile, call.launch.chunk, call.V) if train else None
        last = None
        if final:
            last = q.new_empty(call.sequences, call.value_heads, call.K, call.V, dtype=torch.float32)
        # Float64 products again: see `_prepare`.
        call.states[0](call, kept, v if call.precision == "fast" else v.float(), h, r, o, start, last)
        if train:
            ctx.call, ctx.with_last, ctx.names = call, final, tuple(kept)
            ctx.save_for_backward(q, k, v, beta, values, a_log, dt_bias, start, h, r, o, *kept.values())
        return o, last

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        do, dlast = gradients
        q, k, v, beta, values, a_log, dt_bias, start, h, r, o, *rest = ctx.saved_tensors
        kept, call = dict(zip(ctx.names, rest, strict=True)), ctx.call
        do = torch.zeros_like(o) if do is None else do.contiguous()
        dh = torch.empty_like(h)
        # beta dbeta = <dy, r>, with beta as small as TINY: float16 would lose dy.
        dy = torch.empty_like(v, dtype=h.dtype)
        dstart = None if start is None else torch.empty_like(start)
        ds1 = dlast.contiguous() if ctx.with_last and dlast is not None else None
        call.states[1](call, kept, do, dh, dy, ds1, dstart)
        dq, dk, dbeta, dvalues = _gradients(q, k, v, beta, values, a_log, dt_bias, kept, h, r, o, do, dh, dy, call)
        da_log, ddt_bias = _gate_parameters(values, a_log, dt_bias, dvalues, call, ctx.needs_input_grad[5:7])
        return dq, dk, dy.to(v.dtype), dbeta, dvalues, da_log, ddt_bias, dstart, None, None


_PASSED = ("kd", "kt", "qt", "aqk", "tinv", "norms", "betas", "q_scales", "decay", "q", "k", "falls", "rises")


def _state_grid(call: _Call) -> tuple[int, int, int]:
    return -(-call.V // call.launch.state_columns), call.value_heads, call.sequences


def _state_sizes(call: _Call) -> dict[str, Any]:
    return call.common() | {
        "SCALAR": call.scalar, "GATED": call.kind > 0, "BK": _block(call.K), "BV": call.launch.state_columns,
        "STAGES": call.launch.state_stages, "num_warps": call.launch.state_warps,
    }  # fmt: skip


def _forward_states(
    call: _Call, kept: dict[str, Tensor], v: Tensor, h: Tensor | None, r: Tensor | None, o: Tensor,
    start: Tensor | None, last: Tensor | None,
) -> None:  # fmt: skip
    """Fills o [B, T, HV, V], and where they are given h [chunks, HV, K, V], r [chunks, HV, C, V] and `last`."""
    forward_kernel[_state_grid(call)](
        *(kept.get(n) for n in _PASSED), v, h, r, o, start, last, call.bounds, call.ends, call.time, call.chunks_each,
        call.heads, call.value_heads, **_state_sizes(call), START=start is not None, FINAL=last is not None,
        TRAIN=h is not None,
    )  # fmt: skip


def _backward_states(
    call: _Call, kept: dict[str, Tensor], do: Tensor, dh: Tensor, dy: Tensor, dlast: Tensor | None,
    dstart: Tensor | None,
) -> None:  # fmt: skip
    """Fills dh [chunks, HV, K, V], dy in the shape of v, and `dstart` where it is given."""
    backward_kernel[_state_grid(call)](
        *(kept.get(n) for n in _PASSED), do, dh, dy, dlast, dstart, call.bounds, call.ends, call.time, call.chunks_each,
        call.heads, call.value_heads, **_state_sizes(call), START=dstart is not None, FINAL=dlast is not None,
    )  # fmt: skip


def _prepare(
    q: Tensor, k: Tensor, beta: Tensor, values: Tensor | None, a_log: Tensor | None, dt_bias: Tensor | None,
    call: _Call,
) -> dict[str, Tensor]:  # fmt: skip
    C, rows = call.launch.chunk, call.rows
    half = q.dtype in (torch.bfloat16, torch.float16) and call.precision == "fast"
    held = torch.bfloat16 if half else torch.float32
    if call.precision != "fast":
        # Triton 3.7.1 lays operands of float64 products out by the shortest format that they come from.
        k = k.float()
        values, dt_bias = (None if x is None else x.float() for x in (values, dt_bias))
    stage = chunk_scalar.prepare if call.scalar else chunk_prepare.prepare
    kept, pairs = stage(q, k, values, a_log, dt_bias, call, held)
    inverse = pairs.dtype if pairs.dtype == torch.float64 and C <= _WIDEST else held
    kept |= {"tinv": torch.empty_like(pairs, dtype=inverse), "betas": torch.empty_like(kept["norms"])}
    solve_kernel[(call.value_heads, call.chunks)](
        pairs, beta, kept["tinv"], kept["betas"], call.table, call.ends, call.time, call.chunks_each, call.value_heads,
        N=call.factors, P=rows, C=C, VARLEN=call.table is not None, PRECISION=_DOTS[call.precision],
        num_warps=call.launch.solve_warps,
    )  # fmt: skip
    return kept


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, values: Tensor | None, a_log: Tensor | None,
    dt_bias: Tensor | None, kept: dict[str, Tensor], h: Tensor, r: Tensor, o: Tensor, do: Tensor, dh: Tensor,
    dy: Tensor, call: _Call,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    group = call.value_heads // call.heads
    dq = q.new_empty(*q.shape[:2], call.value_heads, call.K, dtype=q.dtype if group == 1 else torch.float32)
    dk = k.new_empty(*k.shape[:2], call.value_heads, call.K, dtype=k.dtype if group == 1 else torch.float32)
    dbeta = torch.empty_like(beta)
    rest = (values, a_log, dt_bias, kept, h, r, do, dh, dy, dq, dk, dbeta, call)
    if call.scalar:
        dvalues = chunk_scalar.gradients(*rest, _block(call.K))
    else:
        dvalues = chunk_gradients.gradients(q, k, v, o, *rest)
    if group > 1:
        dq = dq.unflatten(2, (call.heads, group)).sum(3).to(q.dtype)
        dk = dk.unflatten(2, (call.heads, group)).sum(3).to(k.dtype)
    return dq, dk, dbeta, dvalues


def _gate_parameters(
    values: Tensor | None, a_log: Tensor | None, dt_bias: Tensor | None, dvalues: Tensor | None, call: _Call,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """The gradients of a_log and of the bias where they are wanted, from that of the pre-activations."""
    if values is None or dvalues is None or not any(wanted):
        return None, None
    dx = dvalues.float()
    ddt_bias = dx.sum((0, 1)).to(dt_bias.dtype) if wanted[1] and dt_bias is not None else None
    if a_log is None or not wanted[0]:
        return None, ddt_bias
    x = values.float() + (0.0 if dt_bias is None else dt_bias.float())
    if KINDS[call.kind] == "softplus":
        # Far to the left both are e^x, which may be 0.
        slope = torch.where(x < -15, 1.0, torch.nn.functional.softplus(x) / torch.sigmoid(x.clamp_min(-15)))
    else:
        slope = x
    return (dx * slope).sum((0, 1, 3)).to(a_log.dtype), ddt_bias
