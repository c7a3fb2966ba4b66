"""The base of methods with two students: the passes over both views.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, Algorithm 1. View 1 is the first student's own view, view 2 the second's; each student
also sees the other view, without gradient. All passes are made before anything is updated.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from pydantic import Field
from torch import Tensor

from dualstudent import stability
from dualstudent.batch import Batch
from dualstudent.methods.consistency import ConsistencySettings, Weight
from dualstudent.methods.method import Method, StudentLoss
from dualstudent.prediction import Prediction


class PairOptions(ConsistencySettings):
    """The settings of methods with two students; the defaults are those of CIFAR-10."""

    consistency_weight: Weight = Field(
        10.0, description="λ₁, weight of the agreement of a student with itself (ℒ_con)"
    )

    @property
    def student_count(self) -> int:
        return 2


@dataclass(frozen=True)
class TwoPasses:
    """The outputs of one student for both views of a batch.

    Attributes:
        own: prediction for its own view, with gradient.
        other_class_logits: (B, C), class logits for the other view; a constant.
    """

    own: Prediction
    other_class_logits: Tensor

    @cached_property
    def own_probabilities(self) -> Tensor:
        return self.own.class_logits.detach().softmax(dim=1)

    @cached_property
    def other_probabilities(self) -> Tensor:
        return self.other_class_logits.detach().softmax(dim=1)

    @property
    def target(self) -> Tensor:
        """(B, C), 𝒯ₓ of Eq. 1: the target of the student on its own view."""
        return self.other_probabilities

    @cached_property
    def instability(self) -> Tensor:
        followed = self.own.consistency_logits.softmax(dim=1)
        return stability.instability(followed, self.other_probabilities)

    def is_stable(self, threshold: float) -> Tensor:
        return stability.is_stable(self.own_probabilities, self.other_probabilities, threshold)


class PairMethod(Method):
    """Two students, each with a loss that depends on the other one's predictions.

    All passes run in training mode: dropout is active, and batch-norm statistics are updated
    twice a step, once for each view.
    """

    settings: PairOptions

    @abstractmethod
    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        """Compute the loss of one student; the outputs of the other are constants."""

    def run_passes(self, number: int, own_view: Tensor, other_view: Tensor) -> TwoPasses:
        """Run student ``number`` on its own view with gradient and on the other view without."""
        student = self.students[number]
        own = student(own_view)
        with torch.no_grad():
            other = student(other_view)
        return TwoPasses(own, other.class_logits)

    def pair_losses(
        self, first: int, second: int, batch: Batch, ramp: float
    ) -> tuple[StudentLoss, StudentLoss]:
        """Compute the losses of two students; view 1 is the first one's own view."""
        left = self.run_passes(first, batch.views[0], batch.views[1])
        right = self.run_passes(second, batch.views[1], batch.views[0])
        return (
            self.student_loss(left, right, batch, ramp),
            self.student_loss(right, left, batch, ramp),
        )

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        return list(self.pair_losses(0, 1, batch, ramp))
