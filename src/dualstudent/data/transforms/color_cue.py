"""Whether views must keep their colors: a bus may be of any color, a lemon may not."""

from statistics import fmean

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.generators import make_generator

_LUMA = (0.299, 0.587, 0.114)  # of red, green and blue, as in JPEG
_BINS, _FARTHEST = 6, 0.3  # of each axis of chroma, around gray
_SIDE, _AT_ONCE = 32, 100  # pixels and images, which bounds memory and time
_CHANCE = 0.5
_MATTERS = 0.73  # from this cue on, set by benchmarks/any_color.py with as many labels as here:
_LABELS_TO_JUDGE = 10  # per class; fewer differ by chance, and of more the cue is larger
_DRAWS, _MOST = 10, 2000  # of so many labels, averaged; images of all draws, about


def color_matters(pixels: Tensor, labels: Tensor) -> bool:
    """Decide whether weak views keep their colors: if these tell the classes apart.

    Args:
        pixels: (N, channels, H, W) uint8.
        labels: (N,) int64, classes from 0; ten a class on average are enough to judge.
    """
    needed = _LABELS_TO_JUDGE * len(labels.bincount().nonzero())
    if pixels.shape[1] != 3 or len(labels) < max(1, needed):
        return False
    count = 1 if len(labels) == needed else max(1, min(_DRAWS, _MOST // needed))
    draws = [_draw(labels, needed, number) for number in range(count)]
    return fmean(measure_color_cue(pixels[draw], labels[draw]) for draw in draws) >= _MATTERS


def _draw(labels: Tensor, count: int, number: int) -> Tensor:
    """Draw so many samples at random, of each class its share."""
    shuffled = torch.randperm(len(labels), generator=make_generator("color cue", number))
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    places = (torch.arange(count) + 0.5) * len(labels) / count
    return by_class[places.long()]


def measure_color_cue(pixels: Tensor, labels: Tensor) -> float:
    """Measure how well colors alone tell two classes apart.

    The colors of an image are the histogram of its chroma, however bright it is and wherever they
    are. Of an image and another class, it is asked whether the colors are nearer to the mean of the
    own class, without this very image, or to that of the other.

    Args:
        pixels: (N, 3, H, W) uint8.
        labels: (N,) int64, classes from 0.

    Returns:
        The share of answers that are right, over all images and other classes; ½ is chance. Images
        that are alone in their class are not asked.

    Example:
        >>> red, blue = torch.tensor([[200, 0, 0], [0, 0, 200]], dtype=torch.uint8)
        >>> images = torch.stack([red, red, blue, blue])[:, :, None, None].expand(-1, -1, 8, 8)
        >>> measure_color_cue(images, torch.tensor([0, 0, 1, 1]))
        1.0
    """
    if not len(labels):
        return _CHANCE
    step = max(1, max(pixels.shape[2:]) // _SIDE)
    pixels = pixels[..., ::step, ::step]
    colors = torch.cat([_describe(some) for some in torch.split(pixels, _AT_ONCE)])
    members = F.one_hot(labels).double()
    counts = members.sum(dim=0)
    sums = members.T @ colors
    asked = counts[labels] > 1
    own = (sums[labels] - colors) / (counts[labels] - 1)[:, None]
    to_own = (colors - own).norm(dim=1)[asked]
    means = sums / counts[:, None]
    # Exact, so that equal colors are as far from all means.
    to_others = torch.cdist(colors, means, compute_mode="donot_use_mm_for_euclid_dist")[asked]
    others = (counts > 0) & (members[asked] == 0)
    ties = to_own[:, None].isclose(to_others, atol=1e-9)
    right = torch.where(ties, _CHANCE, (to_own[:, None] < to_others).double())
    return float(right[others].mean()) if others.any() else _CHANCE


def _describe(pixels: Tensor) -> Tensor:
    """Square roots of the shares of pixels by chroma (n, 36), shared between neighboring bins."""
    red, green, blue = (pixels.double() / 255).flatten(2).unbind(dim=1)
    luma = _LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue
    axes = []
    for chroma in (0.564 * (blue - luma), 0.713 * (red - luma)):
        place = (_BINS - 1) * (chroma / (2 * _FARTHEST) + 0.5).clamp(0, 1)
        axes.append((1 - (place[..., None] - torch.arange(_BINS)).abs()).clamp(min=0))
    return (torch.einsum("npi,npj->nij", *axes) / red.shape[1]).flatten(1).sqrt()
