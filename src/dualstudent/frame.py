"""All runs of a folder as one table."""

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualstudent.errors import UserError
from dualstudent.loggers import flatten_settings, name_students
from dualstudent.training.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame

_NO_SETTINGS = {"seed", "description"}


def runs_frame(folder: Path | str) -> "DataFrame":
    """Read all runs below a folder into one tidy table: a row per run, epoch and network.

    Nothing is trained, evaluated or imported; runs that have not finished are there, too.

    Args:
        folder: is searched for runs, or is one.

    Returns:
        Columns ``run`` (path below ``folder``), ``seed``, a column for every setting that differs
        between runs, with its dotted key (lists as JSON), ``epoch``, ``step``, ``network``,
        ``learning_rate``, ``ramp``; ``loss.TERM`` for students; ``error`` and the other figures of
        the test part, in percent, and ``class_accuracy.CLASS``, from 0; ``distance.PAIR.FIGURE``
        between networks. What a row does not have is NaN. A damaged run is left out, with a
        warning.

    Raises:
        UserError: if there is no run that can be read.

    Example:
        >>> frame = runs_frame("runs")  # doctest: +SKIP
        >>> last = frame.groupby(["run", "network"]).last()  # doctest: +SKIP
        >>> last.groupby("method.name").error.agg(["mean", "std"])  # doctest: +SKIP
    """
    from pandas import DataFrame  # takes long to load

    folder = Path(folder)
    runs = list(_read_runs(folder))
    if not runs:
        raise UserError(f"{folder}: there is no run in it that can be read; name a folder of runs")
    keys = dict.fromkeys(key for _, settings, _ in runs for key in settings)
    differ = [
        key
        for key in keys
        if key not in _NO_SETTINGS and len({repr(settings.get(key)) for _, settings, _ in runs}) > 1
    ]
    rows = [
        {
            "run": name,
            "seed": settings.get("seed"),
            **{key: settings.get(key) for key in differ},
            **row,
        }
        for name, settings, metrics in runs
        for record in metrics
        for row in _list_rows(record)
    ]
    return DataFrame(rows)


def _read_runs(folder: Path) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Read the path, the settings and the metrics of every run; warn of those that are damaged."""
    for about in sorted(folder.rglob("run.json")):
        try:
            run = Run.open(about.parent)
            settings = {
                key: json.dumps(value) if isinstance(value, list) else value
                for key, value in flatten_settings(run.read_recipe_table())
            }
            metrics = run.read_metrics() if run.metrics.is_file() else []
        except UserError as error:
            warnings.warn(f"a run is left out: {error}", stacklevel=3)
        else:
            yield str(run.folder.relative_to(folder)), settings, metrics


def _list_rows(record: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A row for each network of an epoch: the students, and those that were tested."""
    losses = dict(zip(name_students(record), record["loss"], strict=True))
    common = {key: record[key] for key in ("epoch", "step", "stage") if key in record}
    rates = {key: record[key] for key in ("learning_rate", "ramp") if key in record}
    distances = {
        f"distance.{pair}.{figure}": value
        for pair, figures in record.get("distances", {}).items()
        for figure, value in figures.items()
    }
    for network in dict.fromkeys((*losses, *record["test"])):
        yield {
            **common,
            "network": network,
            **rates,
            **{f"loss.{term}": value for term, value in losses.get(network, {}).items()},
            **dict(_flatten_figures(record["test"].get(network, {}))),
            **distances,
        }


def _flatten_figures(figures: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A cell for each figure; for each class, if it has one by class."""
    for name, value in figures.items():
        if isinstance(value, list):
            yield from ((f"{name}.{number}", each) for number, each in enumerate(value))
        else:
            yield name, value
