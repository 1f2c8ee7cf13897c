"""Training a model on a task: the same run gives the same numbers, also when it was killed and went on.

Words, lengths and learning rates are functions of seed and step; a snapshot holds the rest. Several processes that
torchrun started share every batch. Nothing is written outside the run's folder.

Main definitions: `train`, `Result`.

References: docs/lab.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels.language_model import LanguageModel

from .audio import steady
from .evaluation import answers_right, evaluate
from .kept_heads import KeptHeads
from .mechanism import describe, glance
from .near import near_model
from .nearest import nearest_constructions
from .ranks import Ranks, joined
from .runs import Result, Run, model_config, ranges_of
from .schedule import data_seed, judge_seed, learning_rate, length_at, longer
from .snapshots import Snapshot, read_snapshot, write_json, write_snapshot
from .starts import mixed, undecided
from .tasks import Task, task_named

Report = Callable[[int, dict[str, Any]], None]
# Steps between two looks at the clock, and between two at the loss (a look waits for the device).
_PACE, _LOOK = 10, 50
# Steps between two tries to go on to longer words.
_GROWTH = 20
_WORDS = 256
# Starts that are written over a new model.
_DRAWN = {"mixed": mixed, "undecided": undecided, "steady": steady}
# The seed of what is demonstrated: the same groove or line for every run.
DEMONSTRATED = 0


def train(
    run: Run,
    folder: str | Path,
    *,
    device: str | None = None,
    resume: bool = False,
    until: int | None = None,
    report: Report | None = None,
) -> Result:
    """Train, judge and describe a model; everything is written to `folder`.

    Files: run.json, checkpoint.safetensors (for `resume`), model.safetensors (`LanguageModel.load`), results.json;
    of a groove target.wav and continuation.wav, of text sample.txt.

    Args:
        device: "cpu", "cuda" or "cuda:N"; None is cuda if there is one. Under torchrun each process takes its own GPU.
        resume: go on from the folder's checkpoint, if it has one; a finished run is read.
        until: leave off after this step with a checkpoint, as a run that is killed right after one.
        report: called with the step and the loss, accuracy and learning rate.

    Raises:
        InvalidInput: a folder with a run in it and no `resume`, or with another run.
        InvalidFile: a folder that cannot be written, a checkpoint that cannot be read.
    """
    place, folder = device or ("cuda" if torch.cuda.is_available() else "cpu"), Path(folder)
    with joined(place) as ranks:
        found = _opened(run, folder, resume, ranks)
        if found is not None:
            return found
        trainer = _Trainer(run, folder, ranks, report)
        if ranks.first:
            # Not before the model is made: a run that cannot be leaves no folder that looks like one.
            write_json(folder / "run.json", run.to_json())
        checkpoint = folder / "checkpoint.safetensors"
        if resume and checkpoint.is_file():
            trainer.restore(read_snapshot(checkpoint))
        status = trainer.go(until)
        return trainer.finish(status)


def read_result(folder: Path) -> Result:
    """The result that a run wrote; InvalidFile if there is none."""
    path = folder / "results.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        return Result(
            Run.from_json(data["run"]),
            str(data["status"]),
            int(data["steps"]),
            float(data["seconds"]),
            tuple(data["rows"]),
            tuple(data["history"]),
            dict(data["mechanism"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidFile(str(path), f"cannot be read ({error})", "give the folder of a run") from error


def _opened(run: Run, folder: Path, resume: bool, ranks: Ranks) -> Result | None:
    """Make the folder ready; the result if it holds one."""
    ranks.share(run.batch)
    note = folder / "run.json"
    if note.exists():
        if not resume and ranks.first:
            raise InvalidInput(f"folder {folder}: holds a run; resume it or give another folder")
        try:
            known = json.loads(note.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidFile(str(note), f"is no JSON ({error})", "give another folder") from None
        if not isinstance(known, dict):
            raise InvalidFile(str(note), "holds no run", "give another folder")
        mine = run.to_json()
        other = [f"{name} {known.get(name)!r}, now {x!r}" for name, x in mine.items() if known.get(name) != x]
        if other and resume:
            raise InvalidInput(f"folder {folder}: holds another run ({'; '.join(other)})")
        if resume and (folder / "results.json").is_file():
            result = read_result(folder)
            return None if result.status == "left off" else result
    elif ranks.first:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidFile(str(folder), f"cannot be made ({error.strerror})", "give a folder to write to") from None
    return None


@dataclass
class _Progress:
    """What a checkpoint holds beside weights and moments."""

    step: int = 0
    elapsed: float = 0.0
    perfect: int = 0
    loss: float | None = None
    pending: float = 0.0
    reach: int | None = None
    history: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class _Trainer:
    """A model, its optimiser and how far they are."""

    def __init__(self, run: Run, folder: Path, ranks: Ranks, report: Report | None) -> None:
        self.run, self.folder, self.ranks, self.report = run, folder, ranks, report
        self.task = task_named(run.task)
        torch.manual_seed(run.seed)
        if run.init == "near" and isinstance(self.task, Task):
            self.model = near_model(run, self.task).to(ranks.device)
        else:
            self.model = LanguageModel(model_config(run, self.task))
            if run.init in _DRAWN:
                _DRAWN[run.init](self.model)
            self.model.to(ranks.device)
        # Whether words are answered from few heads: these learn from short words, on longer ones they are lost.
        self._apart = False
        self.heads = KeptHeads(self.model, run.heads_kept)
        self.optimiser = _optimiser(self.model, run, ranks.device)
        self.generator = torch.Generator(ranks.device)
        self.at = _Progress(reach=run.train_lengths[0] if run.curriculum == "grow" else None)
        self._started, self.total = time.perf_counter(), torch.zeros(())

    def restore(self, snapshot: Snapshot) -> None:
        """Go on from a snapshot."""
        snapshot.restore(self.model, self.optimiser)
        self.at = _Progress(**snapshot.facts)

    def go(self, until: int | None) -> str:
        """Train to the end, a fault, the budget's end or `until`; how it ended."""
        run, at, wrapped = self.run, self.at, self.ranks.wrapped(self.model)
        self._started = time.perf_counter() - at.elapsed
        last = run.steps if until is None else min(until, run.steps)
        share, started_at = 0.0, at.step
        total = self.total = torch.tensor(at.pending, device=self.ranks.device)
        while at.step < last:
            if at.step % _PACE == 0 or at.step == started_at:
                at.elapsed = self.ranks.agreed(time.perf_counter() - self._started)
                share = 0.0 if run.seconds is None else at.elapsed / run.seconds
                if share >= 1:
                    return "out of time"
            total += self._step(wrapped, max((at.step + 1) / run.steps, share))
            at.step += 1
            if at.step == 1:
                # Kernels are compiled in the first step; the clock starts behind it.
                total.item()
                self._started = time.perf_counter()
            if at.reach is not None and at.step % _GROWTH == 0:
                self._grow(at.reach)
            if at.step % _LOOK == 0 and not self._look(total):
                return "diverged"
            if at.step % run.evaluate_every == 0 and self._judge():
                return "early"
            if at.step % run.checkpoint_every == 0:
                self._save()
        return "finished" if at.step == run.steps else "left off"

    def _step(self, model: nn.Module, progress: float) -> torch.Tensor:
        """One step of the optimiser; the loss, on the device."""
        run, task, device = self.run, self.task, self.ranks.device
        rate = learning_rate(run, progress)
        for group in self.optimiser.param_groups:
            group["lr"] = rate
            if progress >= run.hold and run.late_decay is not None:
                group["weight_decay"] = min(group["weight_decay"], run.late_decay)
        length = self._length(progress)
        self.generator.manual_seed(data_seed(run, self.at.step))
        inputs, targets, _ = task.batch(self.generator, run.batch, length)
        mine = self.ranks.share(run.batch)
        self._apart = bool(run.heads_kept) and progress < run.hold
        if self._apart:
            self.heads.draw(self.generator, run.batch, mine)
        with self._precision():
            logits, _ = model(inputs[mine])
        self.heads.end()
        places = task.mask(length)
        targets = targets[mine]
        if not places.all():
            at = places.nonzero()[:, 0].to(device)
            logits, targets = logits.index_select(1, at), targets.index_select(1, at)
        loss = self._loss(logits, targets)
        self.optimiser.zero_grad(set_to_none=True)
        cost = run.head_cost if not self._apart else 0.0
        (loss + cost * self.heads.cost() if cost else loss).backward()
        if run.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), run.clip, foreach=True)
        self.optimiser.step()
        return loss.detach()

    def _length(self, progress: float) -> int:
        run, task, reach = self.run, self.task, self.at.reach
        if reach is not None and isinstance(task, Task) and task.every:
            # Every prefix is a word as well: the longest have all lengths in them.
            return max(reach - reach % task.spacing, task.spacing)
        paced = task.pace(*run.train_lengths, progress) if run.curriculum == "paced" else None
        return paced or length_at(run, self.at.step, task.spacing, progress, reach)

    def _loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The task's loss, with smoothed labels if the run says so."""
        loss, share = self.task.loss(logits, targets), self.run.smoothing
        return loss if not share else loss.lerp(-functional.log_softmax(logits.float(), -1).mean(), share)

    def _grow(self, reach: int) -> None:
        """Go on to longer words if enough answers at the end of new words of the present length are right."""
        longest = self.run.train_lengths[1]
        if reach < longest and isinstance(self.task, Task) and not self._apart:
            self.generator.manual_seed(judge_seed(self.run, self.at.step))
            right = answers_right(self.model, self.task, self.generator, _WORDS, max(reach, self.task.shortest))
            if self.ranks.agreed(float(right[:, -1].double().mean())) >= self.run.solved:
                self.at.reach = longer(reach, longest)

    def _precision(self) -> AbstractContextManager[Any]:
        if self.run.precision == "float32":
            return nullcontext()
        return torch.autocast(self.ranks.device.split(":")[0], torch.bfloat16)

    def _look(self, total: torch.Tensor) -> bool:
        """Read the mean loss since the last look; whether it is a number."""
        loss = self.at.loss = self.ranks.agreed(float(total) / _LOOK)
        total.zero_()
        if self.report is not None and self.ranks.first:
            known = self.at.history[-1] if self.at.history else {}
            judged = {name: known.get(name) for name in ("scaled_accuracy", "snr_db", "bits_per_byte")}
            self.report(self.at.step, {"loss": loss} | judged)
        return math.isfinite(loss)

    def _judge(self) -> bool:
        """Evaluate at the longest trained length; whether to leave off early."""
        length, device = self.run.train_lengths[1], self.ranks.device
        length -= length % self.task.spacing
        (row,) = evaluate(self.model, self.task, [length], words=_WORDS, seed=self.run.seed, device=device)
        if self.ranks.first:
            note = {"step": self.at.step, "loss": self.at.loss, "reach": self.at.reach, **row}
            self.at.history.append(note | glance(self.model, self.task))
        right = self.ranks.agreed(row.get("sequence_accuracy", 0.0)) == 1
        self.at.perfect = self.at.perfect + 1 if right else 0
        return bool(self.run.patience) and self.at.perfect >= self.run.patience

    def _save(self) -> None:
        if self.ranks.first:
            self.at.elapsed, self.at.pending = time.perf_counter() - self._started, float(self.total)
            path = self.folder / "checkpoint.safetensors"
            write_snapshot(path, self.model, self.optimiser, asdict(self.at))

    def finish(self, status: str) -> Result:
        """Judge the model at all lengths, describe it, and write the results."""
        run, at = self.run, self.at
        at.elapsed = time.perf_counter() - self._started
        self._save()
        if status == "left off" or not self.ranks.first:
            return Result(run, status, at.step, at.elapsed, (), tuple(at.history), {})
        judged = evaluate(self.model, self.task, run.lengths, words=run.words, seed=run.seed, device=self.ranks.device)
        alpha, beta = ranges_of(run)
        about = {"task": run.task, "model": run.model, "alpha_range": alpha, "beta_range": beta, "init": run.init}
        about |= {"seed": run.seed, "train_length": run.train_lengths[1]}
        spent = {"steps": at.step, "seconds": round(at.elapsed, 1), "lr": run.lr}
        rows = tuple(about | row | spent for row in judged)
        mechanism = describe(self.model, self.task)
        if isinstance(self.task, Task):
            mechanism["nearest"] = [vars(x) for x in nearest_constructions(self.model, self.task)]
        result = Result(run, status, at.step, at.elapsed, rows, tuple(at.history), mechanism)
        self.model.save(self.folder / "model.safetensors")
        if not isinstance(self.task, Task):
            generator = torch.Generator(self.ranks.device).manual_seed(DEMONSTRATED)
            self.task.demonstrate(self.model, self.folder, max(run.lengths), generator)
        write_json(self.folder / "results.json", result.to_json() | self._about())
        return result

    def _about(self) -> dict[str, Any]:
        """Where it ran and how large the model is."""
        device = self.ranks.device
        name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"
        count = sum(p.numel() for p in self.model.parameters())
        return {"device": name, "processes": self.ranks.count, "torch": torch.__version__, "parameters": count}


def _optimiser(model: nn.Module, run: Run, device: str) -> torch.optim.Optimizer:
    """AdamW; biases, norms, rates and first states do not decay."""
    still = ("bias", "a_log", "start", "norm", "skip")
    decayed, free = list[nn.Parameter](), list[nn.Parameter]()
    for name, parameter in model.named_parameters():
        kept = parameter.ndim < 2 or any(part in name.rpartition(".")[2] for part in still)
        (free if kept else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": run.weight_decay}, {"params": free, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=run.lr, betas=(0.9, run.square_decay), fused=device.startswith("cuda"))
