"""The decoupled top layers: two linear heads on one trunk.

Tarvainen & Valpola, Mean teachers are better role models, NeurIPS 2017; kept by Dual Student.
"""

from typing import cast

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm as normalize_weight

from dualstudent.prediction import Prediction


class DecoupledHeads(nn.Module):
    """A class head and a consistency head that see the same features.

    Args:
        features: D, the width of what the heads see.
        classes: C.
        weight_norm: reparametrize both heads by direction and length.
    """

    def __init__(self, features: int, classes: int, weight_norm: bool = True) -> None:
        super().__init__()
        self.classify = add_weight_norm(nn.Linear(features, classes), weight_norm)
        self.follow = add_weight_norm(nn.Linear(features, classes), weight_norm)

    def forward(self, features: Tensor) -> Prediction:
        return Prediction(self.classify(features), self.follow(features), features)


def add_weight_norm(layer: nn.Module, enabled: bool = True) -> nn.Module:
    """The layer with its weight split into direction and length per output, or as it is.

    Salimans & Kingma, Weight normalization, NeurIPS 2016: the line of work that the paper
    compares with uses it on every convolution and head.
    """
    return cast(nn.Module, normalize_weight(layer)) if enabled else layer
