"""Distributed training: several processes share each batch.

The leader (rank 0) writes all files except the log of broken images, and shows progress.
Followers run the same loop on their part of every batch. Gradients are averaged, so that all
processes have the same weights.
"""

import logging
import os
import socket
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, distributed

from dualstudent.errors import UserError
from dualstudent.parallel import PROCESSES
from dualstudent.recipes.schema import DeviceSettings, Recipe

_RANK = "LOCAL_RANK"


def build_fabric(settings: DeviceSettings) -> Fabric:
    """Set up device and precision, and connect to the other processes if there are any.

    Raises:
        UserError: if the device is not available.
    """
    # Static graph: in some methods the same head gets no gradient in every step.
    # Batch norm uses the part of each process; the statistics of the leader are saved.
    strategy = DDPStrategy(static_graph=True) if settings.processes > 1 else "auto"
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)
    try:
        fabric = Fabric(
            accelerator=settings.accelerator,
            devices=settings.processes,
            strategy=strategy,
            precision=settings.precision,
        )
    except (MisconfigurationException, RuntimeError, ValueError) as error:
        many, advice = "", "use 'auto' or 'cpu'"
        if settings.processes > 1:
            many = f" with device.processes = {settings.processes}"
            advice = "use fewer, one for each GPU, or the accelerator 'cpu'"
        raise UserError(
            f"device.accelerator = {settings.accelerator!r}{many} is not available here; {advice}"
        ) from error
    if settings.processes > 1:
        fabric.launch()  # waits for all processes
    return fabric


def reduce_max(fabric: Fabric, numbers: list[int]) -> list[int]:
    """Return the elementwise maximum over all processes."""
    if fabric.world_size == 1:
        return numbers
    values = torch.tensor(numbers, device=fabric.device)
    distributed.all_reduce(values, distributed.ReduceOp.MAX)
    largest: list[int] = values.tolist()
    return largest


def gather_ranks(fabric: Fabric, values: Tensor) -> Tensor:
    r"""Gather the values of all processes: (processes, \*values.shape)."""
    if fabric.world_size == 1:
        return values[None]
    every = [torch.empty_like(values) for _ in range(fabric.world_size)]
    distributed.all_gather(every, values)
    return torch.stack(every)


@contextmanager
def start_followers(recipe: Recipe, folder: Path) -> Iterator[None]:
    """Start the other processes of the run in ``folder``; they end with the block."""
    if recipe.device.processes == 1:
        yield
        return
    meeting_point = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_find_free_port()),
        "WORLD_SIZE": str(recipe.device.processes),
        PROCESSES: str(recipe.device.processes),
    }
    before, threads = dict(os.environ), torch.get_num_threads()
    os.environ.update(meeting_point | {_RANK: "0"})
    started: list[subprocess.Popen[bytes]] = []
    with warnings.catch_warnings():
        # Kernels with one channel have two equivalent memory layouts, about which DDP warns.
        warnings.filterwarnings("ignore", message="Grad strides do not match")
        try:
            for rank in range(1, recipe.device.processes):
                started.append(_start_follower(recipe, folder, rank))
            yield
            for process in started:
                process.wait()
        finally:
            for process in started:
                process.kill()  # it has ended already, unless the leader failed
                process.wait()
            if distributed.is_initialized():
                distributed.destroy_process_group()
            torch.set_num_threads(threads)  # Fabric had reduced them
            os.environ.clear()
            os.environ.update(before)


def _start_follower(recipe: Recipe, folder: Path, rank: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-m", "dualstudent.follower", str(folder)],
        stdin=subprocess.PIPE,
        env=os.environ | {_RANK: str(rank)},
    )
    assert process.stdin is not None
    process.stdin.write(recipe.model_dump_json().encode())
    process.stdin.close()
    return process


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
