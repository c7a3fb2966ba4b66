"""The one way in which images are brought to a size: in training, for predictions, in exports."""

from torch import Tensor, uint8
from torch.nn import functional as F

PHOTO_MARGIN = 256 / 224  # the usual one of ImageNet: its border is not looked at


def resize(pixels: Tensor, size: int, margin: float = 1.0) -> Tensor:
    """The square in the middle at ``size`` × ``size`` pixels, by bicubic interpolation.

    It is antialiased where it makes the square smaller. What has the size already stays as it is.

    Args:
        pixels: (B, channels, H, W) uint8.
        size: pixels a side.
        margin: the square is brought to ``margin`` · ``size``, and its middle is taken.

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
    """The nearest of 0, 1, …, 255, as uint8; ``values`` are written to."""
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
    # There is nothing to antialias; torch would only take another cubic.
    return to_bytes(F.interpolate(square.float(), (size, size), mode="bicubic"))
