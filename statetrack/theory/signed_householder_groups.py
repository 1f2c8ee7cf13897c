"""What signed Householders can track: hidden groups, frames and axes, queries, and heads reduced to orthogonal ones.

A head with transitions A_h (one for each letter h), start I and no additive term reaches the products of its letters.
If these are finitely many and a decoder works, they are a group Γ and the decoder is a homomorphism onto G (Lemma 11).

Main definitions: `HiddenGroup`, `hidden_group`, `rotation_axes`, `planes_of_axes`, `icosahedral_axes`,
`covering_frames`, `is_fixed`, `separates`, `squared_margin`, `adapted_letters`, `two_sided`, `decoded`, `Affine`,
`Reduction`, `reduction`.

Main results: CKDA Lemma 11, Lemma 12 (and its converse), Lemma 16 with Prop. 13, Props. 20 and 21, on given heads.

References: CKDA Sec. 5, App. B.3 and C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded

from .arrays import Matrix, Vector, dot, identity, matmul, matvec, transpose, vector
from .cayley_tables import quaternion_product
from .fields import Element
from .groups import Permutation, cycles
from .householder import cross
from .number_fields import RealCyclotomic
from .rotations import order

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HiddenGroup:
    """The states that letters reach, identity first, and the group element that each one decodes to.

    `clash` names a state with two elements (then nothing tracks); labels are the first ones met.
    """

    states: tuple[Matrix, ...]
    labels: tuple[int, ...]
    clash: int | None = None

    @property
    def kernel(self) -> int:
        """How many states decode to the identity."""
        return self.labels.count(0)

    def is_group(self) -> bool:
        """Whether the transpose of each state is a state, decoding to the inverse (orthogonal states)."""
        return set(map(transpose, self.states)) == set(self.states)


def hidden_group(letters: Sequence[Matrix], left: Sequence[Sequence[int]], *, most: int = 100_000) -> HiddenGroup:
    """The products of the letters; left[h][g] is the number of the element h g, and A_h has number h.

    Stops at the first clash. Raises BudgetExceeded past `most` states. Source: CKDA Lemma 11.
    """
    one = identity(letters[0][0][0].field, len(letters[0]))
    found: dict[Matrix, int] = {one: 0}
    states = [one]
    for number, state in enumerate(states):
        for h, a in enumerate(letters):
            image, label = matmul(a, state), left[h][found[state]]
            if image not in found:
                if len(states) >= most:
                    raise BudgetExceeded("hidden states", most, "most")
                found[image] = label
                states.append(image)
            elif found[image] != label:
                return HiddenGroup(tuple(states), tuple(found[s] for s in states), number)
    return HiddenGroup(tuple(states), tuple(found[s] for s in states))


def rotation_axes(elements: Sequence[Matrix]) -> tuple[Vector, ...]:
    """One vector on each axis of the rotations of order 3 and more: Prop. 13 wants these axes in a coordinate plane."""
    axes: list[Vector] = []
    for r in elements:
        if order(r) > 2:
            axis = (r[2][1] - r[1][2], r[0][2] - r[2][0], r[1][0] - r[0][1])
            if not any(_parallel(axis, known) for known in axes):
                axes.append(axis)
    return tuple(axes)


def icosahedral_axes(*, twisted: bool = False) -> tuple[Vector, ...]:
    """The 6 axes of order 5 and 10 of order 3 of the icosahedron, over Q(√5).

    `twisted` turns the axes of order 3 out of place, as (0, 1/φ, φ) for (0, φ, 1/φ): a wrong icosahedron.
    """
    field = RealCyclotomic(5)
    golden = (field.one + field.sqrt(5)) / 2
    short = golden - 1
    a, b = (short, golden) if twisted else (golden, short)
    axes = [vector(field, row) for row in ((s, t, 1) for s in (1, -1) for t in (1, -1))]
    for i in range(3):
        for sign in (1, -1):
            for x, y, z in ((field.zero, field.one, golden * sign), (field.zero, a, b * sign)):
                row = (x, y, z)
                axes.append(tuple(row[(j + i) % 3] for j in range(3)))
    return tuple(axes)


def planes_of_axes(axes: Sequence[Vector]) -> dict[frozenset[int], Vector]:
    """Each plane that two of the axes span: the axes in it, and a normal."""
    found: dict[frozenset[int], Vector] = {}
    for i, j in combinations(range(len(axes)), 2):
        if any(i in plane and j in plane for plane in found):
            continue
        normal = cross(axes[i], axes[j])
        found[frozenset(k for k, axis in enumerate(axes) if dot(axis, normal).is_zero())] = normal
    return found


def plane_sizes(axes: Sequence[Vector]) -> dict[int, int]:
    """How many of the planes hold how many of the axes."""
    return dict(sorted(Counter(map(len, planes_of_axes(axes))).items()))


def covering_frames(axes: Sequence[Vector]) -> tuple[tuple[Vector, Vector, Vector], ...]:
    """All orthogonal frames whose three coordinate planes hold all the axes (four or more, no plane holds all of them).

    Three planes that hold four axes or more: two of them hold two axes or more, and their normals determine the third;
    or one does, with normal n, and two axes a, b are alone in theirs, whose normals are n × a and n × b.
    """
    rich = planes_of_axes(axes)
    frames: dict[frozenset[frozenset[int]], tuple[Vector, Vector, Vector]] = {}
    candidates = [(m, n) for m, n in combinations(rich.values(), 2)]
    for plane, n in rich.items():
        alone = [k for k in range(len(axes)) if k not in plane]
        if len(alone) == 2:
            candidates.append((n, cross(n, axes[alone[0]])))
    for m, n in candidates:
        if not dot(m, n).is_zero():
            continue
        frame = (m, n, cross(m, n))
        held = [frozenset(k for k, axis in enumerate(axes) if dot(axis, w).is_zero()) for w in frame]
        if len(frozenset[int]().union(*held)) == len(axes):
            frames[frozenset(held)] = frame
    return tuple(frames.values())


def _parallel(u: Vector, v: Vector) -> bool:
    return all(x.is_zero() for x in cross(u, v))


def is_fixed(states: Sequence[Matrix], q: Vector) -> bool:
    """Whether some state other than the first (the identity) fixes q."""
    return any(matvec(s, q) == q for s in states[1:])


def separates(states: Sequence[Matrix], q: Vector) -> bool:
    """Whether S -> Sᵀ q is injective on the states."""
    return len({matvec(transpose(s), q) for s in states}) == len(states)


def squared_margin(states: Sequence[Matrix], q: Vector) -> Element:
    """The least squared distance of two readouts of a group of states, for q scaled to length 1: 2 - 2 max q·Sq/q·q."""
    return 2 - 2 * max(dot(q, matvec(s, q)) for s in states[1:]) / dot(q, q)


def adapted_letters(n: int, frame: Sequence[Sequence[int]]) -> tuple[Permutation, ...]:
    """The permutations of n points that are signed Householders on the sum-zero space, in an orthogonal frame of it.

    Exact without roots: A S is a reflection iff it is symmetric of trace n - 2, where S = Σ ± f fᵀ/(f·f) + J/n is 1
    on the all-one vector. A permutation that is diagonal in the frame is one too.
    """
    ones = np.ones(n, dtype=np.int64)
    lines = [*(np.array(f, dtype=np.int64) for f in frame), ones]
    scale = int(np.lcm.reduce([int(f @ f) for f in lines]))
    projectors = [np.outer(f, f) * (scale // int(f @ f)) for f in lines]
    signs = [sum(s * p for s, p in zip((*row, 1), projectors, strict=True)) for row in product((1, -1), repeat=n - 1)]
    found: list[Permutation] = []
    for p in permutations(range(n)):
        a = np.eye(n, dtype=np.int64)[:, list(p)].T
        if any(np.array_equal(m, m.T) and np.trace(m) == (n - 2) * scale for m in (a @ s for s in signs)):
            found.append(p)
    return tuple(found)


def cycle_type(p: Permutation) -> tuple[int, ...]:
    """The lengths of the cycles of length 2 and more, longest first."""
    return tuple(sorted((len(c) for c in cycles(p)), reverse=True))


def two_sided(p: Sequence[int], q: Sequence[int]) -> Integers:
    """x -> p x q as a 4 x 4 matrix of integers."""
    basis = np.eye(4, dtype=np.int64)
    left = quaternion_product(np.array([p] * 4), basis)
    return quaternion_product(left, np.array([q] * 4)).T


def decoded(x: Integers) -> Integers:
    """4 f(X): entries tr(L_jᵀ X L_l Xᵀ) for the units j, l = i, j, k; f(L_p R_q) = |q|² times the rotation of p."""
    units = [two_sided(row, (1, 0, 0, 0)) for row in np.eye(4, dtype=np.int64).tolist()[1:]]
    return np.array([[np.trace(a.T @ x @ b @ x.T) for b in units] for a in units])


@dataclass(frozen=True, eq=False)
class Affine:
    """h -> A h + b over the rationals, the joint update of all heads (blocks of A) at one letter."""

    a: fmpq_mat
    b: fmpq_mat

    def __call__(self, h: fmpq_mat) -> fmpq_mat:
        """The next state, a column."""
        return self.a * h + self.b


@dataclass(frozen=True, eq=False)
class Reduction:
    """What is left of a finite-state affine recurrence on the image of an idempotent word.

    `reached` states, `kept` of them in the image X of the idempotent word; `permutations` of X, one a letter. The rest
    are exact findings on the differences of X, spanned by `basis`: the idempotent is an orthogonal projection of the
    differences of all states, the letters map the span onto itself, and they keep inner products there.
    """

    reached: int
    kept: int
    word: tuple[int, ...]
    dimension: int
    permutations: tuple[tuple[int, ...], ...]
    projects: bool
    invariant: bool
    isometric: bool


def reduction(letters: Sequence[Affine], start: fmpq_mat, *, most: int = 20_000) -> Reduction:
    """Reduce as CKDA Props. 20 and 21 do: a word of least image, its idempotent power e, letters on X = e(all states).

    Raises BudgetExceeded past `most` states (with infinitely many there is no end).
    """
    states, maps = _reached(letters, start, most)
    word = _least_word(maps, len(states))
    image, power = np.arange(len(states)), list[int]()
    for _ in range(2 * len(states)):
        image = _through(maps, word, image)
        power += word
        if np.array_equal(image[image], image):
            break
    e = _linear(letters, power)
    kept = np.unique(image)
    place = {int(x): i for i, x in enumerate(kept)}
    moved = tuple(tuple(place[int(image[maps[h][x]])] for x in kept) for h in range(len(letters)))
    everything = _span([s - states[0] for s in states])
    basis = _span([states[int(x)] - states[int(kept[0])] for x in kept])
    # E is an orthogonal projection of the span iff v - E v is orthogonal to E w for all v, w of it, and E E v = E v.
    projects = all(_inner(v - e * v, e * w) == 0 for v in everything for w in everything)
    projects &= all(e * (e * v) == e * v for v in everything)
    images = [[letter.a * v for v in basis] for letter in letters]
    invariant = all(len(_span([*basis, *row])) == len(basis) for row in images)
    isometric = all(
        _inner(row[i], row[j]) == _inner(basis[i], basis[j])
        for row in images
        for i in range(len(basis))
        for j in range(i, len(basis))
    )
    return Reduction(len(states), len(kept), tuple(power), len(basis), moved, projects, invariant, isometric)


def _reached(letters: Sequence[Affine], start: fmpq_mat, most: int) -> tuple[list[fmpq_mat], list[Integers]]:
    """All states, the start first, and each letter as a map of their numbers."""
    number: dict[tuple[Any, ...], int] = {tuple(start.entries()): 0}
    states = [start]
    rows: list[list[int]] = [[] for _ in letters]
    for state in states:
        for row, letter in zip(rows, letters, strict=True):
            image = letter(state)
            key = tuple(image.entries())
            if key not in number:
                if len(states) >= most:
                    raise BudgetExceeded("states of the recurrence", most, "most")
                number[key] = len(states)
                states.append(image)
            row.append(number[key])
    return states, [np.array(row, dtype=np.int64) for row in rows]


def _through(maps: Sequence[Integers], word: Sequence[int], image: Integers) -> Integers:
    for h in word:
        image = maps[h][image]
    return image


def _least_word(maps: Sequence[Integers], count: int) -> list[int]:
    """A word, not empty, whose image of all states is as small as that of any word."""
    met: dict[bytes, list[int]] = {}
    queue: list[tuple[Integers, list[int]]] = [(np.arange(count), [])]
    best, least = [0], count + 1
    for image, word in queue:
        for h, f in enumerate(maps):
            after = np.unique(f[image])
            if after.tobytes() not in met:
                met[after.tobytes()] = [*word, h]
                queue.append((after, [*word, h]))
                if len(after) < least:
                    best, least = [*word, h], len(after)
    return best


def _linear(letters: Sequence[Affine], word: Sequence[int]) -> fmpq_mat:
    total = letters[word[0]].a
    for h in word[1:]:
        total = letters[h].a * total
    return total


def _inner(u: fmpq_mat, v: fmpq_mat) -> fmpq:
    return sum((x * y for x, y in zip(u.entries(), v.entries(), strict=True)), fmpq(0))


def _span(columns: Sequence[fmpq_mat]) -> list[fmpq_mat]:
    """A basis, taken from the columns."""
    size = columns[0].nrows()
    basis: list[fmpq_mat] = []
    rows: list[list[fmpq]] = []
    for column in columns:
        trial = [*rows, list(column.entries())]
        if fmpq_mat(len(trial), size, [x for row in trial for x in row]).rank() == len(trial):
            basis.append(column)
            rows = trial
            if len(basis) == size:
                break
    return basis
