import os
import sys
from pathlib import Path

import pytest

from dualstudent.data.images.folders import find_class_folders, list_domains, list_folder
from dualstudent.data.images.listing import Listing
from dualstudent.errors import UserError

UGLY = ['with "quotes"', "with, comma", "with\nline feed", "<b>with &amp; HTML", "[red]"]


def made(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"not looked at")
    return root


def told(listing: Listing, root: Path) -> list[tuple[str, str, str]]:
    """Path, class and part of each file."""
    classes = (*listing.classes, "unlabeled")
    return [
        (str(path.relative_to(root)), classes[label], part)
        for path, label, part in zip(listing.paths, listing.labels, listing.parts, strict=True)
    ]


def test_classes_unlabeled_and_test(tmp_path: Path) -> None:
    names = ("dog/2.png", "dog/10.jpg", "cat/x/y/1.JPEG", "cat/1.tif", "unlabeled/deep/1.webp")
    made(tmp_path, *names, "unlabeled/0.bmp", "test/dog/3.gif", "test/cat/deep/4.png")
    listing = list_folder(tmp_path)
    assert listing.classes == ("cat", "dog")
    assert listing.name == str(tmp_path)
    assert told(listing, tmp_path) == [
        ("cat/1.tif", "cat", "train"),
        ("cat/x/y/1.JPEG", "cat", "train"),
        ("dog/2.png", "dog", "train"),
        ("dog/10.jpg", "dog", "train"),
        ("unlabeled/0.bmp", "unlabeled", "train"),
        ("unlabeled/deep/1.webp", "unlabeled", "train"),
        ("test/cat/deep/4.png", "cat", "test"),
        ("test/dog/3.gif", "dog", "test"),
    ]


def test_classes_are_in_natural_order(tmp_path: Path) -> None:
    made(tmp_path, *(f"{i}/a.png" for i in range(12)))
    assert list_folder(tmp_path).classes == tuple(map(str, range(12)))


def test_the_folder_of_unlabeled_images_can_have_another_name(tmp_path: Path) -> None:
    made(tmp_path, "a/1.png", "b/1.png", "unlabeled/1.png", "rest/1.png")
    listing = list_folder(tmp_path, unlabeled="rest")
    assert listing.classes == ("a", "b", "unlabeled")
    assert [listing.paths[i] for i in listing.unlabeled] == [tmp_path / "rest/1.png"]


def test_classes_may_lie_in_a_folder_train(tmp_path: Path) -> None:
    made(tmp_path, "train/a/1.png", "train/b/1.png", "test/a/1.png", "unlabeled/1.png")
    made(tmp_path, "train/unlabeled/2.png")
    listing = list_folder(tmp_path)
    assert listing.classes == ("a", "b")
    assert (len(listing.labeled), len(listing.unlabeled), len(listing.test)) == (2, 2, 1)


def test_classes_may_lie_in_a_folder_labeled(tmp_path: Path) -> None:
    made(tmp_path, "labeled/a/1.png", "labeled/b/1.png", "unlabeled/1.png")
    listing = list_folder(tmp_path)
    assert (listing.classes, listing.labels) == (("a", "b"), (0, 1, -1))


def test_a_missing_folder_of_unlabeled_images_is_refused(tmp_path: Path) -> None:
    made(tmp_path, "a/1.png", "b/1.png", "unlabeled/1.png")
    with pytest.raises(UserError, match=r"'rest'.* a, b, unlabeled$"):
        list_folder(tmp_path, unlabeled="rest")


def test_a_class_may_be_called_train(tmp_path: Path) -> None:
    made(tmp_path, "bus/1.png", "train/1.png")
    assert list_folder(tmp_path).classes == ("bus", "train")


def test_a_validation_part_is_refused_instead_of_taken_for_a_class(tmp_path: Path) -> None:
    made(tmp_path, "train/a/1.png", "train/b/1.png", "val/a/1.png", "val/b/1.png")
    with pytest.raises(UserError, match=r"/val: .*/train"):
        list_folder(tmp_path)


def test_hidden_and_other_files_are_left_out(tmp_path: Path) -> None:
    made(tmp_path, "a/1.png", "b/1.png", ".git/x.png", "a/.DS_Store", "a/._1.png", "README.md")
    made(tmp_path, "a/.thumbnails/1.png", "a/notes.txt", "b/checksum-as-name")
    listing = list_folder(tmp_path)
    assert [name for name, _, _ in told(listing, tmp_path)] == [
        "a/1.png",
        "b/1.png",
        "b/checksum-as-name",
    ]
    assert listing.ignored == (tmp_path / "a/notes.txt",)


def test_any_name_works(tmp_path: Path) -> None:
    made(tmp_path, *(f"{ugly}/{ugly}.png" for ugly in UGLY))
    listing = list_folder(tmp_path)
    assert set(listing.classes) == set(UGLY)
    for path, label in zip(listing.paths, listing.labels, strict=True):
        assert path.is_file()
        assert path.stem == listing.classes[label]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
def test_names_that_are_no_text_work(tmp_path: Path) -> None:
    made(tmp_path, "a/1.png", "b/1.png")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/a/\xff\xfe.png")).write_bytes(b"")
    assert all(path.is_file() for path in list_folder(tmp_path).paths)


