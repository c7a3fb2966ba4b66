"""A CNN for experiments on color images without a GPU; not from the paper."""

from typing import Literal

from pydantic import Field
from torch import nn

from dualstudent.networks.layers import DecoupledHeads, convolution
from dualstudent.networks.network import Network, NetworkSettings


class QuickCNNSettings(NetworkSettings):
    """Settings of the quick CNN."""

    name: Literal["quick-cnn"] = "quick-cnn"
    dropout: float = Field(0.1, ge=0, lt=1)
    weight_norm: bool = True


class QuickCNN(Network):
    """Three convolutions of 32, 64 and 128 channels, global average pooling, decoupled heads.

    It uses the blocks of the 13-layer CNN with about 1/260 of its multiplications. The first
    convolution has stride 2, because batch norm and LeakyReLU on a large map cost a CPU as much
    as the convolutions. 97,192 parameters for RGB images and 10 classes; images of at least
    8 pixels a side.

    Args:
        channels: channels of the images.
        classes: C.
        dropout: dropout rate after the second max pooling; lower than in larger networks.
        weight_norm: whether convolutions and heads have weight normalization.

    Example:
        >>> import torch
        >>> QuickCNN()(torch.rand(2, 3, 32, 32)).features.shape
        torch.Size([2, 128])
    """

    Settings = QuickCNNSettings
    smallest_image = 8

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        dropout: float = 0.1,
        weight_norm: bool = True,
    ) -> None:
        trunk = nn.Sequential(
            convolution(channels, 32, kernel=4, stride=2, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            convolution(32, 64, weight_norm=weight_norm),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            convolution(64, 128, weight_norm=weight_norm),
        )
        super().__init__(trunk, DecoupledHeads(128, classes, weight_norm))
