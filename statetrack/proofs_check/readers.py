"""What networks.py reads certificates with: tables, automata, and matrices of rationals by their rows.

It needs the standard library and checker.py: the package's or, for a copy outside it, the one in the same folder.
"""

# pyright: basic
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

if __package__:
    from statetrack.proofs_check import checker
else:
    import checker

Row = tuple[tuple[int, int | Fraction], ...]  # (place, entry), places ascending, no entry 0
Matrix = tuple[Row, ...]
keys, need, below = checker.keys, checker.need, checker.below


def same(x: Any, y: Any) -> bool:
    """Equality as JSON, where true is not 1."""
    return json.dumps(x, sort_keys=True) == json.dumps(y, sort_keys=True)


def natural(values: Any) -> bool:
    """Whether this is a list of integers from 0."""
    return type(values) is list and all(type(x) is int and x >= 0 for x in values)


def names(value: Any) -> bool:
    """Whether this is a list of different strings."""
    return type(value) is list and all(type(x) is str for x in value) and len({*value}) == len(value)


def table(value: Any, width: int, count: int, what: str) -> dict[tuple[int, ...], Any]:
    """Entries by key, which is their first `count` members, or (0) the list that is their first member."""
    good = type(value) is list and all(type(entry) is list and len(entry) == width for entry in value)
    need(good, what, value, f"a list of lists of length {width}")
    found: dict[tuple[int, ...], Any] = {}
    for entry in value:
        key = entry[:count] if count else entry[0]
        need(natural(key) and tuple(key) not in found, what, key, "integers from 0, each key once")
        found[tuple(key)] = entry
    return found


def machine(value: Any) -> tuple[int, int, list[list[int]]]:
    """Number of symbols, start and moves of an automaton with outputs, all of whose states are reachable."""
    start, delta = (keys(value, "alphabet states outputs start delta")[key] for key in ("start", "delta"))
    good = names(value["alphabet"]) and names(value["states"]) and type(delta) is type(value["outputs"]) is list
    letters, states = len(value["alphabet"]), len(value["states"])
    good = good and len(value["outputs"]) == len(delta) == states and below([start], states)
    good = good and all(type(x) in (bool, str) for x in value["outputs"])
    need(good and all(below(targets, *[states] * letters) for targets in delta), "automaton", value, "a total one")
    seen, queue = {start}, [start]
    for state in queue:
        queue += {*delta[state]} - seen
        seen.update(delta[state])
    need(len(seen) == states, "reachable states", len(seen), states)
    return letters, start, delta


def sparse(entries: Iterable[tuple[int, int | Fraction]]) -> Row:
    """The row with these entries, at different places."""
    return tuple(sorted([(i, x if type(x) is int or x.denominator > 1 else x.numerator) for i, x in entries if x]))


def row(value: Any, length: int) -> Row:
    """A list of rationals."""
    need(type(value) is list and len(value) == length > 0, "row", value, f"{length} rationals")
    return tuple([(i, x) for i, x in enumerate(map(checker.rational, value)) if x])


def exact(numbers: Sequence[Any]) -> Row:
    """A row of the checker's numbers over Q."""
    return tuple([(i, t[0][1] if den == 1 else Fraction(t[0][1], den)) for i, (den, t) in enumerate(numbers) if t])


def matrix(value: Any, n: int, width: int) -> Matrix:
    """A list of n rows of rationals."""
    need(type(value) is list and len(value) == n > 0, "matrix", value, f"{n} rows")
    return tuple([row(entries, width) for entries in value])


def units(images: Sequence[int], n: int) -> Matrix:
    """The matrix of n rows whose column j has its one 1 in row images[j] (-1: in none)."""
    return tuple([tuple([(j, 1) for j, image in enumerate(images) if image == i]) for i in range(n)])


def letter(value: Any, n: int) -> Matrix:
    """An n x n matrix, given by its rows or as a map of points."""
    if type(value) is list:
        return matrix(value, n, n)
    images = [x + 1 if type(x) is int else x for x in keys(value, "map")["map"]]
    need(below(images, *[n + 1] * n), "map", value, f"{n} images below {n}, -1 for none")
    return units(value["map"], n)


def times(first: Matrix, second: Matrix) -> Matrix:
    """The product of two matrices."""
    return tuple([times_row(entries, second) for entries in first])


def times_row(entries: Row, second: Matrix) -> Row:
    """A row times a matrix."""
    if len(entries) == 1 and entries[0][1] == 1:
        return second[entries[0][0]]
    total = defaultdict[int, int | Fraction](int)
    for i, x in entries:
        for j, y in second[i]:
            total[j] += x * y
    return sparse(total.items())


def reads(value: Any, count: int) -> list[int]:
    """A list of different modules among the first ones."""
    need(natural(value) and max(value, default=-1) < count and len({*value}) == len(value), "reads", value, count)
    return value
