"""Run claims and say what became of them.

Main definitions: `Verdict`, `Verdicts`, `verify`, `select`, `control`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from statetrack.display import Shown
from statetrack.errors import CertificateFailed, InvalidInput, OutOfRange

from .checker import Refused as CheckerRefused
from .claim import BUDGETS, CLAIMS, Claim, Refuted, Trial

# Files of claims; importing one registers its claims.
_SUBJECTS = ("grazzi_", "ckda_", "errata_", "ours_")
# What counts as a refutation. Any other error is a fault of the check: verdict "error".
_REFUTATIONS = (Refuted, CertificateFailed, OutOfRange, CheckerRefused, AssertionError)


@dataclass(frozen=True)
class Verdict(Shown):
    """What a check found. `verdict`: proved, supported, cited-lemma-needed, refuted, or error (of the check itself).

    For a negative control `verdict` is "refuted" if the control did what it should.
    """

    id: str
    verdict: str
    kinds: tuple[str, ...]
    seconds: float
    detail: str
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    notes: tuple[str, ...] = ()
    seed: int = 0
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    certificates: tuple[Any, ...] = ()


class Verdicts(Shown, tuple[Verdict, ...]):
    """Verdicts in the order of the registry; a tuple that a notebook shows as a table."""


def claims() -> dict[str, Claim]:
    """All claims by id, in the order of the subjects."""
    files = sorted(path.stem for path in Path(__file__).parent.glob("*.py"))
    for prefix in _SUBJECTS:
        for name in (name for name in files if name.startswith(prefix)):
            import_module(f"statetrack.proofs_check.{name}")
    return CLAIMS


def select(patterns: Iterable[str] = ("*",)) -> tuple[Claim, ...]:
    """The claims whose id fits one of the patterns (* and ? as in file names); InvalidInput for one that fits none."""
    known = claims()
    wanted = (patterns,) if isinstance(patterns, str) else tuple(patterns)
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise InvalidInput(f"claim {pattern!r}: none of the {len(known)} claims fits; 'statetrack verify --list'")
    return tuple(c for name, c in known.items() if any(fnmatchcase(name, pattern) for pattern in wanted))


def judge(one: Claim, *, budget: str = "fast", seed: int = 0, kernels: str | None = None) -> Verdict:
    """Run one claim's check."""
    return _run(one, budget, seed, kernels, {})


def control(one: Claim, *, budget: str = "fast", seed: int = 0) -> Verdict:
    """Run the check on the claim's broken statement, which must be refuted."""
    return _run(one, budget, seed, None, dict(one.control))


def _run(one: Claim, budget: str, seed: int, kernels: str | None, broken: dict[str, Any]) -> Verdict:
    trial = Trial(one.id, budget, seed, kernels)
    started = time.perf_counter()
    good = "cited-lemma-needed" if one.cited else "proved" if one.proves else "supported"
    detail, verdict = one.statement, good
    try:
        one.check(trial, **broken)
        if not trial.sizes:
            verdict, detail = "refuted", "the check looked at nothing"
    except _REFUTATIONS as error:
        verdict, detail = "refuted", str(error) if isinstance(error, Refuted) else f"{type(error).__name__}: {error}"
    except Exception as error:
        verdict, detail = "error", f"{type(error).__name__}: {error}"
    seconds = round(time.perf_counter() - started, 3)
    notes, kept = tuple(trial.notes), tuple(trial.certificates)
    return Verdict(
        one.id, verdict, one.kinds, seconds, " ".join(detail.split()), trial.sizes, notes, seed, trial.data, kept
    )


def verify(
    patterns: Iterable[str] = ("*",),
    *,
    budget: str = "fast",
    seed: int = 0,
    kernels: str | None = None,
    controls: bool = False,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Verdicts:
    """Verdicts of the claims that fit the patterns, in the order of the registry.

    Args:
        budget: "fast" (all claims in 90 s on two cores), "full" or "thorough".
        seed: moves all random inputs; each claim has its own stream.
        kernels: None, "cpu" or "cuda": also run constructions through the kernels there.
        controls: run the negative controls instead; each must be refuted.
        jobs: processes.
        progress: called with the number of claims done.
    """
    if budget not in BUDGETS:
        raise InvalidInput(f"budget {budget!r}: know {', '.join(BUDGETS)}")
    if kernels not in (None, "cpu", "cuda"):
        raise InvalidInput(f"kernels {kernels!r}: know cpu, cuda")
    names = [one.id for one in select(patterns)]
    found: dict[str, Verdict] = {}
    for done, verdict in enumerate(_verdicts(names, budget, seed, kernels, controls, jobs), 1):
        found[verdict.id] = verdict
        if progress is not None:
            progress(done)
    return Verdicts(found[name] for name in names)


def _verdicts(
    names: Sequence[str], budget: str, seed: int, kernels: str | None, controls: bool, jobs: int
) -> Iterable[Verdict]:
    if jobs == 1:
        yield from (_named(name, budget, seed, kernels, controls) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(_named, name, budget, seed, kernels, controls) for name in names]
        for future in as_completed(waiting):
            yield future.result()


def _named(name: str, budget: str, seed: int, kernels: str | None, controls: bool) -> Verdict:
    one = claims()[name]
    return control(one, budget=budget, seed=seed) if controls else judge(one, budget=budget, seed=seed, kernels=kernels)
