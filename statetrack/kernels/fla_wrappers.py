"""The layer operation under the names and in the layout of flash-linear-attention 0.6, for layers written for it.

The functions take the arguments of `fla.ops.kda`, `fla.ops.delta_rule`, `fla.ops.gated_delta_rule` and
`fla.ops.gated_delta_product` where these mean the same here, and refuse the others in one line. Results agree up to
rounding, with one difference: keys and queries that are normalised get length 1, without the 1e-6 under the root.
Hints on speed and memory (`safe_gate` without a gate rule, `disable_recompute`, `chunk_size`, `chunk_indices`,
`cu_seqlens_cpu`) change nothing. With `signed_gate=True`, g is the pre-activation of a signed gate,
α = 2σ(g + dt_bias) - 1, floored in size at e^lower_bound (-5 if none is given).

Main definitions: `chunk_kda`, `fused_recurrent_kda`, `chunk_delta_rule`, `chunk_gated_delta_rule`,
`chunk_gated_delta_product`.

References: flash-linear-attention 0.6.0 for names and layouts; CKDA, the signed gate.
"""
# ruff: noqa: F722

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from statetrack.errors import InvalidInput

from .api import Backend, ckda, ckda_decode
from .gates import Precision

if TYPE_CHECKING:
    from jaxtyping import Float

_HINTS = frozenset({"chunk_size", "chunk_indices", "disable_recompute", "cu_seqlens_cpu"})
_REFUSED = {
    "return_intermediate_states": "the states inside a sequence are not kept",
    "cp_context": "a sequence is not spread over devices",
    "use_graph": "chunk lists are made anew in every call",
    "max_num_seqs": "chunk lists are made anew in every call",
    "head_first": "tensors are [B, T, H, ...]",
    "transpose_state_layout": "its name is state_v_first",
}


