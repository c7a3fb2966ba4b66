"""The CNN of French et al. for MNIST and USPS, which standardizes every image."""

from typing import Literal

from pydantic import Field
from torch import nn

from dualstudent.networks.layers import DecoupledHeads, convolution
from dualstudent.networks.network import Network, NetworkSettings


class FrenchCNNSettings(NetworkSettings):
    """Settings of the CNN of French et al."""

    name: Literal["french-cnn"] = "french-cnn"
    dropout: float = Field(0.5, ge=0, lt=1)


class FrenchCNN(Network):
    """Three convolutions without padding, a layer of 256 features, decoupled heads.

    French et al., Self-ensembling for visual domain adaptation, ICLR 2018. Every image is brought
    to mean 0 and deviation 1, so that ink and paper of another domain may be darker or brighter.
    Unlike theirs, it has LeakyReLU, and batch norm also after the last layer.

    About 325,000 parameters and 5 million multiplications for gray images of 28 pixels a side,
    of which the last layer sees all; of larger ones it sees windows, and their mean is used.

    Args:
        channels: channels of the images.
        classes: C.
        dropout: dropout rate before the last layer.

    Example:
        >>> import torch
        >>> FrenchCNN()(torch.rand(2, 1, 28, 28)).features.shape
        torch.Size([2, 256])
    """

    Settings = FrenchCNNSettings
    smallest_image = 28

    def __init__(self, channels: int = 1, classes: int = 10, dropout: float = 0.5) -> None:
        trunk = nn.Sequential(
            nn.GroupNorm(1, channels, affine=False),
            convolution(channels, 32, kernel=5, padding=0, weight_norm=False),
            nn.MaxPool2d(2),
            convolution(32, 64, padding=0, weight_norm=False),
            convolution(64, 64, padding=0, weight_norm=False),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
            convolution(64, 256, kernel=4, padding=0, weight_norm=False),
        )
        super().__init__(trunk, DecoupledHeads(256, classes, weight_norm=False))
