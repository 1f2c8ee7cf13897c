"""How long networks stay right in floating point: for every word the tokens before its first wrong answer.

Words come from a family: *random* (uniform), *periodic* (a word repeats a random pattern of one to eight symbols), or
*adversarial* (found by a beam search in the recurrence for readouts turned away from the exact ones). The same seed
gives the same words on every device.

Main definitions: `survival`, `words_of`, `FAMILIES`.

References: docs/precision.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# The parts of a run are shared inside the room.
# pyright: reportPrivateUsage=false
# ruff: noqa: F722

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statetrack.errors import InvalidInput

from .load import Model, random_tokens
from .orders import Recurrence, order_of
from .reference import nearest, recurrent
from .run import TokenSource, _choose, _Network
from .tracker import tracker

if TYPE_CHECKING:
    from jaxtyping import Int

FAMILIES = ("random", "periodic", "adversarial")
_LONGEST_PERIOD = 8
_BEAM, _SEARCHED = 64, 512
# A GPU waits for launches where they are small.
_BUFFER_BYTES = {"cpu": 256 * 2**20, "cuda": 2 * 2**30}
# Columns are whole chunks of the Triton path, as far as they go; a loop over tokens soon looks whether a word is left.
_ROWS, _LOOPED = 64, 512


def survival(
    model: Model,
    tokens: TokenSource,
    *,
    words: int,
    length: int,
    storage: torch.dtype,
    tables_as: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    order: str = "recurrent",
    device: str = "cpu",
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Int[Tensor, " word"]:
    """The number of tokens before the first wrong answer of each word, `length` where there is none.

    Args:
        tokens: the columns start..stop-1 of the words, for every (start, stop) in order.
        storage, tables_as, accumulate: formats of state, tables and sums, see `reference.recurrent`. With
            `accumulate` the recurrent order is a loop over tokens in torch, on CUDA too: the compiled tracker sums in
            the arithmetic type alone.
        order: see `orders.order_of`.
        chunk: columns at a time; None keeps the largest buffer near 256 MiB, 2 GiB on CUDA. A run ends early when no
            word is left.

    Raises:
        InvalidInput: a weighted model, an unknown order, a layer that the order cannot run.
        KernelUnavailable: a kernel that cannot run here.
    """
    if model.delta is None:
        raise InvalidInput("survival: a weighted model has no automaton to be compared with")
    place = torch.device(device)
    executor = "auto" if place.type == "cuda" else "reference"
    kernels = _choose(model, place, executor, storage, tables_as or storage)
    if order != "recurrent" or accumulate is not None:
        kernels = replace(kernels, recurrent=order_of(order, device, accumulate), accumulate=accumulate)
    network = _Network(model, kernels, place)
    delta = model.delta.to(place).contiguous()
    state = torch.full((words,), model.start, dtype=torch.int32, device=place)
    alive = torch.ones(words, dtype=torch.bool, device=place)
    reached = torch.full((words,), length, dtype=torch.int64, device=place)
    step = chunk or _columns(model, words, order, _BUFFER_BYTES[place.type])
    if chunk is None and order == "recurrent" and kernels.recurrent is not tracker:
        step = min(step, _LOOPED)
    for start in range(0, length, step):
        columns = tokens(start, min(start + step, length)).to(place).contiguous()
        truth = kernels.walk(delta, columns, state)
        answers, lost = network.advance(columns)
        wrong = answers != truth if lost is None else (answers != truth) | lost
        fails = alive & wrong.any(1)
        reached = torch.where(fails, start + wrong.int().argmax(1), reached)
        alive, state = alive & ~fails, truth[:, -1].contiguous()
        if progress is not None:
            progress(words * (start + columns.shape[1]))
        if not bool(alive.any()):
            break
    return reached.cpu()


def words_of(
    family: str,
    model: Model,
    *,
    words: int,
    length: int,
    seed: int,
    storage: torch.dtype,
    tables_as: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    device: str = "cpu",
) -> TokenSource:
    """The words of a family as a function of (start, stop).

    Adversarial words are searched in the recurrence in these formats, for a network of one layer that reads the token;
    all others depend on the seed alone.

    Raises:
        InvalidInput: an unknown family, or a network that is not searched.
    """
    if model.delta is None or family not in FAMILIES:
        raise InvalidInput(f"words {family!r} of a model without or with an automaton: know {', '.join(FAMILIES)}")
    symbols = model.delta.shape[1]
    if family == "random":
        return lambda start, stop: random_tokens(symbols, words, start, stop, seed=seed, device=device)
    if family == "periodic":
        patterns = random_tokens(symbols, words, 0, _LONGEST_PERIOD, seed=seed, device=device)
        period = 1 + torch.arange(words, device=device) % _LONGEST_PERIOD

        def repeated(start: int, stop: int) -> Tensor:
            at = torch.arange(start, stop, device=device)[None] % period[:, None]
            return patterns.gather(1, at)

        return repeated
    run = partial(recurrent, storage=storage, tables_as=tables_as, accumulate=accumulate)
    found = _searched(model, words, length, seed, run, model.layers[0].tables.to("cpu", tables_as or storage).state)
    return lambda start, stop: found[:, start:stop]


def _searched(model: Model, words: int, length: int, seed: int, run: Recurrence, start: Tensor) -> Tensor:
    """Words [words, length] that turn the rounded readout away from the exact one: a beam search, random afterwards.

    `run` is the recurrence in the words' formats from `start` [H, K, V]. The part of the error along the exact readout
    does not count: a longer readout of the same direction decodes right. The search ends where a word has failed,
    or after 512 tokens.
    """
    layer = model.layers[0]
    direct = len(model.layers) == 1 and layer.reads == (0,) and not layer.wires and layer.route.ndim == 1
    if not direct or layer.tables.shape[1] != 1 or bool((layer.route < 0).any()):
        raise InvalidInput("adversarial words: only for networks of one layer and head that reads the token")
    exact, symbols = layer.tables.to("cpu", torch.float64), len(layer.route)
    found = random_tokens(symbols, words, 0, length, seed=seed, device="cpu")
    near, far, path = start[None], exact.state[None], torch.empty(1, 0, dtype=torch.int32)
    codebook, labels = layer.codebooks[0].double(), layer.labels[0]
    generator = torch.Generator().manual_seed(seed)
    for _ in range(min(length, _SEARCHED)):
        route = layer.route.repeat(len(near))[:, None]
        read, near = run(layer.tables, route, near.repeat_interleave(symbols, 0))
        true, far = recurrent(exact, route, far.repeat_interleave(symbols, 0), storage=torch.float64)
        path = torch.cat(
            [path.repeat_interleave(symbols, 0), torch.arange(symbols).repeat(len(path))[:, None].int()], 1
        )
        read, true = (x[:, 0, 0, : codebook.shape[1]].double() for x in (read, true))
        length_of = true.norm(dim=1, keepdim=True).clamp_min(1e-300)
        away = read - true
        away = (away - (away * true).sum(1, keepdim=True) * true / length_of**2).norm(dim=1)
        best = _beam(away.nan_to_num(torch.inf), near, max(words, _BEAM), generator)
        near, far, path = near[best], far[best], path[best]
        decoded, right = (nearest(x[best], codebook).long() for x in (read, true))
        # No codeword is near a readout that is no number.
        fails = (decoded < 0) | (labels[decoded] != labels[right])
        if bool(fails.any()):
            # Words that have failed come first.
            path = path[(~fails).int().argsort(stable=True)]
            break
    kept = path[: len(found)]
    found[: len(kept), : kept.shape[1]] = kept
    return found


def _beam(away: Tensor, near: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Which words go on: those farthest away, each rounded state once, and for a third of the places any others."""
    order = away.argsort(descending=True, stable=True)
    _, state = torch.unique(near[order].double().flatten(1), dim=0, return_inverse=True)
    place = torch.arange(len(order))
    first = torch.full((int(state.max()) + 1,), len(order)).scatter_reduce(0, state, place, "amin")
    distinct = order[first.sort().values]
    best, rest = distinct[: size - size // 3], distinct[size - size // 3 :]
    return torch.cat([best, rest[torch.randperm(len(rest), generator=generator)[: size // 3]]])


def _columns(model: Model, words: int, order: str, most: int) -> int:
    """Columns that keep the largest buffer of a layer near `most` bytes."""
    widest = 1
    for layer in model.layers:
        _, heads, factors, rows, columns = layer.tables.shape
        row = {"recurrent": columns + 12, "scan": 3 * (rows + columns) ** 2}.get(
            order, 12 * factors * (rows + columns + 32)
        )
        widest = max(widest, 8 * heads * row)
    return max(_ROWS, most // (words * widest) // _ROWS * _ROWS)
