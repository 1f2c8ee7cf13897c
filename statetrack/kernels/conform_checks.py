"""The checks of `conform`: what one run of a kernel on a trial shows, against float64 and the automaton.

A readout is *decoded right* if the codeword of the automaton's state is nearer than that of any other state by more
than the rounding of distances. Else it is *wrong* (nearer to another) or *undecodable*: not finite, or as near to
another, as all codewords are to a readout that is long or has lost what tells them apart.

Main definitions: `Row`, `Tolerances`, `LOOKS`.

References: docs/conform.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .chunk_torch import ckda_chunk
from .gates import Gate
from .layouts import Call, Kernel, Refused
from .trials import Trial

_DISTANCES_AT_ONCE = 1 << 23
# Relative rounding of a distance in float64, of some hundred columns.
_ROUNDING = 2.0**-46


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

    `status` is "pass", "fail", "refused" (the kernel says that it does not take this), "error" (it broke) or
    "unusable" (it returned no pair of readouts and states). Lengths count tokens: `horizon` is the number decoded right
    in every word, `reference` that of the float64 run on the same inputs, `required` how far the kernel must come,
    `bound` what is proved for states stored in this format. Of the readouts that are required, `wrong` are nearest to
    another state and `undecodable` are not finite or as near to another. `norm` is that of the last state over the
    exact one and `error` its relative error, or that of a gradient or of parts, each the worst of all words.
    `minimal` is the length of the shortest failing input found, `saved` its file.
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
    wrong: int | None = None
    undecodable: int | None = None
    detail: str = ""
    minimal: int | None = None
    saved: str | None = None

    @property
    def failed(self) -> bool:
        """Whether the kernel is wrong here."""
        return self.status in ("fail", "error", "unusable")


def exact_run(trial: Trial, call: Call | None = None) -> tuple[Tensor, Tensor]:
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
        exact, exact_state = exact_run(trial)
        # What the kernel returns is rounded to the type of its readouts: so is what it is compared with.
        exact = exact.to(o.dtype).double()
    own, float64 = _margins(trial, o), _margins(trial, exact)
    close = float64.slack < _gap(trial) / 2
    horizon, reference, required = (_first(x) for x in (own.missed, float64.missed, close))
    safe = close.cumsum(1) == 0
    missed = safe & own.missed
    wrong = safe & own.wrong
    status = "fail" if bool(missed.any()) else "pass"
    norm, error = _distance(trial, state, exact_state)
    row = Row(trial.name, "decode", trial.length, status, horizon, reference, required, trial.bound, norm, error)
    counts = int(wrong.sum()), int((missed & ~wrong).sum())
    return replace(row, wrong=counts[0], undecodable=counts[1], detail=_fault(trial, o, own, missed, safe))


def _fault(trial: Trial, o: Tensor, own: _Margins, missed: Tensor, safe: Tensor) -> str:
    """What is wrong with the first readout that is missed, and how many are."""
    if not bool(missed.any()):
        return ""
    t = int(missed.any(2).any(0).nonzero()[0])
    b, h = (int(x) for x in missed[:, t].nonzero()[0])
    assert trial.truth is not None
    right, rival = int(trial.truth[b, t, h]), int(own.rival[b, t, h])
    length = float(o[b, t, h, trial.columns].double().norm())
    if bool(own.wrong[b, t, h]):
        what = f"decoded as state {rival}, expected {right}"
    elif length < float("inf"):
        what = (
            f"undecodable, as near to state {rival} as to {right}, which is expected (readout of length {length:.2g})"
        )
    else:
        what = f"undecodable, not finite, state {right} expected"
    wrong = int((missed & own.wrong).sum())
    counts = f"of {int(safe.sum())} readouts {wrong} wrong, {int(missed.sum()) - wrong} undecodable"
    return f"word ({b}, {h}), token {t}: {what}; {counts}"


def _drift(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """The state of the active channels after reflections alone: its norm and its relative error."""
    with torch.no_grad():
        _, state = kernel(trial.call())
        norm, error = _distance(trial, state, exact_run(trial)[1])
    faults = [] if abs(norm - 1) <= limits.norm else [f"norm ×{norm:.4g}, more than {limits.norm:g} from 1"]
    faults += [] if error <= limits.state else [f"relative error {error:.3g} over {limits.state:g}"]
    status = "fail" if faults else "pass"
    return Row(trial.name, "drift", trial.length, status, norm=norm, error=error, detail="; ".join(faults))


def _split(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """A word in two parts, the state carried, against the word in one."""
    # Not at the end of a chunk, where a kernel by chunks would do the same twice: 57 of 150 tokens.
    at = max(1, trial.length * 5 // 13)
    with torch.no_grad():
        o, state = kernel(trial.call())
        first, carried = kernel(trial.part(0, at).call())
        rest = replace(trial.part(at, trial.length), state=carried.to(trial.state.dtype))
        second, last = kernel(rest.call()) if rest.length else (o[:, :0], carried)
    error = max(_relative(torch.cat([first, second], 1), o), _relative(last, state))
    return _parts(trial, "split", error, limits, f"split after {at} of {trial.length} tokens")


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
    return _parts(trial, "varlen", error, limits, f"sequences of {', '.join(map(str, lengths))} tokens")


def _gradient(kernel: Kernel, trial: Trial, limits: Tolerances) -> Row:
    """Gradients of a fixed random sum of readouts and last states against those in float64."""
    names = [n for n in ("q", "k", "v", "beta", "alpha", "state") if getattr(trial, n) is not None]
    # A saturated pre-activation has no gradient.
    names = [n for n in names if n != "alpha" or not kernel.options.get("signed_gate")]
    leaves = {n: getattr(trial, n).detach().clone().requires_grad_() for n in names}
    wide = {n: x.detach().double().requires_grad_() for n, x in leaves.items()}
    own, exact = replace(trial, **leaves), replace(trial, **wide)
    o, state = kernel(own.call())
    expected_o, expected_state = exact_run(exact)
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
    good = errors[worst] <= limits.gradient
    shown = ", ".join(f"d{name} {error:.2g}" for name, error in errors.items())
    shown += "" if good else f"; d{worst} over {limits.gradient:g}"
    return Row(trial.name, "gradient", trial.length, "pass" if good else "fail", error=errors[worst], detail=shown)


def _batch(trial: Trial, b: int) -> Trial:
    """All heads of one member of the batch."""
    cut = {n: x[b : b + 1] for n, x in trial.tensors().items() if n in ("q", "k", "v", "beta", "alpha", "state")}
    return replace(trial, truth=None, **cut)


def _parts(trial: Trial, check: str, error: float, limits: Tolerances, detail: str) -> Row:
    good = error <= limits.parts
    text = "" if good else f"{detail}: {error:.2g} apart, over {limits.parts:g}"
    return Row(trial.name, check, trial.length, "pass" if good else "fail", error=error, detail=text)


@dataclass(frozen=True, eq=False)
class _Margins:
    """Of each readout [B, T, H] how much nearer the right codeword is than any other state's, that of the state `rival`
    first; whether it is decoded as that (`wrong`), and whether it is not decoded right (`missed`)."""

    slack: Tensor
    rival: Tensor
    wrong: Tensor
    missed: Tensor


def _margins(trial: Trial, o: Tensor) -> _Margins:
    assert trial.codebook is not None
    assert trial.labels is not None
    assert trial.truth is not None
    rows = o[..., trial.columns].double().flatten(0, 2)
    truth = trial.truth.flatten()
    rival = torch.empty_like(truth)
    good, bad = torch.empty(2, len(truth), dtype=torch.float64, device=o.device)
    step = max(1, _DISTANCES_AT_ONCE // len(trial.codebook))
    for at in range(0, len(rows), step):
        part = slice(at, at + step)
        far = torch.cdist(rows[part], trial.codebook, compute_mode="donot_use_mm_for_euclid_dist")
        right = trial.labels[None, :] == truth[part, None]
        good[part] = far.masked_fill(~right, torch.inf).amin(1)
        bad[part], nearest = far.masked_fill(right, torch.inf).nan_to_num(torch.inf).min(1)
        rival[part] = trial.labels[nearest].to(rival.dtype)
    # A distance that overflows says as little as a number that is none.
    finite = good.isfinite() & bad.isfinite()
    slack, rounding = bad - good, _ROUNDING * torch.maximum(good, bad)
    found = (slack.masked_fill(~finite, -torch.inf), rival, finite & (slack < -rounding), ~finite | (slack <= rounding))
    return _Margins(*(x.view(trial.truth.shape) for x in found))


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


LOOKS: Mapping[str, Callable[[Kernel, Trial, Tolerances], Row]] = {
    "decode": _decode,
    "split": _split,
    "varlen": _varlen,
    "gradient": _gradient,
    "drift": _drift,
}
