"""A-priori horizons for every kind of network, in ball arithmetic: a length up to which every word is answered right.

This is the bound of docs/precision.md with outward rounding throughout (balls of 128 bits; comparisons hold for all
numbers of a ball), for tables and state in different formats, additive terms, dense steps and expansive factors.
With M the largest norm of a product of steps (1 for contractions), ρ the largest norm of an exact state, 1 + g and τ a
token's growth and its absolute error, D_t <= ρ ((1 + M g)^t - 1) + M (D_0 + t τ)(1 + M g)^t. A head without such a
bound (no finite M or ρ, floors) is closed in floats instead; if that ends, it is right for ever.

Main definitions: `horizon_of`, `head_horizons`, `HeadHorizon`, `renormalised_horizon`; `head_bounds`, `HeadBound` for
the errors themselves.

Main results: every word of at most `horizon_of(weights)` tokens is answered right in recurrent order.

References: docs/precision.md; Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded, InvalidInput, StatetrackError
from statetrack.theory.arrays import identity
from statetrack.theory.automata import Dfa, shortest_words
from statetrack.theory.fields import Element
from statetrack.theory.number_formats import NumberFormat, number_format
from statetrack.theory.orbits import Orbit, StepMap

from .certificate import tokens_of
from .composed import closed_program
from .float_closure import IdealHead, closes_for_ever, ideal_of
from .float_steps import HeadTables, head_tables
from .margins import margin
from .program import Dense, Factor, Head, Program
from .weights import Weights

Rows = NDArray[Any]
_LONGEST = 10**15
_PRECISION = 128
# Doubles of exact numbers, with room for their rounding.
_ROOM = 1 + 2.0**-30
_MOST_PRODUCTS, _MOST_EDGES, _MOST_COLUMNS = 2_000, 60_000, 2_000
# A head, its tables, its exact columns and its claimed margin, where they are known.
_Job = tuple[Head, HeadTables, IdealHead | None, Fraction | None]


@dataclass(frozen=True)
class HeadHorizon:
    """The horizon of one head if its inputs are right: tokens, or infinity; `why` says by which argument."""

    tokens: float
    why: str


def horizon_of(weights: Weights) -> float:
    """A length up to which every word is answered right in the weights' formats; 0 if some head has no bound.

    Infinity for one state, with a float proof in the weights, or if every head is right for ever.
    """
    if weights.is_weighted:
        return 0.0
    if len(weights.dfa.states) == 1 or weights.float_proof is not None:
        return math.inf
    least = min((h.tokens for row in head_horizons(weights) for h in row), default=0.0)
    return min(least, tokens_of(weights.certificate) or math.inf)


def renormalised_horizon(weights: Weights, every: int) -> float:
    """`horizon_of` for runs whose state is replaced after so many tokens by the one after a shortest word.

    Between two replacements such a run is that of a word of `every` letters after a shortest word: infinity if these
    are within the horizon. InvalidInput for `every` below 1.
    """
    if every < 1:
        raise InvalidInput(f"renormalise {every}: expected a number of tokens from 1 on")
    horizon, dfa = horizon_of(weights), weights.dfa
    words = shortest_words(dfa.delta.tolist(), dfa.start)
    return math.inf if every + max(map(len, words.values())) <= horizon else horizon


def head_horizons(weights: Weights) -> tuple[tuple[HeadHorizon, ...], ...]:
    """For every layer its heads' horizons. Layers hand on codes, so a network is right up to the least of them."""
    program = _program(str(weights.certificate["digest"]), weights)
    return tuple(tuple(_horizon(*one) for one in row) for row in _heads(program, weights))


def head_bounds(weights: Weights, program: Program | None = None) -> tuple[tuple[HeadBound | None, ...], ...]:
    """For every layer its heads' bounds, None where there is none; the program is the certificate's or that given."""
    program = program or _program(str(weights.certificate["digest"]), weights)
    return tuple(tuple(_bound(*one) for one in row) for row in _heads(program, weights))


@dataclass(frozen=True)
class HeadBound:
    """The errors of one head in balls: `growth` and `loss` a token, `gain` M, `radius` ρ, `start` the rounding of H_0.

    `query` is the readout's gain, `read` its own error, and `allowed` the state error up to which the nearest codeword
    is right (negative if none is).
    """

    growth: arb
    loss: arb
    gain: arb
    radius: arb
    start: arb
    query: arb
    read: arb
    allowed: arb

    def state_error(self, tokens: int) -> float:
        """A bound on the Euclidean error of the whole state after that many tokens."""
        with ctx.workprec(_PRECISION):
            return _upper(self._error(tokens))

    def readout_error(self, tokens: int) -> float:
        """A bound on the Euclidean error of the readout after that many tokens."""
        with ctx.workprec(_PRECISION):
            return _upper(self.query * self._error(tokens) + self.read)

    def tokens(self) -> int:
        """The largest number of tokens after which the state's error is allowed (10^15 at most)."""
        low, high = 0, _LONGEST
        with ctx.workprec(_PRECISION):
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if self._error(middle) <= self.allowed else (low, middle - 1)
        return low

    def _error(self, tokens: int) -> arb:
        """The bound on the state's error; infinite where it would be large anyway."""
        exponent = (1 + self.gain * self.growth).log() * tokens
        if not exponent < 20:
            return arb("inf")
        power = exponent.exp()
        return self.radius * (power - 1) + self.gain * (self.start + tokens * self.loss) * power


