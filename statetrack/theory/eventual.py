"""What a finite-precision stack does on a long run of one letter, exactly, and words on which it must fail.

A layer (unrolled semantics) reads u c c c ...: with M = A(c_p)...A(c_1) (rotated to the phase), every summand of the
state is cast(M^q V), V one of finitely many matrices; by Lemma 1 each depends on the parity of q only, for large q, if
the eigenvalues that V sees are real. Two more rounds of c add a constant matrix to the sum under the cast; its entries
are 0 (the state keeps its value), positive or negative (it ends at the largest or least number). So the state has a
period that divides 2p, and p if no eigenvalue is negative; the outputs are the next layer's input. By induction on the
layers: Theorem 1 (period 1, so parity fails), Theorem 2 (a period that divides 2^L, so counting needs m | 2^L).
The prefix is not forgotten: its summands stay cast one by one, and no run restarts from a cast state.

Main definitions: `Periodic`, `LayerRun`, `eventual`, `fail_parity`, `fail_mod`, `limit_place`, `step_period`,
`Witness`, `Agrees`, `NotApplicable`, `Unknown`.

Main results: GRAZZI-thm-1, GRAZZI-thm-2, OURS-thm-2-sharp, OURS-lemma-1-plus.

References: Grazzi et al. 2025, App. B.1, B.2.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from flint import fmpq, fmpq_mat, fmpq_poly

from statetrack.errors import BudgetExceeded, InvalidInput

from .precision import (
    Datatype,
    Layer,
    NotReal,
    Places,
    SpectralClass,
    State,
    Tail,
    Token,
    evcast,
    eye,
    run,
    spectral_class,
    step,
    unrolled,
    without_one,
)


@dataclass(frozen=True)
class Periodic:
    """The infinite word prefix cycle cycle ..."""

    prefix: tuple[Token, ...]
    cycle: tuple[Token, ...]

    def __post_init__(self) -> None:
        if not self.cycle:
            raise InvalidInput("periodic word: its cycle is empty; give at least one symbol")

    def at(self, k: int) -> Token:
        """The symbol at position k >= 1."""
        here = k - 1 - len(self.prefix)
        return self.prefix[k - 1] if here < 0 else self.cycle[here % len(self.cycle)]

    def take(self, length: int) -> tuple[Token, ...]:
        """The first symbols."""
        return tuple(self.at(k) for k in range(1, length + 1))

    def padded(self, length: int) -> Periodic:
        """The same word with a cycle of this length, a multiple of the present one."""
        times, rest = divmod(length, len(self.cycle))
        if rest or not times:
            raise InvalidInput(f"cycle of length {len(self.cycle)} cannot be padded to {length}: give a multiple")
        return Periodic(self.prefix, self.cycle * times)


@dataclass(frozen=True)
class LayerRun:
    """One layer on a periodic word: its outputs, with least prefix and cycle, and the evidence.

    States repeat from position `kbar_state` on, outputs from `kbar_out` on; `thresholds` are those of the cast powers,
    `charpoly` and `spectrum` are of the product of the transitions along the input's cycle.
    """

    outputs: Periodic
    kbar_state: int
    kbar_out: int
    thresholds: tuple[int, ...]
    charpoly: fmpq_poly
    spectrum: SpectralClass


@dataclass(frozen=True)
class Witness:
    """A word on which the stack is wrong: `got` is its last output by the definition, `expected` the true label."""

    word: tuple[Token, ...]
    got: Token
    expected: bool
    runs: tuple[LayerRun, ...]


@dataclass(frozen=True)
class Agrees:
    """The stack is right on all words of the run; its outputs have this period."""

    period: int
    runs: tuple[LayerRun, ...]


@dataclass(frozen=True)
class NotApplicable:
    """The hypothesis fails at a layer (from 1): the product along its input's cycle, and what the states see of it."""

    layer: int
    charpoly: fmpq_poly
    spectrum: SpectralClass
    visible: fmpq_poly | None = None


@dataclass(frozen=True)
class Unknown:
    """Nothing was decided, for this reason."""

    reason: str


