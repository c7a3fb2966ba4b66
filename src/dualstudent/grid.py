"""Trains many runs, several at a time; interrupted grids continue, finished runs are kept."""

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Literal, Protocol, Self

from dualstudent.data.images.cache import DecodedImages
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import RunsFailed, UserError, raise_problems
from dualstudent.parallel import Progress, count_cores
from dualstudent.pool import LocalPool
from dualstudent.processes import find_world
from dualstudent.ray_cluster import RayCluster
from dualstudent.recipes.schema import Recipe
from dualstudent.signals import Interrupted, StopRequest
from dualstudent.training.callbacks import Callback
from dualstudent.training.run import Run

Where = Literal["local", "ray"]
"""Where runs are trained: on this machine, or on a Ray cluster."""

_SECONDS_BETWEEN_LOOKS = 1.0


class _Workers(Protocol):
    """Processes that train runs; leaving the block stops them with a checkpoint."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def submit(self, recipe: Recipe, folder: Path) -> Future[str]:
        """Train or resume a run as soon as there is room; the result is an error, or empty."""


def run_grid(
    recipes: Mapping[str, Recipe],
    folder: Path,
    progress: Progress | None = None,
    workers: int | None = None,
    on: Where = "local",
) -> dict[str, Run]:
    """Train every recipe into its own folder, several at a time.

    Finished runs are kept, interrupted ones continue exactly where they stopped.

    Args:
        recipes: name → recipe; the name is also the folder of the run in ``folder``.
        folder: folder of the grid; with Ray, one that all machines of the cluster share.
        progress: receives the number of epochs done in all runs, as steps.
        workers: number of runs at a time here; default: one with a GPU, else one per core, with
            one thread each. Ray runs as many as its cluster has room for.
        on: where they are trained. ``"ray"`` uses the cluster that the environment variable
            ``RAY_ADDRESS`` names, or starts one on this machine.

    Returns:
        Name → finished run.

    Raises:
        Interrupted: after Ctrl-C, SIGTERM, SIGHUP or SIGUSR1; the same call continues.
        RunsFailed: if runs fail, by whatever error; the others are trained to their end before,
            and where an error was not expected, its traceback is on the standard error.
        UserError: if a process dies, or a folder holds another run, or one on own images that
            have changed since; with a trunk, only a change of labeled training images is seen.

    Example:
        >>> from dualstudent import load_recipe
        >>> recipes = {f"seed-{seed}": load_recipe("demo", [f"seed={seed}"]) for seed in range(3)}
        >>> runs = run_grid(recipes, Path("runs/seeds"))  # doctest: +SKIP
        >>> runs["seed-0"].read_result()["error"]  # doctest: +SKIP
        2.7
    """
    _check_started_once()
    progress = progress or Callback()
    runs = {name: Run(folder / name, recipe.imports) for name, recipe in recipes.items()}
    waiting = {name: recipe for name, recipe in recipes.items() if not runs[name].result.is_file()}
    _check_begun(recipes, folder)
    epochs = _Epochs(runs, recipes)
    progress.on_start(epochs.count(), sum(recipe.epochs for recipe in recipes.values()))
    if not waiting:
        return runs
    with StopRequest() as stop, _start_workers(on, waiting, folder, workers) as pool:
        futures = {pool.submit(recipe, folder / name): name for name, recipe in waiting.items()}
        problems: dict[str, str] = {}
        while futures:
            finished, _ = wait(futures, _SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
            progress.on_step(epochs.count())
            if stop.received:
                done = sum(run.result.is_file() for run in runs.values())
                raise Interrupted(stop.received, f"{done} of {len(runs)} runs", "the same command")
            for future in finished:
                problems[futures.pop(future)] = _find_problem(future)
    _raise_failures(problems)
    return runs


def _check_begun(recipes: Mapping[str, Recipe], folder: Path) -> None:
    """Check that begun runs have these recipes and, if on own images, saw those found now.

    Published data do not change. With a trunk, only labeled training images and their labels are
    compared, because all else would need the features again; these are kept by the content of the
    images, so that changed ones get new features.

    Raises:
        UserError: otherwise.
    """
    begun = {name: each for name, each in recipes.items() if Run(folder / name).about.is_file()}
    gone = _find_gone([recipe.data for recipe in begun.values()])
    decoded: dict[DataSettings, DecodedImages] = {}
    prepared: dict[tuple[DataSettings, int], PreparedData] = {}
    for name, recipe in begun.items():
        run, settings = Run.open(folder / name, recipe.imports), recipe.data
        run.check_recipe(recipe)
        if settings.path is None or gone & {settings.path, settings.target_path}:
            continue
        images = settings.model_copy(update={"labels": "all", "split_seed": None, "validation": 0})
        if images not in decoded:  # once for all draws of labels
            decoded[images] = images.decode()
        draw = settings, settings.find_split_seed(recipe.seed)
        if draw not in prepared:
            prepared[draw] = prepare(*draw, images=decoded[images])
        if recipe.trunk is None:
            run.check_same_data(prepared[draw])
        else:
            run.check_same_labels(prepared[draw])


def _find_gone(used: Iterable[DataSettings]) -> set[Path]:
    """Find the own images that are not there any more, perhaps on this machine only."""
    paths = {path for data in used for path in (data.path, data.target_path) if path is not None}
    gone = {path for path in paths if not path.exists()}
    for path in sorted(gone):
        warnings.warn(
            f"{path} does not exist, so its images are not compared with those of earlier runs",
            stacklevel=4,
        )
    return gone


def count_parallel_runs(recipes: Iterable[Recipe]) -> int:
    """Return the number of runs at a time: one with a GPU, else one per core."""
    return 1 if any(recipe.device.gpu for recipe in recipes) else count_cores()


def _start_workers(
    on: Where, recipes: Mapping[str, Recipe], folder: Path, workers: int | None
) -> _Workers:
    if on == "ray":
        return RayCluster(recipes, folder)
    return LocalPool(min(workers or count_parallel_runs(recipes.values()), len(recipes)))


def _find_problem(future: Future[str]) -> str:
    """Return what is wrong with a run that has ended, empty if nothing is."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise UserError(
            "one of the processes that train died, perhaps for lack of memory; close other "
            "programs, and the same command continues"
        ) from error


