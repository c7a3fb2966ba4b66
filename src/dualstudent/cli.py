"""The command line. Heavy imports wait until a command needs them, so that help is instant."""

import shlex
import sys
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from dualstudent.errors import UserError, on_one_line
from dualstudent.interruption import Interrupted

if TYPE_CHECKING:
    from dualstudent.data.check import Finding
    from dualstudent.training.run import Run

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
recipes_app = typer.Typer(help="List and show the recipes that come with dualstudent.")
app.add_typer(recipes_app, name="recipes")
console = Console()
messages = Console(stderr=True)


class Budget(StrEnum):
    """How large an experiment is run."""

    full = "full"
    cpu = "cpu"


class ExportFormat(StrEnum):
    """What kind of file a network is taken away in."""

    onnx = "onnx"
    torch_export = "torch-export"
    safetensors = "safetensors"


RunFolder = Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")]


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2, never a traceback."""
    warnings.showwarning = lambda message, *_, **__: _say("warning", "yellow", str(message))
    run_for_people(app)


def run_for_people(command: Callable[[], object]) -> None:
    """Run a command; mistakes, full disks and stops are one line and an exit code."""
    try:
        command()
    except UserError as error:
        _say("error", "red", str(error))
        sys.exit(2)
    except OSError as error:
        _say(
            "error", "red", f"{error.filename}: {error.strerror}" if error.filename else str(error)
        )
        sys.exit(2)
    except Interrupted as stop:
        _say("stopped", "yellow", str(stop))
        sys.exit(128 + stop.number)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"dualstudent {version('dualstudent')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show it and exit."),
    ] = False,
) -> None:
    """Train image classifiers from a few labels and many unlabeled images."""


@app.command()
def demo(
    seeds: Annotated[int, typer.Option(min=1, help="How many times, with other labels.")] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the runs; runs found there are continued.")
    ] = None,
) -> None:
    """See Dual Student learn from unlabeled digits: nothing to download, 90 seconds."""
    from dualstudent.demo import run_demo

    run_demo(out or _free_folder(Path("runs/demo")), seeds, console)


@app.command()
def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help="Name of a recipe, or path of a .toml file; default: as suits --data."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
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
    from dualstudent.runs import train as train_by
    from dualstudent.training.progress import progress_on
    from dualstudent.training.run import Run

    if target is not None and data is None:
        raise UserError("--target is what to adapt to; name the labeled source with --data")
    if out is not None:
        Run.check_is_free(out)  # before a long look at the images
    changes, own = set_ or [], OwnImages(console, _tell)
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


@app.command()
def resume(run: RunFolder) -> None:
    """Continue a run exactly where it stopped."""
    from dualstudent.runs import resume as continue_run
    from dualstudent.training.progress import progress_on

    with progress_on(console) as progress:
        continued = continue_run(run, progress.observer(run.name))
    _show(continued)


@app.command()
def evaluate(run: RunFolder) -> None:
    """Evaluate the networks of a finished run on its test set, or on what it validated on."""
    from dualstudent.report.tables import result_table
    from dualstudent.training.model import evaluate_run
    from dualstudent.training.run import Run

    opened = Run.open(run)
    figures = evaluate_run(opened)
    console.print(result_table(figures, f"{run}, {_evaluated_part(opened)} set"))


@app.command()
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs with the same test set.", metavar="RUN…")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Page to write; default, for one run: in RUN."
        ),
    ] = None,
) -> None:
    """Make a page to look at: curves, confusion, calibration, images; several runs side by side.

    One HTML file that works offline. Only an older page of this kind is ever replaced.
    """
    from dualstudent.report.page import write_report
    from dualstudent.training.run import Run

    opened = [Run.open(run) for run in runs]
    with messages.status("asking the networks"):
        page = write_report(opened, output)
    console.print(on_one_line(page), markup=False, highlight=False, soft_wrap=True)


@app.command()
def export(
    run: RunFolder,
    to: Annotated[ExportFormat, typer.Option(help="Kind of file.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Default: RUN/NETWORK with its ending."),
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the one that the method exports.")
    ] = None,
) -> None:
    """Take a trained network away in one file that maps raw pixels to probabilities.

    The file is compared with PyTorch on real images, and not kept if it differs.
    """
    from dualstudent.export import export_run
    from dualstudent.report.tables import percent
    from dualstudent.training.run import Run

    made = export_run(Run.open(run), to.value, out, network)
    card = made.card
    for line in (
        f"{made.path}: {card.student}, {len(card.classes)} classes, "
        + ("not tested" if card.test_error is None else f"{percent(card.test_error)} test error"),
        f"give it {card.preprocessing}",
        f"checked on {made.checked} images: "
        f"at most {made.difference:.1e} from PyTorch's probabilities",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


@app.command()
def predict(
    run: RunFolder,
    paths: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV file to write; must not exist.")
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Also a column per class.")
    ] = False,
) -> None:
    """Classify images by a trained model: label, probability, and how far to trust them."""
    from dualstudent.training.predicting import write_predictions
    from dualstudent.training.progress import progress_on
    from dualstudent.training.run import Run

    opened = Run.open(run)
    with progress_on(console, "images") as progress:
        written = write_predictions(
            opened, paths, output, probabilities, progress.observer("predicting")
        )
    for unreadable in written.unreadable:
        _say("skipped", "yellow", str(unreadable))
    skipped = f"; {len(written.unreadable)} skipped" if written.unreadable else ""
    console.print(
        f"{written.predicted:,} predictions in {on_one_line(output)}, {written.stable:,} of them "
        f"stable{skipped}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def reproduce(
    what: Annotated[
        str | None,
        typer.Argument(help="Name of an experiment, or path of a .toml file that defines one."),
    ] = None,
    budget: Annotated[
        Budget, typer.Option(help="As large as in the paper, or so small that a CPU finishes it.")
    ] = Budget.full,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each cell; default: as in the paper.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder, for all experiments of a budget; default: runs/reproduce/…"),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Run only the cells whose name contains this.")
    ] = "",
    list_: Annotated[
        bool, typer.Option("--list", help="What there is, and what it costs on this machine.")
    ] = False,
) -> None:
    """Repeat a table or figure of the paper, for example [bold]dualstudent reproduce table1[/bold].

    Runs that are finished are not repeated, those that were stopped are continued.
    """
    if list_:
        from dualstudent.experiments.listing import list_experiments

        list_experiments(console)
        return
    if what is None:
        raise UserError("say what to reproduce; 'dualstudent reproduce --list' shows what there is")
    from dualstudent.experiments.reproduce import Request
    from dualstudent.experiments.reproduce import reproduce as run_experiment

    run_experiment(Request(what, budget.value, seeds, out, only), console)


@app.command()
def doctor(
    recipe: Annotated[
        str, typer.Argument(help="Name of a recipe, or path of a .toml file.")
    ] = "demo",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; may be repeated."),
    ] = None,
    steps: Annotated[
        int, typer.Option(min=1, help="How many to try until every loss term is more than 0.")
    ] = 50,
) -> None:
    """Check in a few real steps that every loss term reaches its own student and nothing else.

    Shows the gradient of each term, part by part. Exit code 1 if something is wrong.
    """
    from dualstudent.doctor import examine
    from dualstudent.doctor.diagnosis import reach_table
    from dualstudent.recipes import load_recipe

    chosen = load_recipe(recipe, set_ or ())
    diagnosis = examine(chosen, steps)
    console.print(reach_table(diagnosis, f"{chosen.method.name}: norm of each term's gradient"))
    if diagnosis.off:
        console.print(
            f"off: {', '.join(diagnosis.off)}: exactly 0 in all {diagnosis.steps} steps, "
            "by weight or for lack of samples (then try more --steps)"
        )
    for finding in diagnosis.findings:
        _say("wrong", "red", finding)
    if not diagnosis.healthy:
        raise typer.Exit(1)
    console.print(f"healthy in {diagnosis.steps} steps; watched: {', '.join(diagnosis.networks)}")


@app.command()
def check(
    data: Annotated[
        Path, typer.Argument(help="A folder with a folder per class, or a CSV or Parquet file.")
    ],
    target: Annotated[
        Path | None, typer.Option(help="Folder to adapt to; DATA is then the source.")
    ] = None,
    unlabeled: Annotated[
        str, typer.Option(help="Name of the folder of unlabeled images.")
    ] = "unlabeled",
    path_column: Annotated[str | None, typer.Option(help="Column of paths in a table.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of labels in a table.")] = None,
    part_column: Annotated[str | None, typer.Option(help="Column of train or test.")] = None,
    image_size: Annotated[int, typer.Option(min=1, help="Pixels a side to compare at.")] = 32,
) -> None:
    """Look at your own images before training: counts, broken files, duplicates, leaks.

    Exit code 2 if training with them cannot be right; warnings leave it at 0.
    """
    from dualstudent.data.own import list_images
    from dualstudent.data.tables import Columns
    from dualstudent.own_images import OwnImages

    columns = Columns(path_column, label_column, part_column)
    OwnImages(console, _tell).look(list_images(data, target, unlabeled, columns), image_size)


@app.command()
def methods(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
) -> None:
    """List the methods, or show what can be set of one."""
    from dualstudent.report.tables import methods_table, settings_table

    console.print(methods_table() if name is None else settings_table(name))


@recipes_app.callback(invoke_without_command=True)
def recipes(context: typer.Context) -> None:
    """Without a sub-command: list the recipes."""
    if context.invoked_subcommand is None:
        list_recipes()


@recipes_app.command("list")
def list_recipes() -> None:
    """The recipes, a line each."""
    from rich.table import Table

    from dualstudent.recipes import load_recipe, recipe_names

    table = Table(box=None, show_header=False)
    for name in recipe_names():
        table.add_row(f"[bold]{name}[/bold]", load_recipe(name).description)
    console.print(table)


@recipes_app.command("show")
def show_recipe(
    name: Annotated[str, typer.Argument(help="Name of a recipe, or path of a .toml file.")],
    full: Annotated[
        bool, typer.Option("--full", help="Every setting, also those it does not state.")
    ] = False,
) -> None:
    """The text of a recipe, to read or to save and edit."""
    from dualstudent.recipes import load_recipe
    from dualstudent.recipes.reading import recipe_source, to_toml

    text = to_toml(load_recipe(name)) if full else recipe_source(name)
    typer.echo(text, nl=False)


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
    if run.page.is_file():
        console.print(f"to look at it: {run.page}", markup=False)


def _evaluated_part(run: "Run") -> str:
    return "validation" if run.read_recipe().data.validation else "test"


def _free_folder(wanted: Path) -> Path:
    """The folder, or the first numbered one beside it that does not exist yet."""
    folder, number = wanted, 1
    while folder.exists():
        number += 1
        folder = wanted.with_name(f"{wanted.name}-{number}")
    return folder


def _tell(finding: "Finding") -> None:
    from dualstudent.report.data_check import finding_line

    colour = "red" if finding.severity == "error" else "yellow"
    _say(finding.severity, colour, finding_line(finding))


def _say(what: str, colour: str, message: str) -> None:
    messages.print(f"[bold {colour}]{what}:[/bold {colour}]", end=" ")
    messages.print(on_one_line(message), markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    main()
