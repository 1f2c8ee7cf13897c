"""The number fields of the constructions: real cyclotomic fields, and Q(θ) for any real algebraic integer θ.

One family does almost everything: K_N = Q(2cos(2π/N)) in the *Chebyshev basis* b_0 = 1, b_k = 2cos(2πk/N),
k < m = φ(N)/2, an integral basis with the sparse rule b_i b_j = b_(i+j) + b_|i-j|. It holds Q (N = 1), √2 (8),
√5 (5), √3 (12) and cos, sin of 2πp/q.

Main definitions: `RealCyclotomic`, `SimpleField`, `rationals`, `quadratic`, `field_for_angles`, `field_from_json`,
`prime_factors`.

References: Washington, *Introduction to Cyclotomic Fields*, Prop. 2.16 (Z[2cos(2π/N)] is the ring of integers).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, cast

from flint import arb, ctx, fmpq, fmpz_poly

from statetrack.errors import InvalidInput

from .fields import Element, Field, Terms, element_from_json, spelled


@dataclass(frozen=True)
class RealCyclotomic(Field):
    """K_N = Q(2cos(2π/N)), N >= 1, embedded by b_1 = 2cos(2π/N).

    >>> K = RealCyclotomic(5)
    >>> K.sqrt(5) * K.sqrt(5) == 5, K.degree
    (True, 2)
    """

    N: int

    def __post_init__(self) -> None:
        if self.N < 1:
            raise InvalidInput(f"conductor {self.N} is not a positive integer")

    def __str__(self) -> str:
        names = {5: "Q(√5)", 8: "Q(√2)", 12: "Q(√3)"}
        return "Q" if self.degree == 1 else names.get(self.N, f"Q(2cos(2π/{self.N})), degree {self.degree}")

    @cached_property
    def degree(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """φ(N)/2, and 1 for N in 1, 2, 3, 4, 6."""
        return max(1, len(self._cyclotomic) // 2)

    @cached_property
    def _cyclotomic(self) -> tuple[int, ...]:
        return tuple(int(c) for c in fmpz_poly.cyclotomic(self.N))

    @cached_property
    def _reduced(self) -> dict[int, Terms]:
        return {}

    def basis(self, j: int) -> Terms:
        """2cos(2πj/N) in the basis for any integer j (so 2 b_0 for j = 0)."""
        j %= self.N
        j = min(j, self.N - j)
        if j == 0:
            return ((0, 2),)
        if j < self.degree:
            return ((j, 1),)
        if self.N % 2 == 0 and self.N // 2 - j < self.degree:
            return _scaled(self.basis(self.N // 2 - j), -1)
        if j not in self._reduced:
            self._reduce_to(j)
        return self._reduced[j]

    def _reduce_to(self, j: int) -> None:
        """Fill `_reduced` for indices from the degree m to j: b_m by Φ_N, then b_(i+1) = b_1 b_i - b_(i-1)."""
        m, table = self.degree, self._reduced
        if m == 1:
            # K_N = Q: the value 2cos(2πj/N) is an integer.
            b1 = {1: 2, 2: -2, 3: -1, 4: 0, 6: 1}[self.N]
            before, now = 2, b1
            for i in range(1, j + 1):
                table[i] = ((0, now),) if now else ()
                before, now = now, b1 * now - before
            return
        if m not in table:
            half = self._cyclotomic[m:]
            table[m] = tuple((k, -half[k]) for k in range(m) if half[k])
        top = max(table)
        for i in range(top, j):
            total: dict[int, int] = {}
            for k, c in table[i]:
                for index, unit in self._shift(k):
                    total[index] = total.get(index, 0) + c * unit
            for k, c in table[i - 1] if i - 1 >= m else ((i - 1, 1),):
                total[k] = total.get(k, 0) - c
            table[i + 1] = _terms(total)

    def _shift(self, k: int) -> Terms:
        """b_1 b_k."""
        if k == 0:
            return ((1, 1),)
        up = ((k + 1, 1),) if k + 1 < self.degree else self._reduced[self.degree]
        down = ((k - 1, 2 if k == 1 else 1),)
        total: dict[int, int] = {}
        for index, c in (*down, *up):
            total[index] = total.get(index, 0) + c
        return _terms(total)

    @cached_property
    def _products(self) -> dict[tuple[int, int], Terms]:
        return {}

    def product(self, i: int, j: int) -> Terms:
        """b_i b_j = b_(i+j) + b_|i-j|, reduced."""
        found = self._products.get((i, j))
        if found is None:
            total = dict(((i + j, 1),) if i == 0 or j == 0 else self.basis(i + j))
            for k, c in self.basis(i - j) if i and j else ():
                total[k] = total.get(k, 0) + c
            found = self._products[i, j] = _terms(total)
        return found

    def spell(self, x: Element) -> str:
        """In square roots for quadratic fields, in b_k = 2cos(2πk/N) otherwise."""
        roots = {5: ("√5", -1, 2), 10: ("√5", 1, 2), 8: ("√2", 0, 1), 12: ("√3", 0, 1)}
        if self.N not in roots:
            return super().spell(x)
        name, shift, half = roots[self.N]
        # b_1 = (shift + root)/half.
        a, b = (Fraction(c, x.den) for c in x.nums)
        rational, multiple = a + b * Fraction(shift, half), b / half
        return spelled([(name, multiple)] + ([("", rational)] if rational else []))

    def embed(self, x: Element) -> Element:
        """An element of a subfield K_M, M dividing N (or a rational), as an element of this field."""
        q = x.as_fraction()
        if q is not None:
            return self(q)
        if not isinstance(x.field, RealCyclotomic) or self.N % x.field.N:
            raise InvalidInput(f"{x.field} does not lie in {self} by its conductor")
        coordinates = [0] * self.degree
        for k, c in x.terms():
            for i, unit in self.basis(k * (self.N // x.field.N)) if k else ((0, 1),):
                coordinates[i] += c * unit
        return self.element(coordinates, x.den)

    def cos(self, p: int, q: int) -> Element:
        """cos(2πp/q); q must divide N."""
        return self._half(self._index(p, q))

    def sin(self, p: int, q: int) -> Element:
        """sin(2πp/q) = cos(2π(p/q - 1/4)); lcm(4, q) must divide N (unless the value is in a smaller field)."""
        top, bottom = 4 * p - q, 4 * q
        g = math.gcd(top, bottom)
        return self._half(self._index(top // g, bottom // g))

    def sqrt(self, d: int) -> Element:
        """The positive square root of the positive integer d, by Gauss sums; raises if it is not in this field."""
        if d <= 0:
            raise InvalidInput(f"square root of {d}: give a positive integer")
        square, rest = 1, d
        for p in prime_factors(d):
            while rest % (p * p) == 0:
                rest, square = rest // (p * p), square * p
        odd = rest // 2 if rest % 2 == 0 else rest
        root = self.cos(1, 8) * 2 * square if rest % 2 == 0 else self(square)
        if odd == 1:
            return root
        total = self.zero
        for k in range(1, odd):
            # Gauss: Σ (k/d) ζ^k, (k/d) the Jacobi symbol, is √d for d = 1 mod 4 and i√d for d = 3 mod 4.
            symbol = (
                math.prod(1 if pow(k, (p - 1) // 2, p) == 1 else -1 for p in prime_factors(odd))
                if math.gcd(k, odd) == 1
                else 0
            )
            if symbol:
                total = total + (self.cos(k, odd) if odd % 4 == 1 else self.sin(k, odd)) * symbol
        return root * total

    def _index(self, p: int, q: int) -> int:
        if q == 0:
            raise InvalidInput(f"angle 2π·{p}/0: give a denominator that is not 0")
        g = math.gcd(p, q)
        if self.N % (q // g):
            raise InvalidInput(f"angle 2π·{p}/{q} needs a conductor divisible by {q // g}; {self} has {self.N}")
        return p // g * (self.N // (q // g))

    def _half(self, j: int) -> Element:
        coordinates = [0] * self.degree
        for k, c in self.basis(j):
            coordinates[k] = c
        return self.element(coordinates, 2)

    def basis_balls(self, bits: int) -> Sequence[arb]:
        """1 and 2cos(2πk/N)."""
        return _cosines(self.N, self.degree, bits)

    def to_json(self) -> dict[str, object]:
        """`{"cos": N}`."""
        return {"cos": self.N}


@dataclass(frozen=True)
class SimpleField(Field):
    """Q(θ), θ the only root in [low, high] of the monic irreducible integer polynomial `minpoly` (constant first)."""

    minpoly: tuple[int, ...]
    low: Fraction
    high: Fraction

    def __post_init__(self) -> None:
        f = fmpz_poly(list(self.minpoly))
        if len(self.minpoly) < 2 or self.minpoly[-1] != 1:
            raise InvalidInput(
                f"polynomial {self.minpoly}: give a monic integer polynomial of degree at least 1, constant first"
            )
        factors = f.factor()[1]
        if len(factors) != 1 or factors[0][1] != 1:
            raise InvalidInput(
                f"polynomial {f} is not irreducible over Q; give the minimal polynomial of the generator"
            )
        roots: list[Any] = [r for r, _ in cast(Any, f).complex_roots() if r.imag.contains(0)]
        inside = [r for r in roots if float(self.low) <= float(r.real.mid()) <= float(self.high)]
        if len(inside) != 1 or self._value(self.low) * self._value(self.high) >= 0:
            raise InvalidInput(
                f"interval [{self.low}, {self.high}] holds {len(inside)} roots of {f}; give one that isolates a root"
            )

    def __str__(self) -> str:
        return f"Q(θ), {fmpz_poly(list(self.minpoly))} = 0 with x = θ near {float((self.low + self.high) / 2):.6g}"

    @cached_property
    def degree(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Degree of the minimal polynomial."""
        return len(self.minpoly) - 1

    @cached_property
    def _powers(self) -> tuple[Terms, ...]:
        """θ^k for k < 2m - 1 in the basis."""
        m = self.degree
        rows = [[int(i == k) for i in range(m)] for k in range(m)]
        for _ in range(m - 1):
            last = rows[-1]
            rows.append([(last[i - 1] if i else 0) - last[-1] * self.minpoly[i] for i in range(m)])
        return tuple(tuple((i, c) for i, c in enumerate(row) if c) for row in rows)

    def _value(self, x: Fraction) -> Fraction:
        return sum((c * x**k for k, c in enumerate(self.minpoly)), Fraction(0))

    def product(self, i: int, j: int) -> Terms:
        """θ^(i+j), reduced by the minimal polynomial."""
        return self._powers[i + j]

    def basis_balls(self, bits: int) -> Sequence[arb]:
        """Powers of θ, from an interval halved until it is shorter than 2^-bits."""
        return _power_balls(self, bits)

    def to_json(self) -> dict[str, object]:
        """`{"minpoly": ..., "interval": ...}`."""
        return {"minpoly": list(self.minpoly), "interval": [str(self.low), str(self.high)]}


