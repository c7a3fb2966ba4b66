import pytest
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from dualstudent.data.transforms.resize import PHOTO_MARGIN, resize
from tests.support.photos import make_photo, to_image, to_photo


def random_bytes(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


def by_pillow(photo: Tensor, box: tuple[int, int, int, int], size: int) -> Tensor:
    return to_photo(to_image(photo).crop(box).resize((size, size), Image.Resampling.BICUBIC))


@pytest.mark.parametrize("size", [7, 32, 60])
def test_what_gets_smaller_is_the_middle_as_pillow_reduces_it(size: int) -> None:
    for width, height, box in ((90, 60, (15, 0, 75, 60)), (60, 91, (0, 15, 60, 75))):
        photo = make_photo(width, height)
        assert (resize(photo, size) - by_pillow(photo, box, size)).abs().max() <= 1


@pytest.mark.parametrize(("before", "after"), [(16, 28), (8, 9), (28, 32)])
def test_what_gets_larger_is_bit_for_bit_as_the_kept_results_have_it(
    before: int, after: int
) -> None:
    images = random_bytes(5, 3, before, before)
    exact = F.interpolate(images.float(), (after, after), mode="bicubic", align_corners=False)
    assert torch.equal(resize(images, after), exact.round().clamp(0, 255).to(torch.uint8))


def test_a_margin_is_cut_off() -> None:
    photo = make_photo(500, 375)
    whole = by_pillow(photo, (62, 0, 437, 375), 256)
    view = resize(photo, 224, PHOTO_MARGIN)
    assert (view - whole[..., 16:240, 16:240]).abs().max() <= 1


def test_every_image_of_a_batch_is_resized_alike() -> None:
    images = random_bytes(4, 1, 12, 10)
    for size in (5, 10, 17):
        together = resize(images, size)
        assert together.shape == (4, 1, size, size)
        for image, view in zip(images, together, strict=True):
            assert torch.equal(resize(image[None], size)[0], view)


def test_the_size_they_have_costs_nothing() -> None:
    images = random_bytes(4, 1, 8, 8)
    assert resize(images, 8).data_ptr() == images.data_ptr()
