"""One layer of several heads for a group: parts for pieces of it, side by side, and a decoder of tables.

A tracker gives, for letters of its group, modules that read nothing but the token; so all heads stand in one layer, and
the tables from what the modules show to the element are the decoder. Groups that are tracked are closed under
subgroups, products and quotients: letters are restricted, heads put side by side, representatives taken.

Main definitions: `Tracker`, `planar_tracker`, `source_tracker`, `subdirect`, `cover`, `word_automaton`, `matrix_part`,
`single`, `realise`, `decoder_sizes`, `head_states`.

Main results: claim OURS-one-layer-variety; each network has a certificate of kind "closure" or "stack".

References: docs/atlas.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from statetrack.errors import BudgetExceeded
from statetrack.theory.automata import Dfa, explored
from statetrack.theory.cayley_tables import Cayley, Numbers
from statetrack.theory.fields import Field
from statetrack.theory.finite_group import regular
from statetrack.theory.groups import word_problem

from .assembly import Module, Part
from .certificate import Certificate, certify
from .composed import certified_part, stack_certificate
from .planar_heads import PlanarHeads, planar_heads, planar_layer
from .program import Lookup, Program, Step
from .source import Source
from .stack import settle
from .targets import Target
from .trackers import open_head, open_program

Letters = tuple[int, ...]
Modules = tuple[Module, ...]
MOST_JOINT = 1_000_000
# Past so many edges a joint search over the exact states of all heads gives way to one a head.
_MOST_EDGES = 200_000


@dataclass(frozen=True)
class Tracker:
    """How one layer tracks a group: `modules(letters)` for tokens that stand for these elements; `how` in words."""

    group: Cayley
    how: str
    modules: Callable[[Letters, Target], Modules]
    planar: PlanarHeads | None = None


def word_automaton(group: Cayley, letters: Sequence[int]) -> Dfa:
    """State g goes to x g at letter x; tokens are named 0, 1, ..., states by the elements' numbers."""
    rows: list[list[int]] = group.table[list(letters)].tolist()
    return explored(rows, 0, lambda row, g: row[g], str)


def module_of(part: Part, letters: Sequence[int], tokens: Sequence[int]) -> Module:
    """A part over distinct letters as a module of a network whose tokens stand for these letters.

    The part's letter number i is letters[i], and its states are named by numbers, which are the values.
    """
    place = {letter: i for i, letter in enumerate(letters)}
    told = Lookup[tuple[int, ...], int]({(t,): place[g] for t, g in enumerate(tokens)})
    return Module(part, (), told, tuple(int(name) for name in part.dfa.states))


def planar_tracker(group: Cayley) -> Tracker | None:
    """Heads of size two for a group whose squares generate an abelian subgroup; None for others."""
    heads = planar_heads(group)
    if heads is None:
        return None
    found = heads

    def modules(letters: Letters, goal: Target) -> Modules:
        distinct = tuple(dict.fromkeys(letters))
        if found.states * len(distinct) > _MOST_EDGES:
            return tuple(_head_module(found, i, letters, goal) for i in range(len(found.heads)))
        dfa = word_automaton(group, distinct)
        return (
            module_of(
                certified_part(open_program(dfa, (planar_layer(found, distinct),)), dfa, goal), distinct, letters
            ),
        )

    return Tracker(group, "planar heads", modules, found)


def _head_module(heads: PlanarHeads, i: int, tokens: Sequence[int], goal: Target) -> Module:
    """One planar head, told which of its own letters it takes; its values number its (turn, sign) pairs."""
    head = heads.heads[i]
    images = [head.image(g) for g in tokens]
    distinct = tuple(dict.fromkeys(images))
    representative = [tokens[images.index(pair)] for pair in distinct]
    dfa = explored(distinct, (0, 1), head.after)
    layer = planar_layer(PlanarHeads((head,), len(dfa.states)), representative)
    part = certified_part(open_program(dfa, (layer,)), dfa, goal)
    return module_of(part, range(len(distinct)), [distinct.index(pair) for pair in images])


def source_tracker(group: Cayley, how: str, make: Callable[[Source], Program | None]) -> Tracker:
    """A tracker by one of the constructions of `trackers`, which must apply to the group."""

    def modules(letters: Letters, goal: Target) -> Modules:
        distinct = tuple(dict.fromkeys(letters))
        points = regular(group, [str(g) for g in range(group.order)])
        dfa = word_problem(points, distinct)
        program = make(Source(group.name, dfa, points, distinct, False))
        assert program is not None, how
        return (module_of(certified_part(program, dfa, goal), distinct, letters),)

    return Tracker(group, how, modules)


