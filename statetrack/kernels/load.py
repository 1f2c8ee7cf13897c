"""From weights (numpy tensors of a certified program) to the tensors that `run` executes.

Main definitions: `model_of`, `random_tokens`, `encode_words`.

References: `statetrack.constructions.weights` for names and shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from statetrack.constructions.weights import Array, Weights

from .reference import LayerTables
from .run import LayerModel, Model


def model_of(weights: Weights) -> Model:
    """The executable model on the CPU; `run.execute` moves and rounds it."""
    layers: list[LayerModel] = []
    for number in range(weights.layers):
        prefix = f"layers.{number}."
        t = {
            name.removeprefix(prefix): _tensor(array)
            for name, array in weights.tensors.items()
            if name.startswith(prefix)
        }
        tables = LayerTables(
            keys=t["keys"],
            betas=t["betas"],
            gates=t["gates"],
            queries=t["queries"],
            state=t["state"],
            values=t.get("values"),
            bias=t.get("bias"),
            dense=t.get("dense"),
        )
        heads = tables.shape[1]
        layers.append(
            LayerModel(
                tables,
                t["route"],
                tuple(t[f"codebook.{h}"] for h in range(heads)),
                tuple(t[f"labels.{h}"] for h in range(heads)),
                t.get("emit"),
            )
        )
    return Model(tuple(layers), _tensor(weights.dfa.delta), weights.dfa.start)


def encode_words(words: Sequence[Sequence[str]], weights: Weights) -> Tensor:
    """Words as token numbers [words, longest], -1 after the end of a word; InvalidWord for a foreign symbol."""
    codes = [weights.dfa.encode(word) for word in words]
    table = np.full((len(codes), max((len(c) for c in codes), default=0)), -1, dtype=np.int32)
    for row, code in zip(table, codes, strict=True):
        row[: len(code)] = code
    return _tensor(table)


def random_tokens(symbols: int, batch: int, start: int, stop: int, *, seed: int, device: torch.device | str) -> Tensor:
    """Uniform tokens [batch, stop - start] int32 that depend on (seed, word, position) only.

    They are the same on every device and for every chunking: a 64-bit mixing hash (splitmix64) of word and position.
    The bias of the remainder is below symbols/2^31.
    """
    position = torch.arange(start, stop, dtype=torch.int64, device=device)
    word = torch.arange(batch, dtype=torch.int64, device=device)
    x = _mixed(_mixed(word + seed * 0x632BE5AB)[:, None] + position[None, :])
    return ((x & 0x7FFFFFFF) % symbols).to(torch.int32)


def _mixed(x: Tensor) -> Tensor:
    x = x * -7046029254386353131
    x = (x ^ _shifted(x, 30)) * -4658895280553007687
    x = (x ^ _shifted(x, 27)) * -7723592293110705685
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right of a signed 64-bit integer."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _tensor(array: Array) -> Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.as_tensor(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.as_tensor(array.copy())
