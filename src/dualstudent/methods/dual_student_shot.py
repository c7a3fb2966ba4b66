"""Dual Student for another domain: with SHOT's terms on the target.

For student i, with j the other one, p its predictions for the target and p̄ their mean:

    ℒⁱ = Eq. 7 of Dual Student + ω (λ₃ mean of H(p) − λ₄ H(p̄) + β CE(p, ŷʲ))

ŷʲ is the class of the nearest centroid among the features of the *other* student: the students
make different mistakes, so that neither is confirmed in its own.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.batch import Batch
from dualstudent.methods.centroids import label_by_centroids
from dualstudent.methods.consistency import Weight
from dualstudent.methods.dual_student import DualStudent, DualStudentOptions
from dualstudent.methods.method import StudentLoss
from dualstudent.methods.pair import TwoPasses


class DualStudentSHOTSettings(DualStudentOptions):
    """The constants of Eq. 7 and of SHOT's terms."""

    name: Literal["dual-student+shot"] = "dual-student+shot"
    entropy_weight: Weight = Field(1.0, description="λ₃, weight of confident predictions")
    balance_weight: Weight = Field(1.0, description="λ₄, weight of equally frequent classes")
    pseudo_label_weight: Weight = Field(
        0.3, description="β, weight of the labels by the other student's centroids"
    )


class DualStudentSHOT(DualStudent):
    """Two students that teach each other, also by the class centroids of their target features.

    The centroids are those of the batch, which should hold some target samples of every class.

    Example:
        >>> import torch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DualStudentSHOT([DigitsCNN(), DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> sorted(method.losses(batch, ramp=1.0)[0].terms.keys() - {"classification"})
        ['balance', 'consistency', 'entropy', 'logit_distance', 'pseudo_labels', 'stabilization']
    """

    summary = "Dual Student with SHOT's terms on the target domain"
    Settings = DualStudentSHOTSettings
    target_terms = frozenset({"entropy", "balance", "pseudo_labels"})
    settings: DualStudentSHOTSettings

    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        loss = super().student_loss(student, other, batch, ramp)
        settings, rows = self.settings, batch.targets
        logits = student.own.class_logits[rows]
        by_other: Tensor = label_by_centroids(
            other.own.features[rows], other.own_probabilities[rows]
        )
        loss.terms |= {
            "entropy": settings.entropy_weight * ramp * losses.entropy(logits).mean(),
            "balance": -settings.balance_weight * ramp * losses.mean_entropy(logits),
            "pseudo_labels": settings.pseudo_label_weight
            * ramp
            * F.cross_entropy(logits, by_other),
        }
        return loss
