"""Random rational weighted automata as networks: exact values, bits of the exact state, float64 against its bound.

Automata have 2 to 4 states and two letters, some of them singular or zero; all are built for ckda-wide, every fifth for
kda-wide and unconstrained too. Exact runs must be right on all words of up to five letters, the checker must accept,
and what the kernels compute in float64 must lie within `value_bounds` of the exact values on random words of up to 50
letters. A bound a million times smaller is the control: it must fail somewhere.
"""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import platform
import random
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import product
from multiprocessing import get_context
from typing import Any

import statetrack as st
from statetrack.api import Compiled
from statetrack.constructions.value_bounds import value_bounds
from statetrack.constructions.weighted_plan import bits_per_token
from statetrack.errors import NoConstruction
from statetrack.proofs_check import networks
from statetrack.theory.weighted import Wfa, from_matrices

GOALS = ("ckda-wide", "kda-wide", "unconstrained")
LENGTHS = (25, 50, 100, 200)
CONTROL = 10**6


@dataclass(frozen=True)
class Found:
    """What came of one automaton on one target; `used` is the largest share of its bound that an error takes."""

    number: int
    target: str
    faults: tuple[str, ...]
    seconds: float
    size: int = 0
    bits: tuple[int, ...] = ()
    bound: float = 0.0
    used: float = 0.0
    control_fails: bool = False


def random_wfa(seed: int, number: int) -> Wfa:
    """Weighted automaton number `number` of a seed; a letter is any matrix, of rank 1, zero, or of 0 and 1."""
    draw = random.Random(f"{seed} {number}")
    n = draw.randint(2, 4)

    def numbers(count: int) -> list[Fraction]:
        return [Fraction(draw.randint(-3, 3), draw.choice((1, 1, 1, 2, 3, 4))) for _ in range(count)]

    def letter() -> list[list[Fraction]]:
        kind = draw.choice(("any", "any", "any", "rank 1", "zero", "bits"))
        if kind == "rank 1":
            u, v = numbers(n), numbers(n)
            return [[x * y for y in v] for x in u]
        if kind == "zero":
            return [[Fraction(0)] * n for _ in range(n)]
        return [[Fraction(draw.randint(0, 1)) for _ in range(n)] if kind == "bits" else numbers(n) for _ in range(n)]

    return from_matrices("ab", numbers(n), {"a": letter(), "b": letter()}, numbers(n))


def exact_values(wfa: Wfa, word: Iterable[str]) -> tuple[Fraction, ...]:
    """The values after each symbol, by the definition."""
    state, found = list(wfa.initial), list[Fraction]()
    for symbol in word:
        rows = wfa.matrices[wfa.alphabet.index(symbol)]
        state = [sum((a * x for a, x in zip(row, state, strict=True)), Fraction(0)) for row in rows]
        found.append(sum((a * x for a, x in zip(wfa.final, state, strict=True)), Fraction(0)))
    return tuple(found)


def check(wfa: Wfa, number: int, goal: str, *, lengths: Sequence[int] = LENGTHS) -> Found:
    """Build, check, run exactly and in float64."""
    started, draw = time.perf_counter(), random.Random(f"{number} words")
    try:
        made = st.build(wfa, goal, check=False)
    except NoConstruction as error:
        return Found(number, goal, (f"none: {error.reason}",), time.perf_counter() - started)
    faults = list[str]()
    facts = networks.verify(made.certificate.text(), made.certificate.digest)
    if "weighted automaton's value" not in facts["proved"]:
        faults.append(f"the checker proves {facts['proved']}")
    every = [(), *(word for word in product(wfa.alphabet, repeat=5))]
    faults += [f"exact run of {word}" for word in every if made.run(word) != exact_values(wfa, word)]
    words = [tuple(draw.choices(wfa.alphabet, k=k)) for k in (1, 7, 20, 50)]
    used, control = errors(made, wfa, words)
    if used > 1:
        faults.append(f"an error of {used} times its bound")
    word = draw.choices(wfa.alphabet, k=max(lengths))
    bits = state_bits(made, word)
    size = sum(map(sum, made.dims))
    bound = bits_per_token(made.automaton) if isinstance(made.automaton, Wfa) else 0.0
    told = tuple(max(bits[:n]) for n in lengths)
    found = Found(number, goal, (), time.perf_counter() - started, size, told, bound, used, control)
    if len(lengths) > 1 and slope(found, lengths) > bound:
        faults.append(f"{slope(found, lengths)} bits a token, more than {bound}")
    return replace(found, faults=tuple(faults))


