"""The small CNN of the digit experiments (Appendix B, Table "The small CNN")."""

from typing import Literal

from pydantic import Field
from torch import nn

from dualstudent.networks.layers import DecoupledHeads, convolution
from dualstudent.networks.network import Network, NetworkSettings


class DigitsCNNSettings(NetworkSettings):
    """Settings of the small CNN."""

    name: Literal["digits-cnn"] = "digits-cnn"
    dropout: float = Field(0.5, ge=0, lt=1)
    weight_norm: bool = True
    width: int = Field(1, gt=0, le=2**8, description="multiplies the channels of every convolution")
    pool: int | None = Field(
        None,
        gt=0,
        le=2**12,
        description="window of the final average pooling, in pixels; incomplete windows at the "
        "edges are dropped; default: global average pooling",
    )


class DigitsCNN(Network):
    """Three convolutions of 16, 32 and 32 channels, global average pooling, decoupled heads.

    14,968 parameters for gray images and 10 classes; images of at least 4 pixels a side.
    The paper averages 6×6 of the last 7×7 map of its 28×28 images (``pool=6``), which drops a
    row and a column. The default averages the whole map, so that any size works.

    Args:
        channels: channels of the images.
        classes: C.
        dropout: dropout rate after the second max pooling.
        weight_norm: whether convolutions and heads have weight normalization.
        width: multiplies the channels of every convolution.
        pool: window of the final average pooling; None for the whole map.

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
