"""What one token adds to the error of a head's state, in balls: norm, growth and loss of its rounded factors.

A stored token takes the state S' to A S' + b + E with |E| <= g |S'| + τ. Factors whose stored numbers make no operation
round (gates 0 and ±1, and β k = 0 or a key with one entry ±1 and β 0, 1 or 2) add |A' - A| to g and nothing else. Nor
does an additive term in rows of A' that are 0: there the new state is that term, whatever the old one was.

Main definitions: `TokenError`, `token_errors`; `ball`, `rational`, `exact`, `frobenius`, `gamma`, `upper`.

References: docs/precision.md; Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce
from typing import Any

from flint import arb, fmpq

from statetrack.theory.arrays import Matrix
from statetrack.theory.fields import Element
from statetrack.theory.number_formats import NumberFormat

from .float_steps import HeadTables
from .program import Dense, Factor, Head

PRECISION = 128
_ONE_TERM = (-1.0, 1.0)


@dataclass(frozen=True)
class TokenError:
    """The errors of a step as one input stores it: |E| <= `growth` |S'| + `loss`.

    `norm` bounds the norm of the exact linear part, `added` that of the exact additive term, and `reach` how many times
    larger the state may be between the factors.
    """

    step: int
    norm: arb
    growth: arb
    loss: arb
    added: arb
    reach: arb


def token_errors(head: Head, tables: HeadTables) -> Iterator[TokenError]:
    """The errors of every input that the head meets; inputs with the same step and the same stored numbers are one."""
    known = set[tuple[Any, ...]]()
    for i, key in enumerate(sorted(head.choose.seen)):
        step = head.choose.seen[key][0]
        stored = (tables.keys, tables.gates, tables.betas, tables.values, tables.bias, tables.dense)
        row = (step, *(None if table is None else table[i].tobytes() for table in stored))
        if row not in known:
            known.add(row)
            yield _token(head, step, i, tables)


def _token(head: Head, step: int, i: int, tables: HeadTables) -> TokenError:
    """Products of the factors' norms with and without their errors."""
    clean, dirty, loss, added, reach = arb(1), arb(1), arb(0), arb(0), arb(1)
    for j, factor in enumerate(head.steps[step]):
        if isinstance(factor, Dense):
            norm, kappa, tau, size = _dense(factor, tables, i, tables.storage, head)
        else:
            norm, kappa, tau, size = _factor(factor, tables, i, j, tables.storage, head)
        # What earlier factors of the token added is in the state that this one rounds.
        loss = loss * (norm + kappa).max(arb(1)) + tau + kappa * added
        clean, dirty, added = clean * norm, dirty * (norm + kappa), added * norm.max(arb(1)) + size
        reach = reach.max(clean)
    return TokenError(step, clean, dirty - clean, loss, added, reach)


def _factor(
    factor: Factor, tables: HeadTables, i: int, j: int, storage: NumberFormat, head: Head
) -> tuple[arb, arb, arb, arb]:
    """A bound on the exact factor's norm, κ, τ and the additive term's norm, as in docs/precision.md."""
    n, u, us = head.size, exact(tables.round_off), rational(storage.unit)
    key = [exact(x) for x in tables.keys[i, j, :n]]
    gate, beta = [exact(x) for x in tables.gates[i, j, :n]], exact(tables.betas[i, j])
    b = abs(beta) * sum((x * x for x in key), arb(0))
    rows = [[ball(x) for x in row] for row in factor.matrix()]
    stored = [[((r == c) - beta * key[r] * key[c]) * gate[c] for c in range(n)] for r in range(n)]
    eta = _apart(stored, rows)
    widest = largest([arb(1), *map(abs, gate)])
    norm = _norm(factor, rows)
    wide = arb(1).max(abs(1 - b)) * widest
    first = widest * (u + b * gamma(n + 4, u))
    last = (1 + u) ** 3 * (1 + us) - 1
    (added, charged), wanted = _added(tables, i, j, head), _wanted(factor, head)
    silent, size = _is_silent(tables, i, j, n), frobenius(charged).max(frobenius(wanted))
    if silent and all(x == 0 for x in charged):
        return norm, eta, frobenius(wanted), size
    # An entry is the old one, its negative or what is added; `added` has the columns one after the other.
    kept = [any(x != 0 for x in row) for row in stored] * head.width
    if silent and not any(k and x != 0 for k, x in zip(kept, charged, strict=True)):
        held = _stored_exactly(tables, i, j, head)
        if held is not None:
            return norm, eta, frobenius([x - y for x, y in zip(held, wanted, strict=True)]), size
    kappa = eta + first * (1 + last) + last * wide
    moved = frobenius([x - y for x, y in zip(added, wanted, strict=True)])
    tau = _tiny(n, head.width, storage) * (1 + abs(beta) * n) + moved + (gamma(4, u) + last) * size
    return norm, kappa, tau, size


