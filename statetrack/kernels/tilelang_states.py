"""The second stage of the chunk kernels in TileLang: the state from chunk to chunk, and its gradient back.

The same stage as `chunk_states`, for bfloat16 tiles: a program holds BV columns of one head's state of one sequence in
registers, in float32; every product has bfloat16 factors and a float32 sum. Chunks of equal sequences are loaded ahead
(`STAGES`); with `cu_seqlens` the number of chunks is not known when the kernel is built, and nothing is.

Kernels are built for Hopper and the shapes of a call, and kept.

Main definitions: `forward_states`, `backward_states`.

References: CKDA, chunkwise form; `chunk_states` is the definition.
"""
# TileLang reads the kernels' annotations as buffers when it builds them, so they are no strings here.
# pyright: basic, reportInvalidTypeForm=false

import importlib
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from statetrack.errors import KernelUnavailable

STAGES = 2
WARPS = 4


def installed() -> ModuleType:
    """The package tilelang.

    Raises:
        KernelUnavailable: it cannot be imported.
    """
    try:
        return importlib.import_module("tilelang")
    except ImportError as error:
        why = f"tilelang cannot be imported ({error})"
        raise KernelUnavailable("tilelang", why, "install the extra 'tilelang', or take backend 'triton'") from error


def forward_states(
    call: Any, kept: dict[str, Tensor], v: Tensor, h: Tensor | None, r: Tensor | None, o: Tensor,
    start: Tensor | None, last: Tensor | None,
) -> None:  # fmt: skip
    """Fill o, the last state, and for training h (the state before each chunk) and the residuals r."""
    kernel = _built("forward", _sizes(call), h is not None, start is not None, last is not None)
    none, half = o.new_empty(1, 1, 1, 1, dtype=torch.float32), o.new_empty(1, 1, 1, 1)
    kernel(
        *_tiles(call, kept), v.view(-1, *v.shape[2:]), half if h is None else h, half if r is None else r,
        o.view(-1, *o.shape[2:]), none if start is None else start, none if last is None else last,
    )  # fmt: skip


def backward_states(
    call: Any, kept: dict[str, Tensor], do: Tensor, dh: Tensor, dy: Tensor, dlast: Tensor | None,
    dstart: Tensor | None,
) -> None:  # fmt: skip
    """Fill the gradients of the state after each chunk (dh), of the values (dy), and of the first state."""
    kernel = _built("backward", _sizes(call), True, dstart is not None, dlast is not None)
    none = do.new_empty(1, 1, 1, 1, dtype=torch.float32)
    kernel(
        *_tiles(call, kept), do.view(-1, *do.shape[2:]), dh, dy.view(-1, *dy.shape[2:]),
        none if dlast is None else dlast, none if dstart is None else dstart,
    )  # fmt: skip


def _sizes(call: Any) -> tuple[int, ...]:
    """Chunks a sequence (0: not known), chunks, sequences, value heads, tokens, K, V, C, factors, rows a token, BV."""
    each = call.chunks_each if call.table is None else 0
    columns = next(width for width in (call.launch.state_columns, 32, 16) if call.V % width == 0)
    tokens = call.batch * call.time
    sizes = (each, call.chunks, call.sequences, call.value_heads, tokens, call.K, call.V, call.launch.chunk)
    return (*sizes, call.factors, call.rows, columns)


