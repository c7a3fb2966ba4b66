"""Dual Student for another domain: with SHOT's terms on the target.

For student i, with j the other one, p its predictions for the target and p̄ their mean:

    ℒⁱ = Eq. 7 of Dual Student + ω (λ₃ mean of H(p) − λ₄ H(p̄) + β CE(p, ŷʲ))

ŷʲ comes from the *other* student: the class of the nearest centroid of its features, or what it
predicts for samples that are stable for it (Eq. 3); others then have no label. The students make
different mistakes, so that neither is confirmed in its own.
"""

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.batch import Batch, Policy, Views
from dualstudent.methods.centroids import label_by_centroids
from dualstudent.methods.consistency import Weight
from dualstudent.methods.dual_student import DualStudent, DualStudentOptions
from dualstudent.methods.method import MethodSettings, StudentLoss
from dualstudent.methods.pair import TwoPasses


class DualStudentSHOTSettings(DualStudentOptions):
    """The constants of Eq. 7 and of SHOT's terms."""

    name: Literal["dual-student+shot"] = "dual-student+shot"
    entropy_weight: Weight = Field(1.0, description="λ₃, weight of confident predictions")
    balance_weight: Weight = Field(1.0, description="λ₄, weight of equally frequent classes")
    pseudo_label_weight: Weight = Field(
        0.3, description="β, weight of the labels by the other student"
    )
    pseudo_labels: Literal["centroids", "stable"] = Field(
        "centroids",
        description="labels by the nearest of the other student's centroids, or its predictions "
        "for the samples that are stable for it, smoothed as given labels are",
    )
    labeled_view: Policy = Field(
        "weak", description="which views of the labeled samples to learn from; as before adapting"
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

    @classmethod
    def choose_views(cls, settings: MethodSettings) -> Views:
        assert isinstance(settings, DualStudentSHOTSettings)
        return Views(labeled=(settings.labeled_view,) * 2, unlabeled=("weak", "weak"))

    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        loss = super().student_loss(student, other, batch, ramp)
        settings, rows = self.settings, batch.targets
        logits = student.own.class_logits[rows]
        loss.terms |= {
            "entropy": settings.entropy_weight * ramp * losses.entropy(logits).mean(),
            "balance": -settings.balance_weight * ramp * losses.mean_entropy(logits),
            "pseudo_labels": settings.pseudo_label_weight
            * ramp
            * self._learn_from(other, rows, logits),
        }
        return loss

    def _learn_from(self, other: TwoPasses, rows: Tensor, logits: Tensor) -> Tensor:
        """Return the cross entropy with what the other student says about the rows."""
        predicted = other.own_probabilities[rows]
        if self.settings.pseudo_labels == "centroids":
            return F.cross_entropy(logits, label_by_centroids(other.own.features[rows], predicted))
        stable = other.is_stable(self.settings.confidence_threshold)[rows]
        # Smoothed, so that ξ goes on to mean what it meant for the labels that were given.
        return self.settings.compute_classification(logits, predicted.argmax(1).where(stable, -1))
