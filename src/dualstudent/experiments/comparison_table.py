"""The table of a comparison: errors, differences to the best, and what they mean."""

import csv
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from dualstudent.experiments.baselines import EXPLANATION
from dualstudent.experiments.comparison import Comparison
from dualstudent.experiments.request import ComparisonRequest
from dualstudent.experiments.results import FinishedRuns, format_spread
from dualstudent.experiments.rows import CEILING
from dualstudent.experiments.scores import Score
from dualstudent.experiments.table import ComparisonTable, describe_effort
from dualstudent.report.format import format_count, format_duration

_HEADINGS = (
    *("labels", "method", "runs", "error", "minus_best", "low", "high", "p_value"),
    *("between_draws", "between_states", "steps", "seconds"),
)
_CEILING = (
    f"{CEILING}: the method supervised, on strong views if there are any, with the labels of all "
    "training images, for about as many steps; a reference, which is never the best and has no p."
)
_CLEAR = 0.05  # p-value below which a difference is called clear


def build_comparison_table(
    comparison: Comparison, runs: FinishedRuns, scores: Sequence[Score]
) -> ComparisonTable:
    """Build the table.

    Args:
        comparison: what was compared.
        runs: all runs of each cell.
        scores: of all cells, column by column.
    """
    apart = any(score.deviations for score in scores)
    error = f"{find_part(comparison)} error in %"
    columns = ["", "", error, "minus the best", "95 % interval", "p"]
    columns += ["between draws", "between states"] if apart else []
    rows = [
        [
            score.cell.column,
            score.cell.row,
            format_spread(score.all_errors),
            *_format_difference(score),
            *(_format_deviations(score) if apart else []),
            f"{score.steps:,}" if score.steps else "–",
            format_duration(score.seconds),
        ]
        for score in scores
    ]
    return ComparisonTable(
        [*columns, "steps", "time of a run"],
        rows,
        _write_notes(comparison, runs, scores),
        describe_order(scores),
    )


def write_scores(path: Path, scores: Sequence[Score]) -> None:
    """Write the figures of the table as a CSV file with one line per cell."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_HEADINGS)
        for score in scores:
            found = score.difference
            low, high = (found and found.interval) or (None, None)
            figures = (
                fmean(score.all_errors),
                found and found.mean,
                low,
                high,
                score.p_value,
                *(score.deviations or (None, None)),
            )
            writer.writerow(
                [score.cell.column, score.cell.row, len(score.all_errors)]
                + ["" if figure is None else f"{figure:.6g}" for figure in figures]
                + [score.steps, f"{score.seconds:.1f}"]
            )


def find_part(comparison: Comparison) -> str:
    """The part of the data that the runs are evaluated on."""
    return next(iter(comparison.recipes.values())).data.evaluated_part


def _format_difference(score: Score) -> list[str]:
    found = score.difference
    if found is None:
        return ["the best", "", ""]
    interval, p_value = "–", "–"
    if found.interval is not None:
        interval = "{:+.2f} to {:+.2f}".format(*found.interval)
    if score.p_value is not None:
        p_value = "< 0.001" if score.p_value < 0.001 else f"{score.p_value:.3f}"
    return [f"{found.mean:+.2f}", interval, p_value]


def _format_deviations(score: Score) -> list[str]:
    if score.deviations is None:  # a baseline has no initial state
        return ["–", "–"]
    return [f"{deviation:.2f}" for deviation in score.deviations]


def describe_order(scores: Sequence[Score]) -> list[str]:
    """One sentence per column: the best method, and which others it clearly beats.

    One seed, or differences without any spread, tell no method apart from the best.
    """
    sentences = []
    for column in dict.fromkeys(score.cell.column for score in scores):
        here = [score for score in scores if score.cell.column == column]
        (best,) = (score.cell.row for score in here if score.difference is None)
        clear = [s.cell.row for s in here if s.p_value is not None and s.p_value < _CLEAR]
        others = [s.cell.row for s in here if s.cell.row not in {best, CEILING, *clear}]
        sentence = f"{column}: {best} has the lowest error"
        sentence += f", clearly below {', '.join(clear)} (p < {_CLEAR})" if clear else ""
        sentence += f"; not told apart from it: {', '.join(others)}" if others else ""
        sentences.append(f"{sentence}.")
    return sentences


def _write_notes(comparison: Comparison, runs: FinishedRuns, scores: Sequence[Score]) -> list[str]:
    request = comparison.request
    changes = [f"Changed in every run: {', '.join(request.changes)}."] if request.changes else []
    return [
        f"{request.name}: mean ± standard deviation over {_describe_runs(request)}, at the last "
        "epoch, mean over the reported networks. All methods see the same labels.",
        *changes,
        _describe_lengths(comparison),
        *([EXPLANATION] if request.baselines else []),
        *([_CEILING] if request.ceiling else []),
        *_name_failures(comparison, runs),
        *_explain_statistics(scores),
        _describe_spread(comparison),
        *comparison.remarks,
        describe_effort(runs),
        f"Written by `{request.command}`.",
    ]


def _name_failures(comparison: Comparison, runs: FinishedRuns) -> list[str]:
    missing = [str(cell) for cell in comparison.recipes if cell not in runs]
    return [f"Not shown, as runs failed: {', '.join(missing)}."] if missing else []


def _describe_runs(request: ComparisonRequest) -> str:
    draws = f"{format_count(request.seeds, 'draw')} of labels"
    if request.initial_states == 1:
        return draws
    return f"{draws} with {request.initial_states} initial states each"


def _describe_lengths(comparison: Comparison) -> str:
    if comparison.request.equal == "steps":
        return "All methods take the same number of steps."
    epochs = [f"{cell}: {recipe.epochs}" for cell, recipe in comparison.recipes.items()]
    return (
        f"All methods were given about the time of {comparison.request.methods[0]}: their numbers "
        "of epochs were set before the first step, from steps measured on this machine "
        f"({'; '.join(epochs)})."
    )


def _explain_statistics(scores: Sequence[Score]) -> list[str]:
    comparisons = sum(score.p_value is not None for score in scores)
    if not comparisons:
        return []
    return [
        "Minus the best: the difference of the errors, draw by draw, with the 95 % interval of its "
        "mean (Student's t). p: how likely a mean so far from 0 would be without a real "
        f"difference, corrected for {format_count(comparisons, 'comparison')} (Holm). The best is "
        "picked from these same runs, so its lead looks a little larger than it is."
    ]


def _describe_spread(comparison: Comparison) -> str:
    request = comparison.request
    if request.initial_states == 1:
        return (
            "Each draw of labels has one initial state, so their shares of the spread cannot be "
            "told apart; --initial-states 2 would tell them."
        )
    return (
        "Between draws, between states: the standard deviations that draws of labels and initial "
        "states (weights, order and views) add, as components of the variance (one-way random "
        "effects)."
    )
