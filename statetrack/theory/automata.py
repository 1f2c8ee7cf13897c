"""Deterministic finite automata with an output on every state.

A `Dfa` is total and has only reachable states; an acceptor is a `Dfa` whose outputs are booleans. A group's
word problem is a `Dfa` whose states are the group's elements.

Main definitions: `Dfa`, `from_table`, `explored`, `minimise`, `transition_maps`, `to_networkx`.

Main results: `minimise` returns the unique smallest automaton with the same outputs after every word
(Moore's rounds, started from the partition by output; a class that splits passes its number on to its largest
part, so a state is renumbered at most log2 n times and only predecessors of renumbered states are looked at).

References: Moore, *Gedanken-experiments on sequential machines* (1956); Hopcroft, *An n log n algorithm for
minimizing states in a finite automaton* (1971).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from statetrack.display import Drawn
from statetrack.errors import InvalidAutomaton, InvalidWord

Output = bool | str
if TYPE_CHECKING:
    Graph = nx.MultiDiGraph[str]
else:
    Graph = nx.MultiDiGraph
MissingEdge = str  # "error" | "sink" | "stay"
Numbers = NDArray[np.intp]
Letter = TypeVar("Letter")
State = TypeVar("State", bound=Hashable)

# A round over all states in numpy pays from this many renumbered states on, and from this share of all states.
_MANY, _SHARE = 256, 16


def encode(alphabet: tuple[str, ...], word: Iterable[str]) -> tuple[int, ...]:
    """Symbols to their numbers in an alphabet; raises `InvalidWord` with the first that is foreign and its position."""
    index = {symbol: i for i, symbol in enumerate(alphabet)}
    codes: list[int] = []
    for position, symbol in enumerate(word):
        if symbol not in index:
            raise InvalidWord(symbol, position, alphabet)
        codes.append(index[symbol])
    return tuple(codes)


@dataclass(frozen=True, eq=False)
class Dfa(Drawn):
    """A total, reachable deterministic automaton with outputs on states.

    `delta` has shape [states, symbols] and holds state numbers; it is read-only. `outputs[q]` is what the
    automaton says in state q: True/False for an acceptor, a string for a Moore machine or a group element.
    Build one with `from_table`, which validates; the constructor checks shapes and ranges only.
    """

    alphabet: tuple[str, ...]
    states: tuple[str, ...]
    start: int
    delta: NDArray[np.int32]
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        if not self.states:
            raise InvalidAutomaton("an automaton needs at least one state")
        for kind, names in (("state", self.states), ("symbol", self.alphabet)):
            if len(set(names)) != len(names):
                twice = next(name for i, name in enumerate(names) if name in names[:i])
                raise InvalidAutomaton(f"{kind} {twice!r} stands twice; give each {kind} one name")
        given = np.asarray(self.delta)
        if given.size and given.dtype.kind not in "iu":
            raise InvalidAutomaton(f"the transition table holds {given.dtype}, not state numbers")
        delta = given
        if delta.shape != (len(self.states), len(self.alphabet)) or len(self.outputs) != len(self.states):
            raise InvalidAutomaton(
                f"table of shape {delta.shape} and {len(self.outputs)} outputs do not fit "
                f"{len(self.states)} states and {len(self.alphabet)} symbols"
            )
        if not 0 <= self.start < len(self.states) or (
            delta.size and not (0 <= delta.min() <= delta.max() < len(self.states))
        ):
            raise InvalidAutomaton("a transition or the start leads to a state that does not exist")
        delta = np.array(given, dtype=np.int32, order="C")
        delta.setflags(write=False)
        object.__setattr__(self, "delta", delta)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dfa):
            return NotImplemented
        same = (self.alphabet, self.states, self.start, self.outputs) == (
            other.alphabet,
            other.states,
            other.start,
            other.outputs,
        )
        return same and np.array_equal(self.delta, other.delta)

    def __hash__(self) -> int:
        return hash((self.alphabet, self.states, self.start, self.outputs, self.delta.tobytes()))

    @property
    def accepting(self) -> frozenset[int]:
        """States whose output is True; empty for a Moore machine with string outputs."""
        return frozenset(q for q, output in enumerate(self.outputs) if output is True)

    def symbol_index(self) -> Mapping[str, int]:
        """Symbol name -> column of `delta`."""
        return {symbol: i for i, symbol in enumerate(self.alphabet)}

    def encode(self, word: Iterable[str]) -> tuple[int, ...]:
        """Symbols to column numbers; raises `InvalidWord` with the symbol and its position."""
        return encode(self.alphabet, word)

    def trace(self, word: Iterable[str]) -> tuple[int, ...]:
        """The states after each symbol of the word, without the start state."""
        state, states = self.start, list[int]()
        for symbol in self.encode(word):
            state = int(self.delta[state, symbol])
            states.append(state)
        return tuple(states)

    def run(self, word: Iterable[str]) -> tuple[Output, ...]:
        """The outputs after each symbol of the word.

        >>> edges = {("even", "a"): "odd", ("odd", "a"): "even"}
        >>> parity = from_table(["a"], ["even", "odd"], "even", edges, {"odd": True})
        >>> parity.run("aaa")
        (True, False, True)
        """
        return tuple(self.outputs[state] for state in self.trace(word))

    def is_permutation(self) -> bool:
        """True if every letter is a bijection of the states."""
        return all(len(set(self.delta[:, s].tolist())) == len(self.states) for s in range(len(self.alphabet)))


def from_table(
    alphabet: Sequence[str],
    states: Sequence[str],
    start: str,
    delta: Mapping[tuple[str, str], str],
    outputs: Mapping[str, Output] | None = None,
    *,
    missing: MissingEdge = "error",
) -> Dfa:
    """A validated, reachable `Dfa` from named states and edges `(state, symbol) -> state`.

    Args:
        alphabet: symbols, whole strings; may be empty.
        states: all state names; unreachable ones are dropped.
        start: the start state.
        delta: edges.
        outputs: state -> output; a state without an entry gets False (so a plain acceptor lists its accepting states).
        missing: what an absent edge means: "error" refuses, "sink" adds one rejecting state, "stay" keeps the state.

    Raises:
        InvalidAutomaton: unknown start, state or symbol in an edge or output, a name that stands twice, an
            absent edge under "error"; the first few faults of the kind are named.
    """
    outputs = outputs or {}
    if missing not in ("error", "sink", "stay"):
        raise InvalidAutomaton(f"missing-edge policy {missing!r} is not one of error, sink, stay")
    names, symbols = list(states), list(alphabet)
    _check_names(names, set(symbols), start, delta, outputs)
    absent = [(state, symbol) for state in names for symbol in symbols if (state, symbol) not in delta]
    if absent and missing == "error":
        state, symbol = absent[0]
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise InvalidAutomaton(
            f"no transition from state {state!r} on symbol {symbol!r}{more}; "
            "add it, or choose --missing sink or --missing stay",
            state=state,
            symbol=symbol,
        )
    if absent and missing == "sink":
        names.append(next(name for name in ("sink" + "_" * i for i in range(len(names) + 1)) if name not in names))
    index = {state: i for i, state in enumerate(names)}
    table = np.empty((len(names), len(symbols)), dtype=np.int32)
    for i, state in enumerate(names):
        default = i if missing == "stay" else len(names) - 1
        for j, symbol in enumerate(symbols):
            to = delta.get((state, symbol))
            table[i, j] = default if to is None else index[to]
    values = tuple(outputs.get(state, False) for state in names)
    return reachable(Dfa(tuple(symbols), tuple(names), index[start], table, values))


def _check_names(
    names: Sequence[str],
    letters: set[str],
    start: str,
    delta: Mapping[tuple[str, str], str],
    outputs: Mapping[str, Output],
) -> None:
    """Refuse a start, edge or output that names a state or symbol that is not listed."""
    if not names:
        raise InvalidAutomaton("an automaton needs at least one state")
    known, listed = set(names), _some(names)
    if start not in known:
        raise InvalidAutomaton(
            f"start state {start!r} is not among the states {listed}; correct the start", state=start
        )
    for (source, symbol), to in delta.items():
        edge = f"edge {source!r} --{symbol!r}--> {to!r}"
        for state in (source, to):
            if state not in known:
                message = f"{edge}: state {state!r} is not among the states {listed}"
                raise InvalidAutomaton(message, state=state, symbol=symbol)
        if symbol not in letters:
            message = f"{edge}: symbol {symbol!r} is not in the alphabet {_some(sorted(letters))}"
            raise InvalidAutomaton(message, state=source, symbol=symbol)
    for state in outputs:
        if state not in known:
            raise InvalidAutomaton(f"accepting or output state {state!r} is not among the states {listed}", state=state)


def explored(
    letters: Sequence[Letter],
    start: State,
    move: Callable[[Letter, State], State],
    name: Callable[[State], str] | None = None,
) -> Dfa:
    """The automaton of everything that the letters reach from a start, in the order of first meeting.

    Symbols are the letters' numbers; states are named by `name`, else by their numbers, and each says its name.

    >>> explored((2, 3), 1, lambda factor, x: factor * x % 7).delta.tolist()[:2]
    [[1, 2], [3, 4]]
    """
    number, listed, rows = {start: 0}, [start], list[list[int]]()
    for state in listed:
        row: list[int] = []
        for letter in letters:
            image = move(letter, state)
            if image not in number:
                number[image] = len(listed)
                listed.append(image)
            row.append(number[image])
        rows.append(row)
    names = tuple(str(i) if name is None else name(state) for i, state in enumerate(listed))
    delta = np.array(rows, dtype=np.int32).reshape(len(listed), len(letters))
    return Dfa(tuple(str(i) for i in range(len(letters))), names, 0, delta, names)


def reachable(dfa: Dfa) -> Dfa:
    """The same automaton without its unreachable states; the order of the others is kept."""
    marks = bytearray(len(dfa.states))
    marks[dfa.start] = 1
    waiting = [dfa.start]
    while waiting:
        for state in dfa.delta[waiting.pop()].tolist():
            if not marks[state]:
                marks[state] = 1
                waiting.append(state)
    seen = np.frombuffer(marks, dtype=bool)
    if seen.all():
        return dfa
    keep = np.flatnonzero(seen)
    return _restrict(dfa, keep, np.cumsum(seen) - 1)


def minimise(dfa: Dfa) -> Dfa:
    """The smallest automaton with the same output after every word (the empty one included).

    Each class keeps the name of its first state; classes stand in the order of their first states.

    >>> loop = from_table(["a"], ["x", "y"], "x", {("x", "a"): "y", ("y", "a"): "x"}, {"x": True, "y": True})
    >>> minimise(loop).states
    ('x',)
    """
    dfa = reachable(dfa)
    ranks: dict[Output, int] = {}
    classes = np.array([ranks.setdefault(output, len(ranks)) for output in dfa.outputs], dtype=np.intp)
    changed = _renumbered(np.zeros_like(classes), classes)
    while changed.size >= max(_MANY, len(classes) // _SHARE):
        refined = _moore_round(dfa.delta, classes)
        changed = _renumbered(classes, refined)
        classes = refined
    if changed.size:
        classes = _refine_from(dfa.delta, classes, changed)
    _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return _restrict(dfa, first[order], rank[inverse.reshape(-1)])


def shortest_words(delta: Sequence[Sequence[int]], start: int) -> dict[int, tuple[int, ...]]:
    """A shortest word (numbers of symbols) to each state that can be reached from `start`, in order of length."""
    words: dict[int, tuple[int, ...]] = {start: ()}
    queue = [start]
    for state in queue:
        for symbol, after in enumerate(delta[state]):
            if after not in words:
                words[after] = (*words[state], symbol)
                queue.append(after)
    return words


def transition_maps(dfa: Dfa) -> tuple[tuple[int, ...], ...]:
    """For each symbol, the map of states it makes: `maps[symbol][state]`."""
    return tuple(tuple(int(q) for q in dfa.delta[:, s]) for s in range(len(dfa.alphabet)))


def to_networkx(dfa: Dfa) -> Graph:
    """The automaton as a networkx multigraph: nodes carry `output` and `start`, edges carry `symbol`."""
    graph: Graph = nx.MultiDiGraph()
    for q, name in enumerate(dfa.states):
        graph.add_node(name, output=dfa.outputs[q], start=q == dfa.start)
    for q, name in enumerate(dfa.states):
        for s, symbol in enumerate(dfa.alphabet):
            graph.add_edge(name, dfa.states[int(dfa.delta[q, s])], symbol=symbol)
    return graph


def _moore_round(delta: NDArray[np.int32], classes: Numbers) -> Numbers:
    """Number the states by their class and the classes of their successors."""
    refined, count = classes, int(classes.max()) + 1
    for s in range(delta.shape[1]):
        # Both factors are at most the number of states, so the product fits into 64 bits.
        _, refined = np.unique(refined * count + classes[delta[:, s]], return_inverse=True)
    return refined.reshape(-1)


def _renumbered(classes: Numbers, refined: Numbers) -> Numbers:
    """The states outside the largest part of their class in `classes`; `refined` numbers the parts."""
    _, first, sizes = np.unique(refined, return_index=True, return_counts=True)
    parents = classes[first]
    order = np.lexsort((sizes, parents))
    last = np.append(parents[order][1:] != parents[order][:-1], True)
    stays = np.zeros(len(order), dtype=bool)
    stays[order[last]] = True
    return np.flatnonzero(~stays[refined])


def _refine_from(delta: NDArray[np.int32], classes: Numbers, changed: Numbers) -> Numbers:
    """Refine to the end, where classes differ from the round before only by the numbers of `changed` states.

    Before a round, states of one class have successors in one class of the round before. So those without a
    changed successor stay together, and the others part by the numbers of their successors.
    """
    numbers, sources = _integers(classes), _sources(delta)
    rows: list[list[int]] = delta.tolist()
    order, sizes = np.argsort(classes, kind="stable"), np.bincount(classes)
    blocks = np.split(order, np.cumsum(sizes)[:-1])
    # Classes of one state never split and are left out.
    members = {c: set(block.tolist()) for c, block in enumerate(blocks) if len(block) > 1}
    fresh, news = len(sizes), _integers(changed)
    while news:
        touched = {p for q in news for p in sources(q) if numbers[p] in members}
        parts: dict[int, dict[tuple[int, ...], list[int]]] = {}
        for p in touched:
            key = tuple([numbers[q] for q in rows[p]])
            parts.setdefault(numbers[p], {}).setdefault(key, []).append(p)
        news = list[int]()
        for c, found in parts.items():
            for part in _split_off(members, c, list(found.values())):
                for p in part:
                    numbers[p] = fresh
                if len(part) > 1:
                    members[fresh] = set(part)
                news.extend(part)
                fresh += 1
    return np.array(numbers, dtype=np.intp)


def _split_off(members: dict[int, set[int]], c: int, parts: list[list[int]]) -> list[list[int]]:
    """Leave class c its largest part, be it one of `parts` or the rest; returns the others."""
    block = members[c]
    rest = len(block) - sum(map(len, parts))
    largest = max(parts, key=len)
    if rest >= len(largest):
        for part in parts:
            block.difference_update(part)
    else:
        parts = [part for part in parts if part is not largest]
        if rest:
            parts.append(list(block.difference(largest, *parts)))
        # A new set: one that has shrunk is as slow to walk through as it was large.
        members[c] = block = set(largest)
    if len(block) == 1:
        del members[c]
    return parts


def _sources(delta: NDArray[np.int32]) -> Callable[[int], list[int]]:
    """The states with an edge into a state, once for each edge."""
    edges = delta.reshape(-1)
    froms = _integers(np.argsort(edges, kind="stable") // max(1, delta.shape[1]))
    ends = _integers(np.cumsum(np.bincount(edges, minlength=len(delta))))
    return lambda q: froms[ends[q - 1] if q else 0 : ends[q]]


def _integers(array: Numbers) -> list[int]:
    return array.tolist()


def _restrict(dfa: Dfa, keep: Numbers, rank: Numbers) -> Dfa:
    """Keep the states `keep`, renumbered by `rank` (old state -> new state)."""
    kept: list[int] = keep.tolist()
    return Dfa(
        dfa.alphabet,
        tuple(dfa.states[q] for q in kept),
        int(rank[dfa.start]),
        rank[dfa.delta[keep]].astype(np.int32),
        tuple(dfa.outputs[q] for q in kept),
    )


def _some(names: Sequence[str]) -> str:
    return "(" + ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") + ")"
