"""The time that the user gives a training, and how many epochs fit into it."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from dualstudent.data.prepared import PreparedData
from dualstudent.errors import UserError
from dualstudent.recipes.schema import Recipe
from dualstudent.training.forecast import Forecast


@dataclass(frozen=True)
class Budget:
    """The time for a training, with all that comes before and after it.

    Attributes:
        seconds: of all of it.
        started: when it began, by ``time.monotonic()``.
        ending: seconds to keep for what comes after the training, such as the page of the run.
    """

    seconds: float
    started: float = field(default_factory=time.monotonic)
    ending: float = 0.0

    @property
    def left(self) -> float:
        """Seconds that are left for the training."""
        return self.seconds - self.spent - self.ending

    @property
    def spent(self) -> float:
        """Seconds that have passed."""
        return time.monotonic() - self.started


def measure_for_budget(recipe: Recipe, data: PreparedData) -> Forecast:
    """Measure how long a training takes whose length a budget decides.

    Raises:
        UserError: if the recipe has stages with their own lengths.
    """
    if recipe.stages:
        raise UserError("a budget is for recipes without stages; set the epochs of each stage")
    return Forecast(recipe, data)


def fit_epochs(
    recipe: Recipe,
    forecast: Forecast,
    seconds: float,
    others: Sequence[tuple[Recipe, Forecast]] = (),
) -> int:
    """Find how many epochs of a recipe fit into ``seconds`` on this machine.

    Args:
        recipe: recipe of the run; its own number of epochs does not matter.
        forecast: how long it takes, from :func:`measure_for_budget`.
        seconds: time for training and evaluation, such as :attr:`Budget.left`.
        others: recipes and forecasts of runs that have to fit into the same time; their lengths
            stay in proportion.

    Raises:
        UserError: if nothing is left, or not even one epoch fits.
    """
    all_of_them = [(recipe, forecast), *others]
    each = sum(known.estimate(one) for one, known in all_of_them) / recipe.epochs
    what = "one epoch of all trainings" if others else "one epoch"
    one = f"{what}, which takes about {math.ceil(each):,} s here"
    if seconds <= 0:
        again = "features of images are kept, so try once more, or " if recipe.trunk else ""
        raise UserError(
            f"nothing of the budget is left for the training, not even for {one}; {again}give more "
            "time"
        )
    if each > seconds:
        raise UserError(
            f"the budget, of which {seconds:,.0f} s are left, is too short for {one}; give more "
            "time"
        )
    return int(seconds / each)
