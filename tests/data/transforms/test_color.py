import colorsys
from collections.abc import Callable

import pytest
import torch
from PIL import ImageEnhance
from torch import Tensor

from dualstudent.data.transforms.color import (
    change_brightness,
    change_contrast,
    change_saturation,
    jitter,
    turn_hue,
)
from tests.support.photos import make_photo, to_image, to_photo


def numbers(*rows: tuple[float, float, float, float], order: str = "0123") -> Tensor:
    places = [order.index(str(kind)) / 4 for kind in range(4)]
    return torch.tensor([[*row, *places] for row in rows])


@pytest.mark.parametrize(
    ("change", "enhance"),
    [
        (change_brightness, ImageEnhance.Brightness),
        (change_contrast, ImageEnhance.Contrast),
        (change_saturation, ImageEnhance.Color),
    ],
)
@pytest.mark.parametrize("factor", [0.0, 0.6, 1.2, 2.0])
def test_images_are_changed_as_pillow_enhances_them(
    change: Callable[[Tensor, Tensor], Tensor],
    enhance: type[ImageEnhance.Brightness],
    factor: float,
) -> None:
    photo = make_photo()
    changed = change(photo.float(), torch.full((1, 1, 1, 1), factor - 1))
    expected = to_photo(enhance(to_image(photo)).enhance(factor))
    # Pillow cuts off fractions, also of the gray or the mean that it compares with.
    assert (changed - expected).abs().max() <= 1 + abs(1 - factor)


@pytest.mark.parametrize("turn", [-0.5, -0.1, 0.0, 0.3])
def test_hue_turns_every_color_on_its_circle(turn: float) -> None:
    photo = make_photo(8, 8).float()
    photo[..., 0, :4] = torch.tensor([[0, 255, 90, 255], [0, 255, 90, 0], [0, 255, 90, 0]])
    turned = turn_hue(photo, torch.full((1, 1, 1, 1), turn))
    for before, after in zip(
        photo.flatten(2)[0].T.tolist(), turned.flatten(2)[0].T.tolist(), strict=True
    ):
        hue, saturation, value = colorsys.rgb_to_hsv(*(each / 255 for each in before))
        expected = colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value)
        assert after == pytest.approx([255 * each for each in expected], abs=0.01)


def test_the_middle_of_every_range_changes_nothing() -> None:
    photo = make_photo()
    assert torch.equal(jitter(photo, (0.4, 0.4, 0.4, 0.1), numbers((0.5, 0.5, 0.5, 0.5))), photo)


def test_each_image_is_changed_by_its_own_numbers() -> None:
    photos = make_photo().expand(2, -1, -1, -1)
    changed = jitter(photos, (0.5, 0, 0, 0), numbers((0.0, 0, 0, 0), (0.75, 0, 0, 0)))
    for view, factor in zip(changed, (0.5, 1.25), strict=True):
        expected = (photos[0] * factor).round().clamp(0, 255)
        assert torch.equal(view.float(), expected)


def test_the_order_of_the_changes_is_drawn() -> None:
    photo, largest = make_photo(), (1, 1, 0, 0)
    drawn = (1.0, 0.2, 0, 0)
    first = jitter(photo, largest, numbers(drawn, order="0123"))
    last = jitter(photo, largest, numbers(drawn, order="1023"))
    brighter, flatter = ImageEnhance.Brightness, ImageEnhance.Contrast
    image = to_image(photo)
    expected = to_photo(flatter(brighter(image).enhance(2)).enhance(0.4))
    assert (first - expected).abs().max() <= 2
    expected = to_photo(brighter(flatter(image).enhance(0.4)).enhance(2))
    assert (last - expected).abs().max() <= 4  # what was cut off is doubled


def test_each_image_has_its_own_order_whatever_is_beside_it() -> None:
    photos = torch.cat([make_photo(), make_photo().flip(3), 255 - make_photo()]).repeat(20, 1, 1, 1)
    drawn = torch.rand(60, 8, generator=torch.Generator().manual_seed(0))
    largest = (0.4, 0.4, 0.4, 0.1)
    together = jitter(photos, largest, drawn)
    alone = [jitter(photos[i : i + 1], largest, drawn[i : i + 1]) for i in range(60)]
    assert torch.equal(together, torch.cat(alone))


def test_gray_images_have_brightness_and_contrast_only() -> None:
    gray = make_photo()[:, :1]
    assert torch.equal(jitter(gray, (0, 0, 0.9, 0.5), numbers((0, 0, 0.9, 0.9))), gray)
    assert not torch.equal(jitter(gray, (0, 0.9, 0, 0), numbers((0, 0.9, 0, 0))), gray)
