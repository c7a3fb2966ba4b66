"""Writing the HTML page about finished runs."""

import os
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from markupsafe import Markup

from dualstudent.atomic import atomic_write, check_free
from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.report.format import format_interval, html_percent
from dualstudent.report.html import load_templates
from dualstudent.report.page import calibration, chart, coverage, curves, summary
from dualstudent.report.page.classes import build_class_table
from dualstudent.report.page.confusion import build_confusion
from dualstudent.report.page.run_data import RunData, collect_run_data
from dualstudent.report.page.settings import list_settings
from dualstudent.training.run import Run, list_versions
from dualstudent.training.trainer import Trainer

_GENERATOR = "dualstudent report"
_HEAD_BYTES = 1024  # a page names its generator within these


def write_report(
    runs: Sequence[Run],
    path: Path | str | None = None,
    data: Sequence[PreparedData | None] = (),
    trained: Sequence[Trainer] = (),
) -> Path:
    """Write one HTML file about finished runs, side by side; it works offline.

    Args:
        runs: at least one, all evaluated on the same samples.
        path: of the page; an older page is replaced, any other file is not. Default, for one run
            only: ``report.html`` in its folder.
        data: for each run, the data passed to :func:`~dualstudent.train`, if any.
        trained: the trainers of the runs that are used, if still in memory; default: loaded.

    Returns:
        The path of the page.

    Raises:
        UserError: if a run has not finished, its data have changed, the runs cannot be compared,
            or ``path`` is another file.

    Example:
        >>> write_report([Run.open("runs/digits")])  # doctest: +SKIP
        PosixPath('runs/digits/report.html')
    """
    if path is None:
        if len(runs) != 1:
            raise UserError(
                "a page about several runs needs a file of its own: -o FILE.html, in Python path=…"
            )
        path = runs[0].page
    path = Path(path)
    _check_path(path)
    page = render_page(collect_run_data(runs, data, trained))
    with atomic_write(path) as partial:
        partial.write_text(page, "utf-8")
    return path


def render_page(runs: Sequence[RunData]) -> str:
    """The page as HTML, with style, script and pictures inside."""
    environment = load_templates("dualstudent.report.page", "templates")
    script = Markup(environment.get_template("script.js").render())
    digest = b64encode(sha256(script.encode()).digest()).decode()
    tested = all(run.evaluation for run in runs)
    trust = [coverage.draw_coverage(runs), calibration.draw_reliability(runs)] if tested else []
    return environment.get_template("page.html").render(
        generator=_GENERATOR,
        version=list_versions()["dualstudent"],
        script=script,
        script_digest=digest,  # browsers run no other script
        runs=runs,
        tested=tested,
        summary=summary,
        curves=curves,
        curve_charts=curves.draw_learning_curves(runs),
        trust=trust,
        coverage=coverage,
        calibration=calibration,
        classes=build_class_table(runs) if tested else None,
        confusions=[build_confusion(run) for run in runs] if tested else [],
        settings=list_settings(runs),
        frame=chart,
        percent=html_percent,
        interval=format_interval,
    )


def _check_path(path: Path) -> None:
    if _is_report(path):
        return
    if path.is_dir():
        raise UserError(f"{path} is a folder; give a file, for example {path / 'report.html'}")
    if os.path.lexists(path):  # also a broken link
        raise UserError(
            f"{path} already exists and is not a page of dualstudent; choose another file, "
            "or remove it first"
        )
    check_free(path)


def _is_report(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return f'name="generator" content="{_GENERATOR}"'.encode() in file.read(_HEAD_BYTES)
