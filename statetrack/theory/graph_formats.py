"""Automata as Graphviz DOT (the dialect of automata-learning tools) and as JFLAP's XML.

DOT: a state is a node, named by its ID; an edge label is a symbol, or several with commas between. Accepting states
have shape doublecircle or doubleoctagon, or peripheries=2. The start is where the one edge with an empty label leads
that comes from a node of shape none or point. A Moore machine has node labels `name|output` or `{name|output}`. A
Mealy machine has edge labels `in/out`, split at the first slash; no comma separates in them. A backslash takes the
next character of a label as it is (`\\n`, `\\l`, `\\r` are line breaks); in an ID it does so only before a quote, a
backslash or n. A missing edge follows the policy `missing`.

JFLAP: type `fa`, states named by `name` (or by id), or type `moore` or `mealy` (`transout`). An automaton with one
edge for each symbol read keeps its names, and a missing edge follows the policy `missing`. With an empty `read`, a
`read` of several letters (a word) or two edges on one symbol an `fa` is nondeterministic: what no path reads is
rejected, the states are subsets and named 0, 1, ...

In both the alphabet is in order of first appearance. A Mealy machine becomes a Moore machine as `.mealy` says.

Main definitions: `from_dot`, `to_dot`, `from_jff`, `to_jff`.

References: Ellson et al., *The DOT language* (graphviz.org); Rodger and Finley, *JFLAP* (2006).
"""

from __future__ import annotations

import contextlib
import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pydot

from statetrack.errors import InvalidAutomaton, InvalidFile

from .automata import Dfa, MissingEdge, Output
from .mealy import Machine, within
from .nfa import determinise

_LEAVE = "is it truncated? write it again"
_END = "statetrack_end"


def from_dot(text: str, *, missing: MissingEdge = "error", max_states: int = 20000, where: str = "<DOT text>") -> Dfa:
    """The automaton of one digraph.

    Args:
        text: DOT, in the dialect of this module.
        missing: what an absent edge means, as in `from_table` and `from_mealy`.
        max_states: bound on the states.
        where: what messages call the text.

    Raises:
        InvalidFile: not DOT, not one digraph, no start or several, an edge without a symbol, two edges from one state
            on one symbol, outputs on some edges only or on edges and states.
        InvalidAutomaton: what `from_table` refuses.
        BudgetExceeded: more than `max_states` states.

    >>> from_dot('digraph { i [shape=none]; i -> q; q -> r -> q [label="a, b"]; r [shape=doublecircle] }').run("ab")
    (True, False)
    """
    graph = _Digraph()
    graph.add(_parse_dot(text, where), {}, {})
    arrows = graph.arrows()
    edges: dict[tuple[str, str], str] = {}
    said: dict[tuple[str, str], Output] = {}
    for source, to, attributes in graph.edges:
        if source in arrows:
            continue
        for symbol, output in _symbols(attributes.get("label", ""), f"edge {source!r} -> {to!r}", where):
            if (source, symbol) in edges:
                raise InvalidFile(where, f"two edges from state {source!r} on symbol {symbol!r}", "keep one of them")
            edges[source, symbol] = to
            if output is not None:
                said[source, symbol] = output
    start = _only([to for source, to, _ in graph.edges if source in arrows], where)
    states = {name: attributes for name, attributes in graph.nodes.items() if name not in arrows}
    machine = Machine(_alphabet(edges), list(states), start, edges, _dot_outputs(states, where), said)
    return machine.to_dfa(where, missing=missing, max_states=max_states)


