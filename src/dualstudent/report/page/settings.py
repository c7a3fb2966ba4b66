"""The settings of runs, and where they differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualstudent.errors import escape_line
from dualstudent.report.page.run_data import RunData


@dataclass(frozen=True)
class Setting:
    """A key of the recipe.

    Attributes:
        key: with dots, such as ``data.labels``.
        values: of each run, "–" if it is not set.
        differs: whether the runs differ in it.
    """

    key: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def list_settings(runs: Sequence[RunData]) -> list[Setting]:
    """Every setting of every run, in the order of the recipe."""
    columns = [
        dict(_flatten(run.recipe.model_dump(mode="json", exclude_none=True))) for run in runs
    ]
    keys = dict.fromkeys(key for column in columns for key in column)
    tables: dict[str, list[str]] = {}  # keys by table
    for key in keys:
        tables.setdefault(key.rpartition(".")[0], []).append(key)
    return [
        Setting(key, [column.get(key, "–") for column in columns])
        for group in tables.values()
        for key in group
    ]


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for each in value:  # tables that tell themselves apart by their name
                yield from _flatten(each, f"{prefix}{key}.{escape_line(each['name'])}.")
        else:
            yield f"{prefix}{key}", escape_line(_format(value))


def _format(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_format, value)) or "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
