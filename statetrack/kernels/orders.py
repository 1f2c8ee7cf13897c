"""The recurrence of a layer's tables in other orders: chunk by chunk, and as a parallel scan of whole transitions.

The functions take what `reference.recurrent` takes and give what it gives up to rounding, so that a network can be run
in any of them. They differ in where they round: the recurrence rounds the state after every factor, the chunkwise form
keeps it in float32 (float64 for float64) between chunks and rounds the tables only, the scan rounds products of
transitions. With a format of sums (`accumulate`) the recurrence and the scan round every single operation to it; the
chunkwise torch path sums in float32 or float64 and takes no other.

Main definitions: `scanned`, `chunked`, `order_of`, `ORDERS`.

References: `statetrack.kernels.reference`; Blelloch, *Prefix sums and their applications*, 1990.
"""
# S is the papers' letter for the state.
# pyright: reportConstantRedefinition=false
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statetrack.errors import InvalidInput

from .chunk_torch import ckda_chunk
from .gates import Gate, Precision
from .reference import LayerTables, arithmetic, check_ids, recurrent, rounded_to, starting_state, summed
from .tracker import is_available, is_interpreted, tracker

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Recurrence = Callable[..., tuple[Tensor, Tensor]]
ORDERS = ("recurrent", "chunk16", "chunk32", "chunk64", "triton-fast", "triton-tracking", "triton-exact", "scan")
_BLOCK = 1024


def order_of(name: str, device: str, accumulate: torch.dtype | None = None) -> Recurrence:
    """The function that runs a layer's tables in an order of `ORDERS`, with sums in the format `accumulate`.

    "recurrent" is the Triton tracker on CUDA and the definition elsewhere, and with `accumulate` everywhere; "chunkN"
    the torch path with chunks of N rows; "triton-P" the Triton path (chunks of 64 rows) with precision P, on CUDA.

    Raises:
        InvalidInput: an unknown order.
    """
    sums = {} if accumulate is None else {"accumulate": accumulate}
    if name == "recurrent":
        compiled = device.startswith("cuda") and is_available()[0] and not is_interpreted()
        return tracker if compiled and not sums else partial(recurrent, **sums)
    if name == "scan":
        return partial(scanned, **sums)
    if name in ("chunk16", "chunk32", "chunk64"):
        return partial(chunked, rows=int(name.removeprefix("chunk")), **sums)
    for precision in ("fast", "tracking", "exact"):
        if name == f"triton-{precision}":
            return partial(chunked, precision=precision, **sums)
    raise InvalidInput(f"evaluation order {name!r}: know {', '.join(ORDERS)}")


def chunked(
    tables: LayerTables,
    ids: Int[Tensor, "batch time"],
    state: Tensor | None = None,
    *,
    storage: torch.dtype,
    tables_as: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    rows: int = 32,
    precision: Precision | None = None,
) -> tuple[Float[Tensor, "batch time head column"], Float[Tensor, "batch head row column"]]:
    """The layer operation of `statetrack.kernels.api` on the tables' keys, β, gates and values.

    Tables are rounded to `tables_as` (None: `storage`); 8-bit ones are handed on in bfloat16, which holds them. Keys
    get length 1 in the arithmetic format where all of a layer's have it up to rounding; otherwise their lengths mean
    something (`statetrack.constructions.dyadic_keys`), and they stay as they are. The state comes back in the
    arithmetic format, whatever `storage` is. With a `precision` the Triton path runs, otherwise the torch path with
    chunks of `rows` rows. That path computes in `arithmetic(storage, accumulate)`; matrix products are not summed in
    any other format, so that `accumulate` must be it or None.

    Raises:
        InvalidInput: dense layers, biases, heads that round down, id -1 (no token), and what `recurrent` refuses;
            `accumulate` in a shorter format or on the Triton path.
    """
    exact = arithmetic(storage, accumulate)
    if accumulate is not None and (accumulate is not exact or precision is not None):
        where = f"{exact} on the torch path" if precision is None else "none: the precision says it"
        raise InvalidInput(f"chunkwise order, accumulate {accumulate}: expected {where}")
    check_ids(ids, tables.shape[0], "input ids", least=0)
    if tables.dense is not None or tables.bias is not None or tables.unit is not None:
        raise InvalidInput("chunkwise order: dense layers, biases and heads that round down have none")
    kept = tables_as or storage
    narrow = tables.to(ids.device, kept)
    S = starting_state(tables, ids, state).to(exact)
    factors, columns = tables.shape[2], tables.shape[4]
    wide = torch.bfloat16 if kept.itemsize == 1 else kept

    def laid(table: Tensor, dtype: torch.dtype) -> Tensor:
        """[I, H, J, ...] as [B, T·J, H, ...]."""
        return table.to(dtype)[ids.long()].transpose(2, 3).flatten(1, 2).contiguous()

    # The values' type is that of the readouts.
    short = wide if precision is not None else exact
    values = narrow.betas.new_zeros(*narrow.betas.shape, columns) if narrow.values is None else narrow.values
    core = ckda_chunk
    if precision is not None:
        core = import_module("statetrack.kernels.chunk_triton").ckda_chunk
    options = {} if precision is not None else {"rows_a_chunk": rows}
    o, last = core(
        narrow.queries.to(wide)[ids.long()].contiguous(),
        laid(narrow.keys, wide),
        laid(values, short),
        laid(narrow.betas, exact),
        Gate("alpha", laid(narrow.gates, exact)),
        scale=1.0,
        factors=factors,
        normalize_keys=_are_unit(narrow.keys),
        normalize_queries=False,
        initial_state=S,
        output_final_state=True,
        cu_seqlens=None,
        precision=precision or "exact",
        **options,
    )
    assert last is not None
    return o.to(exact), last


