"""A-priori horizons for every kind of network, in ball arithmetic: a length up to which every word is answered right.

This is the bound of docs/precision.md with outward rounding throughout (balls of 128 bits; comparisons hold for all
numbers of a ball), for tables and state in different formats, additive terms, dense steps and expansive factors.
With M the largest norm of a product of steps (1 for contractions), ρ the largest norm of an exact state, 1 + g and τ a
token's growth and its absolute error, D_t <= ρ ((1 + M g)^t - 1) + M (D_0 + t τ)(1 + M g)^t. Where errors are forgotten
or never made they may not add up at all, and the horizon is infinite; where nothing bounds M the bound grows like c^t.
A head without any bound (floors) is closed in floats instead; if that ends, it is right for ever.

Main definitions: `horizon_of`, `head_horizons`, `HeadHorizon`, `renormalised_horizon`; `head_bounds`, `HeadBound` for
the errors themselves.

Main results: every word of at most `horizon_of(weights)` tokens is answered right in recurrent order.

References: docs/precision.md; Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
from flint import arb, ctx

from statetrack.errors import BudgetExceeded, InvalidInput, StatetrackError
from statetrack.theory.automata import Dfa, shortest_words
from statetrack.theory.number_formats import number_format

from .certificate import tokens_of
from .composed import closed_program
from .float_closure import IdealHead, closes_for_ever, ideal_of
from .float_steps import HeadTables, head_tables
from .gains import ROOM, forgetting, growths, largest_gain, largest_state, settled, shrinks
from .margins import margin
from .program import Head, Program
from .step_errors import (
    PRECISION,
    TokenError,
    ball,
    exact,
    exact_norm,
    frobenius,
    gamma,
    largest,
    rational,
    smaller,
    token_errors,
    upper,
)
from .weights import Weights

_LONGEST = 10**15
# Below so many tokens growing bounds may show more.
_SHORT = 64
_ONE, _ENDLESS, _SQUARE = arb(1), arb("inf"), arb(2) ** 120
_MOST_EDGES, _MOST_COLUMNS = 60_000, 2_000
# A head, its tables, its exact columns and its claimed margin, where they are known.
_Job = tuple[Head, HeadTables, IdealHead | None, Fraction | None]


@dataclass(frozen=True)
class HeadHorizon:
    """The horizon of one head if its inputs are right: tokens, or infinity; `why` says by which argument.

    `between`: words of any length are right too while at most so many tokens pass after each step of the head that
    forgets (a linear part of 0); 0 if no step does.
    """

    tokens: float
    why: str
    between: float = 0.0


def horizon_of(weights: Weights) -> float:
    """A length up to which every word is answered right in the weights' formats; 0 if some head has no bound.

    Infinity for one state, with a float proof in the weights, or if every head is right for ever.
    """
    if weights.is_weighted:
        return 0.0
    if len(weights.dfa.states) == 1 or weights.float_proof is not None:
        return math.inf
    least = min((h.tokens for row in head_horizons(weights) for h in row), default=0.0)
    return float(min(least, tokens_of(weights.certificate) or math.inf))


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
    is right (negative if none is). Products of n steps have norm at most M `power`^n; the error never passes `ceiling`;
    after a step that forgets it is at most `restart` (None: no step does); all for `until` tokens.
    """

    growth: arb
    loss: arb
    gain: arb
    radius: arb
    start: arb
    query: arb
    read: arb
    allowed: arb
    power: arb = _ONE
    ceiling: arb = _ENDLESS
    restart: arb | None = None
    until: int = _LONGEST

    @property
    def why(self) -> str:
        """By which argument."""
        if self.ceiling <= self.allowed:
            return "errors that do not add up"
        return "rounding bound" if self.power == 1 else "growing rounding bound"

    def state_error(self, tokens: int | float) -> float:
        """A bound on the Euclidean error of the whole state after that many tokens."""
        with ctx.workprec(PRECISION):
            return upper(self._error(tokens))

    def readout_error(self, tokens: int | float) -> float:
        """A bound on the Euclidean error of the readout after that many tokens."""
        with ctx.workprec(PRECISION):
            return upper(self.query * self._error(tokens) + self.read)

    def tokens(self) -> float:
        """The largest number of tokens after which the state's error is allowed: infinity, or 10^15 at most."""
        if self.ceiling <= self.allowed:
            return math.inf if self.until == _LONGEST else float(self.until)
        low, high = 0, self.until
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.holds(middle) else (low, middle - 1)
        return float(low)

    def holds(self, tokens: int) -> bool:
        """Whether the state's error after that many tokens is allowed."""
        with ctx.workprec(PRECISION):
            return bool(self._error(tokens) <= self.allowed)

    def tokens_between(self) -> float:
        """`tokens` since the start or the last step that forgets, however long the word is; 0 if no step does."""
        if self.restart is None or self.until < _LONGEST:
            return 0.0
        return replace(self, start=self.restart).tokens()

    def _error(self, tokens: int | float) -> arb:
        """The bound on the state's error; infinite where it would be large anyway."""
        rate = self.power - 1 + self.gain * self.growth
        exponent = (1 + rate).log() * tokens
        if tokens > self.until or not exponent < 80:
            return arb("inf")
        power = exponent.exp()
        if self.power == 1:
            total = self.radius * (power - 1) + self.gain * (self.start + tokens * self.loss) * power
        else:
            summed = smaller(tokens * power, (power - 1) / rate)
            total = self.gain * (self.start * power + (self.growth * self.radius + self.loss) * summed)
        return smaller(total, self.ceiling)


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
    known: list[IdealHead | None] = [None] * sum(len(layer.heads) for layer in program.layers)
    if any(_needs_orbit(head) for layer in program.layers for head in layer.heads):
        known = list(_ideal_heads(program, weights.dfa)) or known
    rows: list[list[_Job]] = []
    for number, layer in enumerate(program.layers):
        tables = [head_tables(weights.tensors, number, h, storage) for h in range(len(layer.heads))]
        gaps = [_claimed(weights, number, h) for h in range(len(layer.heads))]
        ideals = known[sum(map(len, rows)) :][: len(layer.heads)]
        rows.append(list(zip(layer.heads, tables, ideals, gaps, strict=True)))
    return rows


