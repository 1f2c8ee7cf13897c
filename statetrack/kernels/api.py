"""The layer operation with signed gates, for training (`ckda`) and for generation (`ckda_decode`).

For every value head the n factors of a token do S <- Diag(α) S, then S <- S - β k̂ (k̂ᵀ S - vᵀ), and after the last of
them o = scale · Sᵀ q̂. Gates α in [-1, 1] stand before every factor or once a token; β in [0, 2], 2 is a reflection.

Main definitions: `ckda`, `ckda_decode`.

References: CKDA; DeltaProduct (several factors). `docs/kernels.md` says more of arguments, precision and gradients.
"""
# ruff: noqa: F722

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable

from .gates import Gate, Precision

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Backend = Literal["auto", "triton", "torch", "naive", "gauge", "tilelang"]
Rule = Literal["signed", "softplus", "bounded"]
_PATHS = {
    "triton": ("chunk_triton", "ckda_chunk"),
    "torch": ("chunk_torch", "ckda_chunk"),
    "naive": ("ckda_reference", "ckda_naive"),
    "gauge": ("variants", "gauge_chunk"),
    "tilelang": ("variants", "tilelang_chunk"),
}
_DECODERS = {
    "triton": ("decode_triton", "ckda_decode"),
    "torch": ("chunk_torch", "ckda_chunk"),
    "naive": ("ckda_reference", "ckda_naive"),
}
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def ckda(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch rows head dim"],
    v: Float[Tensor, "batch rows value_head width"],
    alpha: Float[Tensor, "batch gates value_head dim"] | None = None,
    beta: Float[Tensor, "batch rows value_head"] | None = None,
    *,
    gate_logit: Float[Tensor, "batch gates value_head dim"] | None = None,
    gate: Rule = "signed",
    a_log: Float[Tensor, " value_head"] | None = None,
    dt_bias: Float[Tensor, "value_head dim"] | None = None,
    lower_bound: float = -5.0,
    scale: float | None = None,
    factors: int = 1,
    normalize_keys: bool = True,
    normalize_queries: bool = True,
    initial_state: Float[Tensor, "sequence value_head dim width"] | None = None,
    output_final_state: bool = False,
    cu_seqlens: Int[Tensor, " bound"] | None = None,
    precision: Precision = "fast",
    backend: Backend = "auto",
    check_ranges: bool | None = None,
) -> tuple[Float[Tensor, "batch time value_head width"], Float[Tensor, "sequence value_head dim width"] | None]:
    """The layer over whole sequences, with gradients in all floating-point arguments.

    `rows` is T·`factors`, token-major; `gates` is T or `rows`, and a last dimension of 1 is one gate for all channels.
    Give α in [-1, 1] as `alpha`, or its pre-activation as `gate_logit` with the rule `gate` (`gates.Gate`), or neither
    for α = 1. β ≥ 0; above 2 a factor expands. `scale` is K^-0.5 by default. `cu_seqlens` [N+1], from 0 to T, cuts a
    batch of one into sequences. Value head h reads key head h // (HV/H). `precision` is for CUDA. `check_ranges` reads
    α to refuse |α| > 1; the default does so off CUDA only, where it costs no wait.

    Returns o in the type of v and the final states (float32; float64 for float64 input), or None for them.

    Raises:
        InvalidInput: shapes, types, options or ranges that do not fit; all of them are listed.
        KernelUnavailable: a backend that is not installed.

    >>> x = torch.ones(1, 2, 1, 1)
    >>> ckda(x, x, x, -x, torch.ones(1, 2, 1))[0].flatten().tolist()
    [1.0, 1.0]
    """
    rule, faults = _rule(alpha, gate_logit, gate, a_log, dt_bias, lower_bound)
    call = _Call(q, k, v, beta, rule, factors, initial_state, cu_seqlens)
    if precision not in ("fast", "tracking", "exact"):
        faults.append(f"precision {precision!r}, expected 'fast', 'tracking' or 'exact'")
    faults += _option_faults(backend, {"auto": None, **_PATHS}, scale)
    checked = call.checked(faults, not q.is_cuda if check_ranges is None else check_ranges)
    # The operation chooses its formats itself.
    with torch.autocast(q.device.type, enabled=False):
        return _path(_PATHS, backend, call)(
            q,
            k,
            v,
            checked,
            rule,
            scale=q.shape[3] ** -0.5 if scale is None else scale,
            factors=factors,
            normalize_keys=normalize_keys,
            normalize_queries=normalize_queries,
            initial_state=initial_state,
            output_final_state=output_final_state,
            cu_seqlens=cu_seqlens,
            precision=precision,
        )


