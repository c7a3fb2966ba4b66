"""Running averages of what a network predicts, and predictions aligned by them."""

import torch
from torch import Tensor

_SMALL = 1e-6  # keeps a class that is never predicted from dividing by 0


@torch.no_grad()
def update_average(average: Tensor, now: Tensor, decay: float) -> None:
    """A ← α a + (1 − α) · now, in place; an average that is still 0 begins with ``now``.

    Args:
        average: a.
        now: of the same shape.
        decay: α, in [0, 1).

    Example:
        >>> average = torch.zeros(1)
        >>> for value in (1.0, 2.0):
        ...     update_average(average, torch.tensor([value]), decay=0.75)
        >>> average
        tensor([1.2500])
    """
    average.copy_(torch.where(average.any(), decay * average + (1 - decay) * now, now))


def align(p: Tensor, target: Tensor, average: Tensor) -> Tensor:
    """Distribution alignment: p ∝ p · target / average.

    Berthelot et al., ReMixMatch: Semi-supervised learning with distribution alignment and
    augmentation anchoring, ICLR 2020.

    Args:
        p: (n, C), predictions.
        target: (C,), the distribution of classes that predictions should have.
        average: (C,), the one that they have.

    Returns:
        (n, C), probabilities.

    Example:
        >>> p, uniform = torch.tensor([[0.6, 0.4]]), torch.tensor([0.5, 0.5])
        >>> align(p, uniform, average=torch.tensor([0.75, 0.25]))
        tensor([[0.3333, 0.6667]])
    """
    aligned = p * ((target + _SMALL) / (average + _SMALL))
    return aligned / aligned.sum(dim=1, keepdim=True)


def count_shares(answers: Tensor, classes: int) -> Tensor:
    """Count how often each class is the answer, as shares.

    Args:
        answers: (n,) int64, n at least 1.
        classes: C.

    Returns:
        (C,), their sum is 1.

    Example:
        >>> count_shares(torch.tensor([0, 2, 0, 0]), classes=3)
        tensor([0.7500, 0.0000, 0.2500])
    """
    return answers.bincount(minlength=classes) / len(answers)
