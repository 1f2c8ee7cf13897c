"""The a-priori rounding bound against the recurrence itself: exact states, harmful words, broken models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any, cast

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from statetrack import api
from statetrack.constructions.certificate import Certificate
from statetrack.constructions.horizons import HeadBound, head_bounds
from statetrack.constructions.program import Factor, Head, Layer, LayerInput, Lookup, Program
from statetrack.constructions.weights import Weights, lower
from statetrack.kernels.load import model_of
from statetrack.kernels.reference import LayerTables, arithmetic, nearest, recurrent
from statetrack.theory.arrays import Matrix, Vector, dot, matvec, vector
from statetrack.theory.automata import from_table
from statetrack.theory.fields import Element
from statetrack.theory.number_fields import rationals

STORAGES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
SOURCES = [
    ("Z3", "ckda"),
    ("Z7", "ckda"),
    ("Z7", "deltanet"),
    ("D5", "ckda"),
    ("S4", "ckda"),
    ("A5", "ckda"),
    ("S5", "deltaproduct"),
    ("Z2xZ2", "diag[-1,1]"),
]
LENGTH = 240
CHECKPOINTS = (1, 2, 3, 5, 10, 30, 100, LENGTH)
Q = rationals()

every_source = pytest.mark.parametrize(("source", "target"), SOURCES, ids=["-".join(pair) for pair in SOURCES])
every_format = pytest.mark.parametrize("dtype", list(STORAGES))


@dataclass(frozen=True)
class HeadRun:
    """Exact states [2, B, C, K, V] at the checkpoints and readouts [2, B, T, V], each the sum of two doubles."""

    states: Tensor
    readouts: Tensor


@dataclass(frozen=True)
class LayerRun:
    """The exact run of a layer on a batch of words: its input ids [B, T] and its heads."""

    ids: Tensor
    heads: tuple[HeadRun, ...]


def numbers(x: Tensor) -> Any:
    return cast(Any, x).tolist()


@cache
def compiled(source: str, target: str) -> api.Compiled:
    return api.build(source, target, check=False)


@cache
def split(x: Element) -> tuple[float, float]:
    """Two doubles whose sum is within 2^-100 of x."""
    low, high = x.enclose(160)
    middle = (low + high) / 2
    return float(middle), float(middle - Fraction(float(middle)))


def pairs(columns: Sequence[Vector]) -> list[list[list[float]]]:
    """Columns as nested lists [2, K, V]."""
    return [[[split(x)[part] for x in row] for row in zip(*columns, strict=True)] for part in (0, 1)]


@cache
def moved(matrix: Matrix, columns: tuple[Vector, ...]) -> tuple[Vector, ...]:
    return tuple(matvec(matrix, column) for column in columns)


@cache
def read(query: Vector, columns: tuple[Vector, ...]) -> tuple[Element, ...]:
    return tuple(dot(query, column) for column in columns)


def exact_run(program: Program, words: Sequence[Sequence[int]], checkpoints: Sequence[int]) -> list[LayerRun]:
    """Every layer's exact run, by the steps' exact matrices and the exact codebooks."""
    ids = [[list[int]() for _ in words] for _ in program.layers]
    states = [[[list[Any]() for _ in words] for _ in layer.heads] for layer in program.layers]
    readouts = [[[list[Any]() for _ in words] for _ in layer.heads] for layer in program.layers]
    rows = [{key: i for i, key in enumerate(sorted(layer.heads[0].choose.seen))} for layer in program.layers]
    for b, word in enumerate(words):
        current = [[head.h0 for head in layer.heads] for layer in program.layers]
        for t, token in enumerate(word, start=1):
            key: LayerInput = (token,)
            for number, layer in enumerate(program.layers):
                ids[number][b].append(rows[number][key])
                codes: list[int] = []
                for h, head in enumerate(layer.heads):
                    step, query = head.choose(key)
                    columns = current[number][h] = moved(head.maps[step].matrix, current[number][h])
                    row = read(head.queries[query], columns)
                    codes.append(head.codebook[row] if head.codebook else 0)
                    readouts[number][h][b].append([[split(x)[part] for x in row] for part in (0, 1)])
                    if t in checkpoints:
                        states[number][h][b].append(pairs(columns))
                key = (*key, codes[0] if layer.emit is None else layer.emit(tuple(codes)))
    return [
        LayerRun(
            torch.tensor(ids[number]),
            tuple(
                HeadRun(
                    torch.tensor(states[number][h], dtype=torch.float64).permute(2, 0, 1, 3, 4),
                    torch.tensor(readouts[number][h], dtype=torch.float64).permute(2, 0, 1, 3),
                )
                for h in range(len(layer.heads))
            ),
        )
        for number, layer in enumerate(program.layers)
    ]


def some_words(symbols: int, length: int) -> list[list[int]]:
    """Random words, a letter repeated, and two letters in turn."""
    generator = torch.Generator().manual_seed(symbols)
    random: list[list[int]] = numbers(torch.randint(0, symbols, (5, length), generator=generator))
    letters = sorted({1 % symbols, symbols // 3, symbols // 2, symbols - 1})
    alternating = [[a if t % 2 else b for t in range(length)] for a, b in pairwise(letters)]
    return random + [[letter] * length for letter in letters] + alternating


@cache
def walked(source: str, target: str) -> list[LayerRun]:
    program = compiled(source, target).program
    return exact_run(program, some_words(len(program.alphabet), LENGTH), CHECKPOINTS)


def lengths(rows: Tensor) -> list[float]:
    return numbers(rows.square().sum(1).sqrt())


def over(error: float, bound: float) -> float:
    """Their quotient; where no error is allowed, 0 for none and infinity for any."""
    return error / bound if bound else math.inf if error else 0.0


def worst_ratio(
    models: Sequence[HeadBound | None],
    tables: LayerTables,
    run: LayerRun,
    storage: torch.dtype,
    checkpoints: Sequence[int],
) -> float:
    """The largest quotient of a measured error and its bound, over states at the checkpoints and all readouts."""
    state, worst = None, 0.0
    for c, (start, stop) in enumerate(pairwise((0, *checkpoints))):
        readouts, state = recurrent(tables, run.ids[:, start:stop], state, storage=storage)
        for h, head in enumerate(run.heads):
            model = models[h]
            assert model is not None
            rows, columns = head.states.shape[3:]
            error = (state[:, h, :rows, :columns].double() - head.states[0, :, c]) - head.states[1, :, c]
            worst = max(worst, over(max(lengths(error.flatten(1))), model.state_error(stop)))
            exact = head.readouts[:, :, start:stop]
            errors = ((readouts[:, :, h, :columns].double() - exact[0]) - exact[1]).transpose(0, 1)
            allowed = [model.readout_error(t) for t in range(start + 1, stop + 1)]
            worst = max(worst, *(over(max(lengths(e)), a) for e, a in zip(errors.unbind(), allowed, strict=True)))
    return worst


def ratios(
    program: Program,
    weights: Weights,
    runs: Sequence[LayerRun],
    checkpoints: Sequence[int] = CHECKPOINTS,
    change_model: Callable[[HeadBound], HeadBound] = lambda model: model,
    change_tables: Callable[[LayerTables], LayerTables] = lambda tables: tables,
) -> float:
    """`worst_ratio` over all layers, of the weights' own model unless it or the tables are changed."""
    models = [[m and change_model(m) for m in row] for row in head_bounds(weights, program)]
    layers = zip(models, model_of(weights).layers, runs, strict=True)
    return max(
        worst_ratio(row, change_tables(layer.tables), run, STORAGES[weights.dtype], checkpoints)
        for row, layer, run in layers
    )


