"""Where this room's tests run: on CUDA if there is a device, in Triton's interpreter otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

# Triton reads this when a kernel is defined, so it must stand before the first import of triton.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

from statetrack.kernels.reference import LayerTables

MakeTables = Callable[..., LayerTables]


def _draw(choices: tuple[float, ...], shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.tensor(choices, dtype=torch.float64)[torch.randint(0, len(choices), shape, generator=generator)]


@pytest.fixture
def make_tables() -> MakeTables:
    """Random tables: one-hot keys and small integers (`exact`), or unit keys and real numbers.

    With units, exact tables halve the state and add quarters in the heads that have one.
    """

    def make(
        factors: int,
        rows: int,
        columns: int,
        *,
        ids: int = 5,
        heads: int = 2,
        values: bool = True,
        bias: bool = False,
        dense: bool = False,
        exact: bool = False,
        unit: tuple[float, ...] | None = None,
        seed: int = 0,
    ) -> LayerTables:
        generator = torch.Generator().manual_seed(seed)

        def numbers(*shape: int) -> torch.Tensor:
            if exact:
                return _draw((-1.0, 0.0, 1.0), shape, generator)
            return torch.randn(shape, dtype=torch.float64, generator=generator)

        keys = torch.nn.functional.normalize(
            torch.randn(ids, heads, factors, rows, generator=generator).double(), dim=-1
        )
        if exact:
            keys = torch.nn.functional.one_hot(keys.argmax(-1), rows).double()
        gates = (-1.0, 0.0, 1.0) if exact else (-1.0, 0.0, 1.0, 1e-30, 0.5, -0.25)
        matrix = numbers(ids, heads, rows, rows) / (2 * rows) ** 0.5
        if exact:
            matrix = torch.eye(rows, dtype=torch.float64)[
                torch.stack([torch.randperm(rows, generator=generator) for _ in range(ids * heads)])
            ]
            matrix = matrix.view(ids, heads, rows, rows)
        steps = 1 if dense else factors
        betas = _draw((0.0, 1.0, 2.0), (ids, heads, factors), generator)
        gate = _draw(gates, (ids, heads, factors, rows), generator)
        queries, state = numbers(ids, heads, rows), numbers(heads, rows, columns)
        written = numbers(ids, heads, factors, columns) if values and not dense else None
        added = numbers(ids, heads, steps, rows, columns) if bias else None
        if exact and unit is not None and added is not None:
            betas, floored = betas.clamp(max=1), torch.tensor(unit) > 0
            for table in (gate, matrix):
                table[:, floored] *= 0.5
            added[:, floored] *= 0.25
            added[:, ~floored] = 0.0
        return LayerTables(
            keys=keys,
            betas=betas,
            gates=gate,
            queries=queries,
            state=state,
            values=written,
            bias=added,
            dense=matrix if dense else None,
            unit=None if unit is None else torch.tensor(unit, dtype=torch.float64),
        )

    return make
