"""Finite groups as groups of permutations: by name, by generators in cycle notation, or from an automaton.

Products compose right to left: (a b)(i) = a(b(i)), so that after the letters x_1, ..., x_t the group's word problem
is in state x_t ... x_1, the newest letter leftmost.

Main definitions: `Group`, `named_group`, `canonical_name`, `permutation_group`, `parse_generators`, `word_problem`,
`transition_group`, `GroupShape`, `recognise`.

Main results: `recognise` gives an explicit isomorphism with a cyclic, dihedral or polyhedral group, through generators
that satisfy its von Dyck presentation in a group of its order.

References: Coxeter and Moser, *Generators and Relations for Discrete Groups*, ch. 4.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded, InvalidPermutation, UnknownGroup

from .automata import Dfa, reachable

Permutation = tuple[int, ...]
DEFAULT_MAX_ORDER = 100_000
# A group's elements are listed as a table with an entry for each point: 10^8 entries take 400 MB. The bound grows with
# `max_order`, so that its flag raises both.
_MAX_ENTRIES = 100_000_000
_ENTRIES_PER_ELEMENT = 1_000


@dataclass(frozen=True, eq=False)
class Group:
    """A finite permutation group with named elements; element 0 is the identity.

    `elements` has shape [order, degree]: elements[g, i] is the point that g sends i to. `factors` are the direct
    factors of a product, in order (empty for anything else); then element numbers are mixed radix, last fastest.
    """

    name: str
    elements: NDArray[np.int32]
    labels: tuple[str, ...]
    generators: tuple[int, ...]
    factors: tuple[Group, ...] = field(default=())

    @property
    def order(self) -> int:
        """Number of elements."""
        return len(self.elements)

    @property
    def degree(self) -> int:
        """Number of points."""
        return int(self.elements.shape[1])

    @cached_property
    def shape(self) -> GroupShape | None:
        """The rotation group that this one is isomorphic to, found once; None if there is none."""
        return _recognise(self)

    @cached_property
    def _codes(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]:
        """A random linear code of each element, injective on the group, sorted, for look-up."""
        weights = np.random.default_rng(1).integers(-(1 << 62), 1 << 62, size=self.degree, dtype=np.int64)
        codes = self.elements.astype(np.int64) @ weights
        order = np.argsort(codes)
        assert np.unique(codes).size == self.order, "two elements share a code"
        return weights, codes[order], order

    def index(self, permutations: NDArray[np.int32]) -> NDArray[np.int32]:
        """Element numbers of permutations [count, degree] that lie in the group."""
        weights, codes, order = self._codes
        found = np.searchsorted(codes, permutations.astype(np.int64) @ weights)
        return order[np.minimum(found, self.order - 1)].astype(np.int32)

    def left(self, g: int) -> NDArray[np.int32]:
        """The numbers of g x for all elements x."""
        return self.index(self.elements[g][self.elements])

    def multiply(self, g: int, h: int) -> int:
        """The number of g h (h first)."""
        return int(self.index(self.elements[g][self.elements[h]][None, :])[0])

    def element_order(self, g: int) -> int:
        """The order of an element."""
        return math.lcm(*(len(cycle) for cycle in cycles(self.permutation(g)))) if self.order > 1 else 1

    def permutation(self, g: int) -> Permutation:
        """The element as a tuple: point -> image."""
        return tuple(int(i) for i in self.elements[g])

    def inverse(self, g: int) -> int:
        """The number of g^-1."""
        return int(self.index(np.argsort(self.elements[g]).astype(np.int32)[None, :])[0])

    def generated(self, generators: Sequence[int]) -> int:
        """The order of the subgroup that some elements generate."""
        return len(_closure([self.permutation(g) for g in generators], self.degree, self.order))


def cycles(permutation: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """The cycles of length at least 2, each from its smallest point.

    >>> cycles((1, 2, 0, 3))
    ((0, 1, 2),)
    """
    seen, found = [False] * len(permutation), list[tuple[int, ...]]()
    for start in range(len(permutation)):
        cycle: list[int] = []
        point = start
        while not seen[point]:
            seen[point] = True
            cycle.append(point)
            point = permutation[point]
        if len(cycle) > 1:
            found.append(tuple(cycle))
    return tuple(found)


def reflections_needed(permutation: Sequence[int]) -> int:
    """n - #cycles (fixed points count as cycles): the least number of reflections whose product is the permutation."""
    return sum(len(cycle) - 1 for cycle in cycles(permutation))


def cycle_notation(permutation: Sequence[int]) -> str:
    """Cycles with points counted from 1: "(123)(45)", with spaces inside from 10 points on, "()" for the identity."""
    space = " " if len(permutation) > 9 else ""
    return "".join("(" + space.join(str(i + 1) for i in cycle) + ")" for cycle in cycles(permutation)) or "()"


