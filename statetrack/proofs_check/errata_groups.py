"""Claims that correct the papers on groups and cascades, each with the counterexample to what is printed.

Main results: ERRATA-lemma-23-angles, ERRATA-thm-4-power, ERRATA-thm-4-letters, ERRATA-thm-3-boundary,
ERRATA-encoder-sign, ERRATA-key-field, ERRATA-small-dihedral, ERRATA-grazzi-thm-3-points, ERRATA-grazzi-thm-3-identity,
ERRATA-grazzi-thm-6-sum, ERRATA-grazzi-thm-6-parity, ERRATA-cascade-definition, ERRATA-cascade-states,
ERRATA-cascade-length.

References: CKDA Sec. 5 and App. C; Grazzi et al. App. C and D. Lemma 12's converse is OURS-lemma-12-converse.
"""

from __future__ import annotations

import math
from itertools import combinations_with_replacement, product

import numpy as np

from statetrack.constructions.cascade import hole_cascade, verify_cascade
from statetrack.constructions.holonomy import holonomy_cascade
from statetrack.constructions.reduction import reduce
from statetrack.theory.arrays import Matrix, Vector, dot, matmul, matrix, matvec, outer
from statetrack.theory.automata import Dfa
from statetrack.theory.cayley_tables import binary_polyhedral, from_group
from statetrack.theory.groups import named_group, recognise
from statetrack.theory.householder import signed_householders
from statetrack.theory.number_fields import RealCyclotomic, rationals
from statetrack.theory.regex import parse_regex
from statetrack.theory.rotations import order, planar_reflection, planar_rotation, quaternion_outer
from statetrack.theory.signed_householder_groups import cycle_type, hidden_group

from .claim import Trial, claim
from .grazzi_groups import answers, built, random_dfa

Triple = tuple[int, int, int]


@claim(
    "ERRATA-lemma-23-angles",
    "Lemma 23 needs one angle and a finite group: turns by 72° and 144° about two axes of the icosahedron have "
    "C¹⁰ ≠ I, and so have turns by 72° about two axes 45° apart.",
    source="CKDA Lemma 23",
    kinds="X E",
    control={"same_angle": True},
    proves=True,
)
def two_angles(t: Trial, same_angle: bool = False) -> None:
    """All pairs of 2I: order 6, so 3 in SO(3), unless the axis is one. Re C = 1 - 2 sin⁴(36°) sin²(45°) otherwise:
    2 Re C is no algebraic integer, so C has infinite order."""
    group = binary_polyhedral(5)
    five = [x for x in range(group.order) if group.orders[x] in (5, 10)]
    tenth = group.power(10)
    count = 0
    for x, y in product(five, repeat=2):
        a, b = group.real(x), group.real(y)
        if (a in (b, (-b[0], -b[1]))) == same_angle and group.commutators[x, y]:
            count += 1
            t.holds(f"C¹⁰ for elements {x}, {y}", tenth[group.commutators[x, y]] != 0, "the identity")
    t.equal("pairs with two axes", count, 960)
    field = RealCyclotomic(20)
    small = RealCyclotomic(5)
    square = (5 - small.sqrt(5)) / 8
    t.equal("sin²(36°)", field.embed(square), field.sin(1, 10) * field.sin(1, 10))
    twice = 2 - 4 * square * square / 2
    t.holds("2 Re C is no algebraic integer", twice.den > 1, twice)


@claim(
    "ERRATA-thm-4-power",
    "In the proof of Theorem 4, R1 is A_c to the power M = 1 modulo the 5-part of its order, 0 modulo the rest m': "
    "neither A_c² nor A_c^m' decodes to c.",
    source="CKDA Thm. 4, proof",
    kinds="X",
    control={"power": 3},
    proves=True,
)
def crt_power(t: Trial, power: int = 6) -> None:
    """Z5 tracked by the rotations of Z15, decoded modulo 5: A_c has order 15, M = 6; A_c² has too, A_c³ gives c³."""
    field = RealCyclotomic(60)
    letters = [planar_rotation(field, c, 15) for c in (0, 1, 2, 3, 4)]
    found = hidden_group(letters, [[(g + h) % 5 for g in range(5)] for h in range(5)])
    t.equal("states, kernel and clash", (len(found.states), found.kernel, found.clash), (15, 3, None))

    def decoded(k: int) -> tuple[int, int]:
        total: Matrix = found.states[0]
        for _ in range(k):
            total = matmul(letters[1], total)
        return found.labels[found.states.index(total)], order(total)

    t.equal(f"A_c^{power}: element and order", decoded(power), (1, 5))
    t.equal("A_c²: element and order", decoded(2), (2, 15))
    t.equal("A_c^m', m' = 3: element and order", decoded(3), (3, 5))


