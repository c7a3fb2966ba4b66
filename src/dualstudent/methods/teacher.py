"""A teacher: a network whose weights are an average of the student's.

Tarvainen & Valpola, Mean teachers are better role models: Weight-averaged consistency targets
improve semi-supervised deep learning results, NeurIPS 2017.
"""

from collections.abc import Sequence

from pydantic import Field
from torch import nn

from dualstudent.methods.ema import copy_without_gradient, start_up_decay, update_ema
from dualstudent.methods.method import Method, MethodSettings


class TeacherOptions(MethodSettings):
    """The settings of a teacher."""

    decay: float = Field(0.97, ge=0, lt=1, description="α of Eq. 2; smaller in the first steps")


class TeacherMethod(Method):
    """Adds the network ``teacher`` to a method; must come first among the base classes.

    The teacher starts as a copy of the student, receives no gradient, and is updated after each
    step. It runs in training mode, with dropout, and has its own batch-norm statistics.
    """

    settings: TeacherOptions

    def __init__(
        self, students: Sequence[nn.Module], settings: MethodSettings | None = None
    ) -> None:
        super().__init__(students, settings)
        self.teacher = copy_without_gradient(self.students[0])

    def after_step(self, step: int) -> None:
        update_ema(self.teacher, self.students[0], start_up_decay(step, self.settings.decay))

    @property
    def networks(self) -> dict[str, nn.Module]:
        return super().networks | {"teacher": self.teacher}

    @property
    def headline(self) -> list[str]:
        return ["teacher"]
