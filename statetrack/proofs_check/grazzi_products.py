"""Claims about products of generalised Householders and of CKDA transitions: norms, decompositions, eigenvalues.

The decompositions are exact over Q: random orthogonal matrices are products of rational reflections and signs, and a
contraction is U Diag(sizes) Vᵀ with rational sizes.

Main definitions: `random_key`, `random_orthogonal`, `random_sizes`, `householder_matrix`, `multiplied`.

Main results: GRAZZI-prop-1.1, GRAZZI-prop-1.2-orthogonal, -contraction, -permutation, GRAZZI-prop-1.3, OURS-2n-1,
OURS-reflection-count, OURS-cycle-count, OURS-one-negative-value; CKDA-prop-10, OURS-fewest-orthogonal-factors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
from flint import fmpq, fmpq_mat, fmpq_poly

from statetrack.theory.arrays import Matrix, Vector, diagonal, dot, identity, matmul, matrix, transpose
from statetrack.theory.fields import Element
from statetrack.theory.householder import (
    contraction_by_gated,
    contraction_by_householders,
    fewest_gated,
    gated_reflections,
    householder,
    reflections,
    signed_householders,
)
from statetrack.theory.number_fields import rationals
from statetrack.theory.transition_spectra import Polynomial, factor_contraction, multiply, nonreal_pairs

from .claim import Trial, claim

Q = rationals()


def random_key(t: Trial, n: int) -> Vector:
    """A non-zero vector of small integers, with zeros."""
    while True:
        w = tuple(Q(t.random.choice((0, 1, -1, 2, -2, 3))) for _ in range(n))
        if any(not x.is_zero() for x in w):
            return w


def random_orthogonal(t: Trial, n: int) -> Matrix:
    """A product of up to n rational reflections, and signs."""
    total = diagonal(Q, [t.random.choice((1, -1)) for _ in range(n)])
    for _ in range(t.random.randint(0, n)):
        total = matmul(householder_matrix(random_key(t, n), 2), total)
    return total


def random_sizes(t: Trial, n: int) -> Vector:
    """Singular values in [0, 1]: the ends, repeated ones, others."""
    return tuple(
        Q(t.random.choice((Fraction(0), Fraction(1), Fraction(1, 2), Fraction(t.random.randint(0, 12), 12))))
        for _ in range(n)
    )


def householder_matrix(w: Vector, beta: Element | Fraction | int) -> Matrix:
    """I - β w wᵀ/(w·w)."""
    return householder(w, Q(beta) / dot(w, w))


def multiplied(factors: Iterable[Matrix], n: int) -> Matrix:
    """The product, leftmost first."""
    total = identity(Q, n)
    for factor in factors:
        total = matmul(total, factor)
    return total


def rational_matrix(a: Matrix) -> fmpq_mat:
    """A matrix over Q for python-flint."""
    entries = [x.as_fraction() for row in a for x in row]
    return fmpq_mat(len(a), len(a[0]), [fmpq(x.numerator, x.denominator) for x in entries if x is not None])


def rank_off(a: Matrix, b: Matrix) -> int:
    """rank(A - B)."""
    return (rational_matrix(a) - rational_matrix(b)).rank()


def characteristic_of(a: Matrix) -> Polynomial:
    """The characteristic polynomial, the constant term first."""
    return tuple(Fraction(int(c.p), int(c.q)) for c in rational_matrix(a).charpoly().coeffs())


def permutation_matrix(p: Sequence[int]) -> Matrix:
    """e_j -> e_(p_j)."""
    return matrix(Q, [[int(p[j] == i) for j in range(len(p))] for i in range(len(p))])


def cycles(p: Sequence[int]) -> list[list[int]]:
    """The cycles, fixed points too."""
    found: list[list[int]] = []
    for i in range(len(p)):
        if not any(i in cycle for cycle in found):
            cycle = [i]
            while p[cycle[-1]] != i:
                cycle.append(p[cycle[-1]])
            found.append(cycle)
    return found


@claim(
    "GRAZZI-prop-1.1",
    "A product of generalised Householder matrices with 1 - β in [-1, 1] has norm at most 1.",
    source="Grazzi et al., Prop. 1, item 1",
    kinds="E P",
    control={"beta_max": 3},
    proves=True,
)
def norm(t: Trial, beta_max: int = 2) -> None:
    """(I - βP)² = I - β(2 - β)P for a projection P, so |H x|² = |x|² - β(2 - β)|P x|² ≤ |x|² for β in [0, 2].

    The identity is one in Q[β, P]/(P² - P) = Q[β] × Q[β] (P = 0 and P = 1), of degree 2 in β: three values prove it.
    The norm of a product is at most the product of the norms. Then vectors moved by random products.
    """
    for beta in range(3):
        for p in (0, 1):
            t.equal(f"β = {beta}, P = {p}", (1 - beta * p) ** 2, 1 - beta * (2 - beta) * p)
    for beta in (Fraction(i, 6) for i in range(6 * beta_max + 1)):
        t.holds(f"β(2 - β) ≥ 0 at β = {beta}", beta * (2 - beta) >= 0)
    for _ in range(t.amount(20, 100, 1000)):
        n = t.random.randint(1, 4)
        total = multiplied(
            (householder_matrix(random_key(t, n), Fraction(t.random.randint(0, 12 * beta_max), 12)) for _ in range(3)),
            n,
        )
        x = random_key(t, n)
        y = tuple(dot(row, x) for row in total)
        t.holds("a vector does not grow", dot(y, y) <= dot(x, x))


@claim(
    "GRAZZI-prop-1.2-orthogonal",
    "An orthogonal n × n matrix is a product of at most n reflections.",
    source="Grazzi et al., Prop. 1, item 2",
    kinds="C",
    control={"fewer": 1},
    proves=True,
)
def orthogonal(t: Trial, fewer: int = 0) -> None:
    """By OURS-reflection-count, rank(Q - I) ≤ n will do. Exact products of the factors found; -I takes all n."""
    for n in range(1, t.amount(6, 8, 10)):
        given = [diagonal(Q, [-1] * n)] + [random_orthogonal(t, n) for _ in range(t.amount(5, 20, 100))]
        for q in given:
            keys = reflections(q)
            t.holds(f"n = {n}: at most {n - fewer} reflections", len(keys) <= n - fewer, len(keys))
            t.equal(f"n = {n}: the product", multiplied((householder_matrix(v, 2) for v in keys), n), q)


@claim(
    "OURS-reflection-count",
    "The least number of reflections, and of generalised Householders, with product an orthogonal Q is rank(Q - I).",
    source="sharpens Grazzi et al., Prop. 1, item 2",
    kinds="C P",
    control={"extra": 1},
    proves=True,
)
def reflection_count(t: Trial, extra: int = 0) -> None:
    """A product of k factors is I plus rank at most k, so k ≥ rank(Q - I). Conversely the reflection in v = Q e - e ≠ 0
    keeps all that Q fixes, for that is orthogonal to v, and sends Q e to e: the rank falls by one each time."""
    for _ in range(t.amount(60, 300, 2000)):
        n = t.random.randint(1, 5)
        q = random_orthogonal(t, n)
        t.equal("reflections", len(reflections(q)), rank_off(q, identity(Q, n)) + extra)
        k = t.random.randint(0, n)
        total = multiplied(
            (householder_matrix(random_key(t, n), Fraction(t.random.randint(0, 8), 4)) for _ in range(k)), n
        )
        t.holds("rank of a product less I", rank_off(total, identity(Q, n)) <= k)


@claim(
    "GRAZZI-prop-1.2-permutation",
    "A permutation that moves k ≥ 1 points is a product of k - 1 swaps at most, each a reflection.",
    source="Grazzi et al., Prop. 1, item 2",
    kinds="X",
    control={"fewer": 2},
    hypotheses=("some point is moved; the identity takes none",),
    proves=True,
)
def permutation(t: Trial, fewer: int = 1) -> None:
    """Permutations of up to 5, 6 or 7 points: (c_1 ... c_l) = (c_1 c_2)(c_2 c_3)...(c_(l-1) c_l): right to
    left, c_i meets (c_i c_(i+1)) alone for i < l, and c_l is carried back to c_1."""
    for n in range(2, t.amount(6, 7, 8)):
        for p in permutations(range(n)):
            swaps = [(a, b) for cycle in cycles(p) for a, b in pairwise(cycle)]
            keys = [tuple(Q(int(i == a) - int(i == b)) for i in range(n)) for a, b in swaps]
            moved = sum(p[i] != i for i in range(n))
            t.equal(f"{p}", multiplied((householder_matrix(v, 2) for v in keys), n), permutation_matrix(p))
            t.holds(f"{p}: number of swaps", len(swaps) <= max(0, moved - fewer), len(swaps))


@claim(
    "OURS-cycle-count",
    "A permutation matrix takes exactly n - #cycles generalised Householders, and as many CKDA transitions if not I.",
    source="sharpens Grazzi et al., Prop. 1, item 2 and CKDA Prop. 10",
    kinds="X",
    control={"fixed": 1},
    proves=True,
)
def cycle_count(t: Trial, fixed: int = 0) -> None:
    """Lower bound for every diagonal D: rank(P - D) ≥ n - #cycles by the minor without the first row and last column of
    each cycle; it is unit triangular in the order of the cycles, whatever D is. Upper bound: reflections."""
    for n in range(2, t.amount(6, 7, 8)):
        for p in permutations(range(n)):
            found = cycles(p)
            least = n - len(found) + fixed
            t.equal(f"{p}: reflections", len(reflections(permutation_matrix(p))), least)
            t.equal(f"{p}: rank of P - D for all D", cycle_minor(p), least)


def cycle_minor(p: Sequence[int]) -> int:
    """The size of the minor of P - Diag(d), d arbitrary, on the rows c_2 ... c_l and columns c_1 ... c_(l-1) of each
    cycle, found unit upper triangular: 1 on the diagonal, 0 below it. -1 if it is not."""
    order = cycles(p)
    rows = [i for cycle in order for i in cycle[1:]]
    columns = [j for cycle in order for j in cycle[:-1]]
    for a, i in enumerate(rows):
        for b, j in enumerate(columns):
            # An entry of P - Diag(d): 1 where p_j = i, and the unknown -d_i where i = j.
            if b <= a and (i == j or (p[j] == i) != (a == b)):
                return -1
    return len(rows)


@claim(
    "GRAZZI-prop-1.2-contraction",
    "A matrix of norm at most 1 is a product of 3n generalised Householders with 1 - β in [-1, 1].",
    source="Grazzi et al., Prop. 1, item 2",
    kinds="C",
    control={"low": Fraction(1, 4)},
    proves=True,
)
def contraction(t: Trial, low: Fraction = Fraction(0)) -> None:
    """U in n reflections, the sizes s_i as β = 1 - s_i along e_i, Vᵀ in n; exact over Q, padded by β = 0."""
    for n in range(1, t.amount(5, 6, 8)):
        for _ in range(t.amount(5, 20, 100)):
            u, v, sizes = random_orthogonal(t, n), random_orthogonal(t, n), random_sizes(t, n)
            axes = identity(Q, n)
            left = [householder_matrix(w, 2) for w in reflections(u)]
            middle = [householder_matrix(axes[i], 1 - max(sizes[i], Q(low))) for i in range(n)]
            right = [householder_matrix(w, 2) for w in reflections(transpose(v))]
            m = matmul(matmul(u, diagonal(Q, sizes)), transpose(v))
            t.holds(f"n = {n}: at most 3n", len(left) + len(middle) + len(right) <= 3 * n)
            t.equal(f"n = {n}: the product", multiplied(left + middle + right, n), m)


@claim(
    "OURS-2n-1",
    "A matrix of norm at most 1 is a product of 2n - 1 generalised Householders; the zero matrix needs n.",
    source="sharpens 3n in Grazzi et al., Prop. 1, item 2",
    kinds="C",
    control={"spare": 2},
    proves=True,
)
def two_n_less_one(t: Trial, spare: int = 1) -> None:
    """The polar form with one sign moved, exact over Q. A sharp case: -I times a rotation, and the zero matrix."""
    for n in range(1, t.amount(5, 6, 8)):
        one = identity(Q, n)
        given = [(one, tuple(Q(0) for _ in range(n)), one), (diagonal(Q, [-1] * n), (Q(Fraction(1, 2)),) * n, one)]
        given += [
            (random_orthogonal(t, n), random_sizes(t, n), random_orthogonal(t, n)) for _ in range(t.amount(6, 20, 100))
        ]
        for u, sizes, v in given:
            factors = contraction_by_householders(u, sizes, v)
            m = matmul(matmul(u, diagonal(Q, sizes)), transpose(v))
            t.holds(f"n = {n}: at most 2n - {spare}", len(factors) <= 2 * n - spare, len(factors))
            t.holds("β in [0, 2]", all(0 <= beta <= 2 for _, beta in factors))
            t.equal(f"n = {n}: the product", multiplied((householder_matrix(w, b) for w, b in factors), n), m)
        t.equal("rank(0 - I)", rank_off(matrix(Q, [[0] * n] * n), one), n)


@claim(
    "OURS-one-negative-value",
    "Values 1 - β in {-1} ∪ [0, 1] suffice for all contractions, with 2n factors; [-1, 1] is not needed.",
    source="against 'only when [-1, 1] is in Ω' after Grazzi et al., Prop. 1",
    kinds="C",
    control={"allowed": (0, 1)},
    proves=True,
)
def one_negative_value(t: Trial, allowed: tuple[int, int] = (-1, 1)) -> None:
    """Polar form without moving the sign: rank(Q - I) ≤ n reflections, then β = 1 - size along the columns of V."""
    for n in range(1, t.amount(5, 6, 8)):
        for _ in range(t.amount(6, 20, 100)):
            u, sizes, v = random_orthogonal(t, n), random_sizes(t, n), random_orthogonal(t, n)
            values = [(w, Q(-1)) for w in reflections(matmul(u, transpose(v)))] + list(
                zip(transpose(v), sizes, strict=True)
            )
            m = matmul(matmul(u, diagonal(Q, sizes)), transpose(v))
            t.holds(f"n = {n}: at most 2n", len(values) <= 2 * n)
            t.holds("-1 or in [0, 1]", all(x == allowed[0] or 0 <= x <= allowed[1] for _, x in values))
            t.equal(f"n = {n}: the product", multiplied((householder_matrix(w, 1 - x) for w, x in values), n), m)


@claim(
    "GRAZZI-prop-1.3",
    "For 1 - β in (-1, 1] an eigenvalue is 1 or in the open disc; for two factors with 1 - β in [0, 1] in [0, 1].",
    source="Grazzi et al., Prop. 1, item 3",
    kinds="P",
    control={"factors": 3},
    figure="spectra",
)
def inside(t: Trial, factors: int = 2) -> None:
    """Exact: no eigenvalue but 1 on the circle, by gcd of p and its reversal; signs of p for the spectrum in [0, 1]."""
    cases: list[list[tuple[tuple[int, ...], Fraction]]]
    cases = [[((1, 0), Fraction(1)), ((1, 2), Fraction(1)), ((-1, 2), Fraction(1))][:factors]]
    for _ in range(t.amount(60, 300, 3000)):
        n = t.random.randint(1, 4)
        cases.append(
            [
                (tuple(int(x.nums[0]) for x in random_key(t, n)), Fraction(t.random.randint(0, 12), 12))
                for _ in range(factors)
            ]
        )
    for case in cases:
        n = len(case[0][0])
        p = characteristic_of(multiplied((householder_matrix(tuple(map(Q, w)), b) for w, b in case), n))
        t.equal(f"non-real pairs, {case}", nonreal_pairs(p), 0)
        t.holds(f"no negative eigenvalue, {case}", all((-1) ** (n - i) * c >= 0 for i, c in enumerate(p)))
    for _ in range(t.amount(60, 300, 3000)):
        n, k = t.random.randint(1, 4), t.random.randint(1, 4)
        total = multiplied(
            (householder_matrix(random_key(t, n), Fraction(t.random.randint(0, 23), 12)) for _ in range(k)), n
        )
        p = characteristic_of(total)
        t.equal("on the circle only 1", len(circle_factor(p)) - 1, at_one(p))
        t.equal("1 is semisimple", n - rank_off(total, identity(Q, n)), at_one(p))


@claim(
    "CKDA-prop-10",
    "A contraction is a product of max(1, 2n - 2) CKDA transitions, an orthogonal matrix of max(1, n - 1); the n-cycle "
    "needs so many, and for n = 2 a contraction may need two.",
    source="CKDA Prop. 10, App. A.5",
    kinds="C E N",
    control={"spare": 1},
    proves=True,
)
def gated_products(t: Trial, spare: int = 0) -> None:
    """Exact factors of U Diag(s) Vᵀ and of orthogonal matrices; any contraction in doubles to 1e-12. The n-cycle less
    any diagonal has a unit triangular minor of size n - 1. [[1/2, 1/2], [0, 1/2]]: A_21 = -α_1 β k_1 k_2 = 0 ≠ A_12
    makes α_1 = 0, but the determinant is not 0."""
    random = np.random.default_rng(t.random.randrange(1 << 30))
    for n in range(1, t.amount(6, 7, 9)):
        for _ in range(t.amount(6, 20, 100)):
            u, v, sizes = random_orthogonal(t, n), random_orthogonal(t, n), random_sizes(t, n)
            factors = contraction_by_gated(u, sizes, v)
            t.holds(f"n = {n}: 2n - 2", len(factors) <= max(1, 2 * n - 2) - spare, len(factors))
            t.holds("ranges", all(0 <= f.beta <= 2 and all(-1 <= g <= 1 for g in f.gates) for f in factors))
            m = matmul(matmul(u, diagonal(Q, sizes)), transpose(v))
            t.equal(f"n = {n}: the product", multiplied((f.matrix() for f in factors), n), m)
            turns = gated_reflections(u)
            t.holds(f"n = {n}: n - 1", len(turns) <= max(1, n - 1) - spare)
            t.equal(f"n = {n}: orthogonal", multiplied((f.matrix() for f in turns), n), u)
            floats = random.standard_normal((n, n))
            floats /= np.linalg.norm(floats, 2)
            found = factor_contraction(floats)
            t.holds("in doubles", len(found) <= max(1, 2 * n - 2) and np.abs(multiply(found) - floats).max() < 1e-12)
        if n > 1:
            t.equal(f"the {n}-cycle", cycle_minor([*range(1, n), 0]), n - 1)
    for _ in range(t.amount(100, 500, 2000)):
        w, beta = random_key(t, 2), Fraction(t.random.randint(0, 8), 4)
        gates = [Q(Fraction(t.random.randint(-4, 4), 4)) for _ in range(2)]
        a = matmul(householder_matrix(w, beta), diagonal(Q, gates))
        shape = a[1][0].is_zero() and not a[0][1].is_zero()
        t.holds("one transition", not shape or a[0][0] * a[1][1] == 0)


@claim(
    "OURS-fewest-orthogonal-factors",
    "The least number of CKDA transitions with an orthogonal product Q ≠ I is max(1, min of rank(Q - S) over signs S).",
    source="sharpens CKDA Prop. 10, App. A.5",
    kinds="C",
    control={"signs": False},
)
def fewest(t: Trial, signs: bool = True) -> None:
    """A contraction cannot be undone, so all factors are orthogonal, with β in {0, 2} and gates ±1: their signs move to
    the right through reflections. One transition iff the recogniser finds a factor."""
    for _ in range(t.amount(25, 100, 500)):
        n = t.random.randint(1, 4)
        q = random_orthogonal(t, n)
        count = fewest_gated(q)
        ranks = (
            [rank_off(q, diagonal(Q, s)) for s in product((1, -1), repeat=n)]
            if signs
            else [rank_off(q, identity(Q, n))]
        )
        t.equal("by ranks", count, 0 if q == identity(Q, n) else max(1, min(ranks)))
        t.equal("one", count <= 1, next(signed_householders(q), None) is not None)
        t.holds("at most n - 1", count <= max(1, n - 1))


def circle_factor(p: Polynomial) -> Polynomial:
    """The factor of a contraction's p with the roots on the circle: λ and 1/λ are both roots only there."""
    forward = fmpq_poly([fmpq(c.numerator, c.denominator) for c in p])
    backward = fmpq_poly([fmpq(c.numerator, c.denominator) for c in reversed(p)])
    return tuple(Fraction(int(c.p), int(c.q)) for c in forward.gcd(backward).coeffs())


def at_one(p: Polynomial) -> int:
    """The multiplicity of the root 1."""
    count = 0
    while len(p) > 1 and sum(p) == 0:
        quotient = [p[-1]]
        for c in reversed(p[1:-1]):
            quotient.append(quotient[-1] + c)
        p, count = tuple(reversed(quotient)), count + 1
    return count
