from __future__ import annotations

import importlib
import itertools
import math
import random
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from flint import fmpz_mat
from hypothesis import example, given
from hypothesis import strategies as st

from statetrack.errors import BudgetExceeded, InvalidAutomaton, InvalidPermutation, UnknownGroup
from statetrack.theory.automata import Dfa, from_table, transition_maps
from statetrack.theory.groups import (
    Group,
    GroupShape,
    Permutation,
    cycle_notation,
    cycles,
    named_group,
    parse_generators,
    permutation_group,
    recognise,
    reflections_needed,
    transition_group,
    word_problem,
    words_in,
)
from tests.strategies import dfas, fewer, permutation_dfas

# Not typed; an oracle only.
combinatorics: Any = importlib.import_module("sympy.combinatorics")
named: Any = importlib.import_module("sympy.combinatorics.named_groups")
homomorphisms: Any = importlib.import_module("sympy.combinatorics.homomorphisms")

SMALL = [
    "Z1", "Z2", "Z5", "C6", "Z12", "D1", "D2", "D3", "D4", "D5", "D6", "S1", "S2", "S3", "S4", "A1", "A2", "A3",
    "A4", "A5", "Q8", "Q12", "Q16", "Z2xZ2", "Z2xS3", "Z3xZ3", "Z2×Z3", "Z2xZ2xZ2", "S3xS3", "Q8xZ3", "D4xZ2xZ3",
]  # fmt: skip
LARGER = ("Z60", "D30", "S5", "S6", "A6", "Q40", "S4xZ5", "A5xZ2")
small_groups = st.sampled_from(SMALL).map(named_group)


def compose(a: Sequence[int], b: Sequence[int]) -> Permutation:
    """a b: first b."""
    return tuple(a[i] for i in b)


def oracle(permutations: Sequence[Sequence[int]]) -> Any:
    return combinatorics.PermutationGroup([combinatorics.Permutation(list(p)) for p in permutations])


def oracle_of(group: Group) -> Any:
    return oracle([group.permutation(g) for g in group.generators])