def _tiles(call: Any, kept: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """The first stage's tiles, and the first chunk and the first token of every sequence, one more of each, int32.

    The inverse has its diagonal here, which the first stage leaves out.
    """
    inverse = kept["tinv"] + torch.eye(call.launch.chunk, dtype=kept["tinv"].dtype, device=kept["tinv"].device)
    rest = tuple(kept[name] for name in ("norms", "betas", "q_scales", "decay"))
    tiles = (*(kept[name] for name in ("kd", "kt", "qt", "aqk")), inverse, *rest)
    if call.table is not None:
        return (*tiles, call.bounds, call.ends.int())
    at = torch.arange(call.sequences + 1, dtype=torch.int32, device=tiles[0].device)
    return (*tiles, at * call.chunks_each, at * call.time)


@cache
def _built(stage: str, sizes: tuple[int, ...], train: bool, start: bool, final: bool) -> Any:
    program = (
        forward_program(sizes, train, start, final) if stage == "forward" else backward_program(sizes, start, final)
    )
    return installed().compile(program, target="cuda", pass_configs=passes())


def passes() -> dict[Any, bool]:
    """Loads go through cp.async: bulk copies and specialised warps do not take the rows past a sequence's end."""
    key = installed().PassConfigKey
    return {key.TL_DISABLE_TMA_LOWER: True, key.TL_DISABLE_WARP_SPECIALIZED: True}


def forward_program(sizes: tuple[int, ...], train: bool, start: bool, final: bool) -> Any:
    """The forward kernel for `_sizes`, as a TileLang program."""
    installed()
    T: Any = importlib.import_module("tilelang.language")
    each, chunks, sequences, HV, tokens, K, V, C, N, P, BV = sizes
    Q, dt, acc = C // P, T.bfloat16, T.float32
    h_size, r_size = ((chunks, HV, K, V), (chunks, HV, C, V)) if train else ((1, 1, 1, 1), (1, 1, 1, 1))
    start_size = (sequences, HV, K, V) if start else (1, 1, 1, 1)
    final_size = (sequences, HV, K, V) if final else (1, 1, 1, 1)

    @T.prim_func
    def forward(
        kd: T.Tensor((chunks, HV, C, K), dt), kt: T.Tensor((chunks, HV, C, K), dt),
        qt: T.Tensor((chunks, HV, Q, K), dt), aqk: T.Tensor((chunks, HV, Q, C), dt),
        tinv: T.Tensor((chunks, HV, C, C), dt), norms: T.Tensor((chunks, HV, C), acc),
        betas: T.Tensor((chunks, HV, C), acc), q_scales: T.Tensor((chunks, HV, Q), acc),
        decay: T.Tensor((chunks, HV, K), acc), bounds: T.Tensor((sequences + 1,), T.int32),
        ends: T.Tensor((sequences + 1,), T.int32), v: T.Tensor((tokens * N, HV, V), dt), h: T.Tensor(h_size, dt),
        r: T.Tensor(r_size, dt), o: T.Tensor((tokens, HV, V), dt), s0: T.Tensor(start_size, acc),
        s1: T.Tensor(final_size, acc),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(V, BV), HV, sequences, threads=32 * WARPS) as (column, head, sequence):
            kds, kts, qs = T.alloc_shared((C, K), dt), T.alloc_shared((C, K), dt), T.alloc_shared((Q, K), dt)
            mixed, solve, fall = T.alloc_shared((Q, C), dt), T.alloc_shared((C, C), dt), T.alloc_shared((K,), acc)
            norm, b, scales = T.alloc_shared((C,), acc), T.alloc_shared((C,), acc), T.alloc_shared((Q,), acc)
            Sd, left, wd = T.alloc_shared((K, BV), dt), T.alloc_shared((C, BV), dt), T.alloc_shared((C, BV), dt)
            S, out = T.alloc_fragment((K, BV), acc), T.alloc_fragment((Q, BV), acc)
            known, solved = T.alloc_fragment((C, BV), acc), T.alloc_fragment((C, BV), acc)
            if start:
                T.copy(s0[sequence, head, 0:K, column * BV : column * BV + BV], S)
            else:
                T.clear(S)
            count = each if each else bounds[sequence + 1] - bounds[sequence]
            for i in T.Pipelined(count, num_stages=STAGES if each else 0):
                tile = bounds[sequence] + i
                first = ends[sequence] + i * Q
                T.copy(kd[tile, head, 0:C, 0:K], kds)
                T.copy(kt[tile, head, 0:C, 0:K], kts)
                T.copy(qt[tile, head, 0:Q, 0:K], qs)
                T.copy(aqk[tile, head, 0:Q, 0:C], mixed)
                T.copy(tinv[tile, head, 0:C, 0:C], solve)
                T.copy(norms[tile, head, 0:C], norm)
                T.copy(betas[tile, head, 0:C], b)
                T.copy(q_scales[tile, head, 0:Q], scales)
                T.copy(decay[tile, head, 0:K], fall)
                T.copy(S, Sd)
                if train:
                    T.copy(Sd, h[tile, head, 0:K, column * BV : column * BV + BV])
                T.clear(known)
                T.gemm(kds, Sd, known)
                for c, j in T.Parallel(C, BV):
                    value = T.if_then_else(
                        (c % P < N) & (first + c // P < ends[sequence + 1]),
                        T.cast(v[T.min((first + c // P) * N + c % P, tokens * N - 1), head, column * BV + j], acc),
                        0.0,
                    )
                    left[c, j] = T.cast(value - known[c, j] * norm[c], dt)
                T.clear(solved)
                T.gemm(solve, left, solved)
                if train:
                    T.copy(solved, r[tile, head, 0:C, column * BV : column * BV + BV])
                for c, j in T.Parallel(C, BV):
                    wd[c, j] = T.cast(solved[c, j] * (b[c] * norm[c]), dt)
                T.clear(out)
                T.gemm(qs, Sd, out)
                T.gemm(mixed, wd, out)
                for t, j in T.Parallel(Q, BV):
                    if first + t < ends[sequence + 1]:
                        o[first + t, head, column * BV + j] = T.cast(out[t, j] * scales[t], dt)
                for a, j in T.Parallel(K, BV):
                    S[a, j] = S[a, j] * fall[a]
                T.gemm(kts, wd, S, transpose_A=True)
            if final:
                T.copy(S, s1[sequence, head, 0:K, column * BV : column * BV + BV])

    return forward


def backward_program(sizes: tuple[int, ...], start: bool, final: bool) -> Any:
    """The backward kernel for `_sizes`, as a TileLang program."""
    installed()
    T: Any = importlib.import_module("tilelang.language")
    each, chunks, sequences, HV, tokens, K, V, C, N, P, BV = sizes
    Q, dt, acc = C // P, T.bfloat16, T.float32
    start_size = (sequences, HV, K, V) if start else (1, 1, 1, 1)
    final_size = (sequences, HV, K, V) if final else (1, 1, 1, 1)

    @T.prim_func
    def backward(
        kd: T.Tensor((chunks, HV, C, K), dt), kt: T.Tensor((chunks, HV, C, K), dt),
        qt: T.Tensor((chunks, HV, Q, K), dt), aqk: T.Tensor((chunks, HV, Q, C), dt),
        tinv: T.Tensor((chunks, HV, C, C), dt), norms: T.Tensor((chunks, HV, C), acc),
        betas: T.Tensor((chunks, HV, C), acc), q_scales: T.Tensor((chunks, HV, Q), acc),
        decay: T.Tensor((chunks, HV, K), acc), bounds: T.Tensor((sequences + 1,), T.int32),
        ends: T.Tensor((sequences + 1,), T.int32), do: T.Tensor((tokens, HV, V), dt),
        dh: T.Tensor((chunks, HV, K, V), dt), dv: T.Tensor((tokens * N, HV, V), dt), ds1: T.Tensor(final_size, acc),
        ds0: T.Tensor(start_size, acc),
    ):  # fmt: skip
        with T.Kernel(T.ceildiv(V, BV), HV, sequences, threads=32 * WARPS) as (column, head, sequence):
            kds, kts, qs = T.alloc_shared((C, K), dt), T.alloc_shared((C, K), dt), T.alloc_shared((Q, K), dt)
            mixed, solve, fall = T.alloc_shared((Q, C), dt), T.alloc_shared((C, C), dt), T.alloc_shared((K,), acc)
            norm, b, scales = T.alloc_shared((C,), acc), T.alloc_shared((C,), acc), T.alloc_shared((Q,), acc)
            Sd, od = T.alloc_shared((K, BV), dt), T.alloc_shared((Q, BV), dt)
            dr, minus = T.alloc_shared((C, BV), dt), T.alloc_shared((C, BV), dt)
            dS, dw, dy = T.alloc_fragment((K, BV), acc), T.alloc_fragment((C, BV), acc), T.alloc_fragment((C, BV), acc)
            if final:
                T.copy(ds1[sequence, head, 0:K, column * BV : column * BV + BV], dS)
            else:
                T.clear(dS)
            count = each if each else bounds[sequence + 1] - bounds[sequence]
            for back in T.Pipelined(count, num_stages=STAGES if each else 0):
                tile = bounds[sequence + 1] - 1 - back
                first = ends[sequence] + (tile - bounds[sequence]) * Q
                T.copy(kd[tile, head, 0:C, 0:K], kds)
                T.copy(kt[tile, head, 0:C, 0:K], kts)
                T.copy(qt[tile, head, 0:Q, 0:K], qs)
                T.copy(aqk[tile, head, 0:Q, 0:C], mixed)
                T.copy(tinv[tile, head, 0:C, 0:C], solve)
                T.copy(norms[tile, head, 0:C], norm)
                T.copy(betas[tile, head, 0:C], b)
                T.copy(q_scales[tile, head, 0:Q], scales)
                T.copy(decay[tile, head, 0:K], fall)
                for t, j in T.Parallel(Q, BV):
                    read = T.if_then_else(
                        first + t < ends[sequence + 1],
                        T.cast(do[T.min(first + t, tokens - 1), head, column * BV + j], acc),
                        0.0,
                    )
                    od[t, j] = T.cast(read * scales[t], dt)
                T.copy(dS, Sd)
                T.copy(Sd, dh[tile, head, 0:K, column * BV : column * BV + BV])
                T.clear(dw)
                T.gemm(kts, Sd, dw)
                T.gemm(mixed, od, dw, transpose_A=True)
                for c, j in T.Parallel(C, BV):
                    dr[c, j] = T.cast(dw[c, j] * (b[c] * norm[c]), dt)
                T.clear(dy)
                T.gemm(solve, dr, dy, transpose_A=True)
                for c, j in T.Parallel(C, BV):
                    if (c % P < N) & (first + c // P < ends[sequence + 1]):
                        dv[(first + c // P) * N + c % P, head, column * BV + j] = T.cast(dy[c, j], dt)
                for c, j in T.Parallel(C, BV):
                    minus[c, j] = T.cast(-dy[c, j] * norm[c], dt)
                for a, j in T.Parallel(K, BV):
                    dS[a, j] = dS[a, j] * fall[a]
                T.gemm(qs, od, dS, transpose_A=True)
                T.gemm(kds, minus, dS, transpose_A=True)
            if start:
                T.copy(dS, ds0[sequence, head, 0:K, column * BV : column * BV + BV])

    return backward
