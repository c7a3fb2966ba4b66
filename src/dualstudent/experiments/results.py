"""The finished runs of an experiment, and their results."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeAlias

from dualstudent.experiments.plan import Plan
from dualstudent.experiments.schema import Cell, Measure
from dualstudent.training.run import Run, select_last_stage

FinishedRuns: TypeAlias = Mapping[Cell, list[Run]]  # one run per seed, in the order of the seeds

MEASURES: dict[Measure, str] = {
    "error": "test error in %",
    "accuracy": "test accuracy in %",
    "top5_error": "top-5 test error in %",
}


def find_finished_runs(plan: Plan, runs_folder: Path) -> FinishedRuns:
    """The finished runs of each cell, in the order of their seeds; a cell may have none.

    Raises:
        UserError: if a run was made by another recipe.
    """
    runs: dict[Cell, list[Run]] = {cell: [] for cell in plan.recipes}
    for cell, of_cell in runs.items():
        for name, recipe in plan.runs_of(cell).items():
            run = Run(runs_folder / name, recipe.imports)
            if run.result.is_file():
                run.check_recipe(recipe)  # a new default changes the recipe, but not the name
                of_cell.append(run)
    return runs


def read_headline(run: Run, measure: Measure) -> float:
    """Mean over the headline networks at the last epoch."""
    result = run.read_result()
    return fmean(_read_value(result["networks"][name], measure) for name in result["headline"])


def read_chosen_on_test(run: Run, measure: Measure) -> float:
    """Best headline network and epoch of the last stage by test error, as in the paper.

    This is too optimistic.
    """
    best = max if measure == "accuracy" else min
    networks = run.read_result()["headline"]
    return best(
        _read_value(figures, measure)
        for record in select_last_stage(run.read_metrics())
        for name, figures in record["test"].items()
        if name in networks
    )


def format_spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation; the latter needs two values.

    Example:
        >>> format_spread([1.0, 2.0, 3.0]), format_spread([2.0])
        ('2.00 ± 1.00', '2.00')
    """
    mean = f"{fmean(values):.2f}"
    return f"{mean} ± {stdev(values):.2f}" if len(values) > 1 else mean


def _read_value(figures: Mapping[str, Any], measure: Measure) -> float:
    if measure == "accuracy":
        return 100 - float(figures["error"])
    return float(figures[measure])
