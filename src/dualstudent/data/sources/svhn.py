"""SVHN, the street view house numbers, cropped to 32 × 32 (Netzer et al., 2011)."""

import struct
import zlib
from pathlib import Path

import numpy as np
import torch

from dualstudent.data.datasets import Images
from dualstudent.data.sources.files import (
    PublishedFile,
    fetch,
    raise_damaged,
    refuse,
    warn_if_unpublished,
)
from dualstudent.data.sources.matlab import read_arrays
from dualstudent.data.sources.source import Source

_ADDRESS = "http://ufldl.stanford.edu/housenumbers/"
_FILES = {
    "train": PublishedFile(
        "train_32x32.mat",
        _ADDRESS,
        "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
    ),
    "test": PublishedFile(
        "test_32x32.mat",
        _ADDRESS,
        "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
    ),
    "extra": PublishedFile(
        "extra_32x32.mat",
        _ADDRESS,
        "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3",
    ),
}
_PUBLISHED = {"train": 73_257, "test": 26_032, "extra": 531_131}
_SHAPE = (3, 32, 32)


def load_svhn(part: str, folder: Path) -> Images:
    """Load 73,257 training or 26,032 test digits of 32 × 32 color pixels.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder; missing files are downloaded to ``svhn`` in it.
    """
    return _load(f"svhn {part}", [part], folder)


def load_svhn_extra(part: str, folder: Path) -> Images:
    """Load SVHN with its 531,131 extra digits after the training digits; the test is the same.

    Args:
        part: ``"train"`` or ``"test"``.
        folder: the data folder; missing files are downloaded to ``svhn`` in it.
    """
    return _load(f"svhn-extra {part}", ["train", "extra"] if part == "train" else [part], folder)


def _load(name: str, parts: list[str], folder: Path) -> Images:
    paths = [fetch(_FILES[part], folder / "svhn") for part in parts]
    read = [_read(path) for path in paths]
    labels = np.concatenate([labels for _, labels in read])
    # Into C order: left to itself, concatenate keeps MATLAB's.
    pixels = np.empty((len(labels), *_SHAPE), np.uint8)
    np.concatenate([pixels for pixels, _ in read], out=pixels)
    images = Images(
        name,
        torch.from_numpy(pixels),
        torch.from_numpy(labels),
        tuple(str(digit) for digit in range(10)),
    )
    warn_if_unpublished(
        name,
        [(path, _FILES[part].sha256) for path, part in zip(paths, parts, strict=True)],
        found=len(images),
        expected=sum(_PUBLISHED[part] for part in parts),
    )
    return images


def _read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read pixels (N, 3, 32, 32) uint8, a view of MATLAB's order, and digits (N,) int64."""
    with raise_damaged(
        path, "not a readable MATLAB 5 file", (ValueError, struct.error, zlib.error)
    ):
        arrays = read_arrays(path, {"X", "y"})
    if missing := {"X", "y"} - arrays.keys():
        refuse(path, f"holds no variable {min(missing)} of numbers")
    pixels, labels = arrays["X"], arrays["y"]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        refuse(
            path,
            f"X is {pixels.dtype} of shape {pixels.shape}, SVHN has uint8 of (32, 32, 3, images)",
        )
    if pixels.shape[3] == 0:
        refuse(path, "holds no images")
    if labels.shape != (pixels.shape[3], 1):
        refuse(
            path,
            f"y is {labels.dtype} of shape {labels.shape}, {pixels.shape[3]} images have "
            f"numbers of ({pixels.shape[3]}, 1)",
        )
    if not np.isin(labels, np.arange(1, 11)).all():
        refuse(
            path,
            f"labels {labels.min():g} to {labels.max():g}, SVHN has 1 to 10, and 10 is the digit 0",
        )
    return pixels.transpose(3, 2, 0, 1), labels[:, 0].astype(np.int64) % 10


SOURCES = {
    "svhn": Source(load_svhn, 73_257, 26_032, 10, _SHAPE, family="svhn"),
    "svhn-extra": Source(load_svhn_extra, 604_388, 26_032, 10, _SHAPE, family="svhn"),
}
