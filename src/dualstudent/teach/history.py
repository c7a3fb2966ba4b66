"""The estimates of all trainings, kept for the chart."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from dualstudent.teach.estimate import Estimate


class History:
    """Estimates by number of labels; a line of a file each.

    Args:
        path: of the file. If it cannot be read or written, the chart begins anew: labels matter,
            this does not.

    Attributes:
        points: the last estimate for each number of labels, in their order.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._points = path, dict[int, Estimate]()
        lines = list[str]()
        with suppress(OSError, ValueError):
            lines = path.read_text("utf-8").splitlines()
        for line in lines:
            with suppress(ValueError, TypeError, RecursionError):  # a kill may cut one off
                self._keep(Estimate(**json.loads(line)))

    @property
    def points(self) -> list[Estimate]:
        return [self._points[labels] for labels in sorted(self._points)]

    def add(self, estimate: Estimate | None) -> None:
        """Add an estimate; those with more labels are of labels that were undone since."""
        if estimate is None or self._points.get(estimate.labels) == estimate:
            return
        self._keep(estimate)
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(estimate)) + "\n")

    def _keep(self, estimate: Estimate) -> None:
        fewer = {k: v for k, v in self._points.items() if k < estimate.labels}
        self._points = fewer | {estimate.labels: estimate}
