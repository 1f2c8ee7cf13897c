"""Does a layer kernel keep the state? Compiled trackers through it, for thousands of tokens, forwards and backwards.

A kernel is compared with the same inputs in float64 (`chunk_torch`), every decoded state with the automaton's. What
rounded inputs themselves lose is no fault of a kernel: it must decode right for as long as the float64 run keeps half
of the distance between two states. Every failure is made small (one word if one fails alone; the shortest length by
bisection) and can be saved and run again.

Main definitions: `conform`, `replay`, `Row`, `Tolerances`, `CHECKS`.

References: docs/conform.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, KernelUnavailable

from .chunk_torch import ckda_chunk
from .gates import Gate
from .layouts import Call, Kernel, Refused
from .trials import CASES, DRIFTS, Trial, drift_trial, load_trial, save_trial, tracker_trial

CHECKS = ("decode", "split", "varlen", "gradient", "drift")
# A kernel says itself that it does not take an input: that is no wrong answer.
_REFUSALS = (Refused, InvalidInput, KernelUnavailable, NotImplementedError, AssertionError, TypeError, ValueError)
_DISTANCES_AT_ONCE = 1 << 23
# Beyond some chunks, with a rest that fills none.
_SHORT = 150
_FORMATS = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Tolerances:
    """Relative errors that pass: of the state and of its norm (drift tests), of gradients, and between two runs of the
    same kernel, whole and in parts."""

    state: float = 5e-3
    norm: float = 2e-3
    gradient: float = 2e-2
    parts: float = 5e-2


@dataclass(frozen=True)
class Row:
    """One check of one case.

    `status` is "pass", "fail", "refused" (the kernel says that it does not take this) or "error" (it broke). Lengths
    count tokens: `horizon` is the number decoded right in every word, `reference` that of the float64 run on the same
    inputs, `required` how far the kernel must come, `bound` what is proved for states stored in this format. `norm`
    is that of the last state over the exact one and `error` its relative error, or that of a gradient or of parts,
    each the worst of all words. `minimal` is the length of the shortest failing input found, `saved` its file.
    """

    case: str
    check: str
    length: int
    status: str
    horizon: int | None = None
    reference: int | None = None
    required: int | None = None
    bound: float | None = None
    norm: float | None = None
    error: float | None = None
    detail: str = ""
    minimal: int | None = None
    saved: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the kernel is wrong here."""
        return self.status in ("fail", "error")


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
        save: folder for failing inputs; None saves none (and looks for no shortest one).

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


def replay(kernel: Kernel, path: Path, *, device: str = "cpu", tolerances: Tolerances | None = None) -> Row:
    """Run a saved failing input again: the check that it failed, on this kernel.

    Raises:
        InvalidFile: a file that `conform` did not write.
    """
    trial, facts = load_trial(path)
    limits = tolerances or Tolerances(**facts["tolerances"])
    return judge(kernel, trial.to(device), str(facts["check"]), limits, None)


def judge(
    kernel: Kernel, trial: Trial, check: str, tolerances: Tolerances | None = None, save: Path | None = None
) -> Row:
    """One check of one trial; a failing one is made small and saved if there is a folder for it."""
    limits = tolerances or Tolerances()
    look = {
        "decode": _decode,
        "split": _split,
        "varlen": _varlen,
        "gradient": _gradient,
        "drift": _drift,
    }[check]
    row = _tried(look, kernel, trial, limits, check)
    if row.status != "fail" or save is None:
        return row

    def fails(part: Trial) -> bool:
        return _tried(look, kernel, part, limits, check).status == "fail"

    small = smallest(trial, fails, row.horizon)
    path = save / (re.sub(r"[^A-Za-z0-9]+", "-", f"{kernel.name} {trial.name} {check}").strip("-") + ".safetensors")
    exact, state = _exact(small)
    facts = {"check": check, "kernel": kernel.name, "layout": kernel.layout, "tolerances": vars(limits)}
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


def _tried(look: Callable[..., Row], kernel: Kernel, trial: Trial, limits: Tolerances, check: str) -> Row:
    """The row of a check, also when the kernel refuses or breaks."""
    try:
        return look(kernel, trial, limits)
    except _REFUSALS as error:
        return Row(trial.name, check, trial.length, "refused", detail=_line(error))
    except Exception as error:
        return Row(trial.name, check, trial.length, "error", detail=_line(error))


def _exact(trial: Trial, call: Call | None = None) -> tuple[Tensor, Tensor]:
    """Readouts and last states of the same inputs in float64."""
    c = call or trial.call()
    gate = Gate("none") if c.alpha is None else Gate("alpha", c.alpha.double())
    o, state = ckda_chunk(
        c.q.double(),
        c.k.double(),
        c.v.double(),
        c.beta.double(),
        gate,
        scale=1.0,
        factors=c.factors,
        normalize_keys=True,
        normalize_queries=True,
        initial_state=c.state,
        output_final_state=True,
        cu_seqlens=c.cu_seqlens,
        precision="exact",
    )
    assert state is not None
    return o, state


