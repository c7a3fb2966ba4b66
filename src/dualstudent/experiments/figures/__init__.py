"""The figures of the paper, one file each, drawn from finished runs."""

from collections.abc import Callable
from textwrap import fill

from matplotlib.figure import Figure

from dualstudent.experiments.figures import (
    ablation,
    adaptation,
    bars,
    correction,
    distance,
    domains,
    stable_samples,
)
from dualstudent.experiments.finished import FinishedRuns
from dualstudent.experiments.schema import Experiment, FigureName
from dualstudent.report.style import LINE_LENGTH, escape_math

Draw = Callable[[Experiment, FinishedRuns], dict[str, Figure]]

FIGURES: dict[FigureName, tuple[Draw, ...]] = {
    "bars": (bars.draw,),
    "coupling": (distance.draw, correction.draw),
    "ablation": (ablation.draw,),
    "stable-samples": (stable_samples.draw,),
    "adaptation": (domains.draw, adaptation.draw),
}


def draw_figures(
    experiment: Experiment, runs: FinishedRuns, differences: str = ""
) -> dict[str, Figure]:
    """The pictures of an experiment.

    Args:
        experiment: what was run.
        runs: the finished runs of each cell, one a seed, in the order of the seeds. A cell
            without runs is left out of the pictures.
        differences: how the runs differ from the paper's, to be said below each picture.

    Returns:
        file name without suffix → figure. Its label is its text alternative and caption.
    """
    figures = {
        stem: figure
        for draw in FIGURES[experiment.figure]
        for stem, figure in draw(experiment, runs).items()
    }
    if differences:
        for figure in figures.values():
            _say_below(figure, differences)
    return figures


def _say_below(figure: Figure, text: str) -> None:
    below = "\n".join(filter(None, [figure.get_supxlabel(), fill(escape_math(text), LINE_LENGTH)]))
    figure.supxlabel(below, x=0.01, ha="left", fontsize=9)
    figure.set_label(f"{figure.get_label()} {text}")
