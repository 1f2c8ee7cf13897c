"""What a user names (a group, permutations, a regular expression, a file, an automaton) as one object.

Main definitions: `Source`, `Options`, `resolve`, `parse_word`, `parse_alphabet`.

A string is tried in this order: a prefix (`group:`, `perm:`, `regex:`, `file:`), an existing file, permutations in
cycle notation, a group name, a regular expression. Blanks around a string without a prefix are dropped, and a string
that is a group name but for its case is refused: only a prefix says what it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import cast

from statetrack.errors import InvalidFile, InvalidInput, RegexSyntaxError, UnknownGroup
from statetrack.theory.automata import Dfa, minimise
from statetrack.theory.finite_group import library_numbers, small_group
from statetrack.theory.formats import read_automaton, read_weighted
from statetrack.theory.groups import (
    Group,
    canonical_name,
    named_group,
    parse_generators,
    permutation_group,
    transition_group,
    word_problem,
)
from statetrack.theory.regex import parse_regex
from statetrack.theory.weighted import Wfa, zero
from statetrack.theory.weighted import minimise as minimise_weighted

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
class WeightedSource:
    """A weighted automaton to compute, minimal (its size is the rank of its Hankel matrix, but at least 1)."""

    name: str
    wfa: Wfa

    @property
    def dfa(self) -> Dfa:
        """InvalidInput: it has none."""
        raise InvalidInput(f"{self.name}: a weighted automaton, which has no states to track")


def weighted_source(name: str, wfa: Wfa) -> WeightedSource:
    """The source of an automaton: minimised; the zero function keeps one state."""
    small = minimise_weighted(wfa)
    return WeightedSource(name, small if small.size else zero(wfa.alphabet, 1))


@dataclass(frozen=True)
class Options:
    """How to read a source: letters "all" or "generators" of a group, missing edges, whole JFLAP reads, budgets.

    `alphabet` is for regular expressions, None for the letters used; `semiring` and `symbols` (the path of a symbol
    table) are for AT&T text. `max_monoid` bounds the elements of a transition monoid that are looked at, `max_cascade`
    chains of tiles and component states of a cascade; `max_seconds` and `max_memory` (MB) are kept by the command line,
    which can stop its process.
    """

    letters: str = "all"
    missing: str = "error"
    token: bool = False
    max_states: int = 1_000_000
    max_order: int = 100_000
    alphabet: tuple[str, ...] | None = None
    max_monoid: int = 20_000
    max_seconds: float | None = None
    max_memory: int | None = None
    semiring: str | None = None
    symbols: str | None = None
    max_cascade: int = 100_000


# What a user may name, or what it was resolved to.
Named = str | Dfa | Group | Wfa | Source | WeightedSource


def resolve(source: str | Dfa | Group, options: Options | None = None) -> Source:
    """The automaton a user named; InvalidInput for a weighted one, else as `resolve_any`."""
    found = resolve_any(source, options)
    if isinstance(found, WeightedSource):
        raise InvalidInput(f"{found.name}: a weighted automaton, but one with states is needed here")
    return found


def resolve_any(source: Named, options: Options | None = None) -> Source | WeightedSource:
    """The source a user named; one that was resolved before is returned as it is.

    Raises UnknownGroup, InvalidPermutation, RegexSyntaxError, InvalidAutomaton, InvalidFile, InvalidInput or
    BudgetExceeded.
    """
    if isinstance(source, Source | WeightedSource):
        return source
    options = options or Options()
    if options.letters not in ("all", "generators"):
        raise InvalidInput(f"letters {options.letters!r}: choose all or generators")
    if options.missing not in ("error", "sink", "stay"):
        raise InvalidInput(f"missing edges {options.missing!r}: choose error, sink or stay")
    if isinstance(source, str):
        kind, _, rest = source.partition(":")
        if kind in ("group", "perm", "regex", "file"):
            return _resolved(kind, rest, options)
        text = source.strip()
        kind = _kind(text)
        try:
            return _resolved(kind, text, options)
        except RegexSyntaxError as error:
            if options.alphabet is not None:
                raise
            error.args = (f"{error}; {_READ_AS_REGEX}",)
            raise
    if options.alphabet is not None:
        raise InvalidInput("alphabet: only a regular expression takes one, this source has its own")
    if isinstance(source, Wfa):
        return weighted_source("weighted automaton", source)
    if isinstance(source, Dfa):
        return _of_automaton(source)
    if not isinstance(source, Group):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInput(f"source {source!r}: give a string, a Dfa, a Group or a Wfa")
    return from_group(source, options.letters)


_READ_AS_REGEX = (
    "SOURCE was read as a regular expression, as it is no existing file, no group name (A5, Z2xS3) and no permutations "
    "((1 2 3);(1 2)); a prefix file:, group:, perm: or regex: settles which"
)


def _resolved(kind: str, text: str, options: Options) -> Source | WeightedSource:
    """The source that a string of a known kind stands for."""
    if kind == "regex":
        return from_automaton(f"regex {text!r}", parse_regex(text, options.alphabet, max_states=options.max_states))
    if options.alphabet is not None:
        raise InvalidInput(f"alphabet: only a regular expression takes one; {text!r} was read as {_NOUNS[kind]}")
    if kind == "file":
        if not _is_file(text):
            raise InvalidFile(
                text, "no such file", "give an existing automaton file, or prefix a regular expression with regex:"
            )
        if _is_weighted(Path(text), options.semiring):
            wfa = read_weighted(text, semiring=options.semiring, symbols=options.symbols)
            return weighted_source(Path(text).name, wfa)
        dfa = read_automaton(
            text,
            missing=options.missing,
            token=options.token,
            max_states=options.max_states,
            semiring=options.semiring,
            symbols=options.symbols,
        )
        return from_automaton(Path(text).name, dfa)
    numbers = library_numbers(text)
    if kind == "perm":
        group = permutation_group(f"<{text.strip()}>", parse_generators(text), max_order=options.max_order)
    elif numbers is not None:
        group = small_group(*numbers, max_order=options.max_order)
    else:
        group = named_group(text, max_order=options.max_order)
    return from_group(group, options.letters)


_NOUNS = {"file": "an automaton file", "perm": "permutations", "group": "a group"}


def _kind(text: str) -> str:
    if _is_file(text) or re.search(r"\.(json|dot|gv|jff|att)$", text):
        return "file"
    if re.fullmatch(r"(\(\s*(\d+([\s,]+\d+)*)?\s*\)\s*;?\s*)+", text) and re.search(r"\d[\s,]+\d|;", text):
        return "perm"
    if library_numbers(text) is not None or re.fullmatch(r"[A-Z][a-z]*\d+(\s*[x×]\s*[A-Z][a-z]*\d+)*", text):
        return "group"
    name = canonical_name(text)
    if name is not None:
        raise UnknownGroup(
            f"source {text!r}: it is the group {name} but for upper and lower case; write {name} for the group, "
            f"regex:{text} for the regular expression"
        )
    return "regex"


def _is_weighted(path: Path, semiring: str | None) -> bool:
    """Whether a file holds a weighted automaton: AT&T text over the semiring "real", or JSON with matrices."""
    if path.suffix.lower() == ".att":
        return semiring == "real"
    try:
        data: object = json.loads(path.read_text(encoding="utf-8")) if path.suffix.lower() == ".json" else None
    except (ValueError, OSError, RecursionError):
        return False
    return isinstance(data, dict) and "matrices" in data


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


@lru_cache(maxsize=4)
def _of_automaton(dfa: Dfa) -> Source:
    """An automaton given as a value, for all targets that are asked for one after the other."""
    return from_automaton("automaton", dfa)


def parse_word(text: str, alphabet: tuple[str, ...]) -> tuple[str, ...]:
    """Symbols of a word typed by a user.

    A JSON list of strings, unless "[" is a symbol of the alphabet; or symbols apart by ";", unless ";" is one; or, if
    every symbol of the alphabet is one character, just the characters, of which a blank is one; or symbols apart by
    blanks. Whether they are in the alphabet is for the reader of the word to say.

    >>> parse_word("0110", ("0", "1")), parse_word("(12);(123)", ("(12)", "(123)"))
    (('0', '1', '1', '0'), ('(12)', '(123)'))
    """
    if text.lstrip().startswith("[") and "[" not in alphabet:
        listed = _json_strings(text)
        if listed is not None:
            return listed
        if not any(symbol.startswith("[") for symbol in alphabet):
            raise InvalidInput(f"word {text!r}: it starts with '[', but is no JSON list of strings")
    if ";" in text and ";" not in alphabet:
        return tuple(part.strip() for part in text.split(";") if part.strip())
    if all(len(symbol) == 1 for symbol in alphabet):
        return tuple(text)
    return tuple(text.split())


def parse_alphabet(text: str) -> tuple[str, ...]:
    """The letters of a regular expression typed by a user: a JSON list, letters apart by blanks, or just the letters.

    A blank as a letter needs the JSON list; [] is two letters.

    >>> parse_alphabet("01"), parse_alphabet("a b"), parse_alphabet('["a", " "]')
    (('0', '1'), ('a', 'b'), ('a', ' '))
    """
    listed = _json_strings(text)
    letters = listed or tuple("".join(text.split()))
    twice = [letter for letter in dict.fromkeys(letters) if letters.count(letter) > 1]
    if twice:
        raise InvalidInput(f"alphabet {text!r}: {', '.join(map(repr, twice))} stands twice")
    return letters


def _json_strings(text: str) -> tuple[str, ...] | None:
    """The strings of a JSON list of strings, None for any other text."""
    try:
        data: object = json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return None
    if not isinstance(data, list):
        return None
    items = cast(Sequence[object], data)
    return tuple(x for x in items if isinstance(x, str)) if all(isinstance(x, str) for x in items) else None
