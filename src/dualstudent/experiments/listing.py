"""All experiments, and what they cost on this machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from dualstudent.errors import UserError
from dualstudent.experiments.cost import TimeEstimator, count_steps, estimate_wall_clock
from dualstudent.experiments.plan import Plan, plan
from dualstudent.experiments.reading import list_experiments, load_experiment
from dualstudent.experiments.schema import BudgetName
from dualstudent.parallel import Progress
from dualstudent.recipes.schema import Recipe


@dataclass(frozen=True)
class Cost:
    """The cost of an experiment within a budget.

    Attributes:
        name: of the experiment; ``"all"`` for all of them together.
        title: of the experiment.
        budget: its size.
        runs: number of runs.
        steps: total number of training steps.
        seconds: estimated time on this machine.
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
    """The cost of each experiment within each budget, and of all together if there are several.

    Args:
        what: name of an experiment, or path of its file; default: all of the package.
        seeds: see :func:`~dualstudent.experiments.plan.plan`, also for ``changes`` and ``only``.
        changes: settings of every run.
        only: text in the names of the cells.
        progress: is told how many recipes have been measured.

    Raises:
        UserError: for an experiment on own images, whose number is not known.
    """
    names = [what] if what else list_experiments()
    plans = [
        plan(experiment, budget, seeds, changes, only)
        for experiment in map(load_experiment, names)
        for budget in get_args(BudgetName)
    ]
    recipes = [recipe for planned in plans for recipe in planned.runs().values()]
    if any(recipe.data.source is None for recipe in recipes):
        raise UserError(
            f"{what}: --list estimates the cost for published data only, not for own images"
        )
    estimator = _measure(recipes, progress)
    costs = [
        _compute_cost(planned.experiment.name, planned.experiment.title, [planned], estimator)
        for planned in plans
    ]
    if len(names) > 1:
        for budget in get_args(BudgetName):
            of_budget = [planned for planned in plans if planned.budget == budget]
            costs.append(_compute_cost("all", "shared runs once", of_budget, estimator))
    return costs


def _measure(recipes: Sequence[Recipe], progress: Progress | None) -> TimeEstimator:
    """Measure a few steps of each kind of recipe."""
    estimator = TimeEstimator()
    if progress:
        progress.on_start(0, len(recipes))
    for number, recipe in enumerate(recipes, start=1):
        estimator.estimate(recipe)
        if progress:
            progress.on_step(number)
    return estimator


def _compute_cost(name: str, title: str, plans: Sequence[Plan], estimator: TimeEstimator) -> Cost:
    """The cost of plans within one budget; shared runs count once."""
    runs: Mapping[str, Recipe] = {n: r for planned in plans for n, r in planned.runs().items()}
    steps, seconds = (
        sum(map(count_steps, runs.values())),
        estimate_wall_clock(runs.values(), estimator),
    )
    return Cost(name, title, plans[0].budget, len(runs), steps, seconds)
