"""Exported checkpoints: their logits name the automaton's states, and what cannot be expressed is refused by name."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

import statetrack as st
from statetrack.cli import main
from statetrack.errors import InvalidInput
from statetrack.kernels.language_model import LanguageModel
from statetrack.lab.checkpoint_folder import Checkpoint
from statetrack.lab.ckda_checkpoint import ckda_checkpoint, model_parts
from statetrack.lab.compiled_tables import layer_tables
from statetrack.lab.fla_checkpoint import fla_checkpoint, silu_preimage
from statetrack.lab.near import model_of_program
from tests.lab.fla_semantics import logits_of, silu

SWAPS = "perm:(1 2);(2 3);(3 4)"
has_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed")
has_fla = pytest.mark.skipif(
    find_spec("transformers") is None or find_spec("fla") is None or find_spec("fla.models") is None,
    reason="flash-linear-attention is not installed",
)


@cache
def weights(source: str, target: str, letters: str = "all") -> st.Weights:
    return st.build(source, target, letters=letters).weights("float64")


def word(found: st.Weights, length: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Random tokens, and the automaton's state before the first and after each of them."""
    dfa = found.dfa
    tokens = [int(x) for x in np.random.default_rng(seed).integers(0, len(dfa.alphabet), length)]
    states = [int(dfa.start)]
    for token in tokens:
        states.append(int(dfa.delta[states[-1], token]))
    return tokens, states


def ids_of(made: Checkpoint, tokens: list[int]) -> list[int]:
    return made.facts["start_ids"] + [made.facts["first_symbol_id"] + token for token in tokens]


def named_by(made: Checkpoint, ids: list[int]) -> list[int]:
    """The states that a checkpoint of flash-linear-attention names, from the last start token on."""
    logits = logits_of(made, ids)[len(made.facts["start_ids"]) - 1 :]
    return (logits.argmax(-1) - made.facts["first_state_id"]).tolist()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("source", "target", "letters", "models"),
    [
        ("S3", "deltaproduct", "all", ("gated_deltaproduct",)),
        ("S4", "deltaproduct", "generators", ("gated_deltaproduct",)),
        ("Z5", "deltaproduct", "all", ("gated_deltaproduct",)),
        ("(b*ab*a)*b*", "deltanet", "all", ("delta_net", "gated_deltaproduct", "kda")),
        ("(ab)*", "kda", "all", ("kda",)),
        ("(ab)*", "deltaproduct", "all", ("gated_deltaproduct",)),
        ("a*b(a|b)*", "kda", "all", ("gated_deltaproduct", "kda")),
        ("(a|b)*ab", "kda", "all", ("kda",)),
        ("(a|b)*b", "gdn", "all", ("delta_net", "gated_deltaproduct", "kda")),
        ("Z2xZ2", "deltanet", "all", ("delta_net", "gated_deltaproduct", "kda")),
        (SWAPS, "deltanet", "generators", ("delta_net", "gated_deltaproduct", "kda")),
        ("(ab)*", "deltanet", "all", ("delta_net", "gated_deltaproduct", "kda")),
        ("(a|b)*aba(a|b)*", "kda", "all", ("kda",)),
        ("(a|b)*aba(a|b)*", "deltanet", "all", ("delta_net",)),
        ("Z5", "deltanet", "all", ("delta_net", "kda")),
    ],
)
def test_logits_name_the_state_after_every_prefix(
    source: str, target: str, letters: str, models: tuple[str, ...], dtype: str
) -> None:
    found = weights(source, target, letters)
    tokens, states = word(found, 300)
    for number, model in enumerate(models):
        made = fla_checkpoint(found, model, dtype=dtype, conv=4 * (number % 2))
        assert made.config["model_type"] == model
        assert named_by(made, ids_of(made, tokens)) == states


