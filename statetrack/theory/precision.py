"""Linear recurrences in a finite datatype: cast, three semantics, and what cast powers of a matrix become.

*Exact*: H_k = A(x_k) H_(k-1) + B(x_k). *Step*: the same with a cast after every step, as a kernel does. *Unrolled*,
the model of Grazzi et al.: H_k = cast(Σ_i cast(A(x_k)...A(x_(i+1)) B(x_i)) + cast(A(x_k)...A(x_1) H_0)), with exact
products and an exact sum. Layers read the decoded outputs of the layer below; a decoder sees state and input only.

`evcast` (Lemma 1). Along one parity of q each entry of M^q W is f(t) = Σ c_j C(t, m_j) l_j^(t - m_j) with bases
l = λ² > 0. By Rolle, f - y is zero or has finitely many zeros for each breakpoint y, so every comparison with a
breakpoint, and with them cast(f(t)), is eventually constant. A certificate for the leading term makes this effective:
from t0 on the other terms are together at most half of it and shrink relative to it.

Main definitions: `Datatype`, `Layer`, `unrolled`, `step`, `exact`, `run`, `spectral_class`, `roots`,
`evcast`, `Tail`.

Main results: GRAZZI-eq-4, GRAZZI-lemma-1.

References: Grazzi et al. 2025, Eq. 4, Lemma 1; Berlekamp-Massey; Sturm.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, cast

from flint import acb, arb, arb_mat, ctx, fmpq, fmpq_mat, fmpq_poly

from statetrack.errors import BudgetExceeded, InvalidInput, StatetrackError

Token = Hashable
State = tuple[Fraction, ...]  # entries of H, row by row
Rows = Sequence[Sequence[Fraction | int]]
Places = tuple[int, ...]  # the same as indices into Datatype.values
Semantics = Literal["exact", "unrolled", "step"]
SpectralClass = Literal["nonneg", "real", "nonreal"]


class NotReal(StatetrackError):
    """An entry of M^q W sees an eigenvalue that is not real; `polynomial` has the squares of those seen as roots."""

    def __init__(self, polynomial: fmpq_poly) -> None:
        self.polynomial = polynomial
        super().__init__(
            f"powers of a matrix see eigenvalues that are not real: their squares are roots of {polynomial}"
        )


@dataclass(frozen=True)
class Datatype:
    """Finitely many numbers in ascending order, and Eq. 4's cast to the nearest: ties go down, no overflow.

    >>> Datatype.of(-1, 0, 1).cast(Fraction(1, 2)), Datatype.of(-1, 0, 1).cast(Fraction(-1, 2))
    (Fraction(0, 1), Fraction(-1, 1))
    """

    values: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if not self.values or list(self.values) != sorted(set(self.values)):
            raise InvalidInput(f"datatype {self.values}: give at least one number, distinct and ascending")

    @classmethod
    def of(cls, *values: Fraction | int) -> Datatype:
        """The datatype of these numbers in any order."""
        return cls(tuple(sorted({Fraction(x) for x in values})))

    @cached_property
    def denominator(self) -> int:
        """A common denominator of the values."""
        return math.lcm(*(x.denominator for x in self.values))

    @cached_property
    def units(self) -> tuple[int, ...]:
        """The values times `denominator`."""
        return tuple(int(x * self.denominator) for x in self.values)

    @cached_property
    def breakpoints(self) -> tuple[fmpq, ...]:
        """The midpoints of neighbours: the cell of values[i] is (breakpoints[i - 1], breakpoints[i]]."""
        return tuple(rational((x + y) / 2) for x, y in pairwise(self.values))

    def place(self, x: fmpq) -> int:
        """The index of cast(x)."""
        return bisect_left(self.breakpoints, x)

    def places(self, entries: fmpq_mat) -> Places:
        """The indices of the casts of all entries, row by row."""
        return tuple(self.place(x) for x in entries.entries())

    def cast(self, x: Fraction | int) -> Fraction:
        """The nearest value, the smaller of two."""
        return self.values[self.place(rational(x))]

    def state(self, places: Places) -> State:
        """The values at these indices."""
        return tuple(self.values[i] for i in places)


@dataclass(frozen=True, eq=False)
class Layer:
    """H_k = A(x_k) H_(k-1) + B(x_k) with output decode(H_k, x_k); A(x) is n × n, B(x) and `start` n × d over Q."""

    transition: Callable[[Token], fmpq_mat]
    addition: Callable[[Token], fmpq_mat]
    start: fmpq_mat
    decode: Callable[[State, Token], Token]

    @classmethod
    def constant(cls, a: Rows, b: Rows, start: Rows, decode: Callable[[State, Token], Token]) -> Layer:
        """A layer that treats all inputs alike."""
        am, bm = matrix(a), matrix(b)
        return cls(lambda _: am, lambda _: bm, matrix(start), decode)

    @classmethod
    def table(
        cls, a: Mapping[Any, Rows], b: Mapping[Any, Rows], start: Rows, decode: Callable[[State, Token], Token]
    ) -> Layer:
        """A layer from its matrices for each input."""
        am, bm = {x: matrix(rows) for x, rows in a.items()}, {x: matrix(rows) for x, rows in b.items()}
        return cls(am.__getitem__, bm.__getitem__, matrix(start), decode)


def rational(x: Fraction | int) -> fmpq:
    """A fraction as flint's rational."""
    return fmpq(x.numerator, x.denominator)


