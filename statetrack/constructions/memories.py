"""Networks that remember the last one or two values they were told: what a reset component of a cascade is made of.

Main definitions: `memory_program`; the steps `overwriting`, `pushing`, `shifting`, which `windows` takes too.

Main results: claim OURS-reset-memory. One value takes one number, which is overwritten. Two values with one gate: x is
written as h <- A h + x·(1, 1), A = (I - w wᵀ) Diag(1, 0), w = (1, 1), β = 2; then h = (x, x - p), p the value before,
and A² = 0, so nothing older stays. Two reflections do the same without gates. One factor without gates takes two
layers: a sign that flips at each reset, then two numbers of which the sign says which to write. Diagonal transitions do
it in arithmetic that rounds down: with h = x·B + p, h <- floor(h/B + x·B).

References: docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache

from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Vector, identity, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.number_fields import rationals

from .assembly import KEPT
from .program import Factor, Head, Layer, LayerInput, Lookup, Program, Step, rank_one

_GATED = frozenset({"kda", "kda-wide", "ckda", "ckda-wide"})
_LATCHED = frozenset({"deltanet", "deltanet-wide", "gdn", "gdn-wide"})


def memory_program(target: str, dfa: Dfa, orders: tuple[int, ...]) -> Program:
    """An open program for a memory with orders 0 (hold) or 1 + x for each letter.

    States are named "p,x" (value before, value), or "x" for a memory of one value.
    """
    diagonal = target in ("diag[0,1]", "diag[-1,1]")
    if "," not in dfa.states[0]:
        return _program(_latch, diagonal, dfa, orders)
    if target in _GATED or target == "deltaproduct":
        return _program(_window, target in _GATED, dfa, orders)
    if target in _LATCHED:
        return _program(_latches, False, dfa, orders)
    if diagonal or target.endswith("[0,1]"):
        return _program(_digits, diagonal, dfa, orders)
    raise InvalidInput(f"target {target!r} needs no memory of resets")


@lru_cache(maxsize=KEPT)
def _program(
    make: Callable[[Dfa, tuple[int, ...], bool], tuple[Layer, ...]], gates: bool, dfa: Dfa, orders: tuple[int, ...]
) -> Program:
    layers = make(dfa, orders, gates)
    return Program(rationals(), dfa.alphabet, layers, dfa.outputs, dfa.outputs[dfa.start])


def _start(dfa: Dfa) -> int:
    return int(dfa.states[dfa.start].split(",")[-1])


def overwriting(value: int, *, gates: bool) -> Step:
    """One number becomes a value: by a gate 0, or by β = 1."""
    field = rationals()
    zero, one, b = (field.zero,), (field.one,), ((field(value),),)
    return (Factor(zero, field.zero, zero, b) if gates else Factor(one, field.one, None, b),)


def pushing(value: int, *, gates: bool) -> Step:
    """(x, x - p) becomes (value, value - x): by a gate 0 and a reflection, or by a projection and a reflection."""
    field = rationals()
    w, (first, second) = vector(field, (1, 1)), identity(field, 2)
    b = rank_one(w, [value])
    return (Factor(w, field.one, first, b),) if gates else (Factor(second, field.one), Factor(w, field.one, None, b))


def shifting(base: int, top: int, *, gates: bool) -> Step:
    """h becomes h/base + top: by a gate, or by β = 1 - 1/base; the state is rounded down after it."""
    field = rationals()
    zero, one, share, b = (field.zero,), (field.one,), field(Fraction(1, base)), ((field(top),),)
    return (Factor(zero, field.zero, (share,), b) if gates else Factor(one, 1 - share, None, b),)


def base_past(most: int) -> int:
    """The least power of two, at least 2, that is more than `most`."""
    return 1 << max(1, most.bit_length())


def _latch(dfa: Dfa, orders: tuple[int, ...], gates: bool) -> tuple[Layer, ...]:
    """One number that each reset overwrites."""
    field = rationals()
    steps = tuple(overwriting(o - 1, gates=gates) if o else () for o in orders)
    return _one_a_letter(((field(_start(dfa)),),), steps, [(field.one,)])


def _window(dfa: Dfa, orders: tuple[int, ...], gates: bool) -> tuple[Layer, ...]:
    """Two heads of two numbers with the same steps; one reads x, the other p."""
    field, start = rationals(), _start(dfa)
    steps = tuple(pushing(o - 1, gates=gates) if o else () for o in orders)
    queries = [vector(field, (1, 0)), vector(field, (1, -1))]
    return _one_a_letter((vector(field, (start, 0)),), steps, queries)


def _one_a_letter(
    h0: tuple[Vector, ...], steps: tuple[Step, ...], queries: Sequence[Vector], unit: Fraction | None = None
) -> tuple[Layer, ...]:
    """One layer of heads that take step a at letter a, one a query."""
    choose = Lookup({(a,): (a, 0) for a in range(len(steps))})
    return (Layer(tuple(Head(h0, steps, (q,), choose, None, unit) for q in queries)),)


def _latches(dfa: Dfa, orders: tuple[int, ...], gates: bool) -> tuple[Layer, ...]:
    """No gates: a sign that flips at each reset; two numbers, of which the reset writes the one that the sign names."""
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


def _digits(dfa: Dfa, orders: tuple[int, ...], gates: bool) -> tuple[Layer, ...]:
    """One number x·B + p, B a power of two past all values, floored to integers; 1/B is a gate or 1 - β."""
    field, start = rationals(), _start(dfa)
    base = base_past(max(start, *(o - 1 for o in orders)))
    steps = tuple(shifting(base, (o - 1) * base, gates=gates) if o else () for o in orders)
    return _one_a_letter(((field(start * base + start),),), steps, [(field.one,)], Fraction(1))
