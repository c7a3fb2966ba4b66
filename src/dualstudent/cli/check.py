"""``dualstudent check``: check own images before training."""

from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.console import console


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
    image_size: Annotated[
        int | None,
        typer.Option(min=1, help="Side in pixels; default: what 'train' would choose."),
    ] = None,
) -> None:
    """Check your own images before training: counts, duplicates, leaks, and the time it takes.

    Exit code 2 if they hold an error that training must not ignore; 0 with warnings only.
    """
    from dualstudent.cli.data_check import print_finding
    from dualstudent.cli.own_images import OwnImages
    from dualstudent.data.images.own import list_images
    from dualstudent.data.images.tables import Columns
    from dualstudent.recipes.chooser import locate_images, validate_request

    changes = [] if image_size is None else [f"data.image_size={image_size}"]
    asked = validate_request(
        locate_images(
            data,
            target_path=target,
            unlabeled=unlabeled,
            path_column=path_column,
            label_column=label_column,
            part_column=part_column,
        ),
        changes,
    )
    columns = Columns(path_column, label_column, part_column)
    listing = list_images(data, target, unlabeled, columns)
    OwnImages(console, print_finding).forecast(asked, listing, changes)
