"""Tables for the terminal."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.table import Table


def result_table(rows: Mapping[str, Mapping[str, Any]], title: str = "") -> Table:
    """One row per network: error, accuracy on all and on stable samples, share of stable ones.

    Args:
        rows: label → figures of one network, as they stand in a run's result.
        title: above the table.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("network")
    for column in ("test error", "accuracy, all", "accuracy, stable", "share stable"):
        table.add_column(column, justify="right")
    for label, figures in rows.items():
        stable = figures["stable_accuracy"]
        table.add_row(
            label,
            percent(figures["error"]),
            percent(100 - figures["error"]),
            "–" if stable is None else percent(stable),
            percent(figures["stable_share"]),
        )
    return table


def percent(value: float) -> str:
    return f"{value:.2f} %"


def duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> duration(75.4)
        '0:01:15'
    """
    return str(timedelta(seconds=round(seconds)))
