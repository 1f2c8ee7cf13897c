"""Claims about three layers of Complex KDA: clock, buffer, accumulator, and the factors that the accumulator takes.

Main definitions: `through_kernels`, `tracked`, `random_dfa`, `small_wfa`, `three_layers` (the definition, executed
on permutations).

Main results: CKDA-thm-5a, CKDA-thm-5b, CKDA-thm-5c, CKDA-layers-compared, OURS-factor-permutation, OURS-factor-map,
OURS-factor-bank, OURS-factor-scaled, OURS-norm-bound, OURS-single-factor.

References: CKDA Thm. 5; docs/constructions.md, *Clock, buffer, accumulator*; docs/certificate.md for the block lemma.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np

from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.factorise import (
    factor_map,
    factor_map_scaled,
    factor_map_to_bank,
    factor_to_bank,
    map_matrix,
    swaps,
)
from statetrack.constructions.program import Factor, step_map
from statetrack.constructions.source import Options
from statetrack.theory.arrays import Matrix, diagonal, identity, matmul, matrix, matvec, scale, transpose
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.groups import cycles, named_group, reflections_needed
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa, from_matrices

from .claim import Trial, claim

Map = tuple[int, ...]
Q = rationals()


def through_kernels(t: Trial, source: str | Dfa, goal: str, **options: str) -> None:
    """Run random words through the kernels, if the trial has a device: every decoded answer must be the automaton's."""
    if t.kernels is not None:
        letters = options.pop("letters", "all")
        made = compile_source(source, goal, options=Options(letters=letters), **options)  # pyright: ignore
        t.kernel_run(made, 8, t.amount(200, 100_000))


def tracked(made: Compiled) -> Dfa:
    """The automaton that a network tracks."""
    assert isinstance(made.automaton, Dfa)
    return made.automaton


def random_dfa(draw: random.Random, states: int, letters: Sequence[Map] = (), *, symbols: int = 2) -> Dfa:
    """A minimal automaton with given or random letters and a random set of accepting states."""
    maps = letters or [[draw.randrange(states) for _ in range(states)] for _ in range(symbols)]
    names = tuple(str(q) for q in range(states))
    outputs = tuple(q == states - 1 or draw.random() < 0.4 for q in range(states))
    delta = np.array(maps, dtype=np.int32).reshape(len(maps), states).T
    return minimise(Dfa(tuple("abcdefgh"[: len(maps)]), names, 0, delta, outputs))


def after(g: Map, f: Map) -> Map:
    """g after f."""
    return tuple(g[i] for i in f)


def three_layers(maps: Sequence[Map], length: int, word: Sequence[int], *, period: int) -> list[Map]:
    """What clock, buffer and accumulator read after each token, executed as defined, on permutations of points.

    The buffer has `period` slots, of which slot (t - 1) mod period is written at time t; the accumulator takes one swap
    of the block before a token, read from the slots at that time. 2·length is the period that works.
    """
    n = len(maps[0])
    one = tuple(range(n))
    slots: list[Map | None] = [None] * period
    held, answers = one, list[Map]()
    for t, letter in enumerate(word):
        slots[t % period] = maps[letter]
        r, begin = t % length + 1, t % period - t % length
        before = [slots[(begin - length + i) % period] for i in range(length)]
        block = one
        for f in before:
            block = after(f, block) if f is not None else block
        steps = [_swapped(n, pair) for pair in _swaps_of(block)] if None not in before else []
        steps += [one] * (length - len(steps))
        held = after(steps[r - 1], held)
        rest = one
        for f in [*steps[r:], *(maps[letter] for letter in word[t - r + 1 : t + 1])]:
            rest = after(f, rest)
        answers.append(after(rest, held))
    return answers


def _swaps_of(f: Map) -> list[tuple[int, int]]:
    return [pair for cycle in cycles(f) for pair in reversed(list(pairwise(cycle)))]


def _swapped(n: int, pair: tuple[int, int]) -> Map:
    i, j = pair
    return tuple(j if k == i else i if k == j else k for k in range(n))


