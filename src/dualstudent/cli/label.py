"""``dualstudent label``: list which images to label next."""

from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console, print_line, print_message


def label(
    run: RunFolder,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV file to write; must not exist.")
    ],
    precision: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="Wanted share of correct predictions among the trusted ones."
        ),
    ] = 0.95,
    imports: Imports = None,
) -> None:
    """List the unlabeled images of a run, the ones most worth labeling first.

    Says how far each prediction can be trusted, and which are good enough to use as labels.
    """
    from dualstudent.labeling import write_labels
    from dualstudent.progress import show_progress
    from dualstudent.training.run import Run

    opened = Run.open(run, imports or ())
    with show_progress(console, "images") as progress:
        sheet = write_labels(opened, output, precision, progress.make_callback("labeling"))
    for unreadable in sheet.unreadable:
        print_message("skipped", "yellow", unreadable)
    if opened.used != opened:
        print_line(console, f"predicted by {opened.used.folder}, which was better on validation")
    for line in sheet.describe(output):
        print_line(console, line)
