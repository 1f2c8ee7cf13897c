"""How long constructions stay right: construction x format x order x words, survival of every word as JSON lines.

    python benchmarks/horizons_measured.py --output results/survival                      # one process
    torchrun --nproc-per-node 8 benchmarks/horizons_measured.py --output results/survival   # one process a GPU

A job is one construction in one format, order and family of words, for one group of words; a process that is free takes
the next one, and a job's numbers do not depend on who does it. Every process appends
to a file of its own, a line a job; jobs with a line are left out, so a sweep that was stopped goes on, and with
another number of processes too. At the end process 0 writes all lines, sorted, to OUTPUT/survival.jsonl, which
`statetrack figure survival --from FILE` and its kin draw.

Formats: float64, float32, tf32 (float32 with TF32 products; scan on CUDA only), bfloat16, float16, float8_e4m3fn,
float8_e5m2 for tables and states; A/B has tables in A and states in B; A/B/C also rounds every product and sum to C, in
the orders recurrent (a loop in torch, of at most LONGEST_LOOPED tokens), scan, and chunkwise in torch if C is float64.
Without C sums are in float64 for states in float64 and in float32 for all others; `accumulate` in a line says it.
Exit code 1 if a word in recurrent order fails at or before the length that is proved for every word.
"""
# SymPy and torch are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import statetrack as st
from statetrack.kernels.load import Model, model_of
from statetrack.kernels.orders import ORDERS
from statetrack.kernels.reference import arithmetic
from statetrack.kernels.survival import FAMILIES, survival, words_of

CASES = {
    "Z60": ("Z60", "ckda"),
    "S4": ("S4", "ckda"),
    "A5": ("A5", "ckda"),
    "A5, spatial": ("A5", "deltaproduct"),
    "S5": ("S5", "deltaproduct"),
    "S3": ("S3", "ckda"),
    "(ab)*": ("(ab)*", "deltaproduct"),
}
# Sums in bfloat16 and float16 everywhere, or alone; sums in float64, so that storage alone rounds, or tables too.
SUMS = (
    "bfloat16/bfloat16/bfloat16",
    "float16/float16/float16",
    "float32/float32/bfloat16",
    "bfloat16/bfloat16/float64",
    "float32/bfloat16/float64",
)
PLAIN = ("float64", "float32", "tf32", "bfloat16", "float32/bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
FORMATS = PLAIN + SUMS
# Adversarial words are searched on the CPU; most of them fail soon or not at all.
LONGEST_SEARCHED = 4096
# A token of the recurrence in torch takes some hundred launches on a GPU.
LONGEST_LOOPED = 4096
SHOWN = ("case", "format", "order", "family", "group", "least", "alive", "words", "length", "proved", "seconds")


@dataclass(frozen=True)
class Job:
    case: str
    format: str
    order: str
    family: str
    group: int
    words: int
    length: int

    @property
    def key(self) -> str:
        return json.dumps([self.case, self.format, self.order, self.family, self.group, self.words, self.length])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "survival")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", help="torch device")
    parser.add_argument("--cases", nargs="+", default=list(CASES))
    parser.add_argument("--formats", nargs="+", default=list(FORMATS))
    parser.add_argument("--orders", nargs="+", default=list(ORDERS))
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--words", type=int, default=256, help="words a job")
    parser.add_argument("--groups", type=int, default=4, help="jobs of different words for each combination")
    parser.add_argument("--length", type=int, default=1_000_000)
    options = parser.parse_args()
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    cuda = options.place.startswith("cuda")
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if world > 1:
        # The last process may be done hours after the first.
        dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(days=7))
    started = time.perf_counter()
    violations = sweep(options, rank, world, cuda)
    if world > 1:
        count = torch.tensor([violations], device="cuda" if cuda else "cpu")
        dist.all_reduce(count)
        violations = int(count)
    if rank == 0:
        rows = merged(options.output)
        name = torch.cuda.get_device_name() if cuda else options.place
        print(f"{len(rows)} lines, {world} processes on {name}, {time.perf_counter() - started:.1f} s", flush=True)
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()
    if violations:
        raise SystemExit(f"{violations} jobs with a word that failed within the proved length")


def sweep(options: argparse.Namespace, rank: int, world: int, cuda: bool) -> int:
    """Do this process's jobs that have no line yet; the number of jobs that contradict a proved length."""
    options.output.mkdir(parents=True, exist_ok=True)
    done = {row["key"] for row in lines(options.output) if "error" not in row}
    if world > 1:
        # Nobody writes before everybody has read.
        dist.barrier()
    violations = 0
    part = options.output / f"part-{rank}.jsonl"
    mend(part)
    with part.open("a", encoding="utf-8") as file:
        asked = [job for job in jobs(options, cuda) if job.key not in done]
        for job in (asked[i] for i in turns(len(asked), world)):
            row = measure(job, "cuda" if cuda else options.place)
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
            violations += bool(row.get("violates"))
            print(*(f"{k}={row[k]}" for k in SHOWN if k in row), row.get("error", ""), flush=True)
    return violations


def turns(count: int, world: int) -> Iterator[int]:
    """The numbers below `count` that fall to this process: each goes to the first that asks for it."""
    if world == 1:
        yield from range(count)
        return
    store: Any = dist.distributed_c10d._get_default_store()  # what torchrun's processes have in common
    while (number := store.add("statetrack/jobs", 1) - 1) < count:
        yield number


