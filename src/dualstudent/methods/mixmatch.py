"""MixMatch: guessed labels, sharpened, and mixtures of all samples.

Berthelot et al., MixMatch: A holistic approach to semi-supervised learning, NeurIPS 2019. With
x₁, x₂ two weak views of an unlabeled sample:

    q ∝ (½ f(θ, x₁) + ½ f(θ, x₂))^(1/T)

Labeled samples with their labels and both views of the unlabeled ones with q are each mixed with a
random one of them all, (x, y) ← λ′ (x, y) + (1 − λ′) (x̂, ŷ), λ′ = max(λ, 1 − λ), λ ~ Beta(α, α):

    ℒ = mean over labeled of H(y, f(θ, x)) + ω λ_u · mean over unlabeled of ‖q − f(θ, x)‖² / C
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from dualstudent import losses
from dualstudent.adversarial import freeze_statistics
from dualstudent.batch import Batch, Views
from dualstudent.errors import UserError
from dualstudent.methods.consistency import Weight
from dualstudent.methods.method import Method, MethodSettings, StudentLoss
from dualstudent.mixing import draw_shares, mix_pairs


class MixMatchSettings(MethodSettings):
    """The defaults are those of CIFAR-10 in the paper."""

    name: Literal["mixmatch"] = "mixmatch"
    consistency_weight: Weight = Field(
        75.0, description="λ_u, weight of the agreement with the guessed labels"
    )
    temperature: float = Field(0.5, gt=0, description="T, sharpens the guessed labels")
    mixup_alpha: float = Field(0.75, gt=0, description="α of the Beta distribution of λ")


class MixMatch(Method):
    """One student; only its class head is used.

    The labels are guessed in training mode, but batch-norm statistics are updated only in the
    pass over the mixtures, which has gradient.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = MixMatch([DigitsCNN()])
        >>> view1, view2 = torch.rand(4, 1, 28, 28), torch.rand(2, 1, 28, 28)
        >>> batch = Batch((view1, view2), labels=torch.tensor([-1, -1, 3, 7]))
        >>> [sorted(loss.terms) for loss in method.losses(batch, ramp=1.0)]
        [['classification', 'consistency']]
    """

    summary = "MixMatch: sharpened guesses, and mixtures of all samples"
    Settings = MixMatchSettings
    settings: MixMatchSettings
    views = Views(labeled=("weak",), unlabeled=("weak", "weak"))

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        if len(batch) < 2:
            raise UserError(
                "method.name = 'mixmatch' mixes the samples of a batch with each other, but there "
                "is only one; use a batch.size of at least 2 for each process"
            )
        settings, labeled = self.settings, batch.labels >= 0
        views = torch.cat((batch.select_unlabeled(0), batch.select_unlabeled(1)))
        guess = self._guess_labels(views)
        known = F.one_hot(batch.labels[labeled], guess.shape[1]).to(guess.dtype)
        samples = torch.cat((batch.views[0][labeled], views))
        share = draw_shares(len(samples), settings.mixup_alpha, device=samples.device)
        share = torch.maximum(share, 1 - share)  # more of the sample itself than of the other
        mixed, target = mix_pairs(share, samples, torch.cat((known, guess, guess)))
        logits: Tensor = self.students[0](mixed).class_logits
        first, rest = slice(len(known)), slice(len(known), None)
        return [
            StudentLoss(
                {
                    "classification": F.cross_entropy(
                        logits[first], target[first], label_smoothing=settings.label_smoothing
                    ),
                    "consistency": settings.consistency_weight
                    * ramp
                    * losses.consistency(logits[rest], target[rest]),
                }
            )
        ]

    @torch.no_grad()
    def _guess_labels(self, views: Tensor) -> Tensor:
        """Guess the label of n unlabeled samples from (2n, …) views: (n, C), probabilities."""
        with freeze_statistics(self.students[0]):
            first, second = self.students[0](views).class_logits.softmax(dim=1).chunk(2)
        # As logarithms: a power of 1/T would be 0 for every class where T is small.
        sharp: Tensor = ((first + second) / 2).log() / self.settings.temperature
        return sharp.softmax(dim=1)
