"""Checks of small folders with one problem each."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dualstudent.data.images.cache import decode_images
from dualstudent.data.images.check import DataCheck, Finding, check_images
from dualstudent.data.images.folders import list_domains, list_folder
from dualstudent.errors import UserError
from tests.support.mirrored import write_lights
from tests.support.pictures import save_picture


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder without problems."""
    seed = 0
    for place, count in (
        ("cat", 4),
        ("dog", 5),
        ("unlabeled", 6),
        ("test/cat", 2),
        ("test/dog", 3),
    ):
        for number in range(count):
            seed += 1
            save_picture(tmp_path / "data" / place / f"{number}.png", seed)
    return tmp_path / "data"


def checked(data: Path, size: int = 16) -> DataCheck:
    listing = list_folder(data)
    return check_images(decode_images(listing, size, folder=data.parent / "cache"))


def only_finding(data: Path, size: int = 16) -> Finding:
    (finding,) = checked(data, size).findings
    return finding


def resave(source: Path, to: Path) -> Path:
    with Image.open(source) as image:
        image.save(to, quality=90)
    return to


@pytest.mark.parametrize(
    ("mirrored", "labels", "harmless"), [(False, 10, False), (True, 10, True), (True, 9, False)]
)
def test_views_may_be_mirrored_if_enough_labels_show_that_it_keeps_the_classes(
    tmp_path: Path, mirrored: bool, labels: int, harmless: bool
) -> None:
    write_lights(tmp_path / "data", labels, mirrored)
    assert checked(tmp_path / "data").may_be_mirrored == harmless


@pytest.mark.parametrize(
    ("labels", "harmless"), [("all", True), (20, True), ("50%", True), (18, False), ("45%", False)]
)
def test_mirroring_is_not_judged_by_labels_that_a_run_may_not_see(
    tmp_path: Path, labels: int | str, harmless: bool
) -> None:
    images = decode_images(list_folder(write_lights(tmp_path / "data", 20)), 16)
    assert check_images(images, labels).may_be_mirrored == harmless


def test_a_share_that_leaves_a_class_without_a_label_is_refused(tmp_path: Path) -> None:
    images = decode_images(list_folder(write_lights(tmp_path / "data", 20)), 16)
    with pytest.raises(UserError, match=r"data\.labels = '4%' of 40 images .* the 2 classes"):
        check_images(images, "4%")


def test_counts_and_measures_of_data_without_fault(data: Path) -> None:
    save_picture(data / "unlabeled" / "large.png", seed=90, side=33)
    check = checked(data)
    assert check.findings == ()
    assert not check.has_errors
    assert check.labeled == {"cat": 4, "dog": 5}
    assert check.test == {"cat": 2, "dog": 3}
    assert (check.unlabeled, check.unreadable, check.images) == (7, 0, 21)
    assert (check.smallest, check.largest, check.size) == ((20, 20), (33, 33), 16)
    assert not check.is_gray
    assert check.count_bytes(64) == 21 * 3 * 64 * 64


def test_gray_images_need_one_channel_only(data: Path) -> None:
    for path in data.rglob("*.png"):
        with Image.open(path) as image:
            gray = image.convert("L").convert("RGB")
        gray.save(path)
    check = checked(data)
    assert check.is_gray
    assert check.count_bytes(10) == check.images * 100


def test_unreadable_files(data: Path) -> None:
    (data / "cat" / "text.jpg").write_text("a text")
    finding = only_finding(data)
    assert finding.severity == "warning"
    assert "left out: 1 of 21 (the first: not an image" in finding.message
    assert finding.files == ((data / "cat" / "text.jpg",),)
    assert checked(data).unreadable == 1


def test_files_that_are_no_images(data: Path) -> None:
    (data / "cat" / "notes.txt").write_text("a text")
    finding = only_finding(data)
    assert "not taken for images" in finding.message
    assert finding.files == ((data / "cat" / "notes.txt",),)


