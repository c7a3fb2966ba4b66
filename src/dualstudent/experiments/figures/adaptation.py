"""Fig. 9: test accuracy on the target domain against epochs."""

from matplotlib.figure import Figure

from dualstudent.experiments.figures.accuracy import draw_accuracy
from dualstudent.experiments.finished import FinishedRuns
from dualstudent.experiments.schema import Experiment


def draw(experiment: Experiment, runs: FinishedRuns) -> dict[str, Figure]:
    """All rows in one picture, ``adaptation``."""
    figure = draw_accuracy(experiment, runs, experiment.title)
    return {} if figure is None else {"adaptation": figure}
