"""The joint search: every exact state of the network together with the automaton's state, over all words.

Main definitions: `close`, `Closure`, `HeadSearch`.

Main results: if `close` returns, the network's answer equals the automaton's state after every non-empty word
(the theorem of docs/certificate.md). The search order is the canonical one of that document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from statetrack.errors import BudgetExceeded, CertificateFailed
from statetrack.theory.arrays import matmul
from statetrack.theory.automata import Dfa
from statetrack.theory.orbits import Orbit

from .program import Head, Layer, LayerInput, Lookup, Program, Readout, head_orbit

Ids = NDArray[np.int32]
_EDGES_AT_ONCE = 1 << 18
# Products are followed recursively, here and by the checker; every so many letters one gets algebra of its own.
_DEEPEST = 100


class HeadSearch:
    """One head during the search: its orbit, its readouts numbered in the order of first appearance, its codes."""

    def __init__(self, program: Program, head: Head, products: Mapping[int, tuple[int, int]], max_states: int) -> None:
        self.head = head
        self.products = dict(products)
        self.orbit: Orbit = head_orbit(head, max_states=max_states, products=products)
        self.labels: list[int] | None = [] if head.codebook is not None else None
        self._index: dict[bytes, int] = {}
        self._memo: dict[int, Ids] = {}
        self.reached: set[int] = {0}

    @property
    def readouts(self) -> Ids:
        """Scalar numbers of the distinct readouts, [count, V], in order of first appearance."""
        return np.frombuffer(b"".join(self._index), dtype=np.int32).reshape(len(self._index), self.head.width)

    def exact_readouts(self) -> tuple[Readout, ...]:
        """The distinct readouts as elements."""
        values = [self.orbit.scalars.vector(i)[0] for i in range(len(self.orbit.scalars))]
        rows: list[list[int]] = self.readouts.tolist()
        return tuple(tuple(values[i] for i in row) for row in rows)

    def move(self, steps: Ids, states: Ids) -> Ids:
        """States after the step of each edge."""
        moved = np.empty_like(states)
        for step in np.unique(steps).tolist():
            chosen = steps == step
            moved[chosen] = self.orbit.move(step, states[chosen])
        return moved

    def read(self, queries: Ids, states: Ids) -> Ids:
        """The number of the readout of each edge; new readouts are numbered in the order of the edges."""
        numbers = np.full(len(states), -1, dtype=np.int32)
        for query in np.unique(queries).tolist():
            table = self._memo.get(query, np.empty(0, dtype=np.int32))
            if len(table) < len(self.orbit):
                table = np.concatenate([table, np.full(len(self.orbit) - len(table), -1, dtype=np.int32)])
                self._memo[query] = table
            chosen = queries == query
            numbers[chosen] = table[states[chosen]]
        missing = np.flatnonzero(numbers < 0)
        if missing.size:
            pairs = np.column_stack([queries[missing], states[missing]])
            fresh, first, inverse = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
            order = np.argsort(first)
            found = np.empty(len(fresh), dtype=np.int32)
            rows = np.empty((len(fresh), self.head.width), dtype=np.int32)
            asked: list[int] = np.unique(fresh[:, 0]).tolist()
            for query in asked:
                mask = fresh[:, 0] == query
                rows[mask] = self.orbit.readouts(self.head.queries[query], fresh[mask, 1])
            for i in order.tolist():
                found[i] = self._number(rows[i])
                self._memo[int(fresh[i, 0])][int(fresh[i, 1])] = found[i]
            numbers[missing] = found[inverse.reshape(-1)]
        return numbers

    def codes(self, numbers: Ids) -> Ids:
        """Readout numbers to codes."""
        return numbers if self.labels is None else np.array(self.labels, dtype=np.int32)[numbers]

    def _number(self, row: Ids) -> int:
        key = row.tobytes()
        number = self._index.setdefault(key, len(self._index))
        if self.labels is not None and number == len(self.labels):
            assert self.head.codebook is not None
            numbers: list[int] = row.tolist()
            exact = tuple(self.orbit.scalars.vector(i)[0] for i in numbers)
            if exact not in self.head.codebook:
                raise CertificateFailed(
                    "codebook of an inner layer", f"readout ({', '.join(map(str, exact))})", "a code for it"
                )
            self.labels.append(self.head.codebook[exact])
        return number


@dataclass
class Closure:
    """What the search found: per layer and head the searches, used inputs, the emit tables and the joint states."""

    heads: tuple[tuple[HeadSearch, ...], ...]
    inputs: tuple[dict[LayerInput, tuple[tuple[int, int], ...]], ...]
    emits: tuple[dict[tuple[int, ...], int], ...]
    joint: int = 0
    parents: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def word(self, joint: int) -> tuple[int, ...]:
        """A shortest word (tokens) that leads to a joint state."""
        tokens: list[int] = []
        while joint:
            joint, token = self.parents[joint]
            tokens.append(token)
        return tuple(reversed(tokens))


def close(
    program: Program, dfa: Dfa, *, max_joint: int = 5_000_000, progress: Callable[[int], None] | None = None
) -> Closure:
    """Search all joint states; on the last layer the codebook and emit table are found from the automaton.

    Raises:
        CertificateFailed: two words give one readout but different automaton states; both words are named.
        BudgetExceeded: more than `max_joint` joint states.
    """
    if program.alphabet != dfa.alphabet:
        raise CertificateFailed("alphabet of program and automaton", str(len(program.alphabet)), str(len(dfa.alphabet)))
    products = _known_products(program, dfa)
    heads = tuple(
        tuple(
            HeadSearch(program, head, products if len(program.layers) == 1 else {}, max_joint) for head in layer.heads
        )
        for layer in program.layers
    )
    result = Closure(heads, tuple({} for _ in program.layers), tuple({} for _ in program.layers))
    flat = [h for layer in heads for h in layer]
    start = np.array([[0] * len(flat) + [dfa.start]], dtype=np.int32)
    seen: dict[bytes, int] = {start.tobytes(): 0}
    result.parents.append((-1, -1))
    pending: list[Ids] = [start]
    done = 0
    while pending and dfa.alphabet:
        level: Ids = np.concatenate(pending)
        pending = []
        size = max(1, _EDGES_AT_ONCE // len(dfa.alphabet))
        for at in range(0, len(level), size):
            rows = level[at : at + size]
            images = _expand(program, dfa, result, rows, done + at)
            pending += _collect(images, seen, result, done + at, len(dfa.alphabet), max_joint)
            if progress is not None:
                progress(len(seen))
        done += len(level)
    result.joint = len(seen)
    reached = len({key[-4:] for key in seen})
    if reached < len(dfa.states):
        raise CertificateFailed("automaton states in reach", str(reached), str(len(dfa.states)))
    return result


def _collect(
    images: Ids, seen: dict[bytes, int], result: Closure, first: int, letters: int, max_joint: int
) -> list[Ids]:
    """Number the joint states that are new, in the order of the edges."""
    buffer, size = np.ascontiguousarray(images).tobytes(), 4 * images.shape[1]
    fresh: list[int] = []
    for edge in range(len(images)):
        key = buffer[edge * size : (edge + 1) * size]
        if key not in seen:
            if len(seen) >= max_joint:
                raise BudgetExceeded("joint states", max_joint, "--max-states")
            seen[key] = len(seen)
            result.parents.append((first + edge // letters, edge % letters))
            fresh.append(edge)
    return [images[fresh]] if fresh else []


def _expand(program: Program, dfa: Dfa, result: Closure, rows: Ids, first: int) -> Ids:
    """The images of joint states under all tokens, state-major; checks every answer."""
    letters = len(dfa.alphabet)
    edges = np.repeat(rows, letters, axis=0)
    tokens = np.tile(np.arange(letters, dtype=np.int32), len(rows))
    answers = dfa.delta[rows[:, -1]].reshape(-1)
    images = np.empty_like(edges)
    images[:, -1] = answers
    inputs, column = [tokens], 0
    for number, (layer, searches) in enumerate(zip(program.layers, result.heads, strict=True)):
        last = number == len(program.layers) - 1
        which, chosen = _choose(layer, result.inputs[number], inputs)
        readings: list[Ids] = []
        for i, search in enumerate(searches):
            moved = search.move(chosen[which, 2 * i], edges[:, column])
            images[:, column] = moved
            search.reached.update(np.unique(moved).tolist())
            readings.append(search.read(chosen[which, 2 * i + 1], moved))
            column += 1
        if last:
            _settle(readings, answers, result, number, first, dfa)
        else:
            codes = [search.codes(r) for search, r in zip(searches, readings, strict=True)]
            inputs.append(codes[0] if layer.emit is None else _emit(layer, codes, result.emits[number]))
    return images


def _choose(layer: Layer, table: dict[LayerInput, tuple[tuple[int, int], ...]], inputs: list[Ids]) -> tuple[Ids, Ids]:
    """For each edge the row of its input among the distinct ones, and (step, query) pairs a head of those rows."""
    distinct, which = np.unique(np.column_stack(inputs), axis=0, return_inverse=True)
    rows: list[list[int]] = []
    for line in distinct.tolist():
        key = tuple(line)
        if key not in table:
            table[key] = tuple(head.choose(key) for head in layer.heads)
        rows.append([x for pair in table[key] for x in pair])
    return which.reshape(-1).astype(np.int32), np.array(rows, dtype=np.int32)


def _emit(layer: Layer, codes: list[Ids], table: dict[tuple[int, ...], int]) -> Ids:
    distinct, which = np.unique(np.column_stack(codes), axis=0, return_inverse=True)
    symbols: list[int] = []
    for line in distinct.tolist():
        key = tuple(line)
        assert layer.emit is not None
        table[key] = layer.emit(key)
        symbols.append(table[key])
    return np.array(symbols, dtype=np.int32)[which.reshape(-1)]


def _settle(readings: list[Ids], answers: Ids, result: Closure, number: int, first: int, dfa: Dfa) -> None:
    """In the last layer the automaton decides what each (tuple of) readout means; a second meaning is an error."""
    table = result.emits[number]
    distinct, index, which = np.unique(np.column_stack(readings), axis=0, return_index=True, return_inverse=True)
    meaning = np.array(
        [
            table.setdefault(tuple(line), int(answers[i]))
            for line, i in zip(distinct.tolist(), index.tolist(), strict=True)
        ]
    )
    wrong = np.flatnonzero(meaning[which.reshape(-1)] != answers)
    if wrong.size:
        letters, edge = len(dfa.alphabet), int(wrong[0])
        word = (*result.word(first + edge // letters), edge % letters)
        got, want = int(meaning[which.reshape(-1)[edge]]), int(answers[edge])
        shown = " ".join(dfa.alphabet[t] for t in word[:40])
        raise CertificateFailed(
            f"decoder after the word {shown!r}", f"the readout that means {dfa.states[got]!r}", repr(dfa.states[want])
        )


def _known_products(program: Program, dfa: Dfa) -> dict[int, tuple[int, int]]:
    """Steps of a one-layer program that are exactly a product of two others, guessed from the automaton's letters.

    Only where exact algebra is dear (large fields); each guess is verified as a matrix identity before it is used.
    """
    if len(program.layers) != 1 or len(program.layers[0].heads) != 1:
        return {}
    head = program.layers[0].heads[0]
    if program.field.degree * len(head.steps) < 256 or any(f.b is not None for s in head.steps for f in s):
        return {}
    step_of = [head.choose((token,))[0] for token in range(len(dfa.alphabet))]
    maps = {step: dfa.delta[:, token] for token, step in enumerate(step_of)}
    matrices = {step: head.maps[step].matrix for step in maps}
    by_map = {column.tobytes(): step for step, column in maps.items()}
    products: dict[int, tuple[int, int]] = {}
    depth: dict[int, int] = {}
    queue: list[int] = []
    bases: list[int] = []
    for start in maps:
        if start in depth:
            continue
        bases.append(start)
        depth[start] = 0
        queue.append(start)
        for c in queue:
            for b in bases:
                a = by_map.get(np.ascontiguousarray(maps[b][maps[c]]).tobytes())
                if a is not None and a not in depth and matmul(matrices[b], matrices[c]) == matrices[a]:
                    depth[a] = (depth[c] + 1) % _DEEPEST
                    if depth[a]:
                        products[a] = (b, c)
                    queue.append(a)
    return products


def closed_program(program: Program, result: Closure) -> Program:
    """The program with its codebooks, tabulated look-ups and only the steps and queries that occur."""
    layers: list[Layer] = []
    for number, (layer, searches) in enumerate(zip(program.layers, result.heads, strict=True)):
        last = number == len(program.layers) - 1
        table, emit = result.inputs[number], result.emits[number]
        heads: list[Head] = []
        for i, search in enumerate(searches):
            exact = search.exact_readouts()
            labels = list(range(len(exact)))
            if last and len(searches) == 1:
                labels = [emit[(k,)] for k in labels]
            elif not last and search.labels is not None:
                labels = search.labels
            steps = sorted({pairs[i][0] for pairs in table.values()} | set(_parts(search, table, i)))
            queries = sorted({pairs[i][1] for pairs in table.values()})
            rename_step, rename_query = {s: k for k, s in enumerate(steps)}, {q: k for k, q in enumerate(queries)}
            choose = Lookup(
                {key: (rename_step[pairs[i][0]], rename_query[pairs[i][1]]) for key, pairs in table.items()}
            )
            heads.append(
                Head(
                    search.head.h0,
                    tuple(search.head.steps[s] for s in steps),
                    tuple(search.head.queries[q] for q in queries),
                    choose,
                    dict(zip(exact, labels, strict=True)),
                    search.head.unit,
                )
            )
            search.products = {
                rename_step[a]: (rename_step[b], rename_step[c])
                for a, (b, c) in search.products.items()
                if a in rename_step
            }
        single = len(heads) == 1
        layers.append(Layer(tuple(heads), None if single and (last or layer.emit is None) else Lookup(dict(emit))))
    return Program(program.field, program.alphabet, tuple(layers), program.outputs, program.empty_word_output)


def _parts(search: HeadSearch, table: Mapping[LayerInput, tuple[tuple[int, int], ...]], i: int) -> set[int]:
    """Steps that other used steps are products of (they are used themselves, as they are steps of letters)."""
    used = {pairs[i][0] for pairs in table.values()}
    return {part for a, parts in search.products.items() if a in used for part in parts}
