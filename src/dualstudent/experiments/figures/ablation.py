"""Fig. 7: what Mean Teacher adds to Dual Student, and what each constraint is worth."""

from matplotlib.figure import Figure

from dualstudent.experiments.figures.accuracy import draw_accuracy
from dualstudent.experiments.finished import FinishedRuns
from dualstudent.experiments.schema import Experiment


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """A picture for each of the two panels that the rows name, in the order of the rows."""
    panels = dict.fromkeys(row.panel for row in experiment.rows)
    figures = {}
    for side, panel in zip(("left", "right"), panels, strict=True):
        shown = {cell: runs[cell] for cell in runs if experiment.row(cell.row).panel == panel}
        figure = draw_accuracy(experiment, shown, panel[:1].upper() + panel[1:])
        if figure is not None:
            figures[f"ablation-{side}"] = figure
    return figures
