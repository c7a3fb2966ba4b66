"""Trains many runs, several at a time; interrupted grids continue, finished runs are kept."""

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterable, Mapping
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from dualstudent.errors import UserError
from dualstudent.parallel import (
    Progress,
    call_when_parent_ends,
    count_cores,
    main_module_left_out,
)
from dualstudent.recipes.schema import Recipe
from dualstudent.runs import train_or_resume
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.callbacks import Callback
from dualstudent.training.run import Run


def run_grid(
    recipes: Mapping[str, Recipe],
    folder: Path,
    progress: Progress | None = None,
    workers: int | None = None,
) -> dict[str, Run]:
    """Train every recipe into its own folder, several at a time, with one thread each.

    Finished runs are kept, interrupted ones continue exactly where they stopped.

    Args:
        recipes: name → recipe; the name is also the folder of the run in ``folder``.
        folder: folder of the grid.
        progress: receives the number of epochs done in all runs, as steps.
        workers: number of runs at a time; default: one with a GPU, else one per core.

    Returns:
        Name → finished run.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; the same call continues.
        UserError: if a run fails; the others are stopped with a checkpoint.

    Example:
        >>> from dualstudent import load_recipe
        >>> recipes = {f"seed-{seed}": load_recipe("demo", [f"seed={seed}"]) for seed in range(3)}
        >>> runs = run_grid(recipes, Path("runs/seeds"))  # doctest: +SKIP
        >>> runs["seed-0"].read_result()["error"]  # doctest: +SKIP
        15.05
    """
    progress = progress or Callback()
    runs = {name: Run(folder / name, recipe.imports) for name, recipe in recipes.items()}
    done = dict.fromkeys(recipes, 0)  # epochs
    waiting = [name for name in recipes if not runs[name].result.is_file()]
    for name in recipes.keys() - set(waiting):
        Run.open(folder / name, recipes[name].imports).check_recipe(recipes[name])
        done[name] = recipes[name].epochs
    progress.on_start(sum(done.values()), sum(r.epochs for r in recipes.values()))
    at_a_time = workers or count_parallel_runs(recipes.values())
    with StopRequest() as stop, _Workers(min(at_a_time, len(waiting))) as pool:
        while waiting or pool.busy:
            while waiting and pool.idle:
                name = waiting.pop(0)
                pool.begin(name, recipes[name], folder / name)
            if news := pool.collect(seconds=1):
                done |= news
                progress.on_step(sum(done.values()))
            if stop.received:
                finished = sum(run.result.is_file() for run in runs.values())
                raise Interrupted(
                    stop.received, f"{finished} of {len(runs)} runs", "the same command"
                )
    return runs


def count_parallel_runs(recipes: Iterable[Recipe]) -> int:
    """Return the number of runs at a time: one with a GPU, else one per core."""
    return 1 if any(recipe.device.gpu for recipe in recipes) else count_cores()


class _Workers:
    """Processes that train runs; leaving the block stops them with a checkpoint."""

    def __init__(self, count: int) -> None:
        context = multiprocessing.get_context("spawn")  # fork breaks torch's threads
        self._processes: dict[Connection, SpawnProcess] = {}
        for _ in range(count):
            here, there = context.Pipe()
            process = context.Process(target=_work, args=(there,))
            with main_module_left_out():
                process.start()
            there.close()
            self._processes[here] = process
        self.idle = list(self._processes)
        self.busy: dict[Connection, str] = {}  # the name of the run

    def __enter__(self) -> "_Workers":
        return self

    def __exit__(self, *_: object) -> None:
        for connection, process in self._processes.items():
            if connection in self.busy:
                process.terminate()  # it writes its checkpoint and ends
            connection.close()
        for process in self._processes.values():
            process.join()

    def begin(self, name: str, recipe: Recipe, folder: Path) -> None:
        connection = self.idle.pop()
        try:
            connection.send((name, recipe, folder))
        except ConnectionError as error:
            raise UserError(_describe_death(name)) from error
        self.busy[connection] = name

    def collect(self, seconds: float) -> dict[str, int]:
        """Wait for news up to ``seconds``; return name → epochs done."""
        epochs = {}
        for connection in wait(list(self.busy), seconds):
            assert isinstance(connection, Connection)
            name = self.busy[connection]
            message = _receive(connection, name)
            if isinstance(message, int):
                epochs[name] = message
            elif message:
                raise UserError(message)
            else:
                del self.busy[connection]
                self.idle.append(connection)
        return epochs


class _Reporter(Callback):
    """Sends the number of finished epochs to the parent."""

    def __init__(self, connection: Connection, epochs: int) -> None:
        self._connection, self._epochs = connection, epochs

    def on_start(self, step: int, total: int) -> None:
        _send(self._connection, self._epochs * step // total)

    def on_epoch(self, record: dict[str, Any]) -> None:
        _send(self._connection, int(record["epoch"]))


def _work(connection: Connection) -> None:
    os.setsid()  # the parent handles Ctrl-C and stops every worker once
    call_when_parent_ends(lambda: os.kill(os.getpid(), signal.SIGTERM))  # with a checkpoint
    torch.set_num_threads(1)
    while True:
        try:
            name, recipe, folder = connection.recv()
        except (EOFError, ConnectionError):  # the parent has finished or died
            return
        try:
            train_or_resume(recipe, folder, _Reporter(connection, recipe.epochs))
        except Interrupted:
            return
        except (UserError, OSError) as error:
            _send(connection, f"{name}: {error}")
        else:
            _send(connection, "")


def _send(connection: Connection, message: int | str) -> None:
    """Send the number of epochs done, or at the end of a run an error; empty if it succeeded."""
    # The parent has closed the connection; it is reset if messages were left unread.
    with contextlib.suppress(ConnectionError):
        connection.send(message)


def _receive(connection: Connection, name: str) -> int | str:
    try:
        message: int | str = connection.recv()
    except (EOFError, ConnectionError):
        return _describe_death(name)
    return message


def _describe_death(name: str) -> str:
    return (
        f"{name}: its process died, perhaps for lack of memory; close other programs, and the "
        "same command continues"
    )
