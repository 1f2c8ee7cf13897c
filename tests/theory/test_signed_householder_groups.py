from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from flint import fmpq, fmpq_mat
from hypothesis import given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidInput
from statetrack.theory.arrays import Matrix, dot, matmul, matvec, transpose, vector
from statetrack.theory.cayley_tables import (
    Cayley,
    binary_polyhedral,
    from_group,
    obstruction,
    projective,
    quaternion_product,
    semidirect,
    special_linear,
)
from statetrack.theory.groups import named_group, permutation_group
from statetrack.theory.householder import signed_householders
from statetrack.theory.rotations import (
    angle_field,
    icosahedral_planes,
    planar_reflection,
    planar_rotation,
    polyhedral_generators,
    quaternion_transition,
)
from statetrack.theory.signed_householder_groups import (
    Affine,
    adapted_letters,
    covering_frames,
    cycle_type,
    decoded,
    hidden_group,
    icosahedral_axes,
    is_fixed,
    plane_sizes,
    planes_of_axes,
    reduction,
    rotation_axes,
    separates,
    squared_margin,
    two_sided,
)
from tests.strategies import fewer

TABLES = {name: from_group(named_group(name)) for name in ("Z6", "D5", "A4", "S4", "Q12", "A5", "S5")}
quaternions = st.tuples(*[st.integers(-5, 5)] * 4)


def dihedral(n: int) -> list[Matrix]:
    field = angle_field(n)
    return [planar_rotation(field, k, n) for k in range(n)] + [planar_reflection(field, k, n) for k in range(n)]


def products(matrices: list[Matrix]) -> list[list[int]]:
    number = {m: i for i, m in enumerate(matrices)}
    return [[number[matmul(a, b)] for b in matrices] for a in matrices]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_agrees_with_its_permutation_group(name: str) -> None:
    group, table = named_group(name), TABLES[name]
    for x in range(0, group.order, 7):
        assert table.orders[x] == group.element_order(x)
        assert table.inverses[x] == group.inverse(x)
        for y in range(0, group.order, 5):
            assert table.table[x, y] == group.multiply(x, y)
            back = group.multiply(group.inverse(x), group.inverse(y))
            assert table.commutators[x, y] == group.multiply(group.multiply(x, y), back)
            assert len(table.generated((x, y))) == group.generated((x, y))


@given(st.sampled_from(sorted(TABLES)), st.integers(0, 200), st.integers(0, 119))
def test_powers_are_repeated_products(name: str, k: int, x: int) -> None:
    table = TABLES[name]
    x %= table.order
    total = 0
    for _ in range(k):
        total = int(table.table[total, x])
    assert table.power(k)[x] == total


def test_derived_groups_and_solvability_are_known() -> None:
    everything = {name: np.arange(table.order) for name, table in TABLES.items()}
    sizes = {name: len(table.derived(everything[name])) for name, table in TABLES.items()}
    assert sizes == {"Z6": 1, "D5": 5, "A4": 4, "S4": 12, "Q12": 3, "A5": 60, "S5": 60}
    assert [name for name, t in TABLES.items() if not t.is_solvable(everything[name])] == ["A5", "S5"]


@pytest.mark.parametrize(("name", "classes"), [("Z6", 6), ("D5", 4), ("A4", 4), ("S4", 5), ("A5", 5), ("S5", 7)])
def test_the_number_of_classes_is_known(name: str, classes: int) -> None:
    assert len(TABLES[name].representatives) == classes


@pytest.mark.parametrize(("k", "orders"), [
    (3, {1: 1, 2: 1, 3: 8, 4: 6, 6: 8}),
    (4, {1: 1, 2: 1, 3: 8, 4: 18, 6: 8, 8: 12}),
    (5, {1: 1, 2: 1, 3: 20, 4: 30, 5: 24, 6: 20, 10: 24}),
])  # fmt: skip
def test_binary_polyhedral_groups_have_the_known_orders(k: int, orders: dict[int, int]) -> None:
    group = binary_polyhedral(k)
    assert Counter(group.orders.tolist()) == orders
    assert group.real(0) == (2, 0)
    # Associative, on a sample; the identity is number 0.
    sample = range(0, group.order, 5)
    for x, y, z in itertools.product(sample, repeat=3):
        assert group.table[group.table[x, y], z] == group.table[x, group.table[y, z]]
    assert group.table[0].tolist() == group.table[:, 0].tolist() == list(range(group.order))