def test_links_are_followed_once(tmp_path: Path) -> None:
    made(tmp_path, "elsewhere/1.png", "data/a/1.png", "data/b/1.png")
    (tmp_path / "data/a/more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data/a/up").symlink_to(tmp_path / "data/a")
    listing = list_folder(tmp_path / "data")
    assert [str(p.relative_to(tmp_path)) for p in listing.paths] == [
        "data/a/1.png",
        "data/a/more/1.png",
        "data/b/1.png",
    ]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "holds no images"),
        (("README.md",), "holds no images"),
        (("unlabeled/1.png",), "no .*label"),
        (("cat/1.png", "unlabeled/1.png"), "'cat'"),
        (("a/1.png", "b/notes.txt"), r"/b: "),
        (("a/1.png", "b/x.txt", "c/x.txt"), r"/b: .*/c: "),
        (("a/1.png", "b/1.png", "test/c/1.png"), "test .*'c'"),
        (("a/1.png", "b/1.png", "test/c/1.png", "test/d/1.png"), "test .*'c', 'd'"),
        (("a/1.png", "Test/1.png", "val/1.png"), "'Test'.*'val'"),
        (("a/1.png", "b/1.png", "test/1.png"), r"/test: 1 image.* 1\.png"),
        (("a/1.png", "b/1.png", "2.png"), r"1 image.* 2\.png"),
    ],
)
def test_mistakes(tmp_path: Path, names: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=message):
        list_folder(made(tmp_path, *names))


def test_an_empty_test_folder_is_no_test(tmp_path: Path) -> None:
    made(tmp_path, "a/1.png", "b/1.png", "test/a/.keep")
    assert list_folder(tmp_path).test == []


def test_class_folders_alone(tmp_path: Path) -> None:
    made(tmp_path, "n10/1.jpg", "n9/1.jpg", "x/1.jpg")
    assert find_class_folders(tmp_path, apart=("x",)) == {
        "n9": tmp_path / "n9",
        "n10": tmp_path / "n10",
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    names = ("a/1.png", "b/1.png", "unlabeled/9.png", "test/a/9.png")
    return made(tmp_path / "source", *names)


def test_domains(tmp_path: Path, source: Path) -> None:
    target = made(tmp_path / "target", "a/1.png", "b/2.png", "unlabeled/3.png", "test/b/4.png")
    listing = list_domains(source, target)
    assert listing.classes == ("a", "b")
    assert told(listing, tmp_path) == [
        ("source/a/1.png", "a", "train"),
        ("source/b/1.png", "b", "train"),
        ("target/a/1.png", "unlabeled", "train"),
        ("target/b/2.png", "unlabeled", "train"),
        ("target/unlabeled/3.png", "unlabeled", "train"),
        ("target/test/b/4.png", "b", "test"),
    ]


def test_a_target_without_classes(tmp_path: Path, source: Path) -> None:
    target = made(tmp_path / "target", "1.png", "unlabeled/2.png")
    listing = list_domains(source, target)
    assert [path.name for path in listing.paths] == ["1.png", "1.png", "1.png", "2.png"]
    assert listing.labels == (0, 1, -1, -1)


@pytest.mark.parametrize("classes", ["ac", "abc", "a"])
def test_other_classes_in_the_target_are_refused(
    tmp_path: Path, source: Path, classes: str
) -> None:
    target = made(tmp_path / "target", *(f"{name}/1.png" for name in classes))
    names = ", ".join(classes)
    with pytest.raises(UserError, match=rf" {names}, .* a, b;"):
        list_domains(source, target)


def test_another_class_in_the_targets_test_is_refused(tmp_path: Path, source: Path) -> None:
    target = made(tmp_path / "target", "a/1.png", "b/1.png", "test/c/1.png")
    with pytest.raises(UserError, match=r"test .*'c'"):
        list_domains(source, target)


def test_the_source_is_no_target(source: Path) -> None:
    with pytest.raises(UserError, match="source"):
        list_domains(source, source.parent / "." / "source")


@pytest.mark.parametrize("name", [" ", "-1", "NaN", "unlabeled ", " cat", b"\xff\xfe"])
def test_a_class_that_no_table_could_hold_is_refused(name: str | bytes, tmp_path: Path) -> None:
    made(tmp_path, "cat/1.png", f"{os.fsdecode(name)}/1.png")
    with pytest.raises(UserError, match=r"class .*rename it"):
        list_folder(tmp_path)


def test_a_link_to_itself_is_left_out(tmp_path: Path) -> None:
    made(tmp_path, "cat/1.png", "dog/1.png")
    for name in ("unlabeled", "loop", "cat/2.png"):
        (tmp_path / name).symlink_to(tmp_path / name)
    assert [path.name for path in list_folder(tmp_path).paths] == ["1.png", "1.png"]


@pytest.mark.parametrize("name", ["unlabelled", "Test", "val", "Validation"])
def test_a_folder_that_is_hardly_a_class_is_refused(name: str, tmp_path: Path) -> None:
    made(tmp_path, "cat/1.png", "dog/1.png", f"{name}/1.png")

    with pytest.raises(UserError, match=f"class .*'{name}'"):
        list_folder(tmp_path)


def test_a_target_within_the_source_is_refused(tmp_path: Path) -> None:
    made(tmp_path, "cat/1.png", "dog/1.png", "target/1.png")

    with pytest.raises(UserError, match=r"/target: .*source and target"):
        list_domains(tmp_path, tmp_path / "target")
