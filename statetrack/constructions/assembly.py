"""Networks made of networks: registers, wires, and the two shapes that certificates of composed programs have.

Main definitions: `Part`, `Assembly`, `Accumulator`, `Blocks` (clock, buffer, accumulator), `Module`, `Stack`, `Chain`.

Main results: `Blocks.program`, `Stack.program` and `Chain.program` are the networks that docs/certificate.md describes;
whoever reads a certificate builds them by the same functions.

References: docs/certificate.md, docs/constructions.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from statetrack.theory.arrays import Matrix, Vector
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Field
from statetrack.theory.number_fields import rationals

from .program import Factor, Head, Layer, Lookup, Program, Readout, Step, Table, rank_one

Map = tuple[int, ...]
Keys = Mapping[tuple[int, ...], int]
# Targets of one automaton ask for the same accumulators one after the other; so many are kept.
KEPT = 16


@dataclass(frozen=True, eq=False)
class Part:
    """A closed program with its certificate (the JSON object) for an automaton of its own."""

    program: Program
    data: Mapping[str, Any]
    dfa: Dfa


class Assembly:
    """A program under construction: layers, the wires that the next layer will have, and the number of registers."""

    def __init__(self) -> None:
        self._layers: list[Layer] = []
        self._pending: list[Table] = []
        self._count = 1

    def wire(self, reads: Sequence[int], entries: Keys | Lookup[tuple[int, ...], int]) -> int:
        """A new register: the table's value at the registers it reads."""
        lookup = entries if isinstance(entries, Lookup) else Lookup(entries)
        self._pending.append(Table(tuple(reads), lookup))
        self._count += 1
        return self._count - 1

    def layer(self, layer: Layer, reads: Sequence[int]) -> list[int]:
        """Add a layer whose input are these registers; returns its output registers."""
        self._layers.append(replace(layer, wires=tuple(self._pending), reads=tuple(reads)))
        self._pending.clear()
        self._count += layer.outputs
        return list(range(self._count - layer.outputs, self._count))

    def embed(self, program: Program, token: int) -> int:
        """Add a closed program that reads `token` as its token; returns the register of its answer."""
        number = [token]
        for layer, reads in zip(program.layers, program.reads, strict=True):
            for table in layer.wires:
                number.append(self.wire([number[i] for i in table.reads], table.entries))
            number += self.layer(layer, [number[i] for i in reads])
        for table in program.answer:
            number.append(self.wire([number[i] for i in table.reads], table.entries))
        return number[-1]

    def program(self, alphabet: tuple[str, ...], outputs: tuple[Any, ...], empty: Any) -> Program:
        """The finished program; wires that no layer took are its answer."""
        return Program(rationals(), alphabet, tuple(self._layers), outputs, empty, tuple(self._pending))


