"""How errors add up over all words: heaviest paths among products of steps."""

from __future__ import annotations

import pytest

from statetrack import api
from statetrack.constructions.gains import settled, steps_of
from statetrack.constructions.program import Head


def head(source: str, target: str, construction: str) -> Head:
    return api.build(source, target, construction=construction, check=False).program.layers[-1].heads[0]


@pytest.mark.parametrize("small", [1e-6, 1e-20, 1e-300])
def test_errors_however_small_that_are_never_forgotten_have_no_bound(small: float) -> None:
    # Words of a and b in turn go on without the zero that aa or bb meets.
    one = head("(ab)*", "kda", "partial")
    assert settled(one, dict.fromkeys(steps_of(one), small), 1e-3, 1.0) is None
    assert settled(one, dict.fromkeys(steps_of(one), 0.0), 1e-3, 1.0) == 1e-3


def test_errors_that_a_window_forgets_add_up_over_its_length_only() -> None:
    one = head("(a|b)*abb", "ckda", "window")
    # A step is nilpotent: the start's error is met at once, those of three tokens in the end.
    # The norm of two steps is bounded by √2.
    found = settled(one, dict.fromkeys(steps_of(one), 0.01), 0.02, 1.0)
    assert found is not None
    assert 0.03 <= found <= 0.0342
    assert settled(one, dict.fromkeys(steps_of(one), 0.01), 0.02, 0.029) is None
