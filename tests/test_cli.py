"""The command line as its user meets it: what it prints, one line for a mistake, nothing half written."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from statetrack import cli

DATA = Path(__file__).parent / "data"


def ran(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = cli.main([str(a) for a in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def facts(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = ran(capsys, *arguments, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture
def s3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "s3.safetensors"
    assert ran(capsys, "build", "S3", "--target", "ckda", "-o", path)[0] == 0
    return path


def test_build_check_show_and_run_agree_on_the_digest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, certificate = tmp_path / "s5.safetensors", tmp_path / "s5.json"
    built = facts(capsys, "build", "S5", "--target", "deltaproduct", "-o", path, "--certificate", certificate)
    assert (built["factors_per_token"], built["dims"], built["states"]) == (4, [[5]], 120)
    assert facts(capsys, "check", path)["digest"] == built["digest"]
    assert facts(capsys, "check", certificate, "--expect", built["digest"])["digest"] == built["digest"]
    assert facts(capsys, "show", path)["digest"] == built["digest"]
    trace = facts(capsys, "run", path, "--random", "8", "--length", "64", "--executor", "reference")
    assert (trace["wrong"], trace["tokens"], trace["first_wrong"]) == (0, 512, None)
    assert "reference on cpu" in trace["executor"]


def test_a_word_is_answered_symbol_by_symbol(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = facts(capsys, "run", s3, "--word", "(12);(123);(123)", "--executor", "reference")
    assert said["outputs"] == ["(12)", "(13)", "(23)"]
    assert said["wrong"] == 0
    assert facts(capsys, "run", s3, "--word", "", "--executor", "reference")["tokens"] == 0


def test_another_number_format_is_lowered_from_the_exact_program(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = facts(capsys, "run", s3, "--random", "4", "--length", "32", "--dtype", "float64", "--executor", "reference")
    assert "float64 storage" in said["executor"]
    assert said["proved_length"] > 10**9


@pytest.mark.parametrize("name", ["div3.dot", "div3.jff", "div3.json", "div3.automata_lib.json", "div3.list.json"])
def test_automaton_files_are_built_and_give_the_listed_verdicts(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.safetensors"
    assert facts(capsys, "build", DATA / "formats" / name, "-t", "ckda", "-o", path)["dims"] == [[2]]
    for line in (DATA / "formats" / "words.txt").read_text().splitlines():
        if line.startswith(("#", "~")):
            continue
        word, verdict = line.split("\t")
        said = facts(capsys, "run", path, "--word", word, "--executor", "reference")
        assert said["outputs"][-1] is (verdict == "accept")


@pytest.mark.parametrize("pattern", ["(0|10*1)*", "(ab)*"])
def test_regular_expressions_are_built(pattern: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "r.safetensors"
    target = "unconstrained" if "ab" in pattern else "diag[-1,1]"
    assert facts(capsys, "build", pattern, "-t", target, "-o", path)["states"] in (2, 3)
    assert facts(capsys, "check", path)["accepted"] is True


def automaton(tmp_path: Path, **changes: object) -> Path:
    data: dict[str, object] = {
        "alphabet": ["a", "b"],
        "states": ["x", "y"],
        "start": "x",
        "accepting": ["x"],
        "delta": {"x": {"a": "y", "b": "x"}, "y": {"a": "x", "b": "y"}},
    }
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(data | changes))
    return path


def test_a_mistake_is_one_line_exit_code_two_and_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.safetensors"
    edges = {"x": {"a": "y", "b": "x"}, "y": {"a": "x"}}
    cases: list[tuple[object, tuple[str, ...]]] = [
        ("G7", ("unknown group 'G7'", "regex:")),
        ("Q9", ("unknown group", "Qn")),
        ("(a", ("position 0",)),
        ("a**b(", ("position",)),
        ("(1 2)(2 2)", ("stand once",)),
        (automaton(tmp_path, delta=edges), ("'y'", "'b'", "--missing")),
    ]
    for source, words in cases:
        code, printed, err = ran(capsys, "build", source, "-o", out)
        assert (code, printed, err.count("\n")) == (2, "", 1)
        assert all(word in err for word in words), err
        assert list(tmp_path.glob("*.safetensors*")) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start": "z"}, ("start state 'z'",)),
        ({"accepting": ["z"]}, ("'z'",)),
        ({"delta": {"x": {"a": "z", "b": "x"}, "y": {"a": "x", "b": "y"}}}, ("'z'", "'a'")),
        ({"delta": {"x": {"a": "y", "c": "x"}, "y": {"a": "x", "b": "y"}}}, ("'c'",)),
        ({"states": ["x", "y", "x"]}, ("'x'",)),
        ({"states": []}, ("state",)),
    ],
)
def test_a_faulty_automaton_is_named(
    changes: dict[str, object], words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, err = ran(capsys, "build", automaton(tmp_path, **changes))
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert all(word in err for word in words), err


def test_a_repeated_key_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "twice.json"
    path.write_text(
        '{"alphabet": ["a"], "states": ["x"], "start": "x", "accepting": [], "delta": {"x": {"a": "x", "a": "x"}}}'
    )
    code, _, err = ran(capsys, "build", path)
    assert (code, err.count("\n")) == (2, 1)
    assert "'a'" in err


def test_a_foreign_symbol_is_named_with_its_position(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, err = ran(capsys, "run", s3, "--word", "(12);(99)")
    assert (code, printed) == (2, "")
    assert "'(99)' at position 1" in err


@pytest.mark.parametrize("keep", [0, 7, 100, -9])
def test_a_truncated_file_is_one_line(keep: int, s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    s3.write_bytes(s3.read_bytes()[:keep])
    for command in ("check", "show"):
        code, printed, err = ran(capsys, command, s3)
        assert (code, printed, err.count("\n")) == (2, "", 1)


def test_a_hand_edited_file_is_refused(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = s3.read_bytes()
    for old, new in ((b'\\"start\\":0', b'\\"start\\":1'), (whole[-8:], bytes(8 * [63]))):
        assert old in whole
        s3.write_bytes(whole.replace(old, new))
        code, _, err = ran(capsys, "check", s3)
        assert (code, err.count("\n")) == (2, 1)
        assert "digest" in err


def test_tensors_that_are_not_the_certified_program_are_refused(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import numpy as np

    from statetrack.constructions.weights import Weights, load_weights

    weights = load_weights(s3)
    tensors = dict(weights.tensors)
    tensors["layers.0.keys"] = np.nextafter(tensors["layers.0.keys"], np.float32(2))
    Weights(weights.dtype, tensors, weights.certificate, weights.dfa).save(s3)
    code, _, err = ran(capsys, "check", s3)
    assert code == 2
    assert "not the certified program" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("build", "Z3", "--target", "diag[-1,1]"), "Grazzi Thm. 2"),
        (("build", "A5", "--target", "ckda", "--max-dim", "3"), "CKDA Lemma 16"),
        (("build", "(ab)*", "--target", "ckda"), "--target unconstrained"),
        (("build", "Z3", "--target", "nowhere"), "know diag[0,1]"),
        (("build", "Z3", "--proof", "faith"), "closure"),
        (("build", "Z3", "-o", "no/such/folder/x.safetensors"), "cannot be written"),
        (("build", "S20", "--target", "deltaproduct"), "--max-order"),
        (("build",), "source"),
        (("frobnicate",), "frobnicate"),
        (("run", "nowhere.safetensors", "--word", "a"), "no such file"),
        (("run", "nowhere.safetensors"), "--word"),
        (("check", "nowhere.json"), "cannot be read"),
        (("build", "Z3", "--max-dim", "three"), "--max-dim"),
    ],
)
def test_refusals_and_wrong_arguments_are_one_line(
    arguments: tuple[str, ...], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, err = ran(capsys, *arguments)
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert word.lower() in err.lower()


def test_a_certificate_that_names_another_target_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from statetrack.constructions.certificate import digest_of

    path = tmp_path / "lie.json"
    assert ran(capsys, "build", "Z3", "--certificate", path)[0] == 0
    data = json.loads(path.read_text())
    data["range"]["target"] = "deltanet"
    path.write_text(json.dumps(data | {"digest": digest_of(data)}))
    code, _, err = ran(capsys, "check", path)
    assert (code, err.count("\n")) == (2, 1)
    assert "'deltanet'" in err


def test_only_ordinary_files_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for output in (tmp_path, "/dev/null", ".", tmp_path / ("x" * 300)):
        code, printed, err = ran(capsys, "build", "Z3", "-o", output)
        assert (code, printed, err.count("\n")) == (2, "", 1)
    assert not Path("/dev/null").is_file()


def test_a_long_regular_expression_is_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert facts(capsys, "build", "(" + "|".join(["a"] * 200) + ")*", "-t", "ckda")["states"] == 1


def test_wrong_states_give_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "z60.safetensors"
    assert ran(capsys, "build", "Z60", "-o", path, "--dtype", "bfloat16", "--no-check")[0] == 0
    code, out, _ = ran(capsys, "run", path, "--random", "16", "--length", "400", "--executor", "reference", "--json")
    said = json.loads(out)
    assert code == 1
    assert said["wrong"] > 0
    assert said["first_wrong"] >= said["proved_length"]


def test_targets_and_groups_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "targets", "--json")
    assert code == 0
    assert {row["target"] for row in json.loads(out)} >= {"ckda", "deltaproduct", "deltanet", "unconstrained"}
    assert "dicyclic" in ran(capsys, "groups")[1]


def test_one_state_unreachable_states_and_no_letters_are_no_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "e.safetensors"
    lonely = automaton(tmp_path, alphabet=[], delta={})
    for source in (lonely, "Z1", "a*"):
        assert facts(capsys, "build", source, "-o", path)["states"] == 1
        assert facts(capsys, "run", path, "--word", "", "--executor", "reference")["wrong"] == 0
    code, _, err = ran(capsys, "build", lonely, "-o", path)
    assert code == 0, err
    assert ran(capsys, "run", path, "--random", "3", "--length", "5")[0] == 2


def test_the_program_starts_as_a_module_and_as_a_script() -> None:
    for command in ([sys.executable, "-m", "statetrack"], [shutil.which("statetrack") or sys.executable]):
        if command == [sys.executable]:
            continue
        done = subprocess.run([*command, "build", "Z3", "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["states"] == 3
