"""Training: the same run gives the same numbers, killed or not; the schedule; what a folder holds; bad runs."""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file

from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels.language_model import LanguageModel
from statetrack.kernels.layer_parts import LayerConfig
from statetrack.lab.evaluation import evaluate
from statetrack.lab.kept_heads import KeptHeads
from statetrack.lab.runs import BASELINES, RANGES, Run, model_config, ranges_of, widest
from statetrack.lab.schedule import data_seed, learning_rate, length_at
from statetrack.lab.tasks import TASKS, Task
from statetrack.lab.training import read_result, train

torch.set_num_threads(1)
PLAIN = {"output_gate": False, "output_norm": False, "width": 16, "heads": 2, "words": 64}
TINY = Run(
    "parity",
    "deltanet",
    "beta",
    **PLAIN,
    batch=16,
    steps=24,
    lr=1e-2,
    train_lengths=(3, 9),
    lengths=(9, 16),
    evaluate_every=8,
    checkpoint_every=5,
)
OUTSIDE = {"output_gate": False, "output_norm": False, "train_lengths": (4, 4), "lengths": (4,), "words": 8}
ROW = ["task", "model", "alpha_range", "beta_range", "init", "seed", "train_length", "length"]
ROW += ["scaled_accuracy", "sequence_accuracy"]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def same(a: Path, b: Path) -> bool:
    one, other = weights(a), weights(b)
    return set(one) == set(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("model", ["deltanet", "gru", "ckda"])
def test_a_run_that_is_left_off_goes_on_to_the_same_bits(model: str, tmp_path: Path) -> None:
    run = replace(TINY, model=model, ranges=widest(model))
    whole = train(run, tmp_path / "whole", device="cpu")
    part = train(run, tmp_path / "part", device="cpu", until=13)
    assert (part.status, part.steps, part.rows) == ("left off", 13, ())
    again = train(run, tmp_path / "part", device="cpu", resume=True)
    assert (again.status, again.steps) == ("finished", 24)
    assert same(tmp_path / "whole", tmp_path / "part")
    assert again.history == whole.history
    judged = [(row["length"], row["scaled_accuracy"], row["sequence_accuracy"]) for row in again.rows]
    assert judged == [(row["length"], row["scaled_accuracy"], row["sequence_accuracy"]) for row in whole.rows]


GROWING = replace(
    TINY,
    steps=50,
    curriculum="grow",
    solved=0.3,
    train_lengths=(2, 9),
    smoothing=0.1,
    weight_decay=0.1,
    late_decay=0.0,
    square_decay=0.95,
    hold=0.5,
    heads_kept=1,
)


@pytest.mark.parametrize("until", [7, 21, 33])
def test_a_growing_curriculum_is_resumed_to_the_same_bits(until: int, tmp_path: Path) -> None:
    whole = train(GROWING, tmp_path / "whole", device="cpu")
    train(GROWING, tmp_path / "part", device="cpu", until=until)
    again = train(GROWING, tmp_path / "part", device="cpu", resume=True)
    assert same(tmp_path / "whole", tmp_path / "part")
    assert again.history == whole.history
    assert json.loads((tmp_path / "part" / "run.json").read_text())["curriculum"] == "grow"


def test_a_growing_curriculum_waits_until_its_words_are_solved(tmp_path: Path) -> None:
    for kept, reached in ((0, [3, 4, 5]), (1, [2, 3, 4])):
        easy = replace(GROWING, heads_kept=kept, solved=0.0, steps=60, evaluate_every=20)
        assert [note["reach"] for note in train(easy, tmp_path / f"easy {kept}", device="cpu").history] == reached
    hard = train(
        replace(GROWING, heads_kept=0, solved=1.0, lr=0.0, min_lr=0.0, steps=60, evaluate_every=20),
        tmp_path / "hard",
        device="cpu",
    )
    assert [note["reach"] for note in hard.history] == [2, 2, 2]
    learned = train(
        replace(GROWING, heads_kept=0, solved=0.95, steps=300, evaluate_every=300), tmp_path / "learned", device="cpu"
    )
    assert learned.history[-1]["reach"] == 9
    slow = replace(
        GROWING,
        task="z60-slow",
        model="ckda",
        ranges="both",
        train_lengths=(3, 9),
        heads_kept=0,
        solved=0.0,
        steps=60,
        evaluate_every=60,
    )
    assert train(slow, tmp_path / "slow", device="cpu").history[-1]["reach"] == 6


@pytest.mark.parametrize(("init", "middle", "spread"), [("mixed", 1.7, 0.6), ("undecided", 0.57, 0.25)])
def test_starts_of_gates(init: str, middle: float, spread: float, tmp_path: Path) -> None:
    run = Run("s4", init=init, learned_start=True, width=128, heads=4, head_dim=32, steps=1, batch=4, **OUTSIDE)
    train(replace(run, lr=0.0, min_lr=0.0), tmp_path / "run", device="cpu")
    model = LanguageModel.load(tmp_path / "run" / "model.safetensors")
    layer = cast("Any", model).body.blocks[0].mixer
    alpha = model.transitions(torch.arange(24)[:, None])[0][2].squeeze()
    logits = 2 * torch.atanh(alpha.clamp(-0.999, 0.999)) - layer.gate_bias
    assert float(logits.std()) == pytest.approx(middle, rel=0.2)
    assert float(layer.gate_bias.std()) == pytest.approx({"mixed": 0.3, "undecided": 0.0}[init] * 4.9, rel=0.4)
    assert float(alpha.square().mean().sqrt()) == pytest.approx(spread, abs=0.1)
    assert float(layer.start.std()) == pytest.approx(0.5, rel=0.1)


def test_few_heads_answer_in_training_and_all_of_them_when_judged() -> None:
    model = LanguageModel(model_config(replace(TINY, heads=4), TASKS["parity"]))
    words = torch.randint(2, (6, 5), generator=torch.Generator().manual_seed(0))
    whole = model(words)[0]
    heads = KeptHeads(model, 1)
    heads.draw(torch.Generator().manual_seed(1), 8, slice(2, 8))
    assert heads.kept is not None
    assert heads.kept[0].sum(1).tolist() == [1] * 6
    few, kept = model(words)[0], heads.kept[0]
    heads.end()
    assert torch.equal(model(words)[0], whole)
    layer = cast("Any", model).body.blocks[0].mixer
    for row in range(6):
        own = layer.output.weight.detach().clone()
        with torch.no_grad():
            layer.output.weight.mul_(kept[row].repeat_interleave(4))
            assert torch.allclose(model(words[row : row + 1])[0], few[row], atol=1e-6)
            layer.output.weight.copy_(own)


def test_heads_that_cost_something_are_given_up(tmp_path: Path) -> None:
    run = replace(TINY, heads=4, steps=300, evaluate_every=300, train_lengths=(6, 6), lengths=(6,), smoothing=0.1)
    norms = list[torch.Tensor]()
    for cost in (0.0, 0.1):
        found = train(replace(run, head_cost=cost), tmp_path / f"run {cost}", device="cpu")
        assert found.rows[0]["scaled_accuracy"] == 1.0
        model = LanguageModel.load(tmp_path / f"run {cost}" / "model.safetensors")
        weights = cast("Any", model).body.blocks[0].mixer.output.weight.detach()
        norms.append(weights.unflatten(1, (4, -1)).norm(dim=(0, 2)))
        assert float(KeptHeads(model, 0).cost()) == pytest.approx(float(norms[-1].sum()), rel=1e-5)
    assert norms[1].min() < 0.1 * norms[1].max() < 0.5 * norms[0].min()


def test_smoothed_labels_keep_the_logits_finite(tmp_path: Path) -> None:
    sizes = {"steps": 150, "evaluate_every": 150, "train_lengths": (4, 4), "lengths": (4,)}
    plain = train(replace(TINY, **sizes), tmp_path / "plain", device="cpu")
    smooth = train(replace(TINY, **sizes, smoothing=0.2), tmp_path / "smooth", device="cpu")
    assert [found.rows[0]["scaled_accuracy"] for found in (plain, smooth)] == [1.0, 1.0]
    least = -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))
    assert plain.history[-1]["loss"] < least / 4
    assert least <= smooth.history[-1]["loss"] < least + 0.1


