"""Which construction for which source and target, or the theorem that there is none.

Main definitions: `Plan`, `plan`, `refute`.

Main results: refusals carry a theorem and a witness that can be checked: CKDA Lemma 16 with Prop. 13 (A5 and heads of
size 3), Grazzi et al. Thm. 1 and Thm. 2 (diagonal transitions count only in powers of two).

References: CKDA Sec. 5; Grazzi et al. Sec. 4; docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from statetrack.errors import BudgetExceeded, InvalidInput, NoConstruction, NotExpressible
from statetrack.theory.groups import recognise, reflections_needed, words_in
from statetrack.theory.monoids import classify
from statetrack.theory.rotations import icosahedral_planes

from . import trackers
from .blocks import clocked_blocks
from .cascade import hole_cascade, reduce
from .program import Program
from .realise import cascade_layers
from .source import Source
from .targets import Target


@dataclass(frozen=True)
class Plan:
    """A chosen construction: its name, the theorem behind it, and the open program it made."""

    construction: str
    theorem: str
    program: Program

    @property
    def cost(self) -> tuple[int, int, int, int]:
        """Layers, factors a token, total K, total state numbers K·V: the smallest plan wins in this order."""
        heads = [head for layer in self.program.layers for head in layer.heads]
        sizes = sum(head.size for head in heads), sum(head.size * head.width for head in heads)
        return len(self.program.layers), self.program.factors_per_token, *sizes


@dataclass(frozen=True)
class _Recipe:
    name: str
    theorem: str
    make: Callable[[Source], Program | None]
    targets: frozenset[str]
    layers: int = 1


def _cascaded(source: Source) -> Program | None:
    """The reduced cascade of holes as a stack of Householder products; for automata whose letters merge states."""
    if source.dfa.is_permutation():
        return None
    try:
        return cascade_layers(reduce(hole_cascade(source.dfa)))
    except BudgetExceeded as error:
        reason = f"its cascade of holes has more than {error.limit:,} states in reach"
        raise NoConstruction(source.name, "deltaproduct", reason, "use --target unconstrained") from None


_MOST_MAPS = 20_000
_DELTA = frozenset({"deltanet", "gdn", "kda", "ckda", "ckda-wide", "deltaproduct"})
_SIGNED = frozenset({"ckda", "ckda-wide"})
_UNSIGNED = frozenset({"deltanet", "gdn", "kda"})
_RECIPES = (
    _Recipe("trivial", "one state", trackers.trivial, _DELTA | {"diag[0,1]", "diag[-1,1]", "unconstrained"}),
    _Recipe("sign-gates", "Grazzi Thm. 1", lambda s: trackers.sign_heads(s, gates=True), frozenset({"diag[-1,1]"})),
    _Recipe("sign-reflections", "Grazzi Thm. 3", lambda s: trackers.sign_heads(s, gates=False), _DELTA),
    _Recipe("planar", "CKDA Thm. 3", lambda s: trackers.planar(s, gates=True), _SIGNED),
    _Recipe(
        "planar-reflections", "Grazzi Thm. 3", lambda s: trackers.planar(s, gates=False), frozenset({"deltaproduct"})
    ),
    _Recipe("cube", "CKDA Thm. 3", lambda s: trackers.polyhedral(s, gates=True), _SIGNED),
    _Recipe(
        "spatial-reflections",
        "Grazzi Prop. 1",
        lambda s: trackers.polyhedral(s, gates=False),
        frozenset({"deltaproduct"}),
    ),
    _Recipe("quaternion", "CKDA Thm. 3", trackers.quaternion, _SIGNED),
    _Recipe("permutation", "Grazzi Thm. 3", trackers.permutation, _DELTA),
    _Recipe("modular", "Grazzi Thm. 6", trackers.modular, _UNSIGNED | {"ckda"}, 2),
    _Recipe("blocks", "CKDA Thm. 5", clocked_blocks, frozenset({"ckda"}), 3),
    _Recipe("wide-blocks", "CKDA Thm. 5", lambda s: clocked_blocks(s, merging=True), frozenset({"ckda-wide"}), 3),
    _Recipe("reflection-blocks", "CKDA Thm. 5", lambda s: clocked_blocks(s, gates=False), _UNSIGNED, 4),
    _Recipe("cascade", "Grazzi Thm. 4", _cascaded, frozenset({"deltaproduct"}), 5),
    _Recipe("dense", "any automaton", trackers.dense, frozenset({"unconstrained"})),
)
CONSTRUCTIONS = (*(r.name for r in _RECIPES), "product")


def plan(
    source: Source,
    goal: Target,
    *,
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    linear: bool = False,
) -> Plan:
    """The cheapest construction (see `Plan.cost`) within the limits.

    `linear` asks for a readout that the automaton's state alone determines, as the span proof needs: for an automaton
    that leaves out trackers of its group, whose hidden state tells the group element.

    Raises:
        NotExpressible: the target provably cannot, with the theorem and a witness.
        NoConstruction: nothing here fits, with what would do it.
        InvalidInput: an unknown construction name.
    """
    if construction is not None and construction not in CONSTRUCTIONS:
        raise InvalidInput(f"unknown construction {construction!r}: know {', '.join(CONSTRUCTIONS)}")
    refute(source, goal, max_dim)
    factors = goal.factors if max_factors is None else max_factors
    plans: list[Plan] = []
    # Constructions with more layers are made only where none with fewer fits.
    for stage in sorted({recipe.layers for recipe in _RECIPES}):
        found = list(_candidates(source, goal, construction, stage))
        if linear and source.on_states:
            found = [p for p in found if p.construction in ("trivial", "permutation", "dense")]
        plans += found
        fitting = [p for p in found if _fits(p, max_dim, factors)]
        if fitting:
            return min(fitting, key=lambda p: p.cost)
    if plans and (max_dim is not None or max_factors is not None):
        best = min(plans, key=lambda p: p.cost)
        dims = max(max(layer) for layer in best.program.dims)
        got = f"{best.construction} needs dimension {dims} and {best.program.factors_per_token} factors a token"
        wanted = f"limits: dimension {_any(max_dim)}, factors {_any(factors)}"
        raise NoConstruction(source.name, goal.name, f"{got}; {wanted}", "raise --max-dim or --max-factors")
    raise NoConstruction(source.name, goal.name, _why_not(source, goal), _instead(source, goal))


def _candidates(source: Source, goal: Target, construction: str | None, layers: int) -> Iterator[Plan]:
    for recipe in _RECIPES:
        if (
            recipe.layers == layers
            and goal.name in recipe.targets
            and construction in (None, recipe.name)
            and not _dear(recipe, source, construction)
        ):
            program = recipe.make(source)
            if program is not None:
                yield Plan(recipe.name, recipe.theorem, program)
    if (
        layers == 1
        and construction in (None, "product")
        and source.group is not None
        and source.group.factors
        and recognise(source.group) is None
    ):

        def single(part: Source) -> Program | None:
            plans = [p for p in _candidates(part, goal, None, 1) if _fits(p, None, goal.factors)]
            return min(plans, key=lambda p: p.cost).program if plans else None

        program = trackers.direct_product(source, single)
        if program is not None:
            yield Plan("product", "direct product of heads", program)


def _dear(recipe: _Recipe, source: Source, construction: str | None) -> bool:
    """Constructions not worth making unless asked for: a larger one of the same target applies whenever they do."""
    if construction is not None or source.group is None:
        return False
    shape = recognise(source.group)
    if recipe.name == "quaternion":
        return shape is not None and not (shape.kind == "polyhedral" and shape.n == 5)
    return recipe.name == "permutation" and shape is not None and shape.kind != "polyhedral" and source.group.order > 64


def _fits(candidate: Plan, max_dim: int | None, factors: int | None) -> bool:
    dims = max((size for layer in candidate.program.dims for size in layer), default=0)
    return (max_dim is None or dims <= max_dim) and (factors is None or candidate.program.factors_per_token <= factors)


def refute(source: Source, goal: Target, max_dim: int | None = None) -> None:
    """Raise NotExpressible if a theorem says that the target cannot track this source; return silently otherwise."""
    if goal.name == "ckda" and max_dim is not None and max_dim <= 3 and source.group is not None:
        shape = recognise(source.group)
        if shape is not None and shape.kind == "polyhedral" and shape.n == 5 and len(set(source.letters)) == 60:
            count = icosahedral_planes()
            raise NotExpressible(
                source.name,
                f"ckda with heads of size at most {max_dim}, one layer, finitely many states",
                f"a frame makes a rotation of order 3 or 5 a signed Householder only if its axis lies in a "
                f"coordinate plane, and three planes hold at most {3 * count.most} of the icosahedron's "
                f"{count.axes} such axes",
                theorem="CKDA Lemma 16 and Prop. 13",
                witness="the 60 letters themselves; d = 4 works (--max-dim 4)",
            )
    if goal.name in ("diag[0,1]", "diag[-1,1]"):
        _refute_diagonal(source, goal)


def _refute_diagonal(source: Source, goal: Target) -> None:
    """Diagonal transitions in finite precision: [0, 1] is aperiodic, [-1, 1] has periods that are powers of two."""
    found = _period_witness(source, allow_two=goal.low < 0)
    if found is None:
        return
    word, period = found
    names = [source.dfa.alphabet[s] for s in word]
    shown = " ".join(names[:12]) + (" ..." if len(names) > 12 else "")
    allowed = "periods that are powers of two" if goal.low < 0 else "period one (aperiodic languages)"
    raise NotExpressible(
        source.name,
        goal.name,
        f"in finite precision diagonal transitions in [{goal.low}, {goal.high}] have {allowed} only",
        theorem="Grazzi Thm. 2" if goal.low < 0 else "Grazzi Thm. 1",
        witness=f"repeating the word '{shown}' moves the states with period {period}",
    )


def _period_witness(source: Source, *, allow_two: bool) -> tuple[tuple[int, ...], int] | None:
    """A word (symbols) that moves some state in a cycle whose length the target cannot have, and that length."""
    delta = source.dfa.delta
    for s in range(len(source.dfa.alphabet)):
        seen: dict[int, int] = {}
        state, t = source.dfa.start, 0
        while state not in seen:
            seen[state] = t
            state, t = int(delta[state, s]), t + 1
        period = t - seen[state]
        if _forbidden(period, allow_two):
            return (s,), period
    group = source.group
    if group is None:
        found = classify(source.dfa, max_monoid=_MOST_MAPS).witness("is_two_periodic" if allow_two else "is_aperiodic")
        return (found.word, len(found.states)) if found else None
    words = words_in(group, source.letters)
    for g in sorted(range(group.order), key=lambda g: len(words[g])):
        order = group.element_order(g)
        if _forbidden(order, allow_two):
            return tuple(reversed(words[g])), order
    return None


def _forbidden(period: int, allow_two: bool) -> bool:
    return period > 1 and not (allow_two and period & (period - 1) == 0)


def _any(limit: int | None) -> str:
    return "any" if limit is None else str(limit)


def _why_not(source: Source, goal: Target) -> str:
    dfa = source.dfa
    points = trackers.points(source)
    if points > trackers.MOST_POINTS:
        return f"its letters move {points:,} points, more than the {trackers.MOST_POINTS} that matrices are made for"
    if not dfa.is_permutation():
        for s, symbol in enumerate(dfa.alphabet):
            first: dict[int, int] = {}
            for q, to in enumerate(dfa.delta[:, s].tolist()):
                if to in first:
                    return (
                        f"not a permutation automaton: symbol {symbol!r} sends states {dfa.states[first[to]]!r} and "
                        f"{dfa.states[q]!r} to {dfa.states[to]!r}"
                    )
                first[to] = q
    if goal.name.startswith("diag"):
        return "its group is a 2-group that is not elementary abelian; that takes a tower of layers"
    worst = max((reflections_needed(p) for p in trackers.point_maps(source)), default=0)
    return (
        f"some letter takes {worst} reflections, no smaller tracker is known, and a proof by closure of "
        "clock-buffer-accumulator layers would visit too many states for this many letters"
    )


def _instead(source: Source, goal: Target) -> str:
    if not source.dfa.is_permutation():
        others = [f"--target {name}" for name in ("deltaproduct", "ckda-wide", "unconstrained") if name != goal.name]
        return f"use {', '.join(others)}"
    if goal.name == "deltaproduct":
        return "raise --max-dim or --max-factors"
    return "use --target deltaproduct"
