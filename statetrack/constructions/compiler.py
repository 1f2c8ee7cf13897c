"""Compilation on one screen: source -> plan -> program -> certificate.

Main definitions: `compile_source`, `Compiled`.

Main results: a `Compiled` object exists only with a certificate of its own program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from statetrack.display import Shown
from statetrack.errors import CertificateFailed, InvalidInput
from statetrack.theory.automata import Dfa, Output
from statetrack.theory.weighted import Wfa

from .certificate import Certificate, certify, digest_of
from .margins import Margin, margins_of
from .planner import Limits, Plan, plan
from .program import Program
from .source import Named, Options, Source, WeightedSource, resolve_any
from .targets import Target, target
from .weighted_plan import plan_weighted


@dataclass(frozen=True)
class Compiled(Shown):
    """A program that is proved to track its automaton on words of every length (`tokens`: up to so many)."""

    source: Source | WeightedSource
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
        """Number of layers; networks that do not depend on each other stand side by side."""
        return self.program.depth

    @property
    def tokens(self) -> int | None:
        """The longest words that the certificate is about; None for words of every length."""
        return self.certificate.tokens

    @property
    def factors_per_token(self) -> int:
        """Largest number of factors a token, n_h."""
        return self.program.factors_per_token

    @property
    def margins(self) -> tuple[tuple[Margin | None, ...], ...]:
        """The exact margin of each head of each layer, in the shape of `dims`; None if it tells nothing apart."""
        return margins_of(self.program)

    @property
    def margin(self) -> Margin | None:
        """The smallest unit margin over all heads; None if nothing is to be told apart."""
        found = [m for row in self.margins for m in row if m is not None]
        return min(found, key=lambda m: m.unit, default=None)

    @property
    def automaton(self) -> Dfa | Wfa:
        """What the program tracks or computes."""
        return self.source.wfa if isinstance(self.source, WeightedSource) else self.source.dfa

    def run(self, word: Iterable[str]) -> tuple[Output | Fraction, ...]:
        """The outputs (or exact values) after each symbol of the word, in exact arithmetic."""
        if isinstance(self.source, Source):
            word = tuple(word)
            if self.tokens is not None and len(word) > self.tokens:
                raise InvalidInput(
                    f"a word of {len(word):,} tokens: this scaled network is for {self.tokens:,} at most"
                )
            return self.program.run(word)
        values = (x.as_fraction() for x in self.program.runner.values(word))
        return tuple(x for x in values if x is not None)


def compile_source(
    source: Named,
    goal: str = "ckda",
    *,
    options: Options | None = None,
    max_dim: int | None = None,
    max_factors: int | None = None,
    construction: str | None = None,
    scaled: int | None = None,
    proof: str = "closure",
    progress: Callable[[int], None] | None = None,
) -> Compiled:
    """Explicit weights for a source on a target, with a certificate for words of every length.

    Args:
        source: group name, permutations in cycle notation, regular expression, file path, `Dfa`, `Group` or `Wfa`.
        goal: a name of `statetrack.constructions.targets.TARGETS`.
        options: letters, missing edges, budgets.
        max_dim, max_factors: upper limits on the size K of a head and on the factors a token.
        construction: insist on one of `planner.CONSTRUCTIONS`.
        scaled: three layers (four without negative gates) with β at most 2 whose state shrinks where letters merge
            states: right for words of up to so many tokens only, and so is the certificate.
        proof: "closure" or "span" (linear readouts; one layer, one head).
        progress: called with the number of joint states found so far.

    Raises NotExpressible (with its witness), NoConstruction, and what `resolve` and `certify` raise.
    """
    options = options or Options()
    chosen = target(goal)
    resolved = resolve_any(source, options)
    if isinstance(resolved, WeightedSource):
        if scaled is not None:
            raise InvalidInput("scaled: a weighted automaton has no states to tell by the proportion of a readout")
        name, theorem, program, certificate = plan_weighted(resolved, chosen)
        return Compiled(resolved, chosen, Plan(name, theorem, program, certificate), program, certificate)
    limits = Limits(
        max_dim, max_factors, options.max_states, options.max_monoid, scaled, options.max_cascade, options.max_order
    )
    made = plan(resolved, chosen, limits=limits, construction=construction, linear=proof == "span")
    if made.certificate is not None:
        return Compiled(resolved, chosen, made, made.program, made.certificate)
    program, certificate = certify(
        made.program, resolved.dfa, chosen, proof=proof, max_joint=options.max_states, progress=progress
    )
    return Compiled(resolved, chosen, made, program, certificate)