def _raise_failures(problems: Mapping[str, str]) -> None:
    """Raise if there are failures. They come last: a night of runs is worth more than one."""
    failed = [f"{name}: {problem}" for name, problem in sorted(problems.items()) if problem]
    count = f"{len(failed)} of {len(problems)} runs failed, {len(problems) - len(failed)} finished"
    raise_problems(failed, count if len(problems) > 1 else "", RunsFailed)


def _check_started_once() -> None:
    world = find_world()
    if world is not None and world.size > 1:
        raise UserError(
            f"{world.launcher} started {world.size} processes, but many runs need one that starts "
            "them; leave it out, and set device.processes for each run, or use Ray"
        )


class _Epochs:
    """Counts the epochs that all runs have done, by their metrics, wherever they are trained."""

    def __init__(self, runs: Mapping[str, Run], recipes: Mapping[str, Recipe]) -> None:
        self._missing = {runs[name]: recipe.epochs for name, recipe in recipes.items()}
        self._seen: dict[Run, tuple[int, int]] = {}  # size of the metrics, epochs in them
        self._finished = self._most = 0

    def count(self) -> int:
        for run in [run for run in self._missing if run.result.is_file()]:
            self._finished += self._missing.pop(run)
        self._most = max(self._most, self._finished + sum(map(self._look, self._missing)))
        return self._most  # an epoch that a lost machine has to repeat was done once

    def _look(self, run: Run) -> int:
        try:
            size = run.metrics.stat().st_size
            if size != self._seen.get(run, (-1, 0))[0]:
                self._seen[run] = size, run.metrics.read_bytes().count(b"\n")
        except OSError:  # not begun yet
            return 0
        return self._seen[run][1]
