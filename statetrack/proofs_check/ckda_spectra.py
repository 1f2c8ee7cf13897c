"""Claims about single CKDA transitions (I - β k kᵀ) Diag(α): rotations, recognition, spectra, products.

Random transitions are rational; spectra are decided exactly (isolated roots, discriminants), without floats.

Main results: CKDA-planar-rotation, CKDA-scalar-gates-commute, CKDA-thm-1, CKDA-thm-2, CKDA-thm-8, CKDA-thm-9,
CKDA-gauge-identity, CKDA-table-1-spectra; OURS-pair-needs-both-signs, OURS-pair-modulus,
OURS-inverse-spectrum, OURS-attainable-spectra. CKDA-prop-10 is in `grazzi_products`.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np

from statetrack.theory.arrays import Matrix, Vector, add, diagonal, dot, identity, matmul, outer, scale, transpose
from statetrack.theory.fields import Element
from statetrack.theory.householder import householder, is_orthogonal, signed_householder_of, signed_householders
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.transition_spectra import (
    FAMILIES,
    Polynomial,
    block,
    characteristic,
    determinant_range,
    effective_beta,
    has_nonreal_pair,
    inverse_spectrum,
    key_squares,
    nonreal_pairs,
    plane_pair,
    product_pair,
    sample,
)

from .claim import Trial, claim
from .grazzi_products import (
    Q,
    characteristic_of,
    circle_factor,
    cycle_minor,
    householder_matrix,
    multiplied,
    permutation_matrix,
    random_key,
    random_orthogonal,
    rank_off,
)

Case = tuple[tuple[Fraction, ...], Fraction, tuple[Fraction, ...]]


def random_case(t: Trial, low: int = -1, beta_max: int = 2) -> Case:
    """(squares, β, gates) of a transition with n ≤ 5: zeros, repeated and small gates, the ends of the ranges."""
    n = t.random.randint(1, 5)
    squares = key_squares([int(x.nums[0]) for x in random_key(t, n)])
    small = t.random.choice((1, 1, 7))
    gates = tuple(
        Fraction(t.random.choice((low, 1, 0, t.random.randint(12 * low, 12) / Fraction(12 * small)))) for _ in range(n)
    )
    beta = Fraction(t.random.choice((0, beta_max, t.random.randint(0, 20 * beta_max) / Fraction(20))))
    return squares, beta, gates


@claim(
    "CKDA-planar-rotation",
    "A reflection after Diag(1, -1), or after Diag(-1, 1), is a rotation of the plane by any angle.",
    source="CKDA Sec. 3",
    kinds="E",
    control={"gate": 1},
    proves=True,
    figure="signed-householder",
)
def planar_rotation(t: Trial, gate: int = -1) -> None:
    """For the key (x, y), times x² + y²: entries of degree 2 in x and in y, so nine values prove the identity; and
    (x² - y², 2xy)/(x² + y²) is every point of the circle. Then rotations by 2πp/q in their fields."""
    for x, y in product((1, 2, 3), repeat=2):
        size, cosine, sine = x * x + y * y, x * x - y * y, 2 * x * y
        turn = [[-cosine, sine], [-sine, -cosine]]
        a = matmul(householder_matrix((Q(x), Q(y)), 2), diagonal(Q, (1, gate)))
        t.equal(f"key ({x}, {y})", scale(Q(size), a), tuple(tuple(map(Q, row)) for row in turn))
        b = matmul(householder_matrix((Q(x), Q(y)), 2), diagonal(Q, (gate, 1)))
        t.equal(f"key ({x}, {y}), other gate", scale(Q(-size), b), tuple(tuple(map(Q, row)) for row in turn))
    for q in range(1, t.amount(9, 25, 60)):
        field = RealCyclotomic(4 * q)
        for p in range(q):
            c, s, one = field.cos(p, q), field.sin(p, q), field.one
            half = ((one - c, -s), (-s, one + c))
            a = matmul(add(identity(field, 2), scale(field(-1), half)), diagonal(field, (1, gate)))
            t.equal(f"angle {p}/{q}", a, ((c, -s), (s, c)))


@claim(
    "CKDA-scalar-gates-commute",
    "A scalar gate commutes with every matrix, so the transition is symmetric; channel-wise gates commute with "
    "I - β k kᵀ iff equal on each pair of coordinates that the key joins.",
    source="CKDA Sec. 3",
    kinds="E P",
    control={"scalar": False},
    proves=True,
)
def scalar_gates(t: Trial, scalar: bool = True) -> None:
    """The commutator has the entries -β k_i k_j (α_j - α_i): checked on random cases, as is the symmetry."""
    for _ in range(t.amount(100, 500, 3000)):
        n = t.random.randint(1, 4)
        w, beta = random_key(t, n), Fraction(t.random.randint(0, 8), 4)
        gates = [Fraction(t.random.randint(-3, 3), 3) for _ in range(n)]
        h, d = householder_matrix(w, beta), diagonal(Q, [Q(g) for g in gates])
        joined = any(beta and not (w[i] * w[j]).is_zero() and gates[i] != gates[j] for i in range(n) for j in range(n))
        t.equal("channel-wise gates commute", matmul(h, d) == matmul(d, h), not joined)
        t.equal("and then the transition is symmetric", matmul(h, d) == transpose(matmul(h, d)), not joined)
        one = diagonal(Q, [Q(gates[0])] * n) if scalar else d
        m = tuple(tuple(Q(t.random.randint(-3, 3)) for _ in range(n)) for _ in range(n))
        t.equal("a scalar gate commutes with any matrix", matmul(m, one), matmul(one, m))


@claim(
    "CKDA-thm-1",
    "An orthogonal D + u vᵀ is a signed Householder (I - 2 k kᵀ) S, with at most one non-real pair of eigenvalues.",
    source="CKDA Thm. 1, App. A.1",
    kinds="C P",
    control={"more": 1},
    figure="signed-householder",
)
def orthogonal_is_signed(t: Trial, more: int = 0) -> None:
    """Orthogonal D + u vᵀ, also with D no sign matrix (two coordinates), recovered by the proof's formula and found by
    the recogniser; the converse on signed permutations: those found are those of rank 1 off a diagonal."""
    for _ in range(t.amount(40, 200, 1000)):
        d, u, v = _orthogonal_sum(t, t.random.randint(2, 5))
        a = add(diagonal(Q, d), outer(u, v))
        t.holds("orthogonal", is_orthogonal(a))
        t.equal("recovered from D, u, v", signed_householder_of(d, u, v).matrix(), a)
        for _ in range(more):
            a = matmul(householder_matrix(random_key(t, len(a)), 2), a)
        t.holds("found by the recogniser", next(signed_householders(a), None) is not None)
        t.holds("at most one pair", nonreal_pairs(characteristic_of(a)) <= 1)
    for p in ((0, 1, 2), (1, 0, 2), (2, 1, 0), (1, 2, 0), (1, 2, 3, 0), (1, 0, 3, 2)):
        for signs in product((1, -1), repeat=len(p)):
            a = matmul(permutation_matrix(p), diagonal(Q, signs))
            t.equal(f"{p}, {signs}", next(signed_householders(a), None) is not None, cycle_minor(p) <= 1)


def _orthogonal_sum(t: Trial, n: int) -> tuple[Vector, Vector, Vector]:
    """(d, u, v) with Diag(d) + u vᵀ orthogonal: a signed Householder; on two coordinates with a d of one parameter."""
    signs = tuple(t.random.choice((1, -1)) for _ in range(n))
    w = random_key(t, n)
    if t.random.random() < 0.5:
        i, j = t.random.sample(range(n), 2)
        w = tuple(x if k in (i, j) else Q(0) for k, x in enumerate(random_key(t, n)))
        if not (w[i] * w[j]).is_zero():
            a = matmul(householder_matrix(w, 2), diagonal(Q, signs))
            off = Q(t.random.choice((Fraction(1), Fraction(-1, 2), Fraction(3, 5))))
            d = [Q(s) for s in signs]
            d[i], d[j] = a[i][i] - off, a[j][j] - a[i][j] * a[j][i] / off
            u, v = [Q(0)] * n, [Q(0)] * n
            u[i], u[j], v[i], v[j] = off, a[j][i], Q(1), a[i][j] / off
            return tuple(d), tuple(u), tuple(v)
        w = random_key(t, n)
    d = tuple(map(Q, signs))
    return d, tuple(-2 * x / dot(w, w) for x in w), tuple(x * s for x, s in zip(w, d, strict=True))


@claim(
    "CKDA-thm-2",
    "With S = sign α, (I - β k kᵀ) S is orthogonally similar to B(β, θ) ⊕ -I ⊕ I, a rotation at most in one plane: iff "
    "β > 1 and |cos 2θ| < 2√(β - 1)/β.",
    source="CKDA Thm. 2, App. A.2",
    kinds="E P",
    control={"turn": -1},
    proves=True,
    figure="window",
)
def sign_magnitude(t: Trial, turn: int = 1) -> None:
    """Ã = S across k, and Ã(k_-/|k_-|), Ã(k_+/|k_+|) are the columns of B by one multiplication. Here P is built over Q
    from rational unit vectors and Pythagorean cos θ, sin θ, θ = 0 and 90° too; PᵀÃP is compared entry by entry."""
    angles = [(0, 1, 1), (1, 0, 1), (3, 4, 5), (4, 3, 5), (5, 12, 13), (20, 21, 29), (24, 7, 25)]
    for _ in range(t.amount(60, 300, 2000)):
        minus, plus = t.random.randint(1, 3), t.random.randint(1, 3)
        adjacent, opposite, size = t.random.choice(angles)
        c, s = Fraction(adjacent, size), Fraction(opposite, size)
        beta = Fraction(t.random.randint(0, 20), 10)
        frames = [random_orthogonal(t, m) for m in (minus, plus)]
        key = tuple(c * row[0] for row in frames[0]) + tuple(s * row[0] for row in frames[1])
        signs = (-1,) * minus + (1,) * plus
        a = matmul(householder(key, Q(beta)), diagonal(Q, signs))
        n, p = minus + plus, _arranged(frames)
        expected = [[Q(int(i == j) * (-1 if 2 <= i < minus + 1 else 1)) for j in range(n)] for i in range(n)]
        b = block(beta, c, s)
        for i, j in product(range(2), repeat=2):
            expected[i][j] = Q(b[i][j] * (turn if i != j else 1))
        got = matmul(transpose(p), matmul(a, p))
        t.equal("orthogonal P", matmul(transpose(p), p), identity(Q, n))
        t.equal(f"PᵀÃP, β = {beta}, cos θ = {c}", got, tuple(map(tuple, expected)))
        real = beta <= 1 or (beta * (c * c - s * s)) ** 2 >= 4 * (beta - 1)
        t.equal("a pair", nonreal_pairs(characteristic_of(a)), int(not real))
        t.equal("B(2, θ)", block(Fraction(2), c, s), ((c * c - s * s, -2 * c * s), (2 * c * s, c * c - s * s)))


def _arranged(frames: list[Matrix]) -> Matrix:
    """P: the first columns of both frames, then the others of the first, then the others of the second."""
    sizes = [len(frame) for frame in frames]
    first = [column + (Q(0),) * sizes[1] for column in transpose(frames[0])]
    second = [(Q(0),) * sizes[0] + column for column in transpose(frames[1])]
    return transpose((first[0], second[0], *first[1:], *second[1:]))


@claim(
    "CKDA-thm-8",
    "A transition has at most one non-real pair of eigenvalues, and only if β > 1 and some gate is negative.",
    source="CKDA Thm. 8, App. A.3",
    kinds="P",
    control={"factors": 2},
    proves=True,
    figure="spectra",
)
def one_pair(t: Trial, factors: int = 1) -> None:
    """f = det(x - A)/Π(x - α) = 1 + Σ w_a/(x - a) over the m distinct gates a ≠ 0 on the support, sign w_a = sign a:
    between neighbouring poles of one sign f runs from ∞ to -∞ or back: m - 2 real roots, m - 1 and so all if only one
    sign occurs. Around 0 f tends to -∞ at both ends, and f(0) = 1 - β κ² ≥ 0 gives two more. Control: a product."""
    turn = (key_squares((1, 1)), Fraction(2), (Fraction(1), Fraction(-1)))
    p = _times([characteristic(*turn)] * factors)
    t.holds("pairs of quarter turns", nonreal_pairs(p) <= 1, nonreal_pairs(p))
    for wide in (False, True):
        for _ in range(t.amount(300, 1500, 20000)):
            squares, beta, gates = random_case(t, *((-3, 5) if wide else (-1, 2)))
            pairs = nonreal_pairs(characteristic(squares, beta, gates))
            t.holds("at most one pair", pairs <= 1, pairs)
            t.equal(f"discriminant, {squares}, {beta}, {gates}", has_nonreal_pair(squares, beta, gates), pairs == 1)
            t.holds("β > 1 and a negative gate", not pairs or (beta > 1 and min(gates) < 0))
    for _ in range(t.amount(30, 100, 500)):
        n = t.random.randint(1, 4)
        w, beta = random_key(t, n), Fraction(t.random.randint(0, 8), 4)
        gates = [Fraction(t.random.randint(-3, 3), 3) for _ in range(n)]
        a = matmul(householder_matrix(w, beta), diagonal(Q, list(map(Q, gates))))
        t.equal("formula", characteristic(key_squares([int(x.nums[0]) for x in w]), beta, gates), characteristic_of(a))


def _times(factors: list[Polynomial]) -> Polynomial:
    total: Polynomial = (Fraction(1),)
    for p in factors:
        terms = [Fraction(0)] * (len(total) + len(p) - 1)
        for i, a in enumerate(total):
            for j, b in enumerate(p):
                terms[i + j] += a * b
        total = tuple(terms)
    return total


@claim(
    "OURS-pair-needs-both-signs",
    "A non-real pair needs β κ² > 1 and gates of both signs on the support of the key; zero gates do not count.",
    source="sharpens CKDA Thm. 8",
    kinds="P",
    control={"both": False},
    proves=True,
    figure="window",
)
def both_signs(t: Trial, both: bool = True) -> None:
    """By the proof of CKDA-thm-8. Exact cases; the control asks for a pair wherever β > 1 and a gate is negative."""
    for _ in range(t.amount(400, 2000, 20000)):
        squares, beta, gates = random_case(t)
        used = [gate for square, gate in zip(squares, gates, strict=True) if square]
        pair = has_nonreal_pair(squares, beta, gates)
        signs = min(used) < 0 < max(used) and effective_beta(squares, beta, gates) > 1
        t.holds(f"{squares}, {beta}, {gates}", not pair or signs)
        t.holds("β > 1 and a negative gate suffice", both or pair or beta <= 1 or min(gates) >= 0)


@claim(
    "OURS-pair-modulus",
    "A non-real pair has |λ|² between (β κ² - 1) min α_+ min |α_-| and (β κ² - 1) max α_+ max |α_-| ≤ β - 1, the gates "
    "taken on the support; so it is on the circle iff β = 2 and the gates on the support are ±1, of both signs.",
    source="sharpens CKDA Thm. 8",
    kinds="N",
    control={"scale": 0.9},
    figure="beta",
)
def pair_modulus(t: Trial, scale: float = 1.0) -> None:
    """Pairs of exact polynomials, their moduli from isolated roots in doubles to 1e-9."""
    for _ in range(t.amount(600, 3000, 20000)):
        squares, beta, gates = random_case(t)
        if not has_nonreal_pair(squares, beta, gates):
            continue
        roots = np.roots([float(c) for c in reversed(characteristic(squares, beta, gates))])
        size = float(np.abs(roots[np.argmax(np.abs(roots.imag))])) ** 2
        used = [float(gate) for square, gate in zip(squares, gates, strict=True) if square and gate]
        over = float(effective_beta(squares, beta, gates)) - 1
        above, below = [g for g in used if g > 0], [-g for g in used if g < 0]
        low, high = over * min(above) * min(below), over * max(above) * max(below) * scale
        t.holds(f"{squares}, {beta}, {gates}", low - 1e-9 <= size <= high + 1e-9, size)
        t.holds("at most β - 1", high <= float(beta) - 1 + 1e-12)
        exact = beta == 2 and all(abs(g) == 1 for g in used) and over == 1
        t.equal("on the circle", abs(size - 1) < 1e-9, exact)


@claim(
    "CKDA-thm-9",
    "A contraction D + R, D diagonal and rank R ≤ r, has at most r non-real pairs on the circle; r occur for n ≥ 2r.",
    source="CKDA Thm. 9, App. A.4",
    kinds="P",
    control={"fewer": 1},
    hypotheses=("norm at most 1: see ERRATA-C5",),
    proves=True,
)
def pairs_on_circle(t: Trial, fewer: int = 0) -> None:
    """|λ| = 1, A x = λ x and norm 1 give Aᵀx = λ* x, so x = (A - Aᵀ)x/(λ - λ*) lies in the range of R - Rᵀ, of rank 2r;
    the complement of x is invariant, so such x split off with multiplicity. On products of r transitions (diagonal
    plus rank r) the pairs are counted by the gcd of p and its reversal; first r quarter turns in separate planes."""
    for _ in range(t.amount(60, 300, 2000)):
        r = t.random.randint(1, 3)
        n = t.random.randint(2 * r, 6)
        for tight in (True, False):
            factors: list[Matrix] = []
            for i in range(r):
                joined = tuple(Q(int(j in (2 * i, 2 * i + 1))) for j in range(n))
                gates = [Q(-1 if j == 2 * i else 1) for j in range(n)]
                if not tight:
                    joined, gates = random_key(t, n), [Q(t.random.choice((1, -1, 1, -1, 0))) for _ in range(n)]
                factors.append(matmul(householder_matrix(joined, 2), diagonal(Q, gates)))
            a = multiplied(factors, n)
            pairs = nonreal_pairs(circle_factor(characteristic_of(a)))
            t.holds(f"pairs on the circle, r = {r}", pairs <= r - fewer, pairs)
            t.holds("attained", not tight or pairs == r - fewer)
            t.holds("rank of the skew part", rank_off(a, transpose(a)) >= 2 * pairs)


@claim(
    "CKDA-gauge-identity",
    "With σ_t the product of the signs of the gates, keys and queries σ k, σ q and gates |α| give the same outputs, "
    "and Diag(σ_T) times the same state.",
    source="CKDA App. E",
    kinds="E P",
    control={"moved": False},
    proves=True,
)
def gauge(t: Trial, moved: bool = True) -> None:
    """S'_t = Diag(σ_t) S_t by induction, as sign diagonals commute with gates. Exact runs, zero gates (sign +1) too."""
    for _ in range(t.amount(30, 100, 1000)):
        n = t.random.randint(1, 4)
        plain, other, signs = (Q(0),) * n, (Q(0),) * n, [1] * n
        for step in range(t.random.randint(1, 8)):
            k, query, beta = random_key(t, n), random_key(t, n), Q(Fraction(t.random.randint(0, 8), 4)) / 9
            gates, value = [Q(Fraction(t.random.randint(-3, 3), 3)) for _ in range(n)], Q(t.random.randint(-3, 3))
            signs = [s * (-1 if g < 0 else 1) for s, g in zip(signs, gates, strict=True)]
            used = signs if moved else [1] * n
            plain = _delta(plain, k, beta, gates, value)
            sizes = [g if g >= 0 else -g for g in gates]
            other = _delta(other, tuple(x * s for x, s in zip(k, used, strict=True)), beta, sizes, value)
            answer = dot(other, tuple(x * s for x, s in zip(query, used, strict=True)))
            t.equal(f"output {step}", answer, dot(plain, query))
        t.equal("state", tuple(x * s for x, s in zip(other, signs, strict=True)), plain)


