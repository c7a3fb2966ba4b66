"""Temporal Ensembling: a student that follows an average of its own past predictions.

Laine & Aila, Temporal ensembling for semi-supervised learning, ICLR 2017. With p the prediction
for sample x in the t-th epoch that contains x:

    Zₜ = α Zₜ₋₁ + (1 − α) p,  Z₀ = 0,  𝒯ₓ = Zₜ / (1 − αᵗ)

The division corrects the bias of the start at 0.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.methods.consistency import ConsistencyMethod, ConsistencySettings, Weight
from dualstudent.methods.memory import write_rows
from dualstudent.methods.method import ClassificationAverage, Task
from dualstudent.prediction import Prediction

_ROWS_AT_A_TIME = 65536


class TemporalOptions(ConsistencySettings):
    """The settings of Temporal Ensembling and the methods built on it.

    The weight is that of CIFAR-10. The original writes 30 · M/N for M labels of N samples, draws
    its batches from all N and divides both losses by the batch size, so that ℒ_cls has a share
    M/N, too. In relation to ℒ_cls of the labeled samples, the weight is 30 for any M.
    """

    consistency_weight: Weight = Field(
        30.0, description="λ, weight of the agreement with the average of predictions (ℒ_con)"
    )
    classification_average: ClassificationAverage = Field(
        "labeled", description="average the cross entropy over the batch or its labeled samples"
    )
    decay: float = Field(0.6, ge=0, lt=1, description="α, decay of the average of predictions")


class TemporalEnsemblingSettings(TemporalOptions):
    """Temporal Ensembling has no settings beside those that it shares."""

    name: Literal["temporal"] = "temporal"


class TemporalEnsembling(ConsistencyMethod):
    """The consistency head follows the average of the class head's predictions in past epochs.

    If a sample occurs several times in an epoch, as labeled samples do, its last prediction
    counts. A sample without past predictions is its own target, so that its distance is 0.

    There is one pass a step, in training mode. The method stores 4·C + 5 bytes per sample:
    the average and the predictions of the current epoch, in half precision; it computes in
    single precision. The average is stored divided by 1 − αᵗ, as probabilities.

    Attributes:
        average: (N, C) float16, 𝒯 of every sample.
        weight: (N,) float32, 1 − αᵗ; 0 for a sample without past predictions.
        latest: (N, C) float16, the last predictions of this epoch.
        answered: (N,) bool, whether a sample has a prediction in this epoch.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = TemporalEnsembling([DigitsCNN()])
        >>> method.begin(Task(1, samples=4, classes=10, image_shape=(1, 28, 28), value_range=1))
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images), labels)
        >>> method.losses(batch, ramp=1.0)[0].terms["consistency"].item()
        0.0
        >>> method.after_epoch(0, [])
        >>> bool(method.losses(batch, ramp=1.0)[0].terms["consistency"] > 0)
        True
    """

    summary = "Temporal Ensembling: follows an average of its past predictions"
    Settings: ClassVar[type[TemporalOptions]] = TemporalEnsemblingSettings
    views = ONE_VIEW
    settings: TemporalOptions
    average: Tensor
    weight: Tensor
    latest: Tensor
    answered: Tensor

    def begin(self, task: Task) -> None:
        shape = (task.samples, task.classes)
        self.register_buffer("average", torch.zeros(shape, dtype=torch.float16))
        self.register_buffer("weight", torch.zeros(task.samples))
        self.register_buffer("latest", torch.zeros(shape, dtype=torch.float16))
        self.register_buffer("answered", torch.zeros(task.samples, dtype=torch.bool))

    def target(self, batch: Batch, prediction: Prediction) -> Tensor:
        own = prediction.consistency_logits.detach().softmax(dim=1)
        has_past = self.weight[batch.indices] > 0
        return torch.where(has_past[:, None], self.average[batch.indices].to(own.dtype), own)

    def outputs(self, batch: Batch) -> tuple[Prediction, Tensor]:
        prediction, target = super().outputs(batch)
        probabilities = prediction.class_logits.detach().softmax(dim=1)
        write_rows(self.latest, batch.indices, probabilities)
        self.answered.index_fill_(0, batch.indices, True)
        return prediction, target

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        decay = self.settings.decay
        grown = decay * self.weight + (1 - decay)
        self.weight.copy_(torch.where(self.answered, grown, self.weight))
        # 𝒯ₜ = 𝒯ₜ₋₁ + (1 − α)/(1 − αᵗ) · (p − 𝒯ₜ₋₁) gives the same average without Z.
        share = torch.where(self.answered, (1 - decay) / self.weight, 0.0)
        for start in range(0, len(share), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            old, latest = self.average[rows].float(), self.latest[rows].float()
            self.average[rows] = old.lerp(latest, share[rows, None])
        self.answered.zero_()
