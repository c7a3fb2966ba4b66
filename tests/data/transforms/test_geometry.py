import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from dualstudent.data.transforms.geometry import (
    NUMBERS_OF_AFFINE,
    NUMBERS_OF_CROP,
    NUMBERS_OF_CUTOUT,
    affine,
    choose_boxes,
    cutout,
    random_resized_crop,
    rotate,
)
from tests.support.photos import make_photo, to_image, to_photo


def uniform(count: int, each: int = NUMBERS_OF_CROP) -> Tensor:
    return torch.rand(count, each, generator=torch.Generator().manual_seed(1))


def spread(values: Tensor) -> float:
    """How far values are from uniform in [0, 1]: Kolmogorov's and Smirnov's distance."""
    return float((values.sort().values - torch.linspace(0, 1, len(values))).abs().max())


def test_parts_have_the_area_and_aspect_of_the_definition() -> None:
    high, wide = 3000, 4000  # large, so that rounding to pixels does not matter
    top, left, height, width = choose_boxes(high, wide, uniform(4000)).unbind(1)
    area = height * width / (high * wide)
    aspect = (width / height).log()

    assert min(left.min(), top.min()) >= 0
    assert (left + width).max() <= wide
    assert (top + height).max() <= high
    assert 0.079 < area.min() < 0.09
    assert 0.97 < area.max() <= 1
    assert -math.log(4 / 3) - 1e-3 < aspect.min() < -0.28
    assert 0.28 < aspect.max() < math.log(4 / 3) + 1e-3
    # All small parts fit, so there nothing was rejected: uniform area, log-uniform aspect.
    small = area < 0.5
    assert spread((area[small] - 0.08) / 0.42) < 0.04
    assert abs(aspect[small].mean()) < 0.01
    assert aspect[small].std().item() == pytest.approx(2 * math.log(4 / 3) / 12**0.5, rel=0.03)
    # Where a small part lies is uniform, too.
    assert spread(left[small] / (wide - width[small])) < 0.04
    assert spread(top[small] / (high - height[small])) < 0.04


@pytest.mark.parametrize(
    ("size", "expected"),
    [((10, 3000), (0, 1493, 10, 13)), ((3000, 10), (1493, 0, 13, 10)), ((1, 1), (0, 0, 1, 1))],
)
def test_where_no_part_fits_it_is_the_center(
    size: tuple[int, int], expected: tuple[int, ...]
) -> None:
    # Half of the area of 3000 × 10 pixels in an aspect near 1 is far higher than the photo.
    assert choose_boxes(*size, torch.full((1, NUMBERS_OF_CROP), 0.5)).tolist() == [list(expected)]


@pytest.mark.parametrize("size", [(32, 32), (20, 45), (90, 70)])
@pytest.mark.parametrize("row", range(5))
def test_a_part_fills_the_view_as_pillow_resizes_it(row: int, size: tuple[int, int]) -> None:
    photo, numbers = make_photo(90, 60), uniform(5)[row : row + 1]
    top, left, height, width = choose_boxes(60, 90, numbers)[0].tolist()
    part = to_image(photo).crop((left, top, left + width, top + height))
    expected = to_photo(part.resize((size[1], size[0]), Image.Resampling.BILINEAR))
    assert (random_resized_crop(photo, size, numbers) - expected).abs().max() <= 1


@pytest.mark.parametrize("size", [(32, 32), (60, 90)])
def test_a_batch_is_cropped_as_its_images_are_one_by_one(size: tuple[int, int]) -> None:
    numbers = uniform(20)
    photos = torch.cat([make_photo(90, 60).roll(shift, dims=1) for shift in range(20)])
    together = random_resized_crop(photos, size, numbers)
    for row in range(20):
        alone = random_resized_crop(photos[row : row + 1], size, numbers[row : row + 1])
        assert (together[row].int() - alone[0].int()).abs().max() <= 1  # halves, either way


@pytest.mark.parametrize(("number", "degrees"), [(0.0, -30.0), (0.25, -15.0), (0.9, 24.0)])
def test_images_are_rotated_about_their_center_as_pillow_does_it(
    number: float, degrees: float
) -> None:
    photo = make_photo(90, 60)
    turned = rotate(photo, 30, torch.tensor([[number]]))
    expected = to_photo(to_image(photo).rotate(degrees, Image.Resampling.BILINEAR))
    inside = (rotate(torch.full_like(photo, 255), 30, torch.tensor([[number]])) == 255) & (
        expected > 0
    )
    assert inside.float().mean() > 0.7
    difference = (turned - expected).abs()[inside]
    assert difference.max() <= 2  # Pillow rounds positions to the nearest of 65,536ths
    assert (turned == 0).float().mean() > 0.01  # corners are black


