"""What a training run is: the task, the model with its ranges, how it starts, and how it is trained and judged.

Main definitions: `Run`, `RANGES`, `Result`, `model_config`, `ranges_of`.

References: Grazzi et al. and CKDA for the recipes; docs/lab.md.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from statetrack.errors import InvalidInput
from statetrack.kernels.baselines import BASELINES, BaselineConfig
from statetrack.kernels.language_model import ModelConfig
from statetrack.kernels.layer_parts import KINDS, LayerConfig

from .tasks import Learnable, Task, task_named

# Which of the two ranges is extended: α from [0, 1] to [-1, 1], β from [0, 1] to [0, 2].
RANGES = ("none", "alpha", "beta", "both")
CURRICULA = ("none", "paced", "grow")
STARTS = ("standard", "spread", "mixed", "undecided", "steady", "near")
_CHOICES = {
    "model": (*KINDS, *BASELINES),
    "ranges": RANGES,
    "init": STARTS,
    "curriculum": CURRICULA,
    "precision": ("float32", "bfloat16"),
    "kernel": ("fast", "tracking", "exact"),
}
_GATED = ("ckda", "kda", "gated_deltanet", "gated_deltaproduct", "diagonal")


@dataclass(frozen=True)
class Run:
    """One training run, in plain JSON values.

    Attributes:
        task, model: names; `ranges` says which range is extended, "none", "alpha", "beta" or "both".
        init: "standard", "spread" (gates and β on both sides, docs/layers.md), "mixed" (gates whose sign depends on the
            token), "undecided" (signed gates near 0; both docs/lab.md), "steady" (of a groove, docs/audio.md) or "near"
            (a compiled program with `noise` and `saturation`, docs/lab.md; it settles heads, head_dim, mlp_ratio and
            learned_start).
        seed: of the first weights and of the data.
        layers, width, heads, head_dim (width // heads), value_dim (head_dim), factors, mlp_ratio, conv, silu,
            output_gate, output_norm, learned_start: of the model (docs/layers.md).
        heads_kept: in training a word is answered from so many heads, drawn, until the share `hold` of the steps, and
            lengths grow after that; 0 for all heads.
        head_cost: times the sum of the norms of all heads' output weights, added to the loss where all heads answer, so
            that few of them do in the end.
        train_lengths: shortest and longest word; one length a batch is drawn.
        curriculum: how the longest word grows: "none"; "paced", over the first half of training, from a quarter of the
            range on; "grow", from the shortest on, by 3/10 as soon as the share `solved` of the last answers is right.
        lengths: where the trained model is judged, on `words` words.
        steps, batch, lr, min_lr, weight_decay, square_decay (of the mean squares), clip: of AdamW. The rate rises over
            the share `warmup` of the steps, stays until the share `hold`, then falls as a cosine. Weights then decay by
            `late_decay` at most (as before if there is none).
        smoothing: of the labels; the loss is then least at finite logits, and states that drift always cost something.
        seconds: of training at most; the schedule then follows the clock where that is faster.
        precision: "float32" or "bfloat16" (autocast); kernel: precision of the layer kernels on CUDA.
        evaluate_every, checkpoint_every: steps. patience: leave off after so many evaluations in a row without a fault
            at the longest trained length; 0 for never.

    Raises:
        InvalidInput: whatever does not fit, all of it in one line.
    """

    task: str
    model: str = "ckda"
    ranges: str = "both"
    init: str = "spread"
    seed: int = 0
    layers: int = 1
    width: int = 128
    heads: int = 4
    head_dim: int | None = None
    value_dim: int | None = None
    factors: int = 1
    mlp_ratio: float = 0.0
    conv: int = 0
    silu: bool = False
    output_gate: bool = True
    output_norm: bool = True
    learned_start: bool = False
    heads_kept: int = 0
    head_cost: float = 0.0
    noise: float = 0.0
    saturation: float = 20.0
    train_lengths: tuple[int, int] = (3, 40)
    curriculum: str = "none"
    solved: float = 0.9
    lengths: tuple[int, ...] = (40, 64, 128, 256)
    words: int = 512
    steps: int = 5000
    batch: int = 512
    lr: float = 1e-3
    min_lr: float = 1e-6
    warmup: float = 0.1
    hold: float = 0.0
    weight_decay: float = 0.01
    late_decay: float | None = None
    square_decay: float = 0.999
    smoothing: float = 0.0
    clip: float = 1.0
    seconds: float | None = None
    precision: str = "float32"
    kernel: str = "exact"
    evaluate_every: int = 250
    checkpoint_every: int = 1000
    patience: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.task, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInput(f"run: task {self.task!r}, expected a name")
        task = task_named(self.task)
        faults = [
            f"{name} {getattr(self, name)!r}, expected {', '.join(allowed)}"
            for name, allowed in _CHOICES.items()
            if getattr(self, name) not in allowed
        ]
        faults += self._number_faults()
        faults += _length_faults(task, self.train_lengths, self.lengths)
        if not faults:
            faults += self._range_faults()
        if faults:
            raise InvalidInput(f"run: {'; '.join(faults)}")
        if self.init != "near":
            # Sizes that no model has are told before a folder is made.
            model_config(self, task)

    @property
    def name(self) -> str:
        """A name for its folder."""
        task = re.sub("[^a-zA-Z0-9]+", "-", self.task).strip("-")
        return f"{task}-{self.model}-{self.ranges}-{self.init}-seed{self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Plain values; `from_json` reads them."""
        return json.loads(json.dumps(asdict(self)))

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Run:
        """A run from plain values. InvalidInput names what it does not know."""
        unknown = sorted(set(data) - {field.name for field in fields(Run)})
        if unknown or "task" not in data:
            raise InvalidInput(f"run: {'no task' if 'task' not in data else 'unknown ' + ', '.join(unknown)}")
        values: dict[str, Any] = dict(data)
        for name in ("train_lengths", "lengths"):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        return Run(**values)

    def _number_faults(self) -> list[str]:
        wholes = (
            "layers",
            "width",
            "heads",
            "factors",
            "words",
            "steps",
            "batch",
            "evaluate_every",
            "checkpoint_every",
        )
        faults = [
            f"{name} {getattr(self, name)!r}, expected an integer from 1 on"
            for name in wholes
            if not _is_whole(getattr(self, name), 1)
        ]
        if not _is_whole(self.heads_kept, 0):
            faults.append(f"heads_kept {self.heads_kept!r}, expected an integer from 0 on")
        if not _is_whole(self.patience, 0) or not _is_whole(self.seed, 0) or self.seed >= 1 << 31:
            faults.append(f"seed {self.seed!r} and patience {self.patience!r}, expected integers from 0 on below 2^31")
        switches = ("silu", "output_gate", "output_norm", "learned_start")
        faults += [
            f"{name} {getattr(self, name)!r}, expected true or false"
            for name in switches
            if not isinstance(getattr(self, name), bool)
        ]
        bounds = {"lr": (0, 10), "min_lr": (0, 10), "warmup": (0, 1), "weight_decay": (0, 10), "mlp_ratio": (0, 1000)}
        bounds |= {"clip": (0, math.inf), "noise": (0, 100), "saturation": (0, 100), "head_cost": (0, 10)}
        bounds |= {"solved": (0, 1), "hold": (0, 1), "square_decay": (0, 0.999999), "smoothing": (0, 0.999)}
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                faults.append(f"{name} {value!r}, expected a number from {least} to {most}")
        late: Any = self.late_decay
        if late is not None and (isinstance(late, bool | str) or not 0 <= late <= 10):
            faults.append(f"late_decay {late!r}, expected a number from 0 to 10 or none")
        seconds: Any = self.seconds
        if seconds is not None and (isinstance(seconds, bool | str) or not seconds > 0):
            faults.append(f"seconds {self.seconds!r}, expected a positive number or none")
        return faults

    def _range_faults(self) -> list[str]:
        """Ranges and starts that a model does not have."""
        faults: list[str] = []
        most = widest(self.model)
        if most not in ("both", self.ranges) and self.ranges != "none":
            faults.append(f"ranges {self.ranges!r}: {self.model} has none but {most!r} to extend")
        no_heads = self.model in BASELINES or self.model == "diagonal"
        if (self.heads_kept and (no_heads or self.heads_kept > self.heads)) or (self.head_cost and no_heads):
            faults.append(
                f"heads_kept {self.heads_kept}, head_cost {self.head_cost}, expected at most the heads of a delta "
                f"layer; {self.model} has {0 if no_heads else self.heads}"
            )
        if (self.init == "steady") > (self.task == "groove"):
            faults.append(f"init 'steady': {self.task}, expected groove")
        if (self.smoothing or self.curriculum == "grow") and not isinstance(task_named(self.task), Task):
            faults.append(f"smoothing and curriculum 'grow': {self.task} has no right answers")
        if self.init == "near" and not isinstance(task_named(self.task), Task):
            faults.append(f"init 'near': {self.task} has no program")
        if self.init == "near" and (self.model != "ckda" or self.layers != 1):
            faults.append(f"init 'near': {self.layers} layers of {self.model}, expected one of ckda")
        if self.init == "near" and (self.ranges != "both" or self.factors != 1 or self.conv or self.silu):
            faults.append("init 'near': its layer has both ranges, one factor, no convolution and no SiLU")
        return faults


@dataclass(frozen=True)
class Result:
    """What a run found: `rows` (one a length, docs/lab.md), how training went, and what the layers do.

    `status`: "finished", "early" (nothing was wrong any more), "out of time", "diverged" or "left off".
    """

    run: Run
    status: str
    steps: int
    seconds: float
    rows: tuple[dict[str, Any], ...]
    history: tuple[dict[str, Any], ...]
    mechanism: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Plain values, as in results.json."""
        data = asdict(self) | {"run": self.run.to_json()}
        return data | {"rows": list(self.rows), "history": list(self.history)}


def widest(model: str) -> str:
    """The ranges that a model can have extended."""
    if model in BASELINES:
        return "none"
    return {"ckda": "both", "diagonal": "alpha"}.get(model, "beta")


def ranges_of(run: Run) -> tuple[list[int] | None, list[int] | None]:
    """The ranges of α and β; None where the model has no such number. α of a layer without gates is 1."""
    if run.model in BASELINES:
        return None, None
    wide = run.ranges in ("alpha", "both") and run.model in ("ckda", "diagonal")
    alpha = [1, 1] if run.model not in _GATED else [-1, 1] if wide else [0, 1]
    return alpha, None if run.model == "diagonal" else [0, 2] if run.ranges in ("beta", "both") else [0, 1]


def model_config(run: Run, task: Learnable) -> ModelConfig:
    """The model of a run; InvalidInput for sizes that do not fit."""
    layer: LayerConfig | BaselineConfig
    if run.model in BASELINES:
        layer = BaselineConfig(kind=run.model, width=run.width, heads=run.heads)
    else:
        alpha, beta = ranges_of(run)
        layer = LayerConfig(
            kind=run.model,
            width=run.width,
            heads=run.heads,
            head_dim=run.head_dim,
            value_dim=run.value_dim,
            factors=run.factors,
            signed_gates=alpha == [-1, 1],
            beta_max=2.0 if beta == [0, 2] else 1.0,
            gate_init="spread" if run.init in ("spread", "mixed", "undecided", "steady") else "standard",
            beta_init="spread" if run.init in ("spread", "mixed", "undecided") else "standard",
            silu=run.silu,
            conv=run.conv,
            output_gate=run.output_gate,
            output_norm=run.output_norm,
            learned_start=run.learned_start,
            precision=run.kernel,
        )
    # Norms would make every frame of a sound as loud as any other.
    sound = task.features is not None
    return ModelConfig(
        layer=layer,
        layers=run.layers,
        vocab=task.vocab,
        features=task.features,
        outputs=task.outputs,
        mlp_ratio=run.mlp_ratio,
        norm=not sound,
        head_bias=sound,
    )


def _length_faults(task: Learnable, trained: tuple[int, ...], judged: tuple[int, ...]) -> list[str]:
    if not all(isinstance(row, tuple) for row in (trained, judged)):  # pyright: ignore[reportUnnecessaryIsInstance]
        return [f"train_lengths {trained!r} and lengths {judged!r}, expected rows of integers"]
    faults: list[str] = []
    if len(trained) != 2 or not all(_is_whole(n, 1) for n in trained) or trained[0] > trained[1]:
        faults.append(f"train_lengths {list(trained)!r}, expected shortest and longest")
    elif trained[0] < task.shortest:
        faults.append(f"train_lengths {list(trained)}: {task.name} takes words from {task.shortest} tokens on")
    if not judged or not all(_is_whole(n, 1) and n >= task.shortest for n in judged):
        faults.append(f"lengths {list(judged)!r}, expected integers from {task.shortest} on")
    return faults


def _is_whole(x: object, least: int) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x >= least
