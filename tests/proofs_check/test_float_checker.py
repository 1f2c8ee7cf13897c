"""The independent checker of float proofs: it accepts what the search proved and refuses every changed number."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from statetrack import api
from statetrack.constructions.compiler import Compiled
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_closure import FloatClosure, close_floats, ideal_of
from statetrack.constructions.float_steps import head_tables
from statetrack.constructions.weights import Weights, tensors_digest
from statetrack.errors import CertificateFailed, InvalidFile
from statetrack.proofs_check.float_checker import Arithmetic, Refused, decoded, verify_bytes
from statetrack.theory.automata import Dfa
from statetrack.theory.number_formats import FORMATS_BY_NAME, NumberFormat, number_format

CASES = [
    ("Z8", "ckda", "float32", "bfloat16"),
    ("Z2xZ2", "diag[-1,1]", "bfloat16", "bfloat16"),
    ("(a|b)*abb", "ckda", "bfloat16", "bfloat16"),
    ("(a|b)*a(a|b)", "diag[0,1]", "float32", "float32"),
]


def dfa_of(c: Compiled) -> Dfa:
    assert isinstance(c.automaton, Dfa)
    return c.automaton


@cache
def proved(source: str, target: str, dtype: str, storage: str) -> Weights:
    c = api.build(source, target, check=False)
    weights = lowered(c.program, c.certificate, c.automaton, dtype, storage)
    found = close_floats(weights, ideal_of(c.program, dfa_of(c)))
    assert isinstance(found, FloatClosure), found
    return replace(weights, float_proof=found.proof)


@cache
def offset_weights() -> Weights:
    return api.build("S3", "deltaproduct", construction="permutation", check=False).for_ever("bf16")[1]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(c))
def test_what_the_search_proved_is_accepted(case: tuple[str, str, str, str]) -> None:
    weights = proved(*case)
    facts = verify_bytes(weights.to_bytes())
    assert weights.float_proof is not None
    assert facts["joint"] == weights.float_proof["joint"]
    assert facts["columns"] == sum(len(r) for h in weights.float_proof["heads"] for _, r in h["columns"])


@pytest.mark.parametrize("form", list(FORMATS_BY_NAME.values()), ids=lambda f: f.name)
def test_its_rounding_and_its_reading_of_bits_are_those_of_the_formats(form: NumberFormat) -> None:
    arithmetic, generator = Arithmetic(form.name), random.Random(4)
    scale = arithmetic.scale
    for _ in range(400):
        x = Fraction(generator.randrange(-(10**9), 10**9), 1 << generator.randrange(0, 60))
        if (1 << scale) % x.denominator or form.round(x) is None:
            continue
        assert Fraction(arithmetic.round(int(x * 2**scale), scale, form.name), 1 << scale) == form.round(x)
    kinds = {"bfloat16": "BF16", "float16": "F16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2"}
    if form.name in kinds:
        dtype = np.dtype(np.float16 if form.name == "float16" else getattr(ml_dtypes, form.name))
        patterns = np.arange(1 << (8 * dtype.itemsize), dtype=np.uint16 if dtype.itemsize == 2 else np.uint8)
        for bits, value in zip(patterns.tolist(), patterns.view(dtype).astype(np.float64).tolist(), strict=True):
            if np.isfinite(value):
                assert Fraction(decoded(bits, kinds[form.name], scale), 1 << scale) == Fraction(value)


def mutations(proof: Any, generator: random.Random) -> Any:
    """One number of a proof changed: a column by a last place, a move, a start label, a count, a label."""
    changed = deepcopy(json.loads(json.dumps(proof)))
    head = generator.choice(changed["heads"])
    kind = generator.choice(["column", "drop", "move", "start", "joint", "label", "add", "unmove"])
    label, rows = generator.choice(head["columns"])
    if kind == "column":
        row = generator.choice(rows)
        i = generator.randrange(len(row))
        row[i] = (float.fromhex(row[i]) * 1.25 + 2.0**-20).hex()
    elif kind == "drop":
        rows.pop(generator.randrange(len(rows)))
    elif kind == "add":
        rows.append([(float.fromhex(x) + 0.5).hex() for x in rows[0]])
    elif kind == "move":
        move = generator.choice(generator.choice(head["moves"])[1])
        move[1] += 1
    elif kind == "unmove":
        generator.choice(head["moves"])[1].pop()
    elif kind == "start":
        head["start"][generator.randrange(len(head["start"]))] += 1
    elif kind == "joint":
        changed["joint"] += generator.choice([-1, 1])
    else:
        generator.choice(head["columns"])[0] = label + 1000
    return changed


def test_a_changed_proof_is_refused() -> None:
    generator = random.Random(5)
    for weights in (offset_weights(), proved(*CASES[0]), proved(*CASES[1]), proved(*CASES[2])):
        for _ in range(40):
            with pytest.raises(Refused):
                verify_bytes(replace(weights, float_proof=mutations(weights.float_proof, generator)).to_bytes())


def test_changed_tensors_are_refused_even_with_the_digest_that_fits() -> None:
    weights = offset_weights()
    assert weights.float_proof is not None
    for name, by in (("layers.0.keys", 0.1), ("layers.0.betas", 0.25), ("layers.0.state", 0.5)):
        tensors = dict(weights.tensors)
        tensors[name] = (tensors[name].astype(np.float64) * (1 + by)).astype(tensors[name].dtype)
        proof = dict(weights.float_proof) | {"tensors_sha256": tensors_digest(tensors)}
        with pytest.raises(Refused):
            verify_bytes(replace(weights, tensors=tensors, float_proof=proof).to_bytes())
        with pytest.raises(Refused, match="other tensors"):
            verify_bytes(replace(weights, tensors=tensors).to_bytes())


def test_a_class_that_it_is_not_is_refused_and_so_is_another_format() -> None:
    weights = proved(*CASES[0])
    assert weights.float_proof is not None
    for changes in ({"class": "R"}, {"class": "E"}, {"class": "X"}, {"storage": "float16"}, {"order": "any"}):
        with pytest.raises(Refused):
            verify_bytes(replace(weights, float_proof=dict(weights.float_proof) | changes).to_bytes())


def test_a_file_without_a_proof_and_one_that_is_no_file_are_refused() -> None:
    for data in (b"", b"12345678{}", replace(offset_weights(), float_proof=None).to_bytes()):
        with pytest.raises(Refused, match="no weights file"):
            verify_bytes(data)


def test_steps_in_integers_are_the_steps_of_the_search() -> None:
    from statetrack.proofs_check.float_checker import HeadChecker, WeightsFile

    weights = proved(*CASES[0])
    assert weights.float_proof is not None
    file = WeightsFile(weights.to_bytes())
    head = HeadChecker(file, 0, 0, weights.float_proof["heads"][0], "recurrent")
    tables = head_tables(weights.tensors, 0, 0, number_format(weights.storage))
    for rows in head.columns.values():
        for row in rows:
            for i in range(len(tables.queries)):
                column = np.array([[x / 2**149 for x in row]], dtype=np.float32)
                moved, _ = tables.step(np.array([i]), column, 0)
                assert [Fraction(float(x)) for x in moved[0]] == [Fraction(x, 1 << 149) for x in head.step(i, row, 0)]


def test_check_refuses_a_file_with_a_changed_proof(tmp_path: Any) -> None:
    weights = offset_weights()
    weights.save(tmp_path / "good.safetensors")
    assert api.check(tmp_path / "good.safetensors")["for_ever"]["class"] in ("E", "R")
    bad = replace(weights, float_proof=mutations(weights.float_proof, random.Random(1)))
    bad.save(tmp_path / "bad.safetensors")
    with pytest.raises(CertificateFailed, match="float proof"):
        api.check(tmp_path / "bad.safetensors")


@pytest.mark.parametrize(
    "change", [None, {"tensors_sha256": "0"}, {"certificate": "0"}, {"heads": []}, {"dtype": "fp8"}]
)
def test_a_file_with_an_empty_proof_or_one_about_another_file_is_not_read(
    change: dict[str, Any] | None, tmp_path: Path
) -> None:
    weights, path = offset_weights(), tmp_path / "weights.safetensors"
    assert weights.float_proof is not None
    weights.save(path)
    assert api.load(path).is_for_ever
    replace(weights, float_proof={} if change is None else dict(weights.float_proof) | change).save(path)
    with pytest.raises(InvalidFile, match="float proof is not one about this file"):
        api.load(path)
