"""Progress of runs for people: bars on a terminal, lines in a file."""

import time
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

from dualstudent.training.loop import Observer


@contextmanager
def progress_on(console: Console) -> Iterator["ProgressDisplay"]:
    """A display that fits the console, for as long as the block lasts."""
    if not console.is_terminal:
        yield ProgressLines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("steps {task.fields[error]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        yield ProgressBars(progress)


class ProgressDisplay:
    """Shows runs, one after the other."""

    def observer(self, label: str) -> Observer:
        """What a run called ``label`` reports to."""
        raise NotImplementedError


class ProgressBars(ProgressDisplay):
    """One live bar per run, with the error of the last epoch and the time left."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def observer(self, label: str) -> Observer:
        return _Bar(self._progress, label)


class _Bar(Observer):
    def __init__(self, progress: Progress, label: str) -> None:
        self._progress, self._label = progress, label
        self._task = TaskID(-1)

    def on_start(self, step: int, total: int) -> None:
        self._task = self._progress.add_task(self._label, total=total, completed=step, error="")

    def on_step(self, step: int) -> None:
        self._progress.update(self._task, completed=step)

    def on_epoch(self, record: dict[str, Any]) -> None:
        self._progress.update(self._task, error=_errors(record))


class ProgressLines(ProgressDisplay):
    """A line an epoch, but not more than one in ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def observer(self, label: str) -> Observer:
        return _Lines(self._console, label)


class _Lines(Observer):
    def __init__(self, console: Console, label: str) -> None:
        self._console, self._label = console, label
        self._first = self._total = 0
        self._started = self._last = time.monotonic()

    def on_start(self, step: int, total: int) -> None:
        self._first, self._total = step, total
        self._started = self._last = time.monotonic()

    def on_epoch(self, record: dict[str, Any]) -> None:
        now, step = time.monotonic(), record["step"]
        if now - self._last < 10 and step < self._total:
            return
        self._last = now
        elapsed = now - self._started
        left = elapsed * (self._total - step) / (step - self._first)
        self._console.print(
            f"{self._label}: epoch {record['epoch']}, step {step}/{self._total}, "
            f"{_errors(record)}, "
            f"{timedelta(seconds=round(elapsed))} elapsed, {timedelta(seconds=round(left))} left",
            soft_wrap=True,
        )


def _errors(record: dict[str, Any]) -> str:
    errors = " ".join(f"{figures['error']:.1f}" for figures in record["test"].values())
    return f"test error {errors} %"
