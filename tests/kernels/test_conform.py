"""`conform` on kernels that are right, and on kernels that are wrong in one way each."""

# pyright: basic

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from statetrack.cli import main
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels import fla_wrappers
from statetrack.kernels.api import ckda
from statetrack.kernels.conform import NothingRan, conform, judge, replay, require_one, smallest
from statetrack.kernels.conform_checks import Row
from statetrack.kernels.failing import append_recipe, digest, read_recipes
from statetrack.kernels.layouts import Kernel, load_kernel
from statetrack.kernels.trials import CASES, DRIFTS, drift_trial, load_trial, save_trial, tracker_trial

SMALL: dict[str, Any] = {"words": 2, "key_size": 8, "value_size": 8, "lengths": (120,)}


def _settings(how: dict[str, Any]) -> dict[str, Any]:
    return SMALL | how


Ours = Callable[..., tuple[Tensor, Tensor | None]]


def rows(function: Ours, **how: Any) -> list[Row]:
    return list(conform(Kernel("broken", function), **_settings(how)))


def failures(function: Ours, **how: Any) -> set[tuple[str, str]]:
    return {(row.case, row.check) for row in rows(function, **how) if row.status == "fail"}


@pytest.mark.parametrize("backend", ["torch", "naive"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_our_kernels_pass_every_check(backend: str, dtype: str) -> None:
    short: dict[str, Any] = {"lengths": (40,)} if backend == "naive" else {}
    kernel = Kernel("ckda", ckda, options={"backend": backend})
    found = list(
        conform(kernel, dtype=dtype, **_settings({"cases": ["parity", "S5", "A5, signed gates", "resets"]} | short))
    )
    assert {row.status for row in found} == {"pass"}
    assert all(row.horizon == row.length for row in found if row.check == "decode" and row.required == row.length)


def test_all_trackers_are_decoded_right_by_the_definition_in_float64() -> None:
    found = rows(lambda *a, **k: ckda(*a, **k, backend="torch"), dtype="float64", checks=["decode"])
    assert [row.case for row in found] == list(CASES)
    assert all(row.status == "pass" and row.horizon == 120 for row in found)
    assert all(row.bound is None or row.bound > 1e10 for row in found)


@pytest.mark.parametrize(
    ("function", "options", "refused"),
    [
        (fla_wrappers.chunk_kda, {}, {"signed gates", "gates 0"}),
        (fla_wrappers.chunk_kda, {"signed_gate": True}, {"gates 0"}),
        (fla_wrappers.chunk_delta_rule, {}, {"signed gates", "gates 0"}),
        (fla_wrappers.chunk_gated_delta_rule, {}, {"signed gates", "gates 0"}),
        (fla_wrappers.chunk_gated_delta_product, {}, {"signed gates", "gates 0"}),
    ],
)
def test_kernels_in_the_layout_of_fla_pass_what_their_gates_can_say(
    function: Ours, options: dict[str, Any], refused: set[str]
) -> None:
    kernel = Kernel(function.__name__, function, "fla", {"backend": "torch", **options})
    found = list(
        conform(kernel, **_settings({"cases": ["S3", "S5", "resets", "S3, signed gates", "(ab)*, gates 0 and 1"]}))
    )
    for row in found:
        expected = "refused" if any(part in row.case for part in refused) else "pass"
        assert row.status == expected, row


def test_a_decoder_without_gradients_is_refused_there_only() -> None:
    kernel = Kernel("fused_recurrent_kda", fla_wrappers.fused_recurrent_kda, "fla", {"backend": "torch"})
    found = list(conform(kernel, **_settings({"cases": ["S3"]})))
    assert {row.check for row in found if row.status == "refused"} == {"gradient"}
    assert {row.status for row in found if row.check != "gradient"} == {"pass"}


def rounded_keys(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    k = torch.nn.functional.normalize(k.float(), dim=-1).bfloat16().to(k.dtype)
    options["normalize_keys"] = False
    return ckda(q, k, v, **options)


def without_signs(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    alpha: Tensor | None = options["alpha"]
    options["alpha"] = None if alpha is None else alpha.abs()
    return ckda(q, k, v, **options)


def clipped_beta(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    return ckda(q, k, v, **options | {"beta": options["beta"].clamp(max=1.0)})


def stale_state(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    o, _ = ckda(q, k, v, **options)
    return o, options["initial_state"].clone()


def one_sequence(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    bounds = options.pop("cu_seqlens", None)
    if bounds is None:
        return ckda(q, k, v, **options)
    state = options["initial_state"]
    o, last = ckda(q, k, v, **options | {"initial_state": state[:1]})
    assert last is not None
    return o, last.expand_as(state)


def halved_gradient(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
    return ckda(q, k.detach() + 0.5 * (k - k.detach()), v, **options)


@pytest.mark.parametrize(
    ("broken", "cases", "expected"),
    [
        (rounded_keys, ["S5"], {(DRIFTS[0], "drift")}),
        (without_signs, ["S3, signed gates", "S3"], {("S3, signed gates", "decode")}),
        (clipped_beta, ["parity", "resets"], {("parity", "decode"), (DRIFTS[1], "drift")}),
        (stale_state, ["S3"], {("S3", "split"), (DRIFTS[1], "drift")}),
        (one_sequence, ["S4"], {("S4", "varlen")}),
        (halved_gradient, ["S3"], {("S3", "gradient")}),
    ],
)
def test_every_broken_kernel_is_caught_with_a_failing_input_that_fails_again(
    broken: Ours, cases: list[str], expected: set[tuple[str, str]], tmp_path: Path
) -> None:
    found = [row for row in rows(broken, cases=cases, save=tmp_path) if row.status != "pass"]
    assert all(row.status == "fail" for row in found)
    caught = {(row.case, row.check): row for row in found}
    assert expected <= set(caught)
    for key in expected:
        row = caught[key]
        assert row.saved is not None
        assert row.minimal is not None
        (again,) = replay(Kernel("broken", broken), Path(row.saved))
        assert (again.status, again.length, again.case) == ("fail", row.minimal, row.case)
        assert [x.status for x in replay(Kernel("whole", ckda), Path(row.saved))] == ["pass"]


def test_what_is_right_about_a_broken_kernel_is_not_blamed() -> None:
    assert failures(without_signs, cases=["S3"], checks=["decode", "gradient", "drift"]) == set()
    assert failures(clipped_beta, cases=["resets"], checks=["decode", "split", "varlen", "gradient"]) == set()
    assert failures(one_sequence, cases=["S3"], checks=["decode", "split", "gradient"]) == set()


def test_the_failing_input_is_one_word_and_one_token_shorter_does_not_fail(tmp_path: Path) -> None:
    kernel = Kernel("broken", rounded_keys)
    trial = drift_trial(DRIFTS[0], dtype=torch.float32, words=3, length=300, key_size=8, value_size=8)
    row = judge(kernel, trial, "drift", save=tmp_path)
    assert row.saved is not None
    small, facts = load_trial(Path(row.saved))
    assert small.q.shape[0] == small.q.shape[2] == 1
    assert facts["check"] == "drift"
    assert judge(kernel, small, "drift").status == "fail"
    assert judge(kernel, small.part(0, small.length - 1), "drift").status == "pass"


def test_bisection_finds_the_length_from_which_on_a_predicate_holds() -> None:
    trial = tracker_trial("S3", dtype=torch.float32, words=2, heads=2, length=100, key_size=8, value_size=8)
    for threshold in (1, 2, 37, 99, 100):
        for hint in (None, 0, 36, 37, 99, 100):
            found = smallest(trial, lambda part, n=threshold: part.length >= n, hint)
            assert found.length == threshold


def test_inputs_that_lose_their_states_by_themselves_are_no_fault_of_the_kernel() -> None:
    """Z60 with keys in bfloat16: the float64 run of the same inputs goes wrong too, and no more is required."""
    (row,) = rows(ckda, dtype="bfloat16", cases=["Z60"], checks=["decode"], lengths=(600,))
    assert row.status == "pass"
    assert row.required is not None
    assert row.reference is not None
    assert row.horizon is not None
    assert row.required < row.reference < 600
    assert row.horizon >= row.required


def test_a_failing_input_is_kept_as_a_line_that_makes_it_again(tmp_path: Path) -> None:
    path = tmp_path / "more" / "failing.jsonl"
    found = {row.case: row for row in rows(rounded_keys, cases=["S5"], checks=["drift"], save=path)}
    found |= {row.case: row for row in rows(clipped_beta, cases=["S3"], checks=["decode"], save=path)}
    failed = [row for row in found.values() if row.status == "fail"]
    assert [row.case for row in failed] == [*DRIFTS, "S3"]
    assert path.stat().st_size < 800 * len(failed)
    again = replay(Kernel("broken", rounded_keys), path)
    assert [(row.case, row.length) for row in again] == [(row.case, row.minimal) for row in failed]
    assert [row.status for row in again] == ["fail", "fail", "pass"]
    assert [row.status for row in replay(Kernel("clipped", clipped_beta), path)][2] == "fail"
    assert {row.status for row in replay(Kernel("whole", ckda), path)} == {"pass"}
    for (trial, line), row in zip(read_recipes(path), failed, strict=True):
        assert digest(trial) == line["sha256"]
        assert trial.letters is not None
        assert trial.letters[0, :64, 0].tolist() == line["letters"]
        assert (line["check"], trial.q.shape[0], trial.q.shape[2], trial.length) == (row.check, 1, 1, row.minimal)


def test_a_line_whose_input_is_made_otherwise_today_is_refused(tmp_path: Path) -> None:
    trial = tracker_trial("S3", dtype=torch.float32, words=2, heads=1, length=9, key_size=8, value_size=8)
    path = tmp_path / "failing.jsonl"
    append_recipe(trial.word(1, 0).part(0, 5), path, {"check": "decode", "tolerances": {}})
    text = path.read_text()
    ((again, _),) = read_recipes(path)
    assert torch.equal(again.k, trial.k[1:, : 5 * trial.factors])
    for old, new in (
        ('"seed": 0', '"seed": 1'),
        ('"word": [1, 0]', '"word": [0, 0]'),
        ("recipe/1", "recipe/0"),
        ("{", ""),
    ):
        path.write_text(text.replace(old, new, 1))
        with pytest.raises(InvalidFile):
            list(read_recipes(path))
    with pytest.raises(InvalidInput):
        append_recipe(trial.part(1, 5), path, {})


def test_the_digest_is_of_every_tensor_that_a_kernel_is_given() -> None:
    trial = tracker_trial("S3, signed gates", dtype=torch.float32, words=1, length=9, key_size=8, value_size=8)
    seen = {digest(trial)}
    for name in ("q", "k", "v", "beta", "alpha", "state", "truth"):
        x = getattr(trial, name).clone()
        x.view(-1)[3] += 1
        seen.add(digest(replace(trial, **{name: x})))
    assert len(seen) == 8


def test_options_that_a_kernel_does_not_take_are_refused_before_it_runs() -> None:
    for options, why in (({"precison": "tracking"}, "is it precision"), ({"beta": 1}, "set by the call itself")):
        with pytest.raises(InvalidInput, match=why):
            Kernel("ckda", ckda, options=options)
    with pytest.raises(InvalidInput, match="no signature"):
        Kernel("builtin", type, options={"a": 1})
    assert Kernel("ckda", ckda, options={"precision": "exact"}).unnamed == ()
    assert Kernel("kda", fla_wrappers.chunk_kda, "fla", {"precison": "exact", "safe_gate": True}).unnamed == (
        "precison",
    )


@pytest.mark.parametrize(
    ("returned", "what"),
    [
        (lambda o, s: o, "expected a pair"),
        (lambda o, s: (o,), "expected a pair"),
        (lambda o, s: (o, None), "a NoneType as last states"),
        (lambda o, s: (s, o), "as readouts"),
        (lambda o, s: (o[:, 1:], s), "as readouts"),
        (lambda o, s: (o, s[..., :3]), "as last states"),
        (lambda o, s: (o.int(), s), "as readouts"),
    ],
)
def test_what_is_no_pair_of_readouts_and_states_is_no_verdict(returned: Callable[..., Any], what: str) -> None:
    kernel = Kernel("odd", lambda q, k, v, **o: returned(*ckda(q, k, v, **o)))
    found = list(conform(kernel, **_settings({"cases": ["parity"], "checks": ["decode", "split"]})))
    assert {row.status for row in found} == {"unusable"}
    assert all(row.failed and what in row.detail for row in found)
    with pytest.raises(NothingRan, match="2 unusable; the first, parity decode"):
        require_one(kernel, found)


def test_a_kernel_that_refuses_everything_has_no_verdict_and_one_that_breaks_has_one() -> None:
    def raising(error: Exception) -> Callable[..., Any]:
        def run(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
            raise error

        return run

    expected = {"refused": [ValueError("no"), NotImplementedError("no"), AssertionError("only bfloat16")]}
    expected["refused"] += [TypeError("f() got an unexpected keyword argument 'cu_seqlens'")]
    expected["error"] = [TypeError("unsupported operand"), RuntimeError("illegal memory access"), KeyError("x")]
    for status, errors in expected.items():
        for error in errors:
            kernel = Kernel("raising", raising(error))
            found = list(conform(kernel, **_settings({"cases": ["S3"], "checks": ["decode"]})))
            assert [row.status for row in found] == [status], error
            if status == "error":
                require_one(kernel, found)
                continue
            with pytest.raises(NothingRan, match="nothing of raising ran, 1 refused"):
                require_one(kernel, found)
            require_one(kernel, [*found, Row("S3", "split", 9, "pass")])
    with pytest.raises(NothingRan, match="no check"):
        require_one(Kernel("ckda", ckda), [])


def test_a_kernel_that_breaks_is_an_error_and_one_without_an_argument_is_refused() -> None:
    def breaks(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        raise RuntimeError("illegal memory access")

    def stateless(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, scale: float) -> Tensor:
        return v

    assert {row.status for row in rows(breaks, cases=["S3"], checks=["decode"])} == {"error"}
    found = list(conform(Kernel("stateless", stateless, "fla"), **_settings({"cases": ["S3"], "checks": ["decode"]})))
    assert [row.status for row in found] == ["refused"]
    assert "initial_state" in found[0].detail


def test_numbers_that_are_none_are_wrong_states() -> None:
    def poisoned(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
        o, last = ckda(q, k, v, **options)
        o = o.clone()
        o[:, 57:] = torch.nan
        return o, last

    (row,) = rows(poisoned, cases=["parity"], checks=["decode"])
    assert (row.status, row.horizon) == ("fail", 57)
    assert (row.wrong, row.undecodable) == (0, 63 * 4)
    assert "token 57: undecodable, not finite" in row.detail


def with_readouts(change: Callable[[Tensor], Tensor]) -> Ours:
    def run(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> tuple[Tensor, Tensor | None]:
        o, last = ckda(q, k, v, **options)
        return change(o), last

    return run


def test_a_readout_that_is_as_near_to_another_state_is_undecodable_and_not_wrong() -> None:
    """A readout of length 1e17 is equally far from all codewords in float64, and so is one that is 0.

    Of one of length 1e15 the distances differ, by as much as their rounding: nothing is decoded there either.
    """
    uneven = 1e15 * torch.rand(8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    changes: dict[str, Callable[[Tensor], Tensor]] = {
        "e+17": lambda o: 1e17 * (1 + o),
        "e+15": lambda o: o.double() + uneven,
        "length 0": lambda o: 0 * o,
    }
    for length, change in changes.items():
        (row,) = rows(with_readouts(change), cases=["S5"], checks=["decode"])
        assert (row.status, row.horizon, row.wrong, row.undecodable) == ("fail", 0, 0, 120 * 4)
        assert "token 0: undecodable, as near to state" in row.detail
        assert length in row.detail


def test_a_readout_nearest_to_another_state_is_wrong_and_the_row_names_both() -> None:
    def late(o: Tensor) -> Tensor:
        return torch.cat([o[:, :40], o[:, 39:-1]], 1)

    (row,) = rows(with_readouts(late), cases=["parity"], checks=["decode"])
    # The first word repeats the letter that changes the state.
    assert (row.status, row.horizon, row.undecodable) == ("fail", 40, 0)
    assert row.wrong is not None
    assert 80 < row.wrong < 320
    assert re.search(r"token 40: decoded as state (0, expected 1|1, expected 0); of 480", row.detail)


def test_a_trial_survives_its_file(tmp_path: Path) -> None:
    trial = tracker_trial("S3, signed gates", dtype=torch.bfloat16, length=20, key_size=8, value_size=8)
    save_trial(trial, tmp_path / "trial.safetensors", {"check": "decode"}, {"o": trial.q})
    again, facts = load_trial(tmp_path / "trial.safetensors")
    assert facts["check"] == "decode"
    assert trial.tensors().keys() == again.tensors().keys()
    assert all(torch.equal(x, again.tensors()[name]) for name, x in trial.tensors().items())
    assert (again.name, again.factors, again.bound) == (trial.name, trial.factors, trial.bound)


def test_words_of_an_automaton_with_a_sink_stay_out_of_it_for_a_while() -> None:
    trial = tracker_trial("(ab)*", dtype=torch.float32, words=4, heads=1, length=80, key_size=8, value_size=8)
    assert trial.truth is not None
    states = trial.truth[1:, :60]
    assert all(len(word.unique()) == 2 for word in states)
    assert len(trial.truth.unique()) == 3


@pytest.mark.parametrize(
    "how", [{"cases": ["S9"]}, {"checks": ["speed"]}, {"dtype": "int8"}, {"lengths": (1,)}, {"lengths": ()}]
)
def test_what_is_not_known_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        rows(ckda, **how)


def test_a_tracker_that_does_not_fit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs K"):
        tracker_trial("S5", dtype=torch.float32, key_size=4)


def test_kernels_are_found_by_module_and_by_file(tmp_path: Path) -> None:
    assert load_kernel("statetrack.kernels.api:ckda").function is ckda
    (tmp_path / "mine.py").write_text("from statetrack.kernels.api import ckda as mine\n")
    assert load_kernel(f"{tmp_path / 'mine.py'}:mine").name == "mine"
    for wrong in ("ckda", "no.such.module:f", "statetrack.kernels.api:none", f"{tmp_path / 'other.py'}:f"):
        with pytest.raises(InvalidInput):
            load_kernel(wrong)
    with pytest.raises(InvalidInput):
        load_kernel("statetrack.kernels.api:ckda", "theirs")  # pyright: ignore[reportArgumentType]


def test_a_file_that_is_no_trial_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"nothing")
    for path in (tmp_path / "x", tmp_path / "y"):
        with pytest.raises(InvalidFile):
            load_trial(path)


def test_the_command_prints_a_table_saves_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from statetrack.kernels.api import ckda\n"
        "def mine(q, k, v, **o):\n    return ckda(q, k, v, **o | {'beta': o['beta'].clamp(max=1.0)})\n"
    )
    small = ["--key-size", "8", "--value-size", "8", "--length", "60", "--words", "1", "--case", "parity"]
    right = ["conform", "statetrack.kernels.api:ckda", *small, "--device", "cpu", "--set", "backend=torch"]
    assert main([*right, "--check", "decode"]) == 0
    assert "parity" in capsys.readouterr().out
    wrong = ["conform", f"{tmp_path / 'mine.py'}:mine", "--device", "cpu"]
    assert main([*wrong, *small, "--check", "decode", "--save", str(tmp_path / "found"), "--json"]) == 1
    capsys.readouterr()
    (saved,) = (tmp_path / "found").iterdir()
    assert main([*wrong, "--replay", str(saved)]) == 1
    assert main(["conform", "statetrack.kernels.api:ckda", "--device", "cpu", "--replay", str(saved)]) == 0
    assert main([*right, "--set", "nothing"]) == 2


def test_the_exit_code_is_2_where_nothing_ran_and_strict_counts_refusals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd.py").write_text(
        "from statetrack.kernels.api import ckda\n"
        "def never(q, k, v, **o):\n    raise ValueError('only T = 7')\n"
        "def half(q, k, v, **o):\n    return q\n"
        "def whole(q, k, v, alpha, beta, scale, initial_state, output_final_state, factors, normalize_keys,"
        " normalize_queries):\n    return ckda(q, k, v, alpha, beta, initial_state=initial_state, factors=factors,"
        " output_final_state=True, scale=scale)\n"
    )
    small = ["--key-size", "8", "--value-size", "8", "--length", "30", "--words", "1", "--case", "parity"]
    small += ["--device", "cpu", "--check", "decode", "--check", "varlen"]
    for name, what in (("never", "only T = 7"), ("half", "expected a pair")):
        assert main(["conform", f"{tmp_path / 'odd.py'}:{name}", *small]) == 2
        said = capsys.readouterr()
        assert said.out == ""
        assert what in said.err.splitlines()[-1]
    assert main(["conform", "statetrack.kernels.api:ckda", *small, "--set", "precison=tracking"]) == 2
    assert "is it precision?" in capsys.readouterr().err
    assert main(["conform", f"{tmp_path / 'odd.py'}:whole", *small]) == 0
    assert "1 pass, 1 refused" in capsys.readouterr().out
    assert main(["conform", f"{tmp_path / 'odd.py'}:whole", *small, "--strict"]) == 1
    ours = ["conform", "statetrack.kernels.fla_wrappers:chunk_kda", "--layout", "fla", *small]
    assert main([*ours, "--set", "chunk_size=64"]) == 0
    assert "no argument chunk_size by name" in capsys.readouterr().err


def test_the_benchmark_keeps_rows_of_every_check_and_lines_that_fail_again(tmp_path: Path) -> None:
    """A function that rounds its keys stands in for a kernel; what a later call adds replaces its own checks only."""
    script = Path(__file__).parents[2] / "benchmarks" / "conformance.py"
    (tmp_path / "odd.py").write_text(
        "import torch\n"
        "from statetrack.kernels.fla_wrappers import chunk_delta_rule\n"
        "def delta_rule(q, k, v, beta, scale, initial_state, output_final_state, cu_seqlens=None):\n"
        "    return chunk_delta_rule(q, k, v, beta, scale=scale, initial_state=initial_state, output_final_state=True,"
        " cu_seqlens=cu_seqlens)\n"
    )

    def run(*how: str) -> list[dict[str, Any]]:
        command = [sys.executable, str(script), "--place", "cpu", "--device", "here", "--output", str(tmp_path), *how]
        command += ["--kernels", f"{tmp_path / 'odd.py'}:delta_rule", "--cases", "parity", "--jobs", "2"]
        subprocess.run(command, check=True, capture_output=True, cwd=script.parents[1])
        return json.loads((tmp_path / "conformance-here.json").read_text())["rows"]

    lengths = ["--lengths", "70", "--drift-lengths", "50", "70"]
    found = run("--types", "bfloat16", "float16", *lengths, "--checks", "drift", "decode", "varlen")
    assert sorted((x["dtype"], x["check"], x["length"]) for x in found) == sorted(
        (dtype, check, length)
        for dtype in ("bfloat16", "float16")
        for check, length in (*(("drift", n) for n in (50, 70, 50, 70)), ("decode", 70), ("varlen", 70))
    )
    failed = [x for x in found if x["status"] == "fail"]
    assert {(x["dtype"], x["case"]) for x in failed} >= {("bfloat16", DRIFTS[0]), ("float16", DRIFTS[0])}
    lines = tmp_path / "conformance-here-failing.jsonl"
    again = replay(load_kernel(f"{tmp_path / 'odd.py'}:delta_rule", "fla"), lines)
    assert {row.status for row in again} == {"fail"}
    assert {row.length for row in again} == {x["minimal"] for x in failed}
    later = run("--types", "float16", *lengths, "--checks", "varlen", "split", "--add", "--seconds", "0")
    assert [x for x in later if (x["dtype"], x["check"]) != ("float16", "varlen")][: len(found) - 1] == [
        x for x in found if (x["dtype"], x["check"]) != ("float16", "varlen")
    ]
    assert [(x["check"], x["status"]) for x in later[len(found) - 1 :]] == [("varlen", "not run"), ("split", "not run")]
    assert len(replay(load_kernel(f"{tmp_path / 'odd.py'}:delta_rule", "fla"), lines)) == len(again)
