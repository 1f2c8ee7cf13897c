"""A compiled program as a checkpoint of flash-linear-attention: a folder that `AutoModelForCausalLM` loads.

What a block adds to the residual stream has always the same length, so every RMS norm is a constant (`readout_stream`).
Projections are tables of the layer's input id; a block without a layer has an idle mixer. SiLU stands behind the
projections of keys and queries: a key is scaled until its most negative entry is -1/4, which SiLU takes (its least
value is -0.278), and the preimage is written. β = 2, β = 0 and gates 1 come from pre-activations so large that floats
round them. The output norm leaves directions, which the MLP compares with those of the program.

Main definitions: `fla_checkpoint`, `FLA_MODELS`, `silu_preimage`.

References: docs/export.md; layers and configurations of flash-linear-attention 0.6.0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import ml_dtypes
import numpy as np

from statetrack.constructions.weights import Array, Weights
from statetrack.errors import InvalidInput

from .checkpoint_folder import Checkpoint, facts_of
from .compiled_tables import Floats, LayerTables, layer_tables
from .readout_stream import Stream, check_size
from .register_plan import Integers, plan_of

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
    """The program of a weights file (float64 for accuracy) as a model of flash-linear-attention 0.6.

    Args:
        weights: `Weights.in_format("float64")` of what `statetrack build` wrote.
        model: "delta_net", "gated_deltaproduct" (its case n = 1 is gated DeltaNet), "kda", or "auto": the first of
            them, in this order, that has what the program needs.
        dtype: "float32" or "bfloat16": the format of the tensors, which the preimages of SiLU are chosen for.
        conv: size of the short convolutions (0: none); they pass the token itself only.
        mode: the kernel for inference: "fused_recurrent" (float32 products) or "chunk" (faster; bfloat16, kda TF32).

    Raises:
        InvalidInput: what the model does not have, by name; look-ups that are too large.
    """
    for name, got, known in (("model", model, ("auto", *FLA_MODELS)), ("number format", dtype, tuple(NUMBER_TYPES))):
        if got not in known:
            raise InvalidInput(f"{name} {got!r}: know {', '.join(known)}")
    if mode not in ("fused_recurrent", "chunk") or conv < 0:
        raise InvalidInput(f"mode {mode!r} (know fused_recurrent, chunk), convolution {conv} (at least 0)")
    tables = layer_tables(weights)
    kind = _chosen(tables, model)
    if mode == "chunk" and dtype == "float32" and kind != "kda":
        raise InvalidInput(f"{kind}'s chunk kernel takes no float32: give --dtype bfloat16 or --mode fused_recurrent")
    if kind == "gated_deltaproduct":
        tables = layer_tables(weights, refreshed=True)
    factors = max(layer.shape[2] for layer in tables)
    starts = max(layer.starts(factors) for layer in tables)
    stream = Stream(weights, plan_of(weights), tables, starts)
    stream.check_format(dtype)
    parts = _Parts(stream, kind, dtype, conv)
    return Checkpoint(_config(parts, mode), parts.tensors(), facts_of(weights, parts.stream, dtype))


def silu_preimage(y: Floats) -> Floats:
    """The x of smallest size with x·σ(x) = y, for y ≥ -0.278, by bisection to float64."""
    low = np.where(y < 0, _AT, 0.0)
    high = np.where(y < 0, 0.0, np.maximum(y, 0) + 0.3)
    for _ in range(70):
        middle = (low + high) / 2
        below = middle / (1 + np.exp(-middle)) < y
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.where(y == 0, 0.0, (low + high) / 2)


def _missing(tables: Sequence[LayerTables], kind: FlaModel) -> list[str]:
    """What the program needs and the model does not have."""
    factors, beta = max(layer.shape[2] for layer in tables), max(layer.betas.max(initial=0.0) for layer in tables)
    if any((layer.gates < 0).any() for layer in tables):
        return [f"{kind} has no signed gates: use --to hf"]
    faults: list[str] = []
    if factors > 1 and kind != "gated_deltaproduct":
        faults.append(f"{kind} has one factor a token, the program has {factors}")
    if kind == "delta_net" and any((layer.gates != 1).any() for layer in tables):
        faults.append("delta_net has no gates")
    if kind == "gated_deltaproduct":
        own = [layer.gates[..., : layer.own] for layer in tables]
        if any((gates != gates[..., :1]).any() for gates in own):
            faults.append("gated_deltaproduct has one gate for all channels, the program has gates of channels")
        if any((gates[:, :, 1:] != 1).any() for gates in own):
            faults.append("gated_deltaproduct has a gate before the first factor only, the program has one before each")
    if beta > 2 + 1e-12:
        faults.append(f"{kind} has β up to 2, the program has {beta:.6g}")
    if kind == "kda" and any(_gate_rows(layer) > _WIDTHS[-1] for layer in tables):
        faults.append(f"kda's gate projection has rank {_WIDTHS[-1]}, the program has more different rows of gates")
    return faults


def _gate_rows(tables: LayerTables) -> int:
    """Different rows of gates, with those of start tokens and of ids that name states."""
    return 1 + len(np.unique(tables.gates.reshape(len(tables.gates), -1), axis=0))


def _chosen(tables: Sequence[LayerTables], model: str) -> FlaModel:
    if model == "auto" and any((layer.gates < 0).any() for layer in tables):
        raise InvalidInput("no model of flash-linear-attention has signed gates: use --to hf")
    faults: list[str] = []
    for kind in FLA_MODELS:
        if model in ("auto", kind):
            found = _missing(tables, kind)
            if not found:
                return kind
            faults += found
    raise InvalidInput("; ".join(faults))


def _width(tables: Sequence[LayerTables], kind: FlaModel) -> int:
    """Channels of a head: 64 or 256, whose roots are exact; at least those of keys, values and kda's rows of gates."""
    needed = max(max(layer.shape[3:]) for layer in tables)
    if kind == "kda":
        needed = max(needed, *(_gate_rows(layer) for layer in tables))
    for width in _WIDTHS:
        if needed <= width:
            return width
    raise InvalidInput(
        f"heads of flash-linear-attention have at most {_WIDTHS[-1]} channels, the program needs {needed}"
    )


