"""On real images: copies are found, different ones are not."""

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dualstudent.data.images.decoding import decode, resize
from dualstudent.data.images.duplicates import find_exact_duplicates, find_near_duplicates
from dualstudent.data.sources.bundled import load_mnist_5k
from dualstudent.errors import DataWarning
from tests.support.sources import load_images

Pixels = NDArray[np.uint8]


def test_exact_duplicates_lead_to_the_first() -> None:
    digests = np.array([b"c", b"a", b"c", b"b", b"a", b"c"])
    assert find_exact_duplicates(digests).tolist() == [0, 1, 0, 3, 1, 0]


def as_image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))


def copy_of(pixels: Pixels, change: str) -> Pixels:
    """The image as someone else's program might have saved it, at its old size again."""
    image, kind, side = as_image(pixels), "PNG", pixels.shape[-1]
    if change == "as JPEG":
        kind = "JPEG"
    elif change == "enlarged":
        image = image.resize((2 * side, 2 * side), Image.Resampling.BICUBIC)
    elif change == "brighter":
        image = image.point(lambda value: 0.9 * value + 20)
    elif change == "darker":
        image = image.point(lambda value: 0.85 * value)
    file = io.BytesIO()
    image.save(file, kind, quality=85)
    return resize(decode(file.getvalue(), 1 if len(pixels) == 1 else 3), side)


@pytest.fixture(scope="module", params=["mnist-5k", "cifar10", "svhn"])
def pictures(request: pytest.FixtureRequest) -> Pixels:
    if request.param == "mnist-5k":
        return load_mnist_5k("train", Path()).pixels.numpy()[:3000]
    name: str = request.param
    folder = request.getfixturevalue("data_folder")
    with warnings.catch_warnings():  # a part of the published images will do
        warnings.simplefilter("ignore", DataWarning)
        return load_images(name, "train", folder).pixels.numpy()[:3000]


@pytest.mark.parametrize("change", ["as JPEG", "enlarged", "brighter", "darker"])
def test_copies_are_found_and_different_pictures_are_not(pictures: Pixels, change: str) -> None:
    copies = np.stack([copy_of(image, change) for image in pictures[:200]])
    both = np.concatenate([pictures, copies])
    groups = np.repeat([0, 1], [len(pictures), len(copies)])
    match = find_near_duplicates([both], groups, count=2)
    found = match[len(pictures) :, 0] == np.arange(200)
    assert found.mean() >= 0.99
    wrong = (match[len(pictures) :, 0] >= 0) & ~found
    assert not wrong.any()
    others = match[: len(pictures), 0]
    assert (others >= 0).sum() <= 4  # of 4.5 million pairs; a few may be real ones


def smooth(seed: int, count: int = 60, side: int = 32) -> Pixels:
    coarse = np.random.default_rng(seed).integers(0, 256, (count, 6, 6, 3), np.uint8)
    images = [Image.fromarray(c).resize((side, side), Image.Resampling.BICUBIC) for c in coarse]
    return np.stack([np.asarray(image).transpose(2, 0, 1) for image in images])


def test_every_group_is_searched_in_any_order_of_images_and_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dualstudent.data.images.duplicates._BLOCK", 7)
    originals = smooth(0)
    copies = np.clip(originals[:30].astype(int) + 9, 0, 255).astype(np.uint8)
    pixels = np.concatenate([originals, copies])
    shuffled = np.random.default_rng(1).permutation(len(pixels))
    groups = np.random.default_rng(2).integers(0, 3, len(pixels))
    match = find_near_duplicates([pixels[shuffled]], groups, count=3)
    place = np.argsort(shuffled)
    expected = np.full((len(pixels), 3), -1)
    for i in range(30):
        here, there = place[i], place[60 + i]
        expected[here, groups[there]] = there
        expected[there, groups[here]] = here
    assert np.array_equal(match, expected)


@pytest.mark.parametrize("block", [1, 2048])
def test_the_most_similar_one_is_named(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dualstudent.data.images.duplicates._BLOCK", block)
    image = smooth(0, 1)[0].astype(int)
    noise = np.random.default_rng(0).normal(size=image.shape)
    pixels = np.stack([image, image + 12 * noise, image + 4 * noise, image + 8 * noise])
    match = find_near_duplicates([pixels.clip(0, 255).astype(np.uint8)], np.zeros(4, int), count=1)
    assert match[0, 0] == 2


def test_mirrored_and_turned_pictures_are_not_near_duplicates() -> None:
    images = smooth(3)
    for changed in (images[..., ::-1], images[..., ::-1, :], images.swapaxes(2, 3)):
        both = np.concatenate([images, changed])
        assert (find_near_duplicates([both], np.zeros(len(both), int), count=1) == -1).all()


def test_pictures_without_contrast_are_never_near_duplicates() -> None:
    flat = np.full((5, 3, 32, 32), 128, np.uint8)
    flat[:, :, 3, 3] += 1
    assert (find_near_duplicates([flat], np.zeros(5, int), count=1) == -1).all()


def test_very_small_pictures() -> None:
    images = smooth(4, side=5)
    both = np.concatenate([images, images])
    match = find_near_duplicates([both], np.zeros(len(both), int), count=1)
    assert match[:60, 0].tolist() == list(range(60, 120))


def test_a_film_does_not_fill_the_memory() -> None:
    film = np.repeat(smooth(5, 1), 5000, axis=0)
    match = find_near_duplicates([film], np.zeros(len(film), int), count=1)
    assert match.shape == (5000, 1)
    assert (match >= 0).all()
    assert (match[:, 0] != np.arange(5000)).all()