@pytest.mark.parametrize(("model", "conv"), [("delta_net", 0), ("gated_deltaproduct", 4), ("kda", 0)])
def test_a_cascade_in_float32_stays_right_on_long_words(model: str, conv: int) -> None:
    found = weights("(a|b)*aba(a|b)*", "deltanet")
    made = fla_checkpoint(found, model, conv=conv)
    length, starts = 2000, len(made.facts["start_ids"])
    assert made.facts["blocks"] == made.config["num_hidden_layers"] == 5
    runs = np.repeat(np.random.default_rng(0).integers(0, 2, length // 10), 10)
    for tokens in (np.zeros(length, dtype=np.int64), np.arange(length) % 2, np.arange(length) // 2 % 2, runs):
        states = [int(found.dfa.start)]
        for token in tokens:
            states.append(int(found.dfa.delta[states[-1], token]))
        logits = logits_of(made, ids_of(made, tokens.tolist()), np.float32)[starts - 1 :]
        assert logits.dtype == np.float32
        assert (logits.argmax(-1) - made.facts["first_state_id"]).tolist() == states


@pytest.mark.parametrize("target", ["kda", "deltanet"])
def test_an_id_that_names_a_state_is_repeated_and_changes_no_later_state(target: str) -> None:
    found = weights("(ab)*", target)
    made = fla_checkpoint(found)
    tokens, states = word(found, 20)
    ids = ids_of(made, tokens)
    extra = list(range(made.facts["states"]))
    place = len(made.facts["start_ids"]) + 5
    ids[place:place] = [made.facts["first_state_id"] + state for state in extra]
    assert named_by(made, ids) == states[:6] + extra + states[6:]


@pytest.mark.parametrize("name", ["attn.k_proj", "attn.q_proj", "attn.b_proj", "attn.v_proj", "attn.o_proj"])
def test_a_changed_projection_names_other_states(name: str) -> None:
    found = weights("S3", "deltaproduct")
    made = fla_checkpoint(found)
    tokens, states = word(found, 50)
    made.tensors[f"model.layers.0.{name}.weight"] *= -1
    assert named_by(made, ids_of(made, tokens)) != states


@pytest.mark.parametrize(("source", "target"), [("S3", "deltaproduct"), ("(ab)*", "deltanet")])
def test_only_logits_of_states_are_large(source: str, target: str) -> None:
    found = weights(source, target)
    made = fla_checkpoint(found)
    logits = np.sort(logits_of(made, ids_of(made, word(found, 100)[0]))[len(made.facts["start_ids"]) :], -1)
    assert logits[:, -1] == pytest.approx(10, abs=1e-2)
    assert (logits[:, -2] < -9.99).all()


@given(some.floats(-0.278, 1e4))
def test_preimages_of_silu_are_exact(y: float) -> None:
    x = silu_preimage(np.array([y]))
    assert silu(x)[0] == pytest.approx(y, rel=1e-14, abs=1e-16)


@pytest.mark.parametrize(
    ("source", "target", "model", "words"),
    [
        ("S3", "ckda", "auto", ("signed gates", "--to hf")),
        ("S3", "ckda", "kda", ("kda has no signed gates", "--to hf")),
        ("S3", "deltaproduct", "kda", ("kda has one factor", "has 2")),
        ("S3", "deltaproduct", "delta_net", ("delta_net has one factor",)),
        ("(ab)*", "kda", "delta_net", ("delta_net has no gates",)),
        ("(ab)*", "kda", "gated_deltaproduct", ("one gate for all channels",)),
        ("A5", "deltanet", "auto", ("14 blocks", "at most 268,435,456", "take fewer letters")),
        ("S5", "deltanet", "kda", ("differ by a cosine of 8.9e-06",)),
        ("(a|b)*b", "diag[0,1]", "auto", ("not multiples of the key",)),
        ("S3", "deltaproduct", "gla", ("know auto, delta_net",)),
    ],
)
def test_what_a_model_lacks_is_refused_by_name(source: str, target: str, model: str, words: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        fla_checkpoint(weights(source, target), model)
    assert all(part in str(caught.value) for part in words)


def test_a_chunk_kernel_without_float32_is_refused() -> None:
    with pytest.raises(InvalidInput, match="takes no float32"):
        fla_checkpoint(weights("S3", "deltaproduct"), mode="chunk")
    assert fla_checkpoint(weights("S3", "deltaproduct"), mode="chunk", dtype="bfloat16").config["attn_mode"] == "chunk"


def test_bfloat16_is_refused_where_it_rounds_readouts_together() -> None:
    found = weights("S3", "deltanet")
    for export in (fla_checkpoint, ckda_checkpoint):
        with pytest.raises(InvalidInput, match=r"bfloat16 rounds readouts together .* give --dtype float32"):
            export(found, dtype="bfloat16")


@pytest.mark.parametrize(
    ("source", "target", "letters"),
    [
        ("S3", "ckda", "all"),
        ("Q8", "ckda", "all"),
        ("Z12", "ckda", "generators"),
        ("S4", "deltaproduct", "generators"),
        ("(ab)*", "kda", "all"),
        ("(a|b)*ab", "ckda", "all"),
        ("(ab)*", "deltanet", "all"),
        ("(a|b)*aba(a|b)*", "ckda", "all"),
        ("S3", "deltanet", "all"),
        ("A5", "deltanet", "generators"),
    ],
)
def test_our_own_modules_give_the_programs_outputs(source: str, target: str, letters: str) -> None:
    compiled = st.build(source, target, letters=letters)
    found = compiled.weights("float64")
    stream, config, parameters = model_parts(found)
    model = LanguageModel(config).double()
    model.load_state_dict({name: torch.as_tensor(t) for name, t in parameters.items()}, strict=True)
    tokens, _ = word(found, 400)
    with torch.no_grad():
        logits, _ = model(torch.tensor([tokens]))
    states: list[int] = (logits[0].argmax(-1) - stream.tokens).tolist()  # pyright: ignore
    said = tuple(compiled.program.outputs[state] for state in states)
    assert said == compiled.program.run([compiled.program.alphabet[t] for t in tokens])
    lead = logits[0].topk(2, -1).values
    assert float((lead[:, 0] - lead[:, 1]).min()) > 19.99


def test_preimages_in_bfloat16_count_on_the_layers_rounding() -> None:
    """Keys are right as the layer stores them; without that rounding the angles of Z60 are off and add up."""
    found = weights("Z60", "deltaproduct", "all")
    made = fla_checkpoint(found, "gated_deltaproduct", dtype="bfloat16")
    tokens, states = word(found, 3000)
    first, starts = made.facts["first_state_id"], len(made.facts["start_ids"])
    wrong: dict[str, int] = {}
    for name, stored in (("stored", ml_dtypes.bfloat16), ("exact", None)):
        logits = logits_of(made, ids_of(made, tokens), stored=stored)[starts:]
        wrong[name] = int((logits[:, first : first + 60].argmax(-1) != states[1:]).sum())
    assert wrong["stored"] == 0 < wrong["exact"]


@pytest.mark.parametrize(("source", "target"), [("Z5", "ckda"), ("S3", "deltaproduct"), ("(ab)*", "deltaproduct")])
def test_keys_of_any_length_are_exported_too(source: str, target: str) -> None:
    """Dyadic keys have lengths; layers normalise keys, so the lengths must go into β and v."""
    found = st.build(source, target).weights("float64", keys="dyadic")
    tokens, states = word(found, 300)
    stream, config, parameters = model_parts(found)
    exported = LanguageModel(config).double()
    exported.load_state_dict({name: torch.as_tensor(t) for name, t in parameters.items()}, strict=True)
    for model, first in ((exported, stream.tokens), (model_of_program(found).double(), 0)):
        with torch.no_grad():
            answers = model(torch.tensor([tokens]))[0][0].argmax(-1) - first
        assert answers.tolist() == states[1:]


def test_start_tokens_write_the_state_that_the_tables_state() -> None:
    (tables,) = layer_tables(weights("S4", "deltaproduct", "generators"))
    starts = tables.starts(tables.shape[2])
    rows = tables.with_starts(starts)
    state = np.zeros_like(tables.state)
    for token in range(starts):
        for j in range(tables.shape[2]):
            key, beta = rows.keys[token, :, j], rows.betas[token, :, j, None, None]
            error = np.einsum("hk,hkv->hv", key, state) - rows.values[token, :, j]
            state = state - beta * np.einsum("hk,hv->hkv", key, error)
        # Every readout of a start token has a length, which the output norm needs.
        assert np.einsum("hk,hkv->hv", rows.queries[token], state).any(1).all()
    assert starts == 2
    assert state == pytest.approx(tables.state, abs=1e-12)


def test_the_command_writes_a_folder_and_says_the_ids(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, folder = tmp_path / "s3.safetensors", tmp_path / "out"
    assert main(["build", "S3", "--target", "deltaproduct", "--output", str(file)]) == 0
    capsys.readouterr()
    assert main(["export", str(file), "--to", "fla", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["model_type"], said["start_ids"], said["states"]) == ("gated_deltaproduct", [0], "ids 7 to 12")
    assert sorted(p.name for p in folder.iterdir()) == [
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "statetrack.json",
    ]
    assert json.loads((folder / "config.json").read_text())["eos_token_id"] is None
    for arguments, part in (
        (["--to", "onnx", str(folder)], "know fla, hf"),
        (["--to", "hf", "--model", "kda", str(folder)], "for --to fla"),
        (["--to", "fla", str(file)], "cannot be made"),
        (["--to", "fla", "--dtype", "float16", str(folder)], "know float32, bfloat16"),
    ):
        assert main(["export", str(file), *arguments]) == 2
        shown = capsys.readouterr().err.strip()
        assert part in shown
        assert "\n" not in shown


def test_importing_the_package_imports_no_transformers() -> None:
    code = "import sys, statetrack; print([m for m in sys.modules if m.split('.')[0] in ('transformers', 'torch')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@has_transformers
@pytest.mark.parametrize("first", ["import statetrack, transformers", "import transformers, statetrack"])
def test_import_statetrack_is_enough_to_load(first: str, tmp_path: Path) -> None:
    ckda_checkpoint(weights("S3", "ckda")).save(tmp_path)
    code = f"{first}; m = transformers.AutoModelForCausalLM.from_pretrained({str(tmp_path)!r}); print(type(m).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "CkdaForCausalLM"


@has_transformers
def test_the_ckda_type_loads_generates_goes_on_and_saves(tmp_path: Path) -> None:
    auto: Any = import_module("transformers").AutoModelForCausalLM
    found = weights("S3", "ckda")
    made = ckda_checkpoint(found)
    made.save(tmp_path / "a")
    model, info = auto.from_pretrained(str(tmp_path / "a"), output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    tokens, states = word(found, 200)
    ids = torch.tensor([ids_of(made, tokens)])
    with torch.no_grad():
        whole = model(ids)
        first = model(ids[:, :120])
        rest = model(ids[:, 120:], past_key_values=first.past_key_values)
    assert (whole.logits[0].argmax(-1) - made.facts["first_state_id"]).tolist() == states[1:]
    assert torch.allclose(torch.cat([first.logits, rest.logits], 1), whole.logits, atol=1e-2)
    new = model.generate(ids, max_new_tokens=3, do_sample=False)[0, 200:] - made.facts["first_state_id"]
    assert new.tolist() == [states[-1]] * 3
    model.save_pretrained(tmp_path / "b")
    again = auto.from_pretrained(str(tmp_path / "b"))
    with torch.no_grad():
        assert torch.equal(again(ids).logits, whole.logits)


@has_transformers
def test_padding_is_refused(tmp_path: Path) -> None:
    auto: Any = import_module("transformers").AutoModelForCausalLM
    ckda_checkpoint(weights("S3", "ckda")).save(tmp_path)
    model = auto.from_pretrained(str(tmp_path))
    with pytest.raises(InvalidInput, match="one length"):
        model(torch.tensor([[0, 1]]), attention_mask=torch.tensor([[0, 1]]))


@has_fla
@pytest.mark.parametrize("model", ["delta_net", "gated_deltaproduct", "kda"])
@pytest.mark.parametrize("conv", [0, 4])
def test_flash_linear_attention_finds_every_key_and_every_field(model: str, conv: int, tmp_path: Path) -> None:
    import_module("fla.models")
    auto: Any = import_module("transformers").AutoModelForCausalLM
    made = fla_checkpoint(weights("a*b(a|b)*" if model != "delta_net" else "(a|b)*b", "kda"), model, conv=conv)
    made.save(tmp_path)
    loaded, info = auto.from_pretrained(str(tmp_path), output_loading_info=True)
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    fields = set(inspect.signature(type(loaded.config).__init__).parameters) - {"self", "kwargs"}
    assert fields <= set(made.config)
    assert set(loaded.state_dict()) == set(made.tensors)
