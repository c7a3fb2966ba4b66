"""``dualstudent train``: train by a recipe, or on own images."""

import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualstudent.cli.arguments import Changes, Imports, Loggers, parse_duration
from dualstudent.cli.console import console
from dualstudent.errors import UserError
from dualstudent.processes import find_world

if TYPE_CHECKING:
    from dualstudent.data.prepared import PreparedData
    from dualstudent.recipes.schema import Recipe
    from dualstudent.training.budget import Budget


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            help="Name of a recipe, or path of a .toml file; default: chosen to suit --data."
        ),
    ] = None,
    set_: Changes = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run; default: runs/NAME-SEED.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Own images: a folder with a folder per class, or a CSV or Parquet file."
        ),
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(help="Folder of images to adapt to; --data is then the labeled source."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Train for about so long on this machine, for example 90s, 10min or 2h; sets "
            "schedule.epochs before the first step.",
        ),
    ] = None,
    no_baseline: Annotated[
        bool,
        typer.Option(
            "--no-baseline",
            help="With --data and no recipe: do not also train on the labels alone, to measure "
            "what the unlabeled images gain.",
        ),
    ] = False,
    imports: Imports = None,
    log: Loggers = None,
    profile: Annotated[
        bool,
        typer.Option(
            "--profile",
            help="Write where the time of ten steps goes to profile/ in the folder of the run: a "
            "trace, and a table of the ten dearest operations.",
        ),
    ] = False,
) -> None:
    """Train by a recipe, for example [bold]dualstudent train demo --set data.labels=20[/bold].

    Or on own images: [bold]dualstudent train --data FOLDER[/bold] checks them, chooses a recipe,
    and says what the unlabeled images gained over training on the labels alone.
    """
    started = time.monotonic()  # what is imported now takes seconds of a budget
    from dualstudent.cli.own_images import choose_recipe, print_next_steps
    from dualstudent.cli.results import complete_run, print_result
    from dualstudent.loggers import log_to
    from dualstudent.progress import show_progress
    from dualstudent.runs import train as train_by
    from dualstudent.runs import train_or_resume
    from dualstudent.training.budget import Budget
    from dualstudent.training.profiling import Profiler
    from dualstudent.training.run import Run

    if no_baseline and recipe is not None:
        raise UserError("--no-baseline is for --data without a recipe; a recipe trains no baseline")
    launched = find_world()
    leads = launched is None or launched.leads
    changes, loggers = set_ or [], [log_to(name) for name in log or () if leads]
    seconds = _read_budget(budget, changes)
    # The page of the run takes about as long as loading the program.
    within = Budget(seconds, started, time.monotonic() - started) if seconds else None
    requested, name = _read_request(recipe, data, target, changes, imports or ())
    folder = out or Path("runs") / f"{name}-{requested.seed}"
    if launched is None:
        Run.check_free(folder)  # before reading the images, which may take long
    elif recipe is None or budget is not None:
        raise UserError(
            f"{launched.launcher} needs the name of a recipe, and no --budget, so that all "
            "processes train the same"
        )
    chosen, prepared, opponent, refit = (
        choose_recipe(requested, changes, within, not no_baseline)
        if recipe is None
        else (*_fit_into(within, requested), None, False)
    )
    with show_progress(console) as progress:
        callbacks = [progress.make_callback(folder.name), *loggers]
        if profile and leads:
            callbacks.append(Profiler(folder / "profile"))
        run = (
            train_by(chosen, folder, callbacks, prepared, opponent, refit)
            if launched is None
            else train_or_resume(chosen, folder, callbacks, prepared)  # a job that was requeued
        )
    if not leads:
        return
    complete_run(run, prepared)
    print_result(run)
    if chosen.data.path is not None:
        print_next_steps(run)


def _read_budget(budget: str | None, changes: list[str]) -> float | None:
    """The budget in seconds."""
    if budget is None:
        return None
    if any(change.partition("=")[0].strip() == "schedule.epochs" for change in changes):
        raise UserError("--budget chooses schedule.epochs; give one of the two")
    return parse_duration(budget)


def _fit_into(budget: "Budget | None", recipe: "Recipe") -> "tuple[Recipe, PreparedData | None]":
    """The recipe with as many epochs as fit into the time, if there is a limit, and its data."""
    from dualstudent.cli.own_images import prepare_images

    data = prepare_images(recipe)
    if budget is None:
        return recipe, data
    from dualstudent.data.prepare import prepare
    from dualstudent.recipes.length import set_length
    from dualstudent.training.budget import fit_epochs, measure_for_budget
    from dualstudent.worth import list_short_trainings

    data = data or prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    forecast = measure_for_budget(recipe, data)
    left, fitted, longest = budget.left, recipe, sys.maxsize
    while True:  # whole epochs are a larger part of short trainings
        others = [(short, forecast) for short in list_short_trainings(fitted, data, False)[0]]
        epochs = min(longest, fit_epochs(fitted, forecast, left, others))
        if epochs == longest:
            return fitted, data
        fitted, longest = set_length(recipe, epochs), epochs


def _read_request(
    recipe: str | None,
    data: Path | None,
    target: Path | None,
    changes: list[str],
    imports: Collection[str],
) -> "tuple[Recipe, str]":
    """The recipe that the user asked for, and a name for the run."""
    from dualstudent.recipes.own_images import locate_images, use_own_images, validate_request
    from dualstudent.recipes.reading import load_recipe

    if data is None:
        if target is not None:
            raise UserError(
                "--target needs --data: name the folder of labeled source images with --data"
            )
        if recipe is None:
            raise UserError("name a recipe ('dualstudent recipes' lists them), or --data FOLDER")
        return load_recipe(recipe, changes, imports), Path(recipe).stem
    where = locate_images(data, target_path=target)
    if recipe is None:
        return validate_request(where, changes), data.resolve().name if data.is_dir() else data.stem
    return use_own_images(recipe, where, changes, imports), Path(recipe).stem
