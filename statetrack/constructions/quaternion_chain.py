"""Finite groups of unit quaternions by a chain of heads of size four.

A head with letters x -> P x (ū P u), u = 1 or a vector of an orthonormal frame, chosen letter by letter, is one signed
Householder a letter in that frame: (I - 2kkᵀ)(I - 2uuᵀ), k = P u. Its state tells the product of the P from that of the
ū P⁻¹ u, which turn the letters' axes by half turns about u. A chain of heads turns all axes until what is left is
dicyclic, which heads of size two track; the decoder then goes back along the chain.

Main definitions: `binary_tracker`.

Main results: claim OURS-quaternion-chain: 2T by three heads of size four and two of
size two, 2O by three and two, 2I by four and two.

References: CKDA Thm. 3 (A5: one head, u = 1); docs/atlas.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from statetrack.theory.arrays import Vector, dot, vector
from statetrack.theory.automata import Dfa, explored
from statetrack.theory.cayley_tables import Cayley, binary_polyhedral
from statetrack.theory.fields import Element, Field
from statetrack.theory.householder import cross
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.quadratic_fields import root_field

from .multihead import Letters, Modules, Tracker, module_of, part_of_head, planar_tracker, settled, single
from .program import Factor, Step
from .targets import Target

Quaternion = Vector


@dataclass(frozen=True)
class _Turn:
    """Three orthogonal directions, their lengths (which may need a larger field), and the axes that letters may have
    after it."""

    directions: tuple[Vector, Vector, Vector]
    lengths: Vector
    axes: tuple[Vector, ...]

    @property
    def field(self) -> RealCyclotomic:
        """The field of the directions."""
        found = self.directions[0][0].field
        assert isinstance(found, RealCyclotomic)
        return found


@dataclass(frozen=True, eq=False)
class _Generated:
    """The group that quaternions generate: its table, and the number of each of its elements."""

    table: Cayley
    number: dict[Quaternion, int]


@cache
def binary_tracker(k: int) -> Tracker:
    """2T, 2O or 2I for k = 3, 4, 5, with the numbering of `binary_polyhedral(k)`."""
    group = binary_polyhedral(k)
    field = RealCyclotomic({3: 8, 4: 8, 5: 5}[k])
    unit = field.sqrt(2) if k == 4 else (field.one + field.sqrt(5)) / 2 if k == 5 else field.one
    letters = [tuple((unit * b + a) / 2 for a, b in row) for row in group.elements.tolist()]
    turns = _tetrahedral(field) if k == 3 else _octahedral(field) if k == 4 else _icosahedral(field, letters)
    return chain_tracker(group, letters, turns, "quaternion chain")


def _axis(field: Field, *entries: Element | int) -> Vector:
    return vector(field, entries)


def _face_frames(field: RealCyclotomic) -> tuple[_Turn, _Turn, Vector, Vector]:
    """The two turns that 2T and 2O share, without the axes of edges; and the axes that are left, z and (-1, -1, 1)."""
    root = field.sqrt(2)
    x, y, z = (_axis(field, *(int(i == j) for j in range(3))) for i in range(3))
    a3, a4 = _axis(field, -1, 1, -1), _axis(field, -1, -1, 1)
    one, two = (root, root, field.one), (root, root, field.one)
    first = _Turn((_axis(field, 1, 1, 0), _axis(field, 1, -1, 0), z), one, (y, z, a3, a4))
    return first, _Turn((_axis(field, 0, 1, 1), _axis(field, 0, 1, -1), x), two, (z, a4)), z, a4


def _tetrahedral(field: RealCyclotomic) -> tuple[_Turn, ...]:
    """Axes of order four to z, axes of order six to (-1, -1, 1), then to (1, -1, 0), which is orthogonal to both."""
    first, second, z, _ = _face_frames(field)
    wide = RealCyclotomic(24)
    h, third = wide.sqrt(2) / 2, wide.sqrt(3) / 3
    six = _axis(wide, -third, -third, third)
    other = _axis(wide, h, -h, 0)
    last = _bisecting(six, other, wide.one, (tuple(map(wide.embed, z)), other))
    return first, second, last


def _octahedral(field: RealCyclotomic) -> tuple[_Turn, ...]:
    """As for 2T, and axes of edges to ones orthogonal to z or to (-1, -1, 1), which is turned to z at last."""
    first, second, z, _ = _face_frames(field)
    edges = [_axis(field, *row) for row in ((1, 1, 0), (1, -1, 0), (0, 1, 1), (1, 0, 1), (1, 0, -1))]
    first = replace(first, axes=(*first.axes, *edges))
    second = replace(second, axes=(*second.axes, *edges[:3]))
    wide = RealCyclotomic(24)
    third = wide.sqrt(3) / 3
    up, six = tuple(map(wide.embed, z)), _axis(wide, -third, -third, third)
    last = _bisecting(up, six, wide.sqrt(6) / 3, (up,))
    return first, second, replace(last, axes=(up, *_across(last, up, [tuple(map(wide.embed, e)) for e in edges[:3]])))


def _icosahedral(field: RealCyclotomic, letters: Sequence[Quaternion]) -> tuple[_Turn, ...]:
    """Half turns about axes of order four bring axes of order ten to one, F, and those of order six to one, T; the
    bisector brings T to F, and axes of order four become orthogonal to F."""
    golden = (field.one + field.sqrt(5)) / 2
    short = golden - 1
    five, three = _axis(field, 0, golden, 1), _axis(field, 1, 1, 1)
    plain = tuple(_axis(field, *(int(i == j) for j in range(3))) for i in range(3))
    rows = ((1, golden, short), (-golden, short, 1), (-short, 1, -golden))
    other = (_axis(field, *rows[0]), _axis(field, *rows[1]), _axis(field, *rows[2]))
    frames = ((plain[0], plain[1], plain[2]), other, (plain[0], plain[1], plain[2]))
    every = [p[1:] for p in letters if not _is_scalar(p)]
    axes = [p[1:] for p in letters if p[0].is_zero()]
    good = (five, three, *(a for a in axes if dot(a, five).is_zero() or dot(a, three).is_zero()))
    turns: list[_Turn] = []
    for frame in reversed(frames):
        length = field.one if frame[0] == plain[0] else field(2)
        turns.insert(0, _Turn(frame, (length,) * 3, good))
        images = {a: [a, *(_half_turn(a, e) for e in frame)] for a in every}
        good = tuple(a for a, row in images.items() if any(_parallel(v, b) for v in row for b in good))
    wide = RealCyclotomic(60)
    up, six = (tuple(wide.embed(x) * scale for x in v) for v, scale in _unit_scales(wide, five, three))
    cosine = dot(up, six)
    last = _bisecting(up, six, cosine * (3 - wide.sqrt(5)), (up,))
    ends = [tuple(map(wide.embed, a)) for a in axes]
    return *turns, replace(last, axes=(up, *_across(last, up, ends)))


def _unit_scales(field: RealCyclotomic, five: Vector, three: Vector) -> tuple[tuple[Vector, Element], ...]:
    """F and T with the inverses of their lengths: |F| = √(φ + 2) = 2 sin 72°, |T| = √3."""
    length = field.sin(1, 5) * 2
    assert length * length == field.embed(dot(five, five))
    return (five, length.inverse()), (three, field.sqrt(3).inverse())


def _bisecting(p: Vector, q: Vector, sine: Element, axes: tuple[Vector, ...]) -> _Turn:
    """The frame of both bisectors of two unit vectors and of what is orthogonal to both, sine = |p × q|."""
    cosine = dot(p, q)
    plus = tuple(x + y for x, y in zip(p, q, strict=True))
    minus = tuple(x - y for x, y in zip(p, q, strict=True))
    field = cosine.field
    # |p + q|² = 2 + 2 cos and |p + q| |p - q| = 2 sin.
    wide, length = root_field(cosine * 2 + 2) if not cosine.is_zero() else (field, _root_of_two(field))
    return _Turn((plus, minus, cross(p, q)), (length, wide.embed(sine) * 2 / length, wide.embed(sine)), axes)


def _root_of_two(field: Field) -> Element:
    assert isinstance(field, RealCyclotomic)
    return field.sqrt(2)


def _across(turn: _Turn, axis: Vector, ends: Sequence[Vector]) -> tuple[Vector, ...]:
    """Of these axes and their images in the first half turn, those orthogonal to the axis."""
    images = [*ends, *(_half_turn(v, turn.directions[0]) for v in ends)]
    return tuple(v for v in images if dot(v, axis).is_zero())


def _parallel(v: Vector, w: Vector) -> bool:
    return all(x.is_zero() for x in cross(v, w))


def chain_tracker(group: Cayley, letters: Sequence[Quaternion], turns: Sequence[_Turn], how: str) -> Tracker:
    """A chain for a group given by the quaternions of its elements; the last letters must generate a planar group."""
    rows = [tuple(letters)]
    steps: list[list[Step]] = []
    for turn in turns:
        before = [tuple(map(turn.field.embed, p)) for p in rows[-1]]
        chosen = [_turned(p, turn) for p in before]
        rows.append(tuple(after for _, after in chosen))
        steps.append([_step(p, u, turn) for p, (u, _) in zip(before, chosen, strict=True)])
    groups = [_generated(row) for row in rows]
    last = planar_tracker(groups[-1].table)
    assert last is not None
    ground = last

    def modules(tokens: Letters, goal: Target) -> Modules:
        distinct = tuple(dict.fromkeys(tokens))
        elements = [[made.number[row[g]] for g in distinct] for row, made in zip(rows, groups, strict=True)]
        numbers = tuple(range(len(distinct)))
        known = single(ground, tuple(elements[-1]), goal)
        pair: Modules = ()
        for i in range(len(turns) - 1, -1, -1):
            told, first, signed = _up_to_sign(groups[i : i + 2], elements[i], elements[i + 1])
            dfa, products = _pairs(groups[i], groups[i + 1], *signed)
            chosen = [steps[i][distinct[t]] for t in first]
            part = part_of_head(dfa, turns[i].lengths[0].field, 4, chosen, products, goal)
            pair = (module_of(part, range(len(first)), told), known)
            if i:
                known = module_of(settled(groups[i].table, elements[i], pair, goal), numbers, numbers)
        if distinct == tokens:
            return pair
        return (module_of(settled(group, distinct, pair, goal), distinct, tokens),)

    return Tracker(group, how, modules)


def _turned(p: Quaternion, turn: _Turn) -> tuple[int, Quaternion]:
    """Which u (0: one) brings the letter's axis among those allowed, and ū P⁻¹ u."""
    part = p[1:]
    for u in range(4):
        image = part if u == 0 else _half_turn(part, turn.directions[u - 1])
        if any(_parallel(image, axis) for axis in turn.axes):
            return u, (p[0], *(-x for x in image))
    raise AssertionError("no half turn of the frame brings this axis among those allowed")


