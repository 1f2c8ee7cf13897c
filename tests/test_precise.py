"""`build --precision` from the command line: the file, what is printed, and what is refused."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import statetrack as st
from statetrack.cli import main
from statetrack.constructions.weights import tensors_digest
from statetrack.precise import claim_facts

WEIGHTED = Path(__file__).parent / "data" / "formats" / "binvalue.wfa.json"


def facts(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    code = main([*map(str, arguments), "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    return json.loads(said.out)


def test_build_emits_an_encoding_that_is_right_for_ever(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s4.safetensors"
    built = facts(capsys, "build", "S4", "-t", "deltaproduct", "--precision", "bf16", "-o", path)
    assert (built["encoding"], built["dtype"], built["state_format"]) == ("offset", "bfloat16", "bfloat16")
    assert built["for_ever"].startswith("class R")
    shown = facts(capsys, "show", path)
    assert shown["proved_length"] == "every length"
    assert facts(capsys, "check", path)["for_ever"]["class"] == "R"
    ran = facts(capsys, "run", path, "--random", 4, "--length", 300, "--device", "cpu", "--executor", "reference")
    assert ran["wrong"] == 0
    assert ran["checked"].startswith("proof of being right for ever in the file, not checked here")
    assert "warning" not in ran
    assert "refuted" not in ran


def test_a_run_says_that_a_forged_proof_is_refuted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A proof object that names the file's own digests and proves nothing: only `check` looks into it."""
    made, path = st.build("Z60").weights("bfloat16"), tmp_path / "forged.safetensors"
    proof = {"format": "statetrack-float/1", "dtype": "bfloat16", "storage": "bfloat16", "order": "recurrent"}
    proof |= {"tensors_sha256": tensors_digest(made.tensors), "certificate": made.certificate["digest"]}
    heads: list[dict[str, list[Any]]] = [{"start": [], "columns": [], "moves": []}]
    replace(made, float_proof=proof | {"joint": 60, "class": "E", "heads": heads}).save(path)
    how = ["run", str(path), "--random", "16", "--device", "cpu", "--executor", "reference", "--json", "--length"]
    assert main([*how, "400"]) == 1
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert said["proved_length"] == "every length"
    assert "not checked here" in said["checked"]
    assert f"wrong state after {said['first_wrong'] + 1} tokens" in said["refuted"]
    assert printed.err == f"statetrack: {said['refuted']}\n"
    assert main([*how, str(said["first_wrong"])]) == 0
    assert "refuted" not in json.loads(capsys.readouterr().out)
    assert main(["check", str(path)]) == 2


def test_a_wrong_state_past_the_horizon_refutes_nothing() -> None:
    weights = st.build("Z60").weights("bfloat16")
    assert set(claim_facts(weights, 3, 3.0)) == {"checked"}
    assert "up to 4 tokens" in claim_facts(weights, 3, 4.0)["refuted"]


