"""The public face in Python."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import statetrack as st
from statetrack import api
from statetrack.constructions.reading import program_of
from statetrack.constructions.weights import FORMATS, tensors_digest
from statetrack.theory.automata import from_table
from tests.strategies import permutation_dfas


def test_the_readme_example_holds(tmp_path: Path) -> None:
    c = st.build("A5", target="ckda")
    assert (c.dims, c.factors_per_token, c.layers) == (((4,),), 1, 1)
    assert c.certificate.joint == 7200
    c.certificate.save(tmp_path / "a5.json")
    assert c.run(["(12345)", "(123)"]) == c.source.dfa.run(["(12345)", "(123)"])
    assert c.weights("float32").run(random=4, length=64, executor="reference").wrong == 0


def test_a_dfa_and_a_group_are_sources_too() -> None:
    dfa = from_table(["a"], ["x", "y"], "x", {("x", "a"): "y", ("y", "a"): "x"}, {"x": True})
    assert isinstance(dfa, st.Dfa)
    compiled: st.Compiled = st.build(dfa, "deltanet")
    assert compiled.run("aa") == (False, True)
    from statetrack.theory.groups import named_group

    group: st.Group = named_group("D5")
    assert st.build(group).dims == ((2,),)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize(
    ("source", "target"), [("D5", "ckda"), ("Z5", "deltanet"), ("Z2xZ2", "diag[-1,1]"), ("(ab)*", "unconstrained")]
)
def test_saved_weights_come_back_bit_for_bit_and_run(dtype: str, source: str, target: str, tmp_path: Path) -> None:
    weights = st.build(source, target).weights(dtype)
    weights.save(tmp_path / "w.safetensors")
    loaded: st.Weights = st.load(tmp_path / "w.safetensors")
    assert tensors_digest(loaded.tensors) == tensors_digest(weights.tensors)
    assert st.check(tmp_path / "w.safetensors")["digest"] == weights.certificate["digest"]
    trace = loaded.run(random=4, length=30, seed=3, executor="reference")
    assert trace.tokens == 120
    # Numbers of eight bits are too coarse for some of these.
    assert trace.wrong == 0 or dtype.startswith("float8")


def test_tensors_stand_in_the_layout_of_a_layer() -> None:
    tensors = st.build("S5", "deltaproduct").weights("float64").tensors
    keys, betas = tensors["layers.0.keys"], tensors["layers.0.betas"]
    assert keys.shape == (120, 1, 4, 5)
    lengths = np.linalg.norm(keys, axis=-1)
    assert np.allclose(lengths[betas > 0], 1, atol=1e-15)
    assert set(np.unique(betas)) == {0.0, 2.0}
    assert np.all(lengths[betas == 0] == 0)


@settings(max_examples=25)
@given(permutation_dfas(max_states=5, max_symbols=2), hs.lists(hs.integers(0, 1), max_size=40))
def test_float64_weights_answer_as_the_exact_program(dfa: st.Dfa, choice: list[int]) -> None:
    compiled = st.build(dfa, "deltaproduct", check=False)
    word = [dfa.alphabet[i % len(dfa.alphabet)] for i in choice]
    trace = compiled.weights("float64").run([word, word[:3], []], executor="reference")
    assert trace.wrong == 0
    assert trace.answers is not None
    states: list[int] = [int(q) for q in trace.answers[0]]
    assert tuple(compiled.source.dfa.outputs[q] for q in states if q >= 0) == compiled.run(word)


def test_horizons_are_longer_in_wider_formats_and_endless_for_one_state() -> None:
    compiled = st.build("S4")
    horizons = [compiled.horizon(dtype) for dtype in ("bfloat16", "float32", "float64")]
    assert 0 < horizons[0] < horizons[1] < horizons[2]
    assert st.build("Z1").horizon() == math.inf
    assert 0 < st.build("(ab)*", "unconstrained").horizon() < math.inf


def test_lookups_tell_their_size_and_programs_their_ranges() -> None:
    compiled = st.build("Z7", "deltanet")
    assert [layer.heads[0].choose.size for layer in compiled.program.layers] == [7, 14]
    assert compiled.program.beta_max == 2
    assert program_of(compiled.certificate.data).factors_per_token == 1


def test_wrong_arguments_raise_the_error_that_says_so() -> None:
    compiled = st.build("Z3")
    weights = compiled.weights()
    for call in (
        lambda: compiled.weights("float8"),
        lambda: weights.run(),
        lambda: weights.run([["1"]], random=2),
        lambda: weights.run([["1"]], order="chunkwise"),
        lambda: weights.run([["1"]], storage="int8"),
        lambda: weights.run([["1"]], device="foo"),
        lambda: weights.run([["1"]], device="cuda:99"),
        lambda: weights.run([["1"]], device="cuda:"),
        lambda: st.build("Z3", proof="zz"),
        lambda: st.build("Z3", missing="zz"),
        lambda: st.build("Z3", letters="zz"),
        lambda: st.build("Z3", max_states=0),
        lambda: st.build("Z3", max_monoid=0),
        lambda: st.build("Z3", alphabet="ab"),
        lambda: compiled.horizon(order="scan"),
    ):
        with pytest.raises(st.InvalidInput):
            call()
    with pytest.raises(st.InvalidWord) as caught:
        weights.run([["1", "7"]])
    assert (caught.value.symbol, caught.value.position) == ("7", 1)
    with pytest.raises(st.KernelUnavailable):
        _triton_on_cpu(weights)
    with pytest.raises(st.BudgetExceeded):
        st.build("A5", max_states=100)
    with pytest.raises(st.StatetrackError):
        st.build("S5", "diag[-1,1]")


def test_the_message_for_a_device_names_those_there_are() -> None:
    weights = st.build("Z3").weights()
    with pytest.raises(st.InvalidInput, match="know auto, cpu, cuda, cuda:N"):
        weights.run([["1"]], device="foo")
    trace = weights.run([["1"]], executor="reference")
    assert " on " in trace.executor
    assert api.device_of("auto") in ("cpu", "cuda")
    assert api.device_of("cpu") == "cpu"


def test_many_words_are_run_in_groups_and_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = st.build("Z60").weights("bfloat16")
    words = [["7"] * i for i in range(40)]
    seen: list[int] = []
    whole = weights.run(words, executor="reference")
    monkeypatch.setattr("statetrack.api._WORDS_AT_ONCE", 16)
    parts = weights.run(words, executor="reference", progress=seen.append)
    assert whole.wrong > 0
    assert whole.answers is not None
    assert parts.answers is not None
    assert bool((whole.answers == parts.answers).all())
    for name in ("wrong", "first_wrong", "wrong_words", "tokens", "executor"):
        assert getattr(whole, name) == getattr(parts, name)
    assert seen == sorted(seen)
    assert seen[-1] == 40 * 39


def test_random_words_come_in_groups_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    from statetrack.kernels import load

    weights = st.build("Z3").weights()
    drawn: list[tuple[int, int]] = []
    original = load.random_tokens

    def watched(symbols: int, batch: int, start: int, stop: int, *, seed: int, device: str) -> object:
        drawn.append((batch, seed))
        return original(symbols, batch, start, stop, seed=seed, device=device)

    monkeypatch.setattr(load, "random_tokens", watched)
    trace = weights.run(random=40_000, length=2, seed=5, executor="reference")
    assert (trace.tokens, trace.wrong) == (80_000, 0)
    assert max(batch for batch, _ in drawn) <= 2**14
    # No group repeats another; the first one has the seed itself.
    assert [seed for _, seed in dict.fromkeys(drawn)] == [5, 65_542, 131_079]


def test_a_certificate_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    certificate = st.build("Z3").certificate
    with pytest.raises(st.InvalidFile, match="cannot be written"):
        certificate.save(tmp_path / "no" / "z3.json")
    with pytest.raises(st.InvalidFile, match="ordinary file"):
        certificate.save(tmp_path)
    certificate.save(str(tmp_path / "z3.json"))
    assert [p.name for p in tmp_path.iterdir()] == ["z3.json"]


def test_a_stated_alphabet_orders_the_letters_of_a_regular_expression() -> None:
    assert st.build(".*b", "unconstrained", alphabet="ba").source.dfa.alphabet == ("b", "a")
    assert st.Options(max_monoid=7, max_seconds=1.5, max_memory=100).max_monoid == 7


def _triton_on_cpu(weights: st.Weights) -> None:
    import os

    import torch

    if torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        raise st.KernelUnavailable("tracker", "it is available here", "nothing to test")
    weights.run([["1"]], executor="triton")


def test_a_refusal_carries_its_theorem_and_witness() -> None:
    with pytest.raises(st.NotExpressible) as caught:
        st.build("Z3", "diag[-1,1]")
    assert "period 3" in caught.value.witness
    with pytest.raises(st.NoConstruction) as missing:
        st.build("S5", "deltanet", max_dim=2)
    assert "--max-dim" in missing.value.instead
    for error in (st.UnknownGroup, st.InvalidPermutation, st.RegexSyntaxError, st.InvalidAutomaton, st.InvalidFile):
        assert issubclass(error, st.StatetrackError)
    assert issubclass(st.OutOfRange, st.StatetrackError)
    assert issubclass(st.CertificateFailed, st.StatetrackError)
