"""Errata of the papers' multi-layer arguments: a counterexample to the printed form and a check of the repair.

Main results: ERRATA-M1 to ERRATA-M14. The control of each restores the printed (or tempting) form and must be refuted.

References: Grazzi et al. Def. 1, Thms. 1, 2, 4 and 6, App. C.5 and D; CKDA Thm. 5 and Prop. 10; docs/constructions.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations, product
from typing import Any

import ml_dtypes
import numpy as np

from statetrack.constructions.cascade import Cascade, hole_cascade, verify_cascade
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.factorise import factor_map_to_bank, map_matrix
from statetrack.constructions.holonomy import holonomy_cascade
from statetrack.constructions.program import Factor, step_map
from statetrack.constructions.reduction import reduce
from statetrack.constructions.source import from_automaton
from statetrack.errors import NotExpressible
from statetrack.theory.arrays import identity, matvec, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.monoids import classify
from statetrack.theory.number_fields import rationals
from statetrack.theory.regex import parse_regex
from statetrack.theory.rotations import angle_field

from .ckda_multilayer import after, random_dfa, three_layers, tracked
from .claim import Trial, claim

Map = tuple[int, ...]
Q = rationals()
HALF = Fraction(1, 2)


@claim(
    "ERRATA-M1",
    "In the cascade product the second automaton moves by its own δ', fed the first one's state before the letter; "
    "the printed δ is not defined there.",
    source="Grazzi Def. 1",
    kinds="X",
    control={"printed": True},
)
def cascade_product(t: Trial, printed: bool = False) -> None:
    """Random pairs of automata: δ''((q, q'), w) = (δ(q, w), δ'(q', (q, w))) is defined for all arguments."""
    for _ in range(t.amount(20, 200)):
        n, m = t.random.randint(2, 4), t.random.randint(2, 4)
        first = {(q, w): t.random.randrange(n) for q in range(n) for w in "ab"}
        second = {(p, (q, w)): t.random.randrange(m) for p in range(m) for q in range(n) for w in "ab"}
        rule: dict[Any, int] = {**first} if printed else {**second}
        for p, q, w in product(range(m), range(n), "ab"):
            t.holds(f"the rule is defined at ({p}, ({q}, {w}))", (p, (q, w)) in rule)


def _literal(cascade: Cascade) -> Cascade:
    """The stack of the paper's proof: actions read the states of components above *after* the letter."""

    def step(x: Map, token: int) -> Map:
        y: list[int] = []
        for j, c in enumerate(cascade.components):
            y.append(c.action(token, tuple(y[i] for i in c.reads))[x[j]])
        return tuple(y)

    return replace(cascade, whole=step)


def _wrong_words(cascade: Cascade, length: int, step: Callable[[Map, int], Map]) -> tuple[int, int]:
    """Of all words up to a length: how many there are, and on how many the cascade's state is wrong at the end."""
    dfa, count, wrong = cascade.dfa, 0, 0
    level = [(cascade.start, dfa.start)]
    for _ in range(length):
        level = [(step(x, a), int(dfa.delta[q, a])) for x, q in level for a in range(len(dfa.alphabet))]
        count += len(level)
        wrong += sum(cascade.state(x) != q for x, q in level)
    return count, wrong


@claim(
    "ERRATA-M2",
    "A stack of layers that hands on states after the update does not implement the cascade: for 'the letter before "
    "the last is a' it is wrong on 63 of the 126 words of up to six letters, with holes and with holonomy.",
    source="Grazzi App. C.5 (proof of Thm. 4)",
    kinds="X P",
    control={"before": True},
)
def states_after_the_update(t: Trial, before: bool = False) -> None:
    """The reduced cascades of that language; of random ones some fail too, and reading states before none does."""
    dfa = parse_regex("[ab]*a[ab]")
    for made in (hole_cascade(dfa), holonomy_cascade(dfa)):
        small = reduce(made)
        step = small.step if before else _literal(small).whole
        assert step is not None
        t.equal("words, and wrong ones", _wrong_words(small, 6, step), (126, 63))
    failed = 0
    for _ in range(t.amount(30, 300)):
        small = reduce(hole_cascade(random_dfa(t.random, t.random.randint(3, 5))))
        literal = _literal(small).whole
        assert literal is not None
        t.equal("wrong words with states before", _wrong_words(small, 5, small.step)[1], 0)
        failed += _wrong_words(small, 5, literal)[1] > 0
    t.count("random cascades that fail with states after", failed)
    t.holds("some random cascade fails", failed > 0)


@claim(
    "ERRATA-M3",
    "The bound of 2^|Q| components is far from tight: |Q| - 1 components of sizes |Q|, ..., 2 are enough.",
    source="Grazzi Thm. 5 (Krohn-Rhodes as cited) and the conjecture after Thm. 4",
    kinds="C P",
    control={"fewer": 1},
    hypotheses=("groups of components need not divide the automaton's",),
)
def linearly_many_components(t: Trial, fewer: int = 0) -> None:
    """Holes for random automata of up to six states, verified on everything in reach (OURS-hole-cascade proves it)."""
    for n in range(2, 7):
        for _ in range(t.amount(3, 30)):
            dfa = random_dfa(t.random, n)
            cascade = hole_cascade(dfa)
            t.equal("components", len(cascade.components), len(dfa.states) - 1 - fewer)
            verify_cascade(cascade)
            t.holds("within the printed bound", len(cascade.components) <= 2 ** len(dfa.states))


@claim(
    "ERRATA-M4",
    "In the proof for addition modulo m the state after t letters is (x_1 + ... + x_t) mod m; the printed upper "
    "limit m fails from the first word of more than m letters on.",
    source="Grazzi App. D (proof of Thm. 6)",
    kinds="X",
    control={"printed": True},
)
def upper_limit(t: Trial, printed: bool = False) -> None:
    """The two-layer network of the theorem for m = 3 and 5 against the sum."""
    for m in (3, 5):
        made = compile_source(f"Z{m}", "kda", construction="modular")
        dfa = tracked(made)
        for _ in range(t.amount(6, 60)):
            word = [t.random.randrange(m) for _ in range(2 * m + 2)]
            answers = made.run([dfa.alphabet[x] for x in word])
            for time in range(1, len(word) + 1):
                wanted = sum(word[: min(time, m) if printed else time]) % m
                t.equal(f"Z{m} after {word[:time]}", answers[time - 1], dfa.states[int(dfa.delta[dfa.start, wanted])])


@claim(
    "ERRATA-M5",
    "The clock of three layers has to count modulo 2P, twice the block length: with P slots, addressed modulo P, a "
    "block overwrites the one that is being applied.",
    source="CKDA Thm. 5 ('position modulo a fixed period')",
    kinds="X",
    control={"periods": 1},
)
def twice_the_block(t: Trial, periods: int = 2) -> None:
    """S3 by blocks of two, all words of a length; the first wrong word with P slots is noted."""
    s3 = [tuple(p) for p in permutations(range(3))]
    for word in product(range(6), repeat=t.amount(4, 5)):
        state, states = (0, 1, 2), list[Map]()
        for letter in word:
            state = after(s3[letter], state)
            states.append(state)
        if three_layers(s3, 2, word, period=2) != states:
            t.count("words that P slots get wrong")
        t.equal(f"S3 after {word}", three_layers(s3, 2, word, period=2 * periods), states)
    t.holds("P slots fail", t.sizes.get("words that P slots get wrong", 0) > 0)


@claim(
    "ERRATA-M6",
    "Products of steps that do not expand (2n - 2 factors suffice for those) never make the matrix of a map that "
    "merges states, whose norm is √s > 1.",
    source="CKDA Prop. 10 with Thm. 5",
    kinds="X",
    control={"merging": True},
    proves=True,
)
def norms_of_maps(t: Trial, merging: bool = False) -> None:
    """|M(f) x|² for x = the sum of the points with one image: s² against s = |x|². All maps of up to 5 points.

    Factors with β in [0, 2] and gates in [-1, 1] have norm at most 1, and so have their products.
    """
    for n in range(1, 6):
        for f in product(range(n), repeat=n):
            y = max(set(f), key=f.count)
            x = [int(f[i] == y) for i in range(n)]
            image = matvec(map_matrix(Q, f), vector(Q, x))
            longer = sum((v * v for v in image), Q.zero) > sum(x)
            t.equal(f"{f} expands", longer, len(set(f)) < n and not merging)


@claim(
    "ERRATA-M7",
    "From bank to bank without clearing the target the readouts stay right, but the states are not finitely many: "
    "the garbage grows without bound.",
    source="CKDA Thm. 5 ('finitely many exact values')",
    kinds="E",
    control={"clear": True},
)
def garbage(t: Trial, clear: bool = False) -> None:
    """Resets of two points to 0, 0, 1, 1 in turn by the factors as made, less their gates (a point without preimage is
    cleared by a projection); the largest number after 40, 80, ... blocks.
    """
    one, state, sizes = identity(Q, 4), vector(Q, (0, 0, 1, 0)), list[Fraction]()
    for block in range(t.amount(160, 800)):
        bank, point = block % 2, block % 4 // 2
        factors = factor_map_to_bank(Q, (point, point), bank, gates=True)
        if not clear:
            factors = [replace(g, alpha=None) for g in factors] + [Factor(one[2 * bank + 1 - point], Q.one)]
        state = matvec(step_map(Q, tuple(factors), 4, 1).matrix, state)
        target = state[2 * bank : 2 * bank + 2]
        t.equal(f"target after block {block}", [str(x) for x in target], [str(int(i == point)) for i in range(2)])
        if block % 40 == 39:
            sizes.append(max(abs(x.as_fraction() or Fraction(0)) for x in state))
    t.data["largest number after 40 blocks, 80, ..."] = [str(x) for x in sizes]
    t.holds("the largest number grows", all(a < b for a, b in pairwise(sizes)), [str(x) for x in sizes])


@claim(
    "ERRATA-M8",
    "Powers of single letters do not decide what gates in [0, 1] can do: an automaton whose letters have period 1 "
    "each may have a word of period 2.",
    source="Grazzi Thms. 1 and 2 (powers of one letter)",
    kinds="X",
    control={"longest": 1},
)
def longer_words(t: Trial, longest: int = 2) -> None:
    """Letters a = (2, 3, 2, 3) and b = (0, 1, 1, 0) are idempotent, and ab swaps the states 0 and 1."""
    a, b = (2, 3, 2, 3), (0, 1, 1, 0)
    t.equal("a and b twice", (after(a, a), after(b, b)), (a, b))
    t.equal("ab on 0 and 1", after(b, a)[:2], (1, 0))
    delta = np.array([a, b], dtype=np.int32).T
    dfa = Dfa(("a", "b"), tuple("0123"), 0, delta, (True, False, False, False))
    with t.refutes("gates in [0, 1]", NotExpressible):
        compile_source(dfa, "diag[0,1]")
    shown = classify(from_automaton("two letters", dfa).dfa).witness("is_aperiodic")
    t.equal("letters in the shortest word with a period", len(shown.word) if shown else None, longest)


def _nearest(x: Fraction, values: Iterable[int]) -> int:
    """The value next to x; there are no ties here."""
    ranked = sorted(values, key=lambda v: abs(v - x))
    assert len(ranked) < 2 or abs(ranked[0] - x) != abs(ranked[1] - x), f"tie at {x}"
    return ranked[0]


@claim(
    "ERRATA-M9",
    "'Only aperiodic languages' for DeltaNet with β ≤ 1 is about finitely many exact states: with rounding after "
    "each step a head of two numbers in {-2, ..., 2} counts occurrences of ab modulo 2.",
    source="docs/constructions.md (refusals)",
    kinds="X",
    control={"rounded": False},
)
def rounding_counts(t: Trial, rounded: bool = True) -> None:
    """Keys (-4, 1)/√17 with β = 1 and (-1, -3)/√10 with β = 9/10; from (0, -1) each ab alternates two states."""
    letters = (
        ((-4, 1), Fraction(1), (Fraction(-6, 17), Fraction(3, 34))),
        ((-1, -3), Fraction(9, 10), (Fraction(-9, 50), Fraction(-27, 50))),
    )
    state: tuple[Fraction, ...] = (Fraction(0), Fraction(-1))
    for k in range(1, t.amount(20, 200)):
        for w, beta, b in letters:
            square = sum(x * x for x in w)
            t.holds("b is along the key", b[0] * w[1] == b[1] * w[0])
            along = sum((x * y for x, y in zip(w, state, strict=True)), Fraction(0))
            exact = [x - beta * along * y / square + z for x, y, z in zip(state, w, b, strict=True)]
            state = tuple(Fraction(_nearest(x, range(-2, 3))) if rounded else x for x in exact)
        t.equal(f"state after (ab)^{k}", [str(x) for x in state], ["-1", "0"] if k % 2 else ["0", "-1"])


@claim(
    "ERRATA-M10",
    "Numbers of layers are upper bounds: (ab)* takes one layer of KDA (exact, three states), and one layer of gates "
    "1 with numbers rounded to {0, 1, 3, 100, 102, 103}.",
    source="docs/constructions.md (two layers by cascades)",
    kinds="CL X",
    control={"accepting": (3, 102)},
)
def fewer_layers(t: Trial, accepting: tuple[int, int] = (0, 102)) -> None:
    """Closures of both layers against the automaton."""
    made = compile_source("(ab)*", "kda")
    t.certificate(made.certificate.data)
    t.equal("layers, sizes, states", (made.layers, made.dims, made.certificate.states), (1, ((2,),), ((3,),)))
    w = vector(Q, (1, 1))
    gates = [Factor(w, Q.one, vector(Q, alpha)).matrix() for alpha in ((1, 0), (0, 1))]
    reached = {(1, 0), (0, -1), (0, 0)}
    moved = {tuple(int(float(x)) for x in matvec(a, vector(Q, h))) for a in gates for h in reached}
    t.holds("the exact states are closed", moved <= reached, moved)
    added = {"a": (Fraction(3, 2), Fraction(3, 4)), "b": (Fraction(-3, 4), Fraction(-3, 2))}
    dfa = parse_regex("(ab)*")
    found = [((0, 102), dfa.start)]
    for (x, y), q in found:
        t.equal(f"accepts in {(x, y)}", (x, y) == accepting, dfa.outputs[q])
        for i, letter in enumerate(dfa.alphabet):
            p, r = (_nearest(v + b, (0, 1, 3, 100, 102, 103)) for v, b in zip((x, y), added[letter], strict=True))
            image = ((p, r), int(dfa.delta[q, i]))
            if image not in found:
                found.append(image)
    t.count("joint states", len(found))


@claim(
    "ERRATA-M11",
    "Without a bound on the numbers 'no' is not a theorem: one gate 1 with steps ±1 tells the sign of #a - #b, "
    "which no finite automaton does.",
    source="docs/constructions.md (refusals)",
    kinds="X",
    control={"bound": 5},
)
def unbounded_numbers(t: Trial, bound: int | None = None) -> None:
    """The words a^i, i up to 30 (200), are pairwise told apart by b^j: as many states as that at least."""
    most = t.amount(30, 200)

    def sign(word: Sequence[int]) -> int:
        h = 0
        for x in word:
            h += x
            h = h if bound is None else max(-bound, min(bound, h))
        return (h > 0) - (h < 0)

    rows = {tuple(sign([1] * i + [-1] * j) for j in range(most + 1)) for i in range(most + 1)}
    t.equal("words a^i that are told apart", len(rows), most + 1)


@claim(
    "ERRATA-M12",
    "A reset as h <- h/2 + e_c keeps the state before it as a half only if every step rounds down to multiples of "
    "1/2; half to even fails, and unrounded float32, float16 and bfloat16 reach 2 after 25, 12 and 9 equal resets.",
    source="docs/constructions.md (realisation)",
    kinds="X N",
    control={"down": False},
)
def halves(t: Trial, down: bool = True) -> None:
    """All words of five resets to three points, from every start; then the floats."""

    def rounded(x: Fraction) -> Fraction:
        return HALF * (math.floor(2 * x) if down else round(2 * x))

    for start, word in product(range(3), product(range(3), repeat=t.amount(5, 7))):
        h, past = [Fraction(int(i == start)) for i in range(3)], [start]
        for c in word:
            h = [rounded(HALF * x + int(i == c)) for i, x in enumerate(h)]
            past.append(c)
            halves_at = [i for i, x in enumerate(h) if x % 1]
            now = [i for i, x in enumerate(h) if x >= 1]
            t.equal(f"state and the one before, {past}", (now, halves_at), ([c], [past[-2]]))
    formats: dict[str, tuple[Any, int]] = {
        "float32": (np.float32, 25),
        "float16": (np.float16, 12),
        "bfloat16": (ml_dtypes.bfloat16, 9),
    }
    for name, (kind, steps) in formats.items():
        h, count = kind(0), 0
        while h < 2:
            h, count = kind(h * kind(0.5) + kind(1)), count + 1
        t.equal(f"equal resets until 2 in {name}", count, steps)


@claim(
    "ERRATA-M13",
    "A language is decided by its last k letters with k the number of vertices, not of edges, on the longest path "
    "of pairs of states that letters keep apart; an automaton of one state has k = 0.",
    source="docs/constructions.md (windows); Perles, Rabin and Shamir",
    kinds="X",
    control={"edges": True},
)
def definite(t: Trial, edges: bool = False) -> None:
    """Longest paths of pairs by search, against `classify` and against all words, for k up to 4 (6)."""
    t.equal("one state", classify(parse_regex("[ab]*")).definite, 0)
    for k in range(1, t.amount(5, 7)):
        dfa = parse_regex(f"[ab]*a[ab]{{{k - 1}}}")
        level = {(p, q) for q in range(len(dfa.states)) for p in range(q)}
        vertices = 0
        while level:
            moved = ((int(p), int(q)) for x, y in level for p, q in zip(dfa.delta[x], dfa.delta[y], strict=True))
            level = {(min(pair), max(pair)) for pair in moved if pair[0] != pair[1]}
            vertices += 1
        t.equal("classified", classify(dfa).definite, k)
        t.equal("vertices of the longest path" if not edges else "edges", vertices - edges, k)
        ends = {word: {_end(dfa, q, word) for q in range(len(dfa.states))} for word in product((0, 1), repeat=k)}
        t.holds("the last k letters decide", all(len(found) == 1 for found in ends.values()))


def _end(dfa: Dfa, state: int, word: Sequence[int]) -> int:
    for letter in word:
        state = int(dfa.delta[state, letter])
    return state


@claim(
    "ERRATA-M14",
    "The two mirrors of the reflecting clock read with the query e_1 alone show m values at 2m times; together with "
    "the parity of the layer below they tell all 2m times apart.",
    source="docs/constructions.md (clocks)",
    kinds="E",
    control={"parity": False},
)
def mirrors_with_parity(t: Trial, parity: bool = True) -> None:
    """H(0) at odd and H(2π/m) at even times, started at the angle 2π/8m, exactly, for m up to 6 (24).

    In units of 2π/8m the angle goes to its negative, then to 8 less itself.
    """
    for m in range(2, t.amount(7, 25)):
        field, angle, read = angle_field(8 * m), 1, set[tuple[Any, int]]()
        for time in range(1, 2 * m + 1):
            angle = (-angle if time % 2 else 8 - angle) % (8 * m)
            read.add((field.cos(angle, 8 * m), time % 2 if parity else 0))
        t.equal(f"start again after 2m = {2 * m}", angle, 1)
        t.equal(f"times told apart for m = {m}", len(read), 2 * m)
