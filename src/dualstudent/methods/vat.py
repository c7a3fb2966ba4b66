"""VAT: predictions that are robust to the worst small change of the image.

Miyato et al., Virtual adversarial training: a regularization method for supervised and
semi-supervised learning, TPAMI 2018. With p the student's probabilities:

    ℒ = ℒ_cls + ω (λ KL(p(x) ‖ p(x + r)) + μ H(p(x))),  r = argmax KL(p(x) ‖ p(x + r)), ‖r‖ = ε
"""

import math
from typing import Literal

from pydantic import Field

from dualstudent import losses
from dualstudent.adversarial import freeze_statistics, virtual_adversarial
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
    precision of 6 · 10⁻⁸ and would change by about 2 · 10⁻⁸. Measured early in training, the
    mean cosine with the exact H d is 0.0 to 0.35 for 10⁻⁶, at least 0.98 for 10⁻³ and 10⁻², and
    0.87 to 0.99 for 10⁻¹ (lowest on 8 × 8 images). With convolutions in simulated TF32, the
    default on GPUs, only 10⁻¹ keeps its cosine; 10⁻² falls to 0.3 on larger images. The KL along
    a direction found with 10⁻⁶ is often nearly as large.
    """

    name: Literal["vat"] = "vat"
    adversarial_weight: Weight = Field(
        1.0, description="λ, weight of the agreement with the image changed by r"
    )
    epsilon: float = Field(8.0, gt=0, description="ε, length of r on normalized images")
    finite_difference: float = Field(0.1, gt=0, description="ξ, step of the search for r")
    power_iterations: int = Field(1, ge=1, description="steps of the search for r")
    entropy_weight: Weight = Field(0.0, description="μ, weight of entropy minimization")
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )


class VAT(Method):
    """One student; only its class head is used, on all samples, labeled or not.

    Batch-norm statistics are updated in the pass over x only, neither in the search for r nor
    in the pass over x + r. p(x) and r are constants. Dropout is active in both passes of the
    loss and off in the search.

    Example:
        >>> import torch
        >>> from dualstudent.networks import DigitsCNN
        >>> method = VAT([DigitsCNN()])
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
        student, settings = self.students[0], self.settings
        logits = student(batch.views[0]).class_logits
        change = virtual_adversarial(
            student,
            batch.views[0],
            settings.epsilon,
            settings.finite_difference,
            settings.power_iterations,
        )
        with freeze_statistics(student):
            changed: Prediction = student(batch.views[0] + change)
        terms = {
            "classification": settings.compute_classification(
                logits, batch.labels, settings.classification_average
            ),
            "adversarial": settings.adversarial_weight
            * ramp
            * losses.consistency(changed.class_logits, logits.softmax(dim=1), losses.kl),
        }
        if settings.entropy_weight:
            terms["entropy"] = settings.entropy_weight * ramp * losses.entropy(logits).mean()
        return [StudentLoss(terms)]
