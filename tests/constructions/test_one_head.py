"""One head for abelian groups: sizes, states, margins and certificates, for all letters and for some."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statetrack.constructions.certificate import certify
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.one_head import abelian_blocks, joined, one_head
from statetrack.constructions.planar_heads import PlanarHead
from statetrack.constructions.source import Source
from statetrack.constructions.targets import target
from statetrack.errors import CertificateFailed, NoConstruction
from statetrack.proofs_check import networks
from statetrack.theory.cayley_tables import from_group
from statetrack.theory.groups import Group, named_group, word_problem


def product_of(moduli: list[int]) -> Group:
    return named_group("x".join(f"Z{n}" for n in moduli))


def over(group: Group, letters: list[int]) -> Source:
    return Source(group.name, word_problem(group, letters), group, tuple(letters), False)


abelian = st.lists(st.integers(2, 12), min_size=1, max_size=3).filter(lambda moduli: math.prod(moduli) <= 60)


@settings(max_examples=30)
@given(abelian, st.data())
def test_some_letters_of_an_abelian_group_take_one_head_that_the_checker_accepts(
    moduli: list[int], data: st.DataObject
) -> None:
    group = product_of(moduli)
    letters = data.draw(st.lists(st.integers(0, group.order - 1), min_size=1, max_size=4, unique=True).filter(any))
    source = over(group, letters)
    try:
        program = one_head(source)
    except NoConstruction:
        assert math.prod(block.modulus for block in abelian_blocks(from_group(group), letters)) > 4_096
        return
    assert program is not None
    closed, certificate = certify(program, source.dfa, target("ckda"))
    facts = networks.verify(certificate.text())
    assert (len(closed.dims[0]), facts["states"]) == (1, len(source.dfa.states))
    word = tuple(random.Random(0).choices(source.dfa.alphabet, k=100))
    assert closed.run(word) == source.dfa.run(word)


@given(abelian)
def test_blocks_are_the_fewest_planes_and_tell_all_elements_apart(moduli: list[int]) -> None:
    group = from_group(product_of(moduli))
    blocks = abelian_blocks(group, range(group.order))
    doubles = {int(g) for g in group.power(2)}
    cyclic = [set(group.generated((g,)).tolist()) for g in doubles]
    maximal = [c for c in cyclic if not any(c < d for d in cyclic)]
    distinct = {tuple(sorted(c)) for c in maximal if len(c) > 1}
    assert sum(block.size == 2 for block in blocks) == len(distinct)
    images = {tuple(block.turns[g] for block in blocks) for g in range(group.order)}
    assert len(images) == group.order
    for g in range(group.order):
        assert sum(2 * block.turns[g] % block.modulus != 0 for block in blocks) <= 1


@pytest.mark.parametrize(
    ("name", "size", "states"),
    [("Z3xZ3", 8, 81), ("Z4xZ4", 6, 64), ("Z2xZ2xZ2", 3, 8), ("Z2xZ4xZ4", 7, 128), ("Z12", 2, 12), ("D5xZ2xZ2", 4, 40)],
)
def test_a_build_can_ask_for_one_head(name: str, size: int, states: int) -> None:
    made = compile_source(name, "ckda", construction="one-head")
    assert (made.plan.construction, made.dims, made.certificate.states) == ("one-head", ((size,),), ((states,),))
    assert made.factors_per_token == 1


@pytest.mark.parametrize("name", ["Q8", "S4", "Z7xZ7"])
def test_other_groups_and_too_many_states_are_refused(name: str) -> None:
    with pytest.raises(NoConstruction, match="one head would reach 5,764,801" if name == "Z7xZ7" else "does not apply"):
        compile_source(name, "ckda", construction="one-head")


def test_a_wrong_turn_is_refused() -> None:
    group = product_of([3, 3])
    source = over(group, list(range(9)))
    first, *rest = abelian_blocks(from_group(group), range(9))
    moved = max(g for g in range(9) if first.turns[g])
    turns = tuple(2 * t % 3 if g == moved else t for g, t in enumerate(first.turns))
    head = joined([PlanarHead(3, turns, first.signs), *rest], range(9))
    assert head is not None
    program = one_head(source)
    assert program is not None
    broken = replace(program, layers=(replace(program.layers[0], heads=(head,)),))
    with pytest.raises(CertificateFailed):
        certify(broken, source.dfa, target("ckda"))
