"""What the workers of a batch do, and the two ways to send them jobs: processes of this machine, or a Dask cluster.

A job's process may be ended from outside (by the system when memory runs out, by a lost machine); that costs its own
job and no other. Each process here has one job at a time, so it is known which job ended it. On a cluster a job runs
in a process of its own below the worker.

Main definitions: `Request`, `Job`, `Outcome`, `build_job`, `in_pool`, `on_cluster`.

References: docs/batch.md.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from statetrack import __version__
from statetrack.constructions.source import Options
from statetrack.errors import BudgetExceeded, InvalidInput, NotExpressible, StatetrackError
from statetrack.guards import bounded

# A job past its time is asked to stop; one that does not (inside a C library) is killed so many seconds later.
_GRACE = 30.0
# Options that decide whether a job ends, and a path of which the content counts.
_UNDECIDING = ("max_seconds", "max_memory", "symbols")
_CHILD = "from statetrack.workers import run_child; run_child()"


@dataclass(frozen=True)
class Request:
    """What is asked for of every file: the arguments of `api.build_with`, and the number format of the weights."""

    target: str
    options: Options = field(default_factory=Options)
    dtype: str = "float32"
    max_dim: int | None = None
    max_factors: int | None = None
    construction: str | None = None
    proof: str = "closure"
    check: bool = True

    @property
    def limits(self) -> list[float | None]:
        """Seconds and MB a job may take: they decide whether a job ends, not what it builds."""
        return [self.options.max_seconds, self.options.max_memory]


@dataclass(frozen=True)
class Job:
    """A file as it travels to a worker: its path inside the folder, its bytes and the request.

    `table` is the symbol table of AT&T text, which `options.symbols` names, as the worker may not see that file.
    """

    file: str
    data: bytes
    request: Request
    table: bytes | None = None
    version: str = __version__

    @property
    def identity(self) -> str:
        """SHA-256 over all that decides the result."""
        asked = asdict(self.request)
        asked["options"] = {k: v for k, v in asked["options"].items() if k not in _UNDECIDING}
        table = None if self.table is None else hashlib.sha256(self.table).hexdigest()
        head = json.dumps([self.file, self.version, asked, table], sort_keys=True)
        return hashlib.sha256(head.encode() + b"\0" + self.data).hexdigest()


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    status: "built"; "refused" (proved impossible on the target); "failed" (a faulty file, a budget, no construction);
    "lost" (its process or worker ended before it: no verdict). `data` is the weights file, `facts` describe it as
    `statetrack build --json` does; `error` holds the class, the message and the fields of an error.
    """

    status: str
    data: bytes = b""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    error: Mapping[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0


def build_job(job: Job) -> Outcome:
    """Build the weights of a job in this process, within its time and memory (main thread only)."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="statetrack-") as name:
        place = Path(name)
        try:
            data, facts = _built(job, place)
            return Outcome("built", data, facts, seconds=time.perf_counter() - started)
        except Exception as error:
            # Whatever one file does, the others go on; messages say the file's own path.
            status = "refused" if isinstance(error, NotExpressible) else "failed"
            shown = {k: v.replace(f"{place}/", "") if isinstance(v, str) else v for k, v in _told(error).items()}
            return Outcome(status, error=shown, seconds=time.perf_counter() - started)


def _built(job: Job, place: Path) -> tuple[bytes, dict[str, Any]]:
    from statetrack import api
    from statetrack.printing import build_facts

    asked, options = job.request, job.request.options
    # No job's file has a hidden name.
    path, table, result = place / job.file, place / ".symbols" / Path(options.symbols or "").name, place / ".weights"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(job.data)
    if job.table is not None:
        table.parent.mkdir(exist_ok=True)
        table.write_bytes(job.table)
        options = replace(options, symbols=str(table))
    with bounded(options.max_seconds, options.max_memory):
        made = api.build_with(
            f"file:{path}",
            asked.target,
            options,
            max_dim=asked.max_dim,
            max_factors=asked.max_factors,
            construction=asked.construction,
            proof=asked.proof,
            check=asked.check,
        )
        weights = made.weights(asked.dtype)
        facts = build_facts(made, weights, asked.check)
        weights.save(result)
        return result.read_bytes(), facts


def _told(error: BaseException) -> dict[str, Any]:
    """An error as a record has it: class, message, and the fields that its class has."""
    fields = {k: v for k, v in vars(error).items() if v is None or isinstance(v, (str, int))}
    return {"error": type(error).__name__, "message": " ".join(str(error).split())} | fields


def _lost(why: str) -> Outcome:
    return Outcome("lost", error={"error": "Lost", "message": why})


def _late(seconds: float) -> Outcome:
    error = BudgetExceeded("milliseconds", round(seconds * 1000), "--max-seconds, or build a smaller source")
    return Outcome("failed", error=_told(error), seconds=seconds)


def in_pool(
    queue: Iterator[Job], processes: int, work: Callable[[Job], Outcome], seconds: float | None
) -> Generator[tuple[Job, Outcome]]:
    """Do jobs in processes of this machine; each with how it ended, in the order in which they end."""
    idle = [_Slot() for _ in range(processes)]
    busy: dict[Future[Outcome], tuple[_Slot, Job, float]] = {}
    try:
        while True:
            for job in islice(queue, len(idle)):
                slot = idle.pop()
                busy[slot.submit(work, job)] = (slot, job, time.monotonic())
            if not busy:
                return
            done, _ = wait(busy, timeout=None if seconds is None else 0.5, return_when=FIRST_COMPLETED)
            for future in done:
                slot, job, _ = busy.pop(future)
                outcome = _ended(future, seconds if slot.late else None)
                broken = slot.late or isinstance(future.exception(), BrokenProcessPool)
                if broken and not slot.begun():
                    raise StatetrackError(_NO_START)
                idle.append(_Slot() if broken else slot)
                yield job, outcome
            for slot, _, since in busy.values():
                if seconds is not None and time.monotonic() - since > seconds + _GRACE:
                    slot.late = True
                    slot.kill()
    finally:
        for slot, _, _ in busy.values():
            slot.kill()
        for slot in [*idle, *(slot for slot, _, _ in busy.values())]:
            slot.pool.shutdown(cancel_futures=True)


class _Slot:
    """A pool of one process, so that a broken pool names its job."""

    def __init__(self) -> None:
        self.late = False
        self._open()

    def submit(self, work: Callable[[Job], Outcome], job: Job) -> Future[Outcome]:
        """Start a job in the process."""
        try:
            return self.pool.submit(work, job)
        except BrokenProcessPool:
            # The process ended while it had nothing to do: the job has not been started.
            self._open()
            return self.pool.submit(work, job)

    def begun(self) -> bool:
        """Whether the process came up at all."""
        return self._pid.done() and self._pid.exception() is None

    def kill(self) -> None:
        """End the process, whatever it does."""
        with suppress(BrokenProcessPool, ProcessLookupError, TimeoutError):
            os.kill(self._pid.result(timeout=_GRACE), signal.SIGKILL)

    def _open(self) -> None:
        self.pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_settle)
        self._pid = self.pool.submit(os.getpid)


def _settle() -> None:
    """In a new process: Ctrl-C is for the one above, and should that end in any way, this one ends too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    above = parent_process()

    def follow() -> None:
        if above is not None:
            above.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _ended(future: Future[Outcome], late: float | None) -> Outcome:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, BrokenProcessPool):
        return Outcome("failed", error=_told(error))
    return _lost(_KILLED) if late is None else _late(late)


