"""FreeMatch: thresholds that follow the student's confidence, for each class.

Wang et al., FreeMatch: Self-adaptive thresholding for semi-supervised learning, ICLR 2023. With
averages over the steps (EMA) of the mean of max q, τ, of the mean of q, p̃, and of the shares of
the pseudo-labels, h̃; all begin at 1/C:

    ŷ = argmax q,  w = 1[max q ≥ τ p̃_ŷ / max p̃]

The fairness term keeps the classes of the passing strong views apart: with p̄ the mean of their
predictions, h̄ the shares of their answers and N(·) scaled to the sum 1, it is
w_f Σ N(p̃ / h̃) log N(p̄ / h̄). Minimizing it maximizes a cross entropy. Its weight is that of USB,
0.001, whose published figures are the more complete; TorchSSL has 0.01.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.methods.consistency import Weight
from dualstudent.methods.distribution import count_shares, update_average
from dualstudent.methods.method import Task
from dualstudent.methods.pseudo_labels import (
    Decay,
    PseudoLabelMethod,
    PseudoLabelOptions,
    PseudoLabels,
)

_SMALL = 1e-12  # keeps the logarithm of a class without answers finite


class FreeMatchSettings(PseudoLabelOptions):
    """The defaults are those of CIFAR-10 in USB."""

    name: Literal["freematch"] = "freematch"
    fairness_weight: Weight = Field(0.001, description="w_f, weight of the fairness term")
    decay: Decay = Field(0.999, description="of the averages over the steps")


class FreeMatch(PseudoLabelMethod):
    """A threshold for each class, from averages of the predictions.

    Attributes:
        threshold: τ, a scalar.
        average: (C,), p̃.
        shares: (C,), h̃.

    Example:
        >>> from dualstudent.batch import Batch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = FreeMatch([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> weak, strong = torch.rand(4, 1, 28, 28), torch.rand(2, 1, 28, 28)
        >>> batch = Batch((weak, strong), labels=torch.tensor([-1, -1, 3, 7]))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'fairness', 'pseudo_labels']]
    """

    summary = "FreeMatch: FixMatch with thresholds that follow the student's confidence"
    Settings = FreeMatchSettings
    settings: FreeMatchSettings
    threshold: Tensor
    average: Tensor
    shares: Tensor

    def begin(self, task: Task) -> None:
        uniform = torch.full((task.classes,), 1 / task.classes)
        self.register_buffer("threshold", uniform[0].clone())
        self.register_buffer("average", uniform)
        self.register_buffer("shares", uniform.clone())

    def choose(self, weak: Tensor, labeled: Tensor, indices: Tensor) -> PseudoLabels:
        decay = self.settings.decay
        confidence, labels = weak.max(dim=1)
        update_average(self.threshold, confidence.mean(), decay)
        update_average(self.average, weak.mean(dim=0), decay)
        update_average(self.shares, count_shares(labels, weak.shape[1]), decay)
        thresholds = self.threshold * self.average / self.average.max()
        return PseudoLabels(labels, confidence >= thresholds[labels])

    def terms(self, logits: Tensor, labels: Tensor, pseudo: PseudoLabels) -> dict[str, Tensor]:
        strong = logits[: len(pseudo.labels)].softmax(dim=1)
        fairness = _compute_fairness(strong, pseudo.weights, self.average / self.shares)
        return {
            **super().terms(logits, labels, pseudo),
            "fairness": self.settings.fairness_weight * fairness,
        }


def _compute_fairness(p: Tensor, passing: Tensor, expected: Tensor) -> Tensor:
    """Σ N(expected) log N(p̄ / h̄) over the classes.

    Args:
        p: (n, C), predictions for the strong views.
        passing: (n,) bool, those to use.
        expected: (C,), p̃ / h̃.

    Returns:
        A scalar, at most 0; 0 if none passes.
    """
    answers = p.argmax(dim=1)[passing].bincount(minlength=p.shape[1])
    # A sum instead of a mean and counts instead of shares: N removes the factor.
    scaled = p[passing].sum(dim=0) / answers.clamp(min=1) * (answers > 0)
    found = scaled / scaled.sum().clamp(min=_SMALL)
    return ((expected / expected.sum()) * (found + _SMALL).log()).sum() * passing.any()
