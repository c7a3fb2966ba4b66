"""``dualstudent check``: check own images before training, and print what was found."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from dualstudent.cli.arguments import Changes
from dualstudent.cli.console import print_message
from dualstudent.errors import escape_line
from dualstudent.report.format import format_bytes, format_estimate

if TYPE_CHECKING:
    from dualstudent.data.images.check import DataCheck, Finding
    from dualstudent.data.prepared import PreparedData
    from dualstudent.recipes.schema import Recipe
    from dualstudent.training.inspection import Found, Inspection

_EXAMPLES, _FOUND = 3, 10
_SIZES = (32, 64, 128, 224)


def check(
    data: Annotated[
        Path, typer.Argument(help="A folder with a folder per class, or a CSV or Parquet file.")
    ],
    target: Annotated[
        Path | None,
        typer.Option(help="Folder of images to adapt to; DATA is then the labeled source."),
    ] = None,
    unlabeled: Annotated[
        str, typer.Option(help="Name of the folder of unlabeled images.")
    ] = "unlabeled",
    path_column: Annotated[str | None, typer.Option(help="Column of paths in a table.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of labels in a table.")] = None,
    part_column: Annotated[str | None, typer.Option(help="Column of train or test.")] = None,
    domain_column: Annotated[
        str | None, typer.Option(help="Column of source or target; '' for none.")
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Side in pixels; default: what 'train' would choose."),
    ] = None,
    set_: Changes = None,
) -> None:
    """Check your own images before training: counts, duplicates, leaks, and the time it takes.

    With [bold]--set trunk.name=efficientnet-lite0[/bold] also, by the features of that trunk:
    labels that may be wrong, copies, and images unlike all labeled ones.

    Exit code 2 if they hold an error that training must not ignore; 0 with warnings only.
    """
    from dualstudent.cli.own_images import print_forecast
    from dualstudent.data.images.own import list_images
    from dualstudent.data.images.tables import Columns
    from dualstudent.recipes.own_images import locate_images, validate_request

    changes = list(set_ or [])
    if image_size is not None:
        changes.append(f"data.image_size={image_size}")
    asked = validate_request(
        locate_images(
            data,
            target_path=target,
            unlabeled=unlabeled,
            path_column=path_column,
            label_column=label_column,
            part_column=part_column,
            domain_column=domain_column,
        ),
        changes,
    )
    columns = Columns(path_column, label_column, part_column, domain_column)
    listing = list_images(data, target, unlabeled, columns)
    print_forecast(asked, listing, changes)


def build_count_table(check: "DataCheck") -> Table:
    """Labeled and test images per class, with sums."""
    table = Table(title=Text(escape_line(check.name)), title_justify="left", show_footer=True)
    table.add_column("class", "all")
    table.add_column("labeled", f"{sum(check.labeled.values()):,}", justify="right")
    table.add_column("test", f"{sum(check.test.values()):,}", justify="right")
    for name, labeled in check.labeled.items():
        table.add_row(Text(escape_line(name)), f"{labeled:,}", f"{check.test[name]:,}")
    return table


def summarize_check(check: "DataCheck") -> str:
    """Number and sizes of the images, and the memory they need at common image sizes."""
    (low_height, low_width), (high_height, high_width) = check.smallest, check.largest
    memory = ", ".join(f"{size} px {format_bytes(check.count_bytes(size))}" for size in _SIZES)
    return (
        f"{check.images:,} {'gray' if check.is_gray else 'color'} images, {check.unlabeled:,} of "
        f"them unlabeled, from {low_width} × {low_height} to {high_width} × {high_height} pixels; "
        f"memory by image size: {memory}"
    )


def describe_forecast(recipe: "Recipe", images: int, seconds: float) -> str:
    """The recipe that training would use, with its time and memory.

    Args:
        recipe: on own images.
        images: number of images.
        seconds: estimated time of training.
    """
    from dualstudent.data.prepare import OWN_IMAGE_SIZE

    data, batch, size = recipe.data, recipe.batch, recipe.data.image_size or OWN_IMAGE_SIZE
    return (
        f"training would use {recipe.method.name} with {recipe.network.name} on {size} × {size} "
        f"pixels, {recipe.epochs:,} epochs, {batch.labeled} of {batch.size} images in a "
        f"batch labeled: about {format_estimate(seconds)} on this machine, "
        f"{format_bytes(images * data.channels * size**2)} of memory for the images"
    )


def describe_finding(finding: "Finding") -> str:
    """The message with a few of its files."""
    groups = [" = ".join(map(str, files)) for files in finding.files[:_EXAMPLES]]
    more = ["…"] if len(finding.files) > _EXAMPLES else []
    return finding.message + (f": {', '.join(groups + more)}" if groups else "")


def list_found(inspection: "Inspection", paths: Sequence[Path], data: "PreparedData") -> list[str]:
    """What was found by features, with the first files of each kind, a line each.

    Args:
        inspection: of ``data``.
        paths: files of the training images.
        data: names and labels.
    """
    from dualstudent.training.inspection import KINDS

    lines = []
    for kind, what in KINDS.items():
        found, count = getattr(inspection, kind), inspection.counts[kind]
        lines.append(f"{what}, by their features: {count:,}" + ("; look at them:" if count else ""))
        for each in found[:_FOUND]:
            files = " = ".join(escape_line(paths[index]) for index in each.images)
            lines.append(f"  {files}: {_describe_found(each, data)}")
        if count > _FOUND:
            lines.append(f"  … and {count - _FOUND:,} more")
    return lines


def _describe_found(found: "Found", data: "PreparedData") -> str:
    if found.answer is None:
        return f"similarity {found.value:.2f}"
    given = data.classes[data.labels[found.images[0]]]
    return (
        f"labeled {escape_line(given)}, looks like {escape_line(data.classes[found.answer])} "
        f"({100 * found.value:.0f} %)"
    )


def print_finding(finding: "Finding") -> None:
    """Print an error in red, a warning in yellow."""
    color = "red" if finding.severity == "error" else "yellow"
    print_message(finding.severity, color, describe_finding(finding))