def to_dot(dfa: Dfa) -> str:
    """The automaton as a digraph that `from_dot` reads back with its names and orders.

    Refuses (`InvalidAutomaton`) an empty symbol, and outputs of which only some are booleans.

    >>> dfa = from_dot('digraph { i [shape=none]; i -> q; q -> q [label=a] }')
    >>> from_dot(to_dot(dfa)) == dfa
    True
    """
    moore = _is_moore(dfa)
    lines: list[str] = []
    for name, output in zip(dfa.states, dfa.outputs, strict=True):
        label = f"{_escaped(name)}|{_escaped(str(output))}" if moore else _escaped(name)
        shape = "record" if moore else "doublecircle" if output else "circle"
        lines.append(f'{_quoted(name)} [label="{label}", shape={shape}];')
    for name, row in zip(dfa.states, dfa.delta, strict=True):
        for symbol, to in zip(dfa.alphabet, row, strict=True):
            lines.append(f'{_quoted(name)} -> {_quoted(dfa.states[int(to)])} [label="{_escaped(symbol)}"];')
    arrow = "__start0"
    while arrow in dfa.states:
        arrow += "_"
    lines += [f'{arrow} [label="", shape=none];', f'{arrow} -> {_quoted(dfa.states[dfa.start])} [label=""];']
    return "digraph automaton {\n" + "".join(f"  {line}\n" for line in lines) + "}\n"


def from_jff(
    text: str,
    *,
    missing: MissingEdge = "error",
    token: bool = False,
    max_states: int = 20000,
    where: str = "<JFLAP text>",
) -> Dfa:
    """The automaton of a JFLAP file of type fa, moore or mealy.

    Args:
        text: XML.
        missing: what an absent edge of a deterministic automaton means, as in `from_table`.
        token: a `read` of several letters is one symbol, not a word.
        max_states: bound on the states, and on those of the subset construction.
        where: what messages call the text.

    Raises:
        InvalidFile: not XML, another type, a state's id that stands twice, no start or several, a transition without
            its parts, a Moore or Mealy machine that is not deterministic or lacks an output.
        InvalidAutomaton: a transition from or to no state; what `from_table` refuses.
        BudgetExceeded: more than `max_states` states or subsets.
    """
    kind, body = _jff_body(text, where)
    nodes: dict[str, ET.Element] = {}
    for node in body.findall("state"):
        if nodes.setdefault(node.get("id", ""), node) is not node:
            raise InvalidFile(where, f"state id {node.get('id', '')!r} stands twice", "give each state its own id")
    names = {key: node.get("name") or key for key, node in nodes.items()}
    start = _only([key for key, node in nodes.items() if node.find("initial") is not None], where)
    moves = dict.fromkeys(_moves(body, names, kind, where))
    edges = {(names[source], read): names[to] for source, read, to, _ in moves}
    if len(edges) < len(moves) or not all(read and (token or len(read) == 1) for _, read, _, _ in moves):
        if kind == "fa":
            within(len(nodes), max_states, where)
            return _subsets(nodes, start, [move[:3] for move in moves], token, max_states)
        reason = f"a {kind.capitalize()} machine with an empty read, a word or two edges on one symbol"
        raise InvalidFile(where, reason, "make it deterministic; --token keeps a read of several letters whole")
    said: dict[tuple[str, str], Output] = {}
    if kind == "mealy":
        said = {(names[source], read): output for source, read, _, output in moves}
    outputs = _jff_outputs(nodes, names, kind, where)
    machine = Machine(_alphabet(edges), list(names.values()), names[start], edges, outputs, said)
    return machine.to_dfa(where, missing=missing, max_states=max_states)


def _jff_body(text: str, where: str) -> tuple[str, ET.Element]:
    """The type of a JFLAP file and the element that holds its states."""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        line, column = error.position
        raise InvalidFile(where, f"not valid XML at line {line}, column {column + 1} ({error.msg})", _LEAVE) from None
    kind = (root.findtext("type") or "").strip()
    if root.tag != "structure" or kind not in ("fa", "moore", "mealy"):
        reason = f"<{root.tag}> of type {kind!r} is not read"
        raise InvalidFile(where, reason, "give a JFLAP file of type fa, moore or mealy")
    body = root.find("automaton")
    return kind, root if body is None else body


