"""Multiple Student: many students in random pairs, drawn anew in every step.

Ke et al., Dual Student: Breaking the Limits of the Teacher in Semi-supervised Learning,
ICCV 2019, section 4.3. Of 2n students, each step makes n pairs, and each pair learns as Dual
Student does (Eq. 7). All students see the same two views of the same samples.
"""

from typing import Literal

import torch
from pydantic import Field

from dualstudent.batch import Batch
from dualstudent.methods.dual_student import DualStudent, DualStudentOptions
from dualstudent.methods.method import StudentLoss


class MultipleStudentSettings(DualStudentOptions):
    """The settings of Dual Student, and the number of students."""

    name: Literal["multiple-student"] = "multiple-student"
    students: int = Field(4, ge=2, le=64, multiple_of=2, description="2n, an even number")

    @property
    def student_count(self) -> int:
        return self.students


class MultipleStudent(DualStudent):
    """Pairs of students; the pairs, and who has which view, are drawn in every step.

    With two students this is Dual Student with randomly swapped views. Several processes use the
    same pairs, since their gradients are averaged.

    Example:
        >>> from dualstudent.networks import DigitsCNN
        >>> method = MultipleStudent([DigitsCNN() for _ in range(4)])
        >>> images, labels = torch.rand(4, 1, 28, 28), torch.tensor([-1, -1, 3, 7])
        >>> batch = Batch((images, images + 0.1), labels)
        >>> len(method.losses(batch, ramp=1.0))
        4
    """

    summary = "2n students, paired at random anew in every step"
    Settings = MultipleStudentSettings
    settings: MultipleStudentSettings
    _pairs: list[tuple[int, int]] | None = None

    def before_step(self) -> None:
        self._pairs = draw_pairs(len(self.students))

    def losses(self, batch: Batch, ramp: float) -> list[StudentLoss]:
        pairs, self._pairs = self._pairs or draw_pairs(len(self.students)), None
        of_student: dict[int, StudentLoss] = {}
        for first, second in pairs:
            of_student[first], of_student[second] = self.pair_losses(first, second, batch, ramp)
        return [of_student[number] for number in range(len(self.students))]


def draw_pairs(count: int) -> list[tuple[int, int]]:
    """Draw a random pairing of the numbers below ``count`` from the global generator.

    Example:
        >>> sorted(number for pair in draw_pairs(6) for number in pair)
        [0, 1, 2, 3, 4, 5]
    """
    order = torch.randperm(count).tolist()
    return list(zip(order[::2], order[1::2], strict=True))
