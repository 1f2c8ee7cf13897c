"""Automata as AT&T FSM text with a symbol table, the form that OpenFst and pynini print.

A line is an edge `from to symbol [weight]` or a final state `state [weight]`, columns apart by tabs or blanks; the
first line's state is the start; states are integers; a missing weight is the semiring's one. Only acceptors are read:
print with `fstprint --acceptor`. A symbol table has lines `symbol integer`; the symbol numbered 0 is epsilon, the
others are the alphabet in the order of their numbers. Without a table the symbols are the columns as written, in order
of first appearance, and none is epsilon.

The text does not say its semiring, so it is an argument and never guessed: `boolean` or `real` (weights add and
multiply; one is 1), `tropical` (minimum and sum; one is 0), `log` (-log of sums of exp; one is 0).

Main definitions: `from_att`, `weighted_from_att`, `symbol_table`.

Main results: `from_att` reads a language where all weights are one, in any semiring in which that is what the text
means: over `real` and `log` several paths of one word add up, so there it wants a deterministic automaton.

References: Mohri, Pereira and Riley, *AT&T FSM library* (1997); Allauzen et al., *OpenFst* (2007).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from flint import fmpq, fmpq_mat

from statetrack.errors import InvalidFile, InvalidInput

from .automata import Dfa, MissingEdge
from .mealy import Machine, within
from .nfa import determinise
from .weighted import Wfa, exact, linear_semiring, named_semiring

_COLUMNS = "an edge is `from to symbol [weight]`, a final state `state [weight]`; print with fstprint --acceptor"
_EPSILONS = ("<eps>", "<epsilon>")


@dataclass(frozen=True)
class _Arc:
    line: int
    source: int
    to: int
    # None is epsilon.
    symbol: str | None
    weight: Fraction


@dataclass(frozen=True)
class _Text:
    """The lines of a file: states in order of appearance (0 is the start), edges, and weights of final states."""

    states: tuple[str, ...]
    alphabet: tuple[str, ...]
    arcs: tuple[_Arc, ...]
    # State -> (line, weight).
    finals: Mapping[int, tuple[int, Fraction]]


def symbol_table(text: str, *, where: str = "<symbol table>") -> Mapping[str, int]:
    """Symbol -> number, from lines `symbol number`.

    Raises:
        InvalidFile: no line, a line of another form, a symbol or a number that stands twice; all such lines.

    >>> dict(symbol_table("<eps> 0\\na 1"))
    {'<eps>': 0, 'a': 1}
    """
    table: dict[str, int] = {}
    numbers = set[int]()
    faults: list[tuple[int, str]] = []
    for line, columns in _lines(text):
        if len(columns) != 2 or not _is_count(columns[1]):
            faults.append((line, f"{' '.join(columns)!r} is no symbol and number"))
        elif columns[0] in table or int(columns[1]) in numbers:
            faults.append((line, f"symbol {columns[0]!r} or number {columns[1]} stands twice"))
        else:
            table[columns[0]] = int(columns[1])
            numbers.add(int(columns[1]))
    if not table and not faults:
        faults.append((1, "no symbol"))
    _refuse(faults, where, "write lines `symbol number`, each symbol and number once, 0 for epsilon")
    return table


def from_att(
    text: str,
    *,
    semiring: str | None,
    symbols: Mapping[str, int] | None = None,
    missing: MissingEdge = "error",
    max_states: int = 20000,
    where: str = "<AT&T text>",
) -> Dfa:
    """The acceptor of a text whose weights are all one.

    Args:
        text: AT&T FSM text.
        semiring: what the weights mean; None is refused.
        symbols: the symbol table.
        missing: what an absent edge of a deterministic automaton means, as in `from_table`. With epsilon or two edges
            from one state on one symbol, what no path reads is rejected, and states are subsets named 0, 1, ...
        max_states: bound on the states, and on those of the subset construction.
        where: what messages call the text.

    Raises:
        InvalidFile: a line of another form, a symbol that is not in the table, a weight that is not one, a semiring
            that is not named, several paths over `real` or `log`.
        InvalidAutomaton: what `from_table` refuses.
        BudgetExceeded: more than `max_states` states.

    >>> from_att("0 1 a\\n1 0 a\\n1", semiring="boolean").run("aaa")
    (True, False, True)
    """
    semiring = named_semiring(semiring, where)
    parsed = _parse(text, semiring, symbols, max_states, where)
    one = _one(semiring)
    marks = [(arc.line, arc.weight) for arc in parsed.arcs] + list(parsed.finals.values())
    line, weight = min((mark for mark in marks if mark[1] != one), default=(0, one))
    if weight != one:
        _refuse_weight(line, weight, semiring, where)
    moves = [(arc.source, arc.symbol, arc.to) for arc in parsed.arcs]
    if semiring in ("boolean", "tropical"):
        # An edge that stands twice is one path for them.
        moves = list(dict.fromkeys(moves))
    names = parsed.states
    edges = {(names[source], symbol): names[to] for source, symbol, to in moves if symbol is not None}
    if len(edges) == len(moves):
        accepting = {names[q]: True for q in parsed.finals}
        machine = Machine(parsed.alphabet, names, names[0], edges, accepting)
        return machine.to_dfa(where, missing=missing, max_states=max_states)
    if semiring in ("real", "log"):
        reason = f"epsilon or two edges on one symbol: over the {semiring} semiring paths add up, which is no language"
        values = ", for its values read_weighted" if semiring == "real" else ""
        raise InvalidFile(where, reason, f"for its language use --semiring boolean{values}")
    rows: list[list[tuple[frozenset[str], int]]] = [[] for _ in names]
    silent: list[list[int]] = [[] for _ in names]
    for source, symbol, to in moves:
        if symbol is None:
            silent[source].append(to)
        else:
            rows[source].append((frozenset([symbol]), to))
    return determinise(parsed.alphabet, rows, silent, 0, set(parsed.finals), max_states=max_states)


def weighted_from_att(
    text: str,
    *,
    semiring: str | None,
    symbols: Mapping[str, int] | None = None,
    max_states: int = 512,
    where: str = "<AT&T text>",
) -> Wfa:
    """The function of a text over the real semiring: the sum over all paths of the product of their weights.

    Args:
        text: AT&T FSM text; weights are integers, exact decimals or "p/q".
        semiring: "real"; "tropical" and "log" are refused; for "boolean" use `from_att` and `from_dfa`.
        symbols: the symbol table.
        max_states: bound on the states, since matrices are dense.
        where: what messages call the text.

    Raises:
        InvalidFile: as `from_att`; also another semiring, or a cycle of epsilons (infinitely many paths).
        BudgetExceeded: more than `max_states` states.

    >>> weighted_from_att("0 0 a 0.5\\n0 1 a\\n1 3", semiring="real").run("aa")
    (Fraction(3, 1), Fraction(3, 2))
    """
    linear_semiring(semiring, where)
    if semiring != "real":
        raise InvalidFile(where, "weights over the boolean semiring", "read it as an automaton, or use --semiring real")
    parsed = _parse(text, "real", symbols, max_states, where)
    n = len(parsed.states)
    sums = {symbol: fmpq_mat(n, n) for symbol in (None, *parsed.alphabet)}
    for arc in parsed.arcs:
        sums[arc.symbol][arc.to, arc.source] += fmpq(arc.weight.numerator, arc.weight.denominator)
    closure = _closure(parsed, sums.pop(None), where)
    final = [Fraction(0)] * n
    for q, (_, weight) in parsed.finals.items():
        final[q] = weight
    # Silent steps come first, and after every symbol.
    start = tuple(_fraction(closure[q, 0]) for q in range(n))
    matrices = [(closure * sums[symbol]).table() for symbol in parsed.alphabet]
    rows = tuple(tuple(tuple(_fraction(x) for x in row) for row in table) for table in matrices)
    return Wfa(parsed.alphabet, start, rows, tuple(final))


def _closure(parsed: _Text, silent: fmpq_mat, where: str) -> fmpq_mat:
    """1 + E + E² + ... for the matrix E of silent steps, whose graph must have no cycle."""
    after: dict[int, list[int]] = {}
    entering = [0] * len(parsed.states)
    steps = [(arc.source, arc.to) for arc in parsed.arcs if arc.symbol is None]
    for source, to in steps:
        after.setdefault(source, []).append(to)
        entering[to] += 1
    free = [q for q, count in enumerate(entering) if not count]
    for q in free:
        for to in after.get(q, []):
            entering[to] -= 1
            if not entering[to]:
                free.append(to)
    if len(free) < len(entering):
        state = parsed.states[next(q for q, count in enumerate(entering) if count)]
        reason = f"a cycle of epsilons leads to state {state}: a word then has infinitely many paths"
        raise InvalidFile(where, reason, "remove the epsilons (fstrmepsilon)")
    n = len(entering)
    one = fmpq_mat(n, n, [int(i == j) for i in range(n) for j in range(n)])
    # No cycle makes E nilpotent, and the sum the inverse of 1 - E.
    return (one - silent).inv() if steps else one


def _parse(text: str, semiring: str, symbols: Mapping[str, int] | None, max_states: int, where: str) -> _Text:
    """All lines; the faulty ones are named together."""
    numbers: dict[str, int] = {}
    arcs: list[_Arc] = []
    finals: dict[int, tuple[int, Fraction]] = {}
    faults: list[tuple[int, str]] = []
    for line, columns in _lines(text):
        edge = len(columns) in (3, 4)
        try:
            if len(columns) > 4:
                raise InvalidInput(f"{len(columns)} columns")
            states = [_state(column) for column in columns[: 2 if edge else 1]]
            ends = [numbers.setdefault(state, len(numbers)) for state in states]
            weight = _weight(columns[-1], semiring) if len(columns) in (2, 4) else _one(semiring)
            if edge:
                arcs.append(_Arc(line, ends[0], ends[1], _symbol(columns[2], symbols), weight))
            elif ends[0] in finals:
                raise InvalidInput(f"state {states[0]} is final twice, first at line {finals[ends[0]][0]}")
            else:
                finals[ends[0]] = line, weight
        except InvalidInput as error:
            faults.append((line, str(error)))
        within(len(numbers), max_states, where)
    if not numbers and not faults:
        faults.append((1, "no edge and no final state"))
    _refuse(faults, where, _COLUMNS)
    if symbols is None:
        alphabet = tuple(dict.fromkeys(arc.symbol for arc in arcs if arc.symbol is not None))
    else:
        alphabet = tuple(symbol for symbol, number in sorted(symbols.items(), key=lambda item: item[1]) if number)
    return _Text(tuple(numbers), alphabet, tuple(arcs), finals)


def _lines(text: str) -> Iterator[tuple[int, list[str]]]:
    """The columns of each line that is not blank, with its number from 1."""
    for number, line in enumerate(text.split("\n"), 1):
        columns = [column for column in re.split("[ \t\r]", line) if column]
        if columns:
            yield number, columns


def _is_count(column: str) -> bool:
    return re.fullmatch("[0-9]{1,18}", column) is not None


def _state(column: str) -> str:
    if not _is_count(column):
        raise InvalidInput(f"state {column!r} is no integer")
    return str(int(column))


def _symbol(column: str, symbols: Mapping[str, int] | None) -> str | None:
    if symbols is None:
        if column in _EPSILONS:
            raise InvalidInput(f"symbol {column!r} looks like epsilon; name the symbol table with --symbols")
        return column
    if column not in symbols:
        raise InvalidInput(f"symbol {column!r} is not in the symbol table")
    return column if symbols[column] else None


def _weight(column: str, semiring: str) -> Fraction:
    try:
        return exact(column)
    except InvalidInput as error:
        hint = "; a transducer's output?" if semiring != "tropical" else ""
        raise InvalidInput(f"weight {error}{hint}") from None


def _one(semiring: str) -> Fraction:
    return Fraction(0 if semiring in ("tropical", "log") else 1)


def _fraction(x: fmpq) -> Fraction:
    return Fraction(int(x.p), int(x.q))


def _refuse(faults: Sequence[tuple[int, str]], where: str, instead: str) -> None:
    """Refuse a file at its first faulty line; the message names the others' numbers and the next faults."""
    if faults:
        first, reason = faults[0]
        others = [f"line {line}: {fault}" for line, fault in faults[1:4]]
        more = f"; {'; '.join(others)}" if others else ""
        rest = f"; {len(faults) - 4} more" if len(faults) > 4 else ""
        raise InvalidFile(f"{where}:{first}", f"{reason}{more}{rest}", instead)


def _refuse_weight(line: int, weight: Fraction, semiring: str, where: str) -> None:
    """Refuse a weight that is not one, as the semiring demands."""
    at = f"{where}:{line}"
    if semiring in ("tropical", "log"):
        linear_semiring(semiring, at)
    instead = (
        "read it as a weighted automaton" if semiring == "real" else "if it is a tropical text: --semiring tropical"
    )
    raise InvalidFile(at, f"weight {weight} is not 1, so the text is no plain {semiring} acceptor", instead)
