import pytest
import torch

from dualstudent import Recipe, grid, load_recipe
from dualstudent.data.datasets import Part
from dualstudent.data.paths import find_data_folder
from dualstudent.data.sources.catalog import SOURCES
from dualstudent.experiments import cost
from dualstudent.experiments.cost import Pace, TimeEstimator, count_steps, measure_pace
from dualstudent.methods import METHODS
from dualstudent.recipes.files import list_recipe_names
from dualstudent.training.trainer import Trainer
from tests.support.recipes import small_recipe
from tests.support.sources import load_images

NAMES = [str(method.Settings.model_fields["name"].default) for method in METHODS]
PARTS: tuple[Part, Part] = ("train", "test")
EMBEDDED: tuple[str, ...] = ("mnist-5k", "digits-8x8")


@pytest.mark.parametrize("name", EMBEDDED)
def test_published_sizes_are_those_of_the_data(name: str) -> None:
    train, test = (load_images(name, part, find_data_folder()) for part in PARTS)
    shape = (train.channels, *train.pixels.shape[2:])
    assert (len(train), len(test), len(train.classes), shape) == SOURCES[name][1:5]


@pytest.mark.parametrize(
    "recipe",
    [
        load_recipe("digits"),
        load_recipe("digits-adaptation"),
        load_recipe("digits", ["data.labels=all", "batch.labeled=128"]),
        load_recipe("digits", ['data.classes=["1", "7"]']),
        load_recipe("digits", ["data.images=1000"]),
        small_recipe("data.labels=100"),
    ],
    ids=lambda recipe: recipe.data.source,
)
def test_steps_are_those_that_training_takes(recipe: Recipe) -> None:
    assert count_steps(recipe) == Trainer(recipe).total_steps


@pytest.mark.parametrize("name", list_recipe_names())
def test_every_recipe_can_be_counted(name: str) -> None:
    assert count_steps(load_recipe(name)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_pace_of_every_method_is_measured_without_data(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "_MIN_SECONDS", 0)
    changes = [f"method.name={name}", "data.folder=nowhere", "transforms.strong.noise=0.5"]
    if name == "imbalanced-student":
        changes += ["method.strong_network.name=digits-cnn"]
    if name.endswith("+fastswa"):
        changes += ["method.average_from=1"]
    pace = measure_pace(load_recipe("usps-mnist", changes))
    assert pace.training > 0
    assert pace.test > 0


@pytest.mark.parametrize("labels", ["50", "all"])
def test_batches_grow_until_a_step_takes_long_enough(
    labels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def pretend(trainer: Trainer, seconds: float) -> float:
        batch = trainer.recipe.batch
        sizes.append((batch.size, batch.labeled))
        return 0.02 * batch.size

    monkeypatch.setattr(cost, "measure_step", pretend)
    monkeypatch.setattr(cost, "measure_evaluation", lambda trainer: 2 * len(trainer.data.test))
    whole = labels == "all"
    recipe = load_recipe(
        "digits", [f"data.labels={labels}", f"batch.labeled={128 if whole else 32}"]
    )
    pace = measure_pace(recipe)
    assert [pace.training, pace.test] == pytest.approx([0.02, 1])
    assert sizes == [(size, size if whole else size // 4) for size in (4, 8, 16, 32)]


def test_a_run_costs_its_steps_and_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = []

    def pretend(recipe: Recipe) -> Pace:
        measured.append(recipe)
        return Pace(training=0.5, test=0.01)

    monkeypatch.setattr(cost, "measure_pace", pretend)
    estimator = TimeEstimator()
    recipe = load_recipe("digits")  # 20 epochs of 3,950 / 96 steps
    expected = 20 * 41 * 128 * 0.5 + 20 * 2 * 1000 * 0.01
    assert estimator.estimate(recipe) == pytest.approx(expected)
    rarely = load_recipe("digits", ["evaluation.every=8"])  # after 8, 16 and 20 epochs
    assert estimator.estimate(rarely) == pytest.approx(expected - 17 * 2 * 1000 * 0.01)
    two = load_recipe("digits", ['data.classes=["1", "7"]', "data.labels=20"])
    expected = 20 * ((800 - 20) // 96) * 128 * 0.5 + 20 * 2 * 200 * 0.01
    assert estimator.estimate(two) == pytest.approx(expected)
    estimator.estimate(load_recipe("digits", ["data.labels=100", "seed=1"]))
    assert len(measured) == 1  # the same passes
    estimator.estimate(load_recipe("digits", ["method.name=cs"]))
    estimator.estimate(load_recipe("digits", ["network.width=2"]))
    assert len(measured) == 3


class Given(TimeEstimator):
    """Takes the seed of a recipe for its seconds."""

    def estimate(self, recipe: Recipe) -> float:
        return recipe.seed


def wall_clock(seconds: list[int], *changes: str) -> float:
    recipes = [load_recipe("digits", [f"seed={each}", *changes]) for each in seconds]
    return cost.estimate_wall_clock(recipes, Given())


def test_runs_share_the_cores_but_none_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "count_cores", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert wall_clock([4, 4, 4, 4]) == 8
    assert wall_clock([1, 10]) == 10
    assert wall_clock([]) == 0


def test_a_gpu_takes_one_run_at_a_time_unless_the_recipe_is_for_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grid, "count_cores", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert wall_clock([4, 4, 4, 4]) == 16
    assert wall_clock([4, 4, 4, 4], "device.accelerator=cpu") == 8


def test_gpus_share_the_steps_of_a_run_but_not_its_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure_pace", lambda recipe: Pace(training=0.5, test=0.01))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    steps, tests = 20 * 41 * 128 * 0.5, 20 * 2 * 1000 * 0.01
    eight = ["device.processes=8"]
    assert TimeEstimator().estimate(load_recipe("digits", eight)) == pytest.approx(
        steps / 2 + tests
    )
    on_cores = load_recipe("digits", [*eight, "device.accelerator=cpu"])
    assert TimeEstimator().estimate(on_cores) == pytest.approx(steps + tests)
