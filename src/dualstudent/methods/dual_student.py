"""Dual Student: two students that teach each other on stable samples.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, section 4.2. For student i, with j the other one (Eq. 7):

    ℒⁱ = ℒⁱ_cls + λ₁ ℒⁱ_con + λ₂ ℒⁱ_sta   (+ the distance of the decoupled heads)
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from dualstudent import losses, stability
from dualstudent.batch import Batch
from dualstudent.methods.consistency import Weight, consistency_terms
from dualstudent.methods.method import StudentLoss
from dualstudent.methods.pair import PairMethod, PairOptions, TwoPasses


class DualStudentOptions(PairOptions):
    """The constants of Eq. 7, for Dual Student and the methods built on it."""

    stabilization_weight: Weight = Field(
        100.0, description="λ₂, weight of what a student learns from the other one (ℒ_sta)"
    )
    compared_views: Literal["own", "same"] = Field(
        "own",
        description="compare the students in Eq. 5 each on its own view, as in the published "
        "program, or on the same view, as in the paper's text",
    )


class DualStudentSettings(DualStudentOptions):
    """The defaults are those of CIFAR-10."""

    name: Literal["dual-student"] = "dual-student"


def student_loss(
    student: TwoPasses,
    other: TwoPasses,
    labels: Tensor,
    unlabeled: Tensor,
    settings: DualStudentOptions,
    ramp: float,
) -> StudentLoss:
    """Compute Eq. 7 for one student of a pair.

    Args:
        student: the passes of this student.
        other: the passes of the other student, used as constants.
        labels: (B,) int64, −1 where unlabeled.
        unlabeled: (B,) bool, the samples on which students teach each other.
        settings: the weights and ξ.
        ramp: factor of λ₁ and λ₂ in [0, 1].
    """
    xi = settings.confidence_threshold
    guided = unlabeled & stability.is_guided(
        student.is_stable(xi), other.is_stable(xi), student.instability, other.instability
    )
    guide = other.own_probabilities
    if settings.compared_views == "same":
        guide = other.other_probabilities
    to_guide = settings.distance_function(student.own.consistency_logits, guide)
    return StudentLoss(
        {
            **consistency_terms(student.own, student.target, labels, settings, ramp),
            "stabilization": settings.stabilization_weight
            * ramp
            * losses.stabilization(to_guide, guided),
        }
    )


class DualStudent(PairMethod):
    """Two students with different initial weights; on each sample the more stable one guides.

    Example:
        >>> import torch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DualStudent([DigitsCNN(), DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)][0]
        ['classification', 'consistency', 'logit_distance', 'stabilization']
    """

    summary = "two students that teach each other on stable samples"
    Settings: ClassVar[type[DualStudentOptions]] = DualStudentSettings
    thresholds = frozenset({"confidence_threshold"})
    settings: DualStudentOptions

    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        return student_loss(student, other, batch.labels, batch.unlabeled, self.settings, ramp)
