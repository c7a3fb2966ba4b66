"""The table of an experiment: measured values, and those of the paper or the user beside them."""

import csv
from dataclasses import dataclass
from pathlib import Path

from dualstudent.experiments.plan import Plan
from dualstudent.experiments.ranking import rank_rows
from dualstudent.experiments.results import (
    MEASURES,
    FinishedRuns,
    format_spread,
    read_chosen_on_test,
    read_headline,
)
from dualstudent.experiments.schema import BudgetName, Cell
from dualstudent.report.format import format_count, format_duration
from dualstudent.training.run import Run

_NOT_RUN = "not run"
_CHOSEN = "chosen on test *"
_SIZES: dict[BudgetName, str] = {"full": "at full size", "cpu": "in small"}


@dataclass(frozen=True)
class ComparisonTable:
    """The table of an experiment as text.

    Attributes:
        columns: headings.
        rows: one per cell of the experiment, as long as ``columns``.
        notes: paragraphs below the table: what was made smaller, seeds, versions, time, command.
        order: sentences on which rows are better.
    """

    columns: list[str]
    rows: list[list[str]]
    notes: list[str]
    order: list[str]

    def to_markdown(self) -> str:
        """The table and the notes below it as Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        table = [f"| {' | '.join(line)} |" for line in lines]
        return "\n".join([*table, "", "\n\n".join([*self.order, *self.notes])]) + "\n"


def build_table(plan: Plan, runs: FinishedRuns, command: str) -> ComparisonTable:
    """Build the table of an experiment.

    Args:
        plan: of the experiment.
        runs: the finished runs of each cell; a cell without runs is shown as "not run".
        command: that made it, for the notes.
    """
    what, reference = MEASURES[plan.experiment.measure], plan.experiment.reference
    beside = [f"{reference}: {what}"] if reference else []
    columns = ["", "", *beside, f"measured: {what}", "seeds", _CHOSEN]
    rows = [_make_row(plan, cell, runs.get(cell, [])) for cell in plan.recipes]
    return ComparisonTable(columns, rows, _write_notes(plan, runs, command), rank_rows(plan, runs))


def write_csv(path: Path, plan: Plan, runs: FinishedRuns) -> None:
    """Write a CSV file with one line per run."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["row", "column", "measure", "paper", "seed", "measured", "chosen_on_test", "run"]
        )
        for cell, of_cell in runs.items():
            measure, paper = plan.experiment.measure_of(cell), plan.experiment.paper(cell)
            for run in of_cell:
                values = read_headline(run, measure), read_chosen_on_test(run, measure)
                seed = run.read_recipe().seed
                mean = "" if paper is None else f"{paper.mean:.2f}"
                figures = [f"{value:.4f}" for value in values]
                writer.writerow(
                    [cell.row, cell.column, measure, mean, seed, *figures, run.folder.name]
                )


def describe_effort(runs: FinishedRuns) -> str:
    """A sentence on the number of runs, their time, and the versions that made them."""
    results = {run.folder.name: run.read_result() for of_cell in runs.values() for run in of_cell}
    seconds = sum(result["seconds"] for result in results.values())
    versions = dict.fromkeys(
        f"{name} {version}" for r in results.values() for name, version in r["versions"].items()
    )
    return (
        f"{format_count(len(results), 'run')}, {format_duration(seconds)} in all, one after the "
        f"other; {', '.join(versions) or 'no run yet'}."
    )


def _make_row(plan: Plan, cell: Cell, runs: list[Run]) -> list[str]:
    measure, paper = plan.experiment.measure_of(cell), plan.experiment.paper(cell)
    beside = [str(paper or "–")] if plan.experiment.reference else []
    measured = chosen = _NOT_RUN
    if runs:
        measured = format_spread([read_headline(run, measure) for run in runs])
        chosen = format_spread([read_chosen_on_test(run, measure) for run in runs])
    return [cell.row, cell.column, *beside, measured, str(len(runs)), chosen]


def _write_notes(plan: Plan, runs: FinishedRuns, command: str) -> list[str]:
    experiment = plan.experiment
    of_paper, as_authors = " of the paper", ", as the paper's authors report"
    if experiment.own:
        of_paper = as_authors = ""
    notes = [
        f"{experiment.place}{of_paper}, {_SIZES[plan.budget]}. "
        f"Measured: {_describe_mean(plan.seeds)}, at the last epoch, mean over the reported "
        "networks.",
        *plan.differences,
        f"* lowest test error over all epochs and networks{as_authors} (too optimistic); for "
        "comparison only.",
        describe_effort(runs),
        f"Written by `{command}` from all runs that were finished by then.",
    ]
    if any(row.paper and any("†" in value for value in row.paper) for row in experiment.rows):
        notes.insert(1, "† published by others, better than by the authors of the method.")
    return notes


def _describe_mean(seeds: int) -> str:
    if seeds == 1:
        return "seed 0"
    return f"mean ± standard deviation over those of the seeds 0 to {seeds - 1} that were run"
