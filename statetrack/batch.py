"""Weights for every automaton of a folder: a resumable batch over processes of this machine or a Dask cluster.

A *job* is one file. Its identity is a SHA-256 over its name and bytes, what is asked for (target, options, number
format) and the version of statetrack. `jobs.jsonl` in the output folder has one line for every job that ended, written
after the job's own file; a job whose line has the same identity, and whose file has the digest of that line, is kept.

Main definitions: `batch`, `Summary`, `Record`, `automaton_files`.

References: docs/batch.md.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from statetrack import __version__
from statetrack.constructions.source import Options
from statetrack.constructions.targets import target as target_named
from statetrack.constructions.weights import write_whole
from statetrack.errors import InvalidFile, InvalidInput
from statetrack.guards import check_format
from statetrack.workers import Job, Outcome, Request, build_job, in_pool, on_cluster

SUFFIXES = (".json", ".dot", ".gv", ".jff", ".att")
JOURNAL = "jobs.jsonl"
STATUSES = ("built", "refused", "failed", "lost")


@dataclass(frozen=True)
class Record:
    """A job that ended, as its line in the journal says; `kept` if that was in an earlier run."""

    file: str
    identity: str
    status: str
    output: str
    sha256: str
    seconds: float
    limits: Sequence[float | None]
    facts: Mapping[str, Any]
    error: Mapping[str, Any]
    kept: bool = False

    def row(self) -> dict[str, Any]:
        """A line of the summary table."""
        facts, error = self.facts, self.error
        why = str(error.get("reason", error.get("message", "")))
        if "theorem" in error:
            why += f" [{error['theorem']}]"
        return {
            "file": self.file,
            "result": self.status + (" before" if self.kept else ""),
            "construction": facts.get("construction", "-"),
            "layers": facts.get("layers", "-"),
            "state sizes K": "; ".join(", ".join(map(str, r)) for r in facts.get("dims", ())) or "-",
            "factors a token": facts.get("factors_per_token", "-"),
            "seconds": round(self.seconds, 2),
            "why": f"{error['error']}: {why}"[:160] if error else "",
        }


@dataclass(frozen=True)
class Summary:
    """All jobs of a folder, in the order of their names."""

    folder: str
    output: str
    request: Request
    seconds: float
    records: tuple[Record, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Number of jobs of each status, and of those kept from an earlier run."""
        found = {status: sum(r.status == status for r in self.records) for status in STATUSES}
        return found | {"kept": sum(r.kept for r in self.records)}

    @property
    def exit_code(self) -> int:
        """0 if every file was built or is proved impossible, else 1."""
        return int(any(r.status not in ("built", "refused") for r in self.records))

    def rows(self) -> list[dict[str, Any]]:
        """The summary table."""
        return [record.row() for record in self.records]

    def to_json(self) -> dict[str, Any]:
        """The same facts and more for programs."""
        return {
            "folder": self.folder,
            "output": self.output,
            "version": __version__,
            "request": asdict(self.request),
            "counts": self.counts,
            "seconds": round(self.seconds, 3),
            "jobs": [asdict(record) for record in self.records],
        }


def batch(
    folder: str | Path,
    target: str,
    output: str | Path | None = None,
    *,
    options: Options | None = None,
    dtype: str = "float32",
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    proof: str = "closure",
    check: bool = True,
    jobs: int | None = None,
    scheduler: str | None = None,
    recursive: bool = False,
    retry: bool = False,
    progress: Callable[[int], None] | None = None,
    work: Callable[[Job], Outcome] | None = None,
) -> Summary:
    """Build weights for every automaton file of a folder; what an earlier run has done is kept.

    Args:
        output: folder for NAME.safetensors or NAME.refused.json (NAME with its suffix), `jobs.jsonl` and
            `summary.json`; by default FOLDER/statetrack-TARGET.
        options, max_dim, max_factors, construction, proof, check: as in `api.build_with`; `options.max_seconds` and
            `options.max_memory` bound each job.
        jobs: worker processes on this machine (default 1).
        scheduler: address of a Dask scheduler to send the jobs to instead.
        recursive: folders inside the folder too, except those with results.
        retry: try failed jobs again; lost ones always are.
        progress: told the number of jobs that ended, kept ones included.
        work: what a worker does with a job, a function it can import; `build_job` by default.

    Raises InvalidInput or InvalidFile for arguments, folders and a scheduler that cannot be used; never for one job.
    """
    request = Request(target, options or Options(), dtype, max_dim, max_factors, construction, proof, check)
    target_named(target)
    check_format(dtype)
    if jobs is not None and (jobs < 1 or scheduler is not None):
        raise InvalidInput(
            f"jobs {jobs}: give a number of at least 1" if jobs < 1 else "jobs and scheduler: give one of them"
        )
    place, table = Path(folder), _table(request.options.symbols)
    goal = Path(output) if output is not None else place / f"statetrack-{target}"
    files = automaton_files(place, recursive=recursive, output=goal)
    do = work or build_job
    started = time.perf_counter()
    with _Journal(goal) as journal:

        def execute(queue: Iterator[Job], count: int) -> Generator[tuple[Job, Outcome]]:
            if scheduler is not None:
                return on_cluster(queue, scheduler, do)
            return in_pool(queue, min(jobs or 1, count), do, request.options.max_seconds)

        records = _records(place, files, request, table, journal, execute, retry, progress)
        summary = Summary(str(place), str(goal), request, time.perf_counter() - started, records)
        write_whole(goal / "summary.json", json.dumps(summary.to_json(), indent=1, default=str).encode())
    return summary


