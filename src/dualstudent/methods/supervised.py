"""Supervised: the baseline that learns from labeled samples only."""

from collections.abc import Sequence
from typing import Literal

from torch import nn

from dualstudent.batch import Batch
from dualstudent.losses import classification
from dualstudent.methods.method import Method, MethodSettings, StudentLoss


class SupervisedSettings(MethodSettings):
    """Nothing to set: the batch holds labeled samples only."""

    name: Literal["supervised"] = "supervised"


class Supervised(Method):
    """Cross entropy on the labels, and nothing else."""

    summary = "labeled samples only"
    Settings = SupervisedSettings
    learns_from_unlabeled = False
    views = 1

    def __init__(
        self, students: Sequence[nn.Module], settings: SupervisedSettings | None = None
    ) -> None:
        super().__init__(students, settings or SupervisedSettings())

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        prediction = self.students[0](batch.view1)
        return [
            StudentLoss({"classification": classification(prediction.class_logits, batch.labels)})
        ]
