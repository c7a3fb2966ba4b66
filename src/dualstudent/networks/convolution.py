"""Convolutions: the block of the paper's own networks, and how residual ones begin."""

from torch import nn

from dualstudent.networks.heads import add_weight_norm


def convolution(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    padding: int = 1,
    stride: int = 1,
    weight_norm: bool = True,
) -> nn.Sequential:
    """Convolution, batch norm and LeakyReLU 0.1; the convolution keeps its bias, as published."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding)
    return nn.Sequential(
        add_weight_norm(layer, weight_norm),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1, inplace=True),
    )


def initialize_he(trunk: nn.Sequential) -> nn.Sequential:
    """The trunk with every convolution drawn as He et al. (2015) do, by its outputs."""
    for layer in trunk.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return trunk
