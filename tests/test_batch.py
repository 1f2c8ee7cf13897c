"""A batch over a folder: every job ends once, whatever is killed on the way, and nothing done is done again."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import statetrack
from statetrack import workers
from statetrack.batch import Summary, automaton_files, batch
from statetrack.constructions.source import Options
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.workers import Job, Outcome, Request

DATA = Path(__file__).parent / "data" / "automata"
NAMES = ("bin_div3.json", "mod6.json", "mod6_noop.json", "parity.json", "s3_cayley.json", "s3_points.json")

# What workers do in these tests, in a module that they can import; it logs who begins and ends which job.
WORK = """
import os, signal, time
from statetrack.workers import build_job

def log(what, job):
    with open(os.environ["BATCH_LOG"], "a") as lines:
        lines.write(f"{what} {job.file} {os.getpid()} {os.getppid()}\\n")

def counted(job):
    log("begin", job)
    outcome = build_job(job)
    log("end", job)
    return outcome

def slow(job):
    log("begin", job)
    time.sleep(0.4)
    outcome = build_job(job)
    log("end", job)
    return outcome

def held(job):
    log("begin", job)
    while job.file >= "parity" and not os.path.exists(os.environ["BATCH_LOG"] + ".go"):
        time.sleep(0.05)
    outcome = build_job(job)
    log("end", job)
    return outcome

def deadly(job):
    if job.file == "mod6.json":
        os.kill(os.getpid(), signal.SIGKILL)
    return counted(job)

def poison(job):
    if job.file == "mod6.json":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
    return build_job(job)

def deaf(job):
    if job.file == "mod6.json":
        time.sleep(600)
    return counted(job)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "automata"
    place.mkdir()
    for name in NAMES:
        shutil.copy(DATA / name, place)
    return place


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "batch_work.py").write_text(WORK)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "code"), *sys.path])
    monkeypatch.delitem(sys.modules, "batch_work", raising=False)
    path = tmp_path / "log"
    path.touch()
    monkeypatch.setenv("BATCH_LOG", str(path))
    return path


def work(name: str) -> Callable[[Job], Outcome]:
    return getattr(import_module("batch_work"), name)


def logged(log: Path, what: str) -> list[str]:
    lines = (line.split() for line in log.read_text().splitlines())
    return [words[1] for words in lines if words[0] == what]


def journal(output: Path) -> list[dict[str, Any]]:
    path = output / "jobs.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def until(met: Callable[[], bool], seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def statuses(summary: Summary) -> dict[str, str]:
    return {record.file: record.status for record in summary.records}


def test_a_folder_is_built_once_and_only_what_changed_again(folder: Path, log: Path) -> None:
    (folder / "broken.json").write_text('{"alphabet": [')
    (folder / "README.txt").write_text("no automaton")
    seen: list[int] = []
    first = batch(folder, "ckda", jobs=2, work=work("counted"), progress=seen.append)
    output = folder / "statetrack-ckda"
    assert statuses(first) == dict.fromkeys(NAMES, "built") | {"broken.json": "failed"}
    assert first.exit_code == 1
    assert seen == list(range(8))
    weights = statetrack.load(output / "s3_cayley.json.safetensors")
    assert weights.certificate["digest"] == first.records[-2].facts["digest"]
    error = json.loads((output / "broken.json.refused.json").read_text())
    assert error["error"] == "InvalidFile"
    assert error["message"].startswith("file broken.json: ")
    summary = json.loads((output / "summary.json").read_text())
    assert summary["counts"] == {"built": 6, "refused": 0, "failed": 1, "lost": 0, "kept": 0}
    assert [job["file"] for job in summary["jobs"]] == sorted([*NAMES, "broken.json"])

    before = {path: path.stat().st_mtime_ns for path in output.glob("*.safetensors")}
    again = batch(folder, "ckda", jobs=2, work=work("counted"))
    assert again.counts["kept"] == 7
    assert len(logged(log, "begin")) == 7
    assert {path: path.stat().st_mtime_ns for path in output.glob("*.safetensors")} == before

    # A changed file, a damaged result, a missing one, and a faulty file put right; the output of the other kind goes.
    shutil.copy(folder / "parity.json", folder / "mod6.json")
    (output / "s3_cayley.json.safetensors").write_bytes(b"damaged")
    (output / "bin_div3.json.safetensors").unlink()
    shutil.copy(folder / "parity.json", folder / "broken.json")
    log.write_text("")
    third = batch(folder, "ckda", jobs=2, work=work("counted"))
    assert sorted(logged(log, "begin")) == ["bin_div3.json", "broken.json", "mod6.json", "s3_cayley.json"]
    assert third.counts == {"built": 7, "refused": 0, "failed": 0, "lost": 0, "kept": 3}
    assert third.exit_code == 0
    assert not (output / "broken.json.refused.json").exists()
    assert [row["result"] for row in third.rows()].count("built before") == 3


