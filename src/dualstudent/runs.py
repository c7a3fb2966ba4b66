"""Runs as people start them: training into a folder, and at its end a page to look at."""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import escape_line
from dualstudent.recipes.schema import Recipe
from dualstudent.report.page import write_report
from dualstudent.training.callbacks import Callback
from dualstudent.training.distributed import start_followers
from dualstudent.training.model import load_trained
from dualstudent.training.recorder import Recorder
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer


def train(
    recipe: Recipe,
    folder: Path | str,
    callbacks: Callback | Sequence[Callback] = (),
    data: PreparedData | None = None,
) -> Run:
    """Train by a recipe into a new folder, and draw its page.

    Args:
        recipe: what to do.
        folder: must not exist or be empty.
        callbacks: are told how far it is.
        data: what to learn from, instead of what ``recipe.data`` names; whoever continues or
            evaluates the run hands it over again. If it was prepared from ``recipe.data``, the
            run is as if it had not been handed over, but nothing is prepared twice.

    Raises:
        UserError: if recipe, data and folder do not fit; then nothing has been written.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; :func:`resume` continues.

    Example:
        >>> from dualstudent import load_recipe
        >>> run = train(load_recipe("demo"), "runs/demo")  # doctest: +SKIP
        >>> run.read_result()["error"]  # doctest: +SKIP
        15.05
    """
    folder = Path(folder)
    Run.check_free(folder)
    with start_followers(recipe, folder):
        trainer = Trainer(recipe, data)
        run = Run.create(folder, trainer.recipe, trainer.data)
        with run.lock():
            Recorder(trainer, run, callbacks).run_to_end()
    _draw_page(run, lambda: trainer)
    return run


def resume(
    folder: Path | str,
    callbacks: Callback | Sequence[Callback] = (),
    data: PreparedData | None = None,
) -> Run:
    """Continue a run exactly where its last checkpoint left it; a finished run stays as it is.

    Args:
        folder: of the run.
        callbacks: are told how far it is.
        data: what :func:`train` was handed, if it was.
    """
    run = Run.open(Path(folder))
    if run.result.is_file():
        _draw_page(run, lambda: load_trained(run, data))
        return run
    recipe = run.read_recipe()
    with run.lock(), start_followers(recipe, run.folder):
        trainer = Trainer(recipe, data, run.check_same_data)
        recorder = Recorder(trainer, run, callbacks)
        recorder.restore()
        recorder.run_to_end()
    _draw_page(run, lambda: trainer)
    return run


def train_or_resume(
    recipe: Recipe, folder: Path | str, callbacks: Callback | Sequence[Callback] = ()
) -> Run:
    """Train into a new folder, or continue the run of the same recipe that is there."""
    folder = Path(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return train(recipe, folder, callbacks)
    Run.open(folder).check_recipe(recipe)
    return resume(folder, callbacks)


def follow(recipe: Recipe, folder: Path) -> None:
    """Take part, as one of several processes, in the run that another one leads in ``folder``."""
    recorder = Recorder(Trainer(recipe), Run(folder))
    recorder.restore()
    recorder.run_to_end()


def _draw_page(run: Run, trained: Callable[[], Trainer]) -> None:
    """Draw the page of a finished run that has none; the run is finished with or without it."""
    if run.page.exists():
        return
    try:
        write_report([run], trained=[trained()])
    except Exception as error:
        warnings.warn(f"{run.page} was not drawn: {escape_line(error)}", stacklevel=3)
