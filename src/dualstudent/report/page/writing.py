"""Where pages go: at once or not at all, and never over something that is not ours."""

import os
from collections.abc import Sequence
from pathlib import Path

from dualstudent.atomic import atomic_write, check_free
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.report.page.evidence import gather
from dualstudent.report.page.page import GENERATOR, render
from dualstudent.training.run import Run
from dualstudent.training.trainer import Trainer

_BEGINNING = 1024  # bytes, in which a page says what made it


def write_report(
    runs: Sequence[Run],
    path: Path | str | None = None,
    data: Sequence[PreparedData | None] = (),
    trained: Sequence[Trainer] = (),
) -> Path:
    """One HTML file about finished runs, side by side, that works offline.

    Args:
        runs: at least one, all evaluated on the same samples.
        path: of the page; may be there already if it is such a page. Default, for one run only:
            ``report.html`` in its folder.
        data: what :func:`~dualstudent.train` was handed for each of the runs, if it was.
        trained: the trainers of the runs, if they are still there; default: loaded.

    Returns:
        the path of the page.

    Raises:
        UserError: if a run has not finished, its data have changed, runs cannot be compared, or
            there is another file in the place of the page.

    Example:
        >>> write_report([Run.open("runs/digits")])  # doctest: +SKIP
        PosixPath('runs/digits/report.html')
    """
    if path is None:
        if len(runs) != 1:
            raise UserError("a page about several runs needs a place: give -o FILE.html")
        path = runs[0].page
    path = Path(path)
    _check_is_free(path)
    page = render(gather(runs, data, trained))
    with atomic_write(path) as partial:
        partial.write_text(page, "utf-8")
    return path


def _check_is_free(path: Path) -> None:
    if _is_ours(path):
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file, for example {path / 'report.html'}")
    if os.path.lexists(path):  # also a link that leads nowhere is somebody's
        raise UserError(
            f"{path} already exists and is no page of dualstudent; choose another -o FILE, "
            "or remove it first"
        )
    check_free(path)


def _is_ours(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f'name="generator" content="{GENERATOR}"'.encode() in file.read(_BEGINNING)
