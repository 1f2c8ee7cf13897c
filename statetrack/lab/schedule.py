"""Learning rates, lengths and seeds as functions of the step, so that a resumed run needs no state for them.

Main definitions: `learning_rate`, `length_at`, `longer`, `data_seed`, `judge_seed`.
"""

from __future__ import annotations

import math
import random

from .runs import Run


def learning_rate(run: Run, progress: float) -> float:
    """Linear warm-up, the full rate until `hold`, then a cosine to `min_lr`; `progress` in [0, 1].

    >>> run = Run("parity", lr=1.0, min_lr=0.0, warmup=0.5)
    >>> [learning_rate(run, p) for p in (0.25, 0.5, 1.0)]
    [0.5, 1.0, 0.0]
    """
    if progress < run.warmup:
        return run.lr * progress / run.warmup
    held = max(run.warmup, run.hold)
    rest = max(progress - held, 0.0) / max(1 - held, 1e-9)
    return run.min_lr + (run.lr - run.min_lr) * (1 + math.cos(math.pi * min(rest, 1.0))) / 2


def length_at(run: Run, step: int, spacing: int, progress: float, reach: int | None = None) -> int:
    """The length of the words of a step, uniform, a multiple of `spacing` where the range has one.

    `reach` is the longest that a growing curriculum has come to.
    """
    low, high = run.train_lengths
    if reach is not None:
        high = min(high, reach)
    elif run.curriculum == "paced":
        # Not from the shortest on: words of two or three tokens are learned by heart, which is hard to unlearn.
        high = min(high, low + math.ceil((high - low) * (0.25 + 1.5 * progress)))
    first, last = -(-low // spacing), high // spacing
    if first > last:
        return low
    return spacing * random.Random(f"{run.seed} {step}").randint(first, last)


def longer(length: int, longest: int) -> int:
    """The next length of a growing curriculum: 3/10 more, at least one token, at most `longest`.

    >>> [longer(n, 32) for n in (1, 6, 10, 29, 32)]
    [2, 7, 13, 32, 32]
    """
    return min(longest, max(length + 1, 13 * length // 10))


def data_seed(run: Run, step: int) -> int:
    """The seed of a step's words, below 2^63; no two steps of a run share one."""
    return (run.seed << 32) + step


def judge_seed(run: Run, step: int) -> int:
    """The seed of the words that say whether a growing curriculum goes on; no step below 2^31 trains on it."""
    return data_seed(run, step + (1 << 31))
