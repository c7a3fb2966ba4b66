"""Normalization of bytes to the floats that networks get."""

from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.settings import Settings


class Normalization(Settings):
    """(x − mean) / std per channel, for x in [0, 1]; a single value is used for all channels."""

    mean: tuple[float, ...] = Field((0.5,), min_length=1, strict=False)
    std: tuple[Annotated[float, Field(gt=0)], ...] = Field((0.5,), min_length=1, strict=False)

    def check_fits(self, channels: int) -> None:
        """Check that there are values for ``channels`` channels.

        Raises:
            UserError: otherwise.
        """
        for key in ("mean", "std"):
            if len(values := getattr(self, key)) not in (1, channels):
                raise UserError(
                    f"normalization.{key} has {len(values)} values, the images have {channels} "
                    "channel(s)"
                )


def normalize(pixels: Tensor, normalization: Normalization) -> Tensor:
    """Normalize (B, channels, H, W) uint8 to float32, channels last in memory.

    Example:
        >>> normalize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), Normalization())
        tensor([[[[-1.,  1.]]]])
    """
    factor, offset = make_scale_and_offset(normalization, pixels.device)
    # Explicitly channels last: with one channel, ``to`` would keep the layout, and the whole
    # network would run channels first, a third slower on a CPU.
    images = torch.empty(
        pixels.shape, device=pixels.device, memory_format=torch.channels_last
    ).copy_(pixels)
    return images.mul_(factor).sub_(offset)


@lru_cache
def make_scale_and_offset(
    normalization: Normalization, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return scale and offset, (channels or 1, 1, 1) each: a byte b becomes b · scale − offset.

    They are cached, to avoid a copy to the device in every step; do not modify them.
    """
    mean = torch.tensor(normalization.mean, device=device).reshape(-1, 1, 1)
    std = torch.tensor(normalization.std, device=device).reshape(-1, 1, 1)
    return 1 / (255 * std), mean / std
