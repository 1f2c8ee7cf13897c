"""State-tracking tasks, made on the device from a seeded generator: which inputs, which answers, and where they count.

Group tasks ask for the product of the letters so far, newest leftmost, after every token (or at the end of every
transition that takes several tokens). Arithmetic and counting tasks ask at the last token, as their authors do.

Beside them stand a groove to go on with (`audio`) and text (`corpus`), which are trained in the same way.

Main definitions: `TASKS`, `Task`, `Learnable`, `Batch`, `task_named`.

References: Grazzi et al. (S5 and its restrictions, arithmetic); Deletang et al., *Neural Networks and the Chomsky
Hierarchy* (parity, cycle navigation, even pairs, arithmetic); docs/lab.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from statetrack.errors import InvalidInput
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import Group, cycles, named_group, word_problem

from .audio import Groove
from .corpus import Text, read_text
from .expressions import BRACKETED, FLAT, bracketed, flat

Batch = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class Task:
    """A task over `vocab` tokens with `outputs` answers, of which guessing gets the fraction `chance` right.

    `batch(generator, count, length)` makes inputs and targets [count, length] (int64) on the generator's device, and
    a mask [length] (bool) of the positions whose answer counts. `every` says that the mask has positions inside, so
    that a prefix of a word is a word of the task; else only the last one counts. Lengths below `shortest` are refused.
    """

    name: str
    what: str
    vocab: int
    outputs: int
    make: Callable[[torch.Generator, int, int], tuple[Tensor, Tensor]]
    every: bool = True
    spacing: int = 1
    shortest: int = 1
    automaton: Callable[[], Dfa] | None = None

    @property
    def features(self) -> None:
        """Real inputs a step: none, tokens come in."""

    @property
    def chance(self) -> float:
        """The fraction of right answers that guessing among all outputs gets."""
        return 1 / self.outputs

    def batch(self, generator: torch.Generator, count: int, length: int) -> Batch:
        """Inputs and targets [count, length] and the mask [length]; InvalidInput for lengths below `shortest`."""
        if length < self.shortest or count < 1:
            raise InvalidInput(f"task {self.name}: length {length}, count {count}; at least {self.shortest} and 1")
        inputs, targets = self.make(generator, count, length)
        return inputs, targets, self.mask(length).to(inputs.device)

    def mask(self, length: int) -> Tensor:
        """Which positions count [length]."""
        at = torch.arange(length)
        return at % self.spacing == self.spacing - 1 if self.every else at == length - 1

    def loss(self, answers: Tensor, targets: Tensor) -> Tensor:
        """Mean cross entropy of the answers that count, in nats."""
        return functional.cross_entropy(answers.float().flatten(0, -2), targets.flatten())

    def pace(self, shortest: int, longest: int, progress: float) -> None:
        """Lengths are drawn (`schedule.length_at`), not paced."""

    def recipe(self, model: str) -> dict[str, Any]:
        """The fields of a run that differ from `Run`'s own: the layers learn products far sooner without these two."""
        return {"output_gate": False, "output_norm": False}

    def probes(self, device: torch.device) -> Tensor:
        """The inputs whose transitions say what a first layer does: every letter alone, [vocab, 1]."""
        return torch.arange(self.vocab, device=device)[:, None]

    def scaled(self, accuracy: float) -> float:
        """0 for guessing, 1 for no fault."""
        return (accuracy - self.chance) / (1 - self.chance)


