"""Does a layer kernel keep the state? Compiled trackers through it, for thousands of tokens, forwards and backwards.

A kernel is compared with the same inputs in float64 (`chunk_torch`), every decoded state with the automaton's. What
rounded inputs themselves lose is no fault of a kernel: it must decode right for as long as the float64 run keeps half
of the distance between two states. Every failure is made small (one word if one fails alone; the shortest length by
bisection) and can be saved and run again.

Main definitions: `conform`, `replay`, `require_one`, `CHECKS`.

References: docs/conform.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from statetrack.errors import InvalidInput, KernelUnavailable, StatetrackError

from .conform_checks import LOOKS, Row, Tolerances, exact_run
from .failing import append_recipe, read_recipes
from .layouts import Kernel, Refused, Unusable
from .trials import CASES, DRIFTS, Trial, drift_trial, load_trial, save_trial, tracker_trial

CHECKS = tuple(LOOKS)
# A kernel says itself that it does not take an input: that is no wrong answer.
_REFUSALS = (Refused, InvalidInput, KernelUnavailable, NotImplementedError, AssertionError, ValueError)
# Beyond some chunks, with a rest that fills none.
_SHORT = 150
_FORMATS = ("float64", "float32", "bfloat16", "float16")


def conform(
    kernel: Kernel,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    cases: Sequence[str] | None = None,
    checks: Sequence[str] = CHECKS,
    lengths: Sequence[int] = (1024,),
    words: int = 4,
    heads: int = 2,
    key_size: int = 64,
    value_size: int = 64,
    seed: int = 0,
    tolerances: Tolerances | None = None,
    save: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[Row]:
    """Run the checks one after another; a row for each check of each case.

    Args:
        dtype: of q, k, v and β: "float64", "float32", "bfloat16", "float16". Gates and states stay in float32.
        cases: of `trials.CASES`; None is all of them.
        checks: of `CHECKS`. "drift" has the two tests of `trials.DRIFTS` in place of cases, at all `lengths`;
            "decode" takes the longest of `lengths`, the others at most 150 tokens.
        words, heads: words·heads words a case; drift tests have `words` and one head.
        save: folder for failing inputs as tensors, or a file .jsonl that gets a line for each, saying how to make it
            again; None saves none (and looks for no shortest one).

    Raises:
        InvalidInput: a case, check, format or length that is not known.
    """
    wanted = tuple(CASES) if cases is None else tuple(cases)
    faults = [f"case {name!r}" for name in wanted if name not in CASES]
    faults += [f"check {name!r}" for name in checks if name not in CHECKS]
    faults += [] if dtype in _FORMATS else [f"dtype {dtype!r}"]
    faults += [f"length {n}" for n in lengths if n < 2] + ([] if lengths else ["no length"])
    if faults:
        known = f"cases {', '.join(CASES)}; checks {', '.join(CHECKS)}; dtypes {', '.join(_FORMATS)}"
        raise InvalidInput(f"conform: {'; '.join(faults)} unknown or too small; know {known}; lengths from 2 on")
    sizes: dict[str, Any] = {"dtype": getattr(torch, dtype), "key_size": key_size, "value_size": value_size}
    plan = [(name, check) for name in wanted for check in checks if check != "drift"]
    longest, done = max(lengths), 0
    for name, check in plan:
        length = longest if check == "decode" else min(longest, _SHORT)
        made = tracker_trial(name, words=words, heads=heads, length=length, seed=seed, **sizes)
        yield judge(kernel, made.to(device), check, tolerances, save)
        done += 1
        if progress is not None:
            progress(done)
    for name in DRIFTS if "drift" in checks else ():
        for length in lengths:
            made = drift_trial(name, words=words, length=length, **sizes)
            yield judge(kernel, made.to(device), "drift", tolerances, save)
            done += 1
            if progress is not None:
                progress(done)


class NothingRan(StatetrackError):
    """A kernel that neither passed nor failed a check: there is no verdict on it."""


def require_one(kernel: Kernel, rows: Sequence[Row]) -> None:
    """That at least one check has an answer: a kernel that refuses everything has not passed.

    Raises:
        NothingRan: all are refused or unusable. A kernel that broke has an answer.
    """
    if any(row.status not in ("refused", "unusable") for row in rows):
        return
    counts = [f"{n} {status}" for status in ("refused", "unusable") if (n := sum(r.status == status for r in rows))]
    shown = f"; the first, {rows[0].case} {rows[0].check}: {rows[0].detail}" if rows else ""
    raise NothingRan(f"conform: nothing of {kernel.name} ran, {', '.join(counts) or 'no check was asked for'}{shown}")


def replay(kernel: Kernel, path: Path, *, device: str = "cpu", tolerances: Tolerances | None = None) -> list[Row]:
    """Run saved failing inputs again, those of a file .safetensors or .jsonl: the checks that they failed, on this
    kernel.

    Raises:
        InvalidFile: a file that `conform` did not write, or an input that is made otherwise today.
    """
    saved = read_recipes(path) if path.suffix == ".jsonl" else [load_trial(path)]
    return [
        judge(kernel, trial.to(device), str(facts["check"]), tolerances or Tolerances(**facts["tolerances"]), None)
        for trial, facts in saved
    ]


def judge(
    kernel: Kernel, trial: Trial, check: str, tolerances: Tolerances | None = None, save: Path | None = None
) -> Row:
    """One check of one trial; a failing one is made small and saved if there is a place for it."""
    limits = tolerances or Tolerances()
    row = _tried(kernel, trial, limits, check)
    if row.status != "fail" or save is None:
        return row

    def fails(part: Trial) -> bool:
        return _tried(kernel, part, limits, check).status == "fail"

    small = smallest(trial, fails, row.horizon)
    facts = {"check": check, "kernel": kernel.name, "layout": kernel.layout, "tolerances": vars(limits)}
    path = save
    if save.suffix == ".jsonl":
        append_recipe(
            small, save, facts | {"options": dict(kernel.options), "found": _tried(kernel, small, limits, check).detail}
        )
    else:
        name = f"{kernel.name} {trial.name} {check}" + (f" {trial.length}" if check == "drift" else "")
        path = save / (re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") + ".safetensors")
        exact, state = exact_run(small)
        save.mkdir(parents=True, exist_ok=True)
        save_trial(small, path, facts, {"o": exact, "state": state})
    return replace(row, minimal=small.length, saved=str(path))


def smallest(trial: Trial, fails: Callable[[Trial], bool], hint: int | None = None) -> Trial:
    """A failing trial of one word, if one fails alone, and of a length n such that n - 1 tokens do not fail.

    The length is found by bisection, which takes for granted that longer inputs fail too; `hint` is a length at which
    the failure may just not be seen yet.
    """
    batch, heads = trial.q.shape[0], trial.q.shape[2]
    singles = (trial.word(b, h) for b in range(batch) for h in range(heads))
    if batch * heads > 1:
        trial = next((single for single in singles if fails(single)), trial)
    low, high = 0, trial.length
    if hint is not None and hint + 1 < high and fails(trial.part(0, hint + 1)):
        high = hint + 1
    while high - low > 1:
        middle = (low + high) // 2
        if fails(trial.part(0, middle)):
            high = middle
        else:
            low = middle
    return trial.part(0, high)


def _tried(kernel: Kernel, trial: Trial, limits: Tolerances, check: str) -> Row:
    """The row of a check, also when the kernel refuses, breaks or returns something else."""
    try:
        return LOOKS[check](kernel, trial, limits)
    except Unusable as error:
        return Row(trial.name, check, trial.length, "unusable", detail=_line(error))
    except _REFUSALS as error:
        return Row(trial.name, check, trial.length, "refused", detail=_line(error))
    except Exception as error:
        # A wrapper with **keywords hands on what the function behind it does not know.
        unknown = isinstance(error, TypeError) and "unexpected keyword argument" in str(error)
        return Row(trial.name, check, trial.length, "refused" if unknown else "error", detail=_line(error))


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
