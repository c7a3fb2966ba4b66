"""Mixup: convex combinations of samples and of their targets.

Zhang et al., mixup: Beyond empirical risk minimization, ICLR 2018.
"""

import torch
from torch import Tensor
from torch.distributions import Beta


def draw_share(alpha: float, count: int, device: torch.device) -> Tensor:
    """Draw (count,) shares λ ~ Beta(α, α) from the global generator."""
    return Beta(alpha, alpha).sample((count,)).to(device)


def mix(share: Tensor, *tensors: Tensor) -> list[Tensor]:
    """λ x + (1 − λ) x[order], with the same random order for all tensors.

    Args:
        share: λ, (n,), or (1,) for all rows.
        tensors: (n, …) each, such as samples and their targets.
    """
    order = torch.randperm(len(tensors[0]), device=share.device)
    shares = [share.view(-1, *(1,) * (each.dim() - 1)) for each in tensors]
    return [own * x + (1 - own) * x[order] for own, x in zip(shares, tensors, strict=True)]
