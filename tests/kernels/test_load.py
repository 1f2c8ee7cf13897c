"""From the tensors of a weights file to a model: the layout, and every fault of a file named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from statetrack.constructions.weights import Weights
from statetrack.errors import InvalidInput, InvalidWord
from statetrack.kernels.load import encode_words, model_of, random_tokens
from statetrack.kernels.run import execute, values
from statetrack.theory.automata import Dfa
from statetrack.theory.weighted import from_matrices

Arrays = dict[str, NDArray[Any]]


def ints(*numbers: int) -> NDArray[np.int32]:
    return np.array(numbers, dtype=np.int32)


def written(prefix: str, codes: list[list[int]], kind: Any) -> Arrays:
    """Heads of one number, 0 at first; id i writes codes[i][h] into head h, and nothing if that is negative."""
    table = np.array(codes)[:, :, None]
    ones = np.ones((*table.shape, 1), dtype=kind)
    tensors = {
        "keys": ones,
        "betas": (table >= 0).astype(kind),
        "gates": ones,
        "values": np.maximum(table, 0)[..., None].astype(kind),
        "queries": ones[:, :, 0],
        "state": np.zeros((table.shape[1], 1, 1), dtype=kind),
    }
    return {prefix + name: array for name, array in tensors.items()}


def codes(prefix: str, *counts: int) -> Arrays:
    """Codebooks 0, 1, ... with themselves as labels."""
    made: Arrays = {}
    for h, count in enumerate(counts):
        made[f"{prefix}codebook.{h}"] = np.arange(count, dtype=np.float32)[:, None]
        made[f"{prefix}labels.{h}"] = np.arange(count, dtype=np.int32)
    return made


def pair(kind: Any = np.float32) -> Arrays:
    """Remembers the last 'a' or 'b' (1, 2) in one slot and whether 'c' came in another; the answer is both, as a pair.

    Registers: token, wire (kind of letter), id, two codes; then the answer's wire, and the answer.
    """
    tensors = written("layers.0.", [[1, -1], [2, -1], [-1, 1]], kind) | codes("layers.0.", 3, 2)
    return tensors | {
        "layers.0.wires.0": ints(0, 1, 2),
        "layers.0.wires.0.reads": ints(0),
        "layers.0.reads": ints(1),
        "layers.0.route": ints(0, 1, 2),
        "answer.wires.0": ints(0, 1, 2),
        "answer.wires.0.reads": ints(3),
        "answer": np.array([[0, 3], [1, 4], [2, 5]], dtype=np.int32),
        "answer.reads": ints(5, 4),
    }


def automaton() -> Dfa:
    delta = [[1, 2, 3], [1, 2, 4], [1, 2, 5], [4, 5, 3], [4, 5, 4], [4, 5, 5]]
    names = tuple(f"{last}{seen}" for seen in "01" for last in "012")
    return Dfa(("a", "b", "c"), names, 0, np.array(delta, dtype=np.int32), names)


def pair_weights(change: Arrays | None = None, *, drop: tuple[str, ...] = (), kind: Any = np.float32) -> Weights:
    tensors = {name: array for name, array in (pair(kind) | (change or {})).items() if name not in drop}
    return Weights("float32", tensors, {}, automaton())


def weighted_weights(change: Arrays | None = None) -> Weights:
    """The readout of the one slot."""
    tensors = written("layers.0.", [[7], [-1]], np.float32)
    tensors |= {"layers.0.reads": ints(), "layers.0.route": np.array(0, dtype=np.int32)}
    wfa = from_matrices("xy", [0, 1], {"x": [[0, 7], [0, 1]], "y": [[1, 0], [0, 1]]}, [1, 0])
    return Weights("float32", tensors | (change or {}), {}, wfa)


@pytest.mark.parametrize("kind", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_a_file_in_the_layout_is_executed(kind: Any) -> None:
    weights = pair_weights(kind=kind)
    tokens = random_tokens(3, 7, 0, 50, seed=1, device="cpu")
    trace = execute(model_of(weights), tokens)
    assert (trace.wrong, trace.tokens) == (0, 350)
    broken = pair_weights({"answer": np.array([[0, 3], [1, 4], [1, 5]], dtype=np.int32)})
    assert execute(model_of(broken), tokens).wrong > 0


def test_emit_makes_one_register_of_all_codes() -> None:
    emit = np.array([[0, 3], [1, 4], [2, 5]], dtype=np.int32)
    drop = ("answer", "answer.reads", "answer.wires.0", "answer.wires.0.reads")
    model = model_of(pair_weights({"layers.0.emit": emit}, drop=drop))
    assert model.answer is None
    assert execute(model, random_tokens(3, 7, 0, 50, seed=1, device="cpu")).wrong == 0


def test_units_and_two_dimensional_wires_are_read() -> None:
    added = {
        "layers.0.unit": np.array([0.0, 1.0], dtype=np.float32),
        "layers.0.wires.0": np.array([[0, -1, -1], [-1, 1, -1], [-1, -1, 2]], dtype=np.int32),
        "layers.0.wires.0.reads": ints(0, 0),
    }
    model = model_of(pair_weights(added))
    assert model.layers[0].tables.unit is not None
    assert execute(model, random_tokens(3, 7, 0, 50, seed=1, device="cpu")).wrong == 0


@pytest.mark.parametrize("shape", [(), (1,)])
def test_weights_without_an_automaton_answer_with_the_readout(shape: tuple[int, ...]) -> None:
    weights = weighted_weights({"layers.0.route": np.zeros(shape, dtype=np.int32)})
    model = model_of(weights)
    assert (model.delta, model.symbols) == (None, None)
    tokens = encode_words(["x", "", "xyxy"], weights)
    assert torch.equal(tokens, torch.tensor([[0, -1, -1, -1], [-1, -1, -1, -1], [0, 1, 0, 1]]))
    found = values(model, tokens)
    nan = torch.nan
    expected = torch.tensor([[7.0, nan, nan, nan], [nan] * 4, [7.0] * 4])
    assert torch.equal(found.nan_to_num(-1), expected.nan_to_num(-1))
    with pytest.raises(InvalidWord, match="'z'"):
        encode_words(["xz"], weights)


@pytest.mark.parametrize("name", sorted(set(pair()) - {"layers.0.values", "layers.0.wires.0", "answer.wires.0"}))
def test_a_missing_tensor_is_named(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"no tensor {name}"):
        model_of(pair_weights(drop=(name,)))


@pytest.mark.parametrize("prefix", ["layers.0.wires.0", "answer.wires.0"])
def test_a_wire_needs_both_of_its_tensors(prefix: str) -> None:
    with pytest.raises(InvalidInput, match=f"no tensor {prefix};|no tensor {prefix}$"):
        model_of(pair_weights(drop=(prefix,)))
    with pytest.raises(InvalidInput, match=r"reads registers|are numbered|has shape .*, expected|no automaton|holds"):
        model_of(pair_weights(drop=(prefix, prefix + ".reads")))


def changes() -> Iterator[tuple[str, NDArray[Any]]]:
    """Every tensor of another type or shape, with a number out of range, and absent."""
    for name, array in pair().items():
        yield name, array.astype(np.int64)
        yield name, array.astype(np.float32 if array.dtype == np.int32 else np.int32)
        yield from ((name, other) for other in (array[None], array[:0], array[..., :0], np.zeros((), array.dtype)))
        for number in (-(2**31), -2, 1, 4, 2**31 - 1) if array.dtype == np.int32 else (np.nan, np.inf, -1.0, 3e38):
            changed = array.copy()
            changed.flat[0] = number
            yield name, changed


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
def test_no_changed_tensor_is_taken_for_another_or_ends_in_a_traceback() -> None:
    tokens = torch.tensor([[0, 1, 2, 0], [2, 1, 0, -1]])
    refused: dict[str, list[str]] = {"layout": [], "ran": []}
    for name, array in changes():
        try:
            model = model_of(pair_weights({name: array}))
        except InvalidInput:
            refused["layout"].append(name)
        else:
            execute(model, tokens, executor="reference")
            refused["ran"].append(name)
    # Types (two), another dimension, none, and integers below -1 or beyond what reads them.
    assert all(refused["layout"].count(name) >= 4 for name in pair())
    assert all(refused["ran"].count(name) >= 1 for name, array in pair().items() if array.dtype != np.int32)


def test_a_float_is_no_integer_and_an_index_has_a_place() -> None:
    for name, array in pair().items():
        with pytest.raises(InvalidInput, match=f"{name} has dtype int64, expected"):
            model_of(pair_weights({name: array.astype(np.int64)}))
        if array.dtype == np.int32 and name != "answer":
            changed = array.copy()
            changed.flat[-1] = 2**31 - 1
            with pytest.raises(InvalidInput, match=r"2147483647"):
                model_of(pair_weights({name: changed}))


def test_all_faults_are_listed() -> None:
    with pytest.raises(InvalidInput) as told:
        model_of(
            pair_weights(
                {
                    "layers.0.reads": ints(1, 2, 0),
                    "layers.0.unti": ints(1),
                    "layers.2.keys": ints(),
                    "layers.0.labels.1": np.zeros(3),
                    "layers.0.wires.3": ints(0),
                    "answer.reads": np.zeros((1, 1), dtype=np.int32),
                },
                drop=("layers.0.gates",),
            )
        )
    for part in (
        "tensors of layers [0, 2], expected 0, 1, ...",
        "no tensor layers.0.gates",
        "layers.0.labels.1 has dtype float64, expected int32",
        "layers.0.reads has shape (3,), expected [at most 2]",
        "layers.0.wires are numbered [0, 3]",
        "no tensor layers.0.wires.3.reads",
        "layers.2.keys has dtype int32, expected float64 or float32 or bfloat16",
        "no tensor layers.2.route",
        "answer.reads has shape (1, 1)",
        "not in the layout: layers.0.unti",
    ):
        assert part in str(told.value)
    with pytest.raises(InvalidInput, match=r"layers.0: layer model: route .*head 1: codebook"):
        model_of(pair_weights({"layers.0.route": ints(0, 1, 3), "layers.0.codebook.1": np.zeros((1, 1))}))
    with pytest.raises(InvalidInput, match=r"tensors of layers \[\], expected"):
        model_of(Weights("float32", {}, {}, automaton()))


def test_a_codebook_and_an_automaton_go_together() -> None:
    plain = Weights("float32", weighted_weights().tensors, {}, automaton())
    with pytest.raises(InvalidInput, match=r"no tensor layers.0.codebook.0; no tensor layers.0.labels.0"):
        model_of(plain)
    with pytest.raises(InvalidInput, match=r"not in the layout: layers.0.codebook.0"):
        model_of(weighted_weights({"layers.0.codebook.0": np.zeros((1, 1))}))


def test_words_are_padded_behind_their_end() -> None:
    tokens = encode_words(["ab", "", "c"], pair_weights())
    assert torch.equal(tokens, torch.tensor([[0, 1], [-1, -1], [2, -1]]))
    assert encode_words([], pair_weights()).shape == (0, 0)
    with pytest.raises(InvalidWord, match="position 1"):
        encode_words([("a", "ab")], pair_weights())


def test_random_tokens_do_not_depend_on_the_chunks() -> None:
    whole = random_tokens(5, 4, 0, 40, seed=3, device="cpu")
    assert torch.equal(
        torch.cat([random_tokens(5, 4, a, a + 8, seed=3, device="cpu") for a in range(0, 40, 8)], 1), whole
    )
    assert sorted(int(token) for token in whole.unique()) == [0, 1, 2, 3, 4]  # pyright: ignore
    assert not torch.equal(random_tokens(5, 4, 0, 40, seed=4, device="cpu"), whole)
