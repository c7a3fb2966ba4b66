"""Commands that use what a run has learned: report, predict, label, export."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.arguments import RunFolder
from dualstudent.cli.speaking import console, messages, say
from dualstudent.report.line import print_line


class ExportFormat(StrEnum):
    """What kind of file a network is taken away in."""

    onnx = "onnx"
    torch_export = "torch-export"
    safetensors = "safetensors"


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders of runs with the same test part.", metavar="RUN…")
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
    print_line(console, str(page))


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
    from dualstudent.cli.progress import progress_on
    from dualstudent.report.outcome import describe_network
    from dualstudent.training.predictor import write_predictions
    from dualstudent.training.run import Run

    opened = Run.open(run)
    with progress_on(console, "images") as progress:
        written = write_predictions(
            opened, paths, output, probabilities, progress.observer("predicting")
        )
    for unreadable in written.unreadable:
        say("skipped", "yellow", str(unreadable))
    skipped = f"; {len(written.unreadable)} skipped" if written.unreadable else ""
    print_line(
        console,
        f"{written.predicted:,} predictions in {output} by "
        f"{describe_network(opened, written.network)}; {written.stable:,} of them stable{skipped}",
    )


def label(
    run: RunFolder,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="CSV file to write; must not exist.")
    ],
    precision: Annotated[
        float,
        typer.Option(min=0, max=1, help="Shard of right ones wanted among the trusted labels."),
    ] = 0.95,
) -> None:
    """List the unlabeled images of a run, those most worth a person's label first.

    Says how far each prediction can be trusted, and which are as good as labels.
    """
    from dualstudent.cli.progress import progress_on
    from dualstudent.labeling import write_labels
    from dualstudent.training.run import Run

    opened = Run.open(run)
    with progress_on(console, "images") as progress:
        sheet = write_labels(opened, output, precision, progress.observer("labeling"))
    for unreadable in sheet.unreadable:
        say("skipped", "yellow", str(unreadable))
    for line in sheet.in_words(output):
        print_line(console, line)


def export(
    run: RunFolder,
    to: Annotated[ExportFormat, typer.Option(help="Kind of file.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Default: RUN/NETWORK with its ending."
        ),
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the one that the method exports.")
    ] = None,
) -> None:
    """Take a trained network away in one file that maps raw pixels to probabilities.

    The file is compared with PyTorch on real images, and not kept if it differs.
    """
    from dualstudent.export import export_run
    from dualstudent.report.outcome import describe_network
    from dualstudent.training.run import Run

    opened = Run.open(run)
    made = export_run(opened, to.value, output, network)
    card = made.card
    for line in (
        f"{made.path}: {describe_network(opened, card.student)}, {len(card.classes)} classes",
        f"give it {card.preprocessing}",
        f"checked on {made.checked} images: "
        f"at most {made.difference:.1e} from PyTorch's probabilities",
    ):
        print_line(console, line)
