import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch

from dualstudent.data.datasets import Images
from dualstudent.data.sources.catalog import load
from dualstudent.data.sources.cifar import load_cifar10, load_cifar100
from dualstudent.errors import DataWarning, UserError
from tests.support.permissions import refused_without_rights_to
from tests.support.published_formats import (
    CIFAR_FOLDERS,
    NAMES10,
    NAMES100,
    Contents,
    name_lines,
    write_cifar_folder,
)

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 3, 32, 32), dtype=np.uint8)
LABELS, COARSE, FINE = [3, 9, 0, 5, 1, 9], [19, 0, 4, 4, 7, 11], [99, 0, 42, 41, 50, 7]


def records(*labels: list[int]) -> bytes:
    """Label bytes and the planes of red, green and blue, image after image."""
    return b"".join(
        bytes(of_one) + image.tobytes() for *of_one, image in zip(*labels, PIXELS, strict=False)
    )


BATCHES = [f"data_batch_{number}.bin" for number in range(1, 6)]
CIFAR10: Contents = {
    "batches.meta.txt": name_lines(NAMES10),
    **{name: records([label]) for name, label in zip(BATCHES, LABELS, strict=False)},
    "readme.html": b"<html>",
    "test_batch.bin": records(LABELS[::-1]),
}
CIFAR100: Contents = {
    "coarse_label_names.txt": name_lines(NAMES100[:20]),
    "fine_label_names.txt": name_lines(NAMES100),
    "test.bin": records(COARSE[:2], FINE[:2]),
    "train.bin": records(COARSE, FINE),
}
ARCHIVES = {10: "cifar-10-binary.tar.gz", 100: "cifar-100-binary.tar.gz"}


def tar(contents: Contents, inside: str) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{inside}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return written.getvalue()


def write_archive(folder: Path, contents: Contents | bytes, classes: int = 10) -> Path:
    home, inside = CIFAR_FOLDERS[classes]
    archive = folder / home / ARCHIVES[classes]
    archive.parent.mkdir()
    archive.write_bytes(contents if isinstance(contents, bytes) else tar(contents, inside))
    return archive


def refusal(load_images: Callable[[str, Path], Images], folder: Path, part: str = "train") -> str:
    with pytest.raises(UserError) as refused:
        load_images(part, folder)
    message = str(refused.value)
    assert "\n" not in message
    assert re.search(r"; delete \S+ to download the published one$", message)
    return message


@pytest.mark.parametrize("write", [write_cifar_folder, write_archive], ids=["folder", "archive"])
def test_cifar10_is_all_batches_in_order_with_one_warning_that_names_both_counts(
    tmp_path: Path, write: Callable[[Path, Contents], Path]
) -> None:
    # Of five batches of one image each, the fifth has two.
    origin = write(tmp_path, CIFAR10 | {BATCHES[4]: records(LABELS[4:])})

    with pytest.warns(DataWarning) as caught:
        images = load_cifar10("train", tmp_path)

    (warning,) = caught
    assert "cifar10 train" in str(warning.message)
    assert "6 images of 50,000" in str(warning.message)
    assert origin.name in str(warning.message)
    expected = PIXELS[[0, 0, 0, 0, 0, 1]]
    assert np.array_equal(images.pixels.numpy(), expected)
    assert images.pixels.dtype == torch.uint8
    assert images.pixels.is_contiguous()
    assert images.labels.tolist() == LABELS
    assert images.labels.dtype == torch.int64
    assert images.classes == NAMES10


@pytest.mark.parametrize("write", [write_cifar_folder, write_archive], ids=["folder", "archive"])
def test_cifar100_has_the_fine_labels(
    tmp_path: Path, write: Callable[[Path, Contents, int], Path]
) -> None:
    write(tmp_path, CIFAR100, 100)

    with pytest.warns(DataWarning, match=r"cifar100 train.* 6 images of 50,000"):
        images = load_cifar100("train", tmp_path)

    assert np.array_equal(images.pixels.numpy(), PIXELS)
    assert images.labels.tolist() == FINE
    assert images.classes == NAMES100


def test_the_test_parts_have_their_own_files_and_count(tmp_path: Path) -> None:
    write_archive(tmp_path, CIFAR10)
    write_cifar_folder(tmp_path, CIFAR100, classes=100)

    with pytest.warns(DataWarning, match="6 images of 10,000"):
        images = load("cifar10", "test", tmp_path)
    with pytest.warns(DataWarning, match="2 images of 10,000"):
        fine = load("cifar100", "test", tmp_path)

    assert images.labels.tolist() == LABELS[::-1]
    assert fine.labels.tolist() == FINE[:2]


