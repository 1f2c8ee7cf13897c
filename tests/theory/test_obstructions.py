"""Witnesses that one layer cannot track a group, checked by a module that knows nothing of how they were found."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from statetrack.proofs_check.witness import Rejected, verify_witness
from statetrack.theory.cayley_tables import Cayley, from_group, projective, semidirect
from statetrack.theory.finite_group import small_group
from statetrack.theory.groups import named_group
from statetrack.theory.obstructions import LAWS, find_witness


def u5_group() -> Cayley:
    """Z3^2:Z8, the generator of order 8 acting as one of GL(2, 3)."""
    return semidirect((3, 3), lambda v: (v[1], v[0] + v[1]), 8, "Z3^2:Z8")


def tables() -> dict[str, Cayley]:
    names = {name: from_group(named_group(name)) for name in ("S5", "A6")}
    small = {str(key): from_group(small_group(*key)) for key in ((21, 1), (27, 3), (48, 3), (55, 1), (56, 11))}
    return names | small | {"PSL(2,7)": projective(7), "Z3^2:Z8": u5_group()}


@pytest.mark.parametrize(("name", "group"), tables().items(), ids=str)
def test_a_witness_is_accepted_by_the_independent_check_and_a_changed_one_is_not(name: str, group: Cayley) -> None:
    found = find_witness(group)
    assert found is not None
    assert found.law in LAWS
    table = group.table.tolist()
    data: dict[str, Any] = found.to_json()
    assert found.law in verify_witness(table, data)
    with pytest.raises(Rejected):
        verify_witness(table, data | {"elements": data["elements"] | {"x": 0}})
    with pytest.raises(Rejected):
        verify_witness(table, data | {"law": "U9"})
    table[1][1], table[1][2] = table[1][2], table[1][1]
    with pytest.raises(Rejected):
        verify_witness(table, data)


def test_the_witness_of_s5_is_the_argument_of_theorem_4() -> None:
    group = named_group("S5")
    found = find_witness(from_group(group))
    assert found is not None
    assert found.law == "U6"
    assert "CKDA Thm. 4" in found.theorem
    elements = dict(found.elements)
    assert [len(group.labels[elements[name]]) for name in ("x", "t")] == [7, 4]
    assert "gives (" in found.describe(group.labels)


def test_law_u7_is_one_that_a_two_group_can_break() -> None:
    # <x^2, y^2> in Z_128:Z_32 with x y x^-1 = y^5: there U1 to U6 hold, but fourth powers do not commute.
    group = semidirect((64,), lambda v: (25 * v[0],), 16, "Z64:Z16")
    u, v = 1, 16
    square = group.power(2)
    assert (group.orders[u], group.orders[v]) == (16, 64)
    assert group.order == len(group.generated((u, v)))
    assert group.commutators[square[u], square[v]]


@pytest.mark.parametrize("name", ["Q8", "S4", "A5", "D7", "Z2xA4"])
def test_trackable_groups_have_no_witness_and_invented_ones_are_rejected(name: str) -> None:
    group = from_group(named_group(name))
    assert find_witness(group) is None
    table, draw = group.table.tolist(), random.Random(1)
    for _ in range(60):
        law = draw.choice(sorted(LAWS))
        wanted = {"U5": "xyuv", "U6": "xyt", "U7": "xyuv"}.get(law, "xy")
        elements = {letter: draw.randrange(group.order) for letter in wanted}
        with pytest.raises(Rejected):
            verify_witness(table, {"law": law, "elements": elements, "value": None})


def test_a_relabelled_table_breaks_the_same_law() -> None:
    group = from_group(small_group(48, 3))
    place = np.concatenate([[0], 1 + np.random.default_rng(0).permutation(group.order - 1)])
    back = np.argsort(place)
    moved = Cayley("relabelled", place[group.table[np.ix_(back, back)]])
    found = find_witness(moved)
    assert found is not None
    assert found.law == "U4"
    verify_witness(moved.table.tolist(), found.to_json())
