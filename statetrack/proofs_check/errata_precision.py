"""Errata of the finite-precision part of Grazzi et al., and what the two kinds of rounding can do beyond it.

"Unrolled" is the paper's arithmetic, "step" a cast after every step, as in a kernel: `statetrack.theory.precision`.

Main results: ERRATA-G1 to ERRATA-G8, ERRATA-G13, ERRATA-G14, OURS-lemma-1-plus, OURS-step-survives, OURS-step-fails,
OURS-unrolled-artefacts, OURS-O1, OURS-O2.

References: Grazzi et al. 2025, Thms. 1-2, Tables 1-2, App. B; the potential argument goes back to Hopfield networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from itertools import combinations_with_replacement, product
from typing import Literal

from flint import fmpq, fmpq_mat, fmpq_poly

from statetrack.theory.eventual import Agrees, Periodic, eventual, fail_mod, fail_parity, limit_place, step_period
from statetrack.theory.precision import (
    Datatype,
    Layer,
    State,
    Token,
    diagonal,
    evcast,
    exact,
    eye,
    householder,
    matrix,
    rational,
    roots,
    run,
    spectral_class,
    step,
    unrolled,
    without_one,
)

from .claim import Trial, claim
from .grazzi_precision import DATATYPES, Decoder, F, column, counter, within


def first(h: State, _: Token) -> Fraction:
    """The decoder that reads the first entry."""
    return h[0]


def words(length: int) -> list[tuple[int, ...]]:
    """All words over {0, 1} of this length at most, but the empty one."""
    return [word for n in range(1, length + 1) for word in product((0, 1), repeat=n)]


@claim(
    "ERRATA-G1",
    "Parity asks for an eigenvalue outside [0, ∞), not for one 'neither real nor positive': -1 is enough, 0 is not.",
    source="Grazzi Sec. 4.1, text before Thm. 1",
    kinds="X C",
    control={"gate": F(1, 2)},
    proves=True,
)
def g1(t: Trial, gate: Fraction = F(-1)) -> None:
    """Eq. 2's layer keeps h in {0, 1} and its summands are 0, 1, -1: exact in D, so the same in all three semantics."""
    datatype = Datatype.of(-1, 0, 1)
    scalar = Layer.table({0: [[1]], 1: [[gate]]}, {0: [[0]], 1: [[1]]}, [[0]], first)
    for word in words(t.amount(7, 10)):
        for semantics in ("exact", "unrolled", "step"):
            t.equal(f"parity of {word}, {semantics}", run([scalar], word, datatype, semantics)[-1], sum(word) % 2)
    nilpotent = Layer.constant([[0, 1], [0, 0]], [[0], [1]], [[1], [0]], lambda h, _: h[0] == 1)
    t.equal("eigenvalue 0", type(fail_parity([nilpotent], datatype)).__name__, "Witness")


@claim(
    "ERRATA-G2",
    "Lemma 1 is about cast(a_k), not a_k; next to a limit that is a midpoint only one-sided neighbourhoods work, and "
    "they are (c, c + ε), not (c, ε).",
    source="Grazzi Lemma 1, App. B",
    kinds="E",
    control={"sign": -1},
    proves=True,
)
def g2(t: Trial, sign: int = 1) -> None:
    """a_k = 1/2 + 4^-k, D = {0, 1}: never equal to a number of D, cast to 1, though cast(1/2) = 0. Closed form in k."""
    datatype = Datatype.of(0, 1)
    m, w = matrix([[1, F(-3 * sign, 4)], [0, F(1, 4)]]), matrix([[F(1, 2) + sign], [1]])
    sequence = [F(1, 2) + sign * F(1, 4) ** k for k in range(1, t.amount(50, 200))]
    t.equal("a_k", [(m**k * w)[0, 0] for k in (1, 2, 3)], [rational(x) for x in sequence[:3]])
    t.holds("no a_k in D", not set(sequence) & set(datatype.values))
    t.equal("casts", {datatype.cast(x) for x in sequence}, {F(1)})
    t.equal("eventual, of the limit", (evcast(m, w, datatype).values[0][0], datatype.cast(F(1, 2))), (1, 0))


