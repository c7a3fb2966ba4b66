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


def refuse(positions: torch.Tensor) -> torch.Tensor:
    raise AssertionError(positions)


@pytest.mark.parametrize("shares", [(0.25,) * 4, UNEVEN])
def test_shares_are_found_by_a_classifier_that_is_often_wrong(shares: tuple[float, ...]) -> None:
    assert np.abs(estimate(shares, apart=2.5).shares - shares).max() < 0.08


def test_they_are_nearer_than_the_answers_themselves() -> None:
    vectors, labels = draw(UNEVEN, apart=2.5)
    centers = np.stack([vectors[labels == k].mean(axis=0) for k in range(CLASSES)])
    answers = np.linalg.norm(vectors[labels < 0, None] - centers, axis=2).argmin(axis=1)
    counted = np.bincount(answers) / len(answers)  # a quarter is confused
    found = estimate(UNEVEN, apart=2.5).shares
    assert np.abs(found - UNEVEN).sum() < np.abs(counted - UNEVEN).sum()


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


def test_two_even_classes_with_few_labels_are_rarely_taken_for_uneven() -> None:
    generator = np.random.default_rng(0)
    taken = []
    for seed in range(30):
        truth = np.repeat([0, 1], 158)
        vectors = generator.normal(size=(316, 6)) + 2.5 * np.eye(2, 6)[truth]
        labels = np.where(np.arange(316) % 158 < 8, truth, -1)
        found = estimate_shares(vectors.astype(np.float32), labels, 2, seed)
        assert found is not None
        taken.append(bool(found.trusted))
    assert np.mean(taken) < 0.2


def test_no_class_is_ruled_out_even_if_none_of_it_is_found() -> None:
    found = estimate((0.5, 0.5, 0, 0), apart=12)
    assert found.trusted is not None
    assert min(found.trusted) > 0


def test_few_labels_few_images_many_classes_or_nothing_to_see_give_no_estimate() -> None:
    vectors, labels = draw(UNEVEN, apart=4)
    assert estimate_shares(vectors[:199], labels[:199], CLASSES) is None
    assert estimate_shares(vectors, labels, classes=101) is None
    assert estimate_shares(np.zeros_like(vectors), labels, CLASSES) is None
    few = labels.copy()
    few[np.flatnonzero(labels == 3)[7:]] = -1
    assert estimate_shares(vectors, few, CLASSES) is None
    # Without reading a single image.
    assert estimate_image_shares(refuse, torch.from_numpy(few), CLASSES) is None


@pytest.mark.parametrize(("height", "width"), [(6, 6), (8, 64)])
def test_images_without_a_whole_patch_give_no_estimate(height: int, width: int) -> None:
    def read(positions: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(positions), 1, height, width, dtype=torch.uint8)

    labels = torch.tensor([0] * 8 + [1] * 8 + [-1] * 100)
    assert estimate_image_shares(read, labels, classes=2) is None


@pytest.mark.parametrize("seed", [0, 2**40])
def test_labels_of_a_frequent_class_do_not_crowd_out_those_of_others(seed: int) -> None:
    asked: list[torch.Tensor] = []

    def read(positions: torch.Tensor) -> torch.Tensor:
        asked.append(positions)
        noise = torch.Generator().manual_seed(len(asked))
        return torch.randint(256, (len(positions), 1, 9, 9), generator=noise, dtype=torch.uint8)

    labels = torch.tensor([0] * 5000 + [1] * 8 + [-1] * 3000)
    assert estimate_image_shares(read, labels, classes=2, seed=seed) is not None
    seen = labels[torch.cat(asked)]
    assert (seen + 1).bincount().tolist() == [1000, 500, 8]


@pytest.mark.slow
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
