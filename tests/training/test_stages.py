"""Stages, averages of weights and gradient clipping."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from dualstudent import (
    Recipe,
    Run,
    Trainer,
    UserError,
    load_trained,
    prepare,
    resume,
    train,
)
from dualstudent.recipes.reading import read_recipe_table, validate
from dualstudent.signals import Interrupted
from dualstudent.training.model import evaluate_run
from dualstudent.training.trainer import build_method
from tests.support.recipes import small_recipe
from tests.support.runs import RaisesSignalAt, assert_equal_runs

STEPS = 29  # of an epoch


def flatten(network: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def staged() -> Recipe:
    """An epoch on labels alone by AdamW, an epoch of Dual Student by SGD."""
    recipe = small_recipe("schedule.epochs=1")
    table = recipe.model_dump(mode="json", exclude_none=True)
    table["stages"] = [
        {
            "name": "labels",
            "method": {"name": "supervised", "students": 2},
            "optimizer": {"name": "adamw", "learning_rate": 0.01},
            "schedule": {"epochs": 1},
        },
        {"name": "both"},
    ]
    return validate(table, "of a test")


def test_a_stage_goes_on_with_the_students_of_the_one_before() -> None:
    trainer = Trainer(staged())
    while trainer.state.step < STEPS:
        record = trainer.advance()
    assert record is not None
    assert (record["stage"], trainer.method.settings.name) == ("labels", "supervised")
    before = [p.detach().clone() for p in trainer.method.students.parameters()]
    method = build_method(trainer.recipe.split_stages()[1], trainer.data, trainer.method)
    for after, expected in zip(method.students.parameters(), before, strict=True):
        assert torch.equal(after, expected)
    assert not trainer.done
    trainer.advance()
    assert trainer.method.settings.name == "dual-student"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train(staged(), tmp_path_factory.mktemp("runs") / "whole")


@pytest.mark.parametrize("step", [13, STEPS, STEPS + 1, 47])
def test_a_run_in_stages_continues_bit_for_bit_inside_each(
    step: int, whole: Run, tmp_path: Path
) -> None:
    with pytest.raises(Interrupted):
        train(staged(), tmp_path / "run", RaisesSignalAt(step))
    assert_equal_runs(resume(tmp_path / "run"), whole)
    assert [record["stage"] for record in whole.read_metrics()] == ["labels", "both"]
    assert [record["epoch"] for record in whole.read_metrics()] == [1, 2]


def test_a_finished_run_in_stages_is_evaluated_by_its_last_method(whole: Run) -> None:
    assert evaluate_run(whole) == whole.read_result()["networks"]
    assert load_trained(whole).method.settings.name == "dual-student"


def test_the_last_stage_has_the_method_of_the_recipe() -> None:
    table = read_recipe_table("digits") | {
        "stages": [{"name": "only", "method": {"name": "supervised"}}]
    }
    with pytest.raises(UserError, match="stages"):
        validate(table, "of a test")


def test_each_stage_has_a_name_of_its_own() -> None:
    table = read_recipe_table("digits") | {"stages": [{"name": "same"}, {"name": "same"}]}
    with pytest.raises(UserError, match="stages: each needs a name of its own"):
        validate(table, "of a test")


def test_adamw_resumes_bit_for_bit_with_its_step_count(tmp_path: Path) -> None:
    adamw = 'optimizer={name="adamw", learning_rate=0.003, clip_norm=1.0}'
    straight = train(small_recipe(adamw), tmp_path / "straight")
    with pytest.raises(Interrupted):
        train(small_recipe(adamw), tmp_path / "run", RaisesSignalAt(40))
    assert_equal_runs(resume(tmp_path / "run"), straight)


def test_clipping_bounds_the_first_step_of_each_student() -> None:
    clipped = Trainer(small_recipe("optimizer.clip_norm=0.001", "optimizer.weight_decay=0"))
    before = [flatten(each) for each in clipped.method.students]
    clipped.advance()
    for student, start in zip(clipped.method.students, before, strict=True):
        moved = (flatten(student) - start).norm().item()
        assert 0 < moved <= 0.1 * 0.001 * 1.9 * 1.01  # rate · norm · (1 + momentum), rounding


def test_an_average_of_the_weights_is_tested_and_kept(tmp_path: Path) -> None:
    run = train(small_recipe("ema.decay=0.9", "schedule.epochs=1"), tmp_path / "run")
    trainer = Trainer(small_recipe("ema.decay=0.9", "schedule.epochs=1"))
    expected = [p.detach().clone() for p in trainer.method.students[0].parameters()]
    for step in range(STEPS):
        trainer.advance()
        decay = min(1 - 1 / (step + 2), 0.9)
        for mean, now in zip(expected, trainer.method.students[0].parameters(), strict=True):
            mean.lerp_(now.detach(), 1 - decay)
    kept = load_trained(run).method.evaluated["student1"]
    for parameter, mean in zip(kept.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter, mean, rtol=1e-5, atol=1e-6)
    assert not torch.equal(next(kept.parameters()), next(trainer.method.students[0].parameters()))


def test_a_run_with_averages_of_the_weights_continues_bit_for_bit(tmp_path: Path) -> None:
    straight = train(small_recipe("ema.decay=0.9"), tmp_path / "straight")
    with pytest.raises(Interrupted):
        train(small_recipe("ema.decay=0.9"), tmp_path / "run", RaisesSignalAt(40))
    assert_equal_runs(resume(tmp_path / "run"), straight)


def test_the_random_state_of_the_caller_is_untouched(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    train(small_recipe("schedule.epochs=1"), tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)


def test_teachers_and_averages_of_a_stage_begin_with_the_weights_of_the_stage_before() -> None:
    table = small_recipe("schedule.epochs=1", "ema.decay=0.99").model_dump(
        mode="json", exclude_none=True
    )
    table["method"] = {"name": "dual-student+mean-teacher"}
    table["stages"] = [
        {"name": "labels", "method": {"name": "supervised", "students": 2}},
        {"name": "both"},
    ]
    trainer = Trainer(validate(table, "of a test"))
    for _ in range(5):
        trainer.advance()
    last = trainer.recipe.split_stages()[-1]
    method = build_method(last, trainer.data, trainer.method)
    expected = flatten(trainer.method.students[1])
    for name in ("student2", "teacher2"):
        assert torch.equal(flatten(method.evaluated[name]), expected)
    assert torch.equal(flatten(method.students[1]), expected)


def test_a_mistake_in_a_later_stage_shows_before_any_training() -> None:
    table = small_recipe("schedule.epochs=1").model_dump(mode="json", exclude_none=True)
    table["method"] = {"name": "pi+fastswa", "average_from": 5}
    table["stages"] = [{"name": "labels", "method": {"name": "supervised"}}, {"name": "average"}]
    with pytest.raises(UserError, match="average_from"):
        Trainer(validate(table, "of a test"))


@pytest.mark.parametrize(
    ("method", "first", "told"),
    [
        ("dual-student", 1, "initial state"),
        ("pi", 2, "has 1 .* before 2: the others are no longer"),
    ],
)
def test_a_student_without_a_predecessor_or_successor_is_a_warning(
    method: str, first: int, told: str
) -> None:
    table = small_recipe("schedule.epochs=1").model_dump(mode="json", exclude_none=True)
    labels = {"name": "labels", "method": {"name": "supervised", "students": first}}
    table |= {"method": {"name": method}, "stages": [labels, {"name": "both"}]}
    with pytest.warns(UserWarning, match=told):
        Trainer(validate(table, "of a test"))


def test_data_prepared_for_other_views_count_as_handed_over() -> None:
    recipe = small_recipe()
    other = prepare(recipe.data, recipe.seed)  # without the transforms of the recipe
    assert Trainer(recipe, other).recipe.data.source is None
    same = prepare(recipe.data, recipe.seed, recipe.transforms, recipe.normalization)
    assert Trainer(recipe, same).recipe == recipe
