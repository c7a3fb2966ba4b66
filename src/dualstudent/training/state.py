"""All that changes during a training, and so all that a checkpoint holds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer

from dualstudent.methods import Method, StudentLoss


@dataclass
class TrainState:
    """Where a training stands.

    Attributes:
        method: of the current stage, with its students and whatever else it remembers.
        optimizers: one for each student.
        stage: which stage it is, counted from 0.
        step: how many steps are done, over all stages.
        sums: of the loss terms since the epoch began; None at its beginning.
        terms: (student, name) of each of them.
        seconds: that training and tests have taken so far.
    """

    method: Method
    optimizers: Sequence[Optimizer]
    stage: int = 0
    step: int = 0
    sums: Tensor | None = None
    terms: list[tuple[int, str]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, losses: Sequence[StudentLoss]) -> None:
        """Sum the terms where they are: nothing is copied to the host in a step."""
        values = torch.stack([term.detach() for loss in losses for term in loss.terms.values()])
        self.terms = [(i, name) for i, loss in enumerate(losses) for name in loss.terms]
        self.sums = values if self.sums is None else self.sums + values

    def by_student(self, values: Tensor | None) -> list[dict[str, float]]:
        """Name → value of the terms of each student, from one value a term."""
        found: list[dict[str, float]] = [{} for _ in self.method.students]
        numbers = [] if values is None else values.tolist()
        for (student, name), value in zip(self.terms, numbers, strict=True):
            found[student][name] = value
        return found

    def find_broken(self, values: Tensor) -> tuple[int, str] | None:
        """The first term whose value is not a finite number; None if all are."""
        if bool(values.isfinite().all()):
            return None
        pairs = zip(self.terms, values.tolist(), strict=True)
        return next(term for term, value in pairs if not math.isfinite(value))
