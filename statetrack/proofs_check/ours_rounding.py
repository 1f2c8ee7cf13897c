"""Claims about a cast after every step with gates of both signs: long periods that no theorem on unrolled casts sees.

"Unrolled" is the paper's arithmetic, "step" a cast after every step, as in a kernel: `statetrack.theory.precision`.

Main results: OURS-step-gates.

References: extends Grazzi et al. 2025, Thms. 1-2, to rounding as in kernels; docs/precision.md.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from flint import fmpq_mat

from statetrack.theory.eventual import Agrees, Periodic, eventual, fail_mod, step_period
from statetrack.theory.precision import Datatype, Layer, State, diagonal, eye, householder, matrix, spectral_class, step

from .claim import Trial, claim
from .errata_precision import first
from .grazzi_precision import F, within


class Instance(NamedTuple):
    """One factor with β = 1, its term b, the state where the orbit starts, and D = {-most, ..., most}."""

    key: tuple[int, ...]
    gates: tuple[Fraction, ...]
    b: tuple[Fraction, ...]
    start: tuple[int, ...]
    most: int


# Found by random search; by period.
INSTANCES = {
    3: Instance((-2, 1), (F(1), F(-1)), (F(1), F(2)), (1, 1), 2),
    4: Instance((2, 3, 1), (F(1), F(-1, 2), F(-1)), (F(0), F(-2), F(-2)), (-2, 0, -6), 8),
    6: Instance((1, 1, 1), (F(1, 2), F(-1), F(-1)), (F(5, 4), F(-2), F(-2)), (0, 0, -2), 4),
    10: Instance((-3, 1, 3), (F(1, 2), F(-1), F(-1)), (F(0), F(-1, 2), F(5, 4)), (0, 1, 1), 4),
}


@claim(
    "OURS-step-gates",
    "With gates in [-1, 1], β ≤ 1 and a cast after every step one layer on a constant input can have the periods 3, 4, "
    "6 and 10 and count modulo these, though its eigenvalues are real; unrolled it ends in one state.",
    source="limits of OURS-step-survives and of Grazzi Thm. 2 in kernels",
    kinds="E",
    control={"signed": False},
    hypotheses=("the cast is to the nearest number of a finite set, ties down",),
    proves=True,
)
def step_gates(t: Trial, signed: bool = True) -> None:
    """Four instances; on a cycle the decoder that knows the first of its states counts for ever. Without signs: 1."""
    for period, x in INSTANCES.items():
        gates = x.gates if signed else tuple(map(abs, x.gates))
        a, b = householder(F(1), x.key) * diagonal(gates), column_of(x.b)
        datatype, start = Datatype.of(*range(-x.most, x.most + 1)), column_of(x.start)
        t.equal("eigenvalues", (spectral_class(a) != "nonreal", within(a, -1, 1)), (True, True))
        t.equal("norm at most 1", spectral_class(eye(len(x.key)) - a.transpose() * a), "nonneg")
        layer = Layer(lambda _, a=a: a, lambda _, b=b: b, start, first)
        state = tuple(map(F, x.start))
        t.equal(f"period {period}", step_period([layer], [1], datatype, [state]), period)
        orbit = step(layer, (1,) * period, datatype, state)
        t.equal("the start is on the cycle", (orbit[-1], len(set(orbit))), (state, period))
        counts = [h == state for h in step(layer, (1,) * (3 * period), datatype)]
        t.equal(f"counts modulo {period}", counts, [k % period == 0 for k in range(1, 3 * period + 1)])
        t.equal("unrolled, period", len(eventual(layer, Periodic((), (1,)), datatype).outputs.cycle), 1)
        counting = Layer(layer.transition, layer.addition, start, lambda h, _, home=state: h == home)
        t.holds("unrolled it does not count", not isinstance(fail_mod([counting], datatype, period), Agrees))


def column_of(entries: State | tuple[int, ...]) -> fmpq_mat:
    """A column of these numbers."""
    return matrix([[x] for x in entries])
