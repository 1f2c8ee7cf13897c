"""Hypothesis profiles of all rooms; the environment variable HYPOTHESIS_PROFILE picks one, `ci` by default."""

from __future__ import annotations

import os

from beartype.claw import beartype_packages
from hypothesis import HealthCheck, settings

# Annotations of the exact rooms are checked at run time while tests run.
beartype_packages(("statetrack.theory", "statetrack.constructions"))

# Two busy cores make single examples slow now and then; that says nothing about the code.
_CALM = [HealthCheck.too_slow]

settings.register_profile("dev", max_examples=50, deadline=None, suppress_health_check=_CALM)
settings.register_profile("ci", max_examples=200, deadline=None, suppress_health_check=_CALM, derandomize=True)
settings.register_profile("thorough", max_examples=5000, deadline=None, suppress_health_check=_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
