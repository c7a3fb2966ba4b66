"""Cross-validation over the labels of data whose classes are known by construction."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent import PreparedData, Recipe, load_recipe, prepare_arrays
from dualstudent.optimization.schedules import CyclicSchedule
from dualstudent.signals import Interrupted
from dualstudent.training.crossvalidation import (
    LABELS_ALONE,
    ON_FEATURES,
    Plan,
    compare_by_folds,
    cross_validate,
    hide_labels,
    plan_folds,
    shorten,
    split_folds,
    train_by,
)
from dualstudent.training.measured import find_interval
from dualstudent.training.on_features import cross_validate_baselines
from dualstudent.trunks.baselines import BASELINES, predict_baseline

CHANGES = (
    *("network.name=mlp", "network.hidden=[8]", "method.name=pi", "schedule.epochs=8"),
    *("schedule.rampup_epochs=1", "batch.size=16", "batch.labeled=6"),
)


def make_data(labels: list[int]) -> PreparedData:
    """Separate groups of vectors: those with labels, then 40 without."""
    truth = np.array(labels + [0, 1, 2, 0] * 10)
    noise = np.random.default_rng(0).normal(size=(len(truth), 6))
    vectors = (6 * np.eye(6)[truth] + noise).astype(np.float32)
    data = prepare_arrays(vectors, np.array(labels + [-1] * 40))
    return replace(data, unlabeled=torch.arange(len(labels), len(truth)))


def make_recipe() -> Recipe:
    return load_recipe("demo", CHANGES)


THREE_PARTS = Plan(parts=3, hidden=3, shorter=3)


DAMAGED_ANSWERS = ("null", '"x"', "[[0.5]]", "[[1, 2], [3]]", '{"a": 1}')


def make_pair() -> dict[str, Recipe]:
    """Twice the same, of 3 epochs."""
    short = shorten(make_recipe(), THREE_PARTS)
    return {"pi": short, LABELS_ALONE: short}


@pytest.mark.parametrize("seed", range(5))
def test_folds_have_their_share_of_every_class(seed: int) -> None:
    labels = torch.tensor([0] * 12 + [1] * 5 + [2] * 2 + [3])
    folds = split_folds(labels, np.arange(20), seed)
    assert set(folds[:19]) == set(range(5))
    assert folds[19] == -1  # nothing would be left to learn this class from
    assert sorted(np.bincount(folds[:12])) == [2, 2, 2, 3, 3]
    assert sorted(folds[12:17]) == [0, 1, 2, 3, 4]
    assert folds[17] != folds[18]
    assert (split_folds(labels, np.arange(20), seed) == folds).all()


def test_there_are_no_more_folds_than_labels_of_the_largest_class() -> None:
    assert set(split_folds(torch.tensor([0, 0, 1, 1, 1]), np.arange(5), 0)) == {0, 1, 2}
    assert split_folds(torch.tensor([0, 1, 2]), np.arange(3), 0).tolist() == [-1, -1, -1]


def test_copies_of_an_image_are_hidden_together() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    folds = split_folds(labels, np.array([4, 4, 1, 2, 3, 9, 9]), 0)
    assert folds[0] == folds[1] != folds[2]
    assert (folds[5:] == -1).all()  # two labels, but one image


def test_a_hidden_label_is_predicted_without_it() -> None:
    data = make_data([0, 0, 1, 1, 2])
    data = replace(data, unlabeled=torch.cat([torch.tensor([1]), data.unlabeled]))
    seen = []

    def answer(left: PreparedData, asked: Tensor) -> NDArray[np.float64]:
        assert (left.labels[asked] == -1).all()
        assert not torch.isin(left.labeled, asked).any()
        assert torch.isin(asked, left.unlabeled).all()
        assert len(set(left.unlabeled.tolist())) == len(left.unlabeled)  # 1 is not there twice
        assert set(left.unlabeled.tolist()) == {*data.unlabeled.tolist(), *asked.tolist()}
        seen.extend(asked.tolist())
        answers: NDArray[np.float64] = np.eye(3)[asked.numpy() % 3]
        return answers

    found = cross_validate(data, np.array([1, 0, 0, 1, -1]), answer)
    assert sorted(seen) == [0, 1, 2, 3]
    np.testing.assert_array_equal(found[:4], np.eye(3)[[0, 1, 2, 0]])
    assert np.isnan(found[4]).all()
    assert (data.labels[:5] >= 0).all()  # the data of the run are as they were


def test_hidden_images_are_left_out_if_all_have_labels() -> None:
    data = make_data([0, 1, 2] * 4)
    labeled = torch.arange(12)
    full = replace(data, labeled=labeled, unlabeled=labeled)
    left = hide_labels(full, torch.tensor([0, 5]))
    assert left.fully_labeled
    assert left.labeled.tolist() == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    recipe = load_recipe("demo", [*CHANGES, "batch.size=12", "batch.labeled=12"])
    answer = train_by(shorten(recipe, THREE_PARTS))
    assert answer(left, torch.tensor([0, 5])).shape == (2, 3)  # a batch of 10, not of 12


def test_all_are_compared_on_the_same_labels() -> None:
    data = make_data([0, 0, 1, 1, 1, 2])
    told = list[tuple[int, int]]()
    found = compare_by_folds(
        data, make_pair(), THREE_PARTS, on_step=lambda done, total: told.append((done, total))
    )
    assert found is not None
    steps = 40 // 10  # per epoch
    assert len(told) == 1 + 18 * steps
    assert list(dict.fromkeys(told)) == [(done, 18) for done in range(19)]  # 2 × 3 parts, 3 epochs
    shown = found.measure(make_recipe())
    assert (shown.part, shown.images, shown.folds) == ("cross-validation", 5, 3)
    assert (shown.shorter, shown.never_hidden) == (3, (data.classes[2],))
    assert list(shown.rows) == ["pi", LABELS_ALONE]
    np.testing.assert_array_equal(found.errors["pi"], found.errors[LABELS_ALONE])
    for name, errors in found.errors.items():
        assert shown.rows[name].error == pytest.approx(100 * errors.mean())
        assert errors.shape == (5,)
    assert "by trainings a third as long" in shown.describe()[0]
    assert f"have a single labeled image: {data.classes[2]}." in shown.describe()[1]


def test_baselines_are_compared_on_the_same_labels() -> None:
    recipe = {"pi": make_pair()["pi"]}
    data = make_data([0, 0, 1, 1, 1, 2])
    found = compare_by_folds(data, recipe, ON_FEATURES, baselines=True)
    assert found is not None
    assert list(found.errors)[1:] == list(BASELINES)
    for name in BASELINES:
        assert found.errors[name].tolist() == [0] * 5  # the groups are far apart


@pytest.mark.parametrize(
    ("change", "warmup"),
    [("schedule.warmup_epochs=2", 1.25), ("schedule.warmup_epochs=0.5", 0.5)],
)
def test_short_trainings_warm_up_for_as_many_steps(change: str, warmup: float) -> None:
    changes = ("schedule.epochs=15", "schedule.warmup_from=0", change)
    recipe = load_recipe("demo", [*CHANGES, *changes])
    short = shorten(recipe, THREE_PARTS).schedule
    assert (short.epochs, short.warmup_epochs) == (5, warmup)  # a quarter at most
    assert short.rampup_epochs == pytest.approx(recipe.schedule.rampup_epochs / 3)


def test_what_a_method_averages_gets_shorter_as_well() -> None:
    changes = ("method.name=pi+fastswa", "method.average_from=6", "method.average_every=1")
    recipe = load_recipe("demo", [*CHANGES, *changes])
    found = compare_by_folds(
        make_data([0, 0, 1, 1, 2]), {"pi": shorten(recipe, THREE_PARTS)}, THREE_PARTS
    )
    assert found is not None
    assert found.errors["pi"].shape == (4,)


def test_a_recipe_that_asks_for_its_length_keeps_it() -> None:
    recipe = make_recipe()
    averaging = load_recipe("demo", [*CHANGES, "method.name=pi+fastswa", "schedule.epochs=3"])
    assert shorten(averaging, THREE_PARTS).epochs == 3  # of one there would be nothing to average
    cyclic = CyclicSchedule(epochs=8, cosine_epochs=8, cycle_from=4, cycle_length=2)
    assert shorten(recipe.model_copy(update={"schedule": cyclic}), THREE_PARTS).epochs == 8


def test_baselines_answer_as_if_hidden_labels_had_never_been_given() -> None:
    data = make_data([0, 0, 1, 1, 2])
    found = cross_validate_baselines(data, np.array([1, 0, 0, 1, -1]), seed=0)
    (vectors,) = data.train.make_views(torch.arange(45), [None])
    for name, answers in found.items():
        known = np.array([-1, 0, 1, -1, 2] + [-1] * 40)
        alone = predict_baseline(name, vectors.numpy(), known, vectors[[0, 3]].numpy(), 3)
        np.testing.assert_allclose(answers[[0, 3]], alone, atol=1e-6)
        assert np.isnan(answers[4]).all()


def test_baselines_never_see_hidden_images_if_all_have_labels() -> None:
    data = make_data([0, 1, 2] * 8)
    data = replace(data, labeled=torch.arange(24), unlabeled=torch.arange(24))
    folds = np.arange(24) % 2
    found = cross_validate_baselines(data, folds, seed=0)
    (vectors,) = data.train.make_views(torch.arange(24), [None])
    seen, hidden = vectors[::2].numpy(), vectors[1::2].numpy()
    for name, answers in found.items():
        alone = predict_baseline(name, seen, data.labels[:24:2].numpy(), hidden, 3)
        np.testing.assert_allclose(answers[1::2], alone, atol=1e-6)


def test_without_two_labels_of_a_class_there_is_nothing_to_hide() -> None:
    assert compare_by_folds(make_data([0, 1, 2]), make_pair(), THREE_PARTS) is None


def test_a_stop_ends_it_before_the_next_step() -> None:
    """Not only after an epoch: it would be too late for whoever stops it."""
    told = []

    def stop(done: int, total: int) -> None:
        told.append(done)
        if len(told) == 3:
            raise Interrupted(2, f"{done} of {total}", "again")

    with pytest.raises(Interrupted, match="0 of 18"):
        compare_by_folds(make_data([0, 0, 0, 1, 1, 2]), make_pair(), THREE_PARTS, on_step=stop)


def stop_at(epoch: int) -> Callable[[int, int], None]:
    def on_step(done: int, total: int) -> None:
        if done == epoch:
            raise Interrupted(2, f"{done} of {total}", "again")

    return on_step


@pytest.mark.parametrize(
    "damage", ["", "{", "[]", *(f'{{"KEY": {text}}}' for text in DAMAGED_ANSWERS)]
)
def test_what_was_answered_before_a_stop_is_not_learned_again(damage: str, tmp_path: Path) -> None:
    data, pair, file = make_data([0, 0, 1, 1, 2]), make_pair(), tmp_path / "answers.json"
    with pytest.raises(Interrupted, match="5 of 12"):  # of 3 epochs for each of 2 parts, twice
        compare_by_folds(data, pair, THREE_PARTS, on_step=stop_at(5), file=file)
    if damage:
        file.write_text(damage.replace("KEY", next(iter(json.loads(file.read_text())))))
    told = []
    again = compare_by_folds(
        data, pair, THREE_PARTS, on_step=lambda done, _: told.append(done), file=file
    )
    assert list(dict.fromkeys(told)) == ([*range(13)] if damage else [0, *range(3, 13)])
    whole = compare_by_folds(data, pair, THREE_PARTS)
    assert again is not None
    assert whole is not None
    for name, errors in whole.errors.items():
        np.testing.assert_array_equal(again.errors[name], errors)


def test_where_test_images_measure_a_third_of_the_labels_chooses() -> None:
    recipe, data = make_recipe(), make_data([0, 0, 0, 1, 1, 1, 2, 2, 2])
    tested = replace(data, test=data.train, test_labels=data.labels)
    for given, images, parts in ((tested, 3, 1), (data, 9, 3)):
        plan = plan_folds(recipe, given)
        found = compare_by_folds(given, {"pi": shorten(recipe, plan)}, plan)
        assert found is not None
        assert found.errors["pi"].shape == (images,)
        assert (found.parts, found.never_hidden) == (parts, ())


@pytest.mark.parametrize(("share", "count"), [(0.0, 20), (0.3, 50), (1.0, 7)])
def test_the_ends_of_the_interval_are_196_standard_errors_away(share: float, count: int) -> None:
    """Wilson: those p for which |share − p| = 1.96 √(p (1 − p) / n), found by bisection."""
    for end, outer in zip(find_interval(share, count), (0.0, 1.0), strict=True):
        if end == outer == share:
            continue
        inside, outside = share, outer
        for _ in range(60):
            middle = (inside + outside) / 2
            near = abs(share - middle) <= 1.96 * np.sqrt(middle * (1 - middle) / count)
            inside, outside = (middle, outside) if near else (inside, middle)
        assert end == pytest.approx(inside, abs=1e-6)
