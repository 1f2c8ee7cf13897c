from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded
from statetrack.theory.arrays import Matrix, Vector, diagonal, dot, identity, matmul, matrix, matvec, transpose, vector
from statetrack.theory.automata import Dfa, transition_maps
from statetrack.theory.fields import Field
from statetrack.theory.groups import transition_group
from statetrack.theory.householder import householder
from statetrack.theory.number_fields import RealCyclotomic, field_for_angles, rationals
from statetrack.theory.orbits import Orbit, StepMap
from statetrack.theory.rotations import planar_reflection, planar_rotation
from tests.strategies import elements, fewer, fields, permutation_dfas

Q = rationals()
State = tuple[Vector, ...]  # columns


def naive_image(step: StepMap, state: State) -> State:
    """A H + B column by column, in elements."""
    images: list[Vector] = []
    for j, column in enumerate(state):
        image = matvec(step.matrix, column)
        images.append(tuple(x + y for x, y in zip(image, step.offset[j], strict=True)) if step.offset else image)
    return tuple(images)


def naive_closure(start: State, steps: Sequence[StepMap]) -> list[State]:
    found, seen = [start], {start}
    for state in found:
        for step in steps:
            image = naive_image(step, state)
            if image not in seen:
                seen.add(image)
                found.append(image)
    return found


def state_of(orbit: Orbit, number: int) -> State:
    row: list[int] = orbit.rows(np.array([number], dtype=np.int32))[0].tolist()
    return tuple(orbit.columns.vector(i) for i in row)


def check_against_naive(field: Field, start: State, steps: Sequence[StepMap]) -> int:
    """The same states and the same moves as the naive closure; returns how many states there are."""
    naive = naive_closure(start, steps)
    orbit = Orbit(field, start, steps)
    assert orbit.close() == len(naive) * len(steps)
    assert len(orbit) == len(naive)
    states = [state_of(orbit, i) for i in range(len(orbit))]
    assert states[0] == start
    assert set(states) == set(naive)
    everything = np.arange(len(orbit), dtype=np.int32)
    for i, step in enumerate(steps):
        moved = orbit.move(i, everything).tolist()
        assert [states[j] for j in moved] == [naive_image(step, state) for state in states]
    return len(naive)


def permutation_matrix(field: Field, images: Sequence[int]) -> Matrix:
    n = len(images)
    return matrix(field, ([int(images[j] == i) for j in range(n)] for i in range(n)))


def dyadic_reflection(key: Sequence[int]) -> Matrix:
    return householder(vector(Q, key), Q(Fraction(2, sum(x * x for x in key))))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12])
def test_a_planar_rotation_has_as_many_states_as_its_order(n: int) -> None:
    field = field_for_angles(n)
    assert check_against_naive(field, identity(field, 2), [StepMap(planar_rotation(field, 1, n))]) == n


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_a_rotation_and_a_reflection_have_the_states_of_the_dihedral_group(n: int) -> None:
    field = field_for_angles(n)
    steps = [StepMap(planar_rotation(field, 1, n)), StepMap(planar_reflection(field, 0, n))]
    assert check_against_naive(field, identity(field, 2), steps) == 2 * n


@pytest.mark.parametrize("n", [2, 3, 4])
def test_adjacent_swaps_have_the_states_of_the_symmetric_group(n: int) -> None:
    swaps = [[*range(i), i + 1, i, *range(i + 2, n)] for i in range(n - 1)]
    steps = [StepMap(permutation_matrix(Q, swap)) for swap in swaps]
    assert check_against_naive(Q, identity(Q, n), steps) == math.factorial(n)
    one_column = Orbit(Q, [vector(Q, range(1, n + 1))], steps)
    one_column.close()
    assert len(one_column) == len(one_column.columns) == math.factorial(n)


def test_dyadic_reflections_of_the_cube_have_48_states() -> None:
    steps = [StepMap(dyadic_reflection(key)) for key in [(1, -1, 0), (0, 1, -1), (0, 0, 1)]]
    assert check_against_naive(Q, identity(Q, 3), steps) == 48


