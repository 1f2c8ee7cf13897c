"""How far rounding can carry a program from its exact run, before it runs.

The step model is the recurrent kernel's: tables rounded once to the storage format, each factor applied in the
arithmetic format, the state rounded to storage after it. For factors with |gates| <= 1 and β in [0, 2] the state error
grows by at most a factor 1 + κ a factor and κ ρ is added, ρ the Frobenius norm of H_0; so after t tokens it is at most
ρ ((1 + g)^t - 1) + t ω (1 + g)^t with g the worst symbol's growth.

Main definitions: `RoundingModel`, `rounding_model`, `safe_length`.

Main results: `safe_length` is a length up to which every word decodes right in that format (evaluated in double
precision with a slack of 1e-6, not in integers).

References: docs/precision.md; Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from statetrack.theory.arrays import dot

from .program import Dense, Factor, Head, Program
from .weights import Weights

_ROUND_OFF: Mapping[str, float] = {"float64": 2.0**-53, "float32": 2.0**-24, "bfloat16": 2.0**-8}
_TINY: Mapping[str, float] = {"float64": 2.0**-1074, "float32": 2.0**-149, "bfloat16": 2.0**-133}
Floats = NDArray[np.float64]
_SLACK = 1 + 1e-6
_LONGEST = 10**15


@dataclass(frozen=True)
class RoundingModel:
    """Error growth of one head: `growth` and `tiny` a token, `radius` ρ = |H_0|, `start` its
    rounding, `query` |q|, `read` the readout's own rounding.

    `allowed` is the state error up to which the nearest codeword is right (half the margin over |q|, rounding of the
    readout and of the codebook taken off); None if the model does not apply (dense or additive terms, β > 2).
    """

    growth: float
    tiny: float
    radius: float
    start: float
    query: float
    read: float
    allowed: float

    def state_error(self, tokens: int) -> float:
        """Bound on the Euclidean error of the whole state [K, V] after that many tokens."""
        exponent = tokens * math.log1p(self.growth)
        if exponent > 700:
            return math.inf
        power = math.expm1(exponent)
        return _SLACK * (self.radius * power + (self.start + tokens * self.tiny) * (1 + power))

    def readout_error(self, tokens: int) -> float:
        """Bound on the Euclidean error of the readout after that many tokens."""
        return _SLACK * (self.query * self.state_error(tokens) + self.read)

    def safe_length(self) -> int:
        """The largest number of tokens with state_error <= allowed (10^15 at most)."""
        low, high = 0, _LONGEST
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self._fits(middle) else (low, middle - 1)
        return low

    def _fits(self, tokens: int) -> bool:
        return tokens * math.log1p(self.growth) <= 20 and self.state_error(tokens) <= self.allowed


def rounding_model(program: Program, weights: Weights) -> tuple[tuple[RoundingModel | None, ...], ...]:
    """One model a head a layer; None where a step is dense, has an additive term, or is expansive.

    The program is the certificate's (open or closed); margins are the certificate's claims.
    """
    claimed: Any = weights.certificate["claims"]["margin"]
    margins: list[list[str | int | None]] = claimed if weights.certificate["kind"] == "closure" else [[claimed]]
    return tuple(
        tuple(
            _head(head, _tables(weights, number, h, head), weights.dtype, margins[number][h])
            for h, head in enumerate(layer.heads)
        )
        for number, layer in enumerate(program.layers)
    )


def safe_length(program: Program, weights: Weights) -> int | None:
    """A length up to which every word decodes right in the weights' format; None if the model does not apply."""
    lengths = [None if m is None else m.safe_length() for row in rounding_model(program, weights) for m in row]
    known = [n for n in lengths if n is not None]
    return min(known) if known and len(known) == len(lengths) else None


def _tables(weights: Weights, number: int, h: int, head: Head) -> dict[str, Floats]:
    """The stored tables of one head as doubles, without padding."""
    names, size = ("keys", "betas", "gates", "queries", "state"), head.size
    t = {n: weights.tensors[f"layers.{number}.{n}"] for n in names}
    return {
        "keys": t["keys"][:, h, :, :size].astype(np.float64),
        "betas": t["betas"][:, h].astype(np.float64),
        "gates": t["gates"][:, h, :, :size].astype(np.float64),
        "queries": t["queries"][:, h, :size].astype(np.float64),
        "state": t["state"][h, :size, : head.width].astype(np.float64),
        "codebook": weights.tensors[f"layers.{number}.codebook.{h}"].astype(np.float64),
    }