def permutation_group(
    name: str,
    generators: Sequence[Permutation],
    *,
    labels: Mapping[Permutation, str] | None = None,
    max_order: int = DEFAULT_MAX_ORDER,
) -> Group:
    """The group that permutations of one degree generate.

    BudgetExceeded past `max_order`, and past 10^8 entries (or 1,000 `max_order`) of the table elements by points.
    """
    degree = max((len(g) for g in generators), default=1)
    for g in generators:
        if any(type(i) is not int for i in g) or sorted(g) != list(range(degree)):
            raise InvalidPermutation(f"generator {tuple(g)}: give each of the points 0..{degree - 1} one image")
    elements = _closure(generators, degree, max_order)
    names = tuple((labels or {}).get(g) or cycle_notation(g) for g in elements)
    index = {g: i for i, g in enumerate(elements)}
    return Group(name, np.array(elements, dtype=np.int32), names, tuple(index[tuple(g)] for g in generators))


def _closure(generators: Sequence[Permutation], degree: int, max_order: int) -> list[Permutation]:
    one = tuple(range(degree))
    found, seen = [one], {one}
    most_rows = _most_entries(max_order) // degree
    for h in found:
        for g in generators:
            image = tuple([g[i] for i in h])
            if image not in seen:
                if len(found) >= max_order:
                    raise BudgetExceeded("group elements", max_order, "--max-order")
                if len(found) >= most_rows:
                    _check_entries("generated permutations", len(found) + 1, degree, max_order)
                seen.add(image)
                found.append(image)
    return found


def _most_entries(max_order: int) -> int:
    return max(_MAX_ENTRIES, _ENTRIES_PER_ELEMENT * max_order)


def _check_entries(name: str, order: int, degree: int, max_order: int) -> None:
    """BudgetExceeded, before anything is allocated, for a table of elements that would fill the memory."""
    if order * degree > _most_entries(max_order):
        raise BudgetExceeded(
            f"entries in the table of elements ({name}: {order:,} elements on {degree:,} points)",
            _most_entries(max_order),
            "--max-order, or name a smaller group",
        )


def parse_generators(text: str) -> tuple[Permutation, ...]:
    """Permutation generators in cycle notation, separated by ";", points counted from 1: "(1 2 3)(4 5);(1 2)".

    Cycles of one generator are composed right to left. Raises InvalidPermutation with the generator and the fault.
    """
    rows: list[list[tuple[int, ...]]] = []
    for part in text.split(";"):
        body = part.strip()
        if not re.fullmatch(r"(\(\s*([0-9]{1,5}([\s,]+[0-9]{1,5})*)?\s*\)\s*)+", body):
            raise InvalidPermutation(
                f"generator {body!r}: write cycles of numbers from 1, like (1 2 3)(4 5), generators apart by ';'"
            )
        rows.append([_cycle(c.strip(), body) for c in re.findall(r"\(([^)]*)\)", body)])
    degree = max((i for row in rows for cycle in row for i in cycle), default=1)
    if degree > 10_000:
        raise InvalidPermutation(f"point {degree} is above 10,000; number the points from 1 without gaps")
    made: list[Permutation] = []
    for row in rows:
        image = list(range(degree))
        for cycle in reversed(row):
            if 0 in cycle or len(set(cycle)) != len(cycle):
                raise InvalidPermutation(f"cycle {cycle}: points count from 1 and stand once in a cycle")
            to = {a - 1: b - 1 for a, b in zip(cycle, cycle[1:] + cycle[:1], strict=True)}
            image = [to.get(i, i) for i in image]
        made.append(tuple(image))
    return tuple(made)


def _cycle(text: str, generator: str) -> tuple[int, ...]:
    points = tuple(int(i) for i in re.split(r"[\s,]+", text)) if text else ()
    if len(points) == 1 and points[0] > 9:
        raise InvalidPermutation(
            f"generator {generator!r}: ({text}) is the one point {text}; put blanks between points, like (1 2)"
        )
    return points


NAMED = {
    "Z": "Zn, also Cn: cyclic of order n (n >= 1)",
    "D": "Dn: dihedral of order 2n (D1 = Z2, D2 = Z2xZ2)",
    "S": "Sn: all permutations of n points",
    "A": "An: even permutations of n points",
    "Q": "Qn: dicyclic (generalised quaternion) of order n, a multiple of 4 from 8 on; Q8 is the quaternion group",
}


