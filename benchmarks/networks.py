"""Composed networks through the kernels: stacks, clocks with buffers, one-layer resets; float32 and bfloat16 storage.

For each source and target `--words` random words of `--steps` tokens; every decoded state is compared with the
automaton's on the device. The peer is the automaton itself, walked by a kernel on the same device: `ratio` is its time
over ours, so 1/ratio is how many times longer the whole network takes than one table look-up a token.
"""
# SymPy and torch are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch
from report import save

import statetrack as st
from statetrack.kernels.load import model_of, random_tokens
from statetrack.kernels.run import execute
from statetrack.kernels.tracker import walk_triton

DATA = Path(__file__).resolve().parent.parent / "tests" / "data" / "automata"
IPV4 = r"((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
SOURCES = {
    "(ab)*": "(ab)*",
    "Dyck, two kinds, depth 3": str(DATA / "dyck2_d3.json"),
    "arithmetic modulo 5, left to right": str(DATA / "modarith5_ltr.json"),
    "arithmetic modulo 5 with precedence": str(DATA / "modarith5_prec.json"),
    "IPv4": IPV4,
    "random, 10 states": str(DATA / "rand10_k2_s1.json"),
    "T6": str(DATA / "t6.json"),
    "S5, 120 letters": "S5",
}
TARGETS = ("ckda", "deltaproduct", "kda", "deltanet", "ckda-wide", "diag[0,1]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--place", default="cuda", help="torch device")
    parser.add_argument("--words", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--formats", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--targets", nargs="+", default=list(TARGETS))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    name = torch.cuda.get_device_name() if options.place == "cuda" else options.place
    try:
        for target in options.targets:
            for source in SOURCES:
                try:
                    made = st.build(SOURCES[source], target, check=False)
                except st.StatetrackError as error:
                    print(source, target, type(error).__name__, flush=True)
                    continue
                for dtype in options.formats:
                    rows.append(measure(made, source, target, dtype, options))
                    shown = ("source", "target", "format", "layers", "wrong", "first_wrong", "ours_seconds")
                    print(*(rows[-1][key] for key in shown), sep=" | ", flush=True)
    finally:
        # What is measured is kept, also when the run is stopped.
        save("networks", options.device, rows, name)


def measure(made: st.Compiled, source: str, target: str, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    weights = made.weights(dtype)
    symbols = len(weights.dfa.alphabet)

    def tokens(start: int, stop: int) -> torch.Tensor:
        return random_tokens(symbols, options.words, start, stop, seed=0, device=options.place)

    model, storage = model_of(weights), getattr(torch, dtype)
    execute(model, tokens, length=64, storage=storage, device=options.place, keep_answers=False)
    started = time.perf_counter()
    trace = execute(model, tokens, length=options.steps, storage=storage, device=options.place, keep_answers=False)
    seconds = time.perf_counter() - started
    walked = walk_seconds(weights.dfa.delta, weights.dfa.start, tokens, options)
    return {
        "source": source,
        "target": target,
        "format": dtype,
        "construction": made.plan.construction,
        "layers": made.layers,
        "heads": sum(len(row) for row in made.dims),
        "numbers": sum(map(sum, made.dims)),
        "factors": made.factors_per_token,
        "words": options.words,
        "steps": options.steps,
        "seed": 0,
        "wrong": trace.wrong,
        "wrong_words": trace.wrong_words,
        "first_wrong": trace.first_wrong,
        "executor": trace.executor,
        "ours_seconds": round(seconds, 3),
        "peer": "walk of the automaton's table",
        "peer_seconds": round(walked, 4),
        "ratio": round(walked / seconds, 4),
    }


def walk_seconds(delta: Any, start: int, tokens: Any, options: argparse.Namespace) -> float:
    """Seconds to walk the automaton over the same words, tokens made as in the run."""
    table = torch.from_numpy(delta.copy()).to(options.place)
    states = torch.full((options.words,), start, dtype=torch.int32, device=options.place)
    chunk = 8192
    started = time.perf_counter()
    for at in range(0, options.steps, chunk):
        path = walk_triton(table, tokens(at, min(at + chunk, options.steps)).contiguous(), states)
        states = path[:, -1].contiguous()
    int(states.sum())
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
