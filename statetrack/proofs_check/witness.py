"""Check a witness that one layer cannot track a group: a multiplication table, a law, and elements that break it.

Standard library only, and nothing of this package: the table is checked to be a group, and the elements are multiplied.
That the laws hold for all groups that a layer tracks is a theorem (docs/atlas.md), not checked here.

Main definitions: `verify_witness`, `Rejected`.

Main results: acceptance means that the law named fails in the group of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Table = Sequence[Sequence[int]]
_LAWS = {"U1": "xy", "U2": "xy", "U3": "xy", "U4": "xy", "U5": "xyuv", "U6": "xyt", "U7": "xyuv"}


class Rejected(Exception):
    """The witness shows nothing: what failed."""


def verify_witness(table: Table, witness: Mapping[str, Any]) -> str:
    """A sentence saying what was found; raises Rejected unless the table is a group in which the law fails."""
    n = len(table)
    _group(table)
    law, elements = witness["law"], witness["elements"]
    if law not in _LAWS or not set(_LAWS[law]) <= set(elements) <= set(_LAWS[law]) | ({"r"} if law == "U2" else set()):
        raise Rejected(f"law {law!r} with elements {sorted(elements)}")
    if any(type(g) is not int or not 0 <= g < n for g in elements.values()):
        raise Rejected(f"elements {elements} of a group of order {n}")
    _CHECKS[law](table, elements)
    return f"law {law} fails in this group of order {n}"


def _need(good: bool, what: str) -> None:
    if not good:
        raise Rejected(what)


def _group(table: Table) -> None:
    """A group with identity 0: rows and columns are permutations, and (a s) b = a (s b) for generators s (Light)."""
    n = len(table)
    everything = set(range(n))
    square = n > 0 and all(len(row) == n and set(row) == everything for row in table)
    _need(square and all({row[j] for row in table} == everything for j in range(n)), "the table is no Latin square")
    _need(all(table[0][g] == g == table[g][0] for g in range(n)), "element 0 is not the identity")
    for s in _generators(table):
        for a in range(n):
            after, moved = table[table[a][s]], table[a]
            _need(all(after[b] == moved[table[s][b]] for b in range(n)), f"({a} {s}) b is not {a} ({s} b)")


def _generators(table: Table) -> list[int]:
    """Elements such that products from the left, s_1 (s_2 (...)), reach everything."""
    chosen, reached = list[int](), {0}
    for g in range(len(table)):
        if g not in reached:
            chosen.append(g)
            reached = set(_span(table, chosen))
    return chosen


def _span(table: Table, letters: Iterable[int]) -> list[int]:
    letters = list(letters)
    found, seen = [0], {0}
    for g in found:
        for s in letters:
            if table[s][g] not in seen:
                seen.add(table[s][g])
                found.append(table[s][g])
    return found


def _power(table: Table, g: int, k: int) -> int:
    result = 0
    for _ in range(k):
        result = table[result][g]
    return result


def _order(table: Table, g: int) -> int:
    k, power = 1, g
    while power:
        k, power = k + 1, table[power][g]
    return k


def _commutator(table: Table, a: int, b: int) -> int:
    return table[table[a][b]][_inverse(table, table[b][a])]


def _inverse(table: Table, g: int) -> int:
    return table[g].index(0)


def _prime_of(n: int) -> int | None:
    """p if n > 1 is a power of the prime p."""
    p = next((p for p in range(2, n + 1) if n % p == 0), 0)
    while p and n % p == 0:
        n //= p
    return p if p and n == 1 else None


def _solvable(table: Table, members: Sequence[int]) -> bool:
    while len(members) > 1:
        below = _span(table, {_commutator(table, a, b) for a in members for b in members})
        if len(below) == len(members):
            return False
        members = below
    return True


def _do_not_commute(table: Table, x: int, y: int) -> None:
    _need(table[x][y] != table[y][x], "x and y commute")


def _u1(table: Table, e: Mapping[str, int]) -> None:
    p = _prime_of(len(_span(table, (e["x"], e["y"]))))
    _need(p is not None and p > 2, "x and y generate no p-group for an odd p")
    _do_not_commute(table, e["x"], e["y"])


def _u2(table: Table, e: Mapping[str, int]) -> None:
    p = _prime_of(_order(table, e["x"]))
    _need(p is not None and p >= 7, "the order of x is no power of a prime from 7 on")
    fourth = "r" in e and _power(table, e["r"], 4) == e["y"]
    _need(fourth or _order(table, e["y"]) % 2 == 1, "y is neither of odd order nor the fourth power of r")
    _do_not_commute(table, e["x"], e["y"])


def _u3(table: Table, e: Mapping[str, int]) -> None:
    _need(all(_prime_of(_order(table, e[name])) == 5 for name in "xy"), "x and y are not of 5-power order")
    _need(_solvable(table, _span(table, (e["x"], e["y"]))), "x and y generate a group that is not solvable")
    _do_not_commute(table, e["x"], e["y"])


def _u4(table: Table, e: Mapping[str, int]) -> None:
    _need(all(_prime_of(_order(table, e[name])) == 3 for name in "xy"), "x and y are not of 3-power order")
    members = _span(table, (e["x"], e["y"]))
    _need(_solvable(table, members), "x and y generate a group that is not solvable")
    two = [g for g in members if g == 0 or _prime_of(_order(table, g)) == 2]
    derived = _span(table, {_commutator(table, a, b) for a in members for b in members})
    normal = len(_span(table, two)) == len(two) and set(derived) <= set(two)
    inside = {table[a][a] for a in two} | {_commutator(table, a, b) for a in two for b in two}
    central = all(table[z][g] == table[g][z] for z in inside for g in (e["x"], e["y"]))
    _need(not (normal and central), "the law holds")


def _squares(table: Table, e: Mapping[str, int]) -> None:
    members = _span(table, (table[e["x"]][e["x"]], table[e["y"]][e["y"]]))
    _need(e["u"] in members and e["v"] in members, "u and v are not in <x^2, y^2>")


def _u5(table: Table, e: Mapping[str, int]) -> None:
    _squares(table, e)
    c = _commutator(table, _power(table, e["u"], 30), _power(table, e["v"], 30))
    _need(table[c][c] != 0, "[u^30, v^30]^2 is the identity")


def _u6(table: Table, e: Mapping[str, int]) -> None:
    _need(_prime_of(_order(table, e["x"])) == 5, "x is not of 5-power order")
    _need(table[table[e["t"]][e["x"]]][_inverse(table, e["t"])] == e["y"], "y is not t x t^-1")
    _need(_power(table, _commutator(table, e["x"], e["y"]), 10) != 0, "[x, y]^10 is the identity")


def _u7(table: Table, e: Mapping[str, int]) -> None:
    _squares(table, e)
    _need(_prime_of(len(_span(table, (e["u"], e["v"])))) == 2, "u and v generate no 2-group")
    c = _commutator(table, table[e["u"]][e["u"]], table[e["v"]][e["v"]])
    _need(c != 0, "[u^2, v^2] is the identity")


_CHECKS = {"U1": _u1, "U2": _u2, "U3": _u3, "U4": _u4, "U5": _u5, "U6": _u6, "U7": _u7}
