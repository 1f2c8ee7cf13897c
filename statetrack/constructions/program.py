"""The one representation: exact linear recurrent networks, layer by layer.

Order, stated once. Words are read left to right; hidden states are columns; h_t = A(x_t) h_{t-1} + b(x_t), so
A(w) = A(x_T) ... A(x_1) with the newest factor leftmost. A step is a tuple of factors in the order in which they
are applied. Kernel tensors are [batch, time, head, dim].

Between layers stand registers, one integer a token each. Register 0 is the token; then every layer adds, in order,
the results of its wires (finite tables of earlier registers) and its outputs. A layer's input is the tuple of the
registers it reads: unless said otherwise (token, symbol of layer 1, ..., symbol of the layer before). Each head looks
its input up to a step and a query, and reads the row qᵀH; a codebook turns that row into a code, and the layer's emit
look-up turns the codes of its heads into one symbol (without one every code is an output).

Main definitions: `Factor`, `Dense`, `Head`, `Table`, `Layer`, `Program`, `Lookup`, `Runner`, `evaluate`.

References: CKDA eq. of the layer; Grazzi et al. eq. (1) and Thm. 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Generic, TypeVar, overload

import numpy as np

from statetrack.display import Shown
from statetrack.errors import InvalidInput
from statetrack.theory.arrays import Matrix, Vector, add, dot, identity, matmul
from statetrack.theory.automata import Output, encode
from statetrack.theory.fields import Element, Field
from statetrack.theory.householder import householder
from statetrack.theory.orbits import Orbit, StepMap

LayerInput = tuple[int, ...]
Readout = tuple[Element, ...]
Runs = tuple[tuple[int, ...], ...]
Key = TypeVar("Key")
Value = TypeVar("Value")
_MOST_REMEMBERED = 100_000
# Maps of steps on columns of at most so many numbers are kept, the last ones asked for.
_SMALL, _KEPT = 16, 10_000


@dataclass(frozen=True)
class Factor:
    """h <- (I - c w wᵀ) Diag(alpha) h + b, c >= 0. alpha None: all gates 1. b: one column a column of h, or None.

    The key is not normalised: β = c (w·w), k = w/|w|. c = 0 leaves only the gate.
    """

    w: Vector
    c: Element
    alpha: Vector | None = None
    b: tuple[Vector, ...] | None = None

    @cached_property
    def _hashed(self) -> int:
        return hash((self.w, self.c, self.alpha, self.b))

    def __hash__(self) -> int:
        """Of all four; kept, as factors are looked up very often."""
        return self._hashed

    @cached_property
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
    return (_small_map if size <= _SMALL else _map)(field, step, size, width)


def _map(field: Field, step: Step, size: int, width: int) -> StepMap:
    total, offset = identity(field, size), None
    for factor in step:
        total = _after(factor, total)
        if offset is not None:
            offset = tuple(zip(*_after(factor, tuple(zip(*offset, strict=True))), strict=True))
        if factor.b is not None:
            offset = factor.b if offset is None else add(offset, factor.b)
    assert offset is None or len(offset) == width
    return StepMap(total, offset)


# Programs for several targets and the parts of one program share most of their steps.
_small_map = lru_cache(maxsize=_KEPT)(_map)


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
    `runs`: the steps of every word are one of the first runs, then one of the second, the third, the second, the third
    and so on, the last one cut off anywhere; None: nothing is known of their order.
    """

    h0: tuple[Vector, ...]
    steps: tuple[Step, ...]
    queries: tuple[Vector, ...]
    choose: Lookup[LayerInput, tuple[int, int]]
    codebook: Mapping[Readout, int] | None = None
    unit: Fraction | None = None
    runs: tuple[Runs, Runs, Runs] | None = None

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
    def maps(self) -> Sequence[StepMap]:
        """The affine map of each step, made when it is asked for."""
        return StepMaps(self, {})

    @cached_property
    def moved(self) -> Moved:
        """Its states and codes so far in exact runs, of all programs that it is part of."""
        return Moved(self)


