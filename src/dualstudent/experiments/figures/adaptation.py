"""Fig. 9: test accuracy on the target domain against epochs."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from dualstudent.experiments.figures.accuracy import draw_accuracy
from dualstudent.experiments.schema import Cell, Experiment
from dualstudent.training.run import Run


def draw(experiment: Experiment, runs: Mapping[Cell, list[Run]]) -> dict[str, Figure]:
    """All rows in one picture, ``adaptation``."""
    figure = draw_accuracy(experiment, runs, experiment.title)
    return {} if figure is None else {"adaptation": figure}
