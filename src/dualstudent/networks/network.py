"""The base class of networks: a trunk and decoupled heads."""

from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from dualstudent.data.transforms.normalization import Normalization
from dualstudent.networks.layers import DecoupledHeads
from dualstudent.prediction import Prediction
from dualstudent.settings import Settings


class ArchitectureSettings(Settings):
    """The base of the settings of networks and of frozen trunks."""

    name: str

    @property
    def normalization(self) -> Normalization | None:
        """The normalization that the initial weights were trained with; None if there is none."""
        return None


class NetworkSettings(ArchitectureSettings):
    """The settings that all networks share; each network adds its own."""

    batch_norm: Literal["together", "by-domain"] = Field(
        "together",
        description="normalize source and target of a batch together, or apart, each with its own "
        "statistics; those of the target are used at test",
    )


class Network(nn.Module):
    """Maps images (B, channels, H, W) to a :class:`~dualstudent.prediction.Prediction`.

    Args:
        trunk: maps images to a feature map (B, D, h, w) of any size.
        heads: get the mean of the feature map, (B, D).

    Attributes:
        is_frozen: whether the trunk keeps its weights and batch-norm statistics.
    """

    Settings: ClassVar[type[NetworkSettings]]
    smallest_image: int | None
    """Smallest image side in pixels; None for networks of feature vectors."""

    def __init__(self, trunk: nn.Module, heads: DecoupledHeads) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads
        self.is_frozen = False

    def freeze_trunk(self) -> None:
        """Keep the weights and the batch-norm statistics of the trunk as they are now.

        The trunk receives no gradient and stays in evaluation mode, also in copies of the network.

        Example:
            >>> from dualstudent.networks import DigitsCNN
            >>> network = DigitsCNN()
            >>> network.freeze_trunk()
            >>> network.train().trunk.training, network.heads.training
            (False, True)
        """
        self.is_frozen = True
        self.trunk.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """Set the training mode, except for a frozen trunk."""
        super().train(mode)
        if self.is_frozen:
            self.trunk.eval()
        return self

    def load_pretrained(self) -> None:
        """Set the weights that were trained before, by others, if the settings name any."""

    def fit_to(self, images: Tensor) -> None:
        """Set what depends on the data, before training.

        Args:
            images: (N, channels, H, W), some clean, normalized training images.
        """

    def features(self, images: Tensor) -> Tensor:
        """Compute the input of the heads, (B, D)."""
        mean: Tensor = self.trunk(images).mean(dim=(2, 3))
        return mean

    def forward(self, images: Tensor) -> Prediction:
        prediction: Prediction = self.heads(self.features(images))
        return prediction


def list_shapes(network: nn.Module) -> dict[str, torch.Size]:
    """List the shapes of all tensors by name; equal for networks of the same architecture."""
    return {name: tensor.shape for name, tensor in network.state_dict().items()}


def find_frozen(module: nn.Module) -> set[nn.Module]:
    """Find the layers of all frozen trunks in ``module``."""
    networks = (each for each in module.modules() if isinstance(each, Network) and each.is_frozen)
    return {layer for network in networks for layer in network.trunk.modules()}
