"""What a trained layer does with its state: gates below 0, β above 1, turning pairs, and which automata it tracks.

An automaton is tracked if the state after a word is a function that the automaton's state can be read from. The
states that a head reaches are gathered into clusters, breadth first with snapping where rows are symbols (the nearest
finite system: each symbol maps clusters to clusters), and the clusters are named by the automaton's states. Then words
that were not seen are run without snapping and decoded by the nearest cluster.

Main definitions: `statistics`, `spectrum`, `tracking`, `HeadFacts`, `Tracking`, `Formats`.

References: CKDA Sec. 3 (spectra); docs/audit.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa

from .checkpoints import Transitions
from .load import random_tokens
from .reference import ARITHMETIC, arithmetic, recurrent, walk

Progress = Callable[[int], None]

# An imaginary part below this is rounding; so is a distance to the circle.
_REAL = 1e-6
_NUMBERS = 1 << 25
_ROWS = 512


@dataclass(frozen=True)
class HeadFacts:
    """One head over the tokens that were looked at; fractions in 0..1.

    `negative_gates` counts channels, `beta_above_1` factors, `complex_tokens` tokens whose transition has a pair of
    non-real eigenvalues, `complex_pairs` those of such pairs among all eigenvalues. `circle` is the median
    distance ||λ| - 1| of those pairs, `nearest` the smallest; None without a pair. `gate_mean` is the mean of |α|;
    gates and β are None for dense steps.
    """

    layer: str
    head: int
    tokens: int
    negative_gates: float | None
    gate_mean: float | None
    beta_above_1: float | None
    beta_mean: float | None
    complex_tokens: float
    complex_pairs: float
    circle: float | None
    nearest: float | None


@dataclass(frozen=True)
class Formats:
    """What tables and states are rounded to: nothing in float64, else as kernels do, the state after every factor."""

    tables: torch.dtype
    storage: torch.dtype

    @classmethod
    def of(cls, layer: Transitions, dtype: str | None) -> Formats:
        """Both in this format; without one the formats of a weights file, and float64 for all else."""
        names = layer.formats if dtype is None else (dtype, dtype)
        kinds = {str(kind).removeprefix("torch."): kind for kind in ARITHMETIC}
        if not set(names) <= set(kinds):
            raise InvalidInput(f"number format {', '.join(names)}: know {', '.join(kinds)}")
        return cls(kinds[names[0]], kinds[names[1]])

    @property
    def rounds(self) -> bool:
        """Whether a kernel would round on the way."""
        return self.storage != torch.float64 or self.tables != torch.float64

    def __str__(self) -> str:
        if not self.rounds:
            return "float64, products of whole steps"
        tables, storage = (str(kind).removeprefix("torch.") for kind in (self.tables, self.storage))
        computed = str(arithmetic(self.storage)).removeprefix("torch.")
        return f"{tables} tables, {storage} state rounded after every factor, {computed} arithmetic"


@dataclass(frozen=True)
class Tracking:
    """Whether a head's state tells the automaton's state.

    `clusters`: states told apart; `closed`: whether no symbol leads out of them (else gathering ended when there was
    no room for more); `defect`: how far a symbol takes a cluster's state from a cluster, relative to its size (0 for an
    exact finite system, the largest seen); `conflicts`: clusters that two states of the automaton share; `accuracy`:
    tokens of unseen words decoded right; `horizon`: tokens before the first wrong one, over all of them, of `length`.
    `tracked`: no conflict and no wrong token. `evaluated`: the formats that steps were rounded to.
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
    evaluated: str


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
                _mean(alpha < 0),
                _mean(alpha.abs()),
                _mean(beta > 1),
                _mean(beta),
                float(turning.any(1).double().mean()),
                float(turning.double().mean()),
                float(away.median()) if len(away) else None,
                float(away.min()) if len(away) else None,
            )
        )
    return tuple(found)


def _mean(x: Tensor) -> float | None:
    """The mean; None of nothing (dense steps have no gates and no β)."""
    return float(x.double().mean()) if x.numel() else None


