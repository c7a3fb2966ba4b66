"""The small CNN of the digit experiments (Appendix B, Table "The small CNN")."""

from typing import Literal

from pydantic import Field
from torch import nn

from dualstudent.networks.layers import DecoupledHeads, convolution
from dualstudent.networks.network import Network, NetworkSettings


class DigitsCNNSettings(NetworkSettings):
    """What can be set of the small CNN."""

    name: Literal["digits-cnn"] = "digits-cnn"
    dropout: float = Field(0.5, ge=0, lt=1)
    weight_norm: bool = True
    width: int = Field(1, gt=0, description="multiplies the channels of every convolution")
    pool: int | None = Field(
        None,
        gt=0,
        description="side of the windows that the last map is averaged in, what is left over at "
        "its right and lower edge dropped; default: the whole map",
    )


class DigitsCNN(Network):
    """Three convolutions of 16, 32 and 32 channels, a mean over the map, decoupled heads.

    14,968 parameters for gray images and 10 classes; any image of 4 pixels or more a side.
    The paper pools 6×6 of the 7×7 map of its 28×28 images, which drops a row and a column;
    this pools the whole map, so that any size works. ``pool=6`` is the paper's.

    Args:
        channels: of the images.
        classes: C.
        dropout: after the second max pooling.
        weight_norm: on every convolution and both heads.
        width: multiplies the channels of every convolution.
        pool: side of the windows that the last map is averaged in; None: the whole map.

    Example:
        >>> import torch
        >>> DigitsCNN()(torch.rand(2, 1, 28, 28)).class_logits.shape
        torch.Size([2, 10])
    """

    Settings = DigitsCNNSettings

    def __init__(
        self,
        channels: int = 1,
        classes: int = 10,
        dropout: float = 0.5,
        weight_norm: bool = True,
        width: int = 1,
        pool: int | None = None,
    ) -> None:
        narrow, wide = 16 * width, 32 * width
        trunk = nn.Sequential(
            convolution(channels, narrow, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            convolution(narrow, wide, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            convolution(wide, wide, weight_norm=weight_norm),
        )
        if pool is not None:
            trunk.append(nn.AvgPool2d(pool))
        super().__init__(trunk, DecoupledHeads(wide, classes, weight_norm))
        self.smallest_image = 4 * (pool or 1)
