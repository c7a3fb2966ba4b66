"""Resizing, the same for training, prediction and export."""

from torch import Tensor, uint8
from torch.nn import functional as F

PHOTO_MARGIN = 256 / 224  # usual for ImageNet: resize to 256, then crop 224


def resize(pixels: Tensor, size: int, margin: float = 1.0) -> Tensor:
    """Resize the center square to ``size`` × ``size`` pixels with bicubic interpolation.

    Downsizing is antialiased. Squares of the right size are not changed.

    Args:
        pixels: (B, channels, H, W) uint8.
        size: pixels a side.
        margin: resize to ``margin`` · ``size`` first, then crop the center.

    Returns:
        (B, channels, size, size) uint8.

    Example:
        >>> import torch
        >>> resize(torch.full((1, 3, 40, 30), 7, dtype=torch.uint8), 2).unique()
        tensor([7], dtype=torch.uint8)
    """
    whole = round(margin * size)
    square = _resize_square(_take_middle(pixels, min(pixels.shape[2:])), whole)
    return _take_middle(square, size)


def to_bytes(values: Tensor) -> Tensor:
    """Round to 0, 1, …, 255 as uint8; changes ``values`` in place."""
    return values.round_().clamp_(0, 255).to(uint8)


def _take_middle(pixels: Tensor, side: int) -> Tensor:
    top, left = ((length - side) // 2 for length in pixels.shape[2:])
    return pixels[:, :, top : top + side, left : left + side]


def _resize_square(square: Tensor, size: int) -> Tensor:
    before = square.shape[-1]
    if size == before:
        return square
    if size < before:
        return F.interpolate(square, (size, size), mode="bicubic", antialias=True)
    # Without antialias: for enlarging, torch would only use another cubic kernel.
    return to_bytes(F.interpolate(square.float(), (size, size), mode="bicubic"))