def tracking(
    layer: Transitions,
    dfa: Dfa,
    *,
    tolerance: float = 0.1,
    clusters: int = 20_000,
    words: int = 64,
    length: int = 256,
    seed: int = 0,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> tuple[Tracking, ...]:
    """For each head, whether its state tells the state of the automaton; row i of the layer is letter i of `dfa`.

    Args:
        tolerance: two states within this distance, relative to the first state's size, are one cluster.
        clusters: most clusters to gather (fewer where a state is large).
        words, length: unseen uniform words.
        dtype: tables and states are rounded to it, as `run` does; None is a weights file's own format, else float64.
        progress: told the clusters of the present head now and then.

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
    found, form = list[Tracking](), Formats.of(layer, dtype)
    for head in range(layer.k.shape[1]):
        system = _System(layer, head, letters, tolerance, form)
        conflicts = system.gather(delta, dfa.start, clusters, progress)
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
                str(form),
            )
        )
    return tuple(found)


class _System:
    """The states a head reaches, as clusters, and what each symbol does."""

    def __init__(self, layer: Transitions, head: int, letters: int, tolerance: float, form: Formats) -> None:
        self._tables, self._form = layer.tables(head, letters), form
        product, added = layer.maps(head, torch.arange(letters))
        self._maps = None if form.rounds or layer.unit is not None else (product, added)
        start = self._tables.state[0].to(form.storage).double()
        self._shape = start.shape
        sizes = [float(start.norm())] + ([] if added is None else [float(added.flatten(1).norm(dim=1).max())])
        self._scale = max(*sizes, 1e-12)
        self._radius = tolerance * self._scale
        self._letters = letters
        self._places, self._count = start.flatten()[None], 1
        self.names: list[int] = []
        self.closed, self.defect = True, 0.0

    def gather(self, delta: Tensor, start: int, most: int, progress: Progress | None = None) -> int:
        """Clusters breadth first, each named by the state of the first word that leads there; counts conflicts.

        Ends where `most` are found and there is one more.
        """
        most = max(1, min(most, _NUMBERS // self._places.shape[1]))
        self.names, shared, done = [start], set[int](), 0
        letters = torch.arange(self._letters)
        while done < self._count and self.closed:
            some = torch.arange(done, min(done + max(1, _ROWS // self._letters), self._count))
            done += len(some)
            after = self._step(self._places[some.repeat_interleave(len(letters))], letters.repeat(len(some)))
            names = torch.tensor(self.names)[some]
            goals: list[int] = delta[names][:, : self._letters].flatten().tolist()
            for at, goal in zip(self._clusters(after, goals, most), goals, strict=True):
                if at >= 0 and self.names[at] != goal:
                    shared.add(at)
            if progress is not None:
                progress(self._count)
        return len(shared)

    def decode(self, tokens: Tensor) -> Tensor:
        """The automaton's state [words, time] by the nearest cluster, words run without snapping; -1 for no number."""
        names = torch.tensor([*self.names, -1], dtype=torch.int32)
        place = self._places[:1].expand(len(tokens), -1)
        found = torch.empty(tokens.shape, dtype=torch.int32)
        at_once = max(1, 2 * _ROWS // len(tokens))
        for columns in torch.arange(tokens.shape[1]).split(at_once):
            seen: list[Tensor] = []
            for t in columns.tolist():
                place = self._step(place, tokens[:, t].long())
                seen.append(place)
            found[:, columns] = names[self._nearest(torch.cat(seen))[1]].view(len(columns), -1).T
        return found

    def _step(self, places: Tensor, letters: Tensor) -> Tensor:
        """States [n, numbers] after a letter each: by the maps, or by the recurrence with its roundings."""
        X = places.reshape(-1, *self._shape)
        if self._maps is None:
            how = {"storage": self._form.storage, "tables_as": self._form.tables}
            return recurrent(self._tables, letters[:, None], X[:, None], **how)[1].double().flatten(1)
        product, added = self._maps
        after = product[letters] @ X
        return (after if added is None else after + added[letters]).flatten(1)

    def _clusters(self, after: Tensor, names: list[int], most: int) -> list[int]:
        """The cluster of each state [n, numbers], new ones where none is near; -1 where there can be none."""
        least, at = self._nearest(after)
        far = ((least > self._radius) & least.isfinite()).nonzero()[:, 0]
        near = torch.cdist(after[far], after[far]) <= self._radius
        taken, first = torch.zeros(len(far), dtype=torch.bool), self._count
        for i, row in enumerate(far.tolist()):
            if taken[i] or self._count == most:
                continue
            taken |= near[i]
            self._append(after[row], names[row])
        if len(far) and self._count > first:
            later, place = self._nearest(after[far], first)
            least[far], at[far] = later, place
        lost = (least > self._radius) | ~least.isfinite()
        at[lost], least[lost] = -1, 0.0
        self.closed = self.closed and not bool(lost.any())
        self.defect = max(self.defect, float(least.max()) / self._scale)
        return at.tolist()

    def _append(self, place: Tensor, name: int) -> None:
        if self._count == len(self._places):
            self._places = torch.cat([self._places, torch.empty_like(self._places)])
        self._places[self._count] = place
        self.names.append(name)
        self._count += 1

    def _nearest(self, places: Tensor, first: int = 0) -> tuple[Tensor, Tensor]:
        """Distance to the nearest cluster from `first` on, and its number; infinite and -1 for what is no number."""
        known = self._places[first : self._count]
        at = _nearest_rows(places, known, self._radius)
        least = (places - known[at]).norm(dim=1)
        whole = least.isfinite()
        return torch.where(whole, least, torch.inf), torch.where(whole, at + first, -1)


def _nearest_rows(x: Tensor, y: Tensor, radius: float) -> Tensor:
    """The row of y nearest to each row of x, or one that is farther by a small part of the radius only.

    |x - y|² = |x|² - 2 x·y + |y|² as a product of float32 matrices, where its cancellation is far below the radius.
    """
    largest = float(torch.cat([x, y]).norm(dim=1).max())
    if not 8 * torch.finfo(torch.float32).eps * largest**2 < (0.05 * radius) ** 2:
        exactly = "donot_use_mm_for_euclid_dist"
        return torch.cat([torch.cdist(part, y, compute_mode=exactly).argmin(1) for part in x.split(_ROWS)])
    half, columns = y.square().sum(1).float() / 2, y.float().T
    return torch.cat([torch.addmm(half, part, columns, alpha=-1).argmin(1) for part in x.float().split(_ROWS // 4)])
