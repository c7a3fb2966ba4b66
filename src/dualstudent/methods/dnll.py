"""DNLL: Dual Student that also learns what a sample is not.

Xu et al., Semi-supervised learning with pseudo-negative labels for image classification,
Knowledge-Based Systems 2023. Where student j does not guide student i because it is unstable or
less stable than i, it tells i two classes K that it thinks the sample is not:

    ℒⁱ = ℒⁱ of Dual Student + λ_n · mean over these x and over k ∈ K of −log(1 − f_k(θⁱ, x))

K is drawn with replacement from all classes but the answer of j for the other view. λ_n rises as
75 exp(−5 (1 − e/100)²) with the epoch e until it is 2, in epoch 15, and stays there, as in the
authors' program.
"""

import math
from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent import stability
from dualstudent.batch import Batch
from dualstudent.methods.consistency import Weight
from dualstudent.methods.dual_student import DualStudent, DualStudentOptions
from dualstudent.methods.method import StudentLoss, Task
from dualstudent.methods.pair import TwoPasses

_NEGATIVES = 2
_SMALL = 1e-6  # keeps −log(1 − p) finite


class DNLLSettings(DualStudentOptions):
    """The defaults are those of CIFAR-10 with the 13-layer CNN."""

    name: Literal["dnll"] = "dnll"
    negative_weight: Weight = Field(
        2.0, description="λ_n in the end, weight of the classes that a sample is not"
    )
    negative_scale: Weight = Field(75.0, description="λ_n rises as if it should become this")
    negative_rampup_epochs: float = Field(100.0, gt=0, description="and in so many epochs")


class DNLL(DualStudent):
    """Dual Student with pseudo-negative labels, which the consistency heads learn.

    Attributes:
        epoch: number of epochs so far, a scalar int64.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DNLL([DigitsCNN(), DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)][0]
        ['classification', 'consistency', 'logit_distance', 'negative_labels', 'stabilization']
    """

    summary = "Dual Student that also learns what a sample is not"
    Settings = DNLLSettings
    settings: DNLLSettings
    epoch: Tensor

    def begin(self, task: Task) -> None:
        self.register_buffer("epoch", torch.tensor(0))

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        self.epoch.fill_(epoch + 1)

    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        loss = super().student_loss(student, other, batch, ramp)
        xi = self.settings.confidence_threshold
        leads = stability.is_guided(
            other.is_stable(xi), student.is_stable(xi), other.instability, student.instability
        )
        told = batch.unlabeled & (~other.is_stable(xi) | leads)
        doubt = _compute_negative_loss(
            student.own.consistency_logits, draw_negatives(other.other_probabilities)
        )
        loss.terms["negative_labels"] = (
            self._compute_weight() * (doubt * told).sum() / told.sum().clamp(min=1)
        )
        return loss

    def _compute_weight(self) -> float:
        """λ_n in this epoch."""
        settings, epoch = self.settings, int(self.epoch)
        missing = max(0.0, 1 - epoch / settings.negative_rampup_epochs)
        return min(settings.negative_weight, settings.negative_scale * math.exp(-5 * missing**2))


def draw_negatives(p: Tensor) -> Tensor:
    """Draw classes that samples probably do not have, from the global generator.

    Args:
        p: (B, C), probabilities.

    Returns:
        (B, C) bool, one or two classes of each sample, never the most probable one.

    Example:
        >>> draw_negatives(torch.tensor([[0.9, 0.1], [0.2, 0.8]]))
        tensor([[False,  True],
                [ True, False]])
    """
    drawn = torch.randint(p.shape[1] - 1, (len(p), _NEGATIVES), device=p.device)
    drawn += drawn >= p.argmax(dim=1, keepdim=True)  # skips the answer
    return torch.zeros_like(p, dtype=torch.bool).scatter_(1, drawn, True)


def _compute_negative_loss(logits: Tensor, negatives: Tensor) -> Tensor:
    """Mean of −log(1 − p_k) over the negative classes k of each sample: (B,)."""
    at_least = torch.promote_types(logits.dtype, torch.float32)  # bfloat16 would lose _SMALL
    doubt = -(1 - logits.softmax(dim=1, dtype=at_least) + _SMALL).log()
    return (doubt * negatives).sum(dim=1) / negatives.sum(dim=1)