def _horizon(head: Head, tables: HeadTables, ideal: IdealHead | None, gap: Fraction | None) -> HeadHorizon:
    bound = None if head.codebook is None else _bound(head, tables, ideal, gap)
    tokens = 0.0 if bound is None else bound.tokens()
    if bound is not None and tokens > 0:
        return HeadHorizon(tokens, bound.why, bound.tokens_between())
    if ideal is not None and closes_for_ever(tables, ideal, max_columns=_MOST_COLUMNS):
        return HeadHorizon(math.inf, "float closure")
    return HeadHorizon(0.0, "no bound of this kind" if bound is None else bound.why)


def _bound(head: Head, tables: HeadTables, ideal: IdealHead | None, gap: Fraction | None) -> HeadBound | None:
    """The bound of one head, None where it does not apply: floors, or numbers that may overflow."""
    if head.unit is not None or not tables.is_finite:
        return None
    with ctx.workprec(PRECISION):
        least = _gap(head) if gap is None else rational(gap)
        errors = list(token_errors(head, tables))
        gain = largest_gain(head)
        radius = _radius(head, ideal, gain)
        found: list[HeadBound | None] = []
        if gain is not None and radius is not None:
            bound = _made(head, tables, errors, least, gain, _ONE, radius)
            found.append(bound if bound is None or not bound.allowed > 0 else _settled(head, errors, bound))
        if radius is None or (not shrinks(head) and max((b.tokens() for b in found if b), default=0) < _SHORT):
            sizes = [radius] if radius is None else [radius, None]
            found += [_growing(head, tables, errors, least, m, c, size) for m, c in growths(head) for size in sizes]
        return max((b for b in found if b is not None), key=lambda bound: bound.tokens(), default=None)


def _growing(
    head: Head, tables: HeadTables, errors: Sequence[TokenError], gap: arb | None, m: arb, c: arb, radius: arb | None
) -> HeadBound | None:
    """The bound with products of norm at most m c^n. If exact states may grow too, up to the length that it shows."""
    if radius is not None:
        return _made(head, tables, errors, gap, m, c, radius)
    start, added = frobenius([ball(x) for column in head.h0 for x in column]), largest([e.added for e in errors])
    found, low, high, rest = None, 0, _LONGEST - 1, 6
    while low < high and rest:
        # Doubled while it holds, then a few times halved.
        middle = min(max(1, 2 * low), high) if high == _LONGEST - 1 else (low + high + 1) // 2
        rest -= int(high < _LONGEST - 1)
        exponent = c.log() * middle
        size = m * exponent.exp() * (start + middle * added) if exponent < 200 else arb("inf")
        bound = _made(head, tables, errors, gap, m, c, size)
        if bound is not None and bound.holds(middle):
            low, found = middle, replace(bound, until=middle)
        else:
            high = middle - 1
    return found


