"""Mean Teacher: a student that follows an average of its own past weights.

Tarvainen & Valpola, Mean teachers are better role models: Weight-averaged consistency targets
improve semi-supervised deep learning results, NeurIPS 2017. With x₁ and x₂ the two views of x:

    ℛ(f(θ, x₁), 𝒯ₓ),  𝒯ₓ = f(θ′, x₂),  θ′ₜ = α θ′ₜ₋₁ + (1 − α) θₜ   (Eq. 1 and Eq. 2)
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor

from dualstudent.batch import Batch
from dualstudent.methods.consistency import ConsistencyMethod, ConsistencySettings
from dualstudent.methods.teacher import TeacherMethod, TeacherOptions
from dualstudent.prediction import Prediction


class MeanTeacherOptions(TeacherOptions, ConsistencySettings):
    """The settings of Mean Teacher and the methods built on it."""


class MeanTeacherSettings(MeanTeacherOptions):
    """The defaults are those of CIFAR-10 with the 13-layer CNN."""

    name: Literal["mean-teacher"] = "mean-teacher"


class MeanTeacher(TeacherMethod, ConsistencyMethod):
    """The student's consistency head on view 1 follows the teacher's class head on view 2.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = MeanTeacher([DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'consistency', 'logit_distance']]
        >>> method.headline
        ['teacher']
    """

    summary = "Mean Teacher: follows an average of its past weights"
    Settings: ClassVar[type[MeanTeacherOptions]] = MeanTeacherSettings
    settings: MeanTeacherOptions

    @torch.no_grad()
    def target(self, batch: Batch, prediction: Prediction) -> Tensor:
        by_teacher: Prediction = self.teacher(batch.views[1])
        return by_teacher.class_logits.softmax(dim=1)
