"""The base class of networks: a trunk and decoupled heads."""

from typing import ClassVar

from torch import Tensor, nn

from dualstudent.networks.layers import DecoupledHeads
from dualstudent.prediction import Prediction
from dualstudent.settings import Settings


class NetworkSettings(Settings):
    """The base of network settings; each network adds its own."""

    name: str


class Network(nn.Module):
    """Maps images (B, channels, H, W) to a :class:`~dualstudent.prediction.Prediction`.

    Args:
        trunk: maps images to a feature map (B, D, h, w) of any size.
        heads: get the mean of the feature map, (B, D).
    """

    Settings: ClassVar[type[NetworkSettings]]
    smallest_image: int | None
    """Smallest image side in pixels; None for networks of feature vectors."""

    def __init__(self, trunk: nn.Module, heads: DecoupledHeads) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads

    def features(self, images: Tensor) -> Tensor:
        """Compute the input of the heads, (B, D)."""
        mean: Tensor = self.trunk(images).mean(dim=(2, 3))
        return mean

    def forward(self, images: Tensor) -> Prediction:
        prediction: Prediction = self.heads(self.features(images))
        return prediction
