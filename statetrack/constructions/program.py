"""The one representation: exact linear recurrent networks, layer by layer.

Order, stated once. Words are read left to right; hidden states are columns; h_t = A(x_t) h_{t-1} + b(x_t), so
A(w) = A(x_T) ... A(x_1) with the newest factor leftmost. A step is a tuple of factors in the order in which they
are applied. Kernel tensors are [batch, time, head, dim].

Between layers stand registers, one integer a token each. Register 0 is the token; then every layer adds, in order,
the results of its wires (finite tables of earlier registers) and its outputs. A layer's input is the tuple of the
registers it reads: unless said otherwise (token, symbol of layer 1, ..., symbol of the layer before). Each head looks
its input up to a step and a query, and reads the row qᵀH; a codebook turns that row into a code, and the layer's emit
look-up turns the codes of its heads into one symbol (without one every code is an output).

Main definitions: `Factor`, `Dense`, `Head`, `Table`, `Layer`, `Program`, `Lookup`, `Runner`.

References: CKDA eq. of the layer; Grazzi et al. eq. (1) and Thm. 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np

from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Matrix, Vector, add, dot, identity, matmul
from statetrack.theory.automata import Output, encode
from statetrack.theory.fields import Element, Field
from statetrack.theory.householder import householder
from statetrack.theory.orbits import Orbit, StepMap

LayerInput = tuple[int, ...]
Readout = tuple[Element, ...]
Key = TypeVar("Key")
Value = TypeVar("Value")
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True)
class Factor:
    """h <- (I - c w wᵀ) Diag(alpha) h + b, c >= 0. alpha None: all gates 1. b: one column a column of h, or None.

    The key is not normalised: β = c (w·w), k = w/|w|. c = 0 leaves only the gate.
    """

    w: Vector
    c: Element
    alpha: Vector | None = None
    b: tuple[Vector, ...] | None = None

    @property
    def beta(self) -> Element:
        """c (w·w); 2 is a reflection."""
        return self.c * dot(self.w, self.w)

    def matrix(self) -> Matrix:
        """The transition matrix, without b."""
        h = householder(self.w, self.c)
        return (
            h if self.alpha is None else tuple(tuple(x * a for x, a in zip(row, self.alpha, strict=True)) for row in h)
        )


@dataclass(frozen=True)
class Dense:
    """h <- M h + b with any matrix; only the unconstrained target has it."""

    rows: Matrix
    b: tuple[Vector, ...] | None = None

    def matrix(self) -> Matrix:
        """The transition matrix, without b."""
        return self.rows


Step = tuple[Factor | Dense, ...]


def step_map(field: Field, step: Step, size: int, width: int) -> StepMap:
    """The affine map of a step on states of shape [size, width]: factors applied in order."""
    total, offset = identity(field, size), None
    for factor in step:
        total = _after(factor, total)
        if offset is not None:
            offset = tuple(zip(*_after(factor, tuple(zip(*offset, strict=True))), strict=True))
        if factor.b is not None:
            offset = factor.b if offset is None else add(offset, factor.b)
    assert offset is None or len(offset) == width
    return StepMap(total, offset)


def _after(factor: Factor | Dense, rows: Matrix) -> Matrix:
    """The factor's matrix times the matrix with these rows; (I - c w wᵀ) Diag(alpha) touches rows where w is not 0."""
    if isinstance(factor, Dense):
        return matmul(factor.rows, rows)
    if factor.alpha is not None:
        gated = zip(factor.alpha, rows, strict=True)
        rows = tuple(row if a == 1 else tuple(a * x for x in row) for a, row in gated)
    used = [i for i, x in enumerate(factor.w) if not x.is_zero()]
    if factor.c.is_zero() or not used:
        return rows
    along = tuple(dot(tuple(factor.w[i] for i in used), tuple(rows[i][j] for i in used)) for j in range(len(rows[0])))
    moved = list(rows)
    for i in used:
        scale = factor.c * factor.w[i]
        moved[i] = tuple(x if y.is_zero() else x - scale * y for x, y in zip(rows[i], along, strict=True))
    return tuple(moved)


def rank_one(w: Vector, values: Sequence[Element | int]) -> tuple[Vector, ...]:
    """The additive term with columns values[j]·w: parallel to the key, as β k vᵀ is."""
    return tuple(tuple(x * v for x in w) for v in values)


