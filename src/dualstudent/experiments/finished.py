"""What of an experiment has been run to its end."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from dualstudent.errors import UserError
from dualstudent.experiments.plan import Plan
from dualstudent.experiments.schema import Cell
from dualstudent.recipes.schema import Recipe
from dualstudent.training.run import Run

FinishedRuns: TypeAlias = Mapping[Cell, list[Run]]  # one run a seed, in the order of the seeds


def finished_runs(plan: Plan, runs_folder: Path) -> FinishedRuns:
    """The finished runs of each cell, in the order of their seeds; a cell may have none.

    Raises:
        UserError: if one of them is of another recipe than its name says.
    """
    return {
        cell: [
            _checked(Run(runs_folder / name), recipe)
            for name, recipe in plan.of_cell(cell).items()
            if Run(runs_folder / name).result.is_file()
        ]
        for cell in plan.recipes
    }


def _checked(run: Run, recipe: Recipe) -> Run:
    """A setting whose default has changed does not change a name."""
    if not run.read_recipe().defines_same_run_as(recipe):
        raise UserError(f"{run.folder} holds a run of another recipe; use another --out")
    return run
