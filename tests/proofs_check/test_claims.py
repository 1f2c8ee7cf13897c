"""Every registered claim: its check, its negative control, and how it is written down."""

from __future__ import annotations

import inspect
import re

import pytest

from statetrack.proofs_check.claim import KINDS
from statetrack.proofs_check.runner import claims, control, judge

CLAIMS = claims()
NAMES = tuple(CLAIMS)


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_holds_in_the_fast_budget(name: str) -> None:
    found = judge(CLAIMS[name])
    assert found.verdict in ("proved", "supported", "cited-lemma-needed"), found.detail
    assert found.sizes


@pytest.mark.parametrize("name", NAMES)
def test_a_negative_control_is_refuted_by_a_comparison(name: str) -> None:
    found = control(CLAIMS[name])
    assert found.verdict == "refuted", found.detail
    assert found.detail != "the check looked at nothing"
    assert not found.detail.startswith("AssertionError")


@pytest.mark.parametrize("name", NAMES)
def test_a_claim_is_written_as_the_house_writes_claims(name: str) -> None:
    one = CLAIMS[name]
    assert name == one.id
    assert re.fullmatch(r"(CKDA|GRAZZI|OURS|ERRATA)(-[A-Za-z0-9]+([.+][A-Za-z0-9]+)*)+", name)
    assert one.statement.endswith(".")
    assert one.source.strip()
    assert isinstance(one.hypotheses, tuple)
    assert all(len(text) > 2 and not text.endswith(".") for text in one.hypotheses)
    assert set(one.kinds) <= set(KINDS)


@pytest.mark.parametrize("name", NAMES)
def test_a_control_changes_arguments_of_the_check_to_other_values(name: str) -> None:
    one = CLAIMS[name]
    known = inspect.signature(one.check).parameters
    assert set(one.control) <= set(known)
    for argument, value in one.control.items():
        assert known[argument].default != value


def test_ids_differ_even_on_file_systems_that_ignore_case() -> None:
    assert len({name.lower() for name in NAMES}) == len(NAMES) > 50
