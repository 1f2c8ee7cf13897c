"""Weighted automata over the rationals, exact: values, equality with a shortest witness, minimisation.

A `Wfa` with n states maps a word w = x_1...x_T to γ M(x_T)...M(x_1) h_0: states are columns, and h <- M(x) h. The
zero function has a `Wfa` with n = 0; it is what `minimise` returns for it.

JSON (`from_matrices_dict`, `to_matrices_dict`), an object with the keys

- `semiring`: "real"; `alphabet`: symbols, whole strings; `initial`, `final`: n numbers; `matrices`: {symbol: n rows};
- `convention`: "row" (what an absent key means: initial · M[x_1] · ... · M[x_T] · final) or "column" (as above, with
  `final` the row γ). Numbers are integers, decimals (exact ones) and strings "p/q"; other keys are not read.

Main definitions: `Wfa`, `from_matrices`, `from_dfa`, `zero`, `add`, `scale`, `equivalent`, `minimise`, `hankel_rank`.

Main results: `minimise` keeps every value and has as many states as the Hankel matrix (f(uv))_{u,v} has rank, the
least possible; `equivalent` returns the first word, by length and then by alphabet, on which two automata differ.

References: Schützenberger, *On the definition of a family of automata* (1961); Tzeng, *A polynomial-time algorithm
for the equivalence of probabilistic automata* (1992); Berstel and Reutenauer, *Noncommutative Rational Series* (2011).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import cast

from flint import fmpq, fmpq_mat

from statetrack.errors import InvalidAutomaton, InvalidFile, InvalidInput

from .automata import Dfa, Output, encode
from .mealy import within

Row = tuple[Fraction, ...]
Rows = tuple[Row, ...]
Number = int | str | Fraction

SEMIRINGS = ("boolean", "real", "tropical", "log")
_NUMBER = re.compile(r"\s*[+-]?(\d+(/\d+)?|(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,3})?)\s*", re.ASCII)
_LONGEST = 1000


@dataclass(frozen=True)
class Wfa:
    """A weighted automaton: w -> final · M(x_T)...M(x_1) · initial, over the rationals.

    `initial` is the column h_0 [n], `matrices[i]` [n, n] belongs to `alphabet[i]`, `final` is the row γ [n]; n may be
    0. All entries are Fractions. Build one with `from_matrices`, which reads integers and strings and names faults.
    """

    alphabet: tuple[str, ...]
    initial: Row
    matrices: tuple[Rows, ...]
    final: Row

    def __post_init__(self) -> None:
        n = len(self.initial)
        faults = _name_faults(self.alphabet)
        if len(self.matrices) != len(self.alphabet):
            faults.append(f"{len(self.matrices)} matrices for {len(self.alphabet)} symbols")
        if len(self.final) != n:
            faults.append(f"final has {len(self.final)} entries, initial {n}")
        for symbol, rows in zip(self.alphabet, self.matrices, strict=False):
            if len(rows) != n or any(len(row) != n for row in rows):
                faults.append(f"the matrix of {symbol!r} is not {n} × {n}")
        rows = [self.initial, self.final, *(row for rows in self.matrices for row in rows)]
        wrong = next((x for row in rows for x in row if type(x) is not Fraction), None)
        if wrong is not None:
            faults.append(f"entry {wrong!r} is no Fraction")
        _refuse(faults)

    @property
    def size(self) -> int:
        """The number n of states."""
        return len(self.initial)

    def encode(self, word: Iterable[str]) -> tuple[int, ...]:
        """Symbols to numbers of matrices; raises `InvalidWord` with the symbol and its position."""
        return encode(self.alphabet, word)

    def value(self, word: Iterable[str]) -> Fraction:
        """The value of the word; of the empty word γ h_0."""
        return (_dot(self.final, self.initial), *self.run(word))[-1]

    def run(self, word: Iterable[str]) -> tuple[Fraction, ...]:
        """The values of the prefixes of length 1, ..., T; like `Dfa.run`, without the empty one.

        >>> binary = from_matrices("01", [0, 1], {"0": [[2, 0], [0, 1]], "1": [[2, 1], [0, 1]]}, [1, 0])
        >>> [int(x) for x in binary.run("1101")]
        [1, 3, 6, 13]
        """
        hidden, values = self.initial, list[Fraction]()
        for code in self.encode(word):
            hidden = tuple(_dot(row, hidden) for row in self.matrices[code])
            values.append(_dot(self.final, hidden))
        return tuple(values)


def exact(value: object) -> Fraction:
    """The rational number of an int, a Fraction or a string ("3", "p/q", "0.25", "1e-3"); else `InvalidInput`."""
    if isinstance(value, float):
        raise InvalidInput(f"{value!r} is a float, which is not exact; write an integer, 'p/q' or a decimal in quotes")
    if isinstance(value, int | Fraction) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, str) and len(value) <= _LONGEST and _NUMBER.fullmatch(value):
        try:
            return Fraction(value)
        except ZeroDivisionError:
            raise InvalidInput(f"{value!r} divides by zero") from None
    shown = repr(value)
    raise InvalidInput(f"{shown if len(shown) < 40 else shown[:36] + '...'} is no rational number")


def from_matrices(
    alphabet: Sequence[str],
    initial: Sequence[Number],
    matrices: Mapping[str, Sequence[Sequence[Number]]],
    final: Sequence[Number],
) -> Wfa:
    """A validated `Wfa` from its column h_0, a matrix for each symbol (h <- M h) and its row γ.

    Raises:
        InvalidAutomaton: a number that is not rational (floats included), a wrong shape, a symbol without a matrix or
            a matrix without a symbol; all faults in one line.
    """
    return _read(list(alphabet), initial, matrices, final)


def from_dfa(dfa: Dfa, *, output: Output = True) -> Wfa:
    """The indicator of the words after which the automaton says `output`: 1 on them and 0 on the others.

    Raises:
        InvalidAutomaton: a Moore machine that nowhere says `output`.
    """
    if output not in dfa.outputs and any(isinstance(said, str) for said in dfa.outputs):
        raise InvalidAutomaton(f"no state of this Moore machine has the output {output!r}; name one of its outputs")
    states, one, nought = range(len(dfa.states)), Fraction(1), Fraction(0)

    def column(q: int) -> Row:
        return tuple(one if p == q else nought for p in states)

    matrices = tuple(_transposed([column(int(to)) for to in dfa.delta[:, s]]) for s in range(len(dfa.alphabet)))
    said = tuple(one if type(x) is type(output) and x == output else nought for x in dfa.outputs)
    return Wfa(dfa.alphabet, column(dfa.start), matrices, said)


def zero(alphabet: Sequence[str], size: int = 0) -> Wfa:
    """The function that is 0 on every word, with `size` states all of whose numbers are 0."""
    row = (Fraction(0),) * size
    return Wfa(tuple(alphabet), row, ((row,) * size,) * len(alphabet), row)


def add(a: Wfa, b: Wfa) -> Wfa:
    """The sum of two functions, by blocks: size a.size + b.size, symbols in a's order.

    Raises:
        InvalidInput: the alphabets are not the same set.
    """
    ours, theirs = (Fraction(0),) * a.size, (Fraction(0),) * b.size
    matrices = tuple(
        (*(row + theirs for row in upper), *(ours + row for row in lower))
        for upper, lower in zip(a.matrices, _in_order(b, a.alphabet), strict=True)
    )
    return Wfa(a.alphabet, a.initial + b.initial, matrices, a.final + b.final)


def scale(factor: Number, wfa: Wfa) -> Wfa:
    """The function times a rational number."""
    c = exact(factor)
    return Wfa(wfa.alphabet, wfa.initial, wfa.matrices, tuple(c * x for x in wfa.final))


def equivalent(a: Wfa, b: Wfa) -> tuple[str, ...] | None:
    """None for equal values on all words, else the first word (by length, then by a's alphabet) with unequal ones.

    Raises:
        InvalidInput: the alphabets are not the same set.

    >>> one = from_matrices("a", [1], {"a": [[1]]}, [1])
    >>> equivalent(one, from_matrices("a", ["1/2", "1/2"], {"a": [[1, 1], [0, 0]]}, [1, 1]))
    >>> equivalent(one, from_matrices("a", [1], {"a": [[2]]}, [1]))
    ('a',)
    """
    difference = add(a, scale(-1, b))
    final = _matrix([difference.final])
    for word, hidden in _independent(difference):
        if (final * hidden)[0, 0] != 0:
            return tuple(difference.alphabet[code] for code in word)
    return None


def minimise(wfa: Wfa) -> Wfa:
    """A `Wfa` of least size with the same values: onto the span of reached columns, then of reached rows.

    A minimal one comes back unchanged; the zero function has size 0.

    >>> minimise(add(zero("a"), scale(0, from_matrices("a", [1], {"a": [[1]]}, [1])))).size
    0
    """
    return _reversed(_onto_span(_reversed(_onto_span(wfa))))


def hankel_rank(wfa: Wfa) -> int:
    """The rank of the infinite matrix of the values of uv, over all words u and v: the least possible size."""
    return minimise(wfa).size


def named_semiring(semiring: str | None, where: str) -> str:
    """The semiring, if it is one of `SEMIRINGS`; `InvalidFile` if it is not named or not known."""
    if semiring is None:
        raise InvalidFile(where, "its semiring is not named", f"name it: --semiring {' | '.join(SEMIRINGS)}")
    if semiring not in SEMIRINGS:
        raise InvalidFile(where, f"semiring {semiring!r} is not known", f"name one of {', '.join(SEMIRINGS)}")
    return semiring


def linear_semiring(semiring: str | None, where: str) -> None:
    """Refuse (`InvalidFile`) the semirings tropical and log, and one that is not named."""
    if named_semiring(semiring, where) in ("tropical", "log"):
        what = "minima of sums" if semiring == "tropical" else "logarithms of sums of exponentials"
        raise InvalidFile(
            where,
            f"{semiring} weights are {what}, which no linear network over the rationals computes",
            "give the automaton with real weights, or its language: no weights and --semiring boolean",
        )


def from_matrices_dict(
    obj: Mapping[str, object], *, semiring: str | None = None, max_states: int = 512, where: str = "<dictionary>"
) -> Wfa:
    """The weighted automaton of a dictionary with the keys that the module's docstring lists.

    Args:
        obj: the dictionary.
        semiring: for a dictionary without the key `semiring`; with it the two must agree.
        max_states: bound on the states.
        where: what messages call the dictionary.

    Raises:
        InvalidFile: a key that is missing, a semiring that is not "real", is named twice or not at all.
        InvalidAutomaton: what `from_matrices` refuses.
        BudgetExceeded: more than `max_states` states.
    """
    lacking = [key for key in ("alphabet", "initial", "matrices", "final") if obj.get(key) is None]
    if lacking:
        raise InvalidFile(where, f"no {', '.join(map(repr, lacking))}", "a linear representation needs all four keys")
    said = obj.get("semiring", semiring)
    if semiring is not None and said != semiring:
        raise InvalidFile(where, f"it names the semiring {said!r}, the option {semiring!r}", "keep one of them")
    linear_semiring(None if said is None else str(said), where)
    if said == "boolean":
        raise InvalidFile(where, "matrices over the boolean semiring", "give the automaton as JSON with delta")
    convention = obj.get("convention", "row")
    if convention not in ("row", "column"):
        raise InvalidFile(where, f"convention {convention!r}", 'write "row" or "column"')
    initial: object = obj["initial"]
    if isinstance(initial, list | tuple):
        within(len(cast("Sequence[object]", initial)), max_states, where)
    try:
        names = obj["alphabet"]
        if not isinstance(names, list | tuple):
            raise InvalidAutomaton(f"weighted automaton: alphabet {names!r} is no list")
        alphabet = [str(name) if type(name) is int else name for name in cast("list[object]", names)]
        wfa = _read(alphabet, cast("object", initial), obj["matrices"], obj["final"])
    except InvalidAutomaton as error:
        raise InvalidAutomaton(f"{where}: {error}") from None
    return _reversed(wfa, swap=False) if convention == "row" else wfa


def to_matrices_dict(wfa: Wfa) -> dict[str, object]:
    """A JSON-ready dictionary in the row convention; entries are integers and strings "p/q"."""

    def plain(row: Row) -> list[int | str]:
        return [x.numerator if x.denominator == 1 else str(x) for x in row]

    matrices = {
        symbol: [plain(row) for row in _transposed(rows)]
        for symbol, rows in zip(wfa.alphabet, wfa.matrices, strict=True)
    }
    return {
        "semiring": "real",
        "alphabet": list(wfa.alphabet),
        "initial": plain(wfa.initial),
        "matrices": matrices,
        "final": plain(wfa.final),
    }


def _read(alphabet: Sequence[object], initial: object, matrices: object, final: object) -> Wfa:
    """The automaton of lists that may hold anything; all faults are named at once."""
    _refuse(_name_faults(alphabet))
    faults = list[str]()
    start, end = _numbers(initial, "initial", faults), _numbers(final, "final", faults)
    n = len(start)
    if len(end) != n:
        faults.append(f"final has {len(end)} entries, initial {n}")
    given = dict[object, object]()
    if not isinstance(matrices, Mapping):
        faults.append("matrices are no dictionary {symbol: rows}")
    else:
        given = dict(cast("Mapping[object, object]", matrices))
        faults += [f"symbol {symbol!r} has no matrix" for symbol in alphabet if symbol not in given]
        faults += [f"matrix of {key!r}, which is not in the alphabet" for key in given if key not in alphabet]
    read: list[Rows] = []
    for symbol in alphabet:
        rows = given.get(symbol, [])
        entries = cast("Sequence[object]", rows) if isinstance(rows, list | tuple) else ()
        read.append(tuple(_numbers(row, f"matrix of {symbol!r}, row {i}", faults) for i, row in enumerate(entries)))
        if symbol in given and [len(row) for row in read[-1]] != [n] * n:
            faults.append(f"the matrix of {symbol!r} is not {n} × {n}")
    _refuse(faults)
    return Wfa(tuple(cast("Sequence[str]", alphabet)), start, tuple(read), end)


def _numbers(value: object, what: str, faults: list[str]) -> Row:
    """The numbers of a list; a fault for each that is none, which then counts as 0."""
    if not isinstance(value, list | tuple):
        faults.append(f"{what} is no list")
        return ()
    numbers: list[Fraction] = []
    for i, entry in enumerate(cast("Sequence[object]", value)):
        try:
            numbers.append(exact(entry))
        except InvalidInput as error:
            faults.append(f"{what}, entry {i}: {error}")
            numbers.append(Fraction(0))
    return tuple(numbers)


def _name_faults(alphabet: Sequence[object]) -> list[str]:
    faults = [f"symbol {symbol!r} is no string" for symbol in alphabet if not isinstance(symbol, str)]
    twice = [x for i, x in enumerate(alphabet) if isinstance(x, str) and x in alphabet[:i]]
    return faults + [f"symbol {symbol!r} stands twice" for symbol in dict.fromkeys(twice)]


def _refuse(faults: Sequence[str]) -> None:
    if faults:
        more = f" and {len(faults) - 6} more" if len(faults) > 6 else ""
        raise InvalidAutomaton(f"weighted automaton: {'; '.join(faults[:6])}{more}; correct them (counted from 0)")


def _in_order(wfa: Wfa, alphabet: Sequence[str]) -> tuple[Rows, ...]:
    """The matrices in the order of another alphabet of the same symbols."""
    if set(wfa.alphabet) != set(alphabet):
        only = sorted(set(wfa.alphabet) ^ set(alphabet))
        raise InvalidInput(f"two alphabets: only one of the automata has {', '.join(map(repr, only))}; use the same")
    return tuple(wfa.matrices[code] for code in wfa.encode(alphabet))


def _independent(wfa: Wfa) -> Iterator[tuple[tuple[int, ...], fmpq_mat]]:
    """Words, by length and then by letters, with columns M(w) h_0 that are no combinations of the ones before.

    They span all columns: a longer word whose prefix is such a combination is one too.
    """
    if not wfa.size:
        return
    letters = [_matrix(rows) for rows in wfa.matrices]
    echelon: list[tuple[int, list[fmpq]]] = []
    waiting: list[tuple[tuple[int, ...], fmpq_mat]] = [((), _matrix([[x] for x in wfa.initial]))]
    for word, hidden in waiting:
        rest = hidden.entries()
        for pivot, row in echelon:
            c = rest[pivot]
            if c:
                rest = [x - c * y for x, y in zip(rest, row, strict=True)]
        pivot = next((i for i, x in enumerate(rest) if x), None)
        if pivot is not None:
            echelon.append((pivot, [x / rest[pivot] for x in rest]))
            yield word, hidden
            if len(echelon) == wfa.size:
                return
            waiting += [((*word, code), letter * hidden) for code, letter in enumerate(letters)]


def _onto_span(wfa: Wfa) -> Wfa:
    """The automaton on the span of its columns, in the basis of reduced echelon form; itself if that is everything."""
    columns = [hidden.entries() for _, hidden in _independent(wfa)]
    if len(columns) == wfa.size:
        return wfa
    if not columns:
        return zero(wfa.alphabet)
    basis = fmpq_mat(columns).rref()[0]
    pivots = [next(i for i, x in enumerate(row) if x) for row in basis.table()]
    # In this basis the coordinates of a column are its entries at the pivots.
    lift = basis.transpose()
    matrices = tuple(_fractions(_matrix([rows[i] for i in pivots]) * lift) for rows in wfa.matrices)
    final = _fractions(_matrix([wfa.final]) * lift)[0]
    return Wfa(wfa.alphabet, tuple(wfa.initial[i] for i in pivots), matrices, final)


def _reversed(wfa: Wfa, *, swap: bool = True) -> Wfa:
    """The automaton with transposed matrices; with its ends swapped it gives a word the value of its mirror image."""
    ends = (wfa.final, wfa.initial) if swap else (wfa.initial, wfa.final)
    return Wfa(wfa.alphabet, ends[0], tuple(_transposed(rows) for rows in wfa.matrices), ends[1])


def _transposed(rows: Sequence[Row]) -> Rows:
    return tuple(zip(*rows, strict=True))


def _dot(row: Row, column: Row) -> Fraction:
    return sum((x * y for x, y in zip(row, column, strict=True) if x and y), Fraction(0))


def _matrix(rows: Sequence[Sequence[Fraction]]) -> fmpq_mat:
    entries = [fmpq(x.numerator, x.denominator) for row in rows for x in row]
    return fmpq_mat(len(rows), len(rows[0]), entries)


def _fractions(matrix: fmpq_mat) -> Rows:
    return tuple(tuple(Fraction(int(x.p), int(x.q)) for x in row) for row in matrix.table())
