"""What a user names (a group, permutations, a regular expression, a file, an automaton) as one object.

Main definitions: `Source`, `resolve`, `parse_word`.

A string is tried in this order: a prefix (`group:`, `perm:`, `regex:`, `file:`), an existing file, permutations in
cycle notation, a group name, a regular expression.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from statetrack.errors import InvalidFile, InvalidInput
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.formats import read_automaton
from statetrack.theory.groups import (
    Group,
    named_group,
    parse_generators,
    permutation_group,
    transition_group,
    word_problem,
)
from statetrack.theory.regex import parse_regex

# A transition group past this order is not enumerated for recognition: the rotation groups that are not cyclic or
# dihedral have at most 60 elements, and permutation constructions need no list of elements.
_RECOGNITION_ORDER = 20_000


@dataclass(frozen=True)
class Source:
    """A minimal automaton to track, and the group behind it if its letters are bijections.

    `group` acts on points; `letters[s]` is the element of symbol s. For a group's word problem the automaton's states
    are the elements (`on_states` False: the points are not the states); for a permutation automaton the points are its
    states. `group` is None for other automata and for permutation automata whose group is too large to list.
    """

    name: str
    dfa: Dfa
    group: Group | None
    letters: tuple[int, ...]
    on_states: bool


@dataclass(frozen=True)
class Options:
    """How to read a source: letters "all" or "generators" of a group, missing edges, whole JFLAP reads, budgets."""

    letters: str = "all"
    missing: str = "error"
    token: bool = False
    max_states: int = 1_000_000
    max_order: int = 100_000


def resolve(source: str | Dfa | Group, options: Options | None = None) -> Source:
    """The source a user named.

    Raises UnknownGroup, InvalidPermutation, RegexSyntaxError, InvalidAutomaton, InvalidFile or BudgetExceeded.
    """
    options = options or Options()
    if options.letters not in ("all", "generators"):
        raise InvalidInput(f"letters {options.letters!r}: choose all or generators")
    if isinstance(source, Dfa):
        return from_automaton("automaton", source)
    if isinstance(source, Group):
        return from_group(source, options.letters)
    kind, _, rest = source.partition(":")
    if kind not in ("group", "perm", "regex", "file"):
        kind, rest = _kind(source), source
    if kind == "file":
        if not _is_file(rest):
            raise InvalidFile(
                rest, "no such file", "give an existing automaton file, or prefix a regular expression with regex:"
            )
        dfa = read_automaton(rest, missing=options.missing, token=options.token, max_states=options.max_states)
        return from_automaton(Path(rest).name, dfa)
    if kind == "perm":
        generators = parse_generators(rest)
        return from_group(
            permutation_group(f"<{rest.strip()}>", generators, max_order=options.max_order), options.letters
        )
    if kind == "group":
        return from_group(named_group(rest, max_order=options.max_order), options.letters)
    return from_automaton(f"regex {rest!r}", parse_regex(rest, max_states=options.max_states))


def _kind(text: str) -> str:
    if _is_file(text) or re.search(r"\.(json|dot|gv|jff)$", text):
        return "file"
    if re.fullmatch(r"\s*(\(\s*(\d+([\s,]+\d+)*)?\s*\)\s*;?\s*)+", text) and re.search(r"\d[\s,]+\d|;", text):
        return "perm"
    if re.fullmatch(r"[A-Z][a-z]*\d+([x×][A-Z][a-z]*\d+)*", text):
        return "group"
    return "regex"


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def from_group(group: Group, letters: str) -> Source:
    """The word problem of a group over all its elements or over its distinct generators."""
    chosen = tuple(range(group.order)) if letters == "all" else tuple(dict.fromkeys(group.generators))
    return Source(group.name, word_problem(group, chosen), group, chosen, False)


def from_automaton(name: str, dfa: Dfa) -> Source:
    """An automaton, minimised; with its transition group if it is a permutation automaton."""
    dfa = minimise(dfa)
    found = transition_group(dfa, max_order=_RECOGNITION_ORDER)
    group, letters = found if found else (None, ())
    return Source(name, dfa, group, letters, True)


def parse_word(text: str, alphabet: tuple[str, ...]) -> tuple[str, ...]:
    """Symbols of a word typed by a user.

    A JSON list of strings; or symbols apart by ";"; or, if every symbol of the alphabet is one character, just the
    characters; or symbols apart by blanks. Whether they are in the alphabet is for the reader of the word to say.

    >>> parse_word("0110", ("0", "1")), parse_word("(12);(123)", ("(12)", "(123)"))
    (('0', '1', '1', '0'), ('(12)', '(123)'))
    """
    if text.lstrip().startswith("["):
        try:
            data: object = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"word {text!r}: not a JSON list ({error.msg} at position {error.pos})") from None
        if not isinstance(data, list) or not all(isinstance(x, str) for x in data):  # pyright: ignore[reportUnknownVariableType]
            raise InvalidInput(f"word {text!r}: a JSON word is a list of strings")
        return tuple(str(x) for x in data)  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]
    if ";" in text and ";" not in alphabet:
        return tuple(part.strip() for part in text.split(";") if part.strip())
    if all(len(symbol) == 1 for symbol in alphabet):
        return tuple(text)
    return tuple(text.split())
