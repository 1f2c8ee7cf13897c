"""Grooves are periodic, band-limited and fixed by their seeds; features are the sound; a layer by hand goes on."""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from statetrack.cli import main
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels.api import ckda
from statetrack.kernels.language_model import LanguageModel
from statetrack.lab.audio import BAND, RATE, Groove, read_wav, snr, steady, write_wav
from statetrack.lab.runs import Run, model_config
from statetrack.lab.tasks import task_named
from statetrack.lab.training import train

GROOVE = Groove()


@pytest.fixture(autouse=True)
def one_thread() -> Generator[None]:
    """Threads of several test processes would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("groove", [Groove(), Groove(frames=4), Groove(frames=16, tempo=100)])
def test_a_cue_is_half_a_bar_then_silence_and_the_sound_repeats(groove: Groove) -> None:
    length = 3 * groove.period + 5
    inputs, sound, asked = groove.batch(seeded(), 4, length)
    assert inputs.shape == sound.shape == (4, length, groove.features)
    assert torch.equal(sound[:, groove.period :], sound[:, : -groove.period])
    assert torch.equal(inputs[:, ~asked], sound[:, : groove.period])
    assert not inputs[:, asked].any()
    assert asked.sum() == length - groove.period
    assert groove.period * groove.features / RATE == pytest.approx(120 / groove.tempo)


def test_a_seed_fixes_the_grooves_and_no_two_are_alike() -> None:
    first, again, other = (GROOVE.grooves(seeded(seed), 32) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    apart = torch.cdist(torch.cat([first, other]).flatten(1), torch.cat([first, other]).flatten(1))
    assert apart.fill_diagonal_(math.inf).min() > 1
    assert first.square().mean() == pytest.approx(1, abs=0.2)


def test_nothing_sounds_above_the_band() -> None:
    spectrum = torch.fft.rfft(GROOVE.grooves(seeded(), 16).double().flatten(1)).abs()
    frequency = torch.fft.rfftfreq(GROOVE.period * GROOVE.features, 1 / RATE)
    assert spectrum[:, frequency > BAND].max() < 1e-5 * spectrum.max()


def test_the_mean_groove_is_no_answer() -> None:
    """What all grooves share, the best answer without the cue, is less than 2 dB."""
    half = GROOVE.grooves(seeded(), 1024)
    assert snr(half.mean(0).expand_as(half), half, torch.ones(GROOVE.period, dtype=torch.bool)) < 2


def test_sounds_that_cannot_be_are_refused() -> None:
    for frames, tempo in ((6, 120), (0, 120), (8, 7)):
        with pytest.raises(InvalidInput, match="groove"):
            Groove(frames, tempo)
    with pytest.raises(InvalidInput, match="cue of 16 frames"):
        GROOVE.batch(seeded(), 1, 16)


def test_a_file_gives_the_sound_back_and_its_snr_is_that_of_the_features(tmp_path: Path) -> None:
    _, sound, asked = GROOVE.batch(seeded(), 1, 40)
    answer = sound + 0.05 * torch.randn(sound.shape, generator=seeded())
    peak = float(sound.abs().max())
    waves: list[Tensor] = []
    for name, frames in (("sound", sound), ("answer", answer)):
        write_wav(tmp_path / f"{name}.wav", frames[0], peak)
        samples, rate = read_wav(tmp_path / f"{name}.wav")
        assert (len(samples), rate) == (40 * GROOVE.features, RATE)
        waves.append(samples[16 * GROOVE.features :] * peak / 0.95)
    noise = (waves[1] - waves[0]).square().sum()
    assert snr(answer, sound, asked) == pytest.approx(10 * math.log10(waves[0].square().sum() / noise), abs=0.02)
    assert (waves[0] - sound[0, 16:].flatten()).abs().max() < peak / 32000


def test_files_that_are_no_sound_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.wav").write_text("no sound")
    for path in (tmp_path / "text.wav", tmp_path / "none.wav"):
        with pytest.raises(InvalidFile, match=r"\.wav"):
            read_wav(path)
    with pytest.raises(InvalidFile, match="cannot be written"):
        write_wav(tmp_path / "none" / "sound.wav", torch.ones(1, 4))


def by_hand(sound: Tensor, asked: Tensor, *, gates: tuple[float, float], beta: float) -> Tensor:
    """Nine heads of two dimensions: head m turns by 2π m / 16 a frame if gates are ±1 and β is 2."""
    size, count, length = GROOVE.period, GROOVE.period // 2 + 1, len(asked)
    angle = math.pi * torch.arange(count, dtype=torch.float64) / size - math.pi / 2
    key = torch.stack([angle.cos(), angle.sin()], 1).expand(1, length, -1, -1)
    weight = torch.full((count,), 2 / size, dtype=torch.float64)
    weight[[0, -1]] = 1 / size
    frames = sound.double().masked_fill(asked[:, None], 0)[:, :, None].expand(-1, -1, count, -1)
    alpha = torch.tensor(gates, dtype=torch.float64).expand(1, length, count, 2)
    betas = torch.full((1, length, count), beta, dtype=torch.float64)
    o, _ = ckda(key, key, frames, alpha, betas, scale=1 / beta)
    return (o * weight[:, None]).sum(2)


def test_a_layer_by_hand_goes_on_exactly_and_neither_range_alone_does() -> None:
    """The rotations of CKDA, one a harmonic of the half bar, are all that the task needs."""
    _, sound, asked = GROOVE.batch(seeded(), 1, 264)
    assert snr(by_hand(sound, asked, gates=(1.0, -1.0), beta=2.0), sound, asked) > 100
    for gates, beta in (((1.0, 1.0), 2.0), ((1.0, -1.0), 1.0), ((1.0, 1.0), 1.0)):
        assert snr(by_hand(sound, asked, gates=gates, beta=beta), sound, asked) < 3


@pytest.mark.parametrize(("ranges", "turns"), [("both", True), ("alpha", False), ("beta", False), ("none", False)])
def test_at_a_steady_start_only_both_ranges_turn_without_fading(ranges: str, turns: bool) -> None:
    run = Run("groove", ranges=ranges, init="steady", width=32, heads=8, head_dim=4, train_lengths=(32, 40))
    torch.manual_seed(0)
    model = LanguageModel(model_config(run, task_named("groove")))
    steady(model)
    key, beta, alpha = (
        x[0, 0, :, 0].double().detach() for x in model.transitions(torch.zeros(1, 1, GROOVE.features))[0]
    )
    maps = (torch.eye(4) - beta[:, None, None] * key[:, :, None] * key[:, None]) * alpha[:, None]
    values = torch.linalg.eigvals(maps)
    turning = values[values.imag.abs() > 0.05]
    assert bool(((turning.abs() - 1).abs() < 0.02).any()) == turns


def test_a_run_is_judged_in_decibels(tmp_path: Path) -> None:
    run = Run(
        "groove",
        init="steady",
        width=32,
        heads=4,
        output_norm=False,
        curriculum="paced",
        train_lengths=(32, 48),
        lengths=(48, 64),
        words=8,
        steps=30,
        batch=8,
        lr=1e-2,
        evaluate_every=30,
    )
    result = train(run, tmp_path / "run", device="cpu")
    assert [row["length"] for row in result.rows] == [48, 64]
    assert all(row["snr_db"] > 0.3 for row in result.rows)
    assert result.history[-1]["snr_db"] > 0.3
    assert result.mechanism["heads"][0][0]["tokens"] == 1
    (target, rate), (answer, _) = (read_wav(tmp_path / "run" / f"{name}.wav") for name in ("target", "continuation"))
    cue = GROOVE.period * GROOVE.features
    assert (len(target), len(answer), rate) == (64 * GROOVE.features, 64 * GROOVE.features, RATE)
    assert torch.equal(target[:cue], answer[:cue])
    assert not torch.equal(target[cue:], answer[cue:])


def test_a_run_that_was_left_off_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    sizes = {"width": 16, "heads": 2, "head_dim": 4, "value_dim": 8, "words": 2, "batch": 2}
    run = Run.from_json({"task": "groove"} | GROOVE.recipe("ckda") | sizes | {"steps": 8, "lengths": (136,)})
    whole = train(run, tmp_path / "whole", device="cpu")
    assert train(run, tmp_path / "parts", device="cpu", until=5).status == "left off"
    parts = train(run, tmp_path / "parts", device="cpu", resume=True)
    assert parts.rows[0]["snr_db"] == whole.rows[0]["snr_db"]
    files = [(tmp_path / name / "continuation.wav").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]


def test_the_command_knows_what_a_groove_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [f"--set={field}" for field in ("width=16", "heads=2", "value_dim=8", "words=2")]
    command = [
        "learn",
        "groove",
        "--steps",
        "2",
        "--batch",
        "2",
        "--device",
        "cpu",
        "-o",
        str(tmp_path),
        "--json",
        *small,
    ]
    assert main(command) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["init"], row["train_length"], row["length"]) for row in rows] == [
        ("steady", 136, 136),
        ("steady", 136, 264),
    ]
    assert main(["learn", "groove", "--lengths", "3-40", "-o", str(tmp_path)]) == 2
    assert "from 17" in capsys.readouterr().err
    assert main(["learn", "parity", "--init", "steady", "-o", str(tmp_path)]) == 2
    assert "expected groove" in capsys.readouterr().err


def test_the_pace_of_lengths_rises_from_the_shortest_to_the_longest() -> None:
    lengths = [GROOVE.pace(32, 136, step / 100) for step in range(101)]
    assert lengths == sorted(lengths)
    assert (lengths[25], lengths[42], lengths[60]) == (32, 88, 136)
