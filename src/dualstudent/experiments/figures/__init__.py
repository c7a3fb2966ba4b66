"""The figures of the paper, drawn from finished runs."""

from collections.abc import Callable
from textwrap import fill

from matplotlib.figure import Figure

from dualstudent.experiments.figures import (
    accuracy,
    bars,
    correction,
    distance,
    domains,
    stable_samples,
)
from dualstudent.experiments.results import FinishedRuns
from dualstudent.experiments.schema import Experiment, FigureName
from dualstudent.report.style import LINE_LENGTH, escape_math

Draw = Callable[[Experiment, FinishedRuns], dict[str, Figure]]

FIGURES: dict[FigureName, tuple[Draw, ...]] = {
    "bars": (bars.draw,),
    "coupling": (distance.draw, correction.draw),
    "ablation": (accuracy.draw_ablation,),
    "stable-samples": (stable_samples.draw,),
    "adaptation": (domains.draw, accuracy.draw_adaptation),
}


def draw_figures(
    experiment: Experiment, runs: FinishedRuns, differences: str = ""
) -> dict[str, Figure]:
    """Draw the figures of an experiment.

    Args:
        experiment: what was run.
        runs: the finished runs of each cell; a cell without runs is left out.
        differences: how the runs differ from the paper's, written below each figure.

    Returns:
        File name without suffix → figure, whose label is its caption.
    """
    figures = {
        stem: figure
        for draw in FIGURES[experiment.figure]
        for stem, figure in draw(experiment, runs).items()
    }
    if differences:
        for figure in figures.values():
            _add_note(figure, differences)
    return figures


def _add_note(figure: Figure, text: str) -> None:
    below = "\n".join(filter(None, [figure.get_supxlabel(), fill(escape_math(text), LINE_LENGTH)]))
    figure.supxlabel(below, x=0.01, ha="left", fontsize=9)
    figure.set_label(f"{figure.get_label()} {text}")
