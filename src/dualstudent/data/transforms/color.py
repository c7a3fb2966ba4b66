"""Color operations, each image with its own random numbers.

Images are float tensors (B, channels, H, W) in [0, 255]; changes have shape (B, 1, 1, 1).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from dualstudent.data.transforms.resize import to_bytes

_LUMA = (0.299, 0.587, 0.114)  # ITU-R 601-2, as in Pillow

NUMBERS_OF_JITTER = 8


def jitter(pixels: Tensor, largest: Sequence[float], numbers: Tensor) -> Tensor:
    """Change brightness, contrast, saturation and hue, of each image in its own random order.

    Args:
        pixels: (B, channels, H, W) uint8.
        largest: four limits: x for brightness, contrast and saturation means factors in [1 − x,
            1 + x], for hue a rotation by up to x of the color circle.
        numbers: (B, NUMBERS_OF_JITTER) uniform in [0, 1).
    """
    kinds = torch.tensor(largest, device=numbers.device).nonzero().squeeze(1)
    orders = kinds[numbers[:, 4 + kinds].argsort(dim=1)]
    changed = torch.empty_like(pixels, memory_format=torch.contiguous_format)
    for order in torch.unique(orders, dim=0):  # at most 24, so images of the same order go together
        rows = (orders == order).all(dim=1)
        changed[rows] = _jitter_in_order(order.tolist(), pixels[rows], largest, numbers[rows])
    return changed


def _jitter_in_order(
    order: Sequence[int], pixels: Tensor, largest: Sequence[float], numbers: Tensor
) -> Tensor:
    # Channels first: channels last takes a CPU four times as long here.
    images = pixels.to(torch.float32, memory_format=torch.contiguous_format)
    for kind in order:
        change = largest[kind] * (2 * numbers[:, kind] - 1)
        images = _CHANGES[kind](images, change.reshape(-1, 1, 1, 1))
    return to_bytes(images)


def change_brightness(images: Tensor, change: Tensor) -> Tensor:
    """Multiply all values by 1 + ``change``."""
    return (images * (1 + change)).clamp(0, 255)


def change_contrast(images: Tensor, change: Tensor) -> Tensor:
    """Multiply the distance of all values from the mean brightness by 1 + ``change``."""
    mean = _to_gray(images).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(mean, images, 1 + change).clamp(0, 255)


def change_saturation(images: Tensor, change: Tensor) -> Tensor:
    """Multiply the distance of every color from its gray value by 1 + ``change``."""
    return torch.lerp(_to_gray(images), images, 1 + change).clamp(0, 255)


def turn_hue(images: Tensor, turn: Tensor) -> Tensor:
    """Rotate the hues by ``turn``, as a share of the color circle; RGB images only."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    # The hue in sixths of the circle, times the chroma; the formula depends on the largest color.
    hue = torch.where(value == green, blue - red + 2 * chroma, red - green + 4 * chroma)
    hue = torch.where(value == red, green - blue, hue)
    hue = hue / chroma.clamp(min=1e-6) + 6 * turn[:, 0]
    # Each color is strongest at its own hue: red at 0, green at 2, blue at 4.
    away = hue[:, None] + torch.tensor([5.0, 3.0, 1.0], device=images.device).reshape(3, 1, 1)
    away -= 6 * (away / 6).floor()
    falls = torch.minimum(away, 4 - away).clamp_(0, 1)
    return value[:, None] - chroma[:, None] * falls


def _to_gray(images: Tensor) -> Tensor:
    """Convert RGB images to gray (B, 1, H, W); others are returned unchanged."""
    if images.shape[1] != 3:
        return images
    weights = torch.tensor(_LUMA, device=images.device).reshape(1, 3, 1, 1)
    return (images * weights).sum(dim=1, keepdim=True)


_CHANGES = (change_brightness, change_contrast, change_saturation, turn_hue)