def test_the_same_image_with_two_labels_is_an_error(data: Path) -> None:
    resave(data / "cat" / "1.png", data / "dog" / "copy.bmp")  # another file, the same pixels
    check = checked(data)
    assert check.has_errors
    assert check.findings[0].severity == "error"
    assert "two labels: 1" in check.findings[0].message
    assert check.findings[0].files == ((data / "cat" / "1.png", data / "dog" / "copy.bmp"),)


def test_two_labels_between_training_and_test_are_an_error_and_a_leak(data: Path) -> None:
    shutil.copy(data / "cat" / "1.png", data / "test" / "dog" / "copy.png")
    error, leak = checked(data).findings
    assert (error.severity, leak.severity) == ("error", "warning")
    assert "in the test and in training: 1" in leak.message


@pytest.mark.parametrize("place", ["cat", "unlabeled"])
def test_a_training_image_in_the_test_is_a_leak(data: Path, place: str) -> None:
    shutil.copy(data / place / "1.png", data / "test" / "cat" / "leak.png")
    finding = only_finding(data)
    assert finding.severity == "warning"
    assert "in the test and in training: 1" in finding.message
    assert finding.files == ((data / place / "1.png", data / "test" / "cat" / "leak.png"),)


def test_an_image_more_than_once(data: Path) -> None:
    for name in ("x", "y"):
        shutil.copy(data / "cat" / "1.png", data / "unlabeled" / f"{name}.png")
    finding = only_finding(data)
    assert "more than once: 1" in finding.message
    assert len(finding.files[0]) == 3


def test_an_unlabeled_copy_is_no_second_label(data: Path) -> None:
    shutil.copy(data / "cat" / "1.png", data / "unlabeled" / "x.png")
    assert not checked(data).has_errors


@pytest.mark.parametrize("place", ["cat", "unlabeled"])
def test_a_test_image_that_looks_like_a_training_image(data: Path, place: str) -> None:
    copy = resave(data / place / "1.png", data / "test" / "cat" / "leak.jpg")
    finding = only_finding(data)
    assert finding.severity == "warning"
    assert "test images that look like a training image: 1" in finding.message
    assert finding.files == ((copy, data / place / "1.png"),)


def test_near_duplicates_with_two_labels_are_a_warning(data: Path) -> None:
    copy = resave(data / "cat" / "1.png", data / "dog" / "copy.jpg")
    finding = only_finding(data)
    assert finding.severity == "warning"
    assert "look the same but have two labels: 1" in finding.message
    assert finding.files == ((data / "cat" / "1.png", copy),)


def test_near_duplicates_in_training(data: Path) -> None:
    copies = [
        resave(data / "cat" / "1.png", data / "cat" / "copy.jpg"),
        resave(data / "dog" / "1.png", data / "unlabeled" / "copy.jpg"),
        resave(data / "unlabeled" / "3.png", data / "unlabeled" / "other.jpg"),
    ]
    finding = only_finding(data)
    assert "training images that may be the same, by their shades: 3" in finding.message
    assert {file for files in finding.files for file in files} >= set(copies)


def test_classes_with_few_labels(data: Path) -> None:
    (data / "cat" / "0.png").unlink()
    finding = only_finding(data)
    assert "fewer than 4 labels: cat 3;" in finding.message


def test_imbalanced_classes(data: Path) -> None:
    for number in range(35):
        save_picture(data / "dog" / f"more{number}.png", seed=200 + number)
    assert "dog has 40 labels, cat 4;" in only_finding(data).message
    (data / "dog" / "0.png").unlink()
    assert checked(data).findings == ()


def test_missing_parts(data: Path) -> None:
    shutil.rmtree(data / "unlabeled")
    assert "no unlabeled images" in only_finding(data).message
    shutil.rmtree(data / "test" / "cat")
    assert "without any test image: cat" in checked(data).findings[1].message
    shutil.rmtree(data / "test")
    assert "there is no test part" in checked(data).findings[1].message


