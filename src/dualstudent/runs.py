"""Runs as people start them: training, and at its end a page to look at."""

import warnings
from pathlib import Path

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import escape_line
from dualstudent.recipes.schema import Recipe
from dualstudent.report.page import write_report
from dualstudent.training import loop
from dualstudent.training.loop import Observer
from dualstudent.training.run import Run


def train(
    recipe: Recipe,
    folder: Path | str,
    observer: Observer | None = None,
    data: PreparedData | None = None,
) -> Run:
    """Train by a recipe into a new folder, and draw its page.

    Args:
        recipe: what to do.
        folder: must not exist or be empty.
        observer: is told how far it is.
        data: what to learn from, instead of what ``recipe.data`` names; whoever continues or
            evaluates the run hands it over again.

    Raises:
        UserError: if recipe, data and folder do not fit; then nothing has been written.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP; :func:`resume` continues.
    """
    return _with_page(loop.train(recipe, folder, observer, data), data)


def resume(
    folder: Path | str, observer: Observer | None = None, data: PreparedData | None = None
) -> Run:
    """Continue a run exactly where its last checkpoint left it; a finished run stays as it is.

    Args:
        folder: of the run.
        observer: is told how far it is.
        data: what :func:`train` was handed, if it was.
    """
    return _with_page(loop.resume(folder, observer, data), data)


def train_or_resume(recipe: Recipe, folder: Path | str, observer: Observer | None = None) -> Run:
    """Train into a new folder, or continue the run of the same recipe that is there."""
    return _with_page(loop.train_or_resume(recipe, folder, observer), None)


def _with_page(run: Run, data: PreparedData | None) -> Run:
    """Draw the page of a finished run that has none; the run is finished with or without it."""
    if not run.page.exists():
        try:
            write_report([run], data=[data])
        except Exception as error:
            warnings.warn(f"{run.page} was not drawn: {escape_line(error)}", stacklevel=3)
    return run
