"""Arguments that several commands share."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dualstudent.errors import UserError

RunFolder = Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")]
Imports = Annotated[
    list[str] | None,
    typer.Option(
        "--import",
        metavar="MODULE:NAME",
        help="Let the run use this network or method of your own, which runs its code; may be "
        "repeated.",
    ),
]
Loggers = Annotated[
    list[str] | None,
    typer.Option(
        "--log",
        metavar="NAME",
        help="Also send the metrics to tensorboard, mlflow or wandb; may be repeated.",
    ),
]
Changes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting, for example data.labels=20; may be repeated. docs/recipes.md "
        "lists them.",
    ),
]


class Engine(StrEnum):
    """Where the runs of an experiment are trained."""

    local = "local"
    ray = "ray"


On = Annotated[
    Engine,
    typer.Option(
        help="Train on this machine, or on a Ray cluster: the one of RAY_ADDRESS, or a new one "
        "here. All its machines must share the folder --out."
    ),
]
_SECONDS = {"s": 1, "min": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """Parse a duration such as 90s, 10min or 2h; return seconds.

    Raises:
        UserError: if it is written otherwise.

    Example:
        >>> parse_duration("1.5h")
        5400.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h)", text.strip())
    if not found or float(found[1]) == 0:
        raise UserError(f"--budget {text!r}: write a duration such as 90s, 10min or 2h")
    return float(found[1]) * _SECONDS[found[2]]
