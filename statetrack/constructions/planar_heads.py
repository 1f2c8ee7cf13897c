"""Heads of size two (or one) for every group whose squares generate an abelian subgroup.

Let N be abelian with E = G/N elementary abelian of order 2^k, x_1, ..., x_m generators of G. For a character χ of E and
a generator x_j the Fox derivative z of a word counts the places of x_j, each with the sign χ(what stands before it);
words multiply as (z, s)(z', s') = (z + s z', s s'), s = χ(word): a dihedral group. A head for (χ, j) rotates by 2πz/M
and reflects if s = -1. By Magnus, all these numbers modulo |E| exp(N) determine the element; here heads are left out
and moduli divided by primes as long as an exact lattice test says that the rest still do.

Main definitions: `PlanarHead`, `PlanarHeads`, `planar_heads`, `planar_layer`.

Main results: claim OURS-abelian-by-two-groups.

References: Magnus (1939); Fox, *Free differential calculus* (1953).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from flint import fmpz_mat

from statetrack.theory.arrays import identity, vector
from statetrack.theory.cayley_tables import Cayley, Numbers
from statetrack.theory.finite_group import (
    abelian_over,
    generating_set,
    is_abelian,
    polycyclic,
    quotient,
    squares,
    words_of,
)
from statetrack.theory.number_fields import RealCyclotomic, prime_factors
from statetrack.theory.rotations import angle_field, planar_key

from .margins import dihedral_query
from .program import Factor, Head, Layer, Step
from .trackers import token_head

_ORDERS_TRIED = 12


@dataclass(frozen=True)
class PlanarHead:
    """Rotations by multiples of 2π/modulus, composed with a reflection where the sign is -1; numbers for each element.

    `turns[g]` in 0..modulus-1, `signs[g]` in {1, -1}.
    """

    modulus: int
    turns: tuple[int, ...]
    signs: tuple[int, ...]

    @property
    def size(self) -> int:
        """1 if a sign is all that it holds, else 2."""
        signed = -1 in self.signs
        return 1 if self.modulus == 1 or (self.modulus == 2 and not signed) else 2

    def after(self, g: tuple[int, int], h: tuple[int, int]) -> tuple[int, int]:
        """The product g h of (turn, sign) pairs."""
        return (g[0] + g[1] * h[0]) % self.modulus, g[1] * h[1]

    def image(self, g: int) -> tuple[int, int]:
        """(turn, sign) of the letter g."""
        return self.turns[g], self.signs[g]


@dataclass(frozen=True)
class PlanarHeads:
    """The heads for all letters of a group, and the number of joint hidden states."""

    heads: tuple[PlanarHead, ...]
    states: int


@dataclass(frozen=True)
class _Magnus:
    """Candidates for heads, (character, generator), with everything that the lattice test needs."""

    candidates: tuple[tuple[int, int], ...]
    values: Numbers  # [characters, generators, elements]
    characters: Numbers  # [characters, elements]
    loops: Numbers  # [loops, candidates]
    exponents: Numbers  # [loops, rank]
    relations: tuple[tuple[int, ...], ...]
    subgroup: int
    k: int

    def remains(self, chosen: Sequence[int], moduli: Sequence[int]) -> int | None:
        """The number of hidden states if these heads determine the element, else None. Exact."""
        signs = {self.candidates[c][0] for c in chosen}
        if _rank(signs) < self.k:
            return None
        rank, width = len(self.relations), len(chosen)
        turns = [[int(x) for x in row] for row in self.loops[:, list(chosen)]]
        round_about = [[m if i == j else 0 for j in range(width)] for i, m in enumerate(moduli)]
        part = _covolume([*turns, *round_about], width)
        rows = [[*t, *map(int, e)] for t, e in zip(turns, self.exponents, strict=True)]
        rows += [[*r, *[0] * rank] for r in round_about] + [[*[0] * width, *r] for r in self.relations]
        if _covolume(rows, width + rank) != part * self.subgroup:
            return None
        return math.prod(moduli) // part << self.k


def planar_heads(group: Cayley) -> PlanarHeads | None:
    """Heads that track the group, few and small; None if its squares do not generate an abelian subgroup."""
    below = squares(group)
    if not is_abelian(group, below):
        return None
    if group.order == 1:
        return PlanarHeads((PlanarHead(1, (0,), (1,)),), 1)
    made = _magnus(group, abelian_over(group, below))
    modulus = _modulus(group, made)
    best: tuple[tuple[int, int], list[int], list[int]] | None = None
    rng = np.random.default_rng(0)
    count = len(made.candidates)
    orders = [
        list(range(count)),
        list(range(count))[::-1],
        *(rng.permutation(count).tolist() for _ in range(_ORDERS_TRIED)),
    ]
    for order in orders if count > 2 else orders[:2]:
        chosen, moduli = _pruned(made, order, modulus)
        states = made.remains(chosen, moduli)
        assert states is not None, "Magnus' theorem"
        if best is None or (len(chosen), states) < best[0]:
            best = (len(chosen), states), chosen, moduli
    assert best is not None
    (_, states), chosen, moduli = best
    heads: list[PlanarHead] = []
    for c, m in zip(chosen, moduli, strict=True):
        chi, j = made.candidates[c]
        turns = tuple(int(z) % m for z in made.values[chi, j])
        heads.append(PlanarHead(m, turns, tuple(made.characters[chi].tolist())))
    return PlanarHeads(tuple(heads), states)


def _modulus(group: Cayley, made: _Magnus) -> int:
    return math.lcm(*(int(x) for x in group.orders)) << made.k


def _pruned(made: _Magnus, order: Sequence[int], modulus: int) -> tuple[list[int], list[int]]:
    """Leave out heads in this order while the rest determine the element; then divide moduli by primes."""
    chosen = list(range(len(made.candidates)))
    for c in order:
        rest = [x for x in chosen if x != c]
        if made.remains(rest, [modulus] * len(rest)) is not None:
            chosen = rest
    moduli = [modulus] * len(chosen)
    for i in range(len(chosen)):
        for p in prime_factors(modulus):
            while moduli[i] % p == 0:
                trial = [*moduli[:i], moduli[i] // p, *moduli[i + 1 :]]
                if made.remains(chosen, trial) is None:
                    break
                moduli = trial
    return chosen, moduli


def _magnus(group: Cayley, members: Numbers) -> _Magnus:
    letters = generating_set(group)
    cosets, coset_of = quotient(group, members)
    k = cosets.order.bit_length() - 1
    bits = _bits(cosets)[coset_of]
    masks = np.arange(1 << k)
    parity = np.array([[int(m & b).bit_count() & 1 for b in bits.tolist()] for m in masks.tolist()])
    characters = 1 - 2 * parity
    words = words_of(group, letters)
    values = np.zeros((1 << k, len(letters), group.order), dtype=np.int64)
    for g in sorted(range(group.order), key=lambda g: len(words[g])):
        if words[g]:
            # g = before · x_j, so that every derivative is that of `before`, and χ(before) more for x_j.
            before = int(np.flatnonzero(group.table[:, letters[words[g][-1]]] == g)[0])
            values[:, :, g] = values[:, :, before]
            values[:, words[g][-1], g] += characters[:, before]
    candidates = tuple(product(range(1 << k), range(len(letters))))
    basis = polycyclic(group, members)
    loops, exponents = list[list[int]](), list[tuple[int, ...]]()
    first = {int(c): int(np.flatnonzero(coset_of == c)[0]) for c in range(cosets.order)}
    rank = len(basis.generators)
    for t in first.values():
        for j, x in enumerate(letters):
            to = int(group.table[t, x])
            end = first[int(coset_of[to])]
            loop = values[:, :, t] - values[:, :, end]
            loop[:, j] += characters[:, t]
            loops.append([int(loop[chi, i]) for chi, i in candidates])
            e = basis.exponents[int(group.table[to, group.inverses[end]])]
            exponents.append((*e, *[0] * (rank - len(e))))
    return _Magnus(
        candidates,
        values,
        characters,
        np.array(loops, dtype=np.int64).reshape(len(loops), len(candidates)),
        np.array(exponents, dtype=np.int64).reshape(len(loops), rank),
        basis.relations,
        len(members),
        k,
    )


def _bits(cosets: Cayley) -> Numbers:
    """Coordinates of an elementary abelian 2-group, as bits of a number."""
    found = {0: 0}
    while len(found) < cosets.order:
        new = min(g for g in range(cosets.order) if g not in found)
        found |= {int(cosets.table[g, new]): b | len(found) for g, b in found.items()}
    return np.array([found[g] for g in range(cosets.order)], dtype=np.int64)


def _rank(masks: set[int]) -> int:
    """The rank over the field of two elements."""
    basis: list[int] = []
    for mask in masks:
        for b in basis:
            mask = min(mask, mask ^ b)
        if mask:
            basis.append(mask)
    return len(basis)


def _covolume(rows: Sequence[Sequence[int]], width: int) -> int:
    """The volume of the lattice of full rank that the rows span."""
    if not width:
        return 1
    reduced = fmpz_mat([list(row) for row in rows]).hnf()
    return abs(math.prod(int(reduced[i, i]) for i in range(width)))


def planar_layer(heads: PlanarHeads, letters: Sequence[int]) -> Layer:
    """One layer of the heads over the letters, with what it means still to be found by a search."""
    field = angle_field(*(head.modulus for head in heads.heads if head.size == 2))
    return Layer(tuple(planar_head(field, head, letters) for head in heads.heads))


def planar_head(field: RealCyclotomic, head: PlanarHead, letters: Sequence[int]) -> Head:
    """One of them; the field holds cos and sin of π/modulus."""
    m = head.modulus
    steps: list[Step] = []
    for g in letters:
        turn, sign = head.image(g)
        if head.size == 1:
            odd = (turn % 2) ^ (sign < 0)
            steps.append((Factor(vector(field, (1,)), field(2)),) if odd else ())
        elif sign < 0:
            steps.append((Factor(planar_key(field, turn, m), field(2)),))
        elif turn:
            steps.append((Factor(planar_key(field, turn, m), field(2), vector(field, (1, -1))),))
        else:
            steps.append(())
    signed = -1 in head.signs
    query = vector(field, (1,)) if head.size == 1 else dihedral_query(field, m) if signed else vector(field, (1, 0))
    return token_head(identity(field, head.size), steps, query)
