"""Comparisons of methods: learning curves, and accuracy against time."""

from collections.abc import Callable, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import choose_line
from dualstudent.experiments.figures.series import Series, collect_seeds, draw_series, read_errors
from dualstudent.experiments.results import FinishedRuns
from dualstudent.experiments.schema import Cell
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_axes
from dualstudent.training.run import Run

_MAX_ACROSS = 2  # panels in a row
_LONG = 180  # seconds from which times are in minutes
_BAND = "the line is the mean over all runs, the band one standard deviation"


def draw_comparison(runs: FinishedRuns, part: str) -> dict[str, Figure]:
    """Draw both figures, with one panel per column and one line per row.

    Args:
        runs: the finished runs of each cell.
        part: the part that the runs were evaluated on.

    Returns:
        File name without suffix → figure, whose label is its caption.
    """
    longest = max(_compute_mean(of_cell, "seconds") for of_cell in runs.values())
    size, unit = (60, "minutes") if longest >= _LONG else (1, "seconds")

    def read_accuracy(of_cell: Sequence[Run]) -> Series:
        seconds = _compute_mean(of_cell, "seconds")
        errors = _read_curve(of_cell, seconds / size)
        return Series(errors.x, [[100 - error for error in values] for values in errors.values])

    curves = _draw_panels(
        runs, lambda of_cell: _read_curve(of_cell, _compute_mean(of_cell, "steps"))
    )
    curves.supxlabel("step")
    curves.axes[0].set_ylabel(f"{part} error in %")
    curves.set_label(f"Learning curves: {part} error in % against training steps; {_BAND}.")
    times = _draw_panels(runs, read_accuracy)
    times.supxlabel(f"{unit} of training")
    times.axes[0].set_ylabel(f"{part} accuracy in %")
    times.set_label(
        f"Accuracy against time: {part} accuracy in % against {unit} of training, evaluations "
        f"included; {_BAND}. An epoch's time is its share of the run's."
    )
    return {"curves": curves, "time": times}


def _draw_panels(runs: FinishedRuns, read: Callable[[Sequence[Run]], Series]) -> Figure:
    rows = list(dict.fromkeys(cell.row for cell in runs))
    columns = list(dict.fromkeys(cell.column for cell in runs))
    across = min(len(columns), _MAX_ACROSS)
    down = -(-len(columns) // across)
    # As many names side by side as the longest one allows, and room for all lines of them.
    side_by_side = max(1, int(PAGE_WIDTH / (0.6 + 0.075 * max(map(len, rows)))))
    lines = -(-len(rows) // side_by_side)
    height = 0.6 + 0.22 * lines + 3.0 * down
    figure = Figure(figsize=(PAGE_WIDTH, height), layout="constrained")
    places = figure.subplots(down, across, squeeze=False).flatten()
    for axes, column in zip(places, columns, strict=False):
        style_axes(axes, escape_math(column))
        for number, row in enumerate(rows):
            if of_cell := runs.get(Cell(row, column)):  # some fail with few labels only
                _draw_line(axes, read(of_cell), row, number)
        axes.set_xlim(left=0)
    for axes in places[len(columns) :]:
        axes.set_axis_off()
    named = [axes.get_legend_handles_labels() for axes in places]
    legend = {name: line for each in named for line, name in zip(*each, strict=True)}
    figure.legend(
        legend.values(),
        legend.keys(),
        loc="outside upper left",
        ncols=side_by_side,
        frameon=False,
    )
    return figure


def _draw_line(axes: Axes, series: Series, name: str, number: int) -> None:
    color, dashes = choose_line(number)
    point = "o" if len(series.x) == 1 else ""  # a line needs two points
    draw_series(axes, series, escape_math(name), color, point + dashes)


def _read_curve(runs: Sequence[Run], length: float) -> Series:
    """Errors in percent against epochs, where the last epoch is at ``length``."""
    errors = collect_seeds([read_errors(run) for run in runs])
    return Series([length * epoch / errors.x[-1] for epoch in errors.x], errors.values)


def _compute_mean(runs: Sequence[Run], key: str) -> float:
    return fmean(run.read_result()[key] for run in runs)
