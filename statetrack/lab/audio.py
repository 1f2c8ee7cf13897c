"""A periodic groove to go on with: random drum patterns as frames of samples, their sound in files, and SNR in dB.

A groove repeats every half bar (two beats). A model reads the first half bar, then zeros, and has to answer every later
frame in one pass, without its answers being fed back: it has to keep half a bar of sound and a clock of the exact
period. A frame is its raw samples, so features are the waveform cut in pieces, and the SNR of features is that of the
sound.

Grooves are steady: what rings past the end of the half bar is heard at its start. Onsets lie on sixteenths, and the
cue begins at a random one. Of the three instruments (kick, snare, hat) each has two articulations; a groove mixes them
in random shares (its timbre), and every onset has a velocity of its own. Nothing sounds above `BAND`.

Main definitions: `Groove`, `snr`, `steady`, `write_wav`, `read_wav`, `RATE`, `BAND`.

References: CKDA, audio continuation.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# ruff: noqa: F722

from __future__ import annotations

import math
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels.language_model import LanguageModel
from statetrack.kernels.layers import DeltaLayer

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

RATE = 8000  # samples a second
BAND = 3400.0  # Hz
_SIXTEENTHS = 8
# Chance of an onset at each sixteenth of half a bar: kick, snare, hat.
_CHANCES = (
    (0.95, 0.15, 0.3, 0.35, 0.25, 0.15, 0.4, 0.2),
    (0.05, 0.1, 0.1, 0.2, 0.95, 0.15, 0.1, 0.25),
    (0.8, 0.35, 0.8, 0.35, 0.8, 0.35, 0.8, 0.35),
)
_SOFTEST = 0.3
# Two articulations an instrument: pitch at the end and above it at the start (Hz), time of the body to fall to 1/e (s),
# share of noise, lowest frequency of the noise (Hz), its fall (s), loudness.
_KIT = (
    (55.0, 120.0, 0.06, 0.05, 400.0, 0.004, 1.0),
    (48.0, 60.0, 0.12, 0.0, 400.0, 0.004, 1.0),
    (185.0, 40.0, 0.05, 0.6, 800.0, 0.06, 0.8),
    (420.0, 0.0, 0.02, 0.4, 1500.0, 0.03, 0.8),
    (0.0, 0.0, 0.01, 1.0, 2200.0, 0.015, 0.4),
    (0.0, 0.0, 0.01, 1.0, 2000.0, 0.08, 0.4),
)
_LOUDEST = 32767
_STRIDE = 8
# Grooves that are judged at once.
_TOGETHER = 32
# Pre-activation of gates and β at a steady start: 1 - tanh(7/2) is 0.0018, 1 - σ(7) and softplus(-7) are 0.0009.
_NEAR = 7.0


@dataclass(frozen=True)
class Groove:
    """The task: `frames` frames a beat (a multiple of 4), `tempo` beats a minute.

    A frame has `features` samples, scaled so that their mean square is about 1; the cue has `period` frames.

    Raises:
        InvalidInput: frames that are no multiple of 4, or frames that are no whole number of samples.

    >>> Groove().period, Groove().features
    (16, 500)
    """

    frames: int = 8
    tempo: int = 120

    name = "groove"
    what = "go on with half a bar of drums, for ever"
    vocab = None
    spacing = 1

    def __post_init__(self) -> None:
        if self.frames < 4 or self.frames % 4 or self.tempo < 1 or (RATE * 60) % (self.tempo * self.frames):
            what = f"{self.frames} frames a beat at {self.tempo} beats a minute and {RATE} samples a second"
            raise InvalidInput(f"groove: {what}, expected a multiple of 4 and a whole number of samples a frame")

    @property
    def features(self) -> int:
        """Samples of a frame."""
        return RATE * 60 // (self.tempo * self.frames)

    @property
    def period(self) -> int:
        """Frames of half a bar."""
        return 2 * self.frames

    @property
    def outputs(self) -> int:
        """Numbers that a model answers with, a frame."""
        return self.features

    @property
    def shortest(self) -> int:
        """Frames of the shortest task: the cue and one more."""
        return self.period + 1

    def grooves(self, generator: torch.Generator, count: int) -> Float[Tensor, "count period features"]:
        """Random half bars, on the device of `generator`."""
        device = generator.device

        def uniform(*shape: int) -> Tensor:
            return torch.rand(shape, generator=generator, device=device)

        instruments = len(_CHANCES)
        hit = uniform(count, instruments, _SIXTEENTHS) < torch.tensor(_CHANCES, device=device)
        velocity = _SOFTEST + (1 - _SOFTEST) * uniform(count, instruments, _SIXTEENTHS)
        share = uniform(count, instruments, 1)
        onsets = (hit * velocity)[:, :, None] * torch.stack([share, 1 - share], 2)
        start = torch.randint(_SIXTEENTHS, (count, 1), generator=generator, device=device)
        at = (torch.arange(_SIXTEENTHS, device=device) + start) % _SIXTEENTHS
        onsets = onsets.flatten(1, 2).gather(2, at[:, None].expand(-1, len(_KIT), -1))
        return (onsets.flatten(1) @ _strokes(self.period * self.features, str(device))).unflatten(
            1, (self.period, self.features)
        )

    def batch(
        self, generator: torch.Generator, count: int, length: int
    ) -> tuple[Float[Tensor, "count length features"], Float[Tensor, "count length features"], Bool[Tensor, " length"]]:
        """Inputs (half a bar, then zeros), the sound to answer, and which frames count: those after the cue.

        Raises:
            InvalidInput: a length without a frame after the cue.
        """
        if length < self.shortest:
            raise InvalidInput(f"groove: length {length}, expected more than the cue of {self.period} frames")
        sound = self.grooves(generator, count).repeat(1, -(-length // self.period), 1)[:, :length]
        asked = self.mask(length).to(sound.device)
        return sound.masked_fill(asked[:, None], 0.0), sound, asked

    def mask(self, length: int) -> Bool[Tensor, " length"]:
        """Which frames count: those after the cue."""
        return torch.arange(length) >= self.period

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Mean squared error; of zeros it is about 1."""
        return functional.mse_loss(answers.float(), targets)

    def pace(self, shortest: int, longest: int, progress: float) -> int:
        """The length to train on: the shortest for a quarter of training, then more and more, the longest from 3/5 on.

        A clock of nearly the right period is heard within a bar, and then corrected over longer and longer stretches;
        on long ones from the start a wrong clock is only noise, and what is learned is to fade out.
        """
        grown = (longest - shortest) * min(max((progress - 0.25) / 0.35, 0.0), 1.0)
        # In strides: a kernel may be compiled anew for a new length.
        return min(longest, shortest + _STRIDE * math.ceil(grown / _STRIDE))

    def recipe(self, model: str) -> dict[str, Any]:
        """The fields of a run that differ from `Run`'s own where nothing else is asked for."""
        layer = {"heads": 16, "head_dim": 4, "value_dim": 32, "output_gate": False, "output_norm": False}
        own = {"transformer": {"mlp_ratio": 4.0}, "gru": {}}.get(model, layer | {"init": "steady"})
        lengths = {"train_lengths": (2 * self.period, 136), "curriculum": "paced", "lengths": (136, 264), "words": 128}
        rate = {"steps": 6000, "batch": 64, "lr": {"transformer": 1e-3, "gru": 3e-3}.get(model, 5e-3)}
        return own | lengths | rate | {"weight_decay": 0.0, "warmup": 0.03}

    def probes(self, device: torch.device) -> Float[Tensor, "1 1 features"]:
        """The input whose transition says what a layer does: a silent frame."""
        return torch.zeros(1, 1, self.features, device=device)

    def judge(
        self, model: nn.Module, lengths: Sequence[int], *, words: int, generator: torch.Generator
    ) -> tuple[dict[str, Any], ...]:
        """For each length the SNR in dB of all frames after the cue, and of the last half bar, over `words` grooves."""
        longest = max(lengths)
        noise, signal = (torch.zeros(longest, dtype=torch.float64) for _ in range(2))
        for start in range(0, words, _TOGETHER):
            inputs, sound, _ = self.batch(generator, min(_TOGETHER, words - start), longest)
            with torch.no_grad():
                answers, _ = model(inputs)
            noise += (answers.float() - sound).square().sum((0, 2), dtype=torch.float64).cpu()
            signal += sound.square().sum((0, 2), dtype=torch.float64).cpu()
        rows: list[dict[str, Any]] = []
        for length in lengths:
            parts = [range(self.period, length), range(max(self.period, length - self.period), length)]
            whole, last = (_decibels(float(signal[list(part)].sum()), float(noise[list(part)].sum())) for part in parts)
            rows.append({"length": length, "snr_db": whole, "last_half_bar_db": last})
        return tuple(rows)

    def demonstrate(self, model: nn.Module, folder: Path, length: int, generator: torch.Generator) -> None:
        """Write one groove and the model's answer, behind the same cue, as target.wav and continuation.wav."""
        inputs, sound, asked = self.batch(generator, 1, length)
        with torch.no_grad():
            answers, _ = model(inputs)
        answers = torch.where(asked[:, None], answers.float(), sound)
        peak = float(sound.abs().max())
        write_wav(folder / "target.wav", sound[0], peak)
        write_wav(folder / "continuation.wav", answers[0], peak)


