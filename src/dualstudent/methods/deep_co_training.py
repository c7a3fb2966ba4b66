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
from dualstudent.adversarial import fast_gradient_sign, freeze_statistics
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.errors import UserError
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import (
    ClassificationAverage,
    Method,
    MethodSettings,
    StudentLoss,
    Task,
)
from dualstudent.prediction import Prediction


class DeepCoTrainingSettings(MethodSettings):
    """The defaults are those of CIFAR-10; each term is a mean over the samples it uses."""

    name: Literal["deep-co-training"] = "deep-co-training"
    cotraining_weight: Weight = Field(
        10.0, description="λ_cot, weight of the agreement of the students"
    )
    difference_weight: Weight = Field(
        0.5, description="λ_dif, weight of the term that keeps the students different"
    )
    epsilon: float = Field(0.02, gt=0, description="change of a normalized value by an attack")
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )

    @property
    def student_count(self) -> int:
        return 2


@dataclass(frozen=True)
class View:
    """The outputs of one student for a batch, called its view in co-training.

    Attributes:
        class_logits: (B, C), with gradient.
        probabilities: (B, C), their softmax; a constant.
        adversarial: (B, …), adversarial images against this student.
    """

    class_logits: Tensor
    probabilities: Tensor
    adversarial: Tensor


def predict_and_attack(student: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> View:
    """Run a student on images and attack its prediction: the label if known, else its own."""
    images = images.detach().requires_grad_()
    prediction: Prediction = student(images)
    logits = prediction.class_logits
    labels = torch.where(labels < 0, logits.argmax(dim=1), labels)
    attacked = F.cross_entropy(logits, labels, reduction="sum")
    adversarial = fast_gradient_sign(attacked, images, epsilon)
    return View(logits, logits.detach().softmax(dim=1), adversarial)


class DeepCoTraining(Method):
    """Two students that see the same view; only their class heads are used.

    ℒ_cot is a divergence between both students. It is part of each student's loss, with the
    other student as a constant, so that each student receives its part of the gradient once.
    In ℒ_dif the clean prediction and the adversarial example are constants.

    The attack reuses the pass over the clean images, with its dropout and batch statistics.
    Batch-norm statistics are updated in that pass only, not on adversarial examples.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DeepCoTraining([DigitsCNN(), DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)][0]
        ['classification', 'cotraining', 'difference']
    """

    summary = "two students that agree, but are not fooled by the same images"
    Settings = DeepCoTrainingSettings
    settings: DeepCoTrainingSettings
    views = ONE_VIEW

    def begin(self, task: Task) -> None:
        limit = task.value_range / 2
        if self.settings.epsilon >= limit:
            raise UserError(
                f"method.epsilon = {self.settings.epsilon:g}: moves every value of an image by "
                f"half of its range; for these images use less than {limit:.4g}"
            )

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        first, second = self.students
        epsilon = self.settings.epsilon
        view1 = predict_and_attack(first, batch.views[0], batch.labels, epsilon)
        view2 = predict_and_attack(second, batch.views[0], batch.labels, epsilon)
        return [
            self._student_loss(first, view1, view2, batch, ramp),
            self._student_loss(second, view2, view1, batch, ramp),
        ]

    def _student_loss(
        self, student: nn.Module, own: View, other: View, batch: Batch, ramp: float
    ) -> StudentLoss:
        settings, unlabeled = self.settings, batch.unlabeled
        with freeze_statistics(student):
            misled: Prediction = student(other.adversarial)
        disagreement = losses.jensen_shannon(own.class_logits, other.probabilities)
        return StudentLoss(
            {
                "classification": settings.compute_classification(
                    own.class_logits, batch.labels, settings.classification_average
                ),
                "cotraining": settings.cotraining_weight
                * ramp
                * (disagreement * unlabeled).sum()
                / unlabeled.sum().clamp(min=1),
                "difference": settings.difference_weight
                * ramp
                * F.cross_entropy(misled.class_logits, other.probabilities),
            }
        )
