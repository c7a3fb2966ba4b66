"""The table of results that several commands print."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from dualstudent.report.format import format_percent


def result_table(
    rows: Mapping[str, Mapping[str, Any]], title: str = "", times: Mapping[str, str] | None = None
) -> Table:
    """One row per network: error, accuracy on all and on stable samples, share of stable samples.

    Args:
        rows: label → figures of one network, as in a run's result.
        title: above the table.
        times: label → how long the training took, for a column of its own.
    """
    table = Table(title=Text(title), title_justify="left")  # a path may look like markup
    table.add_column("network", no_wrap=True)
    columns = ["error", "accuracy", "on stable", "share stable"]
    for column in [*columns, "time"] if times else columns:
        table.add_column(column, justify="right")
    for label, figures in rows.items():
        stable = figures["stable_accuracy"]
        table.add_row(
            label,
            format_percent(figures["error"]),
            format_percent(100 - figures["error"]),
            "–" if stable is None else format_percent(stable),
            format_percent(figures["stable_share"]),
            *([times.get(label, "")] if times else []),
        )
    return table