def errors(made: Compiled, wfa: Wfa, words: Sequence[tuple[str, ...]]) -> tuple[float, bool]:
    """The largest error in float64 as a share of its bound, and whether some error passes a millionth of it."""
    used, control = 0.0, False
    for word, values in zip(words, made.weights("float64").values(words, device="cpu"), strict=True):
        bounds = value_bounds(made.program, word)
        for got, exact, bound in zip(values, exact_values(wfa, word), bounds, strict=True):
            error = abs(Fraction(got) - exact)
            control |= error * CONTROL > Fraction(bound)
            if error:
                used = max(used, float(error / Fraction(bound)) if bound else float("inf"))
    return used, control


def state_bits(made: Compiled, word: Sequence[str]) -> list[int]:
    """Bits of the longest number (numerator and denominator) of the exact state after each symbol."""
    found = list[int]()
    for _, _, state in made.program.runner.last_head(word):
        numbers = [x.as_fraction() or Fraction(0) for x in state]
        found.append(max(x.numerator.bit_length() + x.denominator.bit_length() for x in numbers))
    return found


def slope(found: Found, lengths: Sequence[int] = LENGTHS) -> float:
    """Bits a token between the last two lengths."""
    return (found.bits[-1] - found.bits[-2]) / (lengths[-1] - lengths[-2])


def _job(asked: tuple[int, int]) -> list[Found]:
    import torch

    torch.set_num_threads(1)
    seed, number = asked
    wfa = random_wfa(seed, number)
    return [check(wfa, number, goal) for goal in (GOALS if number % 5 == 0 else GOALS[:1])]


def main() -> None:
    from report import save

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    every = list[Found]()
    with get_context("spawn").Pool(options.jobs) as pool:
        asked = [(options.seed, i) for i in range(options.count)]
        for number, found in enumerate(pool.imap(_job, asked), 1):
            every += found
            wrong = sum(bool(f.faults) for f in every)
            print(f"\r{number}/{options.count} automata, {wrong} with faults ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    rows = [_row(goal, [f for f in every if f.target == goal]) for goal in GOALS]
    save("weighted", options.device, rows, f"{platform.machine()}, {options.device}, seed {options.seed}")
    print(*(asdict(f) for f in every if f.faults), sep="\n")
    sys.exit(any(f.faults for f in every))


def _row(goal: str, every: Sequence[Found]) -> dict[str, Any]:
    built = [f for f in every if f.bits]
    growing = [f for f in built if slope(f) > 0.05]
    row: dict[str, Any] = {"target": goal, "automata": len(every), "built": len(built)}
    row |= {"with_faults": sum(bool(f.faults) for f in every), "largest_K": max((f.size for f in built), default=None)}
    row["largest_share_of_the_float64_bound"] = max((f.used for f in built), default=None)
    row["control_fails"] = sum(f.control_fails for f in built)
    for i, length in enumerate(LENGTHS):
        row[f"median_bits_after_{length}"] = statistics.median([f.bits[i] for f in built]) if built else None
    row["growing"] = len(growing)
    row["median_slope_bits_a_token"] = statistics.median(map(slope, growing)) if growing else None
    row["largest_slope_over_bound"] = max((slope(f) / f.bound for f in growing if f.bound), default=None)
    row["median_slope_over_bound"] = statistics.median([slope(f) / f.bound for f in growing if f.bound] or [0.0])
    row["seconds"] = sum(f.seconds for f in every)
    return row


if __name__ == "__main__":
    main()
