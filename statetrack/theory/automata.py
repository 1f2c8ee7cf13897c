"""Deterministic finite automata with an output on every state.

A `Dfa` is total and has only reachable states; an acceptor is a `Dfa` whose outputs are booleans. A group's
word problem is a `Dfa` whose states are the group's elements.

Main definitions: `Dfa`, `from_table`, `minimise`, `transition_maps`, `to_networkx`.

Main results: `minimise` returns the unique smallest automaton with the same outputs after every word
(Moore's partition refinement, started from the partition by output).

References: Moore, *Gedanken-experiments on sequential machines* (1956).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidAutomaton, InvalidWord

Output = bool | str
if TYPE_CHECKING:
    Graph = nx.MultiDiGraph[str]
else:
    Graph = nx.MultiDiGraph
MissingEdge = str  # "error" | "sink" | "stay"


@dataclass(frozen=True, eq=False)
class Dfa:
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
        index = self.symbol_index()
        codes: list[int] = []
        for position, symbol in enumerate(word):
            if symbol not in index:
                raise InvalidWord(symbol, position, self.alphabet)
            codes.append(index[symbol])
        return tuple(codes)

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


def reachable(dfa: Dfa) -> Dfa:
    """The same automaton without its unreachable states; the order of the others is kept."""
    seen = np.zeros(len(dfa.states), dtype=bool)
    seen[dfa.start] = True
    frontier = np.array([dfa.start])
    while frontier.size:
        successors = np.unique(dfa.delta[frontier])
        frontier = successors[~seen[successors]]
        seen[frontier] = True
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
    classes = np.array([ranks.setdefault(output, len(ranks)) for output in dfa.outputs])
    while True:
        signature = np.column_stack([classes, classes[dfa.delta]])
        _, refined = np.unique(signature, axis=0, return_inverse=True)
        refined = refined.reshape(-1)
        if refined.max() == classes.max():
            break
        classes = refined
    _, first, inverse = np.unique(classes, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return _restrict(dfa, first[order], rank[inverse.reshape(-1)])


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


def _restrict(dfa: Dfa, keep: NDArray[np.intp], rank: NDArray[np.intp]) -> Dfa:
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
