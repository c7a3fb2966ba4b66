import hashlib
import os
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image

from dualstudent import DataSettings, UserError, load_recipe, prepare
from dualstudent.data.images import own
from dualstudent.data.images.decoding import VERSION, decode, resize
from dualstudent.data.prepared import PreparedData
from dualstudent.data.samples import ImageSamples, hash_tensor
from dualstudent.recipes.own_images import locate_images, use_own_images
from tests.support.digit_files import CLASSES, write_digits
from tests.support.pictures import save_picture


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALSTUDENT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    return write_digits(tmp_path / "digits", unlabeled=30, test=20)


def pixels_of(data: PreparedData, test: bool = False) -> torch.Tensor:
    samples = data.test if test else data.train
    pixels = samples.read_pixels(torch.arange(len(samples)))
    assert pixels is not None
    return pixels


def expected(path: Path, size: int = 8) -> torch.Tensor:
    return torch.from_numpy(resize(decode(path, 1), size).copy())


def hash_pixels(path: Path) -> str:
    whole = decode(path, 1)
    return hashlib.blake2b(repr(whole.shape).encode() + whole.tobytes(), digest_size=16).hexdigest()


def test_every_part_of_a_folder_is_where_it_belongs(digits: Path) -> None:
    data = prepare(DataSettings(path=digits, image_size=8, channels=1), seed=0)
    listing = DataSettings(path=digits).list_images()
    assert set(data.classes) == set(CLASSES)
    assert (len(data.labeled), len(data.unlabeled), len(data.test)) == (60, 30, 20)
    assert set(data.labels[data.unlabeled].tolist()) == {-1}
    for index in (0, 33, 59, 75):
        path = listing.paths[index]
        assert torch.equal(pixels_of(data)[index], expected(path))
        label = int(data.labels[index])
        assert path.parent.name == (data.classes[label] if label >= 0 else "unlabeled")
    for index, path in enumerate(listing.paths[90:]):
        assert path.parent.name == data.classes[int(data.test_labels[index])]
        assert torch.equal(pixels_of(data, test=True)[index], expected(path))
        assert data.test_files[index] == path
    assert len(data.test_files) == 20


def test_figures_can_be_compared_as_long_as_the_test_is_the_same(digits: Path) -> None:
    def prepared() -> PreparedData:
        return prepare(DataSettings(path=digits, image_size=8, channels=1), seed=0)

    before = prepared()
    (digits / "1" / "broken.png").write_bytes(b"no image")
    next((digits / "unlabeled").iterdir()).unlink()
    fewer = prepared()
    assert fewer.fingerprint() != before.fingerprint()
    assert fewer.test_fingerprint() == before.test_fingerprint()
    assert (before.unreadable, fewer.unreadable) == (0, 1)

    image = next((digits / "test" / "3").iterdir())
    image.rename(digits / "test" / "4" / image.name)
    assert prepared().test_fingerprint() != before.test_fingerprint()


def test_images_stay_in_the_file_they_are_mapped_from(digits: Path) -> None:
    data = prepare(DataSettings(path=digits, image_size=8, channels=1), seed=0)
    parts = (data.train, data.train.to("cpu"), data.test)
    assert (
        len({samples.pixels.data_ptr() for samples in parts if isinstance(samples, ImageSamples)})
        == 1
    )


def test_the_fingerprint_is_that_of_the_images_in_order_wherever_they_lie(digits: Path) -> None:
    settings = DataSettings(path=digits, image_size=8, channels=1)
    prepare(settings, seed=0)
    moved = next((digits / "unlabeled").iterdir())
    moved.rename(digits / "2" / "moved.png")
    (digits / "1" / "broken.png").write_bytes(b"no image")
    data = prepare(settings, seed=0)
    paths = [path for path in settings.list_images().paths if path.name != "broken.png"]
    again = hashlib.sha256()
    for files, labels in ((paths[:90], data.labels), (paths[90:], data.test_labels)):
        again.update(repr((VERSION, 1, 8, 8)).encode())
        again.update("".join(map(hash_pixels, files)).encode())
        hash_tensor(again, labels)
    assert data.fingerprint() == again.hexdigest()
    assert data.origin is not None
    assert data.origin.settings == settings