def test_refusals_by_proof_have_their_witness_and_are_no_failures(folder: Path) -> None:
    for name in NAMES:
        if name not in ("parity.json", "mod6.json"):
            (folder / name).unlink()
    done = batch(folder, "diag[0,1]")
    assert done.counts == {"built": 0, "refused": 2, "failed": 0, "lost": 0, "kept": 0}
    assert done.exit_code == 0
    error = json.loads((folder / "statetrack-diag[0,1]" / "parity.json.refused.json").read_text())
    assert error["error"] == "NotExpressible"
    assert error["witness"]
    assert error["theorem"] in done.rows()[1]["why"]
    # Another folder of results is not taken for automata, nor is what lies in folders unless asked for.
    (folder / "more").mkdir()
    shutil.copy(folder / "parity.json", folder / "more" / "parity.json")
    found = automaton_files(folder, recursive=True, output=folder / "statetrack-ckda")
    assert [path.relative_to(folder).as_posix() for path in found] == ["mod6.json", "more/parity.json", "parity.json"]
    assert len(automaton_files(folder)) == 2
    deep = batch(folder, "ckda", recursive=True)
    assert (
        statetrack.load(folder / "statetrack-ckda" / "more" / "parity.json.safetensors").certificate["kind"]
        == "closure"
    )
    assert deep.counts["built"] == 3


def test_a_killed_worker_and_one_past_its_time_cost_their_own_job_only(
    folder: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = batch(folder, "ckda", jobs=2, work=work("deadly"))
    assert statuses(killed) == dict.fromkeys(NAMES, "built") | {"mod6.json": "lost"}
    assert "was killed" in killed.records[1].error["message"]
    assert killed.exit_code == 1
    # A lost job has no verdict: it is tried again, without being asked. This one does not even stop by itself.
    monkeypatch.setattr(workers, "_GRACE", 4.0)
    late = batch(folder, "ckda", jobs=2, work=work("deaf"), options=Options(max_seconds=0.5))
    assert late.counts == {"built": 5, "refused": 0, "failed": 1, "lost": 0, "kept": 5}
    assert late.records[1].error["error"] == "BudgetExceeded"
    # A failed one is kept, but with another limit or when asked to.
    log.write_text("")
    same = batch(folder, "ckda", work=work("counted"), options=Options(max_seconds=0.5))
    assert same.counts["kept"] == 6
    other = batch(folder, "ckda", work=work("counted"), options=Options(max_seconds=60.0))
    assert (other.counts["built"], other.counts["kept"]) == (6, 5)
    assert logged(log, "begin") == ["mod6.json"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "stopped"])
def test_a_batch_ended_in_the_middle_goes_on_where_it_was(folder: Path, log: Path, number: int) -> None:
    output = folder / "statetrack-ckda"
    # A process that was started in the background ignores SIGINT.
    code = f"""
import signal, batch_work, statetrack.batch as b
signal.signal(signal.SIGINT, signal.default_int_handler)
b.batch({str(folder)!r}, 'ckda', jobs=2, work=batch_work.held)
"""
    paths = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}, stderr=subprocess.DEVNULL
    ) as run:
        until(lambda: len(journal(output)) >= 2)
        with pytest.raises(InvalidFile, match="another batch is writing"):
            batch(folder, "ckda", work=work("held"))
        run.send_signal(number)
        try:
            assert run.wait(20) != 0
        finally:
            run.kill()
    pids = {int(line.split()[2]) for line in log.read_text().splitlines()}
    until(lambda: not any(map(alive, pids)), 10)
    recorded = {record["file"] for record in journal(output)}
    assert 2 <= len(recorded) < 6
    log.write_text("")
    log.with_suffix(".go").touch()
    done = batch(folder, "ckda", jobs=2, work=work("held"))
    assert done.counts == {"built": 6, "refused": 0, "failed": 0, "lost": 0, "kept": len(recorded)}
    assert sorted(logged(log, "begin")) == sorted(set(NAMES) - recorded)
    assert Counter(record["file"] for record in journal(output)) == Counter(NAMES)


def test_a_journal_cut_off_in_a_line_loses_that_line_only(folder: Path) -> None:
    output = folder / "statetrack-ckda"
    batch(folder, "ckda")
    text = (output / "jobs.jsonl").read_bytes()
    (output / "jobs.jsonl").write_bytes(text[:-20])
    done = batch(folder, "ckda")
    assert (done.counts["built"], done.counts["kept"]) == (6, 5)
    assert len(journal(output)) == 6
    (output / "jobs.jsonl").write_bytes(b"{}\n" + text)
    with pytest.raises(InvalidFile, match="line 1 is no record"):
        batch(folder, "ckda")