def test_a_killed_process_resumes_to_the_same_bits(tmp_path: Path) -> None:
    run = replace(TINY, steps=150, checkpoint_every=5, evaluate_every=50)
    folder = tmp_path / "killed"
    code = "import json; from statetrack.lab.runs import Run; from statetrack.lab.training import train; "
    code += f"train(Run.from_json(json.loads({json.dumps(run.to_json())!r})), {str(folder)!r}, device='cpu')"
    child = subprocess.Popen([sys.executable, "-c", code])
    for _ in range(2400):
        if (folder / "checkpoint.safetensors").exists() or child.poll() is not None:
            break
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert (folder / "checkpoint.safetensors").is_file()
    assert not (folder / "results.json").exists()
    train(run, folder, device="cpu", resume=True)
    train(run, tmp_path / "whole", device="cpu")
    assert same(folder, tmp_path / "whole")


def test_two_processes_share_a_batch_and_agree_with_one(tmp_path: Path) -> None:
    run = replace(TINY, steps=4, evaluate_every=4, lr=1e-3)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(run.to_json()))
    code = "import json, sys, torch; from statetrack.lab.runs import Run; from statetrack.lab.training import train; "
    code += "torch.set_num_threads(1); "
    code += f"train(Run.from_json(json.load(open({str(path)!r}))), {str(tmp_path / 'two')!r}, device='cpu')"
    port = str(20_000 + os.getpid() % 20_000)
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    children = [
        subprocess.Popen([sys.executable, "-c", code], env={**common, "RANK": str(i), "LOCAL_RANK": str(i)})
        for i in range(2)
    ]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    train(run, tmp_path / "one", device="cpu")
    one, two = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert all(torch.allclose(one[name], two[name], atol=1e-5) for name in one)
    assert json.loads((tmp_path / "two" / "results.json").read_text())["processes"] == 2


