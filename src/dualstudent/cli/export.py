"""``dualstudent export``: write a trained network to one file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.arguments import Imports, RunFolder
from dualstudent.cli.console import console, print_line


class ExportFormat(StrEnum):
    """The file formats."""

    onnx = "onnx"
    torch_export = "torch-export"
    safetensors = "safetensors"


def export(
    run: RunFolder,
    to: Annotated[ExportFormat, typer.Option(help="File format.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write; default: RUN/NETWORK with the suffix of the format.",
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Network to export; default: the one the method recommends."
        ),
    ] = None,
    imports: Imports = None,
) -> None:
    """Write a trained network to one file that maps raw pixels to probabilities.

    The file is checked against PyTorch on real images, and deleted if it differs.
    """
    from dualstudent.cli.results import describe_network
    from dualstudent.export import export_run
    from dualstudent.training.run import Run

    opened = Run.open(run, imports or ())
    made = export_run(opened, to.value, output, network)
    card = made.card
    for line in (
        f"{made.path}: {describe_network(opened, card.student)}, {len(card.classes)} classes",
        f"give it {card.preprocessing}",
        f"checked on {made.checked} images: "
        f"at most {made.difference:.1e} from PyTorch's probabilities",
    ):
        print_line(console, line)
