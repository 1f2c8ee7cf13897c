"""Mutation audit: one place of the exact rooms is changed at a time; do the claims or the tests notice?

The places are drawn by a seed from all of theory/ and constructions/; docstrings, messages of errors, annotations,
decorators and `if TYPE_CHECKING` are left out. A mutant lives in a copy of the repository. It is judged by the claims
and by the tests nearest to its module, and if it is still alive by the whole suite; so a survivor also shows that the
suite passes in such a copy. The journal keeps what is done, so that a run that was stopped goes on; with --again the
survivors are judged anew. Notes on mutants stand in results/mutations-notes.json by name; a survivor whose note says
`equivalent` (what the code promises still holds) is not run through the suite.

Weighed against: cosmic-ray 8.7 (changes files in place, one command for all mutants, no sample, no min for max);
mutmut 3.8 (judges by pytest alone, not by the claims, no sample, and functions run rewritten behind its dispatch).
"""
# pyright: basic

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report import RESULTS, save

ROOT = Path(__file__).parents[1]
NOTES = RESULTS / "mutations-notes.json"
OPERATORS = """Add Sub, Sub Add, Mult Add, Div Mult, FloorDiv Mult, Mod FloorDiv, Pow Mult, LShift RShift, BitAnd BitOr,
RShift LShift, BitOr BitAnd, BitXor BitOr, And Or, Or And, Lt LtE, LtE Lt, Gt GtE, GtE Gt, Eq NotEq, NotEq Eq, In NotIn,
NotIn In, Is IsNot, IsNot Is"""
SWAPS = {getattr(ast, x): getattr(ast, y) for x, y in map(str.split, OPERATORS.split(","))}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SECONDS = {"claims": 180, "near": 300, "suite": 1500}
Found = dict[tuple[str, str], dict[str, Any]]


@dataclass(frozen=True)
class Mutant:
    """A module with one expression replaced; its name is the file, the function and the line before and after."""

    file: str
    line: int
    name: str
    text: str

    def verdict(self, done: Found, notes: dict[str, str]) -> str:
        if any(done.get((self.name, stage), {}).get("by") for stage in SECONDS):
            return "killed"
        return "equivalent" if notes.get(self.name, "").startswith("equivalent") else "survived"


def places(path: Path) -> Iterator[list[Mutant]]:
    """For each place of a module its mutants, in the order of the source."""
    source, file = path.read_text(encoding="utf-8"), str(path.relative_to(ROOT))
    lines = source.encode().splitlines(keepends=True)
    for node, function in _expressions(ast.parse(source), ""):
        first, last, found = node.lineno - 1, node.end_lineno, list[Mutant]()
        old = b" ".join(line.strip() for line in lines[first:last]).decode()
        before, after = lines[first][: node.col_offset], lines[last - 1][node.end_col_offset :]
        for other in _changed(node):
            new = before + f"({ast.unparse(other)})".encode() + after
            text = b"".join((*lines[:first], new, *lines[last:])).decode()
            found.append(Mutant(file, node.lineno, f"{file} {function}: {old} -> {new.decode().strip()}", text))
        if found:
            yield found


def _expressions(node: ast.AST, function: str) -> Iterator[tuple[Any, str]]:
    """The expressions that are run, with the name of the function or class that they stand in."""
    typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    # Whether zip is strict changes no result.
    if typing or isinstance(node, ast.Raise | ast.JoinedStr) or getattr(node, "arg", "") == "strict":
        return
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    elif isinstance(node, ast.expr):
        yield node, function
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and name not in ("annotation", "returns", "decorator_list", "msg"):
                yield from _expressions(child, function)


