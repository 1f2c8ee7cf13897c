"""`conform` on kernels that are right, and on kernels that are wrong in one way each."""

# pyright: basic

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from statetrack.cli import main
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels import fla_wrappers
from statetrack.kernels.api import ckda
from statetrack.kernels.conform import Row, conform, judge, replay, smallest
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
        again = replay(Kernel("broken", broken), Path(row.saved))
        assert (again.status, again.length, again.case) == ("fail", row.minimal, row.case)
        assert replay(Kernel("whole", ckda), Path(row.saved)).status == "pass"


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
