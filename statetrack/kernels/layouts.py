"""Anyone's kernel as one call: tensors in our layout go in, a kernel in our layout or flash-linear-attention's runs.

`ours`: the arguments of `statetrack.kernels.api.ckda`. `fla`: those of flash-linear-attention's `chunk_kda`,
`fused_recurrent_kda`, `chunk_delta_rule`, `chunk_gated_delta_rule` and `chunk_gated_delta_product`: g is log α, no
argument for gates means α = 1. A kernel without several factors a token gets them as tokens of their own, and every
n-th readout counts. What a kernel has no argument for is refused before it runs, never left out silently.

Main definitions: `Kernel`, `Call`, `Refused`, `Unusable`, `load_kernel`.

References: flash-linear-attention 0.6.0 for names and layouts.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, StatetrackError

if TYPE_CHECKING:
    from jaxtyping import Float, Int

Layout = Literal["ours", "fla"]
GateForm = Literal["auto", "channel", "scalar", "none"]
# tanh(x/2) is 1 in float32 from x = 18 on.
_SATURATED = 64.0


# Set by the call itself, in either layout.
_OWN = frozenset(
    {"q", "k", "v", "g", "beta", "alpha", "scale", "initial_state", "output_final_state", "cu_seqlens", "factors"}
    | {"num_householder", "normalize_keys", "normalize_queries", "use_qk_l2norm_in_kernel"}
)


class Refused(StatetrackError):
    """What a kernel has no argument for; it was not run."""


class Unusable(StatetrackError):
    """What a kernel returned is no pair of readouts and last states of the right shapes."""


@dataclass(frozen=True, eq=False)
class Call:
    """Inputs of one call in our layout, keys and queries of any length (the kernel normalises them).

    `alpha` may be None (1 everywhere); `state` is float32, or float64 with float64 inputs; n factors a token.
    """

    q: Float[Tensor, "batch time head dim"]
    k: Float[Tensor, "batch rows head dim"]
    v: Float[Tensor, "batch rows head width"]
    beta: Float[Tensor, "batch rows head"]
    alpha: Float[Tensor, "batch rows head dim"] | None
    state: Float[Tensor, "sequence head dim width"]
    factors: int
    cu_seqlens: Int[Tensor, " bound"] | None = None


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function, its layout, and further keywords that it is always called with.

    `gate` says what the argument g of a function in fla's layout holds: one number a channel, or one a head; "auto"
    is a channel's for a name with "kda" in it. `signed_gate=True` among the options passes pre-activations of signed
    gates (`statetrack.kernels.fla_wrappers`).

    Raises:
        InvalidInput: a layout or a form of gates that is not known; an option that the function does not take or that
            the call sets itself; a function whose signature cannot be read.
    """

    name: str
    function: Callable[..., Any]
    layout: Layout = "ours"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    gate: GateForm = "auto"

    def __post_init__(self) -> None:
        if self.layout not in ("ours", "fla"):
            raise InvalidInput(f"layout {self.layout!r}: know ours, fla")
        if self.gate not in ("auto", "channel", "scalar", "none"):
            raise InvalidInput(f"gate {self.gate!r}: know auto, channel, scalar, none")
        faults = [f"{name} is set by the call itself" for name in self.options if name in _OWN]
        named = [name for name in self._parameters() if name not in _OWN]
        for name in (name for name in self.options if name not in _OWN and not self._takes(name)):
            near = get_close_matches(name, named, 1)
            faults.append(f"no argument {name}" + (f" (is it {near[0]}?)" if near else f"; it has {', '.join(named)}"))
        if faults:
            raise InvalidInput(f"kernel {self.name}: {'; '.join(faults)}")

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The options that the signature does not spell out: they go to its **keywords, which may ignore them."""
        return tuple(name for name in self.options if not self._takes(name, named=True))

    def __call__(
        self, call: Call
    ) -> tuple[Float[Tensor, "batch time head width"], Float[Tensor, "sequence head dim width"]]:
        """o = Sᵀ q/|q| after every token and the last states, as the kernel returns them.

        Raises:
            Refused: gates, factors, states or sequences that the kernel has no argument for.
            Unusable: the kernel returned something else.
        """
        native = self._takes("factors" if self.layout == "ours" else "num_householder", named=True)
        unrolled = call.factors > 1 and not native
        taken = _unrolled(call) if unrolled else call
        run = self._ours if self.layout == "ours" else self._fla
        found: Any = run(taken, native)
        if not isinstance(found, tuple | list) or len(found) < 2:
            raise Unusable(f"{self.name} returned {_shown(found)}, expected a pair of readouts and last states")
        o, final = found[0], found[1]
        shapes = {"readouts": (o, (*taken.q.shape[:3], taken.v.shape[3])), "last states": (final, taken.state.shape)}
        for what, (x, shape) in shapes.items():
            if not isinstance(x, Tensor) or x.shape != shape or not x.is_floating_point():
                raise Unusable(f"{self.name} returned {_shown(x)} as {what}, expected a tensor {list(shape)}")
        return (o[:, call.factors - 1 :: call.factors] if unrolled else o), final

    def _ours(self, call: Call, native: bool) -> Any:
        keywords: dict[str, Any] = {"factors": call.factors} if native else {}
        keywords |= {"normalize_keys": True, "normalize_queries": True}
        if call.alpha is not None and not self._takes("alpha"):
            raise Refused(f"{self.name} has no argument alpha")
        if self._takes("alpha"):
            keywords["alpha"] = call.alpha
        return self._with(call, keywords)

    def _fla(self, call: Call, native: bool) -> Any:
        keywords: dict[str, Any] = {"num_householder": call.factors} if native else {}
        q, k = call.q, call.k
        if self._takes("use_qk_l2norm_in_kernel"):
            keywords["use_qk_l2norm_in_kernel"] = True
        else:
            q, k = (torch.nn.functional.normalize(x.float(), dim=-1).to(x.dtype) for x in (q, k))
        if self._takes("g", named=True):
            keywords["g"] = self._log_gates(call, native)
        elif call.alpha is not None:
            raise Refused(f"{self.name} has no argument for gates")
        return self._with(Call(q, k, call.v, call.beta, None, call.state, call.factors, call.cu_seqlens), keywords)

    def _with(self, call: Call, keywords: dict[str, Any]) -> Any:
        keywords |= {"beta": call.beta, "scale": 1.0, "initial_state": call.state, "output_final_state": True}
        if call.cu_seqlens is not None:
            keywords["cu_seqlens"] = call.cu_seqlens
        missing = [name for name in keywords if not self._takes(name)]
        if missing:
            raise Refused(f"{self.name} has no argument {', '.join(missing)}")
        return self.function(call.q, call.k, call.v, **keywords, **self.options)

    def _log_gates(self, call: Call, native: bool) -> Tensor:
        """The argument g: log α or pre-activations, for channels or heads, before a token's first factor."""
        scalar = self.gate == "scalar" or (self.gate == "auto" and "kda" not in self.name)
        alpha = call.alpha
        if alpha is None:
            shape = call.q.shape[:3] if scalar else call.q.shape
            alpha = torch.ones(shape, device=call.q.device)
        else:
            if native and call.factors > 1:
                first = alpha.unflatten(1, (-1, call.factors))
                if bool((first[:, :, 1:] != 1).any()):
                    raise Refused(f"{self.name} has gates before a token's first factor only")
                alpha = first[:, :, 0]
            if scalar and bool((alpha != alpha[..., :1]).any()):
                raise Refused(f"{self.name} has one gate for all channels")
            alpha = alpha[..., 0] if scalar else alpha
        if self.options.get("signed_gate"):
            if bool((alpha.abs() != 1).any()):
                raise Refused("a signed gate is never 0")
            return _SATURATED * alpha
        if bool((alpha <= 0).any()):
            raise Refused(f"{self.name} has no gates of 0 or below")
        return alpha.log()

    def _takes(self, name: str, *, named: bool = False) -> bool:
        """Whether the function has a keyword of this name; `named`: it must be spelled out in the signature."""
        found = self._parameters()
        if name in found and found[name].kind is not inspect.Parameter.VAR_KEYWORD:
            return True
        return not named and any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values())

    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        try:
            return inspect.signature(self.function).parameters
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"kernel {self.name}: no signature ({error}); wrap it in a Python function") from error


