"""The shares of the classes among unlabeled images, estimated from a few labels."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dualstudent import DataSettings, prepare
from dualstudent.trunks.shares import ClassShares, estimate_image_shares, estimate_shares

CLASSES, LABELED = 4, 25
UNEVEN = (0.55, 0.25, 0.15, 0.05)


def draw(
    shares: Sequence[float], apart: float, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Clouds, one per class: 25 labeled samples of each, and 1,200 others by their shares."""
    generator = np.random.default_rng(seed)
    counts = (np.array(shares) * 1200).round().astype(int)
    truth = np.concatenate([np.repeat(np.arange(CLASSES), LABELED), np.repeat(range(4), counts)])
    centers = apart * np.eye(CLASSES, 6)
    vectors = centers[truth] + generator.normal(size=(len(truth), 6))
    labels = np.where(np.arange(len(truth)) < CLASSES * LABELED, truth, -1)
    return vectors.astype(np.float32), labels


def estimate(shares: Sequence[float], apart: float, seed: int = 0) -> ClassShares:
    found = estimate_shares(*draw(shares, apart, seed), CLASSES)
    assert found is not None
    return found


@pytest.mark.parametrize("shares", [(0.25,) * 4, UNEVEN])
def test_shares_are_found_by_a_classifier_that_is_often_wrong(shares: tuple[float, ...]) -> None:
    vectors, labels = draw(shares, apart=2.5)
    found = estimate(shares, apart=2.5)
    assert np.abs(found.shares - shares).max() < 0.08
    # Counting the answers of the nearest center is further off: it confuses a quarter.
    centers = np.stack([vectors[labels == k].mean(axis=0) for k in range(CLASSES)])
    answers = np.linalg.norm(vectors[labels < 0, None] - centers, axis=2).argmin(axis=1)
    counted = np.bincount(answers) / len(answers)
    if shares == UNEVEN:
        assert np.abs(found.shares - shares).sum() < np.abs(counted - shares).sum()


def test_even_shares_are_told_from_uneven_ones() -> None:
    for seed in range(5):
        assert estimate((0.25,) * 4, apart=4, seed=seed).trusted == ()
        uneven = estimate(UNEVEN, apart=4, seed=seed).trusted
        assert uneven is not None
        assert np.argsort(uneven).tolist() == [3, 2, 1, 0]


def test_labels_that_tell_nothing_are_not_trusted() -> None:
    for seed in range(5):
        assert estimate(UNEVEN, apart=0.2, seed=seed).trusted is None


def test_the_deviation_is_about_the_error_that_other_labels_would_give() -> None:
    found = [estimate(UNEVEN, apart=2.5, seed=seed) for seed in range(8)]
    errors = [np.abs(each.shares - UNEVEN).sum() / 2 for each in found]
    assert 0.4 < np.mean([each.deviation for each in found]) / np.mean(errors) < 2.5


def test_a_class_needs_two_labels_and_some_images_none() -> None:
    vectors, labels = draw(UNEVEN, apart=4)
    assert estimate_shares(vectors[labels >= 0], labels[labels >= 0], CLASSES) is None
    single = np.where(labels == 3, -1, labels)
    single[np.flatnonzero(labels == 3)[0]] = 3
    assert estimate_shares(vectors, single, CLASSES) is None
    # Without reading a single image.
    assert estimate_image_shares(pytest.fail, torch.from_numpy(single), CLASSES) is None


@pytest.mark.parametrize("ratio", [1, 12])
def test_real_digits_are_counted(ratio: int) -> None:
    data = prepare(DataSettings(source="mnist-5k", labels="all"), seed=0)
    counts = (300 * np.geomspace(1, 1 / ratio, 10)).round().astype(int)
    rows = [torch.nonzero(data.labels == k)[: 10 + n, 0] for k, n in enumerate(counts)]
    labels = torch.cat([torch.tensor([k] * 10 + [-1] * n) for k, n in enumerate(counts)])
    positions = torch.cat(rows)

    def read(wanted: torch.Tensor) -> torch.Tensor:
        pixels = data.train.read_pixels(positions[wanted])
        assert pixels is not None
        return pixels

    found = estimate_image_shares(read, labels, classes=10)
    assert found is not None
    assert found.trusted is not None
    assert found.is_even == (ratio == 1)
    assert np.abs(found.shares - counts / counts.sum()).sum() / 2 < 0.15
