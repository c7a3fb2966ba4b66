from dataclasses import replace
from typing import Any

import pytest
import torch

from dualstudent.data.images.check import DataCheck
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
        (28, True, False, "digits-cnn"),
        (28, True, True, "digits-cnn"),
        (28, False, False, "quick-cnn"),
        (64, True, False, "quick-cnn"),
        (32, False, True, "cnn13"),
        (224, False, True, "resnext50"),
    ],
)
def test_network_and_channels(size: int, gray: bool, cuda: bool, network: str) -> None:
    recipe = chosen(size=size, is_gray=gray, cuda=cuda)
    assert (recipe.network.name, recipe.data.channels) == (network, 1 if gray else 3)


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
    ("wanted", "network", "translate", "noise"),
    [
        ({"image_size": 28}, "quick-cnn", 2, 0.0),
        ({"image_size": 28, "channels": 1}, "digits-cnn", 2, 0.15),
        ({"channels": 1}, "quick-cnn", 5, 0.15),
        ({"image_size": 200}, "quick-cnn", 16, 0.0),
    ],
)
def test_the_choice_starts_from_what_is_set(
    wanted: dict[str, Any], network: str, translate: int, noise: float
) -> None:
    choice = choose_recipe(CHECK, cuda=False, wanted={"data": wanted})
    recipe = validate(merge(choice.table, {"data": {"path": "photos"}}), "chosen")
    assert recipe.network.name == network
    assert (recipe.transforms.weak.translate, recipe.transforms.weak.noise) == (translate, noise)
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
    assert table["schedule"] == {"epochs": 200, "rampup_epochs": 50}
    assert table["evaluation"]["every"] == 10


def test_views_are_not_mirrored_and_labels_have_enough_weight() -> None:
    recipe = chosen()
    assert not recipe.transforms.weak.flip
    assert recipe.method.model_dump()["classification_average"] == "labeled"


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
