"""``dualstudent predict``: classify images with a trained model."""

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console, print_line, print_message
from dualstudent.errors import UserError, escape_line
from dualstudent.report.format import format_count

_SHOWN = 20  # rows of the table


def predict(
    run: RunFolder,
    paths: Annotated[list[Path], typer.Argument(help="Images, or folders of images.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="CSV file to write; must not exist. Default: print a table."
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add a column per class to the file.")
    ] = False,
    imports: Imports = None,
) -> None:
    """Classify images with a trained model: label, probability, and whether it is stable."""
    from dualstudent.cli.results import describe_network
    from dualstudent.progress import show_progress
    from dualstudent.training.predictor import list_predictions, write_predictions
    from dualstudent.training.run import Run

    if probabilities and output is None:
        raise UserError("--probabilities: a column per class needs a file; add -o FILE.csv")
    opened = Run.open(run, imports or ())
    rows: list[list[str]] = []

    def keep(row: list[str]) -> None:
        if len(rows) <= _SHOWN:  # and the header
            rows.append(row)

    with show_progress(console, "images") as progress:
        callback = progress.make_callback("predicting")
        found = (
            list_predictions(opened, paths, keep, progress=callback)
            if output is None
            else write_predictions(opened, paths, output, probabilities, callback)
        )
    if rows:
        console.print(_build_table(*rows))
    for unreadable in found.unreadable:
        print_message("skipped", "yellow", unreadable)
    said = format_count(found.predicted, "prediction") + (f" in {output}" if output else "")
    said += f" by {describe_network(opened, found.network)}; {found.stable:,} of them stable"
    if found.unreadable:
        said += f"; {len(found.unreadable)} skipped"
    if output is None and found.predicted > _SHOWN:
        said += f"; the first {_SHOWN} are shown, -o FILE.csv writes all"
    print_line(console, said)


def _build_table(columns: Sequence[str], *rows: Sequence[str]) -> Table:
    """Without a column that is blank, as ``agree`` is for a method with one network."""
    table, filled = Table(box=SIMPLE_HEAD), [any(cells) for cells in zip(*rows, strict=True)]
    for column in compress(columns, filled):
        table.add_column(column, overflow="fold", no_wrap=column not in {"path", "label"})
    for row in rows:  # a name may look like markup
        table.add_row(*(Text(escape_line(cell)) for cell in compress(row, filled)))
    return table
