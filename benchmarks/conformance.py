"""Layer kernels on one device: which keep a compiled tracker's state, and for how long (`statetrack conform`).

A job is one kernel in one type of its inputs; jobs run side by side in processes of their own, for each compiles
kernels. Rows are those of `statetrack.kernels.conform_checks.Row`, with the kernel's name and the type, and are written
as they come; checks are taken in the order given, so that `--seconds` cuts off the last ones. A smallest failing input
for each failure goes to results/conformance-DEVICE-failing.jsonl, as a line that says how to make it again
(`statetrack conform KERNEL --replay FILE`). `--recurrent N` gives the drift tests and the trackers N tokens through
`ckda_decode` as well (float32 state, token by token). Kernels run in one configuration each, which takes seconds a
kernel where autotuning takes minutes, and one configuration's numbers are what the rows state; `--tune` tunes them.
"""
# torch and fla are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from multiprocessing import get_context
from pathlib import Path
from queue import Empty
from typing import Any

import torch
from report import RESULTS, save
from torch import Tensor
from tuning import TUNED, one_configuration

from statetrack.kernels.api import ckda_decode
from statetrack.kernels.conform import CHECKS, conform
from statetrack.kernels.conform_checks import Tolerances
from statetrack.kernels.layouts import Kernel, load_kernel

OURS = "statetrack.kernels.api:ckda"
TYPES = ("bfloat16", "float16", "float32")
KERNELS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "ckda fast": (OURS, "ours", {"precision": "fast"}, ("bfloat16", "float32")),
    "ckda tracking": (OURS, "ours", {"precision": "tracking"}, ("bfloat16", "float32")),
    "ckda exact": (OURS, "ours", {"precision": "exact"}, ("float32",)),
    "fla chunk_kda": ("fla.ops.kda:chunk_kda", "fla", {}, TYPES),
    "fla chunk_gated_delta_rule": ("fla.ops.gated_delta_rule:chunk_gated_delta_rule", "fla", {}, TYPES),
    "fla chunk_gated_delta_product": ("fla.ops.gated_delta_product:chunk_gated_delta_product", "fla", {}, TYPES),
    "fla chunk_delta_rule": ("fla.ops.delta_rule:chunk_delta_rule", "fla", {}, TYPES),
    "fla fused_recurrent_kda": ("fla.ops.kda:fused_recurrent_kda", "fla", {}, TYPES),
}  # fmt: skip


# Of a million tokens and more, each of which rounds the state.
RECURRENT = Tolerances(state=5e-2, norm=1e-2)


