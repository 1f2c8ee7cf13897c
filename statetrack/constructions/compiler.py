"""Compilation on one screen: source -> plan -> program -> certificate.

Main definitions: `compile_source`, `Compiled`.

Main results: a `Compiled` object exists only with a certificate of its own program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from statetrack.errors import CertificateFailed
from statetrack.theory.automata import Dfa, Output
from statetrack.theory.groups import Group

from .certificate import Certificate, certify, digest_of
from .margins import Margin
from .planner import Plan, plan
from .program import Program
from .source import Options, Source, resolve
from .targets import Target, target


@dataclass(frozen=True)
class Compiled:
    """A program that is proved to track its automaton on words of every length."""

    source: Source
    target: Target
    plan: Plan
    program: Program
    certificate: Certificate

    def __post_init__(self) -> None:
        if digest_of(self.certificate.data) != self.certificate.digest:
            raise CertificateFailed(
                "digest of the certificate", digest_of(self.certificate.data), self.certificate.digest
            )

    @property
    def dims(self) -> tuple[tuple[int, ...], ...]:
        """K of each head of each layer."""
        return self.program.dims

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.program.layers)

    @property
    def factors_per_token(self) -> int:
        """Largest number of factors a token, n_h."""
        return self.program.factors_per_token

    @property
    def margin(self) -> Margin | None:
        """The smallest unit margin over all heads; None if nothing is to be told apart."""
        found = [m for row in self.certificate.margins for m in row if m is not None]
        return min(found, key=lambda m: m.unit, default=None)

    def run(self, word: Iterable[str]) -> tuple[Output, ...]:
        """The outputs after each symbol of the word, in exact arithmetic."""
        return self.program.run(word)


def compile_source(
    source: str | Dfa | Group,
    goal: str = "ckda",
    *,
    options: Options | None = None,
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    proof: str = "closure",
    progress: Callable[[int], None] | None = None,
) -> Compiled:
    """Explicit weights for a source on a target, with a certificate for words of every length.

    Args:
        source: group name, permutations in cycle notation, regular expression, file path, `Dfa` or `Group`.
        goal: a name of `statetrack.constructions.targets.TARGETS`.
        options: letters, missing edges, budgets.
        max_dim, max_factors: upper limits on the size K of a head and on the factors a token.
        construction: insist on one of `planner.CONSTRUCTIONS`.
        proof: "closure" or "span" (linear readouts; one layer, one head).
        progress: called with the number of joint states found so far.

    Raises NotExpressible (with its witness), NoConstruction, and what `resolve` and `certify` raise.
    """
    options = options or Options()
    chosen = target(goal)
    resolved = resolve(source, options)
    limits = {"max_dim": max_dim, "max_factors": max_factors}
    made = plan(resolved, chosen, **limits, construction=construction, linear=proof == "span")
    program, certificate = certify(
        made.program, resolved.dfa, chosen, proof=proof, max_joint=options.max_states, progress=progress
    )
    return Compiled(resolved, chosen, made, program, certificate)
