from dataclasses import replace
from typing import Any

import pytest
import torch

from dualstudent import Transform, UserError
from dualstudent.data.images.check import DataCheck
from dualstudent.networks.build import build_network
from dualstudent.networks.quick_cnn import QuickCNNSettings
from dualstudent.networks.whitened_cnn import WhitenedCNNSettings
from dualstudent.recipes.chooser import (
    choose_form,
    choose_recipe,
    complete_recipe,
    validate_request,
)
from dualstudent.recipes.reading import merge, validate
from dualstudent.recipes.schema import Recipe

CHECK = DataCheck(
    name="photos",
    labeled={"cat": 40, "dog": 60},
    test={"cat": 0, "dog": 0},
    unlabeled=5_000,
    unreadable=0,
    smallest=(100, 100),
    largest=(3000, 4000),
    typical=480,
    is_gray=False,
    size=64,
    findings=(),
)


def chosen(cuda: bool = False, **changes: Any) -> Recipe:
    table = choose_recipe(replace(CHECK, **changes), cuda).table
    return validate(merge(table, {"data": {"path": "photos"}}), "chosen")


def completed(*changes: str) -> Recipe:
    wanted = [*changes, "device.accelerator=cpu"]
    return complete_recipe(validate_request({"path": "photos"}, wanted), CHECK, wanted)[0]