def _are_unit(keys: Tensor) -> bool:
    """Whether every key [..., K] has length 1 up to rounding to its format, or is zero."""
    sizes = keys.double().norm(dim=-1)
    return bool((((sizes - 1).abs() <= torch.finfo(keys.dtype).eps) | (sizes == 0)).all())


def scanned(
    tables: LayerTables,
    ids: Int[Tensor, "batch time"],
    state: Tensor | None = None,
    *,
    storage: torch.dtype,
    tables_as: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    block: int = _BLOCK,
) -> tuple[Float[Tensor, "batch time head column"], Float[Tensor, "batch head row column"]]:
    """All prefixes of a block's transitions by doubling, log2(`block`) rounds of matrix products; then states.

    Tables are rounded to `tables_as` (None: `storage`). A token's transition [[A, B], [0, I]], made in the arithmetic
    format, and every product of transitions are rounded to `storage`; products are summed in the arithmetic format. So
    are states, which are a prefix times the block's first state. On CUDA with float32, `torch.backends.cuda.matmul`
    decides on TF32. With `accumulate` every operation, those that make a transition too, is rounded to that format, and
    products are summed in the order of the index, each partial sum rounded.

    Raises:
        InvalidInput: heads that round down, id -1 (no token), and what `recurrent` refuses.
    """
    exact = arithmetic(storage, accumulate)
    check_ids(ids, tables.shape[0], "input ids", least=0)
    if tables.unit is not None:
        raise InvalidInput("parallel scan: heads that round down have none")
    rounded = tables.to(ids.device, tables_as or storage).to(ids.device, exact)
    maps = rounded_to(_transitions(rounded, accumulate), storage)  # [I, H, K + V, K + V], or [I, H, K, K]
    S = starting_state(tables, ids, state).to(storage).to(exact)  # [B, H, K, V]
    rows, columns = tables.shape[3:]
    affine = maps.shape[-1] > rows
    readouts: list[Tensor] = []
    for part in ids.long().split(block, 1):
        prefix = maps[part].transpose(1, 2)  # [B, H, t, n, n]
        reach = 1
        while reach < part.shape[1]:
            joined = rounded_to(_product(prefix[:, :, reach:], prefix[:, :, :-reach], accumulate), storage)
            prefix = torch.cat([prefix[:, :, :reach], joined], 2)
            reach *= 2
        states = _product(prefix[..., :rows, :rows], S[:, :, None], accumulate)
        states = rounded_to(states + prefix[..., :rows, rows:], accumulate) if affine else states
        states = rounded_to(states, storage)  # [B, H, t, K, V]
        queries = rounded.queries[part].transpose(1, 2)  # [B, H, t, K]
        readouts.append(summed(queries[..., None] * states, accumulate).transpose(1, 2))
        S = states[:, :, -1]
    empty = S.new_zeros(len(ids), 0, tables.shape[1], columns)
    return torch.cat([empty, *readouts], 1), S.to(storage)


def _product(left: Tensor, right: Tensor, accumulate: torch.dtype | None) -> Tensor:
    """The matrix product [..., n, m]; see `scanned` for `accumulate`."""
    if accumulate is None:
        return left @ right
    total = rounded_to(left[..., :, :1] * right[..., :1, :], accumulate)
    for i in range(1, left.shape[-1]):
        term = rounded_to(left[..., :, i : i + 1] * right[..., i : i + 1, :], accumulate)
        total = rounded_to(total + term, accumulate)
    return total


def _transitions(tables: LayerTables, accumulate: torch.dtype | None) -> Tensor:
    """What every input id does to the state, with what it adds in the last V columns if there is anything."""
    ids, heads, factors, rows, columns = tables.shape
    adds = tables.values is not None or tables.bias is not None
    size = rows + columns if adds else rows
    eye = torch.eye(size, dtype=tables.queries.dtype, device=tables.queries.device)
    product = eye.expand(ids, heads, -1, -1)
    if tables.dense is not None:
        product = product.clone()
        product[..., :rows, :rows] = tables.dense
        if tables.bias is not None:
            product[..., :rows, rows:] = tables.bias[:, :, 0]
        return rounded_to(product, accumulate)
    for j in range(factors):
        k, gate = tables.keys[:, :, j], tables.gates[:, :, j]
        push = rounded_to(tables.betas[:, :, j, None, None] * k[..., None], accumulate)
        step = eye.expand(ids, heads, -1, -1).clone()
        away = rounded_to(push * k[..., None, :], accumulate)
        square = rounded_to(torch.eye(rows, dtype=k.dtype, device=k.device) - away, accumulate)
        step[..., :rows, :rows] = rounded_to(square * gate[..., None, :], accumulate)
        added = step[..., :rows, rows:]  # a view
        if tables.values is not None:
            added += rounded_to(push * tables.values[:, :, j, None], accumulate)
        if tables.bias is not None:
            added.copy_(rounded_to(added + tables.bias[:, :, j], accumulate))
        product = _product(step, product, accumulate)
    return product
