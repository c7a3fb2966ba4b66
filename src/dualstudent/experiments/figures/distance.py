"""Fig. 2: how far apart the two models of a structure are, in weights and in predictions."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import color_of
from dualstudent.experiments.figures.series import Series, draw_series, evaluated, over_seeds
from dualstudent.experiments.finished import FinishedRuns
from dualstudent.experiments.panels import DISTANCE
from dualstudent.experiments.schema import Experiment
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_epoch_axes
from dualstudent.training.run import Run

_RATIO_FOR_LOGARITHMS = 20  # beyond it the smaller of two curves lies flat on the axis


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Weights on the left, predictions on the right, of the rows of panel ``distance``."""
    cells = [cell for cell in runs if experiment.row(cell.row).panel == DISTANCE and runs[cell]]
    if not cells:
        return {}
    figure = Figure(figsize=(PAGE_WIDTH, 3.6), layout="constrained")
    said = []
    for axes, what in zip(figure.subplots(1, 2), ("weights", "predictions"), strict=True):
        curves = {cell: distances(runs[cell], what) for cell in cells}
        for cell, series in curves.items():
            draw_series(axes, series, escape_math(cell.row), color_of(runs[cell][0].read_recipe()))
            said.append(f"{what} of {cell.row} {series.last}")
        style_epoch_axes(axes, f"distance of {what}")
        _choose_scale(axes, list(curves.values()))
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=len(cells), frameon=False)
    figure.set_label(
        "Euclidean distance between the two models of a structure against epochs, of their "
        "weights (left) and of their predictions, on average over the test samples (right); the "
        "line is the mean over seeds, the band one standard deviation. At the last epoch: "
        f"{'; '.join(said)}."
    )
    return {"distance": figure}


def distances(runs: Sequence[Run], what: str) -> Series:
    """Between the only two networks that each run has: ``"weights"`` or ``"predictions"``."""
    return over_seeds([_distances(run, what) for run in runs])


def _distances(run: Run, what: str) -> dict[int, float]:
    return {
        record["epoch"]: pair[what]
        for record in evaluated(run)
        for pair in record["distances"].values()
    }


def _choose_scale(axes: Axes, curves: Sequence[Series]) -> None:
    means = [mean for series in curves for mean in series.means]
    if 0 < _RATIO_FOR_LOGARITHMS * min(means) < max(means):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
