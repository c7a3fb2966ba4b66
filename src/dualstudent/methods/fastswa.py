"""FastSWA: the mean of a student's weights over late epochs.

Athiwaratkun et al., There are many consistent explanations of unlabeled data: Why you should
average, ICLR 2019. It extends a method with one student, whose weights are θₑ after epoch e:

    θ̄ = mean of θₑ for e = from, from + every, from + 2 · every, …

The learning rate is cyclic meanwhile, so that the student visits different solutions: on
CIFAR-10 ``schedule.cosine_epochs`` = 210, ``cycle_from`` = 150 and ``cycle_length`` = 30.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim.swa_utils import AveragedModel, update_bn

from dualstudent.batch import Batch
from dualstudent.errors import UserError
from dualstudent.methods.mean_teacher import MeanTeacher, MeanTeacherOptions
from dualstudent.methods.method import Method, MethodSettings, Task
from dualstudent.methods.pi import PiModel, PiOptions


class AverageOptions(MethodSettings):
    """The settings that FastSWA adds to a method."""

    average_from: int = Field(150, ge=1, description="first epoch to average, counted from 1")
    average_every: int = Field(3, ge=1, description="average every so many epochs from then on")


class FastSWA(Method):
    """Adds the network ``average`` to a method; must come first among the base classes.

    Before ``average_from``, the average is a copy of the student. Parameters are averaged as
    stored: with weight normalization, direction and length separately. Batch-norm statistics
    cannot be averaged: they are computed anew for every average, as the mean over the batches
    of the epoch, in a pass over view 1 without gradient and in training mode, with dropout.
    """

    settings: AverageOptions

    def __init__(
        self, students: Sequence[nn.Module], settings: MethodSettings | None = None
    ) -> None:
        super().__init__(students, settings)
        self.average = AveragedModel(self.students[0]).requires_grad_(False)

    def begin(self, task: Task) -> None:
        super().begin(task)
        if self.settings.average_from >= task.epochs:
            raise UserError(
                f"method.average_from = {self.settings.average_from}: there would be nothing to "
                f"average; use less than schedule.epochs = {task.epochs}"
            )

    def after_epoch(self, epoch: int, batches: Iterable[Batch]) -> None:
        super().after_epoch(epoch, batches)
        student, since = self.students[0], epoch + 1 - self.settings.average_from
        if since < 0:
            self.average.module.load_state_dict(student.state_dict())
        elif since % self.settings.average_every == 0:
            self.average.update_parameters(student)
            norms = [each for each in self.average.modules() if isinstance(each, _BatchNorm)]
            if any(norm.track_running_stats for norm in norms):  # frozen ones are the student's
                update_bn((batch.views[0] for batch in batches), self.average)

    @property
    def networks(self) -> dict[str, nn.Module]:
        return super().networks | {"average": self.average.module}

    @property
    def headline(self) -> list[str]:
        return ["average"]


class PiFastSWASettings(AverageOptions, PiOptions):
    """The settings of the Π Model and of the average."""

    name: Literal["pi+fastswa"] = "pi+fastswa"


class PiFastSWA(FastSWA, PiModel):
    """Π Model with FastSWA.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> sorted(PiFastSWA([DigitsCNN()]).evaluated)
        ['average', 'student']
    """

    summary = "Π Model and the mean of late weights"
    Settings = PiFastSWASettings
    settings: PiFastSWASettings


class MeanTeacherFastSWASettings(AverageOptions, MeanTeacherOptions):
    """The settings of Mean Teacher and of the average."""

    name: Literal["mean-teacher+fastswa"] = "mean-teacher+fastswa"


class MeanTeacherFastSWA(FastSWA, MeanTeacher):
    """Mean Teacher with FastSWA, which averages the student, not the teacher."""

    summary = "Mean Teacher and the mean of late weights"
    Settings = MeanTeacherFastSWASettings
    settings: MeanTeacherFastSWASettings
