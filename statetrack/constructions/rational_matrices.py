"""Rational matrices as integers over one denominator, for searches that multiply and look up very many of them.

Main definitions: `Scaled`, `scaled`, `scaled_factor`, `scaled_rows`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.theory.arrays import Matrix

from .program import Factor

# Products and sums that stay below this fit into 64 bits.
_SAFE = 1 << 62


@dataclass(frozen=True, eq=False)
class Scaled:
    """The rational matrix nums/den; nums are 64-bit integers, or Python's where those might overflow."""

    nums: NDArray[Any]
    den: int

    @cached_property
    def key(self) -> tuple[int, ...]:
        """Denominator and numerators in lowest terms: equal for equal matrices of one shape."""
        listed: list[int] = self.nums.ravel().tolist()
        g = math.gcd(self.den, *listed)
        return (self.den // g, *(listed if g == 1 else [x // g for x in listed]))

    @cached_property
    def size(self) -> int:
        """The largest absolute value of a numerator."""
        return max(int(self.nums.max()), -int(self.nums.min())) if self.nums.size else 0

    def times(self, other: Scaled) -> Scaled:
        """The product, this matrix on the left."""
        small = self.size * other.size * len(other.nums) < _SAFE
        a, b = (x.nums if small else x.nums.astype(object) for x in (self, other))
        return _lowest(a @ b, self.den * other.den)

    def rows(self, places: Sequence[int]) -> Scaled:
        """Some of the rows, over the same denominator."""
        return Scaled(self.nums[list(places)], self.den)

    def row_keys(self) -> list[tuple[int, ...]]:
        """The key of each row, taken as a matrix of one row."""
        gcds = np.gcd(np.gcd.reduce(self.nums, axis=1), self.den)
        numbers: list[list[int]] = (self.nums // gcds[:, None]).tolist()
        dens: list[int] = (self.den // gcds).tolist()
        return [(den, *row) for den, row in zip(dens, numbers, strict=True)]


def scaled(m: Matrix) -> Scaled:
    """A matrix of rationals over its common denominator."""
    den = math.lcm(*(x.den for row in m for x in row))
    nums = [[x.nums[0] * (den // x.den) for x in row] for row in m]
    return _lowest(np.array(nums, dtype=object).reshape(len(m), len(m[0])), den)


def scaled_factor(factor: Factor) -> Scaled:
    """The matrix (I - c w wᵀ) Diag(alpha) of a factor over the rationals."""
    w, alpha = scaled((factor.w,)), None if factor.alpha is None else scaled((factor.alpha,))
    key, c = w.nums.astype(object), factor.c
    whole = w.den * w.den * c.den
    nums = whole * np.eye(len(factor.w), dtype=object) - c.nums[0] * key.T * key
    return _lowest(nums, whole) if alpha is None else _lowest(nums * alpha.nums.astype(object), whole * alpha.den)


def scaled_rows(rows: Sequence[Scaled]) -> Scaled:
    """Matrices of one row each as the rows of one."""
    den = math.lcm(*(row.den for row in rows))
    nums = [row.nums[0].astype(object) * (den // row.den) for row in rows]
    return _lowest(np.array(nums, dtype=object), den)


def _lowest(nums: NDArray[Any], den: int) -> Scaled:
    """In lowest terms if that is worth it, in 64 bits if they suffice."""
    if den > 1:
        g = math.gcd(den, int(np.gcd.reduce(nums, axis=None)))
        nums, den = (nums // g, den // g) if g > 1 else (nums, den)
    found = Scaled(nums, den)
    if nums.dtype == object and max(found.size, den) < _SAFE:
        return Scaled(nums.astype(np.int64), den)
    return found if max(found.size, den) < _SAFE else Scaled(nums.astype(object), den)
