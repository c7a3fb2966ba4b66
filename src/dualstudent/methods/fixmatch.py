"""FixMatch: confident predictions for weak views are the labels of strong views.

Sohn et al., FixMatch: Simplifying semi-supervised learning with consistency and confidence,
NeurIPS 2020. With q the prediction for the weak view:

    ŷ = argmax q,  w = 1[max q ≥ τ]

Optionally q is aligned with the distribution of the classes first, as in ReMixMatch. The average
prediction is exponential, as in TorchSSL; ReMixMatch's program averages the last 128 steps.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.methods.distribution import align, update_average
from dualstudent.methods.method import Task
from dualstudent.methods.pseudo_labels import (
    Decay,
    PseudoLabelMethod,
    PseudoLabelOptions,
    PseudoLabels,
    Threshold,
)

# Scaled to a sum of 1. TOML has lists only.
_Shares = Annotated[tuple[Annotated[float, Field(gt=0)], ...], Field(strict=False, min_length=2)]


class FixMatchSettings(PseudoLabelOptions):
    """The defaults are those of CIFAR-10."""

    name: Literal["fixmatch"] = "fixmatch"
    pseudo_label_threshold: Threshold = Field(
        0.95, description="τ, top probability from which a prediction is a pseudo-label"
    )
    distribution_alignment: bool = Field(
        False, description="align predictions with the distribution of the classes"
    )
    alignment_target: Literal["labeled", "uniform"] | _Shares = Field(
        "labeled",
        description="classes as among the labeled samples, equally many, or a list of shares",
    )
    decay: Decay = Field(0.999, description="of the average prediction that is aligned")


class FixMatch(PseudoLabelMethod):
    """A fixed threshold τ for all classes.

    Attributes:
        average: (C,), the average prediction; 0 before the first step. Only with alignment.

    Example:
        >>> from dualstudent.batch import Batch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = FixMatch([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> weak, strong = torch.rand(4, 1, 28, 28), torch.rand(2, 1, 28, 28)
        >>> batch = Batch((weak, strong), labels=torch.tensor([-1, -1, 3, 7]))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'pseudo_labels']]
    """

    summary = "FixMatch: confident predictions for weak views label the strong views"
    Settings = FixMatchSettings
    thresholds = frozenset({"pseudo_label_threshold"})
    settings: FixMatchSettings
    average: Tensor
    target: Tensor

    def begin(self, task: Task) -> None:
        if not self.settings.distribution_alignment:
            return
        shares = self._find_shares(task)
        self.register_buffer("target", shares / shares.sum(), persistent=False)
        self.register_buffer("average", torch.zeros(task.classes))

    def _find_shares(self, task: Task) -> Tensor:
        target = self.settings.alignment_target
        if isinstance(target, str):
            counts = task.label_counts if target == "labeled" else None
            return torch.tensor(counts or [1] * task.classes, dtype=torch.float32)
        if len(target) != task.classes:
            raise UserError(
                f"method.alignment_target has {len(target)} shares; there are {task.classes} "
                "classes, and it needs one for each"
            )
        return torch.tensor(target)

    def choose(self, weak: Tensor, labeled: Tensor, indices: Tensor) -> PseudoLabels:
        if self.settings.distribution_alignment:
            update_average(self.average, weak.mean(dim=0), self.settings.decay)
            weak = align(weak, self.target, self.average)
        confidence, labels = weak.max(dim=1)
        return PseudoLabels(labels, confidence >= self.settings.pseudo_label_threshold)
