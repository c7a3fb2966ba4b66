"""What is exported: a network that maps raw pixels to probabilities, and its model card."""

import json
from typing import Literal, cast

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import parametrize

from dualstudent.data.features import Standardization
from dualstudent.data.transforms.normalization import Normalization, make_scale_and_offset
from dualstudent.networks.build import AnyNetworkSettings, build_network, count_parameters
from dualstudent.networks.domains import SOURCE_STATISTICS
from dualstudent.networks.network import NetworkSettings
from dualstudent.settings import Settings
from dualstudent.trunks.trunk import StandardizedTrunk, TrunkSettings, build_trunk


class ModelCard(Settings):
    """Describes an exported network; it is part of every exported file.

    Attributes:
        format: version of this card.
        classes: their names, in the order of the probabilities.
        channels: of the images: 1 for gray, 3 for red, green and blue.
        image_size: side of the square images in pixels.
        preprocessing: what the caller has to do to an image, in words.
        student: name of the network in its run.
        test_error: of this network after the last epoch, in percent; None without a test part.
        validation_error: the same on the validation part, if there was no test part; of the same
            training without these labels, if it has learned from them since.
        trunk: architecture of the frozen trunk whose features the network gets; its weights are in
            the file, too. None if the network gets the images.
        network: architecture, without weight normalization, which is folded into the weights.
        normalization: of the pixel values, done by the model.
        recipe: of the run, as TOML, without paths.
        trained_with: versions of the packages that trained it.
        exported_with: versions of the packages that wrote the file.
    """

    format: Literal[1] = 1
    classes: tuple[str, ...] = Field(min_length=1, max_length=2**20)
    channels: int = Field(gt=0, lt=2**16)
    image_size: int = Field(gt=0, lt=2**16)
    preprocessing: str
    student: str
    test_error: float | None
    validation_error: float | None = None
    trunk: TrunkSettings | None = None
    network: AnyNetworkSettings
    normalization: Normalization
    recipe: str
    trained_with: dict[str, str]
    exported_with: dict[str, str]

    def to_texts(self) -> dict[str, str]:
        """Key → text, for files whose metadata are text only; what is no text becomes JSON."""
        fields = self.model_dump(mode="json")
        return {
            key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for key, value in fields.items()
        }

    def count_parameters(self) -> int:
        """Count those of the network as it was trained, with both heads, without building it."""
        if self.trunk is None:
            shape: tuple[int, int | None] = (self.channels, self.image_size)
        else:
            shape = (self.trunk.features, None)
        inputs, size = shape
        return count_parameters(self.network, inputs, len(self.classes), size)


def describe_preprocessing(channels: int, image_size: int, margin: float = 1.0) -> str:
    """Say in words what the caller has to do to an image.

    Args:
        channels: channels of the images.
        image_size: pixels a side.
        margin: see :func:`~dualstudent.data.transforms.resize.resize`.
    """
    colors = {1: "gray", 3: "red, green, blue"}.get(channels, f"{channels} channels")
    whole = round(margin * image_size)
    crop = f", and take its middle of {image_size} × {image_size}" if whole > image_size else ""
    return (
        f"uint8 pixels (N, {channels}, {image_size}, {image_size}), {colors}, from 0 (dark) to "
        f"255 (bright); crop images to the central square, resize it to {whole} × {whole} by "
        f"bicubic interpolation, antialiased when shrinking{crop}; do not normalize, the model "
        "does that"
    )


class DeployedModel(nn.Module):
    """Normalization, frozen trunk if there is one, network, class head and softmax.

    It is in evaluation mode.

    Maps images (N, channels, H, W) uint8 to probabilities (N, C) float32. Its weights come from
    :func:`fold_state` of a trained network, or from a file.

    Args:
        card: describes the network to build.
    """

    factor: Tensor
    offset: Tensor

    def __init__(self, card: ModelCard) -> None:
        super().__init__()
        self.card, classes = card, len(card.classes)
        if card.trunk is None:
            self.trunk = None
            built = build_network(card.network, card.channels, classes, card.image_size, 0, 0)
        else:
            # Its weights come with the file; a stranger's card must not name another file to read.
            without_file = card.trunk.model_copy(update={"weights": "random"})
            trunk = build_trunk(without_file, card.channels)
            unknown = Standardization(np.zeros(trunk.features), np.ones(trunk.features))
            self.trunk = StandardizedTrunk(trunk, unknown)
            built = build_network(card.network, trunk.features, classes, None, 0, 0)
        self.network = built
        del self.network.heads.follow
        self.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        factor, offset = make_scale_and_offset(card.normalization, torch.device("cpu"))
        # Not saved with the weights: the card has them.
        self.register_buffer("factor", factor.clone(), persistent=False)
        self.register_buffer("offset", offset.clone(), persistent=False)
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        inputs = images.float() * self.factor - self.offset
        features = self.network.features(inputs if self.trunk is None else self.trunk(inputs))
        logits: Tensor = self.network.heads.classify(features)
        return logits.softmax(dim=1)

    def example_input(self) -> Tensor:
        """Two black images for tracing; with one, the batch size would be fixed to 1."""
        size = self.card.image_size
        return torch.zeros(2, self.card.channels, size, size, dtype=torch.uint8)


def make_plain(settings: NetworkSettings) -> NetworkSettings:
    """The same architecture with plain weights and plain batch norm, as used at test."""
    plain: dict[str, object] = {"batch_norm": "together"}
    if "weight_norm" in type(settings).model_fields:
        plain["weight_norm"] = False
    return settings.model_copy(update=plain)


def fold_state(network: nn.Module) -> dict[str, Tensor]:
    """The state of a network for test: without consistency head and statistics of the source.

    Weight normalization is folded in.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> "heads.classify.weight" in fold_state(DigitsCNN(weight_norm=True))
        True
    """
    state = {k: v for k, v in network.state_dict().items() if ".parametrizations." not in k}
    for name, layer in network.named_modules():
        if parametrize.is_parametrized(layer, "weight"):
            state[f"{name}.weight"] = cast(Tensor, layer.weight).detach()
    state = {k: v for k, v in state.items() if not k.startswith("heads.follow.")}
    return {k: v for k, v in state.items() if not k.endswith(SOURCE_STATISTICS)}
