"""1,000 random networks of several layers against the refuters of Theorems 1 and 2 of Grazzi et al.

Layers are DeltaNet, KDA and their signed forms with random rational keys, β and gates, random additive terms, starts,
decoders and number formats. Inside the hypotheses a refuter must name a word; the word is evaluated by the definition
of the unrolled semantics in plain fractions, here. Outside it may say anything but a wrong word.

    python benchmarks/refuters.py --networks 1000
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from flint import fmpq_mat

from statetrack.theory.eventual import Agrees, NotApplicable, Unknown, Witness, fail_mod, fail_parity
from statetrack.theory.precision import Datatype, Layer, State, Token, householder, matrix

KINDS = ("deltanet[0,1]", "kda[0,1]", "deltanet", "ckda")
FORMATS = (
    Datatype.of(-1, 0, 1),
    Datatype.of(*range(-8, 9)),
    Datatype.of(*(Fraction(i, 4) for i in range(-16, 17))),
    Datatype.of(*(s * Fraction(m, 4) * 2**e for s in (1, -1) for m in (0, 4, 5, 6, 7) for e in range(-2, 3))),
)


class Hashed:
    """A decoder that answers arbitrarily, but the same question always alike."""

    def __init__(self, seed: int, answers: int) -> None:
        self.seed, self.answers = seed, answers

    def __call__(self, h: State, x: Token) -> Token:
        return random.Random(f"{self.seed} {h} {x}").randrange(self.answers)


def transition(rng: random.Random, kind: str, n: int) -> fmpq_mat:
    """One step of this kind: I - β k kᵀ / kᵀk, times gates for the kinds that have them."""
    key = [Fraction(rng.randint(-3, 3)) for _ in range(n)]
    beta = Fraction(rng.randint(0, 8), 8 if kind.endswith("[0,1]") else 4)
    gates = [
        Fraction(rng.randint(-4 if kind == "ckda" else 0, 4), 4) if "kda" in kind else Fraction(1) for _ in range(n)
    ]
    return householder(beta, key) * matrix([[gates[i] if i == j else 0 for j in range(n)] for i in range(n)])


def network(rng: random.Random, kinds: Sequence[str]) -> list[Layer]:
    """One to three layers that read tokens 0, 1, 2; the last answers yes or no."""
    depth, layers = rng.randint(1, 3), list[Layer]()
    for number in range(depth):
        n, d, kind = rng.randint(1, 3), rng.randint(1, 2), rng.choice(kinds)
        a: dict[Token, fmpq_mat] = {x: transition(rng, kind, n) for x in range(3)}
        quarters = [[[Fraction(rng.randint(-4, 4), 4) for _ in range(d)] for _ in range(n)] for _ in range(3)]
        b: dict[Token, fmpq_mat] = {x: matrix(rows) for x, rows in enumerate(quarters)}
        start = matrix([[Fraction(rng.randint(-2, 2)) for _ in range(d)] for _ in range(n)])
        decode = Hashed(rng.randrange(10**6), 2 if number == depth - 1 else 3)
        layers.append(Layer(a.__getitem__, b.__getitem__, start, decode))
    return layers


def literal(layers: Sequence[Layer], word: Sequence[Token], datatype: Datatype) -> Token:
    """The last output by the definition: every summand cast, the exact sum cast, in plain fractions."""

    def entries_of(m: fmpq_mat) -> list[list[Fraction]]:
        return [[Fraction(int(x.p), int(x.q)) for x in row] for row in m.tolist()]

    def times(a: list[list[Fraction]], b: list[list[Fraction]]) -> list[list[Fraction]]:
        return [[sum((x * y for x, y in zip(r, c, strict=True)), Fraction(0)) for c in zip(*b, strict=True)] for r in a]

    def cast(x: Fraction) -> Fraction:
        return min(datatype.values, key=lambda z: (abs(z - x), z))

    inputs: list[Any] = list(word)
    for layer in layers:
        terms, outputs = [entries_of(layer.start)], list[Token]()
        for x in inputs:
            a = entries_of(layer.transition(x))
            terms = [times(a, t) for t in terms] + [entries_of(layer.addition(x))]
            flat = zip(*([z for row in t for z in row] for t in terms), strict=True)
            state = tuple(cast(sum((cast(z) for z in entries), Fraction(0))) for entries in flat)
            outputs.append(layer.decode(state, x))
        inputs = outputs
    return inputs[-1]


def check(rng: random.Random, kinds: Sequence[str], modulus: int) -> tuple[str, int]:
    """The kind of answer for one random network, and the length of the word; AssertionError if the word is wrong."""
    layers, datatype = network(rng, kinds), rng.choice(FORMATS)
    found = fail_parity(layers, datatype) if modulus == 2 else fail_mod(layers, datatype, modulus)
    if isinstance(found, Witness):
        count = len(found.word)
        label = count % 2 == 1 if modulus == 2 else count % modulus == 0
        assert set(found.word) == {1}
        assert found.expected == label
        assert literal(layers, found.word, datatype) == found.got != label
        return "witness", count
    assert isinstance(found, Agrees | NotApplicable | Unknown)
    if isinstance(found, Agrees):
        assert modulus != 2 or found.period == 2
        for k in range(1, 12):
            said = literal(layers, (1,) * k, datatype)
            assert said == (k % 2 == 1 if modulus == 2 else k % modulus == 0)
    return type(found).__name__, 0


def survey(count: int, seed: int) -> dict[str, Any]:
    """Answers of all networks by refuter and kind of layer."""
    rng, rows = random.Random(seed), dict[str, Any]()
    inside, real = ("deltanet[0,1]", "kda[0,1]"), ("deltanet[0,1]", "deltanet", "kda[0,1]")
    started = time.perf_counter()
    for name, kinds, modulus, share in (
        ("parity, eigenvalues >= 0", inside, 2, 0.4),
        ("modulo 3, real eigenvalues", inside, 3, 0.3),
        ("modulo 3, one reflection a token", real, 3, 0.1),
        ("parity, signed gates", KINDS, 2, 0.1),
        ("modulo 3, signed gates", KINDS, 3, 0.1),
    ):
        answers, longest = collections.Counter[str](), 0
        for _ in range(round(count * share)):
            kind, length = check(rng, kinds, modulus)
            answers[kind] += 1
            longest = max(longest, length)
        rows[name] = {"answers": dict(answers), "longest_word": longest}
    return {"networks": count, "seed": seed, "seconds": round(time.perf_counter() - started, 1), "rows": rows}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(json.dumps(survey(options.networks, options.seed), indent=1))
