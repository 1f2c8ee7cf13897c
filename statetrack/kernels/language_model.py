"""A small sequence model around the layers or a baseline: tokens or real features in, logits out, for training.

    model = LanguageModel(ModelConfig(LayerConfig("ckda", 128), layers=2, vocab=6))
    logits, cache = model(tokens)         [B, T] -> [B, T, outputs]
    logits, cache = model(more, cache)    goes on from there

A block is x + mixer(norm(x)), then x + mlp(norm(x)) where there is an MLP (gated, SiLU); norms are RMS norms.

Main definitions: `ModelConfig`, `LanguageModel`.

References: the blocks of flash-linear-attention's models; docs/layers.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn import functional

from statetrack.errors import InvalidFile, InvalidInput

from .baselines import BASELINES, BaselineConfig, baseline
from .layer_parts import EPSILON, Cache, LayerConfig, is_number, is_whole
from .layers import mixer

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_ADVICE = "give a file that LanguageModel.save wrote"
_TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class ModelConfig:
    """A model, in plain JSON values: `asdict` and `ModelConfig.of` are a round trip.

    Attributes:
        layer: of every block, or a baseline. layers: how many.
        vocab: tokens that come in; None with `features` real numbers a step.
        outputs: logits a step; `vocab` if left out.
        mlp_ratio: width of a block's MLP over the model's; 0 for none.
        tie: the head's weights are those of the embedding.
        norm: RMS norms before mixers, MLPs and the head. head_bias: a bias of the logits.

    Raises:
        InvalidInput: whatever does not fit, all of it.
    """

    layer: LayerConfig | BaselineConfig
    layers: int = 1
    vocab: int | None = None
    features: int | None = None
    outputs: int | None = None
    mlp_ratio: float = 0.0
    tie: bool = False
    norm: bool = True
    head_bias: bool = False

    def __post_init__(self) -> None:
        faults: list[str] = []
        for name in ("layers", "vocab", "features", "outputs"):
            value = getattr(self, name)
            if not is_whole(value, 1) and (value is not None or name == "layers"):
                faults.append(f"{name} {value!r}, expected an integer from 1 on")
        if (self.vocab is None) == (self.features is None):
            faults.append("expected one of vocab and features")
        if self.vocab is None and self.outputs is None:
            faults.append("features without outputs")
        if not is_number(self.mlp_ratio) or not 0 <= self.mlp_ratio <= 64:
            faults.append(f"mlp_ratio {self.mlp_ratio!r}, expected 0 to 64")
        if self.tie and (self.vocab is None or self.outputs not in (None, self.vocab)):
            faults.append("tie, expected as many outputs as vocab")
        if faults:
            raise InvalidInput(f"model: {'; '.join(faults)}")

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> ModelConfig:
        """The configuration whose `asdict` is `data`.

        Raises:
            InvalidInput: names that are not known, values that do not fit.
        """
        layer = data.get("layer")
        if not isinstance(layer, Mapping):
            raise InvalidInput(f"model: layer {layer!r}, expected the fields of a layer")
        kind = BaselineConfig if layer.get("kind") in BASELINES else LayerConfig
        return _made(cls, {**data, "layer": _made(kind, layer, "layer")}, "model")


class LanguageModel(nn.Module):
    """Embedding (or a linear map of features), the blocks or the baseline, a norm and the head.

    Raises:
        KernelUnavailable: a baseline whose package is not installed.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        width = config.layer.width
        self.embedding = None if config.vocab is None else nn.Embedding(config.vocab, width)
        self.inputs = None if config.features is None else nn.Linear(config.features, width)
        if isinstance(config.layer, BaselineConfig):
            self.body = baseline(config.layer, config.layers, config.mlp_ratio)
        else:
            self.body = Blocks(config.layer, config.layers, config.mlp_ratio, config.norm)
        outputs = config.outputs or config.vocab
        assert outputs is not None
        self.head = nn.Linear(width, outputs, bias=config.head_bias)
        if config.tie and self.embedding is not None:
            nn.init.normal_(self.embedding.weight, std=width**-0.5)
            self.head.weight = self.embedding.weight

    def forward(
        self,
        inputs: Int[Tensor, "batch time"] | Float[Tensor, "batch time feature"],
        cache: tuple[Cache, ...] | None = None,
        cu_seqlens: Int[Tensor, " bound"] | None = None,
    ) -> tuple[Float[Tensor, "batch time output"], tuple[Cache, ...]]:
        """Logits after every token, and the cache that the next tokens of the same sequences go on from.

        `cu_seqlens` [N + 1] cuts a batch of one into N sequences.

        Raises:
            InvalidInput: shapes of inputs, cache or cu_seqlens that do not fit.
        """
        y, after = self.body(self._embedded(inputs), cache, cu_seqlens)
        return self.head(y), after

    def transitions(
        self, inputs: Int[Tensor, "batch time"] | Float[Tensor, "batch time feature"], cu_seqlens: Tensor | None = None
    ) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """For every block the keys, β and α of its layer on these inputs (`DeltaLayer.transitions`).

        Raises:
            InvalidInput: a baseline, which has none.
        """
        if not isinstance(self.body, Blocks):
            raise InvalidInput(f"{self.config.layer.kind} has no keys, β and gates")
        return self.body.transitions(self._embedded(inputs), cu_seqlens)

    def save(self, path: Path | str) -> None:
        """Write the weights as safetensors, with the configuration as JSON in the metadata."""
        kind = str(next(self.parameters()).dtype).removeprefix("torch.")
        metadata = {"statetrack": "model", "config": json.dumps(asdict(self.config)), "dtype": kind}
        # On CUDA the weights of a GRU are views of one buffer; on a CPU each is a tensor of its own.
        save_model(copy.deepcopy(self).cpu(), str(path), metadata)

    @classmethod
    def load(cls, path: Path | str, device: str | torch.device = "cpu") -> LanguageModel:
        """The model in a file that `save` wrote.

        Raises:
            InvalidFile: another file, or weights that do not fit the configuration.
            InvalidInput: a configuration that is not known.
        """
        try:
            with safe_open(str(path), "pt") as file:
                metadata = file.metadata() or {}
            if metadata.get("statetrack") != "model":
                raise InvalidFile(str(path), "holds no model of statetrack", _ADVICE)
            model = cls(ModelConfig.of(json.loads(metadata["config"]))).to(_TYPES[metadata["dtype"]])
            load_model(model, str(path))
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise InvalidFile(str(path), f"cannot be read ({error})", _ADVICE) from error
        return model.to(device)

    def _embedded(self, inputs: Tensor) -> Tensor:
        whole = not (inputs.is_floating_point() or inputs.is_complex())
        if self.embedding is not None:
            if inputs.ndim != 2 or not whole:
                raise InvalidInput(f"model: inputs {tuple(inputs.shape)} {inputs.dtype}, expected integers [B, T]")
            return self.embedding(inputs)
        assert self.inputs is not None
        if inputs.ndim != 3 or whole or inputs.shape[2] != self.config.features:
            expected = f"real numbers [B, T, {self.config.features}]"
            raise InvalidInput(f"model: inputs {tuple(inputs.shape)} {inputs.dtype}, expected {expected}")
        return self.inputs(inputs)


