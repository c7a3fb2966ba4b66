"""All published data sets in small, in their true formats: noise with a label."""

import bz2
import gzip
from pathlib import Path

import numpy as np

from tests.support.imagenet import write_imagenet, write_photo
from tests.support.published_formats import (
    NAMES10,
    NAMES100,
    idx,
    mat,
    name_lines,
    svmlight_line,
    write_cifar_folder,
    write_svhn,
)

_DRAW = np.random.default_rng(0)


def write_published(folder: Path, each: int = 20) -> Path:
    """Of ten classes ``each`` images for training and two for the test; returns ``folder``."""
    train, test = np.tile(np.arange(10), each), np.tile(np.arange(10), 2)
    _write_cifar(folder, train, test)
    for name, labels in (("train_32x32.mat", train), ("test_32x32.mat", test)):
        pixels = _DRAW.integers(0, 256, (32, 32, 3, len(labels)), dtype=np.uint8)
        write_svhn(folder, mat(X=pixels, y=labels[:, None].astype(np.uint8) + 1), name)
    (folder / "mnist").mkdir()
    (folder / "usps").mkdir()
    for mnist, usps, labels in (("train", "usps.bz2", train), ("t10k", "usps.t.bz2", test)):
        digits = _DRAW.integers(0, 256, (len(labels), 28, 28))
        for what, values in (("images-idx3", digits), ("labels-idx1", labels)):
            path = folder / "mnist" / f"{mnist}-{what}-ubyte.gz"
            path.write_bytes(gzip.compress(idx(values)))
        text = "".join(svmlight_line(label + 1, _DRAW.uniform(-1, 1, 256)) for label in labels)
        (folder / "usps" / usps).write_bytes(bz2.compress(text.encode()))
    write_imagenet(folder)
    for synset in ("n04285008", "n07753592"):  # six classes, so that five guesses can be wrong
        for part, count in (("train", 16), ("val", 6)):
            for number in range(count):
                path = folder / "imagenet" / part / synset / f"{synset}_{number}.JPEG"
                write_photo(path, (90, 90, 90), seed=number)
    return folder


def _write_cifar(folder: Path, train: np.ndarray, test: np.ndarray) -> None:
    batches = {f"data_batch_{n + 1}.bin": _records(part) for n, part in enumerate(_fifths(train))}
    names = {"batches.meta.txt": name_lines(NAMES10)}
    write_cifar_folder(folder, names | batches | {"test_batch.bin": _records(test)})
    fine = np.arange(100)
    coarse = np.zeros_like(fine)
    of_hundred = {
        "fine_label_names.txt": name_lines(NAMES100),
        "coarse_label_names.txt": name_lines(NAMES100[:20]),
        "train.bin": _records(coarse, fine) + _records(coarse, fine),
        "test.bin": _records(coarse, fine),
    }
    write_cifar_folder(folder, of_hundred, classes=100)


def _fifths(labels: np.ndarray) -> list[np.ndarray]:
    return np.split(labels, 5)


def _records(*labels: np.ndarray) -> bytes:
    pixels = _DRAW.integers(0, 256, (len(labels[0]), 3 * 32 * 32), dtype=np.uint8)
    return np.hstack([*(each[:, None].astype(np.uint8) for each in labels), pixels]).tobytes()