class Lookup(Generic[Key, Value]):
    """A finite map kept as a memoised rule: `seen` holds what was asked, `size` its number of entries."""

    def __init__(self, rule: Callable[[Key], Value] | Mapping[Key, Value]) -> None:
        self._rule = rule
        self.seen: dict[Key, Value] = {} if callable(rule) else dict(rule)

    def __call__(self, key: Key) -> Value:
        """The value at a key; KeyError if the map is a table without it."""
        if key not in self.seen:
            if not callable(self._rule):
                raise KeyError(key)
            self.seen[key] = self._rule(key)
        return self.seen[key]

    @property
    def size(self) -> int:
        """Entries asked for so far (all of them for a table)."""
        return len(self.seen)


@dataclass(frozen=True, eq=False)
class Head:
    """One head: initial columns, its distinct steps and queries, and which of them each layer input selects.

    `codebook` maps exact readouts to codes; None (in a program that is not closed yet) numbers readouts as they appear.
    `unit` u: every entry x of the state becomes u·floor(x/u) after each token, in arithmetic that rounds down.
    """

    h0: tuple[Vector, ...]
    steps: tuple[Step, ...]
    queries: tuple[Vector, ...]
    choose: Lookup[LayerInput, tuple[int, int]]
    codebook: Mapping[Readout, int] | None = None
    unit: Fraction | None = None

    @property
    def field(self) -> Field:
        """The field of its numbers; heads of one program may have different ones."""
        return self.h0[0][0].field

    @property
    def size(self) -> int:
        """K, the length of a column."""
        return len(self.h0[0])

    @property
    def width(self) -> int:
        """V, the number of columns."""
        return len(self.h0)

    @cached_property
    def maps(self) -> tuple[StepMap, ...]:
        """The affine map of each step."""
        return tuple(step_map(self.field, step, self.size, self.width) for step in self.steps)


@dataclass(frozen=True, eq=False)
class Table:
    """A wire: the register whose value is a finite map of the registers it reads (none: a constant)."""

    reads: tuple[int, ...]
    entries: Lookup[tuple[int, ...], int]


@dataclass(frozen=True, eq=False)
class Layer:
    """Heads side by side; `emit` maps their codes to the layer's symbol (None: every code is an output).

    In the last layer of a program that is not closed yet, `emit` None with several heads means: to be found.
    `wires` are evaluated before the heads; `reads` None: (token, symbols of the layers below).
    """

    heads: tuple[Head, ...]
    emit: Lookup[tuple[int, ...], int] | None = None
    wires: tuple[Table, ...] = ()
    reads: tuple[int, ...] | None = None

    @property
    def outputs(self) -> int:
        """How many registers its codes fill."""
        return 1 if self.emit is not None else len(self.heads)


@dataclass(frozen=True, eq=False)
class Program:
    """An exact network: its answer after a word is a state number; `outputs[state]` is what it says.

    The answer is the last of the tables `answer`, or without them the last layer's symbol. `field` is that of the
    heads of a program that is certified by closure. A weighted program (`outputs` empty) answers with its readout.
    """

    field: Field
    alphabet: tuple[str, ...]
    layers: tuple[Layer, ...]
    outputs: tuple[Output, ...]
    empty_word_output: Output
    answer: tuple[Table, ...] = ()

    @cached_property
    def reads(self) -> tuple[tuple[int, ...], ...]:
        """The registers that each layer's input consists of."""
        found: list[tuple[int, ...]] = []
        count, symbols = 1, [0]
        for layer in self.layers:
            found.append(tuple(symbols) if layer.reads is None else layer.reads)
            count += len(layer.wires) + layer.outputs
            symbols.append(count - 1)
        return tuple(found)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """The number of layers on the longest way from the token through each layer: equal depths are parallel."""
        registers, found = [0], list[int]()
        for layer, reads in zip(self.layers, self.reads, strict=True):
            for wire in layer.wires:
                registers.append(max((registers[i] for i in wire.reads), default=0))
            found.append(1 + max((registers[i] for i in reads), default=0))
            registers += [found[-1]] * layer.outputs
        return tuple(found)

    @property
    def depth(self) -> int:
        """The number of network layers."""
        return max(self.depths, default=0)

    @property
    def dims(self) -> tuple[tuple[int, ...], ...]:
        """K of each head of each network layer; layers that do not depend on each other stand side by side."""
        rows: list[list[int]] = [[] for _ in range(self.depth)]
        for depth, layer in zip(self.depths, self.layers, strict=True):
            rows[depth - 1] += [head.size for head in layer.heads]
        return tuple(tuple(row) for row in rows)

    @property
    def factors_per_token(self) -> int:
        """The largest number of factors in a step, over all layers and heads."""
        return max((len(step) for layer in self.layers for head in layer.heads for step in head.steps), default=0)

    @property
    def beta_max(self) -> Element:
        """The largest β of any factor (0 without factors)."""
        betas = [f.beta for la in self.layers for h in la.heads for s in h.steps for f in s if isinstance(f, Factor)]
        return max(betas, default=self.field.zero, key=float)

    @cached_property
    def runner(self) -> Runner:
        """An exact executor that keeps the states it has met."""
        return Runner(self)

    def run(self, word: Iterable[str]) -> tuple[Output, ...]:
        """The outputs after each symbol, in exact arithmetic; the program must be closed (have codebooks)."""
        return tuple(self.outputs[symbol] for symbol in self.runner.symbols(word))

    def encode(self, word: Iterable[str]) -> tuple[int, ...]:
        """Symbols to token numbers; InvalidWord names the first symbol that is foreign and its position."""
        return encode(self.alphabet, word)


