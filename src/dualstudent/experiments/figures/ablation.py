"""Fig. 7: what Mean Teacher adds to Dual Student, and what each constraint is worth."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from dualstudent.experiments.figures.accuracy import draw_accuracy
from dualstudent.experiments.schema import Cell, Experiment
from dualstudent.training.run import Run


def draw(experiment: Experiment, runs: Mapping[Cell, list[Run]]) -> dict[str, Figure]:
    """A picture for each panel that the rows name: ``ablation-left``, ``ablation-right``."""
    panels = dict.fromkeys(row.panel for row in experiment.rows)
    figures = {}
    for panel in panels:
        shown = {cell: runs[cell] for cell in runs if experiment.row(cell.row).panel == panel}
        figure = draw_accuracy(experiment, shown, f"{experiment.title}, {panel} part")
        if figure is not None:
            figures[f"ablation-{panel}"] = figure
    return figures
