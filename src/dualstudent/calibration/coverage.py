"""Accuracy against coverage: how good are the answers if the doubtful ones go to a person?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class CoveragePoint:
    """What comes of believing some of the predictions; all values in [0, 1].

    Attributes:
        coverage: the share of the samples whose prediction is believed.
        accuracy: the share of these that is right; None if none is believed.
        threshold: the smallest confidence that is believed; None if confidence does not decide.
    """

    coverage: float
    accuracy: float | None
    threshold: float | None = None


def coverage_curve(
    predicted: PredictedSet, instability: Tensor | None = None
) -> list[CoveragePoint]:
    """One point for each confidence that occurs, from the surest samples alone to all of them.

    Samples of equal confidence are believed together: their order in the set must not matter.

    Args:
        predicted: N samples.
        instability: (N,) of Eq. 4; if given, it decides instead of confidence, from the samples
            whose answer a small change moves least.

    Example:
        >>> import torch
        >>> p = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.75, 0.25]])
        >>> yes = torch.tensor([True, True, True])
        >>> curve = coverage_curve(PredictedSet(p, torch.tensor([0, 1, 0]), yes, yes))
        >>> [(round(each.coverage, 2), round(each.accuracy, 2)) for each in curve]
        [(0.67, 1.0), (1.0, 0.67)]
    """
    doubt = -predicted.confidence if instability is None else instability
    thresholds, place = torch.unique(doubt, return_inverse=True)
    believed = place.bincount().cumsum(0)
    right = place.bincount(predicted.correct.double()).cumsum(0)
    total = len(predicted.labels)
    return [
        CoveragePoint(count / total, good / count, -threshold if instability is None else None)
        for count, good, threshold in zip(
            believed.tolist(), right.tolist(), thresholds.tolist(), strict=True
        )
    ]


def stable_point(predicted: PredictedSet) -> CoveragePoint:
    """Where believing exactly the stable samples leads, to be compared with the curve."""
    return _point(predicted, predicted.stable)


def agreed_point(predicted: PredictedSet) -> CoveragePoint:
    """The same for the samples that are stable and on which all students agree."""
    return _point(predicted, predicted.stable & predicted.agree)


def _point(predicted: PredictedSet, believed: Tensor) -> CoveragePoint:
    count, right = int(believed.sum()), int((believed & predicted.correct).sum())
    return CoveragePoint(count / len(predicted.labels), right / count if count else None)
