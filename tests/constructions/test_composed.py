"""Composed networks as JSON and as weights files: what is written is what is read, run and certified."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from statetrack import api
from statetrack.constructions.assembly import Module, Stack
from statetrack.constructions.certificate import Certificate, digest_of
from statetrack.constructions.compiler import Compiled, compile_source
from statetrack.constructions.composed import (
    blocks_certificate,
    closed_program,
    linear_certificate,
    part_of,
    stack_certificate,
)
from statetrack.constructions.program import Dense, Head, Lookup, Table
from statetrack.constructions.stack import settle
from statetrack.constructions.targets import TARGETS, target
from statetrack.constructions.weights import Weights, load_weights, lower, tensors_digest
from statetrack.errors import CertificateFailed, InvalidFile, InvalidInput, OutOfRange
from statetrack.proofs_check import networks
from statetrack.theory.arrays import identity, matrix, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa, from_matrices_dict

COUNTS = from_matrices_dict(
    {
        "semiring": "real",
        "alphabet": ["a", "b"],
        "initial": [1, "1/2"],
        "matrices": {"a": [[1, 1], [0, 1]], "b": [[1, 0], [0, -2]]},
        "final": [0, 3],
    }
)
KINDS: dict[str, tuple[str | Wfa, str, str | None]] = {
    "closure": ("Z3", "ckda", None),
    "two layers": ("Z3", "deltanet", None),
    "blocks": ("[ab]*a[ab]b", "ckda-wide", "blocks"),
    "blocks of a group": ("S3", "kda", "blocks"),
    "weighted blocks": (COUNTS, "ckda-wide", None),
    "linear": (COUNTS, "unconstrained", None),
    "stack": ("[ab]*aba[ab]*", "ckda", "cascade"),
    "floors": ("[ab]*aba[ab]*", "diag[0,1]", "cascade"),
    "nested": ("(b*ab*ab*)*", "deltanet", "cascade"),
    "three read": ("(aa|b)*a[ab]", "kda", "cascade"),
    "chain": ("[ab]*aba[ab]*", "ckda", "chain"),
    "chain of two layers": ("(b*ab*ab*)*a[ab]", "deltanet", "chain"),
}


@cache
def made(name: str) -> Compiled:
    source, goal, construction = KINDS[name]
    return compile_source(source, goal, construction=construction)


def lowered(name: str, dtype: str = "float32") -> Weights:
    one = made(name)
    return lower(one.program, one.certificate, one.automaton, dtype)


def some_word(one: Compiled, length: int) -> list[str]:
    return random.Random(length).choices(one.automaton.alphabet, k=length)


@pytest.mark.parametrize("name", KINDS)
def test_the_program_read_from_a_certificate_has_the_same_tensors_bit_for_bit(name: str) -> None:
    one = made(name)
    facts = networks.verify(one.certificate.text(), one.certificate.digest)
    assert (facts["target"], facts.get("joint", 0)) == (one.target.name, one.certificate.joint)
    again = closed_program(json.loads(one.certificate.text()))
    for dtype in ("float64", "bfloat16"):
        first = lowered(name, dtype).tensors
        second = lower(again, one.certificate, one.automaton, dtype).tensors
        assert list(first) == list(second)
        assert all(np.array_equal(first[n], second[n]) and first[n].dtype == second[n].dtype for n in first)
    assert (again.dims, again.depth) == (one.dims, one.layers)
    word = some_word(one, 60)
    if isinstance(one.automaton, Dfa):
        assert again.run(word) == one.run(word) == one.automaton.run(word)
    else:
        assert tuple(x.as_fraction() for x in again.runner.values(word)) == one.run(word) == one.automaton.run(word)


@pytest.mark.parametrize("name", KINDS)
def test_a_saved_file_is_read_checked_and_run(name: str, tmp_path: Path) -> None:
    weights, path = lowered(name), tmp_path / "w.safetensors"
    weights.save(path)
    found = api.load(path)
    assert tensors_digest(found.tensors) == tensors_digest(weights.tensors)
    assert (found.certificate, found.dtype) == (made(name).certificate.data, "float32")
    assert found.automaton == weights.automaton
    assert api.check(path)["digest"] == made(name).certificate.digest
    word = some_word(made(name), 200 if isinstance(found.automaton, Dfa) else 12)
    if isinstance(found.automaton, Dfa):
        assert found.run([word], device="cpu", executor="reference").wrong == 0
    else:
        values = found.values([word], device="cpu", executor="reference", storage="float64")[0]
        assert values == pytest.approx([float(x) for x in found.automaton.run(word)], rel=1e-4)
        with pytest.raises(InvalidInput, match="no states"):
            _ = found.dfa


@pytest.mark.parametrize("name", ["blocks", "stack", "nested", "linear", "three read", "chain"])
def test_another_format_of_a_loaded_file_is_lowered_from_the_certificate(name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    lowered(name).save(path)
    assert tensors_digest(api.load(path).in_format("float64").tensors) == tensors_digest(
        lowered(name, "float64").tensors
    )
    with pytest.raises(InvalidInput, match="int16"):
        lowered(name, "int16")


def parts(data: Any) -> list[dict[str, Any]]:
    """Every certificate inside a certificate, inner ones first."""
    found: list[dict[str, Any]] = []
    for inner in [*data.get("parts", []), *([data["clock"]] if "clock" in data else [])]:
        found += parts(inner)
    return [*found, data]


def sealed(data: dict[str, Any]) -> str:
    for inner in parts(data):
        inner["digest"] = digest_of(inner)
    return json.dumps(data)


def more(place: list[Any] | dict[str, Any], key: Any) -> None:
    place[key] += 1


def swapped(rows: list[list[Any]], i: int, j: int) -> None:
    """Exchange the values that two keys have."""
    rows[i][-1], rows[j][-1] = rows[j][-1], rows[i][-1]


def different(rows: list[list[Any]]) -> tuple[int, int]:
    """Two rows with different values."""
    j = next(j for j, row in enumerate(rows) if row[-1] != rows[0][-1])
    return 0, j


CHANGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "joint states": ("stack", lambda d: more(d["claims"], "joint")),
    "answer": ("stack", lambda d: swapped(d["answer"]["table"], *different(d["answer"]["table"]))),
    "letters": ("stack", lambda d: swapped(d["modules"][1]["letters"], *different(d["modules"][1]["letters"]))),
    "values before": ("stack", lambda d: swapped(d["modules"][0]["before"], *different(d["modules"][0]["before"]))),
    "a part's factor": ("stack", lambda d: more(d["parts"][0]["layers"][0]["heads"][0]["steps"][0][0]["w"], 0)),
    "letters of sets": ("chain", lambda d: swapped(d["modules"][1]["letters"], *different(d["modules"][1]["letters"]))),
    "sets": ("chain", lambda d: swapped(d["modules"][0]["narrow"], *different(d["modules"][0]["narrow"]))),
    "a set less": ("chain", lambda d: d["modules"][0]["narrow"].pop()),
    "states": ("chain", lambda d: swapped(d["modules"][-1]["narrow"], *different(d["modules"][-1]["narrow"]))),
    "triples": ("chain", lambda d: more(d["claims"], "triples")),
    "which part": ("nested", lambda d: d["modules"][0].update(part=1)),
    "inner answer": ("nested", lambda d: more(d["parts"][1]["answer"]["table"][0], 1)),
    "automaton": ("nested", lambda d: more(d["automaton"], "start")),
    "floor": ("floors", lambda d: d["parts"][0]["layers"][0]["heads"][0].update(unit="2")),
    "fold": ("blocks", lambda d: more(d["fold"][0], 2)),
    "step of a block": (
        "blocks",
        lambda d: d["blocks"][0][2].__setitem__(0, (d["blocks"][0][2][0] + 1) % len(d["accumulator"]["steps"])),
    ),
    "query row": ("blocks", lambda d: swapped(d["rows"], *different(d["rows"]))),
    "token": ("blocks", lambda d: d["tokens"].reverse()),
    "length": ("blocks", lambda d: more(d, "length")),
    "clock": ("blocks", lambda d: d["clock"]["layers"][0]["heads"][0]["steps"][0][0].update(c=1)),
    "margin": ("blocks", lambda d: d["claims"].update(margin="99")),
    "select": ("linear", lambda d: d["select"][0].__setitem__(0, 2)),
    "matrix": ("linear", lambda d: more(d["head"]["steps"][0][0]["dense"][0], 0)),
    "final": ("linear", lambda d: more(d["automaton"]["final"], 0)),
    "weighted row": ("weighted blocks", lambda d: more(d["row"], 0)),
    "weighted start": ("weighted blocks", lambda d: more(d["automaton"]["initial"], 0)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_number_is_refused_whatever_the_digests_say(change: str) -> None:
    name, edit = CHANGES[change]
    data = copy.deepcopy(json.loads(made(name).certificate.text()))
    edit(data)
    assert data != json.loads(made(name).certificate.text())
    with pytest.raises(networks.Refused):
        networks.verify(json.dumps(data))
    with pytest.raises(networks.Refused):
        networks.verify(sealed(data))


def test_changed_letters_make_another_program() -> None:
    one = made("stack")
    data = json.loads(one.certificate.text())
    swapped(data["answer"]["table"], *different(data["answer"]["table"]))
    word = some_word(one, 100)
    # States, as the outputs of two states may be equal.
    assert closed_program(data).runner.symbols(word) != one.program.runner.symbols(word)


def test_a_layer_of_another_automaton_is_no_linear_certificate() -> None:
    q = rationals()
    letters = [matrix(q, (map(q, row) for row in m)) for m in COUNTS.matrices]
    final, initial = vector(q, map(q, COUNTS.final)), vector(q, map(q, COUNTS.initial))
    choose = Lookup({(t,): (t, 0) for t in range(2)})
    head = Head((initial,), tuple((Dense(m),) for m in letters), (final,), choose)
    goal, one = target("unconstrained"), identity(q, 2)
    networks.verify(linear_certificate(head, one, COUNTS, goal).text())
    twice = replace(head, steps=(head.steps[0], head.steps[0]))
    doubled = replace(head, queries=(tuple(x * 2 for x in final),))
    for wrong in (twice, doubled):
        with pytest.raises(CertificateFailed, match="step of"):
            linear_certificate(wrong, one, COUNTS, goal)
    with pytest.raises(OutOfRange):
        linear_certificate(head, one, COUNTS, target("ckda-wide"))


def test_blocks_are_certified_for_their_range_only() -> None:
    from statetrack.constructions.composed import _blocks  # pyright: ignore[reportPrivateUsage]

    one = made("blocks")
    blocks = _blocks(json.loads(one.certificate.text()))
    again = blocks_certificate(blocks, one.automaton, TARGETS["ckda-wide"])
    assert again.digest == one.certificate.digest
    with pytest.raises(OutOfRange):
        blocks_certificate(blocks, one.automaton, TARGETS["ckda"])


def counters() -> tuple[Stack, Dfa, Certificate]:
    """Three counters modulo 2 and a fourth that is told at all of them: keys of four registers."""
    part = part_of(compile_source("Z2", "ckda").certificate.data)
    tokens = tuple(range(3))
    pattern: dict[tuple[int, ...], int] = {
        (t, *bits): (t + bits[0] * bits[1] + bits[2]) % 2 for t in tokens for bits in product((0, 1), repeat=3)
    }
    modules = (
        *(Module(part, (), Lookup({(t,): int(t == i) for t in tokens}), (0, 1)) for i in tokens),
        Module(part, (0, 1, 2), Lookup(pattern), (0, 1)),
    )
    found: dict[tuple[int, ...], int] = {(0, 0, 0, 0): 0}
    listed = [*found]
    table: list[list[int]] = []
    for x in listed:
        images = [(*(x[i] ^ (t == i) for i in tokens), x[3] ^ pattern[(t, *x[:3])]) for t in tokens]
        for image in images:
            if image not in found:
                found[image] = len(found)
                listed.append(image)
        table.append([found[image] for image in images])
    names = tuple("".join(str(int(b)) for b in x) for x in listed)
    dfa = Dfa(("x", "y", "z"), names, 0, np.array(table, dtype=np.int32), names)
    stack, joint = settle(dfa, modules, (0, 1, 2, 3), 100)
    return stack, dfa, stack_certificate(stack, dfa, target("ckda"), joint)


def test_keys_of_more_than_two_registers_are_looked_up_in_steps() -> None:
    stack, dfa, certificate = counters()
    assert networks.verify(certificate.text())["joint"] == len(dfa.states) == 16
    program = stack.program(dfa)
    assert max(len(wire.reads) for layer in program.layers for wire in layer.wires) == 4
    weights = lower(program, certificate, dfa, "float32")
    tables = [n.removesuffix(".reads") for n in weights.tensors if n.endswith(".reads") and "wires" in n]
    assert tables
    assert all(1 <= weights.tensors[n].ndim == len(weights.tensors[n + ".reads"]) <= 2 for n in tables)
    assert weights.tensors["answer"].ndim == 2
    # As many wires as the program has, and two more for the key of four registers; the answer's takes two as well.
    wires = sum(len(layer.wires) for layer in program.layers)
    assert sum(".wires." in n and n.startswith("layers") for n in tables) == wires + 2
    assert sum(n.startswith("answer.wires") for n in tables) == len(program.answer) - 1 + 2
    run = api.Weights(weights.dtype, weights.tensors, weights.certificate, weights.automaton)
    assert run.run(random=8, length=100, device="cpu", executor="reference").wrong == 0


def test_registers_of_a_file_are_read_as_its_page_says() -> None:
    """The tables alone, walked by hand with the exact codes, give the answers."""
    stack, dfa, certificate = counters()
    program = stack.program(dfa)
    tensors = lower(program, certificate, dfa, "float64").tensors
    word = random.Random(5).choices(dfa.alphabet, k=50)
    states = [np.asarray(tensors[f"layers.{n}.state"], dtype=float) for n in range(len(program.layers))]

    def look(name: str, reads: str, registers: list[int]) -> int:
        return int(tensors[name][tuple(registers[int(i)] for i in tensors[reads])])

    answers: list[int] = []
    for token in dfa.encode(word):
        registers = [token]
        for n in range(len(program.layers)):
            prefix = f"layers.{n}."
            for i in range(sum(name.startswith(prefix + "wires") for name in tensors) // 2):
                registers.append(look(f"{prefix}wires.{i}", f"{prefix}wires.{i}.reads", registers))
            chosen = look(prefix + "route", prefix + "reads", registers)
            registers.append(chosen)
            key, beta = tensors[prefix + "keys"][chosen, 0], tensors[prefix + "betas"][chosen, 0]
            for j in range(len(beta)):
                h = states[n][0] * tensors[prefix + "gates"][chosen, 0, j][:, None]
                states[n][0] = h - beta[j] * np.outer(key[j], key[j] @ h)
            readout = states[n][0].T @ tensors[prefix + "queries"][chosen, 0]
            book = tensors[prefix + "codebook.0"]
            nearest = int(np.argmin(((book - readout) ** 2).sum(axis=1)))
            registers.append(int(tensors[prefix + "labels.0"][nearest]))
        for i in range(sum(name.startswith("answer.wires") for name in tensors) // 2):
            registers.append(look(f"answer.wires.{i}", f"answer.wires.{i}.reads", registers))
        answers.append(look("answer", "answer.reads", registers))
    assert tuple(answers) == dfa.trace(word)


def test_a_constant_wire_holds_at_every_token() -> None:
    part = part_of(compile_source("Z3", "ckda").certificate.data)
    (layer,) = part.program.layers
    constant = Table((), Lookup({(): 2}))
    program = replace(part.program, alphabet=("s", "t"), layers=(replace(layer, wires=(constant,), reads=(1,)),))
    dfa = Dfa(("s", "t"), part.dfa.states, 0, part.dfa.delta[:, [2, 2]], part.dfa.states)
    certificate = compile_source("Z3", "ckda").certificate
    weights = lower(program, certificate, dfa, "float32")
    assert weights.tensors["layers.0.wires.0"].tolist() == [2, 2]
    run = api.Weights(weights.dtype, weights.tensors, weights.certificate, dfa)
    assert run.run(random=2, length=30, device="cpu", executor="reference").wrong == 0


def with_metadata(path: Path, **changes: str) -> None:
    """Change some entries of a file's metadata: eight bytes count the header, a JSON object, and the tensors follow."""
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    header["__metadata__"] |= changes
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + size :])


