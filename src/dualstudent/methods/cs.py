"""CS: two students with plain consistency between them, the baseline of Dual Student.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, Table 1: Dual Student without its stable samples. For student i, with j the other one:

    ℒⁱ = ℒⁱ_cls + λ₁ ℒⁱ_con + λ₂ ℛ(f(θⁱ, x), f(θʲ, x))   (+ the distance of the decoupled heads)

The students follow each other on every unlabeled sample, whichever of them is right, so they are
as coupled as a student and its teacher. With λ₁ = 0 this is the ℒ_cs of the paper's ablation.
"""

from typing import Literal

from pydantic import Field

from dualstudent import losses
from dualstudent.batch import Batch
from dualstudent.methods.consistency import Weight, consistency_terms
from dualstudent.methods.method import StudentLoss
from dualstudent.methods.pair import PairMethod, PairOptions, TwoPasses


class CSSettings(PairOptions):
    """The defaults are those of Dual Student on CIFAR-10."""

    name: Literal["cs"] = "cs"
    mutual_consistency_weight: Weight = Field(
        100.0, description="λ₂, weight of the agreement of the students with each other"
    )


class CS(PairMethod):
    """Each student's consistency head follows the other student's class head, each on its own view.

    Example:
        >>> import torch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = CS([DigitsCNN(), DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)][0]
        ['classification', 'consistency', 'logit_distance', 'mutual_consistency']
    """

    summary = "two students, plain consistency between them"
    Settings = CSSettings
    settings: CSSettings

    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        settings = self.settings
        to_other = settings.distance_function(
            student.own.consistency_logits, other.own_probabilities
        )
        return StudentLoss(
            {
                **consistency_terms(student.own, student.target, batch.labels, settings, ramp),
                "mutual_consistency": settings.mutual_consistency_weight
                * ramp
                * losses.stabilization(to_other, guided=batch.unlabeled),
            }
        )