def _delta(state: Vector, k: Vector, beta: Element, gates: list[Element], value: Element) -> Vector:
    """(I - β k kᵀ) Diag(gates) S + β k v, for one column."""
    faded = tuple(g * x for g, x in zip(gates, state, strict=True))
    change = beta * (value - dot(k, faded))
    return tuple(x + change * y for x, y in zip(faded, k, strict=True))


@claim(
    "OURS-inverse-spectrum",
    "Gates (1, -1) attain every pair of the closed disc, with β = 1 + |λ|²; distinct non-zero gates attain p iff the "
    "weights p(α_i)/(α_i Π(α_i - α_j)) are at least 0 and sum to at most 2.",
    source="sharpens CKDA Thm. 8",
    kinds="C P",
    control={"beta_max": 1},
    proves=True,
    figure="beta",
)
def inverse(t: Trial, beta_max: int = 2) -> None:
    """p(α_i) = β k_i² α_i Π(α_i - α_j), and n values fix a monic p. Rational sizes and cosines exactly; then random
    transitions are found again from their polynomials."""
    steps = t.amount(8, 16, 40)
    for i, j in product(range(steps + 1), range(-steps, steps + 1)):
        size, cosine = Fraction(i, steps), Fraction(j, steps)
        target = (size * size, -2 * size * cosine, Fraction(1))
        found = inverse_spectrum(target, (1, -1), beta_max)
        t.holds(f"size {size}, cosine {cosine}", found is not None)
        beta, square = plane_pair(size, cosine)
        t.equal("closed form", found, (beta, (square, 1 - square)))
        t.equal("spectrum", characteristic((square, 1 - square), beta, (1, -1)), target)
    for _ in range(t.amount(100, 500, 3000)):
        gates = t.random.sample([Fraction(i, 6) for i in range(-6, 7) if i], t.random.randint(1, 5))
        squares, beta = (
            key_squares([int(x.nums[0]) for x in random_key(t, len(gates))]),
            Fraction(t.random.randint(1, 8), 4),
        )
        t.equal("found again", inverse_spectrum(characteristic(squares, beta, gates), gates, beta_max), (beta, squares))


