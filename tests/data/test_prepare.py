from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch import Tensor

from dualstudent.data import prepare as module
from dualstudent.data.batching.loader import BatchLoader, BatchSettings
from dualstudent.data.datasets import Images
from dualstudent.data.prepare import DataSettings, prepare
from dualstudent.data.samples import Samples
from dualstudent.data.splits import choose_images, choose_labeled, write_manifest
from dualstudent.errors import UserError
from tests.support.imagenet import SYNSETS, warns_of_the_count, write_imagenet
from tests.support.sources import load_images

NOWHERE = Path("needs no folder")
DIGITS = load_images("digits-8x8", "train", NOWHERE)


def convert_image(samples: Samples) -> Tensor:
    """The bytes behind clean samples, whose values are in [−1, 1]."""
    (clean,) = samples.make_views(torch.arange(len(samples)), [None])
    return ((clean + 1) * 127.5).round().to(torch.uint8)


def test_a_few_labels_hide_all_others() -> None:
    data = prepare(DataSettings(source="digits-8x8", labels=100), seed=0)

    assert len(data.labeled) == 100
    assert torch.cat([data.labeled, data.unlabeled]).sort().values.tolist() == [*range(1442)]
    assert torch.equal(data.labels[data.labeled], DIGITS.labels[data.labeled])
    assert (data.labels[data.unlabeled] == -1).all()
    assert torch.equal(convert_image(data.train), DIGITS.pixels)
    assert not data.fully_labeled
    test = load_images("digits-8x8", "test", NOWHERE)
    assert torch.equal(convert_image(data.test), test.pixels)
    assert torch.equal(data.test_labels, test.labels)


def test_the_seed_chooses_the_labels() -> None:
    def labels(seed: int) -> list[int]:
        return prepare(DataSettings(source="digits-8x8", labels=50), seed).labels.tolist()

    assert labels(1) == labels(1) != labels(2)


def test_a_seed_of_its_own_chooses_images_and_labels_whatever_that_of_the_run() -> None:
    settings = DataSettings(source="digits-8x8", images=500, labels=50)
    expected = prepare(settings, seed=1).fingerprint()
    drawn = settings.model_copy(update={"split_seed": 1})

    assert {prepare(drawn, seed).fingerprint() for seed in (0, 1, 2)} == {expected}
    assert prepare(settings, seed=2).fingerprint() != expected


def test_some_of_the_images_are_all_that_a_run_sees() -> None:
    settings = DataSettings(source="digits-8x8", images=200, labels=50)
    data, other = prepare(settings, seed=1), prepare(settings, seed=2)

    chosen = choose_images(DIGITS, 200, seed=1)
    assert torch.equal(convert_image(data.train), DIGITS.pixels[chosen])
    assert torch.equal(data.labels[data.labeled], DIGITS.labels[chosen][data.labeled])
    assert torch.cat([data.labeled, data.unlabeled]).sort().values.tolist() == [*range(200)]
    assert torch.equal(convert_image(data.test), convert_image(other.test))
    assert data.fingerprint() != other.fingerprint()


def test_a_split_of_other_images_is_refused(tmp_path: Path) -> None:
    some = DIGITS.select(choose_images(DIGITS, 200, seed=1))
    write_manifest(tmp_path / "split.json", some, torch.tensor([5, 50]), seed=1)
    settings = DataSettings(source="digits-8x8", images=200, split=tmp_path / "split.json")

    assert prepare(settings, seed=1).labeled.tolist() == [5, 50]
    with pytest.raises(UserError, match=r"'digits-8x8 train' .*200 images"):
        prepare(settings, seed=2)


def test_fully_labeled_data_are_used_as_labeled_and_as_unlabeled() -> None:
    data = prepare(DataSettings(source="digits-8x8"), seed=0)

    assert data.fully_labeled
    assert torch.equal(data.labels, DIGITS.labels)
    assert data.labeled.tolist() == data.unlabeled.tolist() == [*range(1442)]


def test_a_split_is_repeated_whatever_the_seed(tmp_path: Path) -> None:
    chosen = torch.tensor([5, 50, 500])
    write_manifest(tmp_path / "split.json", DIGITS, chosen, seed=9)

    data = prepare(DataSettings(source="digits-8x8", split=tmp_path / "split.json"), seed=1)

    assert torch.equal(data.labeled, chosen)
    assert (data.labels >= 0).nonzero().flatten().tolist() == [5, 50, 500]
    assert len(data.unlabeled) == 1439


