"""What the command line makes sure of before and while it works: paths, formats, time and memory.

Main definitions: `check_format`, `check_outputs`, `is_json`, `read_text`, `bounded`.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from statetrack.errors import BudgetExceeded, InvalidFile, InvalidInput


def check_format(dtype: str) -> None:
    """Refuse a number format that is not known."""
    from statetrack.constructions.weights import FORMATS

    if dtype not in FORMATS:
        raise InvalidInput(f"number format {dtype!r}: know {', '.join(FORMATS)}")


def check_outputs(source: str, output: Path | None, certificate: Path | None, *, flag: str = "--output") -> None:
    """Refuse, before a long build, files that cannot be written or that would overwrite each other or the source."""
    named = {flag: output, "--certificate": certificate}
    wanted = {flag: path for flag, path in named.items() if path is not None}
    for name, path in wanted.items():
        try:
            if not path.name or (path.exists() and not path.is_file()):
                raise InvalidFile(str(path), "is not an ordinary file", "give the path of a file to write")
            if _same(path, Path(source.removeprefix("file:"))) or _same(path, Path(source.strip())):
                raise InvalidInput(f"{name} {path}: is SOURCE itself and would be overwritten; give another path")
            _probe(path.with_name(path.name + ".part"))
        except OSError as error:
            reason = f"cannot be written ({error.strerror})"
            raise InvalidFile(str(path), reason, "give a path in a folder that exists and can be written") from None
    if len(wanted) == 2 and (_same(*wanted.values()) or len({path.resolve() for path in wanted.values()}) == 1):
        raise InvalidInput(f"--output {output} and --certificate {certificate}: the same file; give two paths")


def is_folder(source: str) -> bool:
    """Whether a source is a folder; a long regular expression is none."""
    try:
        return Path(source.removeprefix("file:")).is_dir()
    except (OSError, ValueError):
        return False


def is_json(file: Path) -> bool:
    """Whether a file's first bytes, or its suffix where they do not tell, say that it is JSON and no weights file."""
    try:
        with file.open("rb") as stream:
            start = stream.read(9)
    except OSError:
        start = b""
    # A weights file starts with eight bytes that count its header, which is a JSON object.
    return start.startswith(b"{") or (start[8:9] != b"{" and file.suffix.lower() == ".json")


@contextmanager
def readable(file: Path) -> Generator[None, None, None]:
    """Turn what goes wrong inside a file that somebody made by hand into one line about that file."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError, ZeroDivisionError) as error:
        reason = f"its certificate or its tensors are not what they should be ({type(error).__name__}: {error})"
        raise InvalidFile(str(file), reason, "build the file again") from error


def read_text(file: Path) -> str:
    """The text of a certificate; InvalidFile if there is none."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidFile(
            str(file), f"cannot be read ({error})", "give a certificate written by build --certificate"
        ) from None


@contextmanager
def bounded(seconds: float | None, megabytes: int | None) -> Generator[None, None, None]:
    """Bounds on the time and on the added memory of what is done inside; BudgetExceeded says which was met.

    A timer looks at both between two steps of Python. One request for far more memory than that is refused by the
    system: it is allowed 256 MB beyond, as C libraries end the process when they get none.
    """
    if seconds is None and megabytes is None:
        yield
        return
    _settle_libraries()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages, resident = _memory()
    started, before = time.monotonic(), signal.getsignal(signal.SIGALRM)

    def look(number: int, frame: object) -> None:
        late = seconds is not None and time.monotonic() - started >= seconds
        large = megabytes is not None and _memory()[1] - resident > megabytes * 10**6
        if late or large:
            # Later once more, should a callback have lost the first one.
            signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
            raise _Stopped("memory" if large else "time")

    try:
        if megabytes is not None:
            most = pages + (megabytes + _SLACK_MB) * 10**6
            resource.setrlimit(resource.RLIMIT_AS, (most if hard < 0 else min(most, hard), hard))
        signal.signal(signal.SIGALRM, look)
        signal.setitimer(signal.ITIMER_REAL, min(_TICK, seconds or _TICK), _TICK)
        yield
    except _Stopped as stop:
        raise _exceeded(str(stop), seconds, megabytes) from None
    except MemoryError:
        if megabytes is None:
            raise
        raise _exceeded("memory", seconds, megabytes) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


_TICK = 0.05
_SLACK_MB = 256


class _Stopped(BaseException):
    """No `Exception`, so that no handler on the way takes it for its own."""


def _exceeded(what: str, seconds: float | None, megabytes: int | None) -> BudgetExceeded:
    if what == "memory" or seconds is None:
        return BudgetExceeded("MB of memory", megabytes or 0, "--max-memory, or lower --max-states")
    whole = seconds == int(seconds)
    unit, limit = ("seconds", int(seconds)) if whole else ("milliseconds", round(seconds * 1000))
    return BudgetExceeded(unit, limit, "--max-seconds, or build a smaller source")


def _memory() -> tuple[int, int]:
    """Bytes of the process's address space, and of those in memory."""
    sizes = Path("/proc/self/statm").read_text().split()
    return int(sizes[0]) * resource.getpagesize(), int(sizes[1]) * resource.getpagesize()


@cache
def _settle_libraries() -> None:
    """Let numpy's linear algebra take its buffers now: it ends the process when it gets none."""
    import numpy as np

    square = np.ones((256, 256))
    assert (square @ square)[0, 0] == 256


def _same(path: Path, other: Path) -> bool:
    """Whether two paths name one existing file."""
    try:
        return path.samefile(other)
    except (OSError, ValueError):
        return False


def _probe(path: Path) -> None:
    """Make a file and take it away again; OSError if that cannot be done."""
    if not path.exists():
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        path.unlink()