_KNOWN: dict[str, Program] = {}


def _program(digest: str, weights: Weights) -> Program:
    """The closed program of a certificate; the last few are kept."""
    if digest not in _KNOWN:
        while len(_KNOWN) >= 8:
            _KNOWN.pop(next(iter(_KNOWN)))
        _KNOWN[digest] = closed_program(weights.certificate)
    return _KNOWN[digest]


def _ideal_heads(program: Program, dfa: Dfa) -> Sequence[IdealHead]:
    try:
        return ideal_of(program, dfa, max_edges=_MOST_EDGES).heads
    except (BudgetExceeded, KeyError, StatetrackError):
        return ()


def _needs_orbit(head: Head) -> bool:
    return head.unit is not None or any(f.b is not None for step in head.steps for f in step)


def _claimed(weights: Weights, number: int, h: int) -> Fraction | None:
    """The least distance of a head's codewords with different codes, where the certificate proves one."""
    if weights.certificate["kind"] != "closure":
        return None
    said: Any = weights.certificate["claims"]["margin"][number][h]
    return None if said is None else Fraction(said)


def _heads(program: Program, weights: Weights) -> list[list[_Job]]:
    """For every layer its heads with their tables, exact columns where they are needed, and claimed margins."""
    storage = number_format(weights.storage)
    exact: list[IdealHead | None] = [None] * sum(len(layer.heads) for layer in program.layers)
    if any(_needs_orbit(head) for layer in program.layers for head in layer.heads):
        exact = list(_ideal_heads(program, weights.dfa)) or exact
    rows: list[list[_Job]] = []
    for number, layer in enumerate(program.layers):
        tables = [head_tables(weights.tensors, number, h, storage) for h in range(len(layer.heads))]
        gaps = [_claimed(weights, number, h) for h in range(len(layer.heads))]
        ideals = exact[sum(map(len, rows)) :][: len(layer.heads)]
        rows.append(list(zip(layer.heads, tables, ideals, gaps, strict=True)))
    return rows


def _horizon(head: Head, tables: HeadTables, ideal: IdealHead | None, gap: Fraction | None) -> HeadHorizon:
    bound = None if head.codebook is None else _bound(head, tables, ideal, gap)
    if bound is not None:
        return HeadHorizon(float(bound.tokens()), "rounding bound")
    if ideal is not None and closes_for_ever(tables, ideal, max_columns=_MOST_COLUMNS):
        return HeadHorizon(math.inf, "float closure")
    return HeadHorizon(0.0, "no bound of this kind")


def _bound(head: Head, tables: HeadTables, ideal: IdealHead | None, gap: Fraction | None) -> HeadBound | None:
    """The bound of one head, None where it does not apply: floors, no finite M or ρ, or numbers that may overflow."""
    with ctx.workprec(_PRECISION):
        gain = None if head.unit is not None else _gain(head)
        radius = None if gain is None else _radius(head, ideal)
        if gain is None or radius is None:
            return None
        inputs = sorted(head.choose.seen)
        growth, loss, known = arb(0), arb(0), set[int]()
        for i, key in enumerate(inputs):
            step = head.choose.seen[key][0]
            if step not in known:
                known.add(step)
                g, t = _token(head, step, i, tables, tables.storage, radius)
                growth, loss = growth.max(g), loss.max(t)
        h0 = [(v, i, _ball(x)) for v, column in enumerate(head.h0) for i, x in enumerate(column)]
        start = _frobenius([_exact(tables.state[i, v]) - x for v, i, x in h0])
        read = _reading(head, tables, radius, inputs, _gap(head) if gap is None else _rational(gap))
        return None if read is None or not growth < 1 else HeadBound(growth, loss, gain, radius, start, *read)