def matrix(rows: Rows) -> fmpq_mat:
    """A rational matrix from its rows."""
    return fmpq_mat(len(rows), len(rows[0]), [rational(x) for row in rows for x in row])


def eye(n: int) -> fmpq_mat:
    """The identity."""
    return diagonal([1] * n)


def diagonal(entries: Sequence[Fraction | int]) -> fmpq_mat:
    """A diagonal matrix."""
    return matrix([[x if i == j else 0 for j in range(len(entries))] for i, x in enumerate(entries)])


def householder(beta: Fraction, key: Sequence[Fraction | int]) -> fmpq_mat:
    """I - β v vᵀ / vᵀv; the identity for v = 0."""
    n, size = len(key), sum(x * x for x in key)
    if not size:
        return eye(n)
    return matrix([[int(i == j) - beta * key[i] * key[j] / size for j in range(n)] for i in range(n)])


def unrolled(layer: Layer, word: Iterable[Token], datatype: Datatype) -> tuple[State, ...]:
    """The states after each symbol by the definition: exact products, every summand cast, the exact sum cast."""
    terms, states = [layer.start], list[State]()
    for x in word:
        a = layer.transition(x)
        terms = [a * term for term in terms] + [layer.addition(x)]
        summands = [[datatype.units[i] for i in datatype.places(term)] for term in terms]
        totals = [sum(column) for column in zip(*summands, strict=True)]
        states.append(datatype.state(tuple(datatype.place(fmpq(n, datatype.denominator)) for n in totals)))
    return tuple(states)


def step(layer: Layer, word: Iterable[Token], datatype: Datatype, start: State | None = None) -> tuple[State, ...]:
    """The states after each symbol with a cast after every step; H_0 itself is not cast."""
    n, d = layer.start.nrows(), layer.start.ncols()
    now, states = layer.start if start is None else fmpq_mat(n, d, [rational(x) for x in start]), list[State]()
    for x in word:
        states.append(datatype.state(datatype.places(layer.transition(x) * now + layer.addition(x))))
        now = fmpq_mat(n, d, [rational(y) for y in states[-1]])
    return tuple(states)


def exact(layer: Layer, word: Iterable[Token]) -> tuple[State, ...]:
    """The states after each symbol without any rounding."""
    now, states = layer.start, list[State]()
    for x in word:
        now = layer.transition(x) * now + layer.addition(x)
        states.append(tuple(Fraction(int(y.p), int(y.q)) for y in now.entries()))
    return tuple(states)


