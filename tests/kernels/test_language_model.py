"""The model around layers and baselines: caches, cut sequences, files, configurations."""
# pyright: basic

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from torch import Tensor

from statetrack.errors import InvalidFile, InvalidInput, KernelUnavailable
from statetrack.kernels.baselines import BaselineConfig
from statetrack.kernels.language_model import LanguageModel, ModelConfig
from statetrack.kernels.layers import DeltaLayer, LayerConfig

needs_xlstm = pytest.mark.skipif(importlib.util.find_spec("xlstm") is None, reason="needs the package xlstm")
CONFIGS = {
    "ckda": ModelConfig(LayerConfig("ckda", 16, heads=2, conv=3), layers=2, vocab=7, mlp_ratio=2.0),
    "diagonal": ModelConfig(LayerConfig("diagonal", 16, conv=3), layers=2, vocab=7, outputs=4, head_bias=True),
    "tied": ModelConfig(LayerConfig("deltaproduct", 16, heads=2, factors=2), vocab=7, tie=True),
    "bare": ModelConfig(LayerConfig("kda", 16, heads=2), features=5, outputs=3, norm=False),
    "transformer": ModelConfig(BaselineConfig("transformer", 16, heads=2), layers=2, vocab=7, mlp_ratio=2.0),
    "gru": ModelConfig(BaselineConfig("gru", 16), layers=2, vocab=7),
    "mlstm": ModelConfig(BaselineConfig("mlstm", 16, heads=2), layers=2, vocab=7),
    "slstm": ModelConfig(BaselineConfig("slstm", 16, heads=2), layers=2, vocab=7, mlp_ratio=1.5),
}
every = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_xlstm if name in ("mlstm", "slstm") else ()) for name in CONFIGS]
)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Tensors here are small, and threads of two test processes only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def made(name: str) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(CONFIGS[name]).double()


def inputs(config: ModelConfig, batch: int = 2, time: int = 11, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    if config.vocab is not None:
        return torch.randint(config.vocab, (batch, time), generator=g)
    assert config.features is not None
    return torch.randn(batch, time, config.features, generator=g, dtype=torch.float64)


@every
def test_a_cache_goes_on_and_cut_sequences_are_runs_of_their_own(name: str) -> None:
    model = made(name)
    x = inputs(model.config)
    whole, _ = model(x)
    assert whole.shape == (2, 11, model.config.outputs or model.config.vocab)
    with torch.no_grad():
        for pieces in ((1,) * 11, (4, 1, 6)):
            cache, read = None, []
            for piece in x.split(pieces, 1):
                y, cache = model(piece, cache)
                read.append(y)
            torch.testing.assert_close(torch.cat(read, 1), whole, rtol=1e-9, atol=1e-9)
        packed, cache = model(x[:1], None, torch.tensor([0, 3, 3, 4, 11]))
        parts = [model(part) for part in x[:1].split((3, 1, 7), 1)]
        torch.testing.assert_close(packed, torch.cat([y for y, _ in parts], 1), rtol=1e-9, atol=1e-9)
        if "state" not in (cache[0] if cache else {}):
            with pytest.raises(InvalidInput, match="a cache and cu_seqlens together"):
                model(x[:1], parts[0][1], torch.tensor([0, 11]))
            return
        more, _ = model(x[:1], cache, torch.tensor([0, 2, 5, 5, 11]))
        alone = model(x[:1, :2], parts[0][1])[0]
    torch.testing.assert_close(more[:, :2], alone, rtol=1e-9, atol=1e-9)


@every
def test_no_output_sees_what_comes_later_and_every_parameter_gets_a_gradient(name: str) -> None:
    model = made(name)
    x = inputs(model.config)
    other = inputs(model.config, seed=1)
    mixed = torch.cat([x[:, :6], other[:, 6:]], 1)
    y, _ = model(x)
    torch.testing.assert_close(model(mixed)[0][:, :6], y[:, :6], rtol=1e-12, atol=1e-12)
    y.square().sum().backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not bool((p.grad != 0).any())] == []


@every
def test_a_saved_model_loads_to_the_same_numbers(name: str, tmp_path: Path) -> None:
    model = made(name)
    path = tmp_path / "model.safetensors"
    model.save(path)
    again = LanguageModel.load(path)
    assert again.config == model.config
    x = inputs(model.config)
    assert torch.equal(again(x)[0], model(x)[0])
    assert [p.name for p in tmp_path.iterdir()] == ["model.safetensors"]
    model.float().save(path)
    assert next(LanguageModel.load(path).parameters()).dtype == torch.float32


@pytest.mark.parametrize("name", list(CONFIGS))
def test_configurations_are_plain_json(name: str) -> None:
    config = CONFIGS[name]
    assert ModelConfig.of(json.loads(json.dumps(asdict(config)))) == config


