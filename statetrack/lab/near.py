"""Models that start as a compiled program, or near one: its tables as weights, and a noise scale.

A token's embedding is one-hot, so that the columns of the projections are the program's rows: keys, β, gates, values.
The heads' first states are the program's. Every head is read by unit queries into coordinates of its own behind the
one-hot ones, and the answer is the nearest mean of what is read, or of its products of two where that tells the
states apart and the readouts alone do not: 2 units of a gated MLP make a product, silu(a) b + silu(-a) (-b) = a b.

    logit of state q = gain · (2 ⟨m_q, f⟩ - |m_q|²),    f the readouts or their products, m_q their mean over state q

Main definitions: `near_model`, `model_of_program`, `program_of`, `Decoder`.

Main results: with noise 0 the model's answers are the automaton's states (tested for S3, S4, Z60, A5).

References: `statetrack.constructions.weights` for the tables; CKDA, A5 near the quaternion construction; docs/lab.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from statetrack.constructions.compiler import compile_source
from statetrack.constructions.dyadic_keys import with_unit_keys
from statetrack.constructions.weights import Weights, lower
from statetrack.errors import InvalidInput
from statetrack.kernels.checkpoints import Transitions
from statetrack.kernels.language_model import LanguageModel, ModelConfig
from statetrack.kernels.layer_parts import LayerConfig

from .runs import Run
from .tasks import Task

# Logits of the right state stand this far above the others at least.
_LEAD = 12.0
_MOST_STATES = 20_000
# A decoder with at least this margin (relative to the squared length of what it reads) is good enough.
_GOOD = 0.1


@dataclass(frozen=True, eq=False)
class Decoder:
    """Which rows of the heads are read (`queries` [model head, K], `head` the program's head of each), and the means.

    `products`: pairs of readouts that are multiplied, [P, 2]; empty for the readouts themselves. `means` [state, F].
    `margin`: the least difference of squared distances, relative to the mean squared length of the means.
    """

    queries: Tensor
    head: tuple[int, ...]
    products: Tensor
    means: Tensor
    margin: float

    @property
    def basis(self) -> Tensor:
        """Directions [F, r] in which the means differ: what the products are summed to; none without products."""
        if not len(self.products):
            return torch.eye(self.means.shape[1], dtype=torch.float64)
        _, sizes, rows = torch.linalg.svd(self.means - self.means.mean(0), full_matrices=False)
        return rows[sizes > 1e-6 * sizes[0]].T


def near_model(run: Run, task: Task) -> LanguageModel:
    """The model of a run with init "near": the program of the task's automaton, with the run's noise.

    Raises:
        InvalidInput: a task without an automaton, a program that is no single layer, a width that is too small.
    """
    return model_of_program(
        program_of(task), width=run.width, noise=run.noise, saturation=run.saturation, precision=run.kernel
    )


def program_of(task: Task, target: str = "ckda") -> Weights:
    """The compiled program of a task's automaton in float64."""
    if task.automaton is None:
        raise InvalidInput(f"task {task.name}: has no program of its answers at every token; choose a group")
    return _compiled(task, target)


@lru_cache(maxsize=8)
def _compiled(task: Task, target: str) -> Weights:
    assert task.automaton is not None
    made = compile_source(task.automaton(), target)
    return lower(made.program, made.certificate, made.automaton, "float64")


def model_of_program(
    weights: Weights,
    *,
    width: int | None = None,
    noise: float = 0.0,
    saturation: float = 20.0,
    precision: str = "exact",
) -> LanguageModel:
    """A model of one layer whose logits name the automaton's state after every token, up to noise.

    Args:
        width: at least one coordinate a symbol, readout and product; None takes as many as are needed.
        noise: s adds s · N(0, 1) to biases, s · N(0, 1/columns) to matrices, from torch's generator.
        saturation: the largest pre-activation of β and gates; from 20 on β = 2 and α = ±1 are exact in float32, and
            with 5 they are 1.987 and ±0.987 and can still be learned.
        precision: of the layer kernels on CUDA.

    Raises:
        InvalidInput: several layers, dense or additive terms beyond β k vᵀ, floors, states that are not told apart.
    """
    layer = transitions_of(weights)
    decoder = _decoder(weights, layer)
    symbols, readouts = len(layer.k), len(decoder.queries) * _columns(layer)
    needed = symbols + readouts + (decoder.basis.shape[1] if len(decoder.products) else 0)
    width = needed if width is None else width
    if width < needed:
        raise InvalidInput(
            f"width {width}: this program needs {needed} ({symbols} for symbols, {readouts} for readouts)"
        )
    model = LanguageModel(_config(layer, decoder, width, len(weights.dfa.states), precision))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        _write_layer(model, layer, decoder, saturation)
        _write_decoder(model, decoder, symbols, readouts)
        _shake(model, noise)
    return model


def _columns(layer: Transitions) -> int:
    assert layer.state is not None
    return layer.state.shape[2]


def _config(layer: Transitions, decoder: Decoder, width: int, states: int, precision: str) -> ModelConfig:
    """One layer with a head for every row that is read, and an MLP with two units for every product."""
    symbols, _, factors, K = layer.k.shape
    config = LayerConfig(
        kind="ckda",
        width=width,
        heads=len(decoder.queries),
        head_dim=K,
        value_dim=_columns(layer),
        factors=factors,
        output_gate=False,
        output_norm=False,
        learned_start=True,
        gate_floor=-100.0,
        precision=precision,
    )
    inner = 2 * len(decoder.products)
    # A whole number of units whatever the rounding of the ratio.
    ratio = (inner + 0.5) / width if inner else 0.0
    return ModelConfig(config, vocab=symbols, outputs=states, mlp_ratio=ratio, norm=False, head_bias=True)


def transitions_of(weights: Weights) -> Transitions:
    """The factors of a program of one layer, a row a symbol, with values and first states; InvalidInput otherwise."""
    names = set(weights.tensors)
    faults = [name for name in ("dense", "bias", "unit") if f"layers.0.{name}" in names]
    if any(name.startswith(("layers.1.", "layers.0.wires", "answer")) for name in names):
        faults.insert(0, "several layers")
    if faults:
        raise InvalidInput(
            f"near a program: it has {', '.join(faults)}; expected one layer of factors with gates and v"
        )
    route = weights.tensors["layers.0.route"].astype(np.int64)
    if tuple(weights.tensors["layers.0.reads"]) != (0,) or (route < 0).any():
        raise InvalidInput("near a program: its layer reads more than the token; expected one that reads the token")
    rows = {n.removeprefix("layers.0."): x.astype(np.float64) for n, x in weights.tensors.items()}
    keys, betas, sizes = with_unit_keys(rows["keys"][route], rows["betas"][route])
    k, beta, alpha, state = map(torch.from_numpy, (keys, betas, rows["gates"][route], rows["state"]))
    values = torch.from_numpy(rows["values"][route] / sizes[..., None]) if "values" in rows else None
    if bool((beta > 2 + 1e-9).any() or (beta < 0).any() or (alpha.abs() > 1 + 1e-9).any()):
        raise InvalidInput("near a program: it has β or gates that no layer here has; expected [0, 2] and [-1, 1]")
    beta, alpha = beta.clamp(0, 2), alpha.clamp(-1, 1)
    return Transitions("program", "statetrack", k, beta, alpha, True, "symbols", values, state)


def _decoder(weights: Weights, layer: Transitions) -> Decoder:
    """The first decoder that is good enough: own queries or all rows, readouts or their products; else the best."""
    states, labels = _reached(weights, layer)
    route = torch.from_numpy(weights.tensors["layers.0.route"]).long()
    own = torch.from_numpy(weights.tensors["layers.0.queries"]).double()[route]  # [A, H, K]
    heads, K = layer.k.shape[1], layer.k.shape[3]
    unit = torch.eye(K, dtype=torch.float64)
    readings = [(unit.repeat(heads, 1), tuple(h for h in range(heads) for _ in range(K)))]
    if bool((own == own[:1]).all()):
        readings.insert(0, (own[0] / own[0].norm(dim=1, keepdim=True), tuple(range(heads))))
    best: Decoder | None = None
    for squared in (False, True):
        for queries, head in readings:
            found = _means(states, labels, queries, head, squared)
            if found.margin > _GOOD:
                return found
            best = found if best is None or found.margin > best.margin else best
    if best is None or best.margin <= 1e-9:
        raise InvalidInput("near a program: neither readouts nor their products tell its states apart linearly")
    return best


def _reached(weights: Weights, layer: Transitions) -> tuple[Tensor, Tensor]:
    """All hidden states [N, H, K, V] that words reach, breadth first, and the automaton's state of each [N]."""
    assert layer.state is not None
    maps = [layer.maps(head) for head in range(layer.k.shape[1])]
    delta = torch.from_numpy(weights.dfa.delta.astype("int64"))
    states, labels = layer.state[None], torch.tensor([weights.dfa.start])
    fresh, names, seen = states, labels, _codes(states, labels)
    while len(fresh):
        parts: list[Tensor] = []
        for head, (product, added) in enumerate(maps):
            moved = product[None] @ fresh[:, None, head]
            parts.append(moved if added is None else moved + added[None])
        after = torch.stack(parts, 2).flatten(0, 1)
        named = delta[names].flatten()
        codes, first = np.unique(_codes(after, named), return_index=True)
        new = torch.from_numpy(first[~np.isin(codes, seen)])
        fresh, names = after[new], named[new]
        states, labels = torch.cat([states, fresh]), torch.cat([labels, names])
        seen = np.concatenate([seen, _codes(fresh, names)])
        if len(states) > _MOST_STATES:
            raise InvalidInput(f"near a program: more than {_MOST_STATES} hidden states")
    return states, labels


def _codes(states: Tensor, labels: Tensor) -> NDArray[np.int64]:
    """A random linear code [N] of each state, rounded to 1e-6, and its label."""
    rows = torch.cat([states.flatten(1).mul(1e6).round().long(), labels[:, None]], 1).numpy()
    weights = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, size=rows.shape[1], dtype=np.int64)
    return rows @ weights


