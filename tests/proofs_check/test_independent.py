"""Three constructions written a second time from the specification alone, and compared with what the package says.

Nothing here rests on the package's arithmetic, constructions or checker: the hole cascade, the quaternion tracker of
A5 and clock-buffer-accumulator are made of tuples, integers and fractions, and only the comparisons at the end of each
test ask the package.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, cast

import numpy as np
import pytest

import statetrack
from statetrack.constructions.cascade import hole_cascade
from statetrack.proofs_check import runner
from statetrack.theory.automata import Dfa

# A map f of range(n) is the tuple of its values f(0), ..., f(n - 1).
Map = tuple[int, ...]


def agreed(ident: str) -> statetrack.Verdict:
    """The package's verdict on one claim, which must exist and must not be refuted or undecided."""
    verdicts = runner.verify([ident])
    assert [one.id for one in verdicts] == [ident], f"no claim {ident!r}: see `statetrack verify --list`"
    assert verdicts[0].verdict in {"proved", "supported"}, verdicts[0]
    return verdicts[0]


def then(first: Map, second: Map) -> Map:
    """First `first`, then `second`."""
    return tuple(second[x] for x in first)


def group_of(letters: Iterable[Map], n: int) -> list[Map]:
    """The permutations that are words over the letters, the identity first."""
    known, letters = {tuple(range(n)): None}, list(letters)
    queue = list(known)
    for f in queue:
        for letter in letters:
            if (g := then(f, letter)) not in known:
                known[g] = None
                queue.append(g)
    return queue


# The hole cascade (multilayer.md, K1): a level of m points holds one where the automaton is certainly not.


def around(hole: int, x: int) -> int:
    """The increasing bijection from range(m - 1) onto range(m) without the hole."""
    return x if x < hole else x + 1


def back(hole: int, x: int) -> int:
    assert x != hole
    return x if x < hole else x - 1


def cascade_step(g: Map, holes: Sequence[int], *, broken: bool = False) -> tuple[int, ...]:
    """The holes after a letter that acts by g; a broken cascade keeps its hole where it should reset it."""
    after: list[int] = []
    for hole in holes:
        assert len(g) == len(holes) + 1 - len(after)
        reset = hole if broken else min(set(range(len(g))) - set(g), default=hole)
        new = g[hole] if len(set(g)) == len(g) else reset
        after.append(new)
        if broken and any(g[around(hole, x)] == new for x in range(len(g) - 1)):
            return (*after, *holes[len(after) :])
        g = tuple(back(new, g[around(hole, x)]) for x in range(len(g) - 1))
    return tuple(after)


def held(holes: Sequence[int]) -> int:
    """W: the state of the automaton that a cascade with these holes stands for."""
    state = 0
    for hole in reversed(holes):
        state = around(hole, state)
    return state


def cascade_states(n: int) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(m) for m in range(n, 1, -1))))


def check_cascade(letters: Sequence[Map]) -> int:
    """W∘step = δ∘W on all component states, and every component permutes or resets; returns their number."""
    n = len(letters[0])
    states = cascade_states(n)
    # W is onto, so every start has a cascade state.
    assert Counter(map(held, states)) == dict.fromkeys(range(n), math.factorial(n) // n)
    for g in letters:
        actions: dict[tuple[int, ...], list[int]] = {}
        for holes in states:
            after = cascade_step(g, holes)
            assert held(after) == g[held(holes)], (g, holes)
            for i, m in enumerate(range(n, 1, -1)):
                values = actions.setdefault(holes[:i], [-1] * m)
                assert values[holes[i]] in {-1, after[i]}, "a component looks below itself"
                values[holes[i]] = after[i]
        assert len(actions) == sum(math.factorial(n) // math.factorial(m) for m in range(n, 1, -1))
        assert all(len(set(values)) in {1, len(values)} for values in actions.values()), (g, actions)
    return len(states)


def test_the_hole_cascade_of_n_points_emulates_from_all_n_factorial_component_states() -> None:
    for n in range(1, 4):
        maps = list(itertools.product(range(n), repeat=n))
        for letters in itertools.product(maps, repeat=2):
            assert check_cascade(letters) == math.factorial(n)
    rng = random.Random(0)
    for n in [4, 5] * 40:
        assert check_cascade([tuple(rng.choices(range(n), k=n)) for _ in "ab"]) == math.factorial(n)
    assert [cascade_step((0, 0, 1), (p, q)) for p in range(3) for q in range(2)] == [(2, 0), (2, 1)] * 2 + [(2, 1)] * 2

    # A level that does not leave its hole when the letter merges is wrong somewhere.
    wrong = [x for x in cascade_states(3) if held(cascade_step((0, 0, 1), x, broken=True)) != (0, 0, 1)[held(x)]]
    assert wrong

    assert agreed("OURS-hole-cascade").verdict == "proved"
    # The package's cascades have my sizes, and the same states and steps from all component states.
    for n in [1, 2, 3, 4, 5] * 4:
        letters = [tuple(rng.choices(range(n), k=n)) for _ in "ab"]
        states, delta = tuple(map(str, range(n))), np.array(letters, dtype=np.int32).T
        package = hole_cascade(Dfa(("a", "b"), states, rng.randrange(n), delta, states))
        assert [component.size for component in package.components] == list(range(n, 1, -1))
        assert held(package.start) == package.dfa.start
        for holes in cascade_states(n):
            assert package.state(holes) == held(holes)
            assert [package.step(holes, a) for a in range(2)] == [cascade_step(g, holes) for g in letters]


# The quaternion tracker of A5 (groups.md, 3.7 and 3.8) over Q(√5): (a, b) stands for a + b√5.

Number = tuple[Fraction, Fraction]
Vector = tuple[Number, ...]
ZERO, HALF, ONE = ((Fraction(k, 2), Fraction(0)) for k in range(3))
PHI_HALF, PSI_HALF = (Fraction(1, 4), Fraction(1, 4)), (Fraction(-1, 4), Fraction(1, 4))
AXES: list[Vector] = [tuple(ONE if i == j else ZERO for j in range(4)) for i in range(4)]


def dot(u: Sequence[Number], v: Sequence[Number]) -> Number:
    pairs = list(zip(u, v, strict=True))
    rational = sum((x[0] * y[0] + 5 * x[1] * y[1] for x, y in pairs), Fraction(0))
    return rational, sum((x[0] * y[1] + x[1] * y[0] for x, y in pairs), Fraction(0))


def combine(x: Vector, s: Number, y: Vector) -> Vector:
    """x + s y."""
    return tuple(dot((a, s), (ONE, b)) for a, b in zip(x, y, strict=True))


def minus(x: Vector) -> Vector:
    return tuple((-a, -b) for a, b in x)


def quaternion(p: Vector, q: Vector) -> Vector:
    """p q, from the four rows of the matrix of left multiplication."""
    a, b, c, d = p
    nb, nc, nd = minus((b, c, d))
    return dot((a, nb, nc, nd), q), dot((b, a, nd, c), q), dot((c, d, a, nb), q), dot((d, nc, b, a), q)


def positive(x: Number) -> bool:
    """a + b√5 > 0, exactly."""
    a, b = x
    return (a > 0 or b > 0) if a * b >= 0 else (a * a > 5 * b * b if a > 0 else 5 * b * b > a * a)


def icosians() -> list[Vector]:
    """The 120 unit quaternions of 2I."""
    even = [
        p for p in itertools.permutations(range(4)) if sum(p[i] > p[j] for j in range(4) for i in range(j)) % 2 == 0
    ]
    signs = list(itertools.product((1, -1), repeat=4))
    spread = [tuple((ZERO, HALF, PHI_HALF, PSI_HALF)[i] for i in p) for p in even]
    base: list[Vector] = [*AXES, (HALF,) * 4, *spread]
    return sorted({tuple((s * a, s * b) for s, (a, b) in zip(sign, v, strict=True)) for v in base for sign in signs})


class Tracker(NamedTuple):
    """Letters x ↦ (I - 2 a aᵀ) Diag(-1, 1, 1, 1) x as permutations of the columns that they reach from the axes."""

    letters: list[Vector]
    columns: list[Vector]
    moves: list[Map]
    product: list[Map]


def quaternion_tracker() -> Tracker:
    letters = sorted({max(a, minus(a)) for a in icosians()})
    columns, number = list(AXES), {v: i for i, v in enumerate(AXES)}
    moves: list[list[int]] = [[] for _ in letters]
    for x in columns:
        mirrored = (*minus(x[:1]), *x[1:])
        for a, move in zip(letters, moves, strict=True):
            p, q = dot(a, mirrored)
            y = combine(mirrored, (-2 * p, -2 * q), a)
            if y not in number:
                number[y] = len(columns)
                columns.append(y)
            move.append(number[y])
    index = {a: i for i, a in enumerate(letters)}
    product = [tuple(index[max(c, minus(c))] for c in (quaternion(a, b) for b in letters)) for a in letters]
    return Tracker(letters, columns, [tuple(move) for move in moves], product)


def decoder(tracker: Tracker) -> dict[tuple[Number, ...], int]:
    """The nine entries of the matrix of v ↦ a v ā, row by row, and which letter a that is."""
    found: dict[tuple[Number, ...], int] = {}
    for i, a in enumerate(tracker.letters):
        turned = [quaternion(quaternion(a, e), (a[0], *minus(a[1:]))) for e in AXES[1:]]
        found[tuple(turned[j][k] for k in range(1, 4) for j in range(3))] = i
    return found


def decoded(tracker: Tracker, states: Iterable[Map]) -> Iterator[tuple[Number, ...]]:
    """f(X)_jl = tr(L_jᵀ X L_l Xᵀ)/4 for states X given by the numbers of their columns; L_j is x ↦ e_j x."""
    columns = tracker.columns
    number = {v: i for i, v in enumerate(columns)}
    gram = [[dot(x, y) for y in columns] for x in columns]
    lefts = [[number[quaternion(e, x)] for x in columns] for e in AXES[1:]]
    # L_l e_c = sign e_place, so that column c of X L_l is sign times column place of X.
    signed = {**{e: (1, i) for i, e in enumerate(AXES)}, **{minus(e): (-1, i) for i, e in enumerate(AXES)}}
    places = [[signed[quaternion(e, c)] for c in AXES] for e in AXES[1:]]
    # Integers from here on, for speed: quarters lose nothing.
    assert all((4 * a).denominator == (4 * b).denominator == 1 for row in gram for a, b in row)
    quarters = [[(int(4 * a), int(4 * b)) for a, b in row] for row in gram]
    for state in states:
        entries: list[Number] = []
        for left, row in itertools.product(lefts, places):
            terms = [(s, quarters[left[state[c]]][state[place]]) for c, (s, place) in enumerate(row)]
            a, b = sum(s * x[0] for s, x in terms), sum(s * x[1] for s, x in terms)
            entries.append((Fraction(a, 16), Fraction(b, 16)))
        yield tuple(entries)


def reach(tracker: Tracker, letters: Iterable[int]) -> list[Map]:
    """The states, as numbers of columns, that words over these letters reach from the identity matrix."""
    moves = [tracker.moves[i] for i in letters]
    queue: list[Map] = [(0, 1, 2, 3)]
    known = set(queue)
    for state in queue:
        for move in moves:
            if (after := tuple(move[c] for c in state)) not in known:
                known.add(after)
                queue.append(after)
    return queue


def package_number(text: Any) -> Number:
    """A number of a certificate's field Q(x), x = 2 cos(2π/5): an integer, "p/q", or [den, power, coefficient, ...]."""
    if not isinstance(text, list):
        return Fraction(text), Fraction(0)
    den, *terms = cast("list[int]", text)
    coefficients = dict(zip(terms[::2], terms[1::2], strict=True))
    c0, c1 = (Fraction(coefficients.get(i, 0), den) for i in range(2))
    return c0 - c1 / 2, c1 / 2


def test_the_quaternion_tracker_of_A5_has_7200_states_and_each_is_one_of_60_rotations() -> None:
    whole, tracker = icosians(), quaternion_tracker()
    assert len(whole) == 120 == len({quaternion(whole[7], x) for x in whole} & set(whole))
    assert all(dot(a, a) == ONE for a in whole)
    assert len(tracker.letters) == 60
    # Orders 1, 2, 3, 5, 5: A5 is the only group of sixty elements with 24 of order five.
    turns = Counter(a[0] if positive(a[0]) else minus(a)[0] for a in tracker.letters)
    assert turns == {ONE: 1, ZERO: 15, HALF: 20, PHI_HALF: 12, PSI_HALF: 12}
    assert set(tracker.columns) == set(whole)
    assert len(tracker.columns) == 120

    states = reach(tracker, range(60))
    assert len(states) == 7200
    rotation = decoder(tracker)
    assert len(rotation) == 60
    label = {state: rotation[entries] for state, entries in zip(states, decoded(tracker, states), strict=True)}
    assert set(Counter(label.values()).values()) == {120}
    for state in states:
        for a, move in enumerate(tracker.moves):
            assert label[tuple(move[c] for c in state)] == tracker.product[a][label[state]]
    # Two letters that generate A5 reach sixty states only: some half turn inverts them both.
    three, five = (next(i for i, a in enumerate(tracker.letters) if a[0] == x) for x in (HALF, PHI_HALF))
    pair = reach(tracker, [three, five])
    assert sorted(label[state] for state in pair) == list(range(60))

    assert agreed("CKDA-thm-3-A5").sizes["joint states"] == len(pair)
    agreed("CKDA-quaternion-states")
    made = statetrack.build("A5", "ckda")
    assert made.certificate.joint == len(states)
    head = cast("dict[str, Any]", made.certificate.data["layers"][0]["heads"][0])
    theirs = {matrix_of(step, 4) for step in head["steps"]}
    mine = {tuple(tracker.columns[move[c]] for c in range(4)) for move in tracker.moves}
    assert theirs == mine
    # The least distance of two readouts: |Sq - q|² = 2 |q|² - 2 q·Sq for S ≠ I.
    query = tuple(package_number(x) for x in head["queries"][0])
    along = [dot(column, query) for column in tracker.columns]
    size = dot(query, query)
    gaps = {combine((size,), (Fraction(-1), Fraction(0)), (dot(query, [along[c] for c in s]),))[0] for s in states[1:]}
    least = min(gaps, key=functools.cmp_to_key(lambda x, y: 1 if positive((x[0] - y[0], x[1] - y[1])) else -1))
    ((margin,),) = made.certificate.margins
    assert margin is not None
    c0, c1 = (Fraction(x, margin.squared.den) for x in margin.squared.nums)
    assert (2 * least[0], 2 * least[1]) == (c0 - c1 / 2, c1 / 2)


def matrix_of(step: Sequence[dict[str, Any]], d: int) -> tuple[Vector, ...]:
    """The columns of the matrix of a certificate's factors (I - c w wᵀ) Diag(alpha), the first one applied first."""
    columns = list(AXES[:d])
    for factor in step:
        w = tuple(package_number(x) for x in factor["w"])
        p, q = package_number(factor["c"])
        alpha = [package_number(x) for x in factor.get("alpha", [1] * d)]
        gated = [tuple(dot((a,), (x,)) for a, x in zip(alpha, column, strict=True)) for column in columns]
        columns = [combine(x, dot(((-p, -q),), (dot(w, x),)), w) for x in gated]
    return tuple(columns)


# Clock, buffer, accumulator (multilayer.md, section 4) for groups of permutations: layers of 2, 2P and n numbers.


def swaps(f: Map) -> list[tuple[int, int]]:
    """n - #cycles swaps with product f, in the order in which they apply (F1)."""
    found, seen = list[tuple[int, int]](), set[int]()
    for start in range(len(f)):
        cycle = list[int]()
        while start not in seen:
            seen.add(start)
            cycle.append(start)
            start = f[start]
        found += [(cycle[i - 1], cycle[i]) for i in range(len(cycle) - 1, 0, -1)]
    return found


def mirrored(x: Sequence[int], swap: tuple[int, int] | None) -> tuple[int, ...]:
    """(I - w wᵀ) x for w = e_i - e_j, so β = |w|² = 2; symmetric, hence also the row x times this matrix."""
    if swap is None:
        return tuple(x)
    w = [(k == swap[0]) - (k == swap[1]) for k in range(len(x))]
    assert sum(c * c for c in w) == 2
    along = sum(a * b for a, b in zip(w, x, strict=True))
    return tuple(a - along * b for a, b in zip(x, w, strict=True))


def block_length(letters: Sequence[Map]) -> int:
    """The least P such that P swaps suffice for all products of exactly P letters."""
    products = {tuple(range(len(letters[0])))}
    for length in itertools.count(1):
        products = {then(f, letter) for f in products for letter in letters}
        if max(len(swaps(f)) for f in products) <= length:
            return length
    raise AssertionError


class Hidden(NamedTuple):
    """The clock as t mod 2P, the slots of the buffer (0 is blank), and the accumulator."""

    time: int
    slots: Map
    h: Map


class Blocks:
    """The network by its factored look-up: fold words, factors of a block, rows of the readout."""

    def __init__(self, letters: Sequence[Map]) -> None:
        self.letters, self.n, self.P = letters, len(letters[0]), block_length(letters)
        self.group = group_of(letters, self.n)
        index = {f: i for i, f in enumerate(self.group)}
        self.fold = {(u, a): index[then(f, g)] for u, f in enumerate(self.group) for a, g in enumerate(letters)}
        factors = [swaps(f) for f in self.group]
        self.factor = {(u, r): (fs + [None] * self.P)[r] for u, fs in enumerate(factors) for r in range(self.P)}
        self.rows = {
            (u, v, r): self.row(u, v, r) for u, v in itertools.product(index.values(), repeat=2) for r in range(self.P)
        }
        self.start = Hidden(0, (0,) * (2 * self.P), tuple(range(self.n)))

    def row(self, u: int, v: int, r: int) -> Map:
        """(1, n, n², ...) times the matrix of v times the factors of u after the one numbered r."""
        row = tuple(self.n ** self.group[v][x] for x in range(self.n))
        for late in range(self.P - 1, r, -1):
            row = mirrored(row, self.factor[u, late])
        return row

    def entries(self) -> int:
        return len(self.fold) + len(self.factor) + len(self.rows)

    def word(self, slots: Iterable[int]) -> int:
        folded = 0
        for slot in slots:
            folded = self.fold[folded, slot - 1]
        return folded

    def step(self, hidden: Hidden, letter: int) -> tuple[Hidden, int]:
        """The next hidden state and the one number that is read."""
        P, N = self.P, 2 * self.P
        half, r = divmod(hidden.time, P)
        slots = (*hidden.slots[: hidden.time], letter + 1, *hidden.slots[hidden.time + 1 :])
        before = slots[(1 - half) * P : (2 - half) * P]
        u = 0 if 0 in before else self.word(before)
        v = self.word(slots[half * P : half * P + r + 1])
        h = mirrored(hidden.h, self.factor[u, r])
        return Hidden((hidden.time + 1) % N, slots, h), sum(a * b for a, b in zip(self.rows[u, v, r], h, strict=True))


def expected(points: Map) -> int:
    """(1, n, n², ...) times the vector with h[f(q)] = q, f the product of the letters."""
    return sum(q * len(points) ** x for q, x in enumerate(points))


def check_words(net: Blocks, length: int) -> None:
    """All words to this length, each once."""
    level = [(net.start, tuple(range(net.n)))]
    for _ in range(length):
        following: list[tuple[Hidden, Map]] = []
        for hidden, product in level:
            for a, letter in enumerate(net.letters):
                after, read = net.step(hidden, a)
                now = then(product, letter)
                assert read == expected(now)
                following.append((after, now))
        level = following


def check_long_word(net: Blocks, word: Iterable[int]) -> None:
    hidden, product = net.start, tuple(range(net.n))
    for a in word:
        hidden, read = net.step(hidden, a)
        product = then(product, net.letters[a])
        assert read == expected(product)


def close(net: Blocks) -> int:
    """The number of pairs of hidden state and product that words reach; every readout on the way is right."""
    queue = [(net.start, tuple(range(net.n)))]
    known = set(queue)
    for hidden, product in queue:
        for a, letter in enumerate(net.letters):
            after, read = net.step(hidden, a)
            now = then(product, letter)
            assert read == expected(now)
            if (after, now) not in known:
                known.add((after, now))
                queue.append((after, now))
    return len(queue)


def permutation(cycles: str, n: int) -> Map:
    """A permutation from the package's name for it, as "(12)(345)"."""
    images = list(range(n))
    for cycle in cycles.strip("()").split(")("):
        for x, y in zip(cycle, cycle[1:] + cycle[:1], strict=True):
            images[int(x) - 1] = int(y) - 1
    return tuple(images)


def check_package(source: str, n: int, letters: str) -> None:
    """The package's network of these letters has my sizes, no more entries, and says the products of permutations."""
    made = statetrack.build(source, "ckda", construction="blocks", letters=letters)
    names = made.automaton.alphabet
    net = Blocks([permutation(name, n) for name in names])
    data = cast("dict[str, Any]", made.certificate.data)
    assert data["length"] == net.P
    assert [sum(layer) for layer in made.dims] == [2, 2 * net.P, n]
    tables = len(data["fold"]) + len(data["rows"]) + sum(len(row[2]) + len(row[3]) for row in data["blocks"])
    assert data["claims"]["entries"] == tables <= net.entries()
    rng = random.Random(n)
    word = rng.choices(range(len(names)), k=60)
    check_long_word(net, word)
    product = tuple(range(n))
    for a, said in zip(word, made.run(names[a] for a in word), strict=True):
        product = then(product, net.letters[a])
        assert permutation(str(said), n) == product


def test_clock_buffer_accumulator_reads_products_of_permutations_right_after_every_token() -> None:
    for n in range(1, 6):
        for f in itertools.permutations(range(n)):
            h = functools.reduce(mirrored, swaps(f), tuple(range(n)))
            assert all(h[f[q]] == q for q in range(n))
            assert len(swaps(f)) == n - len({min(group_orbit(f, q)) for q in range(n)})
    assert block_length(list(itertools.permutations(range(4)))) == 3
    # Two odd letters: products of two are even, so two swaps do.
    s4 = Blocks([(1, 2, 3, 0), (1, 0, 2, 3)])
    s5 = Blocks([(1, 2, 3, 4, 0), (1, 0, 2, 3, 4)])
    assert (s4.P, s5.P) == (2, 4)
    check_words(s4, 11)
    check_words(s5, 7)
    rng = random.Random(0)
    check_long_word(s5, rng.choices(range(2), k=2000))
    # Blanks: one hidden state for every word shorter than 2P = 4. Then 4 times, 2^4 slots, 12 even products.
    assert close(s4) == 15 + 4 * 16 * 12

    full = Blocks(list(itertools.permutations(range(5))))
    assert (full.P, full.entries()) == (4, 120 * 120 + 120 * 4 + 120 * 120 * 4)
    check_long_word(full, rng.choices(range(120), k=2000))
    # One swap forgotten for one block is noticed.
    full.factor[7, 0] = None
    with pytest.raises(AssertionError):
        check_long_word(full, rng.choices(range(120), k=2000))

    agreed("OURS-clock-buffer-accumulator")
    check_package("S4", 4, "generators")
    check_package("S4", 4, "all")
    check_package("S5", 5, "generators")
    check_package("S5", 5, "all")


def group_orbit(f: Map, x: int) -> set[int]:
    orbit = {x}
    while f[x] not in orbit:
        x = f[x]
        orbit.add(x)
    return orbit
