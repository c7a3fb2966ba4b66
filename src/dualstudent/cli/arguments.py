"""Arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, for example data.labels=20; may be repeated. docs/recipes.md "
        "lists them.",
    ),
]
