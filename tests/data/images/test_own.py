from pathlib import Path

import pytest

from dualstudent.data.images.own import list_images
from dualstudent.data.images.tables import Columns
from dualstudent.errors import UserError
from tests.support.permissions import TO_OWN_IMAGES, refused_without_rights_to
from tests.support.pictures import save_picture


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("a/1.png", "b/1.png", "rest/1.png", "test/a/2.png"):
        save_picture(tmp_path / "data" / name)
    return tmp_path / "data"


def test_a_folder(data: Path) -> None:
    listing = list_images(data, unlabeled="rest")
    assert (listing.labels, listing.classes) == ((0, 1, -1, 0), ("a", "b"))


def test_a_table(data: Path) -> None:
    (data / "t.csv").write_text("where,label\na/1.png,x\nb/1.png,y\n")
    listing = list_images(data / "t.csv", columns=Columns(path="where"))
    assert (listing.labels, listing.classes) == ((0, 1), ("x", "y"))


def test_a_source_and_a_target(data: Path, tmp_path: Path) -> None:
    save_picture(tmp_path / "target" / "1.png")
    listing = list_images(data, tmp_path / "target", unlabeled="rest")
    assert listing.labels == (0, 1, -1)


def test_missing_paths_and_wrong_kinds_are_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"/none: .*CSV"):
        list_images(tmp_path / "none")
    with pytest.raises(UserError, match=r"/none: .*folder$"):
        list_images(data, tmp_path / "none")
    with pytest.raises(UserError, match=r"1\.png: .*folder"):
        list_images(data, data / "a/1.png")
    with pytest.raises(UserError, match=r"1\.png: .*UTF-8"):
        list_images(data / "a/1.png")


def test_own_images_without_rights_get_no_advice_about_published_data(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, **_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", denied)  # permissions do not stop an administrator

    expected = f"{data}: Permission denied; [^.]*rights"
    with pytest.raises(UserError, match=expected):
        list_images(data)


def test_a_class_folder_without_rights_is_named(data: Path) -> None:
    with refused_without_rights_to(data / "a", TO_OWN_IMAGES):
        list_images(data)