def test_a_target_without_test_images_cannot_be_judged_by_labels_of_the_source(
    data: Path, tmp_path: Path
) -> None:
    for number in range(5):
        save_picture(tmp_path / "target" / f"{number}.png", seed=60 + number)

    def messages() -> list[str]:
        listing = list_domains(data, tmp_path / "target")
        images = decode_images(listing, 16, folder=tmp_path / "cache")
        return [finding.message for finding in check_images(images).findings]

    assert any("target has no test images" in message for message in messages())
    for name in ("cat", "dog"):
        save_picture(tmp_path / "target" / "test" / name / "1.png")
    assert messages() == []
    shutil.rmtree(data / "test")
    assert not any("target" in finding.message for finding in checked(data).findings)


def test_domains_that_differ_in_color_and_labels_that_are_not_used_are_named(
    data: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    for name in ("cat", "dog"):
        save_picture(target / name / "1.png", seed=ord(name[0]))
        save_picture(target / "test" / name / "1.png", seed=ord(name[1]))

    def messages(source: Path) -> list[str]:
        images = decode_images(list_domains(source, target), 16, folder=tmp_path / "cache")
        return [finding.message for finding in check_images(images).findings]

    (unused,) = messages(data)
    assert unused.startswith("2 images of the target lie in class folders, but count as unlabeled")
    for path in target.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    unused, colors = messages(data)
    assert colors.startswith("the target is gray and the source in color; both are learned in")


def test_classes_that_may_be_one(data: Path) -> None:
    add_class(data, "Cat_")
    assert "may be the same one: 'cat', 'Cat_'" in only_finding(data).message


def test_two_spellings_of_one_unicode_name(data: Path) -> None:
    """One letter, or a letter and an accent: they look the same."""
    add_class(data, "\u00e9t\u00e9")
    add_class(data, "e\u0301te\u0301")
    message = only_finding(data).message
    assert r"the same one: 'e\u0301te\u0301', '\xe9t\xe9'" in message


def add_class(data: Path, name: str) -> None:
    seed = 300 + 50 * len(name)
    for number in range(4):
        save_picture(data / name / f"{number}.png", seed=seed + number)
        save_picture(data / "test" / name / f"{number}.png", seed=seed + 10 + number)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_files_whose_names_are_no_text(data: Path) -> None:
    (data / "cat" / "0.png").rename(os.fsdecode(os.fsencode(data) + b"/cat/\xff.png"))
    assert "names are not UTF-8: 1" in only_finding(data).message


def image_of(path: Path, shape: tuple[int, int], constant: bool = False) -> Path:
    rng = np.random.default_rng(5)
    pixels = np.full((*shape, 3), 77) if constant else rng.integers(0, 256, (*shape, 3))
    Image.fromarray(pixels.astype(np.uint8)).save(path)
    return path


@pytest.mark.parametrize(
    ("shape", "constant", "size", "message"),
    [
        ((30, 30), True, 16, "images of one color everywhere: 1 of 21"),
        ((7, 9), False, 8, "images of less than 8 pixels a side: 1 of 21"),
        (
            (12, 12),
            False,
            26,
            "images that are enlarged more than 2 times at 26 pixels a side: 1",
        ),
        ((302, 403), False, 16, "by a factor of 5 or more: 1 of 21; they have up to 302, look"),
        ((20, 41), False, 16, "images more than 2 times as long as wide: 1 of 21"),
        ((41, 20), False, 16, "images more than 2 times as long as wide: 1 of 21"),
    ],
)
def test_odd_images(
    data: Path, shape: tuple[int, int], constant: bool, size: int, message: str
) -> None:
    path = image_of(data / "unlabeled" / "odd.png", shape, constant)
    finding = only_finding(data, size)
    assert message in finding.message
    assert finding.files == ((path,),)


def test_a_test_image_that_looks_like_several_is_one_leak(data: Path) -> None:
    with Image.open(data / "cat" / "1.png") as image:
        image.save(data / "unlabeled" / "copy.jpg", quality=95)
        image.save(data / "test" / "cat" / "leak.jpg", quality=85)
    leak, pair = checked(data).findings
    assert "test images that look like a training image: 1" in leak.message
    assert leak.files == ((data / "test" / "cat" / "leak.jpg", data / "cat" / "1.png"),)
    assert pair.files == ((data / "cat" / "1.png", data / "unlabeled" / "copy.jpg"),)