def subdirect(group: Cayley, parts: Sequence[tuple[Tracker, Numbers]], how: str) -> Tracker:
    """Trackers of quotients side by side; `parts` holds each with the coset of each element. Together they must tell
    the elements apart."""

    def modules(letters: Letters, goal: Target) -> Modules:
        return tuple(single(tracker, tuple(place[list(letters)].tolist()), goal) for tracker, place in parts)

    return Tracker(group, f"{how} ({'; '.join(tracker.how for tracker, _ in parts)})", modules)


# A cover is a subdirect product of groups of which G is a quotient: its modules are made in the same way.
cover = subdirect


def single(tracker: Tracker, letters: Letters, goal: Target) -> Module:
    """The tracker's modules as one, with a certificate of its own, whose values are the elements."""
    distinct = tuple(dict.fromkeys(letters))
    made = tracker.modules(distinct, goal)
    if len(made) == 1 and made[0].values == tuple(int(n) for n in made[0].part.dfa.states) and _is_plain(made[0]):
        return module_of(made[0].part, distinct, letters)
    return module_of(settled(tracker.group, distinct, made, goal), distinct, letters)


def _is_plain(module: Module) -> bool:
    """Whether token i is the part's letter i."""
    tokens = sorted(module.letters.seen.items())
    return [letter for _, letter in tokens] == list(range(len(module.part.dfa.alphabet)))


def settled(group: Cayley, letters: Sequence[int], modules: Modules, goal: Target) -> Part:
    """Modules side by side as a part for the word problem of the letters."""
    dfa = word_automaton(group, letters)
    stack, joint = settle(dfa, modules, tuple(range(len(modules))), MOST_JOINT)
    return Part(stack.program(dfa), stack_certificate(stack, dfa, goal, joint).data, dfa)


def matrix_part(
    group: Cayley, field: Field, size: int, steps: Sequence[Step], elements: Sequence[int], goal: Target
) -> Part:
    """One head that starts at I and takes steps[i] at letter i, which stands for elements[i]."""
    dfa = word_automaton(group, elements)
    return part_of_head(dfa, field, size, steps, [group.table[g].astype(np.int32) for g in elements], goal)


def part_of_head(
    dfa: Dfa, field: Field, size: int, steps: Sequence[Step], products: Sequence[Any], goal: Target
) -> Part:
    """One head that starts at I for an automaton whose states letter i maps as products[i] does (state 0 the start)."""
    return certified_part(open_head(dfa, field, size, steps, products), dfa, goal)


def realise(tracker: Tracker, source: Source, goal: Target) -> tuple[Program, Certificate]:
    """The network for a source whose group is the tracker's, and its certificate.

    Raises CertificateFailed if it does not track, BudgetExceeded past the search's limits.
    """
    letters = tuple(source.letters)
    planar = tracker.planar
    if planar is not None and planar.states * len(set(letters)) <= _MOST_EDGES:
        return certify(open_program(source.dfa, (planar_layer(planar, letters),)), source.dfa, goal)
    modules = tracker.modules(letters, goal)
    if sum(len(m.part.program.layers) for m in modules) > MOST_JOINT:
        raise BudgetExceeded("layers side by side", MOST_JOINT, "--max-states")
    stack, joint = settle(source.dfa, modules, tuple(range(len(modules))), MOST_JOINT)
    return stack.program(source.dfa), stack_certificate(stack, source.dfa, goal, joint)


def decoder_sizes(data: Mapping[str, Any]) -> int:
    """Entries in all tables that decode, of a certificate and its parts: codes of several heads, and answers."""
    if data["kind"] == "stack":
        parts = cast("Sequence[Mapping[str, Any]]", data["parts"])
        return len(data["answer"]["table"]) + sum(map(decoder_sizes, parts))
    tables = [layer["emit"] for layer in data["layers"]]
    codes = [sum(map(sum, data["claims"]["codes"]))] if "codes" in data["claims"] else []
    return sum(len(t) for t in tables if t is not None) + sum(codes)


def head_states(data: Mapping[str, Any]) -> list[int]:
    """How many hidden states each head reaches, head by head, of a certificate of kind closure or stack."""
    if data["kind"] == "stack":
        parts = cast("Sequence[Mapping[str, Any]]", data["parts"])
        modules = cast("Sequence[Mapping[str, Any]]", data["modules"])
        return [count for module in modules for count in head_states(parts[int(module["part"])])]
    rows: list[list[int]] = data["claims"]["states"]
    return [count for row in rows for count in row]
