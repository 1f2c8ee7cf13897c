"""Finite groups as tables: what a user names, and subgroups, quotients and covers of them.

Main definitions: `read_group`, `NamedTable`, `small_group`, `regular`, `quotient`, `minimal_normals`, `squares`,
`abelian_over`, `generating_set`, `words_of`, `PolycyclicBasis`, `polycyclic`, `fits`.

Main results: all groups of order up to 60 by their number in the small-groups library, from data made by GAP and kept
here; larger ones where GAP is installed.

References: Besche, Eick and O'Brien, *A millennium project: constructing small groups*, 2002.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from statetrack.errors import BudgetExceeded, InvalidFile, InvalidInput

from .cayley_tables import Cayley, Numbers, from_group
from .groups import Group, named_group, parse_generators, permutation_group

State = TypeVar("State", bound=Hashable)
MOST_IN_TABLE = 2_000
_GAP_SECONDS = 60


@dataclass(frozen=True)
class NamedTable:
    """A group's table with a label for each element."""

    table: Cayley
    labels: tuple[str, ...]


def read_group(text: str, *, max_order: int = MOST_IN_TABLE) -> NamedTable:
    """The group that a text names.

    A name (`S5`, `Z2xQ8`), permutations (`(1 2 3);(1 2)`), `SmallGroup(n, i)` (up to order 60 from our data, beyond
    that from GAP if it is installed), or a JSON file with a table [[...]], element 0 being the identity, or with an
    object {"table": ...} or {"generators": [[images from 0], ...]}.

    Raises UnknownGroup, InvalidPermutation, InvalidFile, InvalidInput, or BudgetExceeded past `max_order` elements.
    """
    text = text.strip()
    numbers = library_numbers(text)
    if numbers is not None:
        return _listed(small_group(*numbers, max_order=max_order))
    if text.startswith("("):
        return _listed(permutation_group(f"<{text}>", parse_generators(text), max_order=max_order))
    if text.endswith(".json") or Path(text).is_file():
        return _from_file(Path(text), max_order)
    return _listed(named_group(text, max_order=max_order))


def _listed(group: Group) -> NamedTable:
    return NamedTable(from_group(group), group.labels)


def _from_file(path: Path, max_order: int) -> NamedTable:
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise InvalidFile(str(path), "no such file, or not readable", "give a JSON file with a table") from None
    except (ValueError, RecursionError) as error:
        raise InvalidFile(str(path), f"is no JSON ({error})", "give a table [[0, 1], [1, 0]]") from None
    fields = cast("dict[str, Any]", data) if isinstance(data, dict) else {"table": data}
    if "generators" in fields:
        images = _lists(fields["generators"])
        if images is None:
            raise InvalidFile(str(path), "generators are no lists of integers", "give [[images from 0], ...]")
        return _listed(permutation_group(path.stem, [tuple(g) for g in images], max_order=max_order))
    rows: object = fields.get("table")
    table = checked_table(rows, str(path), max_order)
    return NamedTable(Cayley(path.stem, table), tuple(f"g{i}" if i else "1" for i in range(len(table))))


def _lists(data: object) -> list[list[int]] | None:
    """Lists of integers, or None for anything else."""
    if not isinstance(data, list):
        return None
    rows = cast("list[object]", data)
    whole = all(isinstance(row, list) and all(type(x) is int for x in cast("list[object]", row)) for row in rows)
    return cast("list[list[int]]", rows) if whole else None


def checked_table(data: object, name: str, max_order: int = MOST_IN_TABLE) -> Numbers:
    """The table of a group, element 0 the identity; InvalidInput says what is wrong with anything else."""
    rows = _lists(data) or []
    n = len(rows)
    if n > max_order:
        raise BudgetExceeded("group elements", max_order, "--max-order")
    if not n or any(len(row) != n for row in rows):
        raise InvalidInput(f"table of {name}: give n rows of n integers, row x column y holding the number of x y")
    table: Numbers = np.array(rows, dtype=np.int64)
    line = np.arange(n)
    latin = (np.sort(table, axis=0) == line[:, None]).all() and (np.sort(table, axis=1) == line).all()
    if not latin or (table[0] != line).any() or (table[:, 0] != line).any():
        raise InvalidInput(
            f"table of {name}: each number 0..{n - 1} once in a row and a column, element 0 the identity"
        )
    for s in generating_set(Cayley(name, table)):
        wrong = np.argwhere(table[table[:, s]] != table[:, table[s]])
        if len(wrong):
            a, b = wrong[0].tolist()
            raise InvalidInput(f"table of {name}: ({a}·{s})·{b} is not {a}·({s}·{b})")
    return table


