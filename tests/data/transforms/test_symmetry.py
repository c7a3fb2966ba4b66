import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import Tensor

from dualstudent import load_mnist_5k
from dualstudent.data.transforms.symmetry import is_mirroring_harmless


def take_digits(source: str, per_class: int, seed: int) -> tuple[Tensor, NDArray[np.int64]]:
    """Draw labeled digits, (N, 1, H, W) uint8."""
    if source == "8x8":
        digits = load_digits()
        pixels, labels = torch.from_numpy(digits.images[:, None] * 15).byte(), digits.target
    else:
        images = load_mnist_5k("train")
        pixels, labels = torch.as_tensor(images.pixels), np.asarray(images.labels)
    generator = np.random.default_rng(seed)
    rows = [generator.choice(np.flatnonzero(labels == c), per_class, False) for c in range(10)]
    chosen = np.concatenate(rows)
    return pixels[torch.from_numpy(chosen)], labels[chosen]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_class", [10, 50])
@pytest.mark.parametrize("source", ["8x8", "mnist"])
def test_digits_must_not_be_mirrored(source: str, per_class: int, seed: int) -> None:
    pixels, labels = take_digits(source, per_class, seed)
    assert not is_mirroring_harmless(pixels, torch.from_numpy(labels))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("channels", [1, 3])
def test_things_seen_from_both_sides_may_be_mirrored(channels: int, seed: int) -> None:
    """Digits again, but half of each class is mirrored: so a mirrored one is of its class."""
    pixels, labels = take_digits("8x8", 30, seed)
    pixels[::2] = pixels[::2].flip(3)
    assert is_mirroring_harmless(pixels.expand(-1, channels, -1, -1), torch.from_numpy(labels))


@pytest.mark.parametrize("count", [0, 1, 5, 200])
def test_where_pixels_say_nothing_the_answer_is_no(count: int) -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (count, 3, 6, 6), generator=generator).to(torch.uint8)
    assert not is_mirroring_harmless(noise, torch.arange(count) % 5)


def test_classes_that_differ_by_their_side_must_not_be_mirrored() -> None:
    arrows = torch.tril(torch.full((9, 9), 255, dtype=torch.uint8))[None, None]
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(80, (60, 1, 9, 9), generator=generator).to(torch.uint8)
    both = torch.cat([arrows, arrows.flip(3)]).repeat(30, 1, 1, 1) // 2 + noise
    assert not is_mirroring_harmless(both, torch.tensor([0, 1]).repeat(30))


def test_of_many_images_some_are_compared_though_classes_take_turns() -> None:
    generator = torch.Generator().manual_seed(0)
    half = torch.randint(256, (2, 1, 6, 3), generator=generator)
    both = torch.cat([half, half.flip(3)], dim=3).repeat(1500, 1, 1, 1)  # equal to their mirrors
    noisy = (both + torch.randint(80, both.shape, generator=generator)) // 2
    assert is_mirroring_harmless(noisy.to(torch.uint8), torch.arange(3000) % 2)
