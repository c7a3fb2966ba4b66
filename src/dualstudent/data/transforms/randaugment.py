"""RandAugment: a few random operations of random strength on each image."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.data.transforms import pillow

MOST_OPERATIONS = 10
NUMBERS_OF_RANDAUGMENT = 2 * MOST_OPERATIONS


class Recoloring(NamedTuple):
    """An operation on values, with the range of its strength.

    Attributes:
        apply: maps pixels (B, channels, H, W) uint8 and strengths (B,) to new pixels.
        low: smallest strength.
        high: largest strength.
    """

    apply: Callable[[Tensor, Tensor], Tensor]
    low: float = 0.0
    high: float = 0.0


# The ranges of TorchSSL and USB, but for the factors: docs/fidelity.md.
RECOLORINGS = (
    Recoloring(pillow.keep),
    Recoloring(pillow.autocontrast),
    Recoloring(pillow.equalize),
    Recoloring(pillow.brightness, 0.05, 1.95),
    Recoloring(pillow.color, 0.05, 1.95),
    Recoloring(pillow.contrast, 0.05, 1.95),
    Recoloring(pillow.sharpness, 0.05, 1.95),
    Recoloring(pillow.posterize, 4, 8),
    Recoloring(pillow.solarize, 0, 256),
)
# Of the amounts of pillow.move, in both directions: rotation, shears, translations.
LARGEST_MOVES = (30.0, 0.3, 0.3, 0.3, 0.3)

_KINDS = len(RECOLORINGS) + len(LARGEST_MOVES)


def augment_randomly(pixels: Tensor, count: int, numbers: Tensor) -> Tensor:
    """Apply ``count`` operations to each image, drawn with replacement, one after the other.

    Args:
        pixels: (B, channels, H, W) uint8 with 1 or 3 channels.
        count: how many operations, at most ``MOST_OPERATIONS``.
        numbers: (B, NUMBERS_OF_RANDAUGMENT) uniform in [0, 1): which operation, how strong, …
    """
    pixels = pixels.contiguous()
    for drawn in torch.split(numbers, 2, dim=1)[:count]:
        pixels = _apply_one(pixels, *drawn.unbind(1))
    return pixels


def _apply_one(pixels: Tensor, kind: Tensor, strength: Tensor) -> Tensor:
    """Apply one operation to each image; ``kind`` and ``strength`` are (B,) in [0, 1)."""
    kind = (_KINDS * kind).long()
    order = kind.argsort()  # images of the same operation go together, all moved ones last
    sizes = kind.bincount(minlength=_KINDS)[: len(RECOLORINGS)].tolist()
    sizes.append(len(kind) - sum(sizes))
    *images, moved = torch.split(pixels.index_select(0, order), sizes)
    *strengths, far = torch.split(strength[order], sizes)
    changed = [
        operation.apply(group, operation.low + (operation.high - operation.low) * own)
        for operation, group, own in zip(RECOLORINGS, images, strengths, strict=True)
        if len(group)
    ]
    if len(moved):
        which = kind[order][-len(moved) :] - len(RECOLORINGS)
        largest = far.new_tensor(LARGEST_MOVES) * F.one_hot(which, len(LARGEST_MOVES))
        changed.append(pillow.move(moved, (2 * far - 1)[:, None] * largest))
    return torch.cat(changed).index_select(0, order.argsort())