def chunk_kda(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch time head dim"],
    v: Float[Tensor, "batch time value_head width"],
    g: Float[Tensor, "batch time value_head dim"],
    beta: Float[Tensor, "batch time value_head"],
    scale: float | None = None,
    initial_state: Float[Tensor, "sequence value_head dim width"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    safe_gate: bool = False,
    lower_bound: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Kimi delta attention: g is log α ≤ 0, or a pre-activation with `use_gate_in_kernel` or `signed_gate`.

    Keywords besides those of the module: `A_log` [HV] and `dt_bias` [HV·K] or [HV, K] for the gate's rule,
    `state_v_first`, `cu_seqlens`, and our own `signed_gate`, `precision`, `backend`, `check_ranges` (default True: read
    g and refuse g > 0, which on CUDA waits for it).

    Raises:
        InvalidInput: an argument that would be ignored or mean something else, and all faults that `ckda` finds.
    """
    taken = _Options("chunk_kda", options, "state_v_first", "cu_seqlens")
    if safe_gate and use_gate_in_kernel and lower_bound is None:
        taken.faults.append("safe_gate with use_gate_in_kernel needs lower_bound")
    return _run(
        taken,
        (q, k, v, g, beta),
        (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel),
        gate=(use_gate_in_kernel, lower_bound),
        beta=(use_beta_sigmoid_in_kernel, allow_neg_eigval),
    )


def fused_recurrent_kda(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch time head dim"],
    v: Float[Tensor, "batch time value_head width"],
    g: Float[Tensor, "batch time value_head dim"],
    beta: Float[Tensor, "batch time value_head"],
    A_log: Float[Tensor, " value_head"] | None = None,
    dt_bias: Float[Tensor, " channels"] | None = None,
    scale: float | None = None,
    initial_state: Float[Tensor, "sequence value_head dim width"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: float | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """As `chunk_kda`, for generation: a few tokens from a state, without gradients (`ckda_decode`).

    Raises:
        InvalidInput: as `chunk_kda`, or an argument that needs a gradient.
    """
    named = {name: x for name, x in (("A_log", A_log), ("dt_bias", dt_bias)) if x is not None}
    return _run(
        _Options("fused_recurrent_kda", options | named, "state_v_first", "cu_seqlens"),
        (q, k, v, g, beta),
        (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel),
        gate=(use_gate_in_kernel, lower_bound),
        beta=(use_beta_sigmoid_in_kernel, allow_neg_eigval),
        decode=True,
    )


def chunk_delta_rule(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch time head dim"],
    v: Float[Tensor, "batch time head width"],
    beta: Float[Tensor, "batch time head"],
    scale: float | None = None,
    initial_state: Float[Tensor, "sequence head dim width"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """DeltaNet: no gate. Keywords besides those of the module: `cu_seqlens`, `precision`, `backend`.

    Raises:
        InvalidInput: an argument that would be ignored or mean something else, and all faults that `ckda` finds.
    """
    settings = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    return _run(_Options("chunk_delta_rule", options, "cu_seqlens", gated=False), (q, k, v, None, beta), settings)


def chunk_gated_delta_rule(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch time head dim"],
    v: Float[Tensor, "batch time value_head width"],
    g: Float[Tensor, "batch time value_head"],
    beta: Float[Tensor, "batch time value_head"],
    scale: float | None = None,
    initial_state: Float[Tensor, "sequence value_head dim width"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    *,
    use_gate_in_kernel: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Gated DeltaNet: one gate a head; g is log α ≤ 0, or a pre-activation as in `chunk_kda` (`dt_bias` [HV]).

    Raises:
        InvalidInput: an argument that would be ignored or mean something else, and all faults that `ckda` finds.
    """
    taken = _Options("chunk_gated_delta_rule", options, "state_v_first", "cu_seqlens")
    if "lower_bound" in options and not taken.signed:
        taken.faults.append("lower_bound is for signed_gate only")
    return _run(
        taken,
        (q, k, v, g[..., None], beta),
        (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel),
        gate=(use_gate_in_kernel, options.get("lower_bound")),
        beta=(use_beta_sigmoid_in_kernel, allow_neg_eigval),
    )


def chunk_gated_delta_product(
    q: Float[Tensor, "batch time head dim"],
    k: Float[Tensor, "batch rows head dim"],
    v: Float[Tensor, "batch rows head width"],
    g: Float[Tensor, "batch time head"] | None,
    beta: Float[Tensor, "batch rows head"],
    num_householder: int,
    scale: float | None = None,
    initial_state: Float[Tensor, "sequence head dim width"] | None = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Gated DeltaProduct: `num_householder` factors a token, `rows` = T times that, the gate before the first of them.

    Raises:
        InvalidInput: an argument that would be ignored or mean something else, and all faults that `ckda` finds.
    """
    settings = (scale, initial_state, output_final_state, use_qk_l2norm_in_kernel)
    taken = _Options("chunk_gated_delta_product", options, "cu_seqlens")
    return _run(taken, (q, k, v, None if g is None else g[..., None], beta), settings, factors=num_householder)


class _Options:
    """The keywords of a call: those that act, and a fault for each that would be ignored or is not known."""

    def __init__(self, name: str, options: dict[str, Any], *allowed: str, gated: bool = True) -> None:
        self.name = name
        own = {"precision", "backend", "check_ranges", *allowed}
        own |= {"signed_gate", "A_log", "dt_bias", "lower_bound"} if gated else set()
        self.faults = [
            f"{key}={value!r}: {_REFUSED[key]}"
            for key, value in options.items()
            if key in _REFUSED and value is not None and value is not False
        ]
        unknown = sorted(key for key in options if key not in own | _HINTS and key not in _REFUSED)
        self.faults += [f"{key!r} is no argument" for key in unknown]
        self.values = options

    @property
    def signed(self) -> bool:
        """Whether g is the pre-activation of a signed gate."""
        return bool(self.values.get("signed_gate", False))

    def take(self, key: str, otherwise: Any = None) -> Any:
        """The value of a keyword."""
        return self.values.get(key, otherwise)


def _run(
    taken: _Options,
    tensors: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor],
    settings: tuple[float | None, Tensor | None, bool, bool],
    *,
    gate: tuple[bool, float | None] = (False, None),
    beta: tuple[bool, bool] = (False, False),
    factors: int = 1,
    decode: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Translate one call and run it."""
    q, k, v, g, betas = tensors
    scale, state, wanted, normalize = settings
    gates = _gate_arguments(taken, g, *gate)
    logits, doubled = beta
    if doubled and not logits:
        taken.faults.append("allow_neg_eigval needs use_beta_sigmoid_in_kernel, it would do nothing")
    if taken.faults:
        raise InvalidInput(f"{taken.name}: {'; '.join(taken.faults)}")
    if logits:
        betas = torch.sigmoid(betas if betas.dtype == torch.float64 else betas.float()) * (2 if doubled else 1)
    first = bool(taken.take("state_v_first", False))
    state = state.mT if state is not None and first else state
    shared: dict[str, Any] = {"scale": scale, "factors": factors, "cu_seqlens": taken.take("cu_seqlens")}
    shared |= {"normalize_keys": normalize, "normalize_queries": normalize}
    backend: Backend = taken.take("backend", "auto")
    if decode:
        if state is None:
            bounds: Tensor | None = shared["cu_seqlens"]
            sequences = q.shape[0] if bounds is None else len(bounds) - 1
            state = torch.zeros(sequences, v.shape[2], q.shape[3], v.shape[3], device=q.device)
        alpha = gates.pop("alpha", None)
        o, final = ckda_decode(q, k, v, alpha, betas, state, backend=backend, **shared, **gates)  # pyright: ignore[reportArgumentType]
    else:
        precision: Precision = taken.take("precision", "fast")
        shared |= {"initial_state": state, "output_final_state": wanted, "precision": precision}
        o, final = ckda(q, k, v, beta=betas, backend=backend, **shared, **gates)
    if final is None or not wanted:
        return o, None
    return o, (final.mT.contiguous() if first else final)


def _gate_arguments(taken: _Options, g: Tensor | None, raw: bool, lower_bound: float | None) -> dict[str, Any]:
    """The gate as arguments of `ckda`; what does not fit becomes a fault."""
    a_log, bias = taken.take("A_log"), taken.take("dt_bias")
    if g is None:
        if taken.signed or a_log is not None or bias is not None:
            taken.faults.append("signed_gate, A_log and dt_bias need g")
        return {}
    if raw and taken.signed:
        taken.faults.append("signed_gate and use_gate_in_kernel are two rules for one g")
    if taken.signed and a_log is not None:
        taken.faults.append("A_log has no place in a signed gate")
    if not raw and not taken.signed:
        given = {"A_log": a_log, "dt_bias": bias, "lower_bound": lower_bound}
        ignored = [name for name, value in given.items() if value is not None]
        if ignored:
            taken.faults.append(f"{', '.join(ignored)} without use_gate_in_kernel would be ignored")
        if taken.take("check_ranges", True) and g.numel() and not bool((g <= 0).all()):
            taken.faults.append(f"g has values up to {float(g.max()):g}, expected log α ≤ 0")
        return {"alpha": (g if g.dtype == torch.float64 else g.float()).exp(), "check_ranges": False}
    if raw and a_log is None and lower_bound is None:
        taken.faults.append("use_gate_in_kernel needs A_log or lower_bound")
    rule = "signed" if taken.signed else "softplus" if lower_bound is None else "bounded"
    bias = None if bias is None else bias.reshape(g.shape[2], -1)
    floor = -5.0 if lower_bound is None else lower_bound
    return {"gate_logit": g, "gate": rule, "a_log": a_log, "dt_bias": bias, "lower_bound": floor}
