"""Small changes of an image that change a prediction most.

They are searched for without touching the network: parameters receive no gradient, and
batch-norm statistics stay where they are. All that is returned is constant.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from dualstudent.losses import kl


@contextmanager
def freeze_statistics(network: nn.Module) -> Iterator[None]:
    """Batch norm still normalizes by the batch, but its running statistics do not move.

    For passes over images that the network will not meet outside of training.
    """
    norms = [module for module in network.modules() if isinstance(module, _BatchNorm)]
    tracking = [norm.track_running_stats for norm in norms]
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm, tracked in zip(norms, tracking, strict=True):
            norm.track_running_stats = tracked


@contextmanager
def disable_noise(network: nn.Module) -> Iterator[None]:
    """The same function in every pass: no dropout, and batch norm that leaves no trace.

    Batch norm goes on to normalize by the batch if it did, as in the loss that is to follow.
    """
    modes = [(module, module.training) for module in network.modules()]
    for module, training in modes:
        module.training = training and isinstance(module, _BatchNorm)
    try:
        with freeze_statistics(network):
            yield
    finally:
        for module, training in modes:
            module.training = training


def virtual_adversarial(
    network: nn.Module,
    images: Tensor,
    epsilon: float,
    finite_difference: float,
    power_iterations: int = 1,
) -> Tensor:
    """The change r of length ε that moves the prediction furthest, to second order.

    Miyato et al., Virtual adversarial training, TPAMI 2018. KL(p(x) ‖ p(x + r)) is ½ rᵀ H r
    for a small r, so r is the dominant eigenvector of H. Power iteration finds it from a random
    direction d by d ← H d / ‖H d‖, where H d is ∇ᵣ KL(p(x) ‖ p(x + r)) / ξ at r = ξ d.

    The gradient is a difference of nearly equal probabilities, so the search runs without
    dropout, which would drown it, and in full precision, also under autocast.

    Args:
        network: maps images to a :class:`~dualstudent.prediction.Prediction`.
        images: (B, …), x.
        epsilon: ε, the Euclidean length of each sample's r.
        finite_difference: ξ.
        power_iterations: how often d is improved; each costs a pass forth and back.

    Returns:
        r, of the shape of ``images``; 0 where no direction changes the prediction.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> r = virtual_adversarial(DigitsCNN(), torch.rand(2, 1, 28, 28), 8.0, 0.1)
        >>> [round(length, 3) for length in r.flatten(1).norm(dim=1).tolist()]
        [8.0, 8.0]
    """
    with disable_noise(network), torch.autocast(images.device.type, enabled=False):
        with torch.no_grad():
            target = network(images).class_logits.softmax(dim=1)
        direction = _normalize(torch.randn_like(images))
        for _ in range(power_iterations):
            change = (finite_difference * direction).requires_grad_()
            divergence = kl(network(images + change).class_logits, target).sum()
            (gradient,) = torch.autograd.grad(divergence, change)
            direction = _normalize(gradient)
    return epsilon * direction


def fast_gradient_sign(loss: Tensor, images: Tensor, epsilon: float) -> Tensor:
    """Each value moves by ε to where the loss grows: x + ε · sign(∇ₓ loss).

    Goodfellow et al., Explaining and harnessing adversarial examples, ICLR 2015.

    Args:
        loss: a scalar that depends on ``images``; its graph can be used again.
        images: (B, …), x, which asks for gradient.
        epsilon: ε, the largest change of a value.

    Returns:
        The adversarial images, of the shape of ``images``.

    Example:
        >>> images = torch.tensor([[1.0, 1.0]], requires_grad=True)
        >>> fast_gradient_sign(images[:, 0].sum() - images[:, 1].sum(), images, epsilon=0.25)
        tensor([[1.2500, 0.7500]])
    """
    (gradient,) = torch.autograd.grad(loss, images, retain_graph=True)
    return images.detach() + epsilon * gradient.sign()


def _normalize(vectors: Tensor) -> Tensor:
    """Each sample at length 1, or 0 if it is; first brought to where squares do not underflow."""
    flat = vectors.flatten(1)
    largest = flat.abs().amax(dim=1, keepdim=True)
    return F.normalize(flat / largest.clamp(min=torch.finfo(flat.dtype).tiny)).view_as(vectors)
