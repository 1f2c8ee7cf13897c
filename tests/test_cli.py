"""The command line as its user meets it: what it prints, one line for a mistake, nothing half written."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import statetrack
from statetrack import cli, guards
from statetrack.errors import BudgetExceeded
from statetrack.printing import network_facts

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
        (("build", "S5", "--target", "deltanet", "--max-dim", "2"), "raise --max-dim"),
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
        (("build", "s5"), "regex:s5"),
        (("build", "(a"), "read as a regular expression"),
        (("build", ".*"), "--alphabet"),
        (("build", "S3", "--alphabet", "ab"), "was read as a group"),
        (("build", "ab", "--alphabet", "aba"), "twice"),
        (("build", "Z3", "--missing", "zz"), "error, sink or stay"),
        (("build", "Z99999", "--letters", "generators"), "99,999 elements on 99,999 points"),
        (("build", "Z3", "--max-memory", "0"), "--max-memory"),
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


def test_a_word_of_brackets_is_its_letters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dyck.safetensors"
    assert facts(capsys, "build", r"(\[\])*", "-t", "unconstrained", "-o", path)["symbols"] == 2
    said = facts(capsys, "run", path, "--word", "[]", "--device", "cpu")
    assert (said["tokens"], said["outputs"]) == (2, [False, True])


def test_run_takes_the_gpu_if_there_is_one_and_says_where_it_ran(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    place = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    assert f" on {place}" in facts(capsys, "run", s3, "--random", "2", "--length", "4")["executor"]
    assert " on cpu" in facts(capsys, "run", s3, "--random", "2", "--length", "4", "--device", "cpu")["executor"]
    for device, words in (("foo", "know auto, cpu, cuda, cuda:N"), ("cuda:99", "device cuda:99: ")):
        code, printed, err = ran(capsys, "run", s3, "--random", "2", "--device", device)
        assert (code, printed, err.count("\n")) == (2, "", 1)
        assert words in err


def test_formats_and_paths_are_checked_before_the_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwanted(*arguments: object, **named: object) -> None:
        raise AssertionError("built before the arguments were checked")

    monkeypatch.setattr("statetrack.api.build_with", unwanted)
    monkeypatch.chdir(tmp_path)
    source = automaton(tmp_path)
    text = source.read_text()
    cases: list[tuple[tuple[object, ...], str]] = [
        (("Z3", "--dtype", "float8"), "know float64"),
        (("Z3", "-o", "no/x.safetensors"), "cannot be written"),
        (("Z3", "--certificate", "no/x.json"), "cannot be written"),
        (("Z3", "-o", "."), "ordinary file"),
        (("Z3", "-o", "x" * 300), "cannot be written"),
        (("Z3", "-o", "x", "--certificate", tmp_path / "x"), "the same file"),
        ((source, "-o", "bad.json"), "SOURCE itself"),
        ((f"file:{source}", "--certificate", "./bad.json"), "SOURCE itself"),
    ]
    for arguments, words in cases:
        code, printed, err = ran(capsys, "build", *arguments)
        assert (code, printed, err.count("\n")) == (2, "", 1)
        assert words in err
    assert source.read_text() == text
    assert list(tmp_path.iterdir()) == [source]


def test_a_certificate_is_known_by_its_first_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights, certificate = tmp_path / "z3.json", tmp_path / "z3.txt"
    built = facts(capsys, "build", "Z3", "-o", weights, "--certificate", certificate)
    assert facts(capsys, "check", certificate)["digest"] == built["digest"]
    assert facts(capsys, "check", certificate.rename(tmp_path / "Z3.JSON"))["tensors"] == "none in this file"
    assert facts(capsys, "check", weights)["tensors"].startswith("equal")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    code, printed, err = ran(capsys)
    assert (code, err) == (2, "")
    assert printed.count("\n") > 10
    assert printed == ran(capsys, "-h")[1] == ran(capsys, "--help")[1]
    assert ran(capsys, "-h")[0] == 0
    assert ran(capsys, "run", "-h")[1] == ran(capsys, "run", "--help")[1]
    assert "apart by blanks" in " ".join(ran(capsys, "run", "-h")[1].split())
    assert ran(capsys, "--version") == (0, f"statetrack {statetrack.__version__}\n", "")


def test_the_alphabet_of_a_regular_expression_can_be_stated(capsys: pytest.CaptureFixture[str]) -> None:
    for letters in ("abc", "a b c", '["a", "b", "c"]'):
        assert facts(capsys, "build", "[^a]*", "-t", "unconstrained", "--alphabet", letters)["symbols"] == 3


BOUNDED = """
import resource, signal
from statetrack import cli

