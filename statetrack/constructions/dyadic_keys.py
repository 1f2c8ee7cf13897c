"""Keys whose length is chosen so that β k kᵀ comes out nearest to the exact one in a number format.

A unit key is rounded entry by entry, and β = 2 leaves nothing to correct it with: the error is an ulp. The key s·k with
β / s² is the same step for every s, so of all s the one is taken whose rounded key and rounded β come nearest. In a
format of p bits there are 2^(p-1) lengths to choose from: in the plane the error of the letters of Z_7 falls from
2^-7.3 to 2^-11 in bfloat16, and where β k kᵀ is dyadic, as for k = (1, -1), it is 0.

Main definitions: `dyadic_key`, `with_unit_keys`, `KEY_RULES`, `KeyRule`.

References: docs/precision.md.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from statetrack.theory.arrays import Vector, dot
from statetrack.theory.fields import Element

Floats = NDArray[np.float64]
KeyRule = Literal["unit", "dyadic"]
KEY_RULES: tuple[KeyRule, ...] = ("unit", "dyadic")
_MOST_LENGTHS = 1 << 10
_UNIT = 1e-9


@lru_cache(maxsize=1 << 14)
def dyadic_key(w: Vector, c: Element, kind: Any, precision: int) -> tuple[Floats, float]:
    """The key [K] and β with β k kᵀ nearest to c w wᵀ: doubles, but numbers of the format `kind` of `precision` bits.

    Nearest in the Frobenius norm, and the shortest of equals. Only sums, products and quotients of doubles in a fixed
    order decide, so every machine finds the same one.
    """
    direction = np.array([float(x) for x in w])
    goal = [[float(c * x * y) for y in w] for x in w]
    count = min(1 << (precision - 1), _MOST_LENGTHS)
    # The largest entry takes every number of the format in [1, 2), or evenly many.
    lengths = 1 + np.arange(count) / count
    tried = (direction * lengths[:, None] / np.abs(direction).max()).astype(kind).astype(np.float64)
    square, error = np.zeros(count), np.zeros(count)
    for x in tried.T:
        square = square + x * x
    betas = (float(c * dot(w, w)) / square).astype(kind).astype(np.float64)
    for i, row in enumerate(goal):
        for j, x in enumerate(row):
            off = betas * tried[:, i] * tried[:, j] - x
            error = error + off * off
    ties = np.flatnonzero(error == error.min()).tolist()
    best = min(ties, key=lambda n: _squared(tried[n], float(betas[n]), goal)) if len(ties) > 1 else ties[0]
    return tried[best], float(betas[best])


def with_unit_keys(keys: Floats, betas: Floats) -> tuple[Floats, Floats, Floats]:
    """Keys [..., K] of length 1 and β [...] of the same steps, for layers that normalise keys; and the lengths [...].

    β becomes β |k|², and what a factor writes, β k vᵀ, asks for v / |k|. Zero keys, and keys of length 1 up to
    rounding, stay as they are and count as of length 1.
    """
    sizes = np.linalg.norm(keys, axis=-1)
    sizes = np.where((np.abs(sizes - 1) > _UNIT) & (sizes > 0), sizes, 1.0)
    return keys / sizes[..., None], betas * sizes**2, sizes


def _squared(key: Floats, beta: float, goal: list[list[float]]) -> Fraction:
    """The squared distance of β k kᵀ from the goal, which doubles cannot tell from 0 when it is small."""
    k: list[Fraction] = [Fraction(x) for x in key.tolist()]
    pairs = [(x, y, goal[i][j]) for i, x in enumerate(k) for j, y in enumerate(k)]
    return sum(((Fraction(beta) * x * y - Fraction(z)) ** 2 for x, y, z in pairs), Fraction(0))
