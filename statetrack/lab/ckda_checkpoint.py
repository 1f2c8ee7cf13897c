"""A compiled program in our own modules: parameters of a `LanguageModel`, and a checkpoint of the type `ckda`.

The layer is CKDA with signed gates, a gate before each factor, no SiLU and a learned start, which hold every program of
one layer as it is: no start tokens, β = 2 and α = ±1 from pre-activations that floats round to them, α = 0 as e^-60.

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
from .compiled_tables import Floats, TokenTables, token_tables
from .readout_stream import Stream

_LARGE, _FLOOR, _SIZE = 100.0, -60.0, 64.0
# An MLP is at most so many times as wide as the model.
_WIDEST = 64
_TYPES = ("float32", "bfloat16", "float64")


def ckda_checkpoint(weights: Weights, *, dtype: str = "float32", precision: str = "exact") -> Checkpoint:
    """The program of a weights file (one layer; float64 for accuracy) as a model of the type `ckda`.

    Args:
        weights: `Weights.in_format("float64")` of what `statetrack build` wrote.
        dtype: format of the tensors: "float32", "bfloat16" or "float64".
        precision: of the kernels on CUDA: "fast", "tracking" or "exact" (docs/kernels.md).

    Raises:
        InvalidInput: a program that is no table of the token, β above 2, a format that is not known.
    """
    if dtype not in _TYPES:
        raise InvalidInput(f"number format {dtype!r}: know {', '.join(_TYPES)}")
    tables = token_tables(weights)
    stream = Stream(tables, len(tables.alphabet), len(weights.dfa.delta), 1.0)
    config, tensors = model_parts(tables, stream, precision)
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
    return Checkpoint(made, named, facts_of(weights, tables, stream, dtype, starts=0))


def model_parts(tables: TokenTables, stream: Stream, precision: str = "exact") -> tuple[ModelConfig, dict[str, Floats]]:
    """The configuration of a `LanguageModel` and its parameters by name: `load_state_dict` takes them.

    Raises:
        InvalidInput: β above 2, gates outside [-1, 1].
    """
    if tables.betas.max(initial=0.0) > 2 + 1e-12 or np.abs(tables.gates).max(initial=0.0) > 1 + 1e-12:
        raise InvalidInput(f"ckda has β up to 2 and gates in [-1, 1], the program has β {tables.betas.max():.6g}")
    width = max(stream.channels, math.ceil(stream.units / _WIDEST), 8)
    own, heads, factors = tables.shape[3], tables.shape[1], tables.shape[2]
    rows, columns = _power(own), _power(tables.shape[4])
    spread = tables.copied((rows - int(tables.constant)) // max(own - int(tables.constant), 1), rows)
    layer = LayerConfig(
        "ckda",
        width,
        heads=heads,
        head_dim=rows,
        value_dim=columns,
        factors=factors,
        output_gate=False,
        precision=precision,
        gate_floor=_FLOOR,
        learned_start=True,
    )
    ratio = (stream.units + 0.5) / width if stream.units else 0.0
    config = ModelConfig(layer, vocab=stream.vocabulary, mlp_ratio=ratio, norm=False)
    return config, _parameters(spread, stream, width, columns)


def _parameters(tables: TokenTables, stream: Stream, width: int, columns: int) -> dict[str, Floats]:
    symbols, mixer = slice(tables.starts, None), "body.blocks.0.mixer."
    heads, factors, rows = tables.shape[1:4]
    start = np.zeros((heads, rows, columns))
    start[..., : tables.shape[4]] = tables.state * _SIZE
    values = np.zeros((len(tables.alphabet), heads, factors, columns))
    values[..., : tables.shape[4]] = tables.values[symbols] * _SIZE
    output = np.zeros((width, heads, columns))
    for h in range(heads):
        channels = stream.readout + h * tables.shape[4] + np.arange(tables.shape[4])
        output[channels, h, np.arange(tables.shape[4])] = stream.amplitude
    with np.errstate(divide="ignore"):
        betas = np.clip(np.log(tables.betas) - np.log(2 - np.minimum(tables.betas, 2)), -_LARGE, _LARGE)
        gates = np.clip(np.log1p(tables.gates) - np.log1p(-tables.gates), -_LARGE, _LARGE)
    made = {
        "embedding.weight": stream.embeddings(width),
        f"{mixer}queries.weight": _table(tables.queries[symbols], width, tables.queries[-1]),
        f"{mixer}keys.weight": _table(tables.keys[symbols].swapaxes(1, 2), width, 0.0),
        f"{mixer}values.weight": _table(values.swapaxes(1, 2), width, 0.0),
        f"{mixer}betas.weight": _table(betas[symbols].swapaxes(1, 2), width, -_LARGE),
        f"{mixer}gates.weight": _table(gates[symbols].swapaxes(1, 2), width, _LARGE),
        f"{mixer}beta_bias": np.zeros((factors, heads)),
        f"{mixer}gate_bias": np.zeros((heads, rows)),
        f"{mixer}norm": np.full(columns, columns**-0.5),
        f"{mixer}start": start,
        f"{mixer}output.weight": output.reshape(width, -1),
        "head.weight": stream.head(width),
    }
    if stream.units:
        mlp = stream.lookup(width, stream.units)
        made |= {f"body.blocks.0.mlp.{name}.weight": t for name, t in mlp.items()}
    return made


def _table(rows: Floats, width: int, other: Floats | float) -> Floats:
    """A projection [outputs, width] from rows of the symbols; `other` for ids that name states."""
    flat = rows.reshape(len(rows), -1)
    made = np.zeros((flat.shape[1], width))
    made[:, : len(flat)] = flat.T
    made[:, len(flat)] = np.reshape(other, -1)
    return made


def _power(size: int) -> int:
    """A power of two from 16 on that holds `size` channels."""
    return max(16, 1 << (size - 1).bit_length())