def _half_turn(v: Vector, axis: Vector) -> Vector:
    along = dot(v, axis) * 2 / dot(axis, axis)
    return tuple(along * a - x for a, x in zip(axis, v, strict=True))


def _step(p: Quaternion, u: int, turn: _Turn) -> Step:
    """x -> P x (ū P u) in the frame of 1 and the three unit vectors; the key is |u| P u."""
    one = _axis(turn.field, 0, 0, 0)
    if _is_scalar(p):
        u = 0
    unit: Quaternion = (turn.field.one, *one) if u == 0 else (turn.field.zero, *turn.directions[u - 1])
    k = quaternion(p, unit)
    field = turn.lengths[0].field
    entries = [field.embed(dot(k[1:], e)) / length for e, length in zip(turn.directions, turn.lengths, strict=True)]
    key = (field.embed(k[0]), *entries)
    signs = vector(field, (-1 if i == u else 1 for i in range(4)))
    return (Factor(key, 2 / dot(key, key), signs),)


def _is_scalar(p: Quaternion) -> bool:
    return all(x.is_zero() for x in p[1:])


def quaternion(p: Quaternion, q: Quaternion) -> Quaternion:
    """The product p q."""
    real = p[0] * q[0] - dot(p[1:], q[1:])
    around = cross(p[1:], q[1:])
    return (real, *(p[0] * y + q[0] * x + z for x, y, z in zip(p[1:], q[1:], around, strict=True)))


