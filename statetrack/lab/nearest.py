"""How near a learned head is to a construction, up to a change of basis.

A head that has learned a construction holds a copy of it: an injective T with A_x T = T B_x for every letter x, where
A_x is what the head multiplies its state by and B_x the construction's matrix. T need not fill the head's state, so
sizes may differ. The best T in the sense of least squares is a singular vector; its residual says how far.

Main definitions: `Nearest`, `compare`, `nearest_constructions`.

Main results: the residual is 0 exactly if the head's transitions hold the construction as an invariant subspace (or a
quotient of it, which `spread` shows: T then has a kernel).

References: Schur's lemma (an irreducible construction has no T but injective ones and 0); docs/lab.md.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from statetrack.errors import InvalidInput, StatetrackError
from statetrack.kernels.language_model import LanguageModel

from .mechanism import layers_of
from .near import program_of, transitions_of
from .tasks import Letters, Task

_LONGEST, _WORDS = 3, 512
_MOST_STATES, _LARGEST = 60, 8


@dataclass(frozen=True)
class Nearest:
    """A learned head beside a construction.

    `residual`: the root mean square over letters of |A T - T B|, |T| = 1, in Frobenius norms; 0 for a copy, about 1 for
    unrelated orthogonal matrices. `spread`: least over largest singular value of T; near 0 for no injective T.
    `traces`: the mean over words of up to three letters of |tr T⁺ A_w T - tr B_w| / size.
    """

    layer: str
    head: int
    construction: str
    size: int
    residual: float
    spread: float
    traces: float


def nearest_constructions(model: LanguageModel, task: Task) -> tuple[Nearest, ...]:
    """For every head of the first layer, the construction of the task's automaton with the least residual.

    Compared are the compiled program of one layer (ckda; of automata of up to 60 states), the group's permutation
    matrices, and these times the sign of the permutation, all without the vectors that every letter keeps and up to a
    size of 8. Empty for tasks, models and layers without any.
    """
    layers = layers_of(model, task)
    if not layers or not layers[0].symbols or layers[0].kind == "diagonal" or task.automaton is None:
        return ()
    known = _constructions(task)
    found: list[Nearest] = []
    for head in range(layers[0].k.shape[1]):
        A = layers[0].matrices(head)
        compared = [Nearest("layers.0", head, name, B.shape[-1], *compare(A, B)) for name, B in known.items()]
        found += sorted(compared, key=lambda x: x.residual)[:1]
    return tuple(found)


def compare(A: Tensor, B: Tensor, *, seed: int = 0) -> tuple[float, float, float]:
    """Residual, spread and distance of traces (`Nearest`) for the letters' matrices A [x, m, m] and B [x, n, n].

    >>> turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
    >>> basis = torch.tensor([[1.0, 2.0], [0.0, 1.0]], dtype=torch.float64)
    >>> [round(x, 9) for x in compare(basis @ turn @ basis.inverse(), turn)[::2]]
    [0.0, 0.0]
    """
    if A.ndim != 3 or B.ndim != 3 or len(A) < len(B) or A.shape[1] != A.shape[2] or B.shape[1] != B.shape[2]:
        raise InvalidInput(f"compare: A {tuple(A.shape)} and B {tuple(B.shape)}, expected [x, m, m] and [x, n, n]")
    return _compared(A[: len(B)], B, seed)


def _compared(A: Tensor, B: Tensor, seed: int) -> tuple[float, float, float]:
    m, n = A.shape[1], B.shape[1]
    eye_m, eye_n = torch.eye(m, dtype=A.dtype), torch.eye(n, dtype=A.dtype)
    gram = torch.zeros(m * n, m * n, dtype=A.dtype)
    for a, b in zip(A, B, strict=True):
        # Rows of T one behind the other: A T is (A ⊗ 1) t, T B is (1 ⊗ Bᵀ) t.
        difference = torch.kron(a, eye_n) - torch.kron(eye_m, b.T.contiguous())
        gram += difference.T @ difference
    T = torch.linalg.eigh(gram)[1][:, 0].view(m, n)
    error = (A @ T - T @ B).square().sum((1, 2)).mean().sqrt()
    sizes = torch.linalg.svdvals(T)
    back = torch.linalg.pinv(T, rtol=1e-6)
    generator = torch.Generator().manual_seed(seed)
    away: list[float] = []
    for length in range(1, _LONGEST + 1):
        words = torch.randint(len(B), (min(_WORDS, len(B) ** length), length), generator=generator)
        of_head, of_construction = A[words[:, 0]], B[words[:, 0]]
        for letters in words[:, 1:].T:
            of_head, of_construction = A[letters] @ of_head, B[letters] @ of_construction
        difference = torch.einsum("nm,wmk,kn->w", back, of_head, T) - of_construction.diagonal(dim1=1, dim2=2).sum(1)
        away.append(float(difference.abs().mean()) / n)
    return float(error), float(sizes[-1] / sizes[0]) if n <= m else 0.0, sum(away) / len(away)


@lru_cache(maxsize=8)
def _constructions(task: Task) -> dict[str, Tensor]:
    """The letters' matrices [x, n, n] of the constructions, by name."""
    found: dict[str, Tensor] = {}
    if task.outputs <= _MOST_STATES:
        with suppress(StatetrackError):
            layer = transitions_of(program_of(task))
            found |= {f"program, head {head}": layer.matrices(head) for head in range(layer.k.shape[1])}
    if isinstance(task.make, Letters):
        points = task.make.matrices()
        signs = torch.linalg.det(points)[:, None, None]
        moved = _without_fixed(points)
        found |= {"permutations": moved, "permutations with signs": signs * moved}
    found = {name: _without_fixed(matrices) for name, matrices in found.items()}
    return {name: matrices for name, matrices in found.items() if 1 <= matrices.shape[1] <= _LARGEST}


def _without_fixed(B: Tensor) -> Tensor:
    """The matrices on the orthogonal complement of the vectors that all of them and their transposes keep."""
    eye = torch.eye(B.shape[1], dtype=B.dtype)
    moved = torch.cat([(B - eye).flatten(0, 1), (B.mT - eye).flatten(0, 1)])
    _, sizes, rows = torch.linalg.svd(moved, full_matrices=False)
    basis = rows[sizes > 1e-9].T
    return basis.T @ B @ basis