def _copies(tables: LayerTables, room: int) -> int:
    """How often each channel stands in a key: so that unit keys are nearest to bfloat16 numbers, then most often."""
    keys = tables.keys[..., : tables.own][tables.betas > 0]
    keys = keys if len(keys) else np.ones((1, tables.own))
    errors: list[tuple[float, int]] = []
    for copies in range(1, max(room // max(tables.own, 1), 1) + 1):
        small = keys / math.sqrt(copies)
        off = np.abs((small.astype(ml_dtypes.bfloat16).astype(np.float64) ** 2).sum(-1) * copies - 1).max()
        errors.append((round(float(off), 9), -copies))
    return -min(errors)[1]


class _Parts:
    """The tensors of all blocks and what surrounds them; `residual` is the width of the stream."""

    def __init__(self, stream: Stream, kind: FlaModel, dtype: str, conv: int) -> None:
        self.stream, self.kind, self.dtype, self.conv = stream, kind, dtype, conv
        tables = stream.tables
        self.width = _width(tables, kind)
        self.gated = any(bool((layer.gates != 1).any()) for layer in tables)
        self.heads, self.factors = (max(layer.shape[axis] for layer in tables) for axis in (1, 2))
        # Of powers of four the root is exact, in bfloat16 too.
        size = max(stream.channels, 16)
        self.residual = 4 ** math.ceil(math.log(size, 4)) if size <= 1024 else -(-size // 64) * 64
        self.inner = max(stream.inner, 16)
        mixer = (2 * self.factors + 3) * self.heads * self.width
        check_size(stream.plan.blocks, self.residual * (mixer + 3 * self.inner))

    def tensors(self) -> dict[str, Array]:
        """All tensors by name, in the number format."""
        size, root, blocks = self.residual, math.sqrt(self.residual), self.stream.plan.blocks
        layers = {block: layer for layer, (block, _) in enumerate(self.stream.plan.layers)}
        made: dict[str, Floats] = {
            "model.embeddings.weight": self.stream.embeddings(size),
            "model.norm.weight": np.full(size, math.sqrt(self.stream.squares(blocks, mixed=False)) / root),
            "lm_head.weight": self.stream.head(size),
        }
        for block in range(blocks):
            at = f"model.layers.{block}."
            for name, mixed in (("attn", False), ("mlp", True)):
                length = math.sqrt(self.stream.squares(block, mixed=mixed))
                made[f"{at}{name}_norm.weight"] = np.full(size, length / root)
            mixer = self._layer(layers[block]) if block in layers else self._idle()
            made |= {f"{at}attn.{name}": t for name, t in mixer.items()}
            mlp = self.stream.mlp(block, size, self.inner)
            made |= {f"{at}mlp.{name}_proj.weight": t for name, t in mlp.items()}
        kind = NUMBER_TYPES[self.dtype]
        return {n: t.astype(np.float32 if n.endswith(("A_log", "dt_bias")) else kind) for n, t in made.items()}

    def _layer(self, number: int) -> dict[str, Floats]:
        """The mixer of a layer of the program."""
        own = self.stream.tables[number]
        tables = own.widened(self.heads, self.factors)
        tables = tables.copied(_copies(own, self.width - int(own.constant)), self.width)
        tables = tables.with_starts(self.stream.starts)
        return self._idle() | self._mixer(number, tables) | self._gates(number, tables) | self._output(number)

    def _idle(self) -> dict[str, Floats]:
        """A mixer that adds nothing; what all mixers have in common."""
        width, channels = self.width, self.heads * self.width
        made: dict[str, Floats] = {f"{name}_proj.weight": np.zeros((n, self.residual)) for name, n in self._sizes()}
        made |= {"o_proj.weight": np.zeros((self.residual, channels))}
        made |= {"o_norm.weight": np.full(width, 1 / math.sqrt(width))}
        if self.conv:
            for name, n in self._sizes()[:3]:
                made[f"{name}_conv1d.weight"] = np.tile(np.eye(self.conv)[-1], (n, 1, 1))
        if self.kind == "kda":
            made |= {
                "f_proj.0.weight": np.zeros((width, self.residual)),
                "f_proj.1.weight": np.zeros((channels, width)),
                "g_proj.0.weight": np.zeros((width, self.residual)),
                "g_proj.1.weight": np.zeros((channels, width)),
                "g_proj.1.bias": np.full(channels, _CLOSED),
                "A_log": np.zeros(self.heads),
                "dt_bias": np.zeros(channels),
            }
        elif self.kind == "gated_deltaproduct" and self.gated:
            made |= {"a_proj.weight": np.zeros((self.heads, self.residual))}
            made |= {"A_log": np.zeros(self.heads), "dt_bias": np.zeros(self.heads)}
        return made

    def _sizes(self) -> list[tuple[str, int]]:
        """Rows of the projections of q, k, v and β."""
        channels = self.heads * self.width
        return [("q", channels), ("k", channels * self.factors), ("v", channels * self.factors),
                ("b", self.heads * self.factors)]  # fmt: skip

    def _mixer(self, number: int, t: LayerTables) -> dict[str, Floats]:
        """Projections of q, k, v and β."""
        plain = self.kind == "delta_net"
        keys = _written(t.keys, self.dtype, plain=plain, free=~t.values.any(-1))
        lengths = np.linalg.norm(t.queries, axis=-1, keepdims=True)
        unit = t.queries / np.where(lengths > 0, lengths, 1.0)
        queries = _written(unit, self.dtype, plain=plain, free=np.zeros(unit.shape[:-1], dtype=bool))
        most, least = np.abs(t.values).max(initial=0.0) or 1.0, -t.values.min(initial=0.0)
        size = _LARGE / most if least == 0 else min(_LARGE / most, -_LOWEST / least)
        values = np.zeros((*t.values.shape[:3], self.width))
        values[..., : t.values.shape[3]] = _rounded_preimage(t.values * size, self.dtype)
        return {
            "q_proj.weight": self._table(number, queries, queries[-1]),
            "k_proj.weight": self._table(number, keys.swapaxes(1, 2)),
            "v_proj.weight": self._table(number, values.swapaxes(1, 2)),
            "b_proj.weight": self._table(number, _logit(t.betas / 2).swapaxes(1, 2), -_ONE),
        }

    def _gates(self, number: int, t: LayerTables) -> dict[str, Floats]:
        """Decay gates: α = σ(-x) for A_log = 0, from x = -100 (α = 1) to 30 (α = 1e-13, for 0)."""
        before = np.minimum(-_logit(t.gates[:, :, 0]), _CLOSED)
        if self.kind == "kda":
            # The last row is that of tokens that name a state.
            rows = np.concatenate([before, np.full((1, *before.shape[1:]), -_ONE)]).reshape(len(before) + 1, -1)
            classes, which = np.unique(rows, axis=0, return_inverse=True)
            chosen = np.eye(self.width)[which.reshape(-1)]
            second = np.zeros((classes.shape[1], self.width))
            second[:, : len(classes)] = classes.T
            return {"f_proj.0.weight": self._table(number, chosen[:-1], chosen[-1]), "f_proj.1.weight": second}
        if self.kind == "gated_deltaproduct" and self.gated:
            return {"a_proj.weight": self._table(number, before[..., 0], -_ONE)}
        return {}

    def _output(self, number: int) -> dict[str, Floats]:
        """The readouts' way into their channels."""
        out = np.zeros((self.residual, self.heads * self.width))
        _, heads, _, _, columns = self.stream.tables[number].shape
        for h in range(heads):
            out[self.stream.readout(number, h), h * self.width + np.arange(columns)] = 1.0
        return {"o_proj.weight": out}

    def _table(self, number: int, rows: Floats, other: Floats | float = 0.0) -> Floats:
        return self.stream.projection(number, rows, self.residual, other)


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
        "num_hidden_layers": parts.stream.plan.blocks,
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
