"""What can be reproduced, and what it will cost on this machine."""

from collections.abc import Mapping, Sequence
from typing import get_args

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from dualstudent.cli.progress import progress_on
from dualstudent.errors import UserError
from dualstudent.experiments.cost import Stopwatch, steps_of, wall_clock
from dualstudent.experiments.plan import plan
from dualstudent.experiments.reading import experiment_names, load_experiment
from dualstudent.experiments.schema import BudgetName
from dualstudent.recipes.schema import Recipe
from dualstudent.report.tables import format_estimate

_NUMBERS = ("runs", "steps", "about")


def list_experiments(
    console: Console,
    what: str | None = None,
    seeds: int | None = None,
    changes: Sequence[str] = (),
    only: str = "",
) -> None:
    """Show experiments at both sizes: runs, steps and about how long they take here.

    Args:
        console: where to.
        what: name of the only one, or path of its file; default: all that come with the package.
        seeds: as :func:`~dualstudent.experiments.plan.plan` takes them, like the next two.
        changes: of every run.
        only: part of the names of the cells.

    Raises:
        UserError: for an experiment on own images, whose cost is not known before they are read.
    """
    experiments = [load_experiment(name) for name in ([what] if what else experiment_names())]
    plans = [
        plan(each, budget, seeds, changes, only)
        for each in experiments
        for budget in get_args(BudgetName)
    ]
    runs = [(planned, planned.runs()) for planned in plans]
    if any(recipe.data.source is None for _, of_plan in runs for recipe in of_plan.values()):
        raise UserError(f"{what}: --list knows what published data cost, not own images")
    stopwatch = Stopwatch()
    with progress_on(console, unit="recipes measured") as progress:
        observer = progress.observer("a few steps each")
        recipes = [recipe for _, of_plan in runs for recipe in of_plan.values()]
        observer.on_start(0, len(recipes))
        for number, recipe in enumerate(recipes, start=1):
            stopwatch.seconds(recipe)
            observer.on_step(number)
    table = Table(Column("what", no_wrap=True), "", "budget", *_NUMBERS)
    for planned, of_plan in runs:
        first = planned.budget == "full"
        names = (planned.experiment.name, planned.experiment.title) if first else ("", "")
        shown = map(Text, names)  # they may look like markup
        table.add_row(*shown, planned.budget, *_numbers(of_plan, stopwatch), end_section=not first)
    for budget in get_args(BudgetName) if len(experiments) > 1 else ():  # they share runs
        together = {n: r for p, of_plan in runs if p.budget == budget for n, r in of_plan.items()}
        table.add_row("all", "shared runs once", budget, *_numbers(together, stopwatch))
    console.print(table)


def _numbers(runs: Mapping[str, Recipe], stopwatch: Stopwatch) -> list[str]:
    seconds = wall_clock(runs.values(), stopwatch)
    steps = sum(map(steps_of, runs.values()))
    return [str(len(runs)), f"{steps:,}", format_estimate(seconds)]
