"""Learning rates, lengths and seeds as functions of the step, so that a resumed run needs no state for them.

Main definitions: `learning_rate`, `length_at`, `data_seed`.
"""

from __future__ import annotations

import math
import random

from .runs import Run


def learning_rate(run: Run, progress: float) -> float:
    """Linear warm-up over the first part of training, then a cosine to `min_lr`; `progress` in [0, 1].

    >>> run = Run("parity", lr=1.0, min_lr=0.0, warmup=0.5)
    >>> [learning_rate(run, p) for p in (0.25, 0.5, 1.0)]
    [0.5, 1.0, 0.0]
    """
    if progress < run.warmup:
        return run.lr * progress / run.warmup
    rest = (progress - run.warmup) / max(1 - run.warmup, 1e-9)
    return run.min_lr + (run.lr - run.min_lr) * (1 + math.cos(math.pi * min(rest, 1.0))) / 2


def length_at(run: Run, step: int, spacing: int, progress: float) -> int:
    """The length of the words of a step, uniform, a multiple of `spacing` where the range has one."""
    low, high = run.train_lengths
    if run.curriculum:
        # Not from the shortest on: words of two or three tokens are learned by heart, which is hard to unlearn.
        high = min(high, low + math.ceil((high - low) * (0.25 + 1.5 * progress)))
    first, last = -(-low // spacing), high // spacing
    if first > last:
        return low
    return spacing * random.Random(f"{run.seed} {step}").randint(first, last)


def data_seed(run: Run, step: int) -> int:
    """The seed of a step's words, below 2^63; no two steps of a run share one."""
    return (run.seed << 32) + step
