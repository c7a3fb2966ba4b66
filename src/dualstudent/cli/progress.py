"""Progress of runs: bars on a terminal, lines in a file."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from dualstudent.training.callbacks import Callback

_SECONDS_BETWEEN_LINES = 30


@contextmanager
def show_progress(console: Console, unit: str = "steps") -> Iterator["ProgressDisplay"]:
    """Show progress on the console while the block runs.

    Args:
        console: shows bars if it is a terminal, else prints a line every 30 seconds.
        unit: what is counted.
    """
    if not console.is_terminal:
        yield ProgressLines(console, unit)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit + " {task.fields[error]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield ProgressBars(progress)


class ProgressDisplay(ABC):
    """Shows the progress of runs."""

    @abstractmethod
    def make_callback(self, label: str) -> Callback:
        """Make a callback that shows the progress of the run ``label``."""


class ProgressBars(ProgressDisplay):
    """One live bar per run, with the error of the last epoch and the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def make_callback(self, label: str) -> Callback:
        return _Bar(self._progress, label)


class _Bar(Callback):
    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label
        self._task = TaskID(-1)

    def on_start(self, step: int, total: int) -> None:
        self._task = self._progress.add_task(self._label, total=total, completed=step, error="")

    def on_step(self, step: int) -> None:
        self._progress.update(self._task, completed=step)

    def on_epoch(self, record: dict[str, Any]) -> None:
        if errors := _describe_errors(record):
            self._progress.update(self._task, error=errors)


class ProgressLines(ProgressDisplay):
    """A line every 30 seconds, and one at the end."""

    def __init__(self, console: Console, unit: str) -> None:
        self._console, self._unit = console, unit

    def make_callback(self, label: str) -> Callback:
        return _Lines(self._console, self._unit, label)


class _Lines(Callback):
    def __init__(self, console: Console, unit: str, label: str) -> None:
        self._console, self._unit, self._label = console, unit, label
        self._first = self._total = 0
        self._started = self._last = time.monotonic()
        self._error = ""

    def on_start(self, step: int, total: int) -> None:
        self._first, self._total = step, total
        self._started = self._last = time.monotonic()

    def on_epoch(self, record: dict[str, Any]) -> None:
        self._error = _describe_errors(record) or self._error

    def on_step(self, step: int) -> None:
        now = time.monotonic()
        if step == self._first or (
            now - self._last < _SECONDS_BETWEEN_LINES and step < self._total
        ):
            return
        self._last = now
        elapsed = now - self._started
        left = elapsed * (self._total - step) / (step - self._first)
        done = f"{self._label}: {step}/{self._total} {self._unit}"
        self._console.print(
            f"{' '.join(filter(None, (done, self._error)))}, "
            f"{timedelta(seconds=round(elapsed))} elapsed, {timedelta(seconds=round(left))} left",
            soft_wrap=True,
            highlight=False,
        )


def _describe_errors(record: dict[str, Any]) -> str:
    """The errors of an evaluated epoch; empty for others."""
    errors = " ".join(f"{figures['error']:.1f}" for figures in record["test"].values())
    return f"error {errors} %" if errors else ""