@dataclass(frozen=True, eq=False)
class Accumulator:
    """Buffer and accumulator for blocks of P = `length` tokens, which no target's range is part of.

    Names as in docs/certificate.md. `letters` are n x n matrices of the codes 1, 2, ...; `fold` maps (product, code)
    to a product; `blocks` maps (half, product) to P step numbers and P numbers of remaining matrices; `rows` maps
    (product, remaining) to a query. `points[s]` are the points of automaton state s, -1 for a zero column; None for a
    weighted automaton. `scaled` (T, J): blocks hold their maps up to powers of 1/2, J in all in words of T tokens.
    `turned`: remaining matrices have the numbers of products, and `rows` maps (product,) to a query: the letters of a
    block are folded onto what remains, and `fold` knows every product.
    """

    length: int
    letters: tuple[Matrix, ...]
    tokens: tuple[int, ...]
    fold: Keys
    h0: Matrix
    steps: tuple[Step, ...]
    queries: tuple[Vector, ...]
    select: tuple[Matrix, Matrix]
    blocks: Mapping[tuple[int, int], tuple[Map, Map]]
    rows: Keys
    row: Vector
    points: tuple[Map, ...] | None
    scaled: tuple[int, int] | None = None
    turned: bool = False

    @property
    def field(self) -> Field:
        """The rationals."""
        return self.row[0].field

    @cached_property
    def readouts(self) -> dict[Readout, int]:
        """The accumulator's codebook: what each automaton state reads as (empty for a weighted automaton)."""
        zero = self.field.zero
        return {
            tuple(zero if point < 0 else self.row[point] / 2**j for point in points): state
            for j in range(1 + (0 if self.scaled is None else self.scaled[1]))
            for state, points in enumerate(self.points or ())
        }

    def levels(self) -> list[tuple[int, ...]]:
        """The products of words of length 0, 1, ..., P."""
        codes = sorted(set(self.tokens))
        found: list[tuple[int, ...]] = [(0,)]
        for _ in range(self.length):
            found.append(tuple(dict.fromkeys(self.fold[x, c] if c else x for x in found[-1] for c in codes)))
        return found

    def buffer_steps(self) -> tuple[Step, ...]:
        """Hold, then write code 0, 1, ...: h <- 0 h + code."""
        one = (self.field.one,)
        writes = [(Factor(one, self.field.one, None, rank_one(one, [c])),) for c in range(len(self.letters) + 1)]
        return ((), *writes)

    @cached_property
    def slots(self) -> tuple[Head, ...]:
        """The 2P slots of the buffer."""
        return tuple(self._slot(i) for i in range(2 * self.length))

    @cached_property
    def head(self) -> Head:
        """The accumulator itself, which is told its step and its query."""
        book = self.readouts if self.points is not None else None
        # No letters come before the first block.
        first, last = (self.blocks[0, 0][0],), self.levels()[-1]
        second, third = (
            tuple(dict.fromkeys(self.blocks[half, x][0] for x in last if (half, x) in self.blocks)) for half in (1, 0)
        )
        choose = Lookup({pair: pair for pair in self._pairs()})
        return Head(self.h0, self.steps, self.queries, choose, book, runs=(first, second, third))

    def _slot(self, i: int) -> Head:
        """Slot i of the ring: written at times t with (t - 1) mod 2P = i."""
        period, codes = 2 * self.length, sorted(set(self.tokens))
        choose = {(c, t): ((1 + c) * ((t - 1) % period == i), 0) for c in codes for t in range(period)}
        one = (self.field.one,)
        book = {(self.field(c),): c for c in sorted({0, *codes})}
        return Head(((self.field.zero,),), self.buffer_steps(), (one,), Lookup(choose), book)

    def _pairs(self) -> list[tuple[int, int]]:
        """(step, query) pairs that occur; where letters are folded onto what remains, all pairs."""
        if self.turned:
            return [(step, query) for step in range(len(self.steps)) for query in range(len(self.queries))]
        met = {item for steps, rests in self.blocks.values() for item in enumerate(zip(steps, rests, strict=True))}
        steps_of: dict[tuple[int, int], list[int]] = {}
        for place, (step, rest) in met:
            steps_of.setdefault((place, rest), []).append(step)
        levels, rows, found = self.levels(), self.rows, set[tuple[int, int]]()
        for (place, rest), steps in steps_of.items():
            queries = {rows[v, rest] for v in levels[place + 1]}
            for step in steps:
                found.update([(step, query) for query in queries])
        return sorted(found)


@dataclass(frozen=True, eq=False)
class Blocks:
    """A clock of period 2P for an accumulator of blocks of P tokens."""

    clock: Part
    accumulator: Accumulator

    def program(self, alphabet: tuple[str, ...], outputs: tuple[Any, ...], empty: Any) -> Program:
        """The network."""
        made, net = self.accumulator, Assembly()
        period = 2 * made.length
        zero = net.wire((), {(): 0})
        phase = net.embed(self.clock.program, zero)
        code = net.wire((0,), {(t,): c for t, c in enumerate(made.tokens)})
        slots = net.layer(Layer(made.slots), (code, phase))
        masked = Lookup({(bit, c): c * bit for bit in (0, 1) for c in range(len(made.letters) + 1)})
        fold = Lookup({**{(x, 0): x for x in (0, *made.fold.values())}, **made.fold})
        folded = [zero, zero]

        def play(role: int, i: int) -> None:
            bits = {(t,): self._plays(role, i, t) for t in range(period)}
            if any(bits.values()):
                letter = net.wire((net.wire((phase,), bits), slots[i]), masked)
                folded[role] = net.wire((folded[role], letter), fold)

        for i in range(period):
            for role in (1,) if made.turned else (0, 1):
                play(role, i)
        chosen: list[int] = []
        for which in (0, 1):
            table: dict[tuple[int, ...], int] = {}
            for t in range(period):
                half, place = divmod((t - 1) % period, made.length)
                table |= {(t, x): entry[which][place] for (h, x), entry in made.blocks.items() if h == half}
            chosen.append(net.wire((phase, folded[1]), table))
        if made.turned:
            folded[0] = chosen[1]
            for i in range(period):
                play(0, i)
        query = net.wire((folded[0],) if made.turned else (folded[0], chosen[1]), made.rows)
        net.layer(Layer((made.head,)), (chosen[0], query))
        return net.program(alphabet, outputs, empty)

    def _plays(self, role: int, i: int, phase: int) -> int:
        """Whether slot i belongs to the block so far (role 0) or to the block before (role 1) at this phase."""
        length = self.accumulator.length
        now = (phase - 1) % (2 * length)
        same = now // length == i // length
        return int(same and i <= now) if role == 0 else int(not same)


