"""The functions of `reference` as Triton kernels: state in registers, time inside the kernel.

One program holds one head of a small block of words and some columns of the state (columns never mix), reads the
factors of each token from the layer's tables, and follows the reference's order of operations. Multiply-adds are
not fused, so that only the order of the sum over K can differ from the reference.

Main definitions: `tracker`, `nearest_triton`, `walk_triton`, `is_available`, `is_interpreted`, `WIDEST`.

References: `statetrack.kernels.reference`, the definition of all three functions.
"""
# Triton is untyped: a kernel's parameters have no annotation, and what it computes is unknown to the checker.
# pyright: reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportPossiblyUnboundVariable=false
# S is the papers' letter for the state.
# pyright: reportConstantRedefinition=false
# ruff: noqa: F722

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable

from .reference import LayerTables, arithmetic, check_ids, check_walk, check_widths, starting_state

if TYPE_CHECKING:
    from typing import Any

    from jaxtyping import Float, Int

    triton: Any
    tl: Any
    constexpr = Any

    def _jit(function: object) -> Any: ...

else:
    try:
        import triton
        import triton.language as tl
        from triton.language import constexpr

        _jit = triton.jit
    except ImportError:
        triton = None

        def _jit(function):
            return function


WIDEST = 64
_ELEMENTS = 512
_RESIDENT_PROGRAMS = 4096


def is_available() -> tuple[bool, str]:
    """Whether the kernels can run on this machine, and where or why not."""
    if triton is None:
        return False, "triton is not installed"
    if is_interpreted():
        return True, "interpreted on the CPU (TRITON_INTERPRET=1)"
    if torch.cuda.is_available():
        return True, f"compiled for {torch.cuda.get_device_name()}"
    return False, "no CUDA device, and TRITON_INTERPRET=1 was not set before the import of triton"


def is_interpreted() -> bool:
    """Whether the kernels of this process run in Triton's interpreter; decided when this module is imported."""
    return triton is not None and not isinstance(_walk_kernel, triton.JITFunction)


