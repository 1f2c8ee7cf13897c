"""The architectures a program can be compiled for, and exact checks that it stays inside their ranges.

Main definitions: `Target`, `TARGETS`, `target`, `validate`.

References: Grazzi et al. Table 1; CKDA Table 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from statetrack.errors import InvalidInput, OutOfRange
from statetrack.theory.arrays import Vector

from .program import Dense, Factor, Program


@dataclass(frozen=True)
class Target:
    """What one factor of an architecture may be.

    gates: "one" (all 1), "scalar" (one gate for all channels) or "channel"; in [low, high]. β in [0, beta_max]
    (None: any β >= 0). factors: most factors a token (None: any). additive: "none", "key" (β k vᵀ) or "any".
    """

    name: str
    gates: str
    low: int
    high: int
    beta_max: int | None
    factors: int | None
    additive: str
    dense: bool
    description: str

    def to_json(self) -> dict[str, object]:
        """The ranges as a certificate states them."""
        return {
            "target": self.name,
            "gates": self.gates,
            "low": self.low,
            "high": self.high,
            "beta_max": self.beta_max,
            "factors": self.factors,
            "additive": self.additive,
            "dense": self.dense,
        }


_SIGNED = "Complex KDA, gates in [-1, 1]"
_GATED = "Kimi Delta Attention, gates in [0, 1]"
_ROWS: tuple[tuple[str, str, int, int, int | None, int | None, str], ...] = (
    ("diag[0,1]", "channel", 0, 1, 0, 1, "diagonal gates in [0, 1]: Mamba, GLA, mLSTM"),
    ("diag[-1,1]", "channel", -1, 1, 0, 1, "diagonal gates in [-1, 1]: Mamba with negative eigenvalues"),
    ("deltanet[0,1]", "one", 1, 1, 1, 1, "DeltaNet, β in [0, 1]"),
    ("gdn[0,1]", "scalar", 0, 1, 1, 1, "Gated DeltaNet, one gate in [0, 1], β in [0, 1]"),
    ("kda[0,1]", "channel", 0, 1, 1, 1, f"{_GATED}, β in [0, 1]"),
    ("deltanet", "one", 1, 1, 2, 1, "DeltaNet, β in [0, 2]"),
    ("gdn", "scalar", 0, 1, 2, 1, "Gated DeltaNet, one gate in [0, 1], β in [0, 2]"),
    ("kda", "channel", 0, 1, 2, 1, f"{_GATED}, β in [0, 2]"),
    ("ckda", "channel", -1, 1, 2, 1, f"{_SIGNED}, β in [0, 2]"),
    ("deltaproduct", "one", 1, 1, 2, None, "DeltaProduct: n_h Householder factors a token, β in [0, 2]"),
    ("deltanet-wide", "one", 1, 1, None, 1, "DeltaNet, any β >= 0"),
    ("gdn-wide", "scalar", 0, 1, None, 1, "Gated DeltaNet, one gate in [0, 1], any β >= 0"),
    ("kda-wide", "channel", 0, 1, None, 1, f"{_GATED}, any β >= 0"),
    ("ckda-wide", "channel", -1, 1, None, 1, f"{_SIGNED}, any β >= 0"),
    ("unconstrained", "channel", -1, 1, None, None, "any matrix a token"),
)
TARGETS: dict[str, Target] = {
    name: Target(
        name,
        gates,
        low,
        high,
        beta_max,
        factors,
        "any" if beta_max == 0 or name == "unconstrained" else "key",
        name == "unconstrained",
        description,
    )
    for name, gates, low, high, beta_max, factors, description in _ROWS
}


def target(name: str) -> Target:
    """The target of this name; InvalidInput lists the names for any other."""
    if name not in TARGETS:
        raise InvalidInput(f"unknown target {name!r}: know {', '.join(TARGETS)} (see 'statetrack targets')")
    return TARGETS[name]


def check_named_range(stated: Mapping[str, object]) -> None:
    """Refuse ranges that are not those of the target they name: a name alone is no claim. Raises OutOfRange."""
    name = str(stated.get("target"))
    if name not in TARGETS or TARGETS[name].to_json() != dict(stated):
        raise OutOfRange(
            f"the certificate's ranges are not those of a target named {name!r} (see 'statetrack targets')"
        )


def validate(program: Program, goal: Target) -> None:
    """Check every factor of every step exactly; OutOfRange names the first few faults together."""
    faults: list[str] = []
    for number, layer in enumerate(program.layers, 1):
        for index, head in enumerate(layer.heads):
            for i, step in enumerate(head.steps):
                where = f"layer {number} head {index} step {i}"
                if goal.factors is not None and len(step) > goal.factors:
                    faults.append(f"{where}: {len(step)} factors, {goal.name} has {goal.factors}")
                faults += [f"{where}: {fault}" for factor in step for fault in _faults(factor, goal)]
    if faults:
        raise OutOfRange(
            f"program is outside {goal.name}: "
            + "; ".join(faults[:3])
            + (f"; {len(faults) - 3} more" if len(faults) > 3 else "")
        )


def _faults(factor: Factor | Dense, goal: Target) -> Iterator[str]:
    if isinstance(factor, Dense):
        if not goal.dense:
            yield "a dense matrix"
        return
    beta = factor.beta
    if factor.c < 0 or (goal.beta_max is not None and beta > goal.beta_max):
        yield f"β = {float(beta):.6g} is not in [0, {goal.beta_max}]"
    gates = factor.alpha or (factor.c.field.one,)
    if any(g < goal.low or g > goal.high for g in gates):
        yield f"a gate is not in [{goal.low}, {goal.high}]"
    if goal.gates == "scalar" and len(set(gates)) > 1:
        yield "gates differ between channels"
    if factor.b is None or goal.additive == "any" or all(x.is_zero() for column in factor.b for x in column):
        return
    if goal.additive == "none" or factor.c.is_zero() or not all(_parallel(factor.w, column) for column in factor.b):
        yield "an additive term that is not a multiple of the key"


def _parallel(w: Vector, b: Vector) -> bool:
    j = next((i for i, x in enumerate(w) if not x.is_zero()), None)
    return j is not None and all(x * w[j] == w[i] * b[j] for i, x in enumerate(b))