def test_parity_is_learned_with_beta_up_to_2_and_goes_on_beyond_the_trained_length(tmp_path: Path) -> None:
    run = replace(TINY, steps=120, batch=32, lengths=(9, 64), evaluate_every=60, train_lengths=(3, 12))
    found = train(run, tmp_path / "run", device="cpu")
    assert [row["scaled_accuracy"] for row in found.rows] == [1.0, 1.0]
    assert found.history[0]["scaled_accuracy"] <= 1.0
    assert max(head["beta_mean"] for head in found.mechanism["heads"][0]) > 1.0


def test_a_run_writes_its_rows_and_nothing_outside_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    found = train(TINY, tmp_path / "runs" / "a", device="cpu")
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    names = ("run.json", "checkpoint.safetensors", "model.safetensors", "results.json")
    assert written == {f"runs/a/{name}" for name in names}
    assert list(found.rows[0]) == [*ROW, "steps", "seconds", "lr"]
    assert found.rows[0]["alpha_range"] == [1, 1]
    assert found.rows[0]["beta_range"] == [0, 2]
    assert read_result(tmp_path / "runs" / "a").to_json() == found.to_json()
    model = LanguageModel.load(tmp_path / "runs" / "a" / "model.safetensors")
    again = evaluate(model, TASKS["parity"], TINY.lengths, words=TINY.words)
    assert [row["scaled_accuracy"] for row in again] == [row["scaled_accuracy"] for row in found.rows]


def test_a_run_stops_early_when_nothing_is_wrong_and_when_its_time_is_up(tmp_path: Path) -> None:
    early = replace(TINY, steps=2000, batch=32, patience=2, evaluate_every=30)
    found = train(early, tmp_path / "early", device="cpu")
    assert found.status == "early"
    assert found.steps < 2000
    assert [note["sequence_accuracy"] for note in found.history[-2:]] == [1.0, 1.0]
    late = train(replace(TINY, steps=10**6, seconds=0.3), tmp_path / "late", device="cpu")
    assert late.status == "out of time"
    assert late.seconds < 5


def test_a_run_whose_loss_is_no_number_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "loss", lambda self, answers, targets: answers.sum() * torch.nan)
    found = train(replace(TINY, steps=1000), tmp_path / "run", device="cpu")
    assert (found.status, found.steps) == ("diverged", 50)


def test_bfloat16_autocast_trains(tmp_path: Path) -> None:
    found = train(replace(TINY, precision="bfloat16", steps=8), tmp_path / "run", device="cpu")
    assert found.status == "finished"
    assert all(torch.isfinite(x).all() for x in weights(tmp_path / "run").values())


