"""Proved and measured horizons of every construction in float64, float32 and bfloat16, and encodings right for ever.

For each construction and format: the proved horizon; the first wrong token of random words (recurrent reference order,
numpy) and of an adversarial word found by a beam; or the proof of being right for ever. A measured length that is not
above the proved one is an error and ends the run.

    python benchmarks/horizons.py --device cpu-2core
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from report import save

from statetrack import api
from statetrack.constructions.encodings import lowered
from statetrack.constructions.float_closure import FloatClosure
from statetrack.constructions.float_network import Fails, FloatNetwork, failing_word, shortest_failing_word
from statetrack.errors import StatetrackError

SOURCES = (
    ("Z2", "ckda", "sign-reflections"),
    ("Z2xZ2", "diag[-1,1]", "sign-gates"),
    ("Z60", "ckda", "planar"),
    ("Z7", "deltaproduct", "planar-reflections"),
    ("S4", "ckda", "cube"),
    ("S4", "deltaproduct", "spatial-reflections"),
    ("A4", "ckda", "quaternion"),
    ("S5", "deltaproduct", "permutation"),
    ("Z7", "deltanet", "modular"),
    ("(a|b)*abb", "ckda", "window"),
    ("(ab)*", "kda", "partial"),
    ("S4", "ckda", "two-steps"),
    ("(a|b)*aba(a|b)*", "ckda", "cascade"),
    ("(ab)*", "unconstrained", "dense"),
    ("Z4", "diag[-1,1]", "tower"),
    ("Z2xS3", "ckda", "product"),
)
FOR_EVER = (
    *((s, "deltaproduct", p) for s in ("S5", "S4", "A5") for p in ("fp32", "bf16", "fp16", "e4m3")),
    *((f"Z{m}", "ckda", "bf16") for m in (5, 7, 10, 16, 20, 24)),
)


def measured(made: api.Compiled, dtype: str, storage: str, words: int, length: int, seed: int) -> dict[str, Any]:
    """The row of one construction and format."""
    weights = lowered(made.program, made.certificate, made.automaton, dtype, storage)
    run = api.Weights(dtype, weights.tensors, weights.certificate, weights.automaton, weights.state_dtype)
    proved = run.horizon()
    network, dfa, rng = FloatNetwork(weights), run.dfa, np.random.default_rng(seed)
    rows = np.repeat(network.start, words, axis=0)
    truth, first = np.full(words, dfa.start), None
    for t in range(length):
        tokens = rng.integers(len(dfa.alphabet), size=words).astype(np.int32)
        rows, answers = network.advance(rows, tokens)
        truth = dfa.delta[truth, tokens]
        if (answers != truth).any():
            first = t + 1
            break
    codes = max(len(head.codebook) for head in network.heads)
    beam = failing_word(weights, width=max(4, 20_000 // (codes * len(dfa.alphabet))), max_depth=300)
    exact = shortest_failing_word(weights, max_states=20_000 if codes < 1000 else 500)
    found = [n for n in (first, beam and len(beam.word), len(exact.word) if isinstance(exact, Fails) else None) if n]
    assert all(proved < n for n in found), (made.source.name, dtype, proved, found)
    return {
        "proved": "every length" if proved == float("inf") else int(proved),
        "random words first wrong at": first or f"none in {words} x {length}",
        "adversarial word": len(beam.word) if beam else "none to 300",
        "all words": f"shortest failing {len(exact.word)}"
        if isinstance(exact, Fails)
        else f"{type(exact).__name__} {getattr(exact, 'depth', '')}".strip(),
        "ratio": min(found) / proved if found and proved else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", required=True)
    parser.add_argument("--words", type=int, default=32)
    parser.add_argument("--length", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for source, target, construction in SOURCES:
        try:
            made = api.build(source, target, construction=construction, check=False)
        except StatetrackError as error:
            print(f"left out: {source} {target} {construction}: {error}")
            continue
        for dtype, storage in (("float64",) * 2, ("float32",) * 2, ("float32", "bfloat16"), ("bfloat16",) * 2):
            started = time.perf_counter()
            row = measured(made, dtype, storage, options.words, options.length, options.seed)
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
