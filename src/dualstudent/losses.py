"""The loss terms, one equation each, as pure functions of tensors.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019. B is the batch size and C the number of classes throughout. Targets are constants:
no function here passes gradient to its ``target``.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

Distance = Callable[[Tensor, Tensor], Tensor]
"""Function of logits (B, C) and target probabilities (B, C) that returns distances (B,)."""


def squared_distance(p: Tensor, q: Tensor) -> Tensor:
    """‖p − q‖² averaged over the classes.

    The paper writes a sum; its published weights λ belong to the average (docs/fidelity.md).

    Args:
        p: (B, C), probabilities.
        q: (B, C), probabilities.

    Returns:
        (B,), in [0, 2/C].

    Example:
        >>> import torch
        >>> squared_distance(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        tensor([1.])
    """
    return (p - q).square().mean(dim=1)


def mse(logits: Tensor, target: Tensor) -> Tensor:
    """The distance ℛ of Eq. 1 and ℒ_mse of Eq. 5 between a prediction and a constant target.

    Args:
        logits: (B, C), with gradient.
        target: (B, C), probabilities; a constant.

    Returns:
        (B,), the squared distance of the probabilities, averaged over the classes.
    """
    return squared_distance(logits.softmax(dim=1), target.detach())


def kl(logits: Tensor, target: Tensor) -> Tensor:
    """KL(target ‖ softmax(logits)), the other choice for ℛ in Eq. 1.

    Args:
        logits: (B, C), with gradient.
        target: (B, C), probabilities; a constant.

    Returns:
        (B,), at least 0 up to rounding; the sum over the classes.
    """
    return F.kl_div(logits.log_softmax(dim=1), target.detach(), reduction="none").sum(dim=1)


def jensen_shannon(logits: Tensor, target: Tensor) -> Tensor:
    """JS(p, q) = ½ KL(p ‖ m) + ½ KL(q ‖ m), m = ½(p + q): the disagreement of Deep Co-Training.

    Args:
        logits: (B, C), logits of p, with gradient.
        target: (B, C), the probabilities q; a constant.

    Returns:
        (B,), in [0, log 2] up to rounding.

    Example:
        >>> import torch
        >>> jensen_shannon(torch.tensor([[99.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
        tensor([0.6931])
    """
    log_p, q = logits.log_softmax(dim=1), target.detach()
    log_m = torch.logaddexp(log_p, q.log()) - math.log(2)
    of_p = log_p.exp() * (log_p - log_m)
    of_q = torch.xlogy(q, q) - q * log_m
    return 0.5 * (of_p + of_q).sum(dim=1)


def entropy(logits: Tensor) -> Tensor:
    """H(p) = −Σ p log p, small for a confident prediction.

    Args:
        logits: (B, C), logits of p.

    Returns:
        (B,), in [0, log C].

    Example:
        >>> import torch
        >>> entropy(torch.zeros(1, 2))
        tensor([0.6931])
    """
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)


def mean_entropy(logits: Tensor) -> Tensor:
    """H(p̄) of the mean prediction p̄, large if all classes are predicted equally often.

    Confident predictions of all classes have a small mean :func:`entropy` and a large H(p̄): their
    difference is the information that predictions have about inputs. SHOT minimizes
    ``entropy(logits).mean() - mean_entropy(logits)`` (Liang et al., ICML 2020).

    Args:
        logits: (B, C), B at least 1.

    Returns:
        A scalar in [0, log C].

    Example:
        >>> import torch
        >>> mean_entropy(torch.tensor([[99.0, 0.0], [0.0, 99.0]]))
        tensor(0.6931)
    """
    return entropy(logits.log_softmax(dim=1).logsumexp(dim=0, keepdim=True)).squeeze(0)


def confident_distance(logits: Tensor, target: Tensor, threshold: float) -> Tensor:
    """The distance to a target, where that is confident (French et al., ICLR 2018).

    Args:
        logits: (B, C), with gradient.
        target: (B, C), probabilities; a constant.
        threshold: τ; samples whose largest target probability is at most τ count as 0.

    Returns:
        A scalar, the mean of 1[max target > τ] · :func:`mse` over all B samples.

    Example:
        >>> import torch
        >>> target = torch.tensor([[1.0, 0.0], [0.6, 0.4]])
        >>> confident_distance(torch.zeros(2, 2), target, threshold=0.9)
        tensor(0.1250)
    """
    return (mse(logits, target) * (target.amax(dim=1) > threshold)).mean()


def class_balance(logits: Tensor) -> Tensor:
    """The binary cross entropy of the mean prediction p̄ with 1/C (French et al., ICLR 2018).

    Args:
        logits: (B, C).

    Returns:
        A scalar, −Σ_c (1/C log p̄_c + (1 − 1/C) log(1 − p̄_c)); smallest if all p̄_c = 1/C.

    Example:
        >>> import torch
        >>> class_balance(torch.zeros(1, 2))
        tensor(1.3863)
    """
    mean, share = logits.softmax(dim=1).mean(dim=0), 1 / logits.shape[1]
    no_less = torch.finfo(mean.dtype).tiny  # log 0 would be infinite
    of_class, of_others = mean.clamp(min=no_less).log(), (1 - mean).clamp(min=no_less).log()
    return -(share * of_class + (1 - share) * of_others).sum()


def classification(
    class_logits: Tensor,
    labels: Tensor,
    average_over_batch: bool = True,
    label_smoothing: float = 0.0,
) -> Tensor:
    """ℒ_cls: cross entropy on the labeled samples.

    Args:
        class_logits: (B, C).
        labels: (B,) int64, −1 where unlabeled.
        average_over_batch: divide the sum by B, as in the paper's results; otherwise by the
            number of labeled samples.
        label_smoothing: share of each label that is spread over all classes, in [0, 1).

    Returns:
        A scalar; 0 if no sample is labeled.

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.0, 0.0], [5.0, 5.0]])
        >>> classification(logits, torch.tensor([1, -1]), average_over_batch=False)
        tensor(0.6931)
    """
    total = F.cross_entropy(
        class_logits, labels, ignore_index=-1, reduction="sum", label_smoothing=label_smoothing
    )
    if average_over_batch:
        return total / len(labels)
    return total / (labels >= 0).sum().clamp(min=1)


def consistency(logits: Tensor, target: Tensor, distance: Distance = mse) -> Tensor:
    """Eq. 1, ℒ_con: the prediction should not change under perturbations.

    Args:
        logits: (B, C), from the consistency head for one view.
        target: (B, C), 𝒯ₓ, probabilities for another view; a constant.
        distance: ℛ, :func:`mse` or :func:`kl`.

    Returns:
        A scalar, the mean over all samples, labeled or not.

    Example:
        >>> import torch
        >>> consistency(torch.zeros(1, 2), torch.tensor([[1.0, 0.0]]))
        tensor(0.2500)
    """
    return distance(logits, target).mean()


def stabilization(distance_to_other: Tensor, guided: Tensor) -> Tensor:
    """Eq. 6, ℒ_sta: follow the other student on the samples where it is the guide.

    Args:
        distance_to_other: (B,), ℒ_mse of Eq. 5 between this student and the other.
        guided: (B,) bool, see :func:`dualstudent.stability.is_guided`; false for samples that
            are not used.

    Returns:
        A scalar: the sum over the guided samples divided by B.

    Example:
        >>> import torch
        >>> stabilization(torch.tensor([0.4, 0.2]), torch.tensor([True, False]))
        tensor(0.2000)
    """
    return (distance_to_other * guided).mean()


def logit_distance(class_logits: Tensor, consistency_logits: Tensor) -> Tensor:
    """ℒ_res: keeps the two decoupled heads close; the gradient flows into both.

    Args:
        class_logits: (B, C).
        consistency_logits: (B, C).

    Returns:
        A scalar, the squared difference averaged over samples and classes.
    """
    return F.mse_loss(class_logits, consistency_logits)


def neighbors(
    features: Tensor, labels: Tensor, margin: float = 1.0, average_over_features: bool = True
) -> Tensor:
    """The contrastive loss of Smooth Neighbors (Luo et al., CVPR 2018).

    For neighbors it is the squared distance of their features, for other pairs
    max(0, margin − distance)². Pairs with identical features get no gradient.

    Args:
        features: (B, D), B at least 2.
        labels: (B,) int64; samples of the same label are neighbors.
        margin: above 0.
        average_over_features: whether the squared distance is a mean over the D features, as in
            the authors' program, or a sum, which pulls D times more.

    Returns:
        A scalar, the mean over all pairs of different samples.

    Example:
        >>> import torch
        >>> points = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.5]])
        >>> same = torch.tensor([0, 0, 1])
        >>> neighbors(points, same, average_over_features=False) * 3  # 5² + 0.5² + 0
        tensor(25.2500)
        >>> neighbors(points, same) * 3  # 5²/2 + (1 − √0.125)² + 0
        tensor(12.9179)
    """
    first, second = torch.triu_indices(len(labels), len(labels), offset=1, device=labels.device)
    dtype = torch.promote_types(features.dtype, torch.float32)  # no pdist in half precision
    distance = F.pdist(features.to(dtype))
    if average_over_features:
        distance = distance / math.sqrt(features.shape[1])
    apart = (margin - distance).clamp(min=0).square()
    return torch.where(labels[first] == labels[second], distance.square(), apart).mean()
