"""What of an experiment has been run to its end."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from dualstudent.experiments.plan import Plan
from dualstudent.experiments.schema import Cell
from dualstudent.training.run import Run

FinishedRuns: TypeAlias = Mapping[Cell, list[Run]]  # one run a seed, in the order of the seeds


def finished_runs(plan: Plan, runs_folder: Path) -> FinishedRuns:
    """The finished runs of each cell, in the order of their seeds; a cell may have none."""
    return {
        cell: [
            run
            for run in (Run(runs_folder / name) for name in plan.of_cell(cell))
            if run.result.is_file()
        ]
        for cell in plan.recipes
    }