def run(
    layers: Sequence[Layer], word: Iterable[Token], datatype: Datatype, semantics: Semantics = "unrolled"
) -> tuple[Token, ...]:
    """The outputs of the last layer after each symbol."""
    inputs = tuple(word)
    for layer in layers:
        if semantics == "exact":
            states = exact(layer, inputs)
        else:
            states = (unrolled if semantics == "unrolled" else step)(layer, inputs, datatype)
        inputs = tuple(layer.decode(h, x) for h, x in zip(states, inputs, strict=True))
    return inputs


def spectral_class(a: fmpq_mat) -> SpectralClass:
    """Whether all eigenvalues are non-negative, all real, or not: exactly, by Sturm's theorem and Descartes' rule."""
    p = a.charpoly()
    if not is_real_rooted(p):
        return "nonreal"
    return "nonneg" if _alternates(p) else "real"


def is_real_rooted(p: fmpq_poly) -> bool:
    """Whether all complex roots of a polynomial over Q are real, by counting real roots of its squarefree part."""
    p = p / p.gcd(p.derivative()) if p.degree() > 0 else p
    chain = [p, p.derivative()]
    while chain[-1].degree() > 0:
        chain.append(-(chain[-2] % chain[-1]))
    signs = [(q.leading_coefficient() > 0, q.degree() % 2 == 1) for q in chain if q.degree() >= 0]
    right = sum(s != t for (s, _), (t, _) in pairwise(signs))
    left = sum((s != a) != (t != b) for (s, a), (t, b) in pairwise(signs))
    return left - right == max(p.degree(), 0)


def _alternates(p: fmpq_poly) -> bool:
    """Whether no coefficient of a monic polynomial has the wrong sign for roots that are all non-negative."""
    n = p.degree()
    return all((c >= 0) if (n - i) % 2 == 0 else (c <= 0) for i, c in enumerate(p.coeffs()))


def roots(p: fmpq_poly) -> list[tuple[acb, int]]:
    """The complex roots in balls of the working precision, apart from each other, with their multiplicities."""
    # The stubs of python-flint give the wrong type here.
    return cast("list[tuple[acb, int]]", p.numer().complex_roots()) if p.degree() > 0 else []


def without_one(p: fmpq_poly) -> fmpq_poly:
    """The polynomial divided by x - 1 as often as possible."""
    while p(fmpq(1)) == 0:
        p = p / fmpq_poly([-1, 1])
    return p


def minimal_polynomial(terms: Sequence[fmpq]) -> fmpq_poly:
    """The least monic P with Σ_j P_j b_(t+j) = 0 along the given terms (Berlekamp-Massey; 2·degree terms fix it)."""
    c, b, length, gap, last = [fmpq(1)], [fmpq(1)], 0, 1, fmpq(1)
    for n, value in enumerate(terms):
        delta = value + sum((c[i] * terms[n - i] for i in range(1, min(length, len(c) - 1) + 1)), fmpq(0))
        if delta == 0:
            gap += 1
            continue
        old, scale = c, delta / last
        c = c + [fmpq(0)] * (len(b) + gap - len(c))
        for i, x in enumerate(b):
            c[i + gap] -= scale * x
        if 2 * length <= n:
            length, b, last, gap = n + 1 - length, old, delta, 1
        else:
            gap += 1
    c = (c + [fmpq(0)] * (length + 1 - len(c)))[: length + 1]
    return fmpq_poly(c[::-1])


@dataclass(frozen=True)
class Tail:
    """cast(M^q W) for all q >= 0, as indices: `transient` for small q, then `values` by the parity of q."""

    transient: tuple[Places, ...]
    values: tuple[Places, Places]

    def at(self, q: int) -> Places:
        """The cast of M^q W."""
        return self.transient[q] if q < len(self.transient) else self.values[q % 2]

    @property
    def threshold(self) -> int:
        """The least q0 from which only the parity matters."""
        return len(self.transient)