def test_rates_warm_up_and_fall_and_lengths_grow() -> None:
    run = replace(TINY, lr=1.0, min_lr=0.1, warmup=0.2, train_lengths=(2, 40), curriculum="paced")
    rates = [learning_rate(run, p / 100) for p in range(101)]
    assert max(rates) == rates[20] == 1.0
    assert rates == sorted(rates[:20]) + sorted(rates[20:], reverse=True)
    assert rates[100] == pytest.approx(0.1)
    held = [learning_rate(replace(run, hold=0.7), p / 100) for p in range(101)]
    assert held[20:71] == [1.0] * 51
    assert held[70:] == sorted(held[70:], reverse=True)
    assert held[100] == pytest.approx(0.1)
    early = {length_at(run, step, 1, 0.0) for step in range(200)}
    late = {length_at(run, step, 1, 0.9) for step in range(500)}
    assert early == set(range(2, 13))
    assert late == set(range(2, 41))
    assert {length_at(run, step, 4, 0.9) for step in range(500)} == set(range(4, 41, 4))
    assert data_seed(run, 7) != data_seed(replace(run, seed=1), 7)


def test_ranges_are_those_of_the_model() -> None:
    found = {ranges: ranges_of(Run("s3", "ckda", ranges)) for ranges in RANGES}
    assert found == {
        "none": ([0, 1], [0, 1]),
        "alpha": ([-1, 1], [0, 1]),
        "beta": ([0, 1], [0, 2]),
        "both": ([-1, 1], [0, 2]),
    }
    assert ranges_of(Run("s3", "diagonal", "alpha")) == ([-1, 1], None)
    assert ranges_of(Run("s3", "gru", "none")) == (None, None)
    for ranges, (alpha, beta) in found.items():
        assert alpha is not None
        assert beta is not None
        layer = model_config(Run("s3", "ckda", ranges), TASKS["s3"]).layer
        assert isinstance(layer, LayerConfig)
        assert (layer.signed_gates, layer.beta_max) == (alpha == [-1, 1], beta[1])
    assert [widest(model) for model in ("ckda", "diagonal", "deltanet", *BASELINES)] == ["both", "alpha", "beta"] + [
        "none"
    ] * len(BASELINES)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "lstm"}, "model 'lstm'"),
        ({"steps": 0, "lr": -1.0}, "steps 0.*lr -1.0"),
        ({"ranges": "alpha"}, "none but 'beta' to extend"),
        ({"train_lengths": (9, 3)}, "train_lengths"),
        ({"curriculum": True}, "curriculum True, expected none, paced, grow"),
        ({"solved": 2, "square_decay": 1.0}, "solved 2.*square_decay 1.0"),
        (
            {"task": "groove", "train_lengths": (32, 48), "lengths": (48,), "smoothing": 0.1},
            "groove has no right answers",
        ),
        ({"heads_kept": 3}, "heads_kept 3"),
        ({"head_cost": -1.0}, "head_cost -1"),
        ({"model": "diagonal", "ranges": "alpha", "head_cost": 0.1}, "head_cost 0.1.*diagonal has 0"),
        ({"late_decay": -1.0}, "late_decay -1.0"),
        ({"lengths": ()}, "lengths"),
        ({"init": "near"}, "expected one of ckda"),
        ({"seconds": 0.0}, "seconds"),
        ({"task": "s5-slow", "train_lengths": (3, 8), "lengths": (8,)}, "from 4 tokens on"),
    ],
)
def test_a_bad_run_is_one_line(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as error:
        replace(TINY, **fields)
    assert "\n" not in str(error.value)


def test_a_folder_with_another_run_is_not_touched(tmp_path: Path) -> None:
    train(TINY, tmp_path / "a", device="cpu", until=5)
    with pytest.raises(InvalidInput, match="holds a run"):
        train(TINY, tmp_path / "a", device="cpu")
    with pytest.raises(InvalidInput, match="seed 0, now 1"):
        train(replace(TINY, seed=1), tmp_path / "a", device="cpu", resume=True)
    (tmp_path / "a" / "checkpoint.safetensors").write_bytes(b"none")
    with pytest.raises(InvalidFile, match="checkpoint"):
        train(TINY, tmp_path / "a", device="cpu", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidFile, match="cannot be made"):
        train(TINY, tmp_path / "file" / "a", device="cpu")
    with pytest.raises(InvalidFile, match=r"results\.json"):
        read_result(tmp_path / "a")
    with pytest.raises(InvalidInput, match="unknown speed"):
        Run.from_json({"task": "s3", "speed": 1})


def test_a_finished_run_is_read_again_and_not_trained(tmp_path: Path) -> None:
    first = train(TINY, tmp_path / "a", device="cpu")
    before = (tmp_path / "a" / "model.safetensors").stat().st_mtime_ns
    assert train(TINY, tmp_path / "a", device="cpu", resume=True).rows == first.rows
    assert (tmp_path / "a" / "model.safetensors").stat().st_mtime_ns == before
