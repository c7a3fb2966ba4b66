"""Commands that look at own images: check."""

from pathlib import Path
from typing import Annotated

import typer

from dualstudent.cli.speaking import console, tell


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
    """Look at your own images before training: counts, duplicates, leaks, and how long it takes.

    Exit code 2 if training with them cannot be right; warnings leave it at 0.
    """
    from dualstudent.cli.own_images import OwnImages, locate_images, recipe_request
    from dualstudent.data.images.own import list_images
    from dualstudent.data.images.tables import Columns

    asked = recipe_request(
        locate_images(
            data,
            target_path=target,
            unlabeled=unlabeled,
            path_column=path_column,
            label_column=label_column,
            part_column=part_column,
        )
    )
    own = OwnImages(console, tell)
    columns = Columns(path_column, label_column, part_column)
    found = own.look(list_images(data, target, unlabeled, columns), image_size)
    own.forecast(asked, found)
