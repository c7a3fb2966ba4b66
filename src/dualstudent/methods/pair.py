"""Two students beside each other: who sees what, and what each would learn alone.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, Algorithm 1. One student has view 1 as its own and the other view 2; each also looks
at the other's view, without gradient. All passes are made before anything is updated.
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
    """What can be set of any method of two students; the defaults are those of CIFAR-10."""

    consistency_weight: Weight = Field(
        10.0, description="λ₁, of the agreement of a student with itself (ℒ_con)"
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

    @property
    def target(self) -> Tensor:
        """(B, C), 𝒯ₓ of Eq. 1: the probabilities that the student follows on its own view."""
        return self.other_probabilities

    @cached_property
    def instability(self) -> Tensor:
        followed = self.own.consistency_logits.softmax(dim=1)
        return stability.instability(followed, self.other_probabilities)

    def is_stable(self, threshold: float) -> Tensor:
        return stability.is_stable(self.own_probabilities, self.other_probabilities, threshold)


class PairMethod(Method):
    """Two students, each with a loss that depends on what the other one says.

    All passes run in training mode: dropout is active, and batch-norm statistics move twice a
    step, once for each view.
    """

    settings: PairOptions

    @abstractmethod
    def student_loss(
        self, student: TwoPasses, other: TwoPasses, batch: Batch, ramp: float
    ) -> StudentLoss:
        """The loss of one student beside another, all of which is constant here."""

    def passes(self, number: int, own_view: Tensor, other_view: Tensor) -> TwoPasses:
        """Show student ``number`` its own view with gradient and the other view without."""
        student = self.students[number]
        own = student(own_view)
        with torch.no_grad():
            other = student(other_view)
        return TwoPasses(own, other.class_logits)

    def pair_losses(
        self, first: int, second: int, batch: Batch, ramp: float
    ) -> tuple[StudentLoss, StudentLoss]:
        """The losses of two students, of which the first has view 1 as its own."""
        left = self.passes(first, batch.views[0], batch.views[1])
        right = self.passes(second, batch.views[1], batch.views[0])
        return (
            self.student_loss(left, right, batch, ramp),
            self.student_loss(right, left, batch, ramp),
        )

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        return list(self.pair_losses(0, 1, batch, ramp))
