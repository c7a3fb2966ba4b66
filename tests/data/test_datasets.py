from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent.data.datasets import Images
from dualstudent.errors import UserError

LABELS = torch.tensor([0, 1, 2, 2, 1])


def images(pixels: Tensor) -> Images:
    labels = LABELS.repeat(len(pixels))[: len(pixels)]
    return Images("shapes", pixels, labels, ("circle", "square", "cross"))


def random_bytes(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


def cubic_weights(before: int, after: int) -> np.ndarray:
    """Keys' cubic convolution with a = −0.75, pixels as areas, border pixels repeated."""
    a = -0.75
    weights = np.zeros((after, before))
    for row in range(after):
        center = (row + 0.5) * before / after - 0.5
        for neighbor in range(int(np.floor(center)) - 1, int(np.floor(center)) + 3):
            x = abs(center - neighbor)
            near = (a + 2) * x**3 - (a + 3) * x**2 + 1
            far = a * (x**3 - 5 * x**2 + 8 * x - 4)
            weights[row, np.clip(neighbor, 0, before - 1)] += near if x <= 1 else far
    return weights


@pytest.mark.parametrize(("before", "after"), [(16, 28), (8, 9)])
def test_enlarging_is_cubic_interpolation(before: int, after: int) -> None:
    original = random_bytes(5, 3, before, before)
    weights = cubic_weights(before, after)

    resized = images(original).resize(after).pixels

    exact = np.clip(weights @ original.numpy().astype(float) @ weights.T, 0, 255)
    # Half a gray level for rounding to bytes, and a little for float32.
    assert np.abs(resized.numpy() - exact).max() <= 0.5 + 1e-3
    assert (exact == 255).any()  # overshoots are cut off, not wrapped around
    assert (exact == 0).any()


def test_resizing_treats_every_image_alike_however_many_there_are() -> None:
    many = images(random_bytes(5000, 1, 4, 4))
    last = torch.arange(4090, 5000)

    assert torch.equal(many.resize(6).pixels[last], many.select(last).resize(6).pixels)


@pytest.mark.parametrize("gray", [0, 1, 127, 255])
def test_a_constant_image_stays_constant(gray: int) -> None:
    constant = images(torch.full((2, 1, 16, 16), gray, dtype=torch.uint8))

    assert (constant.resize(28).pixels == gray).all()


def test_a_ramp_stays_a_ramp() -> None:
    ramp = torch.linspace(0, 255, 16).to(torch.uint8).expand(1, 1, 16, 16)

    rows = images(ramp).resize(28).pixels[0, 0].int()

    assert (rows.diff(dim=1) >= 0).all()
    assert (rows - rows[0]).abs().max() <= 1  # halves may be rounded either way
    assert rows[0, 0] <= 2
    assert rows[0, -1] >= 253


def test_the_size_they_have_costs_nothing() -> None:
    original = images(random_bytes(3, 1, 8, 8))

    assert original.resize(8) is original


def test_selecting_keeps_images_and_labels_together_in_the_given_order() -> None:
    pixels = random_bytes(5, 1, 2, 2)

    chosen = images(pixels).select(torch.tensor([3, 0]))

    assert torch.equal(chosen.pixels, torch.stack([pixels[3], pixels[0]]))
    assert chosen.labels.tolist() == [2, 0]


def test_the_fingerprint_depends_on_the_content_only() -> None:
    pixels = random_bytes(5, 3, 4, 4)
    original = images(pixels)
    strided = images(pixels.to(memory_format=torch.channels_last))

    assert strided.fingerprint() == original.fingerprint()
    assert replace(original, name="other").fingerprint() == original.fingerprint()


def test_the_fingerprint_notices_a_pixel_a_label_the_shape_and_the_order() -> None:
    pixels = random_bytes(5, 3, 4, 4)
    original = images(pixels)
    other_pixel = pixels.clone()
    other_pixel[4, 2, 3, 3] ^= 1
    others = [
        images(other_pixel),
        replace(original, labels=torch.tensor([0, 1, 2, 2, 2])),
        images(pixels.reshape(5, 3, 2, 8)),
        original.select(torch.tensor([1, 0, 2, 3, 4])),
    ]

    fingerprints = {one.fingerprint() for one in [original, *others]}

    assert len(fingerprints) == 5


@pytest.mark.parametrize(
    ("labels", "telling"),
    [
        ([0, 1], "shapes: 3 .* 2 "),
        ([0, 1, 3], "shapes: .* 0 to 3.* 0 to 2"),
        ([0, -1, 2], "shapes: .* -1 to 2"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: list[int], telling: str) -> None:
    with pytest.raises(UserError, match=telling):
        Images("shapes", random_bytes(3, 1, 2, 2), torch.tensor(labels), ("a", "b", "c"))


def test_no_images_are_refused() -> None:
    with pytest.raises(UserError, match="shapes"):
        images(random_bytes(0, 1, 2, 2))
