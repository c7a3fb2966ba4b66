"""The course of a training, step by step and in memory: nothing is written, nothing is timed."""

import math
from typing import Any

import torch
from torch import Tensor

from dualstudent.errors import UserError
from dualstudent.methods import StudentLoss
from dualstudent.training.distributed import gather_ranks
from dualstudent.training.training import Training

_STEPS_BETWEEN_CHECKS = 50


class LossNotFinite(UserError):
    """Training diverged."""


class Course:
    """Where a training stands, and its next step.

    Args:
        training: at its beginning; to continue another course, set ``step``, ``sums``, ``names``.

    Attributes:
        step: how many steps are done.
        sums: of the loss terms since the epoch began; None at its beginning.
        names: (student, term) of each of them.

    Example:
        >>> from dualstudent import load_recipe
        >>> course = Course(Training(load_recipe("demo", ["schedule.epochs=1"])))
        >>> while not course.done:
        ...     record = course.advance()
        >>> sorted(record)
        ['epoch', 'learning_rate', 'loss', 'ramp', 'step']
    """

    def __init__(self, training: Training) -> None:
        self.training = training
        self.step = 0
        self.sums: Tensor | None = None
        self.names: list[tuple[int, str]] = []
        training.method.train()

    @property
    def done(self) -> bool:
        return self.step >= self.training.schedule.total_steps

    def advance(self) -> dict[str, Any] | None:
        """Take a step; at the end of an epoch, return what happened in it.

        Raises:
            LossNotFinite: at the latest 50 steps, or an epoch, after it happened.
        """
        self._add(self.training.take_step(self.step))
        self.step += 1
        if self.step % _STEPS_BETWEEN_CHECKS == 0:
            self.check_finite()
        if self.step % self.training.schedule.steps_per_epoch:
            return None
        return self._finish_epoch()

    def check_finite(self) -> None:
        """Refuse to go on with a loss that is not a number."""
        if self.sums is None:
            return
        means = self._means(self.sums)
        if bool(means.isfinite().all()):
            return
        broken = next(
            name
            for name, value in zip(self.names, means.tolist(), strict=True)
            if not math.isfinite(value)
        )
        rate = self.training.recipe.optimizer.learning_rate
        raise LossNotFinite(
            f"the loss is no longer finite: {broken[1]} of student {broken[0] + 1}, within the "
            f"{_STEPS_BETWEEN_CHECKS} steps before step {self.step}; try a smaller "
            f"optimizer.learning_rate than {rate:g}, a longer schedule.rampup_epochs or smaller "
            "weights of the method"
        )

    def _means(self, sums: Tensor) -> Tensor:
        """Over all processes, which hold equally large shares of every batch."""
        return gather_ranks(self.training.fabric, sums).mean(dim=0)

    def _add(self, losses: list[StudentLoss]) -> None:
        """Sum the terms where they are: nothing is copied to the host in a step."""
        values = torch.stack([term.detach() for loss in losses for term in loss.terms.values()])
        self.names = [(i, name) for i, loss in enumerate(losses) for name in loss.terms]
        self.sums = values if self.sums is None else self.sums + values

    def _finish_epoch(self) -> dict[str, Any]:
        self.check_finite()
        training, schedule = self.training, self.training.schedule
        epoch_length = schedule.steps_per_epoch
        training.finish_epoch(self.step // epoch_length - 1)
        means = [] if self.sums is None else (self._means(self.sums) / epoch_length).tolist()
        terms: list[dict[str, float]] = [{} for _ in training.method.students]
        for (student, name), value in zip(self.names, means, strict=True):
            terms[student][name] = value
        self.sums = None
        return {
            "epoch": self.step // epoch_length,
            "step": self.step,
            "learning_rate": schedule.learning_rate(self.step - 1),
            "ramp": schedule.ramp(self.step - 1),
            "loss": terms,
        }