def _made(
    head: Head, tables: HeadTables, errors: Sequence[TokenError], gap: arb | None, gain: arb, power: arb, radius: arb
) -> HeadBound | None:
    growth, loss = largest([e.growth for e in errors]), largest([e.loss for e in errors])
    h0 = [(v, i, ball(x)) for v, column in enumerate(head.h0) for i, x in enumerate(column)]
    start = frobenius([exact(tables.state[i, v]) - x for v, i, x in h0])
    # Between the factors of a token a state may be larger than before and after it.
    read = _reading(head, tables, radius, largest([e.reach for e in errors]), largest([e.added for e in errors]), gap)
    if read is None or not growth < 1:
        return None
    return HeadBound(growth, loss, gain, radius, start, *read, power)


def _settled(head: Head, errors: Sequence[TokenError], bound: HeadBound) -> HeadBound:
    """The bound with what steps that forget or shrink errors do to it, while the error is allowed."""
    limit = float(bound.allowed.abs_lower()) * (1 - 2.0**-50)
    sizes = [e.growth * (bound.radius + bound.allowed) + e.loss for e in errors]
    made = dict[int, float]()
    for error, size in zip(errors, sizes, strict=True):
        made[error.step] = max(made.get(error.step, 0.0), upper(size))
    found = settled(head, made, upper(bound.start), limit)
    if found is None and bound.start <= limit and _stays(head, errors, sizes, limit):
        found = limit
    lost = [size for step in forgetting(head) for error, size in zip(errors, sizes, strict=True) if error.step == step]
    between = bound.start.max(largest(lost)) if lost else None
    return replace(bound, ceiling=arb("inf") if found is None else arb(found), restart=between)


def _stays(head: Head, errors: Sequence[TokenError], sizes: Sequence[arb], limit: float) -> bool:
    """Whether no token takes an error within the limit out of it."""
    return all(
        exact_norm(head.maps[error.step].matrix) * limit + size <= limit
        for error, size in zip(errors, sizes, strict=True)
    )


def _radius(head: Head, ideal: IdealHead | None, gain: arb | None) -> arb | None:
    """ρ: the largest Frobenius norm of an exact state that the network meets."""
    moved = not shrinks(head) or any(f.b is not None for step in head.steps for f in step)
    if moved and ideal is not None:
        states = [sum(float((ideal.sizes[c] ** 2).sum()) for c in row) for row in ideal.labels]
        return arb(math.sqrt(max(states)) * ROOM)
    return largest_state(head, gain)


def _reading(
    head: Head, tables: HeadTables, radius: arb, reach: arb, added: arb, gap: arb | None
) -> tuple[arb, arb, arb] | None:
    """The readout's gain and own error, and the state error up to which the nearest codeword is right.

    None where numbers could overflow; with one code every error is allowed that keeps them finite.
    """
    u, n, storage = exact(tables.round_off), head.size, tables.storage
    length, drift = arb(0), arb(0)
    for i, key in enumerate(sorted(head.choose.seen)):
        wanted = [ball(x) for x in head.queries[head.choose.seen[key][1]]]
        stored = [exact(x) for x in tables.queries[i, :n]]
        length = length.max(frobenius(stored))
        drift = drift.max(frobenius([x - y for x, y in zip(stored, wanted, strict=True)]))
    read = radius * (length * gamma(n, u) + drift) + (n + 1) * rational(storage.arithmetic.tiny)
    query = length * (1 + gamma(n, u))
    book = [[ball(x) for x in row] for row in head.codebook or ()]
    moved = [
        frobenius([exact(x) - y for x, y in zip(tables.codebook[c], row, strict=True)]) for c, row in enumerate(book)
    ]
    code, size = largest([arb(0), *moved]), largest([arb(0), *map(frobenius, book)])
    limit = rational(storage.largest) / 16
    most = radius + 1 if gap is not None else ((limit / 4 - added) / reach - radius).min(arb(2) ** 40)
    if not (
        (2 * ((radius + most) * reach + added) <= limit)
        and (size + length * 2 * (radius + most)) ** 2 * head.width < _SQUARE
    ):
        return None
    if gap is None:
        return query, read, most if most > 0 else arb(-1)
    if not gap > 2**-60:
        return None
    half = gap / 2 * (1 - 2 * gamma(head.width + 4, u))
    found = (half - read - 2 * code) / query
    return query, read, found.min(most) if found > 0 else arb(-1)


def _gap(head: Head) -> arb | None:
    """A bound below the distance of codewords with different codes; None if there is one code."""
    book = head.codebook or {}
    floats = np.array([[float(x) for x in row] for row in book]).reshape(len(book), head.width)
    found = margin(list(book), floats, np.array(list(book.values()), dtype=np.int32), 1.0)
    return None if found is None else rational(found.bound)
