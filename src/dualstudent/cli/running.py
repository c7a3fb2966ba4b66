"""Commands that make runs: demo, train, resume; and evaluate, which repeats their figures."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dualstudent.cli.arguments import Changes, RunFolder
from dualstudent.cli.speaking import console, tell
from dualstudent.errors import UserError

if TYPE_CHECKING:
    from dualstudent.training.run import Run


def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many times, with other labels.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; runs found there are continued.")
    ] = None,
) -> None:
    """See Dual Student learn from unlabeled digits: nothing to download, 90 seconds."""
    from dualstudent.demo import run_demo

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

    Or on own images: [bold]dualstudent train --data FOLDER[/bold] looks at them first, and chooses
    a recipe.
    """
    from dualstudent.own_images import OwnImages, recipe_chosen_for, recipe_on
    from dualstudent.recipes import load_recipe
    from dualstudent.training.loop import train as train_by
    from dualstudent.training.progress import progress_on
    from dualstudent.training.run import Run

    if target is not None and data is None:
        raise UserError("--target is what to adapt to; name the labeled source with --data")
    if out is not None:
        Run.check_is_free(out)  # before a long look at the images
    changes, own = set_ or [], OwnImages(console, tell)
    if data is None:
        if recipe is None:
            raise UserError("name a recipe ('dualstudent recipes' lists them), or --data FOLDER")
        chosen, name = load_recipe(recipe, changes), Path(recipe).stem
    elif recipe is not None:
        chosen, name = recipe_on(recipe, data, target, changes), Path(recipe).stem
    else:
        chosen = recipe_chosen_for(data, target, changes, own)
        name = data.resolve().name if data.is_dir() else data.stem
    folder = out or Path("runs") / f"{name}-{chosen.seed}"
    Run.check_is_free(folder)
    own.get_ready(chosen.data)
    with progress_on(console) as progress:
        run = train_by(chosen, folder, progress.observer(folder.name))
    _show(run)
    if chosen.data.path is not None:
        own.say(
            f"to change the recipe: cp {shlex.quote(str(run.recipe))} mine.toml, edit it, "
            "dualstudent train mine.toml"
        )
        own.say(
            "to use the model: dualstudent predict "
            f"{shlex.quote(str(run.folder))} IMAGES -o predictions.csv"
        )


def resume(run: RunFolder) -> None:
    """Continue a run exactly where it stopped."""
    from dualstudent.training.loop import resume as continue_run
    from dualstudent.training.progress import progress_on

    with progress_on(console) as progress:
        continued = continue_run(run, progress.observer(run.name))
    _show(continued)


def evaluate(run: RunFolder) -> None:
    """Evaluate the networks of a finished run on its test set, or on what it validated on."""
    from dualstudent.report.tables import result_table
    from dualstudent.training.model import evaluate_run
    from dualstudent.training.run import Run

    opened = Run.open(run)
    figures = evaluate_run(opened)
    console.print(result_table(figures, f"{run}, {_evaluated_part(opened)} set"))


def _show(run: "Run") -> None:
    from dualstudent.report.curves import draw_curves
    from dualstudent.report.tables import duration, percent, result_table

    result = run.read_result()
    if result["error"] is not None:
        part = _evaluated_part(run)
        console.print(result_table(result["networks"], f"{run.folder}, last epoch, {part} set"))
        chosen = result["chosen_on_test"]["error"]
        headline = " and ".join(result["headline"])
        console.print(f"result, {headline}: {percent(result['error'])} {part} error")
        console.print(
            f"best epoch and network chosen on the {part} set (not honest): {percent(chosen)}"
        )
        draw_curves({"": run.read_metrics()}, run.curves, str(run.folder))
    else:
        console.print("not evaluated: there are neither test images nor labels to validate on")
    if unreadable := result.get("unreadable_images"):
        left_out = f"{unreadable} images could not be read and were left out: see {run.log}"
        console.print(left_out, markup=False)
    curves = f", curves in {run.curves}" if run.curves.is_file() else ""
    console.print(f"{duration(result['seconds'])}; files in {run.folder}{curves}", markup=False)


def _evaluated_part(run: "Run") -> str:
    return "validation" if run.read_recipe().data.validation else "test"


def _free_folder(wanted: Path) -> Path:
    """The folder, or the first numbered one beside it that does not exist yet."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder
