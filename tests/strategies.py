"""Hypothesis strategies of all rooms, with the values that break things: zeros, repeats, one-hots, tiny, endpoints.

Main definitions: `dfas`, `permutation_dfas`, `words`, `fields`, `elements`, `keys`, `gates`, `fewer`.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from statetrack.theory.arrays import Vector
from statetrack.theory.automata import Dfa, Output, reachable
from statetrack.theory.fields import Element, Field
from statetrack.theory.number_fields import RealCyclotomic, SimpleField

CONDUCTORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 20, 24, 60, 83, 1996)
SIMPLE_FIELDS = (
    SimpleField((-7, 0, 1), Fraction(2), Fraction(3)),
    SimpleField((-7, 0, 1), Fraction(-3), Fraction(-2)),
    SimpleField((-2, 0, 0, 1), Fraction(1), Fraction(2)),
    SimpleField((-1, -1, 0, 1), Fraction(1), Fraction(2)),
    SimpleField((1, -3, 0, 1), Fraction(0), Fraction(1)),
    SimpleField((1, -3, 0, 1), Fraction(-2), Fraction(-1)),
    SimpleField((1, 0, -10, 0, 1), Fraction(3), Fraction(4)),
    SimpleField((-5, 1), Fraction(4), Fraction(6)),
)
TINY = Fraction(1, 10**18)


def fewer(times: int) -> settings:
    """The profile's settings with so many times fewer examples, for a property that is expensive."""
    return settings(max_examples=max(5, settings().max_examples // times))


def fields(max_degree: int = 8) -> SearchStrategy[Field]:
    """Real cyclotomic fields and fields of one generator, of bounded degree."""
    known = (*(RealCyclotomic(n) for n in CONDUCTORS), *SIMPLE_FIELDS)
    return st.sampled_from([field for field in known if field.degree <= max_degree])


def rationals() -> SearchStrategy[Fraction]:
    """Small, tiny and huge rationals."""
    return st.one_of(
        st.sampled_from([Fraction(0), Fraction(1), Fraction(-1), Fraction(1, 2), TINY, -TINY, Fraction(1 << 70)]),
        st.fractions(min_value=-20, max_value=20, max_denominator=12),
    )


def elements(field: Field, *, size: int = 1000) -> SearchStrategy[Element]:
    """Elements with at most six coordinates: rationals, basis elements, repeated, tiny and huge ones."""

    def build(entries: list[tuple[int, int]], den: int) -> Element:
        coordinates = [0] * field.degree
        for k, c in entries:
            coordinates[k] = c
        return field.element(coordinates, den)

    def repeat(places: list[int], c: int, den: int) -> Element:
        return build([(k, c) for k in places], den)

    def single(k: int, c: int, den: int) -> Element:
        return build([(k, c)], den)

    def beside_one(k: int, c: int) -> Element:
        return build([(k, c << 70), (0, 1)], 1)

    place, dens, small = st.integers(0, field.degree - 1), st.integers(1, 12), st.integers(-3, 3)
    several = st.lists(st.tuples(place, st.integers(-size, size)), max_size=6)
    one_hot = st.builds(single, place, st.sampled_from([1, -1, 2]), st.just(1))
    repeated = st.builds(repeat, st.lists(place, max_size=6), small, dens)
    tiny = st.builds(single, place, small, st.just(10**18))
    huge = st.builds(beside_one, place, small)
    return st.one_of(rationals().map(field), one_hot, repeated, st.builds(build, several, dens), tiny, huge)


@st.composite
def keys(draw: st.DrawFn, field: Field, length: int) -> Vector:
    """Non-zero vectors, not normalised: one-hot, with zeros, with repeated entries, tiny or arbitrary."""
    kind = draw(st.sampled_from(["one-hot", "small", "repeated", "tiny", "any"]))
    place = draw(st.integers(0, length - 1))
    if kind == "one-hot":
        return tuple(field(int(i == place)) for i in range(length))
    if kind == "repeated":
        value = draw(elements(field, size=5).filter(lambda x: not x.is_zero()))
        chosen = draw(st.lists(st.booleans(), min_size=length, max_size=length))
        return tuple(value if used or i == place else field.zero for i, used in enumerate(chosen))
    small = st.sampled_from([field(i) for i in (0, 0, 1, -1, 2)])
    entry = small if kind in ("small", "tiny") else elements(field, size=5)
    found = [*draw(st.lists(entry, min_size=length, max_size=length))]
    if all(x.is_zero() for x in found):
        found[place] = field.one
    return tuple(x * TINY for x in found) if kind == "tiny" else tuple(found)


def gates(field: Field) -> SearchStrategy[Element]:
    """Numbers in [-1, 1]: the endpoints, 0, tiny ones and others, irrational where the field has such."""

    def within(x: Element) -> Element:
        # Halving a bound on the size of x brings any element into the interval.
        bound = sum((abs(c) for c in x.nums), 0) * 4
        return x / bound if bound and not -1 <= x <= 1 else x

    return st.one_of(
        st.sampled_from([field(q) for q in (-1, 0, 1)]),
        st.sampled_from([field(TINY), field(-TINY), field(1 - TINY)]),
        st.fractions(min_value=-1, max_value=1, max_denominator=8).map(field),
        elements(field, size=5).map(within).filter(lambda x: -1 <= x <= 1),
    )


OUTPUTS: SearchStrategy[Output] = st.one_of(st.booleans(), st.sampled_from(["", "True", "p", "q"]))


@st.composite
def dfas(
    draw: st.DrawFn,
    *,
    max_states: int = 6,
    max_symbols: int = 3,
    outputs: SearchStrategy[Output] = OUTPUTS,
    all_reachable: bool = True,
) -> Dfa:
    """Automata with equal letters, resets, loops and equivalent states among them; an alphabet may be empty."""
    n, k = draw(st.integers(1, max_states)), draw(st.integers(0, max_symbols))
    columns: list[list[int]] = []
    for _ in range(k):
        kind = draw(st.sampled_from(["any", "any", "any", "reset", "identity", "again"]))
        if kind == "again" and columns:
            columns.append(columns[-1])
        elif kind == "reset":
            columns.append([draw(st.integers(0, n - 1))] * n)
        elif kind == "identity":
            columns.append(list(range(n)))
        else:
            columns.append(draw(st.lists(st.integers(0, n - 1), min_size=n, max_size=n)))
    said = draw(st.lists(outputs, min_size=n, max_size=n))
    dfa = _dfa(columns, n, draw(st.integers(0, n - 1)), said)
    return reachable(dfa) if all_reachable else dfa


@st.composite
def permutation_dfas(
    draw: st.DrawFn, *, max_states: int = 5, max_symbols: int = 3, outputs: SearchStrategy[Output] = OUTPUTS
) -> Dfa:
    """Reachable automata whose letters permute the states; some letters do nothing, some act alike."""
    n, k = draw(st.integers(1, max_states)), draw(st.integers(1, max_symbols))
    columns: list[list[int]] = []
    for _ in range(k):
        kind = draw(st.sampled_from(["any", "any", "cycle", "swap", "identity", "again"]))
        if kind == "again" and columns:
            columns.append(columns[-1])
        elif kind == "identity":
            columns.append(list(range(n)))
        elif kind == "cycle":
            columns.append([(q + 1) % n for q in range(n)])
        elif kind == "swap" and n > 1:
            columns.append([1, 0, *range(2, n)])
        else:
            columns.append([*draw(st.permutations(range(n)))])
    said = draw(st.lists(outputs, min_size=n, max_size=n))
    # The states reached from one state are an orbit of the group, so the letters permute them.
    return reachable(_dfa(columns, n, draw(st.integers(0, n - 1)), said))


def words(alphabet: tuple[str, ...], max_size: int = 12) -> SearchStrategy[tuple[str, ...]]:
    """Words, the empty one and powers of one letter among them."""
    if not alphabet:
        return st.just(())
    symbol = st.sampled_from(alphabet)

    def power(x: str, n: int) -> tuple[str, ...]:
        return (x,) * n

    powers = st.builds(power, symbol, st.integers(0, max_size))
    return st.one_of(st.lists(symbol, max_size=max_size).map(tuple), powers)


def _dfa(columns: list[list[int]], states: int, start: int, outputs: list[Output]) -> Dfa:
    table = np.array(columns, dtype=np.int32).reshape(len(columns), states).T
    names = tuple(f"q{i}" for i in range(states))
    return Dfa(tuple("abcdefgh"[: len(columns)]), names, start, table, tuple(outputs))
