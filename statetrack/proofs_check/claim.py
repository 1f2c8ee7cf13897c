"""A statement with the check that can refute it: the registry of claims.

    @claim("CKDA-planar-rotation", "A reflection after Diag(1, -1) is a rotation.", source="CKDA Sec. 3",
           kinds="E", control={"gate": 1})
    def planar_rotation(t: Trial, gate: int = -1) -> None:
        '''For n up to 12, over K_4n.'''
        for n in range(1, t.amount(6, 12, 60)):
            t.equal(f"n = {n}", step(n, gate), rotation(n))

The keyword arguments of the function are what a negative control breaks: with them replaced by `control` the check must
refute. A check refutes by `Trial.equal`, `Trial.holds` or `Trial.refutes`, or by a refused certificate or factor. Any
other error is a fault of the check, of a control too; and nothing is proved by a check that looked at nothing.

Main definitions: `Claim`, `claim`, `Trial`, `CLAIMS`.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from statetrack.errors import InvalidInput, StatetrackError

if TYPE_CHECKING:
    from statetrack.constructions.compiler import Compiled

KINDS: Mapping[str, str] = {
    "E": "exact identity for all parameters",
    "C": "construction, then an exact check of its output",
    "X": "exhaustive finite check",
    "CL": "closure: all lengths",
    "P": "property test on random inputs",
    "N": "numeric, in floating point",
    "K": "run through the kernels",
}
# Kinds whose success proves a statement that they exhaust; a claim says by `proves` whether they do.
BUDGETS = ("fast", "full", "thorough")
CLAIMS: dict[str, Claim] = {}


class Refuted(StatetrackError):
    """A check that failed: what was checked, what was got, what was expected."""

    def __init__(self, what: str, got: object, expected: object) -> None:
        self.what, self.got, self.expected = what, got, expected
        super().__init__(f"{what}: got {str(got)[:160]}, expected {str(expected)[:160]}")


@dataclass(frozen=True)
class Claim:
    """A statement, where it stands, what it supposes, and its check.

    `kinds` are letters of `KINDS` apart by blanks. `proves`: the check (with the argument in its docstring or the named
    document) proves the statement; otherwise success only supports it. `cited`: a lemma that the proof takes from the
    literature, whose finite part is checked. `control` replaces keyword arguments of the check by broken ones.
    """

    id: str
    statement: str
    source: str
    kinds: tuple[str, ...]
    check: Callable[..., None]
    control: Mapping[str, Any]
    hypotheses: tuple[str, ...] = ()
    proves: bool = False
    cited: str | None = None
    figure: str | None = None


def claim(
    id: str,
    statement: str,
    *,
    source: str,
    kinds: str,
    control: Mapping[str, Any],
    hypotheses: tuple[str, ...] = (),
    proves: bool = False,
    cited: str | None = None,
    figure: str | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a check under an id; see `Claim`."""
    letters = tuple(kinds.split())
    if id in CLAIMS or not letters or not set(letters) <= set(KINDS) or not control:
        raise InvalidInput(f"claim {id!r}: stands twice, has unknown kinds {kinds!r}, or has no negative control")

    def register(check: Callable[..., None]) -> Callable[..., None]:
        CLAIMS[id] = Claim(id, statement, source, letters, check, control, hypotheses, proves, cited, figure)
        return check

    return register


@dataclass
class Trial:
    """What a check is given: its budget, random numbers of its own, the device for kernels, and where findings go."""

    id: str
    budget: str = "fast"
    seed: int = 0
    kernels: str | None = None
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    notes: list[str] = field(default_factory=list[str])
    data: dict[str, Any] = field(default_factory=dict[str, Any])
    certificates: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def __post_init__(self) -> None:
        self.random = random.Random(zlib.crc32(self.id.encode()) + self.seed)

    def amount(self, fast: int, full: int, thorough: int | None = None) -> int:
        """A size that grows with the budget."""
        return (fast, full, full if thorough is None else thorough)[BUDGETS.index(self.budget)]

    def equal(self, what: str, got: object, expected: object) -> None:
        """Refute unless equal; counts one check."""
        self.count("checks")
        if got != expected:
            raise Refuted(what, got, expected)

    def holds(self, what: str, condition: bool, got: object = "false") -> None:
        """Refute unless true; counts one check."""
        self.count("checks")
        if not condition:
            raise Refuted(what, got, "true")

    @contextmanager
    def refutes(self, what: str, error: type[Exception] = StatetrackError) -> Generator[None, None, None]:
        """Refute unless the block raises the error: for statements that something is impossible."""
        self.count("checks")
        try:
            yield
        except error:
            return
        raise Refuted(what, "no error", error.__name__)

    def count(self, name: str, more: int = 1) -> None:
        """Add to a size that the report shows."""
        self.sizes[name] = self.sizes.get(name, 0) + more

    def certificate(self, data: Mapping[str, Any]) -> None:
        """Check a certificate with the independent checker and keep it for the report."""
        import json

        from . import networks

        facts = networks.verify(json.dumps(data))
        self.count("certificates")
        self.count("joint states", int(facts["joint"]))
        self.certificates.append(data)

    def kernel_run(self, made: Compiled, words: int, length: int) -> None:
        """If kernels are asked for: float32 weights on random words, every decoded state the automaton's."""
        if self.kernels is None:
            return
        from statetrack.constructions.weights import lower
        from statetrack.kernels.load import model_of, random_tokens
        from statetrack.kernels.run import execute

        weights = lower(made.program, made.certificate, made.automaton, "float32")
        symbols, place = len(weights.dfa.alphabet), self.kernels

        def columns(start: int, stop: int) -> Any:
            return random_tokens(symbols, words, start, stop, seed=self.seed, device=place)

        trace = execute(model_of(weights), columns, length=length, device=place, keep_answers=False)
        self.notes.append(f"{trace.tokens:,} tokens by {trace.executor}: {trace.wrong} wrong states")
        self.equal("wrong states in float32", trace.wrong, 0)

    def kernel_values(self, made: Compiled, word: Sequence[str]) -> None:
        """If kernels are asked for: values of a weighted automaton in float64, within the bound of the exact ones."""
        if self.kernels is None:
            return
        from statetrack.constructions.value_bounds import value_bounds
        from statetrack.constructions.weights import lower
        from statetrack.kernels.load import encode_words, model_of
        from statetrack.kernels.run import values

        weights = lower(made.program, made.certificate, made.automaton, "float64")
        model = model_of(weights)
        storage = model.layers[0].tables.queries.dtype
        got = values(model, encode_words([word], weights), storage=storage, device=self.kernels)[0]
        numbers: list[float] = got.tolist()  # pyright: ignore
        for x, exact, bound in zip(numbers, made.run(word), value_bounds(made.program, word), strict=True):
            near = abs(Fraction(x) - Fraction(exact)) <= bound
            self.holds("value of the kernel within its bound", near, (x, exact, bound))
