"""Renormalising runs: after so many tokens the state is replaced by a fresh one of the automaton's state it stands for.

A linear recurrence cannot correct its own errors: a step that permutes the finitely many exact states is an isometry of
their span (docs/precision.md). The decoder can: it names the automaton's state, and a table holds for each of these the
network's own state after a shortest word that leads there. If such words have at most D letters, a run that is replaced
every n tokens is, between two replacements, a run of a word of at most n + D letters. So it is right for ever if every
word of that length is answered right.

Main definitions: `Restarts`.

Main results: with n + D at most the proved horizon, every word of every length is answered right.

References: docs/precision.md.
"""
# ruff: noqa: F722

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statetrack.theory.automata import shortest_words

if TYPE_CHECKING:
    from jaxtyping import Int


class Restarts:
    """The states [Q, H, K, V] of every layer that stand for the automaton's states, and the replacement by them."""

    def __init__(
        self, delta: Tensor, start: int, states_after: Callable[[Tensor], Sequence[Tensor]], device: torch.device
    ) -> None:
        """`states_after` gives the states of the layers after words [Q, D], in storage and on the device."""
        rows: list[list[int]] = delta.tolist()  # pyright: ignore
        words = shortest_words(rows, start)
        longest = max(1, *map(len, words.values()))
        padded = [[*word, *[-1] * (longest - len(word))] for word in words.values()]
        self._row = torch.full((len(delta),), -1, dtype=torch.int64, device=device)
        self._row[torch.tensor(list(words), device=device)] = torch.arange(len(words), device=device)
        self._states = states_after(torch.tensor(padded, dtype=torch.int32, device=device))

    def __call__(self, states: Sequence[Tensor], answers: Int[Tensor, " batch"]) -> list[Tensor]:
        """The states [B, H, K, V] that stand for the answers; where an answer is -1 the state stays."""
        row = torch.where(answers >= 0, self._row[answers.clamp(min=0).long()], -1)
        picked, known = row.clamp(min=0), (row >= 0)[:, None, None, None]
        return [torch.where(known, kept[picked], old) for kept, old in zip(self._states, states, strict=True)]

    @property
    def numbers(self) -> int:
        """Numbers that the table holds."""
        return sum(state.numel() for state in self._states)
