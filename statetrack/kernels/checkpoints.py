"""The transitions that a checkpoint makes: keys, β and gates of its heads, from arrays or from the layers of a model.

Four kinds of files are read: arrays `k`, `beta`, `alpha` (and `v`, `state`); weights files of statetrack; layers in
the naming of flash-linear-attention (`kda`, `delta_net`, `gated_deltanet`, `gated_deltaproduct`); whole models of
them. A layer's transitions depend on its inputs: the first layer of a model reads the embeddings of tokens, any other
random vectors of unit mean square, unless inputs are given.

Main definitions: `Transitions`, `Reading`, `read_checkpoint`.

References: flash-linear-attention 0.6.0 for names; `statetrack.constructions.weights` for ours.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from statetrack.errors import InvalidFile, InvalidInput

if TYPE_CHECKING:
    from jaxtyping import Float

_ADVICE = "give arrays k, beta, alpha, a weights file, or a layer of flash-linear-attention as .safetensors"
_SAMPLES = 512


@dataclass(frozen=True, eq=False)
class Transitions:
    """The factors of N tokens in H heads, n a token: S <- (I - β k kᵀ) Diag(α) S + β k vᵀ, keys of length 1, float64.

    `symbols`: row i is what symbol i does, whatever stands before it; otherwise rows are tokens of one long text.
    `state` is where the heads start; None is the identity. `inputs` says what the layer read.
    """

    name: str
    kind: str
    k: Float[Tensor, "row head factor dim"]
    beta: Float[Tensor, "row head factor"]
    alpha: Float[Tensor, "row head factor dim"]
    symbols: bool
    inputs: str
    v: Float[Tensor, "row head factor width"] | None = None
    state: Float[Tensor, "head dim width"] | None = None

    def matrices(self, head: int, rows: Tensor | None = None) -> Float[Tensor, "row dim dim"]:
        """What each token multiplies the state by in one head."""
        return self.maps(head, rows)[0]

    def maps(self, head: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """What each token multiplies the state by in one head, and what it adds [row, dim, width] (None: nothing)."""
        at = slice(None) if rows is None else rows
        k, beta, alpha = self.k[at, head], self.beta[at, head], self.alpha[at, head]
        v = None if self.v is None else self.v[at, head]
        product = torch.eye(k.shape[-1], dtype=k.dtype).expand(len(k), -1, -1)
        added = None if v is None else k.new_zeros(*k.shape[::2], v.shape[-1])
        for j in range(k.shape[1]):
            push = beta[:, j, None, None] * k[:, j, :, None]
            product = alpha[:, j, :, None] * product
            product = product - push * (k[:, j, None] @ product)
            if added is not None and v is not None:
                added = alpha[:, j, :, None] * added
                added = added - push * (k[:, j, None] @ added - v[:, j, None])
        return product, added


@dataclass(frozen=True)
class Reading:
    """What a file does not say itself.

    `beta_max` 1 or 2 and `heads` (key heads) override config.json; `tokens` are the ids to embed; `inputs` a file
    with one tensor [tokens, hidden] for every layer to read.
    """

    beta_max: float | None = None
    heads: int | None = None
    tokens: tuple[int, ...] | None = None
    inputs: Path | None = None
    seed: int = 0


def read_checkpoint(path: Path, reading: Reading | None = None) -> tuple[Transitions, ...]:
    """The transitions of every layer in a file, first layer first.

    Raises:
        InvalidFile: no safetensors file, or none of the kinds that are known.
        InvalidInput: shapes that do not fit, tokens beyond the embeddings.
    """
    how = reading or Reading()
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", _ADVICE) from error
    if "k" in tensors and "beta" in tensors:
        return (_arrays(tensors),)
    if "layers.0.keys" in tensors:
        return tuple(_ours(tensors))
    found = _models(tensors, _config(path), how)
    if not found:
        raise InvalidFile(str(path), "holds no layer that is known", _ADVICE)
    return found


def _arrays(tensors: Mapping[str, Tensor]) -> Transitions:
    """k [N, H, n, K], [N, H, K] or [N, K]; beta as k without its last dimension; alpha as k, or 1 for K."""
    k, beta = tensors["k"].double(), tensors["beta"].double()
    if k.ndim not in (2, 3, 4) or k.shape[:-1] != beta.shape:
        shapes = f"k {tuple(k.shape)} and beta {tuple(beta.shape)}"
        raise InvalidInput(f"arrays: {shapes}, expected k [N, H, n, K] (or without n, or without H and n), beta like k")
    alpha = tensors.get("alpha", torch.ones(1)).double()
    try:
        alpha = alpha.expand(k.shape)
    except RuntimeError:
        raise InvalidInput(f"arrays: alpha {tuple(alpha.shape)} does not fit k {tuple(k.shape)}") from None
    v = tensors.get("v")
    k, alpha = (_four(x, k.ndim) for x in (k, alpha))
    values = None if v is None else _four(v.double(), v.ndim)
    state = tensors.get("state")
    beta = beta.reshape(k.shape[:-1])
    started = None if state is None else state.double().reshape(k.shape[1], k.shape[3], -1)
    return Transitions("arrays", "arrays", _unit(k), beta, alpha, True, "rows of the arrays", values, started)


def _four(x: Tensor, dimensions: int) -> Tensor:
    """[N, K] or [N, H, K] as [N, H, n, K]."""
    return x if dimensions == 4 else x[:, :, None] if dimensions == 3 else x[:, None, None]


def _ours(tensors: Mapping[str, Tensor]) -> list[Transitions]:
    """The layers of a weights file; rows are symbols where a layer reads the token."""
    found: list[Transitions] = []
    for number in range(len([name for name in tensors if re.fullmatch(r"layers\.\d+\.queries", name)])):
        at = f"layers.{number}."
        if at + "keys" not in tensors:
            continue
        keys, route = tensors[at + "keys"].double(), tensors[at + "route"].long()
        direct = tensors[at + "reads"].tolist() == [0]
        rows = route if direct else torch.arange(len(keys))
        beta = tensors[at + "betas"].double()[rows]
        v = tensors.get(at + "values")
        values = None if v is None else v.double()[rows]
        inputs = "symbols" if direct else "input ids, not symbols"
        gates, state = tensors[at + "gates"].double()[rows], tensors[at + "state"].double()
        # Keys are not made unit again: β is that of the program, and so is the length of a stored key.
        found.append(Transitions(at[:-1], "statetrack", keys[rows], beta, gates, direct, inputs, values, state))
    return found


def _models(tensors: Mapping[str, Tensor], config: dict[str, Any], how: Reading) -> tuple[Transitions, ...]:
    """Every layer with a k_proj, in the order of their numbers."""
    prefixes = sorted(
        {name.removesuffix("k_proj.weight") for name in tensors if name.endswith("k_proj.weight")},
        key=lambda p: [int(n) for n in re.findall(r"\d+", p)],
    )
    return tuple(_Layer(tensors, prefix, config, how, i == 0).transitions() for i, prefix in enumerate(prefixes))


class _Layer:
    """A layer of flash-linear-attention: sizes, inputs, projections and convolutions."""

    def __init__(
        self, tensors: Mapping[str, Tensor], prefix: str, config: dict[str, Any], how: Reading, first: bool
    ) -> None:
        self._all, self._prefix, self._config, self._how = tensors, prefix, config, how
        self._own = {n.removeprefix(prefix): x.double() for n, x in tensors.items() if n.startswith(prefix)}
        self._first = first
        kda, product = "f_proj.0.weight" in self._own, "a_proj.weight" in self._own
        self.kind = "kda" if kda else "gated_deltaproduct" if product else "delta_net"
        k, q = len(self._own["k_proj.weight"]), len(self._own.get("q_proj.weight", self._own["k_proj.weight"]))
        self._factors = max(1, k // q)
        betas = self._own.get("b_proj.weight")
        value_heads = len(betas) // self._factors if betas is not None else int(config.get("num_heads", 1))
        self._value_heads = value_heads
        self._heads = how.heads or int(config.get("num_heads", 0)) or value_heads
        if q % self._heads or value_heads % self._heads or k % q:
            raise InvalidInput(f"{prefix}: {q} query rows, {k} key rows, {self._heads} heads do not fit; give --heads")
        self._size = q // self._heads

    def transitions(self) -> Transitions:
        """The layer's factors on its inputs."""
        x, inputs, symbols = self._inputs()
        n, group = self._factors, self._value_heads // self._heads
        k = self._convolved(x @ self._own["k_proj.weight"].T)
        k = k.unflatten(-1, (n, self._heads, self._size)).transpose(1, 2).repeat_interleave(group, 1)
        most = self._how.beta_max or (2.0 if self._config.get("allow_neg_eigval") else 1.0)
        if (weight := self._own.get("b_proj.weight")) is not None:
            beta = most * torch.sigmoid((x @ weight.T).unflatten(-1, (n, self._value_heads))).transpose(1, 2)
        else:
            beta = torch.ones(k.shape[:-1], dtype=torch.float64)
        alpha = torch.ones_like(k)
        alpha[:, :, 0] = self._alpha(x)
        symbols = symbols and "k_conv1d.weight" not in self._own
        name = self._prefix.rstrip(".") or "layer"
        return Transitions(name, self.kind, _unit(k), beta, alpha, symbols, inputs)

    def _inputs(self) -> tuple[Tensor, str, bool]:
        """What the layer reads [N, hidden], in words, and whether rows are symbols."""
        hidden = self._own["k_proj.weight"].shape[1]
        embeddings = next((x for n, x in self._all.items() if n.endswith("embeddings.weight")), None)
        norm = self._all.get(re.sub(r"attn\.$", "attn_norm.weight", self._prefix))
        if self._how.inputs is not None:
            (x,) = load_file(self._how.inputs).values()
            return x.double(), f"the vectors in {self._how.inputs.name}", False
        if embeddings is not None and self._first:
            tokens = torch.tensor(self._how.tokens or range(len(embeddings)))
            if int(tokens.max()) >= len(embeddings):
                raise InvalidInput(f"token {int(tokens.max())}, and {len(embeddings)} embeddings")
            x, said = embeddings.double()[tokens], "embeddings of tokens"
        else:
            generator = torch.Generator().manual_seed(self._how.seed)
            x = torch.randn(_SAMPLES, hidden, generator=generator, dtype=torch.float64)
            said = "random vectors of unit mean square"
        x = x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() if norm is not None else x
        return x if norm is None else x * norm.double(), said, said.startswith("embeddings")

    def _convolved(self, k: Tensor) -> Tensor:
        """Keys after the causal convolution over time and the activation."""
        weight = self._own.get("k_conv1d.weight")
        if weight is not None:
            wide = functional.pad(k.T[None], (weight.shape[-1] - 1, 0))
            k = functional.conv1d(wide, weight, groups=len(weight))[0].T
        name = self._config.get("qk_activation", "silu")
        if name not in ("silu", "relu", "elu", "identity"):
            raise InvalidInput(f"{self._prefix}: qk_activation {name!r}, expected silu, relu, elu or identity")
        if name == "elu":
            return functional.elu(k) + 1
        return k if name == "identity" else functional.relu(k) if name == "relu" else functional.silu(k)

    def _alpha(self, x: Tensor) -> Tensor:
        """Gates before a token's first factor [N, HV, K or 1]."""
        rate = self._own.get("A_log")
        if self.kind == "delta_net" or rate is None:
            return torch.ones(1, 1, 1, dtype=torch.float64)
        bias = self._own.get("dt_bias", torch.zeros(1, dtype=torch.float64))
        if self.kind == "kda":
            low = x @ self._own["f_proj.0.weight"].T @ self._own["f_proj.1.weight"].T
            y = (low + bias.flatten()).unflatten(-1, (self._value_heads, -1))
        else:
            y = (x @ self._own["a_proj.weight"].T + bias)[..., None]
        speed = rate.flatten().exp()[:, None]
        bound = self._config.get("lower_bound") if self.kind == "kda" else None
        if bound is not None:
            return (float(bound) * torch.sigmoid(speed * y)).exp()
        return (-speed * functional.softplus(y)).exp()


def _unit(k: Tensor) -> Tensor:
    """Keys of length 1; zero stays zero."""
    length = k.norm(dim=-1, keepdim=True)
    return torch.where(length > 0, k / length.clamp_min(1e-300), 0.0)


def _config(path: Path) -> dict[str, Any]:
    """The config.json beside a checkpoint; empty if there is none."""
    beside = path.with_name("config.json")
    try:
        return json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    except ValueError as error:
        raise InvalidFile(str(beside), f"is no JSON ({error})", "repair or remove it") from error
