"""Self-ensembling for domain adaptation: a Mean Teacher that teaches where it is confident.

French et al., Self-ensembling for visual domain adaptation, ICLR 2018. With p the student's
prediction for one view of a target sample and q the teacher's for another:

    ℒ = ℒ_cls + λ · mean over the target of 1[max q > τ] ‖p − q‖² + λμ · share confident · balance

There is no ramp-up: the teacher says nothing as long as it is unsure. The paper normalizes source
and target apart: set ``network.batch_norm = "by-domain"``.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent import losses
from dualstudent.batch import Batch, Views
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import ClassificationAverage, StudentLoss
from dualstudent.methods.teacher import TeacherMethod, TeacherOptions


class SelfEnsemblingSettings(TeacherOptions):
    """The defaults are those of the authors for small images."""

    name: Literal["self-ensembling"] = "self-ensembling"
    decay: float = Field(0.99, ge=0, lt=1, description="α of Eq. 2; smaller in the first steps")
    consistency_weight: Weight = Field(
        3.0, description="λ, weight of what the student learns from the teacher"
    )
    teacher_threshold: float = Field(
        0.96837722,
        ge=0,
        lt=1,
        description="τ, top probability above which the teacher teaches; always with 0",
    )
    balance_weight: Weight = Field(
        0.0,
        description="μ, weight of equally frequent classes in the target; the authors have 0.005, "
        "and 0 between MNIST and USPS",
    )
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )


class SelfEnsembling(TeacherMethod):
    """One student and its teacher; only the class heads are used.

    The student sees one view of all samples, the teacher another one of the target samples.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = SelfEnsembling([DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images[:2] + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['balance', 'classification', 'consistency']]
    """

    summary = "self-ensembling: an average of past weights teaches the target where confident"
    Settings = SelfEnsemblingSettings
    target_terms = frozenset({"consistency", "balance"})
    lone_unlabeled = True
    thresholds = frozenset({"teacher_threshold"})
    settings: SelfEnsemblingSettings
    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        settings = self.settings
        logits: Tensor = self.students[0](batch.views[0]).class_logits
        shown = batch.select_unlabeled(1)[batch.targets[batch.unlabeled]]
        with torch.no_grad():
            taught: Tensor = self.teacher(shown).class_logits.softmax(dim=1)
        follows = logits[batch.targets]
        confident = (taught.amax(dim=1) > settings.teacher_threshold).float().mean()
        distance = losses.confident_distance(follows, taught, settings.teacher_threshold)
        classification = settings.compute_classification(
            logits, batch.labels, settings.classification_average
        )
        balance = settings.balance_weight * confident * losses.class_balance(follows)
        return [
            StudentLoss(
                {
                    "classification": classification,
                    "consistency": settings.consistency_weight * distance,
                    "balance": settings.consistency_weight * balance,
                }
            )
        ]
