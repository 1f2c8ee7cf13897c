"""A permutation-reset component in one layer of Householder products (β <= 2, no gates).

A layer shows its state *after* a token, but what stands below reads the state before it. After a bijection that is
recovered by its inverse; a reset would lose it. So the layer has two registers of m coordinates: `now`, the unit vector
of its state, and `before`, where a reset first moves it; one is enough for a component that nothing reads.

Main definitions: `registers_program`, `registers_start`, `registers_move`.

Main results: claim OURS-realisation-R1: exact, finitely many states, norm at most 1, at most 2m + 1 factors a token.

References: Grazzi et al. Thm. 4 (repaired: a stack of states after the update cannot do it).
"""

from __future__ import annotations

from collections.abc import Sequence

from statetrack.theory.arrays import identity, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Field
from statetrack.theory.number_fields import rationals

from .factorise import swaps
from .program import Factor, Head, Layer, Lookup, Program, Step, rank_one

Map = tuple[int, ...]


def registers_move(f: Map, x: tuple[int, ...]) -> tuple[int, ...]:
    """(state before the last token if that was a reset, else -1; state), or the state alone, after an action."""
    now = f[x[-1]]
    return (now,) if len(x) == 1 else (x[1], now) if len(set(f)) < len(f) else (-1, now)


def registers_program(dfa: Dfa, actions: Sequence[Map], start: int) -> Program:
    """An open program for the automaton of `registers_move`; letter a makes action a of m points."""
    field, m, double = rationals(), len(actions[0]), "," in dfa.states[0]
    made = [_step(field, f) if double else _single(field, f) for f in actions]
    steps = tuple(dict.fromkeys(made))
    choose = Lookup({(a,): (steps.index(step), 0) for a, step in enumerate(made)})
    query = vector(field, (*range(m), *(m * (k + 1) for k in range(m) if double)))
    head = Head((identity(field, len(query))[start],), steps, (query,), choose)
    return Program(field, dfa.alphabet, (Layer((head,)),), dfa.outputs, dfa.outputs[dfa.start])


def _single(field: Field, f: Map) -> Step:
    """Without the register `before`: swaps, or each coordinate is cleared, writing 1 at c."""
    m, one = len(f), identity(field, len(f))
    if len(set(f)) == m:
        return tuple(swaps(field, f))
    return tuple(Factor(one[i], field.one, None, rank_one(one[i], [int(i == f[0])])) for i in range(m))


def _step(field: Field, f: Map) -> Step:
    """`before` is cleared (β = 1 each); then swaps on `now`, or the registers change places and `now` gets a 1 at c."""
    m = len(f)
    one = identity(field, 2 * m)
    clears = [Factor(one[m + i], field.one) for i in range(m)]
    if len(set(f)) == m:
        return (*clears, *swaps(field, (*f, *range(m, 2 * m))))
    exchange = swaps(field, (*range(m, 2 * m), *range(m)))
    return (*clears, *exchange, Factor(one[f[0]], field.one, None, rank_one(one[f[0]], [1])))
