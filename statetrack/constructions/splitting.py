"""Splitting permutation-reset components: a group over resets, and a group along a chain of subgroups.

Products compose right to left, newest letter leftmost, as in `statetrack.theory.groups`.

Main definitions: `SplitComponent`, `split_resets`, `subgroup_chain`, `split_group`, `split_permutations`.

Main results: claim OURS-splitting. A component's state is x = g·y with g in the group of its bijections: a bijection π
moves g to πg, a constant c sets y to g⁻¹c, so the upper part makes bijections only and the lower resets only. Along a
chain G = G_0 > G_1 > ... > 1 with transversals t an element is g = t_0 t_1 ..., and a letter π = π_0 moves the coset of
t_i by π_i, with π_{i+1} = t_i'⁻¹ π_i t_i, where t_i' stands for the coset after the letter. A 2-group has a chain of
index 2 throughout, so its word problem is a cascade of sign flips.

References: Krohn and Rhodes, *Algebraic theory of machines I* (1965); Frobenius and Lagrange coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, pairwise, product

import numpy as np

from statetrack.errors import BudgetExceeded, InvalidInput
from statetrack.theory.automata import Dfa, transition_maps
from statetrack.theory.groups import Group, Permutation, permutation_group, word_problem

from .cascade import Cascade, Component, Map, States

MAX_GROUP = 5_040
# Pairs of generators are tried in perfect groups of so many elements at most.
_MOST_PAIRED = 400
Chain = tuple[frozenset[Permutation], ...]


@dataclass(frozen=True, eq=False)
class SplitComponent:
    """A component x = g·y of m points as a group part g (an element number) over a reset part y.

    `moves[π]` maps g to πg for each bijection π; `resets[c]` gives g⁻¹c for each g, for each constant c. The start is
    g = the identity (element 0), y = the component's start.
    """

    group: Group
    moves: dict[Map, tuple[int, ...]]
    resets: dict[int, tuple[int, ...]]

    def step(self, f: Map, g: int, y: int) -> tuple[int, int]:
        """The two parts after an action."""
        return (self.moves[f][g], y) if f in self.moves else (g, self.resets[f[0]][g])

    def state(self, g: int, y: int) -> int:
        """The component's state."""
        return int(self.group.elements[g, y])


def split_resets(actions: Iterable[Map], *, max_order: int = MAX_GROUP) -> SplitComponent:
    """Split a component with these actions, bijections and constants of the same points.

    Raises:
        InvalidInput: no action, or one that is neither a bijection nor a constant.
        BudgetExceeded: the bijections generate a group of more than `max_order` elements.
    """
    given = list(dict.fromkeys(actions))
    size = len(given[0]) if given else 0
    for f in given:
        if len(f) != size or len(set(f)) not in (1, size) or not set(f) <= set(range(size)):
            raise InvalidInput(f"action {f}: need bijections and constants of the same {size} points")
    if not given:
        raise InvalidInput("no action to split; give a component's bijections and constants, at least the identity")
    bijections = [f for f in given if len(set(f)) == size]
    group = permutation_group("component", bijections or [tuple(range(size))], max_order=max_order)
    moves = {f: tuple(int(h) for h in group.left(group.generators[i])) for i, f in enumerate(bijections)}
    inverses = np.argsort(group.elements, axis=1)
    constants = sorted({f[0] for f in given if f not in moves})
    return SplitComponent(group, moves, {c: tuple(int(y) for y in inverses[:, c]) for c in constants})


def subgroup_chain(elements: Iterable[Permutation], *, stabilisers: bool = True) -> Chain:
    """A chain of subgroups from a permutation group down to the trivial one.

    Each is normal in the one before with a factor of prime order, as long as the group is not its own commutator
    group (so a 2-group has index 2 throughout). Then, with `stabilisers`, the next is the stabiliser of a point if its
    index is less than the order of the simple factor (A5 > A4, index 5), or one of two generators if no element but
    the identity fixes a point; else the largest normal subgroup found.

    >>> from statetrack.theory.groups import named_group
    >>> s5 = named_group("S5")
    >>> [len(h) for h in subgroup_chain([s5.permutation(g) for g in range(120)])]
    [120, 60, 12, 4, 2, 1]
    """
    chain = [frozenset(elements)]
    one = tuple(range(len(next(iter(chain[0])))))
    if _closure(chain[0], frozenset({one})) != chain[0]:
        raise InvalidInput(f"{len(chain[0])} permutations that are not closed under products; give a whole group")
    while len(chain[-1]) > 1:
        chain.append(_next_subgroup(chain[-1], one, stabilisers))
    return tuple(chain)


