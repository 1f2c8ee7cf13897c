"""A common frame for orthogonal matrices, searched in doubles: evidence, and a hint for an exact construction.

An orthogonal A is a signed Householder in the frame with rows Q if W = I - Q A Qᵀ S has rank one for a sign diagonal S.
Its defect is the least |W|_F² - σ_max(W)² over S, and a frame for a family is a zero of the sum of their defects.

Main definitions: `defects`, `least_defect`.

Main results: claim OURS-common-frames.

References: CKDA Prop. 13, Lemma 16; docs/atlas.md.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_SMALLEST = 1e-6


def defects(matrices: Floats) -> Floats:
    """How far orthogonal matrices [..., d, d] are from signed Householders: [...], 0 for one."""
    d = matrices.shape[-1]
    signs = np.array(list(product((1.0, -1.0), repeat=d)))
    w = np.eye(d) - matrices[..., None, :, :] * signs[:, None, :]
    squares = np.linalg.eigvalsh(np.swapaxes(w, -1, -2) @ w)
    return squares[..., :-1].sum(axis=-1).min(axis=-1)


def least_defect(letters: Floats, *, restarts: int = 10, seed: int = 0) -> tuple[float, Floats]:
    """The least sum of defects found over frames, and the frame's rows [d, d].

    Args:
        letters: [letters, choices, d, d]: each letter may be any of its matrices.
        restarts: random frames, from each of which turns of shrinking size go downhill.
    """
    rng = np.random.default_rng(seed)
    d = letters.shape[-1]
    best, found = np.inf, np.eye(d)
    for _ in range(restarts):
        frame: Floats = np.linalg.qr(rng.normal(size=(d, d)))[0]
        value, size = _total(letters, frame), 0.5
        while size > _SMALLEST:
            lower = False
            for _ in range(12):
                half = size / 2 * rng.normal(size=(d, d))
                half -= half.T.copy()
                trial: Floats = np.linalg.solve(np.eye(d) + half, (np.eye(d) - half) @ frame).astype(np.float64)
                now = _total(letters, trial)
                if now < value:
                    frame, value, lower = trial, now, True
            size = min(0.5, size * 1.3) if lower else size * 0.6
        if value < best:
            best, found = value, frame
    return best, found


def _total(letters: Floats, frame: Floats) -> float:
    return float(defects(frame @ letters @ frame.T).min(axis=1).sum())
