import math

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageEnhance

from dualstudent.data.transforms.photos import (
    NUMBERS_PER_VIEW,
    Chances,
    choose_crop,
    clean_view,
    perturbed_view,
)
from dualstudent.data.transforms.policy import Transform

NEUTRAL = Chances.of(np.full(NUMBERS_PER_VIEW, 0.5))
BILINEAR = Image.Resampling.BILINEAR


def photo(width: int = 90, height: int = 60) -> Image.Image:
    coarse = np.random.default_rng(0).integers(0, 256, (6, 6, 3), np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def values(image: Image.Image) -> NDArray[np.int64]:
    return np.asarray(image).astype(np.int64)


def draws(count: int) -> list[Chances]:
    numbers = np.random.default_rng(1).random((count, NUMBERS_PER_VIEW))
    return [Chances.of(row) for row in numbers]


@pytest.mark.parametrize(
    ("size", "between", "box"),
    [
        ((500, 375), (341, 256), (58, 16, 282, 240)),
        ((375, 500), (256, 341), (16, 58, 240, 282)),
        ((256, 256), (256, 256), (16, 16, 240, 240)),
        ((100, 50), (512, 256), (144, 16, 368, 240)),  # enlarged
    ],
)
def test_a_clean_view_is_the_centre_of_the_photo_at_256(
    size: tuple[int, int], between: tuple[int, int], box: tuple[int, int, int, int]
) -> None:
    expected = photo(*size).resize(between, BILINEAR).crop(box)

    assert np.array_equal(values(clean_view(photo(*size), 224)), values(expected))


def test_without_settings_a_perturbed_view_is_clean() -> None:
    view = perturbed_view(photo(), 32, Transform(), draws(1)[0])

    assert np.array_equal(values(view), values(clean_view(photo(), 32)))


def test_the_middle_of_every_range_changes_nothing() -> None:
    everything = Transform(jitter=(0.4, 0.4, 0.4, 0.1), rotate=10)

    view = perturbed_view(photo(), 32, everything, NEUTRAL)

    # All but the rounding on the way to HSV, where the hue is turned by nothing, and back.
    expected = clean_view(photo(), 32).convert("HSV").convert("RGB")
    assert np.array_equal(values(view), values(expected))


def test_parts_have_the_area_and_aspect_of_the_definition() -> None:
    width, height = 4000, 3000  # large, so that rounding to pixels does not matter
    parts = np.array([choose_crop((width, height), draw) for draw in draws(4000)])
    left, top, right, bottom = parts.T
    area = (right - left) * (bottom - top) / (width * height)
    aspect = np.log((right - left) / (bottom - top))

    assert min(left.min(), top.min()) >= 0
    assert right.max() <= width
    assert bottom.max() <= height
    assert 0.079 < area.min() < 0.09
    assert 0.97 < area.max() <= 1
    assert -math.log(4 / 3) - 1e-3 < aspect.min() < -0.28
    assert 0.28 < aspect.max() < math.log(4 / 3) + 1e-3
    # All small parts fit, so there nothing was rejected: uniform area, log-uniform aspect.
    small = area < 0.5
    share = (area[small] - 0.08) / 0.42
    assert np.abs(np.sort(share) - np.linspace(0, 1, len(share))).max() < 0.04
    assert abs(aspect[small].mean()) < 0.01
    assert aspect[small].std() == pytest.approx(2 * math.log(4 / 3) / math.sqrt(12), rel=0.03)
    # Where a small part lies is uniform, too.
    place = left[small] / (width - (right - left)[small])
    assert np.abs(np.sort(place) - np.linspace(0, 1, len(place))).max() < 0.04


@pytest.mark.parametrize(
    ("size", "expected"),
    [((3000, 10), (1493, 0, 1506, 10)), ((10, 3000), (0, 1493, 10, 1506)), ((1, 1), (0, 0, 1, 1))],
)
def test_where_no_part_fits_it_is_the_centre(
    size: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    # Half of the area of 3000 × 10 pixels in an aspect near 1 is far higher than the photo.
    assert choose_crop(size, NEUTRAL) == expected


def test_a_part_fills_the_view() -> None:
    draw = draws(1)[0]

    view = perturbed_view(photo(), 32, Transform(random_resized_crop=True), draw)

    expected = photo().crop(choose_crop((90, 60), draw)).resize((32, 32), BILINEAR)
    assert np.array_equal(values(view), values(expected))


def test_half_of_the_views_are_mirrored() -> None:
    straight = values(clean_view(photo(), 32))
    views = [values(perturbed_view(photo(), 32, Transform(flip=True), d)) for d in draws(1000)]

    mirrored = sum(np.array_equal(view, straight[:, ::-1]) for view in views)

    assert mirrored + sum(np.array_equal(view, straight) for view in views) == 1000
    assert 430 < mirrored < 570


@pytest.mark.parametrize(("number", "degrees"), [(0.0, -10), (0.25, -5), (1.0, 10)])
def test_the_photo_is_rotated_before_anything_else(number: float, degrees: float) -> None:
    view = perturbed_view(photo(), 32, Transform(rotate=10), NEUTRAL._replace(angle=number))

    expected = clean_view(photo().rotate(degrees), 32)
    assert np.array_equal(values(view), values(expected))


@pytest.mark.parametrize(
    ("kind", "enhance"),
    [(0, ImageEnhance.Brightness), (1, ImageEnhance.Contrast), (2, ImageEnhance.Color)],
)
@pytest.mark.parametrize(("number", "factor"), [(0.0, 0.6), (0.75, 1.2), (1.0, 1.4)])
def test_jitter_changes_by_a_factor_around_one(
    kind: int, enhance: type[ImageEnhance.Brightness], number: float, factor: float
) -> None:
    strength = [0.0] * 4
    strength[kind] = 0.4
    draw = NEUTRAL._replace(jitter=np.full(4, number))

    view = perturbed_view(photo(), 32, Transform(jitter=tuple(strength)), draw)

    expected = enhance(clean_view(photo(), 32)).enhance(factor)
    assert np.abs(values(view) - values(expected)).max() <= 1


def test_hue_turns_the_colors() -> None:
    red = Image.new("RGB", (40, 40), (255, 0, 0))
    third = Transform(jitter=(0, 0, 0, 1 / 3))

    def turned(number: float) -> tuple[int, ...]:
        view = perturbed_view(red, 8, third, NEUTRAL._replace(jitter=np.full(4, number)))
        return tuple(values(view)[0, 0].tolist())

    assert turned(1.0) == pytest.approx((0, 255, 0), abs=6)
    assert turned(0.0) == pytest.approx((0, 0, 255), abs=6)


def test_the_order_of_the_jitter_is_drawn() -> None:
    both = Transform(jitter=(1, 1, 0, 0))
    draw = NEUTRAL._replace(jitter=np.array([1.0, 0.2, 0, 0]))
    clean = clean_view(photo(), 32)

    first = perturbed_view(photo(), 32, both, draw._replace(order=np.array([0.1, 0.2, 0.3, 0.4])))
    last = perturbed_view(photo(), 32, both, draw._replace(order=np.array([0.9, 0.2, 0.3, 0.4])))

    brighter, flatter = ImageEnhance.Brightness, ImageEnhance.Contrast
    assert np.array_equal(values(first), values(flatter(brighter(clean).enhance(2)).enhance(0.4)))
    assert np.array_equal(values(last), values(brighter(flatter(clean).enhance(0.4)).enhance(2)))


def test_every_number_of_a_draw_is_used_once() -> None:
    draw = Chances.of(np.arange(NUMBERS_PER_VIEW) / NUMBERS_PER_VIEW)

    used = [draw.angle, draw.left, draw.top, draw.mirror]
    for several in (draw.areas, draw.aspects, draw.jitter, draw.order):
        used += several.tolist()
    assert len(draw.areas) == len(draw.aspects) == 10
    assert len(draw.jitter) == len(draw.order) == 4
    assert sorted(used) == (np.arange(NUMBERS_PER_VIEW) / NUMBERS_PER_VIEW).tolist()
