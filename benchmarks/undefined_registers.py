"""The layer kernels' machine code, made without a GPU: registers that it reads and nothing writes.

    python benchmarks/undefined_registers.py --device sm90

ptxas 12.8, which Triton 3.7.1 brings, makes such code from some kernels that are right: the address of a tile in shared
memory is taken from a uniform register that was never set, and the product is that of whatever lies there. Results are
wrong by any factor, or the kernel reads outside of memory, and only in one configuration and one shape; an interpreter
and every other configuration are right. So every configuration that `launches` offers is compiled as a call would
compile it, forwards and backwards, for long sequences and for those of one chunk, and its instructions are read in
their order. A register that is read before any instruction writes it is a defect; its row names the kernel.

Needs the tools that Triton brings (ptxas, cuobjdump) and no device.
"""
# triton is only partly typed.
# pyright: basic

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from itertools import product
from multiprocessing import get_context
from typing import Any

import torch
from report import save
from rich.progress import track

SHAPES = [(128, 128), (64, 64), (64, 96), (192, 192)]
_INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P[0-9T]+ )?(\S+)\s*(.*?)\s*;")
_UNIFORM = re.compile(r"(g?desc\[)?\bUR(\d+)")


def undefined(sass: str) -> list[str]:
    """The instructions that read a uniform register which none before them writes, in the order of the code."""
    written: set[int] = set()
    found: list[str] = []
    for line in sass.splitlines():
        match = _INSTRUCTION.search(line)
        if match is None:
            continue
        name, rest = match.groups()
        writes, reads = _uniform(name, [part.strip() for part in rest.split(",")])
        if reads - written:
            found.append(f"{name} {rest}")
        written |= writes
    return found


def _uniform(name: str, operands: list[str]) -> tuple[set[int], set[int]]:
    """Uniform registers that an instruction writes and those that it reads."""
    width = 4 if ".128" in name else 2 if ".64" in name or "WIDE" in name else 1
    writes: set[int] = set()
    reads: set[int] = set()
    for place, operand in enumerate(operands):
        for holder, number in _UNIFORM.findall(operand):
            first = int(number)
            if holder == "gdesc[":
                # Four registers hold the addresses of both operands of a product; the first may be in registers.
                half = re.fullmatch(r"R\d+", operands[1]) is not None
                reads |= set(range(first + 2 * half, first + 4))
            elif holder:
                reads |= {first, first + 1}
            elif place == 0 and operand == f"UR{number}":
                writes |= set(range(first, first + (1 if name == "R2UR" else width)))
            else:
                reads |= set(range(first, first + (2 if name == "UIADD3.64" else 1)))
    return writes, reads


class NoDevice:
    """What Triton asks of a device before it compiles."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: Any = None) -> int:
        return 0


def compile_only(capability: int) -> dict[str, Any]:
    """Have every launch of this process compile and not run; the kernels that were compiled, by what they are."""
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    made: dict[str, Any] = {}
    run = JITFunction.run

    def compiled(self: Any, *args: Any, **kwargs: Any) -> Any:
        kernel: Any = run(self, *args, **kwargs | {"warmup": True})
        made.setdefault(kernel.hash, kernel)
        return kernel

    nowhere: Any = NoDevice(capability)
    driver.set_active(nowhere)
    JITFunction.run = compiled
    return made


def call(
    K: int, V: int, factors: int, time: int, scalar: bool, kind: Any, half: bool, precision: Any, launch: Any
) -> None:  # fmt: skip
    """Compile one call, forwards and backwards."""
    from statetrack.kernels.chunk_triton import ckda_chunk
    from statetrack.kernels.gates import Gate

    heads, dtype = (1 if time < 64 else 2), torch.bfloat16 if half else torch.float32

    def new(*shape: int) -> torch.Tensor:
        return torch.zeros(*shape, dtype=dtype).requires_grad_()

    start = torch.zeros(1, heads, K, V).requires_grad_()
    gate = Gate(kind) if kind == "none" else Gate(kind, new(1, time, heads, 1 if scalar else K))
    o, last = ckda_chunk(
        new(1, time, heads, K), new(1, time * factors, heads, K), new(1, time * factors, heads, V),
        new(1, time * factors, heads), gate, scale=1.0, factors=factors, initial_state=start, output_final_state=True,
        precision=precision, launch=launch,
    )  # fmt: skip
    assert last is not None
    (o.float().sum() + last.sum()).backward()


def asked() -> Iterator[dict[str, Any]]:
    """Shapes, types and gates, one job each: the layers' format first."""
    formats = [(True, "fast"), (False, "fast"), (True, "tracking"), (False, "tracking"), (False, "exact")]
    for (half, precision), (K, V), factors in product(formats, SHAPES, (1, 2, 4)):
        if (half and precision == "fast") or (K == V <= 128 and factors <= 2):
            for scalar, kind in ((False, "signed"), (True, "signed"), (True, "none")):
                yield {
                    "K": K, "V": V, "factors": factors, "half": half, "precision": precision, "scalar": scalar,
                    "kind": kind,
                }  # fmt: skip


def job(sizes: dict[str, Any], capability: int) -> dict[str, Any]:
    """What came of every configuration of a job, for many tokens and for one chunk."""
    from statetrack.kernels.chunk_triton import fits_rows, launches

    made = compile_only(capability)
    K, V, factors = sizes["K"], sizes["V"], sizes["factors"]
    light = sizes["half"] and sizes["precision"] == "fast"
    own = sizes["scalar"] and fits_rows(K, factors, light)
    offered = [launches(K, V, factors, sizes["precision"], light, programs, own) for programs in (1, 32, 128)]
    # Calls take the first. The others are for those who tune: they are compiled in the layers' format and sizes.
    tuned = light and K == V
    several = dict.fromkeys(launch for some in offered for launch in (some if tuned else some[:1]))
    for launch, time in product(several, (300, 24)):
        call(**sizes, time=time, launch=launch)
    defects = list[str]()
    for kernel in made.values():
        for instruction in undefined(disassembled(kernel.asm["cubin"])):
            defects.append(f"{kernel.metadata.name}: {instruction}")
    return sizes | {
        "configurations": len(several),
        "kernels": len(made),
        "most_shared": max(kernel.metadata.shared for kernel in made.values()),
        "defects": len(defects),
        "first_defect": defects[0] if defects else "",
    }


def disassembled(cubin: bytes) -> str:
    """The instructions of a compiled kernel."""
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "-sass", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def ptxas(capability: int) -> str:
    from triton.backends.nvidia.compiler import get_ptxas

    return f"ptxas {get_ptxas(capability).version}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="sm90", help="name in the file name of the results")
    parser.add_argument("--capability", type=int, default=90, help="compute capability that is compiled for")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if os.environ.pop("TRITON_INTERPRET", "0") != "0":
        parser.error("TRITON_INTERPRET is set: nothing would be compiled; unset it")
    rows = list[dict[str, Any]]()
    sizes = list(asked())
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        futures = [pool.submit(job, one, options.capability) for one in sizes]
        for future in track(as_completed(futures), "compiling", total=len(futures)):
            rows.append(future.result())
            # What is found is kept, also when the run is stopped.
            rows.sort(key=lambda row: sizes.index({name: row[name] for name in sizes[0]}))
            save("undefined-registers", options.device, rows, f"sm_{options.capability}, {ptxas(options.capability)}")
    sys.exit(1 if any(row["defects"] for row in rows) else 0)


if __name__ == "__main__":
    main()
