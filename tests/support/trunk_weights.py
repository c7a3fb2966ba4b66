"""Weights of a trunk that tells images apart, without any package."""

from pathlib import Path

import torch
from torch import nn

from dualstudent.generators import seeded_rng
from dualstudent.networks import EfficientNetLite0


def make_network() -> EfficientNetLite0:
    """A network with random weights and batch norms that do something."""
    with seeded_rng("trunk"):
        network = EfficientNetLite0(weights="random").eval()
        draw_weights(network)
    return network


def draw_weights(network: nn.Module) -> None:
    """Draw weights and statistics, such that images do not fade away and batch norms matter."""
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
        elif isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.3)
            nn.init.normal_(layer.running_mean, std=0.3)  # type: ignore[arg-type]
            nn.init.uniform_(layer.running_var, 0.5, 1.5)  # type: ignore[arg-type]


def save_weights(path: Path) -> EfficientNetLite0:
    """Save the weights of such a network; return it."""
    network = make_network()
    torch.save(network.state_dict(), path)
    return network
