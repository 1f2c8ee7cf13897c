"""Floating-point formats exactly: which numbers they hold, and rounding to the nearest, ties to even.

A format holds the numbers m·2^e with |m| < 2^precision, e >= least and |m·2^e| <= largest; `least` is the exponent of
its smallest positive (subnormal) number. What rounds beyond `largest` is no number of it.

Main definitions: `NumberFormat`, `FORMATS_BY_NAME`, `number_format`.

Main results: `round` on fractions is the definition; `rounded` does the same to arrays of doubles, and equals the
casts of numpy and ml_dtypes.

References: IEEE 754-2019, sec. 3 and 4.3; OCP 8-bit floating point (e4m3 without infinities, e5m2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import InvalidInput

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NumberFormat:
    """A binary floating-point format; `name` is that of torch and ml_dtypes, `short` what people write.

    >>> number_format("bf16").round(Fraction(257, 256)), number_format("e4m3").round(Fraction(1, 1024))
    (Fraction(1, 1), Fraction(0, 1))
    """

    name: str
    short: str
    precision: int
    least: int
    largest: Fraction

    @property
    def tiny(self) -> Fraction:
        """The smallest positive number."""
        return _power(self.least)

    @property
    def unit(self) -> Fraction:
        """The unit roundoff u: |round(x) - x| <= u |x| where the result is not subnormal."""
        return _power(-self.precision)

    @property
    def arithmetic(self) -> NumberFormat:
        """The format in which kernels compute on numbers stored in this one: float64 for itself, else float32."""
        return number_format("float64" if self.precision > 24 else "float32")

    def round(self, x: Fraction | int) -> Fraction | None:
        """The nearest number of the format, the even one of two; None if it is beyond the largest."""
        if x == 0:
            return Fraction(0)
        step = self._step(Fraction(x))
        # Python rounds fractions to the nearest integer, ties to even.
        found = round(Fraction(x) / step) * step
        return found if abs(found) <= self.largest else None

    def holds(self, x: Fraction | int) -> bool:
        """Whether the number is one of the format."""
        return self.round(x) == x

    def neighbours(self, x: Fraction | int) -> tuple[Fraction, Fraction]:
        """The largest number of the format at most x and the smallest at least x; InvalidInput beyond the largest."""
        if abs(x) > self.largest:
            raise InvalidInput(f"{float(x)}: beyond the largest number of {self.name}")
        if x == 0:
            return Fraction(0), Fraction(0)
        step = self._step(Fraction(x))
        places = Fraction(x) / step
        down = places.numerator // places.denominator
        return down * step, -(-places.numerator // places.denominator) * step

    def rounded(self, x: Floats) -> Floats:
        """`round` of every double, as doubles; NaN beyond the largest (and for NaN)."""
        if self.precision >= 53:
            return np.asarray(x, dtype=np.float64)
        _, exponent = np.frexp(x)
        place = np.maximum(exponent - self.precision, self.least)
        found = np.ldexp(np.rint(np.ldexp(x, -place)), place)
        return np.where(np.abs(found) <= float(self.largest), found, np.nan)

    def _step(self, x: Fraction) -> Fraction:
        """The distance of neighbours around x != 0, of the binade that holds x."""
        size = abs(x)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if size < _power(exponent):
            exponent -= 1
        return _power(max(exponent - self.precision + 1, self.least))


def _power(exponent: int) -> Fraction:
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)


def _format(name: str, short: str, precision: int, least: int, top: int, missing: int = 1) -> NumberFormat:
    """`top` is the exponent of the largest binade, `missing` 1 + how many of its last numbers are none."""
    return NumberFormat(name, short, precision, least, (2 - missing * _power(1 - precision)) * _power(top))


FORMATS_BY_NAME: Mapping[str, NumberFormat] = {
    f.name: f
    for f in (
        _format("float64", "fp64", 53, -1074, 1023),
        _format("float32", "fp32", 24, -149, 127),
        _format("bfloat16", "bf16", 8, -133, 127),
        _format("float16", "fp16", 11, -24, 15),
        _format("float8_e4m3fn", "e4m3", 4, -9, 8, 2),
        _format("float8_e5m2", "e5m2", 3, -16, 15),
    )
}


def number_format(name: str) -> NumberFormat:
    """The format of this name or short name; InvalidInput lists them for any other."""
    for found in FORMATS_BY_NAME.values():
        if name in (found.name, found.short):
            return found
    known = ", ".join(f"{f.name} ({f.short})" for f in FORMATS_BY_NAME.values())
    raise InvalidInput(f"number format {name!r}: know {known}")
