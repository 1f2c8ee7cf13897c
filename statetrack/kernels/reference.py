"""The layer recurrence, the nearest codeword and the automaton walk, in plain torch: the room's definition.

Every kernel of this room must agree with the functions of this file. The words of a batch share the tables of
the layer; a token is an *input id* that selects a row of them. Words are read left to right.

Main definitions: `LayerTables`, `recurrent`, `nearest`, `walk`, `arithmetic`, `rounded_to`, `summed`.

References: CKDA, the layer's recurrence; DeltaProduct (several factors a token).
"""
# S is the papers' letter for the state.
# pyright: reportConstantRedefinition=false
# ruff: noqa: F722

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statetrack.errors import InvalidInput

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_NARROW = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
ARITHMETIC = {torch.float64: torch.float64, torch.float32: torch.float32} | dict.fromkeys(_NARROW, torch.float32)
_DISTANCES_AT_ONCE = 1 << 23


@dataclass(frozen=True, eq=False)
class LayerTables:
    """What an input id selects in each head of a layer: its factors, its query, and the state before the first token.

    Shapes: `keys`, `gates` [I, H, J, K]; `betas` [I, H, J]; `queries` [I, H, K]; `state` [H, K, V];
    `values` [I, H, J, V] or None (all zero); `bias` [I, H, J, K, V] or None, added after each factor. With
    `dense` [I, H, K, K] a token multiplies the state by that matrix, the factors are ignored (J may be 0) and
    `bias` has J = 1. `unit` [H] or None: a head with a unit u (0: none) rounds its state down to multiples of u after
    every token; u is a power of two in 2^-126..2^126, so that x/u is exact. Gates in [-1, 1] and betas in [0, 2] are
    the layer's range; any finite number is accepted.

    Raises:
        InvalidInput: shapes that do not fit together, a table that is not of floats, a unit that is no power of two;
            all of them are listed.
    """

    keys: Tensor
    betas: Tensor
    gates: Tensor
    queries: Tensor
    state: Tensor
    values: Tensor | None = None
    bias: Tensor | None = None
    dense: Tensor | None = None
    unit: Tensor | None = None

    def __post_init__(self) -> None:
        if self.queries.ndim != 3 or self.state.ndim != 3 or self.betas.ndim != 3:
            raise InvalidInput(
                "layer tables: queries must be [I, H, K], state [H, K, V] and betas [I, H, J], got shapes "
                f"{tuple(self.queries.shape)}, {tuple(self.state.shape)} and {tuple(self.betas.shape)}"
            )
        ids, heads, factors, rows, columns = self.shape
        steps = 1 if self.dense is not None else factors
        expected = {
            "state": (heads, rows, columns),
            "bias": (ids, heads, steps, rows, columns),
            "dense": (ids, heads, rows, rows),
            "unit": (heads,),
        }
        if self.dense is None:
            expected["keys"] = expected["gates"] = (ids, heads, factors, rows)
            expected["betas"] = (ids, heads, factors)
            expected["values"] = (ids, heads, factors, columns)
        faults = [
            f"{name} has shape {tuple(table.shape)}, expected {shape}"
            for name, shape in expected.items()
            if (table := self.named().get(name)) is not None and tuple(table.shape) != shape
        ]
        faults += [
            f"{name} has dtype {table.dtype}, expected one of {', '.join(map(str, ARITHMETIC))}"
            for name, table in self.named().items()
            if table.dtype not in ARITHMETIC
        ]
        if self.unit is not None and not _are_units(self.unit):
            held = ", ".join(f"{float(u):g}" for u in self.unit.reshape(-1))
            faults.append(f"unit holds {held}, expected 0 or powers of two in 2^-126..2^126")
        if faults:
            raise InvalidInput(f"layer tables (I={ids}, H={heads}, J={factors}, K={rows}): {'; '.join(faults)}")

    @property
    def shape(self) -> tuple[int, int, int, int, int]:
        """The numbers I, H, J, K, V of input ids, heads, factors, state rows and state columns."""
        ids, heads, rows = self.queries.shape
        return ids, heads, self.betas.shape[2], rows, self.state.shape[2]

    def named(self) -> dict[str, Tensor]:
        """The tables that are present, by field name."""
        fields = ("keys", "betas", "gates", "queries", "state", "values", "bias", "dense", "unit")
        present = {name: getattr(self, name) for name in fields}
        return {name: table for name, table in present.items() if table is not None}

    def to(self, device: torch.device | str, dtype: torch.dtype) -> LayerTables:
        """The same tables, contiguous, on `device`, each number rounded to `dtype`."""
        return LayerTables(**{name: table.to(device, dtype).contiguous() for name, table in self.named().items()})


