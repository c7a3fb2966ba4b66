"""Pillow itself is the reference: what is called "as Pillow" must be that, byte by byte."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_digits
from torch import Tensor

from dualstudent.data.transforms import pillow
from tests.support.photos import make_photo, to_image, to_photo

Reference = Callable[[Image.Image, float], Image.Image]


RECOLORINGS: dict[Callable[[Tensor, Tensor], Tensor], tuple[Reference, float, float]] = {
    pillow.keep: (lambda image, _: image, 0, 1),
    pillow.autocontrast: (lambda image, _: ImageOps.autocontrast(image), 0, 1),
    pillow.equalize: (lambda image, _: ImageOps.equalize(image), 0, 1),
    pillow.posterize: (lambda image, bits: ImageOps.posterize(image, int(bits)), 1, 8.5),
    pillow.solarize: (
        lambda image, level: image.point(lambda value: value if value < level else 255 - value),
        0,
        256,
    ),
    pillow.brightness: (
        lambda image, factor: ImageEnhance.Brightness(image).enhance(factor),
        0,
        2.5,
    ),
    pillow.contrast: (lambda image, factor: ImageEnhance.Contrast(image).enhance(factor), 0, 2.5),
    pillow.color: (lambda image, factor: ImageEnhance.Color(image).enhance(factor), 0, 2.5),
    pillow.sharpness: (lambda image, factor: ImageEnhance.Sharpness(image).enhance(factor), 0, 2.5),
}


def transform(image: Image.Image, *source: float) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, source)


MOVES: tuple[tuple[Reference, float], ...] = (
    (lambda image, degrees: image.rotate(degrees), 180),
    (lambda image, slope: transform(image, 1, slope, 0, 0, 1, 0), 1),
    (lambda image, slope: transform(image, 1, 0, 0, slope, 1, 0), 1),
    (lambda image, share: transform(image, 1, 0, share * image.width, 0, 1, 0), 1),
    (lambda image, share: transform(image, 1, 0, 0, 0, 1, share * image.height), 1),
)


def make_images(channels: int) -> Tensor:
    """Photos of one size: smooth, dim, with two values, with one, and nothing but noise."""
    smooth = make_photo(31, 24)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, smooth.shape, generator=generator).to(torch.uint8)
    images = [smooth, smooth // 3 + 40, noise, noise // 128 * 77, torch.full_like(noise, 9)]
    return torch.cat(images)[:, :channels]


def make_digits() -> Tensor:
    digits = torch.from_numpy(load_digits().images[:20] * 15).to(torch.uint8)
    return digits[:, None]


def uniform(count: int, low: float, high: float) -> Tensor:
    numbers = torch.rand(count, generator=torch.Generator().manual_seed(1))
    return low + (high - low) * numbers


def apply(reference: Reference, images: Tensor, strengths: Tensor) -> Tensor:
    """Apply the reference to each image."""
    pairs = zip(torch.split(images, 1), strengths.tolist(), strict=True)
    return torch.cat([to_photo(reference(to_image(image), own)) for image, own in pairs])


@pytest.mark.parametrize("images", [make_images(1), make_images(3), make_digits()])
@pytest.mark.parametrize("operation", RECOLORINGS, ids=lambda operation: operation.__name__)
def test_values_are_those_of_pillow(
    operation: Callable[[Tensor, Tensor], Tensor], images: Tensor
) -> None:
    reference, low, high = RECOLORINGS[operation]
    images = images.repeat(4, 1, 1, 1)
    strengths = uniform(len(images), low, high)
    before = images.clone()
    changed = operation(images, strengths)
    assert changed.dtype == torch.uint8
    assert torch.equal(changed.long(), apply(reference, images, strengths))
    assert torch.equal(images, before)


@given(
    data=st.binary(min_size=48, max_size=48),
    operation=st.sampled_from(list(RECOLORINGS)),
    number=st.floats(0, 1, width=32),
)
@settings(max_examples=200, deadline=None)
def test_values_are_those_of_pillow_whatever_the_bytes(
    data: bytes, operation: Callable[[Tensor, Tensor], Tensor], number: float
) -> None:
    reference, low, high = RECOLORINGS[operation]
    strengths = low + (high - low) * torch.tensor([number])
    pixels = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for images in (pixels.reshape(1, 3, 4, 4), pixels.reshape(1, 1, 8, 6)):
        assert torch.equal(operation(images, strengths).long(), apply(reference, images, strengths))


@pytest.mark.parametrize("side", [1, 2, 3])
@pytest.mark.parametrize("operation", RECOLORINGS, ids=lambda operation: operation.__name__)
def test_images_may_be_tiny(operation: Callable[[Tensor, Tensor], Tensor], side: int) -> None:
    reference, low, high = RECOLORINGS[operation]
    images, strengths = make_images(3)[..., :side, :side], uniform(5, low, high)
    assert torch.equal(operation(images, strengths).long(), apply(reference, images, strengths))


def test_gray_images_have_no_color_to_change() -> None:
    images = make_images(1)
    assert torch.equal(pillow.color(images, torch.full((5,), 0.1)), images)


@pytest.mark.parametrize("images", [make_images(1), make_images(3), make_digits()])
@pytest.mark.parametrize("kind", range(5))
def test_pixels_move_as_in_pillow(kind: int, images: Tensor) -> None:
    reference, largest = MOVES[kind]
    images = images.repeat(8, 1, 1, 1)
    amounts = torch.zeros(len(images), 5)
    amounts[:, kind] = uniform(len(images), -largest, largest)
    expected = apply(reference, images, amounts[:, kind])
    differ = pillow.move(images, amounts).long() != expected
    # Pixels from within 2⁻¹⁶ of the line between two may come from the other one.
    assert differ.float().mean() < 1e-3


def test_nothing_moves_by_nothing() -> None:
    images = make_images(3)
    assert torch.equal(pillow.move(images, torch.zeros(5, 5)), images)
