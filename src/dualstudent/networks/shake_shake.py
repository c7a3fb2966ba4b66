"""Shake-Shake, the strong student of Imbalanced Student: two residual branches, mixed at random.

Gastaldi, Shake-Shake regularization, 2017: with two branches ℱ₁, ℱ₂ a block computes

    y = skip(x) + α ℱ₁(x) + (1 − α) ℱ₂(x),   α ~ U(0, 1) for each image,

and its backward pass replaces α by an independent β ~ U(0, 1). At test time α = ½.
"""

from typing import Any, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent.networks.layers import DecoupledHeads, initialize_he
from dualstudent.networks.network import Network, NetworkSettings


class ShakeShakeSettings(NetworkSettings):
    """Settings of Shake-Shake 26; a width of 35 is closest to the paper's 3.53 M parameters."""

    name: Literal["shake-shake"] = "shake-shake"
    width: int = Field(64, gt=0, le=2**12, description="channels of the first stage")


class ShakeShake26(Network):
    """Shake-Shake ResNet 26 2×{width}d with decoupled heads; images of at least 8 pixels a side.

    A convolution to 16 channels and three stages of four blocks with 1, 2 and 4 times ``width``
    channels; each of the last two halves the size. 11,656,900 parameters for RGB images, 10
    classes and a width of 64. There is no weight normalization.

    Args:
        channels: channels of the images.
        classes: C.
        width: channels of the first stage.

    Example:
        >>> ShakeShake26(width=4)(torch.rand(2, 3, 32, 32)).features.shape
        torch.Size([2, 16])
    """

    Settings = ShakeShakeSettings
    smallest_image = 8

    def __init__(self, channels: int = 3, classes: int = 10, width: int = 64) -> None:
        trunk = nn.Sequential(
            nn.Conv2d(channels, 16, 3, padding=1, bias=False),
            *_make_stage(16, width, stride=1),
            *_make_stage(width, 2 * width, stride=2),
            *_make_stage(2 * width, 4 * width, stride=2),
            nn.ReLU(),
        )
        super().__init__(
            initialize_he(trunk), DecoupledHeads(4 * width, classes, weight_norm=False)
        )


def shake(left: Tensor, right: Tensor, gate: Tensor, gradient_gate: Tensor) -> Tensor:
    """Return α · left + (1 − α) · right, with the gradient of β · left + (1 − β) · right.

    Args:
        left: (B, …).
        right: (B, …).
        gate: α, (B, 1, …), in [0, 1].
        gradient_gate: β, (B, 1, …), in [0, 1].

    Example:
        >>> left, right = torch.tensor([1.0], requires_grad=True), torch.tensor([0.0])
        >>> mixed = shake(left, right, torch.tensor([0.25]), torch.tensor([0.75]))
        >>> mixed.backward()
        >>> mixed.item(), left.grad.item()
        (0.25, 0.75)
    """
    mixed: Tensor = _Shake.apply(left, right, gate, gradient_gate)  # type: ignore[no-untyped-call]
    return mixed


class _Shake(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, left: Tensor, right: Tensor, gate: Tensor, gradient_gate: Tensor
    ) -> Tensor:
        ctx.save_for_backward(gradient_gate)
        return torch.lerp(right, left, gate)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (gradient_gate,) = ctx.saved_tensors
        to_left = gradient_gate * gradient
        return to_left, gradient - to_left, None, None


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.left, self.right = (_make_branch(inputs, outputs, stride) for _ in range(2))
        self.skip = _make_skip(inputs, outputs, stride) if inputs != outputs else None

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(x)
        left, right = self.left(active), self.right(active)
        skipped = x if self.skip is None else self.skip(active)
        if not self.training:
            return cast(Tensor, skipped + (left + right) / 2)
        # Both gates are drawn here, so that a second backward pass gives the same gradient.
        gate, gradient_gate = torch.rand(2, len(x), 1, 1, 1, dtype=left.dtype, device=x.device)
        return cast(Tensor, skipped + shake(left, right, gate, gradient_gate))


class _ShiftedSkip(nn.Module):
    """Halves the size: half of the channels get the even pixels, the other half the odd ones."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        # The bias has no effect before batch norm, but the published parameter counts include it.
        self.even = nn.Conv2d(inputs, outputs // 2, 1)
        self.odd = nn.Conv2d(inputs, outputs // 2, 1)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        # Sliced instead of strided: the backward pass of a strided 1×1 convolution with few
        # channels, channels last, writes out of bounds (uxlfoundation/oneDNN, 6035).
        even, odd = (each[..., ::2, ::2] for each in (x, F.pad(x, (-1, 1, -1, 1))))
        return cast(Tensor, self.norm(torch.cat([self.even(even), self.odd(odd)], dim=1)))


def _make_stage(inputs: int, outputs: int, stride: int) -> list[_Block]:
    return [_Block(inputs, outputs, stride), *(_Block(outputs, outputs, 1) for _ in range(3))]


def _make_branch(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Make a branch without its first ReLU, which both branches share."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
        nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
        nn.BatchNorm2d(outputs),
    )


def _make_skip(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 2:
        return _ShiftedSkip(inputs, outputs)
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
