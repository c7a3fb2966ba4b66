"""Supervised: the baseline that learns from labeled samples only."""

from typing import Literal

from pydantic import Field

from dualstudent.batch import Batch, Views
from dualstudent.methods.method import Method, MethodSettings, StudentLoss


class SupervisedSettings(MethodSettings):
    """The batch holds labeled samples only."""

    name: Literal["supervised"] = "supervised"
    confidence_threshold: float = Field(
        0.8, ge=0, lt=1, description="ξ of Eq. 3, above which predictions are reported as stable"
    )


class Supervised(Method):
    """Cross entropy on the labels only."""

    summary = "labeled samples only"
    Settings = SupervisedSettings
    settings: SupervisedSettings
    views = Views(labeled=("weak",), unlabeled=())

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        prediction = self.students[0](batch.views[0])
        loss = self.settings.compute_classification(prediction.class_logits, batch.labels)
        return [StudentLoss({"classification": loss})]

    @property
    def confidence_threshold(self) -> float:
        return self.settings.confidence_threshold
