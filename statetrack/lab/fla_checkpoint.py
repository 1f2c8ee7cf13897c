"""A compiled program as a checkpoint of flash-linear-attention: a folder that `AutoModelForCausalLM` loads.

Embeddings are unit vectors, so every RMS norm before the mixer is a constant (`readout_stream`). Projections are tables
of the token. SiLU stands behind the projections of keys and queries: a key is scaled until its most negative entry is
-1/4, which SiLU takes (its least value is -0.278), and the preimage is written. β = 2, β = 0 and gates 1 come from
pre-activations so large that floats round them. The output norm leaves directions, which the head compares with those
of the program.

Main definitions: `fla_checkpoint`, `FLA_MODELS`, `silu_preimage`.

References: docs/export.md; layers and configurations of flash-linear-attention 0.6.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import ml_dtypes
import numpy as np

from statetrack.constructions.weights import Array, Weights
from statetrack.errors import InvalidInput

from .checkpoint_folder import Checkpoint, facts_of
from .compiled_tables import Floats, Integers, TokenTables, token_tables
from .readout_stream import Stream

FlaModel = Literal["delta_net", "gated_deltaproduct", "kda"]
FLA_MODELS: tuple[FlaModel, ...] = ("delta_net", "gated_deltaproduct", "kda")
NUMBER_TYPES: Mapping[str, Any] = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}
# SiLU's least value is -0.27846 at x = -1.27846.
_LOWEST, _AT = -0.25, -1.2784645427610738
_LARGE, _ONE, _CLOSED = 64.0, 100.0, 30.0
_WIDTHS = (64, 256)
_EPS = 1e-12


def fla_checkpoint(
    weights: Weights,
    model: str = "auto",
    *,
    dtype: str = "float32",
    conv: int = 0,
    mode: str = "fused_recurrent",
) -> Checkpoint:
    """The program of a weights file (one layer; float64 for accuracy) as a model of flash-linear-attention 0.6.

    Args:
        weights: `Weights.in_format("float64")` of what `statetrack build` wrote.
        model: "delta_net", "gated_deltaproduct" (its case n = 1 is gated DeltaNet), "kda", or "auto": the first of
            them, in this order, that has what the program needs.
        dtype: "float32" or "bfloat16": the format of the tensors, which the preimages of SiLU are chosen for.
        conv: size of the short convolutions (0: none); they pass the token itself only.
        mode: the kernel for inference: "fused_recurrent" (float32 products) or "chunk" (faster; bfloat16, kda TF32).

    Raises:
        InvalidInput: what the model does not have, by name; a program that is no table of the token.
    """
    for name, got, known in (("model", model, ("auto", *FLA_MODELS)), ("number format", dtype, tuple(NUMBER_TYPES))):
        if got not in known:
            raise InvalidInput(f"{name} {got!r}: know {', '.join(known)}")
    if mode not in ("fused_recurrent", "chunk") or conv < 0:
        raise InvalidInput(f"mode {mode!r} (know fused_recurrent, chunk), convolution {conv} (at least 0)")
    tables = token_tables(weights)
    kind = _chosen(tables, model)
    if mode == "chunk" and dtype == "float32" and kind != "kda":
        raise InvalidInput(f"{kind}'s chunk kernel takes no float32: give --dtype bfloat16 or --mode fused_recurrent")
    if kind == "gated_deltaproduct" and tables.constant and (tables.gates != 1).any():
        tables = token_tables(weights, refreshed=True)
    width = _width(tables)
    own = tables.shape[3] - int(tables.constant)
    spread = tables.copied(_copies(tables, own, width - int(tables.constant)), width)
    parts = _Parts(spread, kind, dtype, conv, width, len(weights.dfa.delta))
    return Checkpoint(_config(parts, mode), parts.tensors(), facts_of(weights, tables, parts.stream, dtype))


def silu_preimage(y: Floats) -> Floats:
    """The x of smallest size with x·σ(x) = y, for y ≥ -0.278, by bisection to float64."""
    low = np.where(y < 0, _AT, 0.0)
    high = np.where(y < 0, 0.0, np.maximum(y, 0) + 0.3)
    for _ in range(70):
        middle = (low + high) / 2
        below = middle / (1 + np.exp(-middle)) < y
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(y == 0, 0.0, (low + high) / 2)


def _missing(tables: TokenTables, kind: FlaModel) -> list[str]:
    """What the program needs and the model does not have."""
    factors, gates = tables.shape[2], tables.gates
    if (gates < 0).any():
        return [f"{kind} has no signed gates: use --to hf"]
    faults: list[str] = []
    if factors > 1 and kind != "gated_deltaproduct":
        faults.append(f"{kind} has one factor a token, the program has {factors}")
    if kind == "delta_net" and (gates != 1).any():
        faults.append("delta_net has no gates")
    if kind == "gated_deltaproduct":
        own = gates[..., : gates.shape[-1] - int(tables.constant)]
        if (own != own[..., :1]).any():
            faults.append("gated_deltaproduct has one gate for all channels, the program has gates of channels")
        if (own[:, :, 1:] != 1).any():
            faults.append("gated_deltaproduct has a gate before the first factor only, the program has one before each")
    if tables.betas.max(initial=0.0) > 2 + 1e-12:
        faults.append(f"{kind} has β up to 2, the program has {tables.betas.max():.6g}")
    if kind == "kda" and len(np.unique(gates.reshape(len(gates), -1), axis=0)) >= _WIDTHS[-1]:
        faults.append(f"kda's gate projection has rank {_WIDTHS[-1]}, the program has more different rows of gates")
    return faults


def _chosen(tables: TokenTables, model: str) -> FlaModel:
    if model == "auto" and (tables.gates < 0).any():
        raise InvalidInput("no model of flash-linear-attention has signed gates: use --to hf")
    faults: list[str] = []
    for kind in FLA_MODELS:
        if model in ("auto", kind):
            found = _missing(tables, kind)
            if not found:
                return kind
            faults += found
    raise InvalidInput("; ".join(faults))


def _width(tables: TokenTables) -> int:
    """Channels of a head: 64 or 256, whose roots are exact; at least those of keys, values and rows of gates."""
    rows = 1 + len(np.unique(tables.gates.reshape(len(tables.gates), -1), axis=0))
    for width in _WIDTHS:
        if max(tables.shape[3], tables.shape[4], rows) <= width:
            return width
    raise InvalidInput(
        f"heads of flash-linear-attention have at most {_WIDTHS[-1]} channels, the program needs {max(tables.shape)}"
    )


def _copies(tables: TokenTables, own: int, room: int) -> int:
    """How often each channel stands in a key: so that unit keys are nearest to bfloat16 numbers, then most often."""
    keys = tables.keys[..., :own][tables.betas > 0]
    keys = keys if len(keys) else np.ones((1, own))
    errors: list[tuple[float, int]] = []
    for copies in range(1, max(room // max(own, 1), 1) + 1):
        small = keys / math.sqrt(copies)
        off = np.abs((small.astype(ml_dtypes.bfloat16).astype(np.float64) ** 2).sum(-1) * copies - 1).max()
        errors.append((round(float(off), 9), -copies))
    return -min(errors)[1]


class _Parts:
    """The tensors of one block and what surrounds it; `residual` channels are tokens, "a state", readouts, states."""

    def __init__(self, tables: TokenTables, kind: FlaModel, dtype: str, conv: int, width: int, states: int) -> None:
        self.tables, self.kind, self.dtype, self.conv = tables, kind, dtype, conv
        self.width, self.gated = width, bool((tables.gates != 1).any())
        tokens, self.heads, self.factors, _, self.columns = tables.shape
        looked_up = len(tables.points) > tables.states
        # Squares of embedding, readouts (and looked-up state) add up to 4, whose root is exact.
        self.amplitude = math.sqrt((2 if looked_up else 3) / self.heads)
        self.stream = Stream(tables, tokens, states, self.amplitude)
        self.residual = 4 ** math.ceil(math.log(max(self.stream.channels, 16), 4))
        self.inner = max(self.stream.units, 16)

    def tensors(self) -> dict[str, Array]:
        """All tensors by name, in the number format."""
        size, block = self.residual, "model.layers.0."
        root = math.sqrt(size)
        made: dict[str, Floats] = {
            "model.embeddings.weight": self.stream.embeddings(size),
            f"{block}attn_norm.weight": np.full(size, 1 / root),
            f"{block}mlp_norm.weight": np.full(size, math.sqrt(1 + self.amplitude**2 * self.heads) / root),
            "model.norm.weight": np.full(size, 2 / root),
        }
        made |= {f"{block}attn.{name}": t for name, t in (self._mixer() | self._gates() | self._output()).items()}
        made |= {f"{block}mlp.{name}_proj.weight": t for name, t in self.stream.lookup(size, self.inner).items()}
        made["lm_head.weight"] = self.stream.head(size)
        kind = NUMBER_TYPES[self.dtype]
        return {n: t.astype(np.float32 if n.endswith(("A_log", "dt_bias")) else kind) for n, t in made.items()}

    def _mixer(self) -> dict[str, Floats]:
        """Projections of q, k, v and β, and convolutions that pass the token."""
        t = self.tables
        plain = self.kind == "delta_net"
        free = ~t.values.any(-1)
        keys = _written(t.keys, self.dtype, plain=plain, free=free)
        queries = _written(t.queries, self.dtype, plain=plain, free=np.zeros(t.queries.shape[:-1], dtype=bool))
        most, least = np.abs(t.values).max(initial=0.0), -t.values.min(initial=0.0)
        size = _LARGE / most if least == 0 else min(_LARGE / most, -_LOWEST / least)
        values = np.zeros((*t.values.shape[:3], self.width))
        values[..., : self.columns] = _rounded_preimage(t.values * size, self.dtype)
        made = {
            "q_proj.weight": self._table(queries, other=queries[-1]),
            "k_proj.weight": self._table(keys.swapaxes(1, 2)),
            "v_proj.weight": self._table(values.swapaxes(1, 2)),
            "b_proj.weight": self._table(_logit(t.betas / 2).swapaxes(1, 2), other=-_ONE),
        }
        if self.conv:
            for name in "qkv":
                tap = np.zeros((len(made[f"{name}_proj.weight"]), 1, self.conv))
                tap[..., -1] = 1.0
                made[f"{name}_conv1d.weight"] = tap
        return made

    def _gates(self) -> dict[str, Floats]:
        """Decay gates: α = σ(-x) for A_log = 0, from x = -100 (α = 1) to 30 (α = 1e-13, for 0)."""
        before = np.minimum(-_logit(self.tables.gates[:, :, 0]), _CLOSED)
        if self.kind == "kda":
            # The last row is that of tokens that name a state.
            rows = np.concatenate([before, np.full((1, *before.shape[1:]), -_ONE)]).reshape(len(before) + 1, -1)
            classes, which = np.unique(rows, axis=0, return_inverse=True)
            first = np.zeros((self.width, self.residual))
            first[which.reshape(-1), np.arange(len(rows))] = 1.0
            second = np.zeros((classes.shape[1], self.width))
            second[:, : len(classes)] = classes.T
            plain = {"A_log": np.zeros(self.heads), "dt_bias": np.zeros(len(second))}
            return {"f_proj.0.weight": first, "f_proj.1.weight": second} | plain
        if self.kind == "gated_deltaproduct" and self.gated:
            other = {"A_log": np.zeros(self.heads), "dt_bias": np.zeros(self.heads)}
            return {"a_proj.weight": self._table(before[..., 0], other=-_ONE)} | other
        return {}

    def _output(self) -> dict[str, Floats]:
        """The output norm (with kda's gate open) and the readouts' way into their channels."""
        out = np.zeros((self.residual, self.heads * self.width))
        for h in range(self.heads):
            rows = self.stream.readout + h * self.columns + np.arange(self.columns)
            out[rows, h * self.width + np.arange(self.columns)] = self.amplitude
        made = {"o_proj.weight": out, "o_norm.weight": np.full(self.width, 1 / math.sqrt(self.width))}
        if self.kind == "kda":
            made |= {
                "g_proj.0.weight": np.zeros((self.width, self.residual)),
                "g_proj.1.weight": np.zeros((self.heads * self.width, self.width)),
                "g_proj.1.bias": np.full(self.heads * self.width, _CLOSED),
            }
        return made

    def _table(self, rows: Floats, other: Floats | float = 0.0) -> Floats:
        """A projection [outputs, residual] from rows of the tokens [tokens, ...]; `other` for tokens naming states."""
        flat = rows.reshape(len(rows), -1)
        made = np.zeros((flat.shape[1], self.residual))
        made[:, : len(flat)] = flat.T
        made[:, len(flat)] = np.reshape(other, -1)
        return made


def _logit(p: Floats) -> Floats:
    """log(p/(1-p)), kept in [-100, 100], where floats round σ to 0 and to 1."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(p) - np.log1p(-np.minimum(p, 1.0)), -_ONE, _ONE)


def _written(rows: Floats, dtype: str, *, plain: bool, free: Any) -> Floats:
    """Pre-activations of unit rows [..., K]: any length will do, as the layer normalises; `free`: any sign too."""
    flat, may_turn = rows.reshape(-1, rows.shape[-1]), np.broadcast_to(free, rows.shape[:-1]).reshape(-1)
    distinct, which = np.unique(np.column_stack([flat, may_turn]), axis=0, return_inverse=True)
    made = np.array([_best(row[:-1], bool(row[-1]), dtype, plain) for row in distinct])
    return made[which.reshape(-1)].reshape(rows.shape)


def _best(row: Floats, may_turn: bool, dtype: str, plain: bool) -> Floats:
    """The pre-activations of one row whose direction, rounded as the layer rounds, is nearest to it."""
    if not row.any():
        return row
    if may_turn and -row.min() > row.max():
        row = -row
    most, least = np.abs(row).max(), max(-row.min(), 0.0)
    size = _LARGE / most if plain or least < 1e-9 * most else min(_LARGE / most, -_LOWEST / least)
    if plain:
        size = 2.0 ** math.floor(math.log2(size))
    parts = np.ones(1) if dtype == "float32" else np.linspace(1.0, 0.5, 129)
    wanted = row * (size * parts[:, None])
    x = (wanted if plain else _rounded_preimage(wanted, dtype)).astype(NUMBER_TYPES[dtype]).astype(np.float64)
    y = (x if plain else x / (1 + np.exp(-x))).astype(NUMBER_TYPES[dtype]).astype(np.float64)
    errors = np.linalg.norm(y / np.linalg.norm(y, axis=-1, keepdims=True) - row, axis=-1)
    return x[np.flatnonzero(errors <= errors.min() + 1e-12)[0]]


def _rounded_preimage(y: Floats, dtype: str) -> Floats:
    """The number of the format whose SiLU is nearest to y."""
    kind = NUMBER_TYPES[dtype]
    x = silu_preimage(y)
    near = x.astype(kind)
    steps: list[Array] = [near]
    for towards in (-math.inf, math.inf):
        steps.append(np.nextafter(near, np.array(towards, dtype=kind)).astype(kind))
    held: Floats = np.stack(steps).astype(np.float64)
    error: Floats = np.abs(held / (1 + np.exp(-np.clip(held, -700, 700))) - y)
    chosen: Integers = error.argmin(0)
    return np.where(y == 0, 0.0, np.take_along_axis(held, chosen[None], axis=0)[0])


def _config(parts: _Parts, mode: str) -> dict[str, Any]:
    """Every field of the model's configuration: what is left out has other defaults than the layers."""
    made: dict[str, Any] = dict(_FIELDS) | {
        "architectures": [_CLASSES[parts.kind]],
        "model_type": parts.kind,
        "dtype": parts.dtype,
        "vocab_size": parts.stream.vocabulary,
        "hidden_size": parts.residual,
        "num_heads": parts.heads,
        "intermediate_size": parts.inner,
        "attn_mode": mode,
        "use_short_conv": parts.conv > 0,
        "conv_size": parts.conv or 4,
    }
    if parts.kind == "delta_net":
        share = parts.heads * parts.width / parts.residual
        made |= {"expand_k": share, "expand_v": share, "qk_norm": "l2", "qk_activation": "identity"}
        return made | {
            "use_beta": True,
            "use_gate": False,
            "use_output_norm": True,
            "fuse_linear_cross_entropy": False,
        }
    made |= {"head_dim": parts.width, "expand_v": 1.0}
    if parts.kind == "kda":
        return made | {"num_v_heads": None, "safe_gate": False, "lower_bound": None}
    made |= {"num_householder": parts.factors, "use_forget_gate": parts.gated, "use_output_gate": False}
    return made | {"fuse_linear_cross_entropy": False}


_FIELDS: Mapping[str, Any] = {
    "num_hidden_layers": 1,
    "hidden_ratio": 4,
    "hidden_act": "swish",
    "attn": None,
    "allow_neg_eigval": True,
    "norm_eps": _EPS,
    "max_position_embeddings": 1 << 20,
    "initializer_range": 0.02,
    "fuse_norm": True,
    "fuse_swiglu": True,
    "fuse_cross_entropy": True,
    "use_l2warp": False,
    "attnres_block_size": None,
    "use_cache": True,
    "tie_word_embeddings": False,
    "bos_token_id": 0,
    "eos_token_id": None,
    "pad_token_id": None,
}
_CLASSES: Mapping[str, str] = {
    "delta_net": "DeltaNetForCausalLM",
    "gated_deltaproduct": "GatedDeltaProductForCausalLM",
    "kda": "KDAForCausalLM",
}
