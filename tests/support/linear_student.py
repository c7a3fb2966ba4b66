"""A network simple enough to be known exactly, and its probabilities in NumPy."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dualstudent.batch import Batch
from dualstudent.generators import seeded_rng
from dualstudent.prediction import Prediction

Array = NDArray[np.float64]


class LinearSoftmax(nn.Module):
    """Class logits W x in float64, and a consistency head that must not matter."""

    def __init__(self, number: int, features: int = 5, classes: int = 3) -> None:
        super().__init__()
        with seeded_rng("linear", number):
            self.weight = nn.Parameter(torch.randn(classes, features, dtype=torch.float64))

    def forward(self, x: Tensor) -> Prediction:
        logits = x @ self.weight.T
        return Prediction(logits, torch.full_like(logits, torch.nan), x)

    @property
    def w(self) -> Array:
        return self.weight.detach().numpy()


def probabilities(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def linear_batch(labels: list[int]) -> Batch:
    """Points for a :class:`LinearSoftmax`; nothing may look at the second view."""
    with seeded_rng("points"):
        points = torch.randn(len(labels), 5, dtype=torch.float64)
    known = torch.tensor(labels)
    second = torch.full_like(points, torch.nan)
    return Batch((points, second), known, known < 0, torch.arange(len(labels)))