def _next_subgroup(group: frozenset[Permutation], one: Permutation, stabilisers: bool) -> frozenset[Permutation]:
    generators = _generators(group, one)
    commutators = [_times(_times(a, b), _inverse(_times(b, a))) for a in generators for b in generators]
    derived = _normal_closure(commutators, generators, frozenset({one}))
    if len(derived) < len(group):
        index = len(group) // len(derived)
        p = next(p for p in range(2, index + 1) if index % p == 0)
        # All p-th powers and commutators; what is above has index a power of p, and each step up multiplies by p.
        found = _closure([_power(g, p) for g in generators], derived)
        for g in generators:
            larger = _closure([g], found)
            if len(larger) < len(group):
                found = larger
        return found
    normal = frozenset({one})
    for g in sorted(group):
        if g not in normal:
            larger = _normal_closure([g], generators, normal)
            if len(larger) < len(group):
                normal = larger
    fixing = [frozenset(g for g in group if g[i] == i) for i in range(len(one))]
    largest = max((h for h in fixing if len(h) < len(group)), key=len)
    if stabilisers and len(largest) == 1 and len(group) <= _MOST_PAIRED:
        # A group that moves its own elements tells nothing by its points.
        largest = max(_of_two(group, one), key=len)
    return largest if stabilisers and len(largest) > len(normal) else normal


def _of_two(group: frozenset[Permutation], one: Permutation) -> Iterator[frozenset[Permutation]]:
    """Proper subgroups generated by two elements, the first of them one of each order."""
    orders: dict[int, Permutation] = {}
    for g in sorted(group):
        orders.setdefault(next(n for n in count(1) if _power(g, n) == one), g)
    for a, b in product(orders.values(), sorted(group)):
        found = _closure([a, b], frozenset({one}))
        if len(found) < len(group):
            yield found


def split_group(group: Group, letters: Sequence[int], chain: Chain | None = None) -> Cascade:
    """The word problem of a group as a cascade of coset actions, one component for each step of a chain of subgroups.

    Component i has the cosets of the chain's subgroup i + 1 in subgroup i, coset 0 the subgroup itself.

    Raises:
        BudgetExceeded: the group has more than 5,040 elements.
        InvalidInput: the chain does not lead from the group to the identity.
    """
    dfa = word_problem(group, letters)
    number = {label: q for q, label in enumerate(dfa.states)}
    labels = {group.permutation(g): label for g, label in enumerate(group.labels)}
    return _split(dfa, group, [group.permutation(g) for g in letters], chain, lambda g: number.get(labels[g], 0))


def split_permutations(dfa: Dfa, chain: Chain | None = None) -> Cascade:
    """A permutation automaton as a cascade of coset actions of the group that its letters generate.

    Raises:
        BudgetExceeded: the letters generate more than 5,040 permutations.
        InvalidInput: a letter is not a bijection of the states; the chain is not one of their group.
    """
    if not dfa.is_permutation():
        raise InvalidInput("splitting along subgroups: a letter is not a bijection of the states; split a component")
    maps = transition_maps(dfa)
    group = permutation_group("letters", maps or [tuple(range(len(dfa.states)))], max_order=MAX_GROUP)
    return _split(dfa, group, maps, chain, lambda g: g[dfa.start])


