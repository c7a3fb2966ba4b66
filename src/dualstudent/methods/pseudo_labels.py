"""The base of FixMatch and its successors: weak views label the strong views.

Sohn et al., FixMatch: Simplifying semi-supervised learning with consistency and confidence,
NeurIPS 2020. With q the student's prediction for a weak view of x and p for a strong one:

    ℒ = ℒ_cls + λ_u · mean over unlabeled x of w(q) · H(ŷ(q), p),   H(ŷ, p) = −log p_ŷ

The methods differ only in the pseudo-label ŷ and its weight w. There is no ramp-up: w is small
as long as the student is unsure.
"""

from abc import abstractmethod
from typing import Annotated, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from dualstudent.batch import Batch, Views
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import (
    ClassificationAverage,
    Method,
    MethodSettings,
    StudentLoss,
)

Threshold = Annotated[float, Field(gt=0, le=1)]
Decay = Annotated[float, Field(ge=0, lt=1)]


class PseudoLabelOptions(MethodSettings):
    """The settings that all methods with pseudo-labels share."""

    pseudo_label_weight: Weight = Field(
        1.0, description="λ_u, weight of what strong views learn from pseudo-labels"
    )
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )


class PseudoLabels(NamedTuple):
    """What the strong views of n unlabeled samples should be.

    Attributes:
        labels: (n,) int64, ŷ.
        weights: (n,), w in [0, 1], or bool.
    """

    labels: Tensor
    weights: Tensor


class PseudoLabelMethod(Method):
    """One student; only its class head is used.

    There are two passes, both in training mode: one over the weak views of the unlabeled samples
    without gradient, and one over their strong views together with the weak views of the labeled
    samples. If every sample has a label, ℒ_cls is taken on the strong views.
    """

    settings: PseudoLabelOptions
    views = Views(labeled=("weak",), unlabeled=("weak", "strong"))
    lone_unlabeled = True

    @abstractmethod
    def choose(self, weak: Tensor, labeled: Tensor, indices: Tensor) -> PseudoLabels:
        """Choose the pseudo-labels and their weights; called once a step, without gradient.

        Args:
            weak: (n, C), q, probabilities for the weak views of the unlabeled samples.
            labeled: (m, C), probabilities for the weak views of the labeled samples.
            indices: (n,) int64, positions of the unlabeled samples in the data set.
        """

    def terms(self, logits: Tensor, labels: Tensor, pseudo: PseudoLabels) -> dict[str, Tensor]:
        """Return the loss terms by name, each multiplied by its weight.

        Args:
            logits: (B, C), for the strong views of the n unlabeled samples, then for the others.
            labels: (B,) int64, in the same order, −1 where unlabeled.
            pseudo: of the unlabeled samples.
        """
        settings, strong = self.settings, logits[: len(pseudo.labels)]
        distance = F.cross_entropy(strong, pseudo.labels, reduction="none")
        return {
            "classification": settings.compute_classification(
                logits, labels, settings.classification_average
            ),
            "pseudo_labels": settings.pseudo_label_weight * (pseudo.weights * distance).mean(),
        }

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        student, labeled = self.students[0], ~batch.unlabeled
        with torch.no_grad():
            weak: Tensor = student(batch.select_unlabeled(0)).class_logits.softmax(dim=1)
        strong = batch.select_unlabeled(1)
        logits: Tensor = student(torch.cat((strong, batch.views[0][labeled]))).class_logits
        labels = torch.cat((batch.labels[batch.unlabeled], batch.labels[labeled]))
        with torch.no_grad():
            others = logits[len(strong) :].softmax(dim=1)
            known = torch.cat((weak[labels[: len(weak)] >= 0], others))
            pseudo = self.choose(weak, known, batch.indices[batch.unlabeled])
        return [StudentLoss(self.terms(logits, labels, pseudo))]
