"""Soft pseudo-labels: learns from its own predictions of the epoch before, on mixtures.

Arazo et al., Pseudo-labeling and confirmation bias in deep semi-supervised learning, IJCNN 2020.
With y the label of a sample, or the student's prediction for it in the epoch before, λ ~ Beta(α, α)
in every step, p the prediction for λ x₁ + (1 − λ) x₂, p̄ its mean over the batch and u uniform:

    ℒ = mean of λ H(y₁, p) + (1 − λ) H(y₂, p)  +  ρ_A KL(u ‖ p̄)  +  ρ_H · mean of H(p)

All means are over the whole batch, labeled or not. The second term keeps the student from putting
all samples into one class. There is no ramp-up: the authors train on labels alone first, which is a
stage of ``supervised`` here.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.adversarial import disable_dropout
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.methods.consistency import Weight
from dualstudent.methods.memory import write_rows
from dualstudent.methods.method import Method, MethodSettings, StudentLoss, Task
from dualstudent.mixing import draw_shares, mix_pairs


class SoftPseudoLabelsSettings(MethodSettings):
    """The defaults are those of CIFAR-10."""

    name: Literal["soft-pseudo-labels"] = "soft-pseudo-labels"
    balance_weight: Weight = Field(
        0.8, description="ρ_A, weight of the mean prediction being uniform"
    )
    entropy_weight: Weight = Field(0.4, description="ρ_H, weight of entropy minimization")
    mixup_alpha: float = Field(1.0, gt=0, description="α of the Beta distribution of λ")


class SoftPseudoLabels(Method):
    """One student; only its class head is used.

    The predictions that become labels are those of an additional pass in each step, without
    gradient and dropout. They are used from the next epoch on. A sample without one, in the first
    epoch, has the prediction of the same step as its label. It stores 4·C bytes per sample.

    ``classification`` is the part of the first mean with true labels, ``pseudo_labels`` the rest.

    Attributes:
        soft_labels: (N, C) float16, predictions of the epoch before; 0 without one.
        latest: (N, C) float16, the latest predictions.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = SoftPseudoLabels([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> [sorted(loss.terms) for loss in method.losses(Batch((images,), labels), ramp=1.0)]
        [['balance', 'classification', 'entropy', 'pseudo_labels']]
    """

    summary = "soft pseudo-labels of the epoch before, on mixtures of samples"
    Settings = SoftPseudoLabelsSettings
    settings: SoftPseudoLabelsSettings
    views = ONE_VIEW
    soft_labels: Tensor
    latest: Tensor

    def begin(self, task: Task) -> None:
        shape = (task.samples, task.classes)
        self.register_buffer("soft_labels", torch.zeros(shape, dtype=torch.float16))
        self.register_buffer("latest", torch.zeros(shape, dtype=torch.float16))

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        settings, student = self.settings, self.students[0]
        true, guessed = self._find_labels(batch)
        share = draw_shares(1, settings.mixup_alpha, device=guessed.device)
        mixed, true, guessed = mix_pairs(share, batch.views[0], true, guessed)
        logits: Tensor = student(mixed).class_logits
        log_p = logits.log_softmax(dim=1)
        mean = log_p.exp().mean(dim=0)
        return [
            StudentLoss(
                {
                    "classification": -(true * log_p).sum(dim=1).mean(),
                    "pseudo_labels": -(guessed * log_p).sum(dim=1).mean(),
                    "balance": settings.balance_weight * _compute_distance_from_uniform(mean),
                    "entropy": settings.entropy_weight * losses.entropy(logits).mean(),
                }
            )
        ]

    @torch.no_grad()
    def _find_labels(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Find labels and pseudo-labels: (B, C) each, 0 in the rows that have the other one."""
        with disable_dropout(self.students[0]):
            now: Tensor = self.students[0](batch.views[0]).class_logits.softmax(dim=1)
        before = self.soft_labels[batch.indices].to(now.dtype)
        write_rows(self.latest, batch.indices, now)
        soft = torch.where(before.any(dim=1, keepdim=True), before, now)
        labeled = (batch.labels >= 0)[:, None]
        hard = F.one_hot(batch.labels.clamp(min=0), now.shape[1]).to(now.dtype)
        spread = self.settings.label_smoothing
        return (hard * (1 - spread) + spread / now.shape[1]) * labeled, soft * ~labeled

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        self.soft_labels.copy_(self.latest)


def _compute_distance_from_uniform(mean: Tensor) -> Tensor:
    """KL(u ‖ p̄) of the mean prediction p̄, (C,)."""
    uniform = torch.full_like(mean, 1 / len(mean))
    return (uniform * (uniform / mean).log()).sum()