@claim(
    "OURS-attainable-spectra",
    "Spectra in dimensions 2 and 3: KDA [0, 1]^n, gate-only [-1, 1]^n, β-only at most one negative, CKDA the disc with "
    "at most one pair, DeltaProduct of two factors a pair or two reals beside 1.",
    source="sharpens CKDA Sec. 4",
    kinds="C N",
    control={"narrow": 0.1},
    figure="regions",
)
def attainable(t: Trial, narrow: float = 0.0) -> None:
    """All random spectra lie inside to 1e-9: in the interval or the disc, and the determinant between its bounds by the
    trace. Multisets are attained exactly: reals by gates and by β along an axis, pairs by two coordinates."""
    for family, n in product(FAMILIES.values(), (2, 3)):
        drawn = sample(family, n, t.amount(2000, 10000, 100000), t.random.randrange(1 << 30))
        matrices = drawn.matrices()
        trace, det = np.trace(matrices, axis1=1, axis2=2), np.linalg.det(matrices)
        low, high = determinant_range(family, n, trace)
        t.holds(f"{family.name}, n = {n}", bool(np.all((low + narrow - 1e-9 <= det) & (det <= high + 1e-9))))
        t.holds("in the disc", bool(np.all(np.abs(drawn.spectra) <= 1 + 1e-9)))
        t.holds("real", family.turns or not np.any(drawn.spectra.imag))
    for _ in range(t.amount(50, 200, 1000)):
        x, y, z = (Fraction(t.random.randint(-6, 6), 6) for _ in range(3))
        axis = (Fraction(0), Fraction(0), Fraction(1))
        reals = _times([(-x, Fraction(1)), (-y, Fraction(1)), (-z, Fraction(1))])
        t.equal("gates alone", characteristic(axis, 0, (x, y, z)), reals)
        t.equal("one by β", characteristic(axis, 1 - z, (x, y, 1)), reals)
        beta, square = plane_pair(abs(x), y)
        pair = (x * x, -2 * abs(x) * y, Fraction(1))
        found = characteristic((square, 1 - square, Fraction(0)), beta, (1, -1, z))
        t.equal("a pair and a real", found, _times([pair, (-z, Fraction(1))]))
        beta, cosine = product_pair(abs(x), y)
        t.equal("two factors", ((1 - beta) ** 2, 2 * beta - beta * beta * cosine - 2, Fraction(1)), pair)