Found = Witness | Agrees | NotApplicable | Unknown


def eventual(layer: Layer, word: Periodic, datatype: Datatype, *, limit: int = 4000) -> LayerRun:
    """All outputs of a layer on a periodic word, unrolled semantics.

    Raises NotReal if a summand sees an eigenvalue of the cycle's product that is not real, and BudgetExceeded.
    """
    p, length = len(word.cycle), len(word.prefix)
    a = [layer.transition(x) for x in word.cycle]
    b = [layer.addition(x) for x in word.cycle]
    before = _prefix_summands(layer, word.prefix)
    phases = [_Phase.of(a, b, before, s, datatype, limit) for s in range(p)]
    rounds = max(phase.settled for phase in phases) + 2
    found = [datatype.state(phase.places(q, datatype)) for q in range(rounds + 2) for phase in phases]
    # The phases start at position `length` (0 symbols of the cycle read); position 0 is no output.
    early = unrolled(layer, word.prefix[:-1], datatype) if length else ()
    states = list(early) + (found if length else found[1:])
    inputs = word.take(len(states))
    outputs = [layer.decode(h, x) for h, x in zip(states, inputs, strict=True)]
    said, held = least(outputs, 2 * p), least(states, 2 * p)
    thresholds = tuple(phase.threshold for phase in phases)
    product = _product(a)
    return LayerRun(
        said, len(held.prefix) + 1, len(said.prefix) + 1, thresholds, product.charpoly(), spectral_class(product)
    )