def _means(states: Tensor, labels: Tensor, queries: Tensor, head: tuple[int, ...], squared: bool) -> Decoder:
    """The decoder by nearest means for one way of reading."""
    readouts = torch.einsum("nhkv,hk->nhv", states[:, list(head)], queries).flatten(1)
    products = torch.empty(0, 2, dtype=torch.int64)
    features = readouts
    if squared:
        products = torch.triu_indices(readouts.shape[1], readouts.shape[1]).T
        features = readouts[:, products[:, 0]] * readouts[:, products[:, 1]]
    count = torch.bincount(labels).double()[:, None]
    sums = torch.zeros(len(count), features.shape[1], dtype=torch.float64).index_add(0, labels, features)
    means = sums / count
    if squared:
        # Products whose mean says nothing of the state are not made.
        telling = (means - means.mean(0)).abs().amax(0) > 1e-9
        products, features, means = products[telling], features[:, telling], means[:, telling]
    scores = 2 * features @ means.T - means.square().sum(1)
    right = scores.gather(1, labels[:, None])
    others = scores.scatter(1, labels[:, None], -math.inf).amax(1, keepdim=True)
    size = float(means.square().sum(1).mean()) or 1.0
    return Decoder(queries, head, products, means, float((right - others).min()) / size)


def _write_layer(model: LanguageModel, layer: Transitions, decoder: Decoder, saturation: float) -> None:
    """Tables of symbols as columns of the projections; heads are copied for every row that is read."""
    parts: dict[str, Any] = dict(model.named_parameters())
    at = "body.blocks.0.mixer."
    symbols, _, _, K = layer.k.shape
    head = list(decoder.head)
    assert model.embedding is not None
    assert layer.state is not None
    model.embedding.weight[:, :symbols] = torch.eye(symbols)
    k, beta, alpha = (x[:, head].transpose(1, 2) for x in (layer.k, layer.beta, layer.alpha))  # [A, n, head, ...]
    columns = {
        "keys": k,
        "betas": torch.log(beta / (2 - beta)).clamp(-saturation, saturation),
        "gates": torch.log((1 + alpha) / (1 - alpha)).clamp(-saturation, saturation),
        "queries": decoder.queries.expand(symbols, -1, -1),
    }
    if layer.v is not None:
        columns["values"] = layer.v[:, head].transpose(1, 2)
    for name, table in columns.items():
        parts[at + name + ".weight"][:, :symbols] = table.flatten(1).T.float()
    parts[at + "start"][:] = layer.state[head].float()
    # `ckda` divides readouts by √K.
    rows = parts[at + "output.weight"].shape[1]
    parts[at + "output.weight"][symbols : symbols + rows] = math.sqrt(K) * torch.eye(rows)