@dataclass(frozen=True, eq=False)
class Module:
    """One network of a stack: what it is told at (token, values before it of the modules it reads), and its values.

    `letters` maps (token, values...) to a letter of the part's automaton; `values[state]` is what others see of it.
    """

    part: Part
    reads: tuple[int, ...]
    letters: Lookup[tuple[int, ...], int]
    values: tuple[int, ...]

    @cached_property
    def before(self) -> dict[tuple[int, ...], int]:
        """The value before a letter, from the letter and the state after it."""
        delta = self.part.dfa.delta.tolist()
        return {(a, to): self.values[b] for b, row in enumerate(delta) for a, to in enumerate(row)}

    @cached_property
    def moves(self) -> dict[tuple[int, int], int]:
        """(value, letter) -> value."""
        delta = self.part.dfa.delta.tolist()
        return {(self.values[b], a): self.values[to] for b, row in enumerate(delta) for a, to in enumerate(row)}


@dataclass(frozen=True, eq=False)
class Stack:
    """Modules in a row and the table from values after the token of the modules `reads` to the automaton's state."""

    modules: tuple[Module, ...]
    reads: tuple[int, ...]
    answer: Lookup[tuple[int, ...], int]

    def program(self, dfa: Dfa) -> Program:
        """The network."""
        net = Assembly()
        letters: list[int] = []
        states: list[int] = []
        before: dict[int, int] = {}
        for module in self.modules:
            for j in module.reads:
                if j not in before:
                    before[j] = net.wire((letters[j], states[j]), self.modules[j].before)
            letters.append(net.wire((0, *(before[j] for j in module.reads)), module.letters))
            states.append(net.embed(module.part.program, letters[-1]))
        after = [net.wire((states[j],), _indexed(self.modules[j].values)) for j in self.reads]
        net.wire(after, self.answer)
        return net.program(dfa.alphabet, dfa.outputs, dfa.outputs[dfa.start])


@dataclass(frozen=True, eq=False)
class Chain:
    """Modules in a row that narrow a set: all states, then with each module's value one of the sets inside it.

    `narrow[i]` maps (set above module i, its value) to the set below it; after the last module that is the automaton's
    state. Sets are numbers, the set above module 0 is 0. A module's letter is looked up by (set above it before the
    token, set above it after the token, token) and not by values (`reads` is empty).
    """

    modules: tuple[Module, ...]
    narrow: tuple[Keys, ...]

    def program(self, dfa: Dfa) -> Program:
        """The network."""
        net = Assembly()
        before = after = net.wire((), {(): 0})
        for i, (module, table) in enumerate(zip(self.modules, self.narrow, strict=True), 1):
            letter = net.wire((before, after, 0), module.letters)
            state = net.embed(module.part.program, letter)
            if i < len(self.modules):
                before = net.wire((before, net.wire((letter, state), module.before)), table)
            after = net.wire((after, net.wire((state,), _indexed(module.values))), table)
        return net.program(dfa.alphabet, dfa.outputs, dfa.outputs[dfa.start])


def _indexed(values: Iterable[int]) -> dict[tuple[int, ...], int]:
    return {(i,): value for i, value in enumerate(values)}
