"""Models that start as a program answer as it does; noise takes that away by degrees; what fits no layer is refused."""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import pytest
import torch

from statetrack.api import build
from statetrack.errors import InvalidInput
from statetrack.kernels.language_model import LanguageModel
from statetrack.lab.near import model_of_program, near_model, program_of
from statetrack.lab.nearest import compare, nearest_constructions
from statetrack.lab.runs import Run
from statetrack.lab.tasks import TASKS, Task

torch.set_num_threads(1)


def wrong(model: LanguageModel, task: Task, words: int = 16, length: int = 200) -> int:
    inputs, targets, _ = task.batch(torch.Generator().manual_seed(1), words, length)
    with torch.no_grad():
        return int((model(inputs)[0].argmax(-1) != targets).sum())


@pytest.mark.parametrize("name", ["parity", "s3", "s4", "z60"])
def test_without_noise_the_model_answers_as_the_program_for_200_tokens(name: str) -> None:
    model = near_model(Run(name, init="near"), TASKS[name])
    assert wrong(model, TASKS[name]) == 0
    assert model.config.mlp_ratio == 0


def test_a5_is_read_through_products_of_the_quaternions_entries() -> None:
    torch.manual_seed(0)
    task = TASKS["a5"]
    model = model_of_program(program_of(task), width=128)
    assert wrong(model, task) == 0
    assert model.config.layer.heads == 4
    assert dict(model.named_parameters())["body.blocks.0.mlp.up.weight"].shape == (144, 128)
    (first, *_) = nearest_constructions(model, task)
    assert first.construction == "program, head 0"
    assert first.residual < 1e-5
    noisy = model_of_program(program_of(task), width=128, noise=0.3)
    assert wrong(noisy, task) > 1000
    # A saturation of 8 can be learned from: gates and β move, and 200 tokens are right all the same.
    soft = model_of_program(program_of(task), saturation=8.0)
    assert wrong(soft, task) == 0
    assert soft.config.layer.width == 60 + 16 + 9


def test_faults_grow_with_the_noise() -> None:
    program, task = program_of(TASKS["s3"]), TASKS["s3"]
    counts: list[int] = []
    for noise in (0.0, 0.1, 0.3, 1.0):
        torch.manual_seed(0)
        counts.append(wrong(model_of_program(program, width=32, noise=noise), task))
    assert counts == sorted(counts)
    assert counts[0] == 0 < counts[2]


def test_a_program_with_values_starts_a_model_as_well() -> None:
    made = build("a*b", "ckda", alphabet="ab")
    weights = made.weights("float64")
    model = model_of_program(weights)
    assert "layers.0.values" in weights.tensors or "layers.0.state" in weights.tensors
    tokens = torch.randint(2, (8, 50), generator=torch.Generator().manual_seed(0))
    delta = torch.from_numpy(weights.dfa.delta).long()
    state, truth = torch.full((8,), weights.dfa.start), []
    for t in range(50):
        state = delta[state, tokens[:, t]]
        truth.append(state)
    with torch.no_grad():
        assert torch.equal(model(tokens)[0].argmax(-1), torch.stack(truth, 1))


def test_a_saved_near_model_is_the_same_model(tmp_path: object) -> None:
    model = near_model(Run("s3", init="near", noise=0.1), TASKS["s3"])
    path = f"{tmp_path}/model.safetensors"
    model.save(path)
    again = LanguageModel.load(path)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


def test_what_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(InvalidInput, match="width 8"):
        model_of_program(program_of(TASKS["s4"]), width=8)
    with pytest.raises(InvalidInput, match="several layers"):
        model_of_program(build("S5", "deltanet", letters="generators").weights("float64"))
    with pytest.raises(InvalidInput, match="even-pairs"):
        program_of(TASKS["even-pairs"])


def test_a_change_of_basis_inside_a_larger_state_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    B = TASKS["s3"].make.matrices()
    moved = B - 1 / 3
    whole = torch.zeros(6, 5, 5, dtype=torch.float64)
    whole[:, :3, :3], whole[:, 3:, 3:] = B, 0.5 * torch.eye(2)
    basis = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    plane = torch.linalg.svd(moved[3])[2][:2]
    reduced = plane @ B @ plane.T
    residual, spread, traces = compare(basis @ whole @ basis.inverse(), reduced)
    assert residual < 1e-9
    assert spread > 0.01
    assert traces < 1e-9
    shuffled = reduced[torch.tensor([0, 3, 1, 4, 2, 5])]
    assert compare(basis @ whole @ basis.inverse(), shuffled)[0] > 0.05


def test_models_without_transitions_have_no_nearest_construction() -> None:
    from statetrack.lab.runs import model_config

    run = Run("s3", "gru", "none", width=16)
    assert nearest_constructions(LanguageModel(model_config(run, TASKS["s3"])), TASKS["s3"]) == ()
