"""Nondeterministic automata, only as far as the way to a `Dfa`.

A program of steps is a nondeterministic automaton whose jumps are relative: copies need no renaming.

Main definitions: `determinise`; `Step`, `concatenate`, `alternate`, `repeat`, `run_steps`.

Main results: the subset construction, on classes of symbols that act alike; it stops at a stated number of subsets.

References: Rabin and Scott, *Finite automata and their decision problems* (1959); Thompson, *Regular expression
search algorithm* (1968).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np

from statetrack.errors import BudgetExceeded

from .automata import Dfa

Letters = frozenset[str]
# A step reads one of its letters and goes to the next step, or (None) jumps by any of the offsets without reading.
Step = tuple[Letters | None, tuple[int, ...]]


def determinise(
    alphabet: Sequence[str],
    edges: Sequence[Sequence[tuple[frozenset[str], int]]],
    silent: Sequence[Sequence[int]],
    start: int,
    accepting: Collection[int],
    *,
    max_states: int,
) -> Dfa:
    """The total acceptor of a nondeterministic automaton; its states are named 0, 1, ... in the order they are met.

    Args:
        alphabet: all symbols.
        edges: for each state, pairs (symbols read, state reached).
        silent: for each state, the states reached without reading.
        start: the start state.
        accepting: the accepting states.
        max_states: bound on the subsets.

    Raises:
        BudgetExceeded: more than `max_states` subsets.

    >>> ends_in_a = [[(frozenset("ab"), 0), (frozenset("a"), 1)], []]
    >>> determinise("ab", ends_in_a, [[], []], 0, {1}, max_states=10).run("aba")
    (True, False, True)
    """
    columns, classes_of = _classes(alphabet, {symbols for row in edges for symbols, _ in row})
    width = max(columns, default=-1) + 1

    def close(seeds: Iterable[int]) -> frozenset[int]:
        seen = set(seeds)
        stack = list(seen)
        while stack:
            for to in silent[stack.pop()]:
                if to not in seen:
                    seen.add(to)
                    stack.append(to)
        return frozenset(q for q in seen if edges[q] or q in accepting)

    subsets = [close([start])]
    numbers = {subsets[0]: 0}
    table: list[list[int]] = []
    for subset in subsets:
        reached: list[set[int]] = [set() for _ in range(width)]
        for q in subset:
            for symbols, to in edges[q]:
                for column in classes_of[symbols]:
                    reached[column].add(to)
        closed = [close(seeds) for seeds in reached]
        for other in closed:
            if other not in numbers:
                if len(numbers) >= max_states:
                    raise BudgetExceeded("subset states", max_states, "--max-states")
                numbers[other] = len(numbers)
                subsets.append(other)
        table.append([numbers[other] for other in closed])
    delta = np.array(table, dtype=np.int32).reshape(len(table), width)[:, columns]
    outputs = tuple(any(q in accepting for q in subset) for subset in subsets)
    return Dfa(tuple(alphabet), tuple(map(str, range(len(table)))), 0, delta, outputs)


def run_steps(alphabet: Sequence[str], steps: Sequence[Step], *, max_states: int) -> Dfa:
    """The total acceptor of the words that lead from the first step past the last one, by `determinise`.

    >>> run_steps("ab", [(frozenset("a"), (1,))], max_states=9).run("ab")
    (True, False)
    """
    edges = [() if letters is None else ((letters, i + 1),) for i, (letters, _) in enumerate(steps)]
    silent = [tuple(i + jump for jump in jumps) if letters is None else () for i, (letters, jumps) in enumerate(steps)]
    return determinise(alphabet, [*edges, ()], [*silent, ()], 0, {len(steps)}, max_states=max_states)


def concatenate(parts: Sequence[list[Step]], *, limit: int) -> list[Step]:
    """Steps for one part after the other; `BudgetExceeded` above `limit` steps."""
    _bound(sum(map(len, parts)), limit)
    return [step for part in parts for step in part]


def alternate(parts: Sequence[list[Step]]) -> list[Step]:
    """Steps for any one of the parts, of which there is at least one."""
    steps = parts[-1]
    for part in reversed(parts[:-1]):
        steps = [(None, (1, len(part) + 2)), *part, (None, (len(steps) + 1,)), *steps]
    return steps


def repeat(body: list[Step], least: int, most: int | None, *, limit: int) -> list[Step]:
    """Steps for at least `least` and at most `most` (None: any number of) copies of the body.

    >>> run_steps("a", repeat([(frozenset("a"), (1,))], 2, 3, limit=99), max_states=9).run("aaaa")
    (False, True, True, False)
    """
    size = len(body)
    if most is None:
        _bound(size * (least + 1) + 2, limit)
        return [*body * least, (None, (1, size + 2)), *body, (None, (-size - 1,))]
    _bound(size * most + most - least, limit)
    steps = body * least
    for left in range(most - least, 0, -1):
        steps += [(None, (1, (size + 1) * left)), *body]
    return steps


def _bound(size: int, limit: int) -> None:
    if size > limit:
        raise BudgetExceeded("steps in the regular expression", limit, "--max-states")


def _classes(
    alphabet: Sequence[str], sets: Collection[frozenset[str]]
) -> tuple[list[int], dict[frozenset[str], tuple[int, ...]]]:
    """Symbols that lie in the same sets share a class: the class of each symbol, and the classes that make each set."""
    ordered = tuple(sets)
    known: dict[tuple[bool, ...], int] = {}
    columns = [known.setdefault(tuple(symbol in each for each in ordered), len(known)) for symbol in alphabet]
    makes = {each: tuple(c for pattern, c in known.items() if pattern[i]) for i, each in enumerate(ordered)}
    return columns, makes
