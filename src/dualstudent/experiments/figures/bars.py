"""Tables as bar charts: the paper's value and the measured one side by side."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dualstudent.experiments.figures.colors import GRAY, INK, choose_color
from dualstudent.experiments.figures.series import deviation
from dualstudent.experiments.results import MEASURES, FinishedRuns, read_headline
from dualstudent.experiments.schema import Cell, Experiment, PaperValue
from dualstudent.report.style import PAGE_WIDTH, escape_math, style_axes

_HEIGHT = 0.36  # of a bar; a row is 1 high
_MAX_ACROSS = 2  # panels in a row


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """Draw one panel per column and a pair of bars per row, or the other way round."""
    panels = _arrange_panels(experiment, [cell for cell in runs if runs[cell]])
    if not panels:
        return {}
    across = min(len(panels), _MAX_ACROSS)
    down = -(-len(panels) // across)
    bars = max(len(lines) for lines in panels.values())
    size = (PAGE_WIDTH, 0.6 + down * (0.8 + 0.5 * bars))
    figure = Figure(figsize=size, layout="constrained")
    places = figure.subplots(down, across, sharey=True, squeeze=False).flatten()
    for axes, (title, lines) in zip(places, panels.items(), strict=False):
        _draw_panel(axes, experiment, runs, title, lines)
    for axes in places[len(panels) :]:
        axes.set_axis_off()
    reference = experiment.reference
    hollow = Patch(facecolor="none", edgecolor=GRAY, linewidth=1.5, label=reference)
    filled = Patch(facecolor=GRAY, label="measured, ± standard deviation, one dot a seed")
    handles = [hollow, filled] if reference else [filled]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False)
    figure.set_label(
        f"{experiment.title}: {f'{reference} and ' if reference else ''}measured values as bars, "
        f"for {', '.join(panels)}. The numbers are in the table."
    )
    return {"bars": figure}


def _arrange_panels(experiment: Experiment, cells: Sequence[Cell]) -> dict[str, dict[str, Cell]]:
    """Title of a panel → name of a line in it → cell.

    The longer of rows and columns is what the table compares: it goes into the panels. What is
    measured in different ways stays apart.
    """
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    measures = {experiment.measure_of(cell) for cell in cells}
    if len(rows) < len(columns) and len(measures) == 1:
        return {row: {column: Cell(row, column) for column in columns} for row in rows}
    return {column: {row: Cell(row, column) for row in rows} for column in columns}


def _draw_panel(
    axes: Axes,
    experiment: Experiment,
    runs: FinishedRuns,
    title: str,
    lines: Mapping[str, Cell],
) -> None:
    measure = experiment.measure_of(next(iter(lines.values())))
    style_axes(axes, escape_math(f"{title}: {MEASURES[measure]}"))
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(lines)), [escape_math(name) for name in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    for y, cell in enumerate(lines.values()):
        paper, found = experiment.paper(cell), runs.get(cell, [])
        color = choose_color(found[0].read_recipe()) if found else GRAY
        if paper is not None:
            _draw_paper(axes, y - _HEIGHT / 2, paper, color)
        if found:
            values = [read_headline(run, measure) for run in found]
            _draw_measured(axes, y + _HEIGHT / 2, values, color)
        elif cell in runs:
            axes.text(0, y + _HEIGHT / 2, " not run", va="center", color=GRAY, fontsize=8)
    axes.set_xlim(left=0)


def _draw_paper(axes: Axes, y: float, paper: PaperValue, color: str) -> None:
    axes.barh(
        y,
        paper.mean,
        _HEIGHT * 0.9,
        xerr=paper.spread,
        facecolor="none",
        edgecolor=color,
        ecolor=GRAY,
        linewidth=1.5,
    )


def _draw_measured(axes: Axes, y: float, values: list[float], color: str) -> None:
    error = deviation(values) if len(values) > 1 else None
    axes.barh(y, fmean(values), _HEIGHT * 0.9, xerr=error, color=color, ecolor=INK, zorder=1)
    axes.plot(values, [y] * len(values), "o", color="white", markeredgecolor=INK, markersize=4)