def test_dyadic_reflections_in_four_dimensions_have_1152_states() -> None:
    keys = [(0, 1, -1, 0), (0, 0, 1, -1), (0, 0, 0, 1), (1, -1, -1, -1)]
    orbit = Orbit(Q, identity(Q, 4), [StepMap(dyadic_reflection(key)) for key in keys])
    orbit.close()
    assert len(orbit) == 1152
    assert len(orbit.columns) == 24
    # Naively on doubles, which hold these dyadic numbers exactly.
    reflections = [np.eye(4) - 2 * np.outer(k, k) / np.dot(k, k) for k in map(np.array, keys)]
    found, seen = [np.eye(4)], {np.eye(4).tobytes()}
    for m in found:
        for r in reflections:
            image = r @ m + 0.0  # no negative zeros
            if image.tobytes() not in seen:
                seen.add(image.tobytes())
                found.append(image)
    assert len(found) == 1152
    exact = {
        tuple(tuple(x.as_fraction() for x in row) for row in transpose(state_of(orbit, i))) for i in range(len(orbit))
    }
    assert exact == {tuple(tuple(map(Fraction, row)) for row in m.tolist()) for m in found}


def test_a_reset_and_a_turn_with_offsets_close_column_by_column() -> None:
    turn = about(matrix(Q, [[0, -1], [1, 0]]), [vector(Q, [1, 0]), vector(Q, [0, 1])])
    reset = StepMap(diagonal(Q, [0, 0]), (vector(Q, [3, 1]), vector(Q, [2, 2])))
    start = (vector(Q, [0, 0]), vector(Q, [5, 0]))
    assert check_against_naive(Q, start, [turn, reset]) == 8


def test_the_parity_of_the_length_is_affine() -> None:
    flip = StepMap(matrix(Q, [[-1]]), (vector(Q, [1]),))
    assert check_against_naive(Q, (vector(Q, [0]),), [flip, StepMap(identity(Q, 1))]) == 2


def about(a: Matrix, centres: Sequence[Vector]) -> StepMap:
    """x -> A (x - c) + c, another c for each column."""
    return StepMap(a, tuple(tuple(x - y for x, y in zip(c, matvec(a, c), strict=True)) for c in centres))


@st.composite
def points(draw: st.DrawFn, count: int) -> tuple[Vector, ...]:
    field = draw(fields(4))
    return tuple((draw(elements(field)), draw(elements(field))) for _ in range(count))


@given(points(4))
@fewer(4)
def test_a_swap_and_a_reflection_about_any_centres_close_like_the_naive_closure(found: tuple[Vector, ...]) -> None:
    field = found[0][0].field
    swap, negate = matrix(field, [[0, 1], [1, 0]]), diagonal(field, [-1, 1])
    start, centres = found[:2], found[2:]
    assert 8 % check_against_naive(field, start, [StepMap(swap), StepMap(negate)]) == 0
    assert 8 % check_against_naive(field, start, [about(swap, centres), about(negate, centres)]) == 0


def test_a_small_number_beside_a_tiny_one_closes_like_the_naive_closure() -> None:
    start = (vector(Q, [Q(Fraction(1, 1 << 60)), -8]),)
    check_against_naive(Q, start, [StepMap(matrix(Q, [[0, 1], [1, 0]])), StepMap(diagonal(Q, [-1, 1]))])


@given(permutation_dfas(max_states=4))
@fewer(4)
def test_one_hot_states_under_permutation_matrices_are_the_transition_group(dfa: Dfa) -> None:
    steps = [StepMap(permutation_matrix(Q, images)) for images in transition_maps(dfa)]
    orbit = Orbit(Q, identity(Q, len(dfa.states)), steps)
    orbit.close()
    found = transition_group(dfa)
    assert found is not None
    assert len(orbit) == found[0].order


