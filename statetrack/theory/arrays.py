"""Exact matrices over a field, and batches of exact vectors moved by them without field multiplications.

An n × n matrix over a field of degree m is an (nm × nm) sparse *integer* matrix on the integer coordinates of
vectors (restriction of scalars). Batches of vectors run through numpy int64 where a bound shows that nothing
can overflow, and through Python integers otherwise; both take the same lines of code.

Main definitions: `Vector`, `Matrix`, `identity`, `matmul`, `matvec`, `dot`, `outer`, `AffineMap`, `VectorSet`.

Main results: `VectorSet` numbers distinct vectors; two vectors get one number iff they are equal (canonical
denominators and coordinates are compared, never hashes alone).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded

from .fields import Element, Field

Vector = tuple[Element, ...]
Matrix = tuple[Vector, ...]  # rows
Integers = NDArray[Any]  # int64, or object holding Python integers

_SAFE = 1 << 62


def vector(field: Field, entries: Iterable[Element | int]) -> Vector:
    """A vector over the field from elements and integers."""
    return tuple(field(x) for x in entries)


def matrix(field: Field, rows: Iterable[Iterable[Element | int]]) -> Matrix:
    """A matrix over the field from rows of elements and integers."""
    return tuple(vector(field, row) for row in rows)


@lru_cache(maxsize=256)
def identity(field: Field, n: int) -> Matrix:
    """The n × n identity."""
    return matrix(field, ((int(i == j) for j in range(n)) for i in range(n)))


def diagonal(field: Field, entries: Sequence[Element | int]) -> Matrix:
    """The square matrix with these entries on its diagonal."""
    return matrix(field, ((x if i == j else 0 for j in range(len(entries))) for i, x in enumerate(entries)))


def transpose(a: Matrix) -> Matrix:
    """Aᵀ; the columns of A as rows."""
    return tuple(zip(*a, strict=True))


def dot(u: Vector, v: Vector) -> Element:
    """u · v."""
    total = u[0].field.zero
    for x, y in zip(u, v, strict=True):
        if not (x.is_zero() or y.is_zero()):
            total = total + x * y
    return total


def matvec(a: Matrix, v: Vector) -> Vector:
    """A v."""
    return tuple(dot(row, v) for row in a)


def matmul(a: Matrix, b: Matrix) -> Matrix:
    """A B: first B, then A."""
    columns = transpose(b)
    return tuple(tuple(dot(row, column) for column in columns) for row in a)


def add(a: Matrix, b: Matrix) -> Matrix:
    """A + B."""
    return tuple(tuple(x + y for x, y in zip(r, s, strict=True)) for r, s in zip(a, b, strict=True))


def scale(c: Element, a: Matrix) -> Matrix:
    """c A."""
    return tuple(tuple(c * x for x in row) for row in a)


def outer(u: Vector, v: Vector) -> Matrix:
    """u vᵀ."""
    return tuple(tuple(x * y for y in v) for x in u)


def trace(a: Matrix) -> Element:
    """The trace of a square matrix."""
    return sum((row[i] for i, row in enumerate(a)), a[0][0].field.zero)


@dataclass(frozen=True, eq=False)
class AffineMap:
    """x -> A x + b over a field, as one sparse integer map over a common denominator.

    `matrix` has rows of length n and any number of rows; `offset` is a column as long as the rows are many, or None.
    """

    field: Field
    matrix: Matrix
    offset: Vector | None = None

    @cached_property
    def _restricted(self) -> tuple[int, NDArray[np.intp], Integers, NDArray[np.intp], Integers]:
        """Denominator, column indices, values, row starts (every row holds at least one entry), offset coordinates."""
        m, width = self.field.degree, len(self.matrix[0])
        entries = [x for row in self.matrix for x in row] + list(self.offset or ())
        den = math.lcm(*(x.den for x in entries))
        columns: list[int] = []
        values: list[int] = []
        starts: list[int] = []
        for row in self.matrix:
            block: list[dict[int, int]] = [{} for _ in range(m)]
            for j, x in enumerate(row):
                for i, a in x.terms():
                    unit = a * (den // x.den)
                    for b in range(m):
                        for k, c in self.field.product(i, b):
                            block[k][j * m + b] = block[k].get(j * m + b, 0) + unit * c
            for line in block:
                starts.append(len(values))
                line = {k: c for k, c in line.items() if c} or {0: 0}
                columns.extend(line)
                values.extend(line.values())
        assert max(columns) < width * m
        offset = [c * (den // x.den) for x in self.offset or () for c in x.nums]
        return (
            den,
            np.array(columns, dtype=np.intp),
            _integers(values),
            np.array(starts, dtype=np.intp),
            _integers(offset),
        )

    @cached_property
    def _growth(self) -> int:
        """Bound on |output coordinate| for input coordinates and denominators of size 1."""
        _, _, values, starts, offset = self._restricted
        sums = np.add.reduceat(np.abs(values.astype(object)), starts)
        return int(max(sums)) + (int(max(np.abs(offset.astype(object)))) if offset.size else 0)

    def apply(self, dens: Integers, ints: Integers) -> tuple[Integers, Integers]:
        """The images of a batch: `dens` [count], `ints` [count, n·m] -> the same, canonical."""
        den, columns, values, starts, offset = self._restricted
        size = max(_size(ints), _size(dens)) * max(self._growth, den)
        kind = np.int64 if size < _SAFE and values.dtype != object else object
        ints, dens = ints.astype(kind, copy=False), dens.astype(kind, copy=False)
        images = np.add.reduceat(ints[:, columns] * values.astype(kind, copy=False), starts, axis=1)
        if offset.size:
            images = images + dens[:, None] * offset.astype(kind, copy=False)
        return canonical(dens * den, images)


class VectorSet:
    """Distinct exact vectors of one length, numbered from 0 in the order of arrival."""

    def __init__(self, field: Field, length: int, limit: int) -> None:
        self.field, self.length, self.limit = field, length, limit
        self._ids: dict[tuple[int, ...], int] = {}
        self._rows: list[tuple[int, ...]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, dens: Integers, ints: Integers) -> NDArray[np.int32]:
        """Numbers of a canonical batch; raises BudgetExceeded past the limit."""
        ids: list[int] = []
        for den, row in zip(dens.tolist(), ints.tolist(), strict=True):
            key = (den, *row)
            number = self._ids.setdefault(key, len(self._rows))
            if number == len(self._rows):
                if number >= self.limit:
                    raise BudgetExceeded("distinct exact columns", self.limit, "--max-states")
                self._rows.append(key)
            ids.append(number)
        return np.array(ids, dtype=np.int32)

    def add_vectors(self, vectors: Sequence[Vector]) -> NDArray[np.int32]:
        """Numbers of vectors given as elements."""
        dens = [math.lcm(*(x.den for x in v)) for v in vectors]
        ints = [[c * (den // x.den) for x in v for c in x.nums] for den, v in zip(dens, vectors, strict=True)]
        return self.add(
            *canonical(_integers(dens), _integers(ints).reshape(len(dens), self.length * self.field.degree))
        )

    def batch(self, ids: NDArray[np.int32]) -> tuple[Integers, Integers]:
        """Denominators [count] and coordinates [count, length·m] of the vectors with these numbers."""
        rows = _integers([self._rows[i] for i in ids.tolist()])
        return rows[:, 0], rows[:, 1:]

    def vector(self, number: int) -> Vector:
        """The vector with this number, as elements."""
        den, *ints = self._rows[number]
        m = self.field.degree
        return tuple(self.field.element(ints[i * m : (i + 1) * m], den) for i in range(self.length))

    def bits(self) -> int:
        """The length of the longest denominator or coordinate."""
        return max((abs(c).bit_length() for row in self._rows for c in row), default=0)

    def to_floats(self) -> NDArray[np.float64]:
        """All vectors as doubles [count, length]; each entry within a few units in the last place of the sum's size."""
        terms, basis, dens = self._terms()
        return terms @ basis / dens

    def sizes(self) -> NDArray[np.float64]:
        """Doubles not below the absolute values of all entries [count, length], but for a relative 2^-40."""
        terms, basis, dens = self._terms()
        return (np.abs(terms @ basis) + 2.0**-46 * (np.abs(terms) @ np.abs(basis))) / dens

    def _terms(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Coordinates [count, length, m], the basis [m] and denominators [count, 1]."""
        basis = np.array(
            [
                float(Element(self.field, tuple(int(i == k) for i in range(self.field.degree)), 1))
                for k in range(self.field.degree)
            ]
        )
        table = np.array([[float(c) for c in row] for row in self._rows]).reshape(len(self._rows), -1)
        return table[:, 1:].reshape(len(self._rows), self.length, self.field.degree), basis, table[:, :1]


def canonical(dens: Integers, ints: Integers) -> tuple[Integers, Integers]:
    """Divide each row and its positive denominator by their greatest common divisor."""
    if not len(dens):
        return dens, ints
    divisor = np.gcd(np.gcd.reduce(ints, axis=1), dens) if ints.shape[1] else dens
    return dens // divisor, ints // divisor[:, None]


def _integers(values: Any) -> Integers:
    """int64 if everything fits comfortably, Python integers otherwise."""
    try:
        array = np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array(values, dtype=object)
    return array if _size(array) < _SAFE else np.array(values, dtype=object)


def _size(array: Integers) -> int:
    """The largest absolute value; not by np.abs, which leaves -2^63 negative."""
    return max(int(array.max()), -int(array.min())) if array.size else 1