@pytest.mark.parametrize("labels", ["all", 100])
def test_adaptation_takes_labels_from_the_source_and_hides_those_of_the_target(
    labels: int | Literal["all"],
) -> None:
    data = prepare(
        DataSettings(source="digits-8x8", target="mnist-5k", labels=labels, image_size=12), seed=0
    )

    source, target = DIGITS.resize(12), load_images("mnist-5k", "train", NOWHERE).resize(12)
    assert torch.equal(convert_image(data.train), torch.cat([source.pixels, target.pixels]))
    assert data.unlabeled.tolist() == [*range(1442, 5442)]
    assert len(data.labeled) == (1442 if labels == "all" else labels)
    assert torch.equal(data.labels[data.labeled], DIGITS.labels[data.labeled])
    hidden = torch.ones(5442, dtype=torch.bool)
    hidden[data.labeled] = False
    assert (data.labels[hidden] == -1).all()
    assert not data.fully_labeled
    test = load_images("mnist-5k", "test", NOWHERE).resize(12)
    assert torch.equal(convert_image(data.test), test.pixels)
    assert torch.equal(data.test_labels, test.labels)


def test_the_size_of_the_source_is_the_default() -> None:
    data = prepare(DataSettings(source="digits-8x8", target="mnist-5k"), seed=0)

    assert data.train.shape == data.test.shape == (1, 8, 8)


def test_adaptation_between_different_tasks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    color = Images(
        "colors", torch.zeros(2, 3, 8, 8, dtype=torch.uint8), torch.tensor([0, 1]), ("red", "blue")
    )
    monkeypatch.setattr(
        module, "load", lambda name, part, folder: DIGITS if name == "digits-8x8" else color
    )

    with pytest.raises(UserError, match=r"colors has the classes red, blue, .* 0, 1, 2, … \(10\)"):
        prepare(DataSettings(source="digits-8x8", target="mnist"), seed=0)
    color = replace(color, classes=DIGITS.classes)
    with pytest.raises(UserError, match=r"colors has 3 channel\(s\), .* 1; data\.channels = 1"):
        prepare(DataSettings(source="digits-8x8", target="mnist"), seed=0)


