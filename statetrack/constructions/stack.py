"""A permutation-reset cascade as a stack of small certified networks.

A component that only permutes, or only resets, is one network. One that does both is split: x = g·y with g in the group
of its bijections and y moved by resets only (a reset to c sends y to g⁻¹c and leaves g), so that no component needs
more than a group's tracker and a memory of the last two resets. Others see a component's value *before* the token: a
group's by the inverse of the letter, a memory's because it keeps the value before the last reset.

Main definitions: `settle`, `cascade_stack`.

Main results: claim OURS-stack (docs/certificate.md): exact, finitely many states; each part has a certificate of its
own, and the search runs over the cascade's states only.

References: Krohn and Rhodes; Grazzi et al. Thm. 4 (repaired: a stack of states after the update cannot do it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.theory.automata import Dfa, explored
from statetrack.theory.groups import Group, word_problem

from .assembly import KEPT, Map, Module, Part, Stack
from .cascade import Cascade
from .program import Lookup
from .registers import registers_move
from .splitting import split_resets

States = tuple[int, ...]


@dataclass(frozen=True)
class Builders:
    """How parts are made for a target.

    `track` a permutation automaton, or a group's word problem with the element of each letter; `remember` the last
    value or two, for the automaton whose states are named by them, with the order of each letter (0: hold; 1 + x: the
    value becomes x); `stack` makes a part of a settled stack and the size of its search. `registers`, where a target
    can: both in one layer, see `registers.registers_program`. `max_order` is the most elements of a component's group.
    """

    track: Callable[[Dfa, Group | None, tuple[int, ...]], Part]
    registers: Callable[[Dfa, tuple[Map, ...], int], Part] | None
    remember: Callable[[Dfa, tuple[int, ...]], Part]
    stack: Callable[[Stack, Dfa, int], Part]
    max_order: int = 100_000


def settle(dfa: Dfa, modules: tuple[Module, ...], reads: tuple[int, ...], max_joint: int) -> tuple[Stack, int]:
    """The stack with its answer table, found by a search over (values, automaton state), and the number of these.

    Raises CertificateFailed with a word if two states have the same values; BudgetExceeded past `max_joint`.
    """
    assert all(j < i for i, module in enumerate(modules) for j in module.reads), "modules read earlier ones only"
    values, after = _joint_values(modules, len(dfa.alphabet), max_joint)
    keys = [tuple([row[j] for j in reads]) for row in values]
    delta: list[list[int]] = dfa.delta.tolist()
    answer: dict[tuple[int, ...], int] = {}
    found: dict[States, tuple[int, int]] = {(0, dfa.start): (-1, -1)}
    listed = [(0, dfa.start)]
    for at, (joint, state) in enumerate(listed):
        for token, image in enumerate(zip(after[joint], delta[state], strict=True)):
            to, q = image
            if answer.setdefault(keys[to], q) != q:
                shown = " ".join(dfa.alphabet[t] for t in _word(found, listed, at, token)[:40])
                got, want = dfa.states[answer[keys[to]]], dfa.states[q]
                raise CertificateFailed(f"answer of the stack after {shown!r}", repr(got), repr(want))
            if image not in found:
                if len(listed) >= max_joint:
                    raise BudgetExceeded("states of the cascade", max_joint, "--max-states")
                found[image] = at, token
                listed.append(image)
    return Stack(modules, reads, Lookup(answer)), len(listed)


def _joint_values(modules: tuple[Module, ...], letters: int, most: int) -> tuple[list[States], list[list[int]]]:
    """The joint values of the modules in reach, and for each the number of those after each token.

    Module by module: what it is told depends on the values before it only, which are far fewer.
    """
    values, after = [()], [[0] * letters]
    for module in modules:
        told = [
            [module.letters((token, *[row[j] for j in module.reads])) for token in range(letters)] for row in values
        ]
        moves = module.moves
        listed: list[tuple[int, int]] = [(0, module.values[module.part.dfa.start])]
        number, edges = {listed[0]: 0}, list[list[int]]()
        for at, value in listed:
            row: list[int] = []
            for to, letter in zip(after[at], told[at], strict=True):
                image = to, moves[value, letter]
                if image not in number:
                    if len(listed) >= most:
                        raise BudgetExceeded("states of the cascade", most, "--max-states")
                    number[image] = len(listed)
                    listed.append(image)
                row.append(number[image])
            edges.append(row)
        values, after = [(*values[at], value) for at, value in listed], edges
    return values, after


def _word(found: Mapping[States, tuple[int, int]], listed: Sequence[States], at: int, token: int) -> list[int]:
    word = [token]
    while at:
        at, token = found[listed[at]]
        word.append(token)
    return word[::-1]


def cascade_stack(cascade: Cascade, make: Builders, max_joint: int) -> tuple[Stack, int]:
    """Modules for the components of a cascade (reduced: its actions are tables), and the size of the search."""
    read = {i for component in cascade.components for i in component.reads}
    modules: list[Module] = []
    for j, (component, table) in enumerate(zip(cascade.components, cascade.actions(max_joint), strict=True)):
        actions = tuple(dict.fromkeys(table.values()))
        made = component_part(actions, cascade.start[j], make, max_joint, read=j in read)
        letters = {key: made.letters[actions.index(f)] for key, f in table.items()}
        modules.append(Module(made.part, component.reads, Lookup(letters), made.values))
    return settle(cascade.dfa, tuple(modules), tuple(range(len(modules))), max_joint)


@dataclass(frozen=True, eq=False)
class ComponentPart:
    """A part, the value of each of its states, and the letter for each action of the component."""

    part: Part
    values: tuple[int, ...]
    letters: tuple[int, ...]


def component_part(
    actions: tuple[Map, ...], start: int, make: Builders, max_joint: int, *, read: bool
) -> ComponentPart:
    """A part for these actions (bijections and constants) of some points.

    Only if others `read` the component does it keep what it needs to tell the value before the token.
    """
    size, order = len(actions[0]), tuple(range(len(actions)))
    constant = [len(set(f)) == 1 and size > 1 for f in actions]
    if not any(constant):
        part = make.track(_points(actions, start), None, ())
        return ComponentPart(part, tuple(int(name) for name in part.dfa.states), order)
    if all(c or f == tuple(range(size)) for c, f in zip(constant, actions, strict=True)):
        orders = [1 + f[0] if c else 0 for c, f in zip(constant, actions, strict=True)]
        part = _memory(orders, start, make, read=read)
        letters = sorted(set(orders))
        return ComponentPart(part, _now(part), tuple(letters.index(o) for o in orders))
    if make.registers is not None:
        states = (-1, start) if read else (start,)
        part = make.registers(explored(actions, states, registers_move, _named), actions, start)
    else:
        part = _split(actions, start, make, max_joint, read=read)
    return ComponentPart(part, _now(part), order)


def _named(x: States) -> str:
    return ",".join(map(str, x))


def _now(part: Part) -> tuple[int, ...]:
    """The last of the values that name a state."""
    return tuple(int(name.split(",")[-1]) for name in part.dfa.states)


def _points(actions: tuple[Map, ...], start: int) -> Dfa:
    """The automaton of the points that the actions reach, named by their numbers."""
    return explored(actions, (start,), lambda f, x: (f[x[0]],), _named)


def _memory(orders: Sequence[int], start: int, make: Builders, *, read: bool) -> Part:
    """A memory of the last value (and the one before it); its letters are the distinct orders."""
    letters = tuple(sorted(set(orders)))

    def move(f: Map, x: States) -> States:
        return (*x[1:], f[0] - 1) if f[0] else x

    return make.remember(explored([(o,) for o in letters], (start,) * (1 + read), move, _named), letters)


@dataclass(frozen=True, eq=False)
class _Halves:
    """Group and memory of one component, whatever the target: the group, the elements of its letters and their problem.

    `moves[a]` is the element of action a, `orders` the memory's order at (action, element), `whole` the automaton of
    both; `settled` keeps what searches found.
    """

    group: Group
    chosen: tuple[int, ...]
    moves: tuple[int, ...]
    problem: Dfa
    elements: tuple[int, ...]
    orders: dict[tuple[int, ...], int]
    whole: Dfa
    settled: dict[tuple[Dfa, Dfa, int], tuple[Lookup[tuple[int, ...], int], int]]


# Targets of one automaton ask for the same one after the other.
@lru_cache(maxsize=KEPT)
def _halves(actions: tuple[Map, ...], start: int, read: bool, max_order: int) -> _Halves:
    constant = [len(set(f)) == 1 for f in actions]
    split = split_resets(actions, max_order=max_order)
    group = split.group
    # A bijection's element is where it moves the identity, element 0.
    moves = tuple(0 if c else split.moves[f][0] for c, f in zip(constant, actions, strict=True))
    chosen = tuple(dict.fromkeys(moves))
    problem = word_problem(group, chosen)
    number = {label: g for g, label in enumerate(group.labels)}
    elements = tuple(number[name] for name in problem.states)
    orders: dict[tuple[int, ...], int] = {
        (a, g): 1 + split.resets[f[0]][g] if c else 0
        for a, (c, f) in enumerate(zip(constant, actions, strict=True))
        for g in sorted(set(elements))
    }

    def move(f: Map, x: States) -> States:
        return (*x[1:], f[0]) if len(set(f)) == 1 else tuple(f[i] for i in x)

    whole = explored(actions, (start,) * (1 + read), move, _named)
    return _Halves(group, chosen, moves, problem, elements, orders, whole, {})


def _split(actions: tuple[Map, ...], start: int, make: Builders, max_joint: int, *, read: bool) -> Part:
    """Group part and memory of one component: a stack that knows (value before the last reset, moved along; value)."""
    made = _halves(actions, start, read, make.max_order)
    # Any two resets at any two elements, and then any element: so many states are met at least.
    values = set(made.orders.values()) - {0}
    if made.group.order * len(values) ** (1 + read) > max_joint:
        raise BudgetExceeded("states of the cascade", max_joint, "--max-states")
    bijective = make.track(made.problem, made.group, made.chosen)
    memory = _memory(tuple(made.orders.values()), start, make, read=read)
    letters = sorted(set(made.orders.values()))
    modules = (
        Module(bijective, (), Lookup({(a,): made.chosen.index(g) for a, g in enumerate(made.moves)}), made.elements),
        Module(
            memory,
            (0,),
            Lookup({key: letters.index(order) for key, order in made.orders.items()}),
            tuple(range(len(memory.dfa.states))),
        ),
    )
    key = bijective.dfa, memory.dfa, max_joint
    if key not in made.settled:
        stack, joint = settle(made.whole, modules, (0, 1), max_joint)
        made.settled[key] = stack.answer, joint
    answer, joint = made.settled[key]
    return make.stack(Stack(modules, (0, 1), answer), made.whole, joint)
