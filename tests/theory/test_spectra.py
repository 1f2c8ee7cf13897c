from __future__ import annotations

import cmath
import itertools
from fractions import Fraction

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from hypothesis import example, given
from hypothesis import strategies as st

from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Matrix, Vector, add, diagonal, dot, identity, matmul, matrix, outer, transpose
from statetrack.theory.householder import (
    GatedHouseholder,
    contraction_by_gated,
    contraction_by_householders,
    fewest_gated,
    gated_reflections,
    householder,
    is_orthogonal,
    reflections,
    signed_householder_of,
    signed_householders,
)
from statetrack.theory.number_fields import rationals
from statetrack.theory.transition_spectra import (
    FAMILIES,
    FloatFactor,
    Polynomial,
    block,
    characteristic,
    determinant_range,
    effective_beta,
    factor_contraction,
    factor_contraction_plainly,
    has_nonreal_pair,
    inverse_spectrum,
    key_squares,
    multiply,
    nonreal_pairs,
    plane_pair,
    product_pair,
    real_bands,
    reduced_characteristic,
    sample,
    trace_range,
    window,
)
from tests.strategies import fewer, fields, keys

Q = rationals()
F = Fraction
FAMILY_CASES = [(name, n) for name in FAMILIES for n in (2, 3)]

gate_values = st.one_of(
    st.sampled_from([F(-1), F(0), F(1), F(1, 84), F(-1, 84)]), st.fractions(-1, 1, max_denominator=12)
)
betas = st.one_of(st.sampled_from([F(0), F(1), F(2)]), st.fractions(0, 2, max_denominator=20))


@st.composite
def transitions(draw: st.DrawFn) -> tuple[tuple[Fraction, ...], Fraction, tuple[Fraction, ...]]:
    n = draw(st.integers(1, 5))
    w = draw(st.lists(st.integers(-3, 3), min_size=n, max_size=n).filter(any))
    gates = draw(st.lists(gate_values, min_size=n, max_size=n))
    return tuple(map(F, w)), draw(betas), tuple(gates)


@st.composite
def orthogonals(draw: st.DrawFn, max_size: int = 4) -> Matrix:
    field, n = draw(fields(2)), draw(st.integers(1, max_size))
    total = diagonal(field, draw(st.lists(st.sampled_from([1, -1]), min_size=n, max_size=n)))
    for w in draw(st.lists(keys(field, n), max_size=n)):
        total = matmul(householder(w, 2 / dot(w, w)), total)
    return total


def product_of(factors: list[Matrix], like: Matrix) -> Matrix:
    total = identity(like[0][0].field, len(like))
    for factor in factors:
        total = matmul(total, factor)
    return total


def reflection(w: Vector) -> Matrix:
    return householder(w, 2 / dot(w, w))


def charpoly(w: tuple[Fraction, ...], beta: Fraction, gates: tuple[Fraction, ...]) -> Polynomial:
    """From the matrix, by another library's algorithm."""
    n, size = len(w), sum(x * x for x in w)
    entries = [(int(i == j) - beta * w[i] * w[j] / size) * gates[j] for i in range(n) for j in range(n)]
    found = fmpq_mat(n, n, [fmpq(x.numerator, x.denominator) for x in entries]).charpoly().coeffs()
    return tuple(F(int(c.p), int(c.q)) for c in found)


@given(transitions())
def test_the_formula_is_the_characteristic_polynomial_of_the_matrix(
    case: tuple[tuple[Fraction, ...], Fraction, tuple[Fraction, ...]],
) -> None:
    w, beta, gates = case
    p = characteristic(key_squares(w), beta, gates)
    assert p == charpoly(w, beta, gates)
    reduced = reduced_characteristic(key_squares(w), beta, gates)
    assert nonreal_pairs(reduced) == nonreal_pairs(p)
    assert len(reduced) <= len(p)


