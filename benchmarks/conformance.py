"""Layer kernels on one device: which keep a compiled tracker's state, and for how long (`statetrack conform`).

A job is one kernel in one type of its inputs; jobs run side by side in processes of their own, for each compiles
kernels. Rows are those of `statetrack.kernels.conform.Row`, with the kernel's name and the type; failing inputs, made
small, go to the folder `--save`. `--recurrent N` gives the drift tests and the trackers N tokens through `ckda_decode`
as well (float32 state, token by token). Kernels run in one configuration each, which takes seconds a kernel where
autotuning takes minutes, and one configuration's numbers are what the rows state; `--tune` tunes them.
"""
# torch and fla are only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from report import save
from torch import Tensor
from tuning import TUNED, one_configuration

from statetrack.kernels.api import ckda_decode
from statetrack.kernels.conform import Tolerances, conform
from statetrack.kernels.layouts import Kernel, load_kernel

OURS = "statetrack.kernels.api:ckda"
KERNELS: dict[str, tuple[str, str, dict[str, Any], tuple[str, ...]]] = {
    "ckda fast": (OURS, "ours", {"precision": "fast"}, ("bfloat16", "float32")),
    "ckda tracking": (OURS, "ours", {"precision": "tracking"}, ("bfloat16", "float32")),
    "ckda exact": (OURS, "ours", {"precision": "exact"}, ("float32",)),
    "fla chunk_kda": ("fla.ops.kda:chunk_kda", "fla", {}, ("bfloat16", "float16", "float32")),
    "fla fused_recurrent_kda": ("fla.ops.kda:fused_recurrent_kda", "fla", {}, ("bfloat16", "float32")),
    "fla chunk_delta_rule": ("fla.ops.delta_rule:chunk_delta_rule", "fla", {}, ("bfloat16",)),
    "fla chunk_gated_delta_rule": ("fla.ops.gated_delta_rule:chunk_gated_delta_rule", "fla", {}, ("bfloat16",)),
    "fla chunk_gated_delta_product": (
        "fla.ops.gated_delta_product:chunk_gated_delta_product", "fla", {}, ("bfloat16",)
    ),
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


def job(name: str, dtype: str, lengths: tuple[int, ...], options: argparse.Namespace) -> list[dict[str, Any]]:
    """All rows of one kernel in one type; drift tests at every length, trackers at the longest."""
    rows: list[dict[str, Any]] = []
    if not options.tune:
        one_configuration()
    if name == "ckda recurrent":
        kernel = Kernel("ckda recurrent", recurrent, "ours")
        checks = tuple(check for check in options.checks if check in ("decode", "drift"))
    else:
        where, layout, keywords, _ = KERNELS[name]
        kernel = load_kernel(where, layout, keywords)  # pyright: ignore[reportArgumentType]
        checks = tuple(options.checks)
    made = conform(
        kernel, dtype=dtype, device=options.place, cases=options.cases, checks=checks, lengths=lengths,
        tolerances=RECURRENT if name == "ckda recurrent" else None,
        save=options.save and options.save / name.replace(" ", "-") / dtype, words=4, heads=2,
    )  # fmt: skip
    for row in made:
        facts = {"kernel": name, "dtype": dtype} | vars(row)
        rows.append({key: str(x) if isinstance(x, float) and x != x else x for key, x in facts.items()})
        rows[-1].pop("saved")
        print(name, dtype, row.case, row.check, row.length, row.status, row.horizon, row.norm, row.detail, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", help="torch device")
    parser.add_argument("--kernels", nargs="+", default=list(KERNELS))
    parser.add_argument("--cases", nargs="+", default=None)
    parser.add_argument("--checks", nargs="+", default=["decode", "split", "varlen", "gradient", "drift"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[1024, 4096, 32768])
    parser.add_argument("--recurrent", type=int, default=0, help="tokens through ckda_decode; 0: not run")
    parser.add_argument("--tune", action="store_true", help="autotune the kernels")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--save", type=Path, default=None, help="folder for failing inputs")
    options = parser.parse_args()
    asked = [(name, dtype, tuple(options.lengths)) for name in options.kernels for dtype in KERNELS[name][3]]
    if options.recurrent:
        asked.append(("ckda recurrent", "float32", (options.recurrent,)))
    name = torch.cuda.get_device_name() if options.place.startswith("cuda") else options.place
    name = f"{name}, {'kernels autotuned' if options.tune else TUNED}"
    rows: list[dict[str, Any]] = []
    for more in done(job, asked, options):
        # What is measured is kept, also when the run is stopped.
        rows = sorted(rows + more, key=lambda r: (r["kernel"], r["dtype"]))
        save("conformance", options.device, rows, name)


def done(
    task: Callable[..., list[dict[str, Any]]], asked: list[Any], options: argparse.Namespace
) -> Iterator[list[dict[str, Any]]]:
    """The rows of each job as it ends; a job that breaks is a row with an error."""
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        futures = {pool.submit(task, *one, options): one for one in asked}
        for future in as_completed(futures):
            try:
                yield future.result()
            except Exception as error:
                name, dtype, *_ = futures[future]
                text = " ".join(str(error).split())[:200]
                yield [{"kernel": name, "dtype": dtype, "status": "error", "detail": text}]


if __name__ == "__main__":
    main()
