import math
import time
from collections.abc import Iterable

import pytest
import torch

from dualstudent import Recipe
from dualstudent.batch import Batch
from dualstudent.data.prepare import prepare
from dualstudent.methods import Method
from dualstudent.training import forecast
from dualstudent.training.evaluation import Evaluator
from dualstudent.training.forecast import Forecast, estimate_seconds
from dualstudent.training.trainer import Trainer
from tests.support.recipes import small_recipe


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are taken; the first takes 3 s, each other 0.5 s, a chunk of a test 3 s."""
    clock, taken = [0.0], list[int]()

    def take_step(_: Trainer, step: int) -> None:
        clock[0] += 0.5 if taken else 3
        taken.append(step)

    def evaluate(*_: object) -> None:
        clock[0] += 3

    monkeypatch.setattr("time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(Trainer, "take_step", take_step)
    monkeypatch.setattr(Evaluator, "evaluate", evaluate)
    return taken


def estimate(recipe: Recipe) -> float:
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    return estimate_seconds(recipe, data)


def test_a_run_takes_its_steps_and_its_evaluations(steps: list[int]) -> None:
    recipe = small_recipe("schedule.epochs=30", "evaluation.every=8")
    total = Trainer(recipe).total_steps
    tested = 4 * 3 * 355 / 250  # after 8, 16, 24 and 30 epochs
    assert estimate(recipe) == pytest.approx(0.5 * total + tested)
    assert steps == [0, 1, 2, 3, 4]  # of two seconds, and the first one before


def test_other_lengths_need_no_other_measurement(steps: list[int]) -> None:
    recipe = small_recipe("schedule.epochs=30", "evaluation.every=8")
    data = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    forecast, taken = Forecast(recipe, data), len(steps)
    longer = small_recipe("schedule.epochs=50", "evaluation.every=25")
    expected = 0.5 * Trainer(longer).total_steps + 2 * 3 * 355 / 250
    assert forecast.estimate(longer) == pytest.approx(expected)
    assert len(steps) == taken


def test_an_epoch_that_is_gone_over_again_takes_longer(
    steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a method that looks at every batch once more, 0.25 s each, after epochs 3, 5, …, 29."""
    clock = [0.0]
    measured = time.perf_counter

    def after_epoch(_: Method, epoch: int, batches: Iterable[Batch]) -> None:
        if epoch >= 2 and epoch % 2 == 0:
            clock[0] += 0.25 * len(list(batches))

    monkeypatch.setattr("time.perf_counter", lambda: measured() + clock[0])
    monkeypatch.setattr(forecast, "_SECONDS", 1e9)
    without = estimate(small_recipe("schedule.epochs=30"))
    monkeypatch.setattr(Method, "after_epoch", after_epoch)
    steps.clear()
    recipe = small_recipe("schedule.epochs=30")
    per_epoch = Trainer(recipe).total_steps / 30
    assert estimate(recipe) - without == pytest.approx(14 * 0.25 * per_epoch)


def test_a_forecast_takes_a_tenth_of_a_short_training(
    steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "_SECONDS", 1e9)
    recipe = small_recipe("schedule.epochs=1")
    estimate(recipe)
    assert len(steps) == 1 + math.ceil(Trainer(recipe).total_steps / 10)


def test_one_long_step_is_enough(monkeypatch: pytest.MonkeyPatch, steps: list[int]) -> None:
    monkeypatch.setattr(forecast, "_LONG", 2)
    recipe = small_recipe("schedule.epochs=1")
    total = Trainer(recipe).total_steps
    assert estimate(recipe) == pytest.approx(3 * total + 3 * 355 / 250)
    assert steps == [0]


def test_gpus_share_the_steps_of_a_run_but_not_its_evaluations(
    steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = estimate(small_recipe())
    monkeypatch.setattr(forecast, "count_gpus", lambda recipe: 2)
    steps.clear()
    two = estimate(small_recipe())
    evaluations = small_recipe().schedule.epochs * 3 * 355 / 250
    assert two - evaluations == pytest.approx((one - evaluations) / 2)


def test_a_forecast_leaves_the_random_state_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forecast, "_SECONDS", 0.01)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert estimate(small_recipe()) > 0
    assert torch.equal(torch.rand(3), expected)
