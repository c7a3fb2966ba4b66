"""Do colors alone tell the classes apart? Against a slow reference, and on images made for it."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from dualstudent.data.transforms.color_cue import color_matters, measure_color_cue

RED, GREEN, BLUE = (180, 40, 40), (40, 180, 40), (40, 40, 180)


def make_images(colors: list[tuple[int, int, int]], each: int, noise: int = 20) -> Tensor:
    """So many images of each color, pixels and brightness random: (N, 3, 6, 6) uint8."""
    generator = np.random.default_rng(0)
    plain = np.repeat(np.array(colors), each, axis=0)[:, :, None, None]
    light = generator.uniform(0.5, 1.2, (len(plain), 1, 1, 1))
    noisy = light * plain + generator.normal(0, noise, (len(plain), 3, 6, 6))
    return torch.from_numpy(noisy.clip(0, 255).astype(np.uint8))


def find_histogram(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """6 × 6 bins of blue and red chroma in [−0.3, 0.3]; a pixel is shared between its neighbors."""
    found = np.zeros((6, 6))
    for red, green, blue in image.reshape(3, -1).T / 255:
        luma = 0.299 * red + 0.587 * green + 0.114 * blue
        places = [
            5 * np.clip((0.3 + c) / 0.6, 0, 1)
            for c in (0.564 * (blue - luma), 0.713 * (red - luma))
        ]
        for row in range(6):
            for column in range(6):
                near = [max(0, 1 - abs(p - n)) for p, n in zip(places, (row, column), strict=True)]
                found[row, column] += near[0] * near[1] / 36
    return np.sqrt(found).ravel()


@pytest.mark.parametrize("labels", [[0, 0, 1, 1, 2, 2, 2, 0, 1], [0, 3, 3, 0, 1, 3, 0, 3, 0]])
def test_the_cue_is_that_of_a_slow_reference(labels: list[int]) -> None:
    pixels = make_images([RED, GREEN, (100, 100, 110)], each=3, noise=60)
    colors = [find_histogram(image) for image in pixels.numpy()]
    right = []
    for n, (own, label) in enumerate(zip(colors, labels, strict=True)):
        same = [c for m, c in enumerate(colors) if labels[m] == label and m != n]
        for other in {*labels} - {label}:
            if same:
                theirs = [c for m, c in enumerate(colors) if labels[m] == other]
                distances = [np.linalg.norm(own - np.mean(some, 0)) for some in (same, theirs)]
                right.append(distances[0] < distances[1])
    assert 0 < np.mean(right) < 1
    assert measure_color_cue(pixels, torch.tensor(labels)) == pytest.approx(np.mean(right))


def test_classes_of_their_own_color_need_it() -> None:
    labels = torch.arange(3).repeat_interleave(10)
    assert color_matters(make_images([RED, GREEN, BLUE], each=10), labels)


@pytest.mark.parametrize("seed", range(5))
def test_colors_that_have_nothing_to_do_with_the_classes_do_not_matter(seed: int) -> None:
    labels = torch.arange(3).repeat_interleave(20)
    shuffled = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    assert not color_matters(make_images([RED, GREEN, BLUE], each=20)[shuffled], labels)


@pytest.mark.parametrize("labels", [[], [0], [0, 0, 0, 0], [0, 1, 2, 3]])
def test_without_two_classes_or_two_images_of_one_it_is_chance(labels: list[int]) -> None:
    pixels = make_images([RED, BLUE], each=2)[: len(labels)]
    found = measure_color_cue(pixels, torch.tensor(labels, dtype=torch.int64))
    assert found == 0.5


@pytest.mark.parametrize("each", [10, 50])
def test_gray_images_have_no_color_to_keep(each: int) -> None:
    gray = make_images([RED, BLUE], each)[:, :1]
    labels = torch.arange(2).repeat_interleave(each)
    assert not color_matters(gray, labels)
    assert measure_color_cue(gray.expand(-1, 3, -1, -1), labels) == 0.5  # all distances are equal


def test_few_labels_a_class_do_not_tell() -> None:
    assert not color_matters(make_images([RED, BLUE], each=9), torch.arange(2).repeat_interleave(9))


@pytest.mark.parametrize("in_turn", [False, True])
def test_of_many_images_some_are_enough_in_any_order(in_turn: bool) -> None:
    images = make_images([RED, BLUE], each=1500)
    labels = torch.arange(2).repeat_interleave(1500)
    order = torch.arange(3000).reshape(2, 1500).T.flatten() if in_turn else torch.arange(3000)
    assert color_matters(images[order], labels[order])


@pytest.mark.parametrize("each", [19, 40, 200])
def test_more_labels_do_not_make_colors_matter(each: int) -> None:
    # Of the same weak colors, the means of many images tell more than those of ten.
    colors = [(100, 100, 100), (100, 100, 105), (100, 105, 100), (105, 100, 100)]
    images = make_images(colors, each=200)
    labels = torch.arange(4).repeat_interleave(200)
    few = torch.arange(200).repeat(4) < each
    assert measure_color_cue(images, labels) > 0.73
    assert not color_matters(images[few], labels[few])


def test_of_large_images_some_pixels_are_enough() -> None:
    small = make_images([RED, GREEN, (100, 100, 110)], each=100, noise=60)
    labels = torch.arange(3).repeat_interleave(100)
    large = small.repeat_interleave(20, dim=2).repeat_interleave(20, dim=3)
    assert measure_color_cue(large, labels) == measure_color_cue(small, labels)
