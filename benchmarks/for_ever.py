"""Encodings that are proved right for ever, run for 10^8 tokens: wrong states, and states outside the proved set.

For every construction and format that `build --precision` proves: `--words` random words of `--steps` tokens through
the recurrent kernel, every answer compared with the automaton's on the device; and after every `--segment` tokens the
bits of every column of every head's state are looked up in the set of float columns that the proof lists.
"""
# torch is only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from report import save
from torch import Tensor

import statetrack as st
from statetrack.kernels.load import model_of, random_tokens
from statetrack.kernels.run import execute

CASES = (
    *(("S5", "deltaproduct", form) for form in ("float32", "bfloat16", "float16", "float8_e4m3fn")),
    *(("S4", "deltaproduct", form) for form in ("float32", "bfloat16", "float16", "float8_e4m3fn")),
    *(("A5", "deltaproduct", form) for form in ("float32", "bfloat16", "float16", "float8_e4m3fn")),
    *((f"Z{m}", "ckda", "bfloat16") for m in (5, 7, 10, 16, 20, 24)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", help="name in the file name of the results")
    parser.add_argument("--place", default="cuda" if torch.cuda.is_available() else "cpu", help="torch device")
    parser.add_argument("--words", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=25_000)
    parser.add_argument("--segment", type=int, default=1_000)
    parser.add_argument("--cases", nargs="+", default=None, help="only these sources")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    try:
        for source, target, form in CASES:
            if options.cases and source not in options.cases:
                continue
            row: dict[str, Any] = {"source": source, "target": target, "state_format": form}
            try:
                row |= measure(source, target, form, options)
            except Exception as error:
                row["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            rows.append(row)
            print(row, flush=True)
    finally:
        name = torch.cuda.get_device_name() if options.place.startswith("cuda") else options.place
        save("for-ever", options.device, rows, name)
    if any(row.get("wrong") or row.get("outside") for row in rows):
        raise SystemExit("a state that is proved for ever went wrong")


def measure(source: str, target: str, form: str, options: argparse.Namespace) -> dict[str, Any]:
    _, weights, found = st.build(source, target, check=False).for_ever(form)
    proof = weights.float_proof
    if proof is None:
        return {"encoding": found.encoding, "error": f"not proved: {getattr(found.outcome, 'reason', '')}"}
    storage, place = getattr(torch, weights.storage), options.place
    watch = Watch(proof["heads"], storage, place)
    started = time.perf_counter()
    trace = execute(
        model_of(weights),
        lambda start, stop: random_tokens(len(weights.dfa.alphabet), options.words, start, stop, seed=11, device=place),
        length=options.steps,
        storage=storage,
        tables_as=getattr(torch, weights.dtype),
        device=place,
        chunk=options.segment,
        keep_answers=False,
        observe=watch,
    )
    return {
        "encoding": found.encoding,
        "class": proof["class"],
        "table_format": weights.dtype,
        "keys": weights.keys,
        "executor": trace.executor,
        "tokens": trace.tokens,
        "wrong": trace.wrong,
        "first_wrong": trace.first_wrong,
        "proved_columns": watch.proved,
        "columns_met": sum(int(m.sum()) for m in watch.met),
        "columns_looked_up": watch.looked_up,
        "outside": int(watch.outside),
        "seconds": time.perf_counter() - started,
    }


class Watch:
    """Looks up the bits of every state column in the proved set; minus zero counts as zero."""

    def __init__(self, heads: Sequence[Mapping[str, Any]], storage: torch.dtype, place: str) -> None:
        self._sets = [proved_bits(head, storage).to(place) for head in heads]
        self.met = [bits.new_zeros(len(bits), dtype=torch.bool) for bits in self._sets]
        self.proved = sum(len(bits) for bits in self._sets)
        self.looked_up, self.outside = 0, torch.zeros((), dtype=torch.int64, device=place)

    def __call__(self, states: Sequence[Tensor]) -> None:
        columns = [layer[:, h].transpose(1, 2).flatten(0, 1) for layer in states for h in range(layer.shape[1])]
        for bits, met, rows in zip(self._sets, self.met, columns, strict=True):
            for part in as_bits(rows).split(1 << 14):
                inside = (part[:, None, : bits.shape[1]] == bits[None]).all(-1)
                self.outside += (~inside.any(1)).sum() + (part[:, bits.shape[1] :] != 0).any(1).sum()
                met |= inside.any(0)
            self.looked_up += len(rows)


def proved_bits(head: Mapping[str, Any], storage: torch.dtype) -> Tensor:
    """The bits [columns, K] of a head's float columns in the proof."""
    rows = sorted({tuple(float.fromhex(x) for x in row) for _, many in head["columns"] for row in many})
    return as_bits(torch.tensor(rows, dtype=torch.float64).to(storage))


def as_bits(x: Tensor) -> Tensor:
    """The bits of float32 or shorter floats, each widened to float32 exactly; minus zero becomes zero."""
    return (x.float() + 0.0).view(torch.int32)


if __name__ == "__main__":
    main()