def _generated(letters: Sequence[Quaternion]) -> _Generated:
    field: Field = letters[0][0].field
    one: Quaternion = vector(field, (1, 0, 0, 0))
    found, number = [one], {one: 0}
    generators = list(dict.fromkeys(letters))
    rows: list[list[int]] = []
    for q in found:
        row: list[int] = []
        for g in generators:
            image = quaternion(g, q)
            if image not in number:
                assert len(found) < 1_000, "the letters generate no small group"
                number[image] = len(found)
                found.append(image)
            row.append(number[image])
        rows.append(row)
    left = np.array(rows, dtype=np.int64)
    table = np.empty((len(found), len(found)), dtype=np.int64)
    table[0] = np.arange(len(found))
    done, queue = {0}, [0]
    for q in queue:
        # The row of g q is that of g after that of q.
        for g in range(len(generators)):
            to = int(left[q, g])
            if to not in done:
                done.add(to)
                queue.append(to)
                table[to] = left[table[q], g]
    return _Generated(Cayley("quaternions", table), number)


def _pairs(
    first: _Generated, second: _Generated, letters: Sequence[int], others: Sequence[int]
) -> tuple[Dfa, list[np.ndarray]]:
    """The automaton of (product, product of the turned letters) up to a common sign, and its letters as maps."""
    minus = tuple(_minus(made) for made in (first, second))
    tables = first.table.table, second.table.table

    def move(letter: tuple[int, int], at: tuple[int, int]) -> tuple[int, int]:
        a, b = int(tables[0][letter[0], at[0]]), int(tables[1][letter[1], at[1]])
        return min((a, b), (int(tables[0][minus[0], a]), int(tables[1][minus[1], b])))

    dfa = explored([*zip(letters, others, strict=True)], (0, 0), move)
    return dfa, [dfa.delta[:, i] for i in range(len(letters))]


def _up_to_sign(
    groups: Sequence[_Generated], letters: Sequence[int], others: Sequence[int]
) -> tuple[list[int], list[int], tuple[list[int], list[int]]]:
    """P and -P take one step: its number for each letter, the first letter of each, and its pair of elements."""
    minus = [made.table.table[_minus(made)] for made in groups]
    keys = [min((g, h), (int(minus[0][g]), int(minus[1][h]))) for g, h in zip(letters, others, strict=True)]
    distinct = list(dict.fromkeys(keys))
    first = [keys.index(key) for key in distinct]
    return [distinct.index(key) for key in keys], first, ([g for g, _ in distinct], [h for _, h in distinct])


def _minus(made: _Generated) -> int:
    one = next(q for q, n in made.number.items() if n == 0)
    return made.number[tuple(-x for x in one)]
