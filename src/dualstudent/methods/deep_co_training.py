"""Deep Co-Training: two students that agree on images, but are fooled by different attacks.

Qiao et al., Deep co-training for semi-supervised image recognition, ECCV 2018. With p₁ and p₂
the students' probabilities and gᵢ(x) the adversarial example of x against student i:

    ℒ = ℒ_sup + λ_cot ℒ_cot + λ_dif ℒ_dif
    ℒ_cot = JS(p₁(x), p₂(x)) = H(½(p₁ + p₂)) − ½(H(p₁) + H(p₂))   on unlabeled x
    ℒ_dif = H(p₁(x), p₂(g₁(x))) + H(p₂(x), p₁(g₂(x)))             on all x
"""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.adversarial import evaluation_mode, fast_gradient_sign, freeze_statistics
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import (
    ClassificationAverage,
    Method,
    MethodSettings,
    StudentLoss,
    Task,
)


class DeepCoTrainingSettings(MethodSettings):
    """The defaults are those of CIFAR-10; each term is a mean over the samples it uses."""

    name: Literal["deep-co-training"] = "deep-co-training"
    cotraining_weight: Weight = Field(
        10.0, description="λ_cot, weight of the agreement of the students"
    )
    difference_weight: Weight = Field(
        0.5, description="λ_dif, weight of the term that keeps the students different"
    )
    epsilon: float = Field(
        0.02, gt=0, lt=0.5, description="change of a value by an attack, as a share of its range"
    )
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )

    @property
    def student_count(self) -> int:
        return 2


@dataclass(frozen=True)
class Outputs:
    """The logits of one student for a batch, with gradient.

    Attributes:
        clean: (B, C), for the images.
        misled: (B, C), for the adversarial images against the other student.
    """

    clean: Tensor
    misled: Tensor


def attack(student: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> Tensor:
    """Make adversarial images against a student in evaluation mode, for the given labels."""
    images = images.detach().requires_grad_()
    with evaluation_mode(student):
        loss = F.cross_entropy(student(images).class_logits, labels, reduction="sum")
        return fast_gradient_sign(loss, images, epsilon)


class DeepCoTraining(Method):
    """Two students that see the same view; only their class heads are used.

    ℒ_cot and ℒ_dif depend on both students. Both are part of each student's loss, with the other
    student as a constant, so that each student receives its part of the gradient once. In ℒ_dif
    that is the gradient through its prediction for clean images and through its prediction for
    the adversarial images against the other student. Adversarial images are constants.

    Batch-norm statistics are updated by the clean images only.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DeepCoTraining([DigitsCNN(), DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)][0]
        ['classification', 'cotraining', 'difference']
    """

    summary = "two students that agree, but are not fooled by the same images"
    Settings = DeepCoTrainingSettings
    settings: DeepCoTrainingSettings
    views = ONE_VIEW
    _value_range: float = 1.0  # of images in [0, 1]

    def begin(self, task: Task) -> None:
        self._value_range = task.value_range

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        (first, second), images = self.students, batch.views[0]
        clean = [student(images).class_logits for student in (first, second)]
        against1, against2 = (
            self._attack(student, batch, logits)
            for student, logits in zip((first, second), clean, strict=True)
        )
        with freeze_statistics(self.students):
            left = Outputs(clean[0], first(against2).class_logits)
            right = Outputs(clean[1], second(against1).class_logits)
        return [
            self._student_loss(left, right, batch, ramp),
            self._student_loss(right, left, batch, ramp),
        ]

    def _attack(self, student: nn.Module, batch: Batch, logits: Tensor) -> Tensor:
        """Attack the labels; where there are none, the classes that the student predicts."""
        labels = torch.where(batch.labels < 0, logits.argmax(dim=1), batch.labels)
        epsilon = self.settings.epsilon * self._value_range
        return attack(student, batch.views[0], labels, epsilon)

    def _student_loss(self, own: Outputs, other: Outputs, batch: Batch, ramp: float) -> StudentLoss:
        settings, unlabeled = self.settings, batch.unlabeled
        guide = other.clean.detach().softmax(dim=1)
        disagreement = losses.jensen_shannon(own.clean, guide)
        difference = F.cross_entropy(own.misled, guide) + F.cross_entropy(
            other.misled.detach(), own.clean.softmax(dim=1)
        )
        return StudentLoss(
            {
                "classification": settings.compute_classification(
                    own.clean, batch.labels, settings.classification_average
                ),
                "cotraining": settings.cotraining_weight
                * ramp
                * (disagreement * unlabeled).sum()
                / unlabeled.sum().clamp(min=1),
                "difference": settings.difference_weight * ramp * difference,
            }
        )
