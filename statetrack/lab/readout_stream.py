"""The residual stream of an exported program: its channels, and the MLPs that look up what readouts and tables mean.

Channels: one a start token, a symbol and a state; three that are the same at every token; the readouts of every layer's
heads, divided by their lengths; and one a value of every register that is written, with one more for tokens that are no
symbols. An embedding is 1/2 in the id's channel and in the constant three, a unit vector; what a block adds has always
the same length, so RMS norms multiply by constants. The constant channels serve as a bias, in three parts so that it is
exact in bfloat16 too.

A table's entry is met if all its conditions are: z = 1 + the sum of 2 (x - 1) over values x that must be 1 and of
2 (cosine - 1) / margin over readouts that must be met, so z = 1 where it is met and z <= -1 elsewhere. Two SwiGLU units
make a step of it, (SiLU(64 z + 16) - SiLU(64 z - 16)) / 32: 1 up to 1e-7 from z = 1/2 on, 0 up to 1e-7 until -1/2. So
errors do not grow from one block to the next. The last MLP writes the state, by one unit SiLU(64 z + 16) / 80 an entry,
so that of two entries the nearer counts more; where every state is one readout, the head compares the rows z instead.

Main definitions: `Stream`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import ml_dtypes
import numpy as np

from statetrack.constructions.weights import Weights
from statetrack.errors import InvalidInput

from .compiled_tables import Floats, LayerTables
from .register_plan import Conditions, Integers, Plan, entries

_STEEP, _HALF, _GAP = 64.0, 16.0, 20.0
_PARTS = 3
# Readouts are rounded in the stream: in bfloat16 such a margin or more is left of them.
_LEAST_BFLOAT16 = 1 / 128
# 1 GiB of float32.
_MOST_NUMBERS = 1 << 28


class Stream:
    """Channels, embeddings, MLPs and head of a plan; `starts` start tokens.

    Ids: start tokens, symbols, then one a state.
    """

    def __init__(self, weights: Weights, plan: Plan, tables: Sequence[LayerTables], starts: int) -> None:
        self.plan, self.tables, self.starts = plan, tables, starts
        self.tokens = starts + len(weights.dfa.alphabet)
        self.states = len(weights.dfa.delta)
        self._start_state = int(weights.dfa.start)
        self._readouts: list[int] = []
        self._registers: dict[int, int] = {}
        place = self.vocabulary + _PARTS
        for layer in tables:
            self._readouts.append(place)
            place += layer.shape[1] * layer.shape[4]
        for lookup in plan.lookups:
            self._registers[lookup.signal] = place
            place += plan.signals[lookup.signal].size + 1
        self.channels = place

    @property
    def vocabulary(self) -> int:
        """How many ids there are."""
        return self.tokens + self.states

    @property
    def margin(self) -> float:
        """The least margin of a head."""
        return min((margin for layer in self.tables for margin in layer.margins), default=2.0)

    def check_format(self, dtype: str) -> None:
        """InvalidInput for bfloat16 where a look-up between layers tells readouts apart that it rounds together."""
        used = {number for lookup in self.plan.lookups for number in lookup.view.signals}
        least = min((self._margin(number) for number in used if self.plan.signals[number].head), default=2.0)
        if dtype == "bfloat16" and least < _LEAST_BFLOAT16:
            raise InvalidInput(
                f"bfloat16 rounds readouts together that a look-up between layers tells apart (cosines differ by "
                f"{least:.2g}, it needs {_LEAST_BFLOAT16:.2g}): give --dtype float32"
            )

    @cached_property
    def named(self) -> Integers:
        """The channels of states, where ids that name one stand too."""
        return np.arange(self.tokens, self.vocabulary)

    def readout(self, layer: int, head: int) -> Integers:
        """The channels of a head's readout."""
        columns = self.tables[layer].shape[4]
        return self._readouts[layer] + head * columns + np.arange(columns)

    def rows(self, layer: int) -> tuple[Integers, Integers]:
        """Channels, and the row of `LayerTables.with_starts` that the layer takes where the channel is 1."""
        view = self.plan.layers[layer][1]
        if not view.signals:
            channels = np.arange(self.starts, self.tokens)
            ids = np.full(len(channels), int(view.table))
        else:
            channels, ids = self._values(view.signals[0]), view.table
        occurs = ids >= 0
        first = np.arange(self.starts)
        return np.concatenate([first, channels[occurs]]), np.concatenate([first, self.starts + ids[occurs]])

    def projection(self, layer: int, rows: Floats, size: int, other: Floats | float) -> Floats:
        """A projection [outputs, size] from rows [row of the layer's tables, ...]; `other` for ids that name states."""
        flat = rows.reshape(len(rows), -1)
        made = np.zeros((flat.shape[1], size))
        channels, places = self.rows(layer)
        made[:, channels] = flat[places].T
        made[:, self.named] = np.broadcast_to(np.reshape(other, (-1, 1)), (flat.shape[1], self.states))
        made[:, : self.vocabulary] *= 2
        return made

    def squares(self, block: int, *, mixed: bool) -> float:
        """The squared length of the stream before a block's mixer, or (mixed) before its MLP."""
        heads = sum(
            layer.shape[1]
            for (at, _), layer in zip(self.plan.layers, self.tables, strict=True)
            if at < block or (mixed and at == block)
        )
        registers = sum(lookup.block < block for lookup in self.plan.lookups)
        return 1 + heads + registers + (0.25 if block == self.plan.blocks and not self._direct else 0.0)

    def embeddings(self, size: int) -> Floats:
        """Unit vectors [vocabulary, size]."""
        made = np.eye(self.vocabulary, size) / 2
        made[:, self.vocabulary : self.vocabulary + _PARTS] = 0.5
        return made

    @cached_property
    def inner(self) -> int:
        """Units of the widest MLP; 0 where none looks anything up."""
        return max(len(units) for units in self._units)

    def mlp(self, block: int, size: int, inner: int) -> dict[str, Floats]:
        """Gate, up [inner, size] and down [size, inner] of the block's MLP."""
        made = {name: np.zeros((inner, size)) for name in ("gate", "up")} | {"down": np.zeros((size, inner))}
        for i, (row, shift, channel, amount) in enumerate(self._units[block]):
            made["gate"][i, : self.channels] = self._in_parts(_STEEP * row + shift * self._bias)
            made["up"][i, : self.channels] = self._bias
            made["down"][channel, i] = amount
        return made

    def head(self, size: int) -> Floats:
        """Logits [vocabulary, size]: 10 or more for the id of the state, -10 or less for others, -20 for other ids."""
        rows = np.zeros((self.vocabulary, size))
        rows[:, : self.channels] = -_GAP * self._bias
        states = rows[self.tokens :, : self.channels]
        if not self._direct:
            states += _GAP / 2 * self._bias
            states[:, self.named] += 2 * _GAP * np.eye(self.states)
            return rows
        # Rows that no readout can outweigh, for start tokens and for ids that name states.
        gains = [2 / self._margin(number) for conditions, _ in self._answers for number, _ in conditions]
        most = _GAP * (4 + 2 * max(len(conditions) for conditions, _ in self._answers) * max(gains))
        for conditions, state in self._answers:
            states[state] = self._in_parts(_GAP / 2 * self._met(conditions))
        states[:, self.named] += 2 * most * np.eye(self.states)
        states[self._start_state, : self.starts] += 2 * most
        return rows

    @cached_property
    def _answers(self) -> list[tuple[Conditions, int]]:
        return entries(self.plan.answer, self.plan.signals)

    @cached_property
    def _direct(self) -> bool:
        """Whether every state is one entry of readouts only, which the head can compare."""
        heads = [self.plan.signals[number].head for conditions, _ in self._answers for number, _ in conditions]
        return bool(heads) and None not in heads and len({state for _, state in self._answers}) == len(self._answers)

    @cached_property
    def _bias(self) -> Floats:
        """A row that is 1 at every token."""
        return np.where(np.arange(self.channels) == self.vocabulary, 2.0, 0.0)

    @cached_property
    def _special(self) -> Floats:
        """A row that is 1 at tokens that are no symbols."""
        at = np.arange(self.channels)
        return np.where((at < self.starts) | ((at >= self.tokens) & (at < self.vocabulary)), 2.0, 0.0)

    def _in_parts(self, row: Floats) -> Floats:
        """The same row with its bias in parts, each the nearest number of bfloat16 to what is left."""
        made, left = row.copy(), row[self.vocabulary]
        for channel in range(self.vocabulary, self.vocabulary + _PARTS):
            made[channel] = float(np.float64(left).astype(ml_dtypes.bfloat16))
            left -= made[channel]
        return made

    def _margin(self, signal: int) -> float:
        layer, head = self.plan.signals[signal].head or (0, 0)
        return self.tables[layer].margins[head]

    @cached_property
    def _units(self) -> list[list[tuple[Floats, float, int, float]]]:
        """For every block the units of its MLP: row z, what is added to 64 z, channel, and how much to it."""
        plan, made = self.plan, list[list[tuple[Floats, float, int, float]]]()
        for block in range(plan.blocks):
            written: list[tuple[Floats, int]] = []
            for lookup in plan.lookups:
                if lookup.block == block:
                    first = self._registers[lookup.signal]
                    found = entries(lookup.view, plan.signals)
                    written += [(self._met(conditions), first + value) for conditions, value in found]
                    none = first + plan.signals[lookup.signal].size
                    written.append((2 * self._special - self._bias, none))
            steps = ((_HALF, 0.5 / _HALF), (-_HALF, -0.5 / _HALF))
            made.append([(row, shift, channel, amount) for row, channel in written for shift, amount in steps])
        if not self._direct:
            answers = [(self._met(conditions), value) for conditions, value in self._answers]
            if self.starts:
                first = np.where(np.arange(self.channels) < self.starts, 2.0, 0.0)
                answers.append((2 * first - self._bias, self._start_state))
            made[-1] += [(row, _HALF, self.tokens + state, 0.5 / (_STEEP + _HALF)) for row, state in answers]
        return made

    def _met(self, conditions: Conditions) -> Floats:
        """The row z of an entry: 1 where it is met, at most -1 elsewhere and at tokens that are no symbols."""
        row = self._bias - 2 * self._special
        for number, values in conditions:
            signal = self.plan.signals[number]
            if signal.head is None:
                row[self._values(number)[list(values)]] += 4 if number == 0 else 2
                row -= 2 * self._bias
            else:
                layer, head = signal.head
                gain = 2 / self._margin(number)
                row[self.readout(layer, head)] += gain * self.tables[layer].points[head][values[0]]
                row -= gain * self._bias
        return row

    def _values(self, signal: int) -> Integers:
        """The channels of the token's symbols or of a register's values."""
        if signal == 0:
            return np.arange(self.starts, self.tokens)
        first = self._registers[signal]
        return first + np.arange(self.plan.signals[signal].size)


def check_size(blocks: int, numbers: int) -> None:
    """InvalidInput for a model of so many blocks and numbers a block if that is more than 2^28 numbers."""
    if blocks * numbers > _MOST_NUMBERS:
        raise InvalidInput(
            f"the program's look-ups take {blocks} blocks of {numbers:,} numbers each, exported are at most "
            f"{_MOST_NUMBERS:,} in all; take fewer letters or a target where the program has fewer layers"
        )