@pytest.mark.parametrize(
    ("typical", "on_a_cpu", "on_a_gpu"),
    [
        (8, 16, 16),
        (28, 28, 28),
        (31, 32, 32),
        (33, 32, 32),
        (100, 64, 64),
        (200, 64, 128),
        (480, 64, 224),
    ],
)
def test_image_size(
    typical: int, on_a_cpu: int, on_a_gpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cuda, size in ((False, on_a_cpu), (True, on_a_gpu)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        asked = validate_request({"path": "photos"})
        assert choose_form(asked, typical, is_gray=False) == (size, 3)
        check = replace(CHECK, typical=typical, size=size)
        recipe, reasons = complete_recipe(asked, check, [])
        assert recipe.data.image_size == size
        assert f"{typical} pixels" in reasons["data.image_size"]


@pytest.mark.parametrize(
    ("changes", "form"),
    [
        ([], (64, 1)),
        (["data.image_size=100"], (100, 1)),
        (["data.channels=3"], (64, 3)),
        (["data.channels=1"], (64, 1)),
    ],
)
def test_the_form_is_as_it_is_set_else_as_suits_the_images(
    changes: list[str], form: tuple[int, int]
) -> None:
    asked = validate_request({"path": "photos"}, [*changes, "device.accelerator=cpu"])
    assert choose_form(asked, typical=480, is_gray=True) == form


@pytest.mark.parametrize(
    ("size", "gray", "cuda", "network"),
    [
        (16, True, False, "whitened-cnn"),
        (28, True, True, "whitened-cnn"),
        (28, False, False, "whitened-cnn"),
        (64, True, False, "whitened-cnn"),
        (32, False, True, "cnn13"),
        (224, False, True, "resnext50"),
    ],
)
def test_network_and_channels(size: int, gray: bool, cuda: bool, network: str) -> None:
    recipe = chosen(size=size, is_gray=gray, cuda=cuda)
    assert (recipe.network.name, recipe.data.channels) == (network, 1 if gray else 3)


@pytest.mark.parametrize(
    ("size", "gray", "widths"),
    [
        (16, True, (16, 32, 64)),
        (28, False, (32, 64, 128)),
        (47, False, (32, 64, 128)),
        (48, False, (16, 32, 64, 128)),
        (64, True, (16, 32, 64, 128)),
    ],
)
def test_small_gray_images_get_fewer_channels_and_large_ones_a_block_more(
    size: int, gray: bool, widths: tuple[int, ...]
) -> None:
    network = chosen(size=size, is_gray=gray).network
    assert isinstance(network, WhitenedCNNSettings)
    assert network.widths == widths
    build_network(network, 1 if gray else 3, 2, size, seed=0, student=0)  # is large enough


@pytest.mark.parametrize("unlabeled", [0, 7, 96, 500, 5_000, 60_000])
@pytest.mark.parametrize("labels", [5, 200])
def test_batches_can_be_filled_and_steps_are_what_a_cpu_finishes(
    unlabeled: int, labels: int
) -> None:
    recipe = chosen(unlabeled=unlabeled, labeled={"cat": labels, "dog": labels})
    kept = round(2 * labels * (1 - recipe.data.validation))
    size, labeled = recipe.batch.size, recipe.batch.labeled
    samples, each = (unlabeled, size - labeled) if unlabeled else (kept, size)
    assert labeled <= kept
    assert (labeled == size) == (unlabeled == 0)
    assert 1_500 <= samples // each * recipe.schedule.epochs <= 4_000


def test_labels_are_held_out_only_if_there_are_enough_and_no_test() -> None:
    few = {"cat": 10, "dog": 9}
    assert chosen().data.validation == 0.2
    assert chosen(test={"cat": 1, "dog": 0}).data.validation == 0
    assert chosen(labeled=few).data.validation == 0
    reason = choose_recipe(replace(CHECK, labeled=few), cuda=False).reasons["data.validation"]
    assert "19 labels for 2 classes are too few" in reason
    assert "not evaluated" in reason


@pytest.mark.parametrize(
    ("wanted", "widths", "translate"),
    [
        ({"image_size": 28}, (32, 64, 128), 2),
        ({"image_size": 28, "channels": 1}, (16, 32, 64), 2),
        ({"channels": 1}, (16, 32, 64, 128), 4),
        ({"image_size": 200}, (16, 32, 64, 128), 14),
    ],
)
def test_the_choice_starts_from_what_is_set(
    wanted: dict[str, Any], widths: tuple[int, ...], translate: int
) -> None:
    choice = choose_recipe(CHECK, cuda=False, wanted={"data": wanted})
    recipe = validate(merge(choice.table, {"data": {"path": "photos"}}), "chosen")
    assert recipe.network == WhitenedCNNSettings(widths=widths)
    assert recipe.transforms.weak.translate == translate
    for key, value in wanted.items():
        assert getattr(recipe.data, key) == value
        assert choice.reasons[f"data.{key}"] == "as you set it"
    assert "as you set it" not in choice.reasons["network.name"]


def test_a_gpu_gets_the_network_for_the_size_that_is_set() -> None:
    small = choose_recipe(CHECK, cuda=True, wanted={"data": {"image_size": 32}})
    assert small.table["network"]["name"] == "cnn13"


def test_a_validation_part_that_is_set_counts_against_the_labels() -> None:
    few = replace(CHECK, labeled={"cat": 10, "dog": 10})
    half = choose_recipe(few, cuda=False, wanted={"data": {"validation": 0.5}})
    none = choose_recipe(few, cuda=False, wanted={"data": {"validation": 0.0}})
    assert half.table["batch"]["labeled"] == 10
    assert none.table["batch"]["labeled"] == 20
    assert half.reasons["batch.labeled"] == "all 10 labels to train with, in every batch"


@pytest.mark.parametrize(
    ("wanted", "size", "labeled"),
    [({"size": 16}, 16, 4), ({"labeled": 8}, 104, 8), ({"size": 20, "labeled": 10}, 20, 10)],
)
def test_the_rest_of_a_batch_goes_with_what_is_set(
    wanted: dict[str, int], size: int, labeled: int
) -> None:
    choice = choose_recipe(CHECK, cuda=False, wanted={"batch": wanted})
    assert choice.table["batch"] == {"size": size, "labeled": labeled}
    per_epoch, epochs = 5_000 // (size - labeled), choice.table["schedule"]["epochs"]
    assert f"{per_epoch * epochs:,} in all" in choice.reasons["schedule.epochs"]


def test_schedule_and_evaluation_go_with_the_epochs_that_are_set() -> None:
    table = choose_recipe(CHECK, cuda=False, wanted={"schedule": {"epochs": 200}}).table
    warmup = {"warmup_epochs": 1, "warmup_from": 0}
    assert table["schedule"] == {"epochs": 200, "rampup_epochs": 50} | warmup
    assert table["evaluation"]["every"] == 10


def test_no_warm_up_is_longer_than_a_quarter_of_the_training_and_it_can_be_left_out() -> None:
    short = ["schedule.epochs=2"]
    assert completed(*short).schedule.warmup_epochs == 0.5
    assert completed(*short, "schedule.warmup_epochs=1.5").schedule.warmup_from == 0
    assert completed(*short, "schedule.warmup_epochs=0").schedule.warmup_from is None


@pytest.mark.parametrize("harmless", [False, True])
def test_views_are_mirrored_only_where_that_is_harmless(harmless: bool) -> None:
    views = chosen(may_be_mirrored=harmless).transforms
    assert (views.weak.flip, views.strong.flip) == (harmless, harmless)


def test_strong_views_are_changed_far_more_than_weak_ones() -> None:
    recipe = chosen()
    weak, strong = recipe.transforms.weak, recipe.transforms.strong
    assert recipe.method.name == "fixmatch"
    assert weak == Transform(translate=64 // 14)
    assert all((strong.cutout, any(strong.affine), strong.randaugment))


def test_dual_student_has_its_own_weights_and_learns_from_weak_views_that_change_more() -> None:
    recipe = completed("method.name=dual-student", "method.stabilization_weight=50")
    method = recipe.method.model_dump()
    assert (method["consistency_weight"], method["stabilization_weight"]) == (10, 50)
    assert method["confidence_threshold"] == 0.6
    assert method["classification_average"] == "labeled"
    assert recipe.optimizer.learning_rate == 0.1
    assert all(limit > 0 for limit in recipe.transforms.weak.affine)


@pytest.mark.parametrize(
    ("method", "weak"),
    [
        ("freematch", False),
        ("mean-teacher", True),
        ("supervised", True),
    ],
)
def test_only_methods_without_strong_views_change_weak_ones_more(method: str, weak: bool) -> None:
    wanted = [f"method.name={method}"]
    asked = validate_request({"path": "photos"}, wanted)
    recipe, reasons = complete_recipe(asked, CHECK, wanted)
    assert any(recipe.transforms.weak.affine) == weak
    assert ("transforms.weak.affine" in reasons) == weak
    assert ("transforms.strong.randaugment" in reasons) == (not weak)
    assert recipe.method.confidence_threshold == 0.8  # its own default
    assert reasons["method.name"] == "as you set it"


def test_another_network_has_its_own_settings_and_learning_rate() -> None:
    recipe = completed("network.name=quick-cnn")
    assert recipe.network == QuickCNNSettings()
    assert recipe.optimizer.learning_rate == 0.1
    assert completed().optimizer.learning_rate == 0.2
    faster = completed("network.name=quick-cnn", "optimizer.learning_rate=0.3")
    assert faster.optimizer.learning_rate == 0.3


@pytest.mark.parametrize("change", ["method=vat", "network=3", "schedule=3", "network.name.x=3"])
def test_a_section_that_is_no_table_is_refused(change: str) -> None:
    with pytest.raises(UserError, match=change.partition("=")[0].partition(".")[0]):
        validate_request({"path": "photos"}, [change])


def test_copies_of_what_may_be_held_out_are_not_counted_on() -> None:
    few: dict[str, Any] = {"labeled": {"cat": 12, "dog": 12}, "unlabeled": 66}
    batch = chosen(**few, labeled_copies=2, unlabeled_copies=24).batch
    assert (batch.labeled, batch.size - batch.labeled) == (24 - 4 - 2, 66 - 24)
    tested = chosen(**few, unlabeled_copies=24, test={"cat": 5, "dog": 5}).batch
    assert (tested.labeled, tested.size - tested.labeled) == (24, 66)  # nothing is held out


def test_labels_that_are_set_aside_count_as_unlabeled() -> None:
    many = replace(CHECK, labeled={"cat": 50, "dog": 50}, unlabeled=0, test={"cat": 1, "dog": 1})
    few = choose_recipe(many, cuda=False, wanted={"data": {"labels": 20}}).table
    share = choose_recipe(many, cuda=False, wanted={"data": {"labels": "25%"}}).table
    assert few["batch"] == {"size": 20 + 80, "labeled": 20}
    assert share["batch"] == {"size": 24 + 76, "labeled": 24}
