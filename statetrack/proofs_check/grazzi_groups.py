"""Claims about group automata and cascades by products of Householders (Grazzi et al., Thms. 3 to 6).

Main definitions: `built`, `through_kernels`, `automaton`, `random_dfa`, `answers`, `sample`.

Main results: GRAZZI-thm-3 (with its cases), GRAZZI-thm-4, GRAZZI-thm-5, GRAZZI-thm-6.

References: Grazzi et al. Sec. 4, App. C and D; docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations, product

import numpy as np
from flint import fmpq_mat

from statetrack.constructions.cascade import Cascade, hole_cascade, only_resets, verify_cascade
from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.factorise import swaps
from statetrack.constructions.holonomy import holonomy_cascade
from statetrack.constructions.program import Factor
from statetrack.constructions.reduction import reduce
from statetrack.constructions.source import Options
from statetrack.theory.arrays import matvec
from statetrack.theory.automata import Dfa, reachable
from statetrack.theory.groups import cycles, reflections_needed
from statetrack.theory.number_fields import rationals
from statetrack.theory.regex import parse_regex
from statetrack.theory.rotations import angle_field, planar_reflection

from .claim import Trial, claim

# Of many networks of one kind, so many are run through the kernels.
_RUN = 5


@cache
def built(source: str | Dfa, target: str = "ckda", letters: str = "all", construction: str | None = None) -> Compiled:
    """A compiled source, made once for all claims; certificates are checked by `Trial.certificate`."""
    return compile_source(source, target, options=Options(letters=letters), construction=construction)


def through_kernels(t: Trial, made: Compiled) -> None:
    """With `--kernels`: the weights in float32 on random words, no state wrong."""
    t.kernel_run(made, 4, t.amount(50, 25_000))


def automaton(made: Compiled) -> Dfa:
    """The automaton that a compiled group or automaton tracks."""
    assert isinstance(made.automaton, Dfa)
    return made.automaton


def random_dfa(t: Trial, states: int, *, bijective: bool = False) -> Dfa:
    """A random automaton of two letters, only its reachable states."""
    maps = [
        t.random.sample(range(states), states) if bijective else t.random.choices(range(states), k=states)
        for _ in range(2)
    ]
    names = tuple(map(str, range(states)))
    return reachable(Dfa(("a", "b"), names, 0, np.array(maps, dtype=np.int32).T, names))


def _rank(rows: Sequence[Sequence[int]]) -> int:
    return fmpq_mat(len(rows), len(rows), [x for row in rows for x in row]).rank()


def _moved_by(p: Sequence[int]) -> list[list[int]]:
    """P - I for the permutation matrix with P e_j = e_p(j)."""
    return [[int(p[j] == i) - int(i == j) for j in range(len(p))] for i in range(len(p))]


@claim(
    "GRAZZI-thm-3-swaps",
    "A permutation of n ≤ 6 points is a product of n - #cycles reflections in e_i - e_j, of no fewer, and that is less "
    "than the number of points it moves.",
    source="Grazzi Thm. 3 and App. C.3",
    kinds="X",
    control={"dropped": 1},
    hypotheses=("not the identity, for the last part",),
    proves=True,
)
def swap_products(t: Trial, dropped: int = 0) -> None:
    """All permutations: the product exactly; the least number is rank(P - I), as I - AB = (I - A) + A(I - B)."""
    field = rationals()
    for n in range(1, 7):
        for p in permutations(range(n)):
            factors = swaps(field, p)[: None if not dropped else -dropped]
            image = list(range(n))
            for i, j in map(_swapped, factors):
                image = [j if x == i else i if x == j else x for x in image]
            t.equal(f"product of the swaps of {p}", tuple(image), p)
            t.equal(f"swaps of {p}", len(factors), reflections_needed(p))
            t.equal(f"rank(P - I) for {p}", _rank(_moved_by(p)), len(factors))
            moved = sum(len(cycle) for cycle in cycles(p))
            t.holds(f"fewer swaps than moved points of {p}", len(factors) <= max(moved - 1, 0))


def _swapped(factor: Factor) -> tuple[int, int]:
    """The coordinates that I - w wᵀ swaps, w = e_i - e_j."""
    entries = [str(x) for x in factor.w]
    assert sorted(entries) == ["-1", *["0"] * (len(entries) - 2), "1"]
    assert factor.c == 1
    return entries.index("1"), entries.index("-1")


@claim(
    "GRAZZI-thm-3-sharp",
    "An n-cycle of points takes n - 1 generalised Householders: with fewer, more than one vector (up to a factor) is "
    "fixed.",
    source="Grazzi Thm. 3 (sharpness: ours)",
    kinds="E P",
    control={"parts": 2},
)
def sharp(t: Trial, parts: int = 1) -> None:
    """rank(P - I) = n - 1, and rank(M - I) ≤ j for random products M of j generalised Householders."""
    for n in range(2 * parts, t.amount(10, 24, 60)):
        size = n // parts
        p = [(i + 1) % size if i < size else size + (i + 1 - size) % (n - size) for i in range(n)]
        t.equal(f"least number of Householders of {n} points", _rank(_moved_by(p)), n - 1)
    for _ in range(t.amount(20, 200)):
        n, j = t.random.randint(2, 5), t.random.randint(0, 4)
        total = np.eye(n, dtype=object)
        scale = 1
        for _ in range(j):
            k = np.array([t.random.randint(-2, 2) for _ in range(n)], dtype=object)
            beta, den = t.random.randint(0, 4), max(1, 2 * int(k @ k))
            # I - β k kᵀ with β·|k|² in [0, 2], times its denominator.
            total, scale = (den * np.eye(n, dtype=object) - beta * np.outer(k, k)) @ total, scale * den
        t.holds(f"rank of {j} Householders less I", _rank((total - scale * np.eye(n, dtype=object)).tolist()) <= j)


@claim(
    "GRAZZI-thm-3",
    "A permutation automaton is tracked by one layer of products of at most k - 1 Householders, k the most states that "
    "a letter moves: exactly the largest n - #cycles of a letter.",
    source="Grazzi Thm. 3 and App. C.3",
    kinds="C CL K",
    control={"saved": 1},
    hypotheses=("n = |Q|, or k counted on the n points (ERRATA-grazzi-thm-3-points)",),
)
def group_automata(t: Trial, saved: int = 0) -> None:
    """Random permutation automata on DeltaProduct: certificates for all lengths, the exact number of factors."""
    sizes = [t.random.randint(3, t.amount(7, 10, 14)) for _ in range(t.amount(5, 30, 200))]
    for n in sizes:
        dfa = random_dfa(t, n, bijective=True)
        made = built(dfa, "deltaproduct", construction="permutation")
        maps: list[list[int]] = automaton(made).delta.T.tolist()
        t.certificate(made.certificate.data)
        t.equal(f"layers, {n} states", made.layers, 1)
        t.equal(f"factors, {n} states", made.factors_per_token, max(map(reflections_needed, maps)) - saved)
        moved = max(sum(q != i for i, q in enumerate(f)) for f in maps)
        t.holds(f"k - 1 factors, {n} states", made.factors_per_token <= max(moved - 1, 0))
        if t.sizes["certificates"] <= _RUN:
            through_kernels(t, made)


@claim(
    "GRAZZI-thm-3-letters",
    "S5 with swaps as its letters takes one DeltaNet layer (one reflection a token); with a five-cycle among them the "
    "points take four: letters matter, not only the group.",
    source="Grazzi Thm. 3, Fig. 4",
    kinds="C CL K",
    control={"swaps": "(1 2);(2 3 4);(4 5)"},
    proves=True,
)
def swap_letters(t: Trial, swaps: str = "(1 2);(2 3);(3 4);(4 5)") -> None:
    """Certificates of both, on the five points; a product of j reflections fixes 5 - j dimensions."""
    made = built(f"perm:{swaps}", "deltaproduct", "generators", "permutation")
    t.equal("factors a token", made.factors_per_token, 1)
    narrow = built(f"perm:{swaps}", "deltanet", "generators", "permutation")
    t.certificate(narrow.certificate.data)
    t.equal("states", len(automaton(narrow).states), 120)
    t.equal("layers and sizes", (narrow.layers, narrow.dims), (1, ((5,),)))
    wide = built("S5", "deltaproduct", "generators", "permutation")
    t.certificate(wide.certificate.data)
    t.equal("factors a token with a five-cycle", wide.factors_per_token, 4)
    t.equal("least number of them", _rank(_moved_by((1, 2, 3, 4, 0))), 4)
    through_kernels(t, narrow)
    through_kernels(t, wide)


@claim(
    "GRAZZI-thm-3-parity",
    "Parity is one number: h ← h for 0, h ← -h for 1, from h = -1; no state but ±1.",
    source="Grazzi Thm. 3 (m = 2), App. C.3",
    kinds="X CL K",
    control={"flip": 1},
    proves=True,
)
def parity(t: Trial, flip: int = -1) -> None:
    """The two states and both letters; and a certificate of one DeltaNet layer of size 1, β = 2."""
    decoded = {-1: 0, 1: 1}
    for h, letter in product((-1, 1), (0, 1)):
        after = h * (flip if letter else 1)
        t.equal(f"letter {letter} at h = {h}", decoded.get(after), decoded[h] ^ letter)
    made = built("Z2", "deltanet")
    t.certificate(made.certificate.data)
    t.equal("sizes", (made.dims, made.factors_per_token), (((1,),), 1))
    t.equal("β", made.program.beta_max, 2)
    through_kernels(t, made)


@claim(
    "GRAZZI-thm-3-cyclic",
    "Addition modulo m takes one layer of size 2 and two reflections a token.",
    source="Grazzi Thm. 3 (cyclic), App. C.3",
    kinds="C CL K",
    control={"factors": 1},
    hypotheses=("m ≥ 3",),
)
def cyclic(t: Trial, factors: int = 2) -> None:
    """Certificates for all letters and for m up to a bound."""
    for m in range(3, t.amount(9, 24, 48)):
        made = built(f"Z{m}", "deltaproduct")
        t.certificate(made.certificate.data)
        t.equal(f"m = {m}", (made.layers, made.dims, made.factors_per_token), (1, ((2,),), factors))
        if m in (3, 7):
            through_kernels(t, made)


@claim(
    "GRAZZI-counting-two-householders",
    "Counting one letter modulo m, for m ≥ 3, takes two Householders a token in one layer: a rotation by 2π/m.",
    source="Grazzi Sec. 4.2 and Thm. 2",
    kinds="E C CL",
    control={"kept": 1},
)
def counting(t: Trial, kept: int = 2) -> None:
    """The two reflections make a rotation of order exactly m; one alone is symmetric and has period at most two."""
    for m in range(3, t.amount(10, 24, 60)):
        made = built(f"Z{m}", "deltaproduct", "generators")
        t.certificate(made.certificate.data)
        head = made.program.layers[0].heads[0]
        factors = [f.matrix() for f in head.steps[head.choose((0,))[0]]]
        t.equal(f"Householders, m = {m}", len(factors), 2)
        vector, visited = head.h0[0], list[object]()
        while vector not in visited:
            visited.append(vector)
            for factor in factors[:kept]:
                vector = matvec(factor, vector)
        t.equal(f"states before the first repeats, m = {m}", len(visited), m)


@claim(
    "GRAZZI-thm-6",
    "Addition modulo m takes two layers of reflections: a sign that flips, and a mirror of the plane that depends on "
    "the letter and the parity of time; 2m states.",
    source="Grazzi Thm. 6, App. D",
    kinds="E C CL K",
    control={"odd": 0},
)
def modular(t: Trial, odd: int = 1) -> None:
    """Exact: H(θ(j,1)) d_i = c_(i+j), H(θ(j,0)) c_i = d_(i+j); certificates; the worked word 2, 4, 3 modulo 5."""
    for m in range(1, t.amount(10, 24, 40) + 1):
        field = angle_field(2 * m)
        points = [(field.cos(k, 2 * m), field.sin(k, 2 * m)) for k in range(2 * m)]
        d = [points[2 * i % (2 * m)] for i in range(m)]
        c = [points[(1 - 2 * i) % (2 * m)] for i in range(m)]
        t.equal(f"states, m = {m}", len({*c, *d}), 2 * m)
        for j in range(m):
            first = planar_reflection(field, 1 - 2 * j if odd else 1 + 2 * j, 2 * m)
            second = planar_reflection(field, 1 + 2 * j if odd else 1 - 2 * j, 2 * m)
            for i in range(m):
                t.equal(f"odd time, m = {m}, i = {i}, j = {j}", matvec(first, d[i]), c[(i + j) % m])
                t.equal(f"even time, m = {m}, i = {i}, j = {j}", matvec(second, c[i]), d[(i + j) % m])
        if m >= 3 and (m < 8 or t.budget != "fast"):
            made = built(f"Z{m}", "deltanet", construction="modular")
            t.certificate(made.certificate.data)
            t.equal(f"sizes, m = {m}", (made.layers, made.dims), (2, ((1,), (2,))))
            t.equal(f"factors, m = {m}", made.factors_per_token, 1)
            if m == 5:
                t.equal("2, 4, 3 modulo 5", made.run(("2", "4", "3")), ("2", "1", "4"))
                through_kernels(t, made)


def answers(cascade: Cascade, word: Sequence[int], *, before: bool = True) -> list[int]:
    """The automaton's state after each token; `before` False reads the components above after their update."""
    x, found = list(cascade.start), list[int]()
    for token in word:
        y: list[int] = []
        for j, component in enumerate(cascade.components):
            read = x if before else y
            y.append(component.action(token, tuple(read[i] for i in component.reads))[x[j]])
        x = y
        found.append(cascade.state(tuple(x)))
    return found


