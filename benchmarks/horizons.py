"""Proved and measured horizons of every construction in float64, float32 and bfloat16, and encodings right for ever.

For each construction that `build` knows (one that is missing here, or that cannot be built, is an error) and each
format: the proved horizon; the first wrong answer of words run in recurrent reference order (random words, words that
repeat a short period), of an adversarial word found by a beam, and of all words in order of length; and the ratio of
the first of these to the proved horizon, or of the longest word run where none failed. Where the proved horizon is
short, words are run well past it. A measured length that is not above the proved one is an error and ends the run.

    python benchmarks/horizons.py --device cpu-2core
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np
from report import save

from statetrack import api
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_closure import FloatClosure
from statetrack.constructions.float_network import Fails, FloatNetwork, failing_word, shortest_failing_word
from statetrack.constructions.planner import CONSTRUCTIONS

# Source, target, construction, options of `build`.
SOURCES: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("Z1", "ckda", "trivial", {}),
    ("Z2xZ2", "diag[-1,1]", "sign-gates", {}),
    ("Z2", "ckda", "sign-reflections", {}),
    ("Z60", "ckda", "planar", {}),
    ("Z7", "deltaproduct", "planar-reflections", {}),
    ("S4", "ckda", "cube", {}),
    ("S4", "deltaproduct", "spatial-reflections", {}),
    ("A4", "ckda", "quaternion", {}),
    ("S5", "deltaproduct", "permutation", {}),
    ("[abc]*a", "deltanet", "window", {}),
    ("(a|b)*abb", "ckda", "window", {}),
    ("(a|b)*a(a|b)", "diag[0,1]", "window", {}),
    ("(ab)*", "kda", "partial", {}),
    ("(1 2 3 5);(3 4);(1 3 2)", "ckda", "adapted", {"letters": "generators"}),
    ("Q8", "ckda", "multihead", {}),
    ("Z6", "ckda", "one-head", {}),
    ("Z7", "deltanet", "modular", {}),
    ("S4", "ckda", "two-steps", {}),
    ("S3", "deltanet", "blocks", {}),
    ("(a|b)*ab(a|b)*", "ckda-wide", "blocks", {}),
    ("(a|b)*a(a|b)", "gdn-wide", "blocks", {}),
    ("(a|b)*ab(a|b)*", "deltanet", "scaled", {"scaled": 40}),
    ("(a|b)*aba(a|b)*", "ckda", "cascade", {}),
    ("(ab)*", "diag[0,1]", "cascade", {}),
    ("(a|b)*aba(a|b)*", "deltaproduct", "cascade", {}),
    ("Z4", "diag[-1,1]", "tower", {}),
    ("S4", "ckda", "coset-tower", {"letters": "generators"}),
    ("(a|b)*aba(a|b)*", "kda", "chain", {}),
    ("(ab)*", "unconstrained", "dense", {}),
    ("(a|b)*aba(a|b)*", "unconstrained", "dense", {}),
    ("A4xZ3", "ckda", "product", {}),
)
FORMATS = (("float64",) * 2, ("float32",) * 2, ("float32", "bfloat16"), ("bfloat16",) * 2)
FOR_EVER = (
    *((s, "deltaproduct", p) for s in ("S5", "S4", "A5") for p in ("fp32", "bf16", "fp16", "e4m3")),
    *((f"Z{m}", "ckda", "bf16") for m in (5, 7, 10, 16, 20, 24)),
)


def measured(made: api.Compiled, dtype: str, storage: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of one construction and format."""
    weights = lowered(made.program, made.certificate, made.automaton, dtype, storage)
    run = api.Weights(dtype, weights.tensors, weights.certificate, weights.automaton, weights.state_dtype)
    proved, most = run.horizon(), made.tokens or math.inf
    heads = sum(len(layer.heads) for layer in made.program.layers)
    # Well past a short horizon; the words of a network that is made for T tokens have T.
    length = max(options.length // heads, 8 * int(proved) if proved < options.length else 0)
    length = int(min(length, 4 * options.length, most))
    first = {family: first_fault(run, words) for family, words in families(run, options, length).items()}
    codes = max(len(head.codebook) for head in FloatNetwork(run).heads)
    width = max(4, 5_000 // (codes * len(run.dfa.alphabet)))
    depth = int(min(300, length, most))
    beam = failing_word(weights, width=width, max_depth=depth)
    exact = shortest_failing_word(weights, max_states=20_000 if codes < 1000 else 500, max_depth=made.tokens)
    found = [n for n in (*first.values(), beam and len(beam.word), failed(exact)) if n]
    assert all(proved < n for n in found), (made.source.name, dtype, proved, found)
    return {
        "proved": "every length" if math.isinf(proved) else int(proved),
        **{f"{family} words first wrong at": n or f"none in {options.words} x {length}" for family, n in first.items()},
        "adversarial word": len(beam.word) if beam else f"none to {depth}",
        "all words": f"shortest failing {failed(exact)}"
        if failed(exact)
        else f"{type(exact).__name__} {getattr(exact, 'depth', '')}".strip(),
        "measured / proved": ratio(proved, found, length),
    }


def families(weights: api.Weights, options: argparse.Namespace, length: int) -> dict[str, Any]:
    """Random words and words that repeat a random period of 1 to 12 letters, as tokens [words, length]."""
    rng, letters = np.random.default_rng(options.seed), len(weights.dfa.alphabet)
    periods = [rng.integers(letters, size=1 + i % 12) for i in range(options.words)]
    return {
        "random": rng.integers(letters, size=(options.words, length)),
        "periodic": np.array([np.resize(period, length) for period in periods]),
    }


def first_fault(weights: api.Weights, words: Any) -> int | None:
    """The number of tokens at the first wrong answer of any word."""
    network, dfa = FloatNetwork(weights), weights.dfa
    rows, truth = np.repeat(network.start, len(words), axis=0), np.full(len(words), dfa.start)
    for t in range(words.shape[1]):
        tokens = words[:, t].astype(np.int32)
        rows, answers = network.advance(rows, tokens)
        truth = dfa.delta[truth, tokens]
        if (answers != truth).any():
            return t + 1
    return None


def failed(found: object) -> int | None:
    """The length of a shortest failing word."""
    return len(found.word) if isinstance(found, Fails) else None


def ratio(proved: float, found: list[int], length: int) -> str:
    """The first failure over the proved horizon, or what is known of it."""
    if math.isinf(proved):
        return f"every length; none failed in {length} tokens"
    if not proved:
        return f"nothing proved; first failure at {min(found)}" if found else f"nothing proved; none failed in {length}"
    if found:
        return f"{min(found) / proved:.3g}"
    return f"none failed in {length} tokens (>= {length / proved:.2g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--words", type=int, default=32)
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    missing = set(CONSTRUCTIONS) - {construction for _, _, construction, _ in SOURCES}
    assert not missing, f"no program for {sorted(missing)}"
    for source, target, construction, how in SOURCES:
        insist = {} if "scaled" in how else {"construction": construction}
        made = api.build(source, target, check=False, **insist, **how)
        assert made.plan.construction == construction, (source, target, made.plan.construction)
        for dtype, storage in FORMATS:
            started = time.perf_counter()
            row = measured(made, dtype, storage, options)
            named = {"source": source, "target": target, "construction": construction, "tables": dtype}
            rows.append(named | {"state": storage} | row | {"seconds": round(time.perf_counter() - started, 1)})
            print(rows[-1], flush=True)
    for source, target, precision in FOR_EVER:
        started = time.perf_counter()
        made, weights, found = api.build(source, target, check=False).for_ever(precision)
        closed = found.outcome if isinstance(found.outcome, FloatClosure) else None
        rows.append(
            {
                "source": source,
                "target": target,
                "construction": made.plan.construction,
                "tables": weights.dtype,
                "keys": weights.keys,
                "state": weights.storage,
                "proved": "every length" if closed else "not proved",
                "encoding": found.encoding,
                "class": closed.kind if closed else "H",
                "float columns": found.outcome.columns,
                "seconds": round(time.perf_counter() - started, 1),
            }
        )
        print(rows[-1], flush=True)
    save("horizons", options.device, rows, "2 shared CPU cores")


if __name__ == "__main__":
    main()
