"""The search for a common frame against exact recognition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statetrack.constructions.frame_search import defects, least_defect
from statetrack.theory.arrays import Matrix, matmul, matrix
from statetrack.theory.householder import signed_householders
from statetrack.theory.number_fields import rationals
from statetrack.theory.rotations import cube_frame, into_field, polyhedral_generators, signed_permutations


def floats(a: Matrix) -> np.ndarray:
    return np.array([[float(x) for x in row] for row in a])


def test_the_defect_is_zero_exactly_for_signed_householders() -> None:
    cube, frame = polyhedral_generators(4).elements, cube_frame()
    turned = [matmul(frame, matmul(into_field(m, frame[0][0].field), frame)) for m in cube]
    for a in (*cube, *turned, *signed_permutations(rationals())):
        fits = next(signed_householders(a), None) is not None
        assert (defects(floats(a)[None])[0] < 1e-9) == fits


@given(st.integers(0, 2**32))
def test_signed_householders_have_no_defect(seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys, signs = rng.normal(size=(5, 4)), rng.choice([-1.0, 1.0], size=(5, 4))
    steps = [(np.eye(4) - 2 * np.outer(k, k) / (k @ k)) * s for k, s in zip(keys, signs, strict=True)]
    assert defects(np.array(steps)).max() < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_a_frame_is_found_for_a_cube_turned_at_random(seed: int) -> None:
    cube = np.array([floats(m) for m in polyhedral_generators(4).elements])
    frame = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    turned = frame.T @ cube @ frame
    found, rows = least_defect(turned[:, None], restarts=8, seed=seed)
    assert found < 1e-9
    assert np.allclose(rows @ rows.T, np.eye(3))
    assert defects(rows @ turned @ rows.T).max() < 1e-9
    # All 60 rotations of the icosahedron have none (CKDA Lemma 16).
    icosahedron = np.array([floats(m) for m in polyhedral_generators(5).elements])
    assert least_defect(icosahedron[:, None], restarts=2, seed=seed)[0] > 12.2


def test_no_frame_holds_a_product_of_two_turns_of_four_dimensions() -> None:
    double = matrix(rationals(), ((0, -1, 0, 0), (1, 0, 0, 0), (0, 0, 0, -1), (0, 0, 1, 0)))
    assert next(signed_householders(double), None) is None
    found, _ = least_defect(floats(double)[None, None], restarts=3)
    assert found > 1
