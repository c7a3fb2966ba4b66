"""FastSWA: the mean of the weights that a student passes through late in training.

Athiwaratkun et al., There are many consistent explanations of unlabeled data: Why you should
average, ICLR 2019. Added to a method with one student of weights θ, with θₑ after epoch e:

    θ̄ = mean of θₑ for e = from, from + every, from + 2 · every, …

The learning rate goes in cycles meanwhile, so that the student visits different solutions: on
CIFAR-10 ``schedule.cosine_epochs`` = 210, ``cycle_from`` = 150 and ``cycle_length`` = 30.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn

from dualstudent.batch import Batch
from dualstudent.errors import UserError
from dualstudent.methods.mean_teacher import MeanTeacher, MeanTeacherOptions
from dualstudent.methods.method import Method, MethodSettings, Task
from dualstudent.methods.pi import PiModel, PiOptions


class AverageOptions(MethodSettings):
    """What the addition adds to the settings of the method it is added to."""

    average_from: int = Field(150, ge=1, description="the first epoch that counts, from 1")
    average_every: int = Field(3, ge=1, description="epochs between those that count")


class FastSWA(Method):
    """Adds the network ``average``; to be named before the method that it is added to.

    Until the first epoch that counts, the average is the student as it is. Parameters are
    averaged as they are stored: of a layer with weight normalization, direction and length
    each. Batch-norm statistics belong to weights and cannot be averaged with them: they are
    computed afresh for every new average, as the mean over the batches of the epoch, in a pass
    over view 1 without gradient and in training mode, dropout included.
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
            update_bn((batch.views[0] for batch in batches), self.average)

    @property
    def networks(self) -> dict[str, nn.Module]:
        return super().networks | {"average": self.average.module}

    @property
    def headline(self) -> list[str]:
        return ["average"]


class PiFastSWASettings(AverageOptions, PiOptions):
    """Those of the Π Model and those of the average."""

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
    """Those of Mean Teacher and those of the average."""

    name: Literal["mean-teacher+fastswa"] = "mean-teacher+fastswa"


class MeanTeacherFastSWA(FastSWA, MeanTeacher):
    """Mean Teacher with FastSWA: the average is that of the student, not of the teacher."""

    summary = "Mean Teacher and the mean of late weights"
    Settings = MeanTeacherFastSWASettings
    settings: MeanTeacherFastSWASettings
