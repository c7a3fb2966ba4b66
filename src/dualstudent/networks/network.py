"""The base class of networks: a trunk and decoupled heads."""

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dualstudent.data.transforms.normalization import Normalization
from dualstudent.errors import UserError
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

    batch_norm: Literal["together", "by-domain", "frozen"] = Field(
        "together",
        description="normalize source and target of a batch together; or by-domain, each with its "
        "own statistics, and those of the target at test; or frozen, by the statistics of the "
        "initial weights, which suits pretrained ones",
    )


class Network(nn.Module):
    """Maps images (B, channels, H, W) to a :class:`~dualstudent.prediction.Prediction`.

    Args:
        trunk: maps images to a feature map (B, D, h, w) of any size.
        heads: get the mean of the feature map, (B, D).

    Attributes:
        frozen: layers that stay in evaluation mode.
    """

    Settings: ClassVar[type[NetworkSettings]]
    smallest_image: int | None
    """Smallest image side in pixels; None for networks of feature vectors."""

    def __init__(self, trunk: nn.Module, heads: DecoupledHeads) -> None:
        super().__init__()
        self.trunk, self.heads = trunk, heads
        self.frozen: set[nn.Module] = set()

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The parts of the trunk in the order in which images pass them; one by default."""
        return [self.trunk]

    def freeze_trunk(self, trained_blocks: int = 0) -> None:
        """Keep the weights and the batch-norm statistics of the trunk as they are now.

        It receives no gradient and stays in evaluation mode, also in copies of the network.

        Args:
            trained_blocks: so many blocks, the last ones, are trained nevertheless.

        Raises:
            UserError: if the trunk has fewer.

        Example:
            >>> from dualstudent.networks import DigitsCNN
            >>> network = DigitsCNN()
            >>> network.freeze_trunk()
            >>> network.train().trunk.training, network.heads.training
            (False, True)
        """
        count = len(self.blocks) - trained_blocks
        if count < 0:
            raise UserError(
                f"optimizer.trained_blocks = {trained_blocks}: the trunk of {type(self).__name__} "
                f"has {len(self.blocks)}"
            )
        for block in self.blocks[:count]:
            self._freeze(block.requires_grad_(False).modules())

    def freeze_statistics(self) -> None:
        """Keep the statistics of all batch norms and normalize by them, also in training.

        Their weights and biases are trained like all others.
        """
        self._freeze(layer for layer in self.modules() if isinstance(layer, _BatchNorm))

    def _freeze(self, layers: Iterable[nn.Module]) -> None:
        for layer in layers:
            if isinstance(layer, _BatchNorm):
                layer.track_running_stats = False  # so that nobody resets them (update_bn)
            self.frozen.add(layer)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the training mode, except for frozen layers."""
        super().train(mode)
        for layer in self.frozen:
            layer.training = False
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
    """Find the frozen layers of all networks in ``module``."""
    networks = (each for each in module.modules() if isinstance(each, Network))
    return {layer for network in networks for layer in network.frozen}
