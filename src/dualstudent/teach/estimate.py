"""How good the model is, by a uniform sample, and how many labels more it may take."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from dualstudent.calibration import PredictedSet, Threshold, find_threshold
from dualstudent.labeling.trust import MIN_ACCEPTED
from dualstudent.training.measured import find_interval

_POINTS = 4  # that a forecast needs at least
_FARTHEST = 4  # times the labels of now; beyond, nothing honest can be said
_LEAST = 10  # measured images of an estimate; with fewer it is far too low
_LEAST_SAMPLE = 20  # of one that is used to forecast


@dataclass(frozen=True)
class Estimate:
    """The share of images that the model gets right, by those of the sample with a label.

    Attributes:
        labels: number of labels that the model has learned from.
        measured: number of images of the sample that were judged.
        correct: number of them that are right.
        low: lower end of Wilson's 95 % interval of the share.
        high: upper end.
    """

    labels: int
    measured: int
    correct: int
    low: float
    high: float

    @classmethod
    def count(cls, labels: int, is_correct: NDArray[np.bool_]) -> "Estimate | None":
        """Count the right answers; None if fewer than ten images were judged."""
        if len(is_correct) < _LEAST:
            return None
        low, high = find_interval(float(is_correct.mean()), len(is_correct))
        return cls(labels, len(is_correct), int(is_correct.sum()), low, high)

    @property
    def accuracy(self) -> float:
        """Share of right answers, in [0, 1]."""
        return self.correct / self.measured


def find_trust(
    probabilities: NDArray[np.float64], labels: NDArray[np.int64], precision: float
) -> Threshold | None:
    """Find the confidence from which on answers are as precise as wanted; None if there is none.

    Args:
        probabilities: (n, C) for images of the sample, each by a model without its label.
        labels: (n,) int64, their classes.
        precision: wanted share of right answers among the trusted ones.
    """
    if len(labels) < MIN_ACCEPTED:
        return None
    yes = torch.ones(len(labels), dtype=torch.bool)
    predicted = PredictedSet(torch.from_numpy(probabilities), torch.from_numpy(labels), yes, yes)
    return find_threshold(predicted, precision, MIN_ACCEPTED)


def forecast_labels(history: Sequence[Estimate], goal: float) -> tuple[int, int] | None:
    """Forecast between how many and how many labels more the goal is reached.

    The error falls as a power of the number of labels, error = a n^(−b): a line in logarithms, by
    least squares, each point weighted by its sample. Its answer with the slope one standard error
    steeper and flatter are the two ends.

    Args:
        history: of trainings, each with more labels.
        goal: wanted accuracy, in (0, 1).

    Returns:
        None if nothing honest can be said: fewer than four points or 20 measured images, no clear
        fall of the error, the goal reached already, or more than four times the labels of now.

    Example:
        >>> right = {20: 55, 40: 68, 80: 77, 120: 82}
        >>> points = [Estimate(n, 100, c, 0, 1) for n, c in right.items()]
        >>> low, high = forecast_labels(points, 0.9)
        >>> low < 280 < high
        True
    """
    used = [each for each in history if each.measured >= _LEAST_SAMPLE]
    if len(used) < _POINTS or used[-1].accuracy >= goal:
        return None
    x = np.log([each.labels for each in used])
    y = np.log([(each.measured - each.correct + 0.5) / (each.measured + 1) for each in used])
    weights = np.array([each.measured for each in used], np.float64)
    weights /= weights.sum()
    middle, height = weights @ x, weights @ y
    width = weights @ (x - middle) ** 2
    if width <= 0:
        return None
    slope = weights @ ((x - middle) * (y - height)) / width
    rest = y - height - slope * (x - middle)
    error = math.sqrt(weights @ rest**2 / width / max(1, len(used) - 2))
    now, target = used[-1].labels, math.log(1 - goal)
    ends = []
    for steepness in (slope - error, slope + error):
        if steepness >= 0 or (logarithm := middle + (target - height) / steepness) > math.log(
            (1 + _FARTHEST) * now
        ):
            return None
        ends.append(max(1, math.ceil(math.exp(logarithm)) - now))
    return min(ends), max(ends)