@cache
def rationals() -> RealCyclotomic:
    """The field Q."""
    return RealCyclotomic(1)


def quadratic(d: int) -> Field:
    """Q(√d) for an integer d > 1 that is not a square: Chebyshev basis for d = 2, 3, 5, else power basis in √d."""
    square = max((s for s in range(1, math.isqrt(d) + 1) if d % (s * s) == 0), default=1) if d > 1 else 1
    rest = d // (square * square) if d > 1 else d
    if rest <= 1:
        raise InvalidInput(f"Q(√{d}): give an integer above 1 that is not a square")
    if rest in (2, 3, 5):
        return RealCyclotomic({2: 8, 3: 12, 5: 5}[rest])
    low = Fraction(math.isqrt(rest))
    return SimpleField((-rest, 0, 1), low, low + 1)


def field_for_angles(*denominators: int) -> RealCyclotomic:
    """The smallest K_N of our family that holds cos and sin of 2πp/q for every q given and every p."""
    return RealCyclotomic(math.lcm(4, *denominators)) if denominators else rationals()


def field_from_json(data: Mapping[str, Any]) -> Field:
    """The field that `Field.to_json` wrote; raises InvalidInput for anything else."""
    try:
        if set(data) == {"cos"} and type(data["cos"]) is int:
            return RealCyclotomic(data["cos"])
        if set(data) == {"cos", "root"} and type(data["cos"]) is int:
            from .quadratic_fields import RootField

            base = RealCyclotomic(data["cos"])
            return RootField(base, element_from_json(base, data["root"]))
        if set(data) == {"minpoly", "interval"} and all(type(c) is int for c in data["minpoly"]):
            low, high = data["interval"]
            return SimpleField(tuple(data["minpoly"]), Fraction(str(low)), Fraction(str(high)))
    except (TypeError, ValueError, ZeroDivisionError):
        pass
    raise InvalidInput(f"field {dict(data)}: give cos: N, or minpoly and interval")


