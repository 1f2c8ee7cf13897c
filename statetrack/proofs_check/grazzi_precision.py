"""Claims about finite precision: the cast, Lemma 1, Theorems 1 and 2, Tables 1 and 2, and what extends them.

Semantics: `statetrack.theory.precision`. Random inputs: rational P J P^-1 with given eigenvalues, arbitrary decoders.

Main results: GRAZZI-eq-4, GRAZZI-lemma-1, GRAZZI-thm-1, GRAZZI-thm-2, GRAZZI-table-1-*, GRAZZI-table-2-*,
GRAZZI-log-space, OURS-thm-2-sharp, OURS-table-kda.

References: Grazzi et al. 2025 (Eq. 4, Lemma 1, Thms. 1-2, Prop. 1, Tables 1-2, App. B, E.4); Complex KDA, Table 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations
from random import Random
from typing import cast

from flint import arb, fmpq_mat, fmpq_poly

from statetrack.constructions.compiler import compile_source
from statetrack.theory.eventual import Agrees, NotApplicable, Unknown, Witness, fail_mod, fail_parity
from statetrack.theory.precision import (
    Datatype,
    Layer,
    Places,
    State,
    Token,
    diagonal,
    evcast,
    eye,
    householder,
    matrix,
    rational,
    run,
    spectral_class,
)

from .claim import Trial, claim

F = Fraction
NONNEG = (F(0), F(1), F(1, 2), F(1, 3), F(9, 10), F(3, 2))
REAL = (*NONNEG, F(-1), F(-1, 2), F(-9, 10), F(-2))
GRID = tuple(F(i, 4) for i in range(-9, 10))
DATATYPES = tuple(
    Datatype.of(*values)
    for values in (
        (-1, 1),
        (0, 1),
        (0, F(1, 2), 1),
        (-2, 0),
        range(-4, 5),
        range(-16, 17),
        GRID,
        (3,),
        (0, 1, F(7, 2), 8),
    )
)


def spread(r: Random, eigenvalues: Sequence[Fraction], n: int) -> fmpq_mat:
    """P J P^-1 with eigenvalues from a pool, random couplings above the diagonal, and a random unimodular P."""
    jordan = matrix(
        [
            [r.choice(eigenvalues) if i == j else r.choice((0, 0, 1, -1)) if j > i else 0 for j in range(n)]
            for i in range(n)
        ]
    )
    lower = matrix([[1 if i == j else r.choice((0, 1, -1)) if j < i else 0 for j in range(n)] for i in range(n)])
    upper = lower.transpose()
    p = lower * upper
    return p * jordan * p.inv()


def triangular(r: Random, eigenvalues: Sequence[Fraction], n: int) -> fmpq_mat:
    """An upper triangular matrix: all products of such have real eigenvalues."""
    return matrix(
        [
            [r.choice(eigenvalues) if i == j else r.choice((0, 1, -1)) if j > i else 0 for j in range(n)]
            for i in range(n)
        ]
    )


def column(r: Random, n: int) -> fmpq_mat:
    """A small random column."""
    return matrix([[r.choice((0, 1, -1, 2, F(1, 2)))] for _ in range(n)])


def stack(r: Random, draws: Sequence[Callable[[], fmpq_mat]]) -> tuple[Layer, ...]:
    """Layers with random additions, starts and decoders, transitions drawn for each input; the last says yes or no."""
    layers: list[Layer] = []
    for number, draw in enumerate(draws):
        a: dict[Token, fmpq_mat] = {x: draw() for x in (0, 1, 2)}
        b: dict[Token, fmpq_mat] = {x: column(r, a[0].nrows()) for x in a}
        answers = (0, 1, 2) if number < len(draws) - 1 else (False, True)
        layers.append(Layer(a.__getitem__, b.__getitem__, column(r, a[0].nrows()), Decoder(r, answers)))
    return tuple(layers)


class Decoder:
    """An arbitrary decoder: a random function of state and input, drawn where it is asked."""

    def __init__(self, r: Random, answers: Sequence[Token]) -> None:
        self._random, self._answers = r, answers
        self._seen: dict[tuple[State, Token], Token] = {}

    def __call__(self, h: State, x: Token) -> Token:
        """The answer, the same for the same question."""
        if (h, x) not in self._seen:
            self._seen[h, x] = self._random.choice(self._answers)
        return self._seen[h, x]


def refute(t: Trial, layers: Sequence[Layer], datatype: Datatype, modulus: int) -> None:
    """A wrong word for the stack, if short evaluated again by the definition; modulus 2 is parity and Theorem 1."""
    found = fail_parity(layers, datatype, limit=100) if modulus == 2 else fail_mod(layers, datatype, modulus, limit=100)
    if isinstance(found, Unknown):
        t.count("constant after more than 100 rounds only")
        return
    t.equal(f"counting modulo {modulus}, {len(layers)} layers", type(found).__name__, "Witness")
    if isinstance(found, Witness):
        t.equal("true label", found.expected, len(found.word) % modulus == int(modulus == 2))
        got = run(layers, found.word, datatype)[-1] if len(found.word) <= 100 else found.got
        t.equal("wrong", (got, got == found.expected), (found.got, False))


def within(a: fmpq_mat, low: int, high: int) -> bool:
    """Whether all eigenvalues are real and in [low, high], exactly."""
    one = eye(a.nrows())
    return spectral_class(a - one * low) == spectral_class(one * high - a) == "nonneg"


@claim(
    "GRAZZI-eq-4",
    "The cast by midpoints is the nearest number, the smaller one on ties; it is monotone, idempotent and saturates.",
    source="Grazzi Eq. 4",
    kinds="X",
    control={"tie": max},
    hypotheses=("the datatype is finite and not empty",),
    proves=True,
)
def eq_4(t: Trial, tie: Callable[[list[Fraction]], Fraction] = min) -> None:
    """All datatypes of at most 4 numbers of a grid, all points of a finer grid. (x - a <= b - x iff x <= (a + b)/2.)"""
    grid = [F(i, 2) for i in range(-3, t.amount(3, 5))]
    points = [F(i, 8) for i in range(-17, 22)]
    for size in range(1, 5):
        for values in combinations(grid, size):
            datatype = Datatype(values)
            casts = [datatype.cast(x) for x in points]
            nearest = [tie([z for z in values if abs(z - x) == min(abs(y - x) for y in values)]) for x in points]
            t.equal(f"nearest in {values}", casts, nearest)
            t.holds("monotone", casts == sorted(casts))
            t.equal("idempotent", [datatype.cast(z) for z in values], list(values))
            t.equal("saturates", (datatype.cast(-1000), datatype.cast(1000)), (values[0], values[-1]))


@claim(
    "GRAZZI-lemma-1",
    "Casts of an entry of M^q W that sees real eigenvalues only depend on the parity of q from some q0 on, and not "
    "even on that if the eigenvalues are not negative.",
    source="Grazzi Lemma 1, App. B.1",
    kinds="C P",
    control={"nonneg": (F(-2), F(-1))},
    hypotheses=("the datatype is finite", "the eigenvalues seen are real"),
    proves=True,
)
def lemma_1(t: Trial, nonneg: tuple[Fraction, ...] = NONNEG) -> None:
    """Proof in `statetrack.theory.precision`. Here q0 with its certificate against powers, and the least one."""
    for pool in (REAL, nonneg):
        for _ in range(t.amount(60, 1200)):
            n = t.random.choice((1, 2, 2, 3))
            m, w, datatype = spread(t.random, pool, n), column(t.random, n), t.random.choice(DATATYPES)
            tail = evcast(m, w, datatype, limit=20000)
            power, casts = w, list[Places]()
            for _ in range(tail.threshold + 24):
                casts.append(datatype.places(power))
                power = m * power
            t.equal("casts of powers", [tail.at(q) for q in range(len(casts))], casts)
            if tail.threshold:
                q = tail.threshold - 1
                t.holds("least threshold", casts[q] != tail.values[q % 2])
            if pool is not REAL:
                t.equal("one value", tail.values[0], tail.values[1])
    # Two entries that fall to a midpoint from above and from below.
    t.equal(
        "one-sided limits", evcast(diagonal([1, F(1, 4)]), matrix([[F(1, 2)], [1]]), DATATYPES[1]).values[0], (0, 0)
    )


@claim(
    "GRAZZI-thm-1",
    "A finite-precision stack whose transitions have no eigenvalue outside [0, ∞) does not recognise parity: its "
    "outputs on 1^k are eventually constant.",
    source="Grazzi Thm. 1, App. B.1",
    kinds="C P",
    control={"pool": (F(-1),)},
    hypotheses=(
        "unrolled semantics with one finite datatype",
        "eigenvalues at the eventual inputs of each layer in [0, ∞)",
    ),
    proves=True,
)
def thm_1(t: Trial, pool: tuple[Fraction, ...] = NONNEG) -> None:
    """Proof in `statetrack.theory.eventual`. Here: a wrong word for each random stack, evaluated by the definition."""
    r = t.random
    for _ in range(t.amount(30, 600)):
        datatype, n, depth = r.choice(DATATYPES), r.choice((1, 2, 3)), r.choice((1, 2, 3))
        layers = stack(r, [lambda n=n: spread(r, pool, n)] * depth)
        refute(t, layers, datatype, 2)
    for top in (15, t.amount(40, 200)):
        # The longest run: the decoder sees min(k, top).
        counter = Layer.constant([[1]], [[1]], [[0]], lambda h, _: h[0] % 2 == 1)
        found = fail_parity([counter], Datatype.of(*range(top + 1)))
        t.equal("first wrong word", isinstance(found, Witness) and len(found.word), top + 1)


@claim(
    "GRAZZI-thm-2",
    "A finite-precision stack does not recognise (1^m)*, m not a power of two, if products of 2^(i-1) transitions of "
    "layer i have real eigenvalues only.",
    source="Grazzi Thm. 2, App. B.2",
    kinds="C P",
    control={"rotation": True},
    hypotheses=(
        "unrolled semantics with one finite datatype",
        "the products are those along the inputs that occur on 1^k",
    ),
    proves=True,
)
def thm_2(t: Trial, rotation: bool = False) -> None:
    """Proof in `statetrack.theory.eventual`. Triangular stacks; and two layers of swaps, to which it does not apply."""
    r, third = t.random, matrix([[0, -1], [1, -1]])
    for _ in range(t.amount(25, 500)):
        n, depth = r.choice((1, 2, 3)), r.choice((1, 2, 3))
        layers = stack(r, [lambda n=n: third if rotation else triangular(r, REAL, n)] * depth)
        refute(t, layers, r.choice(DATATYPES), r.choice((3, 5, 6, 7, 12)))
    found = fail_mod(swaps(), Datatype.of(-1, 0, 1, 2, 3), 3)
    t.holds("swaps count modulo 3", isinstance(found, NotApplicable) and found.layer == 2, found)
    if isinstance(found, NotApplicable):
        t.equal("product of two swaps", found.charpoly, fmpq_poly([-1, 0, 0, 1]))


def swaps() -> tuple[Layer, ...]:
    """A sign, then three numbers whose swaps alternate: real eigenvalues, a pair product of order 3."""
    sign = Layer.constant([[-1]], [[0]], [[1]], lambda h, _: h[0])
    p, q = [[0, 1, 0], [1, 0, 0], [0, 0, 1]], [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    zero = [[0], [0], [0]]
    return sign, Layer.table({-1: p, 1: q}, {-1: zero, 1: zero}, [[1], [2], [3]], lambda h, _: h[0] == 1)


def counter(depth: int, used: int) -> tuple[Layer, ...]:
    """`depth` signs on inputs (), each flipped when all below are +1; says whether 2^used divides the length."""

    def layer(number: int) -> Layer:
        def decode(h: State, x: Token) -> Token:
            signs = (*cast("tuple[Fraction, ...]", x), h[0])
            return set(signs[:used]) <= {1} if number == depth else signs

        def flip(x: Token) -> fmpq_mat:
            return matrix([[-1 if set(cast("tuple[Fraction, ...]", x)) <= {1} else 1]])

        return Layer(flip, lambda _: matrix([[0]]), matrix([[1]]), decode)

    return tuple(layer(number) for number in range(1, depth + 1))


@claim(
    "OURS-thm-2-sharp",
    "With real products as in Theorem 2, L layers recognise (1^m)* if and only if m divides 2^L; gates ±1 do it.",
    source="sharpens Grazzi Thm. 2",
    kinds="C P",
    control={"more": 1},
    hypotheses=(
        "unrolled semantics with one finite datatype",
        "the products are those along the inputs that occur on 1^k",
    ),
    proves=True,
)
def thm_2_sharp(t: Trial, more: int = 0) -> None:
    """Only if: the outputs' period divides 2^L (`statetrack.theory.eventual`). If: sign i is (-1)^floor(k / 2^(i-1)).

    By induction: it flips when the signs below are all +1, that is, when 2^(i-1) divides k. All numbers are exact in D.
    """
    r = t.random
    for depth in range(1, t.amount(4, 6)):
        for used in range(depth + 1 + more):
            found = fail_mod(counter(depth, used), Datatype.of(-1, 0, 1), 2**used, letter=())
            t.holds(f"{depth} layers count modulo {2**used}", isinstance(found, Agrees), found)
        layers = stack(r, [lambda: triangular(r, REAL, 2)] * depth)
        for m in (2 ** (depth + 1), 3 * 2**depth, 2 ** (depth + 2)):
            refute(t, layers, DATATYPES[4], m)


@claim(
    "GRAZZI-log-space",
    "A product of non-zero gates over a stretch of time is the exponential of a difference of sums of log|g|, times -1 "
    "to a difference of counts of negative gates; zero gates need a count of their own.",
    source="Grazzi App. E.4",
    kinds="E N",
    control={"signs": False},
    proves=True,
)
def log_space(t: Trial, signs: bool = True) -> None:
    """x -> (log|x|, sign) is a homomorphism. In balls, and in doubles with relative error below 1e-12 T."""
    r = t.random
    for _ in range(t.amount(15, 300)):
        gates = [F(r.randint(-12, 12), 12) for _ in range(r.randint(1, 40))]
        logs, negative, zeros = [arb(0)], [0], [0]
        floats = [0.0]
        for g in gates:
            logs.append(logs[-1] + (arb(rational(abs(g))).log() if g else 0))
            floats.append(floats[-1] + (math.log(abs(g)) if g else 0.0))
            negative.append(negative[-1] + (signs and g < 0))
            zeros.append(zeros[-1] + (g == 0))
        for i, j in combinations(range(len(gates) + 1), 2):
            true = math.prod(gates[i:j])
            sign = (-1) ** (negative[j] - negative[i])
            if zeros[j] > zeros[i]:
                t.equal("a zero gate", true, 0)
                continue
            t.holds("sign", sign * true > 0, (gates[i:j], sign))
            t.holds("in balls", ((logs[j] - logs[i]).exp() * sign).contains(arb(rational(true))))
            t.holds("in doubles", abs(math.exp(floats[j] - floats[i]) * sign / float(true) - 1) < 1e-12 * len(gates))


def mamba_gate(z: arb, w: arb) -> arb:
    """exp(-softplus(z)·exp(w))."""
    return (-(1 + z.exp()).log() * w.exp()).exp()


def sigmoid(z: arb, _: arb) -> arb:
    """1/(1 + exp(-z))."""
    return 1 / (1 + (-z).exp())


def gated(r: Random, low: int) -> fmpq_mat:
    """Mamba, GLA: a diagonal of gates inside (low, 1)."""
    return diagonal([low + (1 - low) * F(r.randint(1, 11), 12) for _ in range(2)])


def deltanet(r: Random, low: int) -> fmpq_mat:
    """DeltaNet: β inside (0, 1 - low), a key of length 1 or the zero key."""
    return householder((1 - low) * F(r.randint(1, 11), 12), [r.randint(-2, 2) for _ in range(2)])


def spectrum(t: Trial, draw: Callable[[], fmpq_mat], low: int) -> None:
    """Random transitions of a family have their eigenvalues in [low, 1]."""
    for _ in range(t.amount(40, 400)):
        t.holds(f"eigenvalues in [{low}, 1]", within(draw(), low, 1))


def fails(t: Trial, draw: Callable[[], fmpq_mat], moduli: Sequence[int], depths: Sequence[int]) -> None:
    """Random stacks of a family each get a wrong word; modulus 2 stands for parity and Theorem 1."""
    for _ in range(t.amount(15, 300)):
        layers, datatype = stack(t.random, [draw] * t.random.choice(depths)), t.random.choice(DATATYPES)
        refute(t, layers, datatype, t.random.choice(moduli))


def built(t: Trial, source: str, goal: str, layers: int) -> None:
    """An exact construction with a certificate for words of every length."""
    made = compile_source(source, goal)
    t.certificate(made.certificate.data)
    t.equal(f"layers for {source} on {goal}", made.layers, layers)


def table_1(gate: Callable[[arb, arb], arb], draw: Callable[[Random, int], fmpq_mat]) -> Callable[..., None]:
    """The check of a row of Table 1."""

    def check(t: Trial, low: int = 0) -> None:
        for _ in range(20):
            z, w = arb(t.random.randint(-20, 20)) / 4, arb(t.random.randint(-12, 12)) / 4
            t.holds("open range of the gate", bool(0 < gate(z, w) < 1))
        spectrum(t, lambda: draw(t.random, low), 0)
        fails(t, lambda: draw(t.random, low), (2,), (1, 2, 3))

    return check


def table_2(goal: str, draw: Callable[[Random, int], fmpq_mat]) -> Callable[..., None]:
    """The check of a row of Table 2."""

    def check(t: Trial, low: int = -1) -> None:
        spectrum(t, lambda: draw(t.random, low), -1)
        built(t, "Z2", goal, 1)
        fails(t, lambda: draw(t.random, low), (3, 5, 6), (1,) if goal == "deltanet" else (1, 2, 3))
        if goal == "deltanet":
            built(t, "Z3", goal, 2)

    return check


for _name, _gate, _draw, _goal in (
    ("mamba", mamba_gate, gated, "diag[-1,1]"),
    ("gla", sigmoid, gated, "diag[-1,1]"),
    ("deltanet", sigmoid, deltanet, "deltanet"),
):
    claim(
        f"GRAZZI-table-1-{_name}",
        f"Table 1's {_name}: eigenvalues in [0, 1]; no stack of such layers recognises parity in finite precision.",
        source="Grazzi Table 1, Thm. 1",
        kinds="P",
        control={"low": -1},
        hypotheses=("unrolled semantics with one finite datatype", "keys of length 1 or 0"),
    )(table_1(_gate, _draw))
    _counts = "one layer does not count modulo 3, two layers do" if _goal == "deltanet" else "no stack counts modulo 3"
    claim(
        f"GRAZZI-table-2-{_name}",
        f"Table 2's {_name}: eigenvalues in [-1, 1]; one layer recognises parity; {_counts}.",
        source="Grazzi Table 2, Thms. 1-4, 6",
        kinds="P C CL",
        control={"low": -3},
        hypotheses=(
            "no: unrolled semantics with one finite datatype; yes: exact",
            "closed ranges",
            "keys of length 1 or 0",
        ),
    )(table_2(_goal, _draw))


@claim(
    "OURS-table-kda",
    "KDA with β ≤ 1 and gates in [0, 1] has no parity; signed gates or β ≤ 2 alone give parity but real eigenvalues, "
    "so one layer does not count modulo 3; with both one layer does.",
    source="Complex KDA Sec. 3; Grazzi Thms. 1, 2",
    kinds="P C CL",
    control={"beta_max": 2},
    hypotheses=("no: unrolled semantics with one finite datatype; yes: exact", "closed ranges"),
    figure="spectra",
)
def table_kda(t: Trial, beta_max: int = 1) -> None:
    """1 - β v vᵀ is positive semidefinite for β <= 1; such a matrix times a real diagonal has real eigenvalues."""
    r = t.random

    def draw(low: int, high: int) -> fmpq_mat:
        gates = [low + (1 - low) * F(r.randint(0, 12), 12) for _ in range(2)]
        return householder(high * F(r.randint(0, 20), 20), [r.randint(-2, 2) for _ in range(2)]) * diagonal(gates)

    spectrum(t, lambda: draw(0, beta_max), 0)
    fails(t, lambda: draw(0, 1), (2,), (1, 2, 3))
    for low, high, goal in ((-1, beta_max, "diag[-1,1]"), (0, 2, "kda")):
        spectrum(t, lambda low=low, high=high: draw(low, high), -1)
        fails(t, lambda low=low, high=high: draw(low, high), (3, 5, 6), (1,))
        built(t, "Z2", goal, 1)
    built(t, "Z3", "ckda", 1)
