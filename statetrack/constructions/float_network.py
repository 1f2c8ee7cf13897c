"""A weights file run literally in its number formats, and the search of all words for the shortest that fails.

This is the kernel's network (kernels/README.md) in numpy: registers, tables, steps on bit patterns, nearest codewords;
sums over K are taken from left to right. The search goes breadth-first over all bit patterns of all states together
with the automaton's state, so the first wrong answer stands at the end of a shortest failing word, and a search that
ends proves the weights right for ever in this order.

Main definitions: `FloatNetwork`, `shortest_failing_word`, `failing_word`, `Fails`, `RightUpTo`, `RightForEver`.

References: docs/precision.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidInput
from statetrack.theory.number_formats import NumberFormat, number_format

from .float_steps import HeadTables, head_tables
from .weights import Weights

Array = NDArray[Any]
Ids = NDArray[np.int32]
_EDGES_AT_ONCE = 1 << 14


@dataclass(frozen=True)
class Fails:
    """A word on which the answer is wrong: the network says state `got` (-1: none), the automaton `expected`.

    From `shortest_failing_word` it is a shortest one.

    `states` is the number of joint bit patterns looked at.
    """

    word: tuple[str, ...]
    got: int
    expected: int
    states: int


@dataclass(frozen=True)
class RightUpTo:
    """Every word of at most `depth` letters is answered right; the search stopped there at its budget of `states`."""

    depth: int
    states: int


@dataclass(frozen=True)
class RightForEver:
    """Every word is answered right: the search met all joint bit patterns, `states` of them."""

    states: int


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """A layer of the network: tables of registers, and its heads."""

    wires: tuple[tuple[Ids, tuple[int, ...]], ...]
    route: Ids
    reads: tuple[int, ...]
    heads: tuple[HeadTables, ...]
    emit: Ids | None


class FloatNetwork:
    """A weights file as steps on the bit patterns of its states, which are kept in `storage`."""

    def __init__(self, weights: Weights) -> None:
        self.storage: NumberFormat = number_format(weights.storage)
        tensors, self.dfa = weights.tensors, weights.dfa
        count = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("layers."))
        self.layers = tuple(self._layer(tensors, number) for number in range(count))
        self.answer_wires = _wires(tensors, "answer.")
        self.answer = (tensors["answer"], _reads(tensors, "answer.")) if "answer" in tensors else None
        self.heads = tuple(head for layer in self.layers for head in layer.heads)
        sizes = [head.state.size for head in self.heads]
        self._ends = np.cumsum([0, *sizes])

    @property
    def start(self) -> Array:
        """The joint state before the first token, one row."""
        return np.concatenate([head.state.reshape(-1) for head in self.heads])[None]

    def advance(self, rows: Array, tokens: Ids) -> tuple[Array, Ids]:
        """The joint states after one token each, and the answers (-1: none)."""
        after, answers, _ = self.advance_narrowly(rows, tokens)
        return after, answers

    def advance_narrowly(self, rows: Array, tokens: Ids) -> tuple[Array, Ids, Array]:
        """`advance`, and for each word the least lead of a right codeword over another in any head."""
        registers: list[Ids] = [tokens]
        narrow = np.full(len(rows), np.inf)
        after = np.empty_like(rows)
        number = 0
        for layer in self.layers:
            for table, reads in layer.wires:
                registers.append(look_up(table, [registers[i] for i in reads]))
            ids = look_up(layer.route, [registers[i] for i in layer.reads])
            registers.append(ids)
            codes: list[Ids] = []
            for head in layer.heads:
                where = slice(self._ends[number], self._ends[number + 1])
                state = rows[:, where].reshape(len(rows), *head.state.shape)
                moved, code, lead = _moved(head, np.maximum(ids, 0), state)
                narrow = np.minimum(narrow, lead)
                after[:, where] = np.where((ids >= 0)[:, None], moved.reshape(len(rows), -1), rows[:, where])
                codes.append(np.where(ids >= 0, code, -1).astype(np.int32))
                number += 1
            registers += codes if layer.emit is None else [look_up(layer.emit, codes)]
        for table, reads in self.answer_wires:
            registers.append(look_up(table, [registers[i] for i in reads]))
        if self.answer is None:
            return after, registers[-1], narrow
        table, reads = self.answer
        return after, look_up(table, [registers[i] for i in reads]), narrow

    def run(self, word: Sequence[str]) -> tuple[int, ...]:
        """The answers after each symbol of a word."""
        state, answers = self.start, list[int]()
        for token in self.dfa.encode(word):
            state, answer = self.advance(state, np.array([token], dtype=np.int32))
            answers.append(int(answer[0]))
        return tuple(answers)

    def _layer(self, tensors: Mapping[str, Array], number: int) -> FloatLayer:
        prefix = f"layers.{number}."
        if f"{prefix}codebook.0" not in tensors:
            raise InvalidInput("weights of a weighted automaton have values, not states")
        heads = tensors[prefix + "queries"].shape[1]
        return FloatLayer(
            _wires(tensors, prefix),
            tensors[prefix + "route"],
            _reads(tensors, prefix),
            tuple(head_tables(tensors, number, h, self.storage) for h in range(heads)),
            tensors.get(prefix + "emit"),
        )


def shortest_failing_word(
    weights: Weights, *, max_states: int = 200_000, max_depth: int | None = None
) -> Fails | RightUpTo | RightForEver:
    """Search all words in order of length, over the joint bit patterns of the network and its automaton.

    Stops at the first wrong answer, when nothing new is met, past `max_states` joint states or after `max_depth`
    letters.
    """
    network, dfa = FloatNetwork(weights), weights.dfa
    letters = len(dfa.alphabet)
    level, truth = network.start, np.array([dfa.start], dtype=np.int32)
    seen = {level.tobytes() + truth.tobytes()}
    # For each level the position of a state's parent in the level before, and the letter from there.
    history: list[tuple[list[int], list[int]]] = []
    depth, chunk = 0, max(1, _EDGES_AT_ONCE // max(1, letters))
    while len(level) and letters:
        if depth == max_depth:
            return RightUpTo(depth, len(seen))
        parents, tokens_of, rows, truths = list[int](), list[int](), list[Array](), list[Ids]()
        for at in range(0, len(level), chunk):
            some = level[at : at + chunk]
            tokens = np.tile(np.arange(letters, dtype=np.int32), len(some))
            after, answers = network.advance(np.repeat(some, letters, axis=0), tokens)
            expected = dfa.delta[truth[at : at + chunk]].reshape(-1).astype(np.int32)
            wrong = np.flatnonzero(answers != expected)
            if wrong.size:
                edge = int(wrong[0])
                word = _word(history, at + edge // letters, int(tokens[edge]))
                names = tuple(dfa.alphabet[t] for t in word)
                return Fails(names, int(answers[edge]), int(expected[edge]), len(seen))
            fresh = _fresh(after, expected, seen)
            parents += [at + edge // letters for edge in fresh]
            tokens_of += [edge % letters for edge in fresh]
            rows.append(after[fresh])
            truths.append(expected[fresh])
            if len(seen) > max_states:
                # Words of one letter more were not all looked at.
                return RightUpTo(depth, len(seen))
        depth += 1
        history.append((parents, tokens_of))
        level, truth = np.concatenate(rows), np.concatenate(truths)
    return RightForEver(len(seen))


def failing_word(weights: Weights, *, width: int = 500, max_depth: int = 1000) -> Fails | None:
    """An adversarial word found by keeping, at each length, the `width` words decoded most narrowly; None if none.

    Not a shortest word: `shortest_failing_word` proves that, where it can.
    """
    network, dfa = FloatNetwork(weights), weights.dfa
    letters, looked = len(dfa.alphabet), 0
    level, truth = network.start, np.array([dfa.start], dtype=np.int32)
    history: list[tuple[list[int], list[int]]] = []
    for _ in range(max_depth if letters else 0):
        tokens = np.tile(np.arange(letters, dtype=np.int32), len(level))
        after, answers, narrow = network.advance_narrowly(np.repeat(level, letters, axis=0), tokens)
        expected = dfa.delta[truth].reshape(-1).astype(np.int32)
        looked += len(after)
        wrong = np.flatnonzero(answers != expected)
        if wrong.size:
            edge = int(wrong[0])
            word = _word(history, edge // letters, int(tokens[edge]))
            names = tuple(dfa.alphabet[t] for t in word)
            return Fails(names, int(answers[edge]), int(expected[edge]), looked)
        order = np.argsort(narrow, kind="stable")[: 8 * width]
        kept = order[_fresh(after[order], expected[order], set())][:width]
        history.append(((kept // letters).tolist(), (kept % letters).tolist()))
        level, truth = after[kept], expected[kept]
    return None


def look_up(table: Ids, indices: Sequence[Ids]) -> Ids:
    """The entries of a table, -1 where an index is -1; a table of one entry read at no register is a constant."""
    if not indices:
        return table.reshape(-1)[:1]
    known = np.ones(len(indices[0]), dtype=bool)
    for index in indices:
        known &= index >= 0
    found = table[tuple(np.maximum(index, 0) for index in indices)]
    return np.where(known, found, -1).astype(np.int32)


def _moved(head: HeadTables, ids: Ids, state: Array) -> tuple[Array, Ids, Array]:
    """The states [N, K, V] after a token, the labels of their readouts, and their leads."""
    columns, readouts = list[Array](), list[Array]()
    for v in range(state.shape[2]):
        moved, _ = head.step(ids, state[:, :, v], v)
        columns.append(moved)
        readouts.append((head.readout(ids, moved))[0])
    width = head.codebook.shape[1]
    return np.stack(columns, axis=2), *head.nearest(np.stack(readouts[:width], axis=1))


def _fresh(rows: Array, truth: Ids, seen: set[bytes]) -> list[int]:
    """The positions of joint states that are new; they are put into `seen`."""
    joined = np.column_stack([np.ascontiguousarray(rows).view(np.uint8), truth[:, None].view(np.uint8)])
    buffer, size = joined.tobytes(), joined.shape[1]
    found: list[int] = []
    for i in range(len(rows)):
        key = buffer[i * size : (i + 1) * size]
        if key not in seen:
            seen.add(key)
            found.append(i)
    return found


def _word(history: Sequence[tuple[list[int], list[int]]], position: int, last: int) -> tuple[int, ...]:
    letters = [last]
    for parents, tokens in reversed(history):
        letters.append(tokens[position])
        position = parents[position]
    return tuple(reversed(letters))


def _reads(tensors: Mapping[str, Array], prefix: str) -> tuple[int, ...]:
    return tuple(int(i) for i in tensors[prefix + "reads"])


def _wires(tensors: Mapping[str, Array], prefix: str) -> tuple[tuple[Ids, tuple[int, ...]], ...]:
    found: list[tuple[Ids, tuple[int, ...]]] = []
    while f"{prefix}wires.{len(found)}" in tensors:
        name = f"{prefix}wires.{len(found)}"
        found.append((tensors[name], _reads(tensors, name + ".")))
    return tuple(found)
