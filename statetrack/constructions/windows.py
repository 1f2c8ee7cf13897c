"""One layer that keeps the last k tokens: enough for a k-definite automaton, whose state they decide.

Main definitions: `window_layer`.

Main results: claims OURS-nilpotent-window, OURS-digit-window. (I - w wᵀ/2) Diag(1, -1) with w = (1, 1) and
(I - w wᵀ/2) Diag(1, -1, 0) with w = (1, 1, 1), β = 3/2, are nilpotent, so writing the token's code along w keeps two or
three tokens and nothing older; with gates in [0, 1] or two reflections it is two. In arithmetic that rounds down the
digits of one number hold any k: h <- floor(h/B + code·B^(k-1)).

References: docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from statetrack.theory.arrays import Vector, vector
from statetrack.theory.monoids import classify
from statetrack.theory.number_fields import rationals

from .memories import base_past, overwriting, pushing, shifting
from .program import Factor, Head, Layer, Lookup, Program, Step, rank_one
from .source import Source

# Contents of a window that a closure may list.
_MOST_CONTENTS = 100_000
_DIGITS = frozenset({"diag[0,1]", "diag[-1,1]", "deltanet[0,1]", "gdn[0,1]", "kda[0,1]"})
_SIGNED = frozenset({"ckda", "ckda-wide"})
_GATED = frozenset({"kda", "kda-wide"})


def window_layer(source: Source, target: str) -> Program | None:
    """The layer for a k-definite automaton, or None if it is not one or the target's windows are shorter than k."""
    dfa = source.dfa
    if len(dfa.states) < 2 or not dfa.alphabet or dfa.is_permutation():
        return None
    length = classify(dfa, max_monoid=1).definite
    if length is None:
        return None
    columns = [tuple(dfa.delta[:, token].tolist()) for token in range(len(dfa.alphabet))]
    distinct = list(dict.fromkeys(columns))
    codes = [1 + distinct.index(column) for column in columns]
    if (len(distinct) + 1) ** length > _MOST_CONTENTS:
        return None
    layer = _layer(codes, length, target)
    return None if layer is None else Program(rationals(), dfa.alphabet, (layer,), dfa.outputs, dfa.outputs[dfa.start])


def _layer(codes: Sequence[int], length: int, target: str) -> Layer | None:
    field = rationals()
    if length == 1:
        steps = [overwriting(c, gates=target.startswith("diag")) for c in codes]
        return _heads((field.zero,), steps, [(field.one,)], None)
    if target in _DIGITS:
        base = base_past(max(codes))
        top = base ** (length - 1)
        steps = [shifting(base, c * top, gates=target.startswith("diag")) for c in codes]
        return _heads((field.zero,), steps, [(field.one,)], Fraction(1))
    if target in _SIGNED and length <= 3:
        w = vector(field, [1] * length)
        alpha = vector(field, (1, -1, 0)[:length])
        steps = [(Factor(w, field.one / 2, alpha, rank_one(w, [c])),) for c in codes]
        half = field.one / 2
        last = vector(field, (half, half, 0)[:length])
        before = vector(field, (half, -half, 0)[:length])
        third = [vector(field, (half, half, -1))] if length == 3 else []
        return _heads(vector(field, [0] * length), steps, [last, before, *third], None)
    if length == 2 and (target in _GATED or target == "deltaproduct"):
        steps = [pushing(c, gates=target in _GATED) for c in codes]
        return _heads(vector(field, (0, 0)), steps, [vector(field, (1, 0)), vector(field, (1, -1))], None)
    return None


def _heads(start: Vector, steps: Sequence[Step], queries: Sequence[Vector], unit: Fraction | None) -> Layer:
    """Heads with the same steps, one a query; equal steps are kept once."""
    distinct = tuple(dict.fromkeys(steps))
    choose = Lookup({(token,): (distinct.index(step), 0) for token, step in enumerate(steps)})
    return Layer(tuple(Head((start,), distinct, (q,), choose, None, unit) for q in queries))