def _head(head: Head, tables: dict[str, Floats], dtype: str, margin: str | int | None) -> RoundingModel | None:
    if any(not _contracts(f) for step in head.steps for f in step):
        return None
    u_s, u = _ROUND_OFF[dtype], _ROUND_OFF["float64" if dtype == "float64" else "float32"]
    inputs = sorted(head.choose.seen)
    growth = 0.0
    for i, key in enumerate(inputs):
        total = 0.0
        for j, factor in enumerate(head.steps[head.choose.seen[key][0]]):
            assert isinstance(factor, Factor)
            total += math.log1p(
                _kappa(factor, tables["keys"][i, j], float(tables["betas"][i, j]), tables["gates"][i, j], u, u_s)
            )
        growth = max(growth, math.expm1(total))
    h0 = np.array([[float(x) for x in column] for column in head.h0]).T
    radius = float(np.linalg.norm(h0))
    asked = [[float(x) for x in head.queries[head.choose.seen[key][1]]] for key in inputs]
    exact = np.array(asked).reshape(len(inputs), head.size)
    length = float(np.linalg.norm(tables["queries"], axis=1).max(initial=1e-300))
    drift = float(np.linalg.norm(tables["queries"] - exact, axis=1).max(initial=0.0)) + 2.0**-53 * length
    words = tables["codebook"]
    code = float(np.linalg.norm(words, axis=1).max(initial=0.0)) * (2.0**-53 if dtype == "float64" else 2.0**-24)
    gap = math.inf if margin is None else float(Fraction(margin))
    # Inside this range no distance overflows and the underflow of squares is below the slack of `half`.
    widest, least_gap = (2.0**100, 2.0**-400) if dtype == "float64" else (2.0**30, 2.0**-60)
    if max(radius, 1.0) * max(length, 1.0) > widest or gap < least_gap:
        return None
    # A factor can lose K units of the smallest number in z, and one in each entry of the state.
    least = math.ceil(math.sqrt(head.size * head.width) * (2 + math.sqrt(head.size))) * _TINY[dtype]
    deepest = max((len(step) for step in head.steps), default=0)
    start = float(np.linalg.norm(tables["state"] - h0)) + 2.0**-53 * radius + least
    # |fl(S'q) - S'q| <= gamma_K |q| |S'| for the rounded state S', and |S'| <= radius + its error.
    rounding = _gamma(head.size, u)
    query = length * (1 + rounding)
    read = radius * (length * rounding + drift) + least
    # Distances are compared after rounding: K_V = V + 3 operations each.
    half = gap / 2 * (1 - 2 * _gamma(head.width + 3, u))
    return RoundingModel(growth, least * deepest, radius, start, query, read, (half / _SLACK - read - 2 * code) / query)


def _contracts(factor: Factor | Dense) -> bool:
    """Whether |gates| <= 1 and β in [0, 2] without an additive term, so that the exact factor has norm at most 1."""
    if isinstance(factor, Dense) or factor.b is not None or factor.c < 0 or factor.beta > 2:
        return False
    return all(-1 <= a <= 1 for a in factor.alpha or ())


def _kappa(factor: Factor, key: Floats, beta: float, gate: Floats, u: float, u_s: float) -> float:
    """κ of one factor, relative to the norm of the state: rounded tables (eta) and rounded arithmetic (mu).

    For a column s the kernel forms g s, z = Σ k_i (g s)_i in K products and sums, then (g s)_i - (β k_i) z or
    (g s)_i - β (k_i z), and rounds to storage. With b = β |k|²: the second term carries at most K + 3 roundings, the
    first one, the difference and the storage one each.
    """
    square = 1.0 if factor.c.is_zero() else float(dot(factor.w, factor.w))
    w = np.array([float(x) for x in factor.w]) / math.sqrt(square)
    exact = np.eye(len(w)) - float(factor.beta) * np.outer(w, w)
    if factor.alpha is not None:
        exact = exact * np.array([float(x) for x in factor.alpha])
    stored = (np.eye(len(w)) - beta * np.outer(key, key)) * gate
    eta = float(np.linalg.norm(stored - exact)) + (32 + 4 * math.sqrt(len(w))) * 2.0**-53
    b = beta * float(key @ key)
    before = u + b * _gamma(len(w) + 4, u)
    last = (1 + u) * (1 + u_s) - 1
    return eta + before * (1 + last) + last * max(1.0, b - 1)


def _gamma(n: int, u: float) -> float:
    return n * u / (1 - n * u)
