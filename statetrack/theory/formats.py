"""Automata in files and dictionaries: JSON, automata-lib dictionaries, triples, Graphviz DOT, JFLAP, AT&T text.

Dictionaries have these keys; the second names are automata-lib's and the triple form's:

- `alphabet` | `input_symbols`: symbols, whole strings, never split. Absent: the symbols in order of first use.
- `states`. Absent: the start, the sources and then the targets of the transitions, in order of first use.
- `start` | `initial_state`: one state.
- `accepting` | `final_states` | `accepting_states`: states; needed unless states or edges have an output.
- `delta` | `transitions`: {state: {symbol: state}}, or triples [[from, symbol, to], ...]. In a Mealy machine each
  value is [state, output]; it becomes a Moore machine as `.mealy` says.
- `output`: {state: value}, a Moore machine; true and false stay booleans, numbers become strings.
- `input`: the automaton itself, if there are no transitions beside it. Other keys are not read.

Names are strings; integers become strings. A set (automata-lib) is put in order of first use in the transitions.
What an absent edge means is always the policy `missing`; `allow_partial` does not choose it.

Main definitions: `read_automaton`, `read_weighted`, `write_automaton`, `from_dict`, `to_dict`, `to_automata_lib`; from
`.graph_formats`: `from_dot`, `to_dot`, `from_jff`, `to_jff`.

Main results: reading what was written gives the same automaton, with its names and orders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import TypedDict, cast

from statetrack.errors import InvalidAutomaton, InvalidFile

from .att_format import from_att, symbol_table, weighted_from_att
from .automata import Dfa, MissingEdge, Output
from .graph_formats import from_dot, from_jff, to_dot, to_jff
from .mealy import Machine
from .weighted import Wfa, from_dfa, from_matrices_dict

__all__ = [
    "AutomataLibDfa",
    "from_dict",
    "from_dot",
    "from_jff",
    "read_automaton",
    "read_weighted",
    "to_automata_lib",
    "to_dict",
    "to_dot",
    "to_jff",
    "write_automaton",
]

_KEYS = {
    "alphabet": ("alphabet", "input_symbols"),
    "states": ("states",),
    "start": ("start", "initial_state"),
    "accepting": ("accepting", "final_states", "accepting_states"),
    "delta": ("delta", "transitions"),
    "output": ("output",),
}
_SHAPE = "write delta as {state: {symbol: state}} or as triples [from, symbol, to]"


class AutomataLibDfa(TypedDict):
    """The arguments of the constructor of automata-lib's `DFA`."""

    states: set[str]
    input_symbols: set[str]
    transitions: dict[str, dict[str, str]]
    initial_state: str
    final_states: set[str]
    allow_partial: bool


def read_automaton(
    path: str | Path,
    *,
    missing: MissingEdge = "error",
    token: bool = False,
    max_states: int = 20000,
    semiring: str | None = None,
    symbols: str | Path | None = None,
) -> Dfa:
    """The automaton in a file: .json, .dot, .gv, .jff or .att; for another suffix what the first character says.

    Args:
        path: the file, UTF-8 text.
        missing: what an absent edge means, as in `from_table`.
        token: .jff only: a `read` of several letters is one symbol, not a word.
        max_states: bound on the states, and on those of a subset construction.
        semiring: .att only, and needed there: boolean, real, tropical or log, see `from_att`.
        symbols: .att only: the file of the symbol table; without it the symbols are the columns as written.

    Raises:
        InvalidFile: not readable, not of the format.
        InvalidAutomaton: an unknown state or symbol, an absent edge; the message starts with the file.
        BudgetExceeded: more than `max_states` states or subsets.
    """
    where, text = str(path), _text(path)
    readers: dict[str, Callable[[], Dfa]] = {
        ".json": lambda: from_dict(_json(text, where), missing=missing, max_states=max_states, where=where),
        ".dot": lambda: from_dot(text, missing=missing, max_states=max_states, where=where),
        ".jff": lambda: from_jff(text, missing=missing, token=token, max_states=max_states, where=where),
        ".att": lambda: from_att(
            text, semiring=semiring, symbols=_symbols(symbols), missing=missing, max_states=max_states, where=where
        ),
    }
    suffix = {".gv": ".dot"}.get(Path(path).suffix.lower(), Path(path).suffix.lower())
    if suffix not in readers:
        head = text.lstrip()
        suffix = ".json" if head.startswith("{") else ".jff" if head.startswith("<") else ""
        if head.lower().startswith(("digraph", "strict", "//", "/*", "#")):
            suffix = ".dot"
    if suffix not in readers:
        instead = "name it .json, .dot, .gv, .jff or .att, or convert it"
        raise InvalidFile(where, "neither JSON nor DOT nor JFLAP nor AT&T text", instead)
    return readers[suffix]()