@given(transitions())
@example(((F(3), F(1)), F(2), (F(-1), F(1, 4))))
@example(((F(1), F(1)), F(2), (F(1), F(-1))))
@example(((F(1),), F(2), (F(-1),)))
def test_the_discriminant_decides_the_one_possible_pair(
    case: tuple[tuple[Fraction, ...], Fraction, tuple[Fraction, ...]],
) -> None:
    w, beta, gates = case
    squares = key_squares(w)
    pairs = nonreal_pairs(characteristic(squares, beta, gates))
    assert pairs <= 1
    assert has_nonreal_pair(squares, beta, gates) == (pairs == 1)
    if pairs:
        used = [gate for x, gate in zip(w, gates, strict=True) if x]
        assert min(used) < 0 < max(used)
        assert effective_beta(squares, beta, gates) > 1


@given(transitions())
def test_real_families_have_the_known_signs(case: tuple[tuple[Fraction, ...], Fraction, tuple[Fraction, ...]]) -> None:
    w, beta, gates = case
    squares = key_squares(w)

    def negative(p: Polynomial) -> int:
        # Descartes' rule at -x is exact for a polynomial with real roots only.
        signs = [c * (-1) ** i > 0 for i, c in enumerate(p) if c]
        return sum(a != b for a, b in itertools.pairwise(signs))

    plain = tuple(abs(gate) for gate in gates)
    p = characteristic(squares, beta, plain)
    assert nonreal_pairs(p) == 0
    assert negative(p) == (effective_beta(squares, beta, plain) > 1)
    p = characteristic(squares, beta / 2, gates)
    assert nonreal_pairs(p) == 0
    if beta < 2:
        assert negative(p) == sum(gate < 0 for gate in gates)


@given(st.lists(st.integers(1, 4), min_size=3, max_size=3), betas, st.tuples(*[st.fractions(F(1, 9), 1)] * 3))
def test_the_real_eigenvalue_beside_a_pair_lies_between_the_positive_gates(
    w: list[int], beta: Fraction, sizes: tuple[Fraction, Fraction, Fraction]
) -> None:
    low, high = sorted(sizes[:2])
    p = characteristic(key_squares(w), beta, (high, low, -sizes[2]))
    if not nonreal_pairs(p):
        return
    assert -p[0] == (beta - 1) * high * low * sizes[2]
    at_low, at_high = (sum((c * x**k for k, c in enumerate(p)), F(0)) for x in (low, high))
    assert at_low <= 0 <= at_high


def test_a_zero_key_is_refused() -> None:
    with pytest.raises(InvalidInput, match="zero"):
        key_squares((0, 0))


@given(transitions())
def test_a_transition_is_found_again_from_its_spectrum(
    case: tuple[tuple[Fraction, ...], Fraction, tuple[Fraction, ...]],
) -> None:
    w, beta, gates = case
    if beta == 0 or 0 in gates or len(set(gates)) < len(gates):
        return
    squares = key_squares(w)
    assert inverse_spectrum(characteristic(squares, beta, gates), gates) == (beta, squares)


def test_spectra_out_of_reach_have_no_parameters() -> None:
    assert inverse_spectrum((F(4), F(0), F(1)), (1, -1)) is None
    assert inverse_spectrum((F(1, 4), F(0), F(1)), (1, F(1, 2))) is None
    assert inverse_spectrum((F(1, 2), F(-3, 2), F(1)), (1, F(1, 2))) == (0, (1, 0))
    for gates in ((1, 1), (1, 0), (1,)):
        with pytest.raises(InvalidInput, match="distinct gates"):
            inverse_spectrum((F(1), F(0), F(1)), gates)


def test_targets_on_a_grid_of_the_disc_are_reproduced() -> None:
    for radius, angle in itertools.product(np.linspace(0, 1, 21), np.linspace(0, np.pi, 37)):
        target = cmath.rect(float(radius), float(angle))
        beta, square = plane_pair(float(radius), float(np.cos(angle)))
        assert 1 <= beta <= 2
        key = np.sqrt(np.clip([square, 1 - square], 0, 1))
        one = FloatFactor(key, beta, np.array([1.0, -1.0])).matrix()
        beta, cosine = product_pair(float(radius), float(np.cos(angle)))
        assert 1 <= beta <= 2
        other = np.array([np.sqrt(np.clip(x, 0, 1)) for x in (cosine, 1 - cosine)])
        pair = [FloatFactor(k, beta, np.ones(2)) for k in (np.array([1.0, 0.0]), other)]
        for a in (one, multiply(pair)):
            roots = np.linalg.eigvals(a)
            assert min(abs(roots - target)) < 1e-6, (radius, angle)
            assert min(abs(roots - target.conjugate())) < 1e-6