def evcast(m: fmpq_mat, w: fmpq_mat, datatype: Datatype, *, limit: int = 4000) -> Tail:
    """cast(M^q W) for every q: explicit up to the least threshold, one value for each parity after it.

    Raises NotReal if an entry sees an eigenvalue that is not real; BudgetExceeded if the proof for an entry needs more
    than about `limit` powers.
    """
    n, powers = m.nrows(), [w]
    while len(powers) < 5 * n + 6:
        powers.append(m * powers[-1])
    rows = [power.entries() for power in powers]
    bound, values = 0, list[Places]()
    for parity in (0, 1):
        first = n + (n + parity) % 2
        places: list[int] = []
        for entry in range(n * w.ncols()):
            terms = [rows[first + 2 * t][entry] for t in range(2 * n + 2)]
            place, t0 = eventual_place(terms, datatype, limit=limit)
            bound = max(bound, first + 2 * t0)
            places.append(place)
        values.append(tuple(places))
    while len(powers) <= bound:
        powers.append(m * powers[-1])
    casts = [datatype.places(power) for power in powers[:bound]]
    while casts and casts[-1] == values[(len(casts) - 1) % 2]:
        casts.pop()
    return Tail(tuple(casts), (values[0], values[1]))


def eventual_place(terms: Sequence[fmpq], datatype: Datatype, *, limit: int = 4000) -> tuple[int, int]:
    """The index of cast(b_t) for all t from some t0 on, and such a t0, if the characteristic roots are positive.

    `terms` are at least 2N of them for a recurrence of order N. Raises NotReal for other roots.
    """
    p = minimal_polynomial(terms)
    if p.degree() == 0 or len(datatype.values) == 1:
        return datatype.place(fmpq(0)), 0
    if not (is_real_rooted(p) and _alternates(p) and p[0] != 0):
        raise NotReal(p)
    limit_value, r = fmpq(0), p
    if p(fmpq(1)) == 0:
        q = p / fmpq_poly([-1, 1])
        # All roots of q are below 1 iff those of q(1 - x) are positive.
        turned = q(fmpq_poly([1, -1]))
        if q(fmpq(1)) != 0 and _alternates(turned / turned.leading_coefficient()):
            limit_value = sum((c * b for c, b in zip(q.coeffs(), terms, strict=False)), fmpq(0)) / q(fmpq(1))
            r = q
    rest = [b - limit_value for b in terms]
    if r.degree() == 0:
        return datatype.place(limit_value), 0
    sign, grows, t0 = _leading_term(r, rest, limit_value, datatype.breakpoints, limit)
    if grows:
        return (len(datatype.breakpoints) if sign > 0 else 0), t0
    beside = limit_value in datatype.breakpoints and sign > 0
    return datatype.place(limit_value) + beside, t0


@dataclass(frozen=True)
class _Expansion:
    """r_t = Σ_j c_j C(t, m_j) l_j^(t - m_j) in balls, the leading term first; root[j] numbers the distinct l."""

    c: tuple[arb, ...]
    base: tuple[arb, ...]
    m: tuple[int, ...]
    root: tuple[int, ...]

    def size(self, j: int, t: int) -> arb:
        """|c_j| C(t, m_j) l_j^(t - m_j)."""
        return abs(self.c[j]) * math.comb(t, self.m[j]) * self.base[j] ** (t - self.m[j])

    def dominates(self, t: int) -> bool:
        """From t on the other terms shrink relative to the first, and are together at most half of it."""
        m1, l1 = self.m[0], self.base[0]
        for j in range(1, len(self.c)):
            ratio = arb(t + 1 - m1) / (t + 1 - self.m[j])
            if self.root[j] != self.root[0] and not ratio * self.base[j] / l1 <= 1:
                return False
        return bool(self.total(t, 1) <= self.size(0, t) / 2)

    def falls(self, t: int, terms: int) -> bool:
        """From t on each of the first terms falls in size."""
        return all(arb(t + 1) / (t + 1 - self.m[j]) * self.base[j] < 1 for j in range(terms))

    def total(self, t: int, start: int = 0) -> arb:
        """The sum of the sizes from term `start` on."""
        return sum((self.size(j, t) for j in range(start, len(self.c))), arb(0))


