"""Trunks: networks that map images to feature vectors and are not trained."""

import hashlib
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn, uint8
from torch.nn import functional as F

from dualstudent.data.features import Standardization
from dualstudent.data.transforms.normalization import Normalization
from dualstudent.errors import UserError
from dualstudent.networks.build import NETWORKS, build_network
from dualstudent.networks.efficientnet_lite import FEATURES, EfficientNetLiteSettings
from dualstudent.networks.layers import fuse_batch_norm
from dualstudent.networks.network import Network
from dualstudent.parallel import count_cores, map_threads, one_thread_each

Precision = Literal["32-true", "bf16-true"]

SMALLEST_IMAGE = 24  # pixels a side; smaller ones show too little of what a trunk has learned
_SMALL_GRAY = 64  # pixels a side below which gray images are often digits, which it knows little of

PIECE = (
    4  # images that go through a trunk together; the memory of more is returned after every layer
)


TrunkName = Literal[
    "efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2", "efficientnet-lite0+2"
]

_TOGETHER = {"efficientnet-lite0+2": ("efficientnet-lite0", "efficientnet-lite2")}


class TrunkSettings(EfficientNetLiteSettings):
    """A frozen trunk, and how many views of every image it sees."""

    name: TrunkName
    image_size: int = Field(
        160, ge=32, description="pixels a side that the trunk sees; views are resized to it"
    )
    weak_views: int = Field(4, ge=1, le=1000, description="weak views kept of every training image")
    strong_views: int = Field(
        4,
        ge=0,
        le=1000,
        description="strong views kept of every training image, if the method uses any",
    )
    precision: Precision = Field(
        "32-true",
        description="of the trunk for kept views; clean images always have the full precision",
    )
    seed: int = Field(
        0, ge=0, description="seed of the kept views; runs with other seeds share them"
    )

    @property
    def features(self) -> int:
        """Length of its feature vectors."""
        return count_features(self.name)


def count_features(name: str) -> int:
    """Return the length of the feature vectors of a trunk.

    Example:
        >>> count_features("efficientnet-lite0"), count_features("efficientnet-lite0+2")
        (1280, 2560)
    """
    return FEATURES * len(_TOGETHER.get(name, (name,)))


class FrozenTrunk(nn.Module):
    """Maps images (B, channels, H, W) to feature vectors (B, features), always the same ones.

    Args:
        module: does this; it is set to evaluation mode.
        features: length of the vectors.
        normalization: normalization of the pixels that ``module`` expects; default: that of the
            data.
        image_size: images are resized to so many pixels a side; default: they keep their size.

    Attributes:
        checksum: SHA-256 of all weights.
        fingerprint: SHA-256 of the layers by name, weights and preprocessing. It does not see the
            code of ``module``: after a change of its ``forward``, keep features in another folder.

    Example:
        >>> import torch
        >>> pooled = nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> FrozenTrunk(pooled, features=5)(torch.rand(2, 3, 8, 8)).shape
        torch.Size([2, 5])
    """

    def __init__(
        self,
        module: nn.Module,
        features: int,
        normalization: Normalization | None = None,
        image_size: int | None = None,
    ) -> None:
        super().__init__()
        self.module, self.features = module.eval(), features
        self.normalization, self.image_size = normalization, image_size
        self._dtype = torch.float32
        self.checksum = _hash_tensors(module.state_dict())
        described = repr((str(module), features, image_size, self.checksum))
        self.fingerprint = hashlib.sha256(described.encode()).hexdigest()

    def forward(self, images: Tensor) -> Tensor:
        """Compute the features.

        Raises:
            UserError: if the module returns anything else.
        """
        size = self.image_size
        if size is not None and images.shape[2:] != (size, size):
            shrinks = min(images.shape[2:]) > size
            images = F.interpolate(images, (size, size), mode="bicubic", antialias=shrinks)
        found = self.module(images.to(self._dtype))
        count = images.shape[0]  # not len, which would fix the batch size of exported files
        if not isinstance(found, Tensor) or found.shape != (count, self.features):
            raise UserError(_explain_output(found, count, self.features))
        return found.float()

    def convert(self, precision: Precision) -> "FrozenTrunk":
        """Return a copy that computes in bfloat16, or itself."""
        if precision == "32-true":
            return self
        converted = deepcopy(self)
        converted.module.to(torch.bfloat16)
        converted._dtype = torch.bfloat16
        return converted