def read_weighted(
    path: str | Path, *, semiring: str | None = None, symbols: str | Path | None = None, max_states: int = 512
) -> Wfa:
    """The weighted automaton over the rationals in a file: .json with `matrices`, or .att.

    Args:
        path: the file, UTF-8 text.
        semiring: "real", or "boolean" for an .att whose weights are all one: then the indicator of its language, 0
            where no path reads a word; needed for .att and for JSON without the key.
        symbols: .att only: the file of the symbol table.
        max_states: bound on the states, since matrices are dense.

    Raises:
        InvalidFile: not readable, not of the format, a semiring that is not named or that no linear network has.
        InvalidAutomaton: entries that are no rational numbers, wrong shapes.
        BudgetExceeded: more than `max_states` states.
    """
    where, text, suffix = str(path), _text(path), Path(path).suffix.lower()
    if suffix == ".json":
        # Decimals stay text, so that they are read exactly.
        obj = _json(text, where, parse_float=str)
        return from_matrices_dict(obj, semiring=semiring, max_states=max_states, where=where)
    if suffix != ".att":
        raise InvalidFile(where, f"no weighted automaton is read from {suffix!r}", "give .json with matrices, or .att")
    table = _symbols(symbols)
    if semiring == "boolean":
        dfa = from_att(text, semiring=semiring, symbols=table, missing="sink", max_states=max_states, where=where)
        return from_dfa(dfa)
    return weighted_from_att(text, semiring=semiring, symbols=table, max_states=max_states, where=where)


def write_automaton(dfa: Dfa, path: str | Path) -> None:
    """Write .json (`to_dict`), .dot or .gv (`to_dot`) or .jff (`to_jff`), by the suffix; others are `InvalidFile`."""
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        text = json.dumps(to_dict(dfa), indent=1) + "\n"
    elif suffix in (".dot", ".gv", ".jff"):
        text = to_jff(dfa) if suffix == ".jff" else to_dot(dfa)
    else:
        raise InvalidFile(str(path), f"no writer for the suffix {suffix!r}", "name it .json, .dot, .gv or .jff")
    try:
        Path(path).write_bytes(text.encode())
    except UnicodeEncodeError:
        raise InvalidFile(str(path), "a name that is not Unicode text", "rename it, or write JSON") from None
    except OSError as error:
        raise InvalidFile(str(path), f"cannot be written ({error.strerror})", "check the path") from None


def to_dict(dfa: Dfa) -> dict[str, object]:
    """The automaton as a JSON-ready dictionary; `accepting` for an acceptor, `output` for a Moore machine.

    >>> to_dict(from_dict({"start": "x", "accepting": ["x"], "delta": {"x": {"a": "x"}}}))
    {'alphabet': ['a'], 'states': ['x'], 'start': 'x', 'accepting': ['x'], 'delta': {'x': {'a': 'x'}}}
    """
    written: dict[str, object] = {
        "alphabet": list(dfa.alphabet),
        "states": list(dfa.states),
        "start": dfa.states[dfa.start],
    }
    if all(isinstance(output, bool) for output in dfa.outputs):
        written["accepting"] = [dfa.states[q] for q in sorted(dfa.accepting)]
    else:
        written["output"] = dict(zip(dfa.states, dfa.outputs, strict=True))
    return {**written, "delta": _transitions(dfa)}


def to_automata_lib(dfa: Dfa) -> AutomataLibDfa:
    """The arguments for automata-lib's `DFA`; orders live on in `transitions`; refuses outputs that are no booleans."""
    if not all(isinstance(output, bool) for output in dfa.outputs):
        raise InvalidAutomaton("automata-lib's DFA has no outputs, this automaton has; write it as our JSON")
    return AutomataLibDfa(
        states=set(dfa.states),
        input_symbols=set(dfa.alphabet),
        transitions=_transitions(dfa),
        initial_state=dfa.states[dfa.start],
        final_states={dfa.states[q] for q in dfa.accepting},
        allow_partial=False,
    )


