"""Random networks of 2 to 4 layers against the refuters of Theorems 1 and 2 of Grazzi et al.

Layers are DeltaNet, KDA, their signed forms and signed diagonal gates, with random rational keys, β and gates, random
additive terms, starts, decoders and number formats. Whether a network is within the printed hypotheses (for every
input of every layer, not only for those that it meets) is decided here, by integer determinants. Within them a
refuter must name a word, outside it may say anything but a wrong word. The word is evaluated by the definition of the
unrolled semantics in plain fractions, here.

    python benchmarks/refuters.py --device cpu-2core
"""

from __future__ import annotations

import argparse
import collections
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from fractions import Fraction
from itertools import product
from math import lcm
from typing import Any

from flint import fmpq_mat
from report import save

from statetrack.theory.eventual import Agrees, NotApplicable, Unknown, Witness, fail_mod, fail_parity
from statetrack.theory.precision import Datatype, Layer, State, Token, householder, matrix

TOKENS = range(3)
FORMATS = (
    Datatype.of(-1, 0, 1),
    Datatype.of(*range(-8, 9)),
    Datatype.of(*(Fraction(i, 4) for i in range(-16, 17))),
    Datatype.of(*(s * Fraction(m, 4) * 2**e for s in (1, -1) for m in (0, 4, 5, 6, 7) for e in range(-2, 3))),
)
# Kinds of layers and moduli; modulus 2 is parity, Theorem 1.
NONNEG, SIGNED = ("deltanet[0,1]", "kda[0,1]", "diag[0,1]"), ("deltanet", "ckda", "diag[-1,1]")
CASES = {
    "parity": (NONNEG, (2,)),
    "modulo": ((*NONNEG, *SIGNED), (3, 5, 6, 7, 12)),
    "parity, outside": ((*NONNEG, *SIGNED), (2,)),
    "modulo, outside": ((*NONNEG, *SIGNED), (3, 5, 6, 7, 12)),
}


class Hashed:
    """A decoder that answers arbitrarily, but the same question always alike."""

    def __init__(self, seed: int, answers: int) -> None:
        self.seed, self.answers, self.said = seed, answers, dict[tuple[State, Token], int]()

    def __call__(self, h: State, x: Token) -> Token:
        if (h, x) not in self.said:
            self.said[h, x] = random.Random(f"{self.seed} {h} {x}").randrange(self.answers)
        return self.said[h, x]


def transition(rng: random.Random, kind: str, n: int) -> fmpq_mat:
    """One step of this kind: I - β k kᵀ / kᵀk, times gates for the kinds that have them."""
    key = [Fraction(rng.randint(-3, 3)) for _ in range(n)]
    # Half of the numbers are ends of their range: without β = 2 or a gate -1 nothing oscillates for ever.
    steps = rng.choice((0, 8, rng.randint(0, 8), rng.randint(0, 8)))
    beta = Fraction(0 if "diag" in kind else steps, 8 if "[0,1]" in kind else 4)
    least = 0 if "[0,1]" in kind else -4
    drawn = [rng.choice((least, 4, rng.randint(least, 4), rng.randint(least, 4))) for _ in range(n)]
    gates = [Fraction(1) if "deltanet" in kind else Fraction(x, 4) for x in drawn]
    return householder(beta, key) * matrix([[gates[i] if i == j else 0 for j in range(n)] for i in range(n)])


def network(rng: random.Random, kinds: Sequence[str]) -> list[Layer]:
    """Two to four layers that read tokens 0, 1, 2; the last answers yes or no."""
    depth, layers = rng.randint(2, 4), list[Layer]()
    for number in range(depth):
        n, d, kind = rng.randint(1, 3), rng.randint(1, 2), rng.choice(kinds)
        a: dict[Token, fmpq_mat] = {x: transition(rng, kind, n) for x in TOKENS}
        quarters = [[[Fraction(rng.randint(-4, 4), 4) for _ in range(d)] for _ in range(n)] for _ in TOKENS]
        b: dict[Token, fmpq_mat] = {x: matrix(rows) for x, rows in enumerate(quarters)}
        start = matrix([[Fraction(rng.randint(-2, 2)) for _ in range(d)] for _ in range(n)])
        decode = Hashed(rng.randrange(10**6), 2 if number == depth - 1 else 3)
        layers.append(Layer(a.__getitem__, b.__getitem__, start, decode))
    return layers


def entries_of(m: fmpq_mat) -> list[list[Fraction]]:
    """A matrix as rows of fractions."""
    return [[Fraction(int(x.p), int(x.q)) for x in row] for row in m.tolist()]