@claim(
    "CKDA-thm-5a",
    "Three layers of Complex KDA with β ≤ 2 solve the word problem of every finite group, all elements being letters.",
    source="CKDA Thm. 5 (finite groups)",
    kinds="C CL X K",
    control={"periods": 1},
    hypotheses=("a faithful action on n points is given", "blocks of P ≥ n - 1 tokens, or as few as the swaps allow"),
)
def groups_in_three_layers(t: Trial, periods: int = 2) -> None:
    """The definition on S3, all short words, with a buffer of `periods` blocks; certificates of groups by blocks.

    The block lemma (docs/certificate.md) gives all groups from the swaps of OURS-factor-permutation.
    """
    s3 = [tuple(p) for p in permutations(range(3))]
    for word in product(range(6), repeat=t.amount(4, 5, 6)):
        state, states = (0, 1, 2), list[Map]()
        for letter in word:
            state = after(s3[letter], state)
            states.append(state)
        t.equal(f"S3 after {word}", three_layers(s3, 2, word, period=2 * periods), states)
    for name in ("S3", "Q8", "S4", "A5", "S5")[: t.amount(3, 5)]:
        made = compile_source(name, "ckda", construction="blocks")
        t.certificate(made.certificate.data)
        length = int(made.certificate.data["length"])
        points = named_group(name).degree
        t.equal(f"{name}: layers and sizes", [sum(row) for row in made.dims], [2, 2 * length, points])
        t.holds(f"{name}: P at most n - 1, β at most 2", length < points and made.program.beta_max <= 2)
        word = t.random.choices(made.automaton.alphabet, k=60)
        t.equal(f"{name}: a random word", made.run(word), tracked(made).run(word))
    through_kernels(t, "S4", "ckda", construction="blocks")


@claim(
    "CKDA-thm-5b",
    "Three layers of Complex KDA recognise every regular language if β may pass 2: β ≤ 2 + (s - 1)/2 in place, or β "
    "≤ 1 + s with gates in {0, 1}, s being the largest number of states that a word merges.",
    source="CKDA Thm. 5 (regular languages)",
    kinds="C CL K",
    control={"free": 1},
    hypotheses=("β ≥ 0 without upper bound",),
)
def languages_in_three_layers(t: Trial, free: int = 0) -> None:
    """Certificates for known and for random automata; the control says that gates in {0, 1} and β ≤ s do it too."""
    known = ("(ab)*", "[ab]*aba[ab]*", "(a(ab)*b)*", "[ab]*a[ab]{2}")
    found = [random_dfa(t.random, t.random.randint(3, 4)) for _ in range(t.amount(3, 100))]
    for source in (*known, *found):
        for goal, layers in (("ckda-wide", 3), ("kda-wide", 4)):
            if isinstance(source, Dfa) and (len(source.states) < 2 or _idle(source)):
                continue
            made = compile_source(source, goal, construction="blocks")
            t.certificate(made.certificate.data)
            t.equal("layers", made.layers, layers)
            n = len(tracked(made).states)
            bound = 1 - free + n if max(made.dims[-1]) == 2 * n else 2 + Fraction(n - 1, 2)
            beta = made.program.beta_max.as_fraction()
            t.holds(f"β at most {bound}", beta is not None and beta <= bound, beta)
            word = t.random.choices(made.automaton.alphabet, k=30)
            t.equal("a random word", made.run(word), tracked(made).run(word))
    # The bound on β with equality: a letter that merges all n points, from bank to bank.
    for n in range(2, 6):
        beta = max(factor.beta for factor in factor_map_to_bank(Q, (0,) * n, 1, gates=True))
        t.equal(f"β of merging {n} points", beta, 1 - free + n)
    through_kernels(t, "[ab]*aba[ab]*", "ckda-wide", construction="blocks")


def _idle(dfa: Dfa) -> bool:
    """True if every letter takes at most one factor, so that no blocks are needed."""
    maps = [tuple(int(q) for q in column) for column in dfa.delta.T]
    sink = any(all(f[z] == z for f in maps) for z in range(len(dfa.states)))
    return sink or all(len(factor_map(Q, f)) <= 1 for f in maps)


def small_wfa(draw: random.Random, size: int, *, symbols: int = 2) -> Wfa:
    """A weighted automaton with small random rational entries."""

    def number() -> Fraction:
        return Fraction(draw.randint(-3, 3), draw.randint(1, 3))

    rows = {s: [[number() for _ in range(size)] for _ in range(size)] for s in "abc"[:symbols]}
    return from_matrices("abc"[:symbols], [number() for _ in range(size)], rows, [number() for _ in range(size)])


