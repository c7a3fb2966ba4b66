"""Cross-validation over the labels of data whose classes are known by construction."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent import PreparedData, Recipe, load_recipe, prepare_arrays
from dualstudent.signals import Interrupted
from dualstudent.training.crossvalidation import (
    compare_by_folds,
    cross_validate,
    hide_labels,
    split_folds,
    train_by,
)
from dualstudent.training.measured import find_interval
from dualstudent.training.on_features import cross_validate_baselines
from dualstudent.trunks.baselines import predict_baseline

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
    answer, _ = train_by(recipe, epochs=2)
    assert answer(left, torch.tensor([0, 5])).shape == (2, 3)  # a batch of 10, not of 12


def test_all_are_compared_on_the_same_labels() -> None:
    data = make_data([0, 0, 1, 1, 1, 2])
    told = list[tuple[int, int]]()
    recipe = make_recipe()
    found = compare_by_folds(
        data, recipe, recipe, on_epoch=lambda done, total: told.append((done, total))
    )
    assert found is not None
    shown = found.measured
    assert told == [(done, 18) for done in range(19)]  # 2 recipes, 3 folds, 3 of 8 epochs
    assert (shown.part, shown.images, shown.folds) == ("cross-validation", 5, 3)
    assert list(shown.never_hidden) == [data.classes[2]]
    assert list(shown.rows) == ["pi", "labels alone"]  # baselines are for features
    np.testing.assert_array_equal(found.errors["pi"], found.errors["labels alone"])
    for name, errors in found.errors.items():
        assert shown.rows[name].error == pytest.approx(100 * errors.mean())
        assert errors.shape == (5,)
    assert f"have a single labeled image: {data.classes[2]}." in shown.describe()[1]


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
    assert compare_by_folds(make_data([0, 1, 2]), make_recipe()) is None


def test_a_stop_ends_it() -> None:
    with pytest.raises(Interrupted, match="1 of 6"):
        compare_by_folds(make_data([0, 0, 1, 1, 2]), make_recipe(), on_epoch=stop_at(1))


def stop_at(epoch: int) -> Callable[[int, int], None]:
    def on_epoch(done: int, total: int) -> None:
        if done == epoch:
            raise Interrupted(2, f"{done} of {total}", "again")

    return on_epoch


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"pi, labels hidden: [1, 2]": [[0.5]]}'])
def test_what_was_answered_before_a_stop_is_not_learned_again(damage: str, tmp_path: Path) -> None:
    data, recipe, file = make_data([0, 0, 1, 1, 2]), make_recipe(), tmp_path / "answers.json"
    with pytest.raises(Interrupted, match="5 of 12"):  # of 3 epochs for each of 2 parts, twice
        compare_by_folds(data, recipe, recipe, stop_at(5), file)
    if damage:
        file.write_text(damage)
    told = []
    again = compare_by_folds(data, recipe, recipe, lambda done, _: told.append(done), file)
    assert told == ([*range(13)] if damage else [0, *range(3, 13)])
    whole = compare_by_folds(data, recipe, recipe)
    assert again is not None
    assert whole is not None
    assert again.measured == whole.measured
    for name, errors in whole.errors.items():
        np.testing.assert_array_equal(again.errors[name], errors)


def test_where_test_images_measure_a_third_of_the_labels_chooses() -> None:
    data = make_data([0, 0, 0, 1, 1, 1, 2, 2, 2])
    tested = replace(data, test=data.train, test_labels=data.labels)
    found, whole = (compare_by_folds(each, make_recipe()) for each in (tested, data))
    assert found is not None
    assert whole is not None
    assert (found.measured.images, whole.measured.images) == (3, 9)


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