class StandardizedTrunk(nn.Module):
    """A frozen trunk whose features are standardized by those of the training images.

    Args:
        trunk: the trunk.
        standardization: of its features.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, trunk: FrozenTrunk, standardization: Standardization) -> None:
        super().__init__()
        self.trunk = trunk
        self.register_buffer("mean", torch.from_numpy(standardization.mean).float())
        self.register_buffer("std", torch.from_numpy(standardization.std).float())

    def forward(self, images: Tensor) -> Tensor:
        vectors: Tensor = (self.trunk(images) - self.mean) / self.std
        return vectors

    def compute(self, images: Tensor) -> Tensor:
        """Compute the features of any number of images, piece by piece, on all cores."""
        workers = count_cores() if images.device.type == "cpu" else 1
        pieces = torch.split(images, PIECE)
        with one_thread_each(), map_threads(self._infer, pieces, workers) as found:
            return torch.cat(list(found))

    def _infer(self, images: Tensor) -> Tensor:
        with torch.inference_mode():  # of this thread
            vectors: Tensor = self(images)
        return vectors


def is_small_gray(side: int, is_gray: bool) -> bool:
    """Return whether images are small and gray, as digits are: from scratch unless proven."""
    return is_gray and side < _SMALL_GRAY


def build_trunk(settings: TrunkSettings, channels: int) -> FrozenTrunk:
    """Build the trunk of a recipe with its weights.

    Args:
        settings: of the trunk.
        channels: channels of the images, 1 or 3.

    Raises:
        UserError: if the weights are missing or do not fit.
    """
    names = _TOGETHER.get(settings.name, (settings.name,))
    if len(names) > 1 and settings.weights not in ("imagenet", "random"):
        raise UserError(
            f"trunk.weights = {settings.weights!r} is for one network, and {settings.name!r} are "
            f"{len(names)}; name one of them"
        )
    built = [_build_pooled(name, settings, channels) for name in names]
    module = built[0] if len(built) == 1 else Together(built)
    trunk = FrozenTrunk(module, settings.features, settings.normalization, settings.image_size)
    fuse_batch_norm(trunk.module)  # last, as rounding may depend on the machine, and the hash not
    return trunk


class Together(nn.ModuleList):
    """Networks whose feature vectors (B, f₁), (B, f₂), … are joined to one, (B, f₁ + f₂ + …).

    Networks that were trained apart err on different images, so a line on both is better.

    Example:
        >>> Together([nn.Flatten(), nn.Flatten()])(torch.ones(2, 1, 3, 3)).shape
        torch.Size([2, 18])
    """

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([network(images) for network in self], dim=1)


def _build_pooled(name: str, settings: TrunkSettings, channels: int) -> nn.Sequential:
    (kind,) = (
        network.Settings
        for network in NETWORKS
        if network.Settings.model_fields["name"].default == name
    )
    chosen = kind.model_validate({"weights": settings.weights})
    network = build_network(chosen, channels, 1, settings.image_size, settings.seed, 0)
    network.load_pretrained()
    return _pool(network.trunk)


def hash_trunk(network: Network) -> str:
    """Return the checksum of the frozen trunk that :func:`build_trunk` makes of a network."""
    return _hash_tensors(_pool(network.trunk).state_dict())


def _pool(trunk: nn.Module) -> nn.Sequential:
    return nn.Sequential(trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def _hash_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        digest.update(name.encode())
        digest.update(tensor.cpu().reshape(-1).view(uint8).numpy().data)
    return digest.hexdigest()


def _explain_output(found: Any, count: int, features: int) -> str:
    if not isinstance(found, Tensor):
        return (
            f"the trunk returns {type(found).__name__}, not a tensor; wrap it in a module that "
            "returns feature vectors"
        )
    shape = tuple(found.shape)
    if len(shape) == 4:
        return (
            f"the trunk returns maps {shape}, not vectors ({count}, {features}); pool them: "
            "nn.Sequential(trunk, nn.AdaptiveAvgPool2d(1), nn.Flatten())"
        )
    return f"the trunk returns {shape}, not ({count}, {features}); check features = {features}"
