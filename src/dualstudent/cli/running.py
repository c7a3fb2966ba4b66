"""Commands that make runs: demo, train, resume; and evaluate, which repeats their figures."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualstudent.cli.arguments import Changes, RunFolder
from dualstudent.cli.speaking import console, tell
from dualstudent.errors import UserError
from dualstudent.report.line import print_line

if TYPE_CHECKING:
    from dualstudent.recipes import Recipe


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many times, with other labels.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the runs; those found there are continued. Default: a new runs/demo…"
        ),
    ] = None,
) -> None:
    """See Dual Student learn from unlabeled digits: nothing to download, 90 seconds."""
    from dualstudent.cli.demonstration import run_demo

    run_demo(out or _free_folder(Path("runs/demo")), seeds, console)


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of a recipe, or path of a .toml file; default: as suits --data."),
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
        Path | None, typer.Option(help="Folder to adapt to; --data is then the source.")
    ] = None,
) -> None:
    """Train by a recipe, for example [bold]dualstudent train demo --set data.labels=20[/bold].

    Or on own images: [bold]dualstudent train --data FOLDER[/bold] looks, and chooses a recipe.
    """
    from dualstudent.cli.own_images import OwnImages
    from dualstudent.cli.progress import progress_on
    from dualstudent.report.outcome import show_outcome
    from dualstudent.runs import train as train_by
    from dualstudent.training.run import Run

    changes, own = set_ or [], OwnImages(console, tell)
    asked, name = _asked_for(recipe, data, target, changes)
    folder = out or Path("runs") / f"{name}-{asked.seed}"
    Run.check_free(folder)  # before a long look at the images
    chosen = own.choose(asked, changes) if recipe is None else asked
    own.get_ready(chosen.data)
    with progress_on(console) as progress:
        run = train_by(chosen, folder, progress.observer(folder.name))
    show_outcome(run, console)
    if chosen.data.path is not None:
        own.say_what_next(run)


def _asked_for(
    recipe: str | None, data: Path | None, target: Path | None, changes: list[str]
) -> "tuple[Recipe, str]":
    """A recipe, of which the rest is chosen if none was named; and a name for the run."""
    from dualstudent.cli.own_images import locate_images, recipe_for_images, recipe_request
    from dualstudent.recipes import load_recipe

    if data is None:
        if target is not None:
            raise UserError("--target is what to adapt to; name the labeled source with --data")
        if recipe is None:
            raise UserError("name a recipe ('dualstudent recipes' lists them), or --data FOLDER")
        return load_recipe(recipe, changes), Path(recipe).stem
    where = locate_images(data, target_path=target)
    if recipe is None:
        return recipe_request(where, changes), data.resolve().name if data.is_dir() else data.stem
    return recipe_for_images(recipe, where, changes), Path(recipe).stem


def resume(run: RunFolder) -> None:
    """Continue a run exactly where it stopped; of a finished one, show the result."""
    from dualstudent.cli.progress import progress_on
    from dualstudent.report.outcome import show_outcome
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.run import Run

    if Run.open(run).result.is_file():
        print_line(console, f"{run} has finished already:")
    with progress_on(console) as progress:
        continued = continue_run(run, progress.observer(run.name))
    show_outcome(continued, console)


def evaluate(run: RunFolder) -> None:
    """Evaluate the networks of a finished run on its test part, else on its validation part."""
    from dualstudent.report.tables import result_table
    from dualstudent.training.model import evaluate_run
    from dualstudent.training.run import Run

    opened = Run.open(run)
    figures = evaluate_run(opened)
    console.print(result_table(figures, f"{run}, {opened.evaluated_part} part"))


def _free_folder(wanted: Path) -> Path:
    """The folder, or the first numbered one beside it that does not exist yet."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder
