"""Learning curves of runs as a PNG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dualstudent.atomic import atomic_write
from dualstudent.errors import escape_line
from dualstudent.report.style import style_epoch_axes

Metrics = Sequence[Mapping[str, Any]]


def draw_curves(runs: Mapping[str, Metrics], path: Path, title: str = "") -> None:
    """Draw error and share of stable samples against epochs, one line per network.

    Args:
        runs: label → metrics of a run, the last epoch evaluated. A network of later stages
            only gets a shorter line.
        path: of the PNG file.
        title: of the figure.
    """
    figure = Figure(figsize=(10, 4), layout="constrained")
    error, stable = figure.subplots(1, 2)
    for label, metrics in runs.items():
        for name in metrics[-1]["test"]:
            line = escape_line(f"{label}, {name}" if label else name).replace("$", r"\$")
            tested = [record for record in metrics if name in record["test"]]
            epochs = [record["epoch"] for record in tested]
            figures = [record["test"][name] for record in tested]
            point = "o" if len(tested) == 1 else ""  # a line needs two points
            error.plot(epochs, [f["error"] for f in figures], point + "-", label=line)
            stable.plot(epochs, [f["stable_share"] for f in figures], point + "-", label=line)
    style_epoch_axes(error, "error in %")
    style_epoch_axes(stable, "stable samples in %")
    for axes in (error, stable):
        axes.set_ylim(bottom=0)
    error.legend(frameon=False)
    figure.suptitle(escape_line(title), parse_math=False)  # a path may contain $
    with atomic_write(path) as partial:
        figure.savefig(partial, format="png", dpi=120)
