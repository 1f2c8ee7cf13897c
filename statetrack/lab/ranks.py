"""The processes of one run: alone, or several started by torchrun, each with a share of every batch.

Main definitions: `Ranks`, `joined`.
"""
# torch is only partly typed.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from statetrack.errors import InvalidInput


@dataclass(frozen=True)
class Ranks:
    """This process's number, how many there are, and its device."""

    rank: int
    count: int
    device: str

    @property
    def first(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def share(self, batch: int) -> slice:
        """The rows of a batch that this process trains on."""
        if batch % self.count:
            raise InvalidInput(f"batch {batch}, expected a multiple of the {self.count} processes")
        size = batch // self.count
        return slice(self.rank * size, (self.rank + 1) * size)

    def wrapped(self, model: nn.Module) -> nn.Module:
        """The model with gradients averaged over the processes."""
        if self.count == 1:
            return model
        return DistributedDataParallel(model, [self.device] if self.device.startswith("cuda") else None)

    def agreed(self, value: float) -> float:
        """The first process's number, in all of them."""
        if self.count == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        distributed.broadcast(shared, 0)
        return float(shared)


@contextmanager
def joined(device: str) -> Generator[Ranks]:
    """The processes that torchrun started, each on its own CUDA device if they are on CUDA; else this one alone."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Ranks(0, 1, device)
        return
    cuda = device.startswith("cuda")
    place = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if cuda else device
    if cuda:
        torch.cuda.set_device(place)
    distributed.init_process_group("nccl" if cuda else "gloo")
    try:
        yield Ranks(distributed.get_rank(), count, place)
        # The first process judges the model while the others are done.
        distributed.barrier()
    finally:
        distributed.destroy_process_group()
