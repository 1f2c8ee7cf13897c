"""The public face: build, certify, lower, run, save and load, in one place above all rooms.

Main definitions: `build`, `load`, `Compiled`, `Weights`.

References: docs/certificate.md for what is proved; README for examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statetrack.constructions import bounds, compiler, reading, weights
from statetrack.constructions.certificate import Certificate, certify
from statetrack.constructions.program import Program
from statetrack.constructions.source import Options
from statetrack.constructions.targets import check_named_range
from statetrack.errors import CertificateFailed, InvalidFile, InvalidInput
from statetrack.proofs_check import checker
from statetrack.theory.automata import Dfa
from statetrack.theory.groups import Group

if TYPE_CHECKING:
    from statetrack.kernels.run import Executor, Trace


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
        device: str = "cpu",
        executor: Executor = "auto",
        order: str = "recurrent",
        storage: str | None = None,
        keep_answers: bool | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Trace:
        """Run words (or `random` uniform words of `length` symbols from `seed`) and compare with the automaton.

        Args:
            words: sequences of symbols; give either these or `random`.
            device: "cpu" or "cuda". executor: "auto", "triton" or "reference".
            order: evaluation order; "recurrent" is the only one so far.
            storage: number format of tables and states; None is the weights' own.
            keep_answers: keep the answer of every token (default: for given words only).

        Raises InvalidWord, KernelUnavailable or InvalidInput.
        """
        import torch

        from statetrack.kernels.load import encode_words, model_of, random_tokens
        from statetrack.kernels.run import execute

        if order != "recurrent":
            raise InvalidInput(f"evaluation order {order!r}: know recurrent")
        if (words is None) == (random == 0):
            raise InvalidInput("give words, or a number of random words with their length, not both")
        if random < 0 or length < 0:
            raise InvalidInput(f"random words {random}, length {length}: give numbers that are not negative")
        formats = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}
        name = storage or self.dtype
        if name not in formats:
            raise InvalidInput(f"number format {name!r}: know {', '.join(formats)}")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise InvalidInput("device cuda: no CUDA device here; use --device cpu")
        symbols = len(self.dfa.alphabet)
        if words is None and symbols == 0:
            raise InvalidInput("random words over the empty alphabet: there is only the empty word")

        def columns(start: int, stop: int) -> torch.Tensor:
            return random_tokens(symbols, random, start, stop, seed=seed, device=device)

        return execute(
            model_of(self),
            columns if words is None else encode_words(words, self),
            length=None if words is not None else length,
            storage=formats[name],
            device=device,
            executor=executor,
            keep_answers=words is not None if keep_answers is None else keep_answers,
            progress=progress,
        )

    def horizon(self) -> float:
        """A length up to which every word decodes right in this format and recurrent order, by an a-priori bound.

        0 if the bound does not apply (dense or additive terms, β > 2), infinity for one state. Evaluated in doubles.
        """
        if len(self.dfa.states) == 1:
            return math.inf
        bound = bounds.safe_length(reading.program_of(self.certificate), self)
        return 0 if bound is None else bound

    def in_format(self, dtype: str) -> Weights:
        """The same program in another number format: read from the certificate, certified and lowered again."""
        closed, certificate = _again(self)
        made = weights.lower(closed, certificate, self.dfa, dtype)
        return Weights(made.dtype, made.tensors, made.certificate, made.dfa)


@dataclass(frozen=True)
class Compiled(compiler.Compiled):
    """A program proved right for words of every length; both the search and the independent checker accepted it."""

    def weights(self, dtype: str = "float32") -> Weights:
        """Tensors in "float64", "float32" or "bfloat16"."""
        made = weights.lower(self.program, self.certificate, self.source.dfa, dtype)
        return Weights(made.dtype, made.tensors, made.certificate, made.dfa)

    def horizon(self, dtype: str = "float32", order: str = "recurrent") -> float:
        """A length up to which every word decodes right in this format; see `Weights.horizon`."""
        if order != "recurrent":
            raise InvalidInput(f"evaluation order {order!r}: know recurrent")
        return self.weights(dtype).horizon()


def build(
    source: str | Dfa | Group,
    target: str = "ckda",
    *,
    letters: str = "all",
    missing: str = "error",
    token: bool = False,
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    proof: str = "closure",
    max_states: int = 1_000_000,
    max_order: int = 100_000,
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
        max_dim, max_factors, construction, proof: see `compile_source`.
        check: also run the independent checker on the certificate before anything is returned.

    Raises NotExpressible with a witness, NoConstruction, and errors of the input.

    >>> build("S3").dims
    ((2,),)
    """
    options = Options(letters, missing, token, max_states, max_order)
    made = compiler.compile_source(
        source,
        target,
        options=options,
        max_dim=max_dim,
        max_factors=max_factors,
        construction=construction,
        proof=proof,
        progress=progress,
    )
    if check:
        _independent(made.certificate.text(), made.certificate.digest)
    return Compiled(made.source, made.target, made.plan, made.program, made.certificate)


def load(path: str | Path) -> Weights:
    """Weights from a file that `Weights.save` wrote; both digests are checked. Raises InvalidFile."""
    found = weights.load_weights(path)
    return Weights(found.dtype, found.tensors, found.certificate, found.dfa)


def check(path: str | Path) -> dict[str, Any]:
    """Check a weights file in full: the independent checker on its certificate, and its tensors against the program.

    The program is read from the certificate, certified again and lowered again; every tensor must be equal bit for bit.
    Raises InvalidFile or CertificateFailed.
    """
    found = load(path)
    check_named_range(found.certificate["range"])
    facts = _independent(compact(found), str(found.certificate["digest"]))
    closed, certificate = _again(found)
    again = weights.lower(closed, certificate, found.dfa, found.dtype)
    if weights.tensors_digest(again.tensors) != weights.tensors_digest(found.tensors):
        raise InvalidFile(str(path), "the tensors are not the certified program in this format", "build the file again")
    return facts


def _again(found: weights.Weights) -> tuple[Program, Certificate]:
    program = reading.program_of(found.certificate)
    return certify(program, found.dfa, reading.target_of(found.certificate), proof=str(found.certificate["kind"]))


def compact(found: weights.Weights) -> str:
    """The certificate of a weights file as JSON text."""
    import json

    return json.dumps(found.certificate, separators=(",", ":"))


def _independent(text: str, digest: str) -> dict[str, Any]:
    try:
        return checker.verify(text, digest)
    except checker.Refused as error:
        raise CertificateFailed("independent checker", str(error), "acceptance") from None
