"""What can be reproduced, and what it costs on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from dualstudent.errors import UserError
from dualstudent.experiments.cost import Stopwatch, steps_of, wall_clock
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.reading import experiment_names, load_experiment
from dualstudent.experiments.schema import BudgetName
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe


@dataclass(frozen=True)
class Cost:
    """What an experiment costs within a budget.

    Attributes:
        name: of the experiment; ``"all"`` for all of them together.
        title: what it shows.
        budget: at which size.
        runs: how many.
        steps: of all runs.
        seconds: about how long they take on this machine.
    """

    name: str
    title: str
    budget: BudgetName
    runs: int
    steps: int
    seconds: float


def list_costs(
    what: str | None = None,
    seeds: int | None = None,
    changes: Sequence[str] = (),
    only: str = "",
    progress: Progress | None = None,
) -> list[Cost]:
    """The cost of each experiment within each budget; of several, also of all together.

    Args:
        what: name of the only one, or path of its file; default: all that come with the package.
        seeds: as :func:`~dualstudent.experiments.plan.plan` takes them, like the next two.
        changes: of every run.
        only: part of the names of the cells.
        progress: is told how many recipes have been measured.

    Raises:
        UserError: for an experiment on own images, whose cost is not known before they are read.
    """
    names = [what] if what else experiment_names()
    plans = [
        plan(experiment, budget, seeds, changes, only)
        for experiment in map(load_experiment, names)
        for budget in get_args(BudgetName)
    ]
    recipes = [recipe for planned in plans for recipe in planned.runs().values()]
    if any(recipe.data.source is None for recipe in recipes):
        raise UserError(f"{what}: --list knows the cost of published data, not of own images")
    stopwatch = _measure(recipes, progress)
    costs = [
        _cost(planned.experiment.name, planned.experiment.title, [planned], stopwatch)
        for planned in plans
    ]
    if len(names) > 1:
        for budget in get_args(BudgetName):
            of_budget = [planned for planned in plans if planned.budget == budget]
            costs.append(_cost("all", "shared runs once", of_budget, stopwatch))
    return costs


def _measure(recipes: Sequence[Recipe], progress: Progress | None) -> Stopwatch:
    """A stopwatch that has seen all recipes: a few steps of each kind."""
    stopwatch = Stopwatch()
    if progress:
        progress.on_start(0, len(recipes))
    for number, recipe in enumerate(recipes, start=1):
        stopwatch.seconds(recipe)
        if progress:
            progress.on_step(number)
    return stopwatch


def _cost(name: str, title: str, plans: Sequence[Plan], stopwatch: Stopwatch) -> Cost:
    """Of plans within one budget; what they share is run once."""
    runs: Mapping[str, Recipe] = {n: r for planned in plans for n, r in planned.runs().items()}
    steps, seconds = sum(map(steps_of, runs.values())), wall_clock(runs.values(), stopwatch)
    return Cost(name, title, plans[0].budget, len(runs), steps, seconds)