def sample(t: Trial, count: int) -> Iterator[Dfa]:
    """Automata whose letters merge states: known languages, then random ones."""
    for text in ("(ab)*", "(a|b)*a(a|b)", "(a|b)*aba(a|b)*", "(a(ab)*b)*", "b*(ab*ab*)*ab*bab*"):
        yield parse_regex(text)
    for _ in range(count):
        yield random_dfa(t, t.random.randint(2, 5))


@claim(
    "GRAZZI-thm-5",
    "Every automaton with n states is a cascade of at most 2^n components that permute or reset.",
    source="Grazzi Thm. 5 (Krohn and Rhodes; Maler and Pnueli)",
    kinds="C CL P",
    control={"before": False},
    figure="cascade",
)
def krohn_rhodes(t: Trial, before: bool = True) -> None:
    """Holes and holonomy on known and random automata: all equations in reach, so all lengths; aperiodic: resets only.

    The control reads states after the update, as App. C.5 wires its layers.
    """
    for dfa in sample(t, t.amount(12, 100, 1000)):
        n = len(dfa.states)
        for cascade in (hole_cascade(dfa), holonomy_cascade(dfa), reduce(hole_cascade(dfa))):
            verify_cascade(cascade)
            t.holds(f"components for {n} states", len(cascade.components) <= 2**n, len(cascade.components))
            word = t.random.choices(range(len(dfa.alphabet)), k=40)
            t.equal(f"states after a random word, n = {n}", answers(cascade, word, before=before), _states(dfa, word))
    t.holds("(ab)* by resets only", only_resets(holonomy_cascade(parse_regex("(ab)*"))))


