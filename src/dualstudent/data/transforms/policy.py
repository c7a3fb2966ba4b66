"""What perturbs a view: the settings, the random numbers, and the order of the operations."""

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.batch import Policy
from dualstudent.data.transforms import color, geometry
from dualstudent.data.transforms.normalization import Normalization, normalize
from dualstudent.data.transforms.resize import PHOTO_MARGIN, resize
from dualstudent.errors import UserError
from dualstudent.settings import Settings

Numbers = dict[str, Tensor]
"""What chance decides for a batch: (B, …) by operation, a row for each image."""

_Share = Annotated[float, Field(ge=0, le=1)]


class Operation(NamedTuple):
    """An operation that keeps the size of images; the value of its field is how strong it is.

    Attributes:
        apply: from pixels (B, channels, H, W) uint8, the value of the field and random numbers
            (B, numbers), uniform in [0, 1), to the changed pixels.
        numbers: how many random ones it needs for each image.
    """

    apply: Callable[[Tensor, Any, Tensor], Tensor]
    numbers: int


class Transform(Settings):
    """What perturbs a view; all off by default.

    Images are rotated, cropped, shifted, mirrored, then changed by each :class:`Operation` in the
    order of the fields, normalized, and get noise. A new operation is a function and a field that
    names it.
    """

    translate: int = Field(0, ge=0, description="largest shift in pixels, borders reflected")
    flip: bool = Field(False, description="mirror left and right, half of the time")
    noise: float = Field(0.0, ge=0, description="σ of Gaussian noise on normalized pixels")
    random_resized_crop: bool = Field(
        False, description="a part of 8 to 100 % of the area, of 3:4 to 4:3, as the whole view"
    )
    jitter: Annotated[
        tuple[_Share, _Share, _Share, Annotated[float, Field(ge=0, le=0.5)]],
        Operation(color.jitter, color.NUMBERS_OF_JITTER),
    ] = Field(
        (0.0, 0.0, 0.0, 0.0),
        strict=False,
        description="largest change of brightness, contrast, saturation (factors 1 ± it) and hue",
    )
    rotate: float = Field(0.0, ge=0, le=180, description="largest angle in degrees, either way")

    @property
    def is_empty(self) -> bool:
        """Whether it leaves images as they are."""
        return self == Transform()

    def draw(self, count: int, generator: torch.Generator) -> Numbers:
        """All that chance decides for ``count`` images, but for the noise."""
        numbers = {}
        if self.translate or self.flip:  # first, as ever: kept results depend on it
            bounds, device = (-self.translate, self.translate + 1), generator.device
            shift = torch.randint(*bounds, (2, count, 1), generator=generator, device=device)
            numbers["translate"] = shift.squeeze(2).T
        for key, each in _COUNTS.items():
            if self._is_set(key):
                device = generator.device
                numbers[key] = torch.rand(count, each, generator=generator, device=device)
        return numbers

    def apply(self, pixels: Tensor, numbers: Numbers, size: int | None = None) -> Tensor:
        """All but normalization and noise.

        Args:
            pixels: (B, channels, H, W) uint8.
            numbers: of :meth:`draw`.
            size: that photos are brought to; default: images keep the size they have.
        """
        if len(pixels) == 0:  # as of files none of which can be read
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
    """What weak and strong mean for the views of a run.

    Example:
        >>> Transforms(weak=Transform(translate=2))["weak"].translate
        2
    """

    weak: Transform = Field(Transform(), description="what perturbs a weak view")
    strong: Transform = Field(Transform(), description="what perturbs a strong view")

    def __getitem__(self, policy: Policy) -> Transform:
        return self.strong if policy == "strong" else self.weak

    def check_fits(self, height: int, width: int) -> None:
        """Refuse what images of so many pixels do not allow."""
        for policy in get_args(Policy):
            if (shift := self[policy].translate) >= min(height, width):
                raise UserError(
                    f"transforms.{policy}.translate = {shift} moves images of {min(height, width)} "
                    f"pixels out of sight; use less than {min(height, width)}"
                )


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
    """One view of every image.

    Args:
        pixels: (B, channels, H, W) uint8.
        transform: what to do.
        normalization: of the values.
        generator: on the device of ``pixels``; decides everything that is drawn.

    Returns:
        (B, channels, H, W) float32, channels last in memory.
    """
    numbers = transform.draw(len(pixels), generator)
    images = normalize(transform.apply(pixels, numbers), normalization)
    return add_noise(images, transform.noise, generator)


def add_noise(images: Tensor, sigma: float, generator: torch.Generator) -> Tensor:
    """Gaussian noise on normalized images, which are written to."""
    if sigma:
        images += torch.empty_like(images).normal_(std=sigma, generator=generator)
    return images
