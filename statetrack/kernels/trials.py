"""Compiled trackers as inputs of a layer kernel: words in tensors of any size, and what must come out of them.

A trial holds words of one tracker, embedded in K channels and V columns at random places, its tables rounded to a
format. Keys are rounded as they come out of the construction, scaled to a largest entry of 1 and not normalised, so
that those of permutations (1, -1, 0, ...) are exact in every format; the kernel normalises them. A trial without a
codebook is one of the two drift tests: reflections alone, from S_0 = I.

Main definitions: `Trial`, `Recipe`, `CASES`, `tracker_trial`, `drift_trial`, `save_trial`, `load_trial`.

References: docs/conform.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.horizons import horizon_of
from statetrack.constructions.weights import FORMATS, Weights, lower, write_whole
from statetrack.errors import InvalidFile, InvalidInput

from .layouts import Call
from .load import Model, model_of, random_tokens
from .reference import walk

if TYPE_CHECKING:
    from jaxtyping import Float, Int

VERSION = "statetrack-trial/1"
# Name, source, target: reflections only, then gates of both signs, then resets.
CASES: Mapping[str, tuple[str, str]] = {
    "parity": ("Z2", "deltanet"),
    "S3": ("S3", "deltaproduct"),
    "S4": ("S4", "deltaproduct"),
    "A5": ("A5", "deltaproduct"),
    "S5": ("S5", "deltaproduct"),
    "Z60": ("Z60", "deltaproduct"),
    "resets": ("[abc]*a", "deltanet"),
    "(ab)*": ("(ab)*", "deltaproduct"),
    "S3, signed gates": ("S3", "ckda"),
    "S4, signed gates": ("S4", "ckda"),
    "A5, signed gates": ("A5", "ckda"),
    "Z60, signed gates": ("Z60", "ckda"),
    "(ab)*, gates 0 and 1": ("(ab)*", "ckda"),
}
DRIFTS = ("6 keys on 2 channels", "S5 swaps")


@dataclass(frozen=True)
class Recipe:
    """What `tracker_trial` or `drift_trial` was asked for, and what was kept of it: the first `tokens` tokens of one
    `word` (batch, head), or of all of them."""

    case: str
    dtype: str
    words: int
    heads: int
    length: int
    key_size: int
    value_size: int
    seed: int
    tokens: int
    word: tuple[int, int] | None = None

    def trial(self) -> Trial:
        """The same trial again."""
        sizes: dict[str, Any] = {"key_size": self.key_size, "value_size": self.value_size, "seed": self.seed}
        sizes |= {"dtype": getattr(torch, self.dtype), "words": self.words, "length": self.length}
        if self.case in DRIFTS:
            whole = drift_trial(self.case, **sizes)
        else:
            whole = tracker_trial(self.case, heads=self.heads, **sizes)
        return (whole if self.word is None else whole.word(*self.word)).part(0, self.tokens)


@dataclass(frozen=True, eq=False)
class Trial:
    """Words for a kernel in our layout, n factors a token, and what decodes them.

    `codebook` [C, W] float64: readouts of the columns `columns` [W], of which `labels` [C] says the state; `truth`
    holds the automaton's state after every token. A drift test has none of the four. `active` [a]: the channels that
    the tracker lives in. `bound`: a length that is proved right for every word, in recurrent order with states stored
    in the trial's format; None if there is no bound. `letters`: the words, as numbers of letters or keys. `recipe`: how
    to make the trial again, if it was made here.
    """

    name: str
    factors: int
    q: Float[Tensor, "batch time head dim"]
    k: Float[Tensor, "batch rows head dim"]
    v: Float[Tensor, "batch rows head width"]
    beta: Float[Tensor, "batch rows head"]
    alpha: Float[Tensor, "batch rows head dim"] | None
    state: Float[Tensor, "batch head dim width"]
    active: Int[Tensor, " channel"]
    columns: Int[Tensor, " column"]
    codebook: Float[Tensor, "code column"] | None = None
    labels: Int[Tensor, " code"] | None = None
    truth: Int[Tensor, "batch time head"] | None = None
    bound: float | None = None
    letters: Int[Tensor, "batch time head"] | None = None
    recipe: Recipe | None = None

    @property
    def length(self) -> int:
        """Tokens a word."""
        return self.q.shape[1]

    def call(self) -> Call:
        """The arguments of one run over all words."""
        return Call(self.q, self.k, self.v, self.beta, self.alpha, self.state, self.factors)

    def part(self, start: int, stop: int) -> Trial:
        """Tokens start..stop-1 of every word; the state before the first token stays."""
        rows = slice(start * self.factors, stop * self.factors)
        cut = {name: x[:, rows] for name in ("k", "v", "beta", "alpha") if (x := getattr(self, name)) is not None}
        cut |= {name: x[:, start:stop] for name in ("q", "truth", "letters") if (x := getattr(self, name)) is not None}
        recipe = None if self.recipe is None or start else replace(self.recipe, tokens=stop)
        return replace(self, recipe=recipe, **cut)

    def word(self, batch: int, head: int) -> Trial:
        """One word, in a batch of one and one head."""
        at = (slice(batch, batch + 1), slice(None), slice(head, head + 1))
        names = ("q", "k", "v", "beta", "alpha", "truth", "letters")
        cut = {n: x[at] for n in names if (x := getattr(self, n)) is not None}
        recipe = None if self.recipe is None else replace(self.recipe, word=(batch, head))
        return replace(self, state=self.state[batch : batch + 1, head : head + 1], recipe=recipe, **cut)

    def to(self, device: str) -> Trial:
        """The same trial on a device, contiguous."""
        return replace(self, **{name: x.to(device).contiguous() for name, x in self.tensors().items()})

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that are present, by field name."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: x for name, x in found.items() if isinstance(x, Tensor)}


def tracker_trial(
    name: str,
    *,
    dtype: torch.dtype,
    words: int = 4,
    heads: int = 2,
    length: int = 512,
    key_size: int = 64,
    value_size: int = 64,
    seed: int = 0,
) -> Trial:
    """Words of one of `CASES`, words·heads in all: the first repeats one letter, the others are uniform.

    Where an automaton has states that no letter leaves, the other words enter one in their last quarter only.

    Raises:
        InvalidInput: an unknown case, or a tracker that does not fit into K and V.
    """
    if name not in CASES:
        raise InvalidInput(f"case {name!r}: know {', '.join(CASES)}")
    _, model = _built(*CASES[name])
    layer = model.layers[0]
    tables, route = layer.tables, layer.route
    ids, _, factors, rows, width = tables.shape
    if rows > key_size or width > value_size:
        raise InvalidInput(f"case {name}: needs K ≥ {rows} and V ≥ {width}, got {key_size} and {value_size}")
    assert model.delta is not None
    tokens = _words(model.delta, model.start, words * heads, length, seed)
    truth = walk(model.delta, tokens, torch.full((words * heads,), model.start, dtype=torch.int32))
    generator = torch.Generator().manual_seed(seed)
    active = torch.randperm(key_size, generator=generator)[:rows]
    columns = torch.randperm(value_size, generator=generator)[:width]
    at = route[tokens.long()].long()  # [words·heads, T]

    def laid(table: Tensor, size: int | None = None, place: Tensor = active, fill: float = 0.0) -> Tensor:
        """A table [ids, factors, ...] as [words, T·factors, heads, ...], its last dimension at `place` of `size`."""
        if size is not None:
            wide = torch.full((*table.shape[:-1], size), fill, dtype=table.dtype)
            wide[..., place] = table
            table = wide
        picked = table[at].flatten(1, 2)
        return picked.unflatten(0, (words, heads)).transpose(1, 2).contiguous()

    keys = tables.keys[:, 0]
    largest = keys.abs().amax(-1, keepdim=True)
    # A key of zero only stands where β = 0; any other does the same there, and has a length to divide by.
    keys = torch.where(largest > 0, keys / largest.clamp_min(1e-300), torch.eye(rows, dtype=keys.dtype)[0])
    gates = tables.gates[:, 0]
    values = torch.zeros(ids, factors, width, dtype=keys.dtype) if tables.values is None else tables.values[:, 0]
    short = torch.float64 if dtype == torch.float64 else torch.float32
    state = torch.zeros(words, heads, key_size, value_size, dtype=short)
    state[:, :, active[:, None], columns] = tables.state[0].to(short)
    return Trial(
        name,
        factors,
        laid(tables.queries[:, :1], key_size).to(dtype),
        laid(keys, key_size).to(dtype),
        laid(values, value_size, columns).to(dtype),
        laid(tables.betas[:, 0]).to(dtype),
        None if bool((gates == 1).all()) else laid(gates, key_size, fill=1.0).to(short),
        state,
        active,
        columns[: layer.codebooks[0].shape[1]],
        layer.codebooks[0].double() / tables.queries[0, 0].norm(),
        layer.labels[0],
        truth.unflatten(0, (words, heads)).transpose(1, 2).contiguous(),
        _bound(*CASES[name], dtype),
        tokens.unflatten(0, (words, heads)).transpose(1, 2).contiguous(),
        Recipe(name, _named(dtype), words, heads, length, key_size, value_size, seed, length),
    )


def drift_trial(
    name: str,
    *,
    dtype: torch.dtype,
    words: int = 4,
    length: int = 4096,
    key_size: int = 64,
    value_size: int = 64,
    seed: int = 7,
) -> Trial:
    """β = 2, no gates, no values, S_0 = I: reflections in six keys of two channels, or swaps of two of five channels.

    Raises:
        InvalidInput: an unknown test, or fewer than 5 channels or columns.
    """
    if name not in DRIFTS or min(key_size, value_size) < 5:
        raise InvalidInput(
            f"drift test {name!r}, K = {key_size}, V = {value_size}: know {', '.join(DRIFTS)}, from 5 on"
        )
    keys = torch.zeros(6, key_size)
    active = torch.arange(2)
    if name == DRIFTS[0]:
        # Of seeds 0 to 199 the one whose unit keys, rounded to bfloat16, are longest: reflections in them grow.
        keys[:, :2] = torch.randn(6, 2, generator=torch.Generator().manual_seed(24))
    else:
        active, pairs = torch.arange(5), torch.combinations(torch.arange(5))
        keys = torch.zeros(10, key_size)
        keys[torch.arange(10), pairs[:, 0]] = 1.0
        keys[torch.arange(10), pairs[:, 1]] = -1.0
    chosen = torch.randint(len(keys), (words, length), generator=torch.Generator().manual_seed(seed))
    k = keys.bfloat16().to(dtype)[chosen][:, :, None]
    q = torch.zeros_like(k)
    q[..., 0] = 1.0
    short = torch.float64 if dtype == torch.float64 else torch.float32
    return Trial(
        name,
        1,
        q,
        k,
        torch.zeros(words, length, 1, value_size, dtype=dtype),
        torch.full((words, length, 1), 2.0, dtype=dtype),
        None,
        torch.eye(key_size, value_size, dtype=short).repeat(words, 1, 1, 1),
        active,
        active,
        letters=chosen[:, :, None],
        recipe=Recipe(name, _named(dtype), words, 1, length, key_size, value_size, seed, length),
    )


def save_trial(trial: Trial, path: Path, facts: Mapping[str, Any], expected: Mapping[str, Tensor]) -> None:
    """Write a trial with what its exact run gives and what is known of it, so that anyone can load and run it."""
    tensors = trial.tensors() | {f"expected.{name}": x for name, x in expected.items()}
    known = {"name": trial.name, "factors": trial.factors, "bound": trial.bound, **facts}
    metadata = {"format": VERSION, "facts": json.dumps(known)}
    write_whole(path, save({name: x.cpu().contiguous().clone() for name, x in tensors.items()}, metadata))


def load_trial(path: Path) -> tuple[Trial, dict[str, Any]]:
    """The trial in a file and what `save_trial` was told of it.

    Raises:
        InvalidFile: no such file, or none that `save_trial` wrote.
    """
    advice = "give a file written by statetrack conform"
    try:
        with safe_open(path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]
            reader: Any = file
            metadata: dict[str, str] = reader.metadata() or {}
            tensors: dict[str, Tensor] = {name: reader.get_tensor(name) for name in reader.keys()}  # noqa: SIM118
        if metadata.get("format") != VERSION:
            raise InvalidFile(str(path), f"is no trial ({VERSION})", advice)
        facts: dict[str, Any] = json.loads(metadata["facts"])
        own = {name: x for name, x in tensors.items() if not name.startswith("expected.")}
        present: dict[str, Any] = {"alpha": None, **own}
        trial = Trial(str(facts["name"]), int(facts["factors"]), bound=facts["bound"], **present)
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise InvalidFile(str(path), f"cannot be read as a trial ({type(error).__name__}: {error})", advice) from error
    return trial, facts


def _words(delta: Tensor, start: int, count: int, length: int, seed: int) -> Tensor:
    """Tokens [count, length]: the last letter over and over, then uniform ones that keep out of sinks for a while."""
    states, symbols = delta.shape
    tokens = random_tokens(symbols, count, 0, length, seed=seed, device="cpu")
    sink = (delta == torch.arange(states)[:, None]).all(1)
    if states > 1 and bool(sink.any()):
        at = torch.full((count,), start)
        for t in range(length * 3 // 4):
            for _ in range(symbols):
                into = sink[delta[at, tokens[:, t].long()].long()] & ~sink[at]
                tokens[:, t] = torch.where(into, (tokens[:, t] + 1) % symbols, tokens[:, t])
            at = delta[at, tokens[:, t].long()].long()
    tokens[0] = symbols - 1
    return tokens


@cache
def _built(source: str, target: str) -> tuple[Compiled, Model]:
    """The compiled tracker and its tables in float64: one layer and one head whose codes are the automaton's states."""
    made = compile_source(source, target)
    model = model_of(_lowered(made, "float64"))
    layer = model.layers[0]
    alone = len(model.layers) == 1 and layer.tables.shape[1] == 1 and model.answer is None and layer.emit is None
    plain = layer.tables.dense is None and layer.tables.bias is None and layer.tables.unit is None
    norms = layer.tables.queries.norm(dim=-1)
    even = bool((norms - norms[0]).abs().max() <= 1e-12 * norms[0])
    if not (alone and plain and even and layer.reads == (0,) and not layer.wires):
        raise InvalidInput(f"{source} on {target}: its program is no single head that a kernel can run alone")
    return made, model


@cache
def _bound(source: str, target: str, dtype: torch.dtype) -> float | None:
    """The a-priori length of `statetrack.constructions.horizons` in this format."""
    name = _named(dtype)
    if name not in FORMATS:
        return None
    made, _ = _built(source, target)
    return horizon_of(_lowered(made, name))


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _lowered(made: Compiled, dtype: str) -> Weights:
    return lower(made.program, made.certificate, made.automaton, dtype)