def ckda_decode(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch rows head dim"],
    v: Float[Tensor, "batch rows value_head width"],
    alpha: Float[Tensor, "batch gates value_head dim"] | None,
    beta: Float[Tensor, "batch rows value_head"],
    state: Float[Tensor, "sequence value_head dim width"],
    *,
    gate_logit: Float[Tensor, "batch gates value_head dim"] | None = None,
    gate: Rule = "signed",
    a_log: Float[Tensor, " value_head"] | None = None,
    dt_bias: Float[Tensor, "value_head dim"] | None = None,
    lower_bound: float = -5.0,
    scale: float | None = None,
    factors: int = 1,
    normalize_keys: bool = True,
    normalize_queries: bool = True,
    cu_seqlens: Int[Tensor, " bound"] | None = None,
    backend: Literal["auto", "triton", "torch", "naive"] = "auto",
    check_ranges: bool | None = None,
) -> tuple[Float[Tensor, "batch time value_head width"], Float[Tensor, "sequence value_head dim width"]]:
    """A few tokens from `state`, without gradients: what `ckda` gives with `initial_state=state`, and the new state.

    Arguments as those of `ckda`. `state` is not changed.

    Raises:
        InvalidInput: as `ckda`, or an argument that needs a gradient.
        KernelUnavailable: a backend that is not installed.
    """
    rule, faults = _rule(alpha, gate_logit, gate, a_log, dt_bias, lower_bound)
    call = _Call(q, k, v, beta, rule, factors, state, cu_seqlens)
    if torch.is_grad_enabled() and any(x.requires_grad for x in call.tensors().values()):
        faults.append("an argument needs a gradient, which decoding has none of (use ckda, or torch.no_grad)")
    faults += _option_faults(backend, {"auto": None, **_DECODERS}, scale)
    checked = call.checked(faults, not q.is_cuda if check_ranges is None else check_ranges)
    with torch.no_grad(), torch.autocast(q.device.type, enabled=False):
        o, final = _path(_DECODERS, backend, call)(
            q,
            k,
            v,
            checked,
            rule,
            scale=q.shape[3] ** -0.5 if scale is None else scale,
            factors=factors,
            normalize_keys=normalize_keys,
            normalize_queries=normalize_queries,
            initial_state=state,
            output_final_state=True,
            cu_seqlens=cu_seqlens,
            precision="exact",
        )
    assert final is not None
    return o, final


def _rule(
    alpha: Tensor | None,
    gate_logit: Tensor | None,
    gate: Rule,
    a_log: Tensor | None,
    dt_bias: Tensor | None,
    lower_bound: float,
) -> tuple[Gate, list[str]]:
    """The gate that is asked for, and what is wrong with asking so."""
    faults = [] if alpha is None or gate_logit is None else ["alpha and gate_logit are both given"]
    if gate_logit is not None:
        return Gate(gate, gate_logit, a_log, dt_bias, lower_bound), faults
    if a_log is not None or dt_bias is not None:
        faults.append("a_log and dt_bias need gate_logit")
    return Gate("none" if alpha is None else "alpha", alpha), faults


def _path(paths: dict[str, tuple[str, str]], backend: str, call: _Call) -> Callable[..., tuple[Tensor, Tensor | None]]:
    """The function that runs; `auto` is Triton on CUDA except for float64, and torch elsewhere."""
    if backend == "auto":
        wide = torch.float64 in (call.q.dtype, call.k.dtype, call.v.dtype)
        backend = "triton" if call.q.is_cuda and not wide else "torch"
    module, name = paths[backend]
    try:
        return getattr(import_module(f"statetrack.kernels.{module}"), name)
    except ImportError as error:
        raise KernelUnavailable(f"ckda ({backend})", str(error), "backend='torch' runs everywhere") from error


def _option_faults(backend: str, known: dict[str, tuple[str, str] | None], scale: float | None) -> list[str]:
    faults: list[str] = []
    if backend not in known:
        faults.append(f"backend {backend!r}, expected one of {', '.join(known)}")
    if scale is not None and not math.isfinite(scale):
        faults.append(f"scale {scale}, expected a finite number")
    return faults


