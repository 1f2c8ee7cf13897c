"""Registers the model type `ckda` with transformers, once transformers itself is imported, and not before.

Main definitions: `install`.

References: docs/export.md.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

# Behind each of these modules of transformers, one of ours registers a class.
_BEHIND = {
    "transformers.models.auto.configuration_auto": "statetrack.lab.hf_config",
    "transformers.models.auto.modeling_auto": "statetrack.lab.hf_model",
}


class Finder:
    """Finds the modules of `_BEHIND` where they are, with the import of ours behind their own code."""

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The usual spec with a longer `exec_module`; None for all other modules."""
        if name not in _BEHIND:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            run = loader.exec_module

            def execute(module: ModuleType) -> None:
                run(module)
                _register(name)

            loader.exec_module = execute
        return spec


def install() -> None:
    """Register now what transformers has loaded already, and the rest when it is loaded."""
    for name in _BEHIND:
        if name in sys.modules:
            _register(name)
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())  # pyright: ignore[reportArgumentType]


def _register(name: str) -> None:
    # The user imported transformers, not this: a version of it that ckda does not fit must not break that.
    try:
        import_module(_BEHIND[name])
    except ImportError as error:
        warnings.warn(f"statetrack: the model type ckda is not registered ({error})", RuntimeWarning, stacklevel=2)
