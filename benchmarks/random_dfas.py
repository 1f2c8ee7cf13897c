"""Random automata on every target: each answer is checked, be it a network or a refusal.

An automaton has 2 to 8 states and 1 to 3 letters, any maps, permutations, constants or maps that move two states at
most; it is minimised. Number i of a seed is the same in every run.
A network must be accepted by the independent checker and right in exact runs on all words of up to five letters and on
one of 200; a refusal must show a word and states that cycle with a forbidden period; all else is counted by its reason.
The journal keeps what is done, so that a run that was stopped goes on, and one with a larger --count does the rest.
"""
# pyright: basic

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

# Each job is a process; threads for linear algebra would only wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from every_target import TARGETS, Case, Verdict, judge, random_dfa


def check(seed: int, number: int, goals: Iterable[str], seconds: float | None) -> list[Verdict]:
    """The verdicts on one automaton; `seconds` bound each build."""
    dfa = random_dfa(seed, number)
    draw = random.Random(f"{seed} {number} word")
    words = [*product(dfa.alphabet, repeat=5), tuple(draw.choices(dfa.alphabet, k=200))]
    verdicts = list[Verdict]()
    for goal in goals:
        verdicts.append(judge(Case(str(number), dfa), goal, seconds=seconds, words=words, kernels=False))
        if not gc.isenabled() and time.process_time() - _collected[-1] > _GARBAGE_SECONDS:
            gc.collect()
            _collected.append(time.process_time())
    return verdicts


# Among millions of numbers the search for garbage in cycles takes longer than all else, so jobs make it seldom.
_GARBAGE_SECONDS = 5.0
_collected = [0.0]


def _job(asked: tuple[int, int, float]) -> tuple[int, list[Verdict], float]:
    gc.disable()
    started = time.process_time()
    seed, number, seconds = asked
    return number, check(seed, number, TARGETS, seconds), time.process_time() - started


def main() -> None:
    from report import save

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=60.0, help="most for building and checking one network")
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds after which no job is begun")
    parser.add_argument("--journal", type=Path, help="default: a file in the system's folder for temporary files")
    options = parser.parse_args()
    name = f"statetrack-random-dfas-{options.seed}.jsonl"
    path = options.journal or Path(tempfile.gettempdir()) / name
    done = _read(path)
    asked = [(options.seed, i, options.seconds) for i in range(options.count) if i not in done]
    started = time.perf_counter()
    with get_context("spawn").Pool(options.jobs, maxtasksperchild=200) as pool, path.open("a") as journal:
        for number, verdicts, seconds in pool.imap_unordered(_job, asked):
            done[number] = verdicts
            journal.write(json.dumps([number, seconds, [asdict(v) for v in verdicts]]) + "\n")
            journal.flush()
            wrong = sum(v.result == "WRONG" for vs in done.values() for v in vs)
            rest = f"{len(done)}/{options.count} automata, {wrong} wrong"
            print(f"\r{rest}, {time.perf_counter() - started:.0f} s ", end="", file=sys.stderr, flush=True)
            if time.perf_counter() - started > options.stop_after:
                pool.terminate()
                break
    print(file=sys.stderr)
    told = f"{platform.machine()}, {options.device}; automata 0 to {options.count - 1} of seed {options.seed}"
    save("random-dfas", options.device, table(list(done.values())), f"{told}, of which {len(done)} were run")
    wrong = [v for vs in done.values() for v in vs if v.result == "WRONG"]
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


def _read(path: Path) -> dict[int, list[Verdict]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {number: [Verdict(**v) for v in verdicts] for number, _, verdicts in map(json.loads, lines)}


def table(every: Sequence[Sequence[Verdict]]) -> list[dict[str, Any]]:
    """A row for each target: how many of each result, times, and what was left without an answer and why."""
    rows = list[dict[str, Any]]()
    for goal in TARGETS:
        found = [v for verdicts in every for v in verdicts if v.target == goal]
        counts = Counter(v.result for v in found)
        built = [v for v in found if v.result == "built"]
        reasons = Counter(v.why[:80] for v in found if v.result in ("none", "budget"))
        row: dict[str, Any] = {"target": goal, "automata": len(found)}
        row |= {result: counts[result] for result in ("built", "refused", "none", "budget", "WRONG")}
        row["most_layers"] = max((len(v.dims) for v in built), default=None)
        for key in ("build", "check", "run"):
            row[f"{key}_seconds"] = sum(v.seconds.get(key, 0.0) for v in found)
        row["slowest_build_seconds"] = max((v.seconds.get("build", 0.0) for v in found), default=None)
        row["constructions"] = ", ".join(f"{k} {n}" for k, n in Counter(v.construction for v in built).most_common())
        row["reasons"] = "; ".join(f"{n} times: {why}" for why, n in reasons.most_common(3))
        rows.append(row)
    return rows


if __name__ == "__main__":
    main()