class StepMaps(Sequence[StepMap]):
    """The affine maps of a head's steps, each made once it is asked for; `products` as for `head_orbit`."""

    def __init__(self, head: Head, products: Mapping[int, tuple[int, int]]) -> None:
        self._head, self._products = head, products
        self._made: dict[int, StepMap] = {}

    def __len__(self) -> int:
        return len(self._head.steps)

    @overload
    def __getitem__(self, index: int) -> StepMap: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepMap]: ...
    def __getitem__(self, index: int | slice) -> StepMap | Sequence[StepMap]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index not in self._made:
            head = self._head
            made = step_map(head.field, head.steps[index], head.size, head.width)
            product = self._products.get(index)
            self._made[index] = made if product is None else replace(made, product=product)
        return self._made[index]


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
class Program(Shown):
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

    def __init__(self, program: Program) -> None:
        self.program = program
        self._layers = tuple(
            (layer, reads, tuple(head.moved for head in layer.heads), dict[LayerInput, _Picks]())
            for layer, reads in zip(program.layers, program.reads, strict=True)
        )
        self._known: dict[tuple[tuple[int, ...], int], tuple[tuple[int, ...], int, tuple[int, int, int]]] = {}

    def symbols(self, word: Iterable[str]) -> tuple[int, ...]:
        """The answer after each token of the word."""
        return tuple(answer for answer, _ in self._walk(word))

    def values(self, word: Iterable[str]) -> tuple[Element, ...]:
        """The last head's readout after each token, of a weighted program."""
        _, _, heads, _ = self._layers[-1]
        return tuple(heads[-1].readout(query, state)[0] for _, (_, query, state) in self._walk(word))

    def last_head(self, word: Iterable[str]) -> Iterator[tuple[int, int, Vector]]:
        """For each token the step and the query that the last head takes, and its first column after the step."""
        _, _, heads, _ = self._layers[-1]
        orbit = heads[-1].orbit
        for _, (step, query, state) in self._walk(word):
            yield step, query, orbit.columns.vector(int(orbit.rows(range(state, state + 1))[0, 0]))

    def _walk(self, word: Iterable[str]) -> Iterator[tuple[int, tuple[int, int, int]]]:
        """Answer, and (step, query, state) of the last head, after each token."""
        states = tuple(0 for layer in self.program.layers for _ in layer.heads)
        for token in self.program.encode(word):
            if (states, token) not in self._known:
                if len(self._known) >= _MOST_REMEMBERED:
                    self._known.clear()
                self._known[states, token] = self._step(states, token)
            states, answer, last = self._known[states, token]
            yield answer, last

    def _step(self, states: tuple[int, ...], token: int) -> tuple[tuple[int, ...], int, tuple[int, int, int]]:
        registers, last = [token], (0, 0, 0)
        moved: list[int] = []
        for layer, reads, heads, picks in self._layers:
            evaluate(layer.wires, registers)
            key = tuple([registers[i] for i in reads])
            if key not in picks:
                picks[key] = tuple([(head, *head.head.choose(key)) for head in heads])
            codes: list[int] = []
            for head, step, query in picks[key]:
                state = head.move(step, states[len(moved)])
                moved.append(state)
                last = step, query, state
                if head.head.codebook is not None:
                    codes.append(head.code(query, state))
                elif self.program.outputs:
                    raise InvalidInput("this program has no codebook yet; certify it first")
            registers += codes if layer.emit is None else [layer.emit(tuple(codes))]
        evaluate(self.program.answer, registers)
        return tuple(moved), registers[-1], last


class Moved:
    """A head's orbit one state at a time: numbers of states after steps, readouts and codes, each found once."""

    def __init__(self, head: Head) -> None:
        self.head, self.orbit = head, head_orbit(head, max_states=5_000_000)
        self._moves: dict[tuple[int, int], int] = {}
        self._codes: dict[tuple[int, int], int] = {}

    def move(self, step: int, state: int) -> int:
        """The number of the state after the step."""
        found = self._moves.get((step, state))
        if found is None:
            found = self._moves[step, state] = int(self.orbit.move(step, np.array([state], dtype=np.int32))[0])
        return found

    def readout(self, query: int, state: int) -> Readout:
        """The exact readout of a state."""
        numbers = self.orbit.readouts(self.head.queries[query], np.array([state], dtype=np.int32))[0]
        return tuple(self.orbit.scalars.vector(int(x))[0] for x in numbers)

    def code(self, query: int, state: int) -> int:
        """The code of a state's readout; KeyError if the codebook has none."""
        found = self._codes.get((query, state))
        if found is None:
            assert self.head.codebook is not None
            found = self._codes[query, state] = self.head.codebook[self.readout(query, state)]
        return found


_Picks = tuple[tuple[Moved, int, int], ...]


def evaluate(wires: Iterable[Table], registers: list[int]) -> None:
    """Append the value of each wire to the registers."""
    for wire in wires:
        key, seen = tuple([registers[i] for i in wire.reads]), wire.entries.seen
        registers.append(seen[key] if key in seen else wire.entries(key))


def head_orbit(head: Head, *, max_states: int, products: Mapping[int, tuple[int, int]] | None = None) -> Orbit:
    """The exact orbit of one head; `products` gives steps that are known to be a product of two others."""
    maps = StepMaps(head, products) if products else head.maps
    return Orbit(head.field, head.h0, maps, max_states=max_states, unit=head.unit)