@claim(
    "ERRATA-G3",
    "The unrolled state is the sum over i = 1..k of A(x_k)...A(x_(i+1)) B(x_i); the printed bounds k - 1 lose B(x_k).",
    source="Grazzi App. B.1",
    kinds="E P",
    control={"less": 1},
    proves=True,
)
def g3(t: Trial, less: int = 0) -> None:
    """Both sides in exact arithmetic for random words; one more step multiplies all terms by A and appends B."""
    r = t.random
    for _ in range(t.amount(30, 600)):
        word = [r.randint(0, 1) for _ in range(r.randint(1, 6))]
        a = [matrix([[r.randint(-2, 2) for _ in range(2)] for _ in range(2)]) for _ in range(2)]
        b, start, k = [column(r, 2) for _ in range(2)], column(r, 2), len(word)
        total = reduce(lambda h, x, a=a: a[x] * h, word, start)
        for i in range(k - less):
            total = total + reduce(lambda h, x, a=a: a[x] * h, word[i + 1 : k - less], b[word[i]])
        last = exact(Layer(lambda x, a=a: a[x == 1], lambda x, b=b: b[x == 1], start, first), word)[-1]
        t.equal(f"state after {k}", [rational(x) for x in last], total.entries())


def scalar(t: Trial, low: int) -> tuple[Layer, Datatype, list[Fraction], list[Fraction]]:
    """A random scalar layer with a gate of at least low/8, and its cast summands cast(A^i B) and cast(A^i H_0)."""
    a = F(t.random.choice((8, low // 3 * 2 or 8, t.random.randint(low, 12))), 8)
    b, h = F(t.random.randint(-3, 3)), F(t.random.randint(-3, 3))
    datatype = Datatype.of(*range(-60, 61))
    c, d = ([datatype.cast(a**i * x) for i in range(34)] for x in (b, h))
    return Layer.constant([[a]], [[b]], [[h]], first), datatype, c, d


@claim(
    "ERRATA-G4",
    "In the proof of Theorem 1 the settled summands number k - τ, not k + 1 - τ.",
    source="Grazzi App. B.1, last display",
    kinds="E P",
    control={"printed": "Thm 1"},
    proves=True,
)
@claim(
    "ERRATA-G5",
    "In the proof of Theorem 2 the state at 2k is cast(S + (k - τ/2)(C_even + C_odd) + D_even), S over i < τ, and at "
    "2k + 1 one more C_even with D_odd; the D-term is not multiplied by k.",
    source="Grazzi App. B.2",
    kinds="E P",
    control={"printed": "Thm 2"},
    proves=True,
)
def g4_g5(t: Trial, printed: str = "") -> None:
    """The summands are C_0, ..., C_(k-1) and one D_k; count those from τ on. Scalar layers, by the definition."""
    for _ in range(t.amount(30, 400)):
        layer, datatype, c, d = scalar(t, 0)
        tau = max(i for i in range(1, 31) if c[i] != c[i - 1] or d[i] != d[i - 1] or i == 1)
        states = unrolled(layer, [1] * 30, datatype)
        for k in range(tau, 31):
            closed = sum(c[:tau]) + d[tau] + (k + (printed == "Thm 1") - tau) * c[tau]
            t.equal(f"state at {k}, τ = {tau}", datatype.cast(closed), states[k - 1][0])
        layer, datatype, c, d = scalar(t, -12)
        tau = max(i + i % 2 for i in range(2, 33) if c[i] != c[i - 2] or d[i] != d[i - 2] or i == 2)
        states = unrolled(layer, [1] * 33, datatype)
        for k in range(tau // 2, 16):
            wrong, times = printed == "Thm 2", k if printed == "Thm 2" else 1
            settled = sum(c[wrong:tau]) + (k - F(tau, 2)) * (c[tau] + c[tau + 1]) + wrong * c[tau]
            closed = (settled + times * d[tau], settled + (not wrong) * c[tau] + times * d[tau + 1])
            got = tuple(datatype.cast(x) for x in closed)
            t.equal(f"states at {2 * k}, {2 * k + 1}", got, (states[2 * k - 1][0], states[2 * k][0]))


def rotation(cosine: Fraction | int = F(3, 5), sine: Fraction | int = F(4, 5)) -> Layer:
    """0 turns, 1 turns back, from (-1, 0): the first entry is -1 iff the turns cancel."""
    turn, back = [[cosine, -sine], [sine, cosine]], [[cosine, sine], [-sine, cosine]]
    return Layer.table({0: turn, 1: back}, dict.fromkeys((0, 1), ((0,), (0,))), [[-1], [0]], first)


@claim(
    "ERRATA-G6",
    "The unrolled state is not a function of the state before and the input, so a proof may not restart at the cast "
    "state where the input becomes constant.",
    source="Grazzi App. B.1, several layers: 'without loss of generality'",
    kinds="E",
    control={"semantics": "step"},
    hypotheses=("unrolled semantics",),
    proves=True,
)
def g6(t: Trial, semantics: Literal["unrolled", "step"] = "unrolled") -> None:
    """Two words with one cast state that split on the next input; a prefix that the cast state has forgotten."""
    evaluate, datatype = (unrolled if semantics == "unrolled" else step), Datatype.of(-2, 0)
    layer = rotation()
    t.equal("words 0 and 00", evaluate(layer, (0,), datatype)[-1], evaluate(layer, (0, 0), datatype)[-1])
    one, two = (evaluate(layer, word, datatype)[-1] for word in ((0, 1), (0, 0, 1)))
    t.holds("words 01 and 001 differ", one != two, (one, two))
    grows = Layer.table({0: [[1]], 1: [[4]]}, {0: [[F(1, 4)]], 1: [[0]]}, [[0]], first)
    true = [h[0] for h in evaluate(grows, (0, 1, 1), Datatype.of(0, 1))]
    restarted = evaluate(Layer(grows.transition, grows.addition, matrix([[0]]), first), (1, 1), Datatype.of(0, 1))
    t.equal("the true run, the restarted run", (true, [h[0] for h in restarted]), ([0, 1, 1], [0, 0]))


@claim(
    "ERRATA-G7",
    "Real diagonal stacks do count modulo m for m | 2^L; and only over the reals does counting modulo 3 need matrices "
    "that are not triangular: exp(2πi/3) is a 1 × 1 matrix that counts.",
    source="Grazzi Sec. 4.1, discussion of Thm. 2",
    kinds="C E",
    control={"modulus": 3},
    hypotheses=("closed range of gates",),
    proves=True,
)
def g7(t: Trial, modulus: int = 4) -> None:
    """The counters of OURS-thm-2-sharp; powers of ω on the basis 1, ω."""
    for used in (1, 2, 3):
        found = fail_mod(counter(3, used), Datatype.of(-1, 0, 1), 2**used if used != 2 else modulus, letter=())
        t.holds(f"diagonal, modulo {2**used}", isinstance(found, Agrees), found)
    omega, power = matrix([[0, -1], [1, -1]]), eye(2)
    t.equal("minimal polynomial", omega.charpoly(), fmpq_poly([1, 1, 1]))
    for k in range(1, 7):
        power = power * omega
        t.equal(f"ω^{k} = 1", power == eye(2), k % 3 == 0)
    t.equal("over the reals", spectral_class(omega), "nonreal")


@claim(
    "ERRATA-G8",
    "Table 1's DeltaNet needs keys of length 1 (or 0); Table 2 changes A only, the released code also doubles B; "
    "the ends of the ranges are limits over the reals, though doubles reach them.",
    source="Grazzi Tables 1 and 2, App. E.4",
    kinds="E N",
    control={"key": (F(1), F(0))},
    proves=True,
)
def g8(t: Trial, key: tuple[Fraction, Fraction] = (F(2), F(0))) -> None:
    """I - β k kᵀ with k = (2, 0), β = 9/10 has the eigenvalue -13/5; 2β k vᵀ is not β k vᵀ; 1/(1 + exp(-40))."""
    beta, length = F(9, 10), sum(x * x for x in key)
    a = matrix([[int(i == j) - beta * key[i] * key[j] for j in range(2)] for i in range(2)])
    t.equal("characteristic polynomial", a.charpoly(), fmpq_poly([-1, 1]) * fmpq_poly([rational(beta * length - 1), 1]))
    t.holds("outside [-1, 1]", not within(a, -1, 1), a.charpoly())
    t.holds("keys of length 1 and 0", within(householder(beta, key), 0, 1) and householder(beta, [0, 0]) == eye(2))
    t.holds("B = β k vᵀ doubled", 2 * beta * key[0] != beta * key[0])
    t.equal("an endpoint in doubles", 1 / (1 + math.exp(-40)), 1.0)


@claim(
    "ERRATA-G13",
    "Finite precision in the paper's sense does not bound a layer to finite automata: a rotation recognises the words "
    "with as many 0 as 1, with D = {-2, 0}.",
    source="Grazzi Sec. 4.1, 'finite precision'",
    kinds="X E",
    control={"cosine": F(0), "sine": F(1)},
    hypotheses=("unrolled semantics",),
    proves=True,
)
def g13(t: Trial, cosine: Fraction = F(3, 5), sine: Fraction = F(4, 5)) -> None:
    """(3 + 4i)/5 is no algebraic integer, so no root of 1: the first entry is -1, cast to -2, iff the turns cancel.

    The words 0^i are pairwise inequivalent, so no finite automaton does it.
    """
    layer, datatype = rotation(cosine, sine), Datatype.of(-2, 0)
    for word in words(t.amount(8, 11)):
        said = unrolled(layer, word, datatype)[-1][0] == -2
        t.equal(f"#0 = #1 in {word}", said, 2 * sum(word) == len(word))


def projections(k: int) -> fmpq_mat:
    """Three projections 1 - v vᵀ/vᵀv turned about the first axis; k of them."""
    turn = matrix([[1, 0, 0], [0, F(3, 5), F(4, 5)], [0, F(-4, 5), F(3, 5)]])
    total = eye(3)
    for key in ([1, 0, 0], [1, 2, 0], [-1, 2, 0])[:k]:
        total = total * (turn * householder(F(1), key) * turn.transpose())
    return total


@claim(
    "OURS-unrolled-artefacts",
    "Unrolled rounding lets a product of three projections solve parity (its limit is a midpoint), lets a gate of -2 "
    "solve it by saturation, and drifts if 0 is not in D.",
    source="artefacts of Grazzi's arithmetic; ERRATA-G13 has one more",
    kinds="E X",
    control={"factors": 2},
    hypotheses=("unrolled semantics",),
    proves=True,
)
def artefacts(t: Trial, factors: int = 3) -> None:
    """After k ones the second entry is 1/2 + (3/5)(-3/25)^k: one recurrence of order 3 for both, so k <= 2 proves it.

    It is above the midpoint 1/2 of D = {0, 1} iff k is even. Letter 0 does nothing; 0 is in D, so B = 0 adds nothing.
    """
    start, power, contraction = matrix([[0], [F(11, 10)], [F(-17, 40)]]), eye(3), projections(factors)
    t.equal("norm at most 1", spectral_class(eye(3) - contraction.transpose() * contraction), "nonneg")
    t.equal("eigenvalues 0, 1, -3/25", projections(3).charpoly(), fmpq_poly([0, fmpq(-3, 25), fmpq(-22, 25), 1]))
    for k in range(t.amount(6, 20)):
        t.equal(f"entry after {k} ones", (power * start)[1, 0], fmpq(1, 2) + fmpq(3, 5) * fmpq(-3, 25) ** k)
        power = power * contraction
    one, none, nothing = contraction, eye(3), matrix([[0], [0], [0]])
    projecting = Layer(lambda x: one if x == 1 else none, lambda _: nothing, start, lambda h, _: h[1] == 0)
    doubling = Layer.table({0: [[1]], 1: [[-2]]}, {0: [[0]], 1: [[0]]}, [[1]], lambda h, _: h[0] < 0)
    for word in words(t.amount(6, 9)):
        t.equal(f"projections on {word}", run([projecting], word, Datatype.of(0, 1))[-1], sum(word) % 2 == 1)
        t.equal(f"-2 on {word}", run([doubling], word, DATATYPES[4])[-1], sum(word) % 2 == 1)
    still = Layer.constant([[1]], [[0]], [[1]], first)
    t.equal("no drift in exact arithmetic", exact(still, (1,) * 9)[-1][0], 1)
    t.equal("drift", eventual(still, Periodic((), (1,)), Datatype.of(-1, 1)).outputs.cycle, (-1,))


@claim(
    "OURS-lemma-1-plus",
    "Casts of M^q W are eventually that of the limit if each eigenvalue seen is 1 (semisimple) or below 1 in size, "
    "complex ones too, and no entry of the limit is a midpoint of the datatype.",
    source="extends Grazzi Lemma 1",
    kinds="E P",
    control={"beta_max": 2},
    hypotheses=("the datatype is finite", "no entry of the limit is a midpoint"),
    proves=True,
)
def lemma_1_plus(t: Trial, beta_max: int = 1) -> None:
    """M^q W converges, and cast is constant near a number that is no midpoint. Products of k factors, β in (0, 1]."""
    r = t.random
    for _ in range(t.amount(30, 600)):
        m, datatype = eye(3), r.choice(DATATYPES)
        for _ in range(r.choice((1, 2, 3, 4))):
            m = m * householder(beta_max * F(r.randint(2, 4), 4), [r.choice((0, 0, 1, -1, 2, 3)) for _ in range(3)])
        w, v = column(r, 3), without_one(m.charpoly())
        found = limit_place(m, w, datatype)
        t.holds("eigenvalues 1, or below 1 in size", all(abs(z) < 1 for z, _ in roots(v)), v)
        t.count("not settled" if found is None else "settled")
        for q in range(found[1], found[1] + 20) if found else ():
            t.equal(f"cast of power {q}", datatype.places(m**q * w), found and found[0])


@claim(
    "OURS-step-survives",
    "With a cast after every step and constant input, A = PE with P symmetric and E diagonal, both without negative "
    "eigenvalues (KDA with β ≤ 1), ends in a fixed point; P symmetric only (β ≤ 2): in period 1 or 2.",
    source="extends Grazzi Thm. 1 to rounding as in kernels",
    kinds="E P",
    control={"swap": True},
    hypotheses=("the cast is to the nearest number of a finite set, ties down",),
    proves=True,
)
def step_survives(t: Trial, swap: bool = False) -> None:
    """w = Ex has w' = φ(Pw + b), φ = E·cast monotone, left-continuous: w' maximises <w', Pw + b> - F*(w'), F' = φ.

    P semidefinite: V = wᵀPw/2 + bᵀw - F*(w) grows by at least (w' - w)ᵀP(w' - w)/2, so on a cycle Pw is constant. P
    symmetric: <w', Pw> + <b, w + w'> - F*(w) - F*(w') never falls; on a cycle w_(t-1) is a maximiser too, and ties go
    down, so w_(t+1) <= w_(t-1) all around: equal.
    """
    r = t.random
    for _ in range(t.amount(150, 3000)):
        n, datatype, semidefinite = r.choice((2, 3)), r.choice(DATATYPES), r.random() < 0.5
        if r.random() < 0.5:
            beta = F(r.randint(0, 20), 20) * (1 if semidefinite else 2)
            p = householder(beta, [r.randint(-2, 2) for _ in range(n)])
        else:
            p = matrix([[F(r.randint(-6, 6), 4) for _ in range(n)] for _ in range(n)])
            p = p.transpose() * p if semidefinite else p + p.transpose()
        a = p * diagonal([F(r.randint(0, 12), 12) for _ in range(n)])
        b, start = column(r, n), tuple(r.choice(datatype.values) for _ in range(n))
        found = step_period([Layer(lambda _, a=a: a, lambda _, b=b: b, b, first)], [1], datatype, [start])
        t.holds(f"period, semidefinite {semidefinite}", found <= (1 if semidefinite != swap else 2), found)


@claim(
    "ERRATA-G14",
    "Theorem 1 is about unrolled rounding: a layer to which it applies solves parity with a cast after every step.",
    source="Grazzi Thm. 1, App. B.1",
    kinds="E",
    control={"beta": F(1)},
    proves=True,
)
@claim(
    "OURS-step-fails",
    "With a cast after every step two factors with β ≤ 1 can have period 2 and solve parity, or have period 3, though "
    "all eigenvalues are in [0, 1] and norms at most 1.",
    source="limits of OURS-step-survives",
    kinds="E",
    control={"beta": F(1)},
    hypotheses=("the cast is to the nearest number of a finite set, ties down",),
    proves=True,
)
def step_fails(t: Trial, beta: Fraction = F(9, 10)) -> None:
    """Two instances; in the first no tie occurs, and with A(0) = 1 two states solve parity on all words."""
    a, b = householder(F(1), (1, 4)) * householder(beta, (1, -1)), matrix([[F(3, 4)], [F(-3, 2)]])
    small, none = Datatype.of(*range(-2, 3)), matrix([[0], [0]])
    layer = Layer(lambda x: a if x else eye(2), lambda x: b if x else none, matrix([[1], [-1]]), first)
    t.holds("spectrum in [0, 1]", within(a, 0, 1))
    t.equal("norm at most 1", spectral_class(eye(2) - a.transpose() * a), "nonneg")
    even, odd = (F(1), F(-1)), (F(1), F(-2))
    moves = {(s, x): step(layer, (x,), small, s)[-1] for s in (even, odd) for x in (0, 1)}
    t.equal("two states", moves, {(even, 0): even, (even, 1): odd, (odd, 0): odd, (odd, 1): even})
    parity = Layer(layer.transition, layer.addition, layer.start, lambda h, _: h == odd)
    t.equal("unrolled, period", len(eventual(layer, Periodic((), (1,)), small).outputs.cycle), 1)
    t.equal("unrolled", type(fail_parity([parity], small)).__name__, "Witness")
    a3, b3 = householder(F(9, 10), (4, 1)) * householder(F(1), (4, -5)), matrix([[F(-1, 2)], [F(5, 4)]])
    third = [Layer(lambda _: a3, lambda _: b3, b3, first)]
    t.equal("period 3", step_period(third, [1], DATATYPES[5], [(F(-9), F(12))]), 3)


def chains(t: Trial, reversing: bool, period: int) -> None:
    """The maps of chains of n points that keep (or reverse) the order: closed, and f^(2n) = f^(2n + period)."""
    for n in range(1, t.amount(6, 7)):
        maps = set(combinations_with_replacement(range(n), n))
        maps |= {f[::-1] for f in maps} if reversing else set()
        for f in maps:
            powers = [tuple(range(n))]
            for _ in range(2 * n + period):
                powers.append(tuple(f[x] for x in powers[-1]))
            t.equal(f"period of {f}", powers[2 * n + period], powers[2 * n])
        t.holds("closed", all(tuple(f[x] for x in g) in maps for f in maps for g in maps))


def cascades(t: Trial, low: int, most: Callable[[int], int]) -> None:
    """Random stacks of diagonal layers with gates in [low, 1]: the period along a random word divides most(depth)."""
    r, pool = t.random, [1 - (1 - low) * F(i, 8) for i in range(9)]
    for _ in range(t.amount(25, 500)):
        datatype, word, layers = r.choice(DATATYPES), r.choices((0, 1), k=r.randint(1, 3)), list[Layer]()
        for _ in range(r.choice((1, 2, 3))):
            gates: dict[Token, fmpq_mat] = {x: diagonal(r.choices(pool, k=2)) for x in (0, 1, 2)}
            more: dict[Token, fmpq_mat] = {x: column(r, 2) for x in gates}
            layers.append(Layer(gates.__getitem__, more.__getitem__, column(r, 2), Decoder(r, (0, 1, 2))))
        states = [(r.choice(datatype.values), r.choice(datatype.values)) for _ in layers]
        t.equal("remainder", most(len(layers)) % step_period(layers, word, datatype, states), 0)


@claim(
    "OURS-O1",
    "Maps of a finite chain that keep its order form an aperiodic monoid, so with diagonal gates in [0, 1] and a "
    "monotone cast after every step a stack of layers recognises aperiodic languages only.",
    source="docs/constructions.md; extends Grazzi Thm. 1",
    kinds="X P",
    control={"low": -1},
    hypotheses=("finitely many numbers", "monotone rounding after every step"),
    proves=True,
)
def o1(t: Trial, low: int = 0) -> None:
    """x <= f(x) gives x <= f(x) <= f²(x) ..., likewise downwards: f^(n-1) = f^n.

    Stacks: by induction the lower layers repeat from block to block of w, for large n; then each number of the next
    layer is moved by one order-preserving map a block. So q·w^n = q·w^(n+1) for all states q.
    """
    chains(t, low < 0, 1)
    cascades(t, low, lambda _: 1)


@claim(
    "OURS-O2",
    "Maps of a finite chain that keep or reverse its order have period 1 or 2, so with gates in [-1, 1] and a monotone "
    "cast after every step L layers have periods that divide 2^L.",
    source="docs/constructions.md; extends Grazzi Thm. 2",
    kinds="X P",
    control={"period": 1},
    hypotheses=("finitely many numbers", "monotone rounding after every step"),
    proves=True,
)
def o2(t: Trial, period: int = 2) -> None:
    """f² keeps the order: OURS-O1. Stacks: the lower layers repeat every 2^(i-1) blocks; one map moves those."""
    chains(t, True, period)
    cascades(t, -1, lambda depth: period**depth)
