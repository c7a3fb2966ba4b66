"""What every network is: a trunk and decoupled heads; for images, a mean over the map between."""

from typing import ClassVar

from torch import Tensor, nn

from dualstudent.networks.layers import DecoupledHeads
from dualstudent.prediction import Prediction
from dualstudent.settings import Settings


class NetworkSettings(Settings):
    """What can be set of a network; each network adds its own."""

    name: str


class Network(nn.Module):
    """Maps images (B, channels, H, W) to a :class:`~dualstudent.prediction.Prediction`.

    Args:
        trunk: maps images to (B, D, h, w), a map of any size.
        heads: see the mean over the map.
    """

    Settings: ClassVar[type[NetworkSettings]]
    smallest_image: int | None
    """Pixels a side that it needs; None for networks of feature vectors."""

    def __init__(self, trunk: nn.Module, heads: DecoupledHeads) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads

    def features(self, images: Tensor) -> Tensor:
        """(B, D), what the heads see."""
        mean: Tensor = self.trunk(images).mean(dim=(2, 3))
        return mean

    def forward(self, images: Tensor) -> Prediction:
        prediction: Prediction = self.heads(self.features(images))
        return prediction
