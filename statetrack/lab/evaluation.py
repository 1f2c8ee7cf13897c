"""How far a model's answers stay right: accuracy of the last answer and of whole words, by length.

Main definitions: `evaluate`, `answers_right`.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .tasks import Learnable, Task

# Words are judged in groups of about this many tokens.
_TOKENS = 1 << 17
# Above every seed of training words (`schedule.data_seed`).
_SEED = 1 << 62


def evaluate(
    model: nn.Module,
    task: Learnable,
    lengths: Sequence[int],
    *,
    words: int,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> tuple[dict[str, Any], ...]:
    """For each length `scaled_accuracy` and `sequence_accuracy` over so many unseen words of that length.

    Scaled accuracy is that of the last answer in the word, 0 for guessing and 1 for no fault; sequence accuracy the
    fraction of words without a wrong answer up to there. Where every prefix of a word is a word of the task, the
    words of all lengths are the prefixes of the longest ones. Grooves and text are judged by their own `judge`.
    """
    generator = torch.Generator(device).manual_seed(_SEED + seed)
    if not isinstance(task, Task):
        return task.judge(model, lengths, words=words, generator=generator)
    longest = max(lengths)
    right = answers_right(model, task, generator, words, longest) if task.every else None
    rows: list[dict[str, Any]] = []
    for length in lengths:
        found = answers_right(model, task, generator, words, length) if right is None else right[:, :length]
        at = task.mask(length).nonzero()[:, 0]
        judged = found[:, at.to(found.device)]
        last, whole = torch.stack([judged[:, -1].double().mean(), judged.all(1).double().mean()]).tolist()
        rows.append({"length": length, "scaled_accuracy": task.scaled(last), "sequence_accuracy": whole})
    return tuple(rows)


def answers_right(model: nn.Module, task: Task, generator: torch.Generator, words: int, length: int) -> Tensor:
    """Whether each answer of new words is right [words, length]; answers that do not count are judged as well."""
    found: list[Tensor] = []
    was = model.training
    model.eval()
    with torch.no_grad():
        while words > 0:
            count = min(words, max(1, _TOKENS // length))
            inputs, targets, _ = task.batch(generator, count, length)
            logits, _ = model(inputs)
            found.append(logits.argmax(-1) == targets)
            words -= count
    model.train(was)
    return torch.cat(found)
