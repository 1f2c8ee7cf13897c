"""The shortest word on which a weights file fails in its number formats, searched column by column.

Columns of a state do not mix, so the float columns that words of at most t symbols reach are found column by column,
breadth-first: far fewer than the joint states. If every choice of them with the labels of one exact state is decoded to
the right code, every word of at most t symbols is answered right. From the first t where some choice is not, the joint
states of one-layer networks are searched too, but only those whose columns can all still come to a choice that is not,
in the symbols that are left: the first of them that is answered wrong ends a shortest failing word.

What is proved: every word of at most `depth` symbols is answered right, sums over K taken from left to right; up to
`any_order` in every order of these sums. A failing word of `depth` + 1 symbols is a shortest one. Every word that is
found is run literally before it is given out.

`search_column` asks for less: when one column alone is first nearer to another exact column than to its own.

Main definitions: `search_words`, `search_column`, `Searched`.

References: docs/precision.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidInput

from .float_closure import Ideal
from .float_columns import IdealHead, LabelMoves
from .float_network import (
    Fails,
    FloatNetwork,
    Ids,
    RightForEver,
    RightUpTo,
    failing_word,
    look_up,
    shortest_failing_word,
)
from .float_steps import HeadTables, Order
from .row_store import Numbers, RowStore
from .slots import HeadSlots, Slot
from .weights import Weights

Array = NDArray[Any]
Progress = Callable[[int], None]
# The longest word of the beam and its work (distances of readouts and codewords); joint states that are kept whole.
_LONGEST, _WORK, _WHOLE = 400, 1e9, 100_000
_EDGES_AT_ONCE = 1 << 14
_ROUNDING = 2.0**-45


@dataclass(frozen=True)
class Searched:
    """What a search of words found; `depth` and `any_order` count symbols, see the module.

    `fails` is a failing word, verified, and a shortest one if `is_shortest`; `closed` says that the float columns met
    are all there are and all decode, so that `depth` is every length; `columns` and `joint` count float columns and
    joint states looked at.
    """

    depth: int
    any_order: int
    fails: Fails | None
    closed: bool
    columns: int
    joint: int

    @property
    def is_shortest(self) -> bool:
        """Whether the word is proved to be a shortest failing one."""
        return self.fails is not None and len(self.fails.word) == self.depth + 1


def search_words(
    weights: Weights,
    ideal: Ideal,
    *,
    order: Order = "recurrent",
    max_columns: int = 300_000,
    max_joint: int = 1_000_000,
    max_depth: int | None = None,
    progress: Progress | None = None,
) -> Searched:
    """Search all words in order of length for one that is answered wrong.

    Args:
        weights: of the program that `ideal` was made of, in any format and with any start of the same labels.
        order: what `any_order` speaks of: any order of the sums over K; "fused": products fused into sums as well.
        max_columns: budget of float columns, of all columns of all heads together.
        max_joint: budget of joint states for each length.
        max_depth: stop after so many symbols.
        progress: called with the number of float columns found so far.
    """
    search = _Search(weights, ideal, order, max_columns, max_joint, progress)
    found = search.run(max_depth)
    if found.fails is None and not found.closed and search.is_finite:
        found = replace(found, fails=_by_beam(search.network, weights, _LONGEST if max_depth is None else max_depth))
    if found.fails is not None:
        assert len(found.fails.word) > found.depth
        _verify(search.network, found.fails)
    return found


def search_column(
    weights: Weights,
    ideal: Ideal,
    *,
    head: int = 0,
    column: int = 0,
    order: Order = "recurrent",
    max_columns: int = 300_000,
    max_depth: int | None = None,
    progress: Progress | None = None,
) -> Searched:
    """The shortest word after which one float column is no longer nearest to its exact column, of those it can be.

    That is how a tracker fails whose state is this one vector and that reads all its numbers. Here the search is exact:
    what is found is a shortest word, and `fails` gives labels for states. Distances are those of doubles, ties count as
    failures. InvalidInput for networks of several layers; arguments otherwise as in `search_words`.
    """
    network = FloatNetwork(weights)
    if len(network.layers) > 1:
        raise InvalidInput("one column decides a word in a network of one layer; this one has more")
    tables, exact = network.heads[head], ideal.heads[head]
    slot = Slot(tables, exact, LabelMoves(exact), column, order, keep=0)
    nearest, depth, sure, looked = _Nearest(exact, column), 0, 0, 1
    while depth != max_depth and tables.is_finite and slot.grow(max_columns):
        labels, met = slot.columns.labels[looked:], nearest(slot.columns.columns(looked))
        stray = np.flatnonzero(met != labels)
        if stray.size:
            first = int(stray[np.argmax(met[stray] >= 0)])
            ids: list[int] = _input_ids(network).tolist()
            word = tuple(ids.index(number) for number in slot.path(looked + first))
            names = tuple(network.dfa.alphabet[t] for t in word)
            got = int(nearest(_literal(network, tables, column, word)[None])[0])
            assert got == met[first] != labels[first]
            return Searched(depth, sure, Fails(names, got, int(labels[first]), 0), False, len(slot.columns), 0)
        looked, depth = len(slot.columns), depth + 1
        sure = depth if slot.is_sure else sure
        if progress is not None:
            progress(looked)
        if slot.begun == looked:
            return Searched(depth, sure, None, True, looked, 0)
    return Searched(depth, sure, None, False, len(slot.columns), 0)


class _Nearest:
    """The label of the exact column that is nearest to each float column; -1 for ties and what is not finite."""

    def __init__(self, ideal: IdealHead, column: int) -> None:
        self._labels = np.array(sorted({row[column] for row in ideal.labels}))
        size = max(len(ideal.exact[label]) for label in self._labels.tolist())
        self._points = np.array([ideal.exact[label][:size] for label in self._labels.tolist()])
        self._largest = max(1.0, float(np.abs(self._points).max())) ** 2 * size

    def __call__(self, rows: Array) -> Array:
        found = np.full(len(rows), -1, dtype=np.int64)
        for at in range(0, len(rows), _EDGES_AT_ONCE):
            some = rows[at : at + _EDGES_AT_ONCE, : self._points.shape[1]].astype(np.float64)
            good = np.flatnonzero(np.isfinite(some).all(axis=1))
            scores = 2 * some[good] @ self._points.T - (self._points**2).sum(axis=1)
            # Doubles tell distances apart only if they differ by more than their rounding.
            least = scores.max(axis=1) - _ROUNDING * (np.abs(some[good]).max(axis=1, initial=1.0) * self._largest)
            one = (scores >= least[:, None]).sum(axis=1) == 1
            found[at + good] = np.where(one, self._labels[scores.argmax(axis=1)], -1)
        return found


def _literal(network: FloatNetwork, tables: HeadTables, column: int, word: tuple[int, ...]) -> Array:
    """The float column after a word, step by step."""
    ids, row = _input_ids(network), np.ascontiguousarray(tables.state.T[column : column + 1])
    for token in word:
        row, _ = tables.step(ids[[token]], row, column)
    return row[0]


def _by_beam(network: FloatNetwork, weights: Weights, longest: int) -> Fails | None:
    """A failing word found by a beam, and a shorter one by a wider beam; how wide is what the work allows."""
    found: Fails | None = None
    size = len(network.dfa.alphabet) * max(1, sum(head.codebook.size for head in network.heads))
    for _ in range(2):
        width = int(min(4_000, max(20, _WORK / (size * max(1, longest)))))
        better = failing_word(weights, width=width, max_depth=longest)
        if better is None:
            break
        found, longest = better, len(better.word) - 1
    return found


def _verify(network: FloatNetwork, fails: Fails) -> None:
    """The literal run of the word is right until its last symbol and wrong there."""
    dfa, answers = network.dfa, network.run(fails.word)
    state, truth = dfa.start, list[int]()
    for token in dfa.encode(fails.word):
        state = int(dfa.delta[state, token])
        truth.append(state)
    assert answers[:-1] == tuple(truth[:-1])
    assert (answers[-1], truth[-1]) == (fails.got, fails.expected)
    assert answers[-1] != truth[-1]


class _Search:
    """All slots (columns of heads), level by level."""

    def __init__(
        self, weights: Weights, ideal: Ideal, order: Order, columns: int, joint: int, progress: Progress | None
    ) -> None:
        self.weights, self.network, self.dfa = weights, FloatNetwork(weights), weights.dfa
        self.most_columns, self.most_joint, self.progress = columns, joint, progress
        self.joint = 0
        self.is_finite = all(tables.is_finite for tables in self.network.heads)
        pairs = list(zip(self.network.heads, ideal.heads, strict=True)) if self.is_finite else []
        self.heads = [HeadSlots(tables, head, order) for tables, head in pairs]
        self.slots = [slot for head in self.heads for slot in head.slots]
        self.ids = _input_ids(self.network)

    def run(self, most: int | None) -> Searched:
        """Level by level, until a word fails, nothing new is met or a budget ends."""
        found = Searched(0, 0, None, False, 0, 0)
        while self.is_finite and found.depth != most and self._grow():
            for head in self.heads:
                head.look()
            narrow = any(head.fails for head in self.heads)
            growing = any(slot.begun < len(slot.columns) for slot in self.slots)
            if narrow and (len(self.network.layers) > 1 or not growing or not all(s.has_moves for s in self.slots)):
                # Choices of columns say no more, or where they lead was not kept.
                return self._counted(self._jointly(found, most))
            fails, whole = self._words(found.depth + 1) if narrow else (None, True)
            if fails is not None or not whole:
                return self._counted(replace(found, fails=fails))
            depth = found.depth + 1
            sure = found.any_order == found.depth and all(head.is_sure for head in self.heads)
            found = Searched(depth, depth if sure else found.any_order, None, not narrow and not growing, 0, 0)
            if found.closed:
                break
        return self._counted(found)

    def _counted(self, found: Searched) -> Searched:
        return replace(found, columns=sum(len(slot.columns) for slot in self.slots), joint=self.joint)

    def _grow(self) -> bool:
        """One token more for every slot; False if the budget of columns does not allow it."""
        for slot in self.slots:
            others = sum(len(s.columns) for s in self.slots if s is not slot)
            if not slot.grow(self.most_columns - others):
                return False
            if self.progress is not None:
                self.progress(others + len(slot.columns))
        return True

    def _jointly(self, found: Searched, most: int | None) -> Searched:
        """The search of whole joint states, as far as its budget goes."""
        whole = shortest_failing_word(self.weights, max_states=min(self.most_joint, _WHOLE), max_depth=most)
        self.joint += whole.states
        if isinstance(whole, RightForEver):
            return replace(found, closed=True)
        if isinstance(whole, RightUpTo):
            return replace(found, depth=max(found.depth, whole.depth))
        return replace(found, depth=len(whole.word) - 1, fails=whole)

    def _words(self, length: int) -> tuple[Fails | None, bool]:
        """A failing word of this length if there is one; False if the budget did not allow to look at all.

        All shorter words are right, so a joint state that was met earlier need not be followed again.
        """
        for head in self.heads:
            head.measure(length)
        level = np.array([[slot.start for slot in self.slots]], dtype=np.int64)
        truth = np.array([self.dfa.start], dtype=np.int32)
        seen, history = RowStore(len(self.slots), np.uint32), list[tuple[Numbers, Numbers]]()
        seen.add(level.astype(np.uint32), truth)
        for left in range(length - 1, 0, -1):
            parents, tokens, after, truths = self._step(level, truth, left)
            _, fresh = seen.add(after.astype(np.uint32), truths)
            self.joint += len(fresh)
            if len(seen) > self.most_joint:
                return None, False
            level, truth = after[fresh], truths[fresh]
            history.append((parents[fresh], tokens[fresh]))
        parents, tokens, *_ = self._step(level, truth, 0)
        return self._answered(level, truth, parents, tokens, history), True

    def _step(self, level: Numbers, truth: Array, left: int) -> tuple[Numbers, Numbers, Numbers, Array]:
        """The moves of joint states to such as may still fail in `left` symbols: parents, tokens, states, truths."""
        found: list[tuple[Numbers, Numbers, Numbers, Array]] = []
        for token, number in enumerate(self.ids.tolist()):
            after = np.column_stack([s.moved(level[:, i], number) for i, s in enumerate(self.slots)])
            alive, column = np.zeros(len(level), dtype=bool), 0
            for head in self.heads:
                near = [slot.distance[after[:, column + v]] <= left for v, slot in enumerate(head.slots)]
                alive |= np.all(near, axis=0)
                column += len(head.slots)
            kept = np.flatnonzero(alive)
            truths = self.dfa.delta[truth[kept], token].astype(np.int32)
            found.append((kept, np.full(len(kept), token), after[kept], truths))
        parents, tokens, after, truths = (np.concatenate(part) for part in zip(*found, strict=True))
        return parents, tokens, after, truths

    def _answered(
        self, level: Numbers, truth: Array, parents: Numbers, tokens: Numbers, history: list[tuple[Numbers, Numbers]]
    ) -> Fails | None:
        """The first of these last tokens that is answered wrong, with its whole word."""
        for at in range(0, len(parents), _EDGES_AT_ONCE):
            some, last = parents[at : at + _EDGES_AT_ONCE], tokens[at : at + _EDGES_AT_ONCE]
            self.joint += len(some)
            _, answers = self.network.advance(self._rows(level[some]), last.astype(np.int32))
            expected = self.dfa.delta[truth[some], last]
            wrong = np.flatnonzero(answers != expected)
            if wrong.size:
                edge = int(wrong[0])
                word, place = [int(last[edge])], int(some[edge])
                for before, symbols in reversed(history):
                    word.append(int(symbols[place]))
                    place = int(before[place])
                names = tuple(self.dfa.alphabet[t] for t in reversed(word))
                return Fails(names, int(answers[edge]), int(expected[edge]), self.joint)
        return None

    def _rows(self, numbers: Numbers) -> Array:
        """The joint states of the network whose columns have these numbers."""
        columns = [slot.columns.at(numbers[:, i]) for i, slot in enumerate(self.slots)]
        rows, first = list[Array](), 0
        for head in self.heads:
            own = columns[first : first + len(head.slots)]
            rows.append(np.stack(own, axis=2).reshape(len(numbers), -1))
            first += len(head.slots)
        return np.concatenate(rows, axis=1)


def _input_ids(network: FloatNetwork) -> Ids:
    """The input id of each token in the first layer."""
    layer, registers = network.layers[0], [np.arange(len(network.dfa.alphabet), dtype=np.int32)]
    for table, reads in layer.wires:
        registers.append(look_up(table, [registers[i] for i in reads]))
    return look_up(layer.route, [registers[i] for i in layer.reads])
