"""Schedules of the learning rate and of the ramp of the unsupervised terms.

Each schedule gives a factor of the learning rate; a linear warm-up can come before any of them.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dualstudent.settings import Settings

CosineEpochs = Annotated[
    int | None,
    Field(
        gt=0,
        validate_default=True,
        description="after how many epochs the learning rate would be 0; default: epochs",
    ),
]


def cosine(progress: float) -> float:
    """½(1 + cos(π · progress)): from 1 at progress 0 to 0 at progress 1.

    Example:
        >>> [round(cosine(progress), 3) for progress in (0, 0.5, 1)]
        [1.0, 0.5, 0.0]
    """
    return 0.5 * (1 + math.cos(math.pi * progress))


def rampup(epoch: float, length: float) -> float:
    """exp(−5 (1 − epoch/length)²) until ``length``, then 1.

    Example:
        >>> [round(rampup(epoch, 5), 4) for epoch in (0, 4, 5, 9)]
        [0.0067, 0.8187, 1.0, 1.0]
    """
    return 1.0 if epoch >= length else math.exp(-5 * (1 - epoch / length) ** 2)


class ScheduleSettings(Settings):
    """The settings that all schedules share: length, ramp of the loss terms, and warm-up."""

    name: str
    epochs: int = Field(gt=0)
    rampup_epochs: float = Field(5, ge=0, description="epochs until λ₁ and λ₂ reach their value")
    warmup_epochs: float = Field(0, ge=0, description="epochs of linear warm-up")
    warmup_from: float | None = Field(
        None, ge=0, validate_default=True, description="learning rate at the start of the warm-up"
    )

    # Validators skip keys that are missing in info.data: these are invalid and already reported.

    @field_validator("warmup_from")
    @classmethod
    def _check_warmup(cls, start: float | None, info: ValidationInfo) -> float | None:
        if "warmup_epochs" in info.data and (start is None) != (info.data["warmup_epochs"] == 0):
            raise PydanticCustomError("warmup", "goes with warmup_epochs; set both or neither")
        return start

    @abstractmethod
    def decay(self, step: int, steps_per_epoch: int) -> float:
        """Return the factor of the learning rate at ``step``, counted from 0; in [0, 1]."""


class ConstantSchedule(ScheduleSettings):
    """A constant learning rate."""

    name: Literal["constant"] = "constant"

    def decay(self, step: int, steps_per_epoch: int) -> float:
        return 1.0


class CosineSchedule(ScheduleSettings):
    """½(1 + cos(π t/N)) at step t; N may be longer than the training."""

    name: Literal["cosine"] = "cosine"
    cosine_epochs: CosineEpochs = None

    @field_validator("cosine_epochs")
    @classmethod
    def _check_cosine_epochs(cls, cosine_epochs: int | None, info: ValidationInfo) -> int | None:
        if "epochs" in info.data:
            epochs = info.data["epochs"]
            _check_length(cosine_epochs or epochs, epochs, "epochs")
        return cosine_epochs

    def decay(self, step: int, steps_per_epoch: int) -> float:
        return cosine(step / ((self.cosine_epochs or self.epochs) * steps_per_epoch))


class CosineFractionSchedule(ScheduleSettings):
    """cos(π f t/N) at step t of N, with a fraction f up to ½: 7/16 in FixMatch."""

    name: Literal["cosine-fraction"] = "cosine-fraction"
    fraction: float = Field(7 / 16, gt=0, le=0.5, description="f, the fraction of π to run through")

    def decay(self, step: int, steps_per_epoch: int) -> float:
        return math.cos(math.pi * self.fraction * step / (self.epochs * steps_per_epoch))


class CyclicSchedule(ScheduleSettings):
    """A cosine whose last part is repeated, as FastSWA needs it."""

    name: Literal["cyclic"] = "cyclic"
    cycle_from: int = Field(ge=0, description="epochs before the first cycle")
    cycle_length: int = Field(gt=0, description="epochs per cycle")
    cosine_epochs: CosineEpochs = None

    @field_validator("cosine_epochs")
    @classmethod
    def _check_cosine_epochs(cls, cosine_epochs: int | None, info: ValidationInfo) -> int | None:
        if {"epochs", "cycle_from", "cycle_length"} <= info.data.keys():
            needed = info.data["cycle_from"] + info.data["cycle_length"]
            length = cosine_epochs or info.data["epochs"]
            _check_length(length, needed, "cycle_from + cycle_length")
        return cosine_epochs

    def decay(self, step: int, steps_per_epoch: int) -> float:
        start, length = self.cycle_from * steps_per_epoch, self.cycle_length * steps_per_epoch
        if step >= start:
            step = start + (step - start) % length
        return cosine(step / ((self.cosine_epochs or self.epochs) * steps_per_epoch))


def _check_length(length: int, needed: int, what: str) -> None:
    if length < needed:
        raise PydanticCustomError(
            "cosine",
            "the learning rate would rise again after {length} epochs; use at least "
            "{what} = {needed}",
            {"length": length, "what": what, "needed": needed},
        )


if TYPE_CHECKING:
    AnySchedule = ScheduleSettings
else:  # the key ``name`` selects the class
    AnySchedule = Annotated[
        CosineSchedule | CosineFractionSchedule | ConstantSchedule | CyclicSchedule,
        Field(discriminator="name"),
    ]


def infer_schedule_name(table: dict[str, Any]) -> str:
    """Return the name of the schedule of a recipe without one, as in earlier versions."""
    return "cyclic" if "cycle_from" in table or "cycle_length" in table else "cosine"


@dataclass(frozen=True)
class Schedule:
    """Learning rate and ramp of every step; steps and epochs count from 0.

    Attributes:
        settings: the schedule.
        initial_learning_rate: γ₀.
        steps_per_epoch: steps of an epoch.

    Example:
        >>> schedule = Schedule(CosineSchedule(epochs=2), 0.1, steps_per_epoch=10)
        >>> schedule.total_steps, round(schedule.learning_rate(10), 3)
        (20, 0.05)
    """

    settings: ScheduleSettings
    initial_learning_rate: float
    steps_per_epoch: int

    @property
    def total_steps(self) -> int:
        return self.settings.epochs * self.steps_per_epoch

    def learning_rate(self, step: int) -> float:
        """Return the learning rate: γ₀, reduced during warm-up, times the decay."""
        return self._warm_up(step) * self.settings.decay(step, self.steps_per_epoch)

    def ramp(self, step: int) -> float:
        """Return the factor of the unsupervised terms in [0, 1], constant within an epoch."""
        return rampup(step // self.steps_per_epoch, self.settings.rampup_epochs)

    def _warm_up(self, step: int) -> float:
        length = self.settings.warmup_epochs * self.steps_per_epoch
        if self.settings.warmup_from is None or step >= length:
            return self.initial_learning_rate
        start = self.settings.warmup_from
        return start + (self.initial_learning_rate - start) * step / length