def least(items: Sequence[Hashable], period: int) -> Periodic:
    """The word that repeats the last `period` items forever, with least cycle and prefix."""
    tail = tuple(items[-period:])
    size = next(n for n in range(1, period + 1) if period % n == 0 and tail == tail[:n] * (period // n))
    prefix, cycle = list(items[:-period]), list(tail[:size])
    while prefix and prefix[-1] == cycle[-1]:
        cycle = [prefix.pop(), *cycle[:-1]]
    return Periodic(tuple(prefix), tuple(cycle))


def fail_parity(
    layers: Sequence[Layer],
    datatype: Datatype,
    *,
    letter: Token = 1,
    start: tuple[Token, ...] = (),
    limit: int = 4000,
) -> Found:
    """Theorem 1: a word start·letter^k on which the stack's last output is not [k is odd].

    Applicable if each layer, on its eventually constant input a, sees no eigenvalue of A(a) outside [0, ∞), or becomes
    constant all the same. `start` holds symbols that are not counted.
    """
    runs, word = list[LayerRun](), Periodic(start, (letter,))
    for number, layer in enumerate(layers, 1):
        made = _layer(number, layer, word, datatype, limit)
        if not isinstance(made, LayerRun):
            return made
        if len(made.outputs.cycle) > 1:
            return NotApplicable(number, made.charpoly, made.spectrum)
        runs.append(made)
        word = made.outputs
    first = max(1, len(word.prefix) + 1 - len(start))
    return _wrong(layers, datatype, Periodic(start, (letter,)), word, runs, range(first, first + 2), 2, 1)


def fail_mod(
    layers: Sequence[Layer],
    datatype: Datatype,
    modulus: int,
    *,
    letter: Token = 1,
    start: tuple[Token, ...] = (),
    limit: int = 4000,
) -> Found:
    """Theorem 2: a word start·letter^k on which the stack's last output is not [modulus divides k].

    Applicable if at layer i (from 1) the product along its input's cycle, padded to length 2^(i-1), shows real
    eigenvalues only. Then the outputs have a period that divides 2^L, so `Agrees` needs a modulus that divides 2^L.
    """
    if modulus < 1:
        raise InvalidInput(f"modulus {modulus}: give a positive integer")
    runs, word = list[LayerRun](), Periodic(start, (letter,))
    for number, layer in enumerate(layers, 1):
        made = _layer(number, layer, word.padded(2 ** (number - 1)), datatype, limit)
        if not isinstance(made, LayerRun):
            return made
        runs.append(made)
        word = made.outputs
    period = len(word.cycle)
    first = max(1, len(word.prefix) + 1 - len(start))
    # Two periodic sequences that agree on this window agree for ever (Fine and Wilf).
    window = modulus + period - math.gcd(modulus, period)
    counts = range(first, first + window) if period % modulus else range(1, first + period)
    return _wrong(layers, datatype, Periodic(start, (letter,)), word, runs, counts, modulus, 0)


def limit_place(m: fmpq_mat, w: fmpq_mat, datatype: Datatype, *, limit: int = 400) -> tuple[Places, int] | None:
    """Lemma 1+: the cast of lim M^q W and a q0 from which cast(M^q W) equals it; complex eigenvalues are allowed.

    With charpoly (x - 1)^e v and 1 semisimple, the limit is Π = v(M)/v(1) and M^q - Π = (M - Π)^q. If the power q0 has
    row sums at most 1 and the powers q0, ..., 2·q0 - 1 move W by less than the distance of ΠW to the next midpoint, so
    do all later ones. None if 1 is not semisimple, an entry of ΠW is a midpoint, or `limit` powers do not suffice.
    """
    v = without_one(m.charpoly())
    projection, one = m - m, eye(m.nrows())
    for c in reversed(v.coeffs()):
        projection = projection * m + one * (c / v(fmpq(1)))
    goal, rest = projection * w, m - projection
    gap = min((abs(x - y) for x in goal.entries() for y in datatype.breakpoints), default=fmpq(1))
    if m * projection != projection or gap == 0:
        return None
    power, close = rest, list[bool]()
    while len(close) % 2 == 0 or not all(close[len(close) // 2 :]):
        if len(close) >= limit:
            return None
        close.append(bool(_row_sum(power) <= 1 and _row_sum(power) * _row_sum(w) < gap))
        power = power * rest
    return datatype.places(goal), len(close) // 2 + 1


def step_period(layers: Sequence[Layer], word: Sequence[Token], datatype: Datatype, states: Sequence[State]) -> int:
    """The eventual period, in repetitions of a word, of the states of a stack with a cast after every step."""
    now, seen = tuple(states), dict[tuple[State, ...], int]()
    while now not in seen:
        seen[now] = len(seen)
        inputs, later = tuple(word), list[State]()
        for layer, state in zip(layers, now, strict=True):
            path = step(layer, inputs, datatype, state)
            inputs = tuple(layer.decode(h, x) for h, x in zip(path, inputs, strict=True))
            later.append(path[-1])
        now = tuple(later)
    return len(seen) - seen[now]


def _row_sum(a: fmpq_mat) -> fmpq:
    """The largest sum of absolute values in a row: a norm that is submultiplicative."""
    return max(sum((abs(x) for x in row), fmpq(0)) for row in a.tolist())


def _layer(
    number: int, layer: Layer, word: Periodic, datatype: Datatype, limit: int
) -> LayerRun | NotApplicable | Unknown:
    try:
        return eventual(layer, word, datatype, limit=limit)
    except NotReal as error:
        product = _product([layer.transition(x) for x in word.cycle])
        return NotApplicable(number, product.charpoly(), spectral_class(product), error.polynomial)
    except BudgetExceeded as error:
        return Unknown(f"layer {number}: {error}")


def _wrong(
    layers: Sequence[Layer],
    datatype: Datatype,
    word: Periodic,
    outputs: Periodic,
    runs: Sequence[LayerRun],
    counts: Iterable[int],
    modulus: int,
    residue: int,
) -> Witness | Agrees:
    """The first count with an output that is not [count = residue mod modulus], re-evaluated by the definition."""
    for k in counts:
        expected = k % modulus == residue % modulus
        if outputs.at(len(word.prefix) + k) != expected:
            failing = word.take(len(word.prefix) + k)
            got = run(layers, failing, datatype, "unrolled")[-1]
            assert got == outputs.at(len(failing))
            return Witness(failing, got, expected, tuple(runs))
    return Agrees(len(outputs.cycle), tuple(runs))


@dataclass(frozen=True)
class _Phase:
    """The states after s symbols of the cycle beyond q rounds: tails of the prefix's and of the cycle's own summands.

    `after[rho]` is the tail of M^q' A...A B with rho factors A; it is summed over q' <= q if rho < s, else q' < q.
    """

    s: int
    before: tuple[Tail, ...]
    after: tuple[Tail, ...]
    units: tuple[int, ...]
    sums: tuple[list[tuple[int, ...]], ...]  # running sums of `after`, grown on demand
    settled: int
    threshold: int

    @classmethod
    def of(
        cls, a: list[fmpq_mat], b: list[fmpq_mat], summands: list[fmpq_mat], s: int, datatype: Datatype, limit: int
    ) -> _Phase:
        p = len(a)
        around = _product([a[(s + j) % p] for j in range(p)])
        lead = _product(a[:s]) if s else None
        before = tuple(evcast(around, v if lead is None else lead * v, datatype, limit=limit) for v in summands)
        starts: list[fmpq_mat] = []
        for rho in range(p):
            term = b[(s - 1 - rho) % p]
            for j in reversed(range(rho)):
                term = a[(s - 1 - j) % p] * term
            starts.append(term)
        after = tuple(evcast(around, v, datatype, limit=limit) for v in starts)
        threshold = max(tail.threshold for tail in before + after)
        bare = cls(s, before, after, datatype.units, tuple([] for _ in range(p)), 0, threshold)
        settled = bare.find_settled(datatype)
        return cls(s, before, after, datatype.units, bare.sums, settled, threshold)

    def total(self, q: int) -> tuple[int, ...]:
        """The sum under the outer cast after q rounds, in units of the datatype."""
        parts = [tuple(self.units[i] for i in tail.at(q)) for tail in self.before]
        for rho, tail in enumerate(self.after):
            last = q if rho < self.s else q - 1
            if last >= 0:
                parts.append(self._sum(rho, tail, last))
        return tuple(sum(column) for column in zip(*parts, strict=True))

    def places(self, q: int, datatype: Datatype) -> Places:
        """The state after q rounds."""
        return tuple(datatype.place(fmpq(n, datatype.denominator)) for n in self.total(q))

    def find_settled(self, datatype: Datatype) -> int:
        """A q from which the state depends on the parity of q only: solve arg + j·drift for the last crossing."""
        start = self.threshold + 1 + (self.threshold + 1) % 2
        drift = self.drift()
        if not datatype.breakpoints:
            return start
        high = int((datatype.breakpoints[-1] * datatype.denominator).floor()) + 1
        low = int((datatype.breakpoints[0] * datatype.denominator).floor())
        rounds = 0
        for q in (start, start + 1):
            for x, more in zip(self.total(q), drift, strict=True):
                away = high - x if more > 0 else x - low if more < 0 else 0
                rounds = max(rounds, -(-away // abs(more)) if away > 0 else 0)
        return start + 2 * rounds

    def drift(self) -> tuple[int, ...]:
        """What two more rounds add to the sum under the outer cast, for large q."""
        ends = [[self.units[i] for i in value] for tail in self.after for value in tail.values]
        return tuple(sum(column) for column in zip(*ends, strict=True))

    def _sum(self, rho: int, tail: Tail, last: int) -> tuple[int, ...]:
        sums = self.sums[rho]
        while len(sums) <= last:
            more = tuple(self.units[i] for i in tail.at(len(sums)))
            sums.append(tuple(x + y for x, y in zip(sums[-1], more, strict=True)) if sums else more)
        return sums[last]


def _prefix_summands(layer: Layer, prefix: Sequence[Token]) -> list[fmpq_mat]:
    """H_0 and each B of the prefix, moved to its end."""
    terms = [layer.start]
    for x in prefix:
        a = layer.transition(x)
        terms = [a * term for term in terms] + [layer.addition(x)]
    return terms


def _product(a: Sequence[fmpq_mat]) -> fmpq_mat:
    """The product with the newest factor leftmost."""
    total = a[0]
    for factor in a[1:]:
        total = factor * total
    return total
