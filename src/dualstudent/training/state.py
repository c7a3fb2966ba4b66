"""The state of a training, which a checkpoint saves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from dualstudent.methods import Method, StudentLoss


@dataclass
class TrainState:
    """The state of a training: everything that changes from step to step.

    Attributes:
        method: the method of the current stage, with its students.
        optimizers: one optimizer per student.
        stage: number of the current stage, from 0.
        step: number of steps done, over all stages.
        sums: (terms,) sums of the loss terms in this epoch; None at its start.
        terms: (student, name) of each loss term.
        seconds: duration of training and evaluation so far.
    """

    method: Method
    optimizers: Sequence[Optimizer]
    stage: int = 0
    step: int = 0
    sums: Tensor | None = None
    terms: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, losses: Sequence[StudentLoss]) -> None:
        """Add the loss terms of a step to the sums, on their device."""
        values = torch.stack([term.detach() for loss in losses for term in loss.terms.values()])
        self.terms = [(i, name) for i, loss in enumerate(losses) for name in loss.terms]
        # From 0, also in a new epoch: the first −0 of a term would stay one until a resume.
        self.sums = values + (0 if self.sums is None else self.sums)

    def split_by_student(self, values: Tensor | None) -> list[dict[str, float]]:
        """Return name → value for each student, given (terms,) values."""
        found: list[dict[str, float]] = [{} for _ in self.method.students]
        numbers = [] if values is None else values.tolist()
        for (student, name), value in zip(self.terms, numbers, strict=True):
            found[student][name] = value
        return found

    def find_broken(self, values: Tensor) -> tuple[int, str] | None:
        """Return the first term whose value is not finite; None if all are."""
        if bool(values.isfinite().all()):
            return None
        pairs = zip(self.terms, values.tolist(), strict=True)
        return next(term for term, value in pairs if not math.isfinite(value))
