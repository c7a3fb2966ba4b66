"""``dualstudent predict``: classify images with a trained model."""

from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console, print_line, print_message


def predict(
    run: RunFolder,
    paths: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV file to write; must not exist.")
    ],
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add a column per class.")
    ] = False,
    imports: Imports = None,
) -> None:
    """Classify images with a trained model: label, probability, and whether it is stable."""
    from dualstudent.cli.progress import show_progress
    from dualstudent.cli.results import describe_network
    from dualstudent.training.predictor import write_predictions
    from dualstudent.training.run import Run

    opened = Run.open(run, imports or ())
    with show_progress(console, "images") as progress:
        written = write_predictions(
            opened, paths, output, probabilities, progress.make_callback("predicting")
        )
    for unreadable in written.unreadable:
        print_message("skipped", "yellow", unreadable)
    skipped = f"; {len(written.unreadable)} skipped" if written.unreadable else ""
    print_line(
        console,
        f"{written.predicted:,} predictions in {output} by "
        f"{describe_network(opened, written.network)}; {written.stable:,} of them stable{skipped}",
    )
