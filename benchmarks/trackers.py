"""Certified trackers through the kernels for a million steps: what finite precision does to each construction.

For every case (`--constructions`: every construction of benchmarks/horizons.py): `--words` random words of `--steps`
tokens, every decoded state compared with the automaton's on the device; for the cases also a shorter run of the same
kernel against the float64 reference, with the error set beside its proved bound, and the speed of the kernel beside the
plain torch reference on the same device. A word that fails within the proved length ends the run with exit code 1.
"""
# SymPy and torch are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import torch
from horizons import SOURCES
from report import save

import statetrack as st
from statetrack.api import Weights
from statetrack.constructions.atlas import decide
from statetrack.constructions.certificate import tokens_of
from statetrack.constructions.horizons import head_bounds
from statetrack.kernels.load import model_of, random_tokens
from statetrack.kernels.reference import recurrent, walk
from statetrack.kernels.run import execute
from statetrack.kernels.tracker import tracker, walk_triton
from statetrack.theory.cayley_tables import from_group
from statetrack.theory.finite_group import library, small_group

CASES = (
    ("S5", "deltaproduct"),
    ("A5", "ckda"),
    ("Z60", "ckda"),
    ("S4", "ckda"),
    ("A5", "deltaproduct"),
    ("Z7", "deltanet"),
    ("D7", "ckda"),
    ("(1 2 3 4 5);(1 2)", "ckda"),
    ("(ab)*", "ckda-wide"),
    ("(ab)*", "deltaproduct"),
    ("[ab]*aba[ab]*", "deltaproduct"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--words", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--place", default="cuda", help="torch device")
    parser.add_argument("--atlas", type=int, default=0, help="in place of the cases, so many groups by one layer")
    parser.add_argument("--constructions", action="store_true", help="in place of the cases, every construction")
    parser.add_argument("--share", default="1/1", help="of these every n-th from the k-th on, as k/n")
    options = parser.parse_args()
    cases: list[tuple[Any, ...]] = [*(chosen(options.atlas) if options.atlas else CASES)]
    kind = "atlas-trackers" if options.atlas else "trackers"
    if options.constructions:
        first, each = map(int, options.share.split("/"))
        cases, kind = [*SOURCES[first - 1 :: each]], "horizons"
    rows: list[dict[str, Any]] = []
    name = torch.cuda.get_device_name() if options.place == "cuda" else options.place
    try:
        for dtype in options.formats:
            for case in cases:
                rows.append(measure(built(*case).weights(dtype), case, dtype, options))
                shown = ("source", "target", "format", "wrong", "first_wrong", "proved_length", "ours_seconds", "ratio")
                print({key: rows[-1].get(key) for key in shown}, flush=True)
    finally:
        # What is measured is kept, also when the run is stopped.
        save(kind, options.device, rows, name)
    broken = [row for row in rows if row["first_wrong"] is not None and row["first_wrong"] < row["proved_length"]]
    if broken:
        raise SystemExit(f"{len(broken)} runs with a wrong state within the proved length: {broken}")


def chosen(count: int) -> tuple[tuple[str, str], ...]:
    """Groups of order 2 to 60 that one layer tracks, drawn at random (seed 0)."""
    groups = [(n, i) for n, i, _ in library() if n > 1]
    draw = random.Random(0)
    found: list[tuple[str, str]] = []
    while len(found) < count:
        n, i = draw.choice(groups)
        name = f"SmallGroup({n}, {i})"
        if (name, "ckda") not in found and decide(from_group(small_group(n, i))).verdict:
            found.append((name, "ckda"))
    return tuple(found)


def built(source: str, target: str, construction: str | None = None, how: dict[str, Any] | None = None) -> st.Compiled:
    how = ({"letters": "generators"} if ";" in source else {}) | (how or {})
    # A length is a construction of its own.
    named = None if "scaled" in how else construction
    return st.build(source, target, construction=named, check=False, **how)


def measure(weights: Weights, case: tuple[Any, ...], dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    symbols = len(weights.dfa.alphabet)

    def tokens(start: int, stop: int) -> torch.Tensor:
        return random_tokens(symbols, options.words, start, stop, seed=0, device=options.place)

    storage, steps = getattr(torch, dtype), min(options.steps, tokens_of(weights.certificate) or options.steps)
    started = time.perf_counter()
    trace = execute(model_of(weights), tokens, length=steps, storage=storage, device=options.place, keep_answers=False)
    seconds = time.perf_counter() - started
    row: dict[str, Any] = {
        "source": case[0],
        "target": case[1],
        "construction": case[2] if len(case) > 2 else "the planner's",
        "format": dtype,
        "words": options.words,
        "steps": steps,
        "wrong": trace.wrong,
        "first_wrong": trace.first_wrong,
        "wrong_words": trace.wrong_words,
        "proved_length": weights.horizon(),
        "executor": trace.executor,
        "ours_seconds": seconds,
        "ours_tokens_per_s": trace.tokens / seconds,
    }
    if options.atlas or options.constructions:
        return row
    return row | agreement(weights, storage, options.place) | speed(weights, storage, options.place)


def agreement(weights: Weights, storage: torch.dtype, place: str, words: int = 64, steps: int = 4096) -> dict[str, Any]:
    """The last layer's readouts of the kernel against a float64 run of the exactly lowered tables, and the bound."""
    exact = weights.in_format("float64")
    models = model_of(weights), model_of(exact)
    tokens = random_tokens(len(weights.dfa.alphabet), words, 0, steps, seed=1, device=place)
    number = len(models[0].layers) - 1
    ids = _ids(weights, tokens, place)
    kernel = tracker if place == "cuda" else recurrent
    ours, _ = kernel(models[0].layers[number].tables.to(place, storage), ids, storage=storage)
    truth, _ = recurrent(models[1].layers[number].tables.to(place, torch.float64), ids, storage=torch.float64)
    heads = head_bounds(weights)[number]
    largest = 0.0
    allowed: bool | None = True if all(heads) else None
    for h, model in enumerate(heads):
        error = (ours[:, :, h].double() - truth[:, :, h]).norm(dim=-1).amax(dim=0)
        largest = max(largest, float(error.max()))
        if model is not None:
            at = torch.arange(1, steps + 1)
            limit = torch.tensor([min(model.readout_error(int(t)), 1e300) for t in at])
            allowed = allowed and bool((error.cpu() <= limit).all())
    proved = min(steps, int(weights.horizon()))
    trace = execute(model_of(weights), tokens, storage=storage, device=place)
    states = (walk_triton if place == "cuda" else walk)(
        torch.from_numpy(weights.dfa.delta.copy()).to(place),
        tokens,
        torch.full((words,), weights.dfa.start, dtype=torch.int32, device=place),
    )
    assert trace.answers is not None
    return {
        "agreement_steps": steps,
        "readout_error": largest,
        "within_bound": allowed,
        "equal_where_proved": bool((trace.answers[:, :proved] == states[:, :proved]).all()),
    }


def _ids(weights: Weights, tokens: torch.Tensor, place: str) -> torch.Tensor:
    """Input ids of the last layer, the layers below replaced by their outputs in float64."""
    model = model_of(weights.in_format("float64"))
    registers = [tokens.long()]
    for number, layer in enumerate(model.layers):
        for wire in layer.wires:
            registers.append(_looked_up(wire.table, wire.reads, registers))
        ids = _looked_up(layer.route, layer.reads, registers).int().contiguous()
        if number == len(model.layers) - 1:
            return ids
        readouts, _ = recurrent(layer.tables.to(place, torch.float64), ids, storage=torch.float64)
        codes: list[torch.Tensor] = []
        for head, (book, labels) in enumerate(zip(layer.codebooks, layer.labels, strict=True)):
            own = readouts[:, :, head, : book.shape[1]].contiguous()
            codes.append(labels.to(place)[torch.cdist(own, book.to(place, torch.float64)).argmin(-1)].long())
        registers += [ids.long(), *(codes if layer.emit is None else [layer.emit.to(place)[tuple(codes)].long()])]
    raise AssertionError("a model has layers")


def _looked_up(table: torch.Tensor, reads: tuple[int, ...], registers: list[torch.Tensor]) -> torch.Tensor:
    found = table.to(registers[0].device)[tuple(registers[i] for i in reads)].long()
    return found if reads else found.expand(registers[0].shape)


def speed(weights: Weights, storage: torch.dtype, place: str, words: int = 1024, steps: int = 2048) -> dict[str, Any]:
    """Tokens a second of the last layer's kernel and of the reference, same inputs."""
    tables = model_of(weights).layers[-1].tables.to(place, storage)
    ids = random_tokens(tables.shape[0], words, 0, steps, seed=2, device=place)
    rates = {"kernel": _rate(tracker if place == "cuda" else recurrent, tables, ids, storage, 5)}
    rates["reference"] = _rate(recurrent, tables, ids[:, :256].contiguous(), storage, 1)
    return {
        "kernel_tokens_per_s": rates["kernel"],
        "peer": "torch reference, same device",
        "peer_tokens_per_s": rates["reference"],
        "ratio": rates["kernel"] / rates["reference"],
    }


def _rate(run: Any, tables: Any, ids: torch.Tensor, storage: torch.dtype, repeats: int) -> float:
    seconds: list[float] = []
    for _ in range(repeats + 1):
        _wait()
        started = time.perf_counter()
        run(tables, ids, storage=storage)
        _wait()
        seconds.append(time.perf_counter() - started)
    return ids.numel() / sorted(seconds[1:])[repeats // 2]


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
