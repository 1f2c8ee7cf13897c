"""Real cyclotomic fields with one more square root: K_N(r), r > 0, r^2 an integer of K_N.

Half the angle between two axes of a binary polyhedral group has a cosine that no real cyclotomic field holds.

Main definitions: `RootField`, `root_field`.

References: docs/certificate.md, *Fields*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flint import arb, ctx

from statetrack.errors import InvalidInput

from .fields import Element, Field, Terms
from .number_fields import RealCyclotomic


@dataclass(frozen=True)
class RootField(Field):
    """K(r) for K real cyclotomic, r the positive square root of `square`, which is an integer of K and no square.

    Basis: that of K, then r times it. That r is not in K is not decided here: the checker proves it, or refuses.
    """

    base: RealCyclotomic
    square: Element

    def __post_init__(self) -> None:
        if self.square.field != self.base or self.square.den != 1 or self.square.sign() <= 0:
            raise InvalidInput(f"square root of {self.square}: give a positive integer of {self.base}")

    def __str__(self) -> str:
        return f"{self.base} with √({self.square})"

    @cached_property
    def degree(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Twice that of K."""
        return 2 * self.base.degree

    @cached_property
    def root(self) -> Element:
        """r."""
        return self.element([int(k == self.base.degree) for k in range(self.degree)])

    @cached_property
    def _products(self) -> dict[tuple[int, int], Terms]:
        return {}

    def product(self, i: int, j: int) -> Terms:
        """b_i b_j in the basis."""
        found = self._products.get((i, j))
        if found is None:
            m = self.base.degree
            terms = self.base.product(i % m, j % m)
            if i >= m and j >= m:
                made = self.square * self.base.element([dict(terms).get(k, 0) for k in range(m)])
                terms = made.terms()
            shift = m if (i >= m) != (j >= m) else 0
            found = self._products[i, j] = tuple((k + shift, c) for k, c in terms)
        return found

    def basis_balls(self, bits: int) -> Sequence[arb]:
        """Those of K, and r times them."""
        with ctx.workprec(bits + 16):
            balls = list(self.base.basis_balls(bits + 16))
            root = self.square.ball(bits + 16).sqrt()
            return (*balls, *(root * ball for ball in balls))

    def embed(self, x: Element) -> Element:
        """An element of K, a subfield K_M or this field itself as an element of this field; else InvalidInput."""
        if x.field == self:
            return x
        low = self.base.embed(x)
        return self.element([*low.nums, *[0] * self.base.degree], low.den)

    def to_json(self) -> dict[str, object]:
        """`{"cos": N, "root": r^2}`."""
        return {"cos": self.base.N, "root": self.square.to_json()}


def root_field(square: Element) -> tuple[RootField, Element]:
    """A field that holds the square root of a positive number of a real cyclotomic field, and that root."""
    base = square.field
    if not isinstance(base, RealCyclotomic):
        raise InvalidInput(f"square root of {square}: give a number of a real cyclotomic field")
    # den² x is an integer of the field, and its root is den times that of x.
    field = RootField(base, square * (square.den * square.den))
    return field, field.root / square.den
