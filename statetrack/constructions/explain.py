"""What each architecture can do with one source: the decision table, computed.

Main definitions: `Explanation`, `explain`, `describe`.

Main results: every "yes" was built and certified, every "no" carries a theorem and a witness; "unknown" claims nothing.
Numbers of layers are those of our constructions, not least ones.

References: docs/constructions.md for the table by classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from statetrack.errors import BudgetExceeded, InvalidInput, NoConstruction, NotExpressible
from statetrack.theory.cayley_tables import from_group
from statetrack.theory.groups import recognise
from statetrack.theory.monoids import Classification, classify
from statetrack.theory.weighted import hankel_rank

from .atlas import MOST_DECIDED, decided
from .compiler import compile_source
from .program import Program
from .source import Named, Options, Source, WeightedSource, resolve_any
from .targets import TARGETS, target

_EXACT = "exact real arithmetic, finitely many states"
_FLOORS = "states rounded down to integers after each step"
_RATIONAL = "exact rational arithmetic, more bits with each token"


@dataclass(frozen=True)
class Explanation:
    """One row: `expressible` True, False or None (unknown); what was built, or the reason and its witness.

    `semantics` is the arithmetic that the verdict is about.
    """

    target: str
    expressible: bool | None
    layers: int | None = None
    dims: tuple[tuple[int, ...], ...] | None = None
    beta_max: float | None = None
    factors: int | None = None
    construction: str | None = None
    theorem: str | None = None
    proof: str | None = None
    semantics: str | None = None
    reason: str | None = None
    witness: str | None = None

    @property
    def verdict(self) -> str:
        """YES, NO or UNKNOWN."""
        return {True: "YES", False: "NO", None: "UNKNOWN"}[self.expressible]


def explain(
    source: Named,
    targets: Iterable[str] | None = None,
    *,
    options: Options | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Explanation, ...]:
    """A row for each target (all of them by default), each built and certified, or refused with its witness.

    `progress` is called with the number of targets done.
    """
    names = tuple(TARGETS) if targets is None else tuple(target(name).name for name in targets)
    if not names:
        raise InvalidInput("explain: no target; give some of those of 'statetrack targets'")
    resolved = resolve_any(source, options)
    rows: list[Explanation] = []
    for name in names:
        rows.append(_row(resolved, name, options))
        if progress is not None:
            progress(len(rows))
    return tuple(rows)


def _row(source: Source | WeightedSource, name: str, options: Options | None) -> Explanation:
    try:
        made = compile_source(source, name, options=options)
    except NotExpressible as error:
        return Explanation(
            name,
            False,
            theorem=error.theorem,
            semantics=error.semantics,
            reason=error.reason,
            witness=error.witness,
        )
    except (NoConstruction, BudgetExceeded) as error:
        reason = error.reason if isinstance(error, NoConstruction) else str(error)
        return Explanation(name, None, reason=reason)
    program = made.program
    return Explanation(
        name,
        True,
        made.layers,
        made.dims,
        float(program.beta_max),
        made.factors_per_token,
        made.plan.construction,
        made.plan.theorem,
        made.certificate.kind,
        _semantics(program),
    )


def _semantics(program: Program) -> str:
    if not program.outputs:
        return _RATIONAL
    floors = any(head.unit is not None for layer in program.layers for head in layer.heads)
    return _FLOORS if floors else _EXACT


def describe(source: Named, options: Options | None = None) -> dict[str, Any]:
    """What is known of the source's minimal automaton: its size, its classes, and which bound left something open."""
    options = options or Options()
    resolved = resolve_any(source, options)
    if isinstance(resolved, WeightedSource):
        rank = hankel_rank(resolved.wfa)
        return {"source": resolved.name, "symbols": len(resolved.wfa.alphabet), "hankel_rank": rank}
    dfa = resolved.dfa
    found = classify(dfa, max_monoid=options.max_monoid)
    facts: dict[str, Any] = {
        "source": resolved.name,
        "symbols": len(dfa.alphabet),
        "states": len(dfa.states),
        "distinct_letters": len(found.letters),
        "monoid": found.monoid_size,
        "classes": _classes(found),
        "periods": None if found.periods is None else list(found.periods),
    }
    if resolved.group is not None:
        shape = recognise(resolved.group)
        facts["group_order"] = resolved.group.order
        facts["group_shape"] = None if shape is None else f"{shape.kind} {shape.n}"
        if resolved.group.order <= MOST_DECIDED:
            facts["one_layer"] = decided(from_group(resolved.group)).sentence(resolved.group.labels)
    if found.unknown is not None:
        facts["unknown"] = f"{found.unknown}; raise the bound with --max-monoid"
    return facts


def _classes(found: Classification) -> list[str]:
    names = {
        "group": found.is_group,
        "aperiodic": found.is_aperiodic,
        "2-periodic": found.is_two_periodic,
        "R-trivial": found.is_r_trivial,
        "permutation-reset": found.is_permutation_reset,
    }
    listed = [name for name, holds in names.items() if holds]
    listed += [f"{name}: unknown" for name, holds in names.items() if holds is None]
    return listed if found.definite is None else [*listed, f"{found.definite}-definite"]
