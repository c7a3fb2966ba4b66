"""Temporal Ensembling: a student that follows the average of its own past answers.

Laine & Aila, Temporal ensembling for semi-supervised learning, ICLR 2017. After each epoch in
which the student answered p for sample x, for the t-th such epoch of x:

    Zₜ = α Zₜ₋₁ + (1 − α) p,  Z₀ = 0,  𝒯ₓ = Zₜ / (1 − αᵗ)

The division makes up for the start from 0.
"""

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from dualstudent.batch import ONE_VIEW, Batch
from dualstudent.methods.consistency import ConsistencyMethod, ConsistencySettings
from dualstudent.methods.method import Task
from dualstudent.prediction import Prediction

_ROWS_AT_A_TIME = 65536


class TemporalOptions(ConsistencySettings):
    """What can be set of Temporal Ensembling, alone or as part of another method."""

    decay: float = Field(0.6, ge=0, lt=1, description="α of the average of predictions")


class TemporalEnsemblingSettings(TemporalOptions):
    """The weight belongs to CIFAR-10."""

    name: Literal["temporal"] = "temporal"


class TemporalEnsembling(ConsistencyMethod):
    """The consistency head follows the average of what the class head said in past epochs.

    An epoch counts for a sample if the sample was in it; of several answers within one epoch,
    as labeled samples get, the latest counts. A sample without a past has no target: it is
    given its own prediction, from which its distance is 0.

    There is one pass a step, in training mode. What is remembered are 4·C + 5 bytes a sample:
    the average, and the answers of the running epoch, in half precision, with which the
    arithmetic is not done. The average is kept divided by 1 − αᵗ, so that it is a probability
    whatever α is.

    Attributes:
        average: (N, C) float16, 𝒯 of every sample.
        weight: (N,) float32, 1 − αᵗ; 0 for a sample without a past.
        latest: (N, C) float16, the latest answers of this epoch.
        answered: (N,) bool, whether there is one.

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

    summary = "Temporal Ensembling: follows an average of its past answers"
    Settings: ClassVar[type[TemporalOptions]] = TemporalEnsemblingSettings
    views = ONE_VIEW
    remembers_samples = True
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
        answers = prediction.class_logits.detach().softmax(dim=1)
        # Equal indices write equal values, so that the order of writing does not matter.
        latest = answers[_find_last_occurrences(batch.indices)].to(torch.float16)
        self.latest.index_copy_(0, batch.indices, latest)
        self.answered.index_fill_(0, batch.indices, True)
        return prediction, target

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        decay = self.settings.decay
        grown = decay * self.weight + (1 - decay)
        self.weight.copy_(torch.where(self.answered, grown, self.weight))
        # 𝒯ₜ = 𝒯ₜ₋₁ + (1 − α)/(1 − αᵗ) · (p − 𝒯ₜ₋₁) is the average without the detour over Z.
        share = torch.where(self.answered, (1 - decay) / self.weight, 0.0)
        for start in range(0, len(share), _ROWS_AT_A_TIME):
            rows = slice(start, start + _ROWS_AT_A_TIME)
            old, latest = self.average[rows].float(), self.latest[rows].float()
            self.average[rows] = old.lerp(latest, share[rows, None])
        self.answered.zero_()


def _find_last_occurrences(indices: Tensor) -> Tensor:
    """The position of the last entry equal to each entry.

    Example:
        >>> _find_last_occurrences(torch.tensor([7, 3, 7])).tolist()
        [2, 1, 2]
    """
    positions = torch.arange(len(indices), device=indices.device)
    equal = indices[:, None] == indices
    return (equal * positions).amax(dim=1)
