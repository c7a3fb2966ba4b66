"""Geometric operations, each image with its own random numbers."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from dualstudent.data.transforms.resize import to_bytes

_ATTEMPTS = 10  # to find a box that fits into the image
_AREA = (0.08, 1.0)
_ASPECT = (3 / 4, 4 / 3)

NUMBERS_OF_CROP = 2 * _ATTEMPTS + 2
NUMBERS_OF_AFFINE = 6
NUMBERS_OF_CUTOUT = 3

_GRAY = 128


def translate_and_flip(pixels: Tensor, shift: Tensor, mirror: Tensor | None) -> Tensor:
    """Shift images, with reflected borders, then mirror them left to right.

    Args:
        pixels: (B, channels, H, W).
        shift: (B, 2) int64, rows and columns to shift by.
        mirror: (B, 1) bool, which images to mirror; None for none.

    Returns:
        (B, channels, H, W), channels last in memory.
    """
    count, channels, height, width = shape = pixels.shape
    device = pixels.device
    rows = _reflect(torch.arange(height, device=device) + shift[:, :1], height)
    columns = _reflect(torch.arange(width, device=device) + shift[:, 1:], width)
    if mirror is not None:
        columns = torch.where(mirror, columns.flip(1), columns)
    # Whole rows first, which are copied at once, then columns: several times as fast as both in
    # one step.
    first = torch.arange(0, count * channels * height, height, device=device)
    chosen = first.view(count, channels, 1) + rows[:, None]
    moved = pixels.reshape(-1, width).index_select(0, chosen.flatten()).view(shape)
    moved = moved.gather(3, columns[:, None, None].expand(shape))
    return moved.contiguous(memory_format=torch.channels_last)


def rotate(pixels: Tensor, largest: float, numbers: Tensor) -> Tensor:
    """Rotate images about their centers with bilinear interpolation; new corners are black.

    Args:
        pixels: (B, channels, H, W) uint8.
        largest: largest angle in degrees, in both directions.
        numbers: (B, 1) uniform in [0, 1).
    """
    height, width = pixels.shape[2:]
    angle = (2 * numbers[:, 0] - 1) * math.radians(largest)
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    # The source of each pixel, in coordinates from -1 to 1 along each side.
    across = torch.stack([cos, -sin * (height / width), zero], dim=1)
    down = torch.stack([sin * (width / height), cos, zero], dim=1)
    grid = F.affine_grid(torch.stack([across, down], dim=1), list(pixels.shape), False)
    return to_bytes(F.grid_sample(pixels.float(), grid, align_corners=False))


def affine(pixels: Tensor, largest: Sequence[float], numbers: Tensor) -> Tensor:
    """Rotate, stretch, shear and shift images at once, with bilinear interpolation.

    A pixel at z from the center shows what was at A·(z − t), where A = rotation · shear · scale;
    every linear map is such a product. Borders are continued, so that paper stays paper.

    Args:
        pixels: (B, channels, H, W) uint8.
        largest: four limits, each in both directions: the angle in degrees, the logarithms of the
            factors of width and height, columns sheared per row, and shifts as shares of the sides.
        numbers: (B, NUMBERS_OF_AFFINE) uniform in [0, 1).
    """
    degrees, scale, shear, shift = largest
    limits = numbers.new_tensor([math.radians(degrees), scale, scale, shear, shift, shift])
    drawn = limits * (2 * numbers - 1)
    angle, wider, higher, slope, right, down = drawn[..., None, None].unbind(1)  # (B, 1, 1) each
    height, width = pixels.shape[2:]
    x = (_centers(width, pixels.device) - 0.5 - right) * width * wider.exp()
    y = (_centers(height, pixels.device)[:, None] - 0.5 - down) * height * higher.exp()
    x = x + slope * y
    cos, sin = angle.cos(), angle.sin()
    # In coordinates from -1 to 1 along each side.
    grid = torch.stack([(cos * x - sin * y) * (2 / width), (sin * x + cos * y) * (2 / height)], 3)
    images = pixels.to(torch.float32, memory_format=torch.contiguous_format)
    return to_bytes(F.grid_sample(images, grid, padding_mode="border", align_corners=False))


def cutout(pixels: Tensor, largest: float, numbers: Tensor) -> Tensor:
    """Cover a random box with gray; where it leaves the image, it is cut off.

    Args:
        pixels: (B, channels, H, W) uint8.
        largest: largest height and width of the box, as a share of those of the image.
        numbers: (B, NUMBERS_OF_CUTOUT) uniform in [0, 1): size and center of the box.
    """
    height, width = pixels.shape[2:]
    size, row, column = numbers[..., None, None].unbind(1)  # (B, 1, 1) each
    half = size * largest / 2
    rows = (_centers(height, pixels.device)[:, None] - row).abs() < half
    columns = (_centers(width, pixels.device) - column).abs() < half
    return pixels.masked_fill((rows & columns)[:, None], _GRAY)


def random_resized_crop(pixels: Tensor, size: tuple[int, int], numbers: Tensor) -> Tensor:
    """Resize a random box of every image to ``size`` with antialiased bilinear interpolation.

    Args:
        pixels: (B, channels, H, W) uint8.
        size: (height, width) of the views.
        numbers: (B, NUMBERS_OF_CROP) uniform in [0, 1).

    Returns:
        (B, channels, *size) uint8.
    """
    boxes = choose_boxes(pixels.shape[2], pixels.shape[3], numbers)
    if len(pixels) == 1 and pixels.is_cpu:  # faster for a photo; equal up to rounding
        top, left, height, width = boxes[0].tolist()
        part = pixels[:, :, top : top + height, left : left + width]
        return F.interpolate(part, size, mode="bilinear", antialias=True)
    top, left, height, width = boxes.unbind(1)
    rows = _bilinear_weights(top, height, pixels.shape[2], size[0])
    columns = _bilinear_weights(left, width, pixels.shape[3], size[1])
    return to_bytes(rows[:, None] @ pixels.float() @ columns[:, None].mT)


def choose_boxes(height: int, width: int, numbers: Tensor) -> Tensor:
    """Choose a random box in each of B images.

    Its area is uniform in 8 to 100 % of the image, its aspect ratio log-uniform in 3:4 to 4:3. If
    no attempt fits into the image, it is the largest center box with an allowed aspect ratio.

    Args:
        height: height of the images in pixels.
        width: width of the images in pixels.
        numbers: (B, NUMBERS_OF_CROP) uniform in [0, 1).

    Returns:
        (B, 4) int64: top, left, height, width.
    """
    area, aspect, place = numbers.tensor_split([_ATTEMPTS, 2 * _ATTEMPTS], dim=1)
    pixels = height * width * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
    low, high = map(math.log, _ASPECT)
    ratio = (low + (high - low) * aspect).exp()
    sides = torch.stack([pixels / ratio, pixels * ratio], dim=2).sqrt().round().long()  # (B, A, 2)
    whole = torch.tensor([height, width], device=numbers.device)
    fits = ((sides > 0) & (sides <= whole)).all(dim=2)
    first = fits.int().argmax(dim=1)
    chosen = sides[torch.arange(len(sides), device=numbers.device), first]
    allowed = [max(1, round(width / _ASPECT[0])), max(1, round(height * _ASPECT[1]))]
    center = torch.minimum(whole, torch.tensor(allowed, device=numbers.device))
    found = fits.any(dim=1, keepdim=True)
    size = torch.where(found, chosen, center)
    room = whole - size
    corner = torch.where(found, (place * (room + 1)).long().minimum(room), room // 2)
    return torch.cat([corner, size], dim=1)


def _bilinear_weights(start: Tensor, length: Tensor, before: int, after: int) -> Tensor:
    """Return weights (B, after, before) that resize a section of a line of pixels.

    Args:
        start: (B,) int64, first pixel of the section.
        length: (B,) int64, length of the section.
        before: length of the line.
        after: length of the resized section.
    """
    start, length = start[:, None, None], length[:, None, None]
    scale = length / after
    pixel = torch.arange(before, device=start.device)
    center = start + (torch.arange(after, device=start.device)[:, None] + 0.5) * scale
    weights = (1 - (pixel + 0.5 - center).abs() / scale.clamp(min=1)).clamp(min=0)
    weights = weights * ((pixel >= start) & (pixel < start + length))
    return weights / weights.sum(dim=2, keepdim=True)


def _centers(side: int, device: torch.device) -> Tensor:
    """Return where the centers of pixels are along a side of length 1, (side,)."""
    return (torch.arange(side, device=device) + 0.5) / side


def _reflect(index: Tensor, size: int) -> Tensor:
    """Reflect indices at the border, without repeating the border pixel."""
    period = max(2 * (size - 1), 1)
    return (size - 1) - ((size - 1) - index.remainder(period)).abs()
