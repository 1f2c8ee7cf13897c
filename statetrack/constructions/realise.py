"""A permutation-reset cascade as layers of Householder products (β <= 2, no gates).

A layer shows its state *after* a token, but the components below read the state before it. After a bijection that is
recovered by its inverse; a reset would lose it. So a component that others read has two registers of m coordinates:
`now`, the unit vector of its state, and `before`, where a reset first moves it.

Main definitions: `cascade_layers`.

Main results: claim OURS-realisation-R1: exact, finitely many states, norm at most 1, at most 2m + 1 factors a token.

References: Grazzi et al. Thm. 4 (repaired: a stack of states after the update cannot do it).
"""

from __future__ import annotations

from functools import cache

from statetrack.theory.arrays import Vector, identity, vector
from statetrack.theory.fields import Element, Field
from statetrack.theory.number_fields import rationals

from .cascade import Cascade, Map, States
from .program import Factor, Head, Layer, LayerInput, Lookup, Program, Step, rank_one
from .trackers import swaps


def cascade_layers(cascade: Cascade) -> Program:
    """One layer for all components of one depth; the last layer is one component, which reads off the answer."""
    placing = _Placing(cascade)
    dfa, field = cascade.dfa, rationals()
    layers = [
        Layer(tuple(_head(placing, field, j) for j in row), _pairing(placing, row) if len(row) > 1 else None)
        for row in placing.rows
    ]
    return Program(field, dfa.alphabet, tuple(layers), dfa.outputs, dfa.outputs[dfa.start])


class _Placing:
    """Which component stands in which layer, and how states are read from the layers' symbols."""

    def __init__(self, cascade: Cascade) -> None:
        self.cascade = cascade
        depth: list[int] = []
        for component in cascade.components:
            depth.append(1 + max((depth[i] for i in component.reads), default=0))
        last = max(range(len(depth)), key=lambda j: (depth[j], j))
        rows = [[j for j in range(len(depth)) if depth[j] == d and j != last] for d in range(1, max(depth) + 1)]
        self.rows = [row for row in rows if row] + [[last]]
        self.last = last
        self.read_by_others = {i for component in cascade.components for i in component.reads}
        self.where = {j: (number, place) for number, row in enumerate(self.rows) for place, j in enumerate(row)}
        self.before = cache(self._before)

    def codes(self, j: int) -> int:
        """How many codes component j's head has: its state, and what is in the `before` register if it has one."""
        m = self.cascade.components[j].size
        return m * (m + 1) if j in self.read_by_others else m

    def _code(self, j: int, outs: LayerInput) -> int:
        """The code of component j's head in the symbol of its layer; `outs` are the symbols of the layers."""
        number, place = self.where[j]
        symbol = outs[number]
        for i in self.rows[number][:place]:
            symbol //= self.codes(i)
        return symbol % self.codes(j)

    def now(self, j: int, outs: LayerInput) -> int:
        """Component j's state after the token."""
        return self._code(j, outs) % self.cascade.components[j].size

    def action(self, j: int, token: int, outs: LayerInput) -> Map:
        """What component j does at this token."""
        component = self.cascade.components[j]
        return component.action(token, tuple(self.before(i, token, outs) for i in component.reads))

    def _before(self, j: int, token: int, outs: LayerInput) -> int:
        """Component j's state before the token: by the inverse of a bijection, or from its register after a reset."""
        f, code, m = self.action(j, token, outs), self._code(j, outs), self.cascade.components[j].size
        return f.index(code % m) if len(set(f)) == len(f) else code // m - 1


def _head(placing: _Placing, field: Field, j: int) -> Head:
    component = placing.cascade.components[j]
    m, double = component.size, j in placing.read_by_others
    steps: dict[Map, Step] = {}
    queries: dict[Vector, int] = {}
    plain = vector(field, [*range(m), *((m * (k + 1) for k in range(m)) if double else ())])
    answers = _answer_rows(placing, field) if j == placing.last else {}
    for f in _actions(placing, j):
        steps[f] = _registers(field, f, double)
    number = {f: i for i, f in enumerate(steps)}
    for row in answers.values() or [plain]:
        queries.setdefault(row, len(queries))

    def choose(key: LayerInput) -> tuple[int, int]:
        token, outs = key[0], key[1:]
        row = plain
        if j == placing.last:
            row = answers[_others(placing, outs)]
        return number[placing.action(j, token, outs)], queries[row]

    one = identity(field, m * (1 + double))
    codebook: dict[tuple[Element, ...], int] | None = None
    if j != placing.last:
        codebook = {(field(code),): code for code in range(placing.codes(j))}
    start = (one[placing.cascade.start[j]],)
    return Head(start, tuple(steps.values()), tuple(queries), Lookup(choose), codebook)


def _actions(placing: _Placing, j: int) -> list[Map]:
    """All maps that component j makes in a context that occurs."""
    component = placing.cascade.components[j]
    states = placing.cascade.reachable()
    contexts = dict.fromkeys(tuple(x[i] for i in component.reads) for x in states)
    tokens = range(len(placing.cascade.dfa.alphabet))
    return list(dict.fromkeys(component.action(token, read) for token in tokens for read in contexts))


def _others(placing: _Placing, outs: LayerInput) -> States:
    """The states after the token of all components but the last."""
    return tuple(placing.now(i, outs) for i in range(len(placing.cascade.components)) if i != placing.last)


def _answer_rows(placing: _Placing, field: Field) -> dict[States, Vector]:
    """For the states of the other components, the row that reads the automaton's state off the last component."""
    last, m = placing.last, placing.cascade.components[placing.last].size
    rows: dict[States, Vector] = {}
    for x in placing.cascade.reachable():
        others = x[:last] + x[last + 1 :]
        if others not in rows:
            full = [x[:last] + (k,) + x[last + 1 :] for k in range(m)]
            rows[others] = vector(field, (placing.cascade.state(s) for s in full))
    return rows


def _pairing(placing: _Placing, row: list[int]) -> Lookup[tuple[int, ...], int]:
    """The codes of a layer's heads as one symbol, mixed radix, the first head lowest."""
    sizes = [placing.codes(j) for j in row]

    def symbol(codes: tuple[int, ...]) -> int:
        total = 0
        for code, size in zip(reversed(codes), reversed(sizes), strict=True):
            total = total * size + code
        return total

    return Lookup(symbol)


def _registers(field: Field, f: Map, double: bool) -> Step:
    """The factors of one action on (now) or (now, before).

    `before` is cleared first (β = 1 each), so that the registers are a function of the last token and of the states
    before it. Then a bijection is its swaps on `now`; a reset to c swaps the registers and writes e_c, or, with one
    register, clears each coordinate of `now`, writing 1 at c.
    """
    m = len(f)
    size = m * (1 + double)
    one = identity(field, size)
    clears = [Factor(one[m + i], field.one) for i in range(m)] if double else []
    if len(set(f)) == m:
        return (*clears, *swaps(field, (*f, *range(m, size))))
    target = f[0]
    if not double:
        return tuple(Factor(one[i], field.one, None, rank_one(one[i], [int(i == target)])) for i in range(m))
    exchange = swaps(field, (*range(m, size), *range(m)))
    return (*clears, *exchange, Factor(one[target], field.one, None, rank_one(one[target], [1])))