def test_an_older_version_is_refused_with_one_line(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    lowered("stack").save(path)
    with_metadata(path, format="statetrack-weights/2")
    load_weights(path)
    with_metadata(path, format="statetrack-weights/1")
    with pytest.raises(InvalidFile, match="statetrack build") as caught:
        load_weights(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"certificate": "{"}, "not one"),
        ({"certificate": '{"digest": 1}'}, "digest"),
        ({"tensors_sha256": "0"}, "do not match their digest"),
    ],
)
def test_metadata_that_are_none_are_refused(changes: dict[str, str], words: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    lowered("closure").save(path)
    with_metadata(path, **changes)
    with pytest.raises(InvalidFile, match=words):
        load_weights(path)


@pytest.mark.parametrize("name", ["closure", "stack", "blocks"])
def test_a_file_without_one_of_its_tensors_is_not_run_and_not_accepted(name: str, tmp_path: Path) -> None:
    weights, path = lowered(name), tmp_path / "less.safetensors"
    for missing in random.Random(0).sample(sorted(weights.tensors), 6):
        tensors = {n: t for n, t in weights.tensors.items() if n != missing}
        replace(weights, tensors=tensors).save(path)
        found = api.load(path)
        with pytest.raises(InvalidInput):
            found.run(random=1, length=2, device="cpu", executor="reference")
        with pytest.raises(InvalidFile, match="not the certified program"):
            api.check(path)