def from_dict(
    obj: Mapping[str, object], *, missing: MissingEdge = "error", max_states: int = 20000, where: str = "<dictionary>"
) -> Dfa:
    """The automaton of a dictionary with the keys that the module's docstring lists.

    Args:
        obj: the dictionary.
        missing: what an absent edge means, as in `from_table` and `from_mealy`.
        max_states: bound on the states.
        where: what messages call the dictionary.

    Raises:
        InvalidFile: a key that is missing, null or stands under two names, a value of the wrong kind, two edges from
            one state on one symbol, outputs on some edges only or on edges and states.
        InvalidAutomaton: what `from_table` refuses.
        BudgetExceeded: more than `max_states` states.

    >>> from_dict({"start": 0, "accepting": [1], "transitions": [[0, "a", 1], [1, "a", 0]]}).run("aaa")
    (True, False, True)
    """
    reader = _Dictionary(obj, where)
    start, (edges, said) = reader.name(reader.get("start"), "start"), reader.edges()
    sources = [*reader.sources, *(source for source, _ in edges)]
    states = reader.names("states", [start, *sources, *edges.values()])
    alphabet = reader.names("alphabet", [symbol for _, symbol in edges])
    outputs = reader.outputs(states, needed=not said)
    known = set(states)
    for source in reader.sources:
        if source not in known:
            reason = f"{where}: transitions of {source!r}, which is not among the states; add it there"
            raise InvalidAutomaton(reason, state=source)
    return Machine(alphabet, states, start, edges, outputs, said).to_dfa(where, missing=missing, max_states=max_states)


class _Dictionary:
    """Reads the parts of a dictionary, with its name for the messages."""

    def __init__(self, obj: Mapping[str, object], where: str) -> None:
        inner = obj.get("input")
        if isinstance(inner, Mapping) and not any(key in obj for key in _KEYS["delta"]):
            obj = cast(Mapping[str, object], inner)
        self.obj, self.where = obj, where
        self.sources: list[str] = []

    def fault(self, reason: str, instead: str) -> InvalidFile:
        return InvalidFile(self.where, reason, instead)

    def get(self, key: str, *, needed: bool = True) -> object:
        """The value under any of the names of the key; None if absent and not needed."""
        found = [name for name in _KEYS[key] if name in self.obj]
        if len(found) > 1:
            raise self.fault(f"both {found[0]!r} and {found[1]!r} are given", "keep one of them")
        if needed and not found and "matrices" in self.obj:
            raise self.fault("a weighted automaton (matrices), no automaton with states", "use read_weighted")
        if needed and not found:
            raise self.fault(f"key {key!r} is missing", "add it, or its other name " + " or ".join(_KEYS[key][1:]))
        if found and self.obj[found[0]] is None:
            raise self.fault(f"{found[0]} is null", "give it a value, or leave the key out")
        return self.obj[found[0]] if found else None

    def name(self, value: object, what: str) -> str:
        if isinstance(value, str | int) and not isinstance(value, bool):
            return str(value)
        raise self.fault(f"{what}: {value!r} is no name", "names are strings or integers")

    def names(self, key: str, used: Sequence[str] | None) -> list[str]:
        """The names under a key; without the key those used, and a fault if there is no telling which are used."""
        value = self.get(key, needed=used is None)
        used = used or ()
        if value is None:
            return list(dict.fromkeys(used))
        if isinstance(value, Set):
            given = {self.name(entry, key) for entry in cast(Set[object], value)}
            return [*(name for name in dict.fromkeys(used) if name in given), *sorted(given.difference(used))]
        if not isinstance(value, list | tuple):
            raise self.fault(f"{key}: {value!r} is not a list", "write a list of names")
        return [self.name(entry, key) for entry in cast(list[object], value)]

    def edges(self) -> tuple[dict[tuple[str, str], str], dict[tuple[str, str], Output]]:
        """The edges, and what those of a Mealy machine say."""
        value, edges, said = self.get("delta"), dict[tuple[str, str], str](), dict[tuple[str, str], Output]()
        for source, symbol, to in self.triples(value):
            edge = self.name(source, "state"), self.name(symbol, "symbol")
            place = f"state {edge[0]!r} on symbol {edge[1]!r}"
            if edge in edges:
                raise self.fault(f"two edges from {place}", "keep one of them")
            if isinstance(to, Set):
                raise self.fault(f"{place} leads to a set", "make it deterministic")
            if isinstance(to, list | tuple):
                pair = cast(Sequence[object], to)
                if len(pair) != 2:
                    raise self.fault(f"{place} leads to {to!r}", "write a state, or [state, output] (a Mealy machine)")
                to, said[edge] = pair[0], self.output(pair[1], f"{place}: output")
            edges[edge] = self.name(to, "state")
        return edges, said

    def triples(self, value: object) -> Iterable[tuple[object, object, object]]:
        if isinstance(value, Mapping):
            for source, row in cast(Mapping[object, object], value).items():
                if not isinstance(row, Mapping):
                    raise self.fault(f"transitions of state {source!r} are {row!r}", _SHAPE)
                self.sources.append(self.name(source, "state"))
                for symbol, to in cast(Mapping[object, object], row).items():
                    yield source, symbol, to
        elif isinstance(value, list | tuple):
            for triple in cast(list[object], value):
                if not isinstance(triple, list | tuple) or len(cast(list[object], triple)) != 3:
                    raise self.fault(f"transition {triple!r} is no triple", _SHAPE)
                yield cast(tuple[object, object, object], tuple(cast(list[object], triple)))
        else:
            raise self.fault(f"transitions are {value!r}", _SHAPE)

    def outputs(self, states: Sequence[str], *, needed: bool) -> dict[str, Output]:
        value = self.get("output", needed=False)
        if value is None:
            accepting = self.get("accepting", needed=needed)
            return {} if accepting is None else dict.fromkeys(self.names("accepting", None), True)
        if self.get("accepting", needed=False):
            raise self.fault("both 'output' and accepting states are given", "keep one of them")
        if not isinstance(value, Mapping):
            raise self.fault(f"output: {value!r} is not a dictionary", "write {state: value}")
        outputs: dict[str, Output] = {}
        for state, output in cast(Mapping[object, object], value).items():
            outputs[self.name(state, "output")] = self.output(output, f"output of state {state!r}")
        for state in states:
            if state not in outputs:
                raise self.fault(f"state {state!r} has no output", "give every state an output")
        return outputs

    def output(self, value: object, what: str) -> Output:
        if isinstance(value, bool | str | int | float):
            return value if isinstance(value, bool) else str(value)
        raise self.fault(f"{what} is {value!r}", "write a string, a number, true or false")