def _subsets(
    nodes: Mapping[str, ET.Element], start: str, moves: Collection[tuple[str, str, str]], token: bool, max_states: int
) -> Dfa:
    """The subset automaton of a JFLAP automaton with epsilon, words or several edges on one symbol."""
    number = {key: i for i, key in enumerate(nodes)}
    rows: list[list[tuple[frozenset[str], int]]] = [[] for _ in nodes]
    silent: list[list[int]] = [[] for _ in nodes]
    for source, read, to in moves:
        at, symbols = number[source], [read] if token else list(read)
        for symbol in symbols[:-1]:
            rows[at].append((frozenset([symbol]), len(rows)))
            at = len(rows)
            rows.append([])
            silent.append([])
        if read:
            rows[at].append((frozenset([symbols[-1]]), number[to]))
        else:
            silent[at].append(number[to])
    alphabet = list(dict.fromkeys(symbol for _, read, _ in moves for symbol in ([read] if token and read else read)))
    final = {number[key] for key, node in nodes.items() if node.find("final") is not None}
    return determinise(alphabet, rows, silent, number[start], final, max_states=max_states)


def to_jff(dfa: Dfa) -> str:
    """The automaton as JFLAP's XML; symbols of several letters are read back with token=True only.

    Refuses (`InvalidAutomaton`) an empty symbol, a character that XML cannot hold, mixed outputs.

    >>> dfa = from_dot('digraph { i [shape=none]; i -> q; q -> q [label=a] }')
    >>> from_jff(to_jff(dfa)) == dfa
    True
    """
    moore = _is_moore(dfa)
    for text in (*dfa.alphabet, *dfa.states, *(output for output in dfa.outputs if isinstance(output, str))):
        if re.search("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
            raise InvalidAutomaton(f"name {text!r} has a character that XML cannot hold; write JSON, or rename it")
    if "" in dfa.states:
        raise InvalidAutomaton("state '' has no name to write in JFLAP's XML; write JSON, or rename it", state="")
    root = ET.Element("structure")
    ET.SubElement(root, "type").text = "moore" if moore else "fa"
    body = ET.SubElement(root, "automaton")
    for q, name in enumerate(dfa.states):
        node = ET.SubElement(body, "state", id=str(q), name=name)
        ET.SubElement(node, "x").text, ET.SubElement(node, "y").text = f"{60 + 100 * q}.0", "80.0"
        if q == dfa.start:
            ET.SubElement(node, "initial")
        if moore:
            ET.SubElement(node, "output").text = str(dfa.outputs[q])
        elif dfa.outputs[q]:
            ET.SubElement(node, "final")
    for q, row in enumerate(dfa.delta):
        for symbol, to in zip(dfa.alphabet, row, strict=True):
            edge = ET.SubElement(body, "transition")
            for tag, value in (("from", str(q)), ("to", str(int(to))), ("read", symbol)):
                ET.SubElement(edge, tag).text = value
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


@dataclass
class _Digraph:
    """The nodes and edges of a DOT graph in the order of its statements, with default attributes filled in."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list[tuple[str, str, dict[str, str]]])

    def add(self, graph: Mapping[str, object], node: dict[str, str], edge: dict[str, str]) -> list[str]:
        """Take in a graph or subgraph with the defaults of its surroundings; returns its nodes."""
        node, edge, members = dict(node), dict(edge), list[str]()
        for kind, name, entry in _statements(graph):
            attributes = cast(Mapping[str, str], entry["attributes"])
            if kind == "subgraphs":
                members += self.add(entry, node, edge)
            elif kind == "nodes" and name in ("node", "edge", "graph"):
                {"node": node, "edge": edge, "graph": {}}[name].update(attributes)
            elif kind == "nodes":
                members.append(
                    self._declare(name, {**node, **attributes} if _id(name) not in self.nodes else attributes)
                )
            else:
                ends: list[list[str]] = []
                for point in cast(Sequence[str | Mapping[str, object]], entry["points"]):
                    if isinstance(point, str):
                        ends.append([self._declare(point, node if _id(point) not in self.nodes else {})])
                    else:
                        ends.append(self.add(point, node, edge))
                members += ends[0] + ends[1]
                self.edges += [(source, to, {**edge, **attributes}) for source in ends[0] for to in ends[1]]
        return members

    def arrows(self) -> set[str]:
        """Nodes that only point at the start: of shape none or point, not reached, their edges without a label."""
        bare = {name for name, node in self.nodes.items() if node.get("shape", "").strip('"') in ("none", "point")}
        for source, to, attributes in self.edges:
            bare.discard(to)
            if attributes.get("label", "").strip('"'):
                bare.discard(source)
        return bare

    def _declare(self, raw: str, attributes: Mapping[str, str]) -> str:
        self.nodes.setdefault(_id(raw), {}).update(attributes)
        return _id(raw)


def _statements(graph: Mapping[str, object]) -> list[tuple[str, str, Mapping[str, object]]]:
    found: list[tuple[int, str, str, Mapping[str, object]]] = []
    for kind in ("nodes", "edges", "subgraphs"):
        named = cast(Mapping[object, Sequence[Mapping[str, object]]], graph.get(kind, {}))
        for name, entries in named.items():
            found += [(cast(int, entry["sequence"]), kind, str(name), entry) for entry in entries]
    return [(kind, name, entry) for _, kind, name, entry in sorted(found, key=lambda statement: statement[0])]


def _parse_dot(text: str, where: str) -> Mapping[str, object]:
    """The one digraph that pydot finds; an empty graph behind it shows that pydot came to the end of the text."""
    if not text.strip():
        raise InvalidFile(where, "it is empty", "write one digraph")
    graphs, _ = _pydot(f"{text}\ndigraph {_END} {{}}\n")
    if not graphs or graphs[-1].get("name") != _END:
        graphs, said = _pydot(text)
        place = re.search(r"line:(\d+), col:(\d+)", said)
        at = f" at line {place[1]}, column {place[2]}" if place else ""
        reason = "text after the graph's closing brace" if graphs else f"not valid DOT{at}"
        raise InvalidFile(where, reason, "leave one digraph" if graphs else _LEAVE)
    if len(graphs) != 2 or graphs[0].get("type") != "digraph":
        raise InvalidFile(where, f"{len(graphs) - 1} graphs, or one without direction", "give one digraph")
    return graphs[0]


def _pydot(text: str) -> tuple[list[Mapping[str, object]], str]:
    """The graphs that pydot reads, and what it prints when it reads none."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            graphs = pydot.graph_from_dot_data(text) or []
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        return [], str(error)
    return [cast(Mapping[str, object], graph.obj_dict) for graph in graphs], said.getvalue()


def _id(raw: str) -> str:
    """The node's name without quotes and port."""
    quoted = re.match(r'"((?:\\.|[^"\\])*)"', raw, re.DOTALL)
    if quoted:
        return re.sub(r'\\(["\\n])', lambda found: "\n" if found[1] == "n" else found[1], quoted[1])
    return raw if raw.startswith("<") else raw.partition(":")[0]


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _escaped(text: str) -> str:
    """A piece of a label that `_split` gives back as it is."""
    shielded = r'\n|[\\",/|{}<>]|^\s|\s\Z'
    return re.sub(shielded, lambda found: "\\n" if found[0] == "\n" else "\\" + found[0], text)


def _split(raw: str, mark: str) -> list[str]:
    """The pieces of a label between marks that no backslash protects, still escaped."""
    pieces = [""]
    for found in re.finditer(r"\\.|.", raw, re.DOTALL):
        if found[0] == mark:
            pieces.append("")
        else:
            pieces[-1] += found[0]
    return pieces


def _plain(piece: str) -> str:
    """A piece of a label without blanks around it and without escapes."""
    inner = re.fullmatch(r"\s*((?:\\.|[^\\])*?)\s*", piece, re.DOTALL)
    return re.sub(
        r"\\(.)", lambda found: "\n" if found[1] in "nlr" else found[1], inner[1] if inner else piece, flags=re.S
    )


def _symbols(label: str, edge: str, where: str) -> Iterator[tuple[str, str | None]]:
    """The symbols of an edge's label, each with what a Mealy machine says on it."""
    if label.startswith("<"):
        raise InvalidFile(where, f"{edge} has an HTML label", "write the symbol in quotes")
    raw = label[1:-1] if label.startswith('"') else label
    pieces = [raw] if raw.strip() == "," else _split(raw, ",")
    found: list[tuple[str, str | None]] = [(_plain(piece), None) for piece in pieces]
    if any(len(parts) > 1 and _plain(parts[0]) for parts in (_split(piece, "/") for piece in pieces)):
        first, *rest = _split(raw, "/")
        found = [(_plain(first), _plain("/".join(rest)))]
    for symbol, output in found:
        if not symbol:
            raise InvalidFile(where, f"{edge} has no symbol in its label {raw!r}", 'write [label="symbol"]')
        yield symbol, output


def _dot_outputs(states: Mapping[str, Mapping[str, str]], where: str) -> dict[str, Output]:
    outputs: dict[str, Output] = {}
    for name, attributes in states.items():
        raw = attributes.get("label", "").removeprefix('"').removesuffix('"')
        fields = [] if attributes.get("label", "").startswith("<") else _split(raw, "|")
        if len(fields) > 1:
            braced = fields[0].lstrip().startswith("{") and fields[1].rstrip().endswith("}")
            outputs[name] = _plain(fields[1].rstrip()[:-1] if braced else fields[1])
        if len(fields) > 2:
            raise InvalidFile(where, f"state {name!r} has {len(fields)} fields in its label", "write name|output")
    if outputs and len(outputs) < len(states):
        lacking = next(name for name in states if name not in outputs)
        raise InvalidFile(where, f"state {lacking!r} has no output", "write name|output in every state's label")
    if outputs:
        return outputs
    for name, attributes in states.items():
        value = {key: attributes.get(key, "").strip('"') for key in ("shape", "peripheries")}
        outputs[name] = value["shape"] in ("doublecircle", "doubleoctagon") or value["peripheries"] == "2"
    return outputs


def _moves(body: ET.Element, names: Mapping[str, str], kind: str, where: str) -> Iterator[tuple[str, str, str, str]]:
    """From, read, to and (of a Mealy machine) transout of each transition."""
    tags = ("from", "to", "read", "transout") if kind == "mealy" else ("from", "to", "read")
    for place, edge in enumerate(body.findall("transition"), 1):
        found = [edge.findtext(tag) for tag in tags]
        lacking = [tag for tag, value in zip(tags, found, strict=True) if value is None]
        if lacking:
            reason = f"transition {place} lacks {', '.join(lacking)}"
            raise InvalidFile(where, reason, "write all of them; an empty read is <read/>")
        source, to, read, *output = [value or "" for value in found]
        for key in (source.strip(), to.strip()):
            if key not in names:
                raise InvalidAutomaton(
                    f"{where}: transition {place}: no state has the id {key!r}; correct it", state=key
                )
        yield source.strip(), read, to.strip(), "".join(output)


def _jff_outputs(nodes: Mapping[str, ET.Element], names: Mapping[str, str], kind: str, where: str) -> dict[str, Output]:
    outputs: dict[str, Output] = {}
    for key, node in nodes.items():
        output = node.findtext("output")
        if kind == "moore" and output is None:
            raise InvalidFile(where, f"state {names[key]!r} has no output", "give every state an <output>")
        outputs[names[key]] = output if kind == "moore" and output is not None else node.find("final") is not None
    return outputs


def _only(starts: Sequence[str], where: str) -> str:
    if len(starts) != 1:
        what = f"{len(starts)} start states ({', '.join(starts)})" if starts else "no start state"
        raise InvalidFile(where, what, 'mark one: <initial/> in JFLAP, i [shape=none]; i -> q [label=""] in DOT')
    return starts[0]


def _is_moore(dfa: Dfa) -> bool:
    """True if all outputs are strings, False if all are booleans; refuses what DOT and JFLAP cannot say."""
    if "" in dfa.alphabet:
        raise InvalidAutomaton(
            "symbol '' is empty, which DOT and JFLAP do not read; write JSON, or rename it", symbol=""
        )
    kinds = {isinstance(output, str) for output in dfa.outputs}
    if len(kinds) > 1:
        raise InvalidAutomaton("some outputs are strings and some booleans, which DOT and JFLAP cannot say; write JSON")
    return True in kinds


def _alphabet(edges: Mapping[tuple[str, str], str]) -> list[str]:
    return list(dict.fromkeys(symbol for _, symbol in edges))
