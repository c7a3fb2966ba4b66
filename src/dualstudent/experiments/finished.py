"""What of an experiment has been run to its end."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from dualstudent.experiments.plan import Plan
from dualstudent.experiments.schema import Cell
from dualstudent.training.run import Run

FinishedRuns: TypeAlias = Mapping[Cell, list[Run]]  # one run a seed, in the order of the seeds


def finished_runs(plan: Plan, runs_folder: Path) -> FinishedRuns:
    """The finished runs of each cell, in the order of their seeds; a cell may have none.

    Raises:
        UserError: if one of them is of another recipe than its name says.
    """
    runs: dict[Cell, list[Run]] = {cell: [] for cell in plan.recipes}
    for cell, of_cell in runs.items():
        for name, recipe in plan.of_cell(cell).items():
            run = Run(runs_folder / name)
            if run.result.is_file():
                run.check_recipe(recipe)  # a setting whose default has changed changes no name
                of_cell.append(run)
    return runs