def test_colors_are_turned_gray_as_by_pillow_to_adapt_to_gray_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pixels = torch.randint(256, (20, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    color = Images(
        "colors", pixels.to(torch.uint8), torch.arange(20) % 10, tuple(map(str, range(10)))
    )
    monkeypatch.setattr(
        module, "load", lambda name, part, folder: color if name == "svhn" else DIGITS
    )

    data = prepare(DataSettings(source="svhn", target="digits-8x8", channels=1), seed=0)

    found = convert_image(data.train)
    for image, gray in zip(color.pixels, found, strict=False):
        expected = Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L")
        assert gray[0].tolist() == np.asarray(expected).tolist()
    assert torch.equal(found[20:], DIGITS.pixels)


def test_the_folder_of_the_settings_is_used(tmp_path: Path) -> None:
    broken = tmp_path / "usps" / "usps.bz2"
    broken.parent.mkdir()
    broken.write_bytes(b"broken")

    with pytest.raises(UserError, match=f"^{broken}"):
        prepare(DataSettings(source="usps", folder=tmp_path), seed=0)


@pytest.mark.parametrize(
    "settings",
    [
        {"source": "fashion"},
        {"source": "mnist", "labels": 0},
        {"source": "mnist", "labels": "most"},
        {"source": "mnist", "labels": "0%"},
        {"source": "mnist", "labels": "100%"},
        {"source": "mnist", "labels": "-5%"},
        {"source": "mnist", "workers": -1},
        {"source": "mnist", "broken_share": 1.0},
        {"source": "mnist", "image_size": 0},
        {"source": "mnist", "images": 0},
        {"source": "mnist", "imbalance": 0.5},
        {"source": "mnist", "labels": 100, "foreign": 0.5},
        {"source": "mnist", "classes": ["1", "2"], "foreign": 0.5},
        {"path": "mine", "imbalance": 10.0},
        {"path": "mine", "foreign": 0.5},
        {"source": "mnist", "lables": 100},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DataSettings.model_validate(settings)


SIX = ("5", "6", "7", "8", "9", "0")  # the classes of the task; the others are foreign


def test_foreign_images_replace_a_share_of_the_unlabeled_ones() -> None:
    known = int(torch.isin(DIGITS.labels, torch.tensor([5, 6, 7, 8, 9, 0])).sum())
    foreign = DIGITS.pixels[torch.isin(DIGITS.labels, torch.tensor([1, 2, 3, 4]))]
    seen = {tuple(pixels.flatten().tolist()) for pixels in foreign}
    plain = prepare(DataSettings(source="digits-8x8", classes=SIX, labels=60), seed=4)
    before = set(plain.unlabeled.tolist())
    assert len(before) == known - 60
    for share in (0.25, 0.5):
        settings = DataSettings(source="digits-8x8", classes=SIX, labels=60, foreign=share)
        data = prepare(settings, seed=4)
        added = round(share * (known - 60))
        assert len(data.train) == len(data.labels) == known + added
        assert len(data.unlabeled) == known - 60
        assert torch.equal(data.labeled, plain.labeled)
        assert torch.equal(data.labels[data.labeled], plain.labels[plain.labeled])
        assert (data.labels[data.unlabeled] == -1).all()
        assert data.unlabeled[-added:].tolist() == [*range(known, known + added)]
        pixels = convert_image(data.train)[known:]
        assert {tuple(each.flatten().tolist()) for each in pixels} <= seen
        kept = data.unlabeled[:-added]
        assert set(kept.tolist()) < before
        assert data.source is not None
        counts = data.source.labels[kept].bincount()
        shares = (1 - share) * data.source.labels[plain.unlabeled].bincount()
        assert (counts - shares).abs().max() <= 1  # of each class the same share
        assert torch.equal(data.test_labels, plain.test_labels)
        assert prepare(settings, seed=4).fingerprint() == data.fingerprint()
        assert prepare(settings, seed=5).fingerprint() != data.fingerprint()


def test_uneven_classes_leave_the_test_part_as_it_is(tmp_path: Path) -> None:
    classes = ("3", "1", "2")
    settings = DataSettings(source="digits-8x8", classes=classes, labels=21, imbalance=4)
    data = prepare(settings, seed=0)
    assert data.labels[data.labeled].bincount().tolist() == [12, 6, 3]
    assert data.source is not None
    sizes = data.source.labels.bincount().tolist()
    assert sizes[1] == pytest.approx(sizes[0] / 2, abs=1)
    assert sizes[2] == pytest.approx(sizes[0] / 4, abs=1)
    assert sizes[0] == int((DIGITS.labels == 3).sum())  # the first named is the most frequent
    assert len(data.unlabeled) == sum(sizes) - 21
    even = prepare(settings.model_copy(update={"imbalance": 1.0}), seed=0)
    assert torch.equal(data.test_labels, even.test_labels)
    write_manifest(tmp_path / "split.json", data.source, data.labeled, seed=0)
    split = settings.model_copy(update={"split": tmp_path / "split.json"})
    assert torch.equal(prepare(split, seed=0).labels, data.labels)


def test_more_foreign_images_than_there_are_is_refused() -> None:
    nine = tuple("012345678")
    with pytest.raises(UserError, match=r"data\.foreign = 0\.5 of .* smaller share"):
        prepare(DataSettings(source="digits-8x8", classes=nine, labels=90, foreign=0.5), seed=0)
    ten = tuple("0123456789")
    with pytest.raises(UserError, match="train has 0;"):
        prepare(DataSettings(source="digits-8x8", classes=ten, labels=90, foreign=0.5), seed=0)


def test_a_share_of_the_labels() -> None:
    data = prepare(DataSettings(source="digits-8x8", labels="10%"), seed=0)

    assert data.labels[data.labeled].bincount().tolist() == [14] * 10  # of 1442 images


def test_a_split_must_have_the_share_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    write_manifest(path, DIGITS, choose_labeled(DIGITS, "10%", seed=5), seed=5)

    settings = DataSettings(source="digits-8x8", split=path, labels="10%")
    assert len(prepare(settings, seed=1).labeled) == 140
    with pytest.raises(UserError, match=r"data\.labels = 20%, but data\.split = .* 140 labels"):
        prepare(settings.model_copy(update={"labels": "20%"}), seed=1)


def test_images_in_memory_need_no_workers() -> None:
    with pytest.raises(UserError, match=r"data\.workers = 2: digits-8x8 train"):
        prepare(DataSettings(source="digits-8x8", workers=2), seed=0)


@warns_of_the_count
def test_photos_that_are_read_while_training_are_not_turned_gray(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path, train=1, val=1)

    with pytest.raises(UserError, match=r"data\.channels = 1: imagenet train is read while"):
        prepare(DataSettings(source="imagenet", channels=1, folder=folder), seed=0)


@warns_of_the_count
def test_imagenet_is_not_mixed_with_images_in_memory(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path, train=1, val=1)
    settings = DataSettings(source="imagenet", target="digits-8x8", folder=folder)

    with pytest.raises(UserError, match=r"data\.target: digits-8x8 "):
        prepare(settings, seed=0)


@warns_of_the_count
def test_two_classes_of_imagenet_at_the_size_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dualstudent.data.prepare.count_cores", lambda: 3)
    folder = write_imagenet(tmp_path, train=3, val=2)
    settings = DataSettings(source="imagenet", classes=(SYNSETS[3], SYNSETS[1]), folder=folder)

    data = prepare(settings, seed=0)
    assert (data.train.shape, len(data.train), len(data.test)) == ((3, 224, 224), 6, 4)
    assert data.labels.tolist() == [1, 1, 1, 0, 0, 0]
    assert data.test_labels.tolist() == [1, 1, 0, 0]
    assert data.train.workers == 3
    smaller = prepare(settings.model_copy(update={"image_size": 48, "workers": 0}), seed=0)
    assert (smaller.test.shape, smaller.test.workers) == ((3, 48, 48), 0)
    (views,) = smaller.test.make_views(torch.arange(4), [None])
    # Class 1 is green, class 0 yellow: only the latter has much red.
    assert (views[:, 0].mean((1, 2)) > 0).tolist() == [False, False, True, True]


@pytest.mark.filterwarnings("ignore::dualstudent.errors.DataWarning")
def test_usps_to_mnist(data_folder: Path) -> None:
    data = prepare(
        DataSettings(source="usps", target="mnist", image_size=28, folder=data_folder), seed=0
    )
    batches = BatchLoader(data, BatchSettings(size=256, labeled=32), seed=0)
    batch = batches.batch(0)

    assert data.labeled.tolist() == [*range(7291)]
    assert data.unlabeled.tolist() == [*range(7291, 67291)]
    assert (data.labels[7291:] == -1).all()
    assert len(data.test) == 10_000
    assert batches.steps_per_epoch == 267
    # Both ends of the scale mean the same in both: paper −1, ink 1.
    for domain in (batch.views[0][batch.unlabeled], batch.views[0][~batch.unlabeled]):
        assert (domain.min().item(), domain.max().item()) == (-1, 1)
        assert domain.median() < -0.9


def test_two_classes_are_kept_and_counted_anew() -> None:
    data = prepare(DataSettings(source="digits-8x8", classes=("7", "3"), labels=20), seed=0)

    kept = DIGITS.select(((DIGITS.labels == 7) | (DIGITS.labels == 3)).nonzero().squeeze(1))
    assert torch.equal(convert_image(data.train), kept.pixels)
    assert data.labels[data.labeled].tolist() == (kept.labels[data.labeled] == 3).long().tolist()
    assert data.classes == ("7", "3")
    assert data.labels[data.labeled].bincount().tolist() == [10, 10]
    test = load_images("digits-8x8", "test", NOWHERE)
    truth = test.labels[(test.labels == 7) | (test.labels == 3)]
    assert data.test_labels.tolist() == (truth == 3).long().tolist()


@pytest.mark.parametrize("classes", [("3", "eleven"), ("3", "3")])
def test_classes_that_are_not_there_or_twice_are_refused(classes: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"data\.classes = .* 0, 1, 2"):
        prepare(DataSettings(source="digits-8x8", classes=classes), seed=0)


def test_a_recipe_without_a_source_waits_for_data_from_python() -> None:
    with pytest.raises(UserError, match=r"data\.source"):
        prepare(DataSettings(), seed=0)