@dataclass(frozen=True, eq=False)
class _Call:
    """The arguments that shapes must agree among."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor | None
    gate: Gate
    factors: int
    state: Tensor | None
    cu_seqlens: Tensor | None

    def tensors(self) -> dict[str, Tensor]:
        """The floating-point tensors that are present, by their public name."""
        gate = "alpha" if self.gate.kind == "alpha" else "gate_logit"
        named = {"q": self.q, "k": self.k, "v": self.v, "beta": self.beta, gate: self.gate.values}
        named |= {"a_log": self.gate.a_log, "dt_bias": self.gate.dt_bias, "initial_state": self.state}
        return {name: x for name, x in named.items() if x is not None}

    def checked(self, faults: list[str], ranges: bool) -> Tensor:
        """β, if nothing is wrong; InvalidInput with all `faults` and those found here otherwise."""
        faults = faults + self._type_faults()
        if self.q.ndim == self.k.ndim == self.v.ndim == 4 and self.factors >= 1:
            faults += self._shape_faults() + self._gate_faults()
            faults += [] if self.cu_seqlens is None else self._sequence_faults(self.cu_seqlens)
        else:
            shapes = ", ".join(f"{name} {tuple(x.shape)}" for name, x in self.tensors().items() if name in "qkv")
            faults.append(f"{shapes} and factors {self.factors}, expected four dimensions each and at least 1")
        if not faults and ranges and self.gate.kind == "alpha":
            faults += _range_faults("alpha", self.gate.values, -1.0, 1.0)
        if faults or self.beta is None:
            raise InvalidInput(f"ckda: {'; '.join(faults)}")
        return self.beta

    def _type_faults(self) -> list[str]:
        faults = [
            f"{name} has dtype {x.dtype}, expected a floating-point type"
            for name, x in self.tensors().items()
            if x.dtype not in _FLOATS
        ]
        faults += [
            f"{name} is on {x.device}, q on {self.q.device}"
            for name, x in self.tensors().items()
            if x.device != self.q.device
        ]
        if self.state is not None and self.state.dtype not in (torch.float32, torch.float64):
            faults.append(f"initial_state has dtype {self.state.dtype}, expected float32 (the state is never shorter)")
        if self.beta is None:
            faults.append("beta is missing, expected [B, T·factors, HV]")
        return faults

    def _shape_faults(self) -> list[str]:
        B, T, H, K = self.q.shape
        HV, V = self.v.shape[2:]
        rows = T * self.factors
        sequences = B if self.cu_seqlens is None else self.cu_seqlens.numel() - 1
        expected = {"k": (B, rows, H, K), "v": (B, rows, HV, V), "beta": (B, rows, HV)}
        expected |= {"initial_state": (sequences, HV, K, V), "a_log": (HV,)}
        faults = [
            f"{name} has shape {tuple(x.shape)}, expected {expected[name]}"
            for name, x in self.tensors().items()
            if name in expected and tuple(x.shape) != expected[name]
        ]
        if min(H, K, HV, V) == 0 or (H and HV % H):
            faults.append(f"H={H}, HV={HV}, K={K}, V={V}, expected positive numbers with HV a multiple of H")
        return faults

    def _gate_faults(self) -> list[str]:
        gate, values = self.gate, self.gate.values
        if values is None:
            return []
        B, T, _, K = self.q.shape
        HV = self.v.shape[2]
        name = "alpha" if gate.kind == "alpha" else "gate_logit"
        faults: list[str] = []
        lengths = sorted({T, T * self.factors})
        if values.ndim != 4 or values.shape[0] != B or values.shape[1] not in lengths or values.shape[2] != HV:
            times = " or ".join(map(str, lengths))
            faults.append(f"{name} has shape {tuple(values.shape)}, expected ({B}, {times}, {HV}, {K} or 1)")
        elif values.shape[3] not in (1, K):
            faults.append(f"{name} has {values.shape[3]} channels, expected {K} or 1")
        if gate.kind not in ("alpha", "signed", "softplus", "bounded"):
            faults.append(f"gate {gate.kind!r}, expected 'signed', 'softplus' or 'bounded'")
        if gate.kind == "signed" and gate.a_log is not None:
            faults.append("a_log has no place in gate='signed'")
        if gate.dt_bias is not None and tuple(gate.dt_bias.shape) != (HV, values.shape[-1]):
            faults.append(f"dt_bias has shape {tuple(gate.dt_bias.shape)}, expected {(HV, values.shape[-1])}")
        if not -math.inf < gate.lower_bound < 0:
            faults.append(f"lower_bound {gate.lower_bound}, expected a negative number")
        return faults

    def _sequence_faults(self, bounds: Tensor) -> list[str]:
        B, T = self.q.shape[:2]
        if bounds.ndim != 1 or len(bounds) < 2 or bounds.dtype not in (torch.int32, torch.int64):
            return [f"cu_seqlens has shape {tuple(bounds.shape)} and dtype {bounds.dtype}, expected integers [N + 1]"]
        ends = [int(end) for end in bounds.cpu()]
        if B != 1:
            return [f"cu_seqlens with a batch of {B}, expected the sequences in one row of a batch of 1"]
        if ends[0] != 0 or ends[-1] != T or ends != sorted(ends):
            return [f"cu_seqlens goes from {ends[0]} to {ends[-1]}, expected to rise from 0 to T = {T}"]
        return []


def _range_faults(name: str, x: Tensor | None, low: float, high: float) -> list[str]:
    """Whether x leaves [low, high] or has a number that is none."""
    if x is None or not x.numel():
        return []
    least, most = (float(end) for end in torch.aminmax(x.detach()))
    if least >= low and most <= high:
        return []
    return [f"{name} has values from {least:g} to {most:g}, expected {low:g}..{high:g}"]
