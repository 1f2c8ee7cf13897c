"""Bounds on errors that are forgotten, shrunk or enlarged, against searches for the words with the largest errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest
from flint import arb

from statetrack import api
from statetrack.constructions.certificate import Certificate
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_network import Fails, failing_word, shortest_failing_word
from statetrack.constructions.float_steps import head_tables
from statetrack.constructions.gains import growths, largest_gain, largest_state, matrices, settled
from statetrack.constructions.horizons import HeadBound, head_bounds, head_horizons, horizon_of
from statetrack.constructions.program import Dense, Factor, Head, Layer, LayerInput, Lookup, Program, Step
from statetrack.constructions.weights import Weights, lower
from statetrack.theory.arrays import dot, vector
from statetrack.theory.automata import from_table
from statetrack.theory.number_fields import rationals
from statetrack.theory.number_formats import number_format

Q = rationals()
FORMATS = ["float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "float32"]
Frac = Fraction


def factor(w: Sequence[int], beta: Any, alpha: Sequence[Any], b: Sequence[Sequence[Any]] | None = None) -> Factor:
    """A factor with this β and these gates; `b` columns of the additive term."""
    key, gates = vector(Q, w), tuple(Q(Frac(a)) for a in alpha)
    added = None if b is None else tuple(tuple(Q(Frac(x)) for x in column) for column in b)
    return Factor(key, Q(Frac(beta)) / dot(key, key), gates, added)


def program_of(steps: Sequence[Step], h0: Sequence[Sequence[Any]]) -> Program:
    """One head; letter i takes step i. Its codebook is empty: only states matter."""
    choose: Lookup[LayerInput, tuple[int, int]] = Lookup({(i,): (i, 0) for i in range(len(steps))})
    start = tuple(tuple(Q(Frac(x)) for x in column) for column in h0)
    head = Head(start, tuple(steps), (vector(Q, [1] * len(h0[0])),), choose, {})
    return Program(Q, tuple(f"a{i}" for i in range(len(steps))), (Layer((head,)),), (True,), True)


def weights_of(program: Program, dtype: str, margin: str | None = "1") -> Weights:
    """The program's tensors, with a claim of how far apart its codewords are."""
    data = {"kind": "closure", "claims": {"margin": [[margin]]}, "layers": [None]}
    edges = {("s", letter): "s" for letter in program.alphabet}
    dfa = from_table(program.alphabet, ["s"], "s", edges, {"s": True})
    return lower(program, Certificate("closure", data, "", 1, ((1,),), ((None,),)), dfa, dtype)


def bound_of(program: Program, dtype: str, margin: str | None = "1") -> HeadBound | None:
    return head_bounds(weights_of(program, dtype, margin), program)[0][0]


def errors(
    program: Program,
    dtype: str,
    tokens: int,
    *,
    width: int = 150,
    letters: Callable[[int], Sequence[int]] | None = None,
) -> Iterator[float]:
    """The largest error after 0, 1, 2, ... tokens: of all words while these are at most `width`, then of the worst."""
    head, storage = program.layers[0].heads[0], number_format(dtype)
    tables = head_tables(weights_of(program, dtype).tensors, 0, 0, storage)
    k, v = head.size, head.width
    linear = np.array([[[float(x) for x in row] for row in m.matrix] for m in head.maps])
    added = np.zeros((len(head.maps), k, v))
    for i, m in enumerate(head.maps):
        if m.offset is not None:
            added[i] = np.array([[float(x) for x in column] for column in m.offset]).T
    exact = np.array([[float(x) for x in column] for column in head.h0]).T[None]
    stored = tables.state[None]
    for t in range(tokens + 1):
        away = np.linalg.norm((stored[:, :k, :v].astype(float) - exact).reshape(len(exact), -1), axis=1)
        yield float(away.max())
        order = np.argsort(-away, kind="stable")[:width]
        used = np.array(range(len(linear)) if letters is None else letters(t), dtype=np.int32)
        ids = np.tile(used, len(order))
        repeated = np.repeat(stored[order], len(used), axis=0)
        columns = [tables.step(ids, np.ascontiguousarray(repeated[:, :, j]), j)[0] for j in range(stored.shape[2])]
        stored, exact = np.stack(columns, axis=2), linear[ids] @ np.repeat(exact[order], len(used), axis=0) + added[ids]


