"""Adversarial perturbations: small changes of the input that change the prediction most.

A search leaves the network unchanged: parameters receive no gradient and batch-norm
statistics are not updated. The results are constants.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm

from dualstudent.generators import seeded_rng
from dualstudent.losses import kl
from dualstudent.prediction import Prediction


@contextmanager
def freeze_statistics(network: nn.Module) -> Iterator[None]:
    """Normalize by the batch, but do not update the running statistics of batch norm.

    For images that occur only during training, such as adversarial ones.
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
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Run the network without dropout and with its running statistics; then restore all modes."""
    with _restore_modes(network):
        network.eval()
        yield


@contextmanager
def disable_dropout(network: nn.Module) -> Iterator[None]:
    """Turn off dropout and other noise of layers; batch norm stays in its mode."""
    with _restore_modes(network):
        for module in network.modules():
            module.training &= isinstance(module, _BatchNorm)
        yield


@contextmanager
def _restore_modes(network: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in network.modules()]
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class RepeatedDropout(nn.Module):
    """A network with the same dropout in every pass, which is drawn when this is made.

    Without it, two passes over equal images would differ, and a small change of the images would
    be lost in the difference.

    Args:
        network: the network; not copied.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self._seed = int(torch.randint(2**62, ()))

    def forward(self, images: Tensor) -> Prediction:
        with seeded_rng("dropout", self._seed):
            prediction: Prediction = self.network(images)
            return prediction


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute in float32: without autocast, and without TF32 in convolutions on a GPU."""
    flags = torch.backends.cudnn
    allowed, flags.allow_tf32 = flags.allow_tf32, False
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        flags.allow_tf32 = allowed


def virtual_adversarial(
    network: nn.Module,
    images: Tensor,
    epsilon: float,
    finite_difference: float,
    power_iterations: int = 1,
) -> Tensor:
    """The perturbation r of length ε that changes the prediction most, to second order.

    Miyato et al., Virtual adversarial training, TPAMI 2018. KL(p(x) ‖ p(x + r)) is ½ rᵀ H r
    for a small r, so r is the dominant eigenvector of H. Power iteration finds it from a random
    direction d by d ← H d / ‖H d‖, where H d is ∇ᵣ KL(p(x) ‖ p(x + r)) / ξ at r = ξ d.

    The gradient is a difference of nearly equal probabilities. Therefore the search runs in full
    precision, even under autocast, and must not draw dropout anew in every pass.

    Args:
        network: maps images to a :class:`~dualstudent.prediction.Prediction`, equal images to
            equal ones: without dropout, or with :class:`RepeatedDropout`.
        images: (B, …), x.
        epsilon: ε, the Euclidean length of each sample's r.
        finite_difference: ξ.
        power_iterations: number of updates of d; each costs a forward and a backward pass.

    Returns:
        r, of the shape of ``images``; 0 where no direction changes the prediction.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> network = RepeatedDropout(DigitsCNN())
        >>> r = virtual_adversarial(network, torch.rand(2, 1, 28, 28), 8.0, 1e-2)
        >>> [round(length, 3) for length in r.flatten(1).norm(dim=1).tolist()]
        [8.0, 8.0]
    """
    images = images.to(torch.promote_types(images.dtype, torch.float32))  # they may be bfloat16
    with freeze_statistics(network), full_precision(images.device):
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
    """Return x + ε · sign(∇ₓ loss): each value changes by ε so that the loss grows.

    Goodfellow et al., Explaining and harnessing adversarial examples, ICLR 2015.

    Args:
        loss: a scalar that depends on ``images``.
        images: (B, …), x, with ``requires_grad``.
        epsilon: ε, the largest change of a value.

    Returns:
        The adversarial images, of the shape of ``images``.

    Example:
        >>> images = torch.tensor([[1.0, 1.0]], requires_grad=True)
        >>> fast_gradient_sign(images[:, 0].sum() - images[:, 1].sum(), images, epsilon=0.25)
        tensor([[1.2500, 0.7500]])
    """
    (gradient,) = torch.autograd.grad(loss, images)
    return images.detach() + epsilon * gradient.sign()


def _normalize(vectors: Tensor) -> Tensor:
    """Scale each sample to length 1; samples of length 0 stay 0.

    Dividing by the largest value first keeps the squares from underflowing.
    """
    flat = vectors.flatten(1)
    largest = flat.abs().amax(dim=1, keepdim=True)
    return F.normalize(flat / largest.clamp(min=torch.finfo(flat.dtype).tiny)).view_as(vectors)