def test_a_symbol_table_travels_with_the_files_that_need_it(tmp_path: Path) -> None:
    formats = DATA.parent / "formats"
    for name in ("div3.att", "div3.json", "bits.syms"):
        shutil.copy(formats / name, tmp_path)
    options = Options(semiring="boolean", symbols=str(tmp_path / "bits.syms"))
    assert batch(tmp_path, "ckda", options=options).counts["built"] == 2
    assert statetrack.load(tmp_path / "statetrack-ckda" / "div3.att.safetensors").dfa.alphabet == ("0", "1")
    (tmp_path / "bits.syms").write_text("<eps> 0\nzero 1\none 2\n")
    done = batch(tmp_path, "ckda", options=options)
    assert [record.kept for record in done.records] == [False, True]
    assert "file div3.att:1: symbol" in done.records[0].error["message"]
    with pytest.raises(InvalidFile, match="give a symbol table"):
        batch(tmp_path, "ckda", options=Options(semiring="boolean", symbols=str(tmp_path / "none.syms")))


def test_processes_that_do_not_start_end_the_batch_and_lose_no_job(folder: Path) -> None:
    code = f"from statetrack.batch import batch\nbatch({str(folder)!r}, 'ckda')"
    (folder / "script.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    run = subprocess.run(
        [sys.executable, folder / "script.py"], env=environment, capture_output=True, text=True, check=False
    )
    assert "worker processes do not start here" in run.stderr.splitlines()[-1]
    assert journal(folder / "statetrack-ckda") == []


def test_a_job_is_what_decides_its_result() -> None:
    job = Job("a.json", b"{}", Request("ckda", Options()))
    assert job.identity == Job("a.json", b"{}", Request("ckda", Options(max_seconds=3.0, max_memory=500))).identity
    others = [
        Job("b.json", b"{}", job.request),
        Job("a.json", b"{ }", job.request),
        Job("a.json", b"{}", Request("kda")),
        Job("a.json", b"{}", Request("ckda", dtype="float64")),
        Job("a.json", b"{}", Request("ckda", Options(missing="sink"))),
        Job("a.json", b"{}", Request("ckda", max_dim=2)),
        Job("a.json", b"{}", job.request, table=b""),
        Job("a.json", b"{}", job.request, version="0"),
    ]
    assert len({job.identity, *(other.identity for other in others)}) == 9


def test_what_cannot_be_used_is_one_clear_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(InvalidFile, match="no automaton file in it"):
        batch(folder / "empty", "ckda")
    with pytest.raises(InvalidFile, match="cannot be read as a folder"):
        batch(folder / "parity.json", "ckda")
    with pytest.raises(InvalidInput, match="the folder of the automata itself"):
        batch(folder, "ckda", folder)
    with pytest.raises(InvalidFile, match="cannot be written"):
        batch(folder, "ckda", folder / "parity.json")
    with pytest.raises(InvalidInput, match="unknown target"):
        batch(folder, "cdka")
    with pytest.raises(InvalidInput, match="jobs 0"):
        batch(folder, "ckda", jobs=0)
    with pytest.raises(InvalidInput, match="one of them"):
        batch(folder, "ckda", jobs=2, scheduler="tcp://127.0.0.1:1")
    monkeypatch.setattr(workers, "_GRACE", 0.5)
    with pytest.raises(InvalidInput, match=r"scheduler tcp://127\.0\.0\.1:1: not reached"):
        batch(folder, "ckda", scheduler="tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InvalidInput, match=r"pip install 'statetrack\[cluster\]'"):
        batch(folder, "ckda", scheduler="tcp://127.0.0.1:1")


def test_a_cluster_that_loses_workers_loses_no_job_and_repeats_none(folder: Path, log: Path) -> None:
    distributed: Any = pytest.importorskip("distributed")
    # Dask gives a job up that was on two lost workers; by default on four, with which the last part takes longer.
    once = import_module("dask.config").set({"distributed.scheduler.allowed-failures": 1})
    options: dict[str, Any] = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with once, distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **options) as cluster:
        address = cluster.scheduler_address

        def kill() -> None:
            # The worker is the parent of the first process that does a job; the job itself has then just begun.
            until(lambda: bool(logged(log, "begin")))
            os.kill(int(log.read_text().split()[3]), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        done = batch(folder, "ckda", scheduler=address, work=work("slow"))
        killer.join()
        assert done.counts == {"built": 6, "refused": 0, "failed": 0, "lost": 0, "kept": 0}
        assert sorted(logged(log, "end")) == sorted(NAMES)
        # The job whose worker was killed was begun twice, all others once.
        first = log.read_text().split()[1]
        assert Counter(logged(log, "begin")) == Counter([*NAMES, first])
        assert Counter(record["file"] for record in journal(folder / "statetrack-ckda")) == Counter(NAMES)
        again = batch(folder, "ckda", scheduler=address, work=work("slow"))
        assert again.counts["kept"] == 6

        # A job that ends its own process costs no worker; one that ends its worker each time costs no other job.
        for name in NAMES[2:5]:
            (folder / name).unlink()
        for name in ("deadly", "poison"):
            ended = batch(folder, "ckda", folder / name, scheduler=address, work=work(name))
            assert [record.status for record in ended.records] == ["built", "lost", "built"]
    local = batch(folder, "ckda", folder / "local", jobs=2)
    digests = {record.file: record.facts["digest"] for record in done.records}
    assert all(record.facts["digest"] == digests[record.file] for record in local.records)
