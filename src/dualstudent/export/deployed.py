"""The deployed model: what a user needs of a student, from raw pixels to probabilities."""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dualstudent.data.transforms.normalization import make_scale_and_offset
from dualstudent.export.card import ModelCard
from dualstudent.networks.build import build_network
from dualstudent.networks.network import Network, NetworkSettings


class DeployedModel(nn.Module):
    """Normalization, trunk, class head and softmax, in evaluation mode; nothing else.

    Maps images (N, channels, H, W) uint8 to probabilities (N, C) float32. It is made blank;
    weights come from :func:`fold_state` of a trained network or from a file.

    Args:
        card: says what to build.
    """

    factor: Tensor
    offset: Tensor

    def __init__(self, card: ModelCard) -> None:
        super().__init__()
        built = build_network(
            card.network, card.channels, len(card.classes), card.image_size, seed=0, student=0
        )
        self.card = card
        self.network = cast(Network, built.to(memory_format=torch.contiguous_format))  # type: ignore[call-overload]
        del self.network.heads.follow
        factor, offset = make_scale_and_offset(card.normalization, torch.device("cpu"))
        # With the recipe, not with the weights: the card has them.
        self.register_buffer("factor", factor.clone(), persistent=False)
        self.register_buffer("offset", offset.clone(), persistent=False)
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        features = self.network.features(images.float() * self.factor - self.offset)
        logits: Tensor = self.network.heads.classify(features)
        return logits.softmax(dim=1)

    def example(self) -> Tensor:
        """Two black images, to trace the model with: of one, the size would be taken for fixed."""
        size = self.card.image_size
        return torch.zeros(2, self.card.channels, size, size, dtype=torch.uint8)


def drop_weight_norm(settings: NetworkSettings) -> NetworkSettings:
    """The same architecture with plain weights."""
    has_it = "weight_norm" in type(settings).model_fields
    return settings.model_copy(update={"weight_norm": False}) if has_it else settings


def fold_state(network: nn.Module) -> dict[str, Tensor]:
    """The state of a network without its consistency head, each weight in one piece.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> "heads.classify.weight" in fold_state(DigitsCNN(weight_norm=True))
        True
    """
    state = {k: v for k, v in network.state_dict().items() if ".parametrizations." not in k}
    for name, layer in network.named_modules():
        if parametrize.is_parametrized(layer, "weight"):
            state[f"{name}.weight"] = cast(Tensor, layer.weight).detach()
    return {k: v for k, v in state.items() if not k.startswith("heads.follow.")}
