"""Progress of runs: bars on a terminal, a line that changes in a notebook, lines in a file."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from dualstudent.recipes.schema import Recipe
    from dualstudent.training.run import Run

_SECONDS_BETWEEN_LINES, _SECONDS_BETWEEN_UPDATES = 30, 0.5


@contextmanager
def show_progress(console: Console, unit: str = "steps") -> Iterator["ProgressDisplay"]:
    """Show progress on the console while the block runs.

    Args:
        console: shows bars if it is a terminal, a line in place if it is a notebook, and else
            prints a line every 30 seconds.
        unit: what is counted.
    """
    if console.is_jupyter:
        yield ProgressLines(_NotebookLine, unit, _SECONDS_BETWEEN_UPDATES)
        return
    if not console.is_terminal:
        yield ProgressLines(lambda: _print_to(console), unit, _SECONDS_BETWEEN_LINES)
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


class ProgressBar(Callback):
    """Shows the progress of a training from Python: on a terminal, in a notebook or in a file.

    Args:
        label: what is trained; default: the name of the run's folder.

    Example:
        >>> from dualstudent import load_recipe, train
        >>> run = train(load_recipe("demo"), "runs/demo", ProgressBar())  # doctest: +SKIP
    """

    def __init__(self, label: str = "") -> None:
        self._label, self._shown, self._inner = label, ExitStack(), Callback()

    def on_run(self, run: "Run", recipe: "Recipe") -> None:
        self._label = self._label or run.folder.name

    def on_start(self, step: int, total: int) -> None:
        display = self._shown.enter_context(show_progress(Console(emoji=False)))
        self._inner = display.make_callback(self._label)
        self._inner.on_start(step, total)

    def on_step(self, step: int) -> None:
        self._inner.on_step(step)

    def on_epoch(self, record: dict[str, Any]) -> None:
        self._inner.on_epoch(record)

    def on_end(self, error: BaseException | None) -> None:
        self._shown.close()


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
        if found := _describe(record):
            self._progress.update(self._task, error=found)


class ProgressLines(ProgressDisplay):
    """A line every so many seconds, and one at the end.

    Args:
        open_line: makes what shows the lines of one run.
        unit: what is counted.
        seconds: between two lines.
    """

    def __init__(
        self, open_line: Callable[[], Callable[[str], None]], unit: str, seconds: float
    ) -> None:
        self._open_line, self._unit, self._seconds = open_line, unit, seconds

    def make_callback(self, label: str) -> Callback:
        return _Lines(self._open_line(), self._unit, self._seconds, label)


class _Lines(Callback):
    def __init__(self, show: Callable[[str], None], unit: str, seconds: float, label: str) -> None:
        self._show, self._unit, self._seconds, self._label = show, unit, seconds, label
        self._first = self._total = 0
        self._started = self._last = time.monotonic()
        self._found = ""

    def on_start(self, step: int, total: int) -> None:
        self._first, self._total = step, total
        self._started = self._last = time.monotonic()

    def on_epoch(self, record: dict[str, Any]) -> None:
        self._found = _describe(record) or self._found

    def on_step(self, step: int) -> None:
        now = time.monotonic()
        if step == self._first or (now - self._last < self._seconds and step < self._total):
            return
        self._last = now
        elapsed = now - self._started
        left = elapsed * (self._total - step) / (step - self._first)
        done = f"{self._label}: {step}/{self._total} {self._unit}"
        self._show(
            f"{' '.join(filter(None, (done, self._found)))}, "
            f"{timedelta(seconds=round(elapsed))} elapsed, {timedelta(seconds=round(left))} left"
        )


def _print_to(console: Console) -> Callable[[str], None]:
    return lambda text: console.print(text, soft_wrap=True, highlight=False, markup=False)


class _NotebookLine:
    """One line of a notebook's output, which is replaced; rich would need ipywidgets for it."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, text: str) -> None:
        show: Any = import_module("IPython.display").display  # a notebook always has it
        content = {"text/plain": text}
        if self._handle is None:
            self._handle = show(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)


def _describe(record: dict[str, Any]) -> str:
    """The errors of an evaluated epoch, or how many labels are met; empty if neither is known."""
    errors = " ".join(f"{figures['error']:.1f}" for figures in record.get("test", {}).values())
    if errors:
        return f"error {errors} %"
    met = record.get("labels_met")
    return "" if met is None else f"{met:.0%} of the labels met"
