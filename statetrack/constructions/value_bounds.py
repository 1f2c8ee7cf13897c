"""How far a weighted program's readout in a kernel can be from the exact value, for one word.

The layers below hand on codes, which are right or wrong, never a little off; so only the last head's arithmetic counts.
Along the word's exact run the error of each number of the state is bounded entry by entry: the exact factor moves it,
and rounding adds a few units in the last place of the absolute values that meet in a sum.

Main definitions: `value_bounds`.

References: Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3 (running error bounds).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from statetrack.theory.arrays import Vector

from .program import Dense, Factor, Program

Floats = NDArray[np.float64]
# Slack for evaluating the bound itself in doubles.
_SLACK = 1 + 1e-9


def value_bounds(program: Program, word: Iterable[str], *, round_off: float = 2.0**-53) -> tuple[float, ...]:
    """For each prefix of the word a bound on |kernel's readout - exact value|, if the layers below decode right.

    `round_off` is the unit of the format in which tables are stored and arithmetic is done (float64: 2^-53). Overflow
    and underflow are left out.
    """
    head = program.layers[-1].heads[0]
    found: list[float] = []
    error = np.zeros(head.size)
    exact = _floats(head.h0[0])
    error += np.abs(exact) * round_off
    for step, query, state in program.runner.last_head(word):
        size = np.abs(exact)
        for factor in head.steps[step]:
            size, error = _through(factor, size, error, round_off)
        exact = _floats(state)
        q = np.abs(_floats(head.queries[query]))
        reading = (head.size + 2) * round_off * float(q @ (np.abs(exact) + error))
        found.append((float(q @ error) + reading) * _SLACK)
    return tuple(found)


def _through(factor: Factor | Dense, size: Floats, error: Floats, u: float) -> tuple[Floats, Floats]:
    """Bounds on |state| and its error after a factor, from bounds before it.

    A stored key is off by 2u a number and β by 4u, so β k kᵀ by 10u; gates by u. The kernel forms a sum of K products.
    """
    if isinstance(factor, Factor):
        w = np.array([float(x) for x in factor.w])
        gates = np.ones(len(w)) if factor.alpha is None else np.abs([float(x) for x in factor.alpha])
        moved = np.eye(len(w)) + abs(float(factor.c)) * np.outer(np.abs(w), np.abs(w))
        terms = len(w) + 16
        return moved @ (gates * size), moved @ (gates * error) + terms * u * (moved @ (gates * (size + error)))
    rows = np.abs(np.array([[float(x) for x in row] for row in factor.rows]))
    return rows @ size, rows @ error + (len(rows) + 4) * u * (rows @ (size + error))


def _floats(v: Vector) -> Floats:
    return np.array([float(x) for x in v])
