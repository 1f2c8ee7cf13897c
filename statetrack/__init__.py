"""Explicit linear-RNN weights that track automata and groups, with certificates for words of every length.

Main definitions: `build`, `explain`, `verify`, `load`, `check`, `Compiled`, `Weights`, and the errors of
`statetrack.errors`.

>>> import statetrack as st
>>> c = st.build("A4", "ckda")
>>> c.dims, c.factors_per_token
(((3,),), 1)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import transformers_hook
from .errors import (
    BudgetExceeded,
    CertificateFailed,
    InvalidAutomaton,
    InvalidFile,
    InvalidInput,
    InvalidPermutation,
    InvalidWord,
    KernelUnavailable,
    NoConstruction,
    NotExpressible,
    OutOfRange,
    RegexSyntaxError,
    StatetrackError,
    UnknownGroup,
)

if TYPE_CHECKING:
    from .api import Compiled, Weights, build, check, load
    from .constructions.explain import Explanation, explain
    from .constructions.source import Options
    from .proofs_check.runner import Verdict, verify
    from .theory.automata import Dfa
    from .theory.groups import Group
    from .theory.weighted import Wfa

__version__ = "0.1.0"
__all__ = [
    "BudgetExceeded",
    "CertificateFailed",
    "Compiled",
    "Dfa",
    "Explanation",
    "Group",
    "InvalidAutomaton",
    "InvalidFile",
    "InvalidInput",
    "InvalidPermutation",
    "InvalidWord",
    "KernelUnavailable",
    "NoConstruction",
    "NotExpressible",
    "Options",
    "OutOfRange",
    "RegexSyntaxError",
    "StatetrackError",
    "UnknownGroup",
    "Verdict",
    "Weights",
    "Wfa",
    "build",
    "check",
    "explain",
    "load",
    "verify",
]

_LAZY = {
    "Compiled": "statetrack.api",
    "Weights": "statetrack.api",
    "build": "statetrack.api",
    "check": "statetrack.api",
    "load": "statetrack.api",
    "Explanation": "statetrack.constructions.explain",
    "explain": "statetrack.constructions.explain",
    "Options": "statetrack.constructions.source",
    "Dfa": "statetrack.theory.automata",
    "Group": "statetrack.theory.groups",
    "Wfa": "statetrack.theory.weighted",
    "Verdict": "statetrack.proofs_check.runner",
    "verify": "statetrack.proofs_check.runner",
}


transformers_hook.install()


def __getattr__(name: str) -> Any:
    """Public names that need more than the errors are imported when first used, so that `import statetrack` is fast."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
