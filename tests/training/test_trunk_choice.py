"""Whether `train --data` uses a pretrained trunk: measured on the labeled images."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from dualstudent import DataSettings, prepare
from dualstudent.data.images.own import list_images
from dualstudent.networks.weights import Published
from dualstudent.recipes.own_images import locate_images, validate_request
from dualstudent.training.crossvalidation import split_folds
from dualstudent.training.trunk_choice import (
    TrunkChoice,
    TrunkTrial,
    choose_trunk,
    try_trunk,
)
from dualstudent.trunks.patches import PatchFeatures
from dualstudent.trunks.trunk import FrozenTrunk, TrunkSettings
from tests.support.digit_files import save

SETTINGS = TrunkSettings(name="efficientnet-lite0", image_size=32)


class SeesTheCorner(nn.Module):
    """Its only feature is the first pixel."""

    def forward(self, images: Tensor) -> Tensor:
        return images[:, :1, 0, 0]


@pytest.fixture
def sees_the_corner(monkeypatch: pytest.MonkeyPatch) -> None:
    trunk = FrozenTrunk(SeesTheCorner(), 1, SETTINGS.normalization)
    monkeypatch.setattr("dualstudent.training.trunk_choice.build_trunk", lambda *_: trunk)


def draw_images(count: int) -> tuple[Tensor, Tensor]:
    """Noise whose first pixel tells the class, and whose brightness does so now and then."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % 2
    pixels = torch.randint(0, 200, (count, 3, 32, 32), generator=generator, dtype=torch.uint8)
    pixels[::3] += (40 * labels[::3]).to(torch.uint8).reshape(-1, 1, 1, 1)
    pixels[:, :, 0, 0] = (255 * labels).to(torch.uint8).reshape(-1, 1)
    return pixels, labels


@pytest.mark.usefixtures("sees_the_corner")
def test_errors_are_those_of_cross_validated_logistic_regression() -> None:
    pixels, labels = draw_images(60)
    found = try_trunk(pixels, labels, SETTINGS, seed=3)
    assert found is not None
    folds = split_folds(labels, np.arange(60), seed=3)
    vectors, wrong = PatchFeatures(pixels / 255, seed=3)(pixels / 255), 0
    vectors -= vectors.mean(axis=0)
    vectors /= np.sqrt((vectors**2).mean())
    for fold in range(5):
        line = LogisticRegression(C=12.8 / vectors.shape[1], max_iter=1000)
        line.fit(vectors[folds != fold], labels[folds != fold])
        wrong += int((line.predict(vectors[folds == fold]) != labels[folds == fold].numpy()).sum())
    assert 5 < wrong < 55  # neither trivial nor hopeless; 39 here
    assert found.patches == pytest.approx(100 * wrong / 60)
    assert found.features == 0
    assert found.helps


@pytest.mark.usefixtures("sees_the_corner")
def test_a_single_label_of_each_class_tells_nothing() -> None:
    assert try_trunk(*draw_images(2), SETTINGS) is None
    assert try_trunk(*draw_images(3), SETTINGS) is None  # one class could be hidden, not two


def write_images(folder: Path, pixels: Tensor, labels: Sequence[str]) -> None:
    for number, (image, label) in enumerate(zip(pixels, labels, strict=True)):
        save(Image.fromarray(image.permute(1, 2, 0).numpy()), folder / label / f"{number}.png")


def choose(folder: Path, *changes: str, typical: int = 32) -> TrunkChoice:
    asked = validate_request(locate_images(folder), changes)
    return choose_trunk(asked, list_images(folder), changes, (typical, False))


@pytest.mark.usefixtures("sees_the_corner")
def test_a_trunk_is_chosen_where_it_helps(tmp_path: Path) -> None:
    pixels, labels = draw_images(40)
    write_images(tmp_path / "told", pixels, [f"class {label}" for label in labels])
    write_images(tmp_path / "hidden", pixels, [f"class {n // 2 % 2}" for n in range(40)])
    chosen = choose(tmp_path / "told", "seed=1")
    assert chosen.asked.trunk is not None
    assert chosen.asked.seed == 1
    assert chosen.changes[:2] == ["seed=1", "trunk.name=efficientnet-lite0+2"]
    assert "wrong in 0 % by the features of efficientnet-lite0+2" in chosen.reasons["trunk.name"]
    quicker = chosen.otherwise
    assert quicker is not None
    assert quicker.asked.trunk is not None
    assert (quicker.asked.trunk.name, quicker.asked.seed) == ("efficientnet-lite0", 1)
    assert "too long" in quicker.reasons["trunk.name"]
    scratch = quicker.otherwise
    assert scratch is not None
    assert (scratch.asked.trunk, scratch.changes, scratch.otherwise) == (None, ("seed=1",), None)
    assert "too long" in scratch.reasons["network.name"]
    assert choose(tmp_path / "told", "trunk.name=efficientnet-lite1").otherwise is None
    refused = choose(tmp_path / "hidden")
    assert refused.asked.trunk is None
    assert "by patches of the images" in refused.reasons["network.name"]


