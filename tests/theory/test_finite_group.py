"""Tables of finite groups: what names them, and their subgroups and quotients."""

from __future__ import annotations

import json
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from statetrack.errors import BudgetExceeded, InvalidFile, InvalidInput
from statetrack.theory.cayley_tables import from_group
from statetrack.theory.finite_group import (
    abelian_over,
    checked_table,
    fits,
    generating_set,
    library,
    minimal_normals,
    polycyclic,
    quotient,
    read_group,
    regular,
    small_group,
    squares,
    words_of,
)
from statetrack.theory.groups import named_group

COUNTS = {8: 5, 16: 14, 24: 15, 32: 51, 48: 52, 60: 13}


def test_the_library_has_every_group_of_order_up_to_60() -> None:
    orders = [n for n, _, _ in library()]
    assert len(orders) == 312
    assert {n: orders.count(n) for n in COUNTS} == COUNTS
    assert all(small_group(n, i).order == n for n, i, _ in library() if n in (12, 48))


def test_a_group_is_read_from_a_name_permutations_a_number_and_a_file(tmp_path: Path) -> None:
    table = read_group("Q8").table.table.tolist()
    (tmp_path / "table.json").write_text(json.dumps(table), encoding="utf-8")
    (tmp_path / "object.json").write_text(json.dumps({"table": table}), encoding="utf-8")
    (tmp_path / "generators.json").write_text(json.dumps({"generators": [[1, 2, 0], [1, 0, 2]]}), encoding="utf-8")
    orders = [
        read_group(spec).table.order
        for spec in ("Q8", "(1 2 3);(1 2)", "SmallGroup(8, 4)", *(str(p) for p in sorted(tmp_path.iterdir())))
    ]
    assert orders == [8, 6, 8, 6, 8, 8]


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([[0, 1], [1, 1]], "each number"),
        ([[1, 0], [0, 1]], "element 0 the identity"),
        ([[0, 1]], "n rows of n integers"),
        ("no", "n rows"),
        ([[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]], "is not"),
    ],
)
def test_a_table_that_is_no_group_is_refused_with_what_is_wrong(rows: object, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        checked_table(rows, "here")


def test_faults_of_files_and_numbers_are_named(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[[0", encoding="utf-8")
    with pytest.raises(InvalidFile, match="no JSON"):
        read_group(str(tmp_path / "bad.json"))
    with pytest.raises(InvalidFile, match="no such file"):
        read_group(str(tmp_path / "none.json"))
    with pytest.raises(InvalidInput, match="5 groups of order 8"):
        read_group("SmallGroup(8, 6)")
    with pytest.raises(BudgetExceeded):
        read_group("SmallGroup(60, 5)", max_order=59)


def test_past_order_60_gap_is_asked_or_missed() -> None:
    if shutil.which("gap") is None:
        with pytest.raises(InvalidInput, match="GAP"):
            read_group("SmallGroup(68, 3)")
    else:
        assert read_group("SmallGroup(68, 3)").table.order == 68


@pytest.mark.parametrize("key", [(12, 3), (16, 6), (20, 3), (24, 4), (48, 33)])
def test_words_quotients_and_coordinates_fit_the_table(key: tuple[int, int]) -> None:
    group = from_group(small_group(*key))
    letters = generating_set(group)
    assert len(group.generated(letters)) == group.order
    for g, word in enumerate(words_of(group, letters)):
        at = 0
        for i in word:
            at = int(group.table[at, letters[i]])
        assert at == g
    for members in minimal_normals(group):
        below, place = quotient(group, members)
        assert below.order * len(members) == group.order
        assert (below.table[place[:, None], place] == place[group.table]).all()
    inside = abelian_over(group, np.zeros(1, dtype=np.int64))
    basis = polycyclic(group, inside)
    for g, e in basis.exponents.items():
        at = 0
        for n, count in zip(basis.generators, e, strict=False):
            for _ in range(count):
                at = int(group.table[at, n])
        assert at == g
    assert (
        len(basis.exponents) == len(inside) == abs(round(float(np.linalg.det(np.array(basis.relations, dtype=float)))))
    )


def test_squares_and_minimal_normal_subgroups_of_known_groups() -> None:
    assert len(squares(from_group(named_group("Q8")))) == 2
    assert [len(n) for n in minimal_normals(from_group(named_group("S4")))] == [4]
    assert sorted(len(n) for n in minimal_normals(from_group(named_group("Z6")))) == [2, 3]


def test_fits_finds_the_homomorphism_or_none() -> None:
    group = from_group(named_group("S3"))
    letters = generating_set(group)
    found = fits(group, letters, letters, lambda a, b: int(group.table[a, b]), 0, 6)
    assert found == {g: g for g in range(6)}
    assert fits(group, letters, (0, 0), lambda a, b: 0, 0, 6) is None
    assert fits(group, letters, letters, lambda a, b: int(group.table[a, b]), 0, 5) is None
    points = regular(group)
    assert all(points.multiply(a, b) == group.table[a, b] for a, b in product(range(6), repeat=2))
