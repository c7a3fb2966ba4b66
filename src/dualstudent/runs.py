"""Trains and resumes runs, and writes the report page at the end."""

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError, escape_line
from dualstudent.processes import find_world
from dualstudent.recipes.reading import from_json
from dualstudent.recipes.schema import Recipe
from dualstudent.report.page import write_report
from dualstudent.sealed import hash_file
from dualstudent.training.callbacks import Callback, list_callbacks
from dualstudent.training.checks import warn_of_unreachable_thresholds
from dualstudent.training.distributed import Team, join_team
from dualstudent.training.model import load_trained
from dualstudent.training.recorder import Recorder
from dualstudent.training.run import Run, list_versions
from dualstudent.training.trainer import Trainer, use_data


def train(
    recipe: Recipe,
    folder: Path | str,
    callbacks: Callback | Sequence[Callback] = (),
    data: PreparedData | None = None,
    opponent: Recipe | None = None,
    refit: bool = False,
) -> Run:
    """Train a recipe into a new folder and write its report page.

    With ``device.processes``, other processes of this machine share each batch. If torchrun or
    srun started this one, those that they started do, on all machines; each must call this.

    Args:
        recipe: the recipe.
        folder: folder of the run; must not exist or be empty.
        callbacks: receive the progress.
        data: training data to use instead of ``recipe.data``; pass them again to resume or
            evaluate the run. Data that were prepared from ``recipe.data`` are simply reused.
        opponent: recipe of a run on the labels alone, which is begun in ``folder``, but not
            trained; :func:`~dualstudent.worth.train_on_labels` does that.
        refit: whether labels that are held out for validation are to be learned in the end;
            :func:`~dualstudent.worth.refit_on_all_labels` does that.

    Returns:
        The finished run.

    Raises:
        UserError: if recipe, data and folder do not fit together; nothing is written.
        Interrupted: after Ctrl-C, SIGTERM, SIGHUP or SIGUSR1; :func:`resume` continues.

    Example:
        >>> from dualstudent import load_recipe
        >>> run = train(load_recipe("demo"), "runs/demo")  # doctest: +SKIP
        >>> run.read_result()["error"]  # doctest: +SKIP
        2.7
    """
    folder, callbacks = Path(folder), list_callbacks(callbacks)
    Run.check_free(folder)
    if refit and recipe.data.evaluated_part != "validation":
        raise UserError("refit: no labels are held out; set data.validation, or leave refit out")
    with join_team(recipe, partial(_follow, recipe.model_dump_json(), folder)) as team:
        trainer = Trainer(recipe, data, partial(_agree, team, recipe, None), team=team)
        if team.leads:
            warn_of_unreachable_thresholds(trainer.recipe, len(trainer.data.classes))
        team.lead(lambda: Run.create(folder, trainer.recipe, trainer.data, opponent, refit))
        run = Run(folder, recipe.imports)
        _check_visible(run, team, recipe.device.start_limit)
        with _lock(run):
            Recorder(trainer, run, callbacks).run_to_end()
        if team.leads:
            _draw_page(run, lambda: trainer)
    return run


def resume(
    folder: Path | str,
    callbacks: Callback | Sequence[Callback] = (),
    data: PreparedData | None = None,
    imports: Iterable[str] = (),
    processes: int | None = None,
) -> Run:
    """Continue a run exactly from its last checkpoint; a finished run is not changed.

    Args:
        folder: folder of the run.
        callbacks: receive the progress.
        data: the data that :func:`train` was given, if any.
        imports: import paths of your networks and methods that its recipe names.
        processes: number of processes of this machine that share each batch; default: as before.
            With another number, all is the same except how sums are rounded, and batch norm.

    Raises:
        UserError: if there is no run, or its data have changed.
        Interrupted: after Ctrl-C, SIGTERM, SIGHUP or SIGUSR1.
    """
    run, callbacks = Run.open(Path(folder), imports), list_callbacks(callbacks)
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
    device = recipe.device.model_copy(update={"nodes": 1, "processes": processes or 1})
    if processes is None and find_world() is None:
        device = recipe.device
    here = recipe.model_copy(update={"device": device})
    follow = partial(resume, run.folder, imports=run.imports, processes=processes)
    with _lock(run), join_team(here, follow) as team:
        trainer = Trainer(here, data, partial(_agree, team, recipe, run), team=team)
        recorder = Recorder(trainer, run, callbacks)
        recorder.restore()
        team.lead(lambda: run.mend_split(trainer.data))
        recorder.run_to_end()
        if team.leads:
            _draw_page(run, lambda: trainer)
    return run


def train_or_resume(
    recipe: Recipe,
    folder: Path | str,
    callbacks: Callback | Sequence[Callback] = (),
    data: PreparedData | None = None,
) -> Run:
    """Train into a new folder, or resume the run in it, which must have the same recipe."""
    folder = Path(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return train(recipe, folder, callbacks, data)
    Run.open(folder, recipe.imports).check_recipe(use_data(recipe, data))
    return resume(folder, callbacks, data, recipe.imports)


def _follow(recipe: str, folder: Path) -> None:
    train(from_json(recipe), folder)


def _lock(run: Run) -> AbstractContextManager[None]:
    """Lock the run if this process leads."""
    world = find_world()
    return run.lock() if world is None or world.leads else nullcontext()


def _agree(team: Team, recipe: Recipe, run: Run | None, data: PreparedData) -> None:
    """Check that the data are those of the run, and that all processes have the same."""
    if run is not None:
        run.check_same_data(data)
    if team.shard.world_size > 1:
        team.agree(
            {
                "recipe": recipe.model_dump_json(exclude={"description", "device"}),
                "set of images or labels": data.fingerprint(),
                "version of some package": json.dumps(list_versions()),
                "folder of the run": "new" if run is None else hash_file(run.about),
            }
        )


def _check_visible(run: Run, team: Team, limit: float) -> None:
    """Check that all processes see the new folder; otherwise it is removed."""
    if team.shard.world_size == 1:
        return
    deadline = time.monotonic() + limit  # network disks take their time to tell
    while not run.about.is_file() and time.monotonic() < deadline:
        time.sleep(0.1)
    hidden = f"does not see {run.folder.resolve()}; choose an --out that all machines share"
    try:
        team.check_all("" if run.about.is_file() else hidden)
    except UserError:
        if team.leads:
            shutil.rmtree(run.folder)
        raise


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
