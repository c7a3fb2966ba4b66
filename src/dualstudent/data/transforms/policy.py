"""Transforms: their settings, random numbers, and order of operations."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.batch import WHOLE, Policy, Shard
from dualstudent.data.transforms import color, geometry
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.randaugment import (
    MOST_OPERATIONS,
    NUMBERS_OF_RANDAUGMENT,
    augment_randomly,
)
from dualstudent.data.transforms.resize import PHOTO_MARGIN, resize
from dualstudent.errors import UserError
from dualstudent.settings import Settings

Numbers = dict[str, Tensor]
"""The random numbers of a batch: operation → (B, …), one row per image."""

_Share = Annotated[float, Field(ge=0, le=1)]


class Operation(NamedTuple):
    """Annotation of a field of :class:`Transform`: an operation that keeps the image size.

    Attributes:
        apply: maps pixels (B, channels, H, W) uint8, the value of the field, and random numbers
            (B, numbers), uniform in [0, 1), to new pixels.
        numbers: how many random numbers it needs per image.
    """

    apply: Callable[[Tensor, Any, Tensor], Tensor]
    numbers: int


class Transform(Settings):
    """The perturbation of a view; all off by default.

    Images are rotated, cropped, shifted and mirrored, then changed by each :class:`Operation` in
    the order of the fields, then normalized; noise comes last. To add an operation, write a
    function and a field that is annotated with it.
    """

    translate: int = Field(0, ge=0, description="largest shift in pixels, borders reflected")
    flip: bool = Field(False, description="mirror left and right, half of the time")
    noise: float = Field(0.0, ge=0, description="σ of Gaussian noise on normalized pixels")
    random_resized_crop: bool = Field(
        False, description="use a random box of 8 to 100 % of the area, aspect ratio 3:4 to 4:3"
    )
    jitter: Annotated[
        tuple[_Share, _Share, _Share, Annotated[float, Field(ge=0, le=0.5)]],
        Operation(color.jitter, color.NUMBERS_OF_JITTER),
    ] = Field(
        (0.0, 0.0, 0.0, 0.0),
        strict=False,
        description="largest change of brightness, contrast, saturation (x: factors 1 ± x) and hue",
    )
    rotate: float = Field(0.0, ge=0, le=180, description="largest angle in degrees, either way")
    affine: Annotated[
        tuple[Annotated[float, Field(ge=0, le=180)], _Share, _Share, _Share],
        Operation(geometry.affine, geometry.NUMBERS_OF_AFFINE),
    ] = Field(
        (0.0, 0.0, 0.0, 0.0),
        strict=False,
        description="largest angle in degrees, logarithm of the scale, shear, and shift as a share "
        "of the side, all either way; borders are continued",
    )
    randaugment: Annotated[int, Operation(augment_randomly, NUMBERS_OF_RANDAUGMENT)] = Field(
        0, ge=0, le=MOST_OPERATIONS, description="how many random operations change each image"
    )
    cutout: Annotated[_Share, Operation(geometry.cutout, geometry.NUMBERS_OF_CUTOUT)] = Field(
        0.0, description="largest side of a gray box, as a share of the image"
    )

    @property
    def is_empty(self) -> bool:
        """Whether it does not change images."""
        return self == Transform()

    def draw(self, count: int, generator: torch.Generator, shard: Shard = WHOLE) -> Numbers:
        """Draw the random numbers for ``count`` images, except the noise.

        With a shard, they are its part of those for the whole batch.
        """
        numbers, count = {}, count * shard.world_size
        if self.translate or self.flip:  # must come first: published results depend on it
            bounds, device = (-self.translate, self.translate + 1), generator.device
            shift = torch.randint(*bounds, (2, count, 1), generator=generator, device=device)
            numbers["translate"] = shift.squeeze(2).T
        for key, each in _COUNTS.items():
            if self._is_set(key):
                device = generator.device
                numbers[key] = torch.rand(count, each, generator=generator, device=device)
        return {key: shard.select(drawn) for key, drawn in numbers.items()}

    def apply(self, pixels: Tensor, numbers: Numbers, size: int | None = None) -> Tensor:
        """Apply everything except normalization and noise.

        Args:
            pixels: (B, channels, H, W) uint8; or float in [0, 1], which is rounded to 256 levels,
                as the operations are defined on bytes.
            numbers: from :meth:`draw`.
            size: size of the views in pixels a side; default: that of the images.

        Returns:
            (B, channels, H, W), of the type and range of ``pixels``.

        Raises:
            UserError: if they are of another type.

        Example:
            >>> images = torch.rand(2, 3, 32, 32)
            >>> strong, generator = Transform(randaugment=2), torch.Generator().manual_seed(0)
            >>> strong.apply(images, strong.draw(2, generator)).dtype
            torch.float32
        """
        if pixels.is_floating_point():
            changed = self.apply(_round_to_bytes(pixels), numbers, size)
            return changed.to(pixels.dtype) / 255
        if pixels.dtype != torch.uint8:
            raise UserError(f"pixels must be uint8, or float in [0, 1], not {pixels.dtype}")
        if len(pixels) == 0:  # no file could be read
            return pixels
        if self.rotate:
            pixels = geometry.rotate(pixels, self.rotate, numbers["rotate"])
        if self.random_resized_crop:
            height, width = pixels.shape[2:] if size is None else (size, size)
            drawn = numbers["random_resized_crop"]
            pixels = geometry.random_resized_crop(pixels, (height, width), drawn)
        elif size is not None:
            pixels = resize(pixels, size, PHOTO_MARGIN)
        if self.translate or self.flip:
            mirror = numbers["flip"] < 0.5 if self.flip else None
            pixels = geometry.translate_and_flip(pixels, numbers["translate"], mirror)
        for key, operation in _OPERATIONS.items():
            if self._is_set(key):
                pixels = operation.apply(pixels, getattr(self, key), numbers[key])
        return pixels

    def _is_set(self, key: str) -> bool:
        return bool(getattr(self, key) != type(self).model_fields[key].default)


def _round_to_bytes(images: Tensor) -> Tensor:
    if not bool(((images >= 0) & (images <= 1)).all()):
        raise UserError("pixels are floats outside [0, 1]; perturb images before normalizing them")
    return (images * 255).round().to(torch.uint8)


_OPERATIONS = {
    key: operation
    for key, field in Transform.model_fields.items()
    for operation in field.metadata
    if isinstance(operation, Operation)
}
# How many random numbers, uniform in [0, 1), are drawn for each image.
_COUNTS = {"flip": 1, "rotate": 1, "random_resized_crop": geometry.NUMBERS_OF_CROP} | {
    key: operation.numbers for key, operation in _OPERATIONS.items()
}


class Transforms(Settings):
    """The transforms of weak and strong views.

    Example:
        >>> Transforms(weak=Transform(translate=2))["weak"].translate
        2
    """

    weak: Transform = Field(Transform(), description="transform of weak views")
    strong: Transform = Field(Transform(), description="transform of strong views")

    def __getitem__(self, policy: Policy) -> Transform:
        return self.strong if policy == "strong" else self.weak

    def check_fits(self, channels: int, height: int, width: int) -> None:
        """Check that the transforms suit images of so many channels and of this size in pixels.

        Raises:
            UserError: otherwise.
        """
        for policy in get_args(Policy):
            if (shift := self[policy].translate) >= min(height, width):
                raise UserError(
                    f"transforms.{policy}.translate = {shift} is too large for images of "
                    f"{min(height, width)} pixels; use less than {min(height, width)}"
                )
            if self[policy].randaugment and channels not in (1, 3):
                raise UserError(
                    f"transforms.{policy}.randaugment needs images with 1 or 3 channels, these "
                    f"have {channels}; set it to 0, and use affine and cutout"
                )


class Draw(NamedTuple):
    """A request for a perturbed view.

    Attributes:
        policy: name of the transform.
        generator: source of its random numbers, on the device where views are made.
        shard: the part of the batch that is made; its views are those of the whole batch.
    """

    policy: Policy
    generator: torch.Generator
    shard: Shard = WHOLE


def perturb(
    pixels: Tensor,
    transform: Transform,
    normalization: Normalization,
    generator: torch.Generator,
    shard: Shard = WHOLE,
) -> Tensor:
    """Make one view of every image.

    Args:
        pixels: (B, channels, H, W) uint8, or float in [0, 1].
        transform: perturbation of the view.
        normalization: normalization of the pixel values.
        generator: source of random numbers, on the device of ``pixels``.
        shard: the part of the batch that ``pixels`` are.

    Returns:
        (B, channels, H, W) float32, channels last in memory.
    """
    if pixels.is_floating_point():
        pixels = _round_to_bytes(pixels)
    numbers = transform.draw(len(pixels), generator, shard)
    images = normalize(transform.apply(pixels, numbers), normalization)
    return add_noise(images, transform.noise, generator, shard)


def add_noise(
    images: Tensor, sigma: float, generator: torch.Generator, shard: Shard = WHOLE
) -> Tensor:
    """Add Gaussian noise to normalized images, in place."""
    if sigma:
        images += shard.select(shard.make_whole(images).normal_(std=sigma, generator=generator))
    return images
