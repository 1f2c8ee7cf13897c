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

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import Group, word_problem

from .assembly import Map, Module, Part, Stack
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
    can: both in one layer, see `registers.registers_program`.
    """

    track: Callable[[Dfa, Group | None, tuple[int, ...]], Part]
    registers: Callable[[Dfa, tuple[Map, ...], int], Part] | None
    remember: Callable[[Dfa, tuple[int, ...]], Part]
    stack: Callable[[Stack, Dfa, int], Part]


def settle(dfa: Dfa, modules: tuple[Module, ...], reads: tuple[int, ...], max_joint: int) -> tuple[Stack, int]:
    """The stack with its answer table, found by a search over (values, automaton state), and the number of these.

    Raises CertificateFailed with a word if two states have the same values; BudgetExceeded past `max_joint`.
    """
    assert all(j < i for i, module in enumerate(modules) for j in module.reads), "modules read earlier ones only"
    answer: dict[tuple[int, ...], int] = {}
    start = (*(m.values[m.part.dfa.start] for m in modules), dfa.start)
    found: dict[States, tuple[int, int]] = {start: (-1, -1)}
    listed = [start]
    for at, joint in enumerate(listed):
        targets: list[int] = dfa.delta[joint[-1]].tolist()
        for token, q in enumerate(targets):
            after: list[int] = []
            for i, module in enumerate(modules):
                letter = module.letters((token, *(joint[j] for j in module.reads)))
                after.append(module.moves[joint[i], letter])
            key = tuple(after[j] for j in reads)
            if answer.setdefault(key, q) != q:
                shown = " ".join(dfa.alphabet[t] for t in _word(found, listed, at, token)[:40])
                got, want = dfa.states[answer[key]], dfa.states[q]
                raise CertificateFailed(f"answer of the stack after {shown!r}", repr(got), repr(want))
            image = (*after, q)
            if image not in found:
                if len(listed) >= max_joint:
                    raise BudgetExceeded("states of the cascade", max_joint, "--max-states")
                found[image] = at, token
                listed.append(image)
    return Stack(modules, reads, Lookup(answer)), len(listed)


def _word(found: dict[States, tuple[int, int]], listed: list[States], at: int, token: int) -> list[int]:
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
        part = make.registers(_explored(actions, states, registers_move, _named), actions, start)
    else:
        part = _split(actions, constant, start, make, max_joint, read=read)
    return ComponentPart(part, _now(part), order)


def _named(x: States) -> str:
    return ",".join(map(str, x))


def _now(part: Part) -> tuple[int, ...]:
    """The last of the values that name a state."""
    return tuple(int(name.split(",")[-1]) for name in part.dfa.states)


def _points(actions: tuple[Map, ...], start: int) -> Dfa:
    """The automaton of the points that the actions reach, named by their numbers."""
    return _explored(actions, (start,), lambda f, x: (f[x[0]],), _named)


def _explored(
    actions: Sequence[Map], start: States, move: Callable[[Map, States], States], name: Callable[[States], str]
) -> Dfa:
    """The automaton of everything that the actions reach from a start; letters are the actions' numbers."""
    number = {start: 0}
    listed = [start]
    table: list[list[int]] = []
    for x in listed:
        row: list[int] = []
        for f in actions:
            image = move(f, x)
            if image not in number:
                number[image] = len(listed)
                listed.append(image)
            row.append(number[image])
        table.append(row)
    names = tuple(name(x) for x in listed)
    delta = np.array(table, dtype=np.int32).reshape(len(listed), len(actions))
    return Dfa(tuple(str(i) for i in range(len(actions))), names, 0, delta, names)


def _memory(orders: Sequence[int], start: int, make: Builders, *, read: bool) -> Part:
    """A memory of the last value (and the one before it); its letters are the distinct orders."""
    letters = tuple(sorted(set(orders)))

    def move(f: Map, x: States) -> States:
        return (*x[1:], f[0] - 1) if f[0] else x

    return make.remember(_explored([(o,) for o in letters], (start,) * (1 + read), move, _named), letters)


def _split(
    actions: tuple[Map, ...], constant: Sequence[bool], start: int, make: Builders, max_joint: int, *, read: bool
) -> Part:
    """Group part and memory of one component: a stack that knows (value before the last reset, moved along; value)."""
    size = len(actions[0])
    split = split_resets(actions)
    group = split.group
    # A bijection's element is where it moves the identity, element 0.
    moves = [0 if c else split.moves[f][0] for c, f in zip(constant, actions, strict=True)]
    chosen = tuple(dict.fromkeys(moves))
    bijective = make.track(word_problem(group, chosen), group, chosen)
    number = {label: g for g, label in enumerate(group.labels)}
    elements = tuple(number[name] for name in bijective.dfa.states)
    orders = {
        (a, g): 1 + split.resets[f[0]][g] if c else 0
        for a, (c, f) in enumerate(zip(constant, actions, strict=True))
        for g in sorted(set(elements))
    }
    memory = _memory(tuple(orders.values()), start, make, read=read)
    letters = sorted(set(orders.values()))
    modules = (
        Module(bijective, (), Lookup({(a,): chosen.index(g) for a, g in enumerate(moves)}), elements),
        Module(
            memory,
            (0,),
            Lookup({key: letters.index(order) for key, order in orders.items()}),
            tuple(range(len(memory.dfa.states))),
        ),
    )

    def move(f: Map, x: States) -> States:
        return (*x[1:], f[0]) if len(set(f)) == 1 and size > 1 else tuple(f[i] for i in x)

    dfa = _explored(actions, (start,) * (1 + read), move, _named)
    stack, joint = settle(dfa, modules, (0, 1), max_joint)
    return make.stack(stack, dfa, joint)
