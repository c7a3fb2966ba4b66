"""From bytes to the floats that networks see."""

from functools import lru_cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.settings import Settings


class Normalization(Settings):
    """Per channel: (x − mean) / std for x in [0, 1]; one value serves all channels."""

    mean: tuple[float, ...] = Field((0.5,), min_length=1, strict=False)
    std: tuple[Annotated[float, Field(gt=0)], ...] = Field((0.5,), min_length=1, strict=False)

    def check_fits(self, channels: int) -> None:
        """Refuse values that do not go with images of so many channels."""
        for key in ("mean", "std"):
            if len(values := getattr(self, key)) not in (1, channels):
                raise UserError(
                    f"normalization.{key} has {len(values)} values, the images have {channels} "
                    "channel(s)"
                )


def normalize(pixels: Tensor, normalization: Normalization) -> Tensor:
    """Bytes as the floats that networks see, channels last in memory.

    Example:
        >>> normalize(torch.tensor([[[[0, 255]]]], dtype=torch.uint8), Normalization())
        tensor([[[[-1.,  1.]]]])
    """
    factor, offset = make_scale_and_offset(normalization, pixels.device)
    # Laid out explicitly: with one channel, a conversion would keep the layout it finds, and the
    # whole network would run channels first, a third slower on a CPU.
    images = torch.empty(
        pixels.shape, device=pixels.device, memory_format=torch.channels_last
    ).copy_(pixels)
    return images.mul_(factor).sub_(offset)


@lru_cache
def make_scale_and_offset(
    normalization: Normalization, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(channels or 1, 1, 1) each: a byte b is seen by networks as b · factor − offset.

    Made once: copying them to a device in every step would hold it up. Not to be written to.
    """
    mean = torch.tensor(normalization.mean, device=device).reshape(-1, 1, 1)
    std = torch.tensor(normalization.std, device=device).reshape(-1, 1, 1)
    return 1 / (255 * std), mean / std