def test_the_fingerprint_changes_with_image_size_channels_and_decoder(
    digits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fingerprint(size: int = 8, channels: Literal[1, 3] = 1) -> str:
        settings = DataSettings(path=digits, image_size=size, channels=channels)
        return prepare(settings, seed=0).fingerprint()

    found = {fingerprint(), fingerprint(size=9), fingerprint(channels=3)}
    monkeypatch.setattr(own, "VERSION", VERSION + 1)
    assert len(found | {fingerprint()}) == 4


def test_the_fingerprint_reads_no_pixels(digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = prepare(DataSettings(path=digits, image_size=8, channels=1), seed=0)
    monkeypatch.setattr(ImageSamples, "_select", None)
    assert data.fingerprint()
    assert data.test_fingerprint()


def test_validation_is_a_share_of_each_class_by_seed_and_takes_no_part(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=10, unlabeled=30, test=0)
    settings = DataSettings(path=digits, image_size=8, channels=1, validation=0.2)
    data, again, other = (prepare(settings, seed) for seed in (0, 0, 1))
    assert data.test_labels.bincount().tolist() == [2] * 10
    assert data.labels[data.labeled].bincount().tolist() == [8] * 10
    assert data.fingerprint() == again.fingerprint() != other.fingerprint()
    taught = torch.cat([data.labeled, data.unlabeled]).tolist()
    seen = {pixels_of(data)[i].numpy().tobytes() for i in taught}
    assert not seen & {image.numpy().tobytes() for image in pixels_of(data, test=True)}
    held = sorted(set(range(100)) - set(data.labeled.tolist()))
    assert torch.equal(pixels_of(data)[held], pixels_of(data, test=True))
    assert set(data.labels[held].tolist()) == {-1}


@pytest.mark.parametrize("unlabeled", [0, 30])
def test_labels_beyond_those_asked_for_are_hidden(tmp_path: Path, unlabeled: int) -> None:
    digits = write_digits(tmp_path / "digits", labeled=10, unlabeled=unlabeled, test=0)
    whole = DataSettings(path=digits, image_size=8, channels=1, validation=0.2)
    everything = prepare(whole, seed=0)
    fewer = whole.model_copy(update={"labels": 30})
    data, other = prepare(fewer, seed=0), prepare(fewer, seed=1)
    assert data.labels[data.labeled].bincount().tolist() == [3] * 10
    assert set(data.labeled.tolist()) < set(everything.labeled.tolist())
    assert len(data.unlabeled) == 50 + unlabeled
    assert set(data.labels[data.unlabeled].tolist()) == {-1}
    assert not set(data.labeled.tolist()) & set(data.unlabeled.tolist())
    assert torch.equal(pixels_of(data, test=True), pixels_of(everything, test=True))
    assert data.labeled.tolist() != other.labeled.tolist()
    share = prepare(whole.model_copy(update={"labels": "50%"}), seed=0)
    assert len(share.labeled) == 40  # half of those that are not held out
    with pytest.raises(UserError, match=r"data\.labels = 90 asks for 9 .* has 8"):
        prepare(whole.model_copy(update={"labels": 90}), seed=0)


def test_labels_are_not_hidden_in_adaptation() -> None:
    with pytest.raises(ValueError, match="labels does not go with target_path"):
        DataSettings(path=Path("source"), target_path=Path("target"), labels=10)


def test_copies_of_images_to_validate_on_train_nothing(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=10, unlabeled=30, test=0)
    settings = DataSettings(path=digits, image_size=8, channels=1, validation=0.2)
    first = prepare(settings, seed=0)
    listing = settings.list_images()
    held = sorted(set(range(100)) - set(first.labeled.tolist()))
    for number, index in enumerate(held):
        path = listing.paths[index]
        copy = path.parent if number % 2 else digits / "unlabeled"
        with Image.open(path) as image:  # other bytes, the same pixels
            image.save(copy / f"zzz {number}.bmp")
    shutil.copy(listing.paths[first.labeled[0]], digits / "unlabeled" / "copy.png")  # may stay
    data = prepare(settings, seed=0)
    held_images = {image.numpy().tobytes() for image in pixels_of(data, test=True)}
    assert len(held_images) == len(data.test) == 20
    taught = torch.cat([data.labeled, data.unlabeled]).tolist()
    assert not held_images & {pixels_of(data)[i].numpy().tobytes() for i in taught}
    assert sorted(set(range(len(data.labels))) - set(taught)) == [
        index
        for index in range(len(data.labels))
        if pixels_of(data)[index].numpy().tobytes() in held_images
    ]
    assert (data.labels >= 0).nonzero().squeeze(1).tolist() == data.labeled.tolist()


def test_a_class_of_one_picture_in_many_copies_keeps_it(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=10, unlabeled=30, test=0)
    only, *others = sorted((digits / "3").iterdir())
    for path in others:
        shutil.copy(only, path)
    data = prepare(DataSettings(path=digits, image_size=8, channels=1, validation=0.2), seed=0)
    three = data.classes.index("3")
    assert data.labels.eq(three).sum() == 10
    assert three not in data.test_labels.tolist()


def test_without_unlabeled_images_all_labels_teach_but_those_held_out(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=10, unlabeled=0, test=0)
    settings = DataSettings(path=digits, image_size=8, channels=1, validation=0.2)
    data = prepare(settings, seed=0)
    assert data.fully_labeled
    assert len(data.unlabeled) == 80


def test_a_table_in_any_order(digits: Path) -> None:
    listing = DataSettings(path=digits).list_images()
    names = {-1: "", **dict(enumerate("klmnopqrst"))}
    lines = [
        f"{number}.png,{names[label]},{part}"
        for number, (label, part) in enumerate(zip(listing.labels, listing.parts, strict=True))
    ]
    for number, path in enumerate(listing.paths):
        shutil.copy(path, digits / f"{number}.png")
    order = np.random.default_rng(0).permutation(len(lines))
    table = digits / "t.csv"
    table.write_text("\n".join(["where,what,part", *(lines[i] for i in order)]))
    data = prepare(
        DataSettings(
            path=table, path_column="where", label_column="what", image_size=8, channels=1
        ),
        seed=0,
    )
    assert (len(data.labeled), len(data.unlabeled), len(data.test)) == (60, 30, 20)
    originals = {
        expected(p).numpy().tobytes(): v for p, v in zip(listing.paths, listing.labels, strict=True)
    }
    for pixels, label in zip(pixels_of(data), data.labels.tolist(), strict=True):
        assert originals[pixels.numpy().tobytes()] == label


def test_adaptation_takes_labels_from_one_folder_and_all_else_from_the_other(
    tmp_path: Path,
) -> None:
    source = write_digits(tmp_path / "source", unlabeled=10, test=10)
    target = write_digits(tmp_path / "target", labeled=2, unlabeled=25, test=15, ending=".bmp")
    data = prepare(DataSettings(path=source, target_path=target, image_size=8, channels=1), seed=0)
    assert (len(data.labeled), len(data.unlabeled), len(data.test)) == (60, 20 + 25, 15)
    listing = DataSettings(path=source, target_path=target).list_images()
    assert {path.suffix for path in listing.paths[60:]} == {".bmp"}


def test_a_target_without_test_is_never_said_to_be_evaluated(tmp_path: Path) -> None:
    source = write_digits(tmp_path / "source", labeled=10, unlabeled=10, test=10)
    target = write_digits(tmp_path / "target", labeled=0, unlabeled=25, test=0, ending=".bmp")
    settings = DataSettings(
        path=source, target_path=target, image_size=8, channels=1, validation=0.2
    )
    assert settings.evaluated_part == "source validation"
    assert DataSettings(path=source, validation=0.2).evaluated_part == "validation"
    assert DataSettings(path=source, target_path=target).evaluated_part == "test"
    assert DataSettings(source="mnist").evaluated_part == "test"
    data = prepare(settings, seed=0)
    labeled = {image.numpy().tobytes() for image in pixels_of(data)[:100]}
    assert len(data.test) == 20
    assert {image.numpy().tobytes() for image in pixels_of(data, test=True)} <= labeled


def test_formats_and_sizes_can_be_mixed(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for number, ending in enumerate((".png", ".jpg", ".webp", ".tiff", ".gif", ".bmp")):
        file = save_picture(tmp_path / f"{number}.png", side=20 + 7 * number)
        path = data / "ab"[number % 2] / f"{number}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as image:
            (image.convert("P") if ending == ".gif" else image).save(path)
    (data / "a" / "broken.png").write_bytes(b"no image")
    prepared = prepare(DataSettings(path=data, image_size=16), seed=0)
    assert pixels_of(prepared).shape == (6, 3, 16, 16)
    listing = DataSettings(path=data).list_images()
    paths = [path for path in listing.paths if path.name != "broken.png"]
    for index, path in enumerate(paths):
        wanted = torch.from_numpy(resize(decode(path, 3), 16).copy())
        assert torch.equal(pixels_of(prepared)[index], wanted)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("source", "mnist", "source .* path"),
        ("images", 20, "images .* path"),
        ("validation", 1.0, "less than 1"),
    ],
)
def test_settings_that_do_not_go_with_a_path(key: str, value: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataSettings.model_validate({"path": "somewhere", key: value})


def test_a_folder_whose_name_is_no_text_is_refused_before_anything_is_done(tmp_path: Path) -> None:
    folder = write_digits(tmp_path / os.fsdecode(b"d\xff"), unlabeled=5, test=0)
    with pytest.raises(UserError, match=r"data\.path = .*UTF-8"):
        use_own_images("digits", locate_images(folder), [])


def test_settings_that_need_a_path() -> None:
    with pytest.raises(UserError, match=r"data: validation .* path"):
        load_recipe("digits", ["data.validation=0.2"])


def test_validation_is_refused_beside_a_test_and_of_too_few_labels(tmp_path: Path) -> None:
    digits = write_digits(tmp_path / "digits", labeled=2, unlabeled=5, test=5)
    settings = DataSettings(path=digits, image_size=8, validation=0.2)
    with pytest.raises(UserError, match=r"data\.validation = 0\.2, .* test"):
        prepare(settings, seed=0)
    shutil.rmtree(digits / "test")
    with pytest.raises(UserError, match=r"data\.validation = 0\.2 .*20 labels"):
        prepare(settings, seed=0)