def jobs(options: argparse.Namespace, cuda: bool) -> Iterator[Job]:
    """All jobs, in an order that depends on the options alone."""
    for group in range(options.groups):
        for case in options.cases:
            for name in options.formats:
                for order in options.orders:
                    for family in options.families:
                        if order.startswith("triton") and (not cuda or name == "float64"):
                            continue
                        if name == "tf32" and (not cuda or order != "scan"):
                            continue
                        sums = parts(name)[2]
                        if sums and order not in ("recurrent", "scan") and not (sums == "float64" and "chunk" in order):
                            continue
                        length = min(options.length, LONGEST_SEARCHED) if family == "adversarial" else options.length
                        length = min(length, LONGEST_LOOPED) if sums and order == "recurrent" else length
                        words = min(options.words, 64) if family == "adversarial" else options.words
                        yield Job(case, name, order, family, group, words, length)


def measure(job: Job, place: str) -> dict[str, Any]:
    """The line of one job: for every word the tokens before its first wrong answer."""
    formats = dtypes(job.format)
    sums = formats["accumulate"] or arithmetic(formats["storage"])
    row: dict[str, Any] = {"key": job.key} | vars(job) | {"accumulate": str(sums)[6:], "device": place}
    torch.backends.cuda.matmul.allow_tf32 = job.format == "tf32"
    started = time.perf_counter()
    try:
        model = setting(job.case, job.format)
        proved = proved_length(job.case, *parts(job.format)) if job.order == "recurrent" else None
        how: dict[str, Any] = {"words": job.words, "length": job.length} | formats
        found = survival(model, tokens_of(job, place), order=job.order, device=place, **how).tolist()
    except Exception as error:
        # A job that cannot run leaves its reason, does not stop the others, and is tried again by the next sweep.
        return row | {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    alive = sum(n == job.length for n in found)
    seconds = time.perf_counter() - started
    violates = proved is not None and any(n < min(proved, job.length) for n in found)
    return row | {
        "survived": sorted(found),
        "least": min(found),
        "alive": alive,
        "proved": proved,
        "violates": violates,
        "seconds": round(seconds, 3),
    }


@lru_cache(8)
def searched(case: str, format: str, group: int, words: int, length: int) -> torch.Tensor:
    """Adversarial words, the same for every order."""
    how: dict[str, Any] = {"words": words, "length": length} | dtypes(format)
    return words_of("adversarial", setting(case, format), seed=1 + group, **how)(0, length)


def tokens_of(job: Job, place: str) -> Any:
    """The job's words; a group is a seed."""
    if job.family == "adversarial":
        found = searched(job.case, job.format, job.group, job.words, job.length)
        return lambda start, stop: found[:, start:stop]
    how: dict[str, Any] = {"words": job.words, "length": job.length, "storage": dtypes(job.format)["storage"]}
    return words_of(job.family, setting(job.case, job.format), seed=1 + job.group, device=place, **how)


def setting(case: str, format: str) -> Model:
    """A construction with tables in their format."""
    return model_of(weights(case, parts(format)[0]))


def parts(format: str) -> tuple[str, str, str]:
    """The formats of tables, states and sums; the last may be empty."""
    tables, state, sums, *_ = [*("float32" if format == "tf32" else format).split("/"), "", ""]
    return tables, state or tables, sums


def dtypes(format: str) -> dict[str, Any]:
    """The formats as `survival` takes them."""
    tables, state, sums = parts(format)
    return {
        "storage": getattr(torch, state),
        "tables_as": getattr(torch, tables),
        "accumulate": getattr(torch, sums) if sums else None,
    }


@cache
def construction(case: str) -> Any:
    return st.build(*CASES[case], check=False)


@cache
def weights(case: str, tables: str) -> Any:
    return construction(case).weights(tables)


@cache
def proved_length(case: str, tables: str, state: str, sums: str) -> float | None:
    """The length that every word may have (infinity: 1e300), None where nothing is proved of these formats.

    The bound is for tables and states of one format and arithmetic in float32 (float64 for float64) with sums in any
    order; so it holds for sums in that type or a longer one, not for shorter ones.
    """
    usual = arithmetic(getattr(torch, state))
    if tables != state or (sums and getattr(torch, sums).itemsize < usual.itemsize):
        return None
    return min(float(weights(case, tables).horizon()), 1e300)


def lines(folder: Path) -> list[dict[str, Any]]:
    """The whole lines of all parts; a line that was being written when a process was stopped is none."""
    found: list[dict[str, Any]] = []
    for path in sorted(folder.glob("part-*.jsonl")):
        text = path.read_text(encoding="utf-8")
        for line in text[: text.rfind("\n") + 1].splitlines():
            found.append(json.loads(line))
    return found


def mend(path: Path) -> None:
    """Cut off a line that was not written to its end."""
    if path.is_file():
        data = path.read_bytes()
        path.write_bytes(data[: data.rfind(b"\n") + 1])


def merged(folder: Path) -> list[dict[str, Any]]:
    """All lines, one a job, sorted by key, in survival.jsonl."""
    found = sorted(lines(folder), key=lambda row: (row["key"], "error" not in row))
    rows = list({row["key"]: row for row in found}.values())
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    (folder / "survival.jsonl").write_text(text, encoding="utf-8")
    return rows


if __name__ == "__main__":
    main()
