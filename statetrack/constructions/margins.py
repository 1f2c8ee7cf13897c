"""How far apart the readouts of different meanings are, and rational queries that keep them apart.

Main definitions: `Margin`, `margin`, `head_margin`, `margins_of`, `first_query`, `best_query`, `centred_ramp`,
`odd_ramp`, `dihedral_query`.

Main results: for a finite orthogonal group Γ, S -> Sᵀq is injective iff no S != 1 fixes q, with least distance
min over S != 1 of |Sq - q| (CKDA Lemma 12, which is an equivalence).

References: CKDA Lemma 12; conformal bounds by exact enclosures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import count, pairwise, product

import numpy as np
from numpy.typing import NDArray

from statetrack.theory.arrays import Matrix, Vector, matvec, vector
from statetrack.theory.fields import Element, Field

from .program import Head, Program, Readout

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Margin:
    """The least distance between readouts with different codes.

    `squared` is that distance squared, exactly; `bound` a rational at most the distance (what the certificate claims);
    `unit` the distance for the query scaled to length 1, as a double.
    """

    squared: Element
    bound: Fraction
    unit: float


def margin(
    readouts: Sequence[Readout], floats: Floats, labels: NDArray[np.int32], query_length: float
) -> Margin | None:
    """The margin of a codebook, None if all codes are equal. Floats pick the candidates, exact arithmetic decides."""
    if len(set(labels.tolist())) < 2:
        return None
    candidates = _neighbours(readouts, labels) if len(readouts[0]) == 1 else _closest_pairs(floats, labels)
    squared = min({_distance2(readouts[i], readouts[j]) for i, j in candidates})
    low, _ = squared.enclose(128)
    return Margin(squared, _root_below(low), math.sqrt(float(squared)) / query_length)


@lru_cache(maxsize=256)
def head_margin(head: Head) -> Margin | None:
    """The margin of a closed head, its longest query being scaled to length 1; None if it tells nothing apart.

    Several heads of a layer stand for pairs of readouts of each; they are told apart if each head's are.
    """
    if not head.codebook:
        return None
    readouts = tuple(head.codebook)
    floats = {x: float(x) for row in readouts for x in row}
    points = np.array([[floats[x] for x in row] for row in readouts])
    length = max(math.sqrt(sum(float(x) ** 2 for x in query)) for query in head.queries) or 1.0
    return margin(readouts, points, np.array(list(head.codebook.values()), dtype=np.int32), length)


def margins_of(program: Program) -> tuple[tuple[Margin | None, ...], ...]:
    """The margin of each head of each network layer of a closed program, in the shape of `Program.dims`."""
    rows: list[list[Margin | None]] = [[] for _ in range(program.depth)]
    for depth, layer in zip(program.depths, program.layers, strict=True):
        rows[depth - 1] += [head_margin(head) for head in layer.heads]
    return tuple(map(tuple, rows))


def _neighbours(readouts: Sequence[Readout], labels: NDArray[np.int32]) -> list[tuple[int, int]]:
    """Pairs of numbers that follow each other and have different labels: one of them is the closest of all."""
    order = sorted(range(len(readouts)), key=lambda i: readouts[i][0])
    return [(i, j) for i, j in pairwise(order) if labels[i] != labels[j]]


def _closest_pairs(points: Floats, labels: NDArray[np.int32], most: int = 256) -> list[tuple[int, int]]:
    """Pairs with different labels whose distance is within a relative 1e-9 of the least, at most `most` of them."""
    size = max(1, (1 << 24) // max(1, len(points)))
    points = points / (float(np.abs(points).max()) or 1.0)
    norms = (points * points).sum(axis=1)
    # What the distances below can be off by, by cancellation.
    error = 4 * (points.shape[1] + 4) * np.finfo(np.float64).eps * float(norms.max())
    best, found = math.inf, list[NDArray[np.intp]]()
    for at in range(0, len(points), size):
        block = points[at : at + size]
        d2 = norms[at : at + size, None] + norms[None, :] - 2 * block @ points.T
        d2[labels[at : at + size, None] == labels[None, :]] = math.inf
        best = min(best, float(d2.min()))
        near = np.argwhere(d2 <= best + 1e-9 * abs(best) + 2 * error)
        found.append(np.sort(near + [at, 0], axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)
    distances = ((points[pairs[:, 0]] - points[pairs[:, 1]]) ** 2).sum(axis=1)
    order = np.argsort(distances, kind="stable")[:most]
    close = order[distances[order] <= distances[order[0]] * (1 + 1e-9)]
    return [(int(i), int(j)) for i, j in pairs[close]]


def _distance2(a: Readout, b: Readout) -> Element:
    total = a[0].field.zero
    for x, y in zip(a, b, strict=True):
        d = x - y
        total = total + d * d
    return total


def _root_below(x: Fraction, digits: int = 15) -> Fraction:
    """The largest multiple of 10^-digits (or of a power small enough) whose square is at most x > 0."""
    while True:
        scale = 10**digits
        root = math.isqrt(x.numerator * scale * scale // x.denominator)
        if root:
            return Fraction(root, scale)
        digits *= 2


def centred_ramp(field: Field, n: int) -> Vector:
    """(0, 1, ..., n-1) minus its mean, times 2 if n is even: tells the n unit vectors, and all permutations, apart."""
    return vector(field, (i - (n - 1) // 2 if n % 2 else 2 * i - (n - 1) for i in range(n)))


def odd_ramp(field: Field, n: int) -> Vector:
    """(1, -1, 3, -3, 5, ...): no two of them differ by a power of two as a factor."""
    return vector(field, ((i // 2 * 2 + 1) * (-1) ** i for i in range(n)))


def dihedral_query(field: Field, n: int) -> Vector:
    """A rational vector close to angle π/(2n), as far from all mirrors of D_n (at multiples of π/n) as can be."""
    slope = Fraction(math.tan(math.pi / (2 * n))).limit_denominator(64 * n)
    return vector(field, (slope.denominator, slope.numerator))


def first_query(states: Sequence[Matrix]) -> tuple[int, ...]:
    """The first integers q, by the largest size, then in order, that no state but the first (the identity) fixes.

    There are some for every finite group of orthogonal states, as the vectors that are fixed lie in finitely many
    proper subspaces. Source: CKDA Lemma 12.
    """
    size = len(states[0])
    for most in count(1):
        for q in product(range(-most, most + 1), repeat=size):
            if max(map(abs, q)) == most and q > tuple(-x for x in q):
                v = vector(states[0][0][0].field, q)
                if all(matvec(s, v) != v for s in states[1:]):
                    return q
    raise AssertionError


def best_query(matrices: Floats, moves: NDArray[np.bool_], *, seed: int = 0) -> tuple[int, ...]:
    """Integers q that keep Sᵀq far from q for every S with a meaning other than the identity's.

    Args:
        matrices: all states S of a finite orthogonal group, [count, d, d].
        moves: for each, True if its meaning differs from the identity's.

    Candidates are all small integer vectors and rounded random directions; the best by float margin is returned
    (the exact margin is computed with the certificate). Source: CKDA Lemma 12.
    """
    others = matrices[moves]
    d = matrices.shape[1]
    if not len(others):
        return (1,) + (0,) * (d - 1)
    rng = np.random.default_rng(seed)
    small = 3 if d <= 4 else 1
    grid = (
        np.stack(np.meshgrid(*[np.arange(-small, small + 1)] * d, indexing="ij"), -1).reshape(-1, d)
        if d <= 6
        else np.eye(d)
    )
    pool = np.concatenate([grid[np.abs(grid).any(axis=1)], rng.normal(size=(4096, d))]).astype(float)
    scores = _scores(others, pool)
    best = pool[np.argsort(-scores)[:16]] / np.linalg.norm(pool[np.argsort(-scores)[:16]], axis=1, keepdims=True)
    radius = 0.3
    while radius > 1e-4:
        trials = np.concatenate([best, (best[:, None] + radius * rng.normal(size=(len(best), 40, d))).reshape(-1, d)])
        trials /= np.linalg.norm(trials, axis=1, keepdims=True)
        best, radius = trials[np.argsort(-_scores(others, trials))[:16]], radius * 0.75
    top = best[0] / np.abs(best[0]).max()
    rounded = np.unique(
        np.concatenate(
            [np.rint(top * c)[None] for c in (*range(1, 41), 64, 128, 256, 512, 1024)]
            + [grid[np.argsort(-_scores(others, grid.astype(float)))[:1]]]
        ),
        axis=0,
    )
    rounded = rounded[np.abs(rounded).any(axis=1)]
    chosen = rounded[int(np.argmax(_scores(others, rounded.astype(float))))].astype(int)
    divisor = math.gcd(*(int(x) for x in chosen))
    return tuple(int(x) // divisor for x in chosen)


def _scores(others: Floats, queries: Floats) -> Floats:
    """min over S of |Sᵀq - q| / |q| for each row q (0 for the zero row).

    |Sᵀq - q|² = 2|q|² - 2 qᵀSq for orthogonal S.
    """
    norms = (queries**2).sum(axis=1)
    forms = (queries[:, :, None] * queries[:, None, :]).reshape(len(queries), -1)
    largest = np.full(len(queries), -math.inf)
    for at in range(0, len(others), 4096):
        block = others[at : at + 4096].reshape(-1, forms.shape[1])
        largest = np.maximum(largest, (block @ forms.T).max(axis=0))
    return np.where(norms > 0, np.sqrt(np.maximum(2 - 2 * largest / np.where(norms > 0, norms, 1), 0)), 0)