@claim(
    "CKDA-thm-5c",
    "Three layers of Complex KDA compute every weighted automaton over the rationals exactly if β may pass 2.",
    source="CKDA Thm. 5 (weighted automata)",
    kinds="C P K",
    control={"wrong_by": Fraction(1, 10**6)},
    hypotheses=("exact rational arithmetic", "β ≥ 0 without upper bound"),
)
def weighted_in_three_layers(t: Trial, wrong_by: Fraction = Fraction(0)) -> None:
    """Blocks certificates for automata with singular, nilpotent and zero letters and for random ones; exact values."""
    half = Fraction(1, 2)
    rows = {"a": [[1, 2], [half, 1]], "b": [[0, 1], [0, 0]], "c": [[0, 0], [0, 0]], "d": [[1, 1], [0, 1]]}
    given = [from_matrices("abcd", [1, 1], rows, [1, -1])]
    given += [small_wfa(t.random, t.random.randint(1, 3)) for _ in range(t.amount(3, 60))]
    for wfa in given:
        for goal, layers in (("ckda-wide", 3), ("kda-wide", 4)):
            made = compile_source(wfa, goal)
            t.certificate(made.certificate.data)
            t.equal("layers", made.layers, layers)
            for _ in range(2):
                word = t.random.choices(wfa.alphabet, k=t.amount(20, 60))
                wanted = tuple(value + wrong_by for value in wfa.run(word))
                t.equal(f"values of {''.join(word)}", [str(x) for x in made.run(word)], [str(x) for x in wanted])
    if t.kernels is not None:
        small = from_matrices("ab", [1, 0], {"a": [[half, half], [0, half]], "b": [[half, 0], [half, half]]}, [1, 1])
        t.kernel_values(compile_source(small, "ckda-wide"), t.random.choices("ab", k=40))


@claim(
    "CKDA-layers-compared",
    "By blocks Complex KDA and products of two factors take three layers for S4, and DeltaNet, Gated DeltaNet and "
    "KDA take four, all with β ≤ 2 and the same block length.",
    source="CKDA Sec. 5 (one layer fewer than Gated DeltaNet)",
    kinds="C CL",
    control={"saved": 0},
    hypotheses=("numbers of layers are those of these constructions, not least ones",),
)
def layers_compared(t: Trial, saved: int = 1) -> None:
    """A certificate for each architecture, the layers counted."""
    for goal, layers in (("ckda", 3), ("deltanet", 3 + saved), ("gdn", 3 + saved), ("kda", 3 + saved)):
        made = compile_source("S4", goal, construction="blocks")
        t.certificate(made.certificate.data)
        t.equal(f"layers of {goal}", made.layers, layers)
        t.equal(f"block length on {goal}", made.certificate.data["length"], 3)
        t.holds(f"β at most 2 on {goal}", made.program.beta_max <= 2)
    made = compile_source("S4", "deltaproduct", construction="blocks", max_factors=2)
    t.certificate(made.certificate.data)
    t.equal("layers of products of two factors", made.layers, 3)


def matrix_of(factors: Sequence[Factor], n: int) -> Matrix:
    """The product of factors on n rationals, the first applied first."""
    return step_map(Q, tuple(factors), n, 1).matrix


def plain(m: Matrix) -> list[list[str]]:
    """A matrix to compare and to show in a message."""
    return [[str(x) for x in row] for row in m]


@claim(
    "OURS-factor-permutation",
    "A permutation matrix of n points is a product of n - #cycles reflections, and an n-cycle is no product of "
    "fewer than n - 1 factors (I - c w wᵀ) Diag(α).",
    source="docs/constructions.md; Grazzi Thm. 3 (with the exact count)",
    kinds="E X",
    control={"first": "x0"},
)
def permutations_by_swaps(t: Trial, first: str = "last") -> None:
    """All permutations of up to 5 (6) points. The bound: a product of P factors is diagonal plus rank P at most.

    Leave out of (n-cycle) - (any diagonal matrix) the row x_0 and the column x_{n-1}: what is left, in the order
    of the cycle, is triangular with ones on the diagonal, so the rank is at least n - 1.
    """
    for n in range(1, t.amount(5, 6, 7) + 1):
        for p in permutations(range(n)):
            factors = swaps(Q, p)
            factors = factors if first == "last" else factors[::-1]
            t.equal(f"product of the swaps of {p}", plain(matrix_of(factors, n)), plain(map_matrix(Q, p)))
            t.equal(f"number of swaps of {p}", len(factors), reflections_needed(p))
            t.holds("reflections", all(f.beta == 2 and f.alpha is None for f in factors))
    for n in range(2, 9):
        diagonal = [t.random.randint(-5, 5) for _ in range(n)]
        rest = [[int(i == j + 1) - diagonal[i] * int(i == j) for j in range(n - 1)] for i in range(1, n)]
        t.holds("triangular", all(rest[i][j] == (i == j) for i in range(n - 1) for j in range(i + 1)))


