"""Exact arithmetic in real number fields with an ordered embedding.

An `Element` has canonical coordinates over a fixed integral basis of its `Field`; the fields themselves are in
`number_fields`.

Main definitions: `Field`, `Element`, `element_from_json`.

Main results: equality and hashing are by canonical coordinates; signs are decided by rational enclosures whose
precision doubles until they exclude zero, which ends because coordinates of zero are zero. No float decides.

References: python-flint's real balls (`arb`) for the enclosures.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, cast

from flint import arb, ctx, fmpq, fmpq_mat

from statetrack.errors import InvalidInput

Terms = tuple[tuple[int, int], ...]  # ((basis index, integer coefficient), ...), indices ascending


class Field(ABC):
    """A real number field with a fixed integral basis b_0 = 1, ..., b_(m-1) and a fixed real embedding."""

    degree: int

    @abstractmethod
    def product(self, i: int, j: int) -> Terms:
        """b_i b_j in the basis, sparse integers."""

    @abstractmethod
    def basis_balls(self, bits: int) -> Sequence[arb]:
        """Balls that contain b_0, ..., b_(m-1) under the embedding, at about `bits` bits."""

    @abstractmethod
    def to_json(self) -> dict[str, object]:
        """The field as the certificate writes it."""

    def __call__(self, value: Element | Fraction | int | str) -> Element:
        """The element equal to an integer, a rational ("p/q" too) or an element of this field."""
        if isinstance(value, Element):
            if value.field is not self and value.field != self:
                raise InvalidInput(f"element of {value.field} used in {self}; build both in one field")
            return value
        if type(value) is int:
            return Element(self, (value, *self._rest), 1)
        try:
            if isinstance(value, (float, complex, bool)):
                raise TypeError
            q = Fraction(value)
        except (TypeError, ValueError, ZeroDivisionError):
            raise InvalidInput(
                f"number {value!r}: give an integer, a fraction, 'p/q' or an element of {self}"
            ) from None
        return Element(self, (q.numerator, *self._rest), q.denominator)

    @cached_property
    def _rest(self) -> tuple[int, ...]:
        """The coordinates of a rational but for the first."""
        return (0,) * (self.degree - 1)

    def embed(self, x: Element) -> Element:
        """An element of this field or a rational of any field, as an element of this field; else InvalidInput."""
        q = x.as_fraction()
        return self(x if q is None else q)

    def element(self, coordinates: Sequence[int], den: int = 1) -> Element:
        """The element (Σ coordinates[k] b_k)/den in canonical form; den is a non-zero integer."""
        if den == 1 and len(coordinates) == self.degree:
            return Element(self, tuple(coordinates), 1)
        if den == 0 or len(coordinates) != self.degree:
            raise InvalidInput(f"{len(coordinates)} coordinates over {den} do not make an element of {self}")
        g = math.gcd(den, *coordinates) * (1 if den > 0 else -1)
        return Element(self, tuple(c // g for c in coordinates), den // g)

    def spell(self, x: Element) -> str:
        """An irrational element for people, in the basis names b1, b2, ..."""
        return spelled([(f"b{k}" if k else "", Fraction(c, x.den)) for k, c in x.terms()])

    @cached_property
    def zero(self) -> Element:
        """0 of the field."""
        return self(0)

    @cached_property
    def one(self) -> Element:
        """1 of the field."""
        return self(1)


@dataclass(frozen=True, slots=True)
class Element:
    """A number in a `Field`: (Σ nums[k] b_k)/den, in lowest terms with den > 0. Ordered by the embedding."""

    field: Field
    nums: tuple[int, ...]
    den: int

    def terms(self) -> Terms:
        """The non-zero integer coordinates."""
        return tuple((k, c) for k, c in enumerate(self.nums) if c)

    def is_zero(self) -> bool:
        """True if this is 0."""
        return not any(self.nums)

    def as_fraction(self) -> Fraction | None:
        """The rational number this is, or None if it is irrational."""
        return None if any(self.nums[1:]) else Fraction(self.nums[0], self.den)

    def __add__(self, other: Element | Fraction | int) -> Element:
        y = self.field(other)
        if self.den == y.den == 1:
            return Element(self.field, tuple([a + b for a, b in zip(self.nums, y.nums, strict=True)]), 1)
        nums = [a * y.den + b * self.den for a, b in zip(self.nums, y.nums, strict=True)]
        return self.field.element(nums, self.den * y.den)

    __radd__ = __add__

    def __neg__(self) -> Element:
        return Element(self.field, tuple(-c for c in self.nums), self.den)

    def __sub__(self, other: Element | Fraction | int) -> Element:
        return self + -self.field(other)

    def __rsub__(self, other: Fraction | int) -> Element:
        return self.field(other) - self

    def __mul__(self, other: Element | Fraction | int) -> Element:
        y, field = self.field(other), self.field
        if field.degree == 1:
            return field.element((self.nums[0] * y.nums[0],), self.den * y.den)
        nums = [0] * field.degree
        mine = self.terms()
        for j, b in y.terms():
            for i, a in mine:
                for k, c in field.product(i, j):
                    nums[k] += a * b * c
        return field.element(nums, self.den * y.den)

    __rmul__ = __mul__

    def inverse(self) -> Element:
        """1/x; raises ZeroDivisionError for 0."""
        if self.is_zero():
            raise ZeroDivisionError(f"inverse of 0 in {self.field}")
        q = self.as_fraction()
        if q is not None:
            return self.field(1 / q)
        m = self.field.degree
        rows = [[fmpq(0)] * m for _ in range(m)]
        for j in range(m):
            for i, a in self.terms():
                for k, c in self.field.product(i, j):
                    rows[k][j] += a * c
        solution = fmpq_mat(m, m, [x for row in rows for x in row]).solve(fmpq_mat(m, 1, [self.den] + [0] * (m - 1)))
        values = [Fraction(int(solution[k, 0].p), int(solution[k, 0].q)) for k in range(m)]
        den = math.lcm(*(v.denominator for v in values))
        return self.field.element([int(v * den) for v in values], den)

    def __truediv__(self, other: Element | Fraction | int) -> Element:
        return self * self.field(other).inverse()

    def __rtruediv__(self, other: Fraction | int) -> Element:
        return self.field(other) * self.inverse()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Element):
            same = self.field is other.field or self.field == other.field
            return same and self.den == other.den and self.nums == other.nums
        if isinstance(other, (int, Fraction)):
            return self.as_fraction() == other
        return NotImplemented

    def __hash__(self) -> int:
        if any(self.nums[1:]):
            return hash((self.nums, self.den))
        # As of the equal integer or fraction.
        return hash(self.nums[0] if self.den == 1 else Fraction(self.nums[0], self.den))

    def ball(self, bits: int) -> arb:
        """A ball that contains this number, radius about 2^-bits times the largest of its terms."""
        with ctx.workprec(bits + 16):
            balls = self.field.basis_balls(bits + 16)
            return sum((balls[k] * c for k, c in self.terms()), arb(0)) / self.den

    def enclose(self, bits: int = 64) -> tuple[Fraction, Fraction]:
        """Rationals (low, high) with low <= x <= high; equal ones for a rational x."""
        q = self.as_fraction()
        if q is not None:
            return q, q
        ball = self.ball(bits)
        mid, radius = _exact(ball.mid()), _exact(ball.rad())
        return mid - radius, mid + radius

    def sign(self) -> int:
        """-1, 0 or 1, decided exactly."""
        if self.is_zero():
            return 0
        bits = 64
        while True:
            low, high = self.enclose(bits)
            if low > 0:
                return 1
            if high < 0:
                return -1
            bits *= 2

    def __lt__(self, other: Element | Fraction | int) -> bool:
        return (self - other).sign() < 0

    def __le__(self, other: Element | Fraction | int) -> bool:
        return (self - other).sign() <= 0

    def __gt__(self, other: Element | Fraction | int) -> bool:
        return (self - other).sign() > 0

    def __ge__(self, other: Element | Fraction | int) -> bool:
        return (self - other).sign() >= 0

    def __float__(self) -> float:
        """The nearest double (correctly rounded)."""
        bits = 64
        while True:
            low, high = self.enclose(bits)
            if float(low) == float(high):
                return float(low)
            bits *= 2

    def to_json(self) -> int | str | list[int]:
        """The element as a certificate writes it: an integer, "p/q", or [den, k, c, k, c, ...]."""
        if not any(self.nums[1:]):
            return self.nums[0] if self.den == 1 else f"{self.nums[0]}/{self.den}"
        return [self.den, *(x for term in self.terms() for x in term)]

    def __str__(self) -> str:
        q = self.as_fraction()
        if q is not None:
            return str(q)
        return self.field.spell(self)


def element_from_json(field: Field, data: Any) -> Element:
    """The element that `Element.to_json` wrote; raises InvalidInput for anything else."""
    if isinstance(data, (int, str)):
        return field(data)
    if isinstance(data, list) and all(type(x) is int for x in cast("list[Any]", data)):
        numbers = cast("list[int]", data)
        indices = numbers[1::2]
        good = len(numbers) % 2 == 1 and numbers[0] > 0 and sorted(set(indices)) == indices
        if good and all(0 <= k < field.degree for k in indices):
            coordinates = [0] * field.degree
            for k, c in zip(numbers[1::2], numbers[2::2], strict=True):
                coordinates[k] = c
            return field.element(coordinates, numbers[0])
    raise InvalidInput(f"element {data!r} is not an integer, a rational string or [den, k, c, ...]")


def spelled(terms: Sequence[tuple[str, Fraction]]) -> str:
    """A sum of rational multiples of named numbers ("" is 1), like "1/2·√5 - 3"."""
    text = ""
    for name, c in terms:
        size = str(abs(c)) if not name or abs(c) != 1 else ""
        text += (" - " if c < 0 else " + ") + size + ("·" if size and name else "") + name
    return text.removeprefix(" + ").replace(" - ", "-", 1) if text.startswith(" - ") else text.removeprefix(" + ")


def _exact(value: arb) -> Fraction:
    mantissa, exponent = value.man_exp()
    return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)
