"""Processes of this machine that train runs, one after the other."""

import multiprocessing
import os
import signal
import traceback
from concurrent.futures import Future, ProcessPoolExecutor
from ctypes import c_bool
from pathlib import Path
from typing import Self

import torch

from dualstudent.errors import UserError
from dualstudent.parallel import call_when_parent_ends, main_module_left_out
from dualstudent.recipes.reading import from_json
from dualstudent.recipes.schema import Recipe
from dualstudent.runs import train_or_resume
from dualstudent.signals import Interrupted
from dualstudent.training.callbacks import Callback


class LocalPool:
    """Trains ``workers`` runs at a time; leaving the block stops them with a checkpoint."""

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")  # fork breaks torch's threads
        # Without a lock: a process that is killed while it holds one would stop all others.
        self._stop = context.RawValue(c_bool, False)
        self._pool = ProcessPoolExecutor(workers, context, _begin, (self._stop,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.value = True
        self._pool.shutdown(cancel_futures=True)

    def submit(self, recipe: Recipe, folder: Path) -> Future[str]:
        """Train or resume a run as soon as there is room; the result is an error, or empty."""
        with main_module_left_out():
            return self._pool.submit(_train, recipe.model_dump_json(), folder)


class _Stops(Callback):
    """Stops the training when the parent says so."""

    wanted: c_bool

    def on_step(self, step: int) -> None:
        if self.wanted.value:
            signal.raise_signal(signal.SIGTERM)


_stops = _Stops()  # of this process


def _begin(stop: c_bool) -> None:
    os.setsid()  # the parent handles Ctrl-C and stops every worker once
    call_when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))  # with a checkpoint
    torch.set_num_threads(1)
    _stops.wanted = stop


def _train(recipe: str, folder: Path) -> str:
    problem = train_or_explain(recipe, folder, _stops)
    parent = multiprocessing.parent_process()
    if parent is not None and not parent.is_alive():
        os._exit(0)  # nobody would give it anything else to do
    return problem


def train_or_explain(recipe: str, folder: Path, callback: Callback | None = None) -> str:
    """Train or resume a run by a recipe in JSON; return what went wrong, empty if nothing did."""
    try:
        train_or_resume(from_json(recipe), folder, callback or ())
    except (UserError, OSError, Interrupted) as error:
        return str(error)
    except Exception as error:  # no memory, or a user's own method: the other runs go on
        traceback.print_exc()
        return f"{type(error).__name__}: {' '.join(str(error).split())}"
    return ""
