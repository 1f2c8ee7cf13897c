"""`audit` on checkpoints that compiled programs are, on layers of flash-linear-attention, and on random ones."""
# pyright: basic

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import statetrack as st
from statetrack.cli import main
from statetrack.constructions.source import Options, resolve
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels.audit import spectrum, statistics, tracking
from statetrack.kernels.checkpoints import Reading, read_checkpoint


def built(source: str, target: str, folder: Path, dtype: str = "float64") -> Path:
    path = folder / "weights.safetensors"
    st.build(source, target).weights(dtype).save(path)
    return path


def arrays(folder: Path, **tensors: Tensor) -> Path:
    path = folder / "arrays.safetensors"
    save_file({name: x.contiguous() for name, x in tensors.items()}, path)
    return path


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("source", "target", "clusters"),
    [
        ("S3", "ckda", 6),
        ("Z12", "ckda", 12),
        ("S4", "ckda", 24),
        ("S4", "deltaproduct", 24),
        ("S5", "deltaproduct", 120),
        ("Z2", "deltanet", 2),
        ("(ab)*", "ckda", 3),
        ("(ab)*", "deltaproduct", 3),
        ("[abc]*a", "deltanet", 3),
    ],
)
def test_a_compiled_program_is_found_to_track_its_automaton(
    source: str, target: str, clusters: int, tmp_path: Path
) -> None:
    (layer,) = read_checkpoint(built(source, target, tmp_path))
    (found,) = tracking(layer, resolve(source).dfa)
    assert found.tracked
    assert found.closed
    assert (found.clusters, found.conflicts, found.accuracy, found.horizon) == (clusters, 0, 1.0, found.length)
    assert found.defect < 1e-9


def test_another_automaton_of_as_many_letters_is_not_tracked(tmp_path: Path) -> None:
    (layer,) = read_checkpoint(built("S3", "ckda", tmp_path))
    (found,) = tracking(layer, resolve("Z6").dfa)
    assert not found.tracked
    assert found.conflicts > 0
    assert found.accuracy < 0.5


def test_a_quotient_is_tracked_too(tmp_path: Path) -> None:
    """The head of Z4 tells the states of any automaton that Z4 maps onto: here parity on the same four letters."""
    (layer,) = read_checkpoint(built("Z4", "ckda", tmp_path))
    delta = {str(i): {a: str((i + n) % 2) for n, a in enumerate("abcd")} for i in range(2)}
    text = {"alphabet": list("abcd"), "states": ["0", "1"], "start": "0", "accepting": ["0"], "delta": delta}
    (tmp_path / "parity.json").write_text(json.dumps(text))
    dfa = resolve(f"file:{tmp_path / 'parity.json'}").dfa
    (found,) = tracking(layer, dfa)
    assert found.tracked


def test_random_transitions_track_nothing(tmp_path: Path) -> None:
    beta, alpha = torch.full((6, 2), 1.7), torch.rand(6, 2, 8, generator=torch.Generator().manual_seed(1)) * 2 - 1
    (layer,) = read_checkpoint(arrays(tmp_path, k=normal(6, 2, 8), beta=beta.double(), alpha=alpha.double()))
    for found in tracking(layer, resolve("S3").dfa, clusters=300):
        assert not found.tracked
        assert found.accuracy < 0.5


def test_a_learned_system_near_a_group_is_tracked_up_to_its_drift(tmp_path: Path) -> None:
    (exact,) = read_checkpoint(built("S3", "ckda", tmp_path))
    noisy = exact.k[:, :, 0] + 0.002 * normal(*exact.k[:, :, 0].shape)
    (layer,) = read_checkpoint(arrays(tmp_path, k=noisy, beta=exact.beta[:, :, 0], alpha=exact.alpha[:, :, 0]))
    (found,) = tracking(layer, resolve("S3").dfa, length=20)
    assert found.tracked
    assert found.clusters == 6
    assert 1e-4 < found.defect < 0.1
    (late,) = tracking(layer, resolve("S3").dfa, length=200_000, words=1)
    assert 20 < late.horizon < 200_000