def named_group(name: str, *, max_order: int = DEFAULT_MAX_ORDER) -> Group:
    """`Z60`, `D7`, `S5`, `A5`, `Q8`, or a direct product of such, `Z2xS3`; UnknownGroup for anything else.

    >>> named_group("Z2xS3").order
    12
    """
    parts = [part.strip() for part in re.split(r"[x×]", name.strip())]
    groups = tuple(_one_named(part, name, max_order) for part in parts)
    if len(groups) == 1:
        return groups[0]
    order, whole = math.prod(g.order for g in groups), "x".join(parts)
    if order > max_order:
        raise BudgetExceeded("group elements", max_order, "--max-order")
    _check_entries(whole, order, sum(g.degree for g in groups), max_order)
    return direct_product(whole, groups)


def canonical_name(text: str) -> str | None:
    """The group name that a text is but for its case and the blanks in it; None if it is none.

    >>> canonical_name("z2 X s3"), canonical_name("q9"), canonical_name("abc")
    ('Z2xS3', None, None)
    """
    parts = [part.strip().upper() for part in re.split(r"[xX×]", text.strip())]
    return "x".join(parts) if all(_parsed(part) for part in parts) else None


def _parsed(part: str) -> tuple[str, int] | None:
    """Family and number of one group name, C read as Z; None if it is no name."""
    match = re.fullmatch(r"([ZCDSAQ])([0-9]{1,9})", part)
    if not match or int(match[2]) < 1 or (match[1] == "Q" and (int(match[2]) < 8 or int(match[2]) % 4)):
        return None
    return match[1].replace("C", "Z"), int(match[2])


def direct_product(name: str, factors: Sequence[Group]) -> Group:
    """The direct product, acting on the disjoint union of the points; labels "(a,b)"."""
    degree = sum(g.degree for g in factors)
    order = math.prod(g.order for g in factors)
    elements = np.empty((order, degree), dtype=np.int32)
    grid = np.indices([g.order for g in factors]).reshape(len(factors), -1)
    at = 0
    for g, rows in zip(factors, grid, strict=True):
        elements[:, at : at + g.degree] = g.elements[rows] + at
        at += g.degree
    labels = tuple(
        "(" + ",".join(g.labels[i] for g, i in zip(factors, column, strict=True)) + ")" for column in grid.T.tolist()
    )
    strides = [math.prod(g.order for g in factors[i + 1 :]) for i in range(len(factors))]
    generators = tuple(g * stride for group, stride in zip(factors, strides, strict=True) for g in group.generators)
    return Group(name, elements, labels, generators, tuple(factors))