def _split(
    dfa: Dfa, group: Group, letters: Sequence[Permutation], chain: Chain | None, answer: Callable[[Permutation], int]
) -> Cascade:
    if group.order > MAX_GROUP:
        raise BudgetExceeded("group elements to split", MAX_GROUP, "--max-order")
    elements = frozenset(group.permutation(g) for g in range(group.order))
    steps = chain or subgroup_chain(elements)
    if steps[0] != elements or len(steps[-1]) > 1 or any(not b < a for a, b in pairwise(steps)):
        raise InvalidInput("chain of subgroups: must start with the whole group, get smaller, and end with one element")
    cosets = [_cosets(a, b) for a, b in pairwise(steps)]

    @lru_cache(maxsize=1 << 16)
    def below(level: int, g: Permutation, coset: int) -> tuple[int, Permutation]:
        """Where a group element moves a coset, and the element that is left for the level below."""
        representatives, number = cosets[level]
        moved = _times(g, representatives[coset])
        after = number[moved]
        return after, _times(_inverse(representatives[after]), moved)

    def component(level: int) -> Component:
        size = len(cosets[level][0])

        def action(token: int, read: States) -> Map:
            g = letters[token]
            for i, coset in enumerate(read):
                g = below(i, g, coset)[1]
            return tuple(below(level, g, coset)[0] for coset in range(size))

        return Component(size, tuple(range(level)), action)

    def state(x: States) -> int:
        g = tuple(range(group.degree))
        for (representatives, _), coset in zip(reversed(cosets), reversed(x), strict=True):
            g = _times(representatives[coset], g)
        return answer(g)

    return Cascade(dfa, tuple(component(i) for i in range(len(cosets))), (0,) * len(cosets), state)


def _cosets(
    group: frozenset[Permutation], subgroup: frozenset[Permutation]
) -> tuple[list[Permutation], dict[Permutation, int]]:
    """Least representatives of the left cosets, the subgroup's own (the identity) first; the coset of each element."""
    representatives: list[Permutation] = []
    number: dict[Permutation, int] = {}
    for g in sorted(group):
        if g not in number:
            number |= {_times(g, h): len(representatives) for h in subgroup}
            representatives.append(g)
    if len(representatives) * len(subgroup) != len(group) or len(number) != len(group):
        raise InvalidInput("chain of subgroups: its members must be groups, each inside the one before")
    return representatives, number


def _times(g: Permutation, h: Permutation) -> Permutation:
    """g h, h first."""
    return tuple([g[i] for i in h])


def _inverse(g: Permutation) -> Permutation:
    inverse = [0] * len(g)
    for i, j in enumerate(g):
        inverse[j] = i
    return tuple(inverse)


def _power(g: Permutation, exponent: int) -> Permutation:
    result = g
    for _ in range(exponent - 1):
        result = _times(g, result)
    return result


def _closure(elements: Iterable[Permutation], subgroup: frozenset[Permutation]) -> frozenset[Permutation]:
    """The group that a subgroup and more elements generate."""
    for g in elements:
        if g not in subgroup:
            subgroup = _extended(subgroup, (*_generators(subgroup, tuple(range(len(g)))), g))
    return subgroup


def _extended(subgroup: frozenset[Permutation], generators: Sequence[Permutation]) -> frozenset[Permutation]:
    """The group that some elements generate, which has the subgroup in it: its cosets are found breadth first."""
    found, inside = set(subgroup), list(subgroup)
    queue = [tuple(range(len(generators[0])))]
    for r in queue:
        for g in generators:
            new = _times(r, g)
            if new not in found:
                found.update(_times(h, new) for h in inside)
                queue.append(new)
    return frozenset(found)


@lru_cache(maxsize=64)
def _generators(group: frozenset[Permutation], one: Permutation) -> tuple[Permutation, ...]:
    """Few elements that generate a group, least first; each at least doubles what the ones before generate."""
    generators: list[Permutation] = []
    found = frozenset({one})
    for g in sorted(group):
        if g not in found:
            generators.append(g)
            found = _extended(found, generators)
    return tuple(generators)


def _normal_closure(
    elements: Iterable[Permutation], generators: Sequence[Permutation], inside: frozenset[Permutation]
) -> frozenset[Permutation]:
    """The least normal subgroup that has the elements and `inside`, which is normal, in the group of the generators."""
    found, queue = inside, list(elements)
    for g in queue:
        if g not in found:
            found = _closure([g], found)
            queue.extend(_times(_times(h, g), _inverse(h)) for h in generators)
    return found
