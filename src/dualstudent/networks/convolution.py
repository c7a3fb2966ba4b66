"""The block that the convolutional networks of the paper are made of."""

from torch import nn

from dualstudent.networks.heads import with_weight_norm


def convolution(
    inputs: int, outputs: int, kernel: int = 3, padding: int = 1, weight_norm: bool = True
) -> nn.Sequential:
    """Convolution, batch norm and LeakyReLU 0.1; the convolution keeps its bias, as published."""
    layer = nn.Conv2d(inputs, outputs, kernel, padding=padding)
    return nn.Sequential(
        with_weight_norm(layer, weight_norm),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1, inplace=True),
    )
