"""Benchmarks that want no autotuning: a kernel of several configurations runs in the first that fits, untimed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KERNEL = """
import sys, torch, triton, triton.language as tl
sys.path.insert(0, sys.argv[1])
from tuning import one_configuration
assert one_configuration() and one_configuration()

@triton.autotune(configs=[triton.Config({"B": n}) for n in (2, 4, 8)], key=[])
@triton.jit
def write(x, B: tl.constexpr):
    tl.store(x + tl.arange(0, B), tl.full((B,), 1.0, tl.float32))

x = torch.zeros(8)
write[(1,)](x)
print(int(x.sum()), len(write.configs))
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_a_tuned_kernel_runs_in_its_first_configuration(tmp_path: Path) -> None:
    # The interpreter has no clock for kernels: a kernel that were timed would fail.
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    done = subprocess.run(
        [sys.executable, str(script), str(BENCHMARKS)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["2", "3"], done.stderr
