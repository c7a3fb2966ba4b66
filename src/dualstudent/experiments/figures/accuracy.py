"""Test accuracy against epochs, a line for each row, with the paper's values at the edge."""

from collections.abc import Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import color_of
from dualstudent.experiments.figures.series import Series, draw_series, evaluated, over_seeds
from dualstudent.experiments.finished import FinishedRuns
from dualstudent.experiments.schema import Cell, Experiment
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_epoch_axes
from dualstudent.training.run import Run


def accuracy(runs: Sequence[Run]) -> Series:
    """In percent, of the networks that make the method's result."""
    return over_seeds([_accuracy(run) for run in runs])


def draw_accuracy(experiment: Experiment, runs: FinishedRuns, title: str) -> Figure | None:
    """The curves of all cells that have runs, the best first; None if there are none."""
    curves = {cell: accuracy(runs[cell]) for cell in runs if runs[cell]}
    if not curves:
        return None
    figure = Figure(figsize=(PAGE_WIDTH, 3.8), layout="constrained")
    axes = figure.subplots()
    said = []
    for cell in sorted(curves, key=lambda cell: -curves[cell].means[-1]):
        color = color_of(runs[cell][0].read_recipe())
        value = curves[cell].last
        paper = _paper_accuracy(experiment, cell)
        if paper is not None:
            value += f" (paper ◇ {paper:.2f})"
            _mark_at_the_edge(axes, paper, color)
        draw_series(axes, curves[cell], escape_math(f"{cell.row}\n{value}"), color)
        said.append(f"{cell.row} {value}")
    style_epoch_axes(axes)
    axes.set_ylabel("test accuracy in %")
    figure.legend(
        loc="outside right upper", frameon=False, title="at the last epoch", alignment="left"
    )
    figure.suptitle(escape_math(title), x=0.01, ha="left")
    figure.set_label(
        f"{title}: test accuracy in % against epochs; the line is the mean over seeds, the band "
        f"one standard deviation. At the last epoch: {'; '.join(said)}."
    )
    return figure


def _mark_at_the_edge(axes: Axes, value: float, color: str) -> None:
    axes.plot(
        [1.02],
        [value],
        "D",
        color=color,
        markerfacecolor="none",
        clip_on=False,
        transform=axes.get_yaxis_transform(),
    )


def _accuracy(run: Run) -> dict[int, float]:
    headline = run.read_result()["headline"]
    return {
        record["epoch"]: 100 - fmean(record["test"][name]["error"] for name in headline)
        for record in evaluated(run)
    }


def _paper_accuracy(experiment: Experiment, cell: Cell) -> float | None:
    paper = experiment.paper(cell)
    if paper is None:
        return None
    return paper.mean if experiment.measure_of(cell) == "accuracy" else 100 - paper.mean