def _one_named(part: str, whole: str, max_order: int) -> Group:
    parsed = _parsed(part)
    if parsed is None:
        known = ", ".join(text.split(":")[0] for text in NAMED.values())
        near = canonical_name(whole)
        raise UnknownGroup(
            f"unknown group {part!r} in {whole!r}: know {known} and products like Z2xS3 (see 'statetrack groups'); "
            + (f"write {near} for the group; " if near else "")
            + f"a regular expression of that look is written regex:{whole}"
        )
    kind, n = parsed
    order = {"Z": n, "D": 2 * n, "Q": n}.get(kind, math.factorial(min(n, 12)) // (2 if kind == "A" and n > 1 else 1))
    if order > max_order:
        raise BudgetExceeded(
            f"group elements ({part} has order {order if n <= 12 or kind in 'ZDQ' else f'{n}!'})",
            max_order,
            "--max-order",
        )
    _check_entries(part, order, n, max_order)
    if kind == "Z":
        points = np.arange(n, dtype=np.int32)
        shifts = (points[:, None] + points) % np.int32(n)
        return Group(part, shifts, tuple(str(k) for k in range(n)), (1,) if n > 1 else (0,))
    if kind == "D":
        return _dihedral(part, n)
    if kind == "Q":
        return _dicyclic(part, n // 4)
    if n == 1:
        return permutation_group(part, [(0,)])
    turn = tuple((i + 1) % n for i in range(n))
    if kind == "S":
        swap = (1, 0, *range(2, n))
        return permutation_group(part, [swap] if n == 2 else [turn, swap], max_order=max_order)
    if n == 2:
        return permutation_group(part, [(0, 1)])
    three = (1, 2, 0, *range(3, n))
    other = turn if n % 2 else (0, *((i % (n - 1)) + 1 for i in range(1, n)))
    return permutation_group(part, [three] if n == 3 else [three, other], max_order=max_order)


def _dihedral(name: str, n: int) -> Group:
    if n == 1:
        return permutation_group(name, [(1, 0)], labels={(0, 1): "r0", (1, 0): "s0"})
    if n == 2:
        labels = {(0, 1, 2, 3): "r0", (1, 0, 3, 2): "r1", (1, 0, 2, 3): "s0", (0, 1, 3, 2): "s1"}
        return permutation_group(name, [(1, 0, 3, 2), (1, 0, 2, 3)], labels=labels)
    labels = {tuple((k + i) % n for i in range(n)): f"r{k}" for k in range(n)}
    labels |= {tuple((k - i) % n for i in range(n)): f"s{k}" for k in range(n)}
    return permutation_group(
        name, [tuple((1 + i) % n for i in range(n)), tuple(-i % n for i in range(n))], labels=labels
    )


def _dicyclic(name: str, n: int) -> Group:
    """a^2n = 1, b^2 = a^n, b a = a^-1 b on its own 4n elements a^k b^e, numbered k + 2n e, by left multiplication."""
    size = 2 * n

    def number(k: int, e: int) -> int:
        return k % size + size * e

    def left(k: int, e: int) -> Permutation:
        # a^k b^e · a^l b^f = a^(k ± l) b^(e+f), with b^2 = a^n.
        images = [0] * (2 * size)
        for ell in range(size):
            for f in range(2):
                total = k + (-ell if e else ell) + (n if e and f else 0)
                images[number(ell, f)] = number(total, (e + f) % 2)
        return tuple(images)

    names = "1", "i", "-1", "-i", "j", "k", "-j", "-k"
    labels = {
        left(k, e): names[number(k, e)] if n == 2 else f"a{k}" + ("b" if e else "")
        for k in range(size)
        for e in range(2)
    }
    return permutation_group(name, [left(1, 0), left(0, 1)], labels=labels)


def word_problem(group: Group, letters: Sequence[int]) -> Dfa:
    """The automaton whose state after x_1 ... x_t is the element x_t ... x_1; its output is that element's label."""
    table = np.column_stack([group.left(g) for g in letters]) if letters else np.empty((group.order, 0), dtype=np.int32)
    alphabet = tuple(group.labels[g] for g in letters)
    return reachable(Dfa(alphabet, group.labels, 0, table.astype(np.int32), group.labels))


def transition_group(dfa: Dfa, *, max_order: int = DEFAULT_MAX_ORDER) -> tuple[Group, tuple[int, ...]] | None:
    """The group of a permutation automaton (acting on its states) and the element of each letter.

    None if the order passes `max_order`, the elements take too large a table, or some letter is not a bijection.
    """
    if not dfa.is_permutation():
        return None
    maps = [tuple(int(q) for q in dfa.delta[:, s]) for s in range(len(dfa.alphabet))] or [tuple(range(len(dfa.states)))]
    try:
        group = permutation_group("transition group", maps, max_order=max_order)
    except BudgetExceeded:
        return None
    return group, group.generators if dfa.alphabet else ()


@dataclass(frozen=True)
class GroupShape:
    """A rotation group's type: kind "cyclic" (n), "dihedral" (n, order 2n) or "polyhedral" (n = 3, 4, 5).

    `x`, `y` are the element numbers of the generators: cyclic: x of order n. Dihedral: x of order n, y an involution
    that inverts it. Polyhedral: x^2 = y^3 = (xy)^n = 1.
    """

    kind: str
    n: int
    x: int
    y: int = 0

    def __str__(self) -> str:
        if self.kind == "polyhedral":
            return {3: "A4", 4: "S4", 5: "A5"}[self.n]
        return f"{'Z' if self.kind == 'cyclic' else 'D'}{self.n}"


def recognise(group: Group) -> GroupShape | None:
    """The rotation group that this group is isomorphic to, with the isomorphism's generators, or None."""
    return group.shape


def _recognise(group: Group) -> GroupShape | None:
    n = group.order
    orders = [group.element_order(g) for g in range(n)]
    if n in orders:
        return GroupShape("cyclic", n, orders.index(n))
    half = n // 2
    if n % 2 == 0 and half in orders:
        x = orders.index(half)
        inverse = group.inverse(x)
        for y in range(n):
            if orders[y] == 2 and group.multiply(y, group.multiply(x, y)) == inverse and group.generated((x, y)) == n:
                return GroupShape("dihedral", half, x, y)
        return None
    k = {12: 3, 24: 4, 60: 5}.get(n)
    if k is None:
        return None
    for x in (g for g in range(n) if orders[g] == 2):
        for y in (g for g in range(n) if orders[g] == 3):
            if orders[group.multiply(x, y)] == k and group.generated((x, y)) == n:
                return GroupShape("polyhedral", k, x, y)
    return None


def words_in(group: Group, generators: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each element, a shortest word in the generators (numbers into `generators`), leftmost factor first."""
    found: dict[int, tuple[int, ...]] = {0: ()}
    queue = [0]
    rows = [group.left(g) for g in generators]
    for h in queue:
        for i, row in enumerate(rows):
            image = int(row[h])
            if image not in found:
                found[image] = (i, *found[h])
                queue.append(image)
    assert len(found) == group.order, "the elements do not generate the group"
    return tuple(found[g] for g in range(group.order))
