"""AdaMatch: FixMatch relative to what the student predicts for labeled samples.

Berthelot et al., AdaMatch: A unified approach to semi-supervised learning and domain adaptation,
ICLR 2022. With p̃_L and p̃_U the averages over the steps (EMA) of the predictions for weak views of
labeled and unlabeled samples, and q_L the predictions for the labeled samples of the batch:

    q′ ∝ q · p̃_L / p̃_U,  ŷ = argmax q′,  w = 1[max q′ ≥ c · mean(max q_L)]

This is the form and the c = 0.95 of USB, whose figures can be compared with those of the other
methods. The authors' program has c = 0.9, also learns from strong views of the labeled samples,
interpolates their logits between two batch norms, and raises λ_u over the first half.
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
    Threshold,
)


class AdaMatchSettings(PseudoLabelOptions):
    """The defaults are those of CIFAR-10 in USB."""

    name: Literal["adamatch"] = "adamatch"
    relative_threshold: Threshold = Field(
        0.95, description="c, threshold as a share of the confidence on labeled samples"
    )
    decay: Decay = Field(0.999, description="of the averages over the steps")


class AdaMatch(PseudoLabelMethod):
    """Distribution and threshold come from the predictions for labeled samples.

    Attributes:
        labeled_average: (C,), p̃_L; begins at 1/C.
        average: (C,), p̃_U; 0 before the first step.

    Example:
        >>> from dualstudent.batch import Batch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = AdaMatch([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> weak, strong = torch.rand(4, 1, 28, 28), torch.rand(2, 1, 28, 28)
        >>> batch = Batch((weak, strong), labels=torch.tensor([-1, -1, 3, 7]))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'pseudo_labels']]
    """

    summary = "AdaMatch: FixMatch relative to the predictions for labeled samples"
    Settings = AdaMatchSettings
    settings: AdaMatchSettings
    labeled_average: Tensor
    average: Tensor

    def begin(self, task: Task) -> None:
        uniform = torch.full((task.classes,), 1 / task.classes)
        self.register_buffer("labeled_average", uniform)
        self.register_buffer("average", torch.zeros(task.classes))

    def choose(self, weak: Tensor, labeled: Tensor, indices: Tensor) -> PseudoLabels:
        decay = self.settings.decay
        update_average(self.labeled_average, labeled.mean(dim=0), decay)
        update_average(self.average, weak.mean(dim=0), decay)
        confidence, labels = align(weak, self.labeled_average, self.average).max(dim=1)
        threshold = self.settings.relative_threshold * labeled.amax(dim=1).mean()
        return PseudoLabels(labels, confidence >= threshold)