def arithmetic(storage: torch.dtype, accumulate: torch.dtype | None = None) -> torch.dtype:
    """The type that the recurrence computes in: float64 if one of the two is float64, float32 for narrower ones.

    Raises:
        InvalidInput: any other type.
    """
    for name, dtype in (("storage", storage), ("accumulate", accumulate or storage)):
        if dtype not in ARITHMETIC:
            raise InvalidInput(f"{name} {dtype}: expected one of {', '.join(map(str, ARITHMETIC))}")
    return torch.promote_types(ARITHMETIC[storage], ARITHMETIC[accumulate or storage])


def recurrent(
    tables: LayerTables,
    ids: Int[Tensor, "batch time"],
    state: Tensor | None = None,
    *,
    storage: torch.dtype,
    tables_as: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
) -> tuple[Float[Tensor, "batch time head column"], Float[Tensor, "batch head row column"]]:
    """The readouts after every token and the state after the last, by the recurrence itself.

    For j = 0..J-1: S <- g_j[:, None] * S; z = k_jᵀ S; S <- S - (β_j k_j) zᵀ + (β_j k_j) v_jᵀ (+ bias_j); then
    o = Sᵀ q. A dense layer: S <- M S (+ bias). A head with a unit u ends every token with S <- u floor(S/u). Id -1 is
    "no token": the state stays and the readout is 0. Tables are rounded to `tables_as` once, the state after every
    factor (in a head with a unit once a token, after the floor); arithmetic and readouts are in
    `arithmetic(storage, accumulate)`; the state comes back in `storage`, so going on from it equals one pass.

    Args:
        tables, ids: the layer, on the device of `ids`; input ids in -1..I-1.
        state: [B, H, K, V], the state to go on from; None starts from `tables.state`.
        storage, tables_as: the formats of state and tables, floats of 64 to 8 bits; None is `storage`.
        accumulate: the format to which every operation is rounded, the readout's too: each product, each partial sum
            over K in the order of the index, each addition to the state. None: the arithmetic, in any order over K.

    Raises:
        InvalidInput: an id out of range, a state of another shape, an unknown type.

    Source: CKDA eq. of the layer, with a gate before each of J factors.
    """
    exact = arithmetic(storage, accumulate)
    check_ids(ids, tables.shape[0], "input ids")
    rounded = tables.to(ids.device, tables_as or storage).to(ids.device, exact)
    S = starting_state(tables, ids, state).to(storage).to(exact)  # [B, H, K, V]
    (batch, time), (_, heads, _, _, columns) = ids.shape, tables.shape
    readouts = torch.zeros(batch, time, heads, columns, dtype=exact, device=ids.device)
    for t in range(time):
        real = (ids[:, t] >= 0)[:, None, None, None]
        picked = ids[:, t].clamp(min=0)
        S = torch.where(real, _advance(rounded, picked, S, storage, accumulate), S)
        readout = summed(rounded.queries[picked][..., None] * S, accumulate)  # [B, H, V]
        readouts[:, t] = torch.where(real[..., 0], readout, 0.0)
    return readouts, S.to(storage)


