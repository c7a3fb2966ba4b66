"""Supervised: the baseline that learns from labeled samples only."""

from typing import Literal

from pydantic import Field

from dualstudent.batch import Batch, Policy, Views
from dualstudent.methods.method import Method, MethodSettings, StudentLoss


class SupervisedSettings(MethodSettings):
    """The batch holds labeled samples only."""

    name: Literal["supervised"] = "supervised"
    students: int = Field(
        1,
        ge=1,
        le=64,
        description="number of students, each on its own; as many as the stage after it has",
    )
    view: Policy = Field("weak", description="which views of the labeled samples to learn from")

    @property
    def student_count(self) -> int:
        return self.students


class Supervised(Method):
    """Cross entropy on the labels only; several students see the same batches."""

    summary = "labeled samples only"
    Settings = SupervisedSettings
    settings: SupervisedSettings
    views = Views(labeled=("weak",), unlabeled=())

    @classmethod
    def choose_views(cls, settings: MethodSettings) -> Views:
        assert isinstance(settings, SupervisedSettings)
        return Views(labeled=(settings.view,), unlabeled=())

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        logits = [student(batch.views[0]).class_logits for student in self.students]
        classify = self.settings.compute_classification
        return [StudentLoss({"classification": classify(each, batch.labels)}) for each in logits]
