"""What flash-linear-attention 0.6 computes from a checkpoint's tensors, token by token in float64 or float32.

Written from the layers' definitions, independently of the code that writes the tensors. The order of rows in the
projections (factor, head, channel), the places of SiLU, the 1e-6 under the root of keys and queries, scale K^-0.5, the
gates, the output norm and the block around them are those of the models `delta_net`, `gated_deltaproduct` and `kda`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.lab.fla_checkpoint import Checkpoint

Floats = NDArray[np.float64]


def logits_of(checkpoint: Checkpoint, ids: list[int], kind: Any = np.float64, stored: Any = None) -> Floats:
    """Logits [T, vocabulary] of one sequence, computed in the number format `kind`.

    `stored`: the format in which the mixers keep their projections and what SiLU makes of them; the kernels read these
    and compute on.
    """
    config = checkpoint.config
    w = {name: np.asarray(t).astype(kind) for name, t in checkpoint.tensors.items()}
    x = w["model.embeddings.weight"][np.array(ids)]
    eps = config["norm_eps"]
    for i in range(config["num_hidden_layers"]):
        block = {n.removeprefix(f"model.layers.{i}."): t for n, t in w.items() if n.startswith(f"model.layers.{i}.")}
        mixer = {n.removeprefix("attn."): t for n, t in block.items() if n.startswith("attn.")}
        x = x + mixed(config, mixer, rms(x, block["attn_norm.weight"], eps), stored or kind)
        y = rms(x, block["mlp_norm.weight"], eps)
        inner = silu(y @ block["mlp.gate_proj.weight"].T) * (y @ block["mlp.up_proj.weight"].T)
        x = x + inner @ block["mlp.down_proj.weight"].T
    return rms(x, w["model.norm.weight"], eps) @ w["lm_head.weight"].T


def mixed(config: dict[str, object], w: dict[str, Floats], x: Floats, stored: Any) -> Floats:
    """The mixer's output [T, hidden]."""
    kind, heads = config["model_type"], int(str(config["num_heads"]))
    plain = config.get("qk_activation") == "identity"
    factors = int(str(config.get("num_householder", 1)))
    made: dict[str, Floats] = {}
    for name in "qkv":
        y = (x @ w[f"{name}_proj.weight"].T).astype(stored).astype(x.dtype)
        if config["use_short_conv"]:
            y = convolved(y, w[f"{name}_conv1d.weight"])
        n = 1 if name == "q" else factors
        y = (y if plain and name != "v" else silu(y)).astype(stored).astype(x.dtype)
        made[name] = y.reshape(len(x), n, heads, -1)
    q, k = (y / np.sqrt((y**2).sum(-1, keepdims=True) + 1e-6) for y in (made["q"], made["k"]))
    beta = x.dtype.type(2.0 if config["allow_neg_eigval"] else 1.0) * sigmoid(x @ w["b_proj.weight"].T)
    beta = beta.reshape(len(x), factors, heads)
    gates = gates_of(config, w, x, heads, k.shape[-1])
    state = np.zeros((heads, k.shape[-1], made["v"].shape[-1]), dtype=x.dtype)
    outputs: list[Floats] = []
    for t in range(len(x)):
        state = gates[t][:, :, None] * state
        for j in range(factors):
            error = made["v"][t, j] - np.einsum("hk,hkv->hv", k[t, j], state)
            state = state + beta[t, j][:, None, None] * np.einsum("hk,hv->hkv", k[t, j], error)
        outputs.append(np.einsum("hk,hkv->hv", q[t, 0], state) * x.dtype.type(k.shape[-1] ** -0.5))
    o = rms(np.stack(outputs), w["o_norm.weight"], float(str(config["norm_eps"])))
    if kind == "kda":
        opened = x @ w["g_proj.0.weight"].T @ w["g_proj.1.weight"].T + w["g_proj.1.bias"]
        o = o * sigmoid(opened).reshape(o.shape)
    return o.reshape(len(x), -1) @ w["o_proj.weight"].T


def gates_of(config: dict[str, object], w: dict[str, Floats], x: Floats, heads: int, keys: int) -> Floats:
    """Decay of every channel [T, heads, keys]."""
    if config["model_type"] == "kda":
        y = (x @ w["f_proj.0.weight"].T @ w["f_proj.1.weight"].T + w["dt_bias"]).reshape(len(x), heads, keys)
        return np.exp(-np.exp(w["A_log"])[:, None] * np.logaddexp(0, y))
    if config.get("use_forget_gate"):
        y = x @ w["a_proj.weight"].T + w["dt_bias"]
        return np.repeat(np.exp(-np.exp(w["A_log"]) * np.logaddexp(0, y))[..., None], keys, -1)
    return np.ones((len(x), heads, keys), dtype=x.dtype)


def convolved(y: Floats, weight: Floats) -> Floats:
    """The causal convolution of every channel with its taps [channels, 1, width], the newest token last."""
    width = weight.shape[2]
    padded = np.concatenate([np.zeros((width - 1, y.shape[1]), dtype=y.dtype), y])
    return sum((padded[j : j + len(y)] * weight[:, 0, j] for j in range(width)), np.zeros_like(y))


def rms(x: Floats, weight: Floats, eps: float) -> Floats:
    """RMS norm over the last axis."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x)."""
    return 0.5 * (1 + np.tanh(x / 2))


def silu(x: Floats) -> Floats:
    """x σ(x)."""
    return x * sigmoid(x)
