"""Thorough training: ``dualstudent train`` on the labels of a moment, in a process of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dualstudent.errors import UserError
from dualstudent.teach.session import Session
from dualstudent.teach.snapshot import check_trainable, write_table
from dualstudent.training.run import Run

State = Literal["running", "finished", "failed", "stopped"]
_TAIL = 4000  # bytes of the log that are looked at


@dataclass(frozen=True)
class Training:
    """A training.

    Attributes:
        name: number of the run.
        state: what it is doing.
        line: what it said last.
        done: epochs that are done.
        total: epochs in all; 0 before it is known.
        error: test or validation error of a finished run in percent; None if it has none.
    """

    name: str
    state: State
    line: str
    done: int
    total: int
    error: float | None


class ThoroughTraining:
    """Trains one run after the other in the folder ``runs`` of a session.

    Args:
        session: the labels.
        options: further arguments of ``dualstudent train``.
    """

    def __init__(self, session: Session, options: tuple[str, ...] = ()) -> None:
        self._session, self._options = session, options
        self._folder = session.folder / "runs"
        self._process: subprocess.Popen[bytes] | None = None
        self._name = ""
        self._stopped = False

    def start(self, tested: bool) -> None:
        """Begin a training on all labels of now.

        Args:
            tested: whether the sample measures the run instead of being learned from.

        Raises:
            UserError: if one is running, or there are too few labels.
        """
        if self._process is not None and self._process.poll() is None:
            raise UserError("a training is running; stop it first")
        check_trainable(self._session)
        self._folder.mkdir(exist_ok=True)
        name = str(1 + max(map(int, self.list_names()), default=0))
        table = self._folder / f"{name}.csv"
        write_table(self._session, table, tested)
        command = [sys.executable, "-m", "dualstudent", "train", "--data", str(table)]
        command += ["--out", str(self._folder / name), "--no-baseline", *self._options]
        with (self._folder / f"{name}.log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._name, self._stopped = name, False

    def stop(self) -> None:
        """Stop the training cleanly; ``dualstudent resume`` continues it."""
        if self._process is not None and self._process.poll() is None:
            self._stopped = True
            self._process.terminate()
            self._process.wait()

    def list_names(self) -> list[str]:
        """List the numbers of all runs that were begun, in order."""
        names = (path.stem for path in self._folder.glob("*.csv"))
        return sorted((name for name in names if name.isdecimal()), key=int)

    def list_finished(self) -> list[str]:
        """List the numbers of the finished runs that have a page."""
        return [name for name in self.list_names() if Run(self._folder / name).page.is_file()]

    def find_run(self, name: str) -> Run:
        """Return a finished run.

        Raises:
            UserError: if there is none of that name.
        """
        if name not in self.list_finished():
            raise UserError(f"there is no finished run {name}")
        return Run(self._folder / name)

    def look(self) -> Training | None:
        """Return what the last training of this process is doing; None without one."""
        if self._process is None:
            return None
        run, code = Run(self._folder / self._name), self._process.poll()
        done, total = _count_epochs(run)
        states: dict[int | None, State] = {None: "running", 0: "finished"}
        state = states.get(code, "stopped" if self._stopped else "failed")
        error = _read_error(run) if state == "finished" else None
        log = self._folder / f"{self._name}.log"
        return Training(self._name, state, _read_last_line(log), done, total, error)


def _count_epochs(run: Run) -> tuple[int, int]:
    try:
        total = int(run.read_recipe_table()["schedule"]["epochs"])
        done = len(run.metrics.read_bytes().splitlines())
    except (OSError, UserError):  # it has not begun
        return 0, 0
    return min(done, total), total


def _read_error(run: Run) -> float | None:
    try:
        error = run.read_result().get("error")
    except (OSError, UserError, json.JSONDecodeError):
        return None
    return float(error) if isinstance(error, int | float) else None


def _read_last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        lines = file.read().decode(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
