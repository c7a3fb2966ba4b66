"""Fig. 7 and 9: test accuracy against epochs, with the paper's values at the right edge."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualstudent.experiments.figures.colors import choose_color
from dualstudent.experiments.figures.series import (
    Series,
    collect_seeds,
    draw_series,
    read_errors,
)
from dualstudent.experiments.results import FinishedRuns
from dualstudent.experiments.schema import Cell, Experiment
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_epoch_axes
from dualstudent.training.run import Run


def draw_ablation(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Fig. 7: one figure for each of the two panels that the rows name."""
    panels = dict.fromkeys(row.panel for row in experiment.rows)
    figures = {}
    for side, panel in zip(("left", "right"), panels, strict=True):
        shown = {cell: runs[cell] for cell in runs if experiment.row(cell.row).panel == panel}
        figure = _draw_curves(experiment, shown, panel[:1].upper() + panel[1:])
        if figure is not None:
            figures[f"ablation-{side}"] = figure
    return figures


def draw_adaptation(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Fig. 9: accuracy on the target domain, all rows in one figure."""
    figure = _draw_curves(experiment, runs, experiment.title)
    return {} if figure is None else {"adaptation": figure}


def read_accuracy(runs: Sequence[Run]) -> Series:
    """Accuracy in percent, mean over the headline networks."""
    return collect_seeds(
        [{epoch: 100 - error for epoch, error in read_errors(run).items()} for run in runs]
    )


def _draw_curves(experiment: Experiment, runs: FinishedRuns, title: str) -> Figure | None:
    """The curves of all cells that have runs, the best first; None if there are none."""
    curves = {cell: read_accuracy(runs[cell]) for cell in runs if runs[cell]}
    if not curves:
        return None
    figure = Figure(figsize=(PAGE_WIDTH, 3.8), layout="constrained")
    axes = figure.subplots()
    values = []
    for cell in sorted(curves, key=lambda cell: -curves[cell].means[-1]):
        color = choose_color(runs[cell][0].read_recipe())
        value = curves[cell].last
        paper = _read_paper_accuracy(experiment, cell)
        if paper is not None:
            value += f" ({experiment.reference} ◇ {paper:.2f})"
            _mark_paper_value(axes, paper, color)
        draw_series(axes, curves[cell], escape_math(f"{cell.row}\n{value}"), color)
        values.append(f"{cell.row} {value}")
    style_epoch_axes(axes)
    axes.set_ylabel("test accuracy in %")
    figure.legend(
        loc="outside right upper", frameon=False, title="at the last epoch", alignment="left"
    )
    figure.suptitle(escape_math(title), x=0.01, ha="left")
    figure.set_label(
        f"{title}: test accuracy in % against epochs; the line is the mean over seeds, the band "
        f"one standard deviation. At the last epoch: {'; '.join(values)}."
    )
    return figure


def _mark_paper_value(axes: Axes, value: float, color: str) -> None:
    axes.plot(
        [1.02],
        [value],
        "D",
        color=color,
        markerfacecolor="none",
        clip_on=False,
        transform=axes.get_yaxis_transform(),
    )


def _read_paper_accuracy(experiment: Experiment, cell: Cell) -> float | None:
    paper = experiment.paper(cell)
    if paper is None:
        return None
    return paper.mean if experiment.measure_of(cell) == "accuracy" else 100 - paper.mean
