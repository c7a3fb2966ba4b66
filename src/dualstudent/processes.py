"""Which of several processes this one is, as torchrun, srun or the user say it.

Only the environment is read, so that the command line knows before anything heavy is loaded.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from dualstudent.errors import WorldError

RANK, SIZE = "RANK", "WORLD_SIZE"
LOCAL_RANK, LOCAL_SIZE = "LOCAL_RANK", "LOCAL_WORLD_SIZE"
ADDRESS, PORT = "MASTER_ADDR", "MASTER_PORT"


@dataclass(frozen=True)
class World:
    """This process among those that share a run.

    Attributes:
        rank: its number, from 0, which leads.
        size: number of processes on all machines.
        local_rank: its number on this machine, from 0.
        local_size: number of processes on this machine.
        launcher: who started them, in words.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    launcher: str

    @property
    def leads(self) -> bool:
        """Whether it is the one that writes files and shows progress."""
        return self.rank == 0


def find_world(environment: Mapping[str, str] = os.environ) -> World | None:
    """Find out which process this is; None if nobody started several.

    torchrun sets ``RANK``, ``WORLD_SIZE``, ``LOCAL_RANK`` and ``LOCAL_WORLD_SIZE``; whoever starts
    the processes by hand sets at least the first two. Inside ``srun``, the variables of SLURM say
    the same.

    Raises:
        WorldError: if the variables make no sense.

    Example:
        >>> find_world({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}).local_rank
        1
        >>> step = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}
        >>> find_world(step).leads
        False
        >>> find_world({})
    """
    here = environment
    if RANK in here or SIZE in here:
        rank, size = _read(here, RANK), _read(here, SIZE)
        local_rank = _read(here, LOCAL_RANK, "0")
        local_size = _read(here, LOCAL_SIZE, str(size) if LOCAL_RANK in here else "1")
        launcher = "torchrun" if "TORCHELASTIC_RUN_ID" in here else f"{RANK} and {SIZE}"
    elif "SLURM_STEP_NUM_TASKS" in here:  # inside srun; the script of sbatch does not have it
        rank, size = _read(here, "SLURM_PROCID"), _read(here, "SLURM_STEP_NUM_TASKS")
        local_rank = _read(here, "SLURM_LOCALID")
        local_size = size // _read(here, "SLURM_STEP_NUM_NODES", "1")
        launcher = "srun"
    else:
        return None
    if not (rank < size and local_rank < local_size and size % local_size == 0):
        raise WorldError(
            f"{launcher}: rank {rank} of {size}, on this machine {local_rank} of {local_size}, "
            "makes no sense; ranks begin at 0, and every machine has equally many"
        )
    return World(rank, size, local_rank, local_size, launcher)


def _read(environment: Mapping[str, str], name: str, default: str | None = None) -> int:
    value = environment.get(name, default)
    if value is None or not value.isdecimal():
        raise WorldError(
            f"the environment variable {name} = {value!r} should be a number: start all processes "
            "with torchrun or srun, or set all of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"
        )
    return int(value)
