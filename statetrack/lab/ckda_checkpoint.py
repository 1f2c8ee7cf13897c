"""A compiled program in our own modules: parameters of a `LanguageModel`, and a checkpoint of the type `ckda`.

Layers are CKDA with signed gates, a gate before each factor, no SiLU and a learned start, which hold every program's
layers as they are: no start tokens, β = 2 and α = ±1 from pre-activations that floats round to them, α = 0 as e^-60.

Main definitions: `ckda_checkpoint`, `model_parts`.

References: docs/export.md; `statetrack.kernels.language_model` for the names of the parameters.
"""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np

from statetrack.constructions.weights import FORMATS, Weights
from statetrack.errors import InvalidInput
from statetrack.kernels.language_model import ModelConfig
from statetrack.kernels.layer_parts import LayerConfig

from .checkpoint_folder import Checkpoint, facts_of
from .compiled_tables import Floats, layer_tables
from .readout_stream import Stream, check_size
from .register_plan import plan_of

_LARGE, _FLOOR, _SIZE = 100.0, -60.0, 64.0
# An MLP is at most so many times as wide as the model.
_WIDEST = 64
_TYPES = ("float32", "bfloat16", "float64")


def ckda_checkpoint(weights: Weights, *, dtype: str = "float32", precision: str = "exact") -> Checkpoint:
    """The program of a weights file (float64 for accuracy) as a model of the type `ckda`.

    Args:
        weights: `Weights.in_format("float64")` of what `statetrack build` wrote.
        dtype: format of the tensors: "float32", "bfloat16" or "float64".
        precision: of the kernels on CUDA: "fast", "tracking" or "exact" (docs/kernels.md).

    Raises:
        InvalidInput: what no layer has, β above 2, look-ups that are too large, a format that is not known.
    """
    if dtype not in _TYPES:
        raise InvalidInput(f"number format {dtype!r}: know {', '.join(_TYPES)}")
    stream, config, tensors = model_parts(weights, precision)
    stream.check_format(dtype)
    made = {
        "architectures": ["CkdaForCausalLM"],
        "model_type": "ckda",
        "dtype": dtype,
        "model": asdict(config),
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
        "tie_word_embeddings": False,
    }
    named = {f"model.{name}": t.astype(FORMATS[dtype]) for name, t in tensors.items()}
    return Checkpoint(made, named, facts_of(weights, stream, dtype))


def model_parts(weights: Weights, precision: str = "exact") -> tuple[Stream, ModelConfig, dict[str, Floats]]:
    """The stream, the configuration of a `LanguageModel` and its parameters by name: `load_state_dict` takes them.

    Raises:
        InvalidInput: what no layer has, β above 2, gates outside [-1, 1], look-ups that are too large.
    """
    tables = layer_tables(weights)
    for layer in tables:
        if layer.betas.max(initial=0.0) > 2 + 1e-12 or np.abs(layer.gates).max(initial=0.0) > 1 + 1e-12:
            raise InvalidInput(f"ckda has β up to 2 and gates in [-1, 1], the program has β {layer.betas.max():.6g}")
    plan = plan_of(weights)
    stream = Stream(weights, plan, tables, 0)
    width = max(stream.channels, math.ceil((stream.inner + 1) / _WIDEST), 8)
    rows, columns = (_power(max(layer.shape[axis] for layer in tables)) for axis in (3, 4))
    config = LayerConfig(
        "ckda",
        width,
        heads=max(layer.shape[1] for layer in tables),
        head_dim=rows,
        value_dim=columns,
        factors=max(layer.shape[2] for layer in tables),
        output_gate=False,
        precision=precision,
        gate_floor=_FLOOR,
        learned_start=True,
    )
    mixer = config.heads * (config.factors + 1) * (2 * rows + columns) * width
    check_size(plan.blocks, mixer + 3 * stream.inner * width)
    ratio = (stream.inner + 0.5) / width if stream.inner else 0.0
    model = ModelConfig(config, layers=plan.blocks, vocab=stream.vocabulary, mlp_ratio=ratio, norm=False)
    return stream, model, _parameters(stream, config, plan.blocks)


def _parameters(stream: Stream, config: LayerConfig, blocks: int) -> dict[str, Floats]:
    made = {"embedding.weight": stream.embeddings(config.width), "head.weight": stream.head(config.width)}
    layers = {block: layer for layer, (block, _) in enumerate(stream.plan.layers)}
    for block in range(blocks):
        mixer = _mixer(stream, config, layers[block]) if block in layers else _idle(config)
        mlp = stream.mlp(block, config.width, stream.inner) if stream.inner else {}
        made |= {f"body.blocks.{block}.mixer.{name}": t for name, t in mixer.items()}
        made |= {f"body.blocks.{block}.mlp.{name}.weight": t for name, t in mlp.items()}
    return made


def _idle(config: LayerConfig) -> dict[str, Floats]:
    """A mixer that adds nothing."""
    heads, factors, rows, columns, width = config.heads, config.factors, config.keys, config.columns, config.width
    return {
        "queries.weight": np.zeros((heads * rows, width)),
        "keys.weight": np.zeros((factors * heads * rows, width)),
        "values.weight": np.zeros((factors * heads * columns, width)),
        "betas.weight": np.zeros((factors * heads, width)),
        "gates.weight": np.zeros((factors * heads * rows, width)),
        "beta_bias": np.full((factors, heads), -_LARGE),
        "gate_bias": np.full((heads, rows), _LARGE),
        "norm": np.full(columns, columns**-0.5),
        "start": np.zeros((heads, rows, columns)),
        "output.weight": np.zeros((width, heads * columns)),
    }


def _mixer(stream: Stream, config: LayerConfig, layer: int) -> dict[str, Floats]:
    own = stream.tables[layer]
    heads, columns = config.heads, config.columns
    tables = own.widened(heads, config.factors)
    tables = tables.copied((config.keys - int(own.constant)) // max(own.own, 1), config.keys)
    made = _idle(config) | {"beta_bias": np.zeros((config.factors, heads)), "gate_bias": np.zeros((heads, config.keys))}
    made["start"][..., : own.shape[4]] = tables.state * _SIZE
    values = np.zeros((*tables.values.shape[:3], columns))
    values[..., : own.shape[4]] = tables.values * _SIZE
    output = np.zeros((config.width, heads, columns))
    for h in range(own.shape[1]):
        output[stream.readout(layer, h), h, np.arange(own.shape[4])] = 1.0
    made["output.weight"] = output.reshape(config.width, -1)
    with np.errstate(divide="ignore"):
        betas = np.clip(np.log(tables.betas) - np.log(2 - np.minimum(tables.betas, 2)), -_LARGE, _LARGE)
        gates = np.clip(np.log1p(tables.gates) - np.log1p(-tables.gates), -_LARGE, _LARGE)
    queries = tables.queries / np.maximum(np.linalg.norm(tables.queries, axis=-1, keepdims=True), 1e-300)
    projected = {
        "queries": (queries, queries[-1]),
        "keys": (tables.keys.swapaxes(1, 2), 0.0),
        "values": (values.swapaxes(1, 2), 0.0),
        "betas": (betas.swapaxes(1, 2), -_LARGE),
        "gates": (gates.swapaxes(1, 2), _LARGE),
    }
    for name, (rows, other) in projected.items():
        made[f"{name}.weight"] = stream.projection(layer, rows, config.width, other)
    return made


def _power(size: int) -> int:
    """A power of two from 16 on that holds `size` channels."""
    return max(16, 1 << (size - 1).bit_length())
