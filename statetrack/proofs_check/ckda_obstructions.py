"""Claims about groups that one layer of Complex KDA does not track: A5 in d = 3, and S5 (Thm. 4) and others at all.

Main results: CKDA-prop-13, CKDA-lemma-16, CKDA-A5-dimension-3, OURS-A5-no-realisation, CKDA-prop-20, CKDA-prop-21,
CKDA-lemma-23, CKDA-thm-4, OURS-one-layer-obstructions, OURS-quaternion-laws, OURS-laws-of-squares, OURS-forty-letters.

References: CKDA Sec. 5, App. C; docs/constructions.md.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import numpy as np
from flint import fmpq, fmpq_mat

from statetrack.constructions.refutations import refute
from statetrack.constructions.source import from_group
from statetrack.constructions.targets import target
from statetrack.errors import NotExpressible
from statetrack.theory.arrays import Matrix, matrix, trace
from statetrack.theory.cayley_tables import (
    Cayley,
    QuaternionGroup,
    binary_polyhedral,
    obstruction,
    projective,
    quaternion_product,
    semidirect,
    special_linear,
)
from statetrack.theory.cayley_tables import (
    from_group as table_of,
)
from statetrack.theory.groups import Permutation, named_group, permutation_group
from statetrack.theory.householder import signed_householders
from statetrack.theory.number_fields import rationals
from statetrack.theory.rotations import has_axis_zero, order, polyhedral_generators
from statetrack.theory.signed_householder_groups import (
    Affine,
    Reduction,
    adapted_letters,
    covering_frames,
    cycle_type,
    icosahedral_axes,
    plane_sizes,
    reduction,
    rotation_axes,
    two_sided,
)

from .claim import Trial, claim

_QUADRATIC = [tuple(int(k in (i, j)) for k in range(4)) for i in range(4) for j in range(i, 4)]


@claim(
    "CKDA-prop-13",
    "A rotation of space is a signed Householder iff it is the identity, a half turn, or has an axis with a zero "
    "coordinate.",
    source="CKDA Prop. 13, App. C.1",
    kinds="X P",
    control={"half_turns": False},
    figure="cube",
)
def axis_criterion(t: Trial, half_turns: bool = True) -> None:
    """All rotations of integer quaternions in a box, and of the solids, against all factorisations."""
    size = t.amount(2, 3, 5)
    rows = [p for p in product(range(-size, size + 1), repeat=4) if any(p) and p > tuple(-x for x in p)]
    rotations = {p: _rotation(p) for p in rows}
    for p, r in rotations.items():
        # The axis is the imaginary part; a real part of zero is a half turn.
        expected = not all(p[1:]) or (half_turns and p[0] == 0)
        t.equal(f"one signed Householder, quaternion {p}", next(signed_householders(r), None) is not None, expected)
        t.equal(f"the criterion, quaternion {p}", has_axis_zero(r), expected)
    for r in (*polyhedral_generators(4).elements, *polyhedral_generators(5).elements):
        t.equal("rotation of a solid", next(signed_householders(r), None) is not None, has_axis_zero(r))


def _rotation(p: tuple[int, ...]) -> Matrix:
    """v -> p v p^-1 over the rationals."""
    field, square = rationals(), sum(x * x for x in p)
    rows = two_sided(p, (p[0], -p[1], -p[2], -p[3]))[1:, 1:].tolist()
    return matrix(field, [[field(x) / square for x in row] for row in rows])


@claim(
    "CKDA-lemma-16",
    "No plane through the centre holds more than four of the icosahedron's 16 axes of order three and five: of the "
    "planes through two, 15 hold four and 30 hold two.",
    source="CKDA Lemma 16",
    kinds="X",
    control={"twisted": True},
    proves=True,
    figure="icosahedron",
)
def planes(t: Trial, twisted: bool = False) -> None:
    """All 45 planes, exactly over Q(√5); they are the axes of the 60 rotations."""
    axes = icosahedral_axes(twisted=twisted)
    t.equal("planes by the axes they hold", plane_sizes(axes), {2: 30, 4: 15})
    t.equal("axes", len(axes), 16)
    t.equal("pairs of axes", 30 * 1 + 15 * 6, math.comb(16, 2))
    found = rotation_axes(polyhedral_generators(5).elements)
    t.equal("planes of the axes of the 60 rotations", plane_sizes(found), {2: 30, 4: 15})


@claim(
    "CKDA-A5-dimension-3",
    "A5 has no finite-state signed Householder tracker in d = 3, whatever decodes.",
    source="CKDA App. C.4.1 (from Lemmas 11, 16 and Prop. 13)",
    kinds="X",
    control={"solid": 4},
    cited="finite subgroups of SO(3) are cyclic, dihedral or those of the solids",
    figure="icosahedron",
)
def no_dimension_three(t: Trial, solid: int = 5) -> None:
    """Three planes hold at most 12 of 16 axes; no frame holds all; A5 is simple; the planner refuses."""
    elements = polyhedral_generators(solid).elements
    axes = rotation_axes(elements)
    most = max(plane_sizes(axes))
    t.holds(f"{len(axes)} axes do not fit in three planes of {most}", 3 * most < len(axes))
    t.equal("frames", len(covering_frames(axes)), 0)
    fitting = sum(next(signed_householders(m), None) is not None for m in elements)
    t.equal("signed Householders among the 60 in the standard position", fitting, 52)
    group = table_of(named_group("A5"))
    for x in group.representatives[1:]:
        conjugates = group.table[group.table[:, x], group.inverses]
        t.equal(f"normal closure of element {x}", len(group.generated(conjugates.tolist())), 60)
    with t.refutes("a head of size three", NotExpressible):
        refute(from_group(named_group("A5"), "all"), target("ckda"), max_dim=3)


@claim(
    "OURS-A5-no-realisation",
    "A5 has no realisation by signed Householders in any dimension, with any number of heads.",
    source="CKDA App. C.4.1, where d = 3",
    kinds="X",
    control={"solid": 4},
    cited="irreducible real representations of A5: degrees 1, 3, 3, 4, 5; a head's signs keep a part of degree 3",
    figure="icosahedron",
)
def no_realisation(t: Trial, solid: int = 5) -> None:
    """An element of order five has two non-real pairs in degree 4 (five points but one), in degree 5 (six points but
    one), and in both threes together. So a head is one three and trivial parts, and that needs a frame for the axes."""
    group = table_of(named_group("A5"))
    five = [x for x in range(60) if group.orders[x] == 5]
    subgroups = {frozenset(group.generated((x,)).tolist()) for x in five}
    t.equal("subgroups of order five", len(subgroups), 6)
    for x in five:
        moved = {h: frozenset(group.table[group.table[x, list(h)], group.inverses[x]].tolist()) for h in subgroups}
        t.equal(f"subgroups that element {x} fixes, the others in a cycle", sum(moved[h] == h for h in subgroups), 1)
        t.equal(f"cycles of element {x} on five points", cycle_type(named_group("A5").permutation(x)), (5,))
    elements = polyhedral_generators(solid).elements
    t.equal("frames that hold all axes", len(covering_frames(rotation_axes(elements))), 0)
    t.equal("traces of turns of order five", len({trace(m) for m in elements if order(m) == 5}), 2)


def _turn(t: Trial, n: int, stretch: int) -> fmpq_mat:
    """A random rational orthogonal matrix; if `stretch` is not 1, after a shear that also stretches the first axis."""
    first = [stretch, *[0] * (n - 3), stretch - 1, 0]
    total = fmpq_mat(n, n, [fmpq(x) for i in range(n) for x in (first if i == 0 else [int(i == j) for j in range(n)])])
    for _ in range(2):
        w = [fmpq(t.random.randint(-2, 2)) for _ in range(n - 1)] + [fmpq(1)]
        square = sum((x * x for x in w), fmpq(0))
        entries = [fmpq(int(i == j)) - 2 * w[i] * w[j] / square for i in range(n) for j in range(n)]
        total = fmpq_mat(n, n, entries) * total
    return total


def _instances(t: Trial, stretch: int) -> list[tuple[str, list[Permutation], Reduction]]:
    """Heads that track a group behind additive terms, a memory of the last letter, and an idle number."""
    found: list[tuple[str, list[Permutation], Reduction]] = []
    for name in ("D4", "S3", "Z2", "A4")[: t.amount(3, 4)]:
        group = named_group(name)
        letters = [group.permutation(g) for g in group.generators]
        n = group.degree
        # Coordinates: the points; the number of the last letter (forgotten by a zero); a number that never moves.
        size = n + 2
        turn = _turn(t, size, stretch)
        back = turn.inv()
        centre = [fmpq(t.random.randint(-2, 2)) for _ in range(n)]
        steps: list[Affine] = []
        for number, p in enumerate(letters, 1):
            rows = [[int(p[j] == i) for j in range(n)] + [0, 0] for i in range(n)]
            rows += [[0] * size, [0] * (n + 1) + [1]]
            a = fmpq_mat(size, size, [fmpq(x) for row in rows for x in row])
            moved = [centre[i] - centre[p.index(i)] for i in range(n)]
            b = fmpq_mat(size, 1, [*moved, fmpq(number), fmpq(0)])
            steps.append(Affine(turn * a * back, turn * b))
        start = fmpq_mat(size, 1, [c + i for i, c in enumerate(centre)] + [fmpq(0), fmpq(1)])
        found.append((name, letters, reduction(steps, turn * start)))
    return found


@claim(
    "CKDA-prop-20",
    "For steps that do not expand and finitely many states, some word's linear part is an orthogonal projection onto "
    "the differences of the states that it leaves, and every letter permutes these states: additive terms drop out.",
    source="CKDA App. C.6 (Prop. 20)",
    kinds="C P",
    control={"stretch": 3},
    hypotheses=("|A| ≤ 1 in the spectral norm",),
)
def without_additive_terms(t: Trial, stretch: int = 1) -> None:
    """Permuted points about an offset centre with a memory of the last letter, in turned coordinates.

    The control stretches the coordinates: steps expand, and the projection is not orthogonal.
    """
    for name, letters, found in _instances(t, stretch):
        t.holds(f"{name}: states are dropped", found.kept < found.reached, (found.kept, found.reached))
        t.holds(f"{name}: an orthogonal projection", found.projects)
        for permutation in found.permutations:
            t.equal(f"{name}: a letter permutes {found.kept} states", sorted(permutation), list(range(found.kept)))
        t.count("states", found.reached)
        t.equal(f"{name}: letters", len(found.permutations), len(letters))


@claim(
    "CKDA-prop-21",
    "On the span of these differences every letter is orthogonal and maps the span onto itself, and these maps make a "
    "finite group with a homomorphism onto G.",
    source="CKDA App. C.6 (Prop. 21)",
    kinds="C P",
    control={"stretch": 3},
    hypotheses=("|A| ≤ 1 in the spectral norm",),
)
def orthogonal_letters(t: Trial, stretch: int = 1) -> None:
    """The same heads: inner products kept, and no element of the group goes with two elements of G."""
    for name, letters, found in _instances(t, stretch):
        t.holds(f"{name}: the span is kept", found.invariant)
        t.holds(f"{name}: inner products are kept", found.isometric)
        moved = permutation_group("states", found.permutations).order
        joined = [(*p, *(len(p) + x for x in g)) for p, g in zip(found.permutations, letters, strict=True)]
        t.equal(f"{name}: pairs of a permutation and its element", permutation_group("pairs", joined).order, moved)
        t.holds(f"{name}: onto G", moved % named_group(name).order == 0, moved)


@claim(
    "CKDA-lemma-23",
    "If R1, R2 are, on each block, both the identity or both planar rotations of one angle whose order five divides, "
    "and make a finite group, then their commutator C has C¹⁰ = I.",
    source="CKDA Lemma 23",
    kinds="E X",
    control={"same_angle": False},
    cited="finite subgroups of SO(3) (or the distance argument that two axes of order 5 are arctan 2 apart)",
)
def commutators(t: Trial, same_angle: bool = True) -> None:
    """Re[a, b] = |a|²|b|² - 2|Im a × Im b|² for all quaternions; and all 1,152 pairs of 2I of one angle, of order 5.

    A planar rotation of R⁴ lifts to a pair of unit quaternions with equal real parts, so both sides are in the table.
    """
    for a, b in product(_QUADRATIC, repeat=2):
        p, q = np.array(a), np.array(b)
        bar = np.array([1, -1, -1, -1])
        real = quaternion_product(quaternion_product(p, q), quaternion_product(p * bar, q * bar))[0]
        cross = np.cross(p[1:], q[1:])
        t.equal(f"Re[a, b], a = {a}, b = {b}", int(real), int((p @ p) * (q @ q) - 2 * cross @ cross))
    group = binary_polyhedral(5)
    five = [x for x in range(group.order) if group.orders[x] in (5, 10)]
    pairs = [(x, y) for x, y in product(five, repeat=2) if (_angle(group, x) == _angle(group, y)) == same_angle]
    t.equal("pairs", len(pairs), 1152)
    tenth = group.power(10)
    found: Counter[int] = Counter()
    for x, y in pairs:
        commutator = int(group.commutators[x, y])
        t.equal(f"C¹⁰ for elements {x}, {y}", int(tenth[commutator]), 0)
        found[int(group.orders[commutator])] += 1
    t.equal("orders of commutators", dict(found), {1: 192, 10: 960})


def _angle(group: QuaternionGroup, x: int) -> tuple[int, int]:
    """Twice the real part up to sign: 1/2 of the angle of the rotation, whose two lifts are x and -x."""
    a, b = group.real(x)
    return max((a, b), (-a, -b))


@claim(
    "CKDA-thm-4",
    "No single layer whose steps do not expand and have at most one non-real pair of eigenvalues of size one tracks S5 "
    "with finitely many states, whatever the number of heads.",
    source="CKDA Thm. 4",
    kinds="X",
    control={"group": "A5"},
    hypotheses=("all letters, or just one five-cycle and one swap", "finitely many exact states"),
    cited="Lemma 23 (finite subgroups of SO(3)) and Props. 20, 21",
)
def one_layer(t: Trial, group: str = "S5") -> None:
    """[c, t c t⁻¹] is a three-cycle for all five-cycles c and swaps t, but its tenth power would be the identity.

    The power M of A_c with M = 1 modulo the 5-part of its order and 0 modulo the rest is blockwise the identity or
    planar of 5-power order, decodes to c, and has one angle with its conjugate by A_t.
    """
    found = table_of(named_group(group))
    permutations = [named_group(group).permutation(g) for g in range(found.order)]
    tenth = found.power(10)
    involutions = [x for x in range(found.order) if found.orders[x] == 2]
    fewest = min(sum(i != j for i, j in enumerate(permutations[x])) for x in involutions)
    for x in involutions:
        if sum(i != j for i, j in enumerate(permutations[x])) > fewest:
            continue
        for c in (c for c in range(found.order) if found.orders[c] == 5):
            conjugate = int(found.table[found.table[x, c], x])
            commutator = int(found.commutators[c, conjugate])
            t.holds(f"[c, tct]¹⁰ for elements {c}, {x}", int(tenth[commutator]) != 0, "the identity")
            t.equal(f"[c, tct] for elements {c}, {x}", cycle_type(permutations[commutator]), (3,))
            t.equal(f"generated by elements {c}, {x}", len(found.generated((c, x))), found.order)
    for size in range(5, t.amount(200, 2000), 5):
        five = 5
        while size % (5 * five) == 0:
            five *= 5
        power = next(m for m in range(size // five, size + 1, size // five) if m % five == 1)
        t.equal(f"order of A_c^M, order {size}", size // math.gcd(size, power), five)
        t.equal(f"c^M, order {size}", power % 5, 1)


def _tables() -> dict[str, tuple[Cayley, str]]:
    """Groups that one layer does not track, and the law that says so."""
    rows = {
        "U6": [table_of(named_group("S5")), table_of(named_group("A6"))],
        "U2": [
            projective(7),
            semidirect((7,), lambda v: (2 * v[0],), 3, "Z7:Z3"),
            semidirect((2, 2, 2), lambda v: (v[2], v[0] + v[2], v[1]), 7, "Z2³:Z7"),
            semidirect((17,), lambda v: (2 * v[0],), 8, "Z17:Z8"),
        ],
        "U1": [semidirect((3, 3), lambda v: (v[0] + v[1], v[1]), 3, "Z3²:Z3")],
        "U4": [
            semidirect((4, 4), lambda v: (-v[1], v[0] - v[1]), 3, "Z4²:Z3"),
            semidirect((5, 5), lambda v: (-v[1], v[0] - v[1]), 3, "Z5²:Z3"),
        ],
        "U5": [semidirect((3, 3), lambda v: (v[1], v[0] + v[1]), 8, "Z3²:Z8")],
    }
    return {group.name: (group, law) for law, groups in rows.items() for group in groups}


@claim(
    "OURS-one-layer-obstructions",
    "Neither do S5, A6, PSL(2,7), Z7:Z3, Z2³:Z7, Z17:Z8, Z3²:Z3 (order 27), Z4²:Z3, Z5²:Z3 and Z3²:Z8 have one-layer "
    "trackers with finitely many states and at most one non-real pair of eigenvalues a step.",
    source="CKDA Thm. 4, extended",
    kinds="X",
    control={"trackable": True},
    hypotheses=("all letters, finitely many exact states, steps that do not expand",),
    cited="finite subgroups of SU(2), Lemma 23 and Props. 20, 21",
)
def obstructions(t: Trial, trackable: bool = False) -> None:
    """A law of <x², y²> fails at two elements of the table; the laws hold where a tracker is known."""
    wanted = {"A5": (table_of(named_group("A5")), "U6")} if trackable else _tables()
    for name, (group, law) in wanted.items():
        found = obstruction(group)
        t.holds(f"{name}: a law fails", found is not None, "all laws hold")
        t.equal(f"{name}: the law", found and found.law, law)
        t.data[name] = [law, found and found.x, found and found.y]
    known = [table_of(named_group(name)) for name in ("Z12", "D7", "A4", "S4", "A5", "Q8", "Q20", "Z2xS3")]
    known += [binary_polyhedral(3), binary_polyhedral(4)]
    known += [
        semidirect((5,), lambda v: (2 * v[0],), 4, "Z5:Z4"),
        semidirect((3, 3), lambda v: (-v[1], v[0]), 4, "Z3²:Z4"),
    ]
    known += [special_linear(5)] if t.budget != "fast" else []
    for group in known:
        t.equal(f"{group.name}: laws that fail", obstruction(group), None)


@claim(
    "OURS-quaternion-laws",
    "In 2T, 2O, 2I and the dicyclic groups [u³⁰, v³⁰]² = 1 for all u, v, and no law of squares fails.",
    source="laws U1 to U7 of `cayley_tables.obstruction`",
    kinds="X",
    control={"power": 15},
)
def quaternion_laws(t: Trial, power: int = 30) -> None:
    """All pairs of elements; dicyclic groups of order 4n for n up to a bound."""
    dicyclic = [table_of(named_group(f"Q{4 * n}")) for n in range(2, t.amount(12, 40))]
    for group in (*(binary_polyhedral(k) for k in (3, 4, 5)), *dicyclic):
        u = np.unique(group.power(power))
        square = group.power(2)
        t.holds(f"[u³⁰, v³⁰]² in {group.name}", not square[group.commutators[np.ix_(u, u)]].any())
        t.equal(f"laws that fail in {group.name}", obstruction(group), None)


@claim(
    "OURS-laws-of-squares",
    "Law U7 does not follow from U1 to U6: Z128:Z32 with x y x⁻¹ = y⁵ keeps these and has [x⁴, y⁴] = y⁶⁴ ≠ 1.",
    source="laws of `cayley_tables.obstruction`",
    kinds="X",
    control={"modulus": 64},
    proves=True,
)
def laws_of_squares(t: Trial, modulus: int = 128) -> None:
    """By arithmetic: a 2-group passes U1 to U4 and U6, which are about odd orders; U5 is checked on all pairs."""
    t.equal("order of 5 modulo 128 divides 32", pow(5, 32, modulus), 1)
    # x⁴ y⁴ x⁻⁴ y⁻⁴ = y^(4·5⁴ - 4): a commutator of squares of x² and y², elements of the 2-group <x², y²>.
    exponent = (4 * pow(5, 4, modulus) - 4) % modulus
    t.equal("[x⁴, y⁴] as a power of y", exponent, 64)
    # All u³⁰ of <x², y²>: x^(60a) y^e; commutators lie in <y>, and their squares must be 1.
    element = [(a, b) for a in range(0, 32, 2) for b in range(0, modulus, 2)]
    powers = {_power(a, b, 30, modulus) for a, b in element}
    for (a, b), (c, d) in product(powers, repeat=2):
        first, second = _times((a, b), (c, d), modulus), _times((c, d), (a, b), modulus)
        t.equal("[u³⁰, v³⁰]²", 2 * (first[1] - second[1]) % modulus, 0)


def _times(u: tuple[int, int], v: tuple[int, int], modulus: int) -> tuple[int, int]:
    """y^b x^a · y^d x^c = y^(b + 5^a d) x^(a + c), written (a, b)."""
    return (u[0] + v[0]) % 32, (u[1] + pow(5, u[0], modulus) * v[1]) % modulus


def _power(a: int, b: int, k: int, modulus: int) -> tuple[int, int]:
    total = (0, 0)
    for _ in range(k):
        total = _times(total, (a, b), modulus)
    return total


@claim(
    "OURS-forty-letters",
    "In an adapted frame of four dimensions 40 of the 120 letters of S5 are signed Householders and generate S5: one "
    "faithful head tracks it with these; none of the 40 is a five-cycle. S4 has all 24 in three dimensions.",
    source="CKDA Thm. 4 needs five-cycles among the letters",
    kinds="X",
    control={"adapted": False},
    proves=True,
)
def forty_letters(t: Trial, adapted: bool = True) -> None:
    """All 120 permutation matrices on the sum-zero space, with all sign diagonals of the frame, in integers."""
    middle = [(0, 0, 1, -1, 0), (1, 1, -1, -1, 0)] if adapted else [(1, 1, -2, 0, 0), (1, 1, 1, -3, 0)]
    frame = [(1, -1, 0, 0, 0), *middle, (1, 1, 1, 1, -4)]
    t.holds("the frame is orthogonal", all(np.dot(u, v) == 0 for u in frame for v in frame if u != v))
    letters = adapted_letters(5, frame)
    counts = dict(Counter(map(cycle_type, letters)))
    t.equal("letters by cycles", counts, {(): 1, (2,): 10, (3,): 12, (2, 2): 7, (4,): 6, (3, 2): 4})
    t.equal("generated", permutation_group("S5", letters).order, 120)
    t.equal("letters of S4", len(adapted_letters(4, [(1, -1, 0, 0), (0, 0, 1, -1), (1, 1, -1, -1)])), 24)