@cache
def _library() -> dict[tuple[int, int], dict[str, Any]]:
    rows = json.loads(files("statetrack.theory").joinpath("small_groups.json").read_text(encoding="utf-8"))
    return {(row["id"][0], row["id"][1]): row for row in rows}


def library() -> tuple[tuple[int, int, str], ...]:
    """Order, number and structure of all groups of order up to 60."""
    return tuple((*key, row["name"]) for key, row in _library().items())


def library_numbers(text: str) -> tuple[int, int] | None:
    """Order and number of a text "SmallGroup(n, i)"; None for another text."""
    match = re.fullmatch(r"SmallGroup\(\s*(\d+)\s*,\s*(\d+)\s*\)", text.strip())
    return None if match is None else (int(match[1]), int(match[2]))


def small_group(n: int, i: int, *, max_order: int = MOST_IN_TABLE) -> Group:
    """Group number i of order n in the small-groups library; InvalidInput if there is none or no data for it."""
    if n > max_order:
        raise BudgetExceeded(f"group elements (SmallGroup({n}, {i}))", max_order, "--max-order")
    row = _library().get((n, i))
    if row is None and n <= max(key[0] for key in _library()):
        count = sum(key[0] == n for key in _library())
        raise InvalidInput(f"SmallGroup({n}, {i}): there are {count} groups of order {n}")
    generators = row["generators"] if row is not None else _ask_gap(n, i)
    return permutation_group(f"SmallGroup({n},{i})", [tuple(g) for g in generators] or [(0,)], max_order=max_order)


def _ask_gap(n: int, i: int) -> list[list[int]]:
    """Generators from GAP, in the regular representation."""
    program = shutil.which("gap")
    if program is None:
        raise InvalidInput(f"SmallGroup({n}, {i}): past order 60 this asks GAP, which is not installed here")
    lines = (
        f'if not SmallGroupsAvailable({n}) or {i} > NumberSmallGroups({n}) then Print("none"); else '
        f"G := SmallGroup({n}, {i}); L := Elements(G); SizeScreen([4096, 24]); "
        "Print(List(MinimalGeneratingSet(G), g -> List(L, x -> Position(L, x * g) - 1))); fi; QUIT;\n"
    )
    try:
        done = subprocess.run(
            [program, "-q", "-b"], input=lines, capture_output=True, text=True, timeout=_GAP_SECONDS, check=False
        )
        found: Any = json.loads(done.stdout.replace("\\\n", ""))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        raise InvalidInput(
            f"SmallGroup({n}, {i}): GAP knows no such group, or lacks its small-groups library"
        ) from None
    return found


def generating_set(group: Cayley) -> tuple[int, ...]:
    """A few elements that generate the group: each as much larger as can be, then of least order."""
    chosen: list[int] = []
    inside: Numbers = np.zeros(1, dtype=np.int64)
    while len(inside) < group.order:
        sizes: dict[int, int] = {}
        for g in np.setdiff1d(np.arange(group.order), inside).tolist():
            sizes[g] = len(group.generated((*chosen, g)))
        best = max(sizes, key=lambda g: (sizes[g], -int(group.orders[g]), -g))
        chosen.append(best)
        inside = group.generated(chosen)
    return tuple(chosen)


