"""Which rows of an experiment are better than others, beyond the noise of the seeds."""

from collections.abc import Iterable, Mapping
from functools import cache
from statistics import fmean, stdev

import numpy as np

from dualstudent.experiments.plan import Plan
from dualstudent.experiments.results import MEASURES, FinishedRuns, read_headline
from dualstudent.experiments.schema import Cell


def rank_rows(plan: Plan, runs: FinishedRuns) -> list[str]:
    """One sentence per column with its rows in order, and one that explains the signs.

    Rows are compared if they are tested on the same samples and shown in the same panel. Rows
    that lack seeds are left out. With a single seed, there are no sentences.

    Args:
        plan: of the experiment.
        runs: the finished runs of each cell, in the order of their seeds.
    """
    measured = {
        cell: [read_headline(run, plan.experiment.measure_of(cell)) for run in of_cell]
        for cell, of_cell in runs.items()
        if len(of_cell) == plan.seeds > 1
    }
    groups = _group_cells(plan, measured)
    sentences = [
        _describe_order(plan, where, {cell: measured[cell] for cell in cells})
        for where, cells in groups.items()
        if len(cells) > 1
    ]
    if not sentences:
        return []
    meaning = (
        "A > B: A is better than B, its neighbor, by more than the standard deviation of their "
        f"difference over the {plan.seeds} seeds, taken seed by seed; A ≈ B: by less, a tie."
    )
    return [*sentences, meaning]


@cache
def simulate_false_order(rows: int, seeds: int) -> float:
    """Probability that equal methods, sorted by their means, show at least one >.

    Simulated with independent normal errors.

    Example:
        >>> round(simulate_false_order(rows=5, seeds=3), 2)
        0.29
    """
    errors = np.random.default_rng(0).normal(size=(20_000, rows, seeds))
    order = errors.mean(axis=2).argsort(axis=1)
    differences = np.diff(np.take_along_axis(errors, order[:, :, None], axis=1), axis=1)
    ahead = differences.mean(axis=2) > differences.std(axis=2, ddof=1)
    return float(ahead.any(axis=1).mean())


def _group_cells(plan: Plan, cells: Iterable[Cell]) -> dict[tuple[str, str, str], list[Cell]]:
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        data = plan.recipes[cell].data
        own = data.path if data.evaluated_part == "source validation" else data.target_path
        tested_on = f"{data.target or data.source or own or data.path} {data.classes}"
        panel = plan.experiment.row(cell.row).panel
        groups.setdefault((cell.column, panel, tested_on), []).append(cell)
    return groups


def _describe_order(
    plan: Plan, where: tuple[str, str, str], rows: Mapping[Cell, list[float]]
) -> str:
    column, panel, _ = where
    measure = plan.experiment.measure_of(next(iter(rows)))
    sign = -1 if measure == "accuracy" else 1
    first, *others = sorted(rows, key=lambda cell: sign * fmean(rows[cell]))
    order, last = first.row, first
    for cell in others:
        order += f" {'≈' if _is_tie(rows[last], rows[cell]) else '>'} {cell.row}"
        last = cell
    paper = {cell.row: value.mean for cell in rows if (value := plan.experiment.paper(cell))}
    by_mean = " > ".join(sorted(paper, key=lambda row: sign * paper[row]))
    source = "as stated" if plan.experiment.own else "in the paper"
    beside = f" ({source}, by means: {by_mean})" if len(paper) > 1 else ""
    place = f"{column} ({panel})" if panel else column
    chance = 100 * simulate_false_order(len(rows), plan.seeds)
    return (
        f"By {MEASURES[measure]}, {place}: {order}{beside}. "
        f"Were all {len(rows)} equal, chance would still show a > in {chance:.0f} % of cases."
    )


def _is_tie(one: list[float], other: list[float]) -> bool:
    differences = [a - b for a, b in zip(one, other, strict=True)]
    return abs(fmean(differences)) <= stdev(differences)