def automaton_files(folder: Path, *, recursive: bool = False, output: Path | None = None) -> tuple[Path, ...]:
    """The automaton files of a folder, sorted by name; hidden ones and folders with results of batches left out.

    Raises InvalidFile if it is no folder that can be read, or has none.
    """
    goal = None if output is None else output.resolve()
    if goal == folder.resolve():
        raise InvalidInput(f"output {output}: is the folder of the automata itself; give another folder")
    found: list[Path] = []

    def stop(error: OSError) -> None:
        reason = f"cannot be read as a folder ({error.strerror})"
        raise InvalidFile(str(error.filename or folder), reason, "give a folder of automaton files")

    for top, folders, names in os.walk(folder, onerror=stop):
        inner = [d for d in folders if recursive and not d.startswith(".") and (Path(top) / d).resolve() != goal]
        folders[:] = [d for d in inner if not (Path(top) / d / JOURNAL).exists()]
        paths = (Path(top) / name for name in names if not name.startswith("."))
        found += [path for path in paths if path.suffix.lower() in SUFFIXES and path.is_file()]
    if not found:
        raise InvalidFile(str(folder), f"no automaton file in it ({' '.join(SUFFIXES)})", "give a folder with some")
    return tuple(sorted(found, key=lambda path: path.relative_to(folder).as_posix()))


class _Journal:
    """The output folder and its journal, locked while in use; the lock ends with the process that holds it."""

    def __init__(self, output: Path) -> None:
        self._output, self._path = output, output / JOURNAL
        self._last: dict[str, Record] = {}

    def __enter__(self) -> _Journal:
        try:
            self._output.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("ab+")
        except OSError as error:
            reason = f"cannot be written ({error.strerror})"
            raise InvalidFile(str(self._path), reason, "give another output folder") from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read()
        except BlockingIOError:
            self._file.close()
            instead = "wait for it, or give another output folder"
            raise InvalidFile(str(self._output), "another batch is writing to this folder", instead) from None
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def current(self, job: Job, retry: bool) -> Record | None:
        """The record of a job that need not be done again."""
        last = self._last.get(job.file)
        if last is None or last.identity != job.identity or last.status == "lost":
            return None
        if last.status == "failed" and (retry or list(last.limits) != job.request.limits):
            return None
        try:
            data = (self._output / last.output).read_bytes()
        except OSError:
            return None
        return replace(last, kept=True) if hashlib.sha256(data).hexdigest() == last.sha256 else None

    def add(self, job: Job, outcome: Outcome) -> Record:
        """Write a job's file, then its line; a file of the other kind that an earlier run wrote for it goes away."""
        built = outcome.status == "built"
        name = job.file + (".safetensors" if built else ".refused.json")
        data = outcome.data if built else json.dumps(dict(outcome.error), indent=1, default=str).encode()
        facts = json.loads(json.dumps(dict(outcome.facts), default=str))
        told = (job.request.limits, facts, dict(outcome.error))
        digest = hashlib.sha256(data).hexdigest()
        record = Record(job.file, job.identity, outcome.status, name, digest, round(outcome.seconds, 3), *told)
        path, last = self._output / name, self._last.get(job.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)
        if last is not None and last.output != name:
            (self._output / last.output).unlink(missing_ok=True)
        line = {k: v for k, v in asdict(record).items() if k != "kept"}
        self._file.write(json.dumps(line, default=str).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._last[job.file] = record
        return record

    def _read(self) -> None:
        self._file.seek(0)
        text = self._file.read()
        # A line without its end was being written when the machine stopped.
        whole = text.rfind(b"\n") + 1
        self._file.truncate(whole)
        for number, line in enumerate(text[:whole].splitlines(), 1):
            try:
                record = Record(**json.loads(line))
            except (ValueError, TypeError):
                instead = "delete the line, and its job is done again"
                raise InvalidFile(str(self._path), f"line {number} is no record of a job", instead) from None
            self._last[record.file] = record


def _table(path: str | None) -> bytes | None:
    try:
        return None if path is None else Path(path).read_bytes()
    except OSError as error:
        raise InvalidFile(str(path), f"cannot be read ({error.strerror})", "give a symbol table") from None


def _records(
    place: Path,
    files: Sequence[Path],
    request: Request,
    table: bytes | None,
    journal: _Journal,
    execute: Callable[[Iterator[Job], int], Generator[tuple[Job, Outcome]]],
    retry: bool,
    progress: Callable[[int], None] | None,
) -> tuple[Record, ...]:
    """The records of all files: those kept, and those of the jobs that are done now."""
    records: dict[str, Record] = {}
    names = [path.relative_to(place).as_posix() for path in files]

    def read(name: str) -> Job | None:
        try:
            return Job(name, (place / name).read_bytes(), request, table if name.lower().endswith(".att") else None)
        except OSError as error:
            told = {"error": "InvalidFile", "message": f"file {name}: cannot be read ({error.strerror})"}
            records[name] = Record(name, "", "failed", "", "", 0.0, request.limits, {}, told)
            return None

    for name in names:
        job = read(name)
        kept = None if job is None else journal.current(job, retry)
        if kept is not None:
            records[name] = kept
    waiting = [name for name in names if name not in records]
    if progress is not None:
        progress(len(records))
    if not waiting:
        return tuple(records[name] for name in names)
    # Files are read when their turn comes, so that memory holds those under way only.
    queue = (job for job in map(read, waiting) if job is not None)
    with closing(execute(queue, len(waiting))) as outcomes:
        for job, outcome in outcomes:
            records[job.file] = journal.add(job, outcome)
            if progress is not None:
                progress(len(records))
    return tuple(records[name] for name in names)