def tracker(
    tables: LayerTables,
    ids: Int[Tensor, "batch time"],
    state: Tensor | None = None,
    *,
    storage: torch.dtype,
    tables_as: torch.dtype | None = None,
    words_per_program: int | None = None,
) -> tuple[Float[Tensor, "batch time head column"], Float[Tensor, "batch head row column"]]:
    """`reference.recurrent` as one kernel launch: readouts after every token, state after the last.

    Args:
        tables: the layer with K, V ≤ 64, contiguous, on the device of `ids`; rounded to `tables_as` here.
        ids: contiguous input ids in -1..I-1 (-1 is "no token").
        state: [B, H, K, V] to go on from; None starts from `tables.state`.
        storage: float64, float32, bfloat16, float16 or an 8-bit float (on a device that has it).
        tables_as: the format of the tables; None is `storage`.
        words_per_program: a power of two; None keeps at most about 4096 programs while a warp has room.

    Raises:
        KernelUnavailable: no CUDA device or interpreter here, or K or V above 64.
        InvalidInput: an id out of range, shapes, devices or strides that do not fit.

    Source: CKDA eq. of the layer; `reference.recurrent` is the definition.
    """
    exact = arithmetic(storage)
    count, heads, factors, rows, columns = tables.shape
    if max(rows, columns) > WIDEST:
        raise KernelUnavailable("tracker", f"K={rows}, V={columns}, at most {WIDEST}", "use reference.recurrent")
    _require("tracker", "reference.recurrent", ids=ids, **tables.named())
    check_ids(ids, count, "input ids")
    first = starting_state(tables, ids, state).to(ids.device, storage).contiguous()
    (batch, time), narrow = ids.shape, tables.to(ids.device, tables_as or storage)
    last = torch.empty(first.shape, dtype=storage, device=ids.device)
    readouts = torch.empty((batch, time, heads, columns), dtype=exact, device=ids.device)
    if min(batch, time, heads, rows, columns, count) == 0:
        return readouts.zero_(), first.clone()
    is_dense = narrow.dense is not None
    padded = triton.next_power_of_2(rows)
    block = 1 if is_dense else min(triton.next_power_of_2(columns), max(1, _ELEMENTS // padded))
    parts = triton.cdiv(columns, block)
    elements = padded * (padded if is_dense else block)
    words = words_per_program or _words(batch * heads * parts, elements, batch)
    if words & (words - 1) or words < 0:
        raise InvalidInput(f"words_per_program: got {words}, expected a power of two")
    absent = narrow.queries
    units = absent if narrow.unit is None else _with_inverse(narrow.unit.to(exact))
    with torch.cuda.device_of(ids):
        _recurrent_kernel[(triton.cdiv(batch, words) * heads * parts,)](
            ids,
            absent if is_dense else narrow.keys,
            absent if is_dense else narrow.betas,
            absent if is_dense else narrow.gates,
            narrow.queries,
            absent if narrow.values is None else narrow.values,
            absent if narrow.bias is None else narrow.bias,
            absent if narrow.dense is None else narrow.dense,
            units,
            first,
            last,
            readouts,
            batch,
            time,
            heads,
            J=1 if is_dense else factors,
            K=rows,
            V=columns,
            KP=padded,
            VB=block,
            WORDS=words,
            HAS_VALUES=narrow.values is not None,
            HAS_BIAS=narrow.bias is not None,
            HAS_UNIT=narrow.unit is not None,
            DENSE=is_dense,
            BF16=storage is torch.bfloat16,
            NARROW=storage.itemsize < 4,
            num_warps=4 if words * elements > 1024 else 1,
            enable_fp_fusion=False,
        )
    return readouts, last


def nearest_triton(
    readouts: Float[Tensor, "row column"], codebook: Float[Tensor, "code column"]
) -> Int[Tensor, " row"]:
    """`reference.nearest` as a kernel: the nearest codeword's number (int32), -1 where no distance is finite.

    Rows of `readouts` may be strided (one head of a wider tensor); the numbers of a row must be adjacent. The
    distances are bit for bit those of the reference, so ties fall to the same (first) codeword.

    Raises:
        KernelUnavailable: no CUDA device or interpreter here, or V above 64.
        InvalidInput: shapes, devices or strides that do not fit.
    """
    check_widths(readouts, codebook)
    (count, width), codes = readouts.shape, codebook.shape[0]
    if width > WIDEST:
        raise KernelUnavailable("nearest_triton", f"V={width}, at most {WIDEST}", "use reference.nearest")
    codewords = codebook.to(readouts.dtype).contiguous()
    _require("nearest_triton", "reference.nearest", readouts=readouts[:1], codebook=codewords)
    found = torch.empty((count,), dtype=torch.int32, device=readouts.device)
    if count == 0 or codes == 0:
        return found.fill_(-1)
    tile = min(64, triton.next_power_of_2(codes))
    block = min(256, 4096 // tile)
    with torch.cuda.device_of(readouts):
        _nearest_kernel[(triton.cdiv(count, block),)](
            readouts,
            codewords,
            found,
            count,
            codes,
            readouts.stride(0),
            V=width,
            ROWS=block,
            CODES=tile,
            num_warps=4,
            enable_fp_fusion=False,
        )
    return found


def walk_triton(
    delta: Int[Tensor, "state symbol"], tokens: Int[Tensor, "batch time"], state: Int[Tensor, " batch"]
) -> Int[Tensor, "batch time"]:
    """`reference.walk` as a kernel: the automaton's state (int32) after every token; token -1 stays.

    Raises:
        KernelUnavailable: no CUDA device or interpreter here.
        InvalidInput: a token, a state or an entry of `delta` out of range; devices or strides that do not fit.
    """
    check_walk(delta, tokens, state)
    _require("walk_triton", "reference.walk", tokens=tokens, delta=delta, state=state)
    (batch, time), words = tokens.shape, 32
    states = torch.empty((batch, time), dtype=torch.int32, device=tokens.device)
    if batch and time:
        with torch.cuda.device_of(tokens):
            _walk_kernel[(triton.cdiv(batch, words),)](
                delta.int(), tokens, state.int(), states, batch, time, delta.shape[1], WORDS=words, num_warps=1
            )
    return states


def _words(programs: int, elements: int, batch: int) -> int:
    """Words a program: more than one only if there are more programs than the device holds, and a warp has room."""
    wanted = triton.next_power_of_2(triton.cdiv(programs, _RESIDENT_PROGRAMS))
    return max(1, min(wanted, 32 // elements, triton.next_power_of_2(batch)))


def _with_inverse(unit: Tensor) -> Tensor:
    """Units and their inverses [2, H], 0 for none: a compiled float32 division need not be exact, a product is."""
    return torch.stack([unit, torch.where(unit > 0, 1.0 / unit, 0.0)])


def _require(kernel: str, instead: str, **tensors: Tensor) -> None:
    """Refuse a machine without the kernels, and tensors that are not contiguous on one device that can run them."""
    available, why = is_available()
    (leader, leading), *_ = tensors.items()
    if available and not is_interpreted() and leading.device.type != "cuda":
        available, why = False, f"{leader} is on {leading.device}, and the kernels are {why}"
    if not available:
        raise KernelUnavailable(kernel, why, f"use {instead}")
    faults = [
        f"{name} is on {tensor.device}, {leader} on {leading.device}"
        for name, tensor in tensors.items()
        if tensor.device != leading.device
    ] + [f"{name} is not contiguous" for name, tensor in tensors.items() if not tensor.is_contiguous()]
    if faults:
        raise InvalidInput(f"kernel {kernel}: {'; '.join(faults)}; expected contiguous tensors on one device")


@_jit
def _as_bfloat16(x):
    # The rounding is spelled out (to nearest, ties to even): the interpreter's own conversion cuts off instead.
    bits = x.to(tl.uint32, bitcast=True)
    bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@_jit
def _recurrent_kernel(
    ids,
    keys,
    betas,
    gates,
    queries,
    values,
    bias,
    dense,
    units,
    first,
    last,
    readouts,
    batch,
    time,
    heads,
    J: constexpr,
    K: constexpr,
    V: constexpr,
    KP: constexpr,
    VB: constexpr,
    WORDS: constexpr,
    HAS_VALUES: constexpr,
    HAS_BIAS: constexpr,
    HAS_UNIT: constexpr,
    DENSE: constexpr,
    BF16: constexpr,
    NARROW: constexpr,
):
    exact = readouts.dtype.element_ty
    parts: constexpr = (V + VB - 1) // VB
    program = tl.program_id(0).to(tl.int64)
    head = (program // parts) % heads
    word = (program // parts // heads) * WORDS + tl.arange(0, WORDS)
    row = tl.arange(0, KP)
    column = (program % parts) * VB + tl.arange(0, VB)
    in_rows = (word < batch)[:, None] & (row < K)[None, :]
    in_columns = (word < batch)[:, None] & (column < V)[None, :]
    in_state = in_rows[:, :, None] & (column < V)[None, None, :]
    cell = (row * V)[None, :, None] + column[None, None, :]
    place = ((word * heads + head) * (K * V))[:, None, None] + cell
    S = tl.load(first + place, mask=in_state, other=0.0).to(exact)
    token = tl.load(ids + word * time, mask=word < batch, other=-1)
    if HAS_UNIT:
        unit = tl.load(units + head)
        inverse = tl.load(units + heads + head)
    for t in range(time):
        # The next id is read here, a whole token before the loads that depend on it.
        ahead = tl.load(ids + word * time + tl.minimum(t + 1, time - 1), mask=word < batch, other=-1)
        real = token >= 0
        pick = tl.maximum(token, 0).to(tl.int64) * heads + head
        fresh = S
        if DENSE:
            square = (pick * (K * K))[:, None, None] + (row * K)[None, :, None] + row[None, None, :]
            M = tl.load(dense + square, mask=in_rows[:, :, None] & (row < K)[None, None, :], other=0.0).to(exact)
            product = tl.sum(M * tl.reshape(S, (WORDS, 1, KP)), axis=2)
            fresh = tl.reshape(product, (WORDS, KP, 1))
        for j in tl.static_range(J):
            site = pick * J + j
            if not DENSE:
                line = (site * K)[:, None] + row[None, :]
                k = tl.load(keys + line, mask=in_rows, other=0.0).to(exact)
                g = tl.load(gates + line, mask=in_rows, other=0.0).to(exact)
                beta = tl.load(betas + site).to(exact)
                fresh = g[:, :, None] * fresh
                z = tl.sum(k[:, :, None] * fresh, axis=1)
                push = (beta[:, None] * k)[:, :, None]
                fresh = fresh - push * z[:, None, :]
                if HAS_VALUES:
                    line = (site * V)[:, None] + column[None, :]
                    v = tl.load(values + line, mask=in_columns, other=0.0).to(exact)
                    fresh = fresh + push * v[:, None, :]
            if HAS_BIAS:
                added = tl.load(bias + (site * (K * V))[:, None, None] + cell, mask=in_state, other=0.0)
                fresh = fresh + added.to(exact)
            if NARROW:
                # A head with a unit is rounded once a token, after the floor.
                rounded = _as_bfloat16(fresh) if BF16 else fresh.to(last.dtype.element_ty).to(exact)
                fresh = tl.where(unit > 0, fresh, rounded) if HAS_UNIT else rounded
        if HAS_UNIT:
            fresh = tl.where(unit > 0, unit * tl.floor(fresh * inverse), fresh)
            if NARROW:
                fresh = _as_bfloat16(fresh) if BF16 else fresh.to(last.dtype.element_ty).to(exact)
        S = tl.where(real[:, None, None], fresh, S)
        q = tl.load(queries + (pick * K)[:, None] + row[None, :], mask=in_rows, other=0.0).to(exact)
        readout = tl.where(real[:, None], tl.sum(q[:, :, None] * S, axis=1), 0.0)
        line = ((word * time + t) * heads + head) * V
        tl.store(readouts + line[:, None] + column[None, :], readout, mask=in_columns)
        token = ahead
    tl.store(last + place, S.to(last.dtype.element_ty), mask=in_state)


@_jit
def _nearest_kernel(readouts, codewords, found, count, codes, stride, V: constexpr, ROWS: constexpr, CODES: constexpr):
    exact = readouts.dtype.element_ty
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    best = tl.full((ROWS,), float("inf"), exact)
    index = tl.full((ROWS,), -1, tl.int32)
    for start in range(0, codes, CODES):
        code = start + tl.arange(0, CODES)
        distance = tl.zeros((ROWS, CODES), exact)
        for v in range(V):
            r = tl.load(readouts + row * stride + v, mask=row < count, other=0.0)
            c = tl.load(codewords + code.to(tl.int64) * V + v, mask=code < codes, other=0.0)
            difference = r[:, None] - c[None, :]
            distance = distance + difference * difference
        usable = (code < codes)[None, :] & (distance == distance)
        distance = tl.where(usable, distance, float("inf"))
        least = tl.min(distance, axis=1)
        candidate = tl.min(tl.where(distance == least[:, None], code[None, :], codes), axis=1)
        index = tl.where(least < best, candidate, index)
        best = tl.minimum(least, best)
    tl.store(found + row, index, mask=row < count)


@_jit
def _walk_kernel(delta, tokens, start, states, batch, time, symbols, WORDS: constexpr):
    word = tl.program_id(0).to(tl.int64) * WORDS + tl.arange(0, WORDS)
    state = tl.load(start + word, mask=word < batch, other=0)
    token = tl.load(tokens + word * time, mask=word < batch, other=-1)
    for t in range(time):
        ahead = tl.load(tokens + word * time + tl.minimum(t + 1, time - 1), mask=word < batch, other=-1)
        edge = state.to(tl.int64) * symbols + tl.maximum(token, 0)
        state = tl.where(token >= 0, tl.load(delta + edge, mask=token >= 0, other=0), state)
        tl.store(states + word * time + t, state, mask=word < batch)
        token = ahead
