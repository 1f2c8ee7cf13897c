"""Holonomy cascades: decomposition, reduction and exact check of every automaton in tests/data, beside SgpDec.

Every automaton runs in a process of its own, so that its peak memory is its own. Times are CPU times, the best of
several runs; memory is what the first run adds to the process's peak. SgpDec's figures are constants.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

from report import save

from statetrack.constructions.cascade import Cascade, Walk, verify_cascade, walk
from statetrack.constructions.holonomy import Skeleton, holonomy_cascade, skeleton
from statetrack.constructions.reduction import Choice, best_cascade, reduce
from statetrack.errors import BudgetExceeded
from statetrack.theory.automata import Dfa
from statetrack.theory.formats import read_automaton

AUTOMATA = Path(__file__).parents[1] / "tests" / "data" / "automata"
Row = dict[str, Any]

# SgpDec 1.2.0 cascade (GAP), measured elsewhere on two cores, start-up excluded. None: it did not finish (8 GB).
# Skeleton and cascade in CPU ms, peak MB of the process, of which 172 are the bare start-up.
SGPDEC_START_MB = 172.0


class Peer(NamedTuple):
    skeleton_ms: float
    cascade_ms: float | None
    peak_mb: float | None


SGPDEC = {
    "parity": Peer(5, 2, 172),
    "mod6": Peer(4, 1, 172),
    "ab_star": Peer(5, 2, 172),
    "flipflop": Peer(4, 1, 172),
    "s3_points": Peer(4, 2, 172),
    "s4_points": Peer(4, 2, 172),
    "s5_points": Peer(4, 2, 172),
    "s5_cayley": Peer(20, 463, 172),
    "a5_points": Peer(5, 2, 172),
    "q8_cayley": Peer(5, 2, 172),
    "t3": Peer(7, 4, 172),
    "t4": Peer(8, 8, 172),
    "t5": Peer(15, 143, 172),
    "t6": Peer(45, 1271, 173),
    "cerny8": Peer(283, 253722, 173),
    "dyck1_d3": Peer(4, 5, 172),
    "dyck2_d3": Peer(8, 84, 172),
    "dyck2_d4": Peer(32, 429, 172),
    "counter_sat8": Peer(9, 93, 172),
    "modarith5_addsub": Peer(4, 12, 172),
    "modarith5_ltr": Peer(15, 104, 172),
    "modarith5_prec": Peer(17, 195, 172),
    "rand8_k2_s1": Peer(57, 5463, 1335),
    "rand8_k2_s2": Peer(17, 74, 172),
    "rand10_k2_s1": Peer(147, 11366, 172),
    "rand10_k2_s2": Peer(58, 4444, 491),
    "rand12_k2_s1": Peer(31, None, None),
    "rand12_k2_s2": Peer(80, None, None),
    "rand15_k2_s1": Peer(76, None, None),
    "iso_date": Peer(31, 4186, 655),
    "ipv4": Peer(29, 32518, 4413),
    "email_ish": Peer(5, 39, 172),
    "tcp_strict": Peer(6, 67, 172),
    "tcp_ignore": Peer(3091, None, None),
}


def measure(name: str, repeats: int) -> Row:
    """One row: sizes, times, memory, and the ratios to SgpDec (above 1: ours is better)."""
    dfa = read_automaton(AUTOMATA / f"{name}.json")
    row: Row = {"automaton": name, "states": len(dfa.states), "letters": len(dfa.alphabet)}
    made, row["skeleton_ms"] = timed(lambda: skeleton(dfa), repeats)
    row |= {"image_sets": len(cast(Skeleton, made).sets), "chains": cast(Skeleton, made).chains}
    before = peak_mb()
    try:
        row |= decomposed(dfa, 1)
    except BudgetExceeded as error:
        return row | peer_of(name, row["skeleton_ms"], None, None) | {"stopped": str(error)}
    memory = peak_mb() - before
    if row["total_ms"] < 5_000:
        row |= decomposed(dfa, repeats)
    row["memory_mb"] = memory
    choice, row["best_ms"] = timed(lambda: best_cascade(dfa), 1)
    found = cast(Choice, choice)
    row |= {"best": found.name, "best_levels": found.cascade.levels, "best_sizes": sizes(found.cascade)}
    return row | peer_of(name, row["skeleton_ms"], row["total_ms"], memory)


def decomposed(dfa: Dfa, repeats: int) -> Row:
    """Holonomy, walk, reduction, exact check of the reduced cascade: CPU ms of each and of all."""
    row: Row = {}
    for _ in range(repeats):
        cascade, build = timed(lambda: holonomy_cascade(dfa, shared=True), 1)
        whole = cast(Cascade, cascade)
        _, walked = timed(lambda whole=whole: walk(whole), 1)
        reduced, reducing = timed(lambda whole=whole: reduce(whole), 1)
        small = cast(Cascade, reduced)
        found, check = timed(lambda small=small: verify_cascade(small), 1)
        total = build + reducing + check
        if not row or total < row["total_ms"]:
            row = {
                "levels": whole.levels,
                "widest": max((c.size for c in whole.components), default=1),
                "reach": len(cast(Walk, found).states),
                "reduced_levels": small.levels,
                "reduced_sizes": sizes(small),
                "build_ms": build,
                "walk_ms": walked,
                "reduce_ms": reducing,
                "verify_ms": check,
                "total_ms": total,
            }
    return row


def sizes(cascade: Cascade) -> str:
    return " ".join(str(c.size) for c in cascade.components)


def peer_of(name: str, skeleton_ms: float, total_ms: float | None, memory_mb: float | None) -> Row:
    peer = SGPDEC.get(name)
    if peer is None:
        return {}
    row: Row = {"sgpdec_ms": None, "skeleton_ratio": peer.skeleton_ms / skeleton_ms}
    if peer.cascade_ms is None or peer.peak_mb is None:
        return row | {"sgpdec": "out of memory at 8 GB" if name != "tcp_ignore" else "over 60 s"}
    row["sgpdec_ms"] = peer.skeleton_ms + peer.cascade_ms
    row["sgpdec_memory_mb"] = peer.peak_mb - SGPDEC_START_MB
    if total_ms is not None and memory_mb is not None:
        row["time_ratio"] = row["sgpdec_ms"] / total_ms
        # Below 1 MB the system's counting is too coarse for a ratio.
        row["memory_ratio"] = row["sgpdec_memory_mb"] / max(memory_mb, 1) if row["sgpdec_memory_mb"] > 1 else None
    return row


def timed(job: Callable[[], object], repeats: int) -> tuple[object, float]:
    """The result and the least CPU time in ms."""
    result, least = None, float("inf")
    for _ in range(repeats):
        started = time.process_time_ns()
        result = job()
        least = min(least, (time.process_time_ns() - started) / 1e6)
    return result, max(least, 1e-3)


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--job", help="measure one automaton and print its row as JSON")
    options = parser.parse_args()
    if options.job:
        print(json.dumps(measure(options.job, options.repeats)))
        return
    rows: list[Row] = []
    for path in sorted(AUTOMATA.glob("*.json")):
        command = [sys.executable, __file__, "--job", path.stem, "--repeats", str(options.repeats)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(path.stem, rows[-1].get("total_ms", rows[-1].get("stopped")), file=sys.stderr, flush=True)
    save("cascades", options.device, rows, f"{platform.machine()}, {options.device}")


if __name__ == "__main__":
    main()
