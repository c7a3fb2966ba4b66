"""Fig. 2: how far apart the two models of a structure are, in weights and in predictions."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import choose_color
from dualstudent.experiments.figures.series import (
    Series,
    collect_seeds,
    draw_series,
    read_evaluated,
)
from dualstudent.experiments.results import FinishedRuns
from dualstudent.experiments.schema import DISTANCE, Experiment
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_epoch_axes
from dualstudent.training.run import Run

_RATIO_FOR_LOGARITHMS = 20  # above it, the lower curve would lie on the axis


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Weights on the left, predictions on the right, of the rows of panel ``distance``."""
    cells = [cell for cell in runs if experiment.row(cell.row).panel == DISTANCE and runs[cell]]
    if not cells:
        return {}
    figure = Figure(figsize=(PAGE_WIDTH, 3.6), layout="constrained")
    values = []
    for axes, what in zip(figure.subplots(1, 2), ("weights", "predictions"), strict=True):
        curves = {cell: read_distances(runs[cell], what) for cell in cells}
        for cell, series in curves.items():
            draw_series(
                axes, series, escape_math(cell.row), choose_color(runs[cell][0].read_recipe())
            )
            values.append(f"{what} of {cell.row} {series.last}")
        style_epoch_axes(axes, f"distance of {what}")
        _choose_scale(axes, list(curves.values()))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(cells), frameon=False)
    figure.set_label(
        "Euclidean distance between the two models of a structure against epochs, of their "
        "weights (left) and of their predictions, on average over the test samples (right); the "
        "line is the mean over seeds, the band one standard deviation. At the last epoch: "
        f"{'; '.join(values)}."
    )
    return {"distance": figure}


def read_distances(runs: Sequence[Run], what: str) -> Series:
    """Distance of the two networks of each run: ``what`` is ``"weights"`` or ``"predictions"``."""
    return collect_seeds([_read_distances(run, what) for run in runs])


def _read_distances(run: Run, what: str) -> dict[int, float]:
    return {
        record["epoch"]: pair[what]
        for record in read_evaluated(run)
        for pair in record["distances"].values()
    }


def _choose_scale(axes: Axes, curves: Sequence[Series]) -> None:
    means = [mean for series in curves for mean in series.means]
    if 0 < _RATIO_FOR_LOGARITHMS * min(means) < max(means):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
