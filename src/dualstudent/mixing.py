"""Mixup and CutMix: new samples between two of a batch, as pure functions of tensors.

B is the batch size and C the number of classes. Random numbers come from a generator on the device
of the batch. Every sample is mixed with a partner, drawn as a permutation of the batch, and has
its own share λ ~ Beta(α, α).

Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018.
Yun et al., CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features,
ICCV 2019.
"""

import math

import torch
from torch import Tensor

from dualstudent.batch import describe
from dualstudent.errors import UserError


def mixup(
    inputs: Tensor, targets: Tensor, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Mix samples and their targets: x̃ = λ xᵢ + (1 − λ) xⱼ, ỹ = λ yᵢ + (1 − λ) yⱼ.

    Args:
        inputs: (B, …) float.
        targets: (B, C), probabilities, such as one-hot labels.
        alpha: α > 0; the larger, the nearer are the shares to ½.
        generator: source of partners and shares.

    Returns:
        Mixed inputs and targets, of the same shapes.

    Raises:
        UserError: if α or the targets are of another kind.

    Example:
        >>> images, labels = torch.rand(4, 1, 8, 8), torch.eye(4)
        >>> mixed, soft = mixup(images, labels, 0.75, torch.Generator().manual_seed(0))
        >>> mixed.shape, soft.sum(dim=1)
        (torch.Size([4, 1, 8, 8]), tensor([1., 1., 1., 1.]))
    """
    partners, shares = _draw(inputs, targets, alpha, generator)
    return (
        blend(inputs, inputs[partners], shares),
        blend(targets, targets[partners], shares),
    )


def cutmix(
    images: Tensor, targets: Tensor, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Paste a box of another image; ỹ = λ yᵢ + (1 − λ) yⱼ, where λ is the share of xᵢ that remains.

    The box has the aspect of the image, about 1 − λ of its area with λ ~ Beta(α, α), and its center
    anywhere in the image. What leaves the image is cut off, and λ is corrected for it.

    Args:
        images: (B, channels, H, W).
        targets: (B, C), probabilities, such as one-hot labels.
        alpha: α > 0; the paper has 1, so that all areas are equally likely.
        generator: source of partners, areas and places.

    Returns:
        Mixed images and targets, of the same shapes.

    Raises:
        UserError: if α, images or targets are of another kind.

    Example:
        >>> black_and_white = torch.tensor([0.0, 1.0]).reshape(2, 1, 1, 1).expand(2, 1, 8, 8)
        >>> generator = torch.Generator().manual_seed(0)
        >>> mixed, soft = cutmix(black_and_white, torch.eye(2), 1.0, generator)
        >>> torch.equal(mixed.mean(dim=(1, 2, 3)), soft[:, 1])
        True
    """
    if images.dim() != 4:
        raise UserError(f"cutmix needs images (B, channels, H, W), not {describe(images)}")
    partners, shares = _draw(images, targets, alpha, generator)
    half = (1 - shares).sqrt()[:, None] / 2
    row, column = torch.rand(2, len(images), 1, generator=generator, device=generator.device)
    rows, columns = (
        (torch.arange(side, device=images.device) + 0.5) / side for side in images.shape[2:]
    )
    box = ((rows - row).abs() < half)[:, :, None] & ((columns - column).abs() < half)[:, None]
    remaining = 1 - box.float().mean(dim=(1, 2))
    return (
        torch.where(box[:, None], images[partners], images),
        blend(targets, targets[partners], remaining),
    )


def blend(first: Tensor, second: Tensor, shares: Tensor) -> Tensor:
    """Return λ · first + (1 − λ) · second, row by row.

    Args:
        first: (B, …) float.
        second: (B, …) float.
        shares: λ of each row, (B,), or (1,) for all.
    """
    shares = shares.reshape(-1, *[1] * (first.dim() - 1))
    return shares * first + (1 - shares) * second


def mix_pairs(shares: Tensor, *tensors: Tensor) -> list[Tensor]:
    """Blend each row with the row of a random partner, the same in all tensors.

    The partners come from the global generator, as other randomness of a loss does.

    Args:
        shares: λ, (B,), or (1,) for all rows.
        tensors: (B, …) each, such as samples and their targets.
    """
    partners = torch.randperm(len(tensors[0]), device=shares.device)
    return [blend(each, each[partners], shares) for each in tensors]


def draw_shares(
    count: int,
    alpha: float,
    generator: torch.Generator | None = None,
    device: torch.device | None = None,
) -> Tensor:
    """Draw λ ~ Beta(α, α) for each sample, from two uniform numbers u and v.

    λ = ½ + ½ sign(c) / √(1 + 1 / ((u^(−1/α) − 1) c²)) with c = cos 2πv (Devroye, Random variate
    generation in one line of code, 1996).

    Args:
        count: number of samples.
        alpha: α > 0.
        generator: source of the numbers; default: the global one.
        device: where the shares are; default: the device of ``generator``.

    Returns:
        (count,), in [0, 1].

    Example:
        >>> draw_shares(10_000, 1.0, torch.Generator().manual_seed(0)).mean().round(decimals=2)
        tensor(0.5000)
    """
    device = generator.device if generator is not None and device is None else device
    u, v = torch.rand(2, count, generator=generator, device=device).unbind()
    cos = (2 * math.pi * v).cos()
    return 0.5 + 0.5 * cos.sign() / (1 + 1 / ((u.pow(-1 / alpha) - 1) * cos.square())).sqrt()


def _draw(
    inputs: Tensor, targets: Tensor, alpha: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw the partner and the share of each sample, (B,) each."""
    if not alpha > 0:
        raise UserError(f"alpha = {alpha}: use a number above 0")
    if not targets.is_floating_point() or len(targets) != len(inputs):
        raise UserError(
            f"targets must be probabilities ({len(inputs)}, classes), such as "
            f"torch.nn.functional.one_hot(labels, classes).float(), not {describe(targets)}"
        )
    partners = torch.randperm(len(inputs), generator=generator, device=generator.device)
    return partners, draw_shares(len(inputs), alpha, generator)
