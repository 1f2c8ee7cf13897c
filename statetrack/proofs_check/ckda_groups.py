"""Claims about the groups that one layer of Complex KDA tracks, and about how its states are read.

Main results: CKDA-thm-3 for each group, OURS-cube-frames, OURS-signed-permutations, CKDA-quaternion-encoder,
CKDA-quaternion-states, CKDA-lemma-11, CKDA-lemma-12, OURS-lemma-12-converse, OURS-query-margins.

References: CKDA Sec. 5, App. B.3 and C; docs/constructions.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, permutations, product

import numpy as np

from statetrack.theory.arrays import (
    Matrix,
    add,
    diagonal,
    dot,
    identity,
    matmul,
    matrix,
    matvec,
    scale,
    transpose,
    vector,
)
from statetrack.theory.cayley_tables import Cayley, binary_polyhedral, from_group, quaternion_product
from statetrack.theory.fields import Element
from statetrack.theory.groups import named_group
from statetrack.theory.householder import householder, sign_diagonal, signed_householders
from statetrack.theory.number_fields import RealCyclotomic, rationals
from statetrack.theory.rotations import (
    angle_field,
    cube_frame,
    into_field,
    planar_reflection,
    planar_rotation,
    polyhedral_generators,
    quaternion_outer,
    quaternion_transition,
    signed_permutations,
)
from statetrack.theory.signed_householder_groups import (
    covering_frames,
    decoded,
    hidden_group,
    is_fixed,
    plane_sizes,
    rotation_axes,
    separates,
    squared_margin,
    two_sided,
)

from .claim import Trial, claim
from .grazzi_groups import built, through_kernels

# A quadratic form in four variables is zero if it is zero at these points.
_QUADRATIC = [tuple(int(k in (i, j)) for k in range(4)) for i in range(4) for j in range(i, 4)]


@claim(
    "CKDA-thm-3-cyclic",
    "Z_n is realised in d = 2: rotation by 2πk/n is the reflection at angle πk/n after Diag(1, -1).",
    source="CKDA Thm. 3, App. C.2",
    kinds="E C CL K",
    control={"turn": 2},
)
def cyclic(t: Trial, turn: int = 1) -> None:
    """The identity of H Diag(1, -1) and a rotation as one of quadratic forms; n rotations; certificates."""
    for a, b in product(range(3), repeat=2):
        # The key (-b, a) at angle 90° + t/2 for (a, b) at angle t/2; two forms of degree 2 agree on a 3 x 3 grid.
        rows = [[a * a + b * b - 2 * b * b, 2 * a * b], [2 * a * b, a * a + b * b - 2 * a * a]]
        turned = [[rows[0][0], -rows[0][1]], [rows[1][0], -rows[1][1]]]
        t.equal(f"H Diag(1, -1), a = {a}, b = {b}", turned, [[a * a - b * b, -2 * a * b], [2 * a * b, a * a - b * b]])
    for n in range(1, t.amount(10, 24, 48)):
        field = angle_field(n)
        mirror = diagonal(field, (1, -1))
        letters = [matmul(planar_reflection(field, turn * k, n), mirror) for k in range(n)]
        t.equal(f"rotations, n = {n}", letters, [planar_rotation(field, turn * k, n) for k in range(n)])
        t.equal(f"how many, n = {n}", len(set(letters)), n)
        made = built(f"Z{n}")
        t.certificate(made.certificate.data)
        t.holds(f"sizes for n = {n}", max(made.dims[0]) <= 2 and made.layers == 1, made.dims)
        t.equal(f"factors for n = {n}", made.factors_per_token, int(n > 1))
        if n == 7:
            through_kernels(t, made)


@claim(
    "CKDA-thm-3-dihedral",
    "D_n (order 2n) is realised in d = 2 by n rotations and n reflections.",
    source="CKDA Thm. 3, App. C.2",
    kinds="C CL K",
    control={"mirrors": 2},
)
def dihedral(t: Trial, mirrors: int = 1) -> None:
    """All products r_j r_k = r_(j+k), r_j s_k = s_(j+k), s_j s_k = r_(j-k) of 2n matrices; certificates."""
    for n in range(1, t.amount(8, 16, 30)):
        field = angle_field(n)
        r = [planar_rotation(field, k, n) for k in range(n)]
        s = [planar_reflection(field, mirrors * k, n) for k in range(n)]
        t.equal(f"matrices, n = {n}", len({*r, *s}), 2 * n)
        for j, k in product(range(n), repeat=2):
            got = matmul(r[j], r[k]), matmul(r[j], s[k]), matmul(s[j], s[k])
            t.equal(f"products, n = {n}, {j}, {k}", got, (r[(j + k) % n], s[(j + k) % n], r[(j - k) % n]))
        made = built(f"D{n}")
        t.certificate(made.certificate.data)
        t.holds(f"sizes for n = {n}", max(made.dims[0]) <= 2 and made.layers == 1, made.dims)
        if n == 5:
            through_kernels(t, made)


def _solid(t: Trial, name: str, frame: Matrix) -> None:
    """Each rotation of the solid is a signed Householder in the frame; a certificate of one layer, d = 3."""
    field = frame[0][0].field
    elements = polyhedral_generators({"A4": 3, "S4": 4}[name]).elements
    turned = [matmul(frame, matmul(into_field(m, field), frame)) for m in elements]
    factors = [next(signed_householders(m), None) for m in turned]
    t.equal("signed Householders", sum(f is not None for f in factors), len(elements))
    for m, f in zip(turned, factors, strict=True):
        t.equal("H Diag(signs)", f and f.matrix(), m)
    made = built(name)
    t.certificate(made.certificate.data)
    t.equal("construction", (made.plan.construction, made.layers, made.dims), ("cube", 1, ((3,),)))
    t.equal("hidden states", t.sizes["joint states"], len(elements))
    t.equal("factors and β", (made.factors_per_token, made.program.beta_max), (1, 2))
    through_kernels(t, made)


def _frame(turned: bool) -> Matrix:
    return cube_frame() if turned else identity(cube_frame()[0][0].field, 3)


@claim(
    "CKDA-thm-3-A4",
    "A4 is realised in d = 3 by the rotations of the cube, turned by 45° about a face axis, that keep a tetrahedron.",
    source="CKDA Thm. 3, App. C.3",
    kinds="X CL K",
    control={"turned": False},
    proves=True,
    figure="cube",
)
def tetrahedron(t: Trial, turned: bool = True) -> None:
    """All 12 rotations, and a certificate; in the standard position the 8 of order three fail."""
    _solid(t, "A4", _frame(turned))


@claim(
    "CKDA-thm-3-S4",
    "S4 is realised in d = 3 by the 24 rotations of the cube turned by 45° about a face axis.",
    source="CKDA Thm. 3, App. C.3",
    kinds="X CL K",
    control={"turned": False},
    proves=True,
    figure="cube",
)
def cube(t: Trial, turned: bool = True) -> None:
    """All 24 rotations, and a certificate; in the standard position only 16 are signed Householders."""
    _solid(t, "S4", _frame(turned))


@claim(
    "OURS-cube-frames",
    "Exactly three frames make all rotations of the cube signed Householders, and the same three for the tetrahedron: "
    "the 45° turns about the face axes.",
    source="groups by signed Householders; CKDA App. C.3 gives one",
    kinds="X",
    control={"count": 4},
    hypotheses=("axis criterion CKDA-prop-13",),
    proves=True,
    figure="cube",
)
def frames(t: Trial, count: int = 3) -> None:
    """All frames whose coordinate planes hold the axes of order 3 and more, from pairs of planes through two axes."""
    for k, axes in ((3, 4), (4, 7)):
        found = rotation_axes(polyhedral_generators(k).elements)
        t.equal(f"axes, solid {k}", len(found), axes)
        t.equal(f"planes by axes held, solid {k}", plane_sizes(found), {3: {2: 6}, 4: {2: 3, 3: 6}}[k])
        covers = covering_frames(found)
        t.equal(f"frames, solid {k}", len(covers), count)
        for frame in covers:
            zeros = sorted(sum(x.is_zero() for x in v) for v in frame)
            t.equal("one face axis, two edge axes", zeros, [1, 1, 2])


@claim(
    "OURS-signed-permutations",
    "Of the 2^d d! signed permutation matrices exactly 2^d (1 + d(d - 1)/2) are signed Householders, for d ≤ 4: those "
    "of the identity and of swaps. For d = 3 signed Householders are not closed under products.",
    source="CKDA Sec. 5 (definition of signed Householders)",
    kinds="X",
    control={"moved": 3},
    proves=True,
)
def signed_permutation_matrices(t: Trial, moved: int = 2) -> None:
    """All signed permutation matrices, and one product of two signed Householders that is none."""
    field = rationals()
    for d in range(1, 5):
        found = 0
        for p, signs in product(permutations(range(d)), product((1, -1), repeat=d)):
            m = matrix(field, [[signs[i] if p[i] == j else 0 for j in range(d)] for i in range(d)])
            fits = next(signed_householders(m), None) is not None
            found += fits
            t.equal(f"permutation {p}, signs {signs}", fits, sum(i != j for i, j in enumerate(p)) <= moved)
        t.equal(f"how many, d = {d}", found, 2**d * (1 + math.comb(d, 2)))
    one, other = (
        matmul(householder(vector(field, w), field.one), diagonal(field, signs))
        for w, signs in (((1, 1, 0), (1, 1, -1)), ((0, 1, 1), (-1, 1, 1)))
    )
    t.equal("factorisations of a product", list(signed_householders(matmul(one, other))), [])


@claim(
    "CKDA-thm-3-A5",
    "A5 is tracked in d = 4 by x ↦ a x a, one signed Householder a letter, a the unit quaternion of the rotation.",
    source="CKDA Thm. 3, App. C.4",
    kinds="X CL K",
    control={"signs": (1, 1, 1, 1)},
    proves=True,
    figure="quaternions",
)
def icosahedron(t: Trial, signs: tuple[int, ...] = (-1, 1, 1, 1)) -> None:
    """All 60 letters: (I - 2 a aᵀ) Diag(-1, 1, 1, 1) is x ↦ a x a; CKDA-quaternion-encoder then proves tracking.

    The certificate has all 60 letters (7,200 states) but in the fast budget, where it has two generators.
    """
    units = np.eye(4, dtype=np.int64).tolist()
    for r in polyhedral_generators(5).elements:
        outer, g = quaternion_outer(r), quaternion_transition(r)
        field = outer[0][0].field
        expected = diagonal(field, (0, 0, 0, 0))
        for i, j in product(range(4), repeat=2):
            expected = add(expected, scale(outer[i][j], matrix(field, two_sided(units[i], units[j]).tolist())))
        t.equal("one signed Householder", matmul(householder(g.w, g.c), sign_diagonal(g.w, signs)), expected)
    made = built("A5", letters="generators" if t.budget == "fast" else "all")
    t.certificate(made.certificate.data)
    t.equal("construction", (made.plan.construction, made.layers, made.dims), ("quaternion", 1, ((4,),)))
    t.equal("factors and β", (made.factors_per_token, made.program.beta_max), (1, 2))
    through_kernels(t, made)


@claim(
    "CKDA-quaternion-encoder",
    "For all unit quaternions a: (I - 2 a aᵀ) Diag(-1, 1, 1, 1) is x ↦ a x a, and f(X)_jl = tr(L_jᵀ X L_l Xᵀ)/4 "
    "decodes it: f(g(R) X) = R f(X) for X = L_p R_q.",
    source="CKDA App. C.4.2",
    kinds="E",
    control={"swapped": True},
    proves=True,
    figure="quaternions",
)
def encoder(t: Trial, swapped: bool = False) -> None:
    """Two identities of quadratic forms (in p and in q), each at the points that determine one.

    4 f(L_p R_q) = 4 |q|² Rot(p), with Rot(p) v = p v p̄; so f(L_a R_a L_p R_q) = Rot(a p) = Rot(a) Rot(p) for units.
    """
    for a in _QUADRATIC:
        square, outer = sum(x * x for x in a), np.outer(a, a)
        reflected = (square * np.eye(4, dtype=np.int64) - 2 * outer) @ np.diag([-1, 1, 1, 1])
        t.equal(f"(|a|² I - 2 a aᵀ) D, a = {a}", reflected.tolist(), two_sided(a, a).tolist())
    for p, q in product(_QUADRATIC, repeat=2):
        conjugate = (p[0], -p[1], -p[2], -p[3])
        rotation = two_sided(p, conjugate)[1:, 1:]
        got = decoded(two_sided(q, p) if swapped else two_sided(p, q))
        t.equal(f"f(L_p R_q), p = {p}, q = {q}", got.tolist(), (4 * sum(x * x for x in q) * rotation).tolist())


def _lift(name: str) -> Cayley:
    """The group of unit quaternions over a rotation group: 2T, 2O, 2I, or by name."""
    return binary_polyhedral({"A4": 3, "S4": 4, "A5": 5}[name]) if name in ("A4", "S4", "A5") else from_group(
        named_group(f"Z{2 * int(name[1:])}" if name[0] == "Z" else f"Q{4 * int(name[1:])}"))  # fmt: skip


@claim(
    "CKDA-quaternion-states",
    "The quaternion tracker of G reaches |G| |[2G, 2G]| states, 2G the unit quaternions over G: 96 for A4, 576 for S4, "
    "7,200 for A5, n for Z_n and 2n² for D_n with n ≤ 7.",
    source="CKDA App. C.4.2",
    kinds="X",
    control={"opposite": False},
    proves=True,
    figure="quaternions",
)
def quaternion_states(t: Trial, opposite: bool = True) -> None:
    """Pairs (P, Q) up to a common sign moved by P ← a P, Q ← Q a for all letters a; only then is X = L_P R_Q."""
    counts = {"A4": 96, "S4": 576, "A5": 7200}
    counts |= {f"Z{n}": n for n in range(1, 8)} | {f"D{n}": 2 * n * n for n in range(2, 8)}
    for name, expected in counts.items():
        lift = _lift(name)
        minus = next(x for x in range(lift.order) if lift.orders[x] == 2)
        letters = np.unique(np.minimum(np.arange(lift.order), lift.table[minus]))
        met = np.zeros((lift.order, lift.order), dtype=bool)
        met[0, 0] = met[minus, minus] = True
        p, q = np.array([0, minus]), np.array([0, minus])
        while len(p):
            p, after = lift.table[letters[:, None], p], (lift.table[q, letters[:, None]] if opposite else
                                                          lift.table[letters[:, None], q])  # fmt: skip
            new = np.zeros_like(met)
            new[p.ravel(), after.ravel()] = True
            p, q = np.nonzero(new & ~met)
            met |= new
        reached = int(met.sum()) // 2
        t.equal(f"states of {name}", reached, expected)
        derived = len(lift.derived(np.arange(lift.order)))
        t.equal(f"|G| |[2G, 2G]| for {name}", lift.order // 2 * derived, expected)


def _planar(n: int) -> tuple[list[Matrix], list[list[int]]]:
    """The matrices of D_n, r_k at k and s_k at n + k, and the table of products."""
    field = angle_field(n)
    matrices = [planar_rotation(field, k, n) for k in range(n)] + [planar_reflection(field, k, n) for k in range(n)]
    return matrices, _table(matrices)


def _table(matrices: Sequence[Matrix]) -> list[list[int]]:
    number = {m: i for i, m in enumerate(matrices)}
    return [[number[matmul(a, b)] for b in matrices] for a in matrices]


@claim(
    "CKDA-lemma-11",
    "The hidden states of a finite-state tracker are the group that its letters generate, and the decoder is a "
    "homomorphism onto G.",
    source="CKDA Lemma 11",
    kinds="X",
    control={"spoil": True},
    hypotheses=("invertible letters, no additive term",),
)
def hidden_groups(t: Trial, spoil: bool = False) -> None:
    """Trackers of D_n, S4 and A4: all states, transposes among them, no clash; A4 in d = 4 has a kernel of 8."""
    trackers = {f"D{n} in d = 2": (*_planar(n), 2 * n, 1) for n in range(1, t.amount(5, 8, 12))}
    frame = cube_frame()
    field = frame[0][0].field
    turned = [matmul(frame, matmul(into_field(m, field), frame)) for m in signed_permutations(rationals())]
    turned.sort(key=lambda m: m != identity(field, 3))
    trackers["S4 in d = 3"] = (turned, _table(turned), 24, 1)
    four = list(polyhedral_generators(3).elements)
    trackers["A4 in d = 4"] = ([quaternion_transition(m).matrix() for m in four], _table(four), 96, 8)
    for name, (letters, left, size, kernel) in trackers.items():
        if spoil:
            letters = [letters[-1], *letters[1:]]
        found = hidden_group(letters, left)
        t.equal(f"state with two elements, {name}", found.clash, None)
        t.equal(f"states and kernel, {name}", (len(found.states), found.kernel), (size, kernel))
        t.holds(f"transposes are states, {name}", found.is_group())
        t.equal(f"elements decoded, {name}", len(set(found.labels)), len(letters))


def _groups(t: Trial) -> dict[str, tuple[Matrix, ...]]:
    """Finite orthogonal groups, the identity first."""
    found = {f"D{n}": tuple(_planar(n)[0]) for n in range(2, t.amount(6, 10, 16))}
    found |= {"A4": polyhedral_generators(3).elements, "S4": polyhedral_generators(4).elements}
    return found


@claim(
    "CKDA-lemma-12",
    "For a finite orthogonal group, S ↦ Sᵀq is injective if no S ≠ I fixes q; such q exist.",
    source="CKDA Lemma 12",
    kinds="X",
    control={"rotations_only": True},
)
def queries(t: Trial, rotations_only: bool = False) -> None:
    """All integer queries in a box, exactly: D_n, and the rotations of the tetrahedron and the cube."""
    for name, states in _groups(t).items():
        looked = states[: len(states) // 2] if rotations_only and name[0] == "D" else states
        free = 0
        for q in _box(len(states[0]), t.amount(2, 4)):
            v = vector(states[0][0][0].field, q)
            if not is_fixed(looked, v):
                free += 1
                t.holds(f"{name}: {q} tells the states apart", separates(states, v))
        t.holds(f"{name}: some query is free", free > 0)


@claim(
    "OURS-lemma-12-converse",
    "If some S ≠ I fixes q then S ↦ Sᵀq is not injective: Lemma 12 is an equivalence.",
    source="CKDA Lemma 12 states one direction",
    kinds="X",
    control={"tolerant": True},
)
def queries_converse(t: Trial, tolerant: bool = False) -> None:
    """S and I read the same. All integer queries in a box that are fixed; the control takes those that are not."""
    for name, states in _groups(t).items():
        for q in _box(len(states[0]), t.amount(2, 4)):
            v = vector(states[0][0][0].field, q)
            if is_fixed(states, v) != tolerant:
                t.holds(f"{name}: {q} reads two states alike", not separates(states, v))


def _box(d: int, size: int) -> list[tuple[int, ...]]:
    """Integer vectors up to sign, not zero."""
    rows = product(range(-size, size + 1), repeat=d)
    return [row for row in rows if any(row) and row > tuple(-x for x in row)]


@claim(
    "OURS-query-margins",
    "For unit q the least distance of two readouts is the least |Sq - q|, S ≠ I: squared, 3/2 - √2 for the cube and "
    "the tetrahedron turned by 45° at (0, 1, -1), 1/3 for A4 in d = 4 at (0, 1, -1, -1), 1 - 4√5/9 for A5 at "
    "(0, 1, -2, -2).",
    source="CKDA Lemma 12, which names no distance",
    kinds="X",
    control={"wrong_by": 1},
    proves=True,
)
def margins(t: Trial, wrong_by: int = 0) -> None:
    """All states of each group, exactly; for the tetrahedron also all pairs of readouts."""
    frame = cube_frame()
    sqrt2 = frame[0][0] * 2
    for k in (3, 4):
        turned = [matmul(frame, matmul(into_field(m, sqrt2.field), frame)) for m in polyhedral_generators(k).elements]
        q = vector(sqrt2.field, (0, 1, -1))
        got = squared_margin(turned, q)
        t.equal(f"squared margin, solid {k}", got, sqrt2.field(3) / 2 - sqrt2 + wrong_by)
        readouts = [matvec(transpose(m), q) for m in turned] if k == 3 else []
        gaps = [tuple(x - y for x, y in zip(u, v, strict=True)) for u, v in combinations(readouts, 2)]
        if gaps:
            t.equal("least squared distance of two readouts", min(dot(g, g) for g in gaps) / dot(q, q), got)
    four = list(polyhedral_generators(3).elements)
    found = hidden_group([quaternion_transition(m).matrix() for m in four], _table(four))
    t.equal("squared margin, A4", squared_margin(found.states, vector(rationals(), (0, 1, -1, -1))) * 3, 1)
    t.equal("squared margin, A5", _icosian_margin((0, 1, -2, -2)) * 9, 9 - 4 * RealCyclotomic(5).sqrt(5))


def _icosian_margin(q: tuple[int, ...]) -> Element:
    """2 - 2 max q·(P q Q)/q·q over all pairs of 2I but ±(1, 1), all states of A5's tracker; q·(P q Q) = (q Q̄)·(P q)."""
    group, field = binary_polyhedral(5), RealCyclotomic(5)
    moved = np.moveaxis(group.elements, 2, 0)
    copies = np.broadcast_to(np.array(q), moved.shape)
    u = quaternion_product(moved, copies)
    v = quaternion_product(copies, moved * np.array([1, -1, -1, -1]))
    (a, b), (c, d) = u, v
    # (a + b φ)(c + d φ) with φ² = φ + 1, of vectors with twice their coordinates.
    ones, golden = a @ c.T + b @ d.T, a @ d.T + b @ c.T + b @ d.T
    minus = int(np.flatnonzero(group.orders == 2)[0])
    values = {
        (int(x), int(y))
        for (i, j), x, y in zip(np.ndindex(ones.shape), ones.flat, golden.flat, strict=True)
        if (i, j) not in ((0, 0), (minus, minus))
    }
    phi = (field.one + field.sqrt(5)) / 2
    return 2 - 2 * max(x + y * phi for x, y in values) / 4 / sum(x * x for x in q)
