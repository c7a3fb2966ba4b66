"""Pictures of runs: how error and stability went, epoch by epoch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dualstudent.errors import escape_line
from dualstudent.report.style import against_epochs

Metrics = Sequence[Mapping[str, Any]]


def draw_curves(runs: Mapping[str, Metrics], path: Path, title: str = "") -> None:
    """Error and share of stable samples against epochs, a line per network, as PNG.

    At least one epoch of each run must have been tested.

    Args:
        runs: label → lines of a run's metrics.
        path: of the picture.
        title: above it.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    error, stable = figure.subplots(1, 2)
    for label, metrics in runs.items():
        tested = [record for record in metrics if record["test"]]
        epochs = [record["epoch"] for record in tested]
        point = "o" if len(tested) == 1 else ""  # a line through one point cannot be seen
        for name in tested[-1]["test"]:
            line = f"{label}, {name}" if label else name
            figures = [record["test"][name] for record in tested]
            error.plot(epochs, [f["error"] for f in figures], point + "-", label=line)
            stable.plot(epochs, [f["stable_share"] for f in figures], point + "-", label=line)
    against_epochs(error, "error in %")
    against_epochs(stable, "stable samples in %")
    for axes in (error, stable):
        axes.set_ylim(bottom=0)
    error.legend(frameon=False)
    figure.suptitle(escape_line(title), parse_math=False)  # a path may hold anything
    figure.savefig(path, dpi=120)
