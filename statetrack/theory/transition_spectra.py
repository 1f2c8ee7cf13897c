"""Spectra of CKDA transitions and of their relatives: what they can be, exactly, and parameters that attain them.

A transition is (I - β k kᵀ) Diag(α) with |k| = 1. Its characteristic polynomial depends on the squares k_i² only, which
are rational for every rational key; so the exact functions take `squares`. Floats appear in `sample` and below it.

Main definitions: `characteristic`, `reduced_characteristic`, `nonreal_pairs`, `has_nonreal_pair`, `block`,
`inverse_spectrum`, `plane_pair`, `product_pair`, `window`, `Family`, `FAMILIES`, `determinant_range`, `sample`.

Main results: a non-real pair exists iff the discriminant of the reduced characteristic polynomial is negative
(CKDA Thm. 8, sharpened); the attainable spectra of each family in dimensions 2 and 3, in trace and determinant.

References: CKDA Sec. 4, App. A.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from flint import fmpq, fmpq_poly
from numpy.typing import NDArray

from statetrack.errors import InvalidInput

Polynomial = tuple[Fraction, ...]  # the constant term first
Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Number = TypeVar("Number", Fraction, float)


def key_squares(w: Sequence[Fraction | int]) -> tuple[Fraction, ...]:
    """The k_i² of the unit key along w ≠ 0."""
    size = sum(Fraction(x) * x for x in w)
    if size == 0:
        raise InvalidInput("the key is zero; use β = 0 with any other key instead")
    return tuple(Fraction(x) * x / size for x in w)


def characteristic(squares: Sequence[Fraction], beta: Fraction | int, gates: Sequence[Fraction | int]) -> Polynomial:
    """det(x - A) = Π(x - α_i) + β Σ_i k_i² α_i Π_(j≠i)(x - α_j), for every real β and α."""
    total = _product(gates, None)
    for i, (square, gate) in enumerate(zip(squares, gates, strict=True)):
        total += _product(gates, i) * _flint(beta * square * gate)
    return _fractions(total)


def reduced_characteristic(
    squares: Sequence[Fraction], beta: Fraction | int, gates: Sequence[Fraction | int]
) -> Polynomial:
    """The characteristic polynomial without eigenvalues that are gates for an evident reason: coordinates with
    k_i α_i = 0 dropped, equal gates merged."""
    weights: dict[Fraction | int, Fraction] = {}
    for square, gate in zip(squares, gates, strict=True):
        if square and gate:
            weights[gate] = weights.get(gate, Fraction(0)) + square
    return characteristic(tuple(weights.values()), beta, tuple(weights))


def nonreal_pairs(p: Polynomial) -> int:
    """How many conjugate pairs of non-real roots p has, with multiplicity; exact (isolated roots)."""
    roots: list[Any] = _polynomial(p).numer().complex_roots()  # pyright: ignore[reportUnknownMemberType]
    return sum(count for root, count in roots if root.imag != 0) // 2


def has_nonreal_pair(squares: Sequence[Fraction], beta: Fraction | int, gates: Sequence[Fraction | int]) -> bool:
    """Whether the transition has a non-real eigenvalue: the discriminant of the reduced polynomial is negative."""
    p = _polynomial(reduced_characteristic(squares, beta, gates))
    return beta != 0 and p.degree() > 1 and p.discriminant() < 0


def effective_beta(squares: Sequence[Fraction], beta: Fraction | int, gates: Sequence[Fraction | int]) -> Fraction:
    """β κ², κ² the sum of k_i² over the coordinates with α_i ≠ 0."""
    return Fraction(beta) * sum(s for s, gate in zip(squares, gates, strict=True) if gate)


def block(
    beta: Fraction, cosine: Fraction, sine: Fraction
) -> tuple[tuple[Fraction, Fraction], tuple[Fraction, Fraction]]:
    """B(β, θ), the only block of the sign part of a transition that can turn; B(2, θ) is the rotation by 2θ."""
    return (
        (beta * cosine * cosine - 1, -beta * cosine * sine),
        (beta * cosine * sine, 1 - beta * sine * sine),
    )


def inverse_spectrum(
    p: Polynomial, gates: Sequence[Fraction | int], beta_max: Fraction | int = 2
) -> tuple[Fraction, tuple[Fraction, ...]] | None:
    """(β, squares) for which the transition with these gates has the monic characteristic polynomial p, or None.

    Gates distinct and not zero. w_i = p(α_i)/(α_i Π_(j≠i)(α_i - α_j)) = β k_i² must be at least 0, and their sum β at
    most beta_max.
    """
    if len(set(gates)) < len(gates) or 0 in gates or len(p) != len(gates) + 1 or p[-1] != 1:
        raise InvalidInput("inverse spectrum: give distinct gates other than 0 and a monic polynomial of their number")
    weights = tuple(
        _evaluate(p, Fraction(a)) / (a * _evaluate(_fractions(_product(gates, i)), Fraction(a)))
        for i, a in enumerate(gates)
    )
    beta = sum(weights, Fraction(0))
    if min(weights) < 0 or beta > beta_max:
        return None
    if beta == 0:
        return beta, (Fraction(1),) + (Fraction(0),) * (len(gates) - 1)
    return beta, tuple(w / beta for w in weights)


def plane_pair(size: Number, cosine: Number) -> tuple[Number, Number]:
    """(β, k_1²) for which gates (1, -1) give the pair size·e^(±i arccos(cosine)); any size in [0, 1] and angle."""
    beta = 1 + size * size
    return beta, (beta - 2 * size * cosine) / (2 * beta)


def product_pair(size: Number, cosine: Number) -> tuple[Number, Number]:
    """(β, cos² of the angle between the keys) for which two generalised Householders, both with β, have that pair."""
    beta = 1 + size
    return beta, 2 * size * (1 + cosine) / (beta * beta)


def window(beta: Floats, low_gate: float = 1.0, high_gate: float = 1.0) -> tuple[Floats, Floats]:
    """Ends of the interval of k_1² in which gates (-low_gate, high_gate), both > 0, give a non-real pair, for β ≥ 1.

    The trace is linear in k_1² and must lie within ±2√((β - 1) low high). For gates ∓1: (1 ± 2√(β - 1)/β)/2.
    """
    spread = 2 * np.sqrt(np.maximum(beta - 1, 0) * low_gate * high_gate)
    middle = low_gate - high_gate + high_gate * beta
    ends = [np.clip((middle + sign * spread) / ((low_gate + high_gate) * beta), 0, 1) for sign in (-1, 1)]
    return ends[0], ends[1]


@dataclass(frozen=True)
class Family:
    """Transitions with gates in [low_gate, 1] and β in [0, beta_max]; or a product of plain factors (`factors` > 1)."""

    name: str
    low_gate: int
    beta_max: int
    factors: int = 1

    @property
    def turns(self) -> bool:
        """Whether non-real eigenvalues occur (in dimension 2 or more)."""
        return self.factors > 1 or (self.low_gate < 0 and self.beta_max > 1)


FAMILIES = {
    family.name: family
    for family in (
        Family("KDA", 0, 1),
        Family("gate-only", -1, 1),
        Family("β-only", 0, 2),
        Family("CKDA", -1, 2),
        Family("DeltaProduct₂", 1, 2, 2),
    )
}


def trace_range(family: Family, n: int) -> tuple[int, int]:
    """The traces of the family in dimension n = 2 or 3."""
    low = {"KDA": 0, "gate-only": -n, "β-only": -1, "CKDA": -n, "DeltaProduct₂": n - 4}[family.name]
    return low, n


def determinant_range(family: Family, n: int, trace: Floats) -> tuple[Floats, Floats]:
    """Least and greatest determinant of the family's transitions in dimension n = 2 or 3, by trace.

    Everything between occurs, so in dimension 2 this is the set of all spectra. Derived from the multisets: KDA
    [0, 1]^n, gate-only [-1, 1]^n, β-only the same with at most one negative, CKDA all in the disc with at most one
    pair, a product of two 1^(n-2) and a pair.
    """
    t = trace
    if n == 2:
        low = np.maximum(0, t - 1) if family.name == "KDA" else np.abs(t) - 1
        high = np.ones_like(t) if family.turns else t * t / 4
        return low, np.where(t < 0, 0, high) if family.name == "β-only" else high
    if family.factors > 1:
        return np.abs(t - 1) - 1, np.ones_like(t)
    if family.turns:
        return np.maximum(-1, t - 2), np.minimum(1, t + 2)
    if family.name == "gate-only":
        return -_cube_top(-t), _cube_top(t)
    high = np.where(t < 0, 0, (t / 3) ** 3)
    if family.name == "KDA":
        return np.maximum(0, t - 2), high
    return np.where(t < 1, -(((t + 1) / 2) ** 2), t - 2), high


def _cube_top(t: Floats) -> Floats:
    """The greatest product of three numbers in [-1, 1] with sum t: at a corner edge, with one of them 1, all equal."""
    return np.where(t < -1, t + 2, np.where(t < 0.75, ((t - 1) / 2) ** 2, (t / 3) ** 3))


def real_bands(beta: Floats) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """For gates (1, -1) and β: the intervals of the real eigenvalues, the upper and the lower one.

    β ≤ 1: one root in [1 - β, 1], one in [-1, β - 1]. β > 1: both in [β - 1, 1] or both in [-1, 1 - β].
    """
    inner = np.abs(beta - 1)
    one = np.ones_like(beta)
    return (inner, one), (-one, -inner)


@dataclass(frozen=True, eq=False)
class Sample:
    """Transitions of a family in dimension n, drawn at random, with their spectra (eigenvalues in no order)."""

    keys: Floats  # [count, factors, n], of length one
    betas: Floats  # [count, factors]
    gates: Floats  # [count, n]
    spectra: Complexes  # [count, n]

    def matrices(self) -> Floats:
        """The transitions, [count, n, n]."""
        return _householders(self.keys, self.betas) * self.gates[:, None, :]


def sample(family: Family, n: int, count: int, seed: int = 0) -> Sample:
    """Random transitions: normal keys; β and gates uniform in their range, a third of each at an end; a quarter of
    the transitions have all gates at ends."""
    random = np.random.default_rng(seed)
    keys = random.standard_normal((count, family.factors, n))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    betas = _often_at_ends(random, 0, family.beta_max, (count, family.factors))
    gates = _often_at_ends(random, family.low_gate, 1, (count, n))
    corners = np.where(random.random((count, n)) < 0.5, family.low_gate, 1.0)
    gates = np.where(random.random((count, 1)) < 0.25, corners, gates)
    found = Sample(keys, betas, gates, np.zeros((count, n), dtype=np.complex128))
    if family.turns:
        return replace(found, spectra=np.linalg.eigvals(found.matrices()).astype(np.complex128))
    # A real spectrum is computed from a symmetric matrix, where double eigenvalues do not split into the plane.
    if family.low_gate == 0:
        root = np.sqrt(gates)
        similar = root[:, :, None] * _householders(keys, betas) * root[:, None, :]
    else:
        half = _householders(keys, 1 - np.sqrt(1 - betas))
        similar = half @ (gates[:, :, None] * half)
    return replace(found, spectra=np.linalg.eigvalsh(similar).astype(np.complex128))


def _often_at_ends(random: np.random.Generator, low: int, high: int, shape: tuple[int, ...]) -> Floats:
    inside = random.uniform(low, high, shape)
    return np.where(random.random(shape) < 1 / 3, np.where(random.random(shape) < 0.5, low, high), inside)


def _householders(keys: Floats, betas: Floats) -> Floats:
    """Products over axis 1 of I - β k kᵀ, first factor leftmost."""
    total = np.broadcast_to(np.eye(keys.shape[-1]), (len(keys), keys.shape[-1], keys.shape[-1]))
    for f in range(keys.shape[1]):
        k = keys[:, f]
        total = total - betas[:, f, None, None] * (total @ k[:, :, None]) * k[:, None, :]
    return total


@dataclass(frozen=True, eq=False)
class FloatFactor:
    """(I - β k kᵀ) Diag(gates) in doubles; k has length one, or is any vector for β = 0."""

    key: Floats
    beta: float
    gates: Floats

    def matrix(self) -> Floats:
        """The n × n matrix."""
        return (np.eye(len(self.key)) - self.beta * np.outer(self.key, self.key)) * self.gates


def factor_contraction(m: Floats) -> tuple[FloatFactor, ...]:
    """max(1, 2n - 2) CKDA transitions, leftmost first, with product M up to rounding; M a contraction.

    The form of `contraction_by_gated`, from a singular value decomposition. Source: CKDA Prop. 10.
    """
    u, sizes, v = _singular(m)
    n = len(m)
    if n == 1:
        return (FloatFactor(np.ones(1), 0.0, u[:, 0] * sizes * v[0]),)
    (left, s), (right, t) = _reflect(u), _reflect(v.T)
    ones = np.ones(n)
    head = [FloatFactor(k, b, ones) for k, b in left]
    head[-1] = replace(head[-1], gates=s * sizes * t)
    return (*head, *(FloatFactor(k, b, ones) for k, b in reversed(right)))


def factor_contraction_plainly(m: Floats) -> tuple[FloatFactor, ...]:
    """At most 2n - 1 generalised Householders, leftmost first, with product M up to rounding; M a contraction.

    The form of `contraction_by_householders`: sharper than 3n in Grazzi et al. Prop. 1.
    """
    u, sizes, v = _singular(m)
    n = len(m)
    turn, betas = u @ v, 1 - sizes
    # With n - 1 reflections the last column is in place up to its sign, det Q (-1)^(n-1).
    if np.linalg.det(turn) * (-1) ** (n - 1) < 0:
        turn = turn - 2 * np.outer(turn @ v[0], v[0])
        betas[0] = 1 + sizes[0]
    keys, _ = _reflect_fixing(turn)
    ones = np.ones(n)
    return tuple(FloatFactor(k, b, ones) for k, b in [*keys, *zip(v, betas.tolist(), strict=True)])


def multiply(factors: Sequence[FloatFactor]) -> Floats:
    """The product, leftmost first."""
    total = np.eye(len(factors[0].key))
    for factor in factors:
        total = total @ factor.matrix()
    return total


def _singular(m: Floats) -> tuple[Floats, Floats, Floats]:
    if m.ndim != 2 or m.shape[0] != m.shape[1] or np.linalg.norm(m, 2) > 1 + 1e-12:
        raise InvalidInput("only a square matrix of norm at most 1 is a product of such transitions")
    u, sizes, v = np.linalg.svd(m)
    return u, np.clip(sizes, 0, 1), v


def _reflect(q: Floats) -> tuple[list[tuple[Floats, float]], Floats]:
    """Q = H_1 ... H_(n-1) Diag(signs): each column goes to the farther of ±e_j, so that nothing cancels."""
    q, keys = q.copy(), list[tuple[Floats, float]]()
    for j in range(len(q) - 1):
        target = np.zeros(len(q))
        target[j] = -1.0 if q[j, j] >= 0 else 1.0
        key = (q[:, j] - target) / np.linalg.norm(q[:, j] - target)
        q -= 2 * np.outer(key, key @ q)
        keys.append((key, 2.0))
    return keys, np.sign(np.diag(q))


def _reflect_fixing(q: Floats) -> tuple[list[tuple[Floats, float]], Floats]:
    """Q = H_1 ... H_r with r < n for det Q = (-1)^(n-1): the column farthest from its axis first, while one is off."""
    q, keys = q.copy(), list[tuple[Floats, float]]()
    for _ in range(len(q) - 1):
        off = np.linalg.norm(q - np.eye(len(q)), axis=0)
        j = int(np.argmax(off))
        if off[j] < 1e-14:
            break
        key = (q[:, j] - np.eye(len(q))[j]) / off[j]
        q -= 2 * np.outer(key, key @ q)
        keys.append((key, 2.0))
    return keys, np.diag(q)


def _product(gates: Sequence[Fraction | int], without: int | None) -> fmpq_poly:
    """Π (x - α_j) over all j but one."""
    total = fmpq_poly([1])
    for j, gate in enumerate(gates):
        if j != without:
            total *= fmpq_poly([-_flint(gate), 1])
    return total


def _evaluate(p: Polynomial, x: Fraction) -> Fraction:
    return sum((c * x**k for k, c in enumerate(p)), Fraction(0))


def _flint(x: Fraction | int) -> fmpq:
    return fmpq(x.numerator, x.denominator)


def _polynomial(p: Polynomial) -> fmpq_poly:
    return fmpq_poly([_flint(c) for c in p])


def _fractions(p: fmpq_poly) -> Polynomial:
    return tuple(Fraction(int(c.p), int(c.q)) for c in p.coeffs())