def _write_decoder(model: LanguageModel, decoder: Decoder, symbols: int, readouts: int) -> None:
    """The head, and the MLP that makes products."""
    parts: dict[str, Any] = dict(model.named_parameters())
    first, count, basis = symbols, len(decoder.products), decoder.basis
    if count:
        first, index = symbols + readouts, torch.arange(count)
        for sign, rows in ((1.0, index), (-1.0, count + index)):
            parts["body.blocks.0.mlp.gate.weight"][rows, symbols + decoder.products[:, 0]] = sign
            parts["body.blocks.0.mlp.up.weight"][rows, symbols + decoder.products[:, 1]] = sign
            parts["body.blocks.0.mlp.down.weight"][first : first + basis.shape[1], rows] = basis.T.float()
    size = float(decoder.means.square().sum(1).mean()) or 1.0
    gain = _LEAD / (decoder.margin * size)
    parts["head.weight"][:, first : first + basis.shape[1]] = (2 * gain * decoder.means @ basis).float()
    parts["head.bias"][:] = (-gain * decoder.means.square().sum(1)).float()


def _shake(model: nn.Module, noise: float) -> None:
    """Add noise to every weight; none is drawn for 0."""
    if noise:
        for name, parameter in model.named_parameters():
            columns = 1 if name.endswith("bias") else parameter.shape[1]
            parameter.add_(noise * columns**-0.5 * torch.randn_like(parameter))
