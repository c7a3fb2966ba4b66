"""Baselines on points whose classes are known by construction."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dualstudent import UserError, prepare
from dualstudent.experiments.baselines import (
    BASELINES,
    _read_samples,
    measure_baselines,
    predict,
)
from dualstudent.experiments.comparison import plan_comparison
from dualstudent.experiments.request import ComparisonRequest
from tests.support.digit_files import write_digits
from tests.support.recipes import SMALL, small_recipe


def make_rings(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points near two circles around the origin, of radius 1 and 3: class 0 and 1."""
    random = np.random.default_rng(seed)
    classes = np.arange(count) % 2
    angles = random.uniform(0, 2 * np.pi, count)
    radius = np.where(classes == 0, 1, 3) + random.normal(0, 0.1, count)
    points = np.stack([radius * np.cos(angles), radius * np.sin(angles)], axis=1)
    return points.astype(np.float32), classes


@pytest.mark.parametrize("name", BASELINES)
def test_separate_groups_are_told_apart_by_all(name: str) -> None:
    random = np.random.default_rng(0)
    classes = np.arange(90) % 3
    points = (10 * np.eye(3)[classes] + random.normal(size=(90, 3))).astype(np.float32)
    labels = np.where(np.arange(90) < 6, classes, -1)
    found = predict(name, points, labels, points)
    np.testing.assert_array_equal(found, classes)
    np.testing.assert_array_equal(predict(name, points, labels, points), found)


def test_only_semi_supervised_ones_learn_from_unlabeled_points() -> None:
    training, classes = make_rings(400, seed=0)
    test, truth = make_rings(200, seed=1)
    labels = np.where(np.arange(400) < 20, classes, -1)
    assert (predict("label spreading", training, labels, test) == truth).mean() > 0.95  # 1.0
    alone = predict("logistic regression", training[:20], labels[:20], test)
    np.testing.assert_array_equal(predict("logistic regression", training, labels, test), alone)
    assert (alone == truth).mean() < 0.9  # no line separates rings; 0.53


def test_images_are_pixels_between_0_and_1_with_the_labels_of_the_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dualstudent.trunks.baselines.MOST_UNLABELED", 70)
    monkeypatch.setattr("dualstudent.experiments.baselines._PIECE", 32)
    data = prepare(small_recipe("data.labels=20").data, seed=3)
    training, labels, test = _read_samples(data, seed=3)
    assert training.shape == (20 + 70, 64)
    assert (labels[:20] == data.labels[data.labeled].numpy()).all()
    assert (labels[20:] == -1).all()
    pixels = data.train.read_pixels(data.labeled)
    clean = data.test.read_pixels(torch.arange(len(data.test)))
    assert pixels is not None
    assert clean is not None
    np.testing.assert_allclose(training[:20], pixels.reshape(20, 64).numpy() / 255, rtol=1e-6)
    np.testing.assert_allclose(test, clean.reshape(-1, 64).numpy() / 255, rtol=1e-6)
    again, *_ = _read_samples(data, seed=3)
    np.testing.assert_array_equal(training, again)


def test_large_images_are_made_smaller() -> None:
    data = prepare(small_recipe("data.image_size=40", "data.images=100").data, seed=0)
    training, _, _ = _read_samples(data, seed=0)
    assert training.shape == (100, 32 * 32)


def test_what_was_measured_is_kept_only_for_the_same_images_and_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))
    digits = write_digits(tmp_path / "digits", labeled=4, unlabeled=40, test=20)
    request = ComparisonRequest(
        ("supervised",), data=digits, labels=(20,), seeds=1, out=tmp_path / "out"
    )
    comparison = plan_comparison(request)
    first = measure_baselines(comparison)
    with monkeypatch.context() as patch:
        patch.delattr("dualstudent.experiments.baselines.predict")
        assert measure_baselines(comparison) == first  # nothing is measured again

    image = next((digits / "test" / "7").iterdir())
    image.rename(digits / "test" / "8" / image.name)  # a corrected label
    with pytest.raises(UserError, match=r"logistic-regression-20-draw0\.json: .*out/baselines to"):
        measure_baselines(comparison)

    for file in (tmp_path / "out" / "baselines").iterdir():  # as an earlier version wrote it
        kept = json.loads(file.read_text()) | {"error": -1.0}
        del kept["data"]
        file.write_text(json.dumps(kept))
    anew = measure_baselines(comparison)
    assert all(record["error"] >= 0 for cell in anew.values() for record in cell)
    assert measure_baselines(comparison) == anew


def test_published_data_may_be_gone_when_all_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = ComparisonRequest(
        ("supervised",), "digits", labels=(20,), seeds=1, changes=SMALL, out=tmp_path / "out"
    )
    comparison = plan_comparison(request)
    first = measure_baselines(comparison)
    monkeypatch.delattr("dualstudent.experiments.baselines.prepare")
    assert measure_baselines(comparison) == first
    assert {key for cell in first.values() for record in cell for key in record} == {
        *("method", "labels", "split_seed", "seed", "error", "seconds", "steps", "epochs", "run")
    }
