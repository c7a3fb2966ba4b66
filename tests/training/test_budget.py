"""How many epochs fit into a given time."""

import math
import time
from collections.abc import Sequence

import pytest

from dualstudent import Recipe, UserError
from dualstudent.data.prepare import prepare
from dualstudent.training import forecast
from dualstudent.training.budget import Budget, fit_epochs, measure_for_budget
from dualstudent.training.forecast import Forecast
from dualstudent.training.trainer import Trainer
from tests.support.recipes import small_recipe


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Trainer]:
    """The trainers that were measured: a step takes 0.5 s, an evaluation 3 s."""
    found = list[Trainer]()

    def measure_step(trainer: Trainer, seconds: float) -> float:
        found.append(trainer)
        return 0.5

    monkeypatch.setattr(forecast, "measure_step", measure_step)
    monkeypatch.setattr(forecast, "measure_epoch_end", lambda *_: 0.0)
    monkeypatch.setattr(forecast, "measure_evaluation", lambda *_: 3.0)
    return found


def measure(recipe: Recipe) -> Forecast:
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    return measure_for_budget(recipe, data)


def fit(recipe: Recipe, seconds: float, others: Sequence[Recipe] = ()) -> int:
    beside = [(other, measure(other)) for other in others]
    return fit_epochs(recipe, measure(recipe), seconds, beside)


@pytest.mark.parametrize("epochs", [1, 30])
def test_as_many_epochs_are_chosen_as_fit_into_the_time(epochs: int) -> None:
    recipe = small_recipe(f"schedule.epochs={epochs}")
    each = 0.5 * Trainer(recipe).total_steps / epochs + 3
    for seconds, fitting in ((7.01 * each, 7), (7.99 * each, 7), (1.01 * each, 1)):
        assert fit(recipe, seconds) == fitting


def test_what_is_trained_beside_it_has_to_fit_too() -> None:
    recipe, other = small_recipe(), small_recipe("method.name=supervised", "schedule.epochs=1")
    own, beside = (0.5 * Trainer(one).total_steps + 3 * one.epochs for one in (recipe, other))
    each = (own + beside) / recipe.epochs
    assert fit(recipe, 4.01 * each, [other]) == 4
    assert fit(recipe, 3.99 * each, [other]) == 3
    with pytest.raises(UserError, match="one epoch of all trainings"):
        fit(recipe, 0.99 * each, [other])


def test_a_time_too_short_for_an_epoch_is_refused() -> None:
    recipe = small_recipe()
    each = 0.5 * Trainer(recipe).total_steps / 2 + 3
    with pytest.raises(UserError, match=rf"budget, .* 7 s .* one epoch, .* {math.ceil(each)} s"):
        fit(recipe, 7)


def test_nothing_is_trained_if_no_time_is_left() -> None:
    each = math.ceil(0.5 * Trainer(small_recipe()).total_steps / 2 + 3)
    told = f"nothing of the budget is left for the training, .* {each} s here; give more time$"
    with pytest.raises(UserError, match=told):
        fit(small_recipe(), -0.5)


def test_stages_have_their_own_lengths(measured: list[Trainer]) -> None:
    recipe = small_recipe(
        'stages=[{name = "labels", method = {name = "supervised"}}, {name = "b"}]'
    )
    with pytest.raises(UserError, match="without stages"):
        measure(recipe)
    assert not measured


def test_what_came_before_and_what_comes_after_is_a_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget = Budget(60.0, started=100.0, ending=5.0)
    monkeypatch.setattr(time, "monotonic", lambda: 112.0)
    assert (budget.spent, budget.left) == (12.0, 43.0)
