"""One-layer trackers of permutation automata and rotation groups, and the two-layer reflection tracker of Z_m.

Every function takes a `Source` and returns a program that is not closed yet: what its readouts mean is found, and
proved, by the search in `closure`. None means that the construction does not apply.

Main definitions: `trivial`, `sign_heads`, `planar`, `polyhedral`, `quaternion`, `permutation`, `modular`, `dense`,
`direct_product`.

Main results: claims CKDA-thm-3 (cyclic, dihedral, A4, S4, A5), GRAZZI-thm-3 (permutation automata, cyclic, parity),
GRAZZI-thm-6 (addition modulo m by two layers of reflections).

References: CKDA Thm. 3 and App. C; Grazzi et al. Thms. 3 and 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import CertificateFailed
from statetrack.theory.arrays import Matrix, Vector, identity, matmul, matrix, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Field
from statetrack.theory.groups import Group, GroupShape, recognise, words_in
from statetrack.theory.householder import rotation_by_reflections, signed_householders
from statetrack.theory.number_fields import RealCyclotomic, rationals
from statetrack.theory.rotations import (
    angle_field,
    cube_frame,
    into_field,
    planar_key,
    polyhedral_generators,
    quaternion_transition,
)

from .factorise import swaps
from .margins import best_query, centred_ramp, dihedral_query
from .program import Dense, Factor, Head, Layer, LayerInput, Lookup, Program, Step, head_orbit
from .source import Source

# Matrices on points are dense here: past this a matrix a letter would fill the memory, and no kernel would run it.
MOST_POINTS = 512


def trivial(source: Source) -> Program | None:
    """One state: a hidden number that never moves."""
    if len(source.dfa.states) != 1:
        return None
    field = rationals()
    return _one_head(source.dfa, identity(field, 1), [() for _ in source.dfa.alphabet], vector(field, (1,)))


def sign_heads(source: Source, *, gates: bool) -> Program | None:
    """Elementary abelian 2-groups: one scalar head a generator, -1 as a gate (diagonal targets) or as a reflection.

    Parity is the case of one head. Source: Grazzi et al. Thm. 1, Thm. 3 (m = 2).
    """
    group = source.group
    if group is None or group.order < 2 or any(group.multiply(g, g) for g in range(group.order)):
        return None
    coordinates: dict[int, tuple[int, ...]] = {0: ()}
    for g in range(group.order):
        if g not in coordinates:
            with_g = {group.multiply(g, h): (*c, 1) for h, c in coordinates.items()}
            coordinates = {h: (*c, 0) for h, c in coordinates.items()} | with_g
    field = rationals()
    one, minus = vector(field, (1,)), vector(field, (-1,))
    flip: Step = (Factor(vector(field, (0,)), field.zero, minus),) if gates else (Factor(one, field(2)),)
    count = int(math.log2(group.order))
    heads = [token_head((one,), [flip if coordinates[g][i] else () for g in source.letters], one) for i in range(count)]
    return open_program(source.dfa, (Layer(tuple(heads)),))


def planar(source: Source, *, gates: bool) -> Program | None:
    """Cyclic and dihedral groups in d = 2: rotations by 2πk/n as H Diag(1, -1) (one CKDA factor) or as two reflections.

    Keys are unit vectors of K_lcm(4, 2n). Source: CKDA Thm. 3 and Grazzi et al. Thm. 3 (cyclic).
    """
    group, shape = source.group, _shape(source)
    if group is None or shape is None or shape.kind == "polyhedral" or group.order < 3:
        return None
    n, field = shape.n, angle_field(shape.n)
    where = _planar_numbers(group, shape)
    mirror = Factor(planar_key(field, 0, n), field(2))
    diagonal = vector(field, (1, -1))

    def step(g: int) -> Step:
        k, reflected = where[g]
        reflection = Factor(planar_key(field, k, n), field(2))
        if reflected:
            return (reflection,)
        if k == 0:
            return ()
        return (Factor(reflection.w, reflection.c, diagonal),) if gates else (mirror, reflection)

    query = vector(field, (1, 0)) if shape.kind == "cyclic" else dihedral_query(field, n)
    return _one_head(source.dfa, identity(field, 2), [step(g) for g in source.letters], query)


def polyhedral(source: Source, *, gates: bool) -> Program | None:
    """A4 and S4 on the cube turned by 45 degrees (CKDA, d = 3, one factor); A4, S4, A5 as two reflections (d = 3).

    Source: CKDA Thm. 3 (A4, S4); every rotation of space is a product of two reflections.
    """
    group, shape = source.group, _shape(source)
    if group is None or shape is None or shape.kind != "polyhedral" or (gates and shape.n == 5):
        return None
    rotations = _rotations(group, shape)
    if gates:
        frame = cube_frame()
        field = frame[0][0].field
        rotations = tuple(matmul(frame, matmul(into_field(r, field), frame)) for r in rotations)
        found = [signed_step(rotations[g]) for g in source.letters]
        steps = [step for step in found if step is not None]
        if len(steps) < len(found):
            raise CertificateFailed("letter as one signed Householder", "no factorisation", "one (CKDA Prop. 13)")
    else:
        field = rotations[0][0][0].field
        steps = [tuple(Factor(w, c) for w, c in rotation_by_reflections(rotations[g])) for g in source.letters]
    return _searched(source, field, 3, steps)


def quaternion(source: Source) -> Program | None:
    """Every finite rotation group in d = 4 by x -> a x a, one CKDA factor, many hidden states to one element.

    Source: CKDA Thm. 3 (A5), App. C: |states| = |G| |[2G, 2G]|, 7,200 for A5.
    """
    group, shape = source.group, _shape(source)
    if group is None or shape is None or group.order < 2:
        return None
    rotations = _rotations(group, shape)
    one = identity(rotations[0][0][0].field, 3)
    steps: list[Step] = []
    for g in source.letters:
        factor = quaternion_transition(rotations[g])
        signs = vector(factor.c.field, factor.signs)
        steps.append(() if rotations[g] == one else (Factor(factor.w, factor.c, signs),))
    return _searched(source, rotations[0][0][0].field, 4, steps)


def permutation(source: Source) -> Program | None:
    """Permutation automata by n - #cycles reflections a letter, w = e_i - e_j, c = 1 (β = 2), in dimension n.

    Source: Grazzi et al. Thm. 3, with the exact count of reflections.
    """
    if not source.dfa.is_permutation() or points(source) > MOST_POINTS:
        return None
    field, maps = rationals(), point_maps(source)
    steps = [tuple(swaps(field, p)) for p in maps]
    return _on_points(source, field, steps, maps)


def dense(source: Source) -> Program | None:
    """Any automaton with one 0/1 matrix a letter; norm √(largest number of states a letter merges).

    An automaton's hidden state is the unit column of its state: K = states, V = 1. A group's elements are not its
    points: K = points, and V columns follow enough points to tell the elements apart (all of up to 16).
    """
    field = rationals()
    if points(source) > MOST_POINTS:
        return None
    if source.dfa.is_permutation():
        maps = point_maps(source)
    else:
        maps = [tuple(int(q) for q in source.dfa.delta[:, s]) for s in range(len(source.dfa.alphabet))]
    n = len(maps[0]) if maps else len(source.dfa.states)
    steps: list[Step] = [(Dense(matrix(field, ((int(p[j] == i) for j in range(n)) for i in range(n)))),) for p in maps]
    return _on_points(source, field, steps, maps)


def modular(source: Source) -> Program | None:
    """Addition modulo m by two layers of reflections.

    Layer 1 flips a sign each token, layer 2 reflects in a mirror that depends on the letter and on the parity of time.
    Source: Grazzi et al. Thm. 6 (read with y_t summed to t).
    """
    group, shape = source.group, _shape(source)
    if group is None or shape is None or shape.kind != "cyclic" or group.order < 3:
        return None
    m, where = shape.n, _planar_numbers(group, shape)
    field = angle_field(2 * m)
    one = vector(field, (1,))
    flip: Step = (Factor(one, field(2)),)
    signs = Head((one,), (flip,), (one,), Lookup(lambda key: (0, 0)), {(field(1),): 0, (field(-1),): 1})

    def mirror(key: LayerInput) -> Step:
        token, odd = key
        k = where[source.letters[token]][0]
        # Reflection at angle θ(k, odd) = (1 - 2k)π/m at odd times, (1 + 2k)π/m at even ones; its key is at θ/2 + π/2.
        return (Factor(planar_key(field, 1 - 2 * k if odd else 1 + 2 * k, 2 * m), field(2)),)

    steps = list(dict.fromkeys(mirror((t, odd)) for t in range(len(source.letters)) for odd in (0, 1)))
    number = {step: i for i, step in enumerate(steps)}
    head = Head(
        identity(field, 2), tuple(steps), (dihedral_query(field, 2 * m),), Lookup(lambda key: (number[mirror(key)], 0))
    )
    return open_program(source.dfa, (Layer((signs,)), Layer((head,))))


def direct_product(source: Source, single: Callable[[Source], Program | None]) -> Program | None:
    """A named product: the heads of one-layer trackers of its factors side by side, over a common field."""
    group = source.group
    if group is None or not group.factors or source.on_states:
        return None
    numbers = np.unravel_index(np.array(source.letters, dtype=np.int64), [g.order for g in group.factors])
    parts: list[Program] = []
    for factor, letters in zip(group.factors, numbers, strict=True):
        part = single(_factor_source(source, factor, tuple(int(g) for g in letters)))
        if part is None or len(part.layers) != 1:
            return None
        parts.append(part)
    conductors = [p.field.N for p in parts if isinstance(p.field, RealCyclotomic)]
    field = RealCyclotomic(math.lcm(*conductors))
    heads = [_embedded(field, head) for p in parts for head in p.layers[0].heads]
    return open_program(source.dfa, (Layer(tuple(heads)),))


def _factor_source(source: Source, factor: Group, letters: tuple[int, ...]) -> Source:
    """One direct factor as a source over the product's alphabet (letters may repeat)."""
    table = np.column_stack([factor.left(g) for g in letters]).astype(np.int32)
    dfa = Dfa(source.dfa.alphabet, factor.labels, 0, table, factor.labels)
    return Source(factor.name, dfa, factor, letters, False)