def _token(head: Head, step: int, i: int, tables: HeadTables, storage: NumberFormat, radius: arb) -> tuple[arb, arb]:
    """Growth and absolute error of one token: products of the factors' norms with and without their errors."""
    clean, dirty, loss, added = arb(1), arb(1), arb(0), arb(0)
    for j, factor in enumerate(head.steps[step]):
        if isinstance(factor, Dense):
            norm, kappa, tau, size = _dense(factor, tables, i, storage, head)
        else:
            norm, kappa, tau, size = _factor(factor, tables, i, j, storage, head)
        # What earlier factors of the token added is in the state that this one rounds.
        loss = loss * (norm + kappa).max(arb(1)) + tau + kappa * added
        clean, dirty, added = clean * norm, dirty * (norm + kappa), added * norm.max(arb(1)) + size
    return dirty - clean, loss


def _factor(
    factor: Factor, tables: HeadTables, i: int, j: int, storage: NumberFormat, head: Head
) -> tuple[arb, arb, arb, arb]:
    """A bound on the exact factor's norm, κ, τ and the additive term's norm, as in docs/precision.md."""
    n, u, us = head.size, _exact(tables.round_off), _rational(storage.unit)
    key = [_exact(x) for x in tables.keys[i, j, :n]]
    gate, beta = [_exact(x) for x in tables.gates[i, j, :n]], _exact(tables.betas[i, j])
    b = abs(beta) * sum((x * x for x in key), arb(0))
    exact = [[_ball(x) for x in row] for row in factor.matrix()]
    eta = _frobenius([((r == c) - beta * key[r] * key[c]) * gate[c] - exact[r][c] for r in range(n) for c in range(n)])
    largest = max((abs(g) for g in gate), key=lambda g: float(g.abs_upper()), default=arb(1)).max(arb(1))
    norm = arb(1) if _contracts(factor) else _frobenius([x for row in exact for x in row])
    wide = arb(1).max(abs(1 - b)) * largest
    first = largest * (u + b * _gamma(n + 4, u))
    last = (1 + u) ** 3 * (1 + us) - 1
    kappa = eta + first * (1 + last) + last * wide
    tau = _tiny(n, head.width, storage) * (1 + abs(beta) * n)
    size = arb(0)
    if factor.b is not None:
        added = _added(tables, i, j, head)
        size = _frobenius(added)
        exact_b = [_ball(x) for column in factor.b for x in column]
        tau = tau + _frobenius([x - y for x, y in zip(added, exact_b, strict=True)]) + (_gamma(4, u) + last) * size
    return norm, kappa, tau, size


def _added(tables: HeadTables, i: int, j: int, head: Head) -> list[arb]:
    """The stored additive term, column by column."""
    beta, found = _exact(tables.betas[i, j]), list[arb]()
    for v in range(head.width):
        for r in range(head.size):
            x = arb(0)
            if tables.values is not None:
                x = x + beta * _exact(tables.keys[i, j, r]) * _exact(tables.values[i, j, v])
            if tables.bias is not None:
                x = x + _exact(tables.bias[i, j, r, v])
            found.append(x)
    return found


def _dense(factor: Dense, tables: HeadTables, i: int, storage: NumberFormat, head: Head) -> tuple[arb, arb, arb, arb]:
    n, u, us = head.size, _exact(tables.round_off), _rational(storage.unit)
    assert tables.dense is not None
    stored = [[_exact(x) for x in row[:n]] for row in tables.dense[i, :n]]
    exact = [[_ball(x) for x in row] for row in factor.rows]
    eta = _frobenius([x - y for r, s in zip(stored, exact, strict=True) for x, y in zip(r, s, strict=True)])
    size, last = _frobenius([x for row in stored for x in row]), (1 + u) * (1 + us) - 1
    tau, added = _tiny(n, head.width, storage), arb(0)
    if factor.b is not None:
        added = _frobenius([_ball(x) for column in factor.b for x in column])
        tau = tau + (_gamma(4, u) + last + _table_error(tables, i, factor, head)) * (1 + added)
    norm = _frobenius([x for row in exact for x in row])
    return norm, eta + _gamma(n, u) * size * (1 + last) + last * size, tau, added


def _table_error(tables: HeadTables, i: int, factor: Dense, head: Head) -> arb:
    """The distance of a dense step's stored additive term from the exact one."""
    assert tables.bias is not None
    assert factor.b is not None
    pairs = ((tables.bias[i, 0, r, v], factor.b[v][r]) for v in range(head.width) for r in range(head.size))
    return _frobenius([_exact(x) - _ball(y) for x, y in pairs])


def _tiny(n: int, width: int, storage: NumberFormat) -> arb:
    """Losses by underflow in one factor, of the storage and of the arithmetic."""
    return arb(n * width).sqrt() * (_rational(storage.tiny) + (4 + n) * _rational(storage.arithmetic.tiny))