def limits():
    alarm = signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)
    return resource.getrlimit(resource.RLIMIT_AS), alarm

before = limits()
for bound, value in (("--max-seconds", "0.3"), ("--max-memory", "30")):
    assert cli.main(["build", "S7", "-t", "deltaproduct", bound, value]) == 2
    assert limits() == before
wide = ("--max-seconds", "500", "--max-memory", "4000", "--max-monoid", "100")
assert cli.main(["build", "Z3", *wide, "--json"]) == 0
assert limits() == before
"""


def test_a_build_stops_at_its_bounds_of_time_and_memory() -> None:
    # In a process of its own: one that has freed much memory takes long to need more.
    done = subprocess.run([sys.executable, "-c", BOUNDED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    time_bound, memory_bound = done.stderr.splitlines()
    assert "more than 300 milliseconds: stopped; raise the bound with --max-seconds" in time_bound
    assert "more than 30 MB of memory: stopped; raise the bound with --max-memory" in memory_bound
    assert json.loads(done.stdout)["states"] == 3


def test_one_request_for_too_much_memory_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = ran(capsys, "build", "Z9999", "--max-memory", "50")
    assert (code, err.count("\n")) == (2, 1)
    assert "more than 50 MB of memory" in err


def test_a_time_bound_is_not_taken_for_a_smaller_one_on_the_way() -> None:
    # Searches catch the BudgetExceeded of their own bounds; that of the whole build must pass them.
    with pytest.raises(BudgetExceeded, match="100 milliseconds"):
        _search_that_swallows_errors()


def _search_that_swallows_errors() -> None:
    with guards.bounded(0.1, None):
        for _ in range(10**9):
            with suppress(Exception):
                time.sleep(0.01)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_terminal_of_another_encoding_is_no_error(encoding: str) -> None:
    command = [sys.executable, "-m", "statetrack", "build", "(é|ω)*", "-t", "unconstrained"]
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
    for more in ([], ["--json"]):
        done = subprocess.run([*command, *more], capture_output=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        assert b"Traceback" not in done.stderr
    assert json.loads(done.stdout.decode(encoding))["source"] == "regex '(é|ω)*'"


def test_composed_networks_are_shown_by_depth() -> None:
    two, three = (statetrack.build(name).certificate.data for name in ("Z2", "Z5"))
    shared: dict[str, Any] = {
        "range": two["range"],
        "digest": "0",
        "automaton": {"alphabet": ["a"], "initial": [1, 0, 0]},
    }
    modules: list[dict[str, Any]] = [{"part": 0, "reads": []}, {"part": 1, "reads": []}, {"part": 1, "reads": [0]}]
    stack = shared | {"kind": "stack", "parts": [two, three], "modules": modules, "claims": {"joint": 7}}
    said = network_facts(stack)
    assert (said["layers"], said["dims"], said["states"]) == (2, [[1, 2], [2]], 3)
    assert said["proof"].startswith("stack of 3 networks with certificates, 7 joint states")
    assert [len(row) for row in said["margins"]] == [2, 1]
    assert (said["margins"][1], said["field"]) == (said["margins"][0][1:], "Q, " + network_facts(three)["field"])
    head = two["layers"][0]["heads"][0]
    claims = {"products": 3, "entries": 9, "margin": "1/2"}
    blocks: dict[str, Any] = {
        "kind": "blocks",
        "clock": two,
        "length": 2,
        "buffer": head,
        "accumulator": head,
        "tokens": [1],
        "claims": claims,
    }
    said = network_facts(shared | blocks)
    assert (said["layers"], said["dims"], said["margins"]) == (
        3,
        [[1], [1, 1, 1, 1], [1]],
        [[2], [1, 1, 1, 1], ["1/2"]],
    )
    assert network_facts(shared | {"kind": "linear", "head": head, "claims": {}})["margins"] == [[None]]


WEIGHTED = DATA / "formats" / "binvalue.wfa.json"


def test_every_target_is_explained_or_only_those_named(capsys: pytest.CaptureFixture[str]) -> None:
    said = facts(capsys, "explain", "(ab)*")
    assert (said["states"], said["symbols"], said["monoid"], said["periods"]) == (3, 2, 6, [1])
    assert len(said["targets"]) == 15
    keys = "target verdict expressible layers dims beta_max factors construction theorem proof semantics reason witness"
    assert all(set(row) == set(keys.split()) for row in said["targets"])
    assert facts(capsys, "explain", "a*", "--all") == facts(capsys, "explain", "a*")
    few = facts(capsys, "explain", "Z3", "-t", "diag[-1,1]", "-t", "ckda")["targets"]
    assert [(row["target"], row["verdict"], row["expressible"]) for row in few] == [
        ("diag[-1,1]", "NO", False),
        ("ckda", "YES", True),
    ]
    assert few[0]["theorem"] == "Grazzi Thm. 2"
    assert few[0]["witness"].startswith("repeating the word")
    code, out, err = ran(capsys, "explain", "Z3", "-t", "diag[-1,1]")
    assert (code, err) == (0, "")
    assert "[Grazzi Thm. 2]; witness: repeating the word" in out


def test_an_open_question_is_unknown_and_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither letter has a period alone, a b has period two."""
    edges = {"0": {"a": "1"}, "1": {"b": "2"}, "2": {"a": "3"}, "3": {"b": "0"}}
    four = automaton(tmp_path, states=list("0123"), start="0", accepting=["0"], delta=edges)
    ask = ("explain", four, "--missing", "sink", "-t", "diag[0,1]")
    assert facts(capsys, *ask)["targets"][0]["verdict"] == "NO"
    said = facts(capsys, *ask, "--max-monoid", "2")
    assert (said["targets"][0]["verdict"], said["monoid"]) == ("UNKNOWN", None)
    assert "--max-monoid" in said["unknown"]