def _states(dfa: Dfa, word: Sequence[int]) -> list[int]:
    q, found = dfa.start, list[int]()
    for token in word:
        q = int(dfa.delta[q, token])
        found.append(q)
    return found


@claim(
    "GRAZZI-thm-4",
    "Stacks of layers whose transitions are products of Householders with eigenvalues in [-1, 1] recognise every "
    "regular language, if each layer gives on its state before the token.",
    source="Grazzi Thm. 4 and App. C.5, repaired (ERRATA-cascade-states)",
    kinds="C CL K",
    control={"before": False},
)
def regular_languages(t: Trial, before: bool = True) -> None:
    """Reduced cascades on DeltaProduct with certificates for all lengths; at most |Q| - 1 layers of size ≤ 2|Q|.

    The control is the literal stack, whose layers read states after the token.
    """
    for dfa in sample(t, t.amount(2, 30, 300)):
        cascade = reduce(hole_cascade(dfa))
        for length in range(1, t.amount(6, 9, 11)):
            for word in product(range(len(dfa.alphabet)), repeat=length):
                t.equal(f"state after {word}", answers(cascade, word, before=before)[-1], _states(dfa, word)[-1])
        if dfa.is_permutation():
            continue
        made = built(dfa, "deltaproduct", construction="cascade")
        small = automaton(made)
        t.certificate(made.certificate.data)
        t.holds("eigenvalues in [-1, 1]", made.program.beta_max <= 2)
        t.holds("layers", made.layers <= max(1, len(small.states) - 1), (made.layers, len(small.states)))
        sizes = [head.size for layer in made.program.layers for head in layer.heads]
        t.holds("sizes", max(sizes) <= 2 * len(small.states), (sizes, len(small.states)))
        if t.sizes["certificates"] <= _RUN:
            through_kernels(t, made)
