"""Everything that changes with time: the learning rate and the ramp of the unsupervised terms."""

import math
from dataclasses import dataclass

from pydantic import Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from dualstudent.settings import Settings


class ScheduleSettings(Settings):
    """How long, how the weights of the loss terms begin, and how the learning rate falls."""

    epochs: int = Field(gt=0)
    rampup_epochs: float = Field(5, ge=0, description="until λ₁ and λ₂ have their full value")
    warmup_epochs: float = Field(0, ge=0, description="in which the learning rate rises at first")
    warmup_from: float | None = Field(
        None, ge=0, validate_default=True, description="the learning rate that it rises from"
    )
    cycle_from: int | None = Field(
        None, ge=0, description="after how many epochs the learning rate begins to go in cycles"
    )
    cycle_length: int | None = Field(
        None,
        gt=0,
        validate_default=True,
        description="epochs of a cycle, in which the cosine from cycle_from on is replayed",
    )
    cosine_epochs: int | None = Field(
        None,
        gt=0,
        validate_default=True,
        description="after how many epochs the learning rate would be 0; default: epochs",
    )

    # A key that is missing in info.data was wrong by itself, and that has been said.

    @field_validator("warmup_from")
    @classmethod
    def _has_a_length(cls, start: float | None, info: ValidationInfo) -> float | None:
        if "warmup_epochs" in info.data and (start is None) != (info.data["warmup_epochs"] == 0):
            raise PydanticCustomError("warmup", "goes with warmup_epochs; set both or neither")
        return start

    @field_validator("cycle_length")
    @classmethod
    def _has_a_beginning(cls, length: int | None, info: ValidationInfo) -> int | None:
        if "cycle_from" in info.data and (length is None) != (info.data["cycle_from"] is None):
            raise PydanticCustomError("cycle", "goes with cycle_from; set both or neither")
        return length

    @field_validator("cosine_epochs")
    @classmethod
    def _falls_long_enough(cls, cosine_epochs: int | None, info: ValidationInfo) -> int | None:
        if not {"epochs", "cycle_from", "cycle_length"} <= info.data.keys():
            return cosine_epochs
        epochs, start = info.data["epochs"], info.data["cycle_from"]
        needed, what = epochs, "epochs"
        if start is not None:
            needed, what = start + info.data["cycle_length"], "cycle_from + cycle_length"
        falls_for = cosine_epochs or epochs
        if falls_for < needed:
            raise PydanticCustomError(
                "cosine",
                "the learning rate would rise again after {length} epochs; use at least "
                "{what} = {needed}",
                {"length": falls_for, "what": what, "needed": needed},
            )
        return cosine_epochs


def cosine(progress: float) -> float:
    """From 1 at progress 0 to 0 at progress 1 along half a cosine.

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


@dataclass(frozen=True)
class Schedule:
    """What step t asks for; steps and epochs count from 0."""

    settings: ScheduleSettings
    initial_learning_rate: float
    steps_per_epoch: int

    @property
    def total_steps(self) -> int:
        return self.settings.epochs * self.steps_per_epoch

    def learning_rate(self, step: int) -> float:
        """γ₀ · ½(1 + cos(π t/N)), step by step; N is longer than training if it is to be."""
        cosine_epochs = self.settings.cosine_epochs or self.settings.epochs
        moment = self._within_first_cycle(step)
        progress = moment / (cosine_epochs * self.steps_per_epoch)
        return self._warmed_up(step) * cosine(progress)

    def ramp(self, step: int) -> float:
        """In [0, 1], constant within an epoch."""
        return rampup(step // self.steps_per_epoch, self.settings.rampup_epochs)

    def _warmed_up(self, step: int) -> float:
        """γ₀, or on the straight way up to it."""
        length = self.settings.warmup_epochs * self.steps_per_epoch
        if self.settings.warmup_from is None or step >= length:
            return self.initial_learning_rate
        start = self.settings.warmup_from
        return start + (self.initial_learning_rate - start) * step / length

    def _within_first_cycle(self, step: int) -> int:
        """The step whose learning rate is taken: itself, or where a cycle replays it."""
        first, length = self.settings.cycle_from, self.settings.cycle_length
        if first is None or length is None or step < first * self.steps_per_epoch:
            return step
        start = first * self.steps_per_epoch
        return start + (step - start) % (length * self.steps_per_epoch)