def times(a: Sequence[Sequence[Any]], b: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The product of two matrices of any numbers."""
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


def invariants(m: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The elementary symmetric functions of the eigenvalues of a matrix of size 1 to 3: sums of principal minors."""
    n = len(m)
    two = sum(m[i][i] * m[j][j] - m[i][j] * m[j][i] for i in range(n) for j in range(i))
    trace = sum(m[i][i] for i in range(n))
    if n < 3:
        return (trace, two)[:n]
    (a, b, c), (d, e, f), (g, h, i) = m
    return trace, two, a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def is_real(m: Sequence[Sequence[int]]) -> bool:
    """Whether all eigenvalues are real, by the discriminant."""
    e = invariants(m)
    if len(e) == 1:
        return True
    if len(e) == 2:
        return e[0] ** 2 >= 4 * e[1]
    x, y, z = e
    return 18 * x * y * z - 4 * x**3 * z + x * x * y * y - 4 * y**3 - 27 * z * z >= 0


def is_within(layers: Sequence[Layer], modulus: int) -> bool:
    """The printed hypotheses: all A(x) have eigenvalues in [0, ∞); or all products of 2^(i-1) in layer i real ones."""
    for number, layer in enumerate(layers):
        rows = [entries_of(layer.transition(x)) for x in TOKENS]
        scale = lcm(*(x.denominator for m in rows for row in m for x in row))
        found = [[[int(x * scale) for x in row] for row in m] for m in rows]
        if modulus == 2:
            if not all(is_real(m) and min(invariants(m)) >= 0 for m in found):
                return False
            continue
        for _ in range(number):
            found = [times(p, q) for p, q in product(found, repeat=2)]
        if not all(map(is_real, found)):
            return False
    return True


def literal(layers: Sequence[Layer], word: Sequence[Token], datatype: Datatype) -> Token:
    """The last output by the definition: every summand cast, the exact sum cast, in plain fractions."""
    values = list(datatype.values)

    def cast(x: Fraction) -> Fraction:
        at = bisect_left(values, x)
        return min(values[max(at - 1, 0) : at + 1], key=lambda z: (abs(z - x), z))

    inputs: list[Any] = list(word)
    for layer in layers:
        a = {x: entries_of(layer.transition(x)) for x in set(inputs)}
        b = {x: entries_of(layer.addition(x)) for x in set(inputs)}
        terms, outputs = [entries_of(layer.start)], list[Token]()
        for x in inputs:
            terms = [times(a[x], t) for t in terms] + [b[x]]
            flat = zip(*([z for row in t for z in row] for t in terms), strict=True)
            state = tuple(cast(sum((cast(z) for z in entries), Fraction(0))) for entries in flat)
            outputs.append(layer.decode(state, x))
        inputs = outputs
    return inputs[-1]


def check(case: str, seed: int, index: int) -> dict[str, Any]:
    """The answer for one random network, and the length of the word; AssertionError if the word is wrong."""
    rng, (kinds, moduli) = random.Random(f"{case} {seed} {index}"), CASES[case]
    modulus, datatype, drawn = rng.choice(moduli), rng.choice(FORMATS), 0
    while True:
        layers, drawn = network(rng, kinds), drawn + 1
        if is_within(layers, modulus) != case.endswith("outside"):
            break
    found = fail_parity(layers, datatype) if modulus == 2 else fail_mod(layers, datatype, modulus)
    row = {"case": case, "index": index, "layers": len(layers), "answer": type(found).__name__, "drawn": drawn}
    if isinstance(found, Witness):
        count = len(found.word)
        label = count % 2 == 1 if modulus == 2 else count % modulus == 0
        assert set(found.word) == {1}
        assert found.expected == label
        assert literal(layers, found.word, datatype) == found.got != label
        period = max(len(run.outputs.cycle) for run in found.runs)
        return row | {"length": count, "period": period}
    assert isinstance(found, Agrees | NotApplicable | Unknown)
    if isinstance(found, Agrees):
        for k in range(1, 12):
            said = literal(layers, (1,) * k, datatype)
            assert said == (k % 2 == 1 if modulus == 2 else k % modulus == 0)
    return row


def survey(counts: dict[str, int], seed: int, jobs: int) -> list[dict[str, Any]]:
    """A row for each case and number of layers."""
    tasks = [(case, seed, index) for case, count in counts.items() for index in range(count)]
    with ProcessPoolExecutor(jobs) as pool:
        done = list(pool.map(check, *zip(*tasks, strict=True), chunksize=8))
    rows: list[dict[str, Any]] = []
    for case, depth in product(counts, (2, 3, 4)):
        mine = [row for row in done if (row["case"], row["layers"]) == (case, depth)]
        lengths = [row["length"] for row in mine if "length" in row]
        answers = collections.Counter(row["answer"] for row in mine)
        rows.append(
            {"case": case, "layers": depth, "seed": seed, "networks": len(mine)}
            | {name: answers[name] for name in ("Witness", "NotApplicable", "Unknown", "Agrees")}
            | {"median word": statistics.median(lengths), "longest word": max(lengths)}
            | {"outputs of period > 1": sum(row.get("period", 1) > 1 for row in mine)}
        )
    return rows


def main() -> None:
    """Run and save; ends with an error if a network within the hypotheses has no word."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=600, help="within the hypotheses of each theorem")
    parser.add_argument("--outside", type=int, default=150, help="outside them, for each theorem")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", help="write results/refuters-DEVICE")
    options = parser.parse_args()
    counts = {case: options.outside if case.endswith("outside") else options.networks for case in CASES}
    started = time.perf_counter()
    rows = survey(counts, options.seed, options.jobs)
    for row in rows:
        print(row)
    print(f"{time.perf_counter() - started:.0f} seconds")
    if options.device:
        save("refuters", options.device, rows, f"{options.jobs} shared CPU cores")
    inside = [row for row in rows if not row["case"].endswith("outside")]
    if any(row["Witness"] < row["networks"] for row in inside):
        raise SystemExit("a network within the hypotheses has no word")


if __name__ == "__main__":
    main()
