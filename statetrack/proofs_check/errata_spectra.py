"""Errata of both papers about spectra and products: what is printed fails, or is weaker than what is true.

Each check holds the corrected statement and its witness; the control puts the printed statement, or a wrong witness, in
its place.

Main results: ERRATA-C1 to ERRATA-C8 (Complex KDA), ERRATA-G9, ERRATA-G10 (Grazzi et al.).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from statetrack.theory.arrays import Matrix, add, diagonal, identity, matmul, matrix, matvec, outer, scale, transpose
from statetrack.theory.householder import (
    contraction_by_gated,
    contraction_by_householders,
    fewest_gated,
    reflections,
    signed_householders,
)
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.transition_spectra import characteristic, effective_beta, key_squares, nonreal_pairs

from .claim import Trial, claim
from .grazzi_products import (
    Q,
    characteristic_of,
    circle_factor,
    householder_matrix,
    multiplied,
    permutation_matrix,
    random_key,
    random_orthogonal,
    random_sizes,
    rank_off,
)

F = Fraction
Gates = tuple[Fraction | int, ...]


def pairs_of(w: tuple[int, ...], beta: Fraction | int, gates: Gates) -> int:
    """Non-real pairs of the transition with key along w."""
    return nonreal_pairs(characteristic(key_squares(w), beta, gates))


@claim(
    "ERRATA-C1",
    "β > 1 and a negative gate are not enough for a non-real pair: zero gates do not count in β κ², a gate of the "
    "other sign is needed too, and both conditions together are still not enough.",
    source="CKDA Thm. 8",
    kinds="C",
    control={"pairs": 1},
    proves=True,
)
def conditions(t: Trial, pairs: int = 0) -> None:
    """Real spectra: no positive gate; β κ² = 1/2; both conditions met and a double root 1/2."""
    t.equal("x² - 1/2", characteristic(key_squares((1, 1)), 2, (-1, F(-1, 2))), (F(-1, 2), F(0), F(1)))
    t.equal("no positive gate", pairs_of((1, 1), 2, (-1, F(-1, 2))), pairs)
    squares = key_squares((2, 1, 1))
    t.equal("β κ²", effective_beta(squares, F(3, 2), (0, 1, -1)), F(1, 2))
    t.equal("x³ - x/2", characteristic(squares, F(3, 2), (0, 1, -1)), (F(0), F(-1, 2), F(0), F(1)))
    t.equal("zero gates", pairs_of((2, 1, 1), F(3, 2), (0, 1, -1)), pairs)
    t.equal("with κ² large enough", pairs_of((1, 1, 1), 2, (0, 1, -1)), 1)
    t.equal("double root", characteristic((F(9, 10), F(1, 10)), 2, (-1, F(1, 4))), (F(1, 4), F(-1), F(1)))
    t.equal("both conditions", nonreal_pairs(characteristic((F(9, 10), F(1, 10)), 2, (-1, F(1, 4)))), pairs)


@claim(
    "ERRATA-C2",
    "sign α_i is undefined for α_i = 0, and the sign part may turn or not by the choice; the conditions on signs must "
    "read α_i α_j < 0.",
    source="CKDA Thm. 2",
    kinds="C",
    control={"choice": -1},
    proves=True,
)
def sign_of_zero(t: Trial, choice: int = 1) -> None:
    """α = (0, -1), key (1, 1), β = 2: with sign +1 for the zero gate Ã turns by 90°, with -1 it does not; A is real."""
    t.equal("Ã turns", pairs_of((1, 1), 2, (choice, -1)), 1)
    t.equal("Ã with the other sign", pairs_of((1, 1), 2, (-choice, -1)), 0)
    t.equal("A", pairs_of((1, 1), 2, (0, -1)), 0)


@claim(
    "ERRATA-C3",
    "A may have a non-real pair when its sign part has none, and none when its sign part has one.",
    source="CKDA Sec. 4 after Thm. 2",
    kinds="C",
    control={"weight": F(1, 4)},
    proves=True,
)
def independent(t: Trial, weight: Fraction = F(9, 10)) -> None:
    """β = 6/5: k_-² = 9/10 with gates (-1, 1) and (-1, 1/2); k_-² = 1/2 with gates (-1, 1) and (-1/20, 1)."""
    cases = [((weight, 1 - weight), (-1, 1), (-1, F(1, 2)), 0), ((F(1, 2), F(1, 2)), (-1, 1), (F(-1, 20), 1), 1)]
    for squares, signs, gates, turns in cases:
        t.equal(f"signs, {squares}", nonreal_pairs(characteristic(squares, F(6, 5), signs)), turns)
        t.equal(f"gates, {squares}", nonreal_pairs(characteristic(squares, F(6, 5), gates)), 1 - turns)


@claim(
    "ERRATA-C4",
    "The key and the signs of an orthogonal D + u vᵀ are unique only for three joined coordinates or more (two have "
    "two, a sign diagonal n), and D need not be a sign matrix when two are joined.",
    source="CKDA Thm. 1",
    kinds="C P",
    control={"two": 1},
)
def not_unique(t: Trial, two: int = 2) -> None:
    """Counts by the recogniser, which finds all; D = Diag(1/2, ...) for the quarter turn."""
    for _ in range(t.amount(40, 200, 1000)):
        n = t.random.randint(2, 5)
        w, signs = random_key(t, n), [t.random.choice((1, -1)) for _ in range(n)]
        a = matmul(householder_matrix(w, 2), diagonal(Q, signs))
        joined = sum(not x.is_zero() for x in w)
        expected = n if joined == 1 else two if joined == 2 else 1
        t.equal(f"{joined} joined", sum(1 for _ in signed_householders(a)), expected)
    d, u, v = (F(1, 2), F(-2)), (F(-1, 2), F(1)), (F(1), F(2))
    a = add(diagonal(Q, list(map(Q, d))), outer(tuple(map(Q, u)), tuple(map(Q, v))))
    t.equal("the quarter turn", a, matrix(Q, [[0, -1], [1, 0]]))
    t.holds("D is no sign matrix", all(abs(x) != 1 for x in d))


@claim(
    "ERRATA-C5",
    "Without norm at most 1 a diagonal plus rank one can have two pairs on the circle (A⁵ = I), and a contraction of "
    "that form can have two pairs inside it: Theorem 9 needs both words.",
    source="CKDA Thm. 9",
    kinds="C",
    control={"last": 3},
    proves=True,
)
def expansive(t: Trial, last: int = 2) -> None:
    """d = (0, 1, -1, 2), u = 1, v = (-1/2, 5/2, 1/6, -31/6); A/12 is a contraction: 144 I - AᵀA has no negative
    eigenvalue."""
    one, v = (F(1),) * 4, (F(-1, 2), F(5, 2), F(1, 6), F(-31, 6))
    a = add(diagonal(Q, (0, 1, -1, last)), outer(tuple(map(Q, one)), tuple(map(Q, v))))
    t.equal("polynomial", characteristic_of(a), (F(1),) * 5)
    t.equal("A⁵", multiplied([a] * 5, 4), identity(Q, 4))
    t.equal("pairs on the circle", nonreal_pairs(characteristic_of(a)), 2)
    column = matvec(a, (Q(0), Q(0), Q(0), Q(1)))
    t.holds("expansive", sum((x * x for x in column), Q(0)) > 1)
    gap = add(scale(Q(144), identity(Q, 4)), scale(Q(-1), matmul(transpose(a), a)))
    p = characteristic_of(gap)
    t.holds("A/12 is a contraction", all((-1) ** (4 - i) * c >= 0 for i, c in enumerate(p)))
    t.equal("pairs inside", nonreal_pairs(characteristic_of(scale(Q(F(1, 12)), a))), 2)


@claim(
    "ERRATA-C6",
    "Against 2n - 1 plain factors, not 3n, the gain of 2n - 2 gated factors is one; on permutations there is none.",
    source="CKDA App. A.5",
    kinds="C",
    control={"plain": 3},
)
def small_gain(t: Trial, plain: int = 2) -> None:
    """Both decompositions of the same exact contractions; counts on cycles, gated ones by the exact minimum."""
    for n in range(2, t.amount(5, 6, 8)):
        for _ in range(t.amount(4, 20, 100)):
            u, sizes, v = random_orthogonal(t, n), random_sizes(t, n), random_orthogonal(t, n)
            least = len(contraction_by_householders(u, sizes, v))
            t.holds("at most 2n - 1 plain factors", least <= 2 * n - 1)
            t.equal("gated factors", len(contraction_by_gated(u, sizes, v)), 2 * n - 2)
            t.equal("the gain in the bounds", plain * n - 1 - (2 * n - 2), 1)
        cycle = permutation_matrix([*range(1, n), 0])
        t.equal("the cycle", fewest_gated(cycle), len(reflections(cycle)))


@claim(
    "ERRATA-C7",
    "A scalar gate times k generalised Householders has at most ⌊k/2⌋ non-real pairs anywhere; Theorem 9 alone gives "
    "k, too many for three factors in the statement about S5.",
    source="CKDA Thm. 4, remark on DeltaProduct",
    kinds="P",
    control={"fewer": 1},
    proves=True,
)
def half_as_many(t: Trial, fewer: int = 0) -> None:
    """g(I + rank ≤ k) has the eigenvalue g at least n - k times, so at most k others. Exact products."""
    for _ in range(t.amount(40, 200, 2000)):
        k, n = t.random.randint(1, 5), t.random.randint(1, 6)
        factors = [householder_matrix(random_key(t, n), F(t.random.randint(0, 8), 4)) for _ in range(k)]
        pairs = nonreal_pairs(characteristic_of(multiplied(factors, n)))
        t.holds(f"k = {k}", pairs <= k // 2, pairs)
    for k in (2, 3, 4):
        keys = [[int(j == i - i % 2) + (i % 2) * int(j == i) for j in range(4)] for i in range(k)]
        factors = [householder_matrix(tuple(map(Q, key)), 2) for key in keys]
        t.equal(f"k = {k}, attained", nonreal_pairs(characteristic_of(multiplied(factors, 4))), k // 2 - fewer)


@claim(
    "ERRATA-C8",
    "Gates 2σ - 1 and β = 2σ as implemented never reach ±1 and 2, so no non-real pair is on the circle: exact signed "
    "Householders are limits only.",
    source="CKDA Sec. 3 and App. E",
    kinds="P",
    control={"end": 0},
)
def never_exact(t: Trial, end: int = 1) -> None:
    """σ = a/(a + b) with a, b ≥ 1: exactly no pair on the circle. In doubles σ does round to 1, from 37 on."""
    cases: list[tuple[tuple[int, ...], Fraction, Gates]]
    cases = [((1, 1), F(2 * 10**6, 10**6 + end), (1, -1))]
    for _ in range(t.amount(150, 500, 5000)):
        n = t.random.randint(1, 4)
        chosen = [F(t.random.choice((1, 3, 10**6)), t.random.choice((1, 2, 10**6))) for _ in range(n + 1)]
        values = [x / (x + 1) for x in chosen]
        w = tuple(int(x.nums[0]) for x in random_key(t, n))
        cases.append((w, 2 * values[0], tuple(2 * x - 1 for x in values[1:])))
    for w, beta, gates in cases:
        p = characteristic(key_squares(w), beta, gates)
        t.equal(f"{w}, {beta}, {gates}", nonreal_pairs(circle_factor(p)), 0)


@claim(
    "ERRATA-G9",
    "In the proof of Proposition 1 the product of swaps must run over all k - 1 of them; a one-point permutation takes "
    "no factor; and contractions do not need all of [-1, 1] for 1 - β.",
    source="Grazzi et al., App. C.2",
    kinds="C",
    control={"printed": 1},
)
def swaps(t: Trial, printed: int = 0) -> None:
    """The cycle of k points by k - 1 swaps, not k - 2; n = 1; Ω = {-1} ∪ [0, 1] is OURS-one-negative-value, and here
    -1/2 in dimension one: (-1)(1/2)."""
    for k in range(2, t.amount(6, 8, 10)):
        pairs = list(pairwise(range(k)))
        chosen = [tuple(Q(int(i == a) - int(i == b)) for i in range(k)) for a, b in pairs[: len(pairs) - printed]]
        got = multiplied((householder_matrix(w, 2) for w in chosen), k)
        t.equal(f"the {k}-cycle", got, permutation_matrix([*range(1, k), 0]))
        t.equal("each swap is one factor", {rank_off(householder_matrix(w, 2), identity(Q, k)) for w in chosen}, {1})
    t.equal("one point", len(reflections(identity(Q, 1))), 0)
    one = (Q(1),)
    t.equal("-1/2", multiplied([householder_matrix(one, 2), householder_matrix(one, F(1, 2))], 1), ((Q(F(-1, 2)),),))


@claim(
    "ERRATA-G10",
    "In Proposition 1.3 two factors are essential: three with 1 - β in [0, 1] can have a negative or a non-real "
    "eigenvalue, and two with 1 - β in (-1, 1] a non-real one; factors have norm at most 1, not below it.",
    source="Grazzi et al., App. C.2, item 3",
    kinds="C",
    control={"third": 0},
    proves=True,
)
def two_factors(t: Trial, third: int = 1) -> None:
    """Projections along (1, 0), (1, 2), (-1, 2): eigenvalue -3/25; at 0°, 60°, 120° over Q(√3): -1/8; with β = 4/5,
    3/4, 3/4 a pair. Two factors with β = 3/2: x² - x/8 + 1/4. A non-real eigenvalue has no real eigenvector."""
    p = _polynomial([((1, 0), F(1)), ((1, 2), F(1)), ((-1, 2), F(third))])
    t.equal("three projections", p, (F(0), F(3, 25), F(1)))
    p = _polynomial([((1, 0), F(4, 5)), ((1, 2), F(3, 4)), ((1, -2), F(3 * third, 4))])
    t.equal("three factors", p, (F(1, 80), F(-393, 2000), F(1)))
    t.equal("a pair", nonreal_pairs(p), 1)
    p = _polynomial([((1, 0), F(3, 2)), ((1, 1), F(3, 2))])
    t.equal("two factors", p, (F(1, 4), F(-1, 8), F(1)))
    t.equal("a pair of two", nonreal_pairs(p), 1)
    t.equal("norm 1", matvec(householder_matrix((Q(1), Q(0)), F(1, 2)), (Q(0), Q(1))), (Q(0), Q(1)))
    t.equal("three projections at 60°", _sixty(), (F(0), F(1, 8), F(1)))


def _polynomial(factors: list[tuple[tuple[int, int], Fraction]]) -> tuple[Fraction, ...]:
    return characteristic_of(multiplied((householder_matrix(tuple(map(Q, w)), b) for w, b in factors), 2))


def _sixty() -> tuple[Fraction, ...]:
    """The polynomial of the product of the projections with keys at 0, 60 and 120 degrees, entries in Q(√3)."""
    field = RealCyclotomic(12)
    total: Matrix = identity(field, 2)
    for p in range(3):
        key = (field.cos(p, 6), field.sin(p, 6))
        total = matmul(total, add(identity(field, 2), scale(field(-1), outer(key, key))))
    trace = (total[0][0] + total[1][1]).as_fraction()
    det = (total[0][0] * total[1][1] - total[0][1] * total[1][0]).as_fraction()
    assert trace is not None
    assert det is not None
    return det, -trace, F(1)
