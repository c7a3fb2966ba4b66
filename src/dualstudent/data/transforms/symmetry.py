"""Whether views may be mirrored: a mirrored shoe is a shoe, a mirrored 2 is no digit."""

import torch
from torch import Tensor

from dualstudent.generators import make_generator

_KEPT = 0.75  # how much of its accuracy a nearest neighbor may keep at least
_DEVIATIONS = 2  # above chance, so that there is something to keep
_MOST = 2000  # images that are compared with each other
_LABELS_TO_JUDGE = 10  # per class; with fewer, mirrored digits pass for others by chance


def is_mirroring_harmless(pixels: Tensor, labels: Tensor) -> bool:
    """Judge from labeled images whether mirroring left and right keeps the classes.

    Each image, and then its mirror image, gets the class of the nearest other image (largest
    correlation of the pixels). Mirroring counts as harmless if mirror images get the right class at
    least ¾ as often as the images, and more often than by chance, by two standard deviations. If
    the labels are too few to tell, the answer is therefore no.

    Of 100 random draws of 10 labels per class, mirroring is refused in all for MNIST and 8×8 digits
    and in 84 for SVHN, and allowed in 79 for CIFAR-10 and 89 for photos of clothes; of draws of 25
    labels, it is refused in 100, 100 and 92, and allowed in 95 and 99.

    Args:
        pixels: (N, channels, H, W) uint8.
        labels: (N,) int64, classes from 0.

    Example:
        >>> left = torch.tensor([[[[9, 0, 0]]]], dtype=torch.uint8)
        >>> images = torch.cat([left, left.flip(3)]).repeat(20, 1, 1, 1)
        >>> is_mirroring_harmless(images, torch.tensor([0, 1]).repeat(20))
        False
    """
    if len(labels) > _MOST:  # at random, as classes may take turns
        some = torch.randperm(len(labels), generator=make_generator("mirroring"))[:_MOST]
        pixels, labels = pixels[some], labels[some]
    if len(labels) < 2:
        return False
    own, mirrored = (_find_hits(pixels, view, labels) for view in (pixels, pixels.flip(3)))
    chance = float((labels.bincount() / len(labels)).square().sum())
    deviation = (chance * (1 - chance) / len(labels)) ** 0.5
    return mirrored >= _KEPT * own and mirrored > chance + _DEVIATIONS * deviation


def may_be_mirrored(pixels: Tensor, labels: Tensor) -> bool:
    """Decide whether views are mirrored: if it is harmless, and there are enough labels to judge.

    Args:
        pixels: (N, channels, H, W) uint8.
        labels: (N,) int64, classes from 0; ten a class on average are enough.
    """
    enough = len(labels) >= _LABELS_TO_JUDGE * len(labels.bincount().nonzero())
    return enough and is_mirroring_harmless(pixels, labels)


def _find_hits(pixels: Tensor, views: Tensor, labels: Tensor) -> float:
    """Return how often the nearest image, other than its own, has the class of a view."""
    similarity = _standardize(views) @ _standardize(pixels).T
    nearest = similarity.fill_diagonal_(-torch.inf).argmax(dim=1)
    return float((labels[nearest] == labels).float().mean())


def _standardize(pixels: Tensor) -> Tensor:
    """Flatten images to vectors of mean 0 and length 1, so that products are correlations."""
    vectors = pixels.flatten(1).float()
    vectors = vectors - vectors.mean(dim=1, keepdim=True)
    return torch.nn.functional.normalize(vectors, dim=1)
