"""A program of a user that torchrun starts in several processes, with data from Python.

Arguments: the folder of the run, and "kill" or "stop" with a step. At this step of the first
attempt, rank 1 kills itself, or rank 0 gets SIGTERM.
"""

import os
import signal
import sys

from dualstudent import Callback, Recipe
from dualstudent.cli import run_command
from dualstudent.runs import train_or_resume
from tests.support.together import make_recipe, make_vectors

RANKS = {"kill": ("1", signal.SIGKILL), "stop": ("0", signal.SIGTERM)}


def elastic_recipe() -> Recipe:
    return make_recipe("multiple-student", "device.accelerator=cpu")


class Fails(Callback):
    """Sends a signal to its own process."""

    def on_step(self, step: int) -> None:
        rank, number = RANKS[sys.argv[2]]
        attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
        if (step, os.environ["RANK"], attempt) == (int(sys.argv[3]), rank, "0"):
            os.kill(os.getpid(), number)


if __name__ == "__main__":
    run_command(lambda: train_or_resume(elastic_recipe(), sys.argv[1], Fails(), make_vectors()))
