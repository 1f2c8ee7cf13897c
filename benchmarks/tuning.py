"""One configuration a kernel in place of Triton's autotuning, where a benchmark asks for numbers and not for speed.

An autotuned kernel is compiled in dozens of configurations and timed in each, again for every type and shape in its
key: minutes a model of flash-linear-attention. `one_configuration()` makes every autotuned kernel of the process, of
whatever library, take the first of its configurations that fits the device.

Main definitions: `one_configuration`, `TUNED`.
"""
# triton is only partly typed.
# pyright: basic

from __future__ import annotations

from importlib import import_module
from typing import Any

# What a result says of it.
TUNED = "kernels in one configuration each, not autotuned"


def one_configuration() -> bool:
    """Put it in place, once a process; False without Triton, where nothing is tuned."""
    try:
        autotuner: Any = import_module("triton.runtime.autotuner")
    except ImportError:
        return False
    if getattr(autotuner.Autotuner, "one_configuration", False):
        return True
    run, unfit = autotuner.Autotuner.run, (autotuner.OutOfResources, autotuner.PTXASError)

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The kernel in its first configuration whose shared memory and registers the device has."""
        configs = self.configs
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        fitting = self.prune_configs(kwargs)
        try:
            for config in fitting[:-1]:
                self.configs = [config]
                try:
                    return run(self, *args, **kwargs)
                except unfit:
                    continue
            self.configs = fitting[-1:]
            return run(self, *args, **kwargs)
        finally:
            self.configs = configs

    autotuner.Autotuner.run = first
    autotuner.Autotuner.one_configuration = True
    return True
