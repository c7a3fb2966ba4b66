"""Trains and resumes runs, and writes the report page at the end."""

import warnings
from collections.abc import Callable, Iterable, Sequence
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
    opponent: Recipe | None = None,
) -> Run:
    """Train a recipe into a new folder and write its report page.

    Args:
        recipe: the recipe.
        folder: folder of the run; must not exist or be empty.
        callbacks: receive the progress.
        data: training data to use instead of ``recipe.data``; pass them again to resume or
            evaluate the run. Data that were prepared from ``recipe.data`` are simply reused.
        opponent: recipe of a run on the labels alone, which is begun in ``folder``, but not
            trained; :func:`~dualstudent.worth.compare_with_labels` does that.

    Returns:
        The finished run.

    Raises:
        UserError: if recipe, data and folder do not fit together; nothing is written.
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
        run = Run.create(folder, trainer.recipe, trainer.data, opponent)
        with run.lock():
            Recorder(trainer, run, callbacks).run_to_end()
    _draw_page(run, lambda: trainer)
    return run


def resume(
    folder: Path | str,
    callbacks: Callback | Sequence[Callback] = (),
    data: PreparedData | None = None,
    imports: Iterable[str] = (),
) -> Run:
    """Continue a run exactly from its last checkpoint; a finished run is not changed.

    Args:
        folder: folder of the run.
        callbacks: receive the progress.
        data: the data that :func:`train` was given, if any.
        imports: import paths of your networks and methods that its recipe names.

    Raises:
        UserError: if there is no run, or its data have changed.
        Interrupted: after Ctrl-C, SIGTERM or SIGHUP.
    """
    run = Run.open(Path(folder), imports)
    if run.result.is_file():
        _draw_page(run, lambda: load_trained(run.used, data))
        return run
    run.check_method()
    if others := run.list_other_versions():
        warnings.warn(
            f"{run.folder} was begun with {', '.join(others)}; it may not end exactly as it would "
            "have there",
            stacklevel=2,
        )
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
    """Train into a new folder, or resume the run in it, which must have the same recipe."""
    folder = Path(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return train(recipe, folder, callbacks)
    Run.open(folder, recipe.imports).check_recipe(recipe)
    return resume(folder, callbacks, imports=recipe.imports)


def follow(recipe: Recipe, folder: Path) -> None:
    """Train as a follower in the run in ``folder``, which another process leads."""
    recorder = Recorder(Trainer(recipe), Run(folder, recipe.imports))
    recorder.restore()
    recorder.run_to_end()


def _draw_page(run: Run, trained: Callable[[], Trainer]) -> None:
    """Write the page of a finished run if it has none."""
    if not run.page.exists():
        draw_page(run, trained)


def draw_page(run: Run, trained: Callable[[], Trainer]) -> None:
    """Write the page of a finished run; a failure is only a warning.

    Args:
        run: the run.
        trained: makes the trainer of the run that is used.
    """
    try:
        write_report([run], trained=[trained()])
    except Exception as error:
        warnings.warn(f"{run.page} was not drawn: {escape_line(error)}", stacklevel=3)
