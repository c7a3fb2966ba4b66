import bz2
from pathlib import Path

import numpy as np
import pytest
import torch

from dualstudent.data.sources.usps import load_usps
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.errors import DataWarning, UserError
from tests.support.permissions import refused_without_rights_to
from tests.support.published_formats import GRAY, svmlight_line


def write(folder: Path, content: bytes) -> Path:
    path = folder / "usps" / "usps.bz2"
    path.parent.mkdir()
    path.write_bytes(content)
    return path


def test_a_subset_is_used_with_one_warning_that_names_both_counts(tmp_path: Path) -> None:
    mostly_zero = np.zeros(256)  # zeros are not written down in this format
    mostly_zero[[0, 17, 255]] = -1, 0.5, 1
    lines = svmlight_line(1) + svmlight_line(10, mostly_zero) + svmlight_line(7, GRAY[::-1])
    path = write(tmp_path, bz2.compress(lines.encode()))

    with pytest.warns(DataWarning) as caught:
        images = load_usps("train", tmp_path)

    (warning,) = caught
    assert "3 images of 7,291" in str(warning.message)
    assert path.name in str(warning.message)
    assert images.labels.tolist() == [0, 9, 6]  # 1 to 10 stand for the digits 0 to 9
    expected = torch.full((3, 256), 128, dtype=torch.uint8)
    expected[0] = torch.arange(256)  # −1 to 1 in 256 steps: every byte once
    expected[1, [0, 17, 255]] = torch.tensor([0, 191, 255], dtype=torch.uint8)
    expected[2] = torch.arange(255, -1, -1)
    assert torch.equal(images.pixels, expected.reshape(3, 1, 16, 16))


GOOD = "".join(svmlight_line(label) for label in range(1, 11))


@pytest.mark.parametrize(
    ("content", "telling"),
    [
        pytest.param(bz2.compress(GOOD.encode())[:-30], "ended before", id="truncated bz2"),
        pytest.param(b"<html>", "Invalid data stream", id="not bz2"),
        pytest.param(b"", "ended before", id="empty file"),
        pytest.param(
            bz2.compress(GOOD[:-10].encode()), "not a readable svmlight", id="truncated content"
        ),
        pytest.param(bz2.compress(b"digit,pixels\n"), "not a readable svmlight", id="other format"),
        pytest.param(
            bz2.compress(b"1 " + b"9" * 30 + b":0.5\n"), "not a readable svmlight", id="huge index"
        ),
        pytest.param(
            bz2.compress(svmlight_line(1, np.ones(257)).encode()),
            "contains 257",
            id="too many values",
        ),
        pytest.param(
            bz2.compress(svmlight_line(1, GRAY * 255).encode()),
            "pixel values up to 255",
            id="values to 255",
        ),
        pytest.param(
            bz2.compress((GOOD + svmlight_line(0)).encode()), "labels 0 to 10", id="label 0"
        ),
        pytest.param(
            bz2.compress((GOOD + svmlight_line(11)).encode()), "labels 1 to 11", id="label 11"
        ),
        pytest.param(bz2.compress((GOOD + svmlight_line(2.5)).encode()), "labels", id="label 2.5"),
        pytest.param(
            bz2.compress(b""),
            "0 values an image",
            id="no images",
        ),
        pytest.param(
            bz2.compress(svmlight_line(1, np.full(256, np.nan)).encode()),
            "−1 to 1",
            id="values that are not numbers",
        ),
        pytest.param(
            bz2.compress(svmlight_line(1, np.ones(64)).encode()),
            "64",
            id="images of 8 x 8",
        ),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, content: bytes, telling: str) -> None:
    path = write(tmp_path, content)

    with pytest.raises(UserError) as refused:
        load_usps("train", tmp_path)

    message = str(refused.value)
    assert telling in message
    assert str(path) in message
    assert message.endswith("; delete it to download the published one")
    assert "\n" not in message


def test_a_good_file_without_read_rights_is_not_called_broken(tmp_path: Path) -> None:
    path = write(tmp_path, bz2.compress(GOOD.encode()))

    with refused_without_rights_to(path):
        load_usps("train", tmp_path)


@pytest.mark.parametrize(
    ("part", "per_class", "first"),
    [
        ("train", [1194, 1005, 731, 658, 652, 556, 664, 645, 542, 644], [6, 5, 4, 7, 3]),
        ("test", [359, 264, 198, 166, 200, 160, 170, 147, 166, 177], [9, 6, 3, 6, 6]),
    ],
)
@pytest.mark.filterwarnings("ignore::dualstudent.errors.DataWarning")
def test_the_published_formats(
    data_folder: Path, part: str, per_class: list[int], first: list[int]
) -> None:
    images = load_usps(part, data_folder)

    assert images.labels.bincount().tolist() == per_class
    assert images.labels[:5].tolist() == first
    assert images.pixels.shape == (sum(per_class), 1, 16, 16)
    # The scale of MNIST: dark paper is 0, full ink 255, and more paper than ink.
    assert (images.pixels.min().item(), images.pixels.max().item()) == (0, 255)
    assert images.pixels.flatten().mode().values == 0
    floats = normalize(images.pixels, Normalization())
    assert (floats.min().item(), floats.max().item()) == (-1, 1)


def test_other_bytes_with_the_published_content_give_one_warning(
    data_folder: Path, tmp_path: Path
) -> None:
    published = bz2.decompress((data_folder / "usps" / "usps.t.bz2").read_bytes())
    rewritten = write(tmp_path, bz2.compress(published, compresslevel=1))
    rewritten.rename(rewritten.with_name("usps.t.bz2"))

    with pytest.warns(DataWarning, match="2,007 images of 2,007") as caught:
        load_usps("test", tmp_path)

    assert len(caught) == 1
