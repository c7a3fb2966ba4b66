import json
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor

from dualstudent import load_recipe
from dualstudent.data.samples import ImageSamples
from dualstudent.data.transforms.color import jitter
from dualstudent.data.transforms.geometry import (
    affine,
    cutout,
    random_resized_crop,
    rotate,
    translate_and_flip,
)
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.policy import Transform, Transforms, perturb
from dualstudent.data.transforms.randaugment import augment_randomly
from dualstudent.errors import UserError
from tests.support.photos import make_photo

CIFAR = Normalization(mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616))
CIFAR_GRAY = Normalization(mean=(0.47,), std=(0.25,))
UNCHANGED = Normalization(mean=(0.0,), std=(1 / 255,))  # bytes keep their value


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_bytes(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, shape, generator=generator, dtype=torch.uint8)


def views(
    image: Tensor,
    count: int,
    transform: Transform,
    normalization: Normalization = UNCHANGED,
    seed: int = 0,
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return perturb(image.expand(count, -1, -1, -1), transform, normalization, generator)


@pytest.mark.parametrize("flip", [False, True])
@pytest.mark.parametrize(
    "translate",
    [
        0,
        1,
        4,
        6,
        9,
    ],
)
def test_views_are_the_crops_and_mirrored_crops_of_the_reflected_image(
    translate: int, flip: bool
) -> None:
    image = random_bytes(3, 9, 7)
    border = ((0, 0), (translate, translate), (translate, translate))
    padded = np.pad(image.numpy(), border, mode="reflect")
    shifts = range(2 * translate + 1)
    crops = [padded[:, y : y + 9, x : x + 7] for y in shifts for x in shifts]
    if flip:
        crops += [np.flip(crop, axis=2) for crop in crops]

    seen = views(image, 25 * len(crops), Transform(translate=translate, flip=flip))

    seen_bytes = {view.tobytes() for view in seen.round().to(torch.uint8).numpy()}
    assert seen_bytes == {crop.tobytes() for crop in crops}


def drawn(seed: int, count: int = 5000) -> Tensor:
    """(3, count): vertical shift, horizontal shift and mirroring of each view."""
    image = torch.arange(256, dtype=torch.uint8).reshape(1, 16, 16)  # says where a pixel was
    seen = views(image, count, Transform(translate=2, flip=True), seed=seed)
    here, right = seen[:, 0, 8, 8].round().int(), seen[:, 0, 8, 9].round().int()
    mirrored = right < here
    column = torch.where(mirrored, here % 16 - 7, here % 16 - 8)
    return torch.stack([here // 16 - 8, column, mirrored.int()])


def test_every_shift_and_both_sides_are_equally_likely() -> None:
    frequency = Counter(map(tuple, drawn(seed=0).T.tolist()))

    assert set(frequency) == set(product(range(-2, 3), range(-2, 3), (0, 1)))
    assert min(frequency.values()) >= 50  # five standard deviations around 100
    assert max(frequency.values()) <= 150


def test_draws_are_independent_of_each_other_of_the_sample_and_of_the_view() -> None:
    first, second = drawn(seed=0), drawn(seed=1)
    neighbors = torch.cat([first[:, :-1], first[:, 1:], second[:, :-1]]).float()

    correlation = torch.corrcoef(neighbors) - torch.eye(9)

    assert correlation.abs().max() < 0.07  # five standard deviations


def test_shifts_then_mirrors_are_drawn_and_then_the_noise() -> None:
    """Another order would change every result that was kept."""
    pixels = random_bytes(5, 1, 9, 9)
    view = perturb(pixels, Transform(translate=2, flip=True, noise=0.1), CIFAR_GRAY, seeded(3))

    generator = seeded(3)
    rows, columns = torch.randint(-2, 3, (2, 5, 1), generator=generator)
    mirror = torch.rand(5, 1, generator=generator) < 0.5
    noise = torch.empty_like(view).normal_(std=0.1, generator=generator)
    padded = np.pad(pixels.numpy(), ((0, 0), (0, 0), (2, 2), (2, 2)), mode="reflect")
    for number in range(5):
        y, x = 2 + int(rows[number]), 2 + int(columns[number])
        image = torch.from_numpy(padded[number : number + 1, :, y : y + 9, x : x + 9])
        image = image.flip(3) if mirror[number] else image
        assert torch.equal(view[number], (normalize(image, CIFAR_GRAY) + noise[number])[0])


def test_photos_are_rotated_cropped_moved_and_recolored_in_this_order() -> None:
    everything = Transform(
        rotate=20,
        random_resized_crop=True,
        translate=3,
        flip=True,
        jitter=(0.4, 0.4, 0.4, 0.1),
        affine=(10, 0.1, 0.1, 0.1),
        randaugment=2,
        cutout=0.5,
    )
    photo = make_photo(90, 60)
    numbers = everything.draw(1, seeded(4))
    view = everything.apply(photo, numbers, size=24)

    expected = rotate(photo, 20, numbers["rotate"])
    expected = random_resized_crop(expected, (24, 24), numbers["random_resized_crop"])
    expected = translate_and_flip(expected, numbers["translate"], numbers["flip"] < 0.5)
    expected = jitter(expected, (0.4, 0.4, 0.4, 0.1), numbers["jitter"])
    expected = affine(expected, (10, 0.1, 0.1, 0.1), numbers["affine"])
    expected = augment_randomly(expected, 2, numbers["randaugment"])
    expected = cutout(expected, 0.5, numbers["cutout"])
    assert torch.equal(view, expected)


def test_images_in_memory_keep_their_size_whatever_is_on() -> None:
    everything = Transform(
        rotate=20, random_resized_crop=True, translate=3, jitter=(0.4, 0.4, 0.4, 0.1), noise=0.1
    )
    pixels = make_photo(9, 7).expand(4, -1, -1, -1)
    view = perturb(pixels, everything, CIFAR, seeded(0))
    assert view.shape == (4, 3, 7, 9)
    assert perturb(pixels[:0], everything, CIFAR, seeded(0)).shape == (0, 3, 7, 9)
    assert view.is_contiguous(memory_format=torch.channels_last)
    assert not torch.equal(view[0], view[1])


ON = {
    "flip": True,
    "rotate": 5.0,
    "random_resized_crop": True,
    "jitter": (0.1, 0, 0, 0),
    "affine": (10, 0.1, 0.1, 0.1),
    "randaugment": 2,
    "cutout": 0.5,
}


@pytest.mark.parametrize("key", ON)
def test_what_is_off_is_not_drawn(key: str) -> None:
    numbers = Transform.model_validate({key: ON[key]}).draw(3, seeded(0))
    assert set(numbers) == {key} | ({"translate"} if key == "flip" else set())
    assert all(len(table) == 3 for table in numbers.values())
    generator = seeded(0)
    assert not Transform(noise=1).draw(3, generator)
    assert torch.equal(generator.get_state(), seeded(0).get_state())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cutout", -0.1),
        ("cutout", 1.1),
        ("randaugment", -1),
        ("randaugment", 11),
        ("affine", (181, 0, 0, 0)),
        ("affine", (10, 0, 0, -0.1)),
        ("affine", (10, 0, 0)),
    ],
)
def test_impossible_strengths_are_refused_in_one_line(key: str, value: object) -> None:
    with pytest.raises(UserError) as refused:
        load_recipe("digits", [f"transforms.strong.{key}={json.dumps(value)}"])
    assert f"transforms.strong.{key}" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_random_operations_on_other_than_gray_and_color_images_are_refused() -> None:
    strong = Transforms(strong=Transform(randaugment=2))
    for channels in (1, 3):
        strong.check_fits(channels, 8, 8)
    with pytest.raises(UserError, match=r"strong\.randaugment .* 1 or 3 channels, these have 4"):
        ImageSamples(random_bytes(2, 4, 8, 8), strong, Normalization())
    Transforms(strong=Transform(affine=(9, 0, 0, 0), cutout=0.5)).check_fits(4, 8, 8)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_a_batch_get_the_strong_views_they_get_alone(channels: int) -> None:
    strong = Transform(translate=2, affine=(15, 0.1, 0.1, 0.1), randaugment=3, cutout=0.5)
    pixels = random_bytes(40, channels, 12, 12)
    numbers = strong.draw(40, seeded(0))
    together = strong.apply(pixels, numbers)
    for row in range(40):
        own = {key: table[row : row + 1] for key, table in numbers.items()}
        assert torch.equal(strong.apply(pixels[row : row + 1], own)[0], together[row])


def test_noise_has_the_set_strength_and_is_independent() -> None:
    image = random_bytes(1, 28, 28)
    clean = normalize(image[None], Normalization())

    noise = views(image, 200, Transform(noise=0.15), Normalization()) - clean

    values, count = noise.flatten(), noise.numel()
    assert abs(values.mean()) < 5 * 0.15 / count**0.5
    assert abs(values.std() - 0.15) < 5 * 0.15 / (2 * count) ** 0.5
    assert abs((values > 0.15).float().mean() - 0.1587) < 0.005  # a bell, not a box
    for pairs in (noise[1:] * noise[:-1], noise[..., 1:] * noise[..., :-1]):
        assert abs(pairs.mean()) < 5 * 0.15**2 / pairs.numel() ** 0.5


def test_with_nothing_on_a_view_is_the_normalized_image() -> None:
    pixels = random_bytes(6, 3, 5, 4)

    view = perturb(pixels, Transform(), CIFAR, torch.Generator())

    assert torch.equal(view, normalize(pixels, CIFAR))


@pytest.mark.parametrize(
    ("channels", "normalization"), [(1, Normalization()), (3, Normalization()), (3, CIFAR)]
)
def test_normalization_per_channel(channels: int, normalization: Normalization) -> None:
    pixels = random_bytes(10, channels, 6, 5)
    mean, std = (
        np.array(values)[:, None, None] for values in (normalization.mean, normalization.std)
    )

    expected = (pixels.numpy() / 255 - mean) / std

    assert np.allclose(normalize(pixels, normalization).numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "transform",
    [Transform(), Transform(noise=0.1), Transform(translate=2, flip=True)],
    ids=["nothing", "noise", "geometry"],
)
def test_views_are_float32_channels_last_in_memory(channels: int, transform: Transform) -> None:
    view = views(random_bytes(channels, 6, 5), 4, transform)

    assert view.dtype == torch.float32
    # is_contiguous() says yes to both layouts when there is one channel; strides do not.
    assert view.stride() == (6 * 5 * channels, 1, 5 * channels, channels)


def test_the_generator_decides_everything() -> None:
    image = random_bytes(3, 8, 8)
    everything = Transform(translate=2, flip=True, noise=0.1)

    torch.manual_seed(1)
    first = views(image, 20, everything, CIFAR, seed=7)
    torch.manual_seed(2)
    again = views(image, 20, everything, CIFAR, seed=7)
    other = views(image, 20, everything, CIFAR, seed=8)

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_data_set_is_left_as_it_is() -> None:
    pixels = random_bytes(4, 1, 8, 8)
    before = pixels.clone()

    perturb(
        pixels,
        Transform(translate=1, flip=True, noise=1),
        Normalization(),
        torch.Generator(),
    )

    assert torch.equal(pixels, before)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_floats_are_changed_as_their_bytes_are(channels: int, kind: torch.dtype) -> None:
    pixels = torch.randint(0, 256, (8, channels, 16, 16), dtype=torch.uint8)
    strong = Transform(
        translate=2, flip=True, rotate=20, affine=(10, 0.1, 0.1, 0.1), randaugment=3, cutout=0.5
    )
    numbers = strong.draw(8, torch.Generator().manual_seed(0))
    expected = strong.apply(pixels, numbers)
    assert not torch.equal(expected, pixels)
    torch.testing.assert_close(
        strong.apply(pixels.to(kind) / 255, numbers), expected.to(kind) / 255
    )
    views = [
        perturb(each, strong, Normalization(), torch.Generator().manual_seed(0))
        for each in (pixels, pixels.to(kind) / 255)
    ]
    assert torch.equal(*views)


def test_floats_that_are_normalized_already_are_refused() -> None:
    with pytest.raises(UserError, match=r"outside \[0, 1\]"):
        Transform(cutout=0.5).apply(torch.randn(2, 1, 8, 8), {})


def test_whole_numbers_that_are_no_bytes_are_refused() -> None:
    with pytest.raises(UserError, match=r"uint8, or float in \[0, 1\], not torch.int64"):
        Transform(cutout=0.5).apply(torch.zeros(2, 1, 8, 8, dtype=torch.int64), {})