_NO_START = "worker processes do not start here; a script calls batch under: if __name__ == '__main__'"
_KILLED = "its process was killed, perhaps as memory ran out; run again with fewer jobs at once or --max-memory"


def on_cluster(queue: Iterator[Job], address: str, work: Callable[[Job], Outcome]) -> Generator[tuple[Job, Outcome]]:
    """Do jobs on the workers of a Dask scheduler; each with how it ended, in the order in which they end.

    A job is sent once, under its identity; when its worker is lost, the scheduler gives it to another one. Dask gives
    up jobs that were with several lost workers, whichever job was to blame: those are sent once more, one at a time.
    Raises InvalidInput if Dask is not installed or the scheduler not reached, StatetrackError if it is lost on the way.
    """
    distributed, client = _client(address)
    said = logging.getLogger("distributed.client")
    level = said.level
    try:
        # Its tracebacks when a scheduler is lost would say the same as the one line below.
        said.setLevel(logging.CRITICAL + 1)
        sent: dict[str, Job] = {}
        suspects: list[Job] = []
        alone: Job | None = None
        pending: Any = distributed.as_completed((), loop=client.loop, with_results=True, raise_errors=False)

        def send(jobs: Iterable[Job], again: str = "") -> None:
            for job in jobs:
                key = f"statetrack-{job.identity}{again}"
                sent[key] = job
                pending.add(client.submit(in_child, work, job, key=key, retries=0))

        send(islice(queue, max(_LEAST_SENT, 4 * sum(client.nthreads().values()))))
        for future, result in pending:
            job, state = sent.pop(future.key), str(future.status)
            if state not in ("finished", "error"):
                raise StatetrackError(f"scheduler {address}: lost on the way; run the same again, what is done is kept")
            # What has come back is not asked for again, whatever happens to the worker that has it.
            future.release()
            send(islice(queue, 1))
            suspect = state == "error" and type(result[1]).__name__ == "KilledWorker" and job is not alone
            if suspect:
                suspects.append(job)
            if not sent and suspects:
                alone = suspects.pop()
                send([alone], "-alone")
            if not suspect:
                yield job, result if state == "finished" else _lost_there(result)
    finally:
        client.close()
        said.setLevel(level)


