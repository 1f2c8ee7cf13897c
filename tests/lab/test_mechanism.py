"""What trained layers do: facts of heads, histograms over training, spectra; pictures of them; the command."""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from statetrack.cli import main
from statetrack.errors import InvalidFile
from statetrack.figures.learned import OF_ANSWERS, read_runs
from statetrack.kernels.language_model import LanguageModel
from statetrack.lab.mechanism import BINS, describe, glance, layers_of
from statetrack.lab.near import near_model
from statetrack.lab.runs import Run, model_config
from statetrack.lab.tasks import TASKS
from statetrack.lab.training import train

torch.set_num_threads(1)
SMALL = Run("s3", "ckda", width=16, heads=2, batch=8, steps=6, lengths=(8, 16), evaluate_every=2, words=16)
SMALL = replace(SMALL, train_lengths=(2, 8))


def made(run: Run) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(model_config(run, TASKS[run.task]))


def test_the_heads_of_a_program_are_reflections_and_rotations_on_the_circle() -> None:
    task = TASKS["s3"]
    found = describe(near_model(Run("s3", init="near"), task), task)
    (head,) = found["heads"][0]
    assert head["tokens"] == 6
    # Two of six letters turn, both by a pair on the circle; the identity has β = 0 or gates that undo it.
    assert head["complex_tokens"] == pytest.approx(1 / 3)
    assert head["circle"] == pytest.approx(0, abs=1e-6)
    assert head["negative_gates"] > 0
    values = torch.tensor(found["spectra"][0][0])
    assert values.shape == (12, 2)
    assert torch.allclose(values.norm(dim=1), torch.ones(12), atol=1e-5)


def test_histograms_count_every_gate_and_beta_once() -> None:
    model, task = made(SMALL), TASKS["s3"]
    (layer,) = glance(model, task)["layers"]
    assert (len(layer["alpha"]), len(layer["beta"])) == (BINS, BINS)
    assert sum(layer["alpha"]) == 6 * 2 * 8
    assert sum(layer["beta"]) == 6 * 2
    (transitions,) = layers_of(model, task)
    below = int((transitions.alpha < 0).sum())
    assert sum(layer["alpha"][: BINS // 2]) == below > 0


def test_layers_without_gates_or_beta_or_transitions_say_none() -> None:
    task = TASKS["parity"]
    delta = describe(made(Run("parity", "deltanet", "beta", width=16, heads=2)), task)
    assert delta["layers"][0]["alpha"] is None
    assert delta["heads"][0][0]["negative_gates"] == 0
    diagonal = describe(made(Run("parity", "diagonal", "alpha", width=16, head_dim=4)), task)
    assert diagonal["layers"][0]["beta"] is None
    assert 0 < diagonal["heads"][0][0]["gate_mean"] < 1
    assert len(diagonal["spectra"][0][0]) == 2 * 32 * 4
    gru = describe(made(Run("parity", "gru", "none", width=16)), task)
    assert gru["heads"] == gru["spectra"] == []


def test_later_layers_and_convolutions_read_words() -> None:
    task = TASKS["s3"]
    two = layers_of(made(replace(SMALL, layers=2)), task)
    assert [(layer.symbols, len(layer.k)) for layer in two] == [(True, 6), (False, 256)]
    (mixed,) = layers_of(made(replace(SMALL, conv=4)), task)
    assert (mixed.symbols, mixed.inputs) == (False, "tokens of random words")


def test_pictures_are_drawn_from_runs_and_rows(tmp_path: Path) -> None:
    for ranges in ("both", "none"):
        run = replace(SMALL, ranges=ranges)
        train(run, tmp_path / "runs" / run.name, device="cpu")
    learned = read_runs(tmp_path / "runs")
    assert len(learned.names) == 2
    assert len(learned.rows) == 4
    for name in OF_ANSWERS:
        arguments = ["figure", name, "--from", str(tmp_path / "runs"), "-o", str(tmp_path / "out"), "--format", "svg"]
        assert main(arguments) == 0
        assert (tmp_path / "out" / f"{name}.svg").read_text().count("<path") > 10
    gates = json.loads((tmp_path / "out" / "learn-gates.json").read_text())
    assert [note["step"] for note in gates["s3, ckda, both, seed 0"]] == [2, 4, 6]
    rows = tmp_path / "learn.json"
    rows.write_text(json.dumps({"rows": list(learned.rows)}))
    assert main(["figure", "learn-curves", "--from", str(rows), "-o", str(tmp_path / "out")]) == 0
    for name in ("learn-spectra", "learn-gates"):
        assert main(["figure", name, "--from", str(rows), "-o", str(tmp_path / "out")]) == 2
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidFile, match=r"holds no results\.json"):
        read_runs(tmp_path / "empty")


def test_the_command_trains_all_ranges_and_seeds_and_resumes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["--set", "width=16", "--set", "heads=2", "--set", "words=8", "--device", "cpu", "-o", str(tmp_path)]
    arguments = ["learn", "s3", "--ranges", "none,both", "--seeds", "0,1", "--lengths", "4", "--evaluate", "4,8"]
    arguments += ["--steps", "2", "--batch", "4", *sizes, "--json"]
    assert main(arguments) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["alpha_range"], row["seed"], row["length"]) for row in rows] == [
        (alpha, seed, length) for alpha in ([0, 1], [-1, 1]) for seed in (0, 1) for length in (4, 8)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"s3-ckda-{ranges}-spread-seed{seed}" for ranges in ("both", "none") for seed in (0, 1)
    ]
    assert main(arguments) == 2
    assert "holds a run" in capsys.readouterr().err
    assert main([*arguments, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out) == rows


@pytest.mark.parametrize(
    "arguments",
    [
        ["s9"],
        ["s3", "--model", "lstm"],
        ["s3", "--model", "deltanet", "--ranges", "alpha"],
        ["s3", "--lengths", "3-4-5"],
        ["s3", "--lengths", "x"],
        ["s3", "--seeds", "1.5"],
        ["s3", "--set", "speed=3"],
        ["s3", "--set", "heads=3"],
        ["s3", "--device", "tpu"],
        ["s3", "--init", "near", "--set", "width=4"],
        ["s3", "--init", "near", "--ranges", "none"],
        *(["s3", "--set", text] for text in ("seconds=abc", "train_lengths=5", "lengths=null", "task=5", "silu=3")),
        *(["s3", "--set", text] for text in ("seed=9999999999999", "head_dim=abc", "mlp_ratio=100")),
    ],
)
def test_a_bad_command_is_one_line_and_2(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["learn", *arguments, "-o", str(tmp_path / "runs")]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("statetrack: ")
    assert not list(tmp_path.rglob("run.json")), "a folder that a bad run blocks"


def test_tasks_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["learn", "--list", "--json"]) == 0
    listed = {row["task"]: row.get("tokens") for row in json.loads(capsys.readouterr().out)}
    assert {name: task.vocab for name, task in TASKS.items()}.items() <= listed.items()
