"""Tasks give the answers that a plain walk through each word gives, and the same words for the same seed."""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from statetrack.errors import InvalidInput
from statetrack.lab.expressions import BRACKETED, FLAT
from statetrack.lab.tasks import TASKS, Task, scan, task_named
from statetrack.theory.groups import named_group

GROUPS = {"s3": "S3", "s4": "S4", "a5": "A5", "s5": "S5", "s5-swaps": "S5", "s5-moves": "S5", "z60": "Z60"}


def made(name: str, count: int = 8, length: int = 24, seed: int = 0) -> tuple[list[list[int]], list[list[int]], Task]:
    task = TASKS[name]
    inputs, targets, mask = task.batch(torch.Generator().manual_seed(seed), count, length)
    assert inputs.shape == targets.shape == (count, length)
    assert mask.shape == (length,)
    assert int(inputs.max()) < task.vocab
    assert int(targets.max()) < task.outputs
    return inputs.tolist(), targets.tolist(), task


@pytest.mark.parametrize("name", list(GROUPS))
def test_answers_are_products_of_permutations_newest_leftmost(name: str) -> None:
    group = named_group(GROUPS[name])
    elements = [tuple(int(i) for i in row) for row in group.elements]
    letters = TASKS[name].make.chosen
    for word, answers in zip(*made(name)[:2], strict=True):
        product = tuple(range(group.degree))
        for letter, answer in zip(word, answers, strict=True):
            move = elements[letters[letter]]
            product = tuple(move[product[i]] for i in range(group.degree))
            assert elements[answer] == product


def test_letters_of_the_restricted_tasks_move_as_few_points_as_they_say() -> None:
    def moved(name: str) -> list[int]:
        elements = named_group("S5").elements[list(TASKS[name].make.chosen)]
        return sorted(int((row != torch.arange(5).numpy()).sum()) for row in elements)

    assert moved("s5-swaps") == [0] + [2] * 10
    assert moved("s5-moves") == [0] + [2] * 10 + [3] * 20
    assert TASKS["s5"].vocab == TASKS["s5"].outputs == 120


@pytest.mark.parametrize(("name", "spacing", "order"), [("s5-slow", 4, 120), ("z60-slow", 2, 60)])
def test_slow_tasks_wait_between_letters_and_answer_at_the_end(name: str, spacing: int, order: int) -> None:
    words, answers, task = made(name, length=6 * spacing)
    assert task.vocab == order + 1
    for word, answer in zip(words, answers, strict=True):
        assert all((x == order) == bool(t % spacing) for t, x in enumerate(word))
        group, product = named_group("S5" if order == 120 else "Z60"), 0
        for t in range(0, len(word), spacing):
            product = group.multiply(word[t], product)
            assert answer[t + spacing - 1] == product
    assert task.mask(6 * spacing).nonzero().flatten().tolist() == list(range(spacing - 1, 6 * spacing, spacing))


def test_sums_counts_and_places_are_those_of_a_walk() -> None:
    for word, answers in zip(*made("parity")[:2], strict=True):
        assert answers == [sum(word[: t + 1]) % 2 for t in range(len(word))]
    for word, answers in zip(*made("z60")[:2], strict=True):
        assert answers == [sum(word[: t + 1]) % 60 for t in range(len(word))]
    words, answers, task = made("cycle")
    for word, answer in zip(words, answers, strict=True):
        assert answer[-1] == sum((0, 1, -1)[x] for x in word) % 5
    assert task.mask(5).tolist() == [False] * 4 + [True]
    for word, answer in zip(*made("even-pairs")[:2], strict=True):
        assert answer[-1] == sum(a != b for a, b in pairwise(word)) % 2


@pytest.mark.parametrize("length", [2, 3, 4, 9, 24, 41])
@pytest.mark.parametrize(("name", "signs"), [("arithmetic", FLAT), ("brackets", BRACKETED)])
def test_arithmetic_has_the_value_that_python_gives(name: str, signs: tuple[str, ...], length: int) -> None:
    words, answers, task = made(name, 64, length)
    texts = ["".join(signs[x] for x in word).strip() for word in words]
    assert all(text.endswith("=") and text.count("=") == 1 for text in texts)
    values = [eval(text[:-1]) % 5 for text in texts]
    assert [answer[-1] for answer in answers] == values
    assert len(set(values)) > 2
    assert not task.every


def test_expressions_with_brackets_have_operands_of_all_lengths() -> None:
    words, _, _ = made("brackets", 2000, 13)
    left = {_first_operand("".join(BRACKETED[x] for x in word)[:-1]) for word in words}
    assert left == set(range(1, 9))


def _first_operand(text: str) -> int:
    """The length of the left operand of (left sign right)."""
    depth = 0
    for at, x in enumerate(text[1:]):
        depth += (x == "(") - (x == ")")
        # A sign between two operands is one that something complete stands before.
        if depth == 0 and x in "+-*" and at > 0:
            return at
    raise AssertionError(text)


def test_the_same_seed_gives_the_same_words_and_another_does_not() -> None:
    for name in TASKS:
        one, again, other = made(name, seed=3), made(name, seed=3), made(name, seed=4)
        assert one[:2] == again[:2]
        assert one[0] != other[0]


def test_automata_of_tasks_agree_with_their_answers() -> None:
    for name, task in TASKS.items():
        if task.automaton is None:
            assert name in ("even-pairs", "arithmetic", "brackets")
            continue
        dfa = task.automaton()
        words, answers, _ = made(name, 4, 16)
        for word, answer in zip(words, answers, strict=True):
            states = [int(q) for q in dfa.trace([dfa.alphabet[x] for x in word])]
            assert states[-16:] == answer


def test_doubling_gives_the_products_of_a_walk() -> None:
    table = torch.tensor([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
    for length in (1, 2, 3, 63, 64, 65):
        x = torch.randint(3, (2, length), generator=torch.Generator().manual_seed(length))
        assert torch.equal(scan(x, table), x.cumsum(1) % 3)


def test_scaled_accuracy_is_0_for_chance_and_1_for_no_fault() -> None:
    task = TASKS["s3"]
    assert (task.scaled(1 / 6), task.scaled(1.0)) == (0.0, 1.0)


def test_unknown_tasks_and_short_words_are_one_line() -> None:
    with pytest.raises(InvalidInput, match="s5-swaps"):
        task_named("s7")
    with pytest.raises(InvalidInput, match="length 1"):
        TASKS["brackets"].batch(torch.Generator(), 1, 1)
