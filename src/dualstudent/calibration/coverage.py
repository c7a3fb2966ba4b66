"""Accuracy against coverage: how accurate are the predictions if the doubtful ones are rejected?"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dualstudent.calibration.predicted import PredictedSet


@dataclass(frozen=True)
class CoveragePoint:
    """The result of accepting some of the predictions; all values in [0, 1].

    Attributes:
        coverage: share of the predictions that are accepted.
        accuracy: share of the accepted predictions that are correct; None if none is accepted.
        threshold: smallest accepted confidence; None if confidence does not decide.
    """

    coverage: float
    accuracy: float | None
    threshold: float | None = None


def coverage_curve(
    predicted: PredictedSet, instability: Tensor | None = None
) -> list[CoveragePoint]:
    """One point per distinct confidence, from the most confident samples alone to all samples.

    Samples of equal confidence are accepted together, so that their order does not matter.

    Args:
        predicted: N samples.
        instability: (N,), Eq. 4; if given, the least unstable samples are accepted first, instead
            of the most confident.

    Example:
        >>> import torch
        >>> p = torch.tensor([[0.75, 0.25], [0.5, 0.5], [0.75, 0.25]])
        >>> yes = torch.tensor([True, True, True])
        >>> curve = coverage_curve(PredictedSet(p, torch.tensor([0, 1, 0]), yes, yes))
        >>> [(round(each.coverage, 2), round(each.accuracy, 2)) for each in curve]
        [(0.67, 1.0), (1.0, 0.67)]
    """
    doubt = -predicted.confidence if instability is None else instability
    thresholds, group = torch.unique(doubt, return_inverse=True)
    accepted = group.bincount().cumsum(0)
    correct = group.bincount(predicted.correct.double()).cumsum(0)
    total = len(predicted.labels)
    return [
        CoveragePoint(count / total, good / count, -threshold if instability is None else None)
        for count, good, threshold in zip(
            accepted.tolist(), correct.tolist(), thresholds.tolist(), strict=True
        )
    ]


def stable_point(predicted: PredictedSet) -> CoveragePoint:
    """Accept exactly the stable samples, to compare with the curve."""
    return _accept(predicted, predicted.stable)


def agreed_point(predicted: PredictedSet) -> CoveragePoint:
    """Accept exactly the stable samples on which all students agree."""
    return _accept(predicted, predicted.stable & predicted.agree)


def _accept(predicted: PredictedSet, accepted: Tensor) -> CoveragePoint:
    count, correct = int(accepted.sum()), int((accepted & predicted.correct).sum())
    return CoveragePoint(count / len(predicted.labels), correct / count if count else None)
