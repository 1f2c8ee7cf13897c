"""Machine code of the layer kernels, made without a GPU: every uniform register is written before it is read."""
# pyright: basic

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
# The first is that of ptxas 12.8: UR4 is written nowhere.
READING = r"""
import sys
sys.path.insert(0, sys.argv[1])
from undefined_registers import undefined

print(undefined('''
        /*0010*/                   ULDC.64 UR6, c[0x0][0x208] ;
        /*0020*/                   UMOV UR8, 0x400 ;
        /*0030*/              @!P0 UIADD3 UR9, UP0, UR4, 0x20, URZ ;
        /*0040*/                   LDG.E R5, desc[UR6][R38.64] ;
        /*0050*/                   UMOV UR11, URZ ;
        /*0060*/                   R2UR UR10, R3 ;
        /*0070*/                   HGMMA.64x16x16.F32.BF16 R24, gdesc[UR8].tnspB, R24 ;
        /*0080*/                   HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12].tnspB, R24 ;
        /*0090*/                   UIADD3.64 UR14, UR8, 0x40, URZ ;
        /*00a0*/                   REDUX.SUM.S32 UR16, R46 ;
        /*00b0*/                   UISETP.GE.AND UP0, UPT, UR17, UR16, UPT ;
        /*00c0*/                   HGMMA.64x16x16.F32.BF16 R24, R40, gdesc[UR12], R24 ;
'''))
"""
COMPILING = """
import sys
sys.path.insert(0, sys.argv[1])
from undefined_registers import call, compile_only, disassembled, undefined
from statetrack.kernels.chunk_triton import launches

made = compile_only(90)
call(32, 32, 1, 24, True, "signed", True, "fast", launches(32, 32, 1, "fast", True, 1, True)[0])
names = sorted(kernel.metadata.name for kernel in made.values())
code = [disassembled(kernel.asm["cubin"]) for kernel in made.values()]
print(names, sum("HGMMA" in sass for sass in code), [undefined(sass) for sass in code])
"""


def output(script: str, folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(folder), "PYTHONPATH": str(BENCHMARKS.parent)}
    command = [sys.executable, "-c", script, str(BENCHMARKS)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_a_register_that_nothing_writes_is_named(tmp_path: Path) -> None:
    assert output(READING, tmp_path).strip() == repr(
        [
            "UIADD3 UR9, UP0, UR4, 0x20, URZ",
            "HGMMA.64x16x16.F32.BF16 R24, gdesc[UR12].tnspB, R24",
            "UISETP.GE.AND UP0, UPT, UR17, UR16, UPT",
        ]
    )


def test_a_call_compiles_to_code_that_reads_what_it_wrote(tmp_path: Path) -> None:
    # Only `solve_kernel`, whose blocks have 16 rows, needs no warp-group products.
    kernels = ["backward_kernel", "forward_kernel", "row_gradient_kernel", "row_matrix_kernel", "row_prepare_kernel"]
    assert output(COMPILING, tmp_path).strip() == f"{[*kernels, 'solve_kernel']} 5 {[[]] * 6}"
