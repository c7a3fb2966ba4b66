"""``dualstudent report``: draw the page of one or several runs."""

from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.arguments import Imports
from dualstudent.cli.console import console, messages, print_line


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs with the same test part.", metavar="RUN…")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Page to write; default for a single run: RUN/report.html.",
        ),
    ] = None,
    imports: Imports = None,
) -> None:
    """Write an HTML page: curves, confusion, calibration, images; several runs side by side.

    One file that works offline. An older page is replaced, any other file is not.
    """
    from dualstudent.report.page import write_report
    from dualstudent.training.run import Run

    opened = [Run.open(run, imports or ()) for run in runs]
    with messages.status("computing predictions"):
        page = write_report(opened, output)
    print_line(console, page)