@dataclass(frozen=True, eq=False)
class Letters:
    """A group, the elements that are letters, and how many tokens a transition takes (the rest of them waits)."""

    group: Group
    chosen: tuple[int, ...]
    spacing: int = 1

    @cached_property
    def table(self) -> Tensor:
        """The number of g h at [g, h]."""
        rows = [self.group.left(g) for g in range(self.group.order)]
        return torch.from_numpy(np.stack(rows).astype(np.int64))

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        """The letters' elements and the table on the devices that were asked for."""
        return {}

    def on(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """The element of each letter, and the table, copied to a device once."""
        if device not in self._placed:
            self._placed[device] = torch.tensor(self.chosen, device=device), self.table.to(device)
        return self._placed[device]

    def __call__(self, generator: torch.Generator, count: int, length: int) -> tuple[Tensor, Tensor]:
        """Uniform letters and the product after each token."""
        device = generator.device
        steps = -(-length // self.spacing)
        letters = torch.randint(len(self.chosen), (count, steps), generator=generator, device=device)
        elements, table = self.on(device)
        products = scan(elements[letters], table)
        if self.spacing > 1:
            letters = functional.pad(letters[..., None], (0, self.spacing - 1), value=len(self.chosen))
            letters = letters.flatten(1)[:, :length]
            products = products.repeat_interleave(self.spacing, 1)[:, :length]
        return letters, products

    def matrices(self) -> Tensor:
        """The permutation matrix of each token on the group's points [token, point, point], float64."""
        size = self.group.degree
        images = torch.from_numpy(self.group.elements[list(self.chosen)].astype(np.int64))
        if self.spacing > 1:
            images = torch.cat([images, torch.arange(size)[None]])
        return functional.one_hot(images, size).mT.double()

    def automaton(self) -> Dfa:
        """The word problem; of tasks that wait the waiting token is one more letter, which does nothing."""
        dfa = word_problem(self.group, self.chosen)
        if self.spacing == 1:
            return dfa
        stay = np.arange(len(dfa.states), dtype=np.int32)[:, None]
        return Dfa((*dfa.alphabet, "wait"), dfa.states, dfa.start, np.hstack([dfa.delta, stay]), dfa.outputs)


def scan(elements: Tensor, table: Tensor) -> Tensor:
    """Products x_t ... x_1 of elements [count, time], by doubling: log2(time) look-ups in the table of products.

    >>> scan(torch.tensor([[1, 1, 0, 1]]), torch.tensor([[0, 1], [1, 0]])).tolist()
    [[1, 0, 0, 1]]
    """
    order, reach = len(table), 1
    flat_table = table.flatten()
    while reach < elements.shape[1]:
        later = flat_table[elements[:, reach:] * order + elements[:, :-reach]]
        elements = torch.cat([elements[:, :reach], later], 1)
        reach *= 2
    return elements


def even_pairs(generator: torch.Generator, count: int, length: int) -> tuple[Tensor, Tensor]:
    """Bits; the answer is 0 if 01 and 10 stand in the word an even number of times together, else 1."""
    bits = torch.randint(2, (count, length), generator=generator, device=generator.device)
    return bits, bits ^ bits[:, :1]


Learnable = Task | Groove | Text


def task_named(name: str) -> Learnable:
    """The task of a name: of `TASKS`, "groove", or "text:SOURCE" with a corpus or a folder (`corpus.read_text`).

    Raises:
        InvalidInput: a name that is not known, a text that is not there or too short.
    """
    kind, _, source = name.partition(":")
    if name == "groove":
        return Groove()
    if kind == "text":
        return read_text(source or "kjv")
    if name not in TASKS:
        raise InvalidInput(f"task {name!r}: know {', '.join(TASKS)}, groove, text:SOURCE")
    return TASKS[name]


def _all(group: Group) -> list[int]:
    return list(range(group.order))


def _moving(most: int) -> Callable[[Group], list[int]]:
    """The identity and the permutations that are one cycle of at most so many points."""

    def chosen(group: Group) -> list[int]:
        shapes = [cycles(group.permutation(g)) for g in range(group.order)]
        return [g for g, shape in enumerate(shapes) if len(shape) <= 1 and all(len(c) <= most for c in shape)]

    return chosen


def _group_task(
    name: str, what: str, group: Group, chosen: Callable[[Group], list[int]] = _all, spacing: int = 1
) -> Task:
    """A word problem, asked after every transition."""
    letters = Letters(group, tuple(chosen(group)), spacing)
    count = len(letters.chosen) + (spacing > 1)
    return Task(name, what, count, group.order, letters, True, spacing, spacing, letters.automaton)


def _steps(group: Group) -> list[int]:
    """Stay, one forwards, one backwards."""
    return [0, group.generators[0], group.inverse(group.generators[0])]


def _last(task: Task) -> Task:
    """The same task asked at the last token only."""
    return Task(task.name, task.what, task.vocab, task.outputs, task.make, False, automaton=task.automaton)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _group_task("parity", "number of ones, mod 2", named_group("Z2")),
        _group_task("s3", "products in S3", named_group("S3")),
        _group_task("s4", "products in S4", named_group("S4")),
        _group_task("a5", "products in A5", named_group("A5")),
        _group_task("s5", "products in S5", named_group("S5")),
        _group_task("s5-swaps", "products of swaps (and the identity) in S5", named_group("S5"), _moving(2)),
        _group_task("s5-moves", "products of swaps, 3-cycles and the identity in S5", named_group("S5"), _moving(3)),
        _group_task(
            "s5-slow", "products in S5, 4 tokens a transition, answered at the fourth", named_group("S5"), _all, 4
        ),
        _group_task("z60", "sums mod 60", named_group("Z60")),
        _group_task("z60-slow", "sums mod 60, 2 tokens a summand, answered at the second", named_group("Z60"), _all, 2),
        _last(_group_task("cycle", "place on a circle of five after steps 0, +1, -1", named_group("Z5"), _steps)),
        Task("even-pairs", "whether 01 and 10 are even in number together", 2, 2, even_pairs, False),
        Task("arithmetic", "value mod 5 of sums and products, * binds tighter", len(FLAT), 5, flat, False, shortest=2),
        Task("brackets", "value mod 5 of an expression with brackets", len(BRACKETED), 5, bracketed, False, shortest=2),
    )
}