@every_format
@every_source
def test_measured_errors_stay_below_the_bound(source: str, target: str, dtype: str) -> None:
    c = compiled(source, target)
    assert ratios(c.program, c.weights(dtype), walked(source, target)) <= 1


@every_format
@pytest.mark.parametrize(("source", "target"), [("Z7", "ckda"), ("A5", "ckda"), ("S5", "deltaproduct")])
def test_a_bound_with_a_thousandth_of_the_growth_is_refuted(source: str, target: str, dtype: str) -> None:
    c = compiled(source, target)

    def weaker(model: HeadBound) -> HeadBound:
        return replace(model, growth=model.growth / 1000, read=model.read / 1000)

    assert ratios(c.program, c.weights(dtype), walked(source, target), change_model=weaker) > 1


@pytest.mark.parametrize(("dtype", "size"), [("float64", 1e-12), ("float32", 1e-3), ("bfloat16", 0.5)])
def test_keys_farther_off_than_their_rounding_are_refuted(dtype: str, size: float) -> None:
    c = compiled("A5", "ckda")

    def perturbed(tables: LayerTables) -> LayerTables:
        keys = tables.keys.double()
        keys[..., 0] += size
        return replace(tables, keys=keys.to(tables.keys.dtype))

    runs = walked("A5", "ckda")
    assert ratios(c.program, c.weights(dtype), runs, change_tables=perturbed) > 1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("source", ["Z7", "D5"])