def _embedded(field: RealCyclotomic, head: Head) -> Head:
    def lift(v: Vector) -> Vector:
        return tuple(field.embed(x) for x in v)

    def step(factors: Step) -> Step:
        return tuple(
            Factor(lift(f.w), field.embed(f.c), None if f.alpha is None else lift(f.alpha))
            for f in factors
            if isinstance(f, Factor)
        )

    return Head(tuple(map(lift, head.h0)), tuple(map(step, head.steps)), tuple(map(lift, head.queries)), head.choose)


def _shape(source: Source) -> GroupShape | None:
    return None if source.group is None else recognise(source.group)


def _planar_numbers(group: Group, shape: GroupShape) -> dict[int, tuple[int, bool]]:
    """Each element as x^k or x^k y."""
    where: dict[int, tuple[int, bool]] = {}
    power = 0
    for k in range(shape.n):
        where[power] = (k, False)
        if shape.kind == "dihedral":
            where[group.multiply(power, shape.y)] = (k, True)
        power = group.multiply(shape.x, power)
    return where


def _rotations(group: Group, shape: GroupShape) -> tuple[Matrix, ...]:
    """The rotation of space of each element."""
    if shape.kind == "polyhedral":
        pair = polyhedral_generators(shape.n)
        images, generators = (pair.x, pair.y), (shape.x, shape.y)
    else:
        field = RealCyclotomic(math.lcm(4, shape.n))
        c, s = field.cos(1, shape.n), field.sin(1, shape.n)
        turn = matrix(field, ((c, -s, 0), (s, c, 0), (0, 0, 1)))
        flip = matrix(field, ((1, 0, 0), (0, -1, 0), (0, 0, -1)))
        images, generators = (turn, flip), (shape.x, shape.y)
        if shape.kind == "cyclic":
            images, generators = images[:1], generators[:1]
    words = words_in(group, generators)
    made: dict[tuple[int, ...], Matrix] = {(): identity(images[0][0][0].field, 3)}
    for word in sorted(words, key=len):
        if word not in made:
            # A shortest word without its first letter is the shortest word of another element.
            made[word] = matmul(images[word[0]], made[word[1:]])
    return tuple(made[word] for word in words)


