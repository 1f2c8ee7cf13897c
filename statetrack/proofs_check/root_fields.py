"""The fields K_N(r), r a square root, for the checkers: checker.py's arithmetic with pairs of its numbers.

Main definitions: `Rooted`, `rootless`.

References: docs/certificate.md.
"""

# pyright: basic
import sys
from functools import cache
from itertools import count, islice
from math import gcd, isqrt, lcm
from pathlib import Path
from typing import Any

if __package__:
    from statetrack.proofs_check import checker
else:  # a copy beside checker.py
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import checker

keys, need = checker.keys, checker.need


class Rooted(checker.Field):
    """K_N(r), r > 0, r² = s, s no square in K_N, by b_0, ..., b_(m-1) and r times these: one real, one coordinates."""

    def __init__(self, data: Any) -> None:
        base = checker.Field(keys(data, "cos root")["cos"])
        square = base.number(data["root"])
        good = square[0] == 1 and not base.at_least(checker.ZERO, square) and rootless(base, square)
        need(good, "root", data, "positive, of integer coordinates, by a prime no square in K_N")
        self.base, self.square, self.half, self.m = base, square, base.m, 2 * base.m
        self.value, self.at_least = cache(self.value), cache(self.at_least)

    def dot(self, u: Any, v: Any) -> Any:
        """Σ u_i v_i, canonical."""
        (low, high), (other, upper) = ([*zip(*map(self.halves, row), strict=True)] or [(), ()] for row in (u, v))
        rest, one, dot = self.base.dot(high, upper), checker.ONE, self.base.dot
        (d, xs), (e, ys) = dot((dot(low, other), self.square), (one, rest)), dot((*low, *high), (*upper, *other))
        den = lcm(d, e)
        terms = [(k, n * (den // d)) for k, n in xs] + [(k + self.half, n * (den // e)) for k, n in ys]
        divisor = gcd(den, *[n for _, n in terms])
        return den // divisor, tuple([(k, n // divisor) for k, n in terms])

    def halves(self, x: Any) -> tuple[Any, Any]:
        """a and b of a + b r."""
        a, b = [(k, n) for k, n in x[1] if k < self.half], [(k - self.half, n) for k, n in x[1] if k >= self.half]
        return (x[0], tuple(a)) if a else checker.ZERO, (x[0], tuple(b)) if b else checker.ZERO

    def value(self, k: int, bits: int) -> tuple[int, int]:
        """Integers lo <= 2^bits b_k <= hi."""
        if k < self.half:
            return self.base.value(k, bits)
        q, (low, high) = bits + 32, self.base.enclose(self.square, 2 * bits + 64)
        ends = [x * y for x in self.base.value(k - self.half, q) for y in (isqrt(max(low, 0)), isqrt(high) + 1)]
        return min(ends) >> (2 * q - bits), -(-max(ends) >> (2 * q - bits))


def rootless(field: checker.Field, x: Any) -> bool:
    """Whether one of 64 primes proves that the integer x of K_N has no root there (docs/certificate.md says how)."""
    primes = (p for p in count(field.N + 1, field.N) if p > 2 and all(p % d for d in range(2, isqrt(p) + 1)))
    for p in islice(primes, 64):
        powers = (pow(a, (p - 1) // field.N, p) for a in range(1, p))
        g = next(g for g in powers if all(pow(g, field.N // q, p) != 1 for q in field.primes))
        if pow(sum(n * (pow(g, k, p) + pow(g, -k, p) if k else 1) for k, n in x[1]), (p - 1) // 2, p) == p - 1:
            return True
    return False
