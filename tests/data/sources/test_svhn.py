import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from dualstudent.data.datasets import Images
from dualstudent.data.sources.svhn import load_svhn, load_svhn_extra
from dualstudent.errors import DataWarning, UserError
from tests.support.permissions import refused_without_rights_to
from tests.support.published_formats import mat, write_svhn
from tests.support.sources import load_images

TRAIN, TEST, EXTRA = "train_32x32.mat", "test_32x32.mat", "extra_32x32.mat"
X = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5), dtype=np.uint8)
Y = np.array([[1], [10], [3], [9], [10]], dtype=np.uint8)


GOOD = mat(X=X, y=Y)


def assert_shows(images: Images, x: np.ndarray) -> None:
    """MATLAB has (row, column, channel, image)."""
    for number in range(x.shape[3]):
        for channel in range(3):
            shown = images.pixels[number, channel].numpy()
            assert np.array_equal(shown, x[:, :, channel, number])


@pytest.mark.parametrize("compressed", [True, False])
def test_a_subset_is_used_with_one_warning_that_names_both_counts(
    tmp_path: Path, compressed: bool
) -> None:
    write_svhn(tmp_path, mat(compressed, X=X, y=Y))

    with pytest.warns(DataWarning) as caught:
        images = load_svhn("train", tmp_path)

    (warning,) = caught
    assert "svhn train" in str(warning.message)
    assert "5 images of 73,257" in str(warning.message)
    assert TRAIN in str(warning.message)
    assert images.labels.tolist() == [1, 0, 3, 9, 0]  # 10 stands for the digit 0
    assert images.labels.dtype == torch.int64
    assert images.pixels.dtype == torch.uint8
    assert images.pixels.is_contiguous()
    assert_shows(images, X)
    assert images.classes == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")


def test_the_test_part_has_its_own_file_and_count(tmp_path: Path) -> None:
    write_svhn(tmp_path, GOOD, TEST)

    for name in ("svhn", "svhn-extra"):
        with pytest.warns(DataWarning, match=f"{name} test.* 5 images of 26,032"):
            images = load_images(name, "test", tmp_path)
        assert_shows(images, X)


def test_the_extra_digits_follow_the_training_digits(tmp_path: Path) -> None:
    write_svhn(tmp_path, GOOD)
    write_svhn(tmp_path, mat(X=255 - X[..., :3], y=Y[:3] % 10 + 1), EXTRA)

    with pytest.warns(DataWarning) as caught:
        images = load_svhn_extra("train", tmp_path)

    (warning,) = caught
    assert "svhn-extra train" in str(warning.message)
    assert "8 images of 604,388" in str(warning.message)
    assert images.labels.tolist() == [1, 0, 3, 9, 0, 2, 1, 4]
    assert images.pixels.is_contiguous()
    assert_shows(images, np.concatenate([X, 255 - X[..., :3]], axis=3))


def with_label(label: float) -> bytes:
    y = Y.astype(np.float64)
    y[2] = label
    return mat(X=X, y=y)


@pytest.mark.parametrize(
    ("content", "telling"),
    [
        pytest.param(GOOD[:-9], "not a readable MATLAB 5 file", id="end missing"),
        pytest.param(GOOD[: len(GOOD) // 2], "is cut off", id="half downloaded"),
        pytest.param(mat(compressed=False, X=X, y=Y)[:9000], "is cut off", id="half, plain"),
        pytest.param(GOOD[:60], "not a readable MATLAB 5 file", id="header only"),
        pytest.param(
            GOOD[:5000] + b"\0\xff" + GOOD[5002:], "while decompressing", id="damaged in the middle"
        ),
        pytest.param(b"<html>", "does not begin with 'MATLAB 5.0", id="web page"),
        pytest.param(b"", "does not begin with 'MATLAB 5.0", id="empty"),
        pytest.param(bytes(1000), "does not begin with 'MATLAB 5.0", id="zeros"),
        pytest.param(b"MATLAB 7.3 MAT-file, HDF5", "does not begin with", id="MATLAB 7.3"),
        pytest.param(mat(y=Y), "holds no variable X", id="no images"),
        pytest.param(mat(X=X), "holds no variable y", id="no labels"),
        pytest.param(
            mat(X=X.astype(np.float64), y=Y), "X is float64 of shape (32, 32, 3, 5)", id="floats"
        ),
        pytest.param(
            mat(X=X[:28, :28], y=Y), "X is uint8 of shape (28, 28, 3, 5)", id="28 pixels a side"
        ),
        pytest.param(
            mat(X=X.transpose(3, 0, 1, 2), y=Y), "of shape (5, 32, 32, 3)", id="images first"
        ),
        pytest.param(mat(X=X[..., :0], y=Y[:0]), "holds no images", id="0 images"),
        pytest.param(mat(X="digits", y=Y), "no variable X of numbers", id="text as images"),
        pytest.param(mat(X=X, y=Y[:4]), "y is uint8 of shape (4, 1), 5 images", id="fewer labels"),
        pytest.param(
            mat(X=X, y=[str(n) for n in range(5)]), "no variable y of numbers", id="text as labels"
        ),
        pytest.param(with_label(0), "labels 0 to 10, SVHN has 1 to 10", id="label 0"),
        pytest.param(with_label(11), "labels 1 to 11", id="label 11"),
        pytest.param(with_label(2.5), "labels 1 to 10", id="label 2.5"),
        pytest.param(with_label(np.nan), "labels nan", id="label not a number"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes, telling: str) -> None:
    path = write_svhn(tmp_path, content)

    with pytest.raises(UserError) as refused:
        load_svhn("train", tmp_path)

    message = str(refused.value)
    assert telling in message
    assert str(path) in message
    assert "delete it to download the published one" in message
    assert "\n" not in message


def test_a_good_file_without_read_rights_is_not_called_broken(tmp_path: Path) -> None:
    path = write_svhn(tmp_path, GOOD)

    with refused_without_rights_to(path):
        load_svhn("train", tmp_path)


def test_too_little_memory_is_not_the_fault_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("dualstudent.data.sources.svhn.read_arrays", exhausted)
    write_svhn(tmp_path, GOOD)

    with pytest.raises(MemoryError):
        load_svhn("train", tmp_path)


def test_a_missing_file_is_asked_for_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, str] = {}

    def unreachable(url: str, known_hash: str, **_: object) -> None:
        asked[url] = known_hash
        raise OSError

    monkeypatch.setattr("pooch.retrieve", unreachable)
    write_svhn(tmp_path, b"never read")

    with pytest.raises(UserError, match=rf"{EXTRA} is not in .* put it into {tmp_path}/svhn"):
        load_svhn_extra("train", tmp_path)

    assert asked == {
        f"http://ufldl.stanford.edu/housenumbers/{EXTRA}": "sha256:"
        "a133a4beb38a00fcdda90c9489e0c04f900b660ce8a316a5e854838379a71eb3"
    }


@pytest.mark.parametrize(
    ("part", "published", "first"),
    [("train", 73_257, [1, 9, 2, 3, 2]), ("test", 26_032, [5, 2, 1, 0, 6])],
)
def test_real_files(data_folder: Path, part: str, published: int, first: list[int]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        images = load_svhn(part, data_folder)

    if len(images) == published:
        assert not caught
    else:
        (warning,) = caught
        assert f"{len(images):,} images of {published:,} published" in str(warning.message)
    assert images.labels[:5].tolist() == first
    frequency = images.labels.bincount(minlength=10)
    assert frequency.argmax() == 1  # as in all house numbers
    assert (frequency > len(images) // 20).all()
