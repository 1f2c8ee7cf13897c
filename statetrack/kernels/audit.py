"""What a trained layer does with its state: gates below 0, β above 1, turning pairs, and which automata it tracks.

An automaton is tracked if the state after a word is a function that the automaton's state can be read from. The
states that a head reaches are gathered into clusters, breadth first with snapping where rows are symbols (the nearest
finite system: each symbol maps clusters to clusters), and the clusters are named by the automaton's states. Then words
that were not seen are run without snapping and decoded by the nearest cluster.

Main definitions: `statistics`, `spectrum`, `tracking`, `HeadFacts`, `Tracking`.

References: CKDA Sec. 3 (spectra); docs/audit.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa

from .checkpoints import Transitions
from .load import random_tokens
from .reference import walk

# An imaginary part below this is rounding; so is a distance to the circle.
_REAL = 1e-6
_NUMBERS = 1 << 25


@dataclass(frozen=True)
class HeadFacts:
    """One head over the tokens that were looked at; fractions in 0..1.

    `negative_gates` counts channels, `beta_above_1` factors, `complex_tokens` tokens whose transition has a pair of
    non-real eigenvalues, `complex_pairs` those of such pairs among all eigenvalues. `circle` is the median
    distance ||λ| - 1| of those pairs, `nearest` the smallest; None without a pair. `gate_mean` is the mean of |α|.
    """

    layer: str
    head: int
    tokens: int
    negative_gates: float
    gate_mean: float
    beta_above_1: float
    beta_mean: float
    complex_tokens: float
    complex_pairs: float
    circle: float | None
    nearest: float | None


@dataclass(frozen=True)
class Tracking:
    """Whether a head's state tells the automaton's state.

    `clusters`: states told apart; `closed`: whether no symbol leads out of them; `defect`: how far a symbol takes a
    cluster's state from a cluster, relative to its size (0 for an exact finite system, the largest seen); `conflicts`:
    clusters that two states of the automaton share; `accuracy`: tokens of unseen words decoded right; `horizon`: tokens
    before the first wrong one, over all of them, of `length`. `tracked`: no conflict and no wrong token.
    """

    layer: str
    head: int
    tracked: bool
    clusters: int
    closed: bool
    defect: float
    conflicts: int
    accuracy: float
    horizon: int
    length: int


def spectrum(layer: Transitions, head: int, samples: int = 256) -> Tensor:
    """Eigenvalues [tokens, K] (complex) of the transitions of evenly spaced tokens."""
    rows = torch.linspace(0, len(layer.k) - 1, min(samples, len(layer.k))).round().long()
    return torch.linalg.eigvals(layer.matrices(head, rows))


def statistics(layer: Transitions, samples: int = 256) -> tuple[HeadFacts, ...]:
    """The facts of every head; eigenvalues of at most `samples` tokens."""
    found: list[HeadFacts] = []
    for head in range(layer.k.shape[1]):
        values = spectrum(layer, head, samples)
        turning = values.imag.abs() > _REAL
        away = (values.abs() - 1).abs()[turning]
        alpha, beta = layer.alpha[:, head], layer.beta[:, head]
        found.append(
            HeadFacts(
                layer.name,
                head,
                len(alpha),
                float((alpha < 0).double().mean()),
                float(alpha.abs().mean()),
                float((beta > 1).double().mean()),
                float(beta.mean()),
                float(turning.any(1).double().mean()),
                float(turning.double().mean()),
                float(away.median()) if len(away) else None,
                float(away.min()) if len(away) else None,
            )
        )
    return tuple(found)


def tracking(
    layer: Transitions,
    dfa: Dfa,
    *,
    tolerance: float = 0.1,
    clusters: int = 20_000,
    words: int = 64,
    length: int = 256,
    seed: int = 0,
) -> tuple[Tracking, ...]:
    """For each head, whether its state tells the state of the automaton; row i of the layer is letter i of `dfa`.

    Args:
        tolerance: two states within this distance, relative to the first state's size, are one cluster.
        clusters: most clusters to gather (fewer where a state is large).
        words, length: unseen uniform words.

    Raises:
        InvalidInput: a layer whose rows are no symbols, or fewer of them than letters.
    """
    letters = len(dfa.alphabet)
    if not layer.symbols or len(layer.k) < letters:
        what = f"{len(layer.k)} rows, {letters} letters" if layer.symbols else f"inputs are {layer.inputs}"
        raise InvalidInput(f"{layer.name}: cannot say what each symbol does ({what}); give arrays, a row a symbol")
    if not 0 < tolerance < 1 or min(clusters, words, length) < 1:
        raise InvalidInput(f"tolerance {tolerance} in (0, 1), clusters, words and length from 1 on")
    delta = torch.tensor(dfa.delta.tolist(), dtype=torch.int32)
    tokens = random_tokens(letters, words, 0, length, seed=seed, device="cpu")
    truth = walk(delta, tokens, torch.full((words,), dfa.start, dtype=torch.int32))
    found: list[Tracking] = []
    for head in range(layer.k.shape[1]):
        system = _System(layer, head, letters, tolerance)
        conflicts = system.gather(delta, dfa.start, clusters)
        decoded = system.decode(tokens)
        right = decoded == truth
        wrong = (~right).any(0).nonzero()
        horizon = int(wrong[0]) if len(wrong) else length
        found.append(
            Tracking(
                layer.name,
                head,
                conflicts == 0 and horizon == length,
                len(system.names),
                system.closed,
                system.defect,
                conflicts,
                float(right.double().mean()),
                horizon,
                length,
            )
        )
    return tuple(found)


class _System:
    """The states a head reaches, as clusters, and what each symbol does."""

    def __init__(self, layer: Transitions, head: int, letters: int, tolerance: float) -> None:
        product, added = layer.maps(head, torch.arange(letters))
        start = torch.eye(product.shape[-1], dtype=product.dtype) if layer.state is None else layer.state[head]
        self._maps, self._added, self._start = product, added, start
        sizes = [float(start.norm())] + ([] if added is None else [float(added.flatten(1).norm(dim=1).max())])
        self._scale = max(*sizes, 1e-12)
        self._radius = tolerance * self._scale
        self._places = start.flatten()[None]
        self.names: list[int] = []
        self.closed, self.defect = True, 0.0

    def gather(self, delta: Tensor, start: int, most: int) -> int:
        """Clusters breadth first, each named by the state of the first word that leads there; counts conflicts."""
        most = max(1, min(most, _NUMBERS // self._start.numel()))
        letters = len(self._maps)
        self.names, shared, frontier = [start], set[int](), [0]
        while frontier:
            after = self._step(self._places[frontier], torch.arange(letters)).flatten(0, 1)
            goals = delta[torch.tensor([self.names[i] for i in frontier]), :letters].flatten().tolist()
            before = len(self.names)
            for at, goal in zip(self._clusters(after, goals, most), goals, strict=True):
                if at is not None and self.names[at] != goal:
                    shared.add(at)
            frontier = list(range(before, len(self.names)))
        return len(shared)

    def decode(self, tokens: Tensor) -> Tensor:
        """The automaton's state [words, time] by the nearest cluster, words run without snapping."""
        names = torch.tensor(self.names, dtype=torch.int32)
        place = self._start.flatten().expand(len(tokens), -1)
        found = torch.empty(tokens.shape, dtype=torch.int32)
        for t in range(tokens.shape[1]):
            place = self._step(place[:, None], tokens[:, t].long())
            found[:, t] = names[self._nearest(place)[1]]
        return found

    def _step(self, places: Tensor, letters: Tensor) -> Tensor:
        """States after a letter: all letters for each of [n, numbers], or one for each of [n, 1, numbers]."""
        one = places.ndim == 3
        X = places.reshape(len(places), 1, *self._start.shape)
        maps = self._maps[letters]
        added = None if self._added is None else self._added[letters]
        if one:
            after = maps @ X[:, 0] if added is None else maps @ X[:, 0] + added
            return after.flatten(1)
        return (maps @ X if added is None else maps @ X + added).flatten(2)

    def _clusters(self, after: Tensor, names: list[int], most: int) -> list[int | None]:
        """The cluster of each state [n, numbers], new ones where none is near; None where there is no room for one."""
        least, at = (torch.cat(x) for x in zip(*map(self._nearest, after.split(4096)), strict=True))
        found: list[int | None] = at.tolist()
        known = len(self.names)
        fresh = self._places[:0]
        for i in (least > self._radius).nonzero()[:, 0].tolist():
            away = (fresh - after[i]).norm(dim=1)
            if len(away) and float(away.min()) <= self._radius:
                least[i], found[i] = away.min(), known + int(away.argmin())
            elif len(self.names) < most:
                least[i], found[i] = 0.0, len(self.names)
                fresh = torch.cat([fresh, after[i : i + 1]])
                self.names.append(names[i])
            else:
                self.closed, least[i], found[i] = False, 0.0, None
        self._places = torch.cat([self._places, fresh])
        self.defect = max(self.defect, float(least.max()) / self._scale)
        return found

    def _nearest(self, places: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cdist(places, self._places, compute_mode="donot_use_mm_for_euclid_dist").min(1)
