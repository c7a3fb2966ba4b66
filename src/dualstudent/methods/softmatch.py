"""SoftMatch: every pseudo-label counts, with a weight that falls with its doubt.

Chen et al., SoftMatch: Addressing the quantity-quality tradeoff in semi-supervised learning,
ICLR 2023. With q′ the prediction aligned with the uniform distribution, and μ, σ² averages over
the steps (EMA) of the mean and the variance of max q′, which begin at 1/C and 1:

    ŷ = argmax q,  w = exp(−min(max q′ − μ, 0)² / (2 σ² / 4))

As in USB, μ and σ² are those of the aligned predictions. TorchSSL takes them before the alignment,
and aligns with the predictions for labeled samples instead.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.methods.distribution import align, update_average
from dualstudent.methods.method import Task
from dualstudent.methods.pseudo_labels import (
    Decay,
    PseudoLabelMethod,
    PseudoLabelOptions,
    PseudoLabels,
)


class SoftMatchSettings(PseudoLabelOptions):
    """The defaults are those of CIFAR-10."""

    name: Literal["softmatch"] = "softmatch"
    decay: Decay = Field(0.999, description="of the averages over the steps")


class SoftMatch(PseudoLabelMethod):
    """A weight instead of a threshold.

    Attributes:
        mean: μ, a scalar.
        variance: σ², a scalar.
        average: (C,), the average prediction; 0 before the first step.

    Example:
        >>> from dualstudent.batch import Batch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = SoftMatch([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> weak, strong = torch.rand(4, 1, 28, 28), torch.rand(2, 1, 28, 28)
        >>> batch = Batch((weak, strong), labels=torch.tensor([-1, -1, 3, 7]))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'pseudo_labels']]
    """

    summary = "SoftMatch: all pseudo-labels count, weighted by the student's confidence"
    Settings = SoftMatchSettings
    settings: SoftMatchSettings
    mean: Tensor
    variance: Tensor
    average: Tensor

    def begin(self, task: Task) -> None:
        self.register_buffer("mean", torch.tensor(1 / task.classes))
        self.register_buffer("variance", torch.tensor(1.0))
        self.register_buffer("average", torch.zeros(task.classes))

    def choose(self, weak: Tensor, labeled: Tensor, indices: Tensor) -> PseudoLabels:
        decay = self.settings.decay
        update_average(self.average, weak.mean(dim=0), decay)
        uniform = torch.full_like(self.average, 1 / len(self.average))
        confidence = align(weak, uniform, self.average).amax(dim=1)
        update_average(self.mean, confidence.mean(), decay)
        # Unbiased; the variance of a single prediction is 0.
        squares = (confidence - confidence.mean()).square().sum()
        update_average(self.variance, squares / max(1, len(confidence) - 1), decay)
        doubt = (confidence - self.mean).clamp(max=0)
        return PseudoLabels(weak.argmax(dim=1), (-2 * doubt.square() / self.variance).exp())
