"""Operations of Pillow on batches of bytes, each image with its own strength.

All map pixels (B, channels, H, W) uint8 with 1 or 3 channels, and strengths (B,), to new pixels.
Those on values give the bytes that Pillow gives; those that move pixels take the nearest one and
leave black what comes from outside, as Pillow does, in its fixed-point arithmetic.
"""

import torch
from torch import Tensor

_LUMA = (19595, 38470, 7471)  # ITU-R 601-2 in 65,536ths
_FIXED = 65536


def keep(pixels: Tensor, _: Tensor) -> Tensor:
    """Change nothing."""
    return pixels


def autocontrast(pixels: Tensor, _: Tensor) -> Tensor:
    """Stretch the values of every channel to 0 … 255, as ``ImageOps.autocontrast``."""
    flat = pixels.flatten(2)
    low, high = (edge[..., None].long() for edge in (flat.amin(2), flat.amax(2)))
    # Double precision as in Python, which decides what is cut off; not every device has it.
    precision = torch.float32 if pixels.device.type == "mps" else torch.float64
    full = torch.full_like(low, 255, dtype=precision)  # 255 / x would multiply by 1 / x, rounded
    scale = full / (high - low).clamp(min=1)
    values = torch.arange(256, device=pixels.device)
    tables = (values * scale - low * scale).clamp(0, 255).long()
    return _look_up(torch.where(high > low, tables, values), pixels)


def equalize(pixels: Tensor, _: Tensor) -> Tensor:
    """Make all values of every channel equally frequent, as ``ImageOps.equalize``."""
    count, channels = pixels.shape[:2]
    flat, values = pixels.flatten(2).long(), torch.arange(256, device=pixels.device)
    own = 256 * torch.arange(count * channels, device=pixels.device).reshape(count, channels, 1)
    histograms = (flat + own).flatten().bincount(minlength=256 * count * channels)
    histograms = histograms.reshape(count, channels, 256)
    brightest = histograms.gather(2, flat.amax(2, keepdim=True))
    step = (flat.shape[2] - brightest) // 255
    below = histograms.cumsum(2) - histograms
    tables = ((step // 2 + below) // step.clamp(min=1)).clamp(max=255)
    return _look_up(torch.where(step > 0, tables, values), pixels)


def posterize(pixels: Tensor, bits: Tensor) -> Tensor:
    """Keep the first ``bits`` of every byte, without fractions, as ``ImageOps.posterize``."""
    kept = 256 - 2 ** (8 - bits.long())
    return pixels & kept.to(torch.uint8)[:, None, None, None]


def solarize(pixels: Tensor, threshold: Tensor) -> Tensor:
    """Invert values from ``threshold`` on, as ``ImageOps.solarize``."""
    return torch.where(pixels < threshold[:, None, None, None], pixels, 255 - pixels)


def brightness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Move away from black, as ``ImageEnhance.Brightness``."""
    return _blend(pixels.new_zeros(()), pixels, factor)


def contrast(pixels: Tensor, factor: Tensor) -> Tensor:
    """Move away from the mean gray, as ``ImageEnhance.Contrast``."""
    gray = to_gray(pixels).flatten(1).long()
    size = gray.shape[1]
    mean = (2 * gray.sum(1) + size) // (2 * size)
    return _blend(mean[:, None, None, None], pixels, factor)


def color(pixels: Tensor, factor: Tensor) -> Tensor:
    """Move away from gray, as ``ImageEnhance.Color``; changes nothing if there is one channel."""
    return pixels if pixels.shape[1] == 1 else _blend(to_gray(pixels), pixels, factor)


def sharpness(pixels: Tensor, factor: Tensor) -> Tensor:
    """Move away from the smoothed image, as ``ImageEnhance.Sharpness``."""
    smooth = pixels.float()
    rows = smooth[..., :-2, :] + smooth[..., 1:-1, :] + smooth[..., 2:, :]
    around = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:]
    # The pixel itself counts five times, its neighbors once; the border remains.
    inside = ((around + 4 * smooth[..., 1:-1, 1:-1]) / 13).round_()
    smooth[..., 1:-1, 1:-1] = inside
    return _blend(smooth, pixels, factor)


def move(pixels: Tensor, amounts: Tensor) -> Tensor:
    """Rotate, shear or translate, as ``Image.rotate`` and ``Image.transform``.

    Args:
        pixels: (B, channels, H, W) uint8.
        amounts: (B, 5), of which one per image is not 0: degrees counterclockwise about the center,
            shift to the left of each row per row from the top, shift upwards of each column per
            column from the left, shift of all to the left as a share of the width, and upwards as
            a share of the height.
    """
    height, width = pixels.shape[2:]
    x, y = _find_sources(amounts, height, width).unbind(1)
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    source = (y * width + x).mul_(inside).flatten(1).long()[:, None]
    moved = pixels.flatten(2).gather(2, source.expand(-1, pixels.shape[1], -1))
    return moved.reshape(pixels.shape).mul_(inside[:, None])


def _find_sources(amounts: Tensor, height: int, width: int) -> Tensor:
    """Return column and row that each pixel comes from, (B, 2, H, W) int32."""
    degrees, shear_x, shear_y, left, up = amounts.unbind(1)
    angle = degrees.deg2rad()
    cos, sin = angle.cos(), angle.sin()
    across = torch.stack([cos, sin + shear_y], dim=1)
    down = torch.stack([shear_x - sin, cos], dim=1)
    turned = torch.stack([width - cos * width + sin * height, height - sin * width - cos * height])
    start = torch.stack([left * width, up * height], dim=1) + turned.T / 2
    start = start + (across + down) / 2  # a pixel is where its center is
    across, down, start = (
        (each * _FIXED + 0.5).floor().int()[..., None, None] for each in (across, down, start)
    )
    columns, rows = (torch.arange(side, device=angle.device).int() for side in (width, height))
    return (across * columns + (down * rows[:, None] + start)) >> 16


def _look_up(tables: Tensor, pixels: Tensor) -> Tensor:
    """Replace each byte by its entry in ``tables``, (B, channels, 256) int64."""
    values = tables.to(torch.uint8).gather(2, pixels.flatten(2).long())
    return values.reshape(pixels.shape)


def _blend(start: Tensor, pixels: Tensor, factor: Tensor) -> Tensor:
    """Return start + factor · (pixels − start) without fractions, as ``Image.blend``."""
    start = start.float()
    blended = (pixels - start).mul_(factor[:, None, None, None]).add_(start)
    return blended.clamp_(0, 255).to(torch.uint8)


def to_gray(pixels: Tensor) -> Tensor:
    """Convert to gray, (B, 1, H, W) uint8, as ``Image.convert("L")``."""
    if pixels.shape[1] == 1:
        return pixels
    red, green, blue = pixels.int()[:, :, None].unbind(1)
    gray = (_LUMA[0] * red + _LUMA[1] * green + _LUMA[2] * blue + _FIXED // 2) >> 16
    return gray.to(torch.uint8)