@pytest.mark.parametrize("suffix", ["svg", "pdf", "png", "dot"])
def test_a_cascade_is_drawn(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"c.{suffix}"
    said = facts(capsys, "explain", "[ab]*aba[ab]*", "-t", "unconstrained", "--draw", path)
    assert said["picture"] == str(path)
    assert path.stat().st_size > 100


def test_what_cannot_be_explained_or_drawn_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = automaton(tmp_path)
    text = source.read_text()
    fast = ("-t", "unconstrained")
    cases: list[tuple[tuple[object, ...], str]] = [
        (("Z3", "--all", "-t", "ckda"), "--target or --all"),
        (("Z3", "-t", "nowhere"), "know diag[0,1]"),
        (("(a",), "position 0"),
        (("Z3", *fast, "--draw", "c.gif"), "know .svg, .pdf, .png, .dot"),
        (("Z3", *fast, "--draw", "no/c.svg"), "cannot be written"),
        (("Z3", *fast, "--draw", "."), "ordinary file"),
        ((source, *fast, "--draw", source), "SOURCE itself"),
        ((WEIGHTED, *fast, "--draw", "w.svg"), "no cascade to draw"),
        (("Z3", "--max-monoid", "0"), "--max-monoid"),
        ((), "source"),
    ]
    for arguments, words in cases:
        code, printed, err = ran(capsys, "explain", *arguments)
        assert (code, printed, err.count("\n")) == (2, "", 1), arguments
        assert words.lower() in err.lower()
    assert source.read_text() == text
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("target", ["unconstrained", "ckda-wide"])
def test_a_weighted_automaton_is_built_checked_shown_and_run(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, certificate = tmp_path / "w.safetensors", tmp_path / "w.json"
    build = ("build", WEIGHTED, "-t", target, "-o", path, "--certificate", certificate, "--dtype", "float64")
    built = facts(capsys, *build)
    assert (built["states"], built["symbols"]) == (2, 2)
    for file in (path, certificate):
        said = facts(capsys, "check", file, "--expect", built["digest"])
        assert (said["accepted"], said["target"], said["states"]) == (True, target, 2)
    assert facts(capsys, "show", path)["digest"] == built["digest"]
    said = facts(capsys, "run", path, "--word", "10110", "--executor", "reference")
    assert said["values"] == ["1", "2", "5", "11", "22"]
    assert said["kernel"] == pytest.approx([1, 2, 5, 11, 22])
    assert said["largest_error"] <= said["error_bound"] < 1e-9
    said = facts(capsys, "run", path, "--random", "3", "--length", "9", "--executor", "reference")
    assert (said["tokens"], "values" in said) == (27, False)
    assert said["largest_error"] < 1e-9
    assert facts(capsys, "run", path, "--word", "", "--executor", "reference")["tokens"] == 0
    code, printed, err = ran(capsys, "run", path, "--word", "102")
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert "'2' at position 2" in err


def test_a_weighted_automaton_needs_a_target_that_can(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.safetensors"
    for target in ("diag[0,1]", "deltanet[0,1]"):
        code, printed, err = ran(capsys, "build", WEIGHTED, "-t", target, "-o", path)
        assert (code, printed, err.count("\n")) == (2, "", 1)
        assert "--target" in err
    said = facts(capsys, "explain", WEIGHTED, "-t", "unconstrained", "-t", "diag[0,1]")
    assert said["hankel_rank"] == 2
    assert [row["expressible"] for row in said["targets"]] in ([True, None], [True, False])
    assert not path.exists()


@pytest.mark.parametrize("change", ["final", "letters", "select"])
def test_a_weighted_certificate_with_a_changed_number_is_refused(
    change: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from statetrack.constructions.certificate import digest_of

    path = tmp_path / "w.json"
    assert ran(capsys, "build", WEIGHTED, "-t", "unconstrained", "--certificate", path)[0] == 0
    data = json.loads(path.read_text())
    row = {
        "final": data["automaton"]["final"],
        "letters": data["automaton"]["letters"][0][0],
        "select": data["select"][0],
    }
    row[change][0] = 7
    path.write_text(json.dumps(data | {"digest": digest_of(data)}))
    code, printed, err = ran(capsys, "check", path)
    assert (code, printed, err.count("\n")) == (2, "", 1)


def test_a_folder_is_built_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "automata"
    folder.mkdir()
    for name in ("parity.json", "mod6.json", "ab_star.json"):
        shutil.copy(DATA / "automata" / name, folder / name)
    first = facts(capsys, "build", folder, "-t", "diag[-1,1]")["counts"]
    assert first == {"built": 2, "refused": 1, "failed": 0, "lost": 0, "kept": 0}
    goal = folder / "statetrack-diag[-1,1]"
    assert {path.name.split(".")[0] for path in goal.rglob("*.safetensors")} == {"parity", "ab_star"}
    for path in goal.rglob("*.safetensors"):
        assert facts(capsys, "check", path)["target"] == "diag[-1,1]"
    again = facts(capsys, "build", folder, "-t", "diag[-1,1]")
    assert (again["counts"]["kept"], [job["file"] for job in again["jobs"] if job["status"] == "refused"]) == (
        3,
        ["mod6.json"],
    )
    code, out, _ = ran(capsys, "build", folder, "-t", "diag[-1,1]")
    assert code == 0
    assert all(name in out for name in ("parity.json", "mod6.json", "ab_star.json"))
    assert "Grazzi Thm. 2" in " ".join(out.split())


def test_a_folder_with_an_automaton_that_is_none_has_exit_code_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DATA / "automata" / "parity.json", tmp_path / "parity.json")
    (tmp_path / "broken.json").write_text("{")
    out = tmp_path / "out"
    code, printed, err = ran(capsys, "build", tmp_path, "-t", "ckda", "-o", out)
    assert code == 1
    assert "Traceback" not in err + printed
    assert "broken.json" in printed
    assert len([*out.rglob("*.safetensors")]) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("{folder}", "--certificate", "c.json"), "not for a folder"),
        (("{folder}", "--alphabet", "ab"), "not for a folder"),
        (("Z3", "--jobs", "2"), "for a folder"),
        (("Z3", "--recursive"), "for a folder"),
        (("Z3", "--retry"), "for a folder"),
        (("Z3", "--scheduler", "tcp://localhost:1"), "for a folder"),
        (("{folder}", "-t", "nowhere"), "know diag[0,1]"),
        (("{folder}", "--dtype", "float8"), "know float64"),
        (("{folder}",), "no automaton file in it"),
    ],
)
def test_a_folders_options_are_for_folders(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if len(arguments) > 1:
        shutil.copy(DATA / "automata" / "parity.json", tmp_path)
    code, printed, err = ran(capsys, "build", *(a.format(folder=tmp_path) for a in arguments))
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert words in err


@pytest.mark.parametrize("target", ["ckda", "diag[0,1]", "deltanet"])
def test_a_stack_is_built_checked_shown_and_run(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s.safetensors"
    built = facts(capsys, "build", "[ab]*aba[ab]*", "-t", target, "-o", path)
    assert built["proof"].startswith("stack of 3 networks")
    assert facts(capsys, "check", path)["kind"] == "stack"
    shown = facts(capsys, "show", path)
    assert (shown["layers"], shown["dims"], shown["states"]) == (built["layers"], built["dims"], 4)
    assert shown["proved_length"] == "every length" or shown["proved_length"] >= 5
    said = facts(capsys, "run", path, "--word", "bbaba", "--executor", "reference")
    assert (said["outputs"], said["wrong"]) == ([False, False, False, False, True], 0)
    assert facts(capsys, "run", path, "--random", "8", "--length", "64", "--executor", "reference")["wrong"] == 0


def test_a_file_of_an_older_version_is_one_line(s3: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = s3.read_bytes()
    assert whole.count(b"statetrack-weights/2") == 1
    s3.write_bytes(whole.replace(b"statetrack-weights/2", b"statetrack-weights/1"))
    for command in (("check",), ("show",), ("run", "--random", "2")):
        code, printed, err = ran(capsys, command[0], s3, *command[1:])
        assert (code, printed, err.count("\n")) == (2, "", 1)
        assert "statetrack build" in err


def test_a_missing_tensor_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from statetrack.constructions.weights import Weights, load_weights

    path = tmp_path / "s.safetensors"
    assert ran(capsys, "build", "[ab]*aba[ab]*", "-t", "ckda", "-o", path)[0] == 0
    weights = load_weights(path)
    for name in ("layers.1.wires.0", "layers.0.route", "layers.2.codebook.0", "answer"):
        tensors = {n: t for n, t in weights.tensors.items() if n != name}
        assert len(tensors) == len(weights.tensors) - 1, name
        Weights(weights.dtype, tensors, weights.certificate, weights.automaton).save(path)
        code, printed, err = ran(capsys, "check", path)
        assert (code, printed, err.count("\n")) == (2, "", 1)
        code, printed, err = ran(capsys, "run", path, "--random", "2", "--executor", "reference")
        assert (code, printed, err.count("\n")) == (2, "", 1), name


def test_the_program_starts_as_a_module_and_as_a_script() -> None:
    for command in ([sys.executable, "-m", "statetrack"], [shutil.which("statetrack") or sys.executable]):
        if command == [sys.executable]:
            continue
        done = subprocess.run([*command, "build", "Z3", "--json"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["states"] == 3
