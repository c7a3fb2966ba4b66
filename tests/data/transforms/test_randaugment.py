import pytest
import torch
from torch import Tensor

from dualstudent.data.transforms import pillow
from dualstudent.data.transforms.randaugment import NUMBERS_OF_RANDAUGMENT, augment_randomly
from tests.support.photos import make_photo


def uniform(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(count, NUMBERS_OF_RANDAUGMENT, generator=generator)


def make_photos(count: int, channels: int = 3) -> Tensor:
    photos = [make_photo(20, 20).roll((i, 2 * i), dims=(2, 3)) for i in range(count)]
    return torch.cat(photos)[:, :channels] // 2 + 70


# Operation → smallest and largest strength; the five moves come last.
RANGES: dict[str, tuple[float, float]] = {
    "keep": (0, 0),
    "autocontrast": (0, 0),
    "equalize": (0, 0),
    "brightness": (0.05, 1.95),
    "color": (0.05, 1.95),
    "contrast": (0.05, 1.95),
    "sharpness": (0.05, 1.95),
    "posterize": (4, 8),
    "solarize": (0, 256),
    "rotate": (-30, 30),
    "shear_x": (-0.3, 0.3),
    "shear_y": (-0.3, 0.3),
    "translate_x": (-0.3, 0.3),
    "translate_y": (-0.3, 0.3),
}


def apply(name: str, photo: Tensor, number: float) -> Tensor:
    low, high = RANGES[name]
    strength = low + (high - low) * torch.tensor([number])
    if hasattr(pillow, name):
        changed = getattr(pillow, name)(photo, strength)
        assert isinstance(changed, Tensor)
        return changed
    amounts = torch.zeros(1, 5)
    amounts[:, list(RANGES).index(name) - 9] = strength
    return pillow.move(photo, amounts)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", range(14))
def test_the_first_number_is_the_operation_the_second_its_strength(
    kind: int, channels: int
) -> None:
    photos = make_photos(3, channels)
    numbers = uniform(3)
    numbers[:, 0] = (kind + 0.5) / 14
    numbers[:, 1] = torch.tensor([0.0, 0.3, 0.7])
    seen = augment_randomly(photos, 1, numbers)
    name = list(RANGES)[kind]
    for photo, view, number in zip(photos, seen, (0.0, 0.3, 0.7), strict=True):
        (expected,) = apply(name, photo[None], number)
        assert torch.equal(view, expected)
        assert torch.equal(photo, expected) == (name == "keep" or (name, channels) == ("color", 1))


def test_every_image_gets_its_own_operations_whatever_is_beside_it() -> None:
    photos, numbers = make_photos(60), uniform(60)
    together = augment_randomly(photos, 3, numbers)
    alone = [augment_randomly(photos[i : i + 1], 3, numbers[i : i + 1]) for i in range(60)]
    assert torch.equal(together, torch.cat(alone))


def test_operations_follow_each_other() -> None:
    photos, numbers = make_photos(40), uniform(40)
    first = augment_randomly(photos, 1, numbers)
    both = augment_randomly(first, 1, numbers.roll(-2, dims=1))
    assert torch.equal(augment_randomly(photos, 2, numbers), both)
    assert not torch.equal(first, both)


def test_the_ends_of_the_range_are_operations_too() -> None:
    photo, numbers = make_photos(1), torch.zeros(1, NUMBERS_OF_RANDAUGMENT)
    assert torch.equal(augment_randomly(photo, 1, numbers), photo)
    numbers[:] = 1 - 2**-24  # the largest below 1
    last = augment_randomly(photo, 1, numbers)
    assert torch.equal(last, apply("translate_y", photo, 1 - 2**-24))


def test_the_images_are_left_as_they_are() -> None:
    photos = make_photos(30)
    before = photos.clone()
    augment_randomly(photos, 2, uniform(30))
    assert torch.equal(photos, before)


def test_layout_in_memory_changes_nothing() -> None:
    photos, numbers = make_photos(30), uniform(30)
    other = photos.to(memory_format=torch.channels_last)
    assert torch.equal(augment_randomly(photos, 2, numbers), augment_randomly(other, 2, numbers))