def signed_step(a: Matrix) -> Step | None:
    """An orthogonal matrix as at most one factor, if it is a signed Householder; no factor for the identity."""
    if a == identity(a[0][0].field, len(a)):
        return ()
    found = next(signed_householders(a), None)
    return None if found is None else (Factor(found.w, found.c, vector(found.c.field, found.signs)),)


def _searched(source: Source, field: Field, size: int, steps: Sequence[Step]) -> Program:
    assert source.group is not None
    return open_head(source.dfa, field, size, steps, [source.group.left(g) for g in source.letters])


def open_head(
    dfa: Dfa, field: Field, size: int, steps: Sequence[Step], products: Sequence[NDArray[np.int32]]
) -> Program:
    """One head that starts at I and takes steps[i] at letter i, which sends element g to products[i][g]; its query is
    searched over the states that it reaches."""
    one = identity(field, size)
    head = token_head(one, steps, one[0])
    step_of = [head.choose((token,))[0] for token in range(len(steps))]
    return _one_head(dfa, one, steps, vector(field, separating_query(head, step_of, products)))


def separating_query(head: Head, step_of: Sequence[int], products: Sequence[NDArray[np.int32]]) -> tuple[int, ...]:
    """A query that tells hidden states of different elements apart, for a finite orthogonal head that starts at I.

    Letter number i takes step_of[i] and sends element g to products[i][g]; element 0 is the identity.
    """
    orbit = head_orbit(head, max_states=1_000_000)
    elements, done = np.zeros(1, dtype=np.int32), 0
    while done < len(elements):
        frontier = np.arange(done, len(elements), dtype=np.int32)
        done = len(elements)
        for step, product in zip(step_of, products, strict=True):
            images = orbit.move(step, frontier)
            elements = np.concatenate([elements, np.full(len(orbit) - len(elements), -1, dtype=np.int32)])
            elements[images] = product[elements[frontier]]
    columns = orbit.columns.to_floats()
    states = columns[orbit.rows(range(len(orbit)))].transpose(0, 2, 1)
    # Two hidden states of different elements must read differently, whatever the automaton calls them: only then is
    # the distance of their readouts that of q from the image of q under an element other than the identity.
    return best_query(states, elements != 0)