def _text(path: str | Path) -> str:
    """The text of a file, which is UTF-8 and not empty."""
    where = str(path)
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InvalidFile(where, f"cannot be read ({error.strerror})", "check the path") from None
    except UnicodeDecodeError as error:
        raise InvalidFile(where, f"not UTF-8 text (byte {error.start})", "save it as UTF-8") from None
    if not text.strip():
        raise InvalidFile(where, "it is empty", "check the path, or write it again")
    return text


def _symbols(path: str | Path | None) -> Mapping[str, int] | None:
    return None if path is None else symbol_table(_text(path), where=str(path))


def _json(text: str, where: str, *, parse_float: Callable[[str], object] | None = None) -> dict[str, object]:
    """The object that the text is; no key may stand twice."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for key, value in pairs:
            if key in found:
                raise InvalidFile(where, f"key {key!r} stands twice in one object", "keep one of them")
            found[key] = value
        return found

    try:
        obj: object = json.loads(text, object_pairs_hook=once, parse_float=parse_float)
    except json.JSONDecodeError as error:
        reason = f"not valid JSON at line {error.lineno}, column {error.colno} ({error.msg})"
        raise InvalidFile(where, reason, "is it truncated? write it again") from None
    except (RecursionError, ValueError):
        raise InvalidFile(where, "JSON nested too deep or with a huge number", "an automaton needs neither") from None
    if not isinstance(obj, dict):
        raise InvalidFile(where, "the JSON value is not an object", "write {...} with alphabet, states, start, delta")
    return cast(dict[str, object], obj)


def _transitions(dfa: Dfa) -> dict[str, dict[str, str]]:
    return {
        state: {symbol: dfa.states[int(to)] for symbol, to in zip(dfa.alphabet, row, strict=True)}
        for state, row in zip(dfa.states, dfa.delta, strict=True)
    }