@claim(
    "OURS-factor-map",
    "Every map of n points is a product of at most max(2, n - 1) factors in dimension n, with gates in {-1, 0, 1} "
    "and β ≤ 2 + (s - 1)/2, s being the largest number of points with one image.",
    source="docs/constructions.md",
    kinds="E X P",
    control={"erase": False},
)
def maps_in_place(t: Trial, erase: bool = True) -> None:
    """All maps of up to 4 (5) points, random ones of up to 9; the control keeps the garbage of merges."""
    larger = [tuple(t.random.choices(range(n), k=n)) for n in range(5, 10) for _ in range(t.amount(6, 100))]
    for f in (*(f for n in range(1, t.amount(5, 6)) for f in product(range(n), repeat=n)), *larger):
        n, factors = len(f), factor_map(Q, f)
        if not erase:
            factors = [
                replace(g, alpha=g.alpha and tuple(x if x.sign() < 0 else Q.one for x in g.alpha)) for g in factors
            ]
        t.equal(f"product for {f}", plain(matrix_of(factors, n)), plain(map_matrix(Q, f)))
        t.holds(f"number of factors for {f}", len(factors) <= max(2, n - 1), len(factors))
        most = max(f.count(y) for y in f)
        t.holds(f"β for {f}", all(g.beta <= 2 + Q(most - 1) / 2 for g in factors))
        t.holds(f"gates for {f}", all(x in (-1, 0, 1) for g in factors for x in g.alpha or ()))


@claim(
    "OURS-factor-bank",
    "From one bank of n numbers to the other, whatever that held, a map takes as many factors as it has images, and "
    "a rational matrix as many as its rank (one if that is 0), with gates in {0, 1}.",
    source="docs/constructions.md",
    kinds="E X P",
    control={"clear": False},
)
def from_bank_to_bank(t: Trial, clear: bool = True) -> None:
    """All partial maps of up to 3 points, random matrices of all ranks; the control does not clear the target."""
    maps = [f for n in range(1, 4) for f in product(range(-1, n), repeat=n)]
    cases = [(map_matrix(Q, f), factor_map_to_bank(Q, f, 1, gates=True), len(set(f) - {-1})) for f in maps]
    for _ in range(t.amount(60, 1500)):
        n = t.random.randint(1, 4)
        rank = t.random.randint(0, n)
        m = _random_of_rank(t.random, n, rank)
        cases.append((m, factor_to_bank(m, 1, gates=True), len(_independent(m))))
    for m, factors, rank in cases:
        n = len(m)
        if not clear:
            factors = [replace(g, alpha=None) for g in factors]
        one = identity(Q, 2 * n)
        moved = matmul(one[n:], matrix_of(factors, 2 * n))
        t.equal("target after the factors", plain(moved), plain(matmul(m, one[:n])))
        t.equal("number of factors", len(factors), max(rank, 1))
        t.holds("gates", all(x in (0, 1) for g in factors for x in g.alpha or ()))


def _random_of_rank(draw: random.Random, n: int, rank: int) -> Matrix:
    left = matrix(Q, ([Q(Fraction(draw.randint(-3, 3), draw.randint(1, 3))) for _ in range(rank)] for _ in range(n)))
    right = matrix(Q, ([draw.randint(-2, 2) for _ in range(n)] for _ in range(rank)))
    return matmul(left, right) if rank else matrix(Q, ([0] * n for _ in range(n)))


def _independent(m: Matrix) -> list[list[Fraction]]:
    """Rows of an echelon form, by Gaussian elimination."""
    rows = [[x.as_fraction() or Fraction(0) for x in row] for row in m]
    found: list[list[Fraction]] = []
    for column in range(len(m)):
        pivot = next((row for row in rows if row[column]), None)
        if pivot is not None:
            rows.remove(pivot)
            rows = [[x - row[column] / pivot[column] * y for x, y in zip(row, pivot, strict=True)] for row in rows]
            found.append(pivot)
    return found