def test_words_chosen_letter_by_letter_to_do_harm_stay_below_the_bound(source: str, dtype: str) -> None:
    c, storage = compiled(source, "ckda"), STORAGES[dtype]
    w, (head,) = c.weights(dtype), c.program.layers[0].heads
    ((model,),), tables = head_bounds(w), model_of(w).layers[0].tables
    assert model is not None
    letters = sorted(head.choose.seen)
    maps = [head.maps[head.choose.seen[letter][0]].matrix for letter in letters]
    ids = torch.arange(len(letters))[:, None]
    exact, state = head.h0, tables.state.double()
    for t in range(1, 121):
        _, states = recurrent(tables, ids, state.expand(len(letters), *state.shape).to(storage), storage=storage)
        after = [moved(m, exact) for m in maps]
        target = torch.tensor([pairs(columns) for columns in after], dtype=torch.float64)
        errors = lengths(((states[:, 0].double() - target[:, 0]) - target[:, 1]).flatten(1))
        worst = errors.index(max(errors))
        assert errors[worst] <= model.state_error(t)
        exact, state = after[worst], states[worst]


@every_format
@every_source
def test_words_up_to_the_safe_length_are_decoded_without_a_fault(source: str, target: str, dtype: str) -> None:
    c = compiled(source, target)
    w = c.weights(dtype)
    safe = w.horizon()
    assert safe >= 1
    length = int(min(safe, 200))
    words = [[c.program.alphabet[i] for i in word] for word in some_words(len(c.program.alphabet), length)]
    assert w.run(words, executor="reference").wrong == 0
    assert w.run(random=16, length=length, seed=1, executor="reference").wrong == 0


@every_format
@every_source
def test_readouts_within_the_allowed_error_go_to_the_right_code_and_farther_ones_do_not(
    source: str, target: str, dtype: str
) -> None:
    w = compiled(source, target).weights(dtype)
    model = head_bounds(w)[-1][0]
    layer = model_of(w).layers[-1]
    assert model is not None
    book, labels = layer.codebooks[0], layer.labels[0]
    points = book.double()
    apart = torch.cdist(points, points)
    apart[labels[:, None] == labels[None, :]] = math.inf
    distance, other = apart.min(1)
    direction = (points[other] - points) / distance[:, None]

    def codes(radius: float) -> Tensor:
        readouts = (points + radius * direction).to(arithmetic(STORAGES[dtype]))
        return labels[nearest(readouts, book).long()]

    # Readouts made in doubles are rounded themselves.
    assert torch.equal(codes((1 - 1e-9) * float(model.allowed) * float(model.query)), labels)
    assert not torch.equal(codes(0.51 * float(distance.min())), labels)