def _is_silent(tables: HeadTables, i: int, j: int, n: int) -> bool:
    """Whether no operation of the factor's linear part rounds: 0, ±S and S - S come out, in every order."""
    key, beta = tables.keys[i, j, :n].tolist(), float(tables.betas[i, j])
    used = [x for x in key if x != 0]
    plain = all(g in (-1.0, 0.0, 1.0) for g in tables.gates[i, j, :n].tolist())
    return plain and (not used or beta == 0 or (len(used) == 1 and used[0] in _ONE_TERM and beta in (1.0, 2.0)))


def _wanted(factor: Factor, head: Head) -> list[arb]:
    """The exact additive term, column by column."""
    if factor.b is None:
        return [arb(0)] * (head.size * head.width)
    return [ball(x) for column in factor.b for x in column]


def _added(tables: HeadTables, i: int, j: int, head: Head) -> tuple[list[arb], list[arb]]:
    """The stored additive term, column by column, and the sums of the absolute values of its two parts.

    Values and biases are added one after the other, also where they cancel.
    """
    beta, found, sizes, none = exact(tables.betas[i, j]), list[arb](), list[arb](), arb(0)
    for v in range(head.width):
        for r in range(head.size):
            written = none if tables.values is None else exact(tables.values[i, j, v])
            written = beta * exact(tables.keys[i, j, r]) * written
            bias = none if tables.bias is None else exact(tables.bias[i, j, r, v])
            found.append(written + bias)
            sizes.append(abs(written) + abs(bias))
    return found, sizes


def _stored_exactly(tables: HeadTables, i: int, j: int, head: Head) -> list[arb] | None:
    """The stored additive term as the state holds it where A' S is 0, column by column; None if its making rounds."""
    form, found = tables.storage.arithmetic, list[arb]()
    beta = Fraction(float(tables.betas[i, j]))
    for v in range(head.width):
        value = Fraction(0) if tables.values is None else Fraction(float(tables.values[i, j, v]))
        for r in range(head.size):
            key = Fraction(float(tables.keys[i, j, r]))
            bias = Fraction(0) if tables.bias is None else Fraction(float(tables.bias[i, j, r, v]))
            steps = (beta * key, key * value, beta * value, beta * key * value, beta * key * value + bias)
            held = tables.storage.round(steps[-1]) if all(map(form.holds, steps)) else None
            if held is None:
                return None
            found.append(rational(held))
    return found


def _dense(factor: Dense, tables: HeadTables, i: int, storage: NumberFormat, head: Head) -> tuple[arb, arb, arb, arb]:
    n, u, us = head.size, exact(tables.round_off), rational(storage.unit)
    assert tables.dense is not None
    stored = [[exact(x) for x in row[:n]] for row in tables.dense[i, :n]]
    rows = [[ball(x) for x in row] for row in factor.rows]
    size, last = frobenius([x for row in stored for x in row]), (1 + u) * (1 + us) - 1
    tau, added = _tiny(n, head.width, storage), arb(0)
    if factor.b is not None:
        added = frobenius([ball(x) for column in factor.b for x in column])
        tau = tau + (gamma(4, u) + last + _table_error(tables, i, factor, head)) * (1 + added)
    elif tables.bias is not None:
        added = frobenius([exact(x) for x in tables.bias[i, 0, :n, : head.width].ravel()])
        tau = tau + added * (1 + gamma(4, u) + last)
    norm, eta = matrix_norm(rows), _apart(stored, rows)
    if factor.b is None and tables.bias is None and all(_moves_one(row[:n]) for row in tables.dense[i, :n].tolist()):
        return norm, eta, arb(0), arb(0)
    return norm, eta + gamma(n, u) * size * (1 + last) + last * size, tau, added