def _decode(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """Every readout's nearest codeword against the automaton's state."""
    del limits
    with torch.no_grad():
        o, state = kernel(trial.call())
        exact, exact_state = _exact(trial)
        # What the kernel returns is rounded to the type of its readouts: so is what it is compared with.
        exact = exact.to(o.dtype).double()
    own, slack = _margins(trial, o)
    right, spare = _margins(trial, exact)
    gap = _gap(trial)
    horizon, reference, required = (_first(x) for x in (slack <= 0, spare <= 0, spare < gap / 2))
    safe = (spare < gap / 2).cumsum(1) == 0
    missed = safe & (slack <= 0)
    norm, error = _distance(trial, state, exact_state)
    status = "fail" if bool(missed.any()) else "pass"
    detail = ""
    if status == "fail":
        t = int(missed.any(2).any(0).nonzero()[0])
        b, h = (int(x) for x in missed[:, t].nonzero()[0])
        assert trial.truth is not None
        detail = (
            f"word ({b}, {h}), token {t}: state {int(own[b, t, h])}, expected {int(trial.truth[b, t, h])}; "
            f"float64 gives {int(right[b, t, h])}"
        )
    found = Row(trial.name, "decode", trial.length, status, horizon, reference, required, trial.bound, norm, error)
    return replace(found, detail=detail)


def _drift(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """The state of the active channels after reflections alone: its norm and its relative error."""
    with torch.no_grad():
        _, state = kernel(trial.call())
        norm, error = _distance(trial, state, _exact(trial)[1])
    good = abs(norm - 1) <= limits.norm and error <= limits.state
    detail = "" if good else f"norm ×{norm:.4g}, relative error {error:.3g}"
    return Row(trial.name, "drift", trial.length, "pass" if good else "fail", norm=norm, error=error, detail=detail)


def _split(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """A word in two parts, the state carried, against the word in one."""
    at = max(1, trial.length * 3 // 7)
    with torch.no_grad():
        o, state = kernel(trial.call())
        first, carried = kernel(trial.part(0, at).call())
        rest = replace(trial.part(at, trial.length), state=carried.to(trial.state.dtype))
        second, last = kernel(rest.call()) if rest.length else (o[:, :0], carried)
    error = max(_relative(torch.cat([first, second], 1), o), _relative(last, state))
    detail = "" if error <= limits.parts else f"split after {at} of {trial.length} tokens"
    return _parts(trial, "split", error, limits, detail)


def _varlen(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """Sequences of different lengths behind one another, against each by itself."""
    lengths = [max(1, trial.length * n // 5) for n in (5, 2, 0, 3)]
    batch = trial.q.shape[0]
    pieces = [trial.part(0, n) for n in lengths]
    pieces = [replace(_batch(p, i % batch), name=trial.name) for i, p in enumerate(pieces)]
    tensors = {n: torch.cat([getattr(p, n) for p in pieces], 1) for n in ("q", "k", "v", "beta")}
    alpha = None if trial.alpha is None else torch.cat([p.alpha for p in pieces if p.alpha is not None], 1)
    ends = torch.tensor([0, *lengths], device=trial.q.device).cumsum(0)
    state = torch.cat([p.state for p in pieces])
    with torch.no_grad():
        o, last = kernel(Call(alpha=alpha, state=state, factors=trial.factors, cu_seqlens=ends, **tensors))
        alone = [kernel(p.call()) for p in pieces]
    error = max(_relative(o, torch.cat([x for x, _ in alone], 1)), _relative(last, torch.cat([s for _, s in alone])))
    detail = "" if error <= limits.parts else f"sequences of {', '.join(map(str, lengths))} tokens"
    return _parts(trial, "varlen", error, limits, detail)


def _gradient(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """Gradients of a fixed random sum of readouts and last states against those in float64."""
    names = [n for n in ("q", "k", "v", "beta", "alpha", "state") if getattr(trial, n) is not None]
    # A saturated pre-activation has no gradient.
    names = [n for n in names if n != "alpha" or not kernel.options.get("signed_gate")]
    leaves = {n: getattr(trial, n).detach().clone().requires_grad_() for n in names}
    wide = {n: x.detach().double().requires_grad_() for n, x in leaves.items()}
    own, exact = replace(trial, **leaves), replace(trial, **wide)
    o, state = kernel(own.call())
    expected_o, expected_state = _exact(exact)
    generator = torch.Generator().manual_seed(0)
    pulls = [
        torch.randn(x.shape, generator=generator, dtype=torch.float64).to(x.device)
        for x in (expected_o, expected_state)
    ]
    if not o.requires_grad:
        raise Refused(f"{kernel.name} gives readouts without gradients")

    def gradients(x: dict[str, Tensor], read: Tensor, last: Tensor) -> tuple[Tensor | None, ...]:
        # A last state without a gradient is no part of the sum on either side.
        total = (read.double() * pulls[0]).sum()
        total = total + (last.double() * pulls[1]).sum() if state.requires_grad else total
        return torch.autograd.grad(total, list(x.values()), allow_unused=True)

    got, wanted = gradients(leaves, o, state), gradients(wide, expected_o, expected_state)
    errors: dict[str, float] = {}
    for name, mine, right in zip(names, got, wanted, strict=True):
        size = 0.0 if right is None else float(right.norm())
        if right is not None and size > 0:
            errors[name] = 1.0 if mine is None else _relative(mine, right)
    worst = max(errors, key=lambda name: errors[name])
    status = "pass" if errors[worst] <= limits.gradient else "fail"
    shown = ", ".join(f"d{name} {error:.2g}" for name, error in errors.items())
    return Row(trial.name, "gradient", trial.length, status, error=errors[worst], detail=shown)


def _batch(trial: Trial, b: int) -> Trial:
    """All heads of one member of the batch."""
    cut = {n: x[b : b + 1] for n, x in trial.tensors().items() if n in ("q", "k", "v", "beta", "alpha", "state")}
    return replace(trial, truth=None, **cut)


def _parts(trial: Trial, check: str, error: float, limits: Tolerances, detail: str) -> Row:
    good = error <= limits.parts
    return Row(trial.name, check, trial.length, "pass" if good else "fail", error=error, detail=detail)


def _margins(trial: Trial, o: Tensor) -> tuple[Tensor, Tensor]:
    """The decoded states [B, T, H] of readouts, -1 for none, and how much nearer the right codeword is than others."""
    assert trial.codebook is not None
    assert trial.labels is not None
    assert trial.truth is not None
    rows = o[..., trial.columns].double().flatten(0, 2)
    truth = trial.truth.flatten()
    own, slack = torch.empty_like(truth), torch.empty(len(truth), dtype=torch.float64, device=o.device)
    step = max(1, _DISTANCES_AT_ONCE // len(trial.codebook))
    for at in range(0, len(rows), step):
        part = slice(at, at + step)
        far = torch.cdist(rows[part], trial.codebook, compute_mode="donot_use_mm_for_euclid_dist")
        finite = rows[part].isfinite().all(1)
        right = trial.labels[None, :] == truth[part, None]
        good = far.masked_fill(~right, torch.inf).amin(1)
        bad = far.masked_fill(right, torch.inf).amin(1)
        own[part] = torch.where(finite, trial.labels[far.nan_to_num(torch.inf).argmin(1)], -1).to(truth.dtype)
        slack[part] = torch.where(finite, bad - good, -torch.inf)
    return own.view(trial.truth.shape), slack.view(trial.truth.shape)


def _gap(trial: Trial) -> float:
    """The least distance of two codewords that stand for different states."""
    assert trial.codebook is not None
    assert trial.labels is not None
    least = torch.inf
    step = max(1, _DISTANCES_AT_ONCE // len(trial.codebook))
    for at in range(0, len(trial.codebook), step):
        part = slice(at, at + step)
        far = torch.cdist(trial.codebook[part], trial.codebook, compute_mode="donot_use_mm_for_euclid_dist")
        same = trial.labels[part, None] == trial.labels[None, :]
        least = min(least, float(far.masked_fill(same, torch.inf).min()))
    return least


def _first(event: Tensor) -> int:
    """The number of tokens before the first event in any word; all of them if there is none."""
    found = event.any(2).any(0).nonzero()
    return int(found[0]) if len(found) else event.shape[1]


def _distance(trial: Trial, state: Tensor, exact: Tensor) -> tuple[float, float]:
    """Norm over exact norm, the one farthest from 1, and the largest relative error, over all words."""
    at = trial.active[:, None]
    mine, right = (x[:, :, at, trial.columns].double().flatten(0, 1) for x in (state, exact))
    size, own, off = (x.norm(dim=(1, 2)) for x in (right, mine, mine - right))
    # A state that is exactly 0, as after a reset, counts as kept if the kernel's is 0 too.
    norms, errors = (
        torch.where(size > 0, x / size, torch.where(x > 0, torch.inf, kept)) for x, kept in ((own, 1.0), (off, 0.0))
    )
    away = norms.clamp_min(1e-300).log().abs().nan_to_num(torch.inf)
    return float(norms[away.argmax()]), float(errors.nan_to_num(torch.inf).max())


def _relative(x: Tensor, right: Tensor) -> float:
    """‖x - right‖/‖right‖; infinity if a number is none."""
    x, right = x.detach().double(), right.detach().double()
    size = float(right.norm())
    away = float((x - right).norm())
    value = away / size if size else (0.0 if away == 0 else float("inf"))
    return value if value == value else float("inf")


def _line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}" if text else type(error).__name__