def nearest(readouts: Float[Tensor, "row column"], codebook: Float[Tensor, "code column"]) -> Int[Tensor, " row"]:
    """The number (int32) of the codeword nearest to each readout; the first wins a tie.

    The squared Euclidean distance is Σ_v (r_v - c_v)², summed in the order of v in the type of `readouts`. A readout
    without a codeword at a finite distance (NaN, infinite, or so large that the square overflows) gets -1.

    Raises:
        InvalidInput: widths that differ.
    """
    check_widths(readouts, codebook)
    codewords = codebook.to(readouts.dtype)
    found = torch.full((readouts.shape[0],), -1, dtype=torch.int32, device=readouts.device)
    if codewords.shape[0] == 0:
        return found
    block = max(1, _DISTANCES_AT_ONCE // codewords.shape[0])
    for start in range(0, readouts.shape[0], block):
        rows = readouts[start : start + block]
        distance = torch.zeros(rows.shape[0], codewords.shape[0], dtype=rows.dtype, device=rows.device)
        for v in range(codewords.shape[1]):
            difference = rows[:, v, None] - codewords[:, v]
            distance = distance + difference * difference
        distance = torch.where(distance.isnan(), torch.inf, distance)
        index = distance.argmin(1)
        least = distance.gather(1, index[:, None])[:, 0]
        found[start : start + block] = torch.where(least < torch.inf, index, -1).int()
    return found


def walk(
    delta: Int[Tensor, "state symbol"], tokens: Int[Tensor, "batch time"], state: Int[Tensor, " batch"]
) -> Int[Tensor, "batch time"]:
    """The automaton's state (int32) after every token, from `state` before the first; token -1 stays.

    Raises:
        InvalidInput: a token, a state or an entry of `delta` out of range.
    """
    check_walk(delta, tokens, state)
    states = torch.zeros(tokens.shape, dtype=torch.int32, device=tokens.device)
    current = state.int()
    for t in range(tokens.shape[1]):
        token = tokens[:, t]
        current = torch.where(token >= 0, delta[current.long(), token.clamp(min=0).long()].int(), current)
        states[:, t] = current
    return states


def check_ids(ids: Tensor, count: int, what: str, least: int = -1) -> None:
    """Refuse `ids` (any shape, integers) outside `least`..count-1."""
    if ids.dtype not in (torch.int32, torch.int64):
        raise InvalidInput(f"{what}: dtype {ids.dtype}, expected int32 or int64")
    if ids.numel():
        low, high = (int(end) for end in torch.aminmax(ids))
        if low < least or high >= count:
            raise InvalidInput(f"{what}: got values from {low} to {high}, expected {least}..{count - 1}")


def check_widths(readouts: Tensor, codebook: Tensor) -> None:
    """Refuse readouts and codewords that are not two matrices of one width."""
    if readouts.ndim != 2 or codebook.ndim != 2 or readouts.shape[1] != codebook.shape[1]:
        raise InvalidInput(
            f"nearest codeword: readouts of shape {tuple(readouts.shape)} and codebook of shape "
            f"{tuple(codebook.shape)}; expected [N, V] and [C, V]"
        )


def check_walk(delta: Tensor, tokens: Tensor, state: Tensor) -> None:
    """Refuse a walk whose shapes or ranges do not fit."""
    if delta.ndim != 2 or tokens.ndim != 2 or state.shape != tokens.shape[:1]:
        raise InvalidInput(
            f"walk: delta {tuple(delta.shape)}, tokens {tuple(tokens.shape)}, state {tuple(state.shape)}; "
            "expected [Q, A], [B, T] and [B]"
        )
    check_ids(delta, delta.shape[0], "walk: transitions", least=0)
    check_ids(tokens, delta.shape[1], "walk: tokens")
    check_ids(state, delta.shape[0], "walk: states before the first token", least=0)


def starting_state(tables: LayerTables, ids: Tensor, state: Tensor | None) -> Tensor:
    """The state [B, H, K, V] before the first token of `ids`: `state`, or the layer's for every word."""
    if ids.ndim != 2:
        raise InvalidInput(f"input ids: shape {tuple(ids.shape)}, expected [B, T]")
    _, heads, _, rows, columns = tables.shape
    shape = (ids.shape[0], heads, rows, columns)
    if state is None:
        return tables.state.to(ids.device).expand(shape)
    if tuple(state.shape) != shape:
        raise InvalidInput(f"state: shape {tuple(state.shape)}, expected {shape}")
    return state


def rounded_to(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    """The numbers of a format nearest to those of `x`, ties to even, in the type of `x`; None: as they are."""
    if dtype is None or dtype is x.dtype:
        return x
    if x.dtype is torch.float64 and dtype.itemsize < 4:
        return _to_odd(x).to(dtype).to(x.dtype)
    return x.to(dtype).to(x.dtype)


def summed(terms: Float[Tensor, "*shape row column"], accumulate: torch.dtype | None) -> Float[Tensor, "*shape column"]:
    """The sum over the rows; with `accumulate` in their order, every term and every partial sum rounded to it."""
    if accumulate is None:
        return terms.sum(-2)
    rows = rounded_to(terms, accumulate).unbind(-2)
    total = rows[0] if rows else terms.sum(-2)
    for row in rows[1:]:
        total = rounded_to(total + row, accumulate)
    return total


def _advance(
    tables: LayerTables, ids: Tensor, S: Tensor, storage: torch.dtype, accumulate: torch.dtype | None
) -> Tensor:
    """One real token for every word; `tables` and S are in the arithmetic type."""
    bias = None if tables.bias is None else tables.bias[ids]  # [B, H, J, K, V]
    unit = None if tables.unit is None else tables.unit[:, None, None]  # [H, 1, 1]
    if tables.dense is not None:
        S = summed(tables.dense[ids][..., None] * S[:, :, None], accumulate)
        return _stored(S if bias is None else rounded_to(S + bias[:, :, 0], accumulate), unit, storage)
    keys, betas, gates = tables.keys[ids], tables.betas[ids], tables.gates[ids]  # [B, H, J, K], [B, H, J]
    values = None if tables.values is None else tables.values[ids]  # [B, H, J, V]
    for j in range(tables.shape[2]):
        k = keys[:, :, j, :, None]  # [B, H, K, 1]
        S = rounded_to(gates[:, :, j, :, None] * S, accumulate)
        z = summed(k * S, accumulate)[:, :, None]  # [B, H, 1, V]
        push = rounded_to(betas[:, :, j, None, None] * k, accumulate)
        S = rounded_to(S - rounded_to(push * z, accumulate), accumulate)
        if values is not None:
            S = rounded_to(S + rounded_to(push * values[:, :, j, None, :], accumulate), accumulate)
        if bias is not None:
            S = rounded_to(S + bias[:, :, j], accumulate)
        S = rounded_to(S, storage) if unit is None else torch.where(unit > 0, S, rounded_to(S, storage))
    return _stored(S, unit, storage)


def _stored(S: Tensor, unit: Tensor | None, storage: torch.dtype) -> Tensor:
    """The state at the end of a token: rounded down to multiples of the heads' units, then to `storage`."""
    if unit is not None:
        S = torch.where(unit > 0, unit * (S / torch.where(unit > 0, unit, 1.0)).floor(), S)
    return rounded_to(S, storage)


def _to_odd(x: Tensor) -> Tensor:
    """Float64 as the float32 from which a narrower format is rounded to once: of the two around x the odd one."""
    near = x.float()
    bits = near.view(torch.int32)
    between = (near.double() != x) & (bits % 2 == 0) & ~x.isnan()
    outward = torch.where(near.double().abs() < x.abs(), 1, -1).int()
    return torch.where(between, bits + outward, bits).view(torch.float32)


def _are_units(unit: Tensor) -> bool:
    """Whether every entry is 0 or a power of two that all formats hold and whose inverse they hold."""
    mantissa, exponent = torch.frexp(unit.double())
    power = (mantissa == 0.5) & (exponent >= -125) & (exponent <= 127)
    return bool(((unit == 0) | power).all())
