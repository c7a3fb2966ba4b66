"""Stable samples: which predictions of a student can be trusted, and which student guides.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, sections 4.1 and 4.2. Nothing here carries gradient.
"""

from torch import Tensor

from dualstudent.losses import squared_distance


def is_stable(p: Tensor, p_perturbed: Tensor, threshold: float | Tensor) -> Tensor:
    """Eq. 3: is x a stable sample for a student?

    A sample is stable if a small perturbation does not change the predicted label and if the
    student is confident for at least one of the two views.

    Args:
        p: (B, C), the student's probabilities f(θ, x).
        p_perturbed: (B, C), its probabilities f(θ, x̄) for the perturbed x̄.
        threshold: ξ in [0, 1), or (B,) of each sample; exactly ξ is not confident.

    Returns:
        (B,) bool, the ℛ of the paper.

    Example:
        >>> import torch
        >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4]])
        >>> p_perturbed = torch.tensor([[0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
        >>> is_stable(p, p_perturbed, threshold=0.8).tolist()
        [True, False, False]
    """
    confidence, label = p.max(dim=1)
    confidence_perturbed, label_perturbed = p_perturbed.max(dim=1)
    confident = (confidence > threshold) | (confidence_perturbed > threshold)
    return (label == label_perturbed) & confident


def instability(p: Tensor, p_perturbed: Tensor) -> Tensor:
    """Eq. 4: ℰ, how much a perturbation changes a student's prediction; smaller is more stable.

    Args:
        p: (B, C), probabilities for x.
        p_perturbed: (B, C), probabilities for the perturbed x̄.

    Returns:
        (B,), the squared Euclidean distance, averaged over the classes.
    """
    return squared_distance(p.detach(), p_perturbed.detach())


def is_guided(
    stable: Tensor, other_stable: Tensor, instability: Tensor, other_instability: Tensor
) -> Tensor:
    """The factor of Eq. 6: on which samples does the other student guide this one?

    If a sample is stable for neither student, there is no guide. If it is stable for one
    student, that student is the guide. If it is stable for both, the student with the smaller
    instability is the guide; with equal instability there is none.

    Args:
        stable: (B,) bool, ℛⁱ of this student.
        other_stable: (B,) bool, ℛʲ of the other student.
        instability: (B,), ℰⁱ of this student.
        other_instability: (B,), ℰʲ of the other student.

    Returns:
        (B,) bool, true where the stabilization constraint applies to this student.

    Example:
        >>> import torch
        >>> stable, other_stable = torch.tensor([True, True]), torch.tensor([True, False])
        >>> is_guided(stable, other_stable, torch.tensor([0.2, 0.2]), torch.tensor([0.1, 0.1]))
        tensor([ True, False])
    """
    return other_stable & (~stable | (instability > other_instability))