def test_extracted_files_come_before_the_archive(tmp_path: Path) -> None:
    write_archive(tmp_path, b"not even opened")
    write_cifar_folder(tmp_path, CIFAR10)

    with pytest.warns(DataWarning, match="5 images"):
        assert load_cifar10("train", tmp_path).labels.tolist() == LABELS[:5]


def test_every_extracted_batch_is_compared_with_the_published_one(tmp_path: Path) -> None:
    extracted = write_cifar_folder(tmp_path, CIFAR10)

    expected = f"^cifar10 train: {', '.join(BATCHES)} in {extracted} differ from the published"
    with pytest.warns(DataWarning, match=expected):
        load_cifar10("train", tmp_path)


def test_as_many_extracted_images_as_published_but_others_give_one_warning(tmp_path: Path) -> None:
    ten_thousand_black = bytes(10_000 * 3073)
    extracted = write_cifar_folder(tmp_path, CIFAR10 | {"test_batch.bin": ten_thousand_black})

    with pytest.warns(DataWarning) as caught:
        load_cifar10("test", tmp_path)

    (warning,) = caught
    expected = f"cifar10 test: test_batch.bin in {extracted} differs from the published files"
    assert expected in str(warning.message)
    assert "10,000 images of 10,000" in str(warning.message)