@pytest.mark.parametrize(("name", "n"), FAMILY_CASES)
def test_sampled_spectra_lie_inside_the_exact_regions(name: str, n: int) -> None:
    family = FAMILIES[name]
    drawn = sample(family, n, 20_000, seed=7)
    matrices = drawn.matrices()
    trace, det = np.trace(matrices, axis1=1, axis2=2), np.linalg.det(matrices)
    low, high = determinant_range(family, n, trace)
    start, end = trace_range(family, n)
    assert np.all((start - 1e-9 <= trace) & (trace <= end + 1e-9))
    assert np.all((low - 1e-9 <= det) & (det <= high + 1e-9))
    assert np.all(np.abs(drawn.spectra) <= 1 + 1e-9)
    assert np.abs(drawn.spectra.sum(axis=1) - trace).max() < 1e-9
    assert np.abs(drawn.spectra.prod(axis=1) - det).max() < 1e-9
    if not family.turns:
        real = np.sort(drawn.spectra.real, axis=1)
        assert not np.any(drawn.spectra.imag)
        assert real.min() >= min(family.low_gate, 1 - family.beta_max) - 1e-9
        assert name != "β-only" or real[:, 1].min() >= -1e-9
    if family.factors > 1:
        assert np.abs(np.linalg.det(matrices - np.eye(n))).max() < 1e-9 or n == 2


@pytest.mark.parametrize(("name", "n"), FAMILY_CASES)
def test_each_sampled_corner_of_a_region_is_approached(name: str, n: int) -> None:
    family = FAMILIES[name]
    matrices = sample(family, n, 60_000, seed=3).matrices()
    trace, det = np.trace(matrices, axis1=1, axis2=2), np.linalg.det(matrices)
    for end in trace_range(family, n):
        low, high = determinant_range(family, n, np.array([float(end)]))
        near = (np.abs(trace - end) < 0.25) & (det > low[0] - 0.3) & (det < high[0] + 0.3)
        assert near.any(), (end, low, high)


@pytest.mark.parametrize(("name", "n"), FAMILY_CASES)
def test_boundary_curves_meet_their_end_points_and_are_continuous(name: str, n: int) -> None:
    family = FAMILIES[name]
    start, end = trace_range(family, n)
    grid = np.linspace(start, end, 6001)
    low, high = determinant_range(family, n, grid)
    assert np.all(low <= high + 1e-12)
    assert np.abs(np.diff(low)).max() < 4e-3
    assert np.abs(np.diff(high)).max() < 4e-3
    assert (low[-1], high[-1]) == (1, 1)
    corners = {"KDA": 0, "gate-only": (-1) ** n, "β-only": 0, "CKDA": (-1) ** n, "DeltaProduct₂": 1}
    assert (low[0], high[0]) == (corners[name], corners[name])


def test_the_bounds_in_dimension_three_are_those_of_brute_force() -> None:
    values = np.linspace(-1, 1, 41)
    x, y, z = (a.ravel() for a in np.meshgrid(values, values, values))
    kept = {
        "KDA": np.minimum(np.minimum(x, y), z) >= 0,
        "gate-only": np.ones(len(x), dtype=bool),
        "β-only": (np.sort(np.stack([x, y, z]), axis=0)[1] >= 0),
    }
    for name, chosen in kept.items():
        trace, det = (x + y + z)[chosen], (x * y * z)[chosen]
        low, high = determinant_range(FAMILIES[name], 3, trace)
        assert np.all((low - 1e-12 <= det) & (det <= high + 1e-12))
        for t in np.unique(np.round(trace, 9)):
            here = np.abs(trace - t) < 1e-9
            bounds = determinant_range(FAMILIES[name], 3, np.array([t]))
            assert det[here].max() > bounds[1][0] - 0.01
            assert det[here].min() < bounds[0][0] + 0.01


