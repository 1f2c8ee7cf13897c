"""The residual stream of an exported program: its channels, and how readouts become logits of states.

Channels: one a token (its embedding is a unit vector), one for all tokens that name a state (reading one changes
nothing), the heads' readouts divided by their lengths, and, where several readouts mean one state, one a state.
The sum of the token channels is 1, which serves as a bias. The nearest of finitely many points of a sphere is the one
with the largest cosine, so rows of cosines are logits; with several points a state a SwiGLU unit a point looks it up.

Main definitions: `Stream`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .compiled_tables import Floats, TokenTables

# A unit holds 32 where its readout is met and SiLU(-32) = -4e-13 elsewhere; logits of states differ by 20.
_SHARP, _GAP = 32.0, 20.0


@dataclass(frozen=True, eq=False)
class Stream:
    """The channels for `tokens` tokens and `states` states; readouts of heads arrive with length `amplitude`.

    Ids: tokens first, then one a state.
    """

    tables: TokenTables
    tokens: int
    states: int
    amplitude: float

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""
        return self.tokens + self.states

    @property
    def readout(self) -> int:
        """The first channel of the readouts: behind the tokens and the channel of all states' ids."""
        return self.tokens + 1

    @property
    def named(self) -> int:
        """The first channel of the states."""
        return self.readout + self.tables.shape[1] * self.tables.shape[4]

    @property
    def units(self) -> int:
        """Points that are looked up by units of an MLP; 0 if every state has one point, which rows of the head do."""
        return len(self.tables.points) if len(self.tables.points) > self.tables.states else 0

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return self.named + (self.states if self.units else 0)

    def embeddings(self, size: int) -> Floats:
        """Unit vectors [vocabulary, size]."""
        made = np.zeros((self.vocabulary, size))
        made[np.arange(self.vocabulary), np.minimum(np.arange(self.vocabulary), self.tokens)] = 1.0
        return made

    def lookup(self, size: int, inner: int) -> dict[str, Floats]:
        """Gate, up [inner, size] and down [size, inner] of an MLP that adds 1 to the state's channel, if needed."""
        made = {name: np.zeros((inner, size)) for name in ("gate", "up")} | {"down": np.zeros((size, inner))}
        if self.units:
            made["gate"][: self.units] = self._compared(2 * _SHARP / self.tables.margin, size)
            made["up"][: self.units, : self.readout] = 1.0
            made["down"][self.named + self.tables.answers, np.arange(self.units)] = 1 / _SHARP
        return made

    def head(self, size: int) -> Floats:
        """Logits [vocabulary, size]: +10 for the id of the state, -10 or less for other states, -20 for other ids."""
        rows = np.zeros((self.vocabulary, size))
        rows[:, : self.readout] = -_GAP
        states = rows[self.tokens :]
        if self.units:
            states[:, : self.readout] = -_GAP / 2
            states[np.arange(self.states), self.named + np.arange(self.states)] = _GAP
        else:
            states[self.tables.answers] = self._compared(_GAP / self.tables.margin, size)
        return rows

    def _compared(self, gain: float, size: int) -> Floats:
        """Rows gain · (mean cosine of the heads' readouts with a point - 1 + half the margin)."""
        points = self.tables.points.reshape(len(self.tables.points), -1)
        rows = np.zeros((len(points), size))
        rows[:, self.readout : self.named] = points * gain / (self.tables.shape[1] * self.amplitude)
        rows[:, : self.readout] = -gain * (1 - self.tables.margin / 2)
        return rows
