"""Divides the rows of every network pass among the processes of a run.

All processes have the whole batch and compute the whole loss, but each passes only its own rows
through the networks; the predictions are then gathered, with their gradient:

    batch ─▶ own rows ─▶ network ─▶ own predictions ─▶ all predictions ─▶ loss

So every method, whatever it counts, averages, mixes or remembers, sees what it would see in a
single process, and need not know about the others.
"""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from dualstudent.batch import Shard
from dualstudent.generators import preserve_rng, seed_rng
from dualstudent.methods import Method
from dualstudent.prediction import Prediction


def gather_rows(rows: Tensor, shard: Shard) -> Tensor:
    """Gather rows of all processes: row i of the result is row i // size of process i % size.

    Args:
        rows: (n, …), equally many in each process.
        shard: this process.

    Returns:
        (n · size, …), in the memory format of ``rows``; without gradient.
    """
    if shard.world_size == 1:
        return rows
    last = rows.dim() == 4 and rows.is_contiguous(memory_format=torch.channels_last)
    own = (rows.permute(0, 2, 3, 1) if last else rows).detach().contiguous()
    every = [torch.empty_like(own) for _ in range(shard.world_size)]
    distributed.all_gather(every, own)
    whole = torch.stack(every, dim=1).flatten(0, 1)
    return whole.permute(0, 3, 1, 2) if last else whole


class DividedRows:
    """While entered, networks pass the rows of this process only, and return those of all.

    Dropout differs between the processes; other random numbers are the same in all of them.

    Args:
        shard: this process; if it is the only one, nothing is divided.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard, self._active = shard, False
        self._running: tuple[int, ExitStack] | None = None  # rows of the pass, what restores

    def divide(self, method: Method) -> None:
        """Divide the passes of all networks of ``method``."""
        if self._shard.world_size == 1:
            return
        every = [*method.students, *method.networks.values(), *method.averages.values()]
        for network in dict.fromkeys(every):
            # First and last: hooks of the network itself are for the rows that it gets.
            network.register_forward_pre_hook(self._before, prepend=True)
            network.register_forward_hook(self._after, always_call=True)
        # What a method remembers is the same in all processes. Only statistics of batch norm
        # differ, which DDP replaces by those of the leader in every step.
        memory = [name for name, _ in method.named_buffers() if "." not in name]
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
            method, memory
        )

    def __enter__(self) -> None:
        self._active = True

    def __exit__(self, *_: object) -> None:
        self._active = False

    def _before(self, _: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor] | None:
        if not self._active:
            return None
        (rows,) = inputs
        restore = ExitStack()
        restore.enter_context(preserve_rng())
        self._running = len(rows), restore
        seed_rng(int(torch.randint(2**62, ())), "rows", self._shard.rank)
        own: Tensor = _Select.apply(rows, self._shard)  # type: ignore[no-untyped-call]
        return (own,)

    def _after(
        self, _: nn.Module, __: tuple[Tensor], prediction: Prediction | None
    ) -> Prediction | None:
        if self._running is None:
            return prediction
        (count, restore), self._running = self._running, None
        restore.close()
        if prediction is None:  # the pass has failed
            return None
        gathered = (_Gather.apply(each, self._shard) for each in prediction)  # type: ignore[no-untyped-call]
        return Prediction(*(each[:count] for each in gathered))


class _Select(torch.autograd.Function):
    """Own rows of all; the last one again where there are too few: each has equally many."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, shard: Shard) -> Tensor:
        ctx.shard, ctx.count = shard, len(rows)
        own = -(-len(rows) // shard.world_size)
        chosen = shard.rank + shard.world_size * torch.arange(own, device=rows.device)
        last = rows.dim() == 4 and rows.is_contiguous(memory_format=torch.channels_last)
        layout = torch.channels_last if last else torch.contiguous_format
        return rows[chosen.clamp(max=len(rows) - 1)].contiguous(memory_format=layout)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gather_rows(gradients[0], ctx.shard)[: ctx.count], None


class _Gather(torch.autograd.Function):
    """Rows of all processes. Each has the whole loss, so its own rows have their whole gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, shard: Shard) -> Tensor:
        ctx.shard = shard
        return gather_rows(rows, shard)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.shard.select(gradients[0]).contiguous(), None