@claim(
    "CKDA-table-1-spectra",
    "What one transition attains: an eigenvalue -1 (parity) with signed gates or β up to 2; a non-real pair on the "
    "circle (counting modulo 3 and more) only with both, or with two factors.",
    source="CKDA Table 1, as far as spectra decide it",
    kinds="C P",
    control={"turning": ("CKDA", "DeltaProduct₂", "β-only")},
    figure="spectra",
)
def table(t: Trial, turning: tuple[str, ...] = ("CKDA", "DeltaProduct₂")) -> None:
    """Cell by cell: a witness at an end of the ranges, or none among random exact cases: signs of the coefficients for
    spectra in [0, 1], isolated roots for real ones."""
    for name, family in FAMILIES.items():
        low, high = Fraction(family.low_gate), Fraction(family.beta_max)
        t.equal(f"{name}: -1", low == -1 or 1 - high == -1, name != "KDA")
        if family.factors > 1:
            a = matmul(householder_matrix((Q(1), Q(0)), 2), householder_matrix((Q(1), Q(1)), 2))
            t.equal(f"{name}: a pair", nonreal_pairs(circle_factor(characteristic_of(a))) > 0, name in turning)
            continue
        found = [characteristic(key_squares((1, 1)), high, (low, 1))]
        found += [characteristic(*random_case(t, family.low_gate, int(high))) for _ in range(t.amount(100, 500, 5000))]
        t.equal(f"{name}: a pair", max(map(nonreal_pairs, found)) > 0, name in turning)
        signs = all((-1) ** (len(p) - 1 - i) * c >= 0 for p in found for i, c in enumerate(p))
        t.equal(f"{name}: none negative", signs, name == "KDA")