def words_of(group: Cayley, letters: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """For each element a shortest word in the letters (their places), leftmost factor first."""
    found: dict[int, tuple[int, ...]] = {0: ()}
    queue = [0]
    for g in queue:
        for i, s in enumerate(letters):
            image = int(group.table[g, s])
            if image not in found:
                found[image] = (*found[g], i)
                queue.append(image)
    assert len(found) == group.order, "the letters do not generate the group"
    return tuple(found[g] for g in range(group.order))


def regular(group: Cayley, labels: Sequence[str] | None = None) -> Group:
    """The group as permutations of itself, x -> g x, with all its elements as generators."""
    names = tuple(labels) if labels else tuple(f"g{i}" if i else "1" for i in range(group.order))
    return Group(group.name, group.table.astype(np.int32), names, tuple(range(group.order)))


def squares(group: Cayley) -> Numbers:
    """The subgroup that all squares generate."""
    return group.generated(np.unique(group.power(2)).tolist())


def is_abelian(group: Cayley, members: Numbers) -> bool:
    """Whether the members commute with each other."""
    return not group.commutators[np.ix_(members, members)].any()


def abelian_over(group: Cayley, members: Numbers) -> Numbers:
    """A largest abelian subgroup found that contains the members (abelian), by adding elements greedily."""
    best = members
    for first in range(group.order):
        inside = members
        if group.commutators[first, members].any():
            continue
        for g in (first, *range(group.order)):
            if g not in inside and not group.commutators[g, inside].any():
                inside = group.generated((*inside.tolist(), g))
        if len(inside) > len(best):
            best = inside
        if len(best) == group.order:
            break
    return best


def normal_closure(group: Cayley, x: int) -> Numbers:
    """The least normal subgroup that holds x."""
    conjugates = group.table[group.table[:, x], group.inverses]
    return group.generated(np.unique(conjugates).tolist())


def minimal_normals(group: Cayley) -> tuple[Numbers, ...]:
    """The minimal normal subgroups, smallest first."""
    closures = {tuple(normal_closure(group, x).tolist()) for x in group.representatives if x}
    return tuple(
        np.array(one) for one in sorted(closures, key=lambda c: (len(c), c))
        if not any(other != one and set(other) < set(one) for other in closures)
    )  # fmt: skip


def quotient(group: Cayley, members: Numbers) -> tuple[Cayley, Numbers]:
    """G/N with the coset of each element; the coset of the identity is 0."""
    first = group.table[:, members].min(axis=1)
    kept, place = np.unique(first, return_inverse=True)
    return Cayley(f"{group.name}/{len(members)}", place[group.table[np.ix_(kept, kept)]]), place


@dataclass(frozen=True)
class PolycyclicBasis:
    """Generators n_1, ... of an abelian subgroup, each element's exponents, and rows that span all relations."""

    generators: tuple[int, ...]
    exponents: dict[int, tuple[int, ...]]
    relations: tuple[tuple[int, ...], ...]


def polycyclic(group: Cayley, members: Numbers) -> PolycyclicBasis:
    """Coordinates on an abelian subgroup: n_i^(m_i) lies in what n_1, ..., n_(i-1) generate."""
    exponents: dict[int, tuple[int, ...]] = {0: ()}
    generators, relations = list[int](), list[tuple[int, ...]]()
    for n in sorted(members.tolist(), key=lambda g: (-int(group.orders[g]), g)):
        if n in exponents:
            continue
        power, m, wider = 0, 0, dict[int, tuple[int, ...]]()
        while m == 0 or power not in exponents:
            wider |= {int(group.table[power, g]): (*e, m) for g, e in exponents.items()}
            power, m = int(group.table[power, n]), m + 1
        relations.append((*(-x for x in exponents[power]), m))
        generators.append(n)
        exponents = wider
    size = len(generators)
    return PolycyclicBasis(tuple(generators), exponents, tuple((*r, *[0] * (size - len(r))) for r in relations))


def fits(
    group: Cayley, letters: Sequence[int], images: Sequence[State], after: Callable[[State, State], State], one: State,
    most: int,
) -> dict[State, int] | None:  # fmt: skip
    """The homomorphism from what `images` generate onto G that sends each image to its letter; None if there is none.

    `after(a, b)` is the product a b. Also None past `most` elements.
    """
    found: dict[State, int] = {one: 0}
    queue = [one]
    for state in queue:
        at = found[state]
        for image, letter in zip(images, letters, strict=True):
            to, label = after(image, state), int(group.table[letter, at])
            if to not in found:
                if len(queue) >= most:
                    return None
                found[to] = label
                queue.append(to)
            elif found[to] != label:
                return None
    return found