@claim(
    "ERRATA-thm-4-letters",
    "Theorem 4 holds for the alphabet of one five-cycle and one swap, and only the five-cycle's letter needs the bound "
    "on its eigenvalues; A5 has no such two letters.",
    source="CKDA Thm. 4 (stated for all letters)",
    kinds="X",
    control={"group": "A5"},
    cited="Lemma 23 and Props. 20, 21",
)
def two_letters(t: Trial, group: str = "S5") -> None:
    """All pairs of a five-cycle c and an odd letter s of order two with one cycle: they generate S5, and
    [c, s c s⁻¹]¹⁰ ≠ 1. In A5 [c, s c s⁻¹]¹⁰ = 1 for all s."""
    found = from_group(named_group(group))
    tenth, shapes = found.power(10), [cycle_type(named_group(group).permutation(g)) for g in range(found.order)]
    letters = [s for s in range(found.order) if shapes[s] == ((2,) if group == "S5" else (2, 2))]
    for c, s in product((c for c in range(found.order) if shapes[c] == (5,)), letters):
        conjugate = found.table[found.table[s, c], found.inverses[s]]
        t.holds(f"[c, scs⁻¹]¹⁰ for elements {c}, {s}", tenth[found.commutators[c, conjugate]] != 0, "the identity")
        t.equal(f"generated by elements {c}, {s}", len(found.generated((c, s))), found.order)
    even = from_group(named_group("A5"))
    tenth = even.power(10)
    for c in (c for c in range(60) if even.orders[c] == 5):
        conjugates = even.table[even.table[:, c], even.inverses]
        t.holds(f"A5: [c, scs⁻¹]¹⁰ for element {c}", not tenth[even.commutators[c, conjugates]].any())


