"""Which groups one layer tracks: certificates through the checker, witnesses through the independent check."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

import statetrack as st
from statetrack.constructions.atlas import built, decide, is_realisable
from statetrack.constructions.compiler import compile_source
from statetrack.constructions.explain import describe, explain
from statetrack.constructions.multihead import decoder_sizes, realise, subdirect
from statetrack.constructions.planar_heads import planar_heads
from statetrack.constructions.shared_heads import shared_tracker
from statetrack.constructions.source import Options, from_group
from statetrack.constructions.targets import target
from statetrack.errors import CertificateFailed
from statetrack.proofs_check import networks
from statetrack.proofs_check.witness import verify_witness
from statetrack.theory import cayley_tables
from statetrack.theory.automata import from_table
from statetrack.theory.cayley_tables import binary_polyhedral, projective, semidirect
from statetrack.theory.finite_group import (
    generating_set,
    is_abelian,
    library,
    minimal_normals,
    quotient,
    regular,
    small_group,
    squares,
)
from statetrack.theory.groups import Group, direct_product, named_group, permutation_group

CKDA = target("ckda")
CATALOGUE = [(12, 3), (20, 3), (24, 3), (36, 9), (48, 29)]
SUBDIRECT = [(24, 13), (36, 3), (48, 50), (60, 9)]


def settled(group: Group, letters: str = "all") -> str:
    """The verdict, with its certificate through the checker or its witness through the independent check."""
    table = cayley_tables.from_group(group)
    found = decide(table)
    if found.verdict:
        program, certificate = built(found, from_group(group, letters), CKDA)
        assert program.depth == 1
        assert program.factors_per_token <= 1
        assert float(program.beta_max) <= 2
        facts = networks.verify(certificate.text())
        assert facts["states"] == group.order
        assert facts["target"] == "ckda"
    if found.verdict is False:
        assert found.witness is not None
        verify_witness(table.table.tolist(), found.witness.to_json())
    return found.word


def test_every_group_of_order_up_to_60_that_planar_heads_do_not_track_is_decided() -> None:
    tables = [cayley_tables.from_group(small_group(n, i)) for n, i, _ in library()]
    rest = [table for table in tables if not is_abelian(table, squares(table))]
    words = [decide(table).word for table in rest]
    assert len(tables) - len(rest) == 273
    assert {word: words.count(word) for word in set(words)} == {"YES": 24, "NO": 15}


@pytest.mark.parametrize("key", CATALOGUE + SUBDIRECT, ids=str)
def test_a_tracker_of_several_heads_is_certified_and_accepted(key: tuple[int, int]) -> None:
    assert settled(small_group(*key)) == "YES"


@pytest.mark.parametrize("key", [(n, i) for n, i, _ in library() if n in (8, 16, 18, 30)], ids=str)
def test_planar_heads_are_certified_and_accepted(key: tuple[int, int]) -> None:
    group = small_group(*key)
    heads = planar_heads(cayley_tables.from_group(group))
    if heads is not None:
        assert settled(group) == "YES"


def test_the_lattice_test_counts_the_hidden_states_of_planar_heads() -> None:
    for key in ((8, 4), (16, 9), (24, 4), (32, 49), (32, 44)):
        group = small_group(*key)
        found = decide(cayley_tables.from_group(group))
        _, certificate = built(found, from_group(group, "all"), CKDA)
        assert found.tracker is not None
        assert found.tracker.planar is not None
        assert certificate.joint == found.tracker.planar.states
        assert decoder_sizes(certificate.data) >= group.order


@pytest.mark.parametrize("name", ["S5", "A6", "S6"])
def test_symmetric_and_alternating_groups_past_the_bound_are_refused(name: str) -> None:
    assert settled(named_group(name)) == "NO"
    assert decide(projective(7)).word == "NO"


@pytest.mark.parametrize("name", ["S2", "S3", "S4", "A5", "Q8"])
def test_small_symmetric_groups_and_those_of_the_paper_are_tracked(name: str) -> None:
    assert settled(named_group(name), "generators") == "YES"


def test_q8_is_trackable_but_has_no_bijective_decoder() -> None:
    keys = [(8, 4), (24, 3), (20, 3), (60, 5), (24, 12), (8, 3), (16, 6)]
    found = {key: is_realisable(cayley_tables.from_group(small_group(*key))) for key in keys}
    assert found == {(8, 4): False, (24, 3): False, (20, 3): False, (60, 5): False, (24, 12): True, (8, 3): True,
                     (16, 6): False}  # fmt: skip


def random_group(draw: random.Random, most: int) -> Group:
    """Random permutations, or a subgroup of a product of named groups."""
    names = ("S3", "S4", "A4", "D4", "Q8", "Z4", "Z9", "D5", "Z7", "Q12", "D6", "Z3")
    while True:
        if draw.random() < 0.4:
            degree = draw.randint(3, 7)
            rows = [tuple(draw.sample(range(degree), degree)) for _ in range(2)]
        else:
            parts = [named_group(draw.choice(names)) for _ in range(2)]
            whole = direct_product("product", parts)
            rows = [whole.permutation(draw.randrange(whole.order)) for _ in range(draw.randint(1, 3))]
        try:
            return permutation_group("random", rows, max_order=most)
        except st.BudgetExceeded:
            continue


def test_random_groups_get_no_wrong_verdict() -> None:
    draw = random.Random(5)
    words = [settled(random_group(draw, 120), "generators") for _ in range(40)]
    assert words.count("YES") > 20
    assert "NO" in words


def test_build_and_explain_take_one_layer_before_more() -> None:
    made = compile_source("Q8", "ckda")
    assert made.plan.construction == "multihead"
    assert made.layers == 1
    assert made.run(["i", "j"]) == ("i", "-k")
    (row,) = explain("(1 2 3 4 5);(2 3 5 4)", ["ckda"])
    assert (row.verdict, row.layers) == ("YES", 1)
    assert str(describe("S5")["one_layer"]).startswith("NO: law U6")
    assert describe("Q8")["one_layer"].startswith("YES")


def test_a_permutation_automaton_of_a_tracked_group_needs_one_layer() -> None:
    # The points of Q8's action on two copies of four cosets: states are fewer than elements.
    made = compile_source("(1 2 3 4 5);(2 3 5 4)", "ckda", options=Options(letters="generators"))
    assert made.layers == 1
    assert len(made.source.dfa.alphabet) == 2


def test_quotients_that_do_not_tell_the_elements_apart_are_refused() -> None:
    group = cayley_tables.from_group(named_group("Z2xA4"))
    below, place = quotient(group, minimal_normals(group)[0])
    found = decide(below)
    assert found.tracker is not None
    wrong = subdirect(group, [(found.tracker, place)], "too little")
    with pytest.raises(CertificateFailed):
        realise(wrong, from_group(named_group("Z2xA4"), "all"), CKDA)


def test_the_binary_tetrahedral_group_takes_five_heads() -> None:
    group = binary_polyhedral(3)
    found = decide(group)
    program, certificate = built(found, from_group(regular(group), "all"), CKDA)
    assert [size for size in program.dims[0] if size == 4] == [4, 4, 4]
    assert networks.verify(certificate.text())["states"] == 24


def test_the_adapted_head_tracks_five_states_that_its_group_moves() -> None:
    """Hidden states are elements of S5: a query that tells the five states apart from the start is not enough."""
    rows = [(0, 1), (2, 3), (4, 4), (1, 0), (3, 2)]
    edges = {(str(q), x): str(p) for q, row in enumerate(rows) for x, p in zip("ab", row, strict=True)}
    dfa = from_table(["a", "b"], list("01234"), "0", edges, dict.fromkeys("1234", True))
    made = st.build(dfa, "ckda", construction="adapted")
    assert made.run("baabbabaab" * 4) == dfa.run("baabbabaab" * 4)


def test_s5_over_letters_of_an_adapted_frame_takes_one_head() -> None:
    # A four-cycle, a swap and a three-cycle generate S5; with a five-cycle more layers are needed.
    made = compile_source("(1 2 3 5);(3 4);(1 3 2)", "ckda", options=Options(letters="generators"))
    assert (made.plan.construction, made.dims) == ("adapted", ((4,),))
    assert networks.verify(made.certificate.text())["states"] == 120
    five = compile_source("(1 2 3 4 5);(1 2)", "ckda", options=Options(letters="generators"))
    assert five.layers > 1


def test_s3_wr_z2_takes_four_heads() -> None:
    rows = [(1, 2, 0, 3, 4, 5), (1, 0, 2, 3, 4, 5), (3, 4, 5, 0, 1, 2)]
    group = permutation_group("S3 wr Z2", rows)
    assert group.order == 72
    assert settled(group, "generators") == "YES"


@pytest.mark.parametrize(("key", "heads"), [((20, 3), 2), ((36, 9), 4), ((52, 3), 2)], ids=str)
def test_heads_that_share_letters_are_two_for_a_cyclic_part_and_four_else(key: tuple[int, int], heads: int) -> None:
    group = small_group(*key)
    found = decide(cayley_tables.from_group(group))
    program, certificate = built(found, from_group(group, "all"), CKDA)
    assert program.dims == ((4,) * heads,)
    assert networks.verify(certificate.text())["states"] == group.order


def test_the_number_of_shared_heads_does_not_grow_with_the_group() -> None:
    group = semidirect((17,), lambda v: (4 * v[0],), 4, "Z17:Z4")
    letters = replace(regular(group), generators=generating_set(group))
    tracker = shared_tracker(group)
    assert tracker is not None
    program, certificate = realise(tracker, from_group(letters, "generators"), CKDA)
    assert program.dims == ((4, 4),)
    assert networks.verify(certificate.text())["states"] == 68


@pytest.mark.parametrize("key", [(21, 1), (12, 3), (24, 3), (8, 4), (9, 2)], ids=str)
def test_other_groups_have_no_heads_that_share_letters(key: tuple[int, int]) -> None:
    assert shared_tracker(cayley_tables.from_group(small_group(*key))) is None


def test_a_table_without_generators_of_its_own_takes_all_elements() -> None:
    points = regular(cayley_tables.from_group(small_group(6, 1)))
    assert points.generators == tuple(range(6))