def test_the_binary_icosahedral_group_is_sl_2_5() -> None:
    one, other = binary_polyhedral(5), special_linear(5)
    assert Counter(one.orders.tolist()) == Counter(other.orders.tolist())
    assert len(one.derived(np.arange(120))) == len(other.derived(np.arange(120))) == 120
    assert projective(7).order == 168
    with pytest.raises(InvalidInput, match="binary polyhedral group 6"):
        binary_polyhedral(6)


def test_semidirect_products_have_the_action_they_are_given() -> None:
    group = semidirect((5,), lambda v: (2 * v[0],), 4, "F20")
    t, x = 1, 4
    assert (group.orders[t], group.orders[x]) == (4, 5)
    moved = group.table[group.table[t, x], group.inverses[t]]
    assert moved == group.table[x, x]
    with pytest.raises(InvalidInput, match="order does not divide 3"):
        semidirect((5,), lambda v: (2 * v[0],), 3, "none")


def relabelled(group: Cayley, seed: int) -> Cayley:
    place = np.concatenate([[0], 1 + np.random.default_rng(seed).permutation(group.order - 1)])
    back = np.argsort(place)
    return Cayley(group.name, place[group.table[np.ix_(back, back)]])


@pytest.mark.parametrize("seed", [0, 1])
def test_obstructions_do_not_depend_on_the_numbering(seed: int) -> None:
    cases = {"U6": TABLES["S5"], "U2": projective(7)}
    cases["U1"] = semidirect((3, 3), lambda v: (v[0] + v[1], v[1]), 3, "27")
    cases["U4"] = semidirect((4, 4), lambda v: (-v[1], v[0] - v[1]), 3, "48")
    cases["U5"] = semidirect((3, 3), lambda v: (v[1], v[0] + v[1]), 8, "72")
    for law, group in cases.items():
        found = obstruction(relabelled(group, seed))
        assert found is not None
        assert found.law == law
    for name in ("Z6", "D5", "A4", "S4", "Q12"):
        assert obstruction(relabelled(TABLES[name], seed)) is None


def test_an_obstruction_names_elements_that_break_its_law() -> None:
    group = TABLES["S5"]
    found = obstruction(group)
    assert found is not None
    assert group.orders[found.x] == group.orders[found.y] == 5
    assert group.power(10)[group.commutators[found.x, found.y]] != 0


def test_a_semidirect_product_with_large_two_groups_fails_only_the_law_of_sylow_squares() -> None:
    # The smallest quotient in which y^64 is still there would have order 4,096; this one keeps all laws.
    assert obstruction(semidirect((32,), lambda v: (5 * v[0],), 8, "Z32:Z8")) is None


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_the_hidden_group_of_a_realisation_is_the_group(n: int) -> None:
    letters = dihedral(n)
    found = hidden_group(letters, products(letters))
    assert (len(found.states), found.kernel, found.clash) == (2 * n, 1, None)
    assert found.is_group()
    assert [letters[label] for label in found.labels] == list(found.states)


def test_the_quaternion_tracker_of_a4_has_96_states_and_a_kernel_of_8() -> None:
    four = list(polyhedral_generators(3).elements)
    found = hidden_group([quaternion_transition(m).matrix() for m in four], products(four))
    assert (len(found.states), found.kernel, found.clash) == (96, 8, None)
    assert Counter(found.labels) == dict.fromkeys(range(12), 8)


def test_a_wrong_letter_gives_a_state_two_elements() -> None:
    letters = dihedral(3)
    left = products(letters)
    assert hidden_group([letters[1], *letters[1:]], left).clash is not None
    with pytest.raises(BudgetExceeded):
        hidden_group(letters, left, most=3)


def test_planes_and_frames_of_the_solids() -> None:
    axes = {k: rotation_axes(polyhedral_generators(k).elements) for k in (3, 4, 5)}
    assert [len(axes[k]) for k in (3, 4, 5)] == [4, 7, 16]
    assert plane_sizes(axes[5]) == plane_sizes(icosahedral_axes()) == dict(icosahedral_planes().planes)
    assert sum(plane_sizes(icosahedral_axes(twisted=True)).values()) == 81
    assert [len(covering_frames(axes[k])) for k in (3, 4, 5)] == [3, 3, 0]
    for plane, normal in planes_of_axes(axes[4]).items():
        assert [k for k, axis in enumerate(axes[4]) if dot(axis, normal).is_zero()] == sorted(plane)