def snr(answer: Tensor, sound: Tensor, asked: Tensor) -> float:
    """Signal to noise of answers [B, T, F] in dB: energy of the sound over that of the difference, where asked [T].

    >>> sound = torch.ones(1, 2, 4)
    >>> round(snr(0.9 * sound, sound, torch.tensor([False, True])), 3)
    20.0
    """
    wanted = sound[:, asked].double()
    return _decibels(float(wanted.square().sum()), float((answer[:, asked].double() - wanted).square().sum()))


def steady(model: LanguageModel) -> None:
    """Let a model start as one that does nearly the same at every frame, and forgets next to nothing.

    What the inputs add to a constant vector is small beside it, and little of it reaches gates and β. The size of all
    gates is 0.998 or more (their signs stay), β is at 0.999 of its greatest value. Heads then differ in their keys,
    and with both ranges in the angle by which they turn. Baselines only get the constant vector.
    """
    with torch.no_grad():
        if model.inputs is not None:
            nn.init.normal_(model.inputs.bias)
        layers = [layer for layer in model.modules() if isinstance(layer, DeltaLayer)]
        for layer in layers:
            layer.beta_bias.fill_(_NEAR)
            layer.betas.weight.mul_(0.1)
            if layer.gates is not None and layer.gate_bias is not None:
                signed = layer.config.rule == "signed"
                layer.gate_bias.copy_(_NEAR * layer.gate_bias.sign() if signed else layer.gate_bias.clamp(max=-_NEAR))
                layer.gates.weight.mul_(0.1)