def load_kernel(
    where: str, layout: Layout = "ours", options: Mapping[str, Any] | None = None, gate: GateForm = "auto"
) -> Kernel:
    """The kernel that "MODULE:FUNCTION" or "FILE.py:FUNCTION" names; the module is imported, that is, run.

    Raises:
        InvalidInput: no such module or function.
    """
    place, _, name = where.rpartition(":")
    if not place or not name:
        raise InvalidInput(f"kernel {where!r}: expected MODULE:FUNCTION or FILE.py:FUNCTION")
    try:
        module = _from_file(Path(place)) if place.endswith(".py") else _from_path(place)
    except ImportError as error:
        raise InvalidInput(f"kernel {where!r}: module {place} cannot be imported ({error})") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise InvalidInput(f"kernel {where!r}: {place} has no function {name}")
    return Kernel(name, function, layout, dict(options or {}), gate)


def _from_path(name: str) -> Any:
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    return importlib.import_module(name)


def _from_file(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ImportError(f"no file {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _shown(x: Any) -> str:
    return f"a tensor {list(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else f"a {type(x).__name__}"


def _unrolled(call: Call) -> Call:
    """Every factor as a token of its own: queries repeated, bounds of sequences multiplied."""
    n = call.factors
    bounds = None if call.cu_seqlens is None else call.cu_seqlens * n
    q = call.q.repeat_interleave(n, 1)
    return Call(q, call.k, call.v, call.beta, call.alpha, call.state, 1, bounds)