def test_the_bound_grows_and_the_safe_length_is_where_it_meets_the_allowance() -> None:
    c = compiled("S4", "ckda")
    for dtype in STORAGES:
        ((model,),) = head_bounds(c.weights(dtype))
        assert model is not None
        safe = model.tokens()
        assert model.state_error(safe) <= float(model.allowed) * (1 + 1e-15)
        assert float(model.allowed) < model.state_error(safe + 1 + safe // 1000)
        assert all(model.state_error(a) < model.state_error(b) for a, b in pairwise(CHECKPOINTS))


def by_hand(steps: Sequence[tuple[Factor, ...]], h0: tuple[Vector, ...], query: Vector) -> Program:
    """One head; letter i selects step i. There is no codebook: only states and readouts matter."""
    choose: Lookup[LayerInput, tuple[int, int]] = Lookup({(i,): (i, 0) for i in range(len(steps))})
    head = Head(h0, tuple(steps), (query,), choose)
    return Program(Q, tuple(f"a{i}" for i in range(len(steps))), (Layer((head,)),), (True,), True)


def lowered(program: Program, dtype: str) -> Weights:
    """The tensors of a program made by hand, with a certificate that claims no margin."""
    data = {"kind": "closure", "claims": {"margin": [[None]]}, "layers": [None]}
    edges = {("s", letter): "s" for letter in program.alphabet}
    dfa = from_table(program.alphabet, ["s"], "s", edges, {"s": True})
    return lower(program, Certificate("closure", data, "", 1, ((1,),), ((None,),)), dfa, dtype)


def factor(w: Sequence[int], beta: Fraction, alpha: Sequence[Fraction]) -> Factor:
    key = vector(Q, w)
    return Factor(key, Q(beta) / dot(key, key), tuple(Q(a) for a in alpha))


@st.composite
def contractions(draw: st.DrawFn) -> tuple[Program, list[int]]:
    """A head of random factors with |gates| <= 1 and β in [0, 2], its state perhaps near the underflow, and a word."""
    size, width, depth = draw(st.integers(1, 5)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    entries = st.lists(st.integers(-3, 3), min_size=size, max_size=size)
    betas = st.sampled_from([Fraction(b) for b in ("0", "2/3", "1", "3/2", "2", "2")])
    gates = st.sampled_from([Fraction(a) for a in ("1", "1", "-1", "0", "1/3", "-2/3")] + [Fraction(1, 2**40)])
    factors = st.builds(
        factor, entries.filter(any), betas, st.lists(gates, min_size=size, max_size=size).map(tuple[Fraction, ...])
    )
    steps = [tuple(draw(factors) for _ in range(depth)) for _ in range(2)]
    scale = draw(st.sampled_from([Fraction(1), Fraction(1, 3), Fraction(1, 2**128), Fraction(1, 2**140)]))
    h0 = tuple(tuple(Q(scale * x) for x in draw(entries.filter(any))) for _ in range(width))
    word = draw(st.lists(st.integers(0, 1), min_size=1, max_size=8))
    return by_hand(steps, h0, vector(Q, draw(entries.filter(any)))), word


@every_format
@settings(max_examples=15, deadline=None)
@given(contractions())
def test_random_contractions_stay_below_the_bound(dtype: str, drawn: tuple[Program, list[int]]) -> None:
    program, word = drawn
    times = list(range(1, len(word) + 1))
    assert ratios(program, lowered(program, dtype), exact_run(program, [word], times), times) <= 1


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("float32", 16), ("float32", 64), ("bfloat16", 64)])
def test_a_state_of_the_smallest_numbers_stays_below_the_bound(dtype: str, size: int) -> None:
    # Each product of the sum z is half of the smallest number and is rounded to 0: a reflection does nothing.
    root, tiny = math.isqrt(size), Fraction(1, 2**149 if dtype == "float32" else 2**133)
    program = by_hand(
        [(factor([1] * size, Fraction(2), [Fraction(1)] * size),)],
        (tuple(Q(tiny * root / 2) for _ in range(size)),),
        vector(Q, [1] * size),
    )
    w, run = lowered(program, dtype), exact_run(program, [[0] * 3], (1, 2, 3))[0]
    ((model,),) = head_bounds(w, program)
    assert model is not None
    _, state = recurrent(model_of(w).layers[0].tables, run.ids[:, :1], storage=STORAGES[dtype])
    error = state[0, 0].double() - run.heads[0].states[0, 0, 0]
    assert max(lengths(error.T)) <= model.state_error(1)


def test_the_rounding_of_the_initial_state_is_part_of_the_bound() -> None:
    for dtype in STORAGES:
        program = by_hand([(factor([1], Fraction(0), [Fraction(1)]),)], ((Q(Fraction(1, 3)),),), vector(Q, [1]))
        w = lowered(program, dtype)
        ((model,),) = head_bounds(w, program)
        assert model is not None
        error = Fraction(float(model_of(w).layers[0].tables.state)) - Fraction(1, 3)
        assert 0 < abs(error) <= model.state_error(0)


def test_steps_that_no_finite_set_of_products_bounds_have_a_bound_that_grows() -> None:
    for bad in (Factor(vector(Q, [1]), Q(3)), factor([1], Fraction(0), [Fraction(2)])):
        program = by_hand([(bad,)], (vector(Q, [1]),), vector(Q, [1]))
        ((bound,),) = head_bounds(lowered(program, "float32"), program)
        assert bound is not None
        assert 10 < bound.tokens() < 100
        assert bound.why == "growing rounding bound"
        assert math.isinf(bound.state_error(bound.until + 1))


def test_additive_and_dense_steps_of_a_certified_program_have_a_bound() -> None:
    for source, target in (("(a|b)*abb", "kda"), ("(ab)*", "unconstrained")):
        weights = compiled(source, target).weights("float32")
        assert all(bound is not None for row in head_bounds(weights) for bound in row)
        assert weights.horizon() == min(bound.tokens() for row in head_bounds(weights) for bound in row if bound)
