"""Networks that remember the last one or two values they were told: what a reset component of a cascade is made of.

Main definitions: `memory_program`.

Main results: claim OURS-reset-memory. One value takes one number, which is overwritten. Two values with one gate: x is
written as h <- A h + x·(1, 1), A = (I - w wᵀ) Diag(1, 0), w = (1, 1), β = 2; then h = (x, x - p), p the value before,
and A² = 0, so nothing older stays. Two reflections do the same without gates. One factor without gates takes two
layers: a sign that flips at each reset, then two numbers of which the sign says which to write. Diagonal transitions do
it in arithmetic that rounds down: with h = x·B + p, h <- floor(h/B + x·B).

References: docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Vector, identity, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.number_fields import rationals

from .program import Factor, Head, Layer, LayerInput, Lookup, Program, Step, rank_one

_GATED = frozenset({"kda", "kda-wide", "ckda", "ckda-wide"})
_LATCHED = frozenset({"deltanet", "deltanet-wide", "gdn", "gdn-wide"})


def memory_program(target: str, dfa: Dfa, orders: tuple[int, ...]) -> Program:
    """An open program for a memory with orders 0 (hold) or 1 + x for each letter.

    States are named "p,x" (value before, value), or "x" for a memory of one value.
    """
    if "," not in dfa.states[0]:
        layers = (_latch(dfa, orders, gates=target in ("diag[0,1]", "diag[-1,1]")),)
    elif target in _GATED:
        layers = (_window(dfa, orders, gates=True),)
    elif target == "deltaproduct":
        layers = (_window(dfa, orders, gates=False),)
    elif target in _LATCHED:
        layers = _latches(dfa, orders)
    elif target in ("diag[0,1]", "diag[-1,1]"):
        layers = (_digits(dfa, orders, gates=True),)
    elif target.endswith("[0,1]"):
        layers = (_digits(dfa, orders, gates=False),)
    else:
        raise InvalidInput(f"target {target!r} needs no memory of resets")
    return Program(rationals(), dfa.alphabet, layers, dfa.outputs, dfa.outputs[dfa.start])


def _start(dfa: Dfa) -> int:
    return int(dfa.states[dfa.start].split(",")[-1])


def _latch(dfa: Dfa, orders: tuple[int, ...], *, gates: bool) -> Layer:
    """One number that each reset overwrites: a gate 0, or β = 1."""
    field, (zero, one) = rationals(), ((rationals().zero,), (rationals().one,))

    def step(order: int) -> Step:
        b = rank_one(one, [order - 1])
        return () if order == 0 else (Factor(zero, field.zero, zero, b) if gates else Factor(one, field.one, None, b),)

    choose = Lookup({(a,): (a, 0) for a in range(len(orders))})
    return Layer((Head(((field(_start(dfa)),),), tuple(step(o) for o in orders), (one,), choose),))


def _window(dfa: Dfa, orders: tuple[int, ...], *, gates: bool) -> Layer:
    """Two heads of two numbers with the same steps; one reads x, the other p."""
    field, start = rationals(), _start(dfa)
    w, (first, second) = vector(field, (1, 1)), identity(field, 2)

    def step(order: int) -> Step:
        if order == 0:
            return ()
        b = rank_one(w, [order - 1])
        if gates:
            return (Factor(w, field.one, first, b),)
        return (Factor(second, field.one), Factor(w, field.one, None, b))

    h0 = (vector(field, (start, 0)),)
    heads = [
        Head(h0, tuple(step(o) for o in orders), (q,), Lookup({(a,): (a, 0) for a in range(len(orders))}))
        for q in (first, vector(field, (1, -1)))
    ]
    return Layer(tuple(heads))


def _latches(dfa: Dfa, orders: tuple[int, ...]) -> tuple[Layer, ...]:
    """A sign that flips at each reset; two numbers, of which the reset writes the one that the sign names."""
    field, start = rationals(), _start(dfa)
    one, letters = (field.one,), range(len(orders))
    signs = {(field.one,): 0, (-field.one,): 1}
    choose = Lookup({(a,): (int(orders[a] > 0), 0) for a in letters})
    toggle = Head((one,), ((), (Factor(one, field(2)),)), (one,), choose, signs)
    units = identity(field, 2)
    values = sorted({o for o in orders if o})
    writes: list[Step] = [
        (Factor(units[side], field.one, None, rank_one(units[side], [o - 1])),) for side in (0, 1) for o in values
    ]

    def chooser(role: int) -> Callable[[LayerInput], tuple[int, int]]:
        def pick(key: LayerInput) -> tuple[int, int]:
            letter, side = key
            step = 1 + side * len(values) + values.index(orders[letter]) if orders[letter] else 0
            return step, side ^ role

        return pick

    h0: tuple[Vector, ...] = (vector(field, (start, start)),)
    heads = tuple(Head(h0, ((), *writes), units, Lookup(chooser(role))) for role in (0, 1))
    return Layer((toggle,)), Layer(heads)


def _digits(dfa: Dfa, orders: tuple[int, ...], *, gates: bool) -> Layer:
    """One number x·B + p, B a power of two past all values, floored to integers; 1/B is a gate or 1 - β."""
    field, start = rationals(), _start(dfa)
    base = 2
    while base < max(start + 1, *orders):
        base *= 2
    one, zero, share = (field.one,), (field.zero,), field(Fraction(1, base))

    def step(order: int) -> Step:
        if order == 0:
            return ()
        b = ((field((order - 1) * base),),)
        return (Factor(zero, field.zero, (share,), b) if gates else Factor(one, 1 - share, None, b),)

    h0 = ((field(start * base + start),),)
    choose = Lookup({(a,): (a, 0) for a in range(len(orders))})
    return Layer((Head(h0, tuple(step(o) for o in orders), (one,), choose, None, Fraction(1)),))