def test_the_window_meets_its_end_points_and_splits_real_from_non_real() -> None:
    low, high = window(np.array([1.0, 1.25, 2.0]))
    assert np.allclose(low, [0.5, 0.1, 0])
    assert np.allclose(high, [0.5, 0.9, 1])
    for low_gate, high_gate in ((F(1), F(1)), (F(1, 2), F(1)), (F(1), F(1, 20)), (F(1, 3), F(2, 3))):
        for beta in (F(11, 10), F(3, 2), F(2)):
            ends = [float(x[0]) for x in window(np.array([float(beta)]), float(low_gate), float(high_gate))]
            for i in range(41):
                square = F(i, 40)
                if min(abs(float(square) - end) for end in ends) > 1e-9:
                    inside = ends[0] < square < ends[1]
                    assert has_nonreal_pair((square, 1 - square), beta, (-low_gate, high_gate)) == inside


def test_real_bands_hold_the_real_eigenvalues_and_meet_at_zero() -> None:
    upper, lower = real_bands(np.array([0.0, 1.0, 2.0]))
    assert [x.tolist() for x in (*upper, *lower)] == [[1, 0, 1], [1, 1, 1], [-1, -1, -1], [-1, 0, -1]]
    for beta, square in itertools.product(np.linspace(0, 2, 41), np.linspace(0, 1, 41)):
        half = beta * (1 - 2 * square) / 2
        if half * half >= beta - 1:
            root = np.sqrt(half * half - (beta - 1))
            (a, b), (c, d) = real_bands(np.array([beta]))
            for value in (half + root, half - root):
                assert a - 1e-12 <= value <= b + 1e-12 or c - 1e-12 <= value <= d + 1e-12


def test_the_block_is_a_rotation_at_two_and_has_the_known_trace_and_determinant() -> None:
    c, s = F(3, 5), F(4, 5)
    assert block(F(2), c, s) == ((F(-7, 25), F(-24, 25)), (F(24, 25), F(-7, 25)))
    for beta in (F(0), F(1), F(3, 2)):
        (a, b), (d, e) = block(beta, c, s)
        assert a + e == beta * (c * c - s * s)
        assert a * e - b * d == beta - 1


@given(orthogonals())
def test_an_orthogonal_matrix_is_rebuilt_from_the_fewest_reflections(q: Matrix) -> None:
    n, one = len(q), identity(q[0][0].field, len(q))
    keys_found = reflections(q)
    assert product_of([reflection(w) for w in keys_found], q) == q
    assert len(keys_found) <= n
    assert (len(keys_found) == 0) == (q == one)
    gated = gated_reflections(q)
    assert len(gated) == max(1, n - 1)
    assert product_of([f.matrix() for f in gated], q) == q
    assert all(f.beta in (0, 2) for f in gated)
    assert all(g == 1 for f in gated[:-1] for g in f.gates)


@given(orthogonals(3))
@fewer(4)
def test_one_gated_factor_is_enough_iff_the_recogniser_finds_one(q: Matrix) -> None:
    count = fewest_gated(q)
    assert count <= max(1, len(q) - 1)
    assert (count <= 1) == (next(signed_householders(q), None) is not None)
    assert (count == 0) == (q == identity(q[0][0].field, len(q)))


def test_permutations_take_points_less_cycles() -> None:
    for p in itertools.permutations(range(4)):
        q = matrix(Q, [[int(p[j] == i) for j in range(4)] for i in range(4)])
        cycles = len({frozenset(orbit(p, i)) for i in range(4)})
        assert len(reflections(q)) == fewest_gated(q) == 4 - cycles


def orbit(p: tuple[int, ...], i: int) -> list[int]:
    found = [i]
    while p[found[-1]] != i:
        found.append(p[found[-1]])
    return found


