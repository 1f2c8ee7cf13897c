"""The layer operation in chunks of rows, in plain torch, with torch's own gradients: the path of CPUs and of float64.

A row is one factor of a token. In a chunk of C rows let D_i be the diagonal product of the gates of rows 0..i. With
A_ij = β_i ⟨k_i, D_i/D_j k_j⟩ for i > j and X = (I + A)⁻¹, a chunk that starts from S has the written rows
W = X(β v) - X(β D k) S, the readouts D q S + tril(⟨q_i, D_i/D_j k_j⟩) W, and ends in D_C S + Σ_j (D_C/D_j k_j) W_jᵀ.

No gate is divided by another and no logarithm is taken. Blocks of 1, 2, 4, ... rows are joined in pairs: D_i/D_j for i
in the second block and j in the first is the product of the gates of the second up to i, times that of the first after
j. These products are kept as rows k and q times the gates up to their block's end or from its start, so that every
number is at most 1 in size, signs are in it, a gate of exactly 0 is an exact reset, and its gradient is the true one.

All chunks are taken at once except for the pass of the state, which takes the chunks of one number of all sequences.
Long inputs are cut into segments that fit the caches; of very long ones a segment is computed again on the way back.

Main definitions: `ckda_chunk`.

References: CKDA, chunkwise form; the gauge restarts in every chunk.
"""
# S, C are the papers' letters.
# pyright: basic
# ruff: noqa: F722

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .ckda_reference import folded_keys, folded_queries, row_gates, working_type
from .gates import Gate, Precision

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_ROWS = 32
# Numbers of one intermediate tensor: of a segment, and of an input that keeps all of them for the way back.
_SEGMENT = 1 << 18
_KEPT = 1 << 22


