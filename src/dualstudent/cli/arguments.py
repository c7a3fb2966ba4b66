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
        help="Change a setting, of those that recipes show NAME --full lists; may be repeated.",
    ),
]
