"""The 13-layer CNN of the CIFAR and SVHN experiments (Appendix B)."""

from typing import Literal

from pydantic import Field
from torch import nn

from dualstudent.networks.layers import DecoupledHeads, convolution
from dualstudent.networks.network import Network, NetworkSettings


class CNN13Settings(NetworkSettings):
    """Settings of the 13-layer CNN."""

    name: Literal["cnn13"] = "cnn13"
    dropout: float = Field(0.5, ge=0, lt=1)
    weight_norm: bool = True


class CNN13(Network):
    """Nine convolutions, two max poolings, global average pooling, decoupled heads.

    3,127,208 parameters for RGB images and 10 classes; images of at least 12 pixels a side.

    Args:
        channels: channels of the images.
        classes: C.
        dropout: dropout rate after each max pooling.
        weight_norm: whether convolutions and heads have weight normalization.

    Example:
        >>> import torch
        >>> CNN13()(torch.rand(2, 3, 32, 32)).features.shape
        torch.Size([2, 128])
    """

    Settings = CNN13Settings
    smallest_image = 12

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        dropout: float = 0.5,
        weight_norm: bool = True,
    ) -> None:
        trunk = nn.Sequential(
            convolution(channels, 128, weight_norm=weight_norm),
            convolution(128, 128, weight_norm=weight_norm),
            convolution(128, 128, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            convolution(128, 256, weight_norm=weight_norm),
            convolution(256, 256, weight_norm=weight_norm),
            convolution(256, 256, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            convolution(256, 512, padding=0, weight_norm=weight_norm),
            convolution(512, 256, kernel=1, padding=0, weight_norm=weight_norm),
            convolution(256, 128, kernel=1, padding=0, weight_norm=weight_norm),
        )
        super().__init__(trunk, DecoupledHeads(128, classes, weight_norm))
