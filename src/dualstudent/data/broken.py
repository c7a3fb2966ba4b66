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

    Each broken sample is reported once, in a log file if there is one, else by a warning. If
    several processes share a run, only the leader writes the log.

    Args:
        share: largest share of broken samples that is accepted.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._seen = self._broken = 0
        self._named: dict[str, None] = {}
        self._log: Path | None = None
        self._unheard: list[str] | None = None

    def keep_for_leader(self) -> None:
        """Report nothing from now on, but keep it for :meth:`take_unheard`."""
        self._unheard = []

    @property
    def has_unheard(self) -> bool:
        """Whether there is something that the leader should report."""
        return bool(self._unheard)

    def take_unheard(self) -> list[str]:
        """Return the new broken samples that the leader should report, once."""
        taken, self._unheard = self._unheard or [], self._unheard and []
        return taken

    def write_to(self, log: Path) -> None:
        """Append broken samples to the file ``log`` from now on, unless it names them already."""
        self._log = log
        self._named.update(_read_lines(log))

    @property
    def count(self) -> int:
        """Number of different broken samples, including those that the log names already."""
        return len(self._named | _read_lines(self._log))

    @property
    def too_many(self) -> bool:
        """Whether the share of broken samples is larger than accepted."""
        return self._broken > self._share * max(self._seen, _FEWEST_SAMPLES)

    def add(self, looked: int, broken: Sequence[str]) -> None:
        """Add ``looked`` samples, of which those named in ``broken`` cannot be read."""
        self._seen += looked
        self._broken += len(broken)
        self.report(broken)

    def report(self, broken: Sequence[str]) -> None:
        """Report those that were not reported yet; they are not counted."""
        for line in broken:
            if line not in self._named:
                self._named[line] = None
                self._write(line)

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

    def _write(self, line: str) -> None:
        if self._unheard is not None:
            self._unheard.append(line)
        elif self._log is None:
            warnings.warn(f"skipped: {line}", DataWarning, stacklevel=4)
        else:
            with self._log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def _read_lines(log: Path | None) -> dict[str, None]:
    """Return the different lines, in order."""
    if log is None or not log.is_file():
        return {}
    return dict.fromkeys(log.read_text("utf-8").splitlines())
