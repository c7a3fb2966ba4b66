"""Perturbations of whole batches, drawn independently for every sample and every view."""

from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.settings import Settings

_Share = Annotated[float, Field(ge=0, le=1)]


class Augmentation(Settings):
    """What perturbs a view; all off by default.

    Small images in memory can be translated and get noise, photos read from files can be
    cropped, jittered and rotated; both can be mirrored.
    """

    translate: int = Field(0, ge=0, description="largest shift in pixels, borders reflected")
    flip: bool = Field(False, description="mirror left and right, half of the time")
    noise: float = Field(0.0, ge=0, description="σ of Gaussian noise on normalized pixels")
    random_resized_crop: bool = Field(
        False, description="a part of 8 to 100 % of the area, of 3:4 to 4:3, as the whole view"
    )
    jitter: tuple[_Share, _Share, _Share, Annotated[float, Field(ge=0, le=0.5)]] = Field(
        (0.0, 0.0, 0.0, 0.0),
        strict=False,
        description="largest change of brightness, contrast, saturation (factors 1 ± it) and hue",
    )
    rotate: float = Field(0.0, ge=0, le=180, description="largest angle in degrees, either way")

    def check_only(self, *possible: str, where: str) -> None:
        """Refuse everything but ``possible``, which is what can be done ``where``."""
        default = Augmentation()
        for key in type(self).model_fields:
            if key not in possible and getattr(self, key) != getattr(default, key):
                raise UserError(
                    f"augmentation.{key} is not possible for images {where}; "
                    f"use {', '.join(possible)}"
                )


class Normalization(Settings):
    """Per channel: (x − mean) / std for x in [0, 1]; one value serves all channels."""

    mean: tuple[float, ...] = Field((0.5,), min_length=1, strict=False)
    std: tuple[Annotated[float, Field(gt=0)], ...] = Field((0.5,), min_length=1, strict=False)


def perturb(
    pixels: Tensor,
    augmentation: Augmentation,
    normalization: Normalization,
    generator: torch.Generator,
) -> Tensor:
    """One view of every image: shifted, mirrored, normalized, with noise.

    Geometry acts on the bytes, in one gather.

    Args:
        pixels: (B, channels, H, W) uint8.
        augmentation: what to draw.
        normalization: of the values.
        generator: on the device of ``pixels``; decides everything that is drawn.

    Returns:
        (B, channels, H, W) float32, channels last in memory.
    """
    if augmentation.translate or augmentation.flip:
        pixels = _moved(pixels, augmentation, generator)
    images = normalize(pixels, normalization)
    if augmentation.noise:
        noise = torch.empty_like(images).normal_(std=augmentation.noise, generator=generator)
        images += noise
    return images


def normalize(pixels: Tensor, normalization: Normalization) -> Tensor:
    """Bytes as the floats that networks see, channels last in memory.

    Example:
        >>> normalize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), Normalization())
        tensor([[[[-1.,  1.]]]])
    """
    factor, offset = factor_and_offset(normalization, pixels.device)
    # Laid out explicitly: with one channel, a conversion would keep the layout it finds, and the
    # whole network would run channels first, a third slower on a CPU.
    images = torch.empty(
        pixels.shape, device=pixels.device, memory_format=torch.channels_last
    ).copy_(pixels)
    return images.mul_(factor).sub_(offset)


@lru_cache
def factor_and_offset(normalization: Normalization, device: torch.device) -> tuple[Tensor, Tensor]:
    """(channels or 1, 1, 1) each: a byte b is seen by networks as b · factor − offset.

    Made once: copying them to a device in every step would hold it up. Not to be written to.
    """
    mean = torch.tensor(normalization.mean, device=device).reshape(-1, 1, 1)
    std = torch.tensor(normalization.std, device=device).reshape(-1, 1, 1)
    return 1 / (255 * std), mean / std


def _moved(pixels: Tensor, augmentation: Augmentation, generator: torch.Generator) -> Tensor:
    count, _, height, width = pixels.shape
    largest, device = augmentation.translate, pixels.device
    shift = torch.randint(-largest, largest + 1, (2, count, 1), generator=generator, device=device)
    rows = _reflected(torch.arange(height, device=device) + shift[0], height)
    columns = _reflected(torch.arange(width, device=device) + shift[1], width)
    if augmentation.flip:
        mirror = torch.rand(count, 1, generator=generator, device=device) < 0.5
        columns = torch.where(mirror, columns.flip(1), columns)
    # Advanced indices around a slice put the channels last: (B, H, W, channels).
    images = torch.arange(count, device=device)
    moved = pixels[images[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return moved.permute(0, 3, 1, 2)


def _reflected(index: Tensor, size: int) -> Tensor:
    """Indices beyond the border count back from it, without repeating the border itself."""
    period = max(2 * (size - 1), 1)
    return (size - 1) - ((size - 1) - index.remainder(period)).abs()