@pytest.mark.parametrize("n", [3, 5, 8])
def test_a_product_step_moves_like_the_algebra(n: int) -> None:
    field = field_for_angles(n)
    turn, flip = planar_rotation(field, 1, n), planar_reflection(field, 0, n)
    both, thrice = matmul(flip, turn), matmul(turn, matmul(flip, turn))
    by_table = Orbit(
        field,
        identity(field, 2),
        [StepMap(turn), StepMap(flip), StepMap(both, product=(1, 0)), StepMap(thrice, product=(0, 2))],
    )
    directly = Orbit(field, identity(field, 2), [StepMap(m) for m in (turn, flip, both, thrice)])
    assert by_table.close() == directly.close()
    assert len(by_table) == len(directly) == 2 * n
    for step in range(4):
        # The orbits may number their states differently.
        everything = np.arange(2 * n, dtype=np.int32)
        images = [
            {state_of(o, i): state_of(o, j) for i, j in enumerate(o.move(step, everything).tolist())}
            for o in (by_table, directly)
        ]
        assert images[0] == images[1]


def test_moves_discover_states_on_demand() -> None:
    field = field_for_angles(7)
    orbit = Orbit(field, identity(field, 2), [StepMap(planar_rotation(field, 1, 7))])
    assert len(orbit) == 1
    states = np.array([0], dtype=np.int32)
    for expected in [1, 2, 3, 4, 5, 6, 0, 1]:
        states = orbit.move(0, states)
        assert states.tolist() == [expected]
    assert len(orbit) == 7
    assert state_of(orbit, 3) == transpose(planar_rotation(field, 3, 7))


@given(st.lists(st.lists(st.integers(-2, 2), min_size=3, max_size=3), min_size=1, max_size=3))
@fewer(8)
def test_readouts_number_the_products_with_a_query(queries: list[list[int]]) -> None:
    steps = [StepMap(permutation_matrix(Q, p)) for p in ((1, 0, 2), (1, 2, 0))]
    orbit = Orbit(Q, identity(Q, 3), steps)
    orbit.close()
    everything = np.arange(len(orbit), dtype=np.int32)
    for entries in queries:
        query = vector(Q, entries)
        numbers = orbit.readouts(query, everything)
        assert numbers.shape == (6, 3)
        for i, j in itertools.product(range(6), range(3)):
            assert orbit.scalars.vector(int(numbers[i, j])) == (dot(query, state_of(orbit, i)[j]),)


def rotation_orbit(**budgets: int) -> Orbit:
    field = RealCyclotomic(100)
    steps = [StepMap(planar_rotation(field, k, 100)) for k in (1, 2)]
    return Orbit(field, [vector(field, [1, 0])], steps, **budgets)  # pyright: ignore[reportArgumentType]


def test_more_columns_than_the_budget_are_refused() -> None:
    with pytest.raises(BudgetExceeded, match="more than 10 distinct exact columns") as caught:
        rotation_orbit(max_columns=10).close()
    assert caught.value.limit == 10


def test_more_states_than_the_budget_are_refused() -> None:
    with pytest.raises(BudgetExceeded, match="more than 10 hidden states") as caught:
        rotation_orbit(max_states=10).close()
    assert caught.value.flag == "--max-states"


def test_an_infinite_orbit_stops_at_its_budget() -> None:
    shift = StepMap(identity(Q, 1), (vector(Q, [1]),))
    back = StepMap(identity(Q, 1), (vector(Q, [-1]),))
    with pytest.raises(BudgetExceeded):
        Orbit(Q, [vector(Q, [0])], [shift, back], max_states=100).close()


def test_an_orbit_that_stands_at_its_budget_with_moves_left_is_refused() -> None:
    field = RealCyclotomic(100)
    orbit = Orbit(field, [vector(field, [1, 0])], [StepMap(planar_rotation(field, 1, 100))], max_states=10)
    with pytest.raises(BudgetExceeded):
        orbit.close()


def test_an_orbit_of_exactly_the_budget_closes() -> None:
    orbit = rotation_orbit(max_states=100, max_columns=100)
    orbit.close()
    assert len(orbit) == 100


def test_close_stops_once_it_holds_the_states_asked_for() -> None:
    orbit = rotation_orbit()
    orbit.close(max_states=5)
    assert 5 <= len(orbit) < 100
    orbit.close()
    assert len(orbit) == 100