@pytest.mark.parametrize(
    ("classes", "sha256"),
    [
        (10, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
        (100, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
    ],
)
def test_without_any_files_the_archive_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, classes: int, sha256: str
) -> None:
    def retrieve(url: str, known_hash: str, path: Path, fname: str) -> None:
        assert url == f"https://www.cs.toronto.edu/~kriz/{ARCHIVES[classes]}"
        assert known_hash == f"sha256:{sha256}"
        contents = CIFAR10 if classes == 10 else CIFAR100
        assert write_archive(tmp_path, contents, classes) == path / fname

    monkeypatch.setattr(pooch, "retrieve", retrieve)

    with pytest.warns(DataWarning, match=ARCHIVES[classes]):
        images = load("cifar10" if classes == 10 else "cifar100", "train", tmp_path)

    assert images.labels.tolist() == (LABELS[:5] if classes == 10 else FINE)


def test_only_expected_members_are_read_and_nothing_is_extracted(tmp_path: Path) -> None:
    others = {"../../escaped": b"!", "older/test_batch.bin": records([7])}
    archive = write_archive(tmp_path, CIFAR10 | others)

    with pytest.warns(DataWarning):
        images = load_cifar10("test", tmp_path)

    assert images.labels.tolist() == LABELS[::-1]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


ONE_TOO_MANY = records([10])
MALFORMED10 = [
    pytest.param({BATCHES[2]: CIFAR10[BATCHES[2]][:-1]}, "3,072 bytes", id="truncated"),
    pytest.param({BATCHES[2]: b""}, "0 bytes are not a whole number", id="empty"),
    pytest.param(
        {BATCHES[2]: CIFAR100["train.bin"]}, "records of 3,073 bytes", id="records of CIFAR-100"
    ),
    pytest.param({BATCHES[2]: ONE_TOO_MANY}, "labels up to 10, cifar10 has 0 to 9", id="label 10"),
    pytest.param(
        {"batches.meta.txt": name_lines(NAMES10[:9])},
        "9 class names, cifar10 has 10",
        id="9 names",
    ),
    pytest.param({"batches.meta.txt": b"\xff\xfe\0"}, "1 class names", id="names are not text"),
]


@pytest.mark.parametrize("write", [write_cifar_folder, write_archive], ids=["folder", "archive"])
@pytest.mark.parametrize(("changed", "telling"), MALFORMED10)
def test_a_malformed_file_of_cifar10_is_refused(
    tmp_path: Path, write: Callable[[Path, Contents], Path], changed: Contents, telling: str
) -> None:
    origin = write(tmp_path, CIFAR10 | changed)

    message = refusal(load_cifar10, tmp_path)

    assert telling in message
    assert str(origin / next(iter(changed))) in message


@pytest.mark.parametrize(
    ("changed", "telling"),
    [
        pytest.param({"train.bin": CIFAR100["train.bin"][:5000]}, "5,000 bytes", id="truncated"),
        pytest.param(
            {"train.bin": records(COARSE, [*FINE[:-1], 100])},
            "labels up to 100, cifar100 has 0 to 99",
            id="fine label 100",
        ),
        pytest.param(
            {"train.bin": records([*COARSE[:-1], 20], FINE)},
            "labels up to 20, cifar100 has 0 to 19",
            id="coarse label 20",
        ),
        pytest.param(
            {"fine_label_names.txt": CIFAR100["coarse_label_names.txt"]},
            "20 class names, cifar100 has 100",
            id="coarse names",
        ),
    ],
)
def test_a_malformed_file_of_cifar100_is_refused(
    tmp_path: Path, changed: Contents, telling: str
) -> None:
    extracted = write_cifar_folder(tmp_path, CIFAR100 | changed, classes=100)

    message = refusal(load_cifar100, tmp_path)

    assert telling in message
    assert str(extracted / next(iter(changed))) in message


@pytest.mark.parametrize("write", [write_cifar_folder, write_archive], ids=["folder", "archive"])
@pytest.mark.parametrize("missing", [BATCHES[3], "batches.meta.txt"])
def test_a_missing_file_is_named(
    tmp_path: Path, write: Callable[[Path, Contents], Path], missing: str
) -> None:
    origin = write(tmp_path, {name: CIFAR10[name] for name in CIFAR10 if name != missing})

    message = refusal(load_cifar10, tmp_path)

    assert str(origin / missing) in message
    assert ("No such file" in message) or ("the archive has no" in message)


def test_a_link_in_an_archive_is_not_followed(tmp_path: Path) -> None:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as archive:
        link = tarfile.TarInfo("cifar-100-binary/train.bin")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    write_archive(tmp_path, written.getvalue(), classes=100)

    assert "no cifar-100-binary/train.bin" in refusal(load_cifar100, tmp_path)


WHOLE = tar(CIFAR10, "cifar-10-batches-bin")


@pytest.mark.parametrize("part", ["train", "test"])
@pytest.mark.parametrize(
    ("content", "telling"),
    [
        pytest.param(WHOLE[: len(WHOLE) // 2], "broken or truncated", id="half downloaded"),
        pytest.param(WHOLE[:-2000], "broken or truncated", id="end missing"),
        pytest.param(b"<html>not found</html>", "Not a gzipped file", id="web page"),
        pytest.param(b"", "broken or truncated", id="empty"),
        pytest.param(
            tar({"data_batch_1": b"\x80"}, "cifar-10-batches-py"),
            "the archive has no cifar-10-batches-bin/",
            id="the python version",
        ),
        pytest.param(
            tar(CIFAR100, "cifar-100-binary"), "has no cifar-10-batches-bin/", id="CIFAR-100"
        ),
    ],
)
def test_a_broken_or_wrong_archive_is_refused(
    tmp_path: Path, content: bytes, telling: str, part: str
) -> None:
    archive = write_archive(tmp_path, content)

    message = refusal(load_cifar10, tmp_path, part)

    assert telling in message
    assert str(archive) in message


def test_a_truncated_archive_is_refused_even_after_all_that_is_needed(tmp_path: Path) -> None:
    needed_first = CIFAR10 | {"unused.bin": PIXELS.tobytes()}
    write_archive(tmp_path, tar(needed_first, "cifar-10-batches-bin")[:-5000])

    assert "broken or truncated" in refusal(load_cifar10, tmp_path, "test")


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    damaged = bytearray(WHOLE)
    damaged[len(WHOLE) // 2] ^= 0xFF
    write_archive(tmp_path, bytes(damaged))

    message = refusal(load_cifar10, tmp_path, "test")

    assert "broken or truncated" in message


def test_a_folder_that_cannot_be_searched_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", denied)  # permissions do not stop an administrator

    with pytest.raises(
        UserError, match=r"cannot look for .*cifar10.*: Permission denied; ask .* or choose another"
    ):
        load_cifar10("train", tmp_path)


@pytest.mark.parametrize("file", [BATCHES[2], "batches.meta.txt"])
def test_an_extracted_file_without_read_rights_is_named(tmp_path: Path, file: str) -> None:
    extracted = write_cifar_folder(tmp_path, CIFAR10)

    with refused_without_rights_to(extracted / file):
        load_cifar10("train", tmp_path)


def test_an_archive_without_read_rights_is_not_called_broken(tmp_path: Path) -> None:
    archive = write_archive(tmp_path, CIFAR100, 100)

    with refused_without_rights_to(archive):
        load_cifar100("train", tmp_path)


@pytest.mark.parametrize(
    ("part", "count", "first", "means"),
    [
        ("train", 5000, [6, 9, 9, 4, 1, 1, 2, 7, 8, 3], [125.307, 122.950, 113.865]),
        ("test", 1000, [3, 8, 8, 0, 6, 6, 1, 6, 3, 1], [126.025, 123.709, 114.854]),
    ],
)
def test_the_published_formats(
    data_folder: Path, part: str, count: int, first: list[int], means: list[float]
) -> None:
    images = load_cifar10(part, data_folder)  # a warning would be an error here

    assert images.labels.bincount().tolist() == [count] * 10
    assert images.labels[:10].tolist() == first
    assert images.pixels.shape == (10 * count, 3, 32, 32)
    found = [images.pixels[:, c].sum(dtype=torch.int64).item() for c in range(3)]
    assert [total / (10 * count * 32 * 32) for total in found] == pytest.approx(means, abs=1e-3)
    assert images.classes == NAMES10