def ckda_chunk(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch rows head dim"],
    v: Float[Tensor, "batch rows value_head width"],
    beta: Float[Tensor, "batch rows value_head"],
    gate: Gate,
    *,
    scale: float,
    factors: int,
    normalize_keys: bool,
    normalize_queries: bool,
    initial_state: Float[Tensor, "sequence value_head dim width"] | None,
    output_final_state: bool,
    cu_seqlens: Int[Tensor, " bound"] | None,
    precision: Precision,
    rows_a_chunk: int = _ROWS,
) -> tuple[Float[Tensor, "batch time value_head width"], Float[Tensor, "sequence value_head dim width"] | None]:
    """What `ckda_naive` of `ckda_reference` does, up to rounding, in chunks; the same arguments and results.

    It computes in float64 if an input is float64, else in float32, whatever `precision` says. A chunk has
    `rows_a_chunk` rows, a power of two (or one token, if that is more).
    """
    batch, time, _, K = q.shape
    HV, V = v.shape[2:]
    dtype = working_type(q, k, v)
    bounds = torch.arange(batch + 1) * time if cu_seqlens is None else cu_seqlens.cpu().long()
    padded = 1 << (factors - 1).bit_length()
    plan = _plan(bounds, max(1, rows_a_chunk // padded)).to(q.device)
    if initial_state is None:
        S = torch.zeros(len(plan.order), HV, K, V, dtype=dtype, device=q.device)
    else:
        S = initial_state.to(dtype)[plan.order]
    alpha = row_gates(gate, factors, time * factors, q.device)
    laid = (
        _laid_out(q, plan, 1, 1),
        _laid_out(k, plan, factors, padded),
        _laid_out(v, plan, factors, padded),
        _laid_out(beta, plan, factors, padded),
        _laid_out(alpha.expand(batch, -1, HV, -1), plan, factors, padded, 1.0),
    )
    rule = _Rule(dtype, scale, normalize_keys, normalize_queries, padded)
    o, S = _segments(laid, S, plan, rule)
    o = o.flatten(0, 1).index_select(0, plan.back).view(batch, time, HV, V).to(v.dtype)
    return o, (S[plan.order.argsort()] if output_final_state else None)


@dataclass(frozen=True, eq=False)
class _Plan:
    """Which tokens a chunk holds. Chunks stand in the order of their number in their sequence, sequences by length.

    `order` [N]: sequences, the longest first. `active`: how many sequences have a chunk of each number. `at`, `real`
    [M, C]: the token at each place of a chunk, counted through the batch, and whether there is one. `back` [B·T]: the
    place of each token.
    """

    order: Tensor
    active: tuple[int, ...]
    at: Tensor
    real: Tensor
    back: Tensor

    def to(self, device: torch.device) -> _Plan:
        """The same plan with its tensors on `device`."""
        moved = (x.to(device) for x in (self.at, self.real, self.back))
        return _Plan(self.order.to(device), self.active, *moved)


def _plan(bounds: Tensor, tokens: int) -> _Plan:
    """Cut sequences with ends `bounds` [N + 1] into chunks of at most `tokens` tokens, a power of two."""
    lengths = bounds.diff()
    longest = int(lengths.max()) if len(lengths) else 0
    tokens = min(tokens, 1 << max(longest - 1, 0).bit_length())
    counts = (lengths + tokens - 1) // tokens
    order = counts.argsort(descending=True, stable=True)
    counts = counts[order]
    rank = torch.repeat_interleave(torch.arange(len(counts)), counts)
    number = torch.arange(len(rank)) - (counts.cumsum(0) - counts)[rank]
    by_number = number.argsort(stable=True)
    sequence, number = order[rank[by_number]], number[by_number]
    at = bounds[sequence, None] + number[:, None] * tokens + torch.arange(tokens)
    real = at < bounds[sequence + 1, None]
    back = torch.empty(int(bounds[-1]), dtype=torch.int64)
    back[at[real]] = real.flatten().nonzero()[:, 0]
    return _Plan(order, tuple(number.bincount().tolist()), at.where(real, 0), real, back)


def _laid_out(x: Tensor, plan: _Plan, factors: int, padded: int, fill: float = 0.0) -> Tensor:
    """x [B, T·factors, H, ...] as rows of chunks [M, C·padded, H, ...]; `fill` where there is no token or factor."""
    x = x.unflatten(1, (-1, factors)).flatten(0, 1)
    x = x.index_select(0, plan.at.flatten()).unflatten(0, plan.at.shape)  # [M, C, factors, H, ...]
    if not plan.real.all():
        x = x.masked_fill(~plan.real.view(*plan.real.shape, *[1] * (x.ndim - 2)), fill)
    if padded > factors:
        x = torch.cat([x, x.new_full((*x.shape[:2], padded - factors, *x.shape[3:]), fill)], 2)
    return x.flatten(1, 2)


@dataclass(frozen=True)
class _Rule:
    """What a chunk needs to know besides its tensors; `factors` counts the rows of a token."""

    dtype: torch.dtype
    scale: float
    normalize_keys: bool
    normalize_queries: bool
    factors: int


def _segments(laid: tuple[Tensor, ...], S: Tensor, plan: _Plan, rule: _Rule) -> tuple[Tensor, Tensor]:
    """Readouts [M, C, HV, V] and final states, in the order of the plan, segment after segment."""
    sizes = [laid[2].shape[1] * S.shape[1] * max(S.shape[2:]) * count for count in plan.active]
    steps: list[list[int]] = []
    room = 0
    for count, size in zip(plan.active, sizes, strict=True):
        if not steps or room < size:
            steps.append([])
            room = _SEGMENT
        steps[-1].append(count)
        room -= size
    parts = [x.split([sum(counts) for counts in steps]) for x in laid]
    again = sum(sizes) > _KEPT and torch.is_grad_enabled()
    found: list[Tensor] = []
    for counts, q, k, v, beta, alpha in zip(steps, *parts, strict=True):
        args = (S[: counts[0]], q, k, v, beta, alpha, counts, rule)
        if again:
            o, ended = checkpoint(_segment, *args, use_reentrant=False, preserve_rng_state=False)
        else:
            o, ended = _segment(*args)
        found.append(o)
        S = torch.cat([ended, S[counts[0] :]]) if counts[0] < len(S) else ended
    return torch.cat(found) if found else S.new_zeros(0, plan.at.shape[1], S.shape[1], S.shape[3]), S


def _segment(
    S: Tensor, q: Tensor, k: Tensor, v: Tensor, beta: Tensor, alpha: Tensor, counts: list[int], rule: _Rule
) -> tuple[Tensor, Tensor]:
    """Readouts of some chunks and the states [m, HV, K, V] after them; `counts`: chunks of each number."""
    q, k, v, alpha = (_by_head(x, rule.dtype) for x in (q, k, v, alpha))
    k, beta, v = folded_keys(k, beta.to(rule.dtype).mT, v, rule.normalize_keys, head=1)
    q, factor = folded_queries(q, rule.scale, rule.normalize_queries)
    group = v.shape[1] // k.shape[1]
    q, k = (x.repeat_interleave(group, 1) if group > 1 else x for x in (q * factor, k))
    tile = _joined(q, k, beta, alpha, rule.factors)
    push = tile.inverse * beta.reshape(-1, 1, beta.shape[-1])  # columns times β
    written, seen = push @ v.flatten(0, 1), push @ tile.keys
    heads = S.shape[1]
    at = [x.split([count * heads for count in counts]) for x in (written, seen, tile.ends.mT, tile.decay.mT)]
    S = S.flatten(0, 1)
    before: list[Tensor] = []
    rows: list[Tensor] = []
    ended: list[Tensor] = []
    for u, w, ends, decay in zip(*at, strict=True):
        if len(u) < len(S):
            ended.append(S[len(u) :])
            S = S[: len(u)]
        before.append(S)
        rows.append(torch.baddbmm(u, w, S, alpha=-1))
        S = torch.baddbmm(decay * S, ends, rows[-1])
    o = torch.baddbmm(tile.reads @ torch.cat(rows), tile.queries, torch.cat(before))
    S = torch.cat([S, *reversed(ended)])
    return o.unflatten(0, (-1, heads)).transpose(1, 2), S.unflatten(0, (-1, heads))


def _by_head(x: Tensor, dtype: torch.dtype) -> Tensor:
    """[M, rows, H, ...] as a new tensor [M, H, rows, ...]."""
    return torch.empty_like(x.transpose(1, 2), dtype=dtype, memory_format=torch.contiguous_format).copy_(
        x.transpose(1, 2)
    )


@dataclass(frozen=True, eq=False)
class _Tile:
    """What is known of a chunk before its state is, for the C rows and R tokens of M·HV chunks.

    `keys` [M·HV, C, K]: D_i k_i. `ends` [.., C, K]: D_C/D_j k_j. `queries` [.., R, K]: D_i q_i at a token's last row.
    `reads` [.., R, C]: ⟨q_i, D_i/D_j k_j⟩. `inverse` [.., C, C]: X. `decay` [.., 1, K or 1]: D_C.
    """

    keys: Tensor
    ends: Tensor
    queries: Tensor
    reads: Tensor
    inverse: Tensor
    decay: Tensor


def _joined(q: Tensor, k: Tensor, beta: Tensor, alpha: Tensor, factors: int) -> _Tile:
    """Join rows into blocks of 2, 4, ... until a block is the chunk; tensors inside are [M·HV·blocks, rows, ...]."""
    chunks = k.shape[0] * k.shape[1]
    q, k, alpha, beta = (x.reshape(-1, 1, x.shape[-1]) for x in (q, k, alpha, beta[..., None]))
    keys, ends, decay, inverse = k * alpha, k, alpha, torch.ones_like(beta)
    queries = reads = q[:0]
    size = 1
    while True:
        if size == factors:
            queries, reads = q * decay, q @ ends.mT
        if len(decay) == chunks:
            break
        first, second = _pairs(decay)
        tail, front = _pairs(keys)[1], _pairs(ends)[0].mT
        upper, lower = _pairs(inverse)
        betas = beta.view(-1, 2, size, 1)[:, 1]
        corner = torch.baddbmm(torch.zeros_like(upper), lower @ (betas * (tail @ front)), upper, alpha=-1, beta=0)
        inverse = _corner(upper, corner, lower)
        if size >= factors:
            left, right = _pairs(reads)
            reads = _corner(left, _pairs(queries)[1] @ front, right)
            queries = _times(queries, 1, first)
        keys, ends = _times(keys, 1, first), _times(ends, 0, second)
        decay = first * second
        size *= 2
    return _Tile(keys, ends, queries, reads, inverse, decay)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the second block of every pair."""
    first, second = x.view(-1, 2, *x.shape[1:]).unbind(1)
    return first, second


def _times(x: Tensor, which: int, factor: Tensor) -> Tensor:
    """Pairs of blocks as one block, the first or second of them times `factor`; in place where no gradient needs x."""
    if torch.is_grad_enabled():
        blocks = list(_pairs(x))
        blocks[which] = blocks[which] * factor
        return torch.cat(blocks, 1)
    x = x.view(-1, 2, *x.shape[1:])
    x[:, which].mul_(factor)
    return x.flatten(1, 2)


def _corner(upper: Tensor, corner: Tensor, lower: Tensor) -> Tensor:
    """[[upper, 0], [corner, lower]]."""
    above = torch.nn.functional.pad(upper, (0, lower.shape[-1]))
    return torch.cat([above, torch.cat([corner, lower], -1)], -2)
