import shutil
from pathlib import Path

import pytest

from dualstudent.data.datasets import ImageFiles
from dualstudent.data.sources.catalog import load
from dualstudent.data.sources.imagenet import load_imagenet
from dualstudent.errors import DataWarning, UserError
from tests.support.imagenet import SYNSETS, warns_of_the_count, write_imagenet
from tests.support.permissions import refused_without_rights_to

pytestmark = warns_of_the_count


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_imagenet(tmp_path_factory.mktemp("data"), train=3, val=2)


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "data")


@pytest.mark.parametrize(("part", "inside", "each"), [("train", "train", 3), ("test", "val", 2)])
def test_every_class_folder_is_read_in_the_order_of_the_names(
    original: Path, part: str, inside: str, each: int
) -> None:
    images = load_imagenet(part, original)

    assert images.classes == SYNSETS
    assert images.labels.tolist() == [label for label in range(4) for _ in range(each)]
    expected = sorted((original / "imagenet" / inside).glob("*/*.JPEG"))
    assert [images.path(index) for index in range(len(images))] == expected
    assert images.sizes.tolist() == [path.stat().st_size for path in expected]
    assert (images.channels, images.image_size) == (3, 224)


def test_a_count_other_than_the_published_is_a_warning(original: Path) -> None:
    with pytest.warns(DataWarning, match="12 images of 1,281,167 published"):
        load("imagenet", "train", original)


def test_only_images_count(folder: Path) -> None:
    synset = folder / "imagenet" / "train" / SYNSETS[0]
    (synset / "notes.txt").write_text("mine")
    (synset / "._n01440764_0.JPEG").write_text("left by another system")

    assert len(load_imagenet("train", folder)) == 12


def test_some_classes_are_kept_and_counted_anew(original: Path) -> None:
    images = load_imagenet("test", original).select_classes((SYNSETS[2], SYNSETS[0]))

    assert images.classes == (SYNSETS[2], SYNSETS[0])
    assert images.labels.tolist() == [1, 1, 0, 0]
    names = [images.path(index).parent.name for index in range(4)]
    assert names == [SYNSETS[0]] * 2 + [SYNSETS[2]] * 2
    assert images.sizes.tolist() == [images.path(i).stat().st_size for i in range(4)]
    with pytest.raises(UserError, match=r"data\.classes = .* has the classes n01440764, n01443537"):
        images = load_imagenet("test", original).select_classes(("cat", SYNSETS[0]))


def change_a_name(images: ImageFiles) -> None:
    images.path(0).rename(images.path(0).with_name("n01440764_00.JPEG"))


def change_a_size(images: ImageFiles) -> None:
    images.path(0).write_bytes(images.path(0).read_bytes() + b"\0")


def change_a_class(images: ImageFiles) -> None:
    images.path(0).rename(images.path(3).parent / images.path(0).name)


@pytest.mark.parametrize("change", [change_a_name, change_a_size, change_a_class])
def test_the_fingerprint_changes_with_names_sizes_and_labels(folder: Path, change) -> None:  # type: ignore[no-untyped-def]
    images = load_imagenet("train", folder)
    assert load_imagenet("train", folder).fingerprint() == images.fingerprint()

    change(images)

    assert load_imagenet("train", folder).fingerprint() != images.fingerprint()


def test_the_fingerprint_does_not_depend_on_where_the_data_are(
    original: Path, folder: Path
) -> None:
    prints = {load_imagenet("train", place).fingerprint() for place in (original, folder)}
    assert len(prints) == 1


def test_without_files_the_message_says_which_to_put_where(tmp_path: Path) -> None:
    expected = (
        f"^{tmp_path}/imagenet/train: not found; ImageNet cannot be downloaded freely: get "
        r"ILSVRC2012_img_train\.tar from image-net\.org and extract it so that the images lie in "
        rf"{tmp_path}/imagenet/train/SYNSET/\*\.JPEG$"
    )
    with pytest.raises(UserError, match=expected):
        load_imagenet("train", tmp_path)


@pytest.mark.parametrize(
    "archive",
    ["ILSVRC2012_img_train.tar", "imagenet/ILSVRC2012_img_train.tar", "imagenet/train/n0144.tar"],
)
def test_an_archive_must_be_extracted(archive: str, tmp_path: Path) -> None:
    path = tmp_path / archive
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")

    with pytest.raises(UserError, match=f"; extract {path} so that .*imagenet/train/SYNSET"):
        load_imagenet("train", tmp_path)


def test_a_flat_validation_folder_must_be_sorted(folder: Path) -> None:
    val = folder / "imagenet" / "val"
    shutil.rmtree(val)
    val.mkdir()
    (val / "ILSVRC2012_val_00000001.JPEG").write_bytes(b"")

    expected = r"val: 1 images such as ILSVRC2012_val_00000001.JPEG lie outside .* val/SYNSET"
    with pytest.raises(UserError, match=expected):
        load_imagenet("test", folder)


def test_no_validation_folder(folder: Path) -> None:
    shutil.rmtree(folder / "imagenet" / "val")

    with pytest.raises(UserError, match=r"imagenet/val: not found; .* ILSVRC2012_img_val\.tar"):
        load_imagenet("test", folder)


def test_a_class_that_only_validation_has_is_refused(folder: Path) -> None:
    shutil.rmtree(folder / "imagenet" / "train" / SYNSETS[1])

    with pytest.raises(UserError, match=rf"val/{SYNSETS[1]}: there is no such class in .*train"):
        load_imagenet("test", folder)


def test_a_class_that_validation_lacks_keeps_its_number(folder: Path) -> None:
    shutil.rmtree(folder / "imagenet" / "val" / SYNSETS[0])

    images = load_imagenet("test", folder)

    assert images.classes == SYNSETS
    assert images.labels.tolist() == [1, 1, 2, 2, 3, 3]


def test_an_empty_class_folder_is_refused(folder: Path) -> None:
    shutil.rmtree(folder / "imagenet" / "train" / SYNSETS[1])
    (folder / "imagenet" / "train" / SYNSETS[1]).mkdir()

    with pytest.raises(UserError, match=rf"{SYNSETS[1]}: holds no images"):
        load_imagenet("train", folder)


@pytest.mark.parametrize("closed", ["train", "val", f"val/{SYNSETS[1]}"])
def test_a_folder_without_read_rights_is_named(original: Path, closed: str) -> None:
    with refused_without_rights_to(original / "imagenet" / closed):
        load_imagenet("test", original)