def recurrent(
    q: Tensor, k: Tensor, v: Tensor, alpha: Tensor | None, beta: Tensor, *, factors: int = 1,
    initial_state: Tensor | None = None, output_final_state: bool = True, cu_seqlens: Tensor | None = None,
    scale: float | None = None, normalize_keys: bool = True, normalize_queries: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`ckda_decode` with the arguments of `ckda`."""
    del output_final_state
    state = initial_state
    if state is None:
        sequences = q.shape[0] if cu_seqlens is None else len(cu_seqlens) - 1
        state = q.new_zeros(sequences, v.shape[2], q.shape[3], v.shape[3], dtype=torch.float32)
    return ckda_decode(
        q, k, v, alpha, beta, state, factors=factors, cu_seqlens=cu_seqlens, scale=scale,
        normalize_keys=normalize_keys, normalize_queries=normalize_queries,
    )  # fmt: skip


def job(name: str, dtype: str, options: argparse.Namespace, lengths: tuple[int, ...] = ()) -> None:
    """All rows of one kernel in one type, onto the queue; drift tests at every length, trackers at the longest."""
    if not options.tune:
        one_configuration()
    torch.set_num_threads(2)
    own = name == "ckda recurrent"
    where, layout, keywords, _ = KERNELS.get(name, (name, "fla", {}, TYPES))
    kernel = Kernel(name, recurrent) if own else load_kernel(where, layout, keywords)  # pyright: ignore[reportArgumentType]
    for check in (check for check in options.checks if not own or check in ("decode", "drift")):
        drifts = tuple(options.drift_lengths or options.lengths)
        made = conform(
            kernel, dtype=dtype, device=options.place, cases=options.cases, checks=(check,), words=4, heads=2,
            lengths=lengths or (drifts if check == "drift" else tuple(options.lengths)),
            tolerances=RECURRENT if own else None, save=options.save,
        )  # fmt: skip
        while time.time() < options.end:
            row = next(made, None)
            if row is None:
                break
            facts = {"kernel": name, "dtype": dtype} | vars(row)
            facts.pop("saved")
            ROWS[0].put({key: str(x) if isinstance(x, float) and x != x else x for key, x in facts.items()})
            print(
                name, dtype, row.case, row.check, row.length, row.status, row.horizon, row.norm, row.detail, flush=True
            )
        else:
            left = {"kernel": name, "dtype": dtype, "check": check, "status": "not run", "detail": "the time was up"}
            ROWS[0].put(left)


# The queue of rows, in a job's process.
ROWS: list[Any] = []


def settings() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", help="torch device")
    parser.add_argument(
        "--kernels", nargs="+", default=["ckda", "fla"],
        help="names, or how they begin (ckda, fla), or MODULE:FUNCTION in the layout of flash-linear-attention",
    )  # fmt: skip
    parser.add_argument("--types", nargs="+", default=list(TYPES), help="of those that a kernel is run in")
    parser.add_argument("--cases", nargs="+", default=None)
    parser.add_argument("--checks", nargs="+", default=list(CHECKS))
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096, 32768])
    parser.add_argument("--drift-lengths", nargs="+", type=int, default=None, help="of drift tests (--lengths)")
    parser.add_argument("--recurrent", type=int, default=0, help="tokens through ckda_decode; 0: not run")
    parser.add_argument("--tune", action="store_true", help="autotune the kernels")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no check after so long")
    parser.add_argument("--add", action="store_true", help="keep what the result file has of other kernels and checks")
    parser.add_argument("--output", type=Path, default=RESULTS, help="folder of the results")
    parser.add_argument("--no-save", action="store_true", help="look for no smallest failing inputs")
    options = parser.parse_args()
    options.end = time.time() + options.seconds
    options.save = None if options.no_save else options.output / f"conformance-{options.device}-failing.jsonl"
    return options


def main() -> None:
    options = settings()
    if options.save is not None and not options.add:
        options.save.unlink(missing_ok=True)
    found = {n: KERNELS[n][3] for n in KERNELS if any(n == k or n.startswith(f"{k} ") for k in options.kernels)}
    found |= {k: TYPES for k in options.kernels if ":" in k}
    asked: list[tuple[Any, ...]] = [(n, t, options) for n, types in found.items() for t in types if t in options.types]
    if options.recurrent:
        asked.append(("ckda recurrent", "float32", options, (options.recurrent,)))
    name = torch.cuda.get_device_name() if options.place.startswith("cuda") else options.place
    name = f"{name}, {'kernels autotuned' if options.tune else TUNED}"
    again = {(kernel, dtype, check) for kernel, dtype, *_ in asked for check in options.checks}
    before = options.output / f"conformance-{options.device}.json"
    rows: list[dict[str, Any]] = json.loads(before.read_text(encoding="utf-8"))["rows"] if options.add else []
    rows = [row for row in rows if (row["kernel"], row["dtype"], row.get("check")) not in again]
    for more in done(job, asked, options.jobs):
        # What is measured is kept, also when the run is stopped.
        rows = sorted(rows + more, key=lambda r: (r["kernel"], r["dtype"]))
        save("conformance", options.device, rows, name, options.output)
    if options.save is not None and options.save.is_file():
        # Drift tests of several lengths often fail on one and the same beginning.
        lines = map(json.loads, sorted(options.save.read_text(encoding="utf-8").splitlines()))
        once = {(x["kernel"], str(x["options"]), x["check"], x["sha256"]): x for x in lines}
        options.save.write_text("".join(f"{json.dumps(x)}\n" for x in once.values()), encoding="utf-8")


def begin(rows: Any) -> None:
    """In a job's process: where its rows go."""
    ROWS.append(rows)


def done(task: Callable[..., None], asked: list[tuple[Any, ...]], jobs: int) -> Iterator[list[dict[str, Any]]]:
    """The rows as they come, those of five seconds at a time; a job that breaks is a row with an error.

    Each job has a process of its own: a kernel that writes where it must not takes its process's context with it.
    """
    context = get_context("spawn")
    rows = context.Queue()
    pool = ProcessPoolExecutor(jobs, context, begin, (rows,), max_tasks_per_child=1)
    with pool:
        futures = {pool.submit(task, *one): one for one in asked}
        while futures:
            ended, _ = wait_for(futures, timeout=5.0)
            ended = {future for future in futures if future.done()}
            more: list[dict[str, Any]] = []
            for future in ended:
                name, dtype, *_ = futures.pop(future)
                if (error := future.exception()) is not None:
                    text = " ".join(str(error).split())[:200]
                    more.append({"kernel": name, "dtype": dtype, "status": "error", "detail": text})
            # What a job put on the queue arrives a little after the job has ended.
            while True:
                try:
                    more.append(rows.get(timeout=0.5 if ended else 0.01))
                except Empty:
                    break
            if more:
                yield more


if __name__ == "__main__":
    main()
