"""Claims about permutation-reset cascades, and what architectures without groups cannot do.

Main results: OURS-hole-cascade, OURS-holonomy, OURS-chain-of-sets, OURS-quotient-cascade, OURS-sink-is-zero,
OURS-splitting, OURS-two-group-tower, OURS-O3, OURS-O5.

References: docs/constructions.md, *Cascades* and *Refusals*; Krohn and Rhodes; Zeiger; Maler and Pnueli.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, islice, product

import numpy as np
from flint import fmpq, fmpq_mat

from statetrack.constructions.cascade import hole_cascade, only_resets, verify_cascade
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.descents import Listing, hole_descent, holonomy_descent, listing
from statetrack.constructions.factorise import factor_partial, map_matrix
from statetrack.constructions.holonomy import holonomy_cascade
from statetrack.constructions.program import Factor
from statetrack.constructions.quotients import congruences, parallel_cascade, quotient_cascade
from statetrack.constructions.splitting import split_group, split_resets
from statetrack.errors import NotExpressible
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import named_group
from statetrack.theory.monoids import classify
from statetrack.theory.regex import parse_regex

from .ckda_multilayer import Q, matrix_of, plain, random_dfa, through_kernels
from .claim import Trial, claim

Map = tuple[int, ...]
States = tuple[int, ...]


def _automaton(maps: Sequence[Map], start: int) -> Dfa:
    n = len(maps[0])
    names = tuple(str(q) for q in range(n))
    delta = np.array(maps, dtype=np.int32).reshape(len(maps), n).T
    return Dfa(tuple(str(a) for a in range(len(maps))), names, start, delta, names)


def _hole_after(g: Map, p: int, outside: bool) -> int:
    """The hole after a map, by definition: moved by a bijection, else the least point outside (or inside) the image."""
    inside = set(g)
    if len(inside) == len(g):
        return g[p]
    return next(i for i in range(len(g)) if (i in inside) != outside)


def _holes_after(g: Map, holes: States, outside: bool) -> States:
    """All holes after a map, by definition: below a hole the other points are numbered in order."""
    found: list[int] = []
    for p in holes:
        moved = _hole_after(g, p, outside)
        found.append(moved)
        rest = [q for q in range(len(g)) if q != moved]
        g = tuple(rest.index(g[i]) if g[i] in rest else 0 for i in range(len(g)) if i != p)
    return tuple(found)


def _left_over(holes: States) -> int:
    """The one point that no hole takes."""
    points = list(range(len(holes) + 1))
    for p in holes:
        del points[p]
    return points[0]


@claim(
    "OURS-hole-cascade",
    "Every automaton of n states is a permutation-reset cascade of n - 1 components of sizes n, n - 1, ..., 2: "
    "W(step(x, a)) = δ_a(W(x)) for all component states x.",
    source="docs/constructions.md (holes); Grazzi Thm. 4 asks for at most 2^n components",
    kinds="C X P",
    control={"outside": False},
    proves=True,
    figure="cascade",
)
def holes(t: Trial, outside: bool = True) -> None:
    """All maps of up to 4 points and random ones of 5 (6), all component states, against the definition of holes.

    For any n: a letter g maps the complement of the hole p into that of the new hole p'. If g is bijective then
    p' = g(p); if not, p' is outside the image. So the next component has a map of the points that are left, and
    induction gives W. An action is a bijection or a constant by definition. The control takes p' inside the image.
    """
    for n in range(1, t.amount(6, 7)):
        maps = list(product(range(n), repeat=n))
        letters = maps if n < 5 else t.random.sample(maps, 24)
        cascade = hole_cascade(_automaton(letters, 0))
        t.equal(f"sizes for n = {n}", [c.size for c in cascade.components], list(range(n, 1, -1)))
        for x in product(*(range(c.size) for c in cascade.components)):
            state = _left_over(x)
            for token, g in enumerate(letters):
                moved = _holes_after(g, x, outside)
                t.equal(f"W after {g} at {x}", _left_over(moved), g[state])
                if token % 4 == 0:
                    t.equal(f"step by {g} at {x}", cascade.step(x, token), moved)
                    t.equal(f"W at {x}", cascade.state(x), state)


@claim(
    "OURS-holonomy",
    "The holonomy cascade emulates its automaton from every component state, and its groups divide the automaton's: "
    "an automaton without groups has identities and resets only.",
    source="docs/constructions.md (holonomy); Zeiger; Eilenberg",
    kinds="C P",
    control={"groups_too": True},
    figure="cascade",
)
def holonomy(t: Trial, groups_too: bool = False) -> None:
    """Known and random automata, with and without components that keep their states; the control asks resets of all."""
    known = ("(ab)*", "[ab]*aba[ab]*", "(a(ab)*b)*", "[ab]*a[ab]{2}", "(aa)*b*", "(a|bb)*")
    found = [random_dfa(t.random, t.random.randint(3, 5)) for _ in range(t.amount(60, 300))]
    for dfa in (*(parse_regex(source) for source in known), *found):
        aperiodic = classify(dfa, max_monoid=5_000).is_aperiodic
        for keep in (False, True):
            cascade = holonomy_cascade(dfa, keep=keep)
            verify_cascade(cascade)
            for x in islice(product(*(range(c.size) for c in cascade.components)), t.amount(60, 2000)):
                for letter in range(len(dfa.alphabet)):
                    state = int(dfa.delta[cascade.state(x), letter])
                    t.equal(f"W after {letter} at {x}", cascade.state(cascade.step(x, letter)), state)
            if aperiodic or groups_too:
                t.holds("only identities and resets", only_resets(cascade))
                t.count("without groups")


@claim(
    "OURS-chain-of-sets",
    "What a level of a hole or holonomy cascade does depends on the token and on the set above it before and after the "
    "token only. Listed level by level such triples hold all that can be, and the chain tells the automaton's state.",
    source="docs/certificate.md (chains of sets); Zeiger",
    kinds="C X CL K",
    control={"both": False},
    figure="cascade",
)
def chains(t: Trial, both: bool = True) -> None:
    """Known and random automata, by the tables and as networks; the control looks up by the set before only."""
    known = ("(ab)*", "[ab]*aba[ab]*", "(a(ab)*b)*", "(b*ab*ab*)*a[ab]")
    found = [random_dfa(t.random, t.random.randint(3, 5)) for _ in range(t.amount(20, 200))]
    for dfa in (*(parse_regex(source) for source in known), *found):
        for made in (listing(hole_descent(dfa)), listing(holonomy_descent(dfa))):
            t.count("triples", made.triples)
            for word in product(range(len(dfa.alphabet)), repeat=t.amount(4, 6)):
                told = dfa.trace(dfa.alphabet[token] for token in word)[-1]
                t.equal(f"state after {word}", _below(made, word, both), told)
    for source in known[1 :: t.amount(2, 1)]:
        for goal in ("ckda", "deltanet", "deltaproduct")[:: t.amount(2, 1)]:
            made = compile_source(source, goal, construction="chain")
            t.certificate(made.certificate.data)
            for word in product(made.automaton.alphabet, repeat=4):
                t.equal(f"{source} on {goal}, {word}", made.run(word), made.automaton.run(word))
    through_kernels(t, "[ab]*aba[ab]*", "kda", construction="chain")


def _below(made: Listing, word: Sequence[int], both: bool) -> int:
    """The state below the chain after a word, by the listed tables."""
    tables = [{(p, q if both else 0, token): f for (p, q, token), f in table.items()} for table in made.actions]
    values, q = list(made.starts), made.dfa.start
    for token in word:
        p = q = 0
        for i, narrow in enumerate(made.narrow):
            moved = tables[i][p, q if both else 0, token][values[i]]
            p, q, values[i] = narrow[p, values[i]], narrow[q, moved], moved
    return q


@claim(
    "OURS-quotient-cascade",
    "A cascade of a quotient over one of the places inside the classes is a cascade of the automaton, and two "
    "congruences that do not both merge any two states give two quotients side by side.",
    source="docs/constructions.md (congruences); Hartmanis and Stearns",
    kinds="C P",
    control={"arbitrary": True},
)
def quotients(t: Trial, arbitrary: bool = False) -> None:
    """Automata of pairs (class, place), random; the control takes the partition that merges the first two states."""
    for _ in range(t.amount(12, 120)):
        classes, places = t.random.randint(2, 3), t.random.randint(2, 3)
        maps: list[Map] = []
        for _ in range(2):
            over = t.random.choices(range(classes), k=classes)
            inside = [t.random.choices(range(places), k=places) for _ in range(classes)]
            maps.append(tuple(over[c] * places + inside[c][x] for c in range(classes) for x in range(places)))
        dfa = _automaton(maps, 0)
        found = congruences(dfa)
        t.holds("a congruence is found", bool(found))
        for partition in ((0, 0, *range(1, classes * places - 1)),) if arbitrary else found:
            for f in maps:
                images = {(partition[q], partition[f[q]]) for q in range(len(f))}
                t.equal(f"{f} maps classes of {partition} to classes", len(images), max(partition) + 1)
            verify_cascade(quotient_cascade(dfa, partition))
        for p, q in combinations(found, 2):
            if len({*zip(p, q, strict=True)}) == len(p):
                verify_cascade(parallel_cascade(dfa, p, q))
                t.count("side by side")


@claim(
    "OURS-sink-is-zero",
    "If all letters are injective off one absorbing state then that state can be the zero vector: dimension n - 1, "
    "β ≤ 2, finitely many states, at most one factor more than the swaps.",
    source="docs/constructions.md",
    kinds="E X CL K",
    control={"zeros": False},
)
def sink_is_zero(t: Trial, zeros: bool = True) -> None:
    """All partial injections of up to 4 points; certificates for (ab)* in one layer, brackets to depth 2 in three."""
    change: Callable[[Factor], Factor] = (lambda g: g) if zeros else (lambda g: replace(g, alpha=None))
    for n in range(1, 5):
        for f in product(range(-1, n), repeat=n):
            kept = [y for y in f if y >= 0]
            if len(set(kept)) == len(kept):
                factors = factor_partial(Q, f, gates=True)
                product_of = matrix_of([change(g) for g in factors], n)
                t.equal(f"product for {f}", plain(product_of), plain(map_matrix(Q, f)))
                t.holds(f"β and number for {f}", len(factors) <= max(1, n - 1) and all(g.beta <= 2 for g in factors))
    for goal in ("ckda", "kda"):
        made = compile_source("(ab)*", goal, construction="partial")
        t.certificate(made.certificate.data)
        t.equal("sizes for (ab)*", made.dims, ((2,),))
        t.equal("states for (ab)*", made.certificate.states, ((3,),))
    made = compile_source("(a(ab)*b)*", "ckda", construction="blocks")
    t.certificate(made.certificate.data)
    t.equal("sizes for brackets to depth 2", [sum(row) for row in made.dims], [2, 4, 3])
    t.equal("largest β", made.program.beta_max, 2)
    through_kernels(t, "(a(ab)*b)*", "ckda", construction="blocks")


@claim(
    "OURS-splitting",
    "A component is its group over resets, x = g·y: a bijection π moves g to πg, a constant c sets y to g⁻¹c. A "
    "group is a cascade of coset actions along any chain of subgroups.",
    source="docs/constructions.md; Krohn and Rhodes",
    kinds="E X C",
    control={"inverse": False},
)
def splitting(t: Trial, inverse: bool = True) -> None:
    """Components of up to 4 points, all (g, y); chains of groups of order up to 24 (120), all component states."""
    for _ in range(t.amount(20, 200)):
        m = t.random.randint(2, 4)
        constants = [(c,) * m for c in range(m)]
        actions = [tuple(t.random.sample(range(m), m)) for _ in range(2)] + constants
        split = split_resets(actions)
        elements = [split.group.permutation(g) for g in range(split.group.order)]
        for f, (g, element), y in product(actions, enumerate(elements), range(m)):
            moved, image = split.step(f, g, y)
            t.equal(f"{f} at {element}·{y}", split.state(moved, image), f[element[y]])
            if f in constants:
                wanted = element.index(f[0]) if inverse else element[f[0]]
                t.equal(f"reset {f} at {element}", (moved, image), (g, wanted))
    for name in ("S3", "Q8", "A4", "S4", "A5", "S5")[: t.amount(4, 6)]:
        group = named_group(name)
        cascade = split_group(group, range(group.order))
        t.equal(f"component states of {name}", len(verify_cascade(cascade).states), group.order)


@claim(
    "OURS-two-group-tower",
    "The word problem of a group of order 2^k is a cascade of k signs, each flipped or kept: diagonal gates ±1 "
    "track it.",
    source="docs/constructions.md; Grazzi Thm. 2 (the converse for groups)",
    kinds="C X CL K",
    control={"names": ("S3",)},
    hypotheses=("a sign for each subgroup of index two, k layers at most",),
)
def towers(t: Trial, names: tuple[str, ...] = ("Z4", "Q8", "D4", "Z8", "D8")) -> None:
    """The groups of the list, all letters; the control is a group whose order is no power of two."""
    for name in names:
        group = named_group(name)
        cascade = split_group(group, range(group.order))
        sizes = [c.size for c in cascade.components]
        t.equal(f"components of {name}", sizes, [2] * (group.order.bit_length() - 1))
        t.equal(f"states of {name}", len(verify_cascade(cascade).states), group.order)
        made = compile_source(name, "diag[-1,1]", construction="tower")
        t.certificate(made.certificate.data)
        t.holds(f"layers for {name}", made.layers <= len(sizes), made.layers)
    through_kernels(t, "D4", "diag[-1,1]", construction="tower")


def _factor(draw: random.Random, size: int, most: int) -> fmpq_mat:
    """(I - β k kᵀ) Diag(α) with β in [0, most], 0 and the maximum among them, and gates in [0, 1]."""
    w = [draw.randint(-2, 2) for _ in range(size)]
    square = sum(x * x for x in w) or 1
    beta = draw.choice((Fraction(0), Fraction(most), Fraction(most, 2), Fraction(most, 3)))
    gates = [draw.choice((Fraction(0), Fraction(1), Fraction(1), Fraction(1, 2))) for _ in range(size)]
    rows = [[((i == j) - beta * w[i] * w[j] / square) * gates[j] for j in range(size)] for i in range(size)]
    return fmpq_mat([[fmpq(x.numerator, x.denominator) for x in row] for row in rows])


@claim(
    "OURS-O3",
    "With β ≤ 1 and gates in [0, 1] (DeltaNet, Gated DeltaNet, KDA) finitely many exact states recognise aperiodic "
    "languages only, whatever the number of layers.",
    source="docs/constructions.md (refusals)",
    kinds="P X",
    control={"most": 2},
    hypotheses=("finitely many exact states",),
    cited="Cascades (wreath products) of aperiodic machines are aperiodic (Krohn and Rhodes; Eilenberg, vol. B).",
)
def no_rotation(t: Trial, most: int = 1) -> None:
    """N^p v = v implies N v = v: ranks of N^p - 1 and N - 1 for random products N of exact factors, p up to 6.

    A word that moves p states in a cycle has a difference v of states with N^p v = v. A factor with β ≤ 1 and gates in
    [0, 1] shrinks v strictly unless v is orthogonal to the key and all its gates are 1, and then it keeps v. So N keeps
    v, and v + N v + ... = p v is 0. The planner refuses languages with a period.
    """
    for _ in range(t.amount(300, 5000)):
        size = t.random.randint(1, 4)
        one = fmpq_mat([[fmpq(int(i == j)) for j in range(size)] for i in range(size)])
        moved = one
        for _ in range(t.random.randint(1, 3)):
            moved = _factor(t.random, size, most) * moved
        fixed, power = (moved - one).rank(), moved
        for p in range(2, 7):
            power = power * moved
            t.equal(f"rank of N^{p} - 1 for N = {moved.tolist()}", (power - one).rank(), fixed)
    for goal in ("deltanet[0,1]", "gdn[0,1]", "kda[0,1]"):
        with t.refutes(f"parity on {goal}", NotExpressible):
            compile_source("(aa)*", goal)


def _stacked(tables: Sequence[Sequence[int]], word: Sequence[int], start: Sequence[int], before: bool) -> States:
    """Components of two points; table entry (letter, states read): 2 keeps the state, 0 and 1 reset to it.

    Component i reads the states of those above it, after the token or (`before`) before it.
    """
    states = list(start)
    for letter in word:
        old, index = tuple(states), letter
        for i, table in enumerate(tables):
            order = table[index]
            states[i] = states[i] if order == 2 else order
            index = 2 * index + (old[i] if before else states[i])
    return tuple(states)


@claim(
    "OURS-O5",
    "A stack of components that are kept or reset, each driven by the states of those above it after the token, "
    "cannot tell the letter before the last: after (ab)^s all its s states depend on the last letter only.",
    source="docs/constructions.md (realisation)",
    kinds="X P",
    control={"before": True},
    hypotheses=("s components", "words over a and b"),
    proves=True,
)
def after_the_token(t: Trial, before: bool = False) -> None:
    """All stacks of two components of two points, random ones of three and four; the control reads states before.

    Induction: if the states above depend on the last letter only, then so does whether a component is kept or reset,
    and where to. After one more ab its state is a constant, or depends on the letter, and stays so.
    """
    orders = (0, 1, 2)
    pairs = [(first, second) for first in product(orders, repeat=2) for second in product(orders, repeat=4)]
    deep = [
        [t.random.choices(orders, k=2 << i) for i in range(size)] for size in (3, 4) for _ in range(t.amount(40, 400))
    ]
    for tables in (*pairs, *deep):
        for start in ((0,) * len(tables), (1,) * len(tables)):
            seen: dict[int, States] = {}
            for length in range(1, 4):
                for word in product((0, 1), repeat=length):
                    states = _stacked(tables, (0, 1) * len(tables) + word, start, before)
                    t.equal(f"states of {tables} after (ab)^s and {word}", states, seen.setdefault(word[-1], states))
