"""Which construction for which source and target, or the theorem that there is none.

Main definitions: `Plan`, `plan`, `CONSTRUCTIONS`.

References: CKDA Sec. 5; Grazzi et al. Sec. 4; docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from statetrack.errors import BudgetExceeded, InvalidInput, NoConstruction, NotExpressible
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import Group, permutation_group, recognise, reflections_needed

from . import trackers
from .adapted_frames import adapted_head
from .assembly import Map, Part, Stack
from .atlas import one_layer
from .blocks import clocked_blocks, merges, partial_layer
from .cascade import Cascade
from .certificate import Certificate
from .clocks import STYLES
from .composed import certified_part, chain_certificate, proved_blocks, stack_certificate
from .descents import chain_of, listings
from .memories import memory_program
from .one_head import one_head
from .program import Program
from .reduction import best_cascade
from .refutations import refute
from .registers import registers_program
from .source import Source, from_automaton
from .splitting import Chain, split_group, split_permutations, subgroup_chain
from .stack import Builders, cascade_stack
from .targets import Target
from .windows import window_layer


@dataclass(frozen=True)
class Limits:
    """What the user allows: size of a head, factors a token, budgets; `scaled` T, a state that shrinks for T tokens."""

    max_dim: int | None = None
    max_factors: int | None = None
    max_states: int = 1_000_000
    max_monoid: int = 20_000
    scaled: int | None = None
    max_cascade: int = 100_000
    max_order: int = 100_000


@dataclass(frozen=True)
class Plan:
    """A chosen construction: its name, the theorem behind it, and its program.

    The program is open, to be certified by closure or span, unless there is a `certificate` (blocks and stacks).
    """

    construction: str
    theorem: str
    program: Program
    certificate: Certificate | None = None

    @property
    def cost(self) -> tuple[int, bool, int, int, int]:
        """Layers, whether β passes 2, factors a token, total K, total state numbers K·V: the smallest plan wins."""
        heads = [head for layer in self.program.layers for head in layer.heads]
        sizes = sum(head.size for head in heads), sum(head.size * head.width for head in heads)
        wide = float(self.program.beta_max) > 2
        return self.program.depth, wide, self.program.factors_per_token, *sizes


Made = Program | tuple[Program, Certificate] | None


@dataclass(frozen=True)
class _Recipe:
    """Constructions with a larger `stage` are made only where none with a smaller one fits."""

    name: str
    theorem: str
    make: Callable[[Source, Target, Limits], Made]
    targets: frozenset[str]
    stage: int = 1


def _simple(make: Callable[[Source], Program | None]) -> Callable[[Source, Target, Limits], Made]:
    # Targets of one automaton ask for the same program one after the other.
    made = lru_cache(maxsize=8)(make)
    return lambda source, goal, limits: made(source)


def _blocks(source: Source, goal: Target, limits: Limits) -> Made:
    """Clock, buffer and accumulator; on products of factors only if fewer factors a token are asked for."""
    per_token = 1 if goal.factors == 1 else _least(goal.factors, limits.max_factors)
    if per_token is None or (goal.factors != 1 and per_token < 2):
        return None
    prove, scaled = partial(certified_part, goal=goal), limits.scaled
    blocks = clocked_blocks(source, STYLES[goal.name], prove, per_token=per_token, scaled=scaled)
    if blocks is None:
        return None
    return proved_blocks(blocks, source.dfa, goal)


def _scaled(source: Source, goal: Target, limits: Limits) -> Made:
    """Blocks whose state shrinks where letters merge states."""
    return None if limits.scaled is None else _blocks(source, goal, limits)


def _check_scaled(source: Source, goal: Target, tokens: int, construction: str | None) -> None:
    """Refuse `scaled` where another construction is right for words of every length, or where it does not apply."""
    if tokens < 1 or construction not in (None, "scaled"):
        raise InvalidInput(f"scaled {tokens}, construction {construction!r}: give tokens from 1 on and no construction")
    reason = None
    if goal.name not in _SHRINKING:
        reason = f"a state that shrinks is for one factor a token with β at most 2: {', '.join(sorted(_SHRINKING))}"
    elif not merges(source):
        reason = "none of its letters merges states, into others than one absorbing state at any rate"
    if reason is not None:
        raise NoConstruction(source.name, goal.name, reason, "leave out --scaled, for words of every length")


def _cascade(source: Source, goal: Target, limits: Limits) -> Made:
    """The best permutation-reset cascade as a stack; for automata whose letters merge states."""
    if source.dfa.is_permutation():
        return None
    bare = goal.beta_max in (0, 1) and goal.low >= 0
    # The group of a component need not be one of the automaton's; a diagonal target can have 2-groups only.
    signs = goal.beta_max == 0 and goal.low < 0
    most = limits.max_cascade
    bounds = {"max_states": most, "max_chains": most, "max_sets": most // _CHAINS_A_SET}
    found = _best(source.dfa, resets_only=bare, two_groups=signs, **bounds)
    met: NoConstruction | NotExpressible | None = None
    for cascade in (found.cascade, *found.others):
        try:
            return _stacked(source, goal, limits, cascade)
        except (NoConstruction, NotExpressible) as error:
            # A component's group may be out of reach where another cascade has none like it.
            met = met or error
    assert met is not None
    raise met


def _chain(source: Source, goal: Target, limits: Limits) -> Made:
    """A chain of sets, holonomy's or that of holes: where a cascade has too many states in reach to list them."""
    if source.dfa.is_permutation():
        return None
    met: list[BudgetExceeded | NoConstruction | NotExpressible] = []
    for found in listings(source.dfa, limits.max_states, limits.max_cascade // _CHAINS_A_SET):
        try:
            chain = chain_of(found, _builders(goal, limits), limits.max_states)
        except (BudgetExceeded, NoConstruction, NotExpressible) as error:
            met.append(error)
        else:
            return chain.program(source.dfa), chain_certificate(chain, source.dfa, goal)
    # A bound can be raised.
    raise next((error for error in met if isinstance(error, BudgetExceeded)), met[0])


def _tower(source: Source, goal: Target, limits: Limits) -> Made:
    """A 2-group along subgroups of index two, a sign a step: for diagonal targets."""
    group = source.group
    if group is None or group.order & (group.order - 1) or group.order < 2 or not source.letters:
        return None
    return _stacked(source, goal, limits, _along(source, None))


def _coset_tower(source: Source, goal: Target, limits: Limits) -> Made:
    """A group along a chain of subgroups, by the cosets of each in the one before: for groups with no small tracker."""
    group = source.group
    if group is None or not 4 <= group.order <= _MOST_SPLIT or not source.letters:
        return None
    cascade = _along(source, None)
    return _stacked(source, goal, limits, cascade) if len(cascade.components) > 1 else None


def _two_steps(source: Source, goal: Target, limits: Limits) -> Made:
    """A group by a normal subgroup and the cosets of it, if one layer does for each: two layers in place of three."""
    group = source.group
    if group is None or not 4 <= group.order <= _MOST_SPLIT or not source.letters:
        return None
    whole, *below, one = subgroup_chain(group.permutation(g) for g in range(group.order))
    for middle in below:
        shape = recognise(permutation_group("part", sorted(middle), max_order=_MOST_SPLIT))
        if shape is None or len(whole) > 60 * len(middle):
            continue
        made = _stacked(source, goal, limits, _along(source, (whole, middle, one)))
        if made[0].depth <= 2:
            return made
    return None


def _along(source: Source, chain: Chain | None) -> Cascade:
    """The cascade of coset actions of the source's group."""
    if source.on_states:
        return split_permutations(source.dfa, chain)
    assert source.group is not None
    return split_group(source.group, source.letters, chain)


def _stacked(source: Source, goal: Target, limits: Limits, cascade: Cascade) -> tuple[Program, Certificate]:
    stack, joint = cascade_stack(cascade, _builders(goal, limits), limits.max_states)
    return stack.program(source.dfa), stack_certificate(stack, source.dfa, goal, joint)


def _builders(goal: Target, limits: Limits) -> Builders:
    """How the parts of a stack are made for a target."""
    made: dict[object, Part] = {}

    proved = partial(certified_part, goal=goal, max_joint=limits.max_states)

    def track(dfa: Dfa, group: Group | None, letters: tuple[int, ...]) -> Part:
        if dfa not in made:
            given = group is not None
            source = Source("component", dfa, group, letters, False) if given else _component(dfa)
            chosen = plan(source, goal, limits=limits, cascades=False)
            made[dfa] = (
                proved(chosen.program, source.dfa)
                if chosen.certificate is None
                else Part(chosen.program, chosen.certificate.data, source.dfa)
            )
        return made[dfa]

    def remember(dfa: Dfa, orders: tuple[int, ...]) -> Part:
        if (dfa, orders) not in made:
            made[dfa, orders] = proved(memory_program(goal.name, dfa, orders), dfa)
        return made[dfa, orders]

    def registers(dfa: Dfa, actions: tuple[Map, ...], start: int) -> Part:
        return proved(registers_program(dfa, actions, start), dfa)

    def stacked(stack: Stack, dfa: Dfa, joint: int) -> Part:
        return Part(stack.program(dfa), stack_certificate(stack, dfa, goal, joint).data, dfa)

    many = goal.name == "deltaproduct" and limits.max_factors is None
    return Builders(track, registers if many else None, remember, stacked, limits.max_order)


# Targets of one automaton ask for the same cascade one after the other.
_best = lru_cache(maxsize=4)(best_cascade)
_component = lru_cache(maxsize=16)(partial(from_automaton, "component"))
_CHAINS_A_SET = 5
_MOST_SPLIT = 1_000
_STACKS = frozenset({"cascade", "two-steps", "coset-tower", "chain"})
_DIAGONAL = frozenset({"diag[0,1]", "diag[-1,1]"})
_NARROW = frozenset({"deltanet[0,1]", "gdn[0,1]", "kda[0,1]"})
_SIGNED = frozenset({"ckda", "ckda-wide"})
_UNSIGNED = frozenset({"deltanet", "gdn", "kda", "deltanet-wide", "gdn-wide", "kda-wide"})
_DELTA = _SIGNED | _UNSIGNED | {"deltaproduct"}
_PRODUCTS = frozenset({"deltaproduct"})
_SHRINKING = frozenset({"ckda", "kda", "gdn", "deltanet"})
_RECIPES = (
    _Recipe("trivial", "one state", _simple(trackers.trivial), _DELTA | _NARROW | _DIAGONAL | {"unconstrained"}),
    _Recipe(
        "sign-gates",
        "Grazzi Thm. 1",
        _simple(lambda s: trackers.sign_heads(s, gates=True)),
        frozenset({"diag[-1,1]"}),
    ),
    _Recipe("sign-reflections", "Grazzi Thm. 3", _simple(lambda s: trackers.sign_heads(s, gates=False)), _DELTA),
    _Recipe("planar", "CKDA Thm. 3", _simple(lambda s: trackers.planar(s, gates=True)), _SIGNED),
    _Recipe("planar-reflections", "Grazzi Thm. 3", _simple(lambda s: trackers.planar(s, gates=False)), _PRODUCTS),
    _Recipe("cube", "CKDA Thm. 3", _simple(lambda s: trackers.polyhedral(s, gates=True)), _SIGNED),
    _Recipe("spatial-reflections", "Grazzi Prop. 1", _simple(lambda s: trackers.polyhedral(s, gates=False)), _PRODUCTS),
    _Recipe("quaternion", "CKDA Thm. 3", _simple(trackers.quaternion), _SIGNED),
    _Recipe("permutation", "Grazzi Thm. 3", _simple(trackers.permutation), _DELTA),
    _Recipe(
        "window",
        "OURS-nilpotent-window",
        lambda s, goal, _: window_layer(s, goal.name),
        _DELTA | _NARROW | _DIAGONAL,
    ),
    _Recipe("partial", "OURS-sink-is-zero", lambda s, goal, _: partial_layer(s, STYLES[goal.name]), _DELTA),
    _Recipe("adapted", "OURS-forty-letters", _simple(adapted_head), _SIGNED, 2),
    _Recipe("multihead", "OURS-one-layer-variety", lambda s, goal, _: one_layer(s, goal), _SIGNED, 2),
    _Recipe("one-head", "OURS-one-abelian-head", _simple(one_head), _SIGNED, 2),
    _Recipe("modular", "Grazzi Thm. 6", _simple(trackers.modular), _UNSIGNED | {"ckda"}, 3),
    _Recipe("two-steps", "OURS-splitting", _two_steps, _SIGNED, 3),
    _Recipe("blocks", "CKDA Thm. 5", _blocks, frozenset(STYLES), 4),
    _Recipe("scaled", "OURS-scaled-blocks", _scaled, _SHRINKING, 4),
    _Recipe("cascade", "Grazzi Thm. 4", _cascade, _DELTA | _NARROW | _DIAGONAL, 4),
    _Recipe("tower", "OURS-two-group-tower", _tower, frozenset({"diag[-1,1]"}), 4),
    _Recipe("coset-tower", "OURS-splitting", _coset_tower, _UNSIGNED | _SIGNED, 5),
    _Recipe("chain", "OURS-chain-of-sets", _chain, _DELTA | _NARROW | _DIAGONAL, 5),
    _Recipe("dense", "any automaton", _simple(trackers.dense), frozenset({"unconstrained"})),
)
CONSTRUCTIONS = (*(r.name for r in _RECIPES), "product")


def plan(
    source: Source,
    goal: Target,
    *,
    limits: Limits | None = None,
    construction: str | None = None,
    linear: bool = False,
    cascades: bool = True,
) -> Plan:
    """The cheapest construction (see `Plan.cost`) within the limits.

    `linear` asks for a readout that the automaton's state alone determines, as the span proof needs: for an automaton
    that leaves out trackers of its group, whose hidden state tells the group element. `cascades` False leaves those
    out, for the components of one.

    Raises:
        NotExpressible: the target provably cannot, with the theorem and a witness.
        NoConstruction: nothing here fits, with what would do it.
        InvalidInput: an unknown construction name.
    """
    limits = limits or Limits()
    if limits.scaled is not None:
        _check_scaled(source, goal, limits.scaled, construction)
        construction = "scaled"
    if construction is not None and construction not in CONSTRUCTIONS:
        raise InvalidInput(f"unknown construction {construction!r}: know {', '.join(CONSTRUCTIONS)}")
    refute(source, goal, max_dim=limits.max_dim, max_monoid=limits.max_monoid)
    limits = replace(limits, max_factors=_least(goal.factors, limits.max_factors))
    plans: list[Plan] = []
    left_out: list[str] = []
    for stage in sorted({recipe.stage for recipe in _RECIPES}):
        wanted = None if construction is None else {construction}
        found = list(_candidates(source, goal, limits, wanted, stage, left_out, cascades=cascades))
        if linear:
            found = [p for p in found if p.certificate is None]
        if linear and source.on_states:
            found = [p for p in found if p.construction in ("trivial", "permutation", "dense")]
        plans += found
        fitting = [p for p in found if _fits(p, limits)]
        if fitting:
            return min(fitting, key=lambda p: p.cost)
    raise NoConstruction(source.name, goal.name, *_why_not(source, goal, limits, construction, plans, left_out))


def _candidates(
    source: Source,
    goal: Target,
    limits: Limits,
    wanted: set[str] | None,
    stage: int,
    left_out: list[str],
    *,
    cascades: bool,
) -> Iterator[Plan]:
    for recipe in _RECIPES:
        named = wanted is None or recipe.name in wanted
        if recipe.stage != stage or goal.name not in recipe.targets or not named:
            continue
        if (recipe.name in _STACKS and not cascades) or (wanted is None and _dear(recipe.name, source)):
            continue
        try:
            made = recipe.make(source, goal, limits)
        except (BudgetExceeded, NoConstruction, NotExpressible) as error:
            # What is refused here is a component of this construction, and not the source.
            left_out.append(f"{recipe.name}: {error}")
            continue
        if made is not None:
            program, certificate = (made, None) if isinstance(made, Program) else made
            yield Plan(recipe.name, recipe.theorem, program, certificate)
    if stage == 1 and (wanted is None or "product" in wanted):
        yield from _products(source, goal, limits)


def _products(source: Source, goal: Target, limits: Limits) -> Iterator[Plan]:
    """Heads side by side for the factors of a direct product that is no rotation group itself."""
    if source.group is None or not source.group.factors or recognise(source.group) is not None:
        return

    def single(part: Source) -> Program | None:
        found = _candidates(part, goal, limits, None, 1, [], cascades=False)
        plans = [p for p in found if _fits(p, Limits(None, goal.factors))]
        return min(plans, key=lambda p: p.cost).program if plans else None

    program = trackers.direct_product(source, single)
    if program is not None:
        yield Plan("product", "direct product of heads", program)


def _dear(name: str, source: Source) -> bool:
    """Constructions not worth making unless asked for: a larger one of the same target applies whenever they do."""
    if source.group is None:
        return False
    if name == "one-head":
        return True
    shape = recognise(source.group)
    if name == "quaternion":
        return shape is not None and not (shape.kind == "polyhedral" and shape.n == 5)
    return name == "permutation" and shape is not None and shape.kind != "polyhedral" and source.group.order > 64


def _fits(candidate: Plan, limits: Limits) -> bool:
    dims = max((size for layer in candidate.program.dims for size in layer), default=0)
    small = limits.max_dim is None or dims <= limits.max_dim
    return small and (limits.max_factors is None or candidate.program.factors_per_token <= limits.max_factors)


def _least(a: int | None, b: int | None) -> int | None:
    return min((x for x in (a, b) if x is not None), default=None)


def _any(limit: int | None) -> str:
    return "any" if limit is None else str(limit)


def _why_not(
    source: Source, goal: Target, limits: Limits, construction: str | None, plans: list[Plan], left_out: list[str]
) -> tuple[str, str]:
    """The reason, and what to do instead."""
    if plans:
        best = min(plans, key=lambda p: p.cost)
        dims = max(max(layer) for layer in best.program.dims)
        got = f"{best.construction} needs dimension {dims} and {best.program.factors_per_token} factors a token"
        wanted = f"limits: dimension {_any(limits.max_dim)}, factors {_any(limits.max_factors)}"
        also = "".join(f"; {text}" for text in left_out[:2])
        return f"{got}; {wanted}{also}", "raise --max-dim or --max-factors, or choose another target"
    if left_out:
        return "; ".join(left_out), _instead(source, goal)
    if construction is not None:
        return f"the construction {construction!r} does not apply to this source on this target", "leave it out"
    points = trackers.points(source)
    if points > trackers.MOST_POINTS:
        most = trackers.MOST_POINTS
        return f"its letters move {points:,} points, more than the {most} that matrices are made for", "none is known"
    worst = max((reflections_needed(p) for p in trackers.point_maps(source)), default=0)
    return f"some letter takes {worst} reflections, and no smaller tracker is known", _instead(source, goal)


def _instead(source: Source, goal: Target) -> str:
    others = ("deltaproduct", "unconstrained") if source.dfa.is_permutation() else ("ckda-wide", "unconstrained")
    return "use " + " or ".join(f"--target {name}" for name in others if name != goal.name)