def _changed(node: Any) -> Iterator[ast.expr]:
    """The expression with one thing changed: an operator, a sign, a number off by one, min for max, any for all."""
    parts, other = [*ast.iter_child_nodes(node)], copy.deepcopy(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        yield ast.BinOp(node.right, node.op, node.left)
    elif isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in SWAPS:
        types = isinstance(node.op, ast.BitOr) and any(isinstance(x, ast.Name) and x.id[0].isupper() for x in parts)
        texts = any(isinstance(x, ast.JoinedStr) or isinstance(getattr(x, "value", 0), str) for x in parts)
        if not types and not texts:
            other.op = SWAPS[type(node.op)]()
            yield other
    elif isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            yield ast.Compare(node.left, [*node.ops[:i], SWAPS[type(op)](), *node.ops[i + 1 :]], node.comparators)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        yield other.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        truth = isinstance(node.value, bool)
        yield from map(ast.Constant, [not node.value] if truth else [node.value + 1, node.value - 1])
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS:
        other.func.id = CALLS[node.func.id]
        yield other


def nearest(file: str) -> list[str]:
    """The module, for its examples, and the tests of its name or that import it, or those of a module that does."""
    room, stem = Path(file).parts[1], Path(file).stem
    text = {p: p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py")}
    found = [p for p in text if p.parent.name == room and p.stem.removeprefix("test_") in stem]
    using = [p for p in text if re.search(rf"statetrack\.{room}(\.{stem} import| import .*\b{stem}\b)", text[p])]
    found += sorted(using, key=lambda p: text[p].count("from statetrack"))[:4]
    near = [file, *(str(p.relative_to(ROOT)) for p in found)]
    for path in () if found else sorted((ROOT / "statetrack" / room).glob("*.py")):
        if f"from .{stem} import" in path.read_text(encoding="utf-8"):
            near += nearest(str(path.relative_to(ROOT)))[1:2]
    return [*dict.fromkeys(near)]


def judge(mutant: Mutant, stage: str) -> dict[str, Any]:
    """Run one stage on a copy of the repository that holds the mutant: what noticed it, and after how long."""
    command = "statetrack verify --budget fast --json" if stage == "claims" else "pytest -x -n 2 --tb=no -rfE"
    command = [sys.executable, "-m", *command.split(), *(nearest(mutant.file) if stage == "near" else ())]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "repository"
        shutil.copytree(ROOT, place, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        (place / mutant.file).write_text(mutant.text, encoding="utf-8")
        started, out = time.monotonic(), {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        out |= {"cwd": place, "env": os.environ | {"PYTHONPATH": str(place)}, "start_new_session": True}
        run = subprocess.Popen(command, **out)
        try:
            said = run.communicate(timeout=SECONDS[stage])[0]
            by = _noticed(said) if run.returncode not in (0, 5) else ""
        except subprocess.TimeoutExpired:
            by = f"over {SECONDS[stage]} s"
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
                run.wait()
    return {"name": mutant.name, "stage": stage, "by": by, "seconds": round(time.monotonic() - started, 1)}


def _noticed(said: str) -> str:
    """The first claim that is not proved or the first test that fails, or the last line of what was said."""
    found = re.search(r'"id": "(\S+)", "verdict": "(?:refuted|error)"|^(?:FAILED|ERROR) (\S+)', said, re.MULTILINE)
    return (found[1] or found[2]) if found else said.strip().rpartition("\n")[2][:100] or "no answer"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", help="name in the file name of the results")
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="judge survivors without a note anew")
    parser.add_argument("--journal", type=Path, default=Path(tempfile.gettempdir()) / "statetrack-mutations.jsonl")
    options = parser.parse_args()
    # The tests of interrupts need them, and a job in the background has them ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    paths = sorted(p for room in ("theory", "constructions") for p in (ROOT / "statetrack" / room).glob("*.py"))
    every, draw = [place for path in paths for place in places(path)], random.Random(options.seed)
    drawn = [draw.choice(place) for place in draw.sample(every, options.count)]
    notes = json.loads(NOTES.read_text(encoding="utf-8")) if NOTES.exists() else {}
    lines = options.journal.read_text(encoding="utf-8").splitlines() if options.journal.exists() else []
    done: Found = {(line["name"], line["stage"]): line for line in map(json.loads, lines)}
    again = {m.name for m in drawn if options.again and m.verdict(done, notes) == "survived"}
    done = {key: line for key, line in done.items() if key[0] not in again or key[1] == "claims"}
    for mutant, stage in [(m, s) for stages in (("claims", "near"), ("suite",)) for m in drawn for s in stages]:
        settled = stage == "suite" and mutant.verdict(done, notes) != "survived"
        if not settled and (mutant.name, stage) not in done:
            done[mutant.name, stage] = judge(mutant, stage)
            with options.journal.open("a", encoding="utf-8") as journal:
                journal.write(json.dumps(done[mutant.name, stage]) + "\n")
            print(done[mutant.name, stage], file=sys.stderr)
    rows: list[dict[str, Any]] = []
    for m in drawn:
        stages = {s: done[m.name, s] for s in SECONDS if (m.name, s) in done}
        by = {s: stages.get(s, {}).get("by") for s in SECONDS} | {f"{s} s": v["seconds"] for s, v in stages.items()}
        told = {"mutant": m.name, "verdict": m.verdict(done, notes), "note": notes.get(m.name, "")}
        rows.append({"seed": options.seed, "line": m.line} | told | by)
    save("mutations", options.device, rows, f"{platform.machine()}, {options.device}; of {len(every)} places")
    print(Counter(row["verdict"] for row in rows))


if __name__ == "__main__":
    main()