# Jobs under way at a time are four a thread, and so many where a cluster has yet to grow.
_LEAST_SENT = 64


def _client(address: str) -> tuple[Any, Any]:
    """The library of Dask, and a client of the scheduler at an address."""
    try:
        distributed = import_module("distributed")
    except ImportError:
        raise InvalidInput("scheduler: needs Dask, which is not installed; pip install 'statetrack[cluster]'") from None
    try:
        return distributed, distributed.Client(address, timeout=_GRACE, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInput(
            f"scheduler {address}: not reached ({reason}); give tcp://HOST:PORT of one that runs"
        ) from None


def _lost_there(result: tuple[Any, BaseException, Any]) -> Outcome:
    error = result[1]
    if type(error).__name__ == "KilledWorker":
        return _lost("every worker that had it was lost; see the workers' logs")
    where = "a worker could not run it; it needs the same version of statetrack"
    return _lost(f"{where} ({type(error).__name__}: {' '.join(str(error).split())[:200]})")


def in_child(work: Callable[[Job], Outcome], job: Job) -> Outcome:
    """Do a job in a new process below this one; the process ends when this one does."""
    if job.version != __version__:
        return _lost(f"the worker has statetrack {__version__}, the job is of {job.version}: install the same version")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    seconds = job.request.options.max_seconds
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        stop = threading.Timer((seconds or 0) + _GRACE, child.kill)
        if seconds is not None:
            stop.start()
        # The pipe stays open while the child works: its end tells the child that this process has ended.
        with suppress(BrokenPipeError):
            pickle.dump((work, job), child.stdin)
            child.stdin.flush()
        answer = child.stdout.read()
        late = seconds is not None and not stop.is_alive()
        stop.cancel()
    if answer and child.returncode == 0:
        return pickle.loads(answer)
    return _late(seconds) if late and seconds is not None else _lost(_KILLED)


def run_child() -> None:
    """The process of `in_child`: a job from standard input, its outcome to standard output."""
    answers = os.fdopen(os.dup(1), "wb")
    # What libraries print is no answer.
    os.dup2(2, 1)
    work, job = pickle.load(sys.stdin.buffer)

    def follow() -> None:
        os.read(0, 1)
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    try:
        outcome = work(job)
    except Exception as error:
        outcome = Outcome("failed", error=_told(error))
    pickle.dump(outcome, answers)
    answers.flush()
    os._exit(0)