@claim(
    "ERRATA-thm-3-boundary",
    "Theorem 3's groups are not all: Q8 is tracked by two heads of size 2 (a D4 head and a Z4 head, 16 states), though "
    "it has no realisation by signed Householders: i has two non-real pairs wherever i² ≠ 1.",
    source="CKDA Sec. 5, after Thm. 3",
    kinds="X",
    control={"clock": False},
    proves=True,
)
def beyond_rotations(t: Trial, clock: bool = True) -> None:
    """Letters a^k bᵉ: rotation by k/4 turn and mirror e; rotation by e/4 turn. Every matrix of O(2) is a signed
    Householder. -1 = [i, j] is 1 in every one-dimensional part, so a faithful real part is that of quaternions."""
    field = RealCyclotomic(4)

    def block(k: int, e: int) -> Matrix:
        plane = matmul(planar_rotation(field, k, 4), matrix(field, ((1, 0), (0, -1 if e else 1))))
        heads = [plane, planar_rotation(field, e, 4)] if clock else [plane]
        for head in heads:
            t.holds(f"head of a^{k} b^{e}", next(signed_householders(head), None) is not None)
        size = 2 * len(heads)
        return matrix(field, [[heads[i // 2][i % 2][j % 2] if i // 2 == j // 2 else 0 for j in range(size)]
                              for i in range(size)])  # fmt: skip

    def times(h: int, g: int) -> int:
        (e, k), (f, m) = divmod(h, 4), divmod(g, 4)
        return (k + (-m if e else m) + 2 * (e & f)) % 4 + 4 * (e ^ f)

    found = hidden_group([block(h % 4, h // 4) for h in range(8)], [[times(h, g) for g in range(8)] for h in range(8)])
    t.equal("state with two elements", found.clash, None)
    t.equal("states and kernel", (len(found.states), found.kernel), (16, 2))
    quaternions = from_group(named_group("Q8"))
    minus = quaternions.generated(np.unique(quaternions.commutators).tolist())
    t.equal("commutators", len(minus), 2)
    for i in (x for x in range(8) if quaternions.orders[x] == 4):
        t.equal(f"square of element {i} of order four", quaternions.table[i, i], minus[1])


@claim(
    "ERRATA-encoder-sign",
    "The encoder's quaternion a is given up to sign only, and no choice is continuous at 180°; a aᵀ, which the step "
    "needs, is affine in R.",
    source="CKDA App. C.4.2",
    kinds="X",
    control={"chosen": True},
    proves=True,
)
def quaternion_sign(t: Trial, chosen: bool = False) -> None:
    """Turns about z by multiples of 15°: a aᵀ without a root; a after a full turn is -a; with a_0 ≥ 0 it jumps."""
    field = RealCyclotomic(48)
    path = [(field.cos(p, 48), field.zero, field.zero, field.sin(p, 48)) for p in range(25)]
    for p, a in enumerate(path):
        plane = planar_rotation(field, p, 24)
        r = matrix(field, [(*plane[0], 0), (*plane[1], 0), (0, 0, 1)])
        t.equal(f"a aᵀ at {15 * p}°", quaternion_outer(r), outer(a, a))
    same = path[0] if chosen else tuple(-x for x in path[0])
    t.equal("a after a full turn", path[24], same)
    before, after = path[11], tuple(-x for x in path[13])
    t.holds("a_0 > 0 before and after 180°", before[0] > 0 and after[0] > 0)
    step = [x - y for x, y in zip(before, after, strict=True)]
    t.holds("the two are more than 1 apart", sum((x * x for x in step), field.zero) > 1)


@claim(
    "ERRATA-key-field",
    "Unit keys can need a larger field than the transitions: a quarter turn is rational, and all its keys have a "
    "rational direction but an irrational length.",
    source="CKDA App. B.2 and D (field of the parameters)",
    kinds="X",
    control={"quarters": 2},
    proves=True,
)
def key_field(t: Trial, quarters: int = 1) -> None:
    """All factorisations of the rotation as a signed Householder over the rationals."""
    field = rationals()
    c, s = ((1, 0), (0, 1), (-1, 0), (0, -1))[quarters]
    found = list(signed_householders(matrix(field, ((c, -s), (s, c)))))
    t.holds("there are factorisations", len(found) > 0)
    for factor in found:
        length = dot(factor.w, factor.w).as_fraction()
        assert length is not None
        roots = math.isqrt(length.numerator * length.denominator)
        t.holds(f"|w|² = {length} is no square", roots * roots != length.numerator * length.denominator)


@claim(
    "ERRATA-small-dihedral",
    "D1 and D2, which Theorem 3 counts among the dihedral groups, are Z2 and Z2 × Z2: D_n is abelian for n ≤ 2 only; "
    "S3 is D3.",
    source="CKDA Thm. 3, App. C.2",
    kinds="X",
    control={"last": 3},
)
def small_dihedral(t: Trial, last: int = 2) -> None:
    """Commutators of D_n for n up to a bound, orders of elements for n ≤ 2, and the shape of S3."""
    for n in range(1, t.amount(12, 40)):
        table = from_group(named_group(f"D{n}"))
        t.equal(f"D{n} is abelian", not table.commutators.any(), n <= last)
        if n <= 2:
            t.equal(f"squares in D{n}", set(table.power(2).tolist()), {0})
    t.equal("S3", str(recognise(named_group("S3"))), "D3")


def _subgroups() -> set[frozenset[Triple]]:
    """All subgroups of Z4 x Z2 x Z3: two elements generate any."""
    elements = list(product(range(4), range(2), range(3)))
    found: set[frozenset[Triple]] = set()
    for u, v in combinations_with_replacement(elements, 2):
        found.add(frozenset(
            ((i * u[0] + j * v[0]) % 4, (i * u[1] + j * v[1]) % 2, (i * u[2] + j * v[2]) % 3)
            for i in range(12) for j in range(12)
        ))  # fmt: skip
    return found


@claim(
    "ERRATA-grazzi-thm-3-points",
    "The number of moved states k need not be that of moved points: an automaton of Z4 × Z2 × Z3 with 11 states moves "
    "at most 8, but on its least number of points, 9, some letter moves all 9.",
    source="Grazzi Thm. 3, proof",
    kinds="X",
    control={"points": 11},
    hypotheses=("the conclusion, at most k - 1 factors, still holds there: 5 ≤ 7",),
    proves=True,
)
def moved_points(t: Trial, points: int = 9) -> None:
    """All faithful actions: subgroups H with trivial intersection; a letter x moves the points of G/H iff x ∉ H."""
    letters: tuple[Triple, ...] = ((1, 0, 0), (0, 1, 1), (2, 1, 1))
    # Orbits of sizes 4, 4, 3: the numbers a, a + 2b, c.
    moved = [4 * (a != 0) + 4 * ((a + 2 * b) % 4 != 0) + 3 * (c != 0) for a, b, c in letters]
    t.equal("states moved", moved, [8, 7, 7])
    proper = [h for h in _subgroups() if 1 < 24 // len(h) <= points]
    faithful: list[tuple[frozenset[Triple], ...]] = []
    for count in range(1, 5):
        for chosen in combinations_with_replacement(proper, count):
            if sum(24 // len(h) for h in chosen) <= points and len(chosen[0].intersection(*chosen[1:])) == 1:
                faithful.append(chosen)
    t.equal("least number of points", min(sum(24 // len(h) for h in chosen) for chosen in faithful), 9)
    for chosen in faithful:
        most = max(sum(24 // len(h) for h in chosen if x not in h) for x in letters)
        t.equal("points moved by some letter", most, points)
    reflections = max(_reflections(x, chosen) for chosen in faithful for x in letters)
    t.holds("factors", reflections <= 7, reflections)


def _reflections(x: Triple, chosen: tuple[frozenset[Triple], ...]) -> int:
    """Points minus cycles of a letter: on G/H its cycles all have the length of x in G/H."""
    total = 0
    for h in chosen:
        length = next(k for k in range(1, 13) if (k * x[0] % 4, k * x[1] % 2, k * x[2] % 3) in h)
        points = 24 // len(h)
        total += points - points // length
    return total


@claim(
    "ERRATA-grazzi-thm-3-identity",
    "With letters that move no state k = 0 and the theorem's class of k - 1 factors is none; no factor does it.",
    source="Grazzi Thm. 3",
    kinds="C CL",
    control={"printed": True},
    proves=True,
)
def identity_letters(t: Trial, printed: bool = False) -> None:
    """An automaton whose one letter stays, compiled; and one swap, where k - 1 = 1."""
    for letters, k in (("()", 0), ("(1 2)", 2)):
        made = built(f"perm:{letters}", "deltaproduct", "generators")
        t.certificate(made.certificate.data)
        t.equal(f"factors for {letters}", made.factors_per_token, k - 1 if printed else max(k - 1, 0))


@claim(
    "ERRATA-grazzi-thm-6-sum",
    "Addition modulo m gives y_t = x_1 + ... + x_t modulo m; the printed sum ends at m, not t.",
    source="Grazzi App. D; Thm. 6",
    kinds="C CL",
    control={"printed": True},
)
def sum_up_to_t(t: Trial, printed: bool = False) -> None:
    """The certified two-layer network modulo 5 on random words of more than 5 letters."""
    made = built("Z5", "deltanet", construction="modular")
    t.certificate(made.certificate.data)
    for _ in range(t.amount(5, 50)):
        word = [t.random.randrange(5) for _ in range(t.random.randint(7, 12))]
        sums = [sum(word[: 5 if printed else i + 1]) % 5 for i in range(len(word))]
        t.equal(f"sums of {word}", made.run(tuple(map(str, word))), tuple(map(str, sums)))


@claim(
    "ERRATA-grazzi-thm-6-parity",
    "The induction's step i + 1 takes the mirror of the parity of i + 1: H(θ(2,0)) c_1 = d_3 modulo 5, where that of i "
    "gives d_4, not c_3.",
    source="Grazzi Thm. 6, proof",
    kinds="X",
    control={"expected": "c3"},
    proves=True,
)
def step_parity(t: Trial, expected: str = "d4") -> None:
    """Exact, m = 5: d_i at angle 2πi/5, c_i at (1 - 2i)π/5, θ(j,1) = (1 - 2j)π/5, θ(j,0) = (1 + 2j)π/5."""
    field = RealCyclotomic(20)
    points: dict[str, Vector] = {f"d{i}": (field.cos(2 * i, 10), field.sin(2 * i, 10)) for i in range(5)}
    points |= {f"c{i}": (field.cos(1 - 2 * i, 10), field.sin(1 - 2 * i, 10)) for i in range(5)}
    names = {v: name for name, v in points.items()}
    t.equal("H(θ(2,0)) c_1", names[matvec(planar_reflection(field, 5, 10), points["c1"])], "d3")
    t.equal("H(θ(2,1)) c_1", names[matvec(planar_reflection(field, -3, 10), points["c1"])], expected)


@claim(
    "ERRATA-cascade-definition",
    "In the cascade product the second automaton moves by its own δ', which reads (q, w) with q before the token: two "
    "parities then count modulo 4; with the first one's δ, as printed, they do not.",
    source="Grazzi Def. 1",
    kinds="CL",
    control={"printed": True},
    proves=True,
)
def second_delta(t: Trial, printed: bool = False) -> None:
    """Both parities start at 0; δ' flips iff q = 1. All states in reach: q + 2q' is the count modulo 4."""
    met, queue = {(0, 0, 0)}, [(0, 0, 0)]
    for q, second, count in queue:
        t.equal(f"count at ({q}, {second})", (q + 2 * second) % 4, count)
        after = (1 - q, 1 - second if printed or q == 1 else second, (count + 1) % 4)
        if after not in met:
            met.add(after)
            queue.append(after)


@claim(
    "ERRATA-cascade-states",
    "Layers that read the states of layers above after the token, as App. C.5 feeds them, do not make a cascade: for "
    "'the second letter from the end is a' half of the 126 words of length 1 to 6 come out wrong.",
    source="Grazzi Thm. 4, App. C.5",
    kinds="X",
    control={"before": True},
    proves=True,
)
def states_after(t: Trial, before: bool = False) -> None:
    """Both cascades of the four-state automaton on all words; with states before the token none is wrong."""
    dfa = parse_regex("(a|b)*a(a|b)")
    words = [word for n in range(1, 7) for word in product(range(2), repeat=n)]
    for name, cascade in (("holes", hole_cascade(dfa)), ("holonomy", holonomy_cascade(dfa))):
        verify_cascade(cascade)
        small = reduce(cascade)
        accepts = [len(word) > 1 and word[-2] == 0 for word in words]
        got = [dfa.outputs[answers(small, word, before=before)[-1]] for word in words]
        t.equal(f"{name}: wrong words of {len(words)}", sum(a != b for a, b in zip(got, accepts, strict=True)), 63)


@claim(
    "ERRATA-cascade-length",
    "n - 1 components that permute or reset, of sizes n, ..., 2, make any automaton with n states: Theorem 5's bound "
    "of 2ⁿ is far off, if their groups need not divide the automaton's.",
    source="Grazzi Thms. 4 and 5 ('at most linear' is left open)",
    kinds="X CL P",
    control={"fewer": 1},
)
def linear_length(t: Trial, fewer: int = 0) -> None:
    """All pairs of maps of three states, and random automata, by verified cascades of holes."""
    maps = list(product(range(3), repeat=3))
    pairs = product(maps, repeat=2) if t.budget != "fast" else ((f, g) for f, g in product(maps, repeat=2) if f <= g)
    names = ("0", "1", "2")
    automata = [Dfa(("a", "b"), names, 0, np.array(pair, dtype=np.int32).T, names) for pair in pairs]
    automata += [random_dfa(t, t.random.randint(3, t.amount(5, 7))) for _ in range(t.amount(10, 60))]
    for dfa in automata:
        n, cascade = len(dfa.states), hole_cascade(dfa)
        verify_cascade(cascade)
        t.equal(f"components of {n} states", [c.size for c in cascade.components], list(range(n, 1 + fewer, -1)))