def worst_ratio(program: Program, dtype: str, bound: HeadBound, tokens: int) -> float:
    """The largest quotient of a measured error and its bound, up to the proved horizon."""
    last = int(min(tokens, bound.tokens()))
    # Exact states are doubles here.
    return max(e / (bound.state_error(t) + 1e-12) for t, e in enumerate(errors(program, dtype, last)))


def random_program(rng: Random) -> Program:
    """A head of two or three steps: gates, resets, writes, expansive factors, dense matrices."""
    size, width = rng.randint(1, 3), rng.randint(1, 2)

    def column() -> list[Fraction]:
        return [Frac(rng.randint(-3, 3), rng.choice((1, 2, 3))) for _ in range(size)]

    def made() -> Factor:
        w = [rng.randint(-2, 2) for _ in range(size)]
        if not any(w) or rng.random() < 0.4:
            w = [int(i == 0) for i in range(size)]
        gates = [rng.choice((1, 1, 0, -1, Frac(1, 3), Frac(1, 2), Frac(5, 4))) for _ in range(size)]
        if rng.random() < 0.4:
            gates = [rng.choice((0, 0, 1))] * size
        b = [column() for _ in range(width)] if rng.random() < 0.4 else None
        return factor(w, rng.choice((0, 0, 1, 1, 2, Frac(2, 3), Frac(5, 2))), gates, b)

    steps: list[Step] = [tuple(made() for _ in range(rng.randint(1, 2))) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.2:
        rows = [[Q(Frac(rng.randint(-2, 2), 2)) for _ in range(size)] for _ in range(size)]
        steps = [(Dense(tuple(map(tuple, rows))),) for _ in steps]
    return program_of(steps, [column() for _ in range(width)])


@pytest.mark.parametrize("dtype", FORMATS)
def test_no_word_of_random_programs_has_a_larger_error(dtype: str) -> None:
    rng, met = Random(7), set[str]()
    for _ in range(12):
        program, margin = random_program(rng), rng.choice(["1", "1/4", "4", None])
        bound = bound_of(program, dtype, margin)
        if bound is None or bound.tokens() < 1:
            continue
        met.add(bound.why)
        assert worst_ratio(program, dtype, bound, 16) <= 1
    assert dtype.startswith("float8") or met >= {"errors that do not add up", "growing rounding bound"}


CASES = {
    "written": program_of([(factor([1], 0, [0], [["1/3"]]),), (factor([1], 0, [0], [["2/3"]]),)], [["1/3"]]),
    "overwritten": program_of([(factor([1], 1, [1], [["5/7"]]),), (factor([1], 1, [1], [["1/3"]]),)], [[0]]),
    "held": program_of([(factor([1], 0, [0], [["1/3"]]),), (factor([1], 0, [1]),)], [["2/3"]]),
    "halved": program_of([(factor([1], 0, ["1/3"], [["1/3"]]),)], [["1/2"]]),
    "nilpotent": program_of([(Dense(((Q(0), Q(Frac(1, 3))), (Q(0), Q(0)))),)], [["1/3", "5/7"]]),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("name", CASES)
def test_errors_that_steps_forget_or_shrink_are_bounded_for_ever(name: str, dtype: str) -> None:
    bound = bound_of(CASES[name], dtype)
    assert bound is not None
    assert bound.tokens() == math.inf
    assert worst_ratio(CASES[name], dtype, bound, 60) <= 1
    if name == "overwritten":
        return
    # What is written is off by its rounding, and the bound says just that: a smaller one is refuted.
    measured = max(errors(CASES[name], dtype, 60))
    assert name in ("halved", "nilpotent") or measured > 0.999 * bound.state_error(60)
    weaker = replace(bound, ceiling=arb(measured) * 0.99)
    assert worst_ratio(CASES[name], dtype, weaker, 60) > 1 or measured < 1e-9


def test_a_step_that_holds_what_another_turns_has_a_finite_horizon() -> None:
    turned = program_of([(factor([3, 1], 2, [1, 1]),), (factor([1, 0], 0, [1, 1]),)], [[1, 0]])
    bound = bound_of(turned, "bfloat16", "1/2")
    assert bound is not None
    assert 1 < bound.tokens() < math.inf
    assert worst_ratio(turned, "bfloat16", bound, 40) <= 1


@pytest.mark.parametrize("dtype", FORMATS[2:])
@pytest.mark.parametrize(
    "step", [factor([1], 3, [1]), factor([3, 1], "12/5", [1, 1]), factor([1, 2], 0, ["3/2", "4/3"])]
)
def test_expansive_steps_have_a_horizon_and_their_errors_are_within_it(dtype: str, step: Factor) -> None:
    program = program_of([(step,), (factor([1] * len(step.w), "4/3", [1] * len(step.w)),)], [["1/3"] * len(step.w)])
    bound = bound_of(program, dtype)
    assert bound is not None
    assert 1 <= bound.tokens() < 200
    assert worst_ratio(program, dtype, bound, 60) <= 1
    # As if products did not grow.
    weaker = replace(bound, power=arb(1), radius=arb(1), growth=bound.growth / 10, ceiling=arb("inf"))
    assert max(e / weaker.state_error(t) for t, e in enumerate(errors(program, dtype, int(bound.tokens())))) > 1


def test_a_reflection_along_four_entries_rounds_though_its_tables_are_exact() -> None:
    program = program_of([(factor([1] * 4, 2, [1] * 4),), (factor([1, 0, 0, 0], 2, [1] * 4),)], [["1/3", "5/7", 0, 1]])
    for dtype in ("bfloat16", "float16"):
        bound = bound_of(program, dtype, "1/2")
        assert bound is not None
        assert bound.tokens() < math.inf
        assert worst_ratio(program, dtype, bound, 30) <= 1
        assert worst_ratio(program, dtype, replace(bound, growth=arb(0)), 30) > 1


def test_growing_bounds_are_above_their_recursion() -> None:
    numbers = (0.01, 0.001, 1.5, 2.0, 0.02, 1.0, 0.0, 1e6)
    growth, loss, gain, radius, start, query, read, allowed = map(arb, numbers)
    bound, error = HeadBound(growth, loss, gain, radius, start, query, read, allowed, arb(1.25)), 1.5 * 0.02
    for t in range(1, 60):
        error = (1.25 + 1.5 * 0.01) * error + 1.5 * (0.01 * 2.0 + 0.001)
        assert error * (1 - 1e-9) <= bound.state_error(t) <= error * 1.01


def test_words_with_resets_often_enough_are_right_however_long() -> None:
    turns = (factor([3, 1], 2, [1, 1]), factor([1, 0], 2, [1, 1]))
    program = program_of([turns, (factor([1, 0], 0, [0, 0], [["1/3", "5/7"]]),)], [["1/3", "5/7"]])
    for dtype in ("bfloat16", "float16"):
        bound = bound_of(program, dtype, "1/2")
        assert bound is not None
        between = int(bound.tokens_between())
        assert 1 <= between <= bound.tokens() < math.inf

        def letters(t: int, between: int = between) -> list[int]:
            return [1] if t % (between + 1) == between else [0, 1]

        allowed = float(bound.allowed)
        assert max(errors(program, dtype, 20 * between, width=20, letters=letters)) <= allowed
        # Without resets the error leaves the bound: the number of tokens matters.
        if dtype == "bfloat16":
            assert max(errors(program, dtype, 600, width=1, letters=lambda _: [0])) > allowed


def test_settled_is_the_heaviest_path_of_products() -> None:
    half, zero = Q(Frac(1, 2)), Q(0)
    shift = ((zero, half), (zero, zero))
    program = program_of([(Dense(shift),), (factor([1, 0], 0, [0, 0]),)], [[1, 1]])
    head = program.layers[0].heads[0]
    # The last error counts in full, the one before it half, if the last step is the shift; the one before that not.
    found = settled(head, {0: 0.25, 1: 1.0}, 8.0, 100.0)
    assert found is not None
    assert found == pytest.approx(max(0.25 + 0.5 * 1.0, 8.0), rel=1e-6)
    assert settled(head, {0: 0.25, 1: 1.0}, 0.5, 100.0) == pytest.approx(1.0, rel=1e-6)
    assert settled(head, {0: 2.0, 1: 1.0}, 0.0, 2.9) is None
    turned = program_of([(factor([3, 1], 2, [1, 1]),)], [[1, 0]]).layers[0].heads[0]
    assert settled(turned, {0: 1.0}, 0.0, 1e9) is None
    assert settled(turned, {0: 0.0}, 0.5, 1e9) == 0.5


@pytest.mark.parametrize(("source", "target"), [("(a|b)*ab(a|b)*", "ckda-wide"), ("(a|b)*a(a|b)", "gdn-wide")])
def test_the_runs_of_blocks_hold_every_word_and_their_products(source: str, target: str) -> None:
    made = api.build(source, target, construction="blocks", check=False)
    head, rng = made.program.layers[-1].heads[0], Random(3)
    assert head.runs is not None
    gain, size = largest_gain(head), largest_state(head, None)
    assert gain is not None
    assert size is not None
    steps = {tuple(map(tuple, m.matrix)): np.array([[float(x) for x in r] for r in m.matrix]) for m in head.maps}
    linear, largest = list(steps.values()), 0.0
    for _ in range(20):
        word = [rng.choice(made.program.alphabet) for _ in range(60)]
        taken = [step for step, _, _ in made.program.runner.last_head(word)]
        sides, at = [head.runs[0], head.runs[1], head.runs[2]], 0
        for n, begin in enumerate(range(0, len(taken), len(head.runs[1][0]))):
            run = tuple(taken[begin : begin + len(head.runs[1][0])])
            at = 0 if n == 0 else 2 - n % 2
            assert any(some[: len(run)] == run for some in sides[at])
        state = np.array([[float(x) for x in column] for column in head.h0]).T
        for i in range(len(taken)):
            state = linear[taken[i]] @ state
            assert np.linalg.norm(state) <= float(size) * (1 + 1e-9)
            product = np.eye(head.size)
            for step in taken[i : i + 12]:
                product = linear[step] @ product
                largest = max(largest, float(np.linalg.norm(product, 2)))
    assert float(gain) / 3 < largest <= float(gain)


def test_products_of_n_steps_are_within_every_growth() -> None:
    rng = Random(5)
    for _ in range(20):
        head = random_program(rng).layers[0].heads[0]
        linear = [np.array([[float(x) for x in row] for row in m]) for m in matrices(head)]
        bounds, product = growths(head), np.eye(head.size)
        assert bounds
        for n in range(1, 30):
            # The letter that makes the product largest.
            product = max((m @ product for m in linear), key=lambda p: float(np.linalg.norm(p, 2)))
            norm = float(np.linalg.norm(product, 2))
            assert all(norm <= float(m) * float(c) ** n * (1 + 1e-9) for m, c in bounds)


RESETS = [("(a|b)*a", "diag[0,1]"), ("[abc]*a", "deltanet"), ("(a|b)*abb", "kda"), ("(ab)*", "gdn")]


@pytest.mark.parametrize(("source", "target"), RESETS, ids=lambda x: x)
def test_automata_that_forget_are_right_for_every_length(source: str, target: str) -> None:
    made = api.build(source, target, check=False)
    for dtype in FORMATS:
        weights = lowered(made.program, made.certificate, made.automaton, dtype, dtype)
        assert dtype.startswith("float8") or horizon_of(weights) == math.inf
        if horizon_of(weights) == math.inf:
            assert not isinstance(shortest_failing_word(weights, max_states=3000), Fails)
            assert failing_word(weights, width=40, max_depth=60) is None


@pytest.mark.parametrize(
    ("source", "target", "least"),
    [
        ("S3", "deltanet", {"bfloat16": 50, "float32": 100_000}),
        ("Z3", "deltanet", {"bfloat16": 60, "float32": 200_000}),
        ("(a|b)*ab(a|b)*", "ckda-wide", {"bfloat16": 5, "float32": 20_000}),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_blocks_have_a_horizon_and_no_word_within_it_fails(source: str, target: str, least: dict[str, int]) -> None:
    made = api.build(source, target, construction="blocks", check=False)
    for dtype in ("float8_e4m3fn", "bfloat16", "float32"):
        weights = lowered(made.program, made.certificate, made.automaton, dtype, dtype)
        horizon = horizon_of(weights)
        assert horizon >= least.get(dtype, 0)
        assert dtype == "float8_e4m3fn" or all(
            h.why != "no bound of this kind" for row in head_horizons(weights) for h in row
        )
        found = failing_word(weights, width=20, max_depth=40)
        assert found is None or len(found.word) > horizon
        searched = shortest_failing_word(weights, max_states=500)
        assert not isinstance(searched, Fails) or len(searched.word) > horizon


def test_too_many_products_are_bounded_by_their_columns() -> None:
    rng, n = Random(1), 12
    edges = {(str(q), a): str(rng.randrange(n)) for q in range(n) for a in "ab"}
    dfa = from_table(["a", "b"], list(map(str, range(n))), "0", edges, {"0": True})
    made = api.build(dfa, "unconstrained", check=False)
    gain = largest_gain(made.program.layers[0].heads[0])
    assert gain is not None
    assert 1 < gain <= math.sqrt(made.dims[0][0]) * (1 + 1e-6)
    assert made.horizon("float32") > 100