@pytest.mark.usefixtures("sees_the_corner")
def test_labels_of_the_source_tell_whether_it_helps_with_two_domains(tmp_path: Path) -> None:
    pixels, labels = draw_images(40)
    write_images(tmp_path / "source", pixels, [f"class {label}" for label in labels])
    write_images(tmp_path / "target", pixels, [f"class {n // 2 % 2}" for n in range(40)])
    chosen = choose(tmp_path)
    assert chosen.asked.trunk is not None
    assert "wrong in 0 % by the features" in chosen.reasons["trunk.name"]


@pytest.mark.usefixtures("sees_the_corner")
def test_on_a_gpu_the_whole_network_is_fine_tuned_where_it_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    pixels, labels = draw_images(40)
    write_images(tmp_path, pixels, [f"class {label}" for label in labels])
    chosen = choose(tmp_path)
    assert chosen.asked.trunk is None
    assert chosen.asked.network.name.startswith("efficientnet-lite")
    assert chosen.changes == [f"network.name={chosen.asked.network.name}"]
    assert "by patches of the images" in chosen.reasons["network.name"]
    assert choose(tmp_path, "device.accelerator=cpu").asked.trunk is not None


def test_the_user_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, draw_images(8)[0], [f"class {n % 2}" for n in range(8)])
    monkeypatch.setattr(
        "dualstudent.training.trunk_choice.try_trunk", lambda *_: pytest.fail("tried")
    )
    for change in ("network.name=whitened-cnn", "trunk.name=efficientnet-lite1"):
        assert choose(tmp_path, change).changes == (change,)
    assert choose(tmp_path, typical=16).reasons == {}  # too small to see anything in them
    assert choose(tmp_path, "data.image_size=16", typical=500).reasons == {}
    monkeypatch.setattr(Published, "find", lambda _: None)
    missing = choose(tmp_path)
    assert missing.asked.trunk is None
    assert "the extra 'pretrained'" in missing.reasons["network.name"]


def test_a_tie_is_no_help() -> None:
    assert not TrunkTrial("of two easy classes", features=0.0, patches=0.0).helps


@pytest.mark.usefixtures("sees_the_corner")
def test_small_gray_images_need_labels_enough_to_tell_them_from_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, labels = draw_images(50)
    gray = pixels[:, :1].expand(-1, 3, -1, -1)  # also if they are stored in color
    names = [f"class {label}" for label in labels]
    write_images(tmp_path / "few", gray[:49], names[:49])
    write_images(tmp_path / "enough", gray, names)
    assert choose(tmp_path / "few").reasons == {}
    assert choose(tmp_path / "enough").asked.trunk is not None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose(tmp_path / "enough").reasons == {}


@pytest.mark.usefixtures("sees_the_corner")
@pytest.mark.parametrize(
    "images",
    [
        torch.full((8, 3, 32, 32), 9),
        torch.arange(8).reshape(8, 1, 1, 1).expand(8, 3, 32, 32),
        torch.arange(32).expand(8, 3, 32, 32),
    ],
    ids=["black", "of one color each", "all the same"],
)
def test_images_without_patches_to_tell_them_apart_are_learned_from_scratch(
    images: Tensor, tmp_path: Path
) -> None:
    write_images(tmp_path, images.byte(), [f"class {n % 2}" for n in range(8)])
    assert choose(tmp_path).reasons == {}


def try_on(source: str, channels: int) -> TrunkTrial:
    """Try the published weights on 20 labels a class."""
    data = prepare(DataSettings(source=source, labels=200), seed=0)
    pixels = data.train.read_pixels(data.labeled)
    assert pixels is not None
    gray = pixels.float().mean(dim=1, keepdim=True).byte().expand(-1, channels, -1, -1)
    settings = SETTINGS.model_copy(update={"image_size": 160})
    found = try_trunk(gray, data.labels[data.labeled], settings)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("channels", [1, 3])  # gray images are often stored in color
def test_digits_do_not_need_it(channels: int) -> None:
    """By pixels, which are worse than patches, it would seem so."""
    found = try_on("mnist-5k", channels)
    assert not found.helps
    assert found.patches < found.features


@pytest.mark.slow
@pytest.mark.usefixtures("data_folder")
def test_small_gray_photos_need_it() -> None:
    assert try_on("cifar10", channels=1).helps


def test_photos_need_it(data_folder: Path) -> None:
    folders = sorted((data_folder / "clothing" / "train").iterdir())
    photos = [path for folder in folders for path in sorted(folder.iterdir())[:10]]
    fitted = [ImageOps.fit(Image.open(path).convert("RGB"), (96, 96)) for path in photos]
    found = try_trunk(
        torch.from_numpy(np.stack([np.asarray(photo) for photo in fitted])).permute(0, 3, 1, 2),
        torch.tensor([folders.index(path.parent) for path in photos]),
        SETTINGS.model_copy(update={"image_size": 96}),
    )
    assert found is not None
    assert found.helps  # wrong in 40 %, 73 % by patches
