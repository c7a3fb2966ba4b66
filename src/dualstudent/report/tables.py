"""Tables for the terminal."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal, get_args, get_origin

from rich.table import Table
from rich.text import Text

from dualstudent.errors import UserError
from dualstudent.methods import METHODS, Method
from dualstudent.settings import suggest


def result_table(
    rows: Mapping[str, Mapping[str, Any]], title: str = "", times: Mapping[str, str] | None = None
) -> Table:
    """One row per network: test error, accuracy on all and on stable samples, share of those.

    Args:
        rows: label → figures of one network, as they stand in a run's result.
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
            percent(figures["error"]),
            percent(100 - figures["error"]),
            "–" if stable is None else percent(stable),
            percent(figures["stable_share"]),
            *([times.get(label, "")] if times else []),
        )
    return table


def percent(value: float) -> str:
    return f"{value:.2f} %"


def format_count(number: int, noun: str) -> str:
    """A number of things.

    Example:
        >>> format_count(1, "run"), format_count(2000, "image")
        ('1 run', '2,000 images')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_duration(seconds: float) -> str:
    """Hours, minutes and seconds.

    Example:
        >>> format_duration(75.4)
        '0:01:15'
    """
    return str(timedelta(seconds=round(seconds)))


def format_estimate(seconds: float) -> str:
    """A duration in the unit that fits.

    Example:
        >>> format_estimate(7), format_estimate(70), format_estimate(9000), format_estimate(4e6)
        ('7 s', '1 min', '2.5 h', '46 days')
    """
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def methods_table() -> Table:
    """Name and summary of every method."""
    table = Table(box=None, show_header=False)
    for method in METHODS:
        table.add_row(f"[bold]{_name(method)}[/bold]", method.summary)
    return table


def settings_table(name: str) -> Table:
    """Key, default and meaning of everything that can be set of one method."""
    by_name = {_name(method): method for method in METHODS}
    if name not in by_name:
        raise UserError(
            f"there is no method {name!r}{suggest(name, by_name)} "
            "('dualstudent methods' lists them)"
        )
    table = Table("key", "default", "meaning", title=by_name[name].summary)
    for key, field in by_name[name].Settings.model_fields.items():
        if key != "name":
            default = "required" if field.is_required() else repr(field.default)
            meaning = "; ".join(filter(None, [field.description, _choices(field.annotation)]))
            table.add_row(key, default, meaning)
    return table


def _choices(kind: Any) -> str:
    return " or ".join(map(repr, get_args(kind))) if get_origin(kind) is Literal else ""


def _name(method: type[Method]) -> str:
    return str(method.Settings.model_fields["name"].default)