class Blocks(nn.Module):
    """Blocks of a layer and perhaps an MLP, and the last norm."""

    def __init__(self, layer: LayerConfig, layers: int, mlp_ratio: float, norm: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(layer, mlp_ratio, norm) for _ in range(layers))
        self.norm = _norm(layer.width, norm)

    def forward(
        self, x: Tensor, cache: tuple[Cache, ...] | None, cu_seqlens: Tensor | None
    ) -> tuple[Tensor, tuple[Cache, ...]]:
        """The outputs, and a cache a block."""
        if cache is not None and len(cache) != len(self.blocks):
            raise InvalidInput(f"model: cache of {len(cache)} layers, expected {len(self.blocks)}")
        found: list[Cache] = []
        for i, block in enumerate(self.blocks):
            x, after = block(x, None if cache is None else cache[i], cu_seqlens)
            found.append(after)
        return self.norm(x), tuple(found)

    def transitions(self, x: Tensor, cu_seqlens: Tensor | None) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
        """Keys, β and α of every block."""
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for block in cast("list[Block]", list(self.blocks)):
            found.append(block.mixer.transitions(block.mixer_norm(x), cu_seqlens))
            x, _ = block(x, None, cu_seqlens)
        return tuple(found)


class Block(nn.Module):
    """x + mixer(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, layer: LayerConfig, mlp_ratio: float, norm: bool) -> None:
        super().__init__()
        self.mixer_norm = _norm(layer.width, norm)
        self.mixer = mixer(layer)
        inner = int(mlp_ratio * layer.width)
        self.mlp_norm = _norm(layer.width, norm) if inner else None
        self.mlp = GatedMlp(layer.width, inner) if inner else None

    def forward(self, x: Tensor, cache: Cache | None, cu_seqlens: Tensor | None) -> tuple[Tensor, Cache]:
        """The block's outputs and its layer's cache."""
        y, after = self.mixer(self.mixer_norm(x), cache, cu_seqlens)
        x = x + y
        if self.mlp is not None and self.mlp_norm is not None:
            x = x + self.mlp(self.mlp_norm(x))
        return x, after


class GatedMlp(nn.Module):
    """W_down (silu(W_gate x) ⊙ W_up x)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The map, token by token."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


def _norm(width: int, there: bool) -> nn.Module:
    return nn.RMSNorm(width, EPSILON) if there else nn.Identity()


def _made(kind: type[Any], data: Mapping[str, Any], what: str) -> Any:
    known = {field.name for field in fields(kind)}
    required = {"layer"} if kind is ModelConfig else {"kind", "width"}
    unknown, missing = sorted(set(data) - known), sorted(required - set(data))
    if unknown or missing:
        named = [f"unknown {name!r}" for name in unknown] + [f"{name!r} is missing" for name in missing]
        raise InvalidInput(f"{what}: {', '.join(named)}")
    return kind(**data)
