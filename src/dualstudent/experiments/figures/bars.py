"""The tables as pictures: for each column the paper's value and ours, row by row."""

from collections.abc import Mapping
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from dualstudent.experiments.figures.colours import GREY, INK, colour_of
from dualstudent.experiments.figures.series import deviation
from dualstudent.experiments.measures import MEASURES, headline, spread
from dualstudent.experiments.schema import Cell, Experiment
from dualstudent.report.style import PAGE_WIDTH, light_frame, literal
from dualstudent.training.run import Run

_HEIGHT = 0.36  # of a bar; a row is 1 high
_COLUMNS = 2  # of panels: more would leave no room for the bars


def draw(experiment: Experiment, runs: Mapping[Cell, list[Run]]) -> dict[str, Figure]:
    """One panel for each column that has runs, one pair of bars for each row; in ``bars``."""
    rows = list(dict.fromkeys(cell.row for cell in runs if runs[cell]))
    columns = list(dict.fromkeys(cell.column for cell in runs if runs[cell]))
    if not rows:
        return {}
    across = min(len(columns), _COLUMNS)
    down = -(-len(columns) // across)
    size = (PAGE_WIDTH, 0.6 + down * (0.8 + 0.5 * len(rows)))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).flat
    said = []
    for axes, column in zip(panels, columns, strict=False):
        said.append(_draw_panel(axes, experiment, runs, column, rows))
    for axes in list(panels)[len(columns) :]:
        axes.set_axis_off()
    hollow = Patch(facecolor="none", edgecolor=GREY, linewidth=1.5, label="paper")
    filled = Patch(facecolor=GREY, label="measured, ± standard deviation, one dot a seed")
    figure.legend(handles=[hollow, filled], loc="outside lower left", ncols=2, frameon=False)
    figure.set_label(f"{experiment.title}. Paper and measured values: {' '.join(said)}")
    return {"bars": figure}


def _draw_panel(
    axes: Axes,
    experiment: Experiment,
    runs: Mapping[Cell, list[Run]],
    column: str,
    rows: list[str],
) -> str:
    """Draw one column; returns what there is to see."""
    measure = experiment.measure_of(Cell(rows[0], column))
    light_frame(axes, literal(f"{column}: {MEASURES[measure]}"))
    axes.grid(visible=False, axis="y")
    axes.set_yticks(range(len(rows)), [literal(row) for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    said = []
    for y, row in enumerate(rows):
        cell = Cell(row, column)
        paper, found = experiment.paper(cell), runs.get(cell) or []
        colour = colour_of(found[0].read_recipe()) if found else GREY
        if paper is not None:
            axes.barh(
                y - _HEIGHT / 2, paper.mean, _HEIGHT * 0.9, xerr=paper.spread,
                facecolor="none", edgecolor=colour, ecolor=GREY, linewidth=1.5,
            )  # fmt: skip
        values = [headline(run, measure) for run in found]
        if values:
            _draw_measured(axes, y + _HEIGHT / 2, values, colour)
        else:
            axes.text(0, y + _HEIGHT / 2, " not run", va="center", color=GREY, fontsize=8)
        ours = spread(values) if values else "not run"
        said.append(f"{row} {ours} (paper: {paper or 'no value'})")
    axes.set_xlim(left=0)
    axes.margins(x=0.05)
    return f"{column}, {MEASURES[measure]}: {'; '.join(said)}."


def _draw_measured(axes: Axes, y: float, values: list[float], colour: str) -> None:
    error = deviation(values) if len(values) > 1 else None
    axes.barh(y, fmean(values), _HEIGHT * 0.9, xerr=error, color=colour, ecolor=INK, zorder=1)
    axes.plot(values, [y] * len(values), "o", color="white", markeredgecolor=INK, markersize=4)
