"""Arithmetic mod 5 for the lab: expressions as tokens and their values, many at once.

Main definitions: `FLAT`, `flat`, `BRACKETED`, `bracketed`.

References: Deletang et al., *Neural Networks and the Chomsky Hierarchy* (modular arithmetic); Grazzi et al.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MODULUS = 5
FLAT = ("0", "1", "2", "3", "4", "+", "-", "*", "=", " ")
BRACKETED = (*FLAT, "(", ")")
_PLUS, _MINUS, _TIMES, _EQUALS, _BLANK, _OPEN, _CLOSE = range(MODULUS, MODULUS + 7)
# Powers of 2 are all of 1..4 mod 5: 2^0, 2^1, 2^3, 2^2 are 1, 2, 3, 4.
_LOGARITHMS = (0, 0, 1, 3, 2)
_POWERS = (1, 2, 4, 3)


def flat(generator: torch.Generator, count: int, length: int) -> tuple[Tensor, Tensor]:
    """Expressions like 2-3*4= of digits and + - *, `length` tokens in all, and their value mod 5 at every position.

    Where the length is odd, a blank stands in front. `*` binds tighter than + and -; the length is at least 2.
    """
    device, numbers = generator.device, length // 2
    digits = torch.randint(MODULUS, (count, numbers), generator=generator, device=device)
    signs = torch.randint(_PLUS, _TIMES + 1, (count, numbers), generator=generator, device=device)
    signs[:, -1] = _EQUALS
    tokens = torch.stack([digits, signs], -1).flatten(1)
    if length % 2:
        tokens = torch.nn.functional.pad(tokens, (1, 0), value=_BLANK)
    # A number starts a new term unless the sign before it is *.
    before = torch.nn.functional.pad(signs[:, :-1], (1, 0), value=_PLUS)
    term = (before != _TIMES).long().cumsum(1) - 1
    logarithm = torch.tensor(_LOGARITHMS, device=device)[digits]
    empty = torch.zeros_like(digits)
    total = empty.scatter_add(1, term, logarithm)
    zeros = empty.scatter_add(1, term, (digits == 0).long())
    sign = empty.scatter_add(1, term, (before == _PLUS).long() - (before == _MINUS).long())
    terms = torch.tensor(_POWERS, device=device)[total % 4] * (zeros == 0) * sign
    value = terms.sum(1) % MODULUS
    return tokens, value[:, None].expand(-1, length)


@dataclass(frozen=True, eq=False)
class _Level:
    """The brackets opened in one round: rows of the batch, places of (, lengths of the left operands, signs."""

    row: Tensor
    place: Tensor
    left: Tensor
    sign: Tensor


def bracketed(generator: torch.Generator, count: int, length: int) -> tuple[Tensor, Tensor]:
    """Expressions like ((1-(-2))*(4+3))= of `length` tokens, and their value mod 5 at every position.

    An expression of one token is a digit, of two a negative digit, of three and four these in brackets; a longer one
    is (left sign right), where the left operand has any length that leaves one token to the right one, uniformly. The
    length is at least 2.
    """
    device, size = generator.device, length - 1
    tokens = torch.full((count, length), _EQUALS, device=device)
    values = torch.zeros(count, length, dtype=torch.int64, device=device)
    row, place = torch.arange(count, device=device), torch.zeros(count, dtype=torch.int64, device=device)
    extent = torch.full((count,), size, device=device)
    levels: list[_Level] = []
    while len(row):
        small = extent <= 4
        _leaves(generator, tokens, values, row[small], place[small], extent[small])
        row, place, extent = row[~small], place[~small], extent[~small]
        # Brackets and sign take three tokens of the extent.
        share = torch.rand(len(row), generator=generator, device=device)
        left = 1 + (share * (extent - 4)).long().clamp(max=extent - 5) if len(row) else extent
        sign = torch.randint(_PLUS, _TIMES + 1, (len(row),), generator=generator, device=device)
        levels.append(_Level(row, place, left, sign))
        tokens[row, place], tokens[row, place + extent - 1], tokens[row, place + 1 + left] = _OPEN, _CLOSE, sign
        second, rest = place + left + 2, extent - 3 - left
        row, place, extent = torch.cat([row, row]), torch.cat([place + 1, second]), torch.cat([left, rest])
    for level in reversed(levels):
        a = values[level.row, level.place + 1]
        b = values[level.row, level.place + level.left + 2]
        sums = torch.where(level.sign == _PLUS, a + b, torch.where(level.sign == _MINUS, a - b, a * b))
        values[level.row, level.place] = sums % MODULUS
    return tokens, values[:, :1].expand(-1, length)


def _leaves(
    generator: torch.Generator, tokens: Tensor, values: Tensor, row: Tensor, place: Tensor, extent: Tensor
) -> None:
    """Write d, -d, (d) and (-d); the value stands where the expression starts."""
    digit = torch.randint(MODULUS, (len(row),), generator=generator, device=generator.device)
    wrapped, negative = extent >= 3, extent % 2 == 0
    last = place + extent - 1 - wrapped.long()
    tokens[row, last] = digit
    tokens[row[negative], last[negative] - 1] = _MINUS
    tokens[row[wrapped], place[wrapped]] = _OPEN
    tokens[row[wrapped], (place + extent - 1)[wrapped]] = _CLOSE
    values[row, place] = torch.where(negative, -digit, digit) % MODULUS
