"""Dual Student: two students that teach each other on stable samples.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, section 4.2. For student i, with j the other one (Eq. 7):

    ℒⁱ = ℒⁱ_cls + λ₁ ℒⁱ_con + λ₂ ℒⁱ_sta   (+ the distance of the decoupled heads)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from dualstudent import losses, stability
from dualstudent.batch import Batch
from dualstudent.methods.method import Method, MethodSettings, StudentLoss
from dualstudent.prediction import Prediction

Weight = Annotated[float, Field(ge=0)]


class DualStudentSettings(MethodSettings):
    """The constants of Eq. 3 and Eq. 7; the defaults are those of CIFAR-10."""

    name: Literal["dual-student"] = "dual-student"
    consistency_weight: Weight = Field(10.0, description="λ₁")
    stabilization_weight: Weight = Field(100.0, description="λ₂")
    confidence_threshold: float = Field(0.8, ge=0, lt=1, description="ξ of Eq. 3")
    logit_distance_weight: Weight = Field(0.01, description="tie of the decoupled heads")
    distance: Literal["mse", "kl"] = Field("mse", description="ℛ of Eq. 1 and Eq. 5")
    compared_views: Literal["own", "same"] = Field(
        "own",
        description="Eq. 5 between the students' own views, as the paper's numbers were made, "
        "or on the same view, as the paper is written",
    )
    classification_average: Literal["batch", "labeled"] = Field(
        "batch", description="what the sum of cross entropies is divided by"
    )

    @property
    def student_count(self) -> int:
        return 2


@dataclass(frozen=True)
class TwoPasses:
    """What one student made of a batch.

    Attributes:
        own: its prediction for its own view, with gradient.
        other_class_logits: (B, C), its class logits for the other view; a constant.
    """

    own: Prediction
    other_class_logits: Tensor

    @cached_property
    def own_probabilities(self) -> Tensor:
        return self.own.class_logits.detach().softmax(dim=1)

    @cached_property
    def other_probabilities(self) -> Tensor:
        return self.other_class_logits.detach().softmax(dim=1)

    @cached_property
    def instability(self) -> Tensor:
        followed = self.own.consistency_logits.softmax(dim=1)
        return stability.instability(followed, self.other_probabilities)

    def is_stable(self, threshold: float) -> Tensor:
        return stability.is_stable(self.own_probabilities, self.other_probabilities, threshold)


def pass_twice(student: nn.Module, own_view: Tensor, other_view: Tensor) -> TwoPasses:
    """Show a student its own view with gradient and the other view without."""
    own = student(own_view)
    with torch.no_grad():
        other = student(other_view)
    return TwoPasses(own, other.class_logits)


def student_loss(
    student: TwoPasses,
    other: TwoPasses,
    labels: Tensor,
    unlabeled: Tensor,
    settings: DualStudentSettings,
    ramp: float,
) -> StudentLoss:
    """Eq. 7 for one student beside another.

    Args:
        student: the passes of the student whose loss this is.
        other: the passes of the student it is paired with; all of it is constant here.
        labels: (B,) int64, −1 where unlabeled.
        unlabeled: (B,) bool, the samples on which students teach each other.
        settings: the weights and ξ.
        ramp: in [0, 1], multiplies λ₁ and λ₂.
    """
    distance = losses.mse if settings.distance == "mse" else losses.kl
    xi = settings.confidence_threshold
    guided = unlabeled & stability.is_guided(
        student.is_stable(xi), other.is_stable(xi), student.instability, other.instability
    )
    guide = other.own_probabilities
    if settings.compared_views == "same":
        guide = other.other_probabilities
    own = student.own
    return StudentLoss(
        {
            "classification": losses.classification(
                own.class_logits, labels, settings.classification_average == "batch"
            ),
            "logit_distance": settings.logit_distance_weight
            * losses.logit_distance(own.class_logits, own.consistency_logits),
            "consistency": settings.consistency_weight
            * ramp
            * losses.consistency(own.consistency_logits, student.other_probabilities, distance),
            "stabilization": settings.stabilization_weight
            * ramp
            * losses.stabilization(distance(own.consistency_logits, guide), guided),
        }
    )


class DualStudent(Method):
    """Two students with different initial states; the more stable one guides, sample by sample.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DualStudent([DigitsCNN(), DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch(images, images + 0.1, labels, labels < 0, torch.arange(4))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)][0]
        ['classification', 'consistency', 'logit_distance', 'stabilization']
    """

    Settings = DualStudentSettings

    def __init__(
        self, students: Sequence[nn.Module], settings: DualStudentSettings | None = None
    ) -> None:
        self.settings = settings or DualStudentSettings()
        super().__init__(students, self.settings)

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        left = pass_twice(self.students[0], batch.view1, batch.view2)
        right = pass_twice(self.students[1], batch.view2, batch.view1)
        return [
            student_loss(left, right, batch.labels, batch.unlabeled, self.settings, ramp),
            student_loss(right, left, batch.labels, batch.unlabeled, self.settings, ramp),
        ]

    @property
    def confidence_threshold(self) -> float:
        return self.settings.confidence_threshold
