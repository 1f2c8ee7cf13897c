"""The transitions that a checkpoint makes: keys, β and gates of its heads, from arrays or from the layers of a model.

Files that are read: arrays `k`, `beta`, `alpha` (and `v`, `state`); weights files of statetrack; our trainable layers;
layers in the naming of flash-linear-attention (`kda`, `delta_net`, `gated_deltanet`, `gated_deltaproduct`); whole
models of them. A layer's transitions depend on its inputs: the first layer of a model reads the embeddings of tokens,
any other random vectors of unit mean square, unless inputs are given.

Main definitions: `Transitions`, `Reading`, `read_checkpoint`.

References: flash-linear-attention 0.6.0 for names; `statetrack.constructions.weights`, `statetrack.kernels.layers` for
ours.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from statetrack.errors import InvalidFile, InvalidInput

from .layer_parts import EPSILON, LayerConfig
from .layers import DeltaLayer, mixer
from .reference import LayerTables

if TYPE_CHECKING:
    from jaxtyping import Float

_ADVICE = "give arrays k, beta, alpha, a weights file, or a layer (ours or flash-linear-attention's) as .safetensors"
_SAMPLES = 512


@dataclass(frozen=True, eq=False)
class Transitions:
    """The factors of N tokens in H heads, n a token: S <- (I - β k kᵀ) Diag(α) S + β k vᵀ, keys of length 1, float64.

    `symbols`: row i is what symbol i does, whatever stands before it; otherwise rows are tokens of one long text.
    `state` is where the heads start; None is the identity. `inputs` says what the layer read. `bias` is added after
    each factor; with `dense` a token multiplies by that matrix (n = 0, one bias). A head with a `unit` rounds down to
    multiples of it after every token. `formats` are those of tables and state in a weights file.

    Raises:
        InvalidInput: numbers that are not finite.
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
    bias: Float[Tensor, "row head factor dim width"] | None = None
    dense: Float[Tensor, "row head dim dim"] | None = None
    unit: Float[Tensor, " head"] | None = None
    formats: tuple[str, str] = ("float64", "float64")

    def __post_init__(self) -> None:
        for name in ("k", "beta", "alpha", "v", "state", "bias", "dense"):
            _check_finite(f"{self.name}: {name}", getattr(self, name))

    def tables(self, head: int, rows: int) -> LayerTables:
        """One head of the first rows as tables of the recurrence, in float64; it starts in the identity if in none."""

        def own(x: Tensor | None) -> Tensor | None:
            return None if x is None else x[:rows, head : head + 1]

        k = self.k[:rows, head : head + 1]
        state = torch.eye(k.shape[-1]).double() if self.state is None else self.state[head]
        unit = None if self.unit is None else self.unit[head : head + 1]
        alpha, beta, queries = self.alpha[:rows, head : head + 1], self.beta[:rows, head : head + 1], k.new_zeros
        shape = (len(k), 1, k.shape[-1])
        rest = (own(self.v), own(self.bias), own(self.dense), unit)
        return LayerTables(k, beta, alpha, queries(shape), state[None], *rest)

    def matrices(self, head: int, rows: Tensor | None = None) -> Float[Tensor, "row dim dim"]:
        """What each token multiplies the state by in one head."""
        return self.maps(head, rows)[0]

    def maps(self, head: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """What each token multiplies the state by in one head, and what it adds [row, dim, width] (None: nothing)."""
        at = slice(None) if rows is None else rows
        k, beta, alpha = self.k[at, head], self.beta[at, head], self.alpha[at, head]
        v, bias = (None if x is None else x[at, head] for x in (self.v, self.bias))
        if self.dense is not None:
            return self.dense[at, head], None if bias is None else bias[:, 0]
        product = torch.eye(k.shape[-1], dtype=k.dtype).expand(len(k), -1, -1)
        width = v.shape[-1] if v is not None else 0 if bias is None else bias.shape[-1]
        added = k.new_zeros(*k.shape[::2], width) if width else None
        for j in range(k.shape[1]):
            push = beta[:, j, None, None] * k[:, j, :, None]
            product = alpha[:, j, :, None] * product
            product = product - push * (k[:, j, None] @ product)
            if added is not None:
                added = alpha[:, j, :, None] * added
                added = added - push * (k[:, j, None] @ added - (0 if v is None else v[:, j, None]))
                added = added if bias is None else added + bias[:, j]
        return product, added


@dataclass(frozen=True)
class Reading:
    """What a file does not say itself.

    `beta_max` 1 or 2 and `heads` (key heads) override the configuration; `tokens` are the ids to embed; `inputs` a file
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
        InvalidInput: shapes that do not fit, tokens beyond the embeddings, numbers that are not finite.
    """
    how = reading or Reading()
    try:
        tensors = load_file(path)
        with safe_open(path, "pt") as file:
            said: dict[str, str] = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", _ADVICE) from error
    if "k" in tensors and "beta" in tensors:
        return (_arrays(tensors),)
    if "layers.0.keys" in tensors:
        return tuple(_ours(tensors, said))
    config = _config(path)
    if any(name.endswith("beta_bias") for name in tensors):
        stated = json.loads(said["config"]) if said.get("statetrack") == "model" else config.get("model", config)
        return _trainable(tensors, stated, how)
    found = _models(tensors, config, how)
    if not found:
        raise InvalidFile(str(path), "holds no layer that is known", _ADVICE)
    return found


def _arrays(tensors: Mapping[str, Tensor]) -> Transitions:
    """k [N, H, n, K], [N, H, K] or [N, K]; beta as k without its last dimension; alpha as k, or 1 for K."""
    for name in ("k", "beta", "alpha", "v", "state"):
        _check_finite(f"arrays: {name}", tensors.get(name))
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


def _ours(tensors: Mapping[str, Tensor], said: Mapping[str, str]) -> list[Transitions]:
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
        more = {name: tensors.get(at + name) for name in ("values", "bias", "dense")}
        v, bias, dense = (None if x is None else x.double()[rows] for x in more.values())
        inputs = "symbols" if direct else "input ids, not symbols"
        gates, state = tensors[at + "gates"].double()[rows], tensors[at + "state"].double()
        tables = said.get("dtype", "float64")
        rest = (bias, dense, tensors.get(at + "unit"), (tables, said.get("state_dtype", tables)))
        # Keys are not made unit again: β is that of the program, and so is the length of a stored key.
        found.append(Transitions(at[:-1], "statetrack", keys[rows], beta, gates, direct, inputs, v, state, *rest))
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
        for name, x in self._own.items():
            _check_finite(prefix + name, x)
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
        hidden = self._own["k_proj.weight"].shape[1]
        norm = self._all.get(re.sub(r"attn\.$", "attn_norm.weight", self._prefix))
        x, inputs, symbols = _inputs(self._all, norm, hidden, self._how, self._first)
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


def _inputs(
    tensors: Mapping[str, Tensor], norm: Tensor | None, hidden: int, how: Reading, first: bool
) -> tuple[Tensor, str, bool]:
    """What a layer reads [N, hidden] behind its norm, in words, and whether rows are symbols."""
    embeddings = next((x for n, x in tensors.items() if re.search(r"embeddings?\.weight$", n)), None)
    if how.inputs is not None:
        (x,) = load_file(how.inputs).values()
        _check_finite(how.inputs.name, x)
        if x.ndim != 2 or x.shape[1] != hidden:
            raise InvalidInput(f"inputs {how.inputs.name}: shape {tuple(x.shape)}, expected [tokens, {hidden}]")
        return x.double(), f"the vectors in {how.inputs.name}", False
    if embeddings is not None and first:
        tokens = torch.tensor(how.tokens or range(len(embeddings)))
        if int(tokens.max()) >= len(embeddings) or int(tokens.min()) < 0:
            raise InvalidInput(f"tokens from {int(tokens.min())} to {int(tokens.max())}, {len(embeddings)} embeddings")
        _check_finite("embeddings", embeddings)
        x, said = embeddings.double()[tokens], "embeddings of tokens"
    else:
        generator = torch.Generator().manual_seed(how.seed)
        x = torch.randn(_SAMPLES, hidden, generator=generator, dtype=torch.float64)
        said = "random vectors of unit mean square"
    if norm is not None:
        x = x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * norm.double()
    return x, said, said.startswith("embeddings")


def _trainable(tensors: Mapping[str, Tensor], config: Mapping[str, Any], how: Reading) -> tuple[Transitions, ...]:
    """Our layers (`statetrack.kernels.layers`), alone or in a `LanguageModel`: what the module itself says."""
    names = sorted(
        {name.removesuffix("beta_bias") for name in tensors if name.endswith("beta_bias")},
        key=lambda p: [int(n) for n in re.findall(r"\d+", p)],
    )
    found: list[Transitions] = []
    for prefix in names:
        own = {n.removeprefix(prefix): x.double() for n, x in tensors.items() if n.startswith(prefix)}
        for name, x in own.items():
            _check_finite(prefix + name, x)
        made = _layer_config(own, config, how)
        layer = mixer(made).double()
        assert isinstance(layer, DeltaLayer)
        try:
            layer.load_state_dict(own)
        except RuntimeError as error:
            what = " ".join(str(error).split())[:200]
            raise InvalidInput(f"{prefix or 'layer'}: does not fit its configuration ({what}); give --heads") from None
        norm = tensors.get(re.sub(r"mixer\.$", "mixer_norm.weight", prefix)) if prefix else None
        x, inputs, symbols = _inputs(tensors, norm, made.width, how, not found)
        with torch.no_grad():
            k, beta, alpha = (y[0] for y in layer.transitions(x[None]))
        told = f"{inputs}; β up to {made.beta_max:g}, {'' if made.silu else 'no '}SiLU"
        name = prefix.rstrip(".") or "layer"
        found.append(Transitions(name, made.kind, k, beta, alpha, symbols and not made.conv, told))
    return tuple(found)


def _layer_config(own: Mapping[str, Tensor], config: Mapping[str, Any], how: Reading) -> LayerConfig:
    """The configuration of one of our layers: as stated, and what the shapes of its parameters say."""
    known = {field.name for field in fields(LayerConfig)}
    stated: dict[str, Any] = {name: x for name, x in config.get("layer", config).items() if name in known}
    expected = {"beta_bias": 2, "keys.weight": 2, "values.weight": 2}
    if any(name not in own or own[name].ndim != d or not own[name].numel() for name, d in expected.items()):
        raise InvalidInput("layer: no beta_bias [n, HV], keys.weight and values.weight [rows, width]")
    (n, groups), (rows, width) = own["beta_bias"].shape, own["keys.weight"].shape
    bias = own.get("gate_bias")
    channels = 1 if bias is None else bias.shape[1]
    heads = how.heads or stated.get("heads") or max(1, rows // (n * channels) if channels > 1 else groups)
    signed, before_each = bias is not None and "a_log" not in own, len(own.get("gates.weight", ())) > groups * channels
    several = "deltaproduct" if n > 1 else "deltanet"
    kind = (
        "ckda" if signed or before_each else "kda" if channels > 1 else several if bias is None else f"gated_{several}"
    )
    made: dict[str, Any] = stated | {
        "kind": kind,
        "width": width,
        "heads": heads,
        "head_dim": rows // (n * heads),
        "value_heads": groups,
        "value_dim": len(own["values.weight"]) // (n * groups),
        "factors": n,
        "signed_gates": signed,
        "conv": len(own.get("convolution.weight", ())),
        "output_gate": "output_gate.weight" in own,
        "output_norm": "norm" in own,
        "learned_start": "start" in own,
    }
    made |= {} if how.beta_max is None else {"beta_max": how.beta_max}
    return LayerConfig(**made)


def _check_finite(what: str, x: Tensor | None) -> None:
    """Refuse NaN and infinities: of what is made from them nothing can be said."""
    if x is None or (wrong := ~x.double().isfinite()).sum() == 0:
        return
    first = wrong.nonzero()[0].tolist()
    raise InvalidInput(
        f"{what}: {int(wrong.sum())} of {x.numel()} numbers are not finite (NaN or infinite), the first at {first}"
    )


def _unit(k: Tensor) -> Tensor:
    """Keys of length 1; zero stays zero."""
    largest = k.abs().amax(-1, keepdim=True)
    # Squares of the entries themselves could overflow or vanish.
    k = k / torch.where(largest == 0, 1.0, largest)
    return torch.where(largest == 0, 0.0, k / k.norm(dim=-1, keepdim=True))


def _config(path: Path) -> dict[str, Any]:
    """The config.json beside a checkpoint; empty if there is none."""
    beside = path.with_name("config.json")
    try:
        return json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    except ValueError as error:
        raise InvalidFile(str(beside), f"is no JSON ({error})", "repair or remove it") from error
