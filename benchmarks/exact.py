"""Exact closures, the checker and memory, beside SymPy's DomainMatrix in the same run.

Every job runs in a process of its own, so that its peak memory is its own. The peer multiplies the same matrices with
`DomainMatrix` and keeps a set of the products, for as long as `--peer-seconds` says.
"""
# SymPy and torch are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from report import save

import statetrack as st
from statetrack.constructions.closure import close
from statetrack.constructions.program import Program
from statetrack.constructions.source import Source
from statetrack.proofs_check import checker
from statetrack.theory.arrays import Matrix, identity, matrix
from statetrack.theory.number_fields import rationals
from statetrack.theory.orbits import Orbit, StepMap

Job = Callable[[float], dict[str, Any]]


def closure_job(name: str, target: str, letters: str = "all") -> Job:
    def job(peer_seconds: float) -> dict[str, Any]:
        from statetrack.constructions.planner import plan
        from statetrack.constructions.source import Options, resolve
        from statetrack.constructions.targets import TARGETS

        source: Source = resolve(name, Options(letters=letters))
        program: Program = plan(source, TARGETS[target]).program
        started = time.perf_counter()
        result = close(program, source.dfa)
        seconds = time.perf_counter() - started
        edges = result.joint * len(source.dfa.alphabet)
        letters_of_head = [m.matrix for m in program.layers[0].heads[0].maps]
        name_of_job = f"close {name} ({letters} letters) on {target}"
        return _row(name_of_job, result.joint, edges, seconds, letters_of_head, peer_seconds)

    return job


def coxeter_job(peer_seconds: float) -> dict[str, Any]:
    """S7 by its six adjacent swaps: 5,040 states of seven columns."""
    swaps = [[*range(i), i + 1, i, *range(i + 2, 7)] for i in range(6)]
    return _orbit_job("close S7 (6 adjacent swaps), 7 x 7", [_permutation(p) for p in swaps], None, peer_seconds)


def thirty_job(peer_seconds: float) -> dict[str, Any]:
    """Two random permutations of 30 points, stopped at a million states."""
    draw = random.Random(0)
    letters: list[Matrix] = []
    for _ in range(2):
        p = list(range(30))
        draw.shuffle(p)
        letters.append(_permutation(p))
    return _orbit_job("two random permutations of 30 points to 10^6 states", letters, 1_000_000, peer_seconds)


def checker_job(name: str, target: str) -> Job:
    def job(peer_seconds: float) -> dict[str, Any]:
        del peer_seconds
        certificate = st.build(name, target, check=False).certificate
        text = certificate.text()
        started = time.perf_counter()
        facts = checker.verify(text, certificate.digest)
        seconds, peak = time.perf_counter() - started, _memory()
        return {
            "job": f"check the certificate of {name} on {target}",
            "states": facts["joint"],
            "ours_seconds": seconds,
            "ours_edges_per_s": facts["joint"] * facts["symbols"] / seconds,
            "certificate_kB": len(text) / 1000,
            "process_peak_MB": peak,
        }

    return job


JOBS: dict[str, Job] = {
    "A5": closure_job("A5", "ckda"),
    "S7": coxeter_job,
    "S5": closure_job("S5", "deltaproduct"),
    "S4": closure_job("S4", "ckda"),
    "Z60": closure_job("Z60", "ckda"),
    "Z499": closure_job("Z499", "ckda"),
    "30": thirty_job,
    "check-A5": checker_job("A5", "ckda"),
    "check-S5": checker_job("S5", "deltaproduct"),
    "check-Z499": checker_job("Z499", "ckda"),
}


def _orbit_job(name: str, letters: list[Matrix], most: int | None, peer_seconds: float) -> dict[str, Any]:
    started = time.perf_counter()
    n = len(letters[0])
    orbit = Orbit(rationals(), identity(rationals(), n), [StepMap(m) for m in letters], max_states=3_000_000)
    edges = orbit.close(most)
    return _row(name, len(orbit), edges, time.perf_counter() - started, letters, peer_seconds)


def _row(
    name: str, states: int, edges: int, seconds: float, letters: list[Matrix], peer_seconds: float
) -> dict[str, Any]:
    """The row of a closure, with the peer's rate on the same matrices."""
    peak = _memory()
    peer = _peer_rate(letters, peer_seconds)
    return {
        "job": name,
        "states": states,
        "degree": letters[0][0][0].field.degree,
        "ours_seconds": seconds,
        "ours_edges_per_s": edges / seconds,
        "peer": "sympy DomainMatrix",
        "peer_edges_per_s": peer,
        "ratio": edges / seconds / peer if peer else None,
        "process_peak_MB": peak,
    }


def _permutation(p: list[int]) -> Matrix:
    return matrix(rationals(), ((int(p[j] == i) for j in range(len(p))) for i in range(len(p))))


def _peer_rate(letters: list[Matrix], seconds: float) -> float | None:
    """Products (with a set of those seen) a second that DomainMatrix makes from the same letters; None: not built."""
    import sympy
    from sympy.polys.matrices import DomainMatrix

    field: Any = letters[0][0][0].field
    if field.degree == 1:
        domain: Any = sympy.QQ
        basis: list[Any] = [domain(1)]
    elif field.degree > 16:
        # Building an algebraic field of this degree takes SymPy longer than the whole job takes us.
        return None
    elif field.degree > 2:
        domain = sympy.QQ.algebraic_field(2 * sympy.cos(2 * sympy.pi / field.N))
        basis = _chebyshev(domain, field.degree)
    else:
        root = sympy.sqrt({5: 5, 8: 2, 12: 3}[field.N])
        domain = sympy.QQ.algebraic_field(root)
        basis = [domain(1), domain.from_sympy((root - 1) / 2 if field.N == 5 else root)]
    made: list[Any] = []
    for m in letters:
        rows = [[sum((basis[k] * c for k, c in x.terms()), domain(0)) / domain(x.den) for x in row] for row in m]
        made.append(DomainMatrix(rows, (len(m), len(m)), domain))
    start: Any = DomainMatrix.eye(len(letters[0]), domain).to_dense()
    seen, queue, edges = {_key(start)}, [start], 0
    started = time.perf_counter()
    for state in queue:
        for letter in made:
            image = letter * state
            edges += 1
            key = _key(image)
            if key not in seen:
                seen.add(key)
                queue.append(image)
            if time.perf_counter() - started > seconds:
                return edges / (time.perf_counter() - started)
    return edges / (time.perf_counter() - started)


def _chebyshev(domain: Any, degree: int) -> list[Any]:
    b1 = domain.from_sympy(domain.ext.as_expr())
    basis = [domain(1), b1]
    before = domain(2)
    for _ in range(degree - 2):
        basis.append(b1 * basis[-1] - before)
        before = basis[-2]
    return basis


def _key(m: Any) -> tuple[str, ...]:
    return tuple(map(str, m.to_list_flat()))


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--peer-seconds", type=float, default=6.0)
    parser.add_argument("--job", choices=[*JOBS], help="run one job and print its row as JSON")
    options = parser.parse_args()
    if options.job:
        print(json.dumps(JOBS[options.job](options.peer_seconds)))
        return
    rows: list[dict[str, Any]] = []
    for job in JOBS:
        command = [sys.executable, __file__, "--job", job, "--peer-seconds", str(options.peer_seconds)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1]["job"], f"{rows[-1]['ours_seconds']:.2f} s", file=sys.stderr, flush=True)
    save("exact", options.device, rows, f"{platform.machine()}, {options.device}")


if __name__ == "__main__":
    main()
