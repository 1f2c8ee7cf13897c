"""Clocks: layers that count tokens modulo 2P, and how each architecture does a block.

Main definitions: `Style`, `STYLES`, `clock`.

References: CKDA Thm. 5; Grazzi et al. Thm. 6 (reflections that alternate).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from statetrack.theory.arrays import identity, matmul, vector
from statetrack.theory.automata import Dfa
from statetrack.theory.number_fields import RealCyclotomic
from statetrack.theory.rotations import angle_field, planar_key, planar_reflection, planar_rotation

from .assembly import KEPT
from .margins import dihedral_query
from .program import Factor, Head, Layer, Lookup, Program, Readout, Step


@dataclass(frozen=True)
class Style:
    """How an architecture does it: its clock ("rotation", "reflections" or "products"), whether gates may be zero, and
    whether β may pass 2; `banks`: merging letters go from bank to bank (gates in {0, 1}), never in place; `scaled`:
    they are reached with β at most 2, up to powers of 1/2."""

    clock: str
    gates: bool
    wide: bool
    banks: bool
    scaled: bool = False


STYLES: dict[str, Style] = {
    "ckda": Style("rotation", True, False, False),
    "ckda-wide": Style("rotation", True, True, False),
    "deltanet": Style("reflections", False, False, True),
    "gdn": Style("reflections", False, False, True),
    "kda": Style("reflections", True, False, True),
    "deltanet-wide": Style("reflections", False, True, True),
    "gdn-wide": Style("reflections", False, True, True),
    "kda-wide": Style("reflections", True, True, True),
    "deltaproduct": Style("products", False, False, True),
}


def clock(style: Style, length: int) -> tuple[Program, Dfa]:
    """An open program that counts time modulo 2·length over one symbol, and the automaton that does."""
    return _clock(style.clock, length)


@lru_cache(maxsize=KEPT)
def _clock(kind: str, length: int) -> tuple[Program, Dfa]:
    period = 2 * length
    field = angle_field(period)
    heads = _reflection_clock(field, length) if kind == "reflections" else (_turning(kind, field, period),)
    names = tuple(str(t) for t in range(period))
    dfa = Dfa(("t",), names, 0, np.array([[(t + 1) % period] for t in range(period)], dtype=np.int32), names)
    return Program(field, dfa.alphabet, tuple(Layer((head,)) for head in heads), names, names[0]), dfa


def _turning(kind: str, field: RealCyclotomic, period: int) -> Head:
    """Rotation by 2π/period at every token, by one factor with a negative gate or by two reflections."""
    mirror = Factor(planar_key(field, 1, period), field(2))
    turn: Step = (Factor(planar_key(field, 0, period), field(2)), mirror)
    if kind == "rotation":
        turn = (replace(mirror, alpha=vector(field, (1, -1))),)
    codebook = {planar_rotation(field, t, period)[0]: t % period for t in range(1, period + 1)}
    return Head(identity(field, 2), (turn,), (vector(field, (1, 0)),), Lookup(lambda key: (0, 0)), codebook)


def _reflection_clock(field: RealCyclotomic, m: int) -> tuple[Head, Head]:
    """Period 2m by reflections: a sign flips each token; then H(0) at odd and H(2π/m) at even times."""
    one = vector(field, (1,))
    flip: Step = (Factor(one, field(2)),)
    signs = Head((one,), (flip,), (one,), Lookup(lambda key: (0, 0)), {(field(1),): 0, (field(-1),): 1})
    mirrors: tuple[Step, ...] = tuple((Factor(planar_key(field, k, m), field(2)),) for k in (1, 0))
    query = dihedral_query(field, m)
    codebook: dict[Readout, int] = {}
    state = identity(field, 2)
    for t in range(1, 2 * m + 1):
        state = matmul(planar_reflection(field, 1 - t % 2, m), state)
        codebook[matmul((query,), state)[0]] = t % (2 * m)
    return signs, Head(identity(field, 2), mirrors, (query,), Lookup(lambda key: (key[1], 0)), codebook)
