import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from dualstudent.data.sources.mnist import load_mnist
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.errors import DataWarning, UserError
from tests.support.permissions import refused_without_rights_to
from tests.support.published_formats import idx

IMAGE_FILE, LABEL_FILE = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


PIXELS = np.random.default_rng(0).integers(0, 256, (7, 28, 28))
DIGITS = np.array([3, 1, 4, 1, 5, 9, 2])
IMAGES, LABELS = gzip.compress(idx(PIXELS)), gzip.compress(idx(DIGITS))


def write(folder: Path, images: bytes, labels: bytes) -> Path:
    mnist = folder / "mnist"
    mnist.mkdir()
    (mnist / IMAGE_FILE).write_bytes(images)
    (mnist / LABEL_FILE).write_bytes(labels)
    return mnist


def test_a_subset_is_used_with_one_warning_that_names_both_counts(tmp_path: Path) -> None:
    write(tmp_path, IMAGES, LABELS)

    with pytest.warns(DataWarning) as caught:
        images = load_mnist("train", tmp_path)

    (warning,) = caught
    assert "7 images of 60,000" in str(warning.message)
    assert IMAGE_FILE in str(warning.message)
    assert np.array_equal(images.pixels.numpy(), PIXELS[:, None])
    assert images.pixels.dtype == torch.uint8
    assert images.labels.tolist() == DIGITS.tolist()
    assert images.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


def test_the_test_part_has_its_own_files_and_count(tmp_path: Path) -> None:
    mnist = write(tmp_path, IMAGES, LABELS)
    (mnist / IMAGE_FILE).rename(mnist / "t10k-images-idx3-ubyte.gz")
    (mnist / LABEL_FILE).rename(mnist / "t10k-labels-idx1-ubyte.gz")

    with pytest.warns(DataWarning, match="7 images of 10,000"):
        images = load_mnist("test", tmp_path)

    assert images.labels.tolist() == DIGITS.tolist()


@pytest.mark.parametrize(
    ("images", "labels", "file", "telling"),
    [
        pytest.param(IMAGES[:-9], LABELS, IMAGE_FILE, "truncated", id="truncated gzip"),
        pytest.param(b"<html>", LABELS, IMAGE_FILE, "Not a gzipped file", id="not gzip"),
        pytest.param(b"", LABELS, IMAGE_FILE, "0 bytes are too few", id="empty file"),
        pytest.param(
            IMAGES, gzip.compress(b"\0\0\x08"), LABEL_FILE, "3 bytes are too few", id="no header"
        ),
        pytest.param(
            gzip.compress(idx(PIXELS)[:-100]),
            LABELS,
            IMAGE_FILE,
            "announces 5,488 bytes but 5,388 follow",
            id="truncated content",
        ),
        pytest.param(
            gzip.compress(idx(PIXELS) + b"more"),
            LABELS,
            IMAGE_FILE,
            "announces 5,488 bytes but 5,492 follow",
            id="too much content",
        ),
        pytest.param(
            gzip.compress(idx(PIXELS, magic=2049)),
            LABELS,
            IMAGE_FILE,
            "magic number 2049",
            id="images with the magic number of labels",
        ),
        pytest.param(
            IMAGES,
            gzip.compress(idx(DIGITS, magic=1234)),
            LABEL_FILE,
            "magic number 1234",
            id="labels with another magic number",
        ),
        pytest.param(
            gzip.compress(idx(PIXELS[:, :16, :20])),
            LABELS,
            IMAGE_FILE,
            "images of 16×20, MNIST has 28×28",
            id="wrong image shape",
        ),
        pytest.param(
            IMAGES,
            gzip.compress(idx(DIGITS[:5])),
            LABEL_FILE,
            "7 images but 5 labels",
            id="fewer labels than images",
        ),
        pytest.param(
            IMAGES,
            gzip.compress(idx(np.where(DIGITS == 9, 11, DIGITS))),
            LABEL_FILE,
            "1 to 11",
            id="label 11",
        ),
        pytest.param(
            gzip.compress(idx(PIXELS[:0])),
            gzip.compress(idx(DIGITS[:0])),
            IMAGE_FILE,
            "holds no images",
            id="no images",
        ),
    ],
)
def test_a_malformed_file_is_refused(
    tmp_path: Path, images: bytes, labels: bytes, file: str, telling: str
) -> None:
    mnist = write(tmp_path, images, labels)

    with pytest.raises(UserError) as refused:
        load_mnist("train", tmp_path)

    message = str(refused.value)
    assert telling in message
    assert str(mnist / file) in message
    assert message.endswith("; delete it to download the published one")
    assert "\n" not in message


@pytest.mark.parametrize("file", [IMAGE_FILE, LABEL_FILE])
def test_a_good_file_without_read_rights_is_not_called_broken(tmp_path: Path, file: str) -> None:
    mnist = write(tmp_path, IMAGES, LABELS)

    with refused_without_rights_to(mnist / file):
        load_mnist("train", tmp_path)


@pytest.mark.parametrize(
    ("part", "per_class", "first", "total"),
    [
        (
            "train",
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [5, 0, 4, 1, 9, 2, 1, 3, 1, 4],
            1_567_298_545,
        ),
        (
            "test",
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
            [7, 2, 1, 0, 4, 1, 4, 9, 5, 9],
            264_923_200,
        ),
    ],
)
def test_the_published_formats(
    data_folder: Path, part: str, per_class: list[int], first: list[int], total: int
) -> None:
    images = load_mnist(part, data_folder)  # a warning would be an error here

    assert images.labels.bincount().tolist() == per_class
    assert images.labels[:10].tolist() == first
    assert images.pixels.shape == (sum(per_class), 1, 28, 28)
    assert images.pixels.sum(dtype=torch.int64) == total
    floats = normalize(images.pixels, Normalization())
    assert (floats.min().item(), floats.max().item()) == (-1, 1)