def _moves_one(row: Sequence[float]) -> bool:
    """Whether a row's sum is one entry of the state, or its negative, or 0: then it is exact."""
    used = [x for x in row if x != 0]
    return not used or (len(used) == 1 and used[0] in _ONE_TERM)


def _table_error(tables: HeadTables, i: int, factor: Dense, head: Head) -> arb:
    """The distance of a dense step's stored additive term from the exact one."""
    assert tables.bias is not None
    assert factor.b is not None
    pairs = ((tables.bias[i, 0, r, v], factor.b[v][r]) for v in range(head.width) for r in range(head.size))
    return frobenius([exact(x) - ball(y) for x, y in pairs])


def _tiny(n: int, width: int, storage: NumberFormat) -> arb:
    """Losses by underflow in one factor, of the storage and of the arithmetic."""
    return arb(n * width).sqrt() * (rational(storage.tiny) + (4 + n) * rational(storage.arithmetic.tiny))


def contracts(factor: Factor | Dense) -> bool:
    """Whether β is in [0, 2] and |gates| <= 1, so that the linear part has norm at most 1."""
    if isinstance(factor, Dense):
        return False
    return not (factor.c < 0 or factor.beta > 2) and all(-1 <= a <= 1 for a in factor.alpha or ())


def _norm(factor: Factor, rows: Sequence[Sequence[arb]]) -> arb:
    """A bound on the norm of (I - β k kᵀ) Diag(gates), k of length 1: that of the first, |1 - β| or 1, times a gate."""
    if contracts(factor):
        return arb(1)
    gate = arb(1) if factor.alpha is None else largest([abs(ball(x)) for x in factor.alpha])
    return smaller(matrix_norm(rows), abs(1 - ball(factor.beta)).max(arb(1)) * gate)


def exact_norm(rows: Matrix) -> arb:
    """A bound on the largest singular value of an exact matrix."""
    return matrix_norm([[ball(x) for x in row] for row in rows])


def matrix_norm(rows: Sequence[Sequence[arb]]) -> arb:
    """A bound on the largest singular value: the Frobenius norm, or √(largest row sum · largest column sum)."""
    across = largest([sum((abs(x) for x in row), arb(0)) for row in rows])
    down = largest([sum((abs(x) for x in column), arb(0)) for column in zip(*rows, strict=True)])
    return smaller(frobenius([x for row in rows for x in row]), arb((across * down).abs_upper()).sqrt())


def largest(numbers: Sequence[arb]) -> arb:
    """The largest of some numbers, at least one."""
    return reduce(arb.max, numbers)


def smaller(x: arb, y: arb) -> arb:
    """One of two upper bounds: y if it is surely the smaller."""
    return y if y < x else x


def _apart(stored: Sequence[Sequence[arb]], rows: Sequence[Sequence[arb]]) -> arb:
    """The distance of two matrices."""
    return frobenius([x - y for r, s in zip(stored, rows, strict=True) for x, y in zip(r, s, strict=True)])


@lru_cache(maxsize=100_000)
def ball(x: Element) -> arb:
    """A ball that holds an exact number."""
    low, high = x.enclose(PRECISION)
    return rational(low).union(rational(high))


def exact(x: Any) -> arb:
    """A stored number."""
    return arb(float(x))


def rational(x: Fraction) -> arb:
    """A ball that holds a fraction."""
    return arb(fmpq(x.numerator, x.denominator))


def upper(x: arb) -> float:
    """A double that is not below the ball; 0 for 0 itself."""
    return 0.0 if x == 0 else math.nextafter(float(x.abs_upper()), math.inf)


def gamma(n: int, u: arb) -> arb:
    """n u / (1 - n u): a bound on the relative error of n roundings."""
    return n * u / (1 - n * u)


def frobenius(entries: Sequence[arb]) -> arb:
    """The root of the sum of squares."""
    # A ball around 0 may reach below it by its radius.
    return arb(sum((x * x for x in entries), arb(0)).abs_upper()).sqrt()
