"""Dual Student with Mean Teacher: each student follows an average of its own past weights.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, with Tarvainen & Valpola, Mean teachers are better role models, NeurIPS 2017, for the
consistency inside each student. In Eq. 7, for student i with its own view x₁ and the other x₂:

    ℒⁱ_con = ℛ(f(θⁱ, x₁), 𝒯ₓ),  𝒯ₓ = f(θ′ⁱ, x₂),  θ′ⁱₜ = α θ′ⁱₜ₋₁ + (1 − α) θⁱₜ
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from dualstudent.methods.dual_student import DualStudent, DualStudentOptions
from dualstudent.methods.ema import copy_without_gradient, start_up_decay, update_ema
from dualstudent.methods.mean_teacher import MeanTeacherOptions
from dualstudent.methods.method import MethodSettings
from dualstudent.methods.pair import TwoPasses


class DualStudentMeanTeacherSettings(DualStudentOptions, MeanTeacherOptions):
    """The settings of Dual Student and the decay of Mean Teacher."""

    name: Literal["dual-student+mean-teacher"] = "dual-student+mean-teacher"


@dataclass(frozen=True)
class TaughtPasses(TwoPasses):
    """The outputs of one student and its teacher for a batch.

    Attributes:
        teacher_class_logits: (B, C), the teacher's output for the other view; a constant.
    """

    teacher_class_logits: Tensor

    @property
    def target(self) -> Tensor:
        return self.teacher_class_logits.softmax(dim=1)


class DualStudentMeanTeacher(DualStudent):
    """Dual Student where a teacher gives the target of ℒ_con; stability is that of the student.

    Each teacher starts as a copy of its student, receives no gradient, and is updated after
    each step. It runs in training mode, with dropout, on the other view of its student, and
    has its own batch-norm statistics.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = DualStudentMeanTeacher([DigitsCNN(), DigitsCNN()])
        >>> list(method.evaluated), method.headline
        (['student1', 'student2', 'teacher1', 'teacher2'], ['student1', 'student2'])
    """

    summary = "Dual Student with a Mean Teacher inside each student"
    Settings = DualStudentMeanTeacherSettings
    settings: DualStudentMeanTeacherSettings

    def __init__(
        self, students: Sequence[nn.Module], settings: MethodSettings | None = None
    ) -> None:
        super().__init__(students, settings)
        self.teachers = nn.ModuleList(copy_without_gradient(student) for student in self.students)

    def run_passes(self, number: int, own_view: Tensor, other_view: Tensor) -> TwoPasses:
        student = super().run_passes(number, own_view, other_view)
        with torch.no_grad():
            teacher = self.teachers[number](other_view)
        return TaughtPasses(student.own, student.other_class_logits, teacher.class_logits)

    def after_step(self, step: int) -> None:
        decay = start_up_decay(step, self.settings.decay)
        for teacher, student in zip(self.teachers, self.students, strict=True):
            update_ema(teacher, student, decay)

    @property
    def networks(self) -> dict[str, nn.Module]:
        teachers = {f"teacher{i}": teacher for i, teacher in enumerate(self.teachers, start=1)}
        return super().networks | teachers

    @property
    def headline(self) -> list[str]:
        return list(super().networks)