class Runner:
    """Exact execution: one `Orbit` a head, moved by integer arithmetic and remembered."""

    def __init__(self, program: Program, *, max_states: int = 5_000_000) -> None:
        self.program = program
        self.orbits = tuple(
            tuple(head_orbit(head, max_states=max_states) for head in layer.heads) for layer in program.layers
        )
        self._known: dict[tuple[tuple[int, ...], int], tuple[tuple[int, ...], int, Readout, tuple[int, int, int]]] = {}

    def symbols(self, word: Iterable[str]) -> tuple[int, ...]:
        """The answer after each token of the word."""
        return tuple(answer for answer, _, _ in self._walk(word))

    def values(self, word: Iterable[str]) -> tuple[Element, ...]:
        """The last head's readout after each token, of a weighted program."""
        return tuple(readout[0] for _, readout, _ in self._walk(word))

    def last_head(self, word: Iterable[str]) -> Iterator[tuple[int, int, Vector]]:
        """For each token the step and the query that the last head takes, and its first column after the step."""
        orbit = self.orbits[-1][-1]
        for _, _, (step, query, state) in self._walk(word):
            yield step, query, orbit.columns.vector(int(orbit.rows(range(state, state + 1))[0, 0]))

    def _walk(self, word: Iterable[str]) -> Iterator[tuple[int, Readout, tuple[int, int, int]]]:
        """Answer, last readout, and (step, query, state) of the last head, after each token."""
        states = tuple(0 for layer in self.program.layers for _ in layer.heads)
        for token in self.program.encode(word):
            if (states, token) not in self._known:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[states, token] = self._step(states, token)
            states, answer, readout, last = self._known[states, token]
            yield answer, readout, last

    def _step(self, states: tuple[int, ...], token: int) -> tuple[tuple[int, ...], int, Readout, tuple[int, int, int]]:
        registers, readout, last = [token], (), (0, 0, 0)
        moved: list[int] = []
        for layer, reads, orbits in zip(self.program.layers, self.program.reads, self.orbits, strict=True):
            _wire(layer.wires, registers)
            key = tuple(registers[i] for i in reads)
            codes: list[int] = []
            for head, orbit in zip(layer.heads, orbits, strict=True):
                step, query = head.choose(key)
                moved.append(int(orbit.move(step, np.array([states[len(moved)]], dtype=np.int32))[0]))
                last = step, query, moved[-1]
                numbers = orbit.readouts(head.queries[query], np.array([moved[-1]], dtype=np.int32))[0]
                readout = tuple(orbit.scalars.vector(int(x))[0] for x in numbers)
                if head.codebook is not None:
                    codes.append(head.codebook[readout])
                elif self.program.outputs:
                    raise InvalidInput("this program has no codebook yet; certify it first")
            registers += codes if layer.emit is None else [layer.emit(tuple(codes))]
        _wire(self.program.answer, registers)
        return tuple(moved), registers[-1], readout, last


def _wire(wires: Iterable[Table], registers: list[int]) -> None:
    for wire in wires:
        registers.append(wire.entries(tuple(registers[i] for i in wire.reads)))


def head_orbit(head: Head, *, max_states: int, products: Mapping[int, tuple[int, int]] | None = None) -> Orbit:
    """The exact orbit of one head; `products` gives steps that are known to be a product of two others."""
    maps = [replace(m, product=products[i]) if products and i in products else m for i, m in enumerate(head.maps)]
    return Orbit(head.field, head.h0, maps, max_states=max_states, unit=head.unit)