def _leading_term(
    p: fmpq_poly, terms: Sequence[fmpq], limit_value: fmpq, breakpoints: Sequence[fmpq], limit: int
) -> tuple[int, bool, int]:
    """Sign of the leading coefficient, whether the term grows, and a t0 from which the cast is settled."""
    for bits in (128, 512, 2048):
        with ctx.workprec(bits):
            found = _expand(p, terms)
            if found is None:
                continue
            sign = 1 if found.c[0] > 0 else -1
            grows = bool(found.base[0] > 1 or (found.base[0] == 1 and found.m[0] > 0))
            t0 = _first(_settled(found, sign, grows, limit_value, breakpoints), max(found.m), limit)
            if t0 is not None:
                return sign, grows, t0
    raise BudgetExceeded("powers for the proof of one entry", limit, "limit")


def _settled(
    found: _Expansion, sign: int, grows: bool, limit_value: fmpq, breakpoints: Sequence[fmpq]
) -> Callable[[int], bool]:
    """Whether the cast is settled from t on: beyond all breakpoints, or nearer to the limit than the next one.

    The side on which the sequence lies matters only if the limit is a breakpoint itself.
    """
    if grows:
        last = arb(breakpoints[-1] if sign > 0 else -breakpoints[0])
        return lambda t: found.dominates(t) and bool(found.size(0, t) / 2 > last)
    if limit_value not in breakpoints:
        near = arb(min(abs(y - limit_value) for y in breakpoints))
        return lambda t: found.falls(t, len(found.c)) and bool(found.total(t) < near)
    side = [abs(y - limit_value) for y in breakpoints if sign * (y - limit_value) > 0]
    gap = arb(min(side)) if side else arb("inf")
    return lambda t: found.dominates(t) and found.falls(t, 1) and bool(found.size(0, t) * 3 / 2 < gap)


def _first(settled: Callable[[int], bool], low: int, limit: int) -> int | None:
    """The least t >= low with the property, which stays true once it is; None beyond the limit."""
    if settled(low):
        return low
    below, reach = low, 1
    while not settled(low + reach):
        below, reach = low + reach, 2 * reach
        if reach > limit:
            return None
    above = low + reach
    while above - below > 1:
        middle = (above + below) // 2
        below, above = (below, middle) if settled(middle) else (middle, above)
    return above


def _expand(p: fmpq_poly, terms: Sequence[fmpq]) -> _Expansion | None:
    """Coefficients by the confluent Vandermonde system; None if the working precision leaves something open."""
    other = without_one(p)
    ones, found = p.degree() - other.degree(), [(root.real, times) for root, times in roots(other)]
    if any(root.contains(1) for root, _ in found):
        return None
    found = sorted(found + ([(arb(1), ones)] if ones else []), key=lambda pair: -float(pair[0].mid()))
    if any(not x > y for (x, _), (y, _) in pairwise(found)):
        return None
    columns = [(i, root, m) for i, (root, times) in enumerate(found) for m in reversed(range(times))]
    n = len(columns)
    system = [math.comb(t, m) * root ** (t - m) if t >= m else arb(0) for t in range(n) for _, root, m in columns]
    try:
        solved = arb_mat(n, n, system).solve(arb_mat(n, 1, [arb(x) for x in terms[:n]]))
    except ZeroDivisionError:
        return None
    c = tuple(solved[j, 0] for j in range(n))
    if c[0].contains(0):
        return None
    return _Expansion(
        c, tuple(r for _, r, _ in columns), tuple(m for _, _, m in columns), tuple(i for i, _, _ in columns)
    )
