"""Weighted automata over the rationals as networks: one layer of any matrices, or clock, buffer and accumulator.

Main definitions: `plan_weighted`, `bits_per_token`.

Main results: claim CKDA-thm-5c. The accumulator takes rank(M) <= n factors a block from one bank of n numbers to the
other, with β > 2; it is exact in rational arithmetic with a number of bits that is linear in the length.

References: CKDA Thm. 5 (c); Schützenberger (1961) for the minimal automaton.
"""

from __future__ import annotations

import math
from functools import partial

from statetrack.errors import NoConstruction
from statetrack.theory.arrays import identity, vector
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa

from .blocks import weighted_blocks
from .certificate import Certificate
from .clocks import STYLES
from .composed import certified_part, linear_certificate, linear_program, proved_blocks
from .program import Dense, Head, Lookup, Program
from .source import WeightedSource
from .targets import Target


def plan_weighted(source: WeightedSource, goal: Target) -> tuple[str, str, Program, Certificate]:
    """Construction, theorem, program and certificate. Raises NoConstruction for targets with β <= 2.

    (A state then never gets longer by itself, so an automaton whose values grow fast cannot be done; others might.)
    """
    wfa = source.wfa
    if goal.dense:
        field = rationals()
        steps = tuple((Dense(tuple(vector(field, map(field, row)) for row in m)),) for m in wfa.matrices)
        final, initial = (vector(field, map(field, v)) for v in (wfa.final, wfa.initial))
        choose = Lookup({(token,): (token, 0) for token in range(len(steps))})
        head = Head((initial,), steps, (final,), choose)
        certificate = linear_certificate(head, identity(field, wfa.size), wfa, goal)
        return "dense", "any weighted automaton", linear_program(head, wfa), certificate
    style = STYLES.get(goal.name)
    if style is None or not style.wide:
        reason = "weighted automata are built with β above 2, or with any matrix"
        raise NoConstruction(source.name, goal.name, reason, "use --target ckda-wide, kda-wide or unconstrained")

    blocks = weighted_blocks(wfa, style, partial(certified_part, goal=goal))
    if blocks is None:
        reason = f"its {len(wfa.alphabet)} letters of {wfa.size} states have too many products for blocks"
        raise NoConstruction(source.name, goal.name, reason, "use --target unconstrained")
    return "blocks", "CKDA Thm. 5", *proved_blocks(blocks, wfa, goal)


def bits_per_token(wfa: Wfa) -> float:
    """A bound on the bits that each token adds to the exact state, beyond a constant: log2 D + log2 G.

    D is the common denominator of the letters' entries, G the largest row sum of D·|entries|: after t tokens D^t times
    the automaton's state is an integer vector of size at most G^t, and the accumulator holds such states at the ends of
    blocks.
    """
    den = math.lcm(*(x.denominator for m in wfa.matrices for row in m for x in row))
    largest = max((sum(abs(x) for x in row) * den for m in wfa.matrices for row in m), default=1)
    return math.log2(den) + max(0.0, math.log2(largest) if largest else 0.0)
