"""The 50-layer network of the ImageNet experiments (Appendix B).

Xie et al., Aggregated residual transformations for deep neural networks, CVPR 2017:
a block computes

    y = relu(skip(x) + Σᵢ 𝒯ᵢ(x)),   i = 1 … 32,

where each 𝒯ᵢ has d channels of its own, 4 in the first stage and twice as many in each further
one. The sum is a convolution with 32 groups between two 1×1 convolutions.
"""

from typing import Literal

from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent.networks.layers import DecoupledHeads, initialize_he
from dualstudent.networks.network import Network, NetworkSettings


class ResNeXt50Settings(NetworkSettings):
    """ResNeXt-50 32×4d has no settings."""

    name: Literal["resnext50"] = "resnext50"


class ResNeXt50(Network):
    """ResNeXt-50 32×4d with decoupled heads; images of at least 32 pixels a side.

    A 7×7 convolution and a max pooling, then four stages of 3, 4, 6 and 3 blocks with 256 to 2048
    channels; each of the last three halves the size. 27,077,904 parameters for RGB images and
    1000 classes, 25,028,904 without the second head. There is no weight normalization.

    The initialization is that of the published Mean Teacher program for ImageNet: all batch-norm
    scales are 1, also the last of each block. Goyal et al. (2017) set that one to 0, which gives
    the rest of the block no gradient in the first step.

    Args:
        channels: channels of the images.
        classes: C.

    Example:
        >>> import torch
        >>> ResNeXt50(classes=10)(torch.rand(2, 3, 32, 32)).features.shape
        torch.Size([2, 2048])
    """

    Settings = ResNeXt50Settings
    smallest_image = 32

    def __init__(self, channels: int = 3, classes: int = 1000) -> None:
        trunk = nn.Sequential(
            *_make_convolution(channels, 64, kernel=7, stride=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
            *_make_stage(64, 256, blocks=3, stride=1),
            *_make_stage(256, 512, blocks=4, stride=2),
            *_make_stage(512, 1024, blocks=6, stride=2),
            *_make_stage(1024, 2048, blocks=3, stride=2),
        )
        super().__init__(initialize_he(trunk), DecoupledHeads(2048, classes, weight_norm=False))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        inside = outputs // 2
        self.branches = nn.Sequential(
            *_make_convolution(inputs, inside),
            nn.ReLU(inplace=True),
            *_make_convolution(inside, inside, kernel=3, stride=stride, groups=32),
            nn.ReLU(inplace=True),
            *_make_convolution(inside, outputs),
        )
        self.skip = nn.Sequential(
            *(_make_convolution(inputs, outputs, stride=stride) if inputs != outputs else ())
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.skip(x) + self.branches(x), inplace=True)


def _make_stage(inputs: int, outputs: int, blocks: int, stride: int) -> list[_Block]:
    further = (_Block(outputs, outputs, stride=1) for _ in range(blocks - 1))
    return [_Block(inputs, outputs, stride), *further]


def _make_convolution(
    inputs: int, outputs: int, kernel: int = 1, stride: int = 1, groups: int = 1
) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    padding = kernel // 2
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding, groups=groups, bias=False)
    return layer, nn.BatchNorm2d(outputs)
