"""Every error statetrack raises on purpose.

A message says, in this order: what was asked, where (state, symbol, position, file), what was got and
expected, what to do. It is one line; the command line prints it and exits with code 2. The details are
attributes, so that a program need not parse the message.

Main definitions: `StatetrackError` and its subclasses.
"""

from __future__ import annotations


class StatetrackError(Exception):
    """Base of all errors statetrack raises on purpose; `str(error)` is one line."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class RegexSyntaxError(StatetrackError):
    """A regular expression that the dialect of `statetrack.theory.regex` does not read."""

    def __init__(self, pattern: str, position: int, reason: str) -> None:
        self.pattern, self.position, self.reason = pattern, position, reason
        super().__init__(f"regular expression {pattern!r}: {reason} at position {position} (counted from 0)")


class InvalidAutomaton(StatetrackError):
    """An automaton that is not a total deterministic one; `state` and `symbol` name the place if there is one."""

    def __init__(self, message: str, *, state: str | None = None, symbol: str | None = None) -> None:
        self.state, self.symbol = state, symbol
        super().__init__(message)


class UnknownGroup(StatetrackError):
    """A group name that `statetrack.theory.groups` does not know."""


class InvalidPermutation(StatetrackError):
    """Cycle notation that is not a permutation."""


class InvalidWord(StatetrackError):
    """A word with a symbol outside the alphabet; `position` counts symbols from 0."""

    def __init__(self, symbol: str, position: int, alphabet: tuple[str, ...]) -> None:
        self.symbol, self.position = symbol, position
        shown = ", ".join(alphabet[:12]) + (", ..." if len(alphabet) > 12 else "")
        super().__init__(
            f"word: symbol {symbol!r} at position {position} is not in the alphabet ({len(alphabet)} symbols: {shown})"
        )


class InvalidFile(StatetrackError):
    """A file that cannot be read as what it should be."""

    def __init__(self, path: str, reason: str, instead: str) -> None:
        self.path, self.reason, self.instead = path, reason, instead
        super().__init__(f"file {path}: {reason}; {instead}")


class InvalidInput(StatetrackError):
    """An argument out of its range, a mixture of fields, a name that is not known."""


class OutOfRange(StatetrackError):
    """A factor that the target's gates, β, additive terms or factor count do not allow."""


class NotExpressible(StatetrackError):
    """A proof that the target cannot do what was asked, with its witness.

    `theorem` names the statement, `witness` is the word (or the reason in a line) that shows it, `semantics` the
    arithmetic that the verdict is about.
    """

    def __init__(
        self,
        source: str,
        target: str,
        reason: str,
        *,
        theorem: str,
        witness: str,
        semantics: str = "finitely many exact states",
    ) -> None:
        self.source, self.target, self.reason, self.theorem, self.witness = source, target, reason, theorem, witness
        self.semantics = semantics
        super().__init__(f"{source} cannot be built on {target}: {reason} [{theorem}]; witness: {witness}")


class NoConstruction(StatetrackError):
    """No construction for this source on this target here, and no proof that there is none."""

    def __init__(self, source: str, target: str, reason: str, instead: str) -> None:
        self.source, self.target, self.reason, self.instead = source, target, reason, instead
        super().__init__(f"no construction of {source} on {target} here: {reason}; {instead}")


class CertificateFailed(StatetrackError):
    """An exact check that did not hold, with the equation and what was got and expected."""

    def __init__(self, equation: str, got: str, expected: str) -> None:
        self.equation, self.got, self.expected = equation, got, expected
        super().__init__(f"certificate: {equation}: got {got}, expected {expected}")


class BudgetExceeded(StatetrackError):
    """A bound on states, vectors, group order or codewords that was met; says which flag raises it."""

    def __init__(self, what: str, limit: int, flag: str) -> None:
        self.what, self.limit, self.flag = what, limit, flag
        super().__init__(f"more than {limit:,} {what}: stopped; raise the bound with {flag}")


class KernelUnavailable(StatetrackError):
    """A kernel that cannot run here, why, and what runs instead."""

    def __init__(self, kernel: str, why: str, instead: str) -> None:
        self.kernel, self.why, self.instead = kernel, why, instead
        super().__init__(f"kernel {kernel}: {why}; {instead}")
