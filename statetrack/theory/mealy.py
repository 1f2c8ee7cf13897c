"""Machines with outputs on edges, and the one way from what a file says to a `Dfa`.

A Mealy machine says something on every edge. The Moore machine of it has the states (q, o): q is where the last
edge led and o is what it said. So after every word its output is the output of the word's last symbol. The start
state has read nothing and says "", the empty string; it keeps its name, and (q, o) is named `q/o`.

Main definitions: `from_mealy`, `Machine`.

Main results: `from_mealy` has exactly the outputs of the Mealy machine, after every word.

References: Mealy, *A method for synthesizing sequential circuits* (1955).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from statetrack.errors import BudgetExceeded, InvalidAutomaton, InvalidFile

from .automata import Dfa, MissingEdge, Output, from_table

Edge = tuple[str, str]  # (state, symbol)


def from_mealy(
    alphabet: Sequence[str],
    states: Sequence[str],
    start: str,
    delta: Mapping[Edge, str],
    said: Mapping[Edge, Output],
    *,
    missing: MissingEdge = "error",
) -> Dfa:
    """The Moore machine of a Mealy machine: after every word the output of its last symbol, "" after the empty word.

    Args:
        alphabet: symbols, whole strings.
        states: all state names.
        start: the start state.
        delta: edges.
        said: what each edge of `delta` says.
        missing: what an absent edge means: "error" refuses, "sink" goes to a state with output False for ever, "stay"
            keeps the state and the last output.

    Raises:
        InvalidAutomaton: what `from_table` refuses.

    >>> gate = from_mealy(["c", "p"], ["s", "t"], "s", {("s", "c"): "t", ("t", "p"): "s"},
    ...                   {("s", "c"): "thanks", ("t", "p"): "open"}, missing="stay")
    >>> gate.run("pccp")
    ('', 'thanks', 'thanks', 'open')
    """
    # The machine without outputs, for its faults: they name the states as the file does.
    from_table(alphabet, states, start, delta, missing=missing)
    names: dict[tuple[str, Output], str] = {(start, ""): start}
    taken = {start}
    edges: dict[Edge, str] = {}
    waiting = [(start, start)]
    for state, name in waiting:
        for symbol in alphabet:
            if (state, symbol) not in delta:
                continue
            pair = delta[state, symbol], said[state, symbol]
            if pair not in names:
                fresh = f"{pair[0]}/{pair[1]}"
                while fresh in taken:
                    fresh += "_"
                taken.add(fresh)
                names[pair] = fresh
                waiting.append((pair[0], fresh))
            edges[name, symbol] = names[pair]
    outputs = {name: output for (_, output), name in names.items()}
    return from_table(alphabet, list(names.values()), start, edges, outputs, missing=missing)


@dataclass(frozen=True)
class Machine:
    """A deterministic automaton as a file says it: `outputs` on states, or `said` on edges (a Mealy machine)."""

    alphabet: Sequence[str]
    states: Sequence[str]
    start: str
    edges: Mapping[Edge, str]
    outputs: Mapping[str, Output]
    said: Mapping[Edge, Output] = field(default_factory=dict[Edge, Output])

    def to_dfa(self, where: str, *, missing: MissingEdge, max_states: int) -> Dfa:
        """The reachable `Dfa`; `where` is the file in messages.

        Raises:
            InvalidFile: outputs on some edges only, or on states too.
            InvalidAutomaton: what `from_table` refuses.
            BudgetExceeded: more than `max_states` states, before or after a Mealy machine became a Moore machine.
        """
        within(len(self.states), max_states, where)
        try:
            if not self.said:
                return from_table(self.alphabet, self.states, self.start, self.edges, self.outputs, missing=missing)
            self._check_mealy(where)
            dfa = from_mealy(self.alphabet, self.states, self.start, self.edges, self.said, missing=missing)
        except InvalidAutomaton as error:
            raise InvalidAutomaton(f"{where}: {error}", state=error.state, symbol=error.symbol) from None
        within(len(dfa.states), max_states, where)
        return dfa

    def _check_mealy(self, where: str) -> None:
        silent = next((edge for edge in self.edges if edge not in self.said), None)
        if silent is not None:
            reason = f"the edge from state {silent[0]!r} on symbol {silent[1]!r} has no output, others have"
            raise InvalidFile(where, reason, "give every edge an output (a Mealy machine) or none")
        spoken = next((state for state, output in self.outputs.items() if output is not False), None)
        if spoken is not None:
            reason = f"a Mealy machine (outputs on edges) in which state {spoken!r} is accepting or has an output"
            raise InvalidFile(where, reason, "keep the outputs on the edges or those on the states")


def within(states: int, max_states: int, where: str) -> None:
    """Refuse (`BudgetExceeded`) a file with more states than the bound."""
    if states > max_states:
        raise BudgetExceeded(f"states in {where}", max_states, "--max-states")