def points(source: Source) -> int:
    """How many points the letters move: states of an automaton, or points of a group."""
    return len(source.dfa.states) if source.on_states or source.group is None else source.group.degree


def point_maps(source: Source) -> list[tuple[int, ...]]:
    """For a permutation automaton: what each letter does to the points the construction moves."""
    if source.on_states or source.group is None:
        return [tuple(int(q) for q in source.dfa.delta[:, s]) for s in range(len(source.dfa.alphabet))]
    return [source.group.permutation(g) for g in source.letters]


def _on_points(source: Source, field: Field, steps: Sequence[Step], maps: Sequence[Sequence[int]]) -> Program:
    """Points moved by the letters, read by a ramp."""
    n = len(maps[0]) if maps else len(source.dfa.states)
    return _one_head(source.dfa, point_columns(source, field, n), steps, centred_ramp(field, n))


def point_columns(source: Source, field: Field, n: int) -> Matrix:
    """States of an automaton: the unit column of the start. Elements of a group: unit columns of enough points."""
    one = identity(field, n)
    if source.on_states or source.group is None:
        return (one[source.dfa.start],)
    return one if n <= 16 else tuple(one[i] for i in base_points(source.group))


def base_points(group: Group) -> list[int]:
    """Points whose images determine the element (greedy)."""
    chosen: list[int] = []
    stabiliser = group.elements
    while len(stabiliser) > 1:
        moved = (stabiliser != np.arange(group.degree)).sum(axis=0)
        point = int(np.argmax(moved))
        chosen.append(point)
        stabiliser = stabiliser[stabiliser[:, point] == point]
    return chosen or [0]


def token_head(columns: Sequence[Vector], steps: Sequence[Step], query: Vector) -> Head:
    """A head whose step depends on the token only; equal steps are kept once."""
    distinct = list(dict.fromkeys(steps))
    number = {step: i for i, step in enumerate(distinct)}
    which = [number[step] for step in steps]
    return Head(tuple(columns), tuple(distinct), (query,), Lookup(lambda key: (which[key[0]], 0)))


def _one_head(dfa: Dfa, columns: Matrix, steps: Sequence[Step], query: Vector) -> Program:
    """One layer with one head; `columns` are given as the rows of a matrix (H_0 transposed)."""
    return open_program(dfa, (Layer((token_head(columns, steps, query),)),))


def open_program(dfa: Dfa, layers: tuple[Layer, ...]) -> Program:
    """Layers for an automaton over the field of the last head, with what they mean still to be found by a search."""
    field = layers[-1].heads[-1].field
    return Program(field, dfa.alphabet, layers, dfa.outputs, dfa.outputs[dfa.start])