def oracle_named(part: str) -> Any:
    n = int(part[1:])
    if part[0] == "Q":
        # a -> shift in two cycles, b -> the other half turned backwards: the regular action of the dicyclic group.
        a = [(k + 1) % (n // 2) for k in range(n // 2)] + [n // 2 + (k - 1) % (n // 2) for k in range(n // 2)]
        b = [n // 2 + k for k in range(n // 2)] + [(k + n // 4) % (n // 2) for k in range(n // 2)]
        return oracle([a, b])
    kinds = {
        "Z": "CyclicGroup",
        "C": "CyclicGroup",
        "D": "DihedralGroup",
        "S": "SymmetricGroup",
        "A": "AlternatingGroup",
    }
    return getattr(named, kinds[part[0]])(n)


def element_orders(group: Group) -> Counter[int]:
    return Counter(group.element_order(g) for g in range(group.order))


@pytest.mark.parametrize("name", [*SMALL, *LARGER])
def test_a_named_group_has_the_order_and_element_orders_of_sympys(name: str) -> None:
    group = named_group(name)
    assert group.name == name.replace("×", "x")
    parts = [oracle_named(part) for part in name.replace("×", "x").split("x")]
    statistics = Counter({1: 1})
    for part in parts:
        theirs = Counter(int(p.order()) for p in part.elements)
        joint = Counter[int]()
        for (m, a), (n, b) in itertools.product(statistics.items(), theirs.items()):
            joint[math.lcm(m, n)] += a * b
        statistics = joint
    assert group.order == math.prod(int(part.order()) for part in parts) == int(oracle_of(group).order())
    assert element_orders(group) == statistics
    assert len(set(group.labels)) == len({group.permutation(g) for g in range(group.order)}) == group.order
    assert group.permutation(0) == tuple(range(group.degree))
    assert group.generated(group.generators) == group.order


@pytest.mark.parametrize("name", ["Z4", "Z6", "D2", "D4", "S3", "D6", "Q8", "Q12", "A4"])
def test_a_named_group_is_isomorphic_to_sympys(name: str) -> None:
    assert homomorphisms.is_isomorphic(oracle_of(named_group(name)), oracle_named(name))


@pytest.mark.parametrize(("one", "other"), [("Q8", "D4"), ("Z4", "D2"), ("S3", "Z6"), ("A4", "D6")])
def test_sympy_tells_named_groups_of_one_order_apart(one: str, other: str) -> None:
    assert not homomorphisms.is_isomorphic(oracle_of(named_group(one)), oracle_named(other))


@given(small_groups, st.data())
def test_a_group_satisfies_the_axioms(group: Group, data: st.DataObject) -> None:
    number = st.integers(0, group.order - 1)
    a, b, c = data.draw(number), data.draw(number), data.draw(number)
    assert group.multiply(group.multiply(a, b), c) == group.multiply(a, group.multiply(b, c))
    assert group.multiply(a, 0) == a == group.multiply(0, a)
    assert group.multiply(a, group.inverse(a)) == 0 == group.multiply(group.inverse(a), a)
    assert group.permutation(group.multiply(a, b)) == compose(group.permutation(a), group.permutation(b))
    assert group.left(a).tolist() == [group.multiply(a, x) for x in range(group.order)]
    assert group.index(group.elements).tolist() == list(range(group.order))
    power, n = a, 1
    while power:
        power, n = group.multiply(a, power), n + 1
    assert group.element_order(a) == n


@pytest.mark.parametrize("name", ["Z5", "D4", "Q8", "A4", "S3xZ2"])
def test_the_table_of_a_group_is_a_latin_square(name: str) -> None:
    group = named_group(name)
    table = np.array([group.left(g) for g in range(group.order)])
    everything = list(range(group.order))
    for line in (*table, *table.T):
        assert sorted(line.tolist()) == everything


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_labels_of_cyclic_and_dihedral_groups_add_up(n: int) -> None:
    cyclic, dihedral = named_group(f"Z{n}"), named_group(f"D{n}")
    number = {label: g for g, label in enumerate(dihedral.labels)}
    for i, j in itertools.product(range(n), repeat=2):
        assert cyclic.labels[cyclic.multiply(i, j)] == str((i + j) % n)
        for (a, b), c in {
            ("r", "r"): f"r{(i + j) % n}",
            ("r", "s"): f"s{(i + j) % n}",
            ("s", "r"): f"s{(i - j) % n}",
            ("s", "s"): f"r{(i - j) % n}",
        }.items():
            assert dihedral.labels[dihedral.multiply(number[f"{a}{i}"], number[f"{b}{j}"])] == c


def test_the_quaternion_group_multiplies_like_the_quaternions() -> None:
    group = named_group("Q8")
    number = {label: g for g, label in enumerate(group.labels)}
    for left, right, product in [
        ("i", "j", "k"), ("j", "k", "i"), ("k", "i", "j"), ("j", "i", "-k"), ("i", "i", "-1"), ("j", "j", "-1"),
        ("k", "k", "-1"), ("-1", "i", "-i"), ("-1", "-1", "1"), ("1", "j", "j"),
    ]:  # fmt: skip
        assert group.labels[group.multiply(number[left], number[right])] == product


@given(st.lists(st.sampled_from(["Z2", "Z3", "S3", "Q8", "D2"]), min_size=2, max_size=3), st.data())
@fewer(2)
def test_a_product_is_numbered_in_mixed_radix_and_multiplies_by_factors(names: list[str], data: st.DataObject) -> None:
    group = named_group("x".join(names))
    shape = tuple(f.order for f in group.factors)
    assert [f.name for f in group.factors] == names
    a, b = data.draw(st.integers(0, group.order - 1)), data.draw(st.integers(0, group.order - 1))
    digits = [[int(i) for i in np.unravel_index(g, shape)] for g in (a, b, group.multiply(a, b))]
    assert digits[2] == [f.multiply(x, y) for f, x, y in zip(group.factors, digits[0], digits[1], strict=True)]
    assert group.labels[a] == "(" + ",".join(f.labels[i] for f, i in zip(group.factors, digits[0], strict=True)) + ")"


@pytest.mark.parametrize("name", ["", "Z0", "D0", "Q4", "Q6", "Q10", "X3", "Z2x", "xZ2", "Z", "2Z", "z3", "S 3", "Z-1"])
def test_an_unknown_name_is_refused_with_what_is_known(name: str) -> None:
    with pytest.raises(UnknownGroup, match="know Zn") as caught:
        named_group(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["S13", "A13", "Z100001", "D50001", "S6xS6", "S9"])
def test_a_group_past_the_budget_is_refused(name: str) -> None:
    with pytest.raises(BudgetExceeded) as caught:
        named_group(name)
    assert (caught.value.limit, caught.value.flag) == (100_000, "--max-order")
    with pytest.raises(BudgetExceeded):
        permutation_group("big", [tuple((i + 1) % 50 for i in range(50))], max_order=49)


def shuffled_copy(group: Group, rng: random.Random, extra: int) -> Group:
    """The group on relabelled points among idle ones, given by redundant generators in another order."""
    degree = group.degree + rng.randrange(4)
    names = rng.sample(range(degree), degree)

    def moved(g: int) -> Permutation:
        images = {names[i]: names[j] for i, j in enumerate(group.permutation(g))}
        return tuple(images.get(i, i) for i in range(degree))

    chosen = [*group.generators, *(rng.randrange(group.order) for _ in range(extra))]
    rng.shuffle(chosen)
    return permutation_group("copy", [moved(g) for g in chosen])


def check_shape(group: Group, shape: GroupShape) -> None:
    """The reported generators satisfy the presentation in a group of its order and generate it."""
    x, y, order = shape.x, shape.y, group.element_order
    if shape.kind == "cyclic":
        assert shape.n == group.order == order(x) == group.generated([x])
        return
    assert group.generated([x, y]) == group.order
    if shape.kind == "dihedral":
        assert group.order == 2 * shape.n
        assert (order(x), order(y)) == (shape.n, 2)
        assert group.multiply(y, group.multiply(x, y)) == group.inverse(x)
    else:
        assert shape.kind == "polyhedral"
        assert group.order == {3: 12, 4: 24, 5: 60}[shape.n]
        assert (order(x), order(y), order(group.multiply(x, y))) == (2, 3, shape.n)


ROTATION_GROUPS = [
    *((f"Z{n}", f"Z{n}") for n in (1, 2, 3, 4, 5, 6, 9, 12)),
    *((f"D{n}", f"D{n}") for n in (2, 3, 4, 5, 6, 7, 10, 12, 30)),
    ("A4", "A4"),
    ("S4", "S4"),
    ("A5", "A5"),
    ("D1", "Z2"),
    ("S2", "Z2"),
    ("S3", "D3"),
    ("A3", "Z3"),
    ("Z2xZ2", "D2"),
    ("Z2xZ3", "Z6"),
    ("Z2xS3", "D6"),
    ("Z3xZ4xZ5", "Z60"),
    ("D5xZ2", "D10"),
]


@given(st.sampled_from(ROTATION_GROUPS), st.integers(0, 2**32), st.integers(0, 3))
@fewer(2)
def test_relabelled_copies_of_rotation_groups_are_recognised(names: tuple[str, str], seed: int, extra: int) -> None:
    group = shuffled_copy(named_group(names[0]), random.Random(seed), extra)
    shape = recognise(group)
    assert shape is not None
    assert str(shape) == names[1]
    check_shape(group, shape)


@pytest.mark.parametrize("names", ROTATION_GROUPS, ids=str)
def test_every_rotation_group_is_recognised(names: tuple[str, str]) -> None:
    group = named_group(names[0])
    shape = recognise(group)
    assert shape is not None
    assert str(shape) == names[1]
    check_shape(group, shape)


OTHERS = [
    "Q8", "Q12", "Q16", "Q20", "Q24", "Q60", "Z3xZ3", "Z2xZ4", "Z2xZ2xZ2", "Z2xZ2xZ3", "S5", "A4xZ2", "S4xZ2",
    "A5xZ2", "A4xZ5", "D5xS3", "S3xZ3", "D4xZ2", "D4xZ3", "S3xZ4", "S3xZ10", "D2xD3", "A6", "S3xZ2xZ5", "Q8xZ3",
]  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_a_group_of_another_kind_is_not_taken_for_a_rotation_group(name: str) -> None:
    assert recognise(named_group(name)) is None
    if named_group(name).order <= 60:
        assert recognise(shuffled_copy(named_group(name), random.Random(name), 2)) is None


def special_linear_group() -> Group:
    """SL(2,3), of order 24 like S4, on the eight non-zero vectors of the plane over three elements."""
    vectors = [v for v in itertools.product(range(3), repeat=2) if any(v)]
    maps = [
        tuple(vectors.index(((a * x + b * y) % 3, (c * x + d * y) % 3)) for x, y in vectors)
        for a, b, c, d in [(1, 1, 0, 1), (1, 0, 1, 1)]
    ]
    return permutation_group("SL(2,3)", maps)


def test_the_special_linear_group_of_order_24_is_not_taken_for_s4() -> None:
    group = special_linear_group()
    assert group.order == 24
    assert recognise(group) is None


permutations = st.integers(1, 13).flatmap(lambda n: st.permutations(range(n))).map(tuple)


def without_idle_end(p: Permutation) -> Permutation:
    n = len(p)
    while n > 1 and p[n - 1] == n - 1:
        n -= 1
    return p[:n]


@given(permutations)
@example(tuple(range(12)))
def test_cycle_notation_is_read_back(p: Permutation) -> None:
    text = cycle_notation(p)
    if len(p) <= 9:
        # Up to nine points the numbers stand together; reading wants them apart.
        assert text == "()" or not set(text) - set("()123456789")
        text = text.replace("", " ")
    assert parse_generators(text) == (without_idle_end(p),)


def test_labels_of_small_groups_are_read_back_or_refused() -> None:
    try:
        found = parse_generators("(12)(345)")
    except InvalidPermutation:
        return
    assert found == ((1, 0, 3, 4, 2),)


@given(permutations, permutations)
def test_cycles_of_one_generator_compose_right_to_left(a: Permutation, b: Permutation) -> None:
    n = max(len(a), len(b))
    a, b = (*a, *range(len(a), n)), (*b, *range(len(b), n))
    text = "".join("(" + " ".join(str(i + 1) for i in c) + ")" for p in (a, b) for c in cycles(p)) or "()"
    (found,) = parse_generators(text)
    assert (*found, *range(len(found), n)) == compose(a, b)


def test_generators_stand_apart_by_semicolons_and_share_their_degree() -> None:
    assert parse_generators("(1 2 3)(4 5);(1 2)") == ((1, 2, 0, 4, 3), (1, 0, 2, 3, 4))
    assert parse_generators(" ( 1,2 , 3 ) ; ()") == ((1, 2, 0), (0, 1, 2))
    assert parse_generators("(1 2)(2 3)") == ((1, 2, 0),)
    assert parse_generators("(4)") == ((0, 1, 2, 3),)


@pytest.mark.parametrize(
    "text",
    ["", ";", "(1 2);", "1 2", "(1 2", "1 2)", "(1 a)", "(1 -2)", "((1 2))", "(0 1)", "(1 1)", "(1 2 1)", "(99999)"],
)
def test_faulty_cycle_notation_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InvalidPermutation) as caught:
        parse_generators(text)
    assert "\n" not in str(caught.value)


def test_a_point_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(InvalidPermutation):
        parse_generators("(" + "1" * 5000 + ")")


@pytest.mark.parametrize("generators", [[(0, 0)], [(1, 0), (1, 2, 0)], [(0, 2)], [(1.0, 0.0)]], ids=str)
def test_generators_that_are_no_permutations_of_one_degree_are_refused(generators: list[Permutation]) -> None:
    # Types are checked while tests run; what is meant here is the function's own check, which users have.
    unchecked = getattr(permutation_group, "__wrapped__", permutation_group)
    with pytest.raises(InvalidPermutation):
        unchecked("faulty", generators)


@pytest.mark.parametrize("n", range(1, 7))
def test_a_permutation_needs_as_many_reflections_as_the_rank_of_p_minus_one(n: int) -> None:
    for p in itertools.permutations(range(n)):
        difference = fmpz_mat(n, n, [int(p[j] == i) - int(i == j) for i in range(n) for j in range(n)])
        moved = sum(p[i] != i for i in range(n))
        assert reflections_needed(p) == difference.rank() == moved - len(cycles(p))


@given(small_groups, st.data())
def test_the_word_problem_composes_the_newest_letter_leftmost(group: Group, data: st.DataObject) -> None:
    number = st.integers(0, group.order - 1)
    letters = data.draw(st.lists(number, min_size=1, max_size=3, unique=True))
    word = data.draw(st.lists(st.sampled_from(letters), max_size=8))
    dfa = word_problem(group, letters)
    assert dfa.states[dfa.start] == group.labels[0]
    product, expected = tuple(range(group.degree)), list[str]()
    labels = dict(zip(map(group.permutation, range(group.order)), group.labels, strict=True))
    for g in word:
        product = compose(group.permutation(g), product)
        expected.append(labels[product])
    assert dfa.run([group.labels[g] for g in word]) == tuple(expected)
    assert dfa.is_permutation()


def test_the_word_problem_has_no_place_for_one_letter_twice() -> None:
    group = named_group("S3")
    with pytest.raises(InvalidAutomaton, match="stands twice"):
        word_problem(group, [1, 1])
    assert len(word_problem(named_group("Z1"), []).states) == 1


def test_the_word_problem_of_letters_that_do_not_generate_has_reachable_states_only() -> None:
    assert len(word_problem(named_group("S3"), [1]).states) == 3


@given(permutation_dfas())
def test_the_transition_group_holds_the_maps_of_the_letters(dfa: Dfa) -> None:
    found = transition_group(dfa)
    assert found is not None
    group, letters = found
    assert tuple(group.permutation(g) for g in letters) == transition_maps(dfa)
    assert group.order == int(oracle(transition_maps(dfa)).order())


@given(dfas())
def test_only_permutation_automata_have_a_transition_group(dfa: Dfa) -> None:
    bijective = all(sorted(images) == list(range(len(dfa.states))) for images in transition_maps(dfa))
    assert dfa.is_permutation() == bijective
    assert (transition_group(dfa) is not None) == bijective


def test_a_transition_group_past_its_budget_is_none() -> None:
    ring = from_table(["a"], list("wxyz"), "w", {(a, "a"): b for a, b in zip("wxyz", "xyzw", strict=True)})
    assert transition_group(ring, max_order=3) is None
    found = transition_group(ring, max_order=4)
    assert found is not None
    assert found[0].order == 4


@pytest.mark.parametrize("name", ["Z99999", "D20000", "Q50000", "Z5000xZ20"])
def test_a_table_of_elements_that_would_fill_the_memory_is_refused_before_it_is_made(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BudgetExceeded, match="entries in the table of elements") as caught:
            named_group(name)
        assert tracemalloc.get_traced_memory()[1] < 300_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.flag.startswith("--max-order")


def test_generated_permutations_stop_where_their_table_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = tuple((i + 1) % 100 for i in range(100))
    monkeypatch.setattr("statetrack.theory.groups._MAX_ENTRIES", 5_000)
    monkeypatch.setattr("statetrack.theory.groups._ENTRIES_PER_ELEMENT", 10)
    with pytest.raises(BudgetExceeded, match="51 elements on 100 points"):
        permutation_group("ring", [ring], max_order=200)
    assert permutation_group("ring", [ring], max_order=1_000).order == 100


def test_a_groups_shape_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    group = named_group("D7")
    first = recognise(group)
    assert first is group.shape
    assert str(first) == "D7"
    monkeypatch.setattr("statetrack.theory.groups._recognise", None)
    assert recognise(group) is first


@given(small_groups)
@fewer(8)
def test_words_in_the_generators_are_shortest_and_multiply_to_their_elements(group: Group) -> None:
    found = words_in(group, group.generators)
    distance = {0: 0}
    queue = [0]
    for h in queue:
        for g in group.generators:
            image = group.multiply(g, h)
            if image not in distance:
                distance[image] = distance[h] + 1
                queue.append(image)
    for g, word in enumerate(found):
        product = 0
        for i in reversed(word):
            product = group.multiply(group.generators[i], product)
        assert product == g
        assert len(word) == distance[g]
