from dataclasses import replace
from typing import Any

import pytest

from dualstudent.data.check import DataCheck
from dualstudent.recipes.choosing import choose_recipe
from dualstudent.recipes.reading import merged, validated
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
    is_grey=False,
    size=32,
    findings=(),
)


def chosen(cuda: bool = False, **changes: Any) -> Recipe:
    table = choose_recipe(replace(CHECK, **changes), cuda).table
    return validated(merged(table, {"data": {"path": "photos"}}), "chosen")


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
def test_image_size(typical: int, on_a_cpu: int, on_a_gpu: int) -> None:
    assert chosen(typical=typical).data.image_size == on_a_cpu
    assert chosen(typical=typical, cuda=True).data.image_size == on_a_gpu


@pytest.mark.parametrize(
    ("typical", "grey", "cuda", "network"),
    [
        (28, True, False, "digits-cnn"),
        (28, True, True, "digits-cnn"),
        (28, False, False, "quick-cnn"),
        (480, True, False, "quick-cnn"),
        (32, False, True, "cnn13"),
        (480, False, True, "resnext50"),
    ],
)
def test_network_and_channels(typical: int, grey: bool, cuda: bool, network: str) -> None:
    recipe = chosen(typical=typical, is_grey=grey, cuda=cuda)
    assert (recipe.network.name, recipe.data.channels) == (network, 1 if grey else 3)


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


def test_views_are_not_mirrored_and_labels_do_not_drown() -> None:
    recipe = chosen()
    assert not recipe.augmentation.flip
    assert recipe.method.model_dump()["classification_average"] == "labeled"
