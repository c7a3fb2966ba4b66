"""Everything that changes with time: the learning rate and the ramp of the unsupervised terms."""

import math
from dataclasses import dataclass

from pydantic import Field

from dualstudent.settings import Settings


class ScheduleSettings(Settings):
    """How long, and how the weights of the loss terms begin."""

    epochs: int = Field(gt=0)
    rampup_epochs: float = Field(5, ge=0, description="until λ₁ and λ₂ have their full value")


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
        """γ₀ · ½(1 + cos(π t/N)), step by step."""
        return self.initial_learning_rate * cosine(step / self.total_steps)

    def ramp(self, step: int) -> float:
        """In [0, 1], constant within an epoch."""
        return rampup(step // self.steps_per_epoch, self.settings.rampup_epochs)
