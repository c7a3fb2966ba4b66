"""The scores of a comparison: errors of each cell, and how they differ from the best."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from dualstudent.experiments.results import FinishedRuns, read_headline
from dualstudent.experiments.schema import Cell
from dualstudent.experiments.statistics import (
    PairedDifference,
    compare_pairs,
    correct_p_values,
    split_deviation,
)


@dataclass(frozen=True)
class Score:
    """The score of one method with one number of labels.

    Attributes:
        cell: the method and the labels.
        errors: in %, for each draw of labels, one of each initial state.
        seconds: of a run, on average.
        steps: of a run; 0 for a baseline, which has none.
        difference: error minus that of the best method with these labels, paired by the draws;
            None for the best.
        p_value: of the difference, corrected for the number of comparisons in the table; None
            for a reference.
    """

    cell: Cell
    errors: list[list[float]]
    seconds: float
    steps: int
    difference: PairedDifference | None = None
    p_value: float | None = None

    @property
    def all_errors(self) -> list[float]:
        """The errors of all runs."""
        return [error for draw in self.errors for error in draw]

    @property
    def draw_means(self) -> list[float]:
        """The mean error of each draw. Draws are independent; runs of the same draw are not."""
        return [fmean(draw) for draw in self.errors]

    @property
    def deviations(self) -> tuple[float, float] | None:
        """Standard deviation between draws and between initial states, if they can be told."""
        if len(self.errors) < 2 or len(self.errors[0]) < 2:
            return None
        return split_deviation(self.errors)


def compute_scores(
    runs: FinishedRuns,
    initial_states: int,
    others: Sequence[Score] = (),
    references: Collection[str] = (),
) -> list[Score]:
    """Compute the score of each cell, column by column.

    Args:
        runs: all runs of each cell, draw by draw.
        initial_states: runs per draw.
        others: scores of cells without runs, with errors of the same draws.
        references: rows that are never the best and have no p-value.
    """
    scores = [*(_read_score(cell, runs, initial_states) for cell in runs), *others]
    columns: dict[str, list[Score]] = {}
    for score in scores:
        columns.setdefault(score.cell.column, []).append(score)
    compared = [each for c in columns.values() for each in _compare_with_best(c, references)]
    return _correct(compared, references)


def _read_score(cell: Cell, runs: FinishedRuns, initial_states: int) -> Score:
    results = [run.read_result() for run in runs[cell]]
    errors = [read_headline(run, "error") for run in runs[cell]]
    draws = [errors[i : i + initial_states] for i in range(0, len(errors), initial_states)]
    return Score(
        cell, draws, fmean(result["seconds"] for result in results), int(results[0]["steps"])
    )


def _compare_with_best(scores: Sequence[Score], references: Collection[str]) -> list[Score]:
    candidates = [score for score in scores if score.cell.row not in references]
    best = min(candidates, key=lambda score: fmean(score.draw_means))
    return [
        score
        if score is best
        else replace(score, difference=compare_pairs(score.draw_means, best.draw_means))
        for score in scores
    ]


def _correct(scores: Sequence[Score], references: Collection[str]) -> list[Score]:
    p_values = {
        score.cell: score.difference.p_value
        for score in scores
        if score.difference is not None
        and score.difference.p_value is not None
        and score.cell.row not in references
    }
    corrected: Mapping[Cell, float] = dict(
        zip(p_values, correct_p_values(list(p_values.values())), strict=True)
    )
    return [replace(score, p_value=corrected.get(score.cell)) for score in scores]