@given(orthogonals(), st.data())
@fewer(2)
def test_a_contraction_is_rebuilt_from_gated_and_from_plain_factors(u: Matrix, data: st.DataObject) -> None:
    n, field = len(u), u[0][0].field
    v = identity(field, n)
    for w in data.draw(st.lists(keys(field, n), max_size=3)):
        v = matmul(reflection(w), v)
    values = st.one_of(st.sampled_from([F(0), F(1)]), st.fractions(0, 1, max_denominator=6))
    sizes = tuple(field(x) for x in data.draw(st.lists(values, min_size=n, max_size=n)))
    m = matmul(matmul(u, diagonal(field, sizes)), transpose(v))
    gated = contraction_by_gated(u, sizes, v)
    assert len(gated) == max(1, 2 * n - 2)
    assert product_of([f.matrix() for f in gated], m) == m
    assert all(0 <= f.beta <= 2 and all(-1 <= g <= 1 for g in f.gates) for f in gated)
    plain = contraction_by_householders(u, sizes, v)
    assert len(plain) <= 2 * n - 1
    assert product_of([householder(w, beta / dot(w, w)) for w, beta in plain], m) == m
    assert all(0 <= beta <= 2 for _, beta in plain)


@pytest.mark.parametrize("n", range(1, 9))
def test_contractions_in_doubles_are_rebuilt_to_rounding(n: int) -> None:
    random = np.random.default_rng(n)
    given_matrices = [np.eye(n), -np.eye(n), np.zeros((n, n)), np.roll(np.eye(n), 1, axis=0), np.eye(n) / 2]
    given_matrices += [np.eye(n) + 1e-9 * np.triu(random.standard_normal((n, n)))]
    given_matrices += [random.standard_normal((n, n)) for _ in range(20)]
    for m in given_matrices:
        m = m / max(1, np.linalg.norm(m, 2))
        gated, plain = factor_contraction(m), factor_contraction_plainly(m)
        assert len(gated) == max(1, 2 * n - 2)
        assert len(plain) <= 2 * n - 1
        for factors in (gated, plain):
            assert np.abs(multiply(factors) - m).max() < 1e-12 * n
            assert all(0 <= f.beta <= 2 and np.abs(f.gates).max() <= 1 + 1e-15 for f in factors)
            assert all(f.beta == 0 or abs(np.linalg.norm(f.key) - 1) < 1e-12 for f in factors)


def test_an_expansion_is_refused() -> None:
    for m in (2 * np.eye(2), np.ones((2, 3))):
        with pytest.raises(InvalidInput, match="norm at most 1"):
            factor_contraction(m)
        with pytest.raises(InvalidInput, match="norm at most 1"):
            factor_contraction_plainly(m)
    shear = matrix(Q, [[1, 1], [0, 1]])
    for function in (reflections, gated_reflections):
        with pytest.raises(InvalidInput, match="orthogonal"):
            function(shear)


@given(fields(4).flatmap(lambda f: st.tuples(keys(f, 4), st.lists(st.sampled_from([1, -1]), min_size=4, max_size=4))))
def test_an_orthogonal_sum_is_recognised_by_the_formula(case: tuple[Vector, list[int]]) -> None:
    w, signs = case
    field = w[0].field
    d = tuple(map(field, signs))
    u = tuple(-2 * x / dot(w, w) for x in w)
    v = tuple(x * s for x, s in zip(w, d, strict=True))
    found = signed_householder_of(d, u, v)
    assert found.matrix() == add(diagonal(field, d), outer(u, v))
    assert found.c * dot(found.w, found.w) == 2


def test_a_sum_with_a_diagonal_of_no_signs_is_recognised_and_others_are_refused() -> None:
    def row(*entries: Fraction) -> Vector:
        return tuple(map(Q, entries))

    found = signed_householder_of(row(F(1, 2), F(-2)), row(F(-1, 2), F(1)), row(F(1), F(2)))
    assert found.matrix() == matrix(Q, [[0, -1], [1, 0]])
    with pytest.raises(InvalidInput, match="not orthogonal"):
        signed_householder_of(row(F(1), F(1)), row(F(1), F(0)), row(F(0), F(1)))


def test_a_gated_householder_has_the_matrix_of_the_papers() -> None:
    one = Q.one
    factor = GatedHouseholder((one, one), one, (one, -one))
    assert factor.beta == 2
    assert factor.matrix() == matrix(Q, [[0, 1], [-1, 0]])
    assert is_orthogonal(factor.matrix())