def test_every_image_has_its_own_angle() -> None:
    photos = make_photo(40, 40).expand(3, -1, -1, -1)
    turned = rotate(photos, 90, torch.tensor([[0.0], [0.5], [1.0]]))
    assert torch.equal(turned[0], photos[0].rot90(-1, dims=(1, 2)))
    assert torch.equal(turned[1], photos[0])
    assert torch.equal(turned[2], photos[0].rot90(1, dims=(1, 2)))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("row", range(5))
def test_images_are_mapped_as_pillow_does_it_with_borders_continued(
    row: int, channels: int
) -> None:
    photo, numbers = make_photo(50, 40)[:, :channels], uniform(5, NUMBERS_OF_AFFINE)[row]
    angle, wider, higher, slope, right, down = (2 * numbers.double().numpy() - 1) * [
        math.radians(40),
        0.3,
        0.3,
        0.2,
        0.1,
        0.1,
    ]
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    linear = turn @ np.array([[1, slope], [0, 1]]) @ np.diag(np.exp([wider, higher]))
    # Pillow has black borders, so it gets an image whose borders were continued before.
    margin = 60
    padded = np.pad(photo[0].numpy(), ((0, 0), (margin, margin), (margin, margin)), mode="edge")
    center = np.array([25, 20])
    start = center + margin - linear @ (center + np.array([50 * right, 40 * down]))
    source = (*linear[0], start[0], *linear[1], start[1])
    expected = to_image(torch.from_numpy(padded)[None]).transform(
        (50, 40), Image.Transform.AFFINE, source, Image.Resampling.BILINEAR
    )
    mapped = affine(photo, (40, 0.3, 0.2, 0.1), numbers[None])
    assert (mapped - to_photo(expected)).abs().max() <= 2  # Pillow cuts off fractions


def test_each_limit_of_an_affine_map_is_its_own() -> None:
    photos = make_photo(40, 40).expand(2, -1, -1, -1)
    ends = torch.tensor([[0.0] * 6, [0.5] * 6])
    turned = affine(photos, (90, 0, 0, 0), ends)
    assert torch.equal(turned[0], photos[0].rot90(-1, dims=(1, 2)))
    assert torch.equal(turned[1], photos[1])
    moved = affine(photos, (0, 0, 0, 0.25), ends)  # by ten pixels to the left and upwards
    assert torch.equal(moved[0, :, :30, :30], photos[0, :, 10:, 10:])
    assert torch.equal(moved[0, :, 30:, 30:], photos[0, :, -1:, -1:].expand(-1, 10, 10))
    sheared = affine(photos, (0, 0, 0.4, 0), ends)  # at 5.5 from the middle by 2.2
    row = photos[0, :, 25].float()
    assert (sheared[0, :, 25, 5:] - (0.2 * row[:, 2:-3] + 0.8 * row[:, 3:-2])).abs().max() < 0.51
    larger = affine(photos, (0, math.log(2), 0, 0), ends)  # the middle, twice as large
    assert (larger[0].float().mean() - photos[0, :, 10:30, 10:30].float().mean()).abs() < 1


@pytest.mark.parametrize("channels", [1, 3])
def test_a_batch_is_mapped_as_its_images_are_one_by_one(channels: int) -> None:
    photos = torch.cat([make_photo(30, 20).roll(i, dims=3) for i in range(33)])[:, :channels]
    limits, numbers = (30, 0.2, 0.2, 0.1), uniform(33, NUMBERS_OF_AFFINE)
    together = affine(photos.to(memory_format=torch.channels_last), limits, numbers)
    alone = [affine(photos[i : i + 1], limits, numbers[i : i + 1]) for i in range(33)]
    assert torch.equal(together, torch.cat(alone))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_box_of_gray_covers_what_it_should(channels: int) -> None:
    photos = make_photo(30, 20)[:, :channels].expand(50, -1, -1, -1)
    numbers = uniform(50, NUMBERS_OF_CUTOUT)
    covered = cutout(photos, 0.6, numbers)
    for view, (size, row, column) in zip(covered, numbers.tolist(), strict=True):
        expected = photos[0].clone()
        for y, x in np.ndindex(20, 30):
            if (
                abs(y + 0.5 - 20 * row) < 0.6 * size * 20 / 2
                and abs(x + 0.5 - 30 * column) < 0.6 * size * 30 / 2
            ):
                expected[:, y, x] = 128
        assert torch.equal(view, expected)


def test_boxes_are_uniform_in_side_and_never_larger_than_set() -> None:
    black = torch.zeros(4000, 1, 40, 40, dtype=torch.uint8)
    numbers = uniform(4000, NUMBERS_OF_CUTOUT)
    numbers[:, 1:] = 0.5  # in the middle, where nothing is cut off
    sides = (cutout(black, 0.5, numbers) == 128).sum(dim=(1, 2, 3)).sqrt() / 40
    assert sides.max() == 0.5
    assert spread(sides / 0.5) < 0.12  # sides are whole and, in the middle, even numbers of pixels
