"""Why no layer of one signed factor a token tracks a group: a law that fails, with the elements that show it.

The laws hold for every group that one layer tracks with finitely many states, steps that do not expand, and at most one
non-real pair of eigenvalues of size one a head and letter: whatever the number and size of the heads, the start, the
additive terms and the decoder. `cayley_tables.obstruction` finds the pair; here it becomes a witness that can be
checked by multiplying in the table alone (`statetrack.proofs_check.witness` does, and imports nothing of this package).

Main definitions: `Witness`, `LAWS`, `find_witness`.

Main results: claim OURS-one-layer-obstructions; U6 is the argument of CKDA Thm. 4 for any group.

References: CKDA Thm. 4, Lemma 23, Props. 20 and 21; finite groups of unit quaternions are cyclic, dicyclic or binary
polyhedral (cited).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .cayley_tables import Cayley, Numbers, obstruction

LAWS = {
    "U1": "elements of p-power order (p odd) that generate a p-group commute",
    "U2": "elements of p-power order, p >= 7, commute with elements of odd order and with fourth powers",
    "U3": "elements of 5-power order that generate a solvable group commute",
    "U4": "elements of 3-power order that generate a solvable group generate a 2-group extended by an abelian group, "
    "and squares and commutators of that 2-group are central in it",
    "U5": "[u^30, v^30]^2 = 1 for u, v in <x^2, y^2>",
    "U6": "[x, t x t^-1]^10 = 1 for x of 5-power order and every t",
    "U7": "[u^2, v^2] = 1 for u, v that generate a 2-group inside <x^2, y^2>",
}
_THEOREMS = {"U6": "CKDA Thm. 4 (Lemma 23)"}


@dataclass(frozen=True)
class Witness:
    """A law and elements of the table that break it.

    `elements` by name: x and y for all laws; U2 may have r with y = r^4 (else y has odd order); U5 and U7 have u and v
    in <x^2, y^2>; U6 has t with y = t x t^-1. `value` is the element that should be the identity (U4 may have none).
    """

    law: str
    elements: tuple[tuple[str, int], ...]
    value: int | None

    @property
    def theorem(self) -> str:
        """The theorem that the law is."""
        return _THEOREMS.get(self.law, f"OURS-one-layer-obstructions, law {self.law}")

    @property
    def reason(self) -> str:
        """The law in words."""
        return LAWS[self.law]

    def describe(self, labels: Sequence[str]) -> str:
        """The elements by their labels, and what they give in place of the identity."""
        named = ", ".join(f"{name} = {labels[g]}" for name, g in self.elements)
        return named if self.value is None else f"{named}: the commutator gives {labels[self.value]}"

    def to_json(self) -> dict[str, object]:
        """What `statetrack.proofs_check.witness` reads, beside the table."""
        return {"law": self.law, "elements": dict(self.elements), "value": self.value}


def find_witness(group: Cayley) -> Witness | None:
    """A law that the group breaks, with its elements; None if U1 to U7 all hold, which says nothing."""
    found = obstruction(group)
    if found is None:
        return None
    x, y = found.x, found.y
    if found.law in ("U5", "U7"):
        u, v = _inside(group, found.law, x, y)
        power = group.power(30 if found.law == "U5" else 2)
        value = int(group.commutators[power[u], power[v]])
        value = int(group.power(2)[value]) if found.law == "U5" else value
        return Witness(found.law, (("x", x), ("y", y), ("u", u), ("v", v)), value)
    commutator = int(group.commutators[x, y])
    if found.law == "U6":
        everything = range(group.order)
        t = next(t for t in everything if group.table[group.table[t, x], group.inverses[t]] == y)
        return Witness("U6", (("x", x), ("y", y), ("t", t)), int(group.power(10)[commutator]))
    elements = (("x", x), ("y", y))
    if found.law == "U2" and group.orders[y] % 2 == 0:
        elements = (*elements, ("r", int((group.power(4) == y).argmax())))
    return Witness(found.law, elements, None if found.law == "U4" else commutator)


def _inside(group: Cayley, law: str, x: int, y: int) -> tuple[int, int]:
    """Elements u, v of <x^2, y^2> that break the law."""
    square = group.power(2)
    members: Numbers = group.generated((int(square[x]), int(square[y])))
    power = group.power(30 if law == "U5" else 2)
    for u in members.tolist():
        for v in members.tolist():
            c = group.commutators[power[u], power[v]]
            if (square[c] if law == "U5" else c) and (law == "U5" or _is_two_group(group, u, v)):
                return u, v
    raise AssertionError("the law was found to fail")


def _is_two_group(group: Cayley, u: int, v: int) -> bool:
    order = len(group.generated((u, v)))
    return order & (order - 1) == 0
