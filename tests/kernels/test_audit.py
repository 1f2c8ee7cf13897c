"""`audit` on checkpoints that compiled programs are, on layers of flash-linear-attention, and on random ones."""
# pyright: basic

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

import statetrack as st
from statetrack.cli import main
from statetrack.constructions.source import Options, resolve
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.kernels.audit import _nearest_rows, spectrum, statistics, tracking
from statetrack.kernels.checkpoints import Reading, read_checkpoint
from statetrack.kernels.language_model import LanguageModel, ModelConfig
from statetrack.kernels.layer_parts import LayerConfig
from statetrack.kernels.layers import CKDA, KDA, DeltaNet, DeltaProduct, GatedDeltaNet
from statetrack.lab.ckda_checkpoint import ckda_checkpoint


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
    found = [(f.complex_tokens, f.negative_gates or 0.0) for f in statistics(signed)]
    assert all(tokens > 0 and 0.3 < negative < 0.7 for tokens, negative in found)


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


# Numbers that are not finite.


@pytest.mark.parametrize("name", ["k", "beta", "alpha", "v", "state"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_is_refused_by_name_count_and_place(
    name: str, number: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {"k": normal(3, 2, 4), "beta": normal(3, 2).abs(), "alpha": torch.ones(3, 2, 4).double()}
    tensors |= {"v": normal(3, 2, 5), "state": normal(2, 4, 5)}
    read_checkpoint(arrays(tmp_path, **tensors))
    tensors[name][1, 1] = number
    path = arrays(tmp_path, **tensors)
    wrong = tensors[name][1, 1].numel()
    assert main(["audit", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"arrays: {name}: {wrong} of {tensors[name].numel()} numbers are not finite" in said
    assert "the first at [1, 1" in said


def test_weights_that_are_not_finite_are_refused_and_so_are_keys_that_overflow(tmp_path: Path) -> None:
    own = CKDA(8, heads=2).state_dict()
    own["keys.weight"][3, 1] = float("nan")
    save_file(own, tmp_path / "layer.safetensors")
    with pytest.raises(InvalidInput, match=r"keys.weight: 1 of 64 numbers"):
        read_checkpoint(tmp_path / "layer.safetensors")
    delta_net(tmp_path, float("inf"))
    with pytest.raises(InvalidInput, match=r"b_proj.weight: 6 of 6 numbers"):
        read_checkpoint(tmp_path / "model.safetensors")
    at = "model.layers.0.attn."
    huge = torch.full((4, 6), 1e300, dtype=torch.float64)
    huge = {at + "k_proj.weight": huge, at + "q_proj.weight": huge.clone(), "model.embeddings.weight": huge}
    save_file({n: x.contiguous().clone() for n, x in huge.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="k: 16 of 16 numbers"):
        read_checkpoint(tmp_path / "model.safetensors")


def test_keys_of_any_size_are_made_unit(tmp_path: Path) -> None:
    k = torch.tensor([[3.0, 4.0]], dtype=torch.float64) * torch.tensor([[1e300], [1e-300], [0.0]], dtype=torch.float64)
    (layer,) = read_checkpoint(arrays(tmp_path, k=k, beta=torch.ones(3)))
    torch.testing.assert_close(layer.k[:, 0, 0], torch.tensor([[0.6, 0.8], [0.6, 0.8], [0.0, 0.0]]).double())


# Formats.


def test_a_file_that_is_right_for_ever_in_e4m3_is_tracked_in_its_own_format_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "s4.safetensors"
    st.build("S4", "deltaproduct").for_ever("e4m3")[1].save(path)
    (layer,) = read_checkpoint(path)
    dfa = resolve("S4").dfa
    (found,) = tracking(layer, dfa)
    assert (found.tracked, found.clusters, found.closed, found.defect) == (True, 24, True, 0.0)
    assert found.evaluated.startswith("float8_e4m3fn tables, float8_e4m3fn state rounded after every factor, float32")
    (unrounded,) = tracking(layer, dfa, dtype="float64")
    assert not unrounded.tracked
    assert unrounded.evaluated == "float64, products of whole steps"
    assert main(["audit", str(path), "--automaton", "S4"]) == 0
    assert "tracking evaluated in float8_e4m3fn tables" in capsys.readouterr().out
    assert main(["audit", str(path), "--automaton", "S4", "--dtype", "float64", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["tracking"][0]["tracked"]
    assert main(["audit", str(path), "--automaton", "S4", "--dtype", "float7"]) == 2


def test_a_state_in_another_format_than_the_tables_is_rounded_to_its_own(tmp_path: Path) -> None:
    path = tmp_path / "z9.safetensors"
    st.build("Z9").for_ever("bf16")[1].save(path)
    (layer,) = read_checkpoint(path)
    (found,) = tracking(layer, resolve("Z9").dfa, length=1000)
    assert found.tracked
    assert found.evaluated.startswith("float32 tables, bfloat16 state")
    (coarse,), (fine,) = (tracking(layer, resolve("Z9").dfa, dtype=dtype) for dtype in ("bfloat16", "float32"))
    assert 100 * fine.defect < found.defect < coarse.defect / 4


def test_arrays_drift_in_the_format_that_is_asked_for(tmp_path: Path) -> None:
    """Z60's tables in float64: right for 2,000 tokens; rounded to bfloat16, wrong in the first hundreds."""
    (exact,) = read_checkpoint(built("Z60", "ckda", tmp_path))
    dfa = resolve("Z60").dfa
    assert tracking(exact, dfa, length=2000, words=8, tolerance=0.02)[0].tracked
    (coarse,) = tracking(exact, dfa, length=2000, words=8, tolerance=0.02, dtype="bfloat16")
    assert not coarse.tracked
    assert coarse.horizon < 1000
    with pytest.raises(InvalidInput, match="bfloat17"):
        tracking(exact, dfa, dtype="bfloat17")


@pytest.mark.parametrize(
    ("source", "target", "part"),
    [("(ab)*", "unconstrained", "dense"), ("[ab]*a", "diag[0,1]", "bias")],
)
def test_dense_steps_and_added_terms_are_read(source: str, target: str, part: str, tmp_path: Path) -> None:
    """Steps that have a matrix of their own, or a term that is added: by products and by the recurrence itself."""
    (layer,) = read_checkpoint(built(source, target, tmp_path))
    assert getattr(layer, part) is not None
    for dtype in (None, "float32"):
        (found,) = tracking(layer, resolve(source).dfa, dtype=dtype)
        assert (found.tracked, found.closed) == (True, True)
    assert (statistics(layer)[0].gate_mean is None) == (part == "dense")


def test_a_head_that_rounds_down_is_read_with_its_unit(tmp_path: Path) -> None:
    """A decay by 1/2 that is floored to multiples of 1/4: 1, 1/2, 1/4, 0; without the floor it goes on shrinking."""
    (layer,) = read_checkpoint(
        arrays(tmp_path, k=torch.ones(1, 1), beta=torch.full((1,), 0.5), state=torch.ones(1, 1, 1))
    )
    (plain,) = tracking(layer, resolve("Z1").dfa, tolerance=0.01)
    (floored,) = tracking(replace(layer, unit=torch.tensor([0.25]).double()), resolve("Z1").dfa, tolerance=0.01)
    assert (plain.clusters, floored.clusters, floored.defect) == (7, 4, 0.0)


def test_a_state_that_overflows_is_a_wrong_answer(tmp_path: Path) -> None:
    """9^5 is the last power that float16 holds; the only state of Z1 is no answer for what is no number."""
    (layer,) = read_checkpoint(arrays(tmp_path, k=torch.ones(1, 1), beta=torch.zeros(1), alpha=torch.full((1, 1), 9.0)))
    (found,) = tracking(layer, resolve("Z1").dfa, dtype="float16", length=20)
    assert (found.tracked, found.closed, found.clusters) == (False, False, 6)
    assert (found.horizon, found.accuracy) == (5, 5 / 20)


# Clusters.


def test_clusters_are_those_of_the_plain_search(tmp_path: Path) -> None:
    """States in breadth-first order: a new cluster where none is within the radius, until there is no room."""
    beta, alpha = torch.full((3, 1), 1.9), torch.rand(3, 1, 2, generator=torch.Generator().manual_seed(4)) + 0.3
    (layer,) = read_checkpoint(
        arrays(tmp_path, k=normal(3, 1, 2, seed=3), beta=beta.double(), alpha=alpha.clamp(max=1).double())
    )
    maps, known = layer.matrices(0), [torch.eye(2).double()]
    done = 0
    while done < len(known):
        for m in maps:
            state = m @ known[done]
            if min(float((state - x).norm()) for x in known) > 0.1 * 2**0.5:
                known.append(state)
        done += 1
    seen: list[int] = []
    (found,) = tracking(layer, resolve("Z3").dfa, progress=seen.append)
    assert (found.clusters, found.closed, seen[-1]) == (len(known), True, len(known))
    assert len(known) > 20
    (short,) = tracking(layer, resolve("Z3").dfa, clusters=len(known) - 1)
    assert (short.clusters, short.closed) == (len(known) - 1, False)


def test_the_quick_search_for_the_nearest_is_the_exact_one_or_as_near() -> None:
    y = normal(300, 9)
    x = y[torch.arange(600) % 300] + 0.2 * normal(600, 9, seed=1)
    exact = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    for away, radius in ((0.0, 0.3), (3e4, 0.3), (0.0, 1e-7)):
        at = _nearest_rows(x + away, y + away, radius)
        gap = exact[torch.arange(600), at] - exact.min(1).values
        assert float(gap.max()) <= 0.05 * radius


# Our trainable layers.


@pytest.mark.parametrize(
    ("layer", "reading", "options"),
    [
        (CKDA, {}, {"heads": 2}),
        (CKDA, {}, {"heads": 2, "factors": 2, "value_heads": 4, "value_dim": 3, "learned_start": True}),
        (CKDA, {}, {"heads": 2, "conv": 4, "output_norm": False}),
        (CKDA, {}, {"heads": 2, "signed_gates": False, "factors": 3}),
        (KDA, {}, {"heads": 4, "output_gate": False}),
        (KDA, {"beta_max": 1.0}, {"heads": 2, "beta_max": 1}),
        (GatedDeltaNet, {}, {"heads": 2}),
        (DeltaNet, {"heads": 2}, {"heads": 2, "value_heads": 4}),
        (DeltaProduct, {}, {"heads": 2, "factors": 2}),
        (DeltaProduct, {}, {"heads": 2, "factors": 2, "gated": True}),
    ],
)
def test_a_layer_of_ours_is_read_as_the_module_says(
    layer: type[CKDA], reading: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(3)
    module = layer(8, **options).double()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x = normal(11, 8, seed=5)
    save_file({"x": x}, tmp_path / "x.safetensors")
    save_file(module.state_dict(), tmp_path / "layer.safetensors")
    how = Reading(inputs=tmp_path / "x.safetensors", **reading)
    (found,) = read_checkpoint(tmp_path / "layer.safetensors", how)
    with torch.no_grad():
        k, beta, alpha = module.transitions(x[None])
    torch.testing.assert_close((found.k, found.beta, found.alpha), (k[0], beta[0], alpha[0]))
    assert found.k.shape[1:3] == (module.config.groups, module.config.factors)
    assert not found.symbols
    assert "β up to 1" in found.inputs or how.beta_max is None


def test_what_a_state_dict_does_not_say_is_taken_from_the_configuration_beside_it(tmp_path: Path) -> None:
    torch.manual_seed(4)
    options = {
        "heads": 2,
        "silu": True,
        "beta_max": 1,
        "signed_gates": False,
        "gate_rule": "bounded",
        "gate_floor": -2.0,
    }
    module = CKDA(8, **options).double()
    x = normal(11, 8, seed=5)
    save_file({"x": x}, tmp_path / "x.safetensors")
    save_file(module.state_dict(), tmp_path / "layer.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(options))
    (found,) = read_checkpoint(tmp_path / "layer.safetensors", Reading(inputs=tmp_path / "x.safetensors"))
    with torch.no_grad():
        k, beta, alpha = module.transitions(x[None])
    torch.testing.assert_close((found.k, found.beta, found.alpha), (k[0], beta[0], alpha[0]))


def test_a_model_of_ours_reads_its_embeddings_and_random_vectors_above(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = LanguageModel(ModelConfig(LayerConfig("ckda", 8, heads=2, silu=True), layers=2, vocab=5)).double()
    torch.nn.init.uniform_(dict(model.named_parameters())["body.blocks.0.mixer_norm.weight"])
    model.save(tmp_path / "model.safetensors")
    lower, upper = read_checkpoint(tmp_path / "model.safetensors")
    with torch.no_grad():
        k, beta, alpha = model.transitions(torch.arange(5)[None])[0]
    torch.testing.assert_close((lower.k, lower.beta, lower.alpha), (k[0], beta[0], alpha[0]))
    assert (lower.symbols, upper.symbols, lower.name, upper.name) == (
        True,
        False,
        "body.blocks.0.mixer",
        "body.blocks.1.mixer",
    )
    assert upper.inputs.startswith("random vectors")
    with pytest.raises(InvalidInput, match="5 embeddings"):
        read_checkpoint(tmp_path / "model.safetensors", Reading(tokens=(5,)))


def test_a_compiled_program_as_a_model_of_ours_is_found_to_track(tmp_path: Path) -> None:
    ckda_checkpoint(st.build("S3").weights("float64"), dtype="float64").save(tmp_path / "s3")
    (path,) = (tmp_path / "s3").glob("*.safetensors")
    (layer,) = read_checkpoint(path)
    assert layer.kind == "ckda"
    found = tracking(layer, resolve("S3").dfa)
    assert found[0].tracked
    assert not tracking(layer, resolve("Z6").dfa)[0].tracked


def test_state_dicts_that_are_no_layer_of_ours_are_refused(tmp_path: Path) -> None:
    own = CKDA(8, heads=2).state_dict()
    broken = [{"beta_bias": torch.zeros(1, 2)}, own | {"norm": torch.ones(3)}, own | {"beta_bias": torch.zeros(2)}]
    for tensors in broken:
        save_file(tensors, tmp_path / "layer.safetensors")
        with pytest.raises(InvalidInput, match="layer"):
            read_checkpoint(tmp_path / "layer.safetensors")
    save_file(own, tmp_path / "layer.safetensors")
    save_file({"x": torch.ones(3, 5)}, tmp_path / "x.safetensors")
    with pytest.raises(InvalidInput, match=r"expected \[tokens, 8\]"):
        read_checkpoint(tmp_path / "layer.safetensors", Reading(inputs=tmp_path / "x.safetensors"))
