"""VAT: predictions that are robust to the worst small change of the image.

Miyato et al., Virtual adversarial training: a regularization method for supervised and
semi-supervised learning, TPAMI 2018. With p the student's probabilities:

    ℒ = ℒ_cls + ω (λ KL(p(x) ‖ p(x + r)) + μ H(p(x))),  r = argmax KL(p(x) ‖ p(x + r)), ‖r‖ = ε
"""

import math
from contextlib import nullcontext
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent import losses
from dualstudent.adversarial import RepeatedDropout, freeze_statistics, virtual_adversarial
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


class VATSettings(MethodSettings):
    """The defaults are those of CIFAR-10 with augmentation, except for the finite difference.

    The original's ξ = 10⁻⁶ is lost in the rounding of float32: a normalized pixel near 1 has a
    precision of 6 · 10⁻⁸ and would change by about 2 · 10⁻⁸. Mean cosine with the exact H d
    before training and after 20 and 200 steps, on digits of 8 × 8 and 28 × 28 pixels: 0.0 to 0.3
    for 10⁻⁶, at least 0.987 for 10⁻³, at least 0.997 for 10⁻² and 0.95 to 0.99 for 10⁻¹.

    The original's ε = 8 is a length on ZCA-whitened images, which this library does not have;
    after normalization by channels the same length is another change of the image.
    """

    name: Literal["vat"] = "vat"
    adversarial_weight: Weight = Field(
        1.0, description="λ, weight of the agreement with the image changed by r"
    )
    epsilon: float = Field(8.0, gt=0, description="ε, length of r on normalized images")
    finite_difference: float = Field(1e-2, gt=0, description="ξ, step of the search for r")
    power_iterations: int = Field(1, ge=1, description="steps of the search for r")
    entropy_weight: Weight = Field(0.0, description="μ, weight of entropy minimization")
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )


class VAT(Method):
    """One student; only its class head is used, on all samples, labeled or not.

    As in the authors' program, ℒ_cls has a pass of its own over the labeled samples, and only
    this pass updates batch-norm statistics. All passes over x and x + r have the same dropout.
    p(x) and r are constants.

    Example:
        >>> import torch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = VAT([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['adversarial', 'classification']]
    """

    summary = "virtual adversarial training, optionally with entropy minimization"
    Settings = VATSettings
    settings: VATSettings
    views = ONE_VIEW

    def begin(self, task: Task) -> None:
        limit = 0.5 * task.value_range * math.sqrt(math.prod(task.image_shape))
        if self.settings.epsilon >= limit:
            raise UserError(
                f"method.epsilon = {self.settings.epsilon:g}: could move every value of an image "
                f"by half of its range; for these images use less than {limit:.4g}"
            )

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        settings, images = self.settings, batch.views[0]
        student = RepeatedDropout(self.students[0])
        with freeze_statistics(student):
            with nullcontext() if settings.entropy_weight else torch.no_grad():
                clean: Tensor = student(images).class_logits
            change = virtual_adversarial(
                student,
                images,
                settings.epsilon,
                settings.finite_difference,
                settings.power_iterations,
            )
            changed: Prediction = student(images + change)
        terms = {
            "classification": settings.compute_classification(
                self._classify_labeled(batch, clean), batch.labels, settings.classification_average
            ),
            "adversarial": settings.adversarial_weight
            * ramp
            * losses.consistency(changed.class_logits, clean.softmax(dim=1), losses.kl),
        }
        if settings.entropy_weight:
            terms["entropy"] = settings.entropy_weight * ramp * losses.entropy(clean).mean()
        return [StudentLoss(terms)]

    def _classify_labeled(self, batch: Batch, clean: Tensor) -> Tensor:
        """(B, C): the logits of a pass over the labeled samples alone; 0 for the others."""
        rows = (batch.labels >= 0).nonzero().flatten()
        logits = torch.zeros_like(clean)
        if not len(rows):
            return logits
        prediction: Prediction = self.students[0](batch.views[0][rows])
        return logits.index_copy(0, rows, prediction.class_logits.to(logits.dtype))
