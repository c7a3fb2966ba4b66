"""Samples that cannot be read: found in the middle of a run, counted, and named once each."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from dualstudent.data.sources.files import DataWarning
from dualstudent.errors import UserError

_FEWEST_SAMPLES = 1000  # before a share means something


class BrokenSamples(Exception):
    """Some of the samples asked for cannot be read.

    Attributes:
        reasons: row among the indices asked for → name and reason.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


class Tally:
    """How many samples were looked at, and which of them are broken.

    Each is named in a log if there is one, else by a warning.

    Args:
        share: of the samples looked at, how many may be broken.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen = self._broken = 0
        self._named: dict[str, None] = {}
        self._log: Path | None = None

    def write_to(self, log: Path) -> None:
        """Name broken samples in ``log`` from now on; what it names already stays as it is."""
        self._log = log
        self._named.update(_read_lines(log))

    @property
    def count(self) -> int:
        """How many broken samples were named, also by other processes in the same log."""
        return len(self._named | _read_lines(self._log))

    @property
    def too_many(self) -> bool:
        """Whether the share of the broken is too large."""
        return self._broken > self._share * max(self._seen, _FEWEST_SAMPLES)

    def add(self, looked: int, broken: Sequence[str]) -> None:
        """Count what was looked at, and what was broken of it."""
        self._seen += looked
        self._broken += len(broken)
        for line in broken:
            if line not in self._named:
                self._named[line] = None
                self._report(line)

    def raise_too_many(self) -> NoReturn:
        """Say that too many are broken.

        Raises:
            UserError: always.
        """
        found = f"{self._broken:,} of {self._seen:,} images looked at cannot be read"
        last = f", the last one was {[*self._named][-1]}" if self._named else ""
        if not self.too_many:  # another process met them
            found, last = "too many of the images cannot be read", f"; {self._log} names them"
        raise UserError(
            f"{found}{last}; more than data.broken_share = {self._share:g} of them are "
            "not accepted: replace the files, or allow more"
        )

    def _report(self, line: str) -> None:
        if self._log is None:
            warnings.warn(f"left out: {line}", DataWarning, stacklevel=3)
        elif line not in _read_lines(self._log):  # of another process
            with self._log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _read_lines(log: Path | None) -> dict[str, None]:
    """In their order, each once."""
    if log is None or not log.is_file():
        return {}
    return dict.fromkeys(log.read_text("utf-8").splitlines())