@fewer(2)
@given(st.integers(2, 6), st.tuples(st.integers(-3, 3), st.integers(-3, 3)).filter(any))
def test_a_query_separates_the_states_iff_no_state_fixes_it(n: int, q: tuple[int, int]) -> None:
    states = dihedral(n)
    v = vector(states[0][0][0].field, q)
    assert separates(states, v) != is_fixed(states, v)
    gaps = [
        [x - y for x, y in zip(matvec(transpose(a), v), matvec(transpose(b), v), strict=True)]
        for a, b in itertools.combinations(states, 2)
    ]
    assert squared_margin(states, v) == min(dot(tuple(g), tuple(g)) for g in gaps) / dot(v, v)


def test_adapted_letters_agree_with_the_recogniser_on_three_points() -> None:
    # In the standard basis of the plane every orthogonal matrix is a signed Householder.
    assert len(adapted_letters(3, [(1, -1, 0), (1, 1, -2)])) == 6
    letters = adapted_letters(5, [(1, -1, 0, 0, 0), (0, 0, 1, -1, 0), (1, 1, -1, -1, 0), (1, 1, 1, 1, -4)])
    assert len(letters) == 40
    assert (5,) not in set(map(cycle_type, letters))
    assert permutation_group("S5", letters).order == 120


@given(quaternions, quaternions)
def test_two_sided_is_the_product_of_quaternions(p: tuple[int, ...], q: tuple[int, ...]) -> None:
    x = np.array([2, -1, 3, 1])
    expected = quaternion_product(quaternion_product(np.array(p), x), np.array(q))
    assert (two_sided(p, q) @ x).tolist() == expected.tolist()
    assert int(expected @ expected) == sum(a * a for a in p) * sum(a * a for a in q) * int(x @ x)


@given(quaternions, quaternions)
def test_the_decoder_gives_the_rotation_of_the_left_factor(p: tuple[int, ...], q: tuple[int, ...]) -> None:
    rotation = two_sided(p, (p[0], -p[1], -p[2], -p[3]))[1:, 1:]
    assert decoded(two_sided(p, q)).tolist() == (4 * sum(a * a for a in q) * rotation).tolist()


def square(rows: list[list[int]]) -> fmpq_mat:
    return fmpq_mat(len(rows), len(rows), [fmpq(x) for row in rows for x in row])


def column(entries: list[int]) -> fmpq_mat:
    return fmpq_mat(len(entries), 1, [fmpq(x) for x in entries])


def test_a_reduction_drops_what_a_reset_forgets() -> None:
    # A sign flips about the centre 3; a memory of the last letter; both letters.
    flip = Affine(square([[-1, 0], [0, 0]]), column([6, 1]))
    stay = Affine(square([[1, 0], [0, 0]]), column([0, 2]))
    found = reduction([flip, stay], column([4, 0]))
    assert (found.reached, found.kept, found.dimension) == (5, 2, 1)
    assert found.permutations == ((1, 0), (0, 1))
    assert (found.projects, found.invariant, found.isometric) == (True, True, True)


def test_a_reduction_sees_steps_that_expand() -> None:
    # The swap in sheared coordinates: of order two, but not orthogonal.
    shear = square([[1, 0], [1, 1]])
    swap = Affine(shear * square([[0, 1], [1, 0]]) * shear.inv(), column([0, 0]))
    turn = Affine(shear * square([[0, -1], [1, 0]]) * shear.inv(), column([0, 0]))
    found = reduction([swap, turn], column([1, 3]))
    assert found.reached == 8
    assert not found.isometric
    with pytest.raises(BudgetExceeded):
        reduction([Affine(square([[1]]), column([1]))], column([0]), most=10)


def test_every_letter_of_a_planar_group_is_a_signed_householder() -> None:
    assert all(next(signed_householders(m), None) is not None for m in dihedral(5))
    assert math.isclose(
        float(squared_margin(dihedral(5)[:5], vector(angle_field(5), (1, 0)))), 2 - 2 * math.cos(2 * math.pi / 5)
    )
