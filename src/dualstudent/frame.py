"""All runs of a folder as one table."""

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
        between runs, with its dotted key, ``epoch``, ``step``, ``network``, ``learning_rate``,
        ``ramp``; ``loss.TERM`` for students; ``error`` and the other figures of the test part, in
        percent; ``distance.PAIR.FIGURE`` between networks. What a row does not have is NaN.

    Raises:
        UserError: if there is no run, or one is damaged.

    Example:
        >>> frame = runs_frame("runs")  # doctest: +SKIP
        >>> last = frame.groupby(["run", "network"]).last()  # doctest: +SKIP
        >>> last.groupby("method.name").error.agg(["mean", "std"])  # doctest: +SKIP
    """
    from pandas import DataFrame  # takes long to load

    folder = Path(folder)
    runs = [Run.open(about.parent) for about in sorted(folder.rglob("run.json"))]
    if not runs:
        raise UserError(f"{folder}: there is no run in it; name a folder of runs")
    settings = {run: dict(flatten_settings(run.read_recipe_table())) for run in runs}
    keys = dict.fromkeys(key for each in settings.values() for key in each)
    differ = [
        key
        for key in keys
        if key not in _NO_SETTINGS and len({repr(each.get(key)) for each in settings.values()}) > 1
    ]
    rows = [
        {
            "run": str(run.folder.relative_to(folder)),
            "seed": settings[run].get("seed"),
            **{key: settings[run].get(key) for key in differ},
            **row,
        }
        for run in runs
        if run.metrics.is_file()
        for record in run.read_metrics()
        for row in _list_rows(record)
    ]
    return DataFrame(rows)


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
            **record["test"].get(network, {}),
            **distances,
        }
