"""The same operation by other roads: a global gauge around unsigned kernels, and TileLang.

Global gauge: with s_t the sign of alpha_t (+1 at 0) and sigma_t the product of the signs up to t in the same sequence,
S' = Diag(sigma) S obeys the recurrence with |alpha|, keys sigma k and queries sigma q, and reads out the same numbers.
A sign flip rounds nothing, so any kernel for gates in [0, 1] becomes one for gates in [-1, 1]; the price is a scan over
the sequence and a second copy of q and k. Gradients follow from the chain rule: dq = sigma dq', dk = sigma dk',
dalpha = s d|alpha|. `chunk_triton` needs none of this: it restarts sigma in every chunk.

TileLang: `tilelang_chunk` is `chunk_triton` with the pass over a sequence's chunks from `tilelang_states`.

Main definitions: `gauge_chunk`, `gauge`, `tilelang_chunk`.

References: CKDA, the signed gate.
"""
# pyright: basic

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable

from .gates import Gate, Precision

# The least gate that is given to a peer which knows logarithms only.
PEER_FLOOR = 2.0**-40


def gauge_chunk(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Gate,
    *,
    scale: float,
    factors: int,
    normalize_keys: bool,
    normalize_queries: bool,
    initial_state: Tensor | None,
    output_final_state: bool,
    cu_seqlens: Tensor | None,
    precision: Precision,
    core: Literal["ours", "fla"] = "ours",
    compiled: bool | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Signed gates through kernels that never see a sign.

    Arguments, shapes and results are those of `chunk_torch.ckda_chunk`, and two more. Exact up to the core's own
    rounding, resets included; gates without a sign go to the core as they are.

    Args:
        core: "ours" is `chunk_triton` on CUDA and `chunk_torch` elsewhere; "fla" is `chunk_kda` of fla-core, which
            takes one factor a token, no `precision`, and counts a gate below 2^-40 as 2^-40.
        compiled: whether signs, scan and products run through `torch.compile`; None: on CUDA.

    Raises:
        InvalidInput: a core that is not known, or what "fla" does not take.
        KernelUnavailable: "fla" where fla-core is not installed.
    """
    options: dict[str, Any] = {
        "scale": scale,
        "factors": factors,
        "normalize_keys": normalize_keys,
        "normalize_queries": normalize_queries,
        "initial_state": initial_state,
        "output_final_state": output_final_state,
        "cu_seqlens": cu_seqlens,
        "precision": precision,
    }
    run = _core(core, q.is_cuda)
    if gate.kind not in ("alpha", "signed"):
        return run(q, k, v, beta, gate, **options)
    turn = _compiled_gauge() if (q.is_cuda if compiled is None else compiled) else gauge
    size, q, k, last = turn(gate.alpha(), q, k, cu_seqlens, factors)
    o, state = run(q, k, v, beta, Gate("alpha", size), **options)
    return o, None if state is None else state * last


def gauge(
    alpha: Tensor, q: Tensor, k: Tensor, cu_seqlens: Tensor | None, factors: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gauged inputs: |alpha|, sigma q, sigma k, and the signs [N, HV, K or 1, 1] that turn the last state back.

    alpha is [B, T or T n, HV, K or 1]; q [B, T, H, K] and k [B, T n, H, K] come back with HV heads, for sigma belongs
    to a value head.
    """
    tokens, heads = q.shape[1], alpha.shape[2]
    each = alpha.shape[1] // tokens
    negative = alpha < 0
    count = negative.cumsum(1, dtype=torch.int32)
    if cu_seqlens is None:
        last = count[:, -1]
    else:
        bounds = cu_seqlens.to(alpha.device, torch.int64) * each
        before = torch.cat([torch.zeros_like(count[:, :1]), count], 1)[0, bounds]
        rows = torch.arange(alpha.shape[1], device=alpha.device)
        count = count - before[torch.searchsorted(bounds[1:], rows, right=True)]
        last = before[1:] - before[:-1]
    sigma = _sign(count)
    read = sigma[:, each - 1 :: each]
    write = sigma if each == factors else sigma.repeat_interleave(factors, 1)
    groups = heads // q.shape[2]
    if groups > 1:
        q, k = q.repeat_interleave(groups, 2), k.repeat_interleave(groups, 2)
    size = torch.where(negative, -alpha, alpha)
    return size, q * read.to(q.dtype), k * write.to(k.dtype), _sign(last)[..., None]


def tilelang_chunk(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Gate, *, precision: Precision, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """`chunk_triton.ckda_chunk` with its second stage, forwards and backwards, in TileLang.

    The other stages stay in Triton: they are products within a chunk, while this one is the serial part.

    Raises:
        InvalidInput: tensors that are not bfloat16 on CUDA, K or V no multiple of 16, another precision than "fast".
        KernelUnavailable: tilelang is not installed.
    """
    from . import tilelang_states

    faults = [
        f"{name} is {str(x.dtype).removeprefix('torch.')} on {x.device.type}, expected bfloat16 on cuda"
        for name, x in (("q", q), ("k", k), ("v", v))
        if x.dtype != torch.bfloat16 or not x.is_cuda
    ]
    faults += [f"{n} is {x.shape[-1]}, expected a multiple of 16" for n, x in (("K", q), ("V", v)) if x.shape[-1] % 16]
    if precision != "fast":
        faults.append(f"precision is {precision!r}, expected 'fast'")
    if faults:
        raise InvalidInput(f"tilelang_chunk: {'; '.join(faults)}")
    tilelang_states.installed()
    states = (tilelang_states.forward_states, tilelang_states.backward_states)
    return importlib.import_module(f"{__package__}.chunk_triton").ckda_chunk(
        q, k, v, beta, gate, precision=precision, states=states, **options
    )


def _sign(count: Tensor) -> Tensor:
    """(-1)^count."""
    return 1 - 2 * (count & 1)


@cache
def _compiled_gauge() -> Callable[..., tuple[Tensor, Tensor, Tensor, Tensor]]:
    return torch.compile(gauge, dynamic=False)


def _core(name: str, cuda: bool) -> Callable[..., tuple[Tensor, Tensor | None]]:
    if name == "fla":
        return _fla_core
    if name != "ours":
        raise InvalidInput(f"gauge_chunk: core {name!r}, expected 'ours' or 'fla'")
    return importlib.import_module(f"{__package__}.{'chunk_triton' if cuda else 'chunk_torch'}").ckda_chunk


def _fla_core(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor,
    gate: Gate,
    *,
    scale: float,
    factors: int,
    normalize_keys: bool,
    normalize_queries: bool,
    initial_state: Tensor | None,
    output_final_state: bool,
    cu_seqlens: Tensor | None,
    precision: str,
) -> tuple[Tensor, Tensor | None]:
    """`chunk_kda` of fla-core on a gate in [0, 1]."""
    faults: list[str] = []
    if factors != 1:
        faults.append(f"factors is {factors}, expected 1")
    if normalize_keys != normalize_queries:
        faults.append("keys and queries must both be normalised, or neither")
    if precision != "fast":
        faults.append(f"precision is {precision!r}, expected 'fast'")
    if faults:
        raise InvalidInput(f"gauge_chunk with core 'fla': {'; '.join(faults)}")
    try:
        chunk_kda = importlib.import_module("fla.ops.kda").chunk_kda
    except ImportError as error:
        raise KernelUnavailable("gauge with core 'fla'", f"fla-core cannot be imported ({error})", _WITHOUT) from error
    heads = v.shape[2]
    if q.shape[2] != heads:
        q, k = (x.repeat_interleave(heads // x.shape[2], 2) for x in (q, k))
    decay = gate.alpha().float().clamp_min(PEER_FLOOR).log().expand(*q.shape[:2], heads, q.shape[3])
    return chunk_kda(
        q,
        k,
        v,
        decay,
        beta,
        scale=scale,
        initial_state=initial_state,
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=normalize_keys,
        cu_seqlens=None if cu_seqlens is None else cu_seqlens.long(),
    )


_WITHOUT = "install the extra 'bench', or take core='ours'"
