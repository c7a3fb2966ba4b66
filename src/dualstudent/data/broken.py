"""Samples that turn out to be unreadable during a run: counted, and each reported once."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from dualstudent.errors import DataWarning, UserError

_FEWEST_SAMPLES = 1000  # fewer are too few to estimate the share


class BrokenSamples(Exception):
    """Some of the requested samples cannot be read.

    Attributes:
        reasons: row in the requested indices → file name and reason.
    """

    def __init__(self, reasons: Mapping[int, str]) -> None:
        super().__init__(reasons)
        self.reasons = reasons


class Tally:
    """Counts the samples that were read and those that are broken.

    Each broken sample is reported once, in a log file if there is one, else by a warning.

    Args:
        share: largest share of broken samples that is accepted.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen = self._broken = 0
        self._named: dict[str, None] = {}
        self._log: Path | None = None

    def write_to(self, log: Path) -> None:
        """Append broken samples to the file ``log`` from now on, unless it names them already."""
        self._log = log
        self._named.update(_read_lines(log))

    @property
    def count(self) -> int:
        """Number of different broken samples, including those of other processes in the log."""
        return len(self._named | _read_lines(self._log))

    @property
    def too_many(self) -> bool:
        """Whether the share of broken samples is larger than accepted."""
        return self._broken > self._share * max(self._seen, _FEWEST_SAMPLES)

    def add(self, looked: int, broken: Sequence[str]) -> None:
        """Add ``looked`` samples, of which those named in ``broken`` cannot be read."""
        self._seen += looked
        self._broken += len(broken)
        for line in broken:
            if line not in self._named:
                self._named[line] = None
                self._report(line)

    def raise_too_many(self) -> NoReturn:
        """Raise a UserError that says that too many samples are broken."""
        found = f"{self._broken:,} of {self._seen:,} images cannot be read"
        last = f", the last one was {[*self._named][-1]}" if self._named else ""
        if not self.too_many:  # another process found them
            found, last = "too many of the images cannot be read", f"; {self._log} names them"
        raise UserError(
            f"{found}{last}; data.broken_share = {self._share:g} allows fewer: replace the files, "
            "or increase it"
        )

    def _report(self, line: str) -> None:
        if self._log is None:
            warnings.warn(f"skipped: {line}", DataWarning, stacklevel=3)
        elif line not in _read_lines(self._log):  # another process may have written it
            with self._log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _read_lines(log: Path | None) -> dict[str, None]:
    """Return the different lines, in order."""
    if log is None or not log.is_file():
        return {}
    return dict.fromkeys(log.read_text("utf-8").splitlines())
