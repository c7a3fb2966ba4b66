"""FlexMatch: FixMatch with lower thresholds for classes that are learned less well.

Zhang et al., FlexMatch: Boosting semi-supervised learning with curriculum pseudo labeling,
NeurIPS 2021. With n_c the number of unlabeled samples whose latest confident prediction
(max q ≥ τ) is class c, and n₀ the number of those without one:

    ŷ = argmax q,  w = 1[max q ≥ τ β_ŷ / (2 − β_ŷ)],  β_c = n_c / max(n₀, n₁, …, n_C)

At first all thresholds are 0. n₀ makes them rise slowly while few samples are learned (the
"threshold warm-up" of the paper, on by default in TorchSSL and USB).
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.methods.memory import write_rows
from dualstudent.methods.method import Task
from dualstudent.methods.pseudo_labels import (
    PseudoLabelMethod,
    PseudoLabelOptions,
    PseudoLabels,
    Threshold,
)


class FlexMatchSettings(PseudoLabelOptions):
    """The defaults are those of CIFAR-10."""

    name: Literal["flexmatch"] = "flexmatch"
    pseudo_label_threshold: Threshold = Field(
        0.95, description="τ, threshold of the class that is learned best"
    )


class FlexMatch(PseudoLabelMethod):
    """A threshold for each class, from the predictions of earlier steps.

    It stores 8 bytes per sample.

    Attributes:
        learned: (N,) int64, class of the latest confident prediction of a sample, −1 without one.

    Example:
        >>> from dualstudent.batch import Batch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = FlexMatch([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> weak, strong = torch.rand(4, 1, 28, 28), torch.rand(2, 1, 28, 28)
        >>> batch = Batch((weak, strong), labels=torch.tensor([-1, -1, 3, 7]))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'pseudo_labels']]
    """

    summary = "FlexMatch: FixMatch with lower thresholds for classes that are hard to learn"
    Settings = FlexMatchSettings
    thresholds = frozenset({"pseudo_label_threshold"})
    settings: FlexMatchSettings
    learned: Tensor

    def begin(self, task: Task) -> None:
        self._unlabeled = task.samples if task.unlabeled is None else task.unlabeled
        self.register_buffer("learned", torch.full((task.samples,), -1))

    def choose(self, weak: Tensor, labeled: Tensor, indices: Tensor) -> PseudoLabels:
        highest = self.settings.pseudo_label_threshold
        confidence, labels = weak.max(dim=1)
        progress = self._measure_progress(classes=weak.shape[1])
        thresholds = highest * progress / (2 - progress)
        latest = torch.where(confidence >= highest, labels, self.learned[indices])
        write_rows(self.learned, indices, latest)
        return PseudoLabels(labels, confidence >= thresholds[labels])

    def _measure_progress(self, classes: int) -> Tensor:
        """β of each class: (C,), in [0, 1]."""
        counts = (self.learned + 1).bincount(minlength=classes + 1)[1:]
        unused = self._unlabeled - counts.sum()
        return counts / torch.maximum(counts.max(), unused)
