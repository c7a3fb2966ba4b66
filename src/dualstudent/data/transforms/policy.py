"""What perturbs a view, drawn independently for every sample and every view."""

from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.errors import UserError
from dualstudent.settings import Settings

Policy = Literal["weak", "strong"]

_Share = Annotated[float, Field(ge=0, le=1)]


class Transform(Settings):
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
        default = Transform()
        for key in type(self).model_fields:
            if key not in possible and getattr(self, key) != getattr(default, key):
                raise UserError(
                    f"transforms.weak.{key} is not possible for images {where}; "
                    f"use {', '.join(possible)}"
                )


class Transforms(Settings):
    """What weak and strong mean for the views of a run.

    Example:
        >>> Transforms(weak=Transform(translate=2))["weak"].translate
        2
    """

    weak: Transform = Field(Transform(), description="what perturbs a weak view")
    strong: Transform = Field(Transform(), description="what perturbs a strong view")

    def __getitem__(self, policy: Policy) -> Transform:
        return self.strong if policy == "strong" else self.weak


class Draw(NamedTuple):
    """One perturbed view.

    Attributes:
        policy: which transform perturbs it.
        generator: decides all that is drawn for it, on the device where views are made.
    """

    policy: Policy
    generator: torch.Generator


def perturb(
    pixels: Tensor,
    transform: Transform,
    normalization: Normalization,
    generator: torch.Generator,
) -> Tensor:
    """One view of every image: shifted, mirrored, normalized, with noise.

    Geometry acts on the bytes, in one gather.

    Args:
        pixels: (B, channels, H, W) uint8.
        transform: what to draw.
        normalization: of the values.
        generator: on the device of ``pixels``; decides everything that is drawn.

    Returns:
        (B, channels, H, W) float32, channels last in memory.
    """
    if transform.translate or transform.flip:
        pixels = _moved(pixels, transform, generator)
    images = normalize(pixels, normalization)
    if transform.noise:
        noise = torch.empty_like(images).normal_(std=transform.noise, generator=generator)
        images += noise
    return images


def _moved(pixels: Tensor, transform: Transform, generator: torch.Generator) -> Tensor:
    count, _, height, width = pixels.shape
    largest, device = transform.translate, pixels.device
    shift = torch.randint(-largest, largest + 1, (2, count, 1), generator=generator, device=device)
    rows = _reflected(torch.arange(height, device=device) + shift[0], height)
    columns = _reflected(torch.arange(width, device=device) + shift[1], width)
    if transform.flip:
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