def write_wav(path: Path, frames: Float[Tensor, "time features"], peak: float | None = None) -> None:
    """Write frames as 16-bit mono at `RATE`; `peak` (by default the largest sample) becomes nearly full scale.

    What is louder is cut off. The standard library's `wave` writes it: every player reads 16-bit PCM, and no package is
    needed for it.

    Raises:
        InvalidFile: a folder that is not there or cannot be written.
    """
    samples = frames.detach().double().flatten().cpu()
    full = float(samples.abs().max()) if peak is None else peak
    whole = (samples * (0.95 * _LOUDEST / max(full, 1e-30))).round().clamp(-_LOUDEST, _LOUDEST)
    try:
        with path.open("wb") as file, wave.open(file, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(RATE)
            sound.writeframes(whole.short().numpy().astype("<i2").tobytes())
    except OSError as error:
        raise InvalidFile(str(path), f"cannot be written ({error.strerror})", "give a path in a folder") from None


def read_wav(path: Path) -> tuple[Float[Tensor, " samples"], int]:
    """Samples in [-1, 1] of a 16-bit mono file, and its samples a second.

    Raises:
        InvalidFile: no such file, or one of another kind.
    """
    try:
        with path.open("rb") as file, wave.open(file, "rb") as sound:
            kind = sound.getnchannels(), sound.getsampwidth()
            if kind != (1, 2):
                raise InvalidFile(str(path), f"{kind[0]} channels of {8 * kind[1]} bits", "give 16-bit mono")
            data = bytearray(sound.readframes(sound.getnframes()))
            return torch.frombuffer(data, dtype=torch.int16).double() / _LOUDEST, sound.getframerate()
    except OSError as error:
        raise InvalidFile(str(path), f"cannot be read ({error.strerror})", "give a .wav file") from None
    except (wave.Error, EOFError, ValueError) as error:
        raise InvalidFile(str(path), f"no sound ({error})", "give a .wav file") from None


def _decibels(signal: float, noise: float) -> float:
    return 10 * math.log10(signal / noise) if noise and signal else math.copysign(math.inf, signal - noise)


@lru_cache(maxsize=8)
def _strokes(size: int, device: str) -> Tensor:
    """Half a bar of `size` samples of each articulation struck at each sixteenth alone, [6·8, size]."""
    kit = torch.stack([_stroke(number, size) for number in range(len(_KIT))])
    struck = torch.stack([kit.roll(at * size // _SIXTEENTHS, 1) for at in range(_SIXTEENTHS)], 1)
    # Mean squares of a velocity and of a pair of shares.
    velocity, shares = (1 - _SOFTEST**3) / (3 * (1 - _SOFTEST)), 2 / 3
    energy = sum(chance * velocity * shares * _KIT[2 * i][-1] ** 2 for i, row in enumerate(_CHANCES) for chance in row)
    return (struck.flatten(0, 1) * math.sqrt(size / energy)).float().to(device)


def _stroke(number: int, size: int) -> Tensor:
    """One stroke of an articulation, float64 [size], energy loudness²; what rings longer is heard at the start."""
    pitch, above, fall, share, low, decay, loudness = _KIT[number]
    t = torch.arange(size, dtype=torch.float64) / RATE
    noise = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(number))
    phase = 2 * math.pi * (pitch * t + above * 0.02 * (1 - torch.exp(-t / 0.02)))
    body = (1 - share) * torch.sin(phase) * torch.exp(-t / fall)
    # A rise of a millisecond: no click.
    sound = (body + share * _between(noise, low) * torch.exp(-t / decay)) * (1 - torch.exp(-t / 0.001))
    sound = _between(sound, 20.0)
    return loudness * sound / sound.norm()


def _between(sound: Tensor, low: float) -> Tensor:
    """The part of a periodic sound with frequencies from `low` to `BAND` Hz."""
    spectrum = torch.fft.rfft(sound)
    frequency = torch.fft.rfftfreq(len(sound), 1 / RATE).double()
    return torch.fft.irfft(spectrum * ((frequency >= low) & (frequency <= BAND)), n=len(sound))
