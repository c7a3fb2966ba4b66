"""The recipes of runs, setting by setting, and where they differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualstudent.errors import escape_line
from dualstudent.report.page.evidence import Evidence


@dataclass(frozen=True)
class Setting:
    """One key of the recipe.

    Attributes:
        key: with dots.
        values: of each run, "–" where it has none.
        differs: whether the runs differ in it.
    """

    key: str
    values: list[str]

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def settings(runs: Sequence[Evidence]) -> list[Setting]:
    """Every setting of every run, in the order of the recipe."""
    columns = [dict(_flat(run.recipe.model_dump(mode="json", exclude_none=True))) for run in runs]
    keys = dict.fromkeys(key for column in columns for key in column)
    together: dict[str, list[str]] = {}  # keys of one table, however the runs mix them
    for key in keys:
        together.setdefault(key.rpartition(".")[0], []).append(key)
    return [
        Setting(key, [column.get(key, "–") for column in columns])
        for group in together.values()
        for key in group
    ]


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", escape_line(_text(value))


def _text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
