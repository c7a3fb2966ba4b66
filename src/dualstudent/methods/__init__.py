"""Methods: each is one file, named as the paper names it."""

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from dualstudent.methods.dual_student import DualStudent, DualStudentSettings
from dualstudent.methods.method import Method, MethodSettings, StudentLoss, Task
from dualstudent.methods.supervised import Supervised, SupervisedSettings

METHODS: tuple[type[Method], ...] = (Supervised, DualStudent)

if TYPE_CHECKING:
    AnyMethodSettings = MethodSettings
else:  # told apart by their name
    AnyMethodSettings = Annotated[
        Union[tuple(method.Settings for method in METHODS)],  # noqa: UP007
        Field(discriminator="name"),
    ]

__all__ = [
    "METHODS",
    "AnyMethodSettings",
    "DualStudent",
    "DualStudentSettings",
    "Method",
    "MethodSettings",
    "StudentLoss",
    "Supervised",
    "SupervisedSettings",
    "Task",
]