def test_a_tied_head_has_the_weights_of_the_embedding(tmp_path: Path) -> None:
    model = made("tied")
    model.save(tmp_path / "m.safetensors")
    for m in (model, LanguageModel.load(tmp_path / "m.safetensors")):
        assert m.embedding is not None
        assert m.head.weight is m.embedding.weight


def test_transitions_come_for_every_block_on_what_it_reads() -> None:
    model = made("ckda")
    x = inputs(model.config)
    seen: list[Tensor] = []
    mixers = [m for n, m in model.named_modules() if n.endswith(".mixer")]
    handles = [m.register_forward_pre_hook(lambda _, args: seen.append(args[0])) for m in mixers]
    model(x)
    for handle in handles:
        handle.remove()
    found = model.transitions(x)
    assert len(found) == len(seen) == 2
    for mixer, tensor, triple in zip(mixers, seen, found, strict=True):
        assert isinstance(mixer, DeltaLayer)
        for got, wanted in zip(triple, mixer.transitions(tensor), strict=True):
            assert torch.equal(got, wanted)
    with pytest.raises(InvalidInput, match="gru has no keys"):
        made("gru").transitions(x)


def test_a_transformer_sees_positions() -> None:
    y, _ = made("transformer")(torch.zeros(1, 9, dtype=torch.int64))
    assert float((y[0, 1:] - y[0, :-1]).abs().amax(1).min()) > 1e-3


@pytest.mark.parametrize("kind", ["mlstm", "slstm"])
def test_a_missing_package_is_said_with_the_command_that_installs_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xlstm", None)
    with pytest.raises(KernelUnavailable) as error:
        LanguageModel(ModelConfig(BaselineConfig(kind, 16), vocab=3))
    assert "pip install 'statetrack[xlstm]'" in str(error.value)
    assert "\n" not in str(error.value)


LAYER = {"kind": "ckda", "width": 16}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"layer": LAYER}, "one of vocab and features"),
        ({"layer": LAYER, "vocab": 3, "features": 2}, "one of vocab and features"),
        ({"layer": LAYER, "features": 2}, "features without outputs"),
        ({"layer": LAYER, "vocab": 0, "layers": 1.5}, "layers 1.5, expected an integer from 1 on; vocab 0"),
        ({"layer": LAYER, "vocab": 3, "outputs": 4, "tie": True}, "tie, expected as many outputs as vocab"),
        ({"layer": LAYER, "vocab": 3, "mlp_ratio": -1}, "mlp_ratio -1"),
        ({"layer": LAYER, "vocab": 3, "depth": 2}, "model: unknown 'depth'"),
        ({"layer": {"kind": "ckda", "size": 2}, "vocab": 3}, "layer: unknown 'size', 'width' is missing"),
        ({"layer": "ckda", "vocab": 3}, "expected the fields of a layer"),
        ({"layer": {"kind": "gru", "width": 0}, "vocab": 3}, "expected integers from 1 on"),
        ({"layer": {"kind": "transformer", "width": 18}, "vocab": 3}, "width 18 is not a multiple of heads 4"),
    ],
)
def test_a_bad_configuration_gets_one_line(data: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        ModelConfig.of(data)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_inputs_that_do_not_fit_get_one_line() -> None:
    tokens, real = made("gru"), made("bare")
    with pytest.raises(InvalidInput, match="expected integers"):
        tokens(torch.zeros(2, 3, 5))
    with pytest.raises(InvalidInput, match="expected real numbers"):
        real(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(InvalidInput, match="cache of 1 layers, expected 2"):
        made("ckda")(torch.zeros(1, 1, dtype=torch.int64), ({},))
    with pytest.raises(InvalidInput, match="expected one above 0"):
        LanguageModel(ModelConfig(BaselineConfig("transformer", 16), vocab=3))


def test_files_that_are_no_model_get_one_line(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    path = tmp_path / "m.safetensors"
    cases = [b"", b"no safetensors at all"]
    for content in cases:
        path.write_bytes(content)
        with pytest.raises(InvalidFile, match="cannot be read"):
            LanguageModel.load(path)
    save_file({"x": torch.zeros(1)}, path)
    with pytest.raises(InvalidFile, match="holds no model of statetrack"):
        LanguageModel.load(path)
    config = json.dumps(asdict(CONFIGS["gru"]))
    save_file({"x": torch.zeros(1)}, path, {"statetrack": "model", "config": config, "dtype": "float32"})
    with pytest.raises(InvalidFile) as error:
        LanguageModel.load(path)
    assert "\n" not in str(error.value)
    with pytest.raises(InvalidFile):
        LanguageModel.load(tmp_path / "absent.safetensors")