def test_the_empty_word_is_within_every_horizon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "z7.safetensors"
    facts(capsys, "build", "Z7", "--dtype", "bfloat16", "-o", path)
    assert "warning" not in facts(capsys, "run", path, "--word", "", "--device", "cpu")
    word = ";".join(["1"] * 40)
    code = main(["run", str(path), "--word", word, "--device", "cpu", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == (1 if said["wrong"] else 0)
    assert "words of 40 symbols" in said["warning"]


@pytest.mark.parametrize(("m", "tables", "keys"), [(5, "bfloat16", "dyadic"), (9, "float32", None)])
def test_a_planar_group_has_dyadic_keys_or_tables_in_float32(
    m: int, tables: str, keys: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "z.safetensors"
    built = facts(capsys, "build", f"Z{m}", "--precision", "bf16", "-o", path)
    assert (built["encoding"], built["table_format"], built["state_format"]) == ("vectors", tables, "bfloat16")
    assert built.get("keys") == keys
    assert facts(capsys, "check", path)["for_ever"]["class"] == "C"
    ran = facts(capsys, "run", path, "--random", 4, "--length", 300, "--device", "cpu", "--executor", "reference")
    if keys is None:
        assert ran["executor"].endswith("float32 tables, bfloat16 storage, float32 arithmetic, recurrent order")
    assert ran["wrong"] == 0


def test_without_a_proof_build_says_so_and_run_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "z60.safetensors"
    built = facts(capsys, "build", "Z30", "--precision", "e4m3", "--construction", "planar", "-o", path)
    assert built["for_ever"].startswith("not proved")
    assert "symbols (searched" in built["proved_right"]
    # The word that is printed fails in a run of the file, at its last symbol; and it is not within the proved length.
    word, depth = built["failing_word"], int(built["proved_right"].split()[4])
    assert len(word.split()) > depth
    assert built["failing_word_length"].startswith(f"{len(word.split())} symbols")
    assert main(["run", str(path), "--word", word, "--device", "cpu", "--executor", "reference", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["first_wrong"] == len(word.split()) - 1
    main(["run", str(path), "--random", "2", "--length", "50", "--device", "cpu", "--json"])
    assert "50 symbols" in json.loads(capsys.readouterr().out)["warning"]


def test_fused_products_are_asked_for_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    how = ("build", "S4", "-t", "deltaproduct", "--construction", "permutation", "--precision", "bf16")
    assert "fused" not in facts(capsys, *how)["for_ever"]
    assert facts(capsys, *how, "--fused")["for_ever"].endswith("products fused or not")


def test_the_budget_of_float_columns_is_the_caller_s(capsys: pytest.CaptureFixture[str]) -> None:
    how = ("build", "Z30", "--precision", "e4m3", "--construction", "planar", "--max-columns", "40")
    assert "40 float columns" in facts(capsys, *how)["for_ever"]


def test_tables_that_overflow_their_format_are_passed_over_without_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        built = facts(capsys, "build", "S4", "--construction", "quaternion", "--precision", "e4m3")
    assert (built["table_format"], built["for_ever"][:7]) == ("float32", "class R")


def test_a_renormalising_run_is_right_where_the_plain_one_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "z60.safetensors"
    facts(capsys, "build", "Z60", "--dtype", "bfloat16", "-o", path)
    how = ["--random", "4", "--length", "600", "--device", "cpu", "--executor", "reference", "--json"]
    assert main(["run", str(path), *how]) == 1
    capsys.readouterr()
    ran = facts(capsys, "run", path, *how[:-1], "--renormalise", 2)
    assert ran["wrong"] == 0
    assert ran["proved_length"] == "every length"
    assert "warning" not in ran


@pytest.mark.parametrize(
    "arguments",
    [
        ["--precision", "fp7"],
        ["--precision", "bf16", "--dtype", "float64"],
        ["--precision", "bf16", "--proof", "span"],
    ],
    ids=["unknown", "two formats", "span"],
)
def test_mistakes_are_one_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", "Z3", *arguments]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_a_composed_program_without_a_float_proof_is_built_and_said_to_have_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s3.safetensors"
    built = facts(
        capsys, "build", "S3", "-t", "deltanet", "--construction", "blocks", "--precision", "bf16", "-o", path
    )
    assert built["for_ever"].startswith("not proved: no program whose exact states")
    assert facts(capsys, "check", path)["accepted"]


def test_the_values_of_a_weighted_automaton_are_bounded_in_every_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.safetensors"
    facts(capsys, "build", WEIGHTED, "-t", "unconstrained", "-o", path)
    for dtype in ("float16", "bfloat16", "float32"):
        ran = facts(
            capsys, "run", path, "--word", "101", "--dtype", dtype, "--device", "cpu", "--executor", "reference"
        )
        assert ran["values"] == ["1", "2", "5"]
        assert ran["largest_error"] <= ran["error_bound"] < 1
