"""The public face: build, certify, lower, run, save and load, in one place above all rooms.

Main definitions: `build`, `load`, `Compiled`, `Weights`.

References: docs/certificate.md for what is proved; README for examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statetrack.constructions import compiler, composed, horizons, reading, weights
from statetrack.constructions.certificate import Certificate, certify
from statetrack.constructions.program import Program
from statetrack.constructions.source import Options
from statetrack.constructions.targets import check_named_range
from statetrack.errors import CertificateFailed, InvalidFile, InvalidInput
from statetrack.proofs_check import checker, float_checker, networks
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import Group
from statetrack.theory.weighted import Wfa

if TYPE_CHECKING:
    from statetrack.constructions.encodings import Encoded
    from statetrack.constructions.planner import Limits
    from statetrack.kernels.run import Executor, TokenSource, Trace

# Words are run in groups of this many, so that memory does not grow with their number.
_WORDS_AT_ONCE = 2**14
# Each further group of random words has a seed of its own: an odd stride, so that no two of 2^32 groups share one.
_SEED_STRIDE = 65_537


@dataclass(frozen=True, eq=False)
class Weights(weights.Weights):
    """Tensors of a certified program that can be run: see `statetrack.constructions.weights.Weights`."""

    def run(
        self,
        words: Sequence[Sequence[str]] | None = None,
        *,
        random: int = 0,
        length: int = 0,
        seed: int = 0,
        device: str = "auto",
        executor: Executor = "auto",
        order: str = "recurrent",
        storage: str | None = None,
        keep_answers: bool | None = None,
        renormalise: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Trace:
        """Run words (or `random` uniform words of `length` symbols from `seed`) and compare with the automaton.

        Args:
            words: sequences of symbols; give either these or `random`.
            device: "auto" (cuda if there is one, else cpu), "cpu", "cuda" or "cuda:N".
            executor: "auto", "triton" or "reference"; the result's `executor` says which ran, and where.
            order: evaluation order; "recurrent" is the only one so far.
            storage: number format of tables and states; None is the weights' own.
            keep_answers: keep the answer of every token (default: for given words only).
            renormalise: replace the state every so many tokens by a fresh one (docs/precision.md, for its cost).

        Raises InvalidWord, KernelUnavailable or InvalidInput.
        """
        import torch

        from statetrack.kernels.load import encode_words, model_of
        from statetrack.kernels.run import execute

        if order != "recurrent":
            raise InvalidInput(f"evaluation order {order!r}: know recurrent")
        if executor not in ("auto", "triton", "reference"):
            raise InvalidInput(f"executor {executor!r}: know auto, triton, reference")
        if (words is None) == (random == 0):
            raise InvalidInput("give words, or a number of random words with their length, not both")
        if random < 0 or length < 0:
            raise InvalidInput(f"random words {random}, length {length}: give numbers that are not negative")
        if storage is not None and storage not in weights.FORMATS:
            raise InvalidInput(f"number format {storage!r}: know {', '.join(weights.FORMATS)}")
        if words is None and not self.dfa.alphabet:
            raise InvalidInput("random words over the empty alphabet: there is only the empty word")
        place = device_of(device)
        run_group = partial(
            execute,
            model_of(self),
            storage=getattr(torch, storage or self.storage),
            tables_as=getattr(torch, storage or self.dtype),
            device=place,
            executor=executor,
            keep_answers=words is not None if keep_answers is None else keep_answers,
            renormalise=renormalise,
        )
        if words is None:
            source = _random_groups(len(self.dfa.alphabet), random, seed, place)
            return _run_groups(run_group, source, length, length, progress)
        tokens = encode_words(words, self)
        groups = (tokens[i : i + _WORDS_AT_ONCE] for i in range(0, max(len(tokens), 1), _WORDS_AT_ONCE))
        return _run_groups(run_group, groups, None, tokens.shape[1], progress)

    def values(
        self,
        words: Sequence[Sequence[str]],
        *,
        device: str = "auto",
        executor: Executor = "auto",
        storage: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[tuple[float, ...], ...]:
        """The values that a weighted automaton's weights compute after each token of each word, in floating point.

        The exact ones are `weights.automaton.run(word)`. Arguments as in `run`.
        """
        import torch

        from statetrack.kernels.load import encode_words, model_of
        from statetrack.kernels.run import values

        if storage is not None and storage not in weights.FORMATS:
            raise InvalidInput(f"number format {storage!r}: know {', '.join(weights.FORMATS)}")
        found = values(
            model_of(self),
            encode_words(words, self),
            storage=getattr(torch, storage or self.dtype),
            device=device_of(device),
            executor=executor,
            progress=progress,
        )
        rows: list[list[float]] = found.tolist()  # pyright: ignore
        return tuple(tuple(row[: len(word)]) for row, word in zip(rows, words, strict=True))

    @property
    def is_for_ever(self) -> bool:
        """Whether they hold a proof that they are right for ever in their own formats; `check` verifies it."""
        return self.float_proof is not None

    def horizon(self, renormalise: int | None = None) -> float:
        """A length up to which every word decodes right in this format and recurrent order.

        Infinity with a proof of being right for ever, or one state; else an a-priori bound, rounded down. 0 if no bound
        of this kind applies to some head (`statetrack.constructions.horizons`). With `renormalise` for runs with that
        option: infinity if it comes soon enough.
        """
        return horizons.horizon_of(self) if renormalise is None else horizons.renormalised_horizon(self, renormalise)

    def in_format(self, dtype: str) -> Weights:
        """The same program in another number format: read from the certificate, certified and lowered again."""
        closed, certificate = _again(self)
        return _runnable(weights.lower(closed, certificate, self.automaton, dtype))


@dataclass(frozen=True)
class Compiled(compiler.Compiled):
    """A program proved right for words of every length; both the search and the independent checker accepted it."""

    def weights(self, dtype: str = "float32", keys: str = "unit") -> Weights:
        """Tensors in a number format: "float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2".

        `keys`: "unit", or "dyadic" for keys of the lengths that make β k kᵀ most exact (docs/precision.md).
        """
        return _runnable(weights.lower(self.program, self.certificate, self.automaton, dtype, keys))

    def for_ever(
        self,
        precision: str,
        *,
        fused: bool = False,
        construction: str | None = None,
        limits: Limits | None = None,
        **how: Any,
    ) -> tuple[Compiled, Weights, Encoded]:
        """An encoding whose weights are right for ever with a state in this precision, where one is found.

        Args:
            precision: "fp32", "bf16", "fp16", "e4m3", ... or the long name.
            fused: right as well in kernels that fuse products into sums.
            construction, limits: keep to these, as for `build`.
            how: `max_columns` and `progress` of `statetrack.constructions.encodings.encode_for_ever`.

        Returns what was compiled in that encoding, its weights (with the proof, which the independent checker accepted)
        and how the search went; without one the program as it is, whose weights then hold no proof.
        """
        from statetrack.constructions.encodings import encode_for_ever

        if self.tokens is not None:
            raise InvalidInput("a network that is scaled is right for so many tokens, in no precision for ever")
        order = "fused" if fused else "recurrent"
        found = encode_for_ever(self, precision, order=order, construction=construction, limits=limits, **how)
        made, kept = found.compiled, _runnable(found.weights)
        if kept.float_proof is not None:
            _independent(made.certificate.text(), made.certificate.digest)
            check_float_proof(kept)
        return Compiled(made.source, made.target, made.plan, made.program, made.certificate), kept, found

    def horizon(self, dtype: str = "float32", order: str = "recurrent") -> float:
        """A length up to which every word decodes right in this format; see `Weights.horizon`."""
        if order != "recurrent":
            raise InvalidInput(f"evaluation order {order!r}: know recurrent")
        return self.weights(dtype).horizon()


def build(
    source: str | Dfa | Group | Wfa,
    target: str = "ckda",
    *,
    letters: str = "all",
    missing: str = "error",
    token: bool = False,
    alphabet: Sequence[str] | None = None,
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    scaled: int | None = None,
    proof: str = "closure",
    max_states: int = 1_000_000,
    max_order: int = 100_000,
    max_monoid: int = 20_000,
    max_cascade: int = 100_000,
    check: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Compiled:
    """Explicit weights that track a group, regular expression or automaton on a target architecture, with a proof.

    Args:
        source: group name ("A5", "Z2xS3"), permutations "(1 2 3);(1 2)", regular expression, path of an automaton file,
            `Dfa` or `Group`; a prefix group:, perm:, regex: or file: settles what a string is.
        target: "ckda", "deltaproduct", "deltanet", ... (`statetrack targets`).
        letters: a group's alphabet: "all" elements or "generators".
        missing: absent edges of a file: "error", "sink" or "stay".
        token: a JFLAP read of several letters is one symbol.
        alphabet: the letters of a regular expression, in order; None for the letters used.
        max_dim, max_factors, construction, scaled, proof: see `compile_source`.
        check: also run the independent checker on the certificate before anything is returned.

    Raises NotExpressible with a witness, NoConstruction, and errors of the input.

    >>> build("S3").dims
    ((2,),)
    """
    symbols = None if alphabet is None else tuple(alphabet)
    options = Options(letters, missing, token, max_states, max_order, symbols, max_monoid, max_cascade=max_cascade)
    return build_with(
        source,
        target,
        options,
        max_dim=max_dim,
        max_factors=max_factors,
        construction=construction,
        scaled=scaled,
        proof=proof,
        check=check,
        progress=progress,
    )


def build_with(
    source: str | Dfa | Group | Wfa,
    target: str,
    options: Options,
    *,
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    scaled: int | None = None,
    proof: str = "closure",
    check: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Compiled:
    """`build` with the reading of the source and the budgets as one value."""
    if proof not in ("closure", "span"):
        raise InvalidInput(f"proof {proof!r}: know closure, span")
    named = ("max_states", "max_order", "max_monoid", "max_cascade")
    budgets: dict[str, int] = {name: getattr(options, name) for name in named}
    low = [f"{name} {n}" for name, n in budgets.items() if n < 1]
    if low:
        raise InvalidInput(f"{', '.join(low)}: give numbers of at least 1")
    made = compiler.compile_source(
        source,
        target,
        options=options,
        max_dim=max_dim,
        max_factors=max_factors,
        construction=construction,
        scaled=scaled,
        proof=proof,
        progress=progress,
    )
    if check:
        _independent(made.certificate.text(), made.certificate.digest)
    return Compiled(made.source, made.target, made.plan, made.program, made.certificate)


def load(path: str | Path) -> Weights:
    """Weights from a file that `Weights.save` wrote; both digests are checked. Raises InvalidFile."""
    return _runnable(weights.load_weights(path))


def check(path: str | Path) -> dict[str, Any]:
    """Check a weights file in full: the independent checker on its certificate, and its tensors against the program.

    The program is read from the certificate, certified again and lowered again; every tensor must be equal bit for bit.
    Raises InvalidFile or CertificateFailed.
    """
    found = load(path)
    facts = _independent(compact(found), str(found.certificate["digest"]))
    check_named_range(found.certificate["range"])
    closed, certificate = _again(found)
    again = weights.lower(closed, certificate, found.automaton, found.dtype, found.keys)
    if weights.tensors_digest(again.tensors) != weights.tensors_digest(found.tensors):
        raise InvalidFile(str(path), "the tensors are not the certified program in this format", "build the file again")
    return facts | ({} if found.float_proof is None else {"for_ever": check_float_proof(found)})


def check_float_proof(found: weights.Weights) -> dict[str, Any]:
    """Check a proof of being right for ever by the independent checker, in integers. Raises CertificateFailed."""
    try:
        return float_checker.verify_bytes(found.to_bytes())
    except float_checker.Refused as error:
        raise CertificateFailed("float proof", str(error), "acceptance") from None


def _runnable(made: weights.Weights) -> Weights:
    own = made.state_dtype, made.float_proof, made.keys
    return Weights(made.dtype, made.tensors, made.certificate, made.automaton, *own)


def device_of(name: str) -> str:
    """The device that a name stands for: "auto" is cuda if there is one, else cpu. Raises InvalidInput."""
    import torch

    if name != "auto" and not re.fullmatch(r"cpu|cuda(:[0-9]{1,4})?", name):
        raise InvalidInput(f"device {name!r}: know auto, cpu, cuda, cuda:N")
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        return "cuda" if count else "cpu"
    if name != "cpu" and count <= int(name.partition(":")[2] or 0):
        raise InvalidInput(
            f"device {name}: no CUDA device here; use --device cpu"
            if not count
            else f"device {name}: this machine has {count} CUDA devices, counted from cuda:0"
        )
    return name


def _random_groups(symbols: int, count: int, seed: int, device: str) -> Iterator[TokenSource]:
    """Random words in groups; the first group has the seed itself."""
    from statetrack.kernels.load import random_tokens

    for group, first in enumerate(range(0, count, _WORDS_AT_ONCE)):
        size, own_seed = min(_WORDS_AT_ONCE, count - first), (seed + group * _SEED_STRIDE) % 2**32
        yield partial(random_tokens, symbols, size, seed=own_seed, device=device)


def _run_groups(
    run_group: Callable[..., Trace],
    groups: Iterable[object],
    length: int | None,
    time: int,
    progress: Callable[[int], None] | None,
) -> Trace:
    """Run groups of words of `time` columns one after the other; their findings as those of all words."""
    traces: list[Trace] = []
    for number, group in enumerate(groups):
        before = number * _WORDS_AT_ONCE * time
        report = None if progress is None else partial(_add, progress, before)
        traces.append(run_group(group, length=length, progress=report))
    return _merged(traces)


def _add(progress: Callable[[int], None], before: int, done: int) -> None:
    progress(before + done)


def _merged(traces: Sequence[Trace]) -> Trace:
    """The findings of groups of words as those of all words."""
    import torch

    if len(traces) == 1:
        return traces[0]
    answers = [trace.answers for trace in traces if trace.answers is not None]
    return replace(
        traces[0],
        answers=torch.cat(answers) if answers else None,
        wrong=sum(trace.wrong for trace in traces),
        first_wrong=min((t.first_wrong for t in traces if t.first_wrong is not None), default=None),
        wrong_words=sum(trace.wrong_words for trace in traces),
        tokens=sum(trace.tokens for trace in traces),
    )


def _again(found: weights.Weights) -> tuple[Program, Certificate]:
    """The program of a file's certificate; of the kinds that a search proves, with the search made again."""
    data, kind = found.certificate, str(found.certificate["kind"])
    if kind in ("closure", "span"):
        return certify(reading.program_of(data), found.dfa, reading.target_of(data), proof=kind)
    joint = int(data["claims"].get("joint", 0))
    return composed.closed_program(data), Certificate(kind, data, str(data["digest"]), joint, (), ())


def compact(found: weights.Weights) -> str:
    """The certificate of a weights file as JSON text."""
    import json

    return json.dumps(found.certificate, separators=(",", ":"))


def _independent(text: str, digest: str) -> dict[str, Any]:
    try:
        return networks.verify(text, digest)
    except checker.Refused as error:
        raise CertificateFailed("independent checker", str(error), "acceptance") from None