@claim(
    "OURS-factor-scaled",
    "With β ≤ 2 every map of n points is a product of factors up to a power of 1/2, which is 1 only for permutations.",
    source="docs/constructions.md",
    kinds="E X",
    control={"scaled": False},
)
def maps_up_to_a_scale(t: Trial, scaled: bool = True) -> None:
    """All maps of up to 4 (5) points."""
    for n in range(1, t.amount(5, 6)):
        for f in product(range(n), repeat=n):
            factors, halved = factor_map_scaled(Q, f)
            expected = scale(Q.one / 2**halved if scaled else Q.one, map_matrix(Q, f))
            t.equal(f"product for {f}", plain(matrix_of(factors, n)), plain(expected))
            t.holds(f"β for {f}", all(g.beta <= 2 for g in factors))
            t.equal(f"scale 1 for {f}", halved == 0, len(set(f)) == n)


@claim(
    "OURS-norm-bound",
    "If P factors with β ≤ B make a map that merges s > 1 points then B > 2 and (B - 1)^P ≥ √s.",
    source="docs/constructions.md",
    kinds="E X",
    control={"power": 1},
    hypotheses=("gates in [-1, 1]",),
    proves=True,
)
def merging_needs_norm(t: Trial, power: int = 2) -> None:
    """|I - c w wᵀ| = max(1, |1 - β|): it is symmetric, w is multiplied by 1 - β and what is orthogonal to w kept.

    Gates do not expand. M Mᵀ is diagonal with the numbers of points that have one image, so |M|² = s. Checked for
    random keys, all maps of up to 4 (5) points, and on the factors that `factor_map` finds.
    """
    for _ in range(t.amount(40, 400)):
        w = tuple(Q(t.random.randint(-4, 4)) for _ in range(3))
        factor = Factor(w, Q(Fraction(t.random.randint(0, 6), 3)))
        other = (w[1], -w[0], Q.zero)
        t.equal("along the key", matvec(factor.matrix(), w), tuple((1 - factor.beta) * x for x in w))
        t.equal("across the key", matvec(factor.matrix(), other), other)
        t.equal("symmetric", factor.matrix(), transpose(factor.matrix()))
    for n in range(1, t.amount(5, 6)):
        for f in product(range(n), repeat=n):
            m, most = map_matrix(Q, f), max(f.count(y) for y in f)
            square = matmul(m, transpose(m))
            t.equal(f"M Mᵀ for {f}", plain(square), plain(diagonal(Q, [f.count(i) for i in range(n)])))
            bound = Q.one
            for factor in factor_map(Q, f):
                norm = max(Q.one, factor.beta - 1)
                bound = bound * (norm * norm if power == 2 else norm)
            t.holds(f"product of the norms for {f}, squared", bound >= most, bound)


@claim(
    "OURS-single-factor",
    "A total map is one factor (I - c w wᵀ) Diag(α), with any c, w and α, only if it is the identity or a swap.",
    source="docs/constructions.md",
    kinds="X E",
    control={"swaps_too": False},
    proves=True,
)
def one_factor_is_one_swap(t: Trial, swaps_too: bool = True) -> None:
    """All zero patterns of w and α and all maps of up to 4 points.

    The entry (i, j), i ≠ j, is -c w_i w_j α_j: not 0 iff i and j are in the support Z of w and j in that of α. A total
    map has no zero column, so the patterns of its entries off the diagonal and of α must fit; that leaves the identity
    and swaps. For any n: α_j ≠ 0 for all j (a column j with α_j = 0 is zero), so all pairs in Z have entries, and a
    column has one entry only, so |Z| ≤ 2.
    """
    for n in range(1, 5):
        pairs = [(i, j) for i in range(n) for j in range(n) if i != j]
        patterns = {
            (zs, live): {(i, j) for i, j in pairs if i in zs and j in zs and j in live}
            for zs in _subsets(n)
            for live in _subsets(n)
        }
        for f in product(range(n), repeat=n):
            wanted = {(f[j], j) for j in range(n) if f[j] != j}
            fitting = any(entries == wanted and len(live) == n for (_, live), entries in patterns.items())
            swap = sorted(f) == list(range(n)) and reflections_needed(f) <= int(swaps_too)
            t.equal(f"a factor's pattern fits {f}", fitting, swap)
            if swap:
                t.equal(f"the factor of {f}", plain(matrix_of(swaps(Q, f), n)), plain(map_matrix(Q, f)))


def _subsets(n: int) -> Iterable[frozenset[int]]:
    return (frozenset(i for i in range(n) if mask >> i & 1) for mask in range(1 << n))
