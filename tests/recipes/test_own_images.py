"""Recipes that are chosen for folders of images."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dualstudent import UserError
from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.check import DataCheck
from dualstudent.networks.whitened_cnn import WhitenedCNNSettings
from dualstudent.recipes.own_images import (
    choose_form,
    complete_recipe,
    find_shares,
    locate_images,
    validate_request,
)
from dualstudent.recipes.schema import Recipe
from tests.support.digit_files import write_digits

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


def complete(*changes: str, **found: Any) -> tuple[Recipe, dict[str, str]]:
    wanted = [*changes, "device.accelerator=cpu"]
    asked = validate_request({"path": "photos"}, wanted)
    return complete_recipe(asked, replace(CHECK, **found), wanted)


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
    ("typical", "on_a_cpu", "on_a_gpu"), [(20, 32, 32), (100, 100, 100), (480, 160, 224)]
)
def test_a_pretrained_network_is_fine_tuned(
    typical: int, on_a_cpu: int, on_a_gpu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = ["network.name=efficientnet-lite1", "optimizer.layer_decay=0.9"]
    for cuda, size, blocks in ((False, on_a_cpu, 6), (True, on_a_gpu, None)):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        asked = validate_request({"path": "photos"}, changes)
        assert choose_form(asked, typical, is_gray=False) == (size, 3)
        recipe, reasons = complete_recipe(asked, replace(CHECK, size=size), changes)
        assert (recipe.network.name, recipe.network.batch_norm) == ("efficientnet-lite1", "frozen")
        optimizer = recipe.optimizer
        assert (optimizer.learning_rate, optimizer.trunk_scale) == (0.01, 0.1)
        assert (optimizer.layer_decay, optimizer.trained_blocks) == (0.9, blocks)
        assert reasons["optimizer.layer_decay"] == "as you set it"
        assert ("optimizer.trained_blocks" in reasons) == (not cuda)
        assert not any(recipe.transforms.weak.jitter)  # it knows what colors mean
    steps = recipe.schedule.epochs * (5_000 // 96)
    assert steps == pytest.approx(2_000, rel=0.05)


def test_a_network_with_random_weights_is_not_fine_tuned() -> None:
    recipe, _ = complete("network.name=efficientnet-lite0", "network.weights=random")
    assert recipe.network.batch_norm == "together"
    assert (recipe.optimizer.trunk_scale, recipe.optimizer.trained_blocks) == (1, None)


@pytest.mark.parametrize("gray", [True, False])
def test_channels(gray: bool) -> None:
    recipe, reasons = complete(is_gray=gray)
    assert recipe.data.channels == (1 if gray else 3)
    assert ("gray" in reasons["data.channels"]) == gray


def test_labels_are_held_out_only_if_there_are_enough_and_no_test() -> None:
    assert complete()[0].data.validation == 0.2
    assert complete(test={"cat": 1, "dog": 0})[0].data.validation == 0
    recipe, reasons = complete(labeled={"cat": 10, "dog": 9})
    assert recipe.data.validation == 0
    assert "19 labels for 2 classes are too few to spare any" in reasons["data.validation"]


def test_labels_that_another_run_has_seen_are_not_held_out(tmp_path: Path) -> None:
    start = ("network.name=efficientnet-lite0", f"network.weights={tmp_path}")
    recipe, reasons = complete(*start)
    assert recipe.data.validation == 0
    assert "has seen all labels" in reasons["data.validation"]
    assert complete(*start, "data.validation=0.2")[0].data.validation == 0.2  # as the user wants


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
    recipe, reasons = complete(*(f"data.{key}={value}" for key, value in wanted.items()))
    assert recipe.network == WhitenedCNNSettings(widths=widths)
    assert recipe.transforms.weak.translate == translate
    for key, value in wanted.items():
        assert getattr(recipe.data, key) == value
        assert reasons[f"data.{key}"] == "as you set it"
    assert "as you set it" not in reasons["network.name"]


def test_a_gpu_gets_the_network_for_the_size_that_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    asked = validate_request({"path": "photos"}, ["data.image_size=32"])
    assert complete_recipe(asked, CHECK, ["data.image_size=32"])[0].network.name == "cnn13"


def test_a_validation_part_that_is_set_counts_against_the_labels() -> None:
    few = {"cat": 10, "dog": 10}
    half, reasons = complete("data.validation=0.5", labeled=few)
    none, _ = complete("data.validation=0.0", labeled=few)
    assert (half.batch.labeled, none.batch.labeled) == (10, 20)
    assert reasons["batch.labeled"] == "all 10 labels to train with, in every batch"


def test_copies_of_what_may_be_held_out_are_not_counted_on() -> None:
    few: dict[str, Any] = {"labeled": {"cat": 12, "dog": 12}, "unlabeled": 66}
    batch = complete(**few, labeled_copies=2, unlabeled_copies=24)[0].batch
    assert (batch.labeled, batch.size - batch.labeled) == (24 - 4 - 2, 66 - 24)
    tested = complete(**few, unlabeled_copies=24, test={"cat": 5, "dog": 5})[0].batch
    assert (tested.labeled, tested.size - tested.labeled) == (24, 66)  # nothing is held out


def test_labels_that_are_set_aside_count_as_unlabeled() -> None:
    many: dict[str, Any] = {
        "labeled": {"cat": 50, "dog": 50},
        "unlabeled": 0,
        "test": {"cat": 1, "dog": 1},
    }
    few, share = (complete(f"data.labels={n}", **many)[0].batch for n in (20, "25%"))
    assert (few.size, few.labeled) == (20 + 80, 20)
    assert (share.size, share.labeled) == (24 + 76, 24)


@pytest.mark.parametrize("change", ["method=vat", "network=3", "schedule=3", "network.name.x=3"])
def test_a_section_that_is_no_table_is_refused(change: str) -> None:
    with pytest.raises(UserError, match=change.partition("=")[0].partition(".")[0]):
        validate_request({"path": "photos"}, [change])


def test_the_most_frequent_classes_are_named_where_they_are_uneven() -> None:
    asked = validate_request({"path": "photos"})
    recipe, reasons = complete_recipe(asked, CHECK, [], shares=(0.294, 0.706))
    assert recipe.method.model_dump()["alignment_target"] == (0.294, 0.706)
    assert reasons["method.distribution_alignment"].endswith(": dog (71 %), cat (29 %)")


def test_shares_are_found_where_they_are_of_use(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / "digits", labeled=10, unlabeled=400, test=20)

    def find(*changes: str) -> tuple[float, ...] | None:
        asked = validate_request(locate_images(folder), changes)
        images = decode_images(asked.data.list_images(), 16, 1)
        return find_shares(asked, images, changes)

    assert find() == ()
    assert find("method.distribution_alignment=true") == ()
    for change in (
        "method.distribution_alignment=false",
        "method.alignment_target=uniform",
        "method.name=dual-student",
        "data.labels=50",
        "trunk.name=efficientnet-lite0",
    ):
        assert find(change) is None
