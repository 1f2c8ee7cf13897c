"""Certificates of composed networks (docs/certificate.md: "blocks", "linear", "stack", "chain"), written and read.

Main definitions: `blocks_certificate`, `proved_blocks`, `linear_certificate`, `stack_certificate`, `chain_certificate`,
`closed_program`, `certified_part`.

Main results: `closed_program` builds the network that a certificate describes, by the functions of `assembly` that
made it, so what is lowered is what was certified.

References: docs/certificate.md.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

import numpy as np

from statetrack.errors import CertificateFailed
from statetrack.theory.arrays import Matrix, Vector, identity, matmul
from statetrack.theory.automata import Dfa
from statetrack.theory.fields import Field, element_from_json
from statetrack.theory.number_fields import rationals
from statetrack.theory.weighted import Wfa

from .assembly import KEPT, Accumulator, Blocks, Chain, Module, Part, Stack
from .certificate import FORMAT, Certificate, automaton_json, certify, digest_of, factor_json
from .margins import margin
from .program import Dense, Factor, Head, Layer, Lookup, Program, step_map
from .reading import any_automaton, automaton_of, factor_of, program_of, target_of, vector_of
from .targets import Target, validate

Json = dict[str, Any]


def blocks_certificate(blocks: Blocks, automaton: Dfa | Wfa, goal: Target) -> Certificate:
    """The certificate of a clock, a buffer and an accumulator; OutOfRange if a factor is outside the target."""
    return proved_blocks(blocks, automaton, goal)[1]


def proved_blocks(blocks: Blocks, automaton: Dfa | Wfa, goal: Target) -> tuple[Program, Certificate]:
    """The network of `blocks` and its certificate; OutOfRange if a factor is outside the target."""
    program = blocks_program(blocks, automaton)
    validate(program, goal)
    fields, claims = _accumulator_json(blocks.accumulator)
    data: Json = {
        "format": FORMAT,
        "kind": "blocks",
        "range": goal.to_json(),
        "clock": blocks.clock.data,
        **fields,
        "automaton": automaton_json(automaton) if isinstance(automaton, Dfa) else weighted_json(automaton),
        "claims": {**claims},
    }
    return program, _sealed(data)


# Targets of one automaton ask for the same one after the other.
@lru_cache(maxsize=KEPT)
def _accumulator_json(made: Accumulator) -> tuple[Json, Json]:
    """What a certificate says of an accumulator, and what it claims of it, whatever the target."""
    value = None
    if made.points is not None and len(made.readouts) > 1:
        rows = list(made.readouts)
        floats = np.array([[float(x) for x in row] for row in rows])
        found = margin(rows, floats, np.array(list(made.readouts.values()), dtype=np.int32), 1.0)
        value = None if found is None else str(found.bound)
    fields: Json = {
        "length": made.length,
        "letters": [_matrix_json(m, maps=made.points is not None) for m in made.letters],
        "tokens": list(made.tokens),
        "buffer": _head_json((((made.field.zero,),)), made.buffer_steps(), ((made.field.one,),)),
        "fold": [[*key, y] for key, y in made.fold.items()],
        "accumulator": _head_json(made.h0, made.steps, made.queries),
        "select": [_matrix_json(m) for m in made.select],
        "blocks": [[*key, list(steps), list(rests)] for key, (steps, rests) in made.blocks.items()],
        "rows": [[*key, query] for key, query in made.rows.items()],
        "row": _vector_json(made.row),
        "points": None if made.points is None else [list(p) for p in made.points],
    }
    if made.turned:
        fields["turned"] = True
    if made.scaled is not None:
        fields["scaled"] = dict(zip(("tokens", "halvings"), made.scaled, strict=True))
    entries = len(made.fold) + 2 * made.length * len(made.blocks) + len(made.rows)
    return fields, {"products": 1 + len({*made.fold.values()} - {0}), "entries": entries, "margin": value}


def linear_certificate(head: Head, select: Matrix, wfa: Wfa, goal: Target) -> Certificate:
    """The certificate of a one-layer weighted automaton; CertificateFailed unless Π F = A Π and the queries fit."""
    program = linear_program(head, wfa)
    validate(program, goal)
    field = rationals()
    final = tuple(field(x) for x in wfa.final)
    for token, rows in enumerate(wfa.matrices):
        step, query = head.choose((token,))
        a = tuple(tuple(field(x) for x in row) for row in rows)
        moved = matmul(select, step_map(field, head.steps[step], head.size, 1).matrix)
        if moved != matmul(a, select) or head.queries[query] != matmul((final,), select)[0]:
            raise CertificateFailed(f"step of {wfa.alphabet[token]!r}", "another matrix", "the automaton's")
    data: Json = {
        "format": FORMAT,
        "kind": "linear",
        "range": goal.to_json(),
        "head": _head_json(head.h0, head.steps, head.queries),
        "inputs": [list(head.choose((token,))) for token in range(len(wfa.alphabet))],
        "select": _matrix_json(select),
        "automaton": weighted_json(wfa),
        "claims": {},
    }
    return _sealed(data)


def stack_certificate(stack: Stack, dfa: Dfa, goal: Target, joint: int) -> Certificate:
    """The certificate of a stack whose search (`stack.settle`) found `joint` states."""
    read = {j for module in stack.modules for j in module.reads}
    parts, modules = _modules_json(stack.modules, read)
    answer = {"reads": list(stack.reads), "table": [[list(key), q] for key, q in stack.answer.seen.items()]}
    data: Json = {
        "format": FORMAT,
        "kind": "stack",
        "range": goal.to_json(),
        "parts": parts,
        "modules": [one | {"reads": list(m.reads)} for one, m in zip(modules, stack.modules, strict=True)],
        "answer": answer,
        "automaton": automaton_json(dfa),
        "claims": {"joint": joint},
    }
    return _sealed(data, joint)


def chain_certificate(chain: Chain, dfa: Dfa, goal: Target) -> Certificate:
    """The certificate of a chain of sets, whose tables (`descents.listing`) hold just what can be."""
    parts, modules = _modules_json(chain.modules, range(len(chain.modules) - 1))
    tables = [[[*key, below] for key, below in table.items()] for table in chain.narrow]
    data: Json = {
        "format": FORMAT,
        "kind": "chain",
        "range": goal.to_json(),
        "parts": parts,
        "modules": [one | {"narrow": table} for one, table in zip(modules, tables, strict=True)],
        "automaton": automaton_json(dfa),
        "claims": {"triples": sum(module.letters.size for module in chain.modules)},
    }
    return _sealed(data)


def _modules_json(modules: Sequence[Module], read: Container[int]) -> tuple[list[Mapping[str, Any]], list[Json]]:
    """Their parts, each once, and what stacks and chains say alike of modules; values before of those that are read."""
    parts: list[Mapping[str, Any]] = []
    index: dict[str, int] = {}
    said: list[Json] = []
    for i, module in enumerate(modules):
        digest = str(module.part.data["digest"])
        if digest not in index:
            index[digest] = len(parts)
            parts.append(module.part.data)
        said.append(
            {
                "part": index[digest],
                "letters": [[list(key), letter] for key, letter in module.letters.seen.items()],
                "values": list(module.values),
                "before": [[*key, value] for key, value in module.before.items()] if i in read else None,
            }
        )
    return parts, said


def _sealed(data: Json, joint: int = 0) -> Certificate:
    data["digest"] = digest_of(data)
    return Certificate(data["kind"], data, data["digest"], joint, (), ())


def blocks_program(blocks: Blocks, automaton: Dfa | Wfa) -> Program:
    """The network of `blocks` for its automaton."""
    if isinstance(automaton, Wfa):
        return blocks.program(automaton.alphabet, (), False)
    return blocks.program(automaton.alphabet, automaton.outputs, automaton.outputs[automaton.start])


def linear_program(head: Head, wfa: Wfa) -> Program:
    """One layer with this head, which answers with its readout."""
    return Program(rationals(), wfa.alphabet, (Layer((head,)),), (), False)


def closed_program(data: Mapping[str, Any]) -> Program:
    """The closed program that a certificate of any kind describes.

    A closure or span certificate is certified again on the way, as its codebook is found by the search.
    """
    kind = data["kind"]
    if kind == "blocks":
        automaton = any_automaton(data)
        return blocks_program(_blocks(data), automaton)
    if kind == "linear":
        automaton = any_automaton(data)
        assert isinstance(automaton, Wfa)
        return linear_program(_head(data["head"], Lookup(dict(enumerate_inputs(data["inputs"])))), automaton)
    if kind == "stack":
        return _stack(data).program(automaton_of(data))
    if kind == "chain":
        narrow = tuple({(s, value): to for s, value, to in m["narrow"]} for m in data["modules"])
        return Chain(_modules(data), narrow).program(automaton_of(data))
    closed, _ = certify(program_of(data), automaton_of(data), target_of(data), proof=kind)
    return closed


def enumerate_inputs(inputs: Sequence[Sequence[int]]) -> list[tuple[tuple[int, ...], tuple[int, int]]]:
    """Token -> (step, query) as a table."""
    return [((token,), (step, query)) for token, (step, query) in enumerate(inputs)]


def certified_part(program: Program, dfa: Dfa, goal: Target, *, max_joint: int = 5_000_000) -> Part:
    """An open program certified by closure, as a part; raises what `certify` raises."""
    closed, certificate = certify(program, dfa, goal, max_joint=max_joint)
    return Part(closed, certificate.data, dfa)


def part_of(data: Mapping[str, Any]) -> Part:
    """A certificate with its program and automaton."""
    return Part(closed_program(data), data, automaton_of(data))


def _stack(data: Mapping[str, Any]) -> Stack:
    table = Lookup({tuple(key): q for key, q in data["answer"]["table"]})
    return Stack(_modules(data), tuple(data["answer"]["reads"]), table)


def _modules(data: Mapping[str, Any]) -> tuple[Module, ...]:
    given: list[Json] = data["parts"]
    parts = [part_of(part) for part in given]
    return tuple(
        Module(
            parts[int(m["part"])],
            tuple(m.get("reads", ())),
            Lookup({tuple(key): letter for key, letter in m["letters"]}),
            tuple(m["values"]),
        )
        for m in data["modules"]
    )


def _blocks(data: Mapping[str, Any]) -> Blocks:
    field = rationals()
    head = _head(data["accumulator"], Lookup({}))
    first, second = (_matrix(field, m) for m in data["select"])
    points = data["points"]
    made = Accumulator(
        data["length"],
        tuple(_matrix(field, m) for m in data["letters"]),
        tuple(data["tokens"]),
        {(x, c): y for x, c, y in data["fold"]},
        head.h0,
        head.steps,
        head.queries,
        (first, second),
        {(half, x): (tuple(steps), tuple(rests)) for half, x, steps, rests in data["blocks"]},
        {tuple(key): query for *key, query in data["rows"]},
        vector_of(field, data["row"]),
        None if points is None else tuple(tuple(p) for p in points),
        (data["scaled"]["tokens"], data["scaled"]["halvings"]) if "scaled" in data else None,
        data.get("turned", False),
    )
    return Blocks(part_of(data["clock"]), made)


def _head(data: Mapping[str, Any], choose: Lookup[tuple[int, ...], tuple[int, int]]) -> Head:
    field = rationals()
    steps = tuple(tuple(factor_of(field, f) for f in step) for step in data["steps"])
    h0, queries = (tuple(vector_of(field, v) for v in data[name]) for name in ("h0", "queries"))
    return Head(h0, steps, queries, choose)


def weighted_json(wfa: Wfa) -> Json:
    """A weighted automaton as the certificate writes it."""
    field = rationals()
    rows = [[[field(x).to_json() for x in row] for row in m] for m in wfa.matrices]
    initial, final = ([field(x).to_json() for x in v] for v in (wfa.initial, wfa.final))
    return {"alphabet": list(wfa.alphabet), "initial": initial, "final": final, "letters": rows}


def _head_json(h0: Matrix, steps: Sequence[Sequence[Factor | Dense]], queries: Sequence[Vector]) -> Json:
    return {
        "h0": [_vector_json(column) for column in h0],
        "steps": [[factor_json(factor) for factor in step] for step in steps],
        "derived": [],
        "queries": [_vector_json(query) for query in queries],
        "labels": None,
    }


def _vector_json(v: Vector) -> list[Any]:
    return [x.to_json() for x in v]


def _matrix_json(m: Matrix, *, maps: bool = False) -> Any:
    """Rows, or the images of a map of points (-1: a zero column)."""
    if not maps:
        return [_vector_json(row) for row in m]
    return {"map": [next((i for i, row in enumerate(m) if row[j] == 1), -1) for j in range(len(m))]}


def _matrix(field: Field, data: Any) -> Matrix:
    if type(data) is dict:
        images: list[int] = list(cast("Json", data)["map"])
        one = identity(field, len(images))
        zero = (field.zero,) * len(images)
        return tuple(zip(*(zero if i < 0 else one[i] for i in images), strict=True))
    return tuple(tuple(element_from_json(field, x) for x in row) for row in data)
