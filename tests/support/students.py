"""Students, batches and questions about gradient that are small enough to check by hand."""

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch import Tensor, nn

from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.methods import Method, Task
from dualstudent.networks import DigitsCNN
from dualstudent.prediction import Prediction

Kind = TypeVar("Kind", bound=Method)


def small_network(student: int = 0) -> DigitsCNN:
    with seeded_rng("network", student):
        return DigitsCNN(classes=3, dropout=0.0)


def small_batch() -> Batch:
    with seeded_rng("batch"):
        images = torch.randn(16, 1, 4, 4)
        views = [images + 0.1 * torch.randn_like(images) for _ in range(2)]
    labels = torch.tensor([-1] * 12 + [0, 1, 2, 0])
    return Batch((views[0], views[1]), labels, labels < 0, torch.arange(16))


def begun(method: Kind, value_range: float = 1.0) -> Kind:
    """The method, told of a long training on large images of 3 classes."""
    method.begin(Task(1000, 40, 3, (3, 64, 64), value_range))
    return method


class Recorder(nn.Module):
    """A student that remembers what it was shown, and which answers carry gradient."""

    def __init__(self, student: nn.Module) -> None:
        super().__init__()
        self.student = student
        self.shown: list[tuple[Tensor, bool]] = []

    def forward(self, view: Tensor) -> Prediction:
        prediction: Prediction = self.student(view)
        self.shown.append((view, prediction.class_logits.requires_grad))
        return prediction


def parts(student: DigitsCNN) -> Iterator[tuple[str, list[nn.Parameter]]]:
    yield "trunk", list(student.trunk.parameters())
    yield "class head", list(student.heads.classify.parameters())
    yield "consistency head", list(student.heads.follow.parameters())


def reached_parts(student: DigitsCNN) -> set[str]:
    """Where gradient other than 0 has arrived."""
    return {
        part
        for part, parameters in parts(student)
        if any(p.grad is not None and p.grad.any() for p in parameters)
    }
