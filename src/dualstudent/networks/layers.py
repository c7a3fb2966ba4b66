"""Layers that the networks share, and what is done to them."""

from itertools import pairwise
from typing import cast

from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.nn.utils.parametrizations import weight_norm as normalize_weight

from dualstudent.prediction import Prediction


class DecoupledHeads(nn.Module):
    """A class head and a consistency head on the same features.

    Tarvainen & Valpola, Mean teachers are better role models, NeurIPS 2017; kept by Dual Student.

    Args:
        features: D, the number of features.
        classes: C.
        weight_norm: whether to apply weight normalization to both heads.
    """

    def __init__(self, features: int, classes: int, weight_norm: bool = True) -> None:
        super().__init__()
        self.classify = add_weight_norm(nn.Linear(features, classes), weight_norm)
        self.follow = add_weight_norm(nn.Linear(features, classes), weight_norm)

    def forward(self, features: Tensor) -> Prediction:
        return Prediction(self.classify(features), self.follow(features), features)


def convolution(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    padding: int = 1,
    stride: int = 1,
    weight_norm: bool = True,
) -> nn.Sequential:
    """Convolution with bias, batch norm and LeakyReLU 0.1, as published."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding)
    return nn.Sequential(
        add_weight_norm(layer, weight_norm),
        nn.BatchNorm2d(outputs),
        nn.LeakyReLU(0.1, inplace=True),
    )


def add_weight_norm(layer: nn.Module, enabled: bool = True) -> nn.Module:
    """Return the layer with weight normalization, or unchanged if it is not enabled.

    Salimans & Kingma, Weight normalization, NeurIPS 2016. The methods that the paper compares
    with use it on every convolution and head.
    """
    return cast(nn.Module, normalize_weight(layer)) if enabled else layer


def initialize_he(trunk: nn.Sequential) -> nn.Sequential:
    """Draw the weights of every convolution as in He et al. (2015), scaled by fan-out."""
    for layer in trunk.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out")
    return trunk


def fuse_batch_norm(module: nn.Module) -> None:
    """Fold batch norm into the convolution before it, wherever a plain Sequential has both.

    In evaluation mode the outputs stay the same, up to rounding, and take less time.

    Example:
        >>> import torch
        >>> network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2)).eval()
        >>> fuse_batch_norm(network)
        >>> type(network[1]).__name__
        'Identity'
    """
    for layers in module.modules():
        if type(layers) is not nn.Sequential:  # others may use their layers in another order
            continue
        for number, (layer, norm) in enumerate(pairwise(layers)):
            if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                layers[number] = fuse_conv_bn_eval(layer, norm)
                layers[number + 1] = nn.Identity()
