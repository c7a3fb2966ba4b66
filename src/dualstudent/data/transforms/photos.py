"""Views of one photo of any size: the whole of it, or a perturbed part.

The perturbations are those of the Mean Teacher line for ImageNet, in its order: rotation, random
resized crop, flip, color jitter. Every random number is handed in, uniform in [0, 1).
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageEnhance
from PIL.Image import Resampling, Transpose

from dualstudent.data.transforms.policy import Transform

_ATTEMPTS = 10  # to find a part of the drawn area and shape that fits into the photo
_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)
_MARGIN = 256 / 224  # of the whole photo around what a clean view shows

NUMBERS_PER_VIEW = 2 * _ATTEMPTS + 12


class Chances(NamedTuple):
    """What chance decides of one view, each number uniform in [0, 1).

    Attributes:
        angle: of the rotation.
        areas, aspects: of the part, one of each per attempt.
        left, top: of the part.
        mirror: whether to flip.
        jitter: of brightness, contrast, saturation and hue.
        order: of these four, by size.
    """

    angle: float
    areas: NDArray[np.float64]
    aspects: NDArray[np.float64]
    left: float
    top: float
    mirror: float
    jitter: NDArray[np.float64]
    order: NDArray[np.float64]

    @classmethod
    def of(cls, numbers: NDArray[np.float64]) -> "Chances":
        """From (NUMBERS_PER_VIEW,) numbers."""
        angle, left, top, mirror = numbers[:4].tolist()
        jitter, order, areas, aspects = np.split(numbers[4:], [4, 8, 8 + _ATTEMPTS])
        return cls(angle, areas, aspects, left, top, mirror, jitter, order)


def clean_view(photo: Image.Image, size: int) -> Image.Image:
    """The center: short side to 256/224 of ``size``, then the middle ``size`` × ``size`` pixels."""
    short = round(size * _MARGIN)
    width, height = (short * side // min(photo.size) for side in photo.size)
    left, top = (width - size) // 2, (height - size) // 2
    whole = photo.resize((width, height), Resampling.BILINEAR)
    return whole.crop((left, top, left + size, top + size))


def perturbed_view(
    photo: Image.Image, size: int, transform: Transform, draw: Chances
) -> Image.Image:
    """The photo rotated, a part of it brought to ``size`` × ``size``, mirrored, recolored."""
    if transform.rotate:
        angle = _between(-transform.rotate, transform.rotate, draw.angle)
        # By the nearest pixel, as in that line: resizing smooths it, and it takes a tenth.
        photo = photo.rotate(angle, Resampling.NEAREST)
    if transform.random_resized_crop:
        part = photo.crop(choose_crop(photo.size, draw))
        view = part.resize((size, size), Resampling.BILINEAR)
    else:
        view = clean_view(photo, size)
    if transform.flip and draw.mirror < 0.5:
        view = view.transpose(Transpose.FLIP_LEFT_RIGHT)
    for kind in draw.order.argsort().tolist():
        strength = transform.jitter[kind]
        if strength:
            view = _CHANGES[kind](view, _between(-strength, strength, draw.jitter[kind]))
    return view


def choose_crop(size: tuple[int, int], draw: Chances) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a part of a photo of ``size`` = (width, height).

    Its area is uniform in 8 to 100 % of the photo's, its aspect log-uniform in 3:4 to 4:3. If no
    attempt fits, it is the center, as much of it as these aspects allow.
    """
    width, height = size
    for area, aspect in zip(draw.areas.tolist(), draw.aspects.tolist(), strict=True):
        pixels = width * height * _between(*_AREA, area)
        ratio = math.exp(_between(math.log(_ASPECT[0]), math.log(_ASPECT[1]), aspect))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(draw.left * (width - w + 1)), int(draw.top * (height - h + 1))
            return left, top, left + w, top + h
    w = min(width, max(1, round(height * _ASPECT[1])))
    h = min(height, max(1, round(width / _ASPECT[0])))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _between(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


def _brightness(view: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Brightness(view).enhance(1 + change)


def _contrast(view: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Contrast(view).enhance(1 + change)


def _saturation(view: Image.Image, change: float) -> Image.Image:
    return ImageEnhance.Color(view).enhance(1 + change)


def _hue(view: Image.Image, turn: float) -> Image.Image:
    hue, saturation, value = view.convert("HSV").split()
    shift = round(turn * 256)
    turned = hue.point([(h + shift) % 256 for h in range(256)])
    return Image.merge("HSV", (turned, saturation, value)).convert("RGB")


_CHANGES = (_brightness, _contrast, _saturation, _hue)
