"""Operations that change colors; every image has its own row of random numbers.

Images are (B, channels, H, W), floats in 0 to 255; a factor has shape (B, 1, 1, 1).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dualstudent.data.transforms.resize import to_bytes

_LUMA = (0.299, 0.587, 0.114)  # of ITU-R 601-2, as Pillow has it

NUMBERS_OF_JITTER = 8


def jitter(pixels: Tensor, largest: Sequence[float], numbers: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue changed, in an order drawn for the batch.

    Args:
        pixels: (B, channels, H, W) uint8.
        largest: change of each; of brightness, contrast and saturation it is a factor of 1 ± it,
            of hue a part of the circle.
        numbers: (B, NUMBERS_OF_JITTER) uniform in [0, 1).
    """
    # A plane for each color: side by side in every pixel, they take a CPU four times as long.
    images = pixels.to(torch.float32, memory_format=torch.contiguous_format)
    for kind in numbers[0, 4:].argsort().tolist():
        if largest[kind]:
            change = largest[kind] * (2 * numbers[:, kind] - 1)
            images = _CHANGES[kind](images, change.reshape(-1, 1, 1, 1))
    return to_bytes(images)


def change_brightness(images: Tensor, change: Tensor) -> Tensor:
    """All values times 1 + ``change``."""
    return (images * (1 + change)).clamp(0, 255)


def change_contrast(images: Tensor, change: Tensor) -> Tensor:
    """The distance of all values from the mean brightness times 1 + ``change``."""
    mean = _to_gray(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(mean, images, 1 + change).clamp(0, 255)


def change_saturation(images: Tensor, change: Tensor) -> Tensor:
    """The distance of every color from its gray times 1 + ``change``; gray images stay."""
    return torch.lerp(_to_gray(images), images, 1 + change).clamp(0, 255)


def turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Hues moved by ``turn``, a part of the color circle; images without three colors stay."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    # The hue in sixths of the circle, from the strongest color on, times the chroma.
    hue = torch.where(value == green, blue - red + 2 * chroma, red - green + 4 * chroma)
    hue = torch.where(value == red, green - blue, hue)
    hue = hue / chroma.clamp(min=1e-6) + 6 * turn[:, 0]
    # Each color falls off from its own place on the circle: red from 0, green from 2, blue from 4.
    away = hue[:, None] + torch.tensor([5.0, 3.0, 1.0], device=images.device).reshape(3, 1, 1)
    away -= 6 * (away / 6).floor()
    falls = torch.minimum(away, 4 - away).clamp_(0, 1)
    return value[:, None] - chroma[:, None] * falls


def _to_gray(images: Tensor) -> Tensor:
    """(B, 1, H, W); what is no color image is its own gray."""
    if images.shape[1] != 3:
        return images
    weights = torch.tensor(_LUMA, device=images.device).reshape(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


_CHANGES = (change_brightness, change_contrast, change_saturation, turn_hue)