def _reading(
    head: Head, tables: HeadTables, radius: arb, inputs: Sequence[tuple[int, ...]], gap: arb | None
) -> tuple[arb, arb, arb] | None:
    """The readout's gain and own error, and the state error up to which the nearest codeword is right.

    None where numbers could overflow; with one code every error is allowed.
    """
    u, n, storage = _exact(tables.round_off), head.size, tables.storage
    length, drift = arb(0), arb(0)
    for i, key in enumerate(inputs):
        exact = [_ball(x) for x in head.queries[head.choose.seen[key][1]]]
        stored = [_exact(x) for x in tables.queries[i, :n]]
        length = length.max(_frobenius(stored))
        drift = drift.max(_frobenius([x - y for x, y in zip(stored, exact, strict=True)]))
    read = radius * (length * _gamma(n, u) + drift) + (n + 1) * _rational(storage.arithmetic.tiny)
    query = length * (1 + _gamma(n, u))
    if gap is None:
        return query, read, arb(2) ** 40
    book = [[_ball(x) for x in row] for row in head.codebook or ()]
    moved = [
        _frobenius([_exact(x) - y for x, y in zip(tables.codebook[c], row, strict=True)]) for c, row in enumerate(book)
    ]
    code = max(moved, key=lambda x: float(x.abs_upper()), default=arb(0))
    size = max((_frobenius(row) for row in book), key=lambda x: float(x.abs_upper()), default=arb(0))
    limit = _rational(storage.largest) / 16
    if not (radius * 4 + 1 < limit and (size + length * radius * 4) ** 2 * head.width < arb(2) ** 120 and gap > 2**-60):
        return None
    half = gap / 2 * (1 - 2 * _gamma(head.width + 4, u))
    found = (half - read - 2 * code) / query
    return query, read, found.min(radius + 1) if found > 0 else arb(-1)


def _gap(head: Head) -> arb | None:
    """A bound below the distance of codewords with different codes; None if there is one code."""
    book = head.codebook or {}
    floats = np.array([[float(x) for x in row] for row in book]).reshape(len(book), head.width)
    found = margin(list(book), floats, np.array(list(book.values()), dtype=np.int32), 1.0)
    return None if found is None else _rational(found.bound)


def _gain(head: Head) -> arb | None:
    """M: the largest norm of a product of steps; 1 for contractions, from all products if they are few."""
    if all(isinstance(f, Factor) and _contracts(f) for step in head.steps for f in step):
        return arb(1)
    maps = [StepMap(move.matrix) for move in head.maps]
    return _largest(Orbit(head.field, identity(head.field, head.size), maps, max_columns=1 << 16))


def _radius(head: Head, ideal: IdealHead | None) -> arb | None:
    """ρ: the largest Frobenius norm of an exact state that the network meets."""
    contracting = all(isinstance(f, Factor) and _contracts(f) and f.b is None for step in head.steps for f in step)
    if contracting:
        return _frobenius([_ball(x) for column in head.h0 for x in column])
    if ideal is not None:
        states = [sum(float((ideal.exact[c] ** 2).sum()) for c in row) for row in ideal.labels]
        return arb(math.sqrt(max(states)) * _ROOM)
    if _needs_orbit(head):
        return None
    return _largest(Orbit(head.field, head.h0, head.maps, max_columns=1 << 16))


def _largest(orbit: Orbit) -> arb | None:
    """The largest Frobenius norm of a state of the orbit; None if it is too large to be closed."""
    orbit.close(_MOST_PRODUCTS)
    if len(orbit) >= _MOST_PRODUCTS:
        return None
    columns = orbit.columns.to_floats()[orbit.rows(range(len(orbit)))]
    return arb(float(np.sqrt((columns**2).sum(axis=(1, 2))).max()) * _ROOM)


def _contracts(factor: Factor) -> bool:
    """Whether β is in [0, 2] and |gates| <= 1, so that the linear part has norm at most 1."""
    return not (factor.c < 0 or factor.beta > 2) and all(-1 <= a <= 1 for a in factor.alpha or ())


@lru_cache(maxsize=100_000)
def _ball(x: Element) -> arb:
    low, high = x.enclose(_PRECISION)
    return _rational(low).union(_rational(high))


def _exact(x: Any) -> arb:
    return arb(float(x))


def _rational(x: Fraction) -> arb:
    return arb(fmpq(x.numerator, x.denominator))


def _upper(x: arb) -> float:
    """A double that is not below the ball."""
    return math.nextafter(float(x.abs_upper()), math.inf)


def _gamma(n: int, u: arb) -> arb:
    return n * u / (1 - n * u)


def _frobenius(entries: Sequence[arb]) -> arb:
    # A ball around 0 may reach below it by its radius.
    return arb(sum((x * x for x in entries), arb(0)).abs_upper()).sqrt()
