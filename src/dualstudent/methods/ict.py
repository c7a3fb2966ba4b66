"""ICT: the prediction for a mixture is the mixture of the teacher's predictions.

Verma et al., Interpolation consistency training for semi-supervised learning, IJCAI 2019. With θ′
an average of the student's weights (EMA), z its logits, and λ ~ Beta(α, α) in every step:

    ℒ = ℒ_cls + ω w ℛ(f(θ, λ u₁ + (1 − λ) u₂), softmax(λ z(θ′, u₁) + (1 − λ) z(θ′, u₂)))

ℒ_cls is taken on mixed labeled samples with mixed labels. Mixing logits, and labeled samples too,
is what the authors' program does, which made the published figures. Google's program mixes
probabilities, and unlabeled samples only.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import StudentLoss
from dualstudent.methods.teacher import TeacherMethod, TeacherOptions
from dualstudent.mixing import draw_shares, mix_pairs


class ICTSettings(TeacherOptions):
    """The defaults are those of CIFAR-10 with the 13-layer CNN."""

    name: Literal["ict"] = "ict"
    consistency_weight: Weight = Field(
        100.0, description="w, weight of the agreement with the teacher on mixtures"
    )
    mixup_alpha: float = Field(1.0, gt=0, description="α of the Beta distribution of λ")
    decay: float = Field(
        0.999, ge=0, lt=1, description="of the teacher's weights; smaller in the first steps"
    )


class ICT(TeacherMethod):
    """One student and its teacher; only their class heads are used.

    The student sees only mixtures: of labeled samples with each other, and of unlabeled samples
    with each other, in one pass.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = ICT([DigitsCNN()])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> [sorted(loss.terms) for loss in method.losses(Batch((images,), labels), ramp=1.0)]
        [['classification', 'consistency']]
        >>> method.headline
        ['teacher']
    """

    summary = "ICT: mixtures of samples get mixtures of the teacher's predictions"
    Settings = ICTSettings
    lone_unlabeled = True
    settings: ICTSettings
    views = ONE_VIEW

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        settings = self.settings
        unlabeled, labeled = batch.select_unlabeled(0), batch.views[0][batch.labels >= 0]
        with torch.no_grad():
            logits: Tensor = self.teacher(unlabeled).class_logits
        known = F.one_hot(batch.labels[batch.labels >= 0], logits.shape[1]).to(logits.dtype)
        labeled, known = mix_pairs(self._draw_share(labeled), labeled, known)
        unlabeled, followed = mix_pairs(self._draw_share(unlabeled), unlabeled, logits)
        student: Tensor = self.students[0](torch.cat((labeled, unlabeled))).class_logits
        classified, mixed = student[: len(labeled)], student[len(labeled) :]
        return [
            StudentLoss(
                {
                    "classification": F.cross_entropy(
                        classified, known, label_smoothing=settings.label_smoothing
                    ),
                    "consistency": settings.consistency_weight
                    * ramp
                    * losses.consistency(mixed, followed.softmax(dim=1)),
                }
            )
        ]

    def _draw_share(self, samples: Tensor) -> Tensor:
        """Draw λ, one for all samples."""
        return draw_shares(1, self.settings.mixup_alpha, device=samples.device)