def test_facts_count_what_they_say(tmp_path: Path) -> None:
    """A rotation by 90 degrees, a reflection, a decay."""
    k = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]])[:, None]
    alpha = torch.tensor([[-1.0, 1.0], [1.0, 1.0], [0.5, 0.5]])[:, None]
    beta = torch.tensor([[2.0], [2.0], [0.5]])
    (layer,) = read_checkpoint(arrays(tmp_path, k=k, beta=beta, alpha=alpha))
    (facts,) = statistics(layer)
    assert facts.negative_gates == pytest.approx(1 / 6)
    assert facts.beta_above_1 == pytest.approx(2 / 3)
    assert facts.complex_tokens == pytest.approx(1 / 3)
    assert facts.complex_pairs == pytest.approx(2 / 6)
    assert facts.circle == pytest.approx(0, abs=1e-12)
    values = spectrum(layer, 0)
    assert sorted(values[0].imag.tolist()) == pytest.approx([-1, 1])
    assert sorted(values[1].real.tolist()) == pytest.approx([-1, 1])
    assert sorted(values[2].real.tolist()) == pytest.approx([0.25, 0.5])


def test_positive_gates_turn_nothing_and_gates_of_both_signs_do(tmp_path: Path) -> None:
    k, beta = normal(64, 3, 6), torch.full((64, 3), 1.8, dtype=torch.float64)
    gates = torch.rand(64, 3, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (plain,) = read_checkpoint(arrays(tmp_path, k=k, beta=beta, alpha=gates))
    assert all(f.complex_pairs == 0 and f.circle is None and f.negative_gates == 0 for f in statistics(plain))
    (signed,) = read_checkpoint(arrays(tmp_path, k=k, beta=beta, alpha=2 * gates - 1))
    assert all(f.complex_tokens > 0 and 0.3 < f.negative_gates < 0.7 for f in statistics(signed))


def test_a_rounded_program_keeps_its_facts(tmp_path: Path) -> None:
    (layer,) = read_checkpoint(built("Z60", "ckda", tmp_path, "bfloat16"))
    (facts,) = statistics(layer)
    assert facts.complex_tokens > 0.9
    assert facts.circle is not None
    assert facts.circle < 0.01


def delta_net(folder: Path, beta_logit: float) -> Path:
    """A DeltaNet layer whose tokens swap two of four channels: embeddings one-hot, projections tables of the token."""
    pairs = torch.combinations(torch.arange(4))
    keys = torch.zeros(6, 4)
    keys[torch.arange(6), pairs[:, 0]] = 1.0
    keys[torch.arange(6), pairs[:, 1]] = -1.0
    at = "model.layers.0.attn."
    path = folder / "model.safetensors"
    tensors = {
        "model.embeddings.weight": torch.eye(6),
        at + "q_proj.weight": torch.zeros(4, 6),
        at + "k_proj.weight": keys.T.contiguous(),
        at + "v_proj.weight": torch.zeros(4, 6),
        at + "b_proj.weight": torch.full((1, 6), beta_logit),
    }
    save_file(tensors, path)
    config = {"num_heads": 1, "qk_activation": "identity", "allow_neg_eigval": True}
    (folder / "config.json").write_text(json.dumps(config))
    return path


def test_a_delta_net_that_swaps_channels_tracks_the_symmetric_group(tmp_path: Path) -> None:
    swaps = "(1 2);(1 3);(1 4);(2 3);(2 4);(3 4)"
    dfa = resolve(swaps, Options("generators")).dfa
    (layer,) = read_checkpoint(delta_net(tmp_path, 20.0))
    assert (layer.kind, layer.symbols) == ("delta_net", True)
    (found,) = tracking(layer, dfa)
    assert found.tracked
    assert found.clusters == 24
    (weak,) = read_checkpoint(delta_net(tmp_path, 0.5))
    assert not tracking(weak, dfa)[0].tracked
    (half,) = read_checkpoint(delta_net(tmp_path, 20.0), Reading(beta_max=1.0))
    assert not tracking(half, dfa)[0].tracked


def test_layers_of_flash_linear_attention_are_the_formulas(tmp_path: Path) -> None:
    """KDA with two heads and a convolution of width 4, written out for one token."""
    hidden, heads, size = 5, 2, 3
    own = {
        "q_proj.weight": normal(6, hidden, seed=1),
        "k_proj.weight": normal(6, hidden, seed=2),
        "k_conv1d.weight": normal(6, 1, 4, seed=3),
        "b_proj.weight": normal(heads, hidden, seed=4),
        "f_proj.0.weight": normal(4, hidden, seed=5),
        "f_proj.1.weight": normal(6, 4, seed=6),
        "A_log": normal(heads, seed=7),
        "dt_bias": normal(6, seed=8),
    }
    x = normal(10, hidden, seed=9)
    save_file({"x": x}, tmp_path / "x.safetensors")
    save_file(own, tmp_path / "layer.safetensors")
    (layer,) = read_checkpoint(tmp_path / "layer.safetensors", Reading(beta_max=2.0, inputs=tmp_path / "x.safetensors"))
    assert (layer.kind, layer.symbols, tuple(layer.k.shape)) == ("kda", False, (10, heads, 1, size))
    t, head, channel = 6, 1, 2
    row = head * size + channel
    taps = own["k_conv1d.weight"][:, 0]
    conv = torch.stack([taps[:, j] * (own["k_proj.weight"] @ x[t - 3 + j]) for j in range(4)]).sum(0)
    keys = (conv * torch.sigmoid(conv))[head * size : (head + 1) * size]
    torch.testing.assert_close(layer.k[t, head, 0], keys / keys.norm())
    beta = 2 * torch.sigmoid(own["b_proj.weight"][head] @ x[t])
    torch.testing.assert_close(layer.beta[t, head, 0], beta)
    y = own["f_proj.1.weight"][row] @ (own["f_proj.0.weight"] @ x[t]) + own["dt_bias"][row]
    alpha = torch.exp(-own["A_log"][head].exp() * torch.log1p(y.exp()))
    torch.testing.assert_close(layer.alpha[t, head, 0, channel], alpha)


def test_a_delta_product_has_its_factors_and_its_gate_before_the_first(tmp_path: Path) -> None:
    hidden, heads, size, n = 5, 2, 3, 2
    own = {
        "q_proj.weight": normal(heads * size, hidden, seed=1),
        "k_proj.weight": normal(n * heads * size, hidden, seed=2),
        "b_proj.weight": normal(n * heads, hidden, seed=3),
        "a_proj.weight": normal(heads, hidden, seed=4),
        "A_log": normal(heads, seed=5),
        "dt_bias": normal(heads, seed=6),
    }
    save_file(own, tmp_path / "layer.safetensors")
    (layer,) = read_checkpoint(tmp_path / "layer.safetensors", Reading(heads=heads))
    assert layer.kind == "gated_deltaproduct"
    assert layer.k.shape[1:] == (heads, n, size)
    assert bool((layer.alpha[:, :, 1] == 1).all())
    assert bool((layer.alpha[:, :, 0] < 1).all())
    k, beta, alpha = layer.k[3, 1], layer.beta[3, 1], layer.alpha[3, 1]
    eye = torch.eye(size).double()
    first = (eye - beta[0] * torch.outer(k[0], k[0])) @ torch.diag(alpha[0])
    torch.testing.assert_close(layer.matrices(1)[3], (eye - beta[1] * torch.outer(k[1], k[1])) @ first)
    with pytest.raises(InvalidInput, match="what each symbol does"):
        tracking(layer, resolve("S3").dfa)


def test_files_that_hold_no_layer_and_arrays_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no")
    for path in (tmp_path / "text", tmp_path / "none", arrays(tmp_path, w=torch.ones(2))):
        with pytest.raises(InvalidFile):
            read_checkpoint(path)
    with pytest.raises(InvalidInput, match="beta"):
        read_checkpoint(arrays(tmp_path, k=torch.ones(3, 2), beta=torch.ones(2)))
    with pytest.raises(InvalidInput, match="alpha"):
        read_checkpoint(arrays(tmp_path, k=torch.ones(3, 2), beta=torch.ones(3), alpha=torch.ones(5)))
    (layer,) = read_checkpoint(arrays(tmp_path, k=torch.ones(3, 2), beta=torch.ones(3)))
    with pytest.raises(InvalidInput, match="tolerance"):
        tracking(layer, resolve("Z2").dfa, tolerance=0)


def test_the_command_prints_facts_draws_and_says_whether_it_tracks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(built("S3", "ckda", tmp_path))
    assert main(["audit", path, "--automaton", "S3", "--json", "--draw", str(tmp_path / "s.svg")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["tracking"][0]["tracked"]
    assert facts["heads"][0]["complex_tokens"] == pytest.approx(2 / 6)
    assert len(json.loads((tmp_path / "s.json").read_text())["layers.0, head 0"]) == 6
    assert main(["audit", path]) == 0
    assert "negative gates" in capsys.readouterr().out
    assert main(["audit", path, "--automaton", "A4"]) == 2
    assert main(["audit", path, "--tokens", "a"]) == 2
