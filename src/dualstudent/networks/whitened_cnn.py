"""A CNN that learns quickly on a CPU: whitened patches, few channels on large maps, max pooling.

The design follows airbench (Jordan, 94% on CIFAR-10 in 3.29 seconds on a single GPU, 2024): its
first layer is not learned but whitens small patches of the training images, and convolutions start
as the identity. Not from the paper.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent.networks.layers import DecoupledHeads
from dualstudent.networks.network import Network, NetworkSettings

_SIDE = 2  # of a patch, in pixels
_FLOOR = 5e-3  # added to the variances, relative to their mean, so that noise is not blown up
_LEAST = 1e-6


class WhitenedCNNSettings(NetworkSettings):
    """Settings of the whitened CNN."""

    name: Literal["whitened-cnn"] = "whitened-cnn"
    widths: tuple[Annotated[int, Field(gt=0, le=2**12)], ...] = Field(
        (32, 64, 128),
        strict=False,
        min_length=1,
        max_length=6,
        description="channels of each block; each block halves the map",
    )
    mirror_at_test: bool = Field(
        False, description="at test, average the features of the image and of its mirror image"
    )


class Whitening(nn.Module):
    """Whitens 2 × 2 patches: their principal components, each of variance 1, and their negatives.

    The filters are buffers: they are computed from images, saved with the weights, and not learned.

    Args:
        channels: channels of the images; the output has 8 · channels.
    """

    filters: Tensor
    bias: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        size = channels * _SIDE**2
        start = torch.linalg.qr(torch.randn(size, size))[0]  # until images are known
        self.register_buffer("filters", self._with_negatives(start, channels))
        self.register_buffer("bias", torch.zeros(2 * size))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Compute the filters from images (N, channels, H, W)."""
        patches = F.unfold(images.float().contiguous(), _SIDE).transpose(1, 2).flatten(0, 1)
        variances, components = torch.linalg.eigh(patches.double().T.cov())
        floor = (_FLOOR * variances.mean()).clamp(min=_LEAST)  # images may be of one color
        scale = (variances.clamp(min=0) + floor).rsqrt()
        whitening = (components * scale).T.to(images.dtype)
        self.filters.copy_(self._with_negatives(whitening, images.shape[1]))
        self.bias.copy_(-self.filters.flatten(1) @ patches.mean(dim=0))

    def forward(self, images: Tensor) -> Tensor:
        return F.conv2d(images, self.filters, self.bias)

    @staticmethod
    def _with_negatives(whitening: Tensor, channels: int) -> Tensor:
        both = torch.cat([whitening, -whitening])
        return both.reshape(len(both), channels, _SIDE, _SIDE)


class WhitenedCNN(Network):
    """Whitened patches, then blocks of two convolutions, global max pooling, decoupled heads.

    About 0.3 million parameters and 13 million multiplications for RGB images of 32 pixels.

    Args:
        channels: channels of the images.
        classes: C.
        widths: channels of each block.
        mirror_at_test: whether an image and its mirror image are looked at in evaluation mode.

    Example:
        >>> WhitenedCNN(1, widths=(8, 16))(torch.rand(2, 1, 28, 28)).features.shape
        torch.Size([2, 16])
    """

    Settings = WhitenedCNNSettings

    def __init__(
        self,
        channels: int = 3,
        classes: int = 10,
        widths: tuple[int, ...] = (32, 64, 128),
        mirror_at_test: bool = False,
    ) -> None:
        whitening = Whitening(channels)
        layers: list[nn.Module] = [whitening, nn.LeakyReLU(0.1)]
        before = len(whitening.filters)
        for width in widths:
            layers += _make_block(before, width)
            before = width
        super().__init__(nn.Sequential(*layers), DecoupledHeads(before, classes, weight_norm=False))
        self.smallest_image = 2 ** len(widths) + 1
        self.mirror_at_test = mirror_at_test

    def fit_to(self, images: Tensor) -> None:
        """Whiten patches like those of ``images``."""
        self.trunk.get_submodule("0").fit(images)  # type: ignore[operator]

    def features(self, images: Tensor) -> Tensor:
        largest: Tensor = self.trunk(images).amax(dim=(2, 3))
        if self.mirror_at_test and not self.training:
            mirrored: Tensor = self.trunk(images.flip(3)).amax(dim=(2, 3))
            return (largest + mirrored) / 2
        return largest


def _make_block(inputs: int, outputs: int) -> list[nn.Module]:
    """Make the layers of a block; pooling comes first where it saves most."""
    first = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
    for convolution in (first, second):  # pass on what comes in, as far as there are channels
        nn.init.dirac_(convolution.weight.data[: convolution.in_channels])
    return [
        *(first, nn.MaxPool2d(2), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=True)),
        *(second, nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1, inplace=True)),
    ]