@cache
def _cosines(conductor: int, degree: int, bits: int) -> tuple[arb, ...]:
    with ctx.workprec(bits):
        return (arb(1), *(2 * arb.cos_pi_fmpq(fmpq(2 * k, conductor)) for k in range(1, degree)))


@cache
def _power_balls(field: SimpleField, bits: int) -> tuple[arb, ...]:
    low, high = field.low, field.high
    rising = _sign_at(field, high) > 0
    while high - low > Fraction(1, 1 << bits):
        middle = (low + high) / 2
        low, high = (low, middle) if (_sign_at(field, middle) > 0) == rising else (middle, high)
    with ctx.workprec(bits + 8):
        middle, radius = (low + high) / 2, (high - low) / 2
        theta = arb(fmpq(middle.numerator, middle.denominator)) + arb(
            0, arb(fmpq(radius.numerator, radius.denominator))
        )
        return tuple(theta**k for k in range(field.degree))


def _sign_at(field: SimpleField, x: Fraction) -> int:
    value = sum((c * x**k for k, c in enumerate(field.minpoly)), Fraction(0))
    return (value > 0) - (value < 0)


def _terms(total: dict[int, int]) -> Terms:
    return tuple(sorted((k, c) for k, c in total.items() if c))


def _scaled(terms: Terms, factor: int) -> Terms:
    return tuple((k, c * factor) for k, c in terms)


def prime_factors(n: int) -> tuple[int, ...]:
    """The primes that divide n >= 1, each once, in order."""
    found: list[int] = []
    p = 2
    while p * p <= n:
        if n % p == 0:
            found.append(p)
            while n % p == 0:
                n //= p
        p += 1
    return tuple(found + ([n] if n > 1 else []))
