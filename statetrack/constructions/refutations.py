"""Proofs that a target cannot track a source, each with a witness that can be checked.

Main definitions: `refute`, `period_witness`.

Main results: CKDA Lemma 16 with Prop. 13 (A5 and heads of size 3); Grazzi et al. Thm. 1 and Thm. 2 in their form for
monotone rounding after each step (claims OURS-O1, OURS-O2: diagonal transitions keep or reverse order, so a cascade of
them has no group, or only 2-groups); OURS-O3: without negative eigenvalues finitely many exact states mean no group.

References: CKDA Sec. 5; Grazzi et al. Sec. 4; docs/constructions.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from statetrack.errors import NotExpressible
from statetrack.theory.groups import recognise, words_in
from statetrack.theory.monoids import classify
from statetrack.theory.rotations import icosahedral_planes

from .source import Source
from .targets import Target


def refute(source: Source, goal: Target, *, max_dim: int | None = None, max_monoid: int = 20_000) -> None:
    """Raise NotExpressible if a theorem says that the target cannot track this source; return silently otherwise."""
    if goal.name == "ckda" and max_dim is not None and max_dim <= 3 and source.group is not None:
        shape = recognise(source.group)
        if shape is not None and shape.kind == "polyhedral" and shape.n == 5 and len(set(source.letters)) == 60:
            count = icosahedral_planes()
            raise NotExpressible(
                source.name,
                f"ckda with heads of size at most {max_dim}, one layer, finitely many states",
                f"a frame makes a rotation of order 3 or 5 a signed Householder only if its axis lies in a "
                f"coordinate plane, and three planes hold at most {3 * count.most} of the icosahedron's "
                f"{count.axes} such axes",
                theorem="CKDA Lemma 16 and Prop. 13",
                witness="the 60 letters themselves; d = 4 works (--max-dim 4)",
            )
    if goal.name in _WITHOUT_PERIODS:
        theorem, reason, semantics = _WITHOUT_PERIODS[goal.name]
        found = period_witness(source, allow_two=goal.low < 0, max_monoid=max_monoid)
        if found is not None:
            names = [source.dfa.alphabet[s] for s in found.word]
            shown = " ".join(names[:12]) + (" ..." if len(names) > 12 else "")
            cycle = ", ".join(source.dfa.states[q] for q in found.states[:8])
            cycle += ", ..." if len(found.states) > 8 else ""
            raise NotExpressible(
                source.name,
                goal.name,
                reason,
                theorem=theorem,
                witness=f"repeating the word '{shown}' moves the states {cycle} with period {len(found.states)}",
                semantics=semantics,
            )


_STEP = "any finite set of numbers, rounding monotone after each step"
_FINITE = "finitely many exact states"
_ORDERED = "steps with gates in [0, 1] keep the order of each number, so all periods are one: aperiodic languages only"
_PERIPHERAL = "no eigenvalue but 1 has size one, so a finite set of states has periods one: aperiodic languages only"
# Theorem, reason, and the arithmetic that the verdict is about.
_WITHOUT_PERIODS = {
    "diag[0,1]": ("Grazzi Thm. 1", _ORDERED, _STEP),
    "diag[-1,1]": (
        "Grazzi Thm. 2",
        "steps with gates in [-1, 1] keep or reverse the order of each number, so all periods are powers of two",
        _STEP,
    ),
    "deltanet[0,1]": ("OURS-O3", _PERIPHERAL, _FINITE),
    "gdn[0,1]": ("OURS-O3", _PERIPHERAL, _FINITE),
    "kda[0,1]": ("OURS-O3", _PERIPHERAL, _FINITE),
}


@dataclass(frozen=True)
class Period:
    """A word (symbol numbers) and the states that it moves in a cycle."""

    word: tuple[int, ...]
    states: tuple[int, ...]


def period_witness(source: Source, *, allow_two: bool, max_monoid: int = 20_000) -> Period | None:
    """A word that moves some states in a cycle whose length the target cannot have; shortest words first.

    None if there is none among single letters and the first `max_monoid` elements of the transition monoid.
    """
    for s in range(len(source.dfa.alphabet)):
        cycle = _cycle(source.dfa.delta[:, s].tolist(), allow_two)
        if cycle:
            return Period((s,), cycle)
    if source.group is None:
        found = classify(source.dfa, max_monoid=max_monoid).witness("is_two_periodic" if allow_two else "is_aperiodic")
        return Period(found.word, found.states) if found else None
    words = words_in(source.group, source.letters)
    for g in sorted(range(source.group.order), key=lambda g: len(words[g])):
        if _forbidden(source.group.element_order(g), allow_two):
            word = tuple(reversed(words[g]))
            moved = range(len(source.dfa.states))
            for s in word:
                moved = [int(source.dfa.delta[q, s]) for q in moved]
            cycle = _cycle(list(moved), allow_two)
            if cycle:
                return Period(word, cycle)
    return None


def _cycle(f: list[int], allow_two: bool) -> tuple[int, ...]:
    """The states of the first cycle of a map with a forbidden length; empty if there is none."""
    done: set[int] = set()
    for start in range(len(f)):
        path: list[int] = []
        at = start
        while at not in done:
            done.add(at)
            path.append(at)
            at = f[at]
        cycle = path[path.index(at) :] if at in path else []
        if _forbidden(len(cycle), allow_two):
            return tuple(cycle)
    return ()


def _forbidden(period: int, allow_two: bool) -> bool:
    return period > 1 and not (allow_two and period & (period - 1) == 0)
